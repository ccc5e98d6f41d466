"""Words on the counters of a step: their names and units, what changed, and where."""

from __future__ import annotations

import re
from collections.abc import Iterable

from perfaudit.verdicts import CounterChange, Place

_NAMES = {
    "flops": "floating-point operations",
    "copies_to_device": "copies to the device",
    "bytes_to_device": "bytes copied to the device",
    "dataset_samples": "samples of the dataset",
}
# What costs time first; where several grew, the first one is what the others follow from or what the headline names.
_ORDER = (
    "host_syncs",
    "unpinned_copies",
    "copies_to_device",
    "graph_breaks",
    "recompilations",
    "operators",
    "kernels_launched",
    "flops",
    "bytes_to_device",
    "peak_live_bytes",
    "bytes_allocated",
)
# What these are counted over; all others over one step.
_OVER = {
    "parameters": "",
    "trainable_parameters": "",
    "dataset_samples": "",
    "samples_repeated": " per epoch",
    "samples_skipped": " per epoch",
    "graph_breaks": " in the first steps",
    "recompilations": " in the first steps",
}
_MOST_NAMES = 8  # that are said of one counter
_BINARY = ((1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))
_DECIMAL = ((10**15, "PFLOP"), (10**12, "TFLOP"), (10**9, "GFLOP"), (10**6, "MFLOP"), (10**3, "kFLOP"))


def is_blamed(change: CounterChange) -> bool:
    """Whether this growth is neither accepted nor within what the configuration allows."""
    return change.grew and not change.accepted and not change.allowed


def in_order(changes: Iterable[CounterChange]) -> list[CounterChange]:
    """What counts as a regression first, then other growth, then what shrank; within each what costs most time."""

    def weight(change: CounterChange) -> int:
        return _ORDER.index(change.counter) if change.counter in _ORDER else len(_ORDER)

    return sorted(changes, key=lambda change: (not is_blamed(change), not change.grew, weight(change)))


def counter_name(counter: str) -> str:
    """A counter as people call it, with what it is counted over where that is no step: "host syncs"."""
    return _bare_name(counter) + _OVER.get(counter, "")


def with_basis(counter: str) -> str:
    """The same with what it is counted over: "host syncs per step", "samples skipped per epoch"."""
    return _bare_name(counter) + _OVER.get(counter, " per step")


def _bare_name(counter: str) -> str:
    return _NAMES.get(counter, counter.replace("_", " "))


def _is_amount(counter: str) -> bool:
    return "bytes" in counter or "flop" in counter


def amount(counter: str, value: int) -> str:
    """A counter's value in a unit that keeps it readable, "" where the exact number is: "12.0 MiB", "1.3 GFLOP"."""
    units = _BINARY if "bytes" in counter else _DECIMAL if "flop" in counter else ()
    for unit, name in units:
        if abs(value) >= unit:
            return f"{value / unit:.1f} {name}"
    return ""


def exact(counter: str, value: int) -> str:
    """The number, of bytes and operations with the unit."""
    unit = (" byte" if abs(value) == 1 else " bytes") if "bytes" in counter else " FLOP" if "flop" in counter else ""
    return f"{value:,}{unit}"


def difference(change: CounterChange) -> str:
    """How much more or less there is: "14 more", "4,194,304 bytes less (4.0 MiB)", "10 fewer: 20 more and 30 fewer by name"."""
    by = abs(change.after - change.before)
    size = amount(change.counter, by)
    said = f"{exact(change.counter, by)} {_way(change)}" + (f" ({size})" if size else "")
    parts = both_ways(change)
    if change.after == change.before:
        return f"the same in all: {parts}"
    return f"{said}: {parts}" if parts else said


def both_ways(change: CounterChange) -> str:
    """What hides in a sum that did not grow, where some of its parts grew: "20 more and 30 fewer by name"; "" elsewhere."""
    more, less = change.more_and_less
    if change.grew or not more:
        return ""
    return f"{exact(change.counter, more)} more and {exact(change.counter, less)} {_way(change)} by name"


def _way(change: CounterChange) -> str:
    return "more" if change.grew else "less" if _is_amount(change.counter) else "fewer"


def difference_sentence(change: CounterChange) -> str:
    """A change in a few words: "14 more host syncs per step", "4.0 MiB more allocated per step"."""
    by, name = abs(change.after - change.before), _bare_name(change.counter)
    over = _OVER.get(change.counter, " per step")
    if not _is_amount(change.counter):
        return f"{by:,} {'more' if change.grew else 'fewer'} {_singular(name) if by == 1 else name}{over}"
    size = amount(change.counter, by) or exact(change.counter, by)
    what = "live at the peak" if "peak" in change.counter else name.removeprefix("bytes").strip()
    what = "" if "flop" in change.counter else f" {what}"
    return f"{size} {'more' if change.grew else 'less'}{what}{over}"


def _singular(name: str) -> str:
    """The name of one: "graph break", "copy to the device"."""
    return re.sub(r"(?<![s\s])s\b", "", re.sub(r"ies\b", "y", name))


def place_text(place: Place) -> str:
    """A line and what is done there: "train.py:88  item, 14 more"."""
    what = f"{place.what}, " if place.what else ""
    return f"{place.path}:{place.line}  {what}{place.count:,} more"


def names_text(change: CounterChange) -> str:
    """By how much each operator or kind changed, the first ones: "by name: aten::mul +20, aten::add +8"; "" without any."""
    unit = " (bytes)" if "bytes" in change.counter else " (FLOP)" if "flop" in change.counter else ""
    parts = [f"{name} {by:+,}" for name, by in change.by_name.items() if by]
    left = len(parts) - _MOST_NAMES
    if not parts:
        return ""
    return f"by name{unit}: {', '.join(parts[:_MOST_NAMES])}" + (f", and {left} more" if left > 0 else "")


def standing(change: CounterChange) -> str:
    """Why growth does not count, "" where it does or where there is none."""
    if change.accepted:
        return f"accepted: {change.accepted}"
    return "within what the configuration tolerates" if change.allowed and change.grew else ""
