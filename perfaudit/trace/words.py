"""How messages of trace findings say times, shares and rates."""

from __future__ import annotations

from perfaudit.trace.device_view import DeviceView


def milliseconds(microseconds: float) -> str:
    """12.3 ms, 850 us, 2.1 s."""
    if microseconds >= 1e6:
        return f"{microseconds / 1e6:.3g} s"
    if microseconds >= 1000:
        return f"{microseconds / 1000:.3g} ms"
    return f"{microseconds:.3g} us"


def a_step(view: DeviceView, microseconds: float, left_out: int = 0) -> str:
    """A time of the window as one of a step, where steps are known: "12.3 ms a step", else "1.2 s in all".

    left_out: steps at the beginning that it does not come from.
    """
    if view.steps:
        return f"{milliseconds(microseconds / (len(view.steps) - left_out))} a step"
    return f"{milliseconds(microseconds)} in all"


def times_a_step(view: DeviceView, number: int, left_out: int = 0) -> str:
    """How often something happens: "3 times a step", "12 times". left_out: steps at the beginning that are not counted."""
    if not view.steps:
        return "once" if number == 1 else f"{number:,} times"
    rate = number / (len(view.steps) - left_out)
    if 0.95 <= rate <= 1.05:
        return "once a step"
    return f"{rate:,.0f} times a step" if rate >= 100 else f"{rate:.3g} times a step"


def percent(view: DeviceView, microseconds: float) -> str:
    """A time as a share of the window: "12 %"."""
    share = 100 * microseconds / view.length
    return f"{share:.0f} %" if share >= 9.5 else f"{share:.1f} %"


def size_in_words(size: float) -> str:
    """Bytes: "200 bytes", "1.5 KiB", "25 MiB"."""
    for unit, factor in (("MiB", 2**20), ("KiB", 2**10)):
        if size >= factor:
            return f"{size / factor:.3g} {unit}"
    return f"{size:.0f} bytes"


def short_name(name: str, longest: int = 60) -> str:
    """A kernel's name without its parameters, cut where it is long."""
    head = name.removeprefix("void ").partition("(")[0]
    return head if len(head) <= longest else f"{head[: longest - 3]}..."
