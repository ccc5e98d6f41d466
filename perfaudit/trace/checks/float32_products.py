"""Matrix products in float32 on a device whose tensor cores stand still."""

from __future__ import annotations

from collections.abc import Iterator

from perfaudit.trace.checks import Seen
from perfaudit.trace.device_view import DeviceView
from perfaudit.trace.matrix_products import capability_of, is_amd, products_of
from perfaudit.trace.words import a_step, percent

RULES = ("PA303", "PA304")
# Most that tensor cores multiply faster, from the data sheets of V100, T4, A100 and H100 (dense): float32 15.7, 8.1, 19.5 and 67
# TFLOPS; half 125, 65, 312 and 990; TF32 156 and 495. MI300X: float32 on its matrix cores 163, half 1307.
HALF_FASTER = 8.0
TF32_FASTER = 8.0
HALF_AGAINST_TF32 = 2.0


def look(view: DeviceView) -> Iterator[Seen]:
    capability = capability_of(view)
    if capability is None or capability < (7, 0):
        return
    products = products_of(view)
    plain = products.by_units["float32"]
    if plain:
        has_tf32 = capability >= (8, 0) and not is_amd(view)
        faster = TF32_FASTER if has_tf32 else HALF_FASTER
        units = "" if is_amd(view) else ", without tensor cores"
        yield Seen(
            "PA303" if has_tf32 else "PA304",
            f"matrix products and convolutions run in float32 for {percent(view, plain)} of the time ({a_step(view, plain)})"
            f"{units}; {'TF32' if has_tf32 else 'half precision'} multiplies up to {faster:.0f} times as fast",
            plain * (1 - 1 / faster),
        )
    tf32 = products.tf32
    if tf32 and tf32 > 0.5 * products.all:
        yield Seen(
            "PA304",
            f"matrix products and convolutions run in TF32 for {percent(view, tf32)} of the time "
            f"({a_step(view, tf32)}); bfloat16 "
            f"multiplies up to {HALF_AGAINST_TF32:.0f} times as fast and halves what is moved",
            tf32 * (1 - 1 / HALF_AGAINST_TF32),
        )
