"""GPUs of NVIDIA, as their driver tells: clocks, throttling, other processes, the link, the modes of its memory."""

from __future__ import annotations

import csv
from collections.abc import Iterator

from perfaudit.machine.place import Place
from perfaudit.machine_facts import MachineFact

AREA = "devices"
_FIELDS = (
    "index", "name", "driver_version", "memory.total", "memory.used", "utilization.gpu", "temperature.gpu",
    "clocks.sm", "clocks.max.sm", "clocks_throttle_reasons.active", "ecc.mode.current", "mig.mode.current",
    "pcie.link.gen.current", "pcie.link.gen.max", "pcie.link.width.current", "pcie.link.width.max", "persistence_mode",
)  # fmt: skip
# Asked for where a driver refuses the whole question because of one field that it does not know, as an old or a newer one may.
_EVERY_DRIVER = _FIELDS[: _FIELDS.index("clocks_throttle_reasons.active")]
_MEMORY = 512  # MiB that others hold, from which on a batch size that fits alone may not fit
_BUSY = 5  # per cent
# Bits of `clocks_throttle_reasons.active` (NVML's nvmlClocksEventReasons) that slow a kernel.
_SLOWED = {
    0x4: "its power limit",
    0x8: "its hardware (power brake, or too hot)",
    0x20: "the temperature limit of the driver",
    0x40: "heat",
    0x80: "the power supply",
}


def look(place: Place) -> Iterator[MachineFact]:
    for fields in (_FIELDS, _EVERY_DRIVER):
        printed = place.output_of("nvidia-smi", f"--query-gpu={','.join(fields)}", "--format=csv,noheader,nounits")
        if printed is not None:
            break
    for row in csv.reader((printed or "").splitlines(), skipinitialspace=True):
        if len(row) == len(fields):
            said = dict.fromkeys(_FIELDS, "") | dict(zip(fields, (cell.strip() for cell in row), strict=True))
            yield from _gpu(said, place.has_bandwidth)


def _gpu(said: dict[str, str], has_copied: bool) -> Iterator[MachineFact]:
    gpu = f"GPU {said['index']}"

    def fact(name: str, value: float | str, unit: str = "", advice: str = "", is_grave: bool = True) -> MachineFact:
        state = ("warning" if is_grave else "note") if advice else "ok"
        return MachineFact(AREA, f"{gpu}, {name}", value, unit, state, advice, "nvidia-smi")  # type: ignore[arg-type]  # of three

    yield fact("name", f"{said['name']}, driver {said['driver_version']}")
    used, busy = _number(said["memory.used"]), _number(said["utilization.gpu"])
    if used is not None:
        # Copies that this command has timed just before count as use, too.
        taken = used > _MEMORY or (not has_copied and (busy or 0) > _BUSY)
        advice = (
            "another process uses it: what fits and how long it takes depends on that (`nvidia-smi`)" if taken else ""
        )
        yield fact("memory in use", int(used) << 20, "bytes", advice)
    yield from _clock(said, fact)
    for now, most, what in (
        ("pcie.link.gen.current", "pcie.link.gen.max", "PCIe generation"),
        ("pcie.link.width.current", "pcie.link.width.max", "PCIe lanes"),
    ):
        current, largest = _number(said[now]), _number(said[most])
        if current is not None and largest is not None:
            # A link sleeps in a lower generation while nothing is copied; lanes do not.
            less = current < largest and what == "PCIe lanes"
            advice = f"{largest:g} are possible: copies take longer (slot, riser, firmware)" if less else ""
            yield fact(what, int(current), "", advice, is_grave=False)
    if said["ecc.mode.current"] in ("Enabled", "Disabled"):
        yield fact("ECC", "on" if said["ecc.mode.current"] == "Enabled" else "off")
    if said["mig.mode.current"] == "Enabled":
        yield fact("MIG", "on", "", "a part of the device is used: CUDA_VISIBLE_DEVICES names it", is_grave=False)
    if said["persistence_mode"] == "Disabled":
        yield fact("persistence mode", "off", "", "each start loads the driver: `nvidia-smi -pm 1`", is_grave=False)


def _clock(said: dict[str, str], fact: object) -> Iterator[MachineFact]:
    assert callable(fact)
    clock, most = _number(said["clocks.sm"]), _number(said["clocks.max.sm"])
    if clock is not None and most is not None:
        yield fact("clock", int(clock), f"MHz of {int(most)}")
    try:
        active = int(said["clocks_throttle_reasons.active"], 16)
    except ValueError:
        return
    reasons = [words for bit, words in _SLOWED.items() if active & bit]
    if reasons:
        yield fact("is slowed by", " and ".join(reasons), "", "times are not those of the device at its full clock")


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:  # "[N/A]", "[Not Supported]"
        return None
