"""The knobs: one file for each thing that can be tuned. A knob is found by its file's name; adding one is adding a file.

A knob module offers

- `TITLE`: what it searches, in a few words; `METRIC`: what its trials are shown in; `MIN_GAIN`: share of the step that
  must be gained, by the interval's lower bound, before the user's setting is given up;
- `RULES`: ids of findings whose saving it measures;
- `not_applicable(facts) -> str`: why it cannot matter here, "" if it can;
- `current(facts) -> Settings`: what the user's code does now;
- `candidates(bench) -> list[Settings]`: what else to try first, given a `Bench`;
- `refine(bench, best) -> list[Settings]`: what to try beside the best of those;
- `size(settings)`: what "smaller" means where two are equally fast;
- `setup(settings) -> Setup`: in the child, how a training is built with a setting;
- `words(settings, facts) -> str`: the advice where no source line can be patched;
- `changes() -> tuple`: what besides speed its patch changes.

and where it applies

- `edits(source, call, settings, facts) -> edits or None`: the patch of the call that built the loader;
- `patched(current) -> Settings`: the setting that stands for the user's code with the fixes of the findings in RULES;
- `without(facts, best) -> str`: the answer for somebody who has nothing of the kind yet;
- `order(settings)`: the order of rows in the table, the order tried without it;
- `REFERENCE`: the setting against which every other one's added time is told;
- `OF_PIECE`: settings differ only in a piece that is timed inside the step; `IN_PROCESS`: nothing runs in other processes;
- `SCREENING_ROUNDS`: rounds of the first look, if not `tune.search.SCREENING_ROUNDS`.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

from perfaudit.measurements import Settings

Facts = dict[str, Any]  # JSON a child replies with when it has built the training


@dataclass(frozen=True, slots=True)
class Setup:
    """How a child builds a training with one setting: arguments of the DataLoader, and a change after building.

    fixed_batch: measure on one batch again and again, for knobs that have nothing to do with loading.
    """

    loader_overrides: dict[str, Any] = field(default_factory=dict)
    apply: Callable[[Any], None] = lambda training: None
    fixed_batch: bool = False


@dataclass(frozen=True, slots=True)
class Probe:
    """One setting tried once: peak and resident bytes, or why it failed."""

    settings: Settings
    peak_bytes: int | None = None
    resident_bytes: int | None = None
    failure: str = ""
    out_of_memory: bool = False


@dataclass(frozen=True, slots=True)
class Bench:
    """What a knob may ask while it chooses candidates: facts of the user's training, limits, one-off trials."""

    facts: Facts
    cores: int
    memory_budget: int
    probe: Callable[[Settings], Probe]
    seconds_left: Callable[[], float] = lambda: float("inf")  # for probing


def knob(name: str) -> ModuleType:
    """The module of a knob. Raises ModuleNotFoundError for a name that is none."""
    return importlib.import_module(f"{__name__}.{name.replace('-', '_')}")


def all_knobs() -> tuple[str, ...]:
    """Names of all knobs, as they stand in reports."""
    return tuple(sorted(module.name for module in pkgutil.iter_modules(__path__)))
