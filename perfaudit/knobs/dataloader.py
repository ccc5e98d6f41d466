"""Workers, pinned memory and prefetching of the training loader, measured together with the training step."""

from __future__ import annotations

import ast
from typing import Any

from perfaudit.findings import Edit
from perfaudit.knobs import Bench, Facts, Setup
from perfaudit.measurements import Settings
from perfaudit.static import edit
from perfaudit.static.source import Source

TITLE = "num_workers × pin_memory × prefetch_factor, with the training step"
METRIC = "samples_per_second"
MIN_GAIN = 0.03  # exhaustive sweeps here were up to 3 % off the true best, and an early call on one run once lost 16 %
RULES = ("PA101",)

_POSITIONS = {"num_workers": 5, "pin_memory": 7}
_MOST_WORKERS = 16


def not_applicable(facts: Facts) -> str:
    if facts["loader"]["iterable"]:
        return (
            "the dataset is iterable: whether its samples can be shared out among workers cannot be told from outside"
        )
    if facts["loader"]["batch_size"] is None and not facts["epoch_batches"]:
        return "the loader yields what the dataset yields, without a length"
    return ""


def current(facts: Facts) -> Settings:
    loader = facts["loader"]
    return _settings(loader["num_workers"], loader["pin_memory"], loader["prefetch_factor"])


def candidates(bench: Bench) -> list[Settings]:
    """Worker counts from none to twice the cores (waiting for a disk or a network costs no core)."""
    counts = sorted({0, 1, *(2**n for n in range(1, 6) if 2**n <= 2 * bench.cores), bench.cores})
    pinned = bench.facts["device"] == "cuda"
    return [_settings(n, pinned, 2) for n in counts if n <= _MOST_WORKERS]


def refine(bench: Bench, best: Settings) -> list[Settings]:
    """Around the best worker count: deeper prefetching, and the other choice of pinned memory on an accelerator."""
    workers = int(str(best["num_workers"]))
    pinned = [True, False] if bench.facts["device"] == "cuda" else [bool(best["pin_memory"])]
    prefetch = [2, 4] if workers else [None]
    return [_settings(workers, pin, ahead) for pin in pinned for ahead in prefetch]


def size(settings: Settings) -> tuple[int, int, int]:
    return (int(str(settings["num_workers"])), int(str(settings["prefetch_factor"] or 0)), bool(settings["pin_memory"]))


def setup(settings: Settings) -> Setup:
    overrides: dict[str, Any] = dict(settings)
    if not settings["num_workers"]:
        overrides.pop("prefetch_factor")
    return Setup(loader_overrides=overrides)


def words(settings: Settings, facts: Facts) -> str:
    arguments = ", ".join(f"{name}={value!r}" for name, value in settings.items() if value is not None)
    return f"build the training DataLoader with {arguments}"


def edits(source: Source, call: ast.Call, settings: Settings, facts: Facts) -> tuple[Edit, ...] | None:
    """The call with the settings that differ from what it builds now; None where an argument cannot be set in place."""
    now = current(facts)
    changed = {name: settings[name] for name in now if settings[name] != now[name]}
    found: list[Edit] = []
    for name, value in changed.items():
        position = _POSITIONS.get(name)
        if name == "prefetch_factor" and (value is None or (value == 2 and edit.keyword(call, name) is None)):
            part = edit.remove_keyword(source, call, name) if edit.keyword(call, name) else ()  # 2 is torch's default
        elif position is not None and position < len(call.args):
            part = edit.replace(source, call.args[position], repr(value))
        else:
            part = edit.set_keyword(source, call, name, repr(value))
        if part is None:
            return None
        found += part
    if not settings["num_workers"] and edit.keyword(call, "persistent_workers"):
        part = edit.remove_keyword(source, call, "persistent_workers")
        if part is None:
            return None
        found += part
    return tuple(found)


def changes() -> tuple[str, ...]:
    return ("rng",)


def _settings(workers: int, pinned: bool, prefetch: int | None) -> Settings:
    return {"num_workers": workers, "pin_memory": pinned, "prefetch_factor": prefetch if workers else None}
