"""What is known of the counters of one target: kept in a baseline, and read from one that anybody may have edited."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from perfaudit.decoding import Value
from perfaudit.measure.facts import Facts

COUNTERS = (
    "operators",
    "flops",
    "bytes_allocated",
    "peak_live_bytes",
    "host_syncs",
    "parameters",
    "trainable_parameters",
    "samples",
    "dataset_samples",
    "samples_repeated",
    "samples_skipped",
    "copies_to_device",
    "bytes_to_device",
    "unpinned_copies",
    "kernels_launched",
    "graphs_replayed",
    "graph_breaks",
    "recompilations",
)

# What is known of every target, if only why it could not be counted. A counter that is added later is not in files that are
# there by then, so it must not stand here.
OF_ALL = (*COUNTERS[: COUNTERS.index("dataset_samples")], "samples_repeated", "samples_skipped")
_ON_ACCELERATORS = ("copies_to_device", "bytes_to_device", "unpinned_copies")
_ON_CUDA = ("kernels_launched", "graphs_replayed")
_TOGETHER = (("dataset_samples", "samples_repeated"), ("recompilations", "graph_breaks"))

# An earlier version wrote 0 and 0 where the profiler saw nothing; no step on CUDA launches neither a kernel nor a graph.
NOT_SEEN = "the file has none, which no step on CUDA has: the profiler did not see them when it was written"

_PLACES_IN_FILES = ("host_syncs",)  # the lines of operators would make a baseline of thousands of lines
_IN_NO_FILE = ("least", "most", "turns", "facts")


@dataclass(frozen=True, slots=True, order=True)
class Spot:
    """A line on which something is done `count` times a step. text: the line itself, without the space around it."""

    path: str
    line: int
    text: str
    what: str
    count: int


@dataclass(frozen=True, slots=True)
class Counted:
    """What one training step of a target consists of; names and meaning of the counters as in `measure.counters`.

    by_name: parts of a counter, by operator or kind of sync, whose sum it is. places: lines of the user's own, by counter.
    set_aside: counters that the two processes did not agree on, absent: those that could not be taken, with words each.
    A counter that makes no sense for the target (copies to the device on a CPU) is in none of them. least, most: of counters
    that are set aside, the smallest and the largest value of all that were seen, where each process had one. turns: those of
    them that both processes saw take turns between two values from step to step; by_name and places are of the larger one.
    facts: of the first training that was built (`measure.facts`). These are known where it has just been counted, and in no
    file.
    """

    values: dict[str, int]
    by_name: dict[str, dict[str, int]] = field(default_factory=dict)
    places: dict[str, list[Spot]] = field(default_factory=dict)
    set_aside: dict[str, str] = field(default_factory=dict)
    absent: dict[str, str] = field(default_factory=dict)
    device: str = "cpu"  # torch's type of it
    torch: str = ""
    dtype: str = ""  # of the parameters: "bfloat16, float32"
    least: dict[str, int] = field(default_factory=dict, compare=False)
    most: dict[str, int] = field(default_factory=dict, compare=False)
    turns: frozenset[str] = field(default=frozenset(), compare=False)
    facts: Facts | None = field(default=None, compare=False, repr=False)

    @property
    def training_facts(self) -> Facts:
        """The facts, where it has just been counted. Raises ValueError for what was read from a file."""
        if self.facts is None:
            raise ValueError("these counters come from a file, which says nothing of what was built")
        return self.facts

    def as_json(self) -> dict[str, Any]:
        """For a file, in the order of names, without the lines of operators."""
        return {
            "absent": _sort_keys(self.absent),
            "by_name": {name: _sort_keys(parts) for name, parts in sorted(self.by_name.items()) if name in self.values},
            "device": self.device,
            "dtype": self.dtype,
            "places": {
                name: [_sort_keys(asdict(spot)) for spot in sorted(spots)]
                for name, spots in sorted(self.places.items())
                if name in _PLACES_IN_FILES and name in self.values
            },
            "set_aside": _sort_keys(self.set_aside),
            "torch": self.torch,
            "values": _sort_keys(self.values),
        }

    @classmethod
    def from_json(cls, found: Value) -> Counted:
        """What `as_json` gave. Raises Damaged for anything that it could not have given."""
        found.keys([name for name in cls.__dataclass_fields__ if name not in _IN_NO_FILE])
        values = _numbers(found.at("values"))
        by_name = {name: _numbers(inner) for name, inner in found.at("by_name").fields()}
        for name, inner in by_name.items():
            if sum(inner.values()) != values.get(name):
                total = f"{values[name]:,}" if name in values else "not there"
                raise found.damage_error(
                    f"has by_name.{name}, which adds up to {sum(inner.values()):,}, and values.{name} is {total}"
                )
        places = {name: [_spot(spot) for spot in spots.items()] for name, spots in found.at("places").fields()}
        aside, absent = (_texts(found.at(part)) for part in ("set_aside", "absent"))
        device, torch, dtype = (found.at(part).text() for part in ("device", "torch", "dtype"))
        if strange := sorted(places.keys() - values.keys()):
            raise found.at("places").damage_error(f"has {strange[0]!r}, which is not among values")
        _refuse_gaps(values, aside, absent, device, found)
        if device == "cuda" and values.get("operators") and not any(values.get(name, 1) for name in _ON_CUDA):
            absent.update(dict.fromkeys(_ON_CUDA, NOT_SEEN))
            values = {name: value for name, value in values.items() if name not in _ON_CUDA}
            by_name = {name: inner for name, inner in by_name.items() if name not in _ON_CUDA}
        return cls(values, by_name, places, aside, absent, device, torch, dtype)


def _refuse_gaps(
    values: Mapping[str, int], aside: Mapping[str, str], absent: Mapping[str, str], device: str, found: Value
) -> None:
    """Raises Damaged for a name that is no counter, stands twice, or is missing: it would not be compared, unnoticed."""
    stand = Counter([*values, *aside, *absent])
    for name, times in stand.items():
        if name not in COUNTERS:
            raise found.damage_error(f"has {name!r}, which is no counter; there are {', '.join(COUNTERS)}")
        if times > 1:
            raise found.damage_error(f"has {name!r} {times} times in values, set_aside and absent")
    needed = [*OF_ALL, *(_ON_ACCELERATORS if device != "cpu" else ()), *(_ON_CUDA if device == "cuda" else ())]
    needed += [name for name, other in _TOGETHER if other in values or other in aside]
    for name in needed:
        if name not in stand:
            raise found.damage_error(f"has {name!r} neither in values nor in set_aside nor in absent")


def _sort_keys(found: Mapping[str, Any]) -> dict[str, Any]:  # values as they were
    return dict(sorted(found.items()))


def _numbers(found: Value) -> dict[str, int]:
    return {key: value.whole() for key, value in found.fields()}


def _texts(found: Value) -> dict[str, str]:
    return {key: value.text() for key, value in found.fields()}


def _spot(found: Value) -> Spot:
    found.keys([field.name for field in fields(Spot)])
    path, text, what = (found.at(key).text() for key in ("path", "text", "what"))
    return Spot(path, found.at("line").whole(), text, what, found.at("count").whole())
