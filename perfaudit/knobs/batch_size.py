"""Throughput and peak memory against the batch size, up to the memory budget."""

from __future__ import annotations

import ast

from perfaudit.findings import Edit
from perfaudit.knobs import Bench, Facts, Setup
from perfaudit.measurements import Settings
from perfaudit.static import edit
from perfaudit.static.source import Source

TITLE = "samples per second and peak memory against the batch size"
METRIC = "samples_per_second"
MIN_GAIN = 0.03  # as for the loader: less than this is inside what two sweeps disagree by
IN_PROCESS = True  # where loading has no workers, processor time tells what wall time cannot on a busy machine
RULES: tuple[str, ...] = ()

_POSITION = 1  # of batch_size in DataLoader.__init__
_LARGEST = 1 << 16
_ENOUGH = 1.1  # stop when the budget leaves room for less than 10 % more


def not_applicable(facts: Facts) -> str:
    if facts["loader"]["batch_size"] is None:
        return "the loader has no batch_size of its own (a batch sampler or the dataset makes the batches)"
    return ""


def current(facts: Facts) -> Settings:
    return {"batch_size": facts["loader"]["batch_size"]}


def candidates(bench: Bench) -> list[Settings]:
    """Half the current batch, then larger ones as long as a step fits into the memory budget.

    The peak of a step is the largest of several sums `fixed + slope · batch`, so at k times the batch it is at most k times
    the peak: each next size is one that provably fits, and no allocation has to fail to find the limit.
    """
    now = int(str(current(bench.facts)["batch_size"]))
    sizes = [now // 2] if now >= 2 else []
    size, tried = now, 0
    while tried < 8 and (bench.seconds_left() or not tried):
        seen = bench.probe({"batch_size": size})
        tried += 1
        if seen.peak_bytes is None:
            break
        room = (bench.memory_budget - _outside(seen.resident_bytes, seen.peak_bytes)) / max(seen.peak_bytes, 1)
        if size != now:
            sizes.append(size)
        if room < _ENOUGH or size >= _LARGEST:
            break
        following = int(size * min(2.0, room))
        dataset = bench.facts.get("dataset_length")
        if dataset and following > dataset:
            break
        size = following
    return [{"batch_size": size} for size in sizes]


def _outside(resident: int | None, peak: int) -> int:
    """Bytes the process holds besides the tensors: interpreter, libraries, the dataset."""
    return max(0, (resident or 0) - peak)


def refine(bench: Bench, best: Settings) -> list[Settings]:
    return []


def size(settings: Settings) -> int:
    return int(str(settings["batch_size"]))


def order(settings: Settings) -> int:
    return size(settings)


def setup(settings: Settings) -> Setup:
    return Setup(loader_overrides=dict(settings))


def words(settings: Settings, facts: Facts) -> str:
    return (
        f"train with batch_size={settings['batch_size']}; the learning rate belongs to the batch size, so tune it again"
    )


def edits(source: Source, call: ast.Call, settings: Settings, facts: Facts) -> tuple[Edit, ...] | None:
    value = repr(settings["batch_size"])
    if len(call.args) > _POSITION:
        return edit.replace(source, call.args[_POSITION], value)
    return edit.set_keyword(source, call, "batch_size", value)


def changes() -> tuple[str, ...]:
    return ("algorithm",)
