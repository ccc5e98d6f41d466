"""Candidates screened in one running training: each in place for a few steps at a time, in turn with the code as it is.

Child only. What comes of it is not `measured`: it is the training in one process, not the patched program, and nobody has
compared losses. It says which are worth that.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from perfaudit.measure.race import BASE, Race, Turn
from perfaudit.target.load import said, where
from perfaudit.target.working_folder import full_path
from perfaudit.training import Variant
from perfaudit.training.code_change import CodeChange, NotSwappable, code_change
from perfaudit.training.code_variant import CodeVariant, prepare

Json = dict[str, Any]  # Any: nested JSON

CONTROL = "control"
LEAST_BLOCK_SECONDS = 0.005  # of a block on the CPU: long against what switching and a clock take
LEAST_DEVICE_STEPS, LEAST_DEVICE_SECONDS = (
    5,
    0.05,
)  # of a block between two waits, so that the host may run ahead as in real life
TIMED_STEPS = 3  # of the base, for the length of a block


class Steps(Protocol):
    """A training as far as screening it goes; `target.training.Training` is one."""

    restart_seconds: list[float]

    def whole_step(self, fixed: bool = False) -> Any:
        """Load a batch and make a step; of the fixed batch, only the step."""

    def synchronize(self) -> None:
        """Wait until the device has done all it was given."""


def changes_of(texts: Mapping[str, Sequence[str]]) -> list[CodeChange] | str:
    """What a patch changes, of each file's text as it was imported and as patched; why it cannot be swapped."""
    try:
        return [code_change(full_path(path), before, after) for path, (before, after) in texts.items()]
    except NotSwappable as why:
        return str(why)


def prepare_screening(
    training: Steps,
    candidates: Mapping[str, list[CodeChange] | Variant | str],
    least: float,
    seed: int,
    runs_behind: bool = False,
) -> Screening:
    """Put each candidate in place for a step, time some of the base's, and be ready to run the race.

    candidates: by key, what a patch changes file by file, or a setting as a variant, or why neither can be put in place.
    least: the share of the step that a candidate must gain. runs_behind: a device runs behind the host. Raises what a step
    of the training as it is raises.
    """
    training.whole_step()
    variants: dict[str, Variant] = {}
    refused: dict[str, str] = {}
    own: list[CodeChange] = []
    for key, candidate in candidates.items():
        if isinstance(candidate, str):
            refused[key] = candidate
            continue
        change = candidate if isinstance(candidate, list) else []
        try:
            variant = _swapped_in(candidate) if isinstance(candidate, list) else candidate
            _try(training, variant)
        except NotSwappable as why:
            refused[key] = str(why)
            continue
        variants[key] = variant
        own += change
    control = prepare([item.with_own_code() for item in _each_once(own)])
    race = Race(list(variants), CONTROL, least, seed, _block_steps(training, runs_behind))
    return Screening(training, {**variants, CONTROL: control}, refused, race)


@dataclass(slots=True)
class Screening:
    """A race in this process. `refused` says of those that cannot take part why."""

    training: Steps
    variants: dict[str, Variant]
    refused: dict[str, str]
    race: Race
    _turns: Generator[Turn, float, None] = field(init=False)
    _turn: Turn | None = field(init=False)
    _inside: str = BASE

    def __post_init__(self) -> None:
        self._turns = self.race.turns()
        self._turn = next(self._turns, None)

    def run(self, seconds: float, last: bool = False) -> Json:
        """Race for about so long, to the end of a quad's block, and say how it stands, see `state`. last: the time is over."""
        ends = time.perf_counter() + seconds
        try:
            while self._turn is not None and time.perf_counter() < ends:
                self._turn = _sent(self._turns, self._seconds_of(self._turn))
        finally:
            self._put(BASE)
        if last:
            self.race.end()
        return self.state()

    def state(self) -> Json:
        """What is known: for each entrant its log ratios, its interval and why it left; refused; whether all is decided."""
        entrants = {
            key: {
                "log_ratios": list(entrant.log_ratios),
                "left": entrant.left,
                "interval": [
                    entrant.interval.ratio,
                    entrant.interval.low,
                    entrant.interval.high,
                    entrant.interval.quads,
                ]
                if entrant.interval
                else None,
            }
            for key, entrant in self.race.entrants.items()
        }
        return {
            "entrants": entrants,
            "refused": dict(self.refused),
            "ended": self._turn is None,
            "block": self.race.block,
        }

    def _put(self, key: str) -> None:
        if key == self._inside:
            return
        if self._inside != BASE:
            self.variants[self._inside].leave()
        self._inside = BASE
        if key != BASE:
            self._inside = key
            self.variants[key].enter()

    def _seconds_of(self, turn: Turn) -> float:
        """Run a turn's steps. A patch with which one raises leaves the race with the reason, and the training goes on."""
        self._put(turn.key)
        restarts = len(self.training.restart_seconds)
        began = time.perf_counter()
        try:
            for _ in range(turn.steps):
                self.training.whole_step()
            self.training.synchronize()
        except Exception as error:
            if turn.key == BASE:
                raise
            self._put(BASE)
            self.race.fail(
                turn.key, f"with it, a step raises {type(error).__name__}: {said(error)[:300]}{where(error)}"
            )
            return 0.0
        return time.perf_counter() - began - sum(self.training.restart_seconds[restarts:])


def _block_steps(training: Steps, runs_behind: bool) -> int:
    """How many steps a block needs."""
    training.synchronize()
    began = time.perf_counter()
    for _ in range(TIMED_STEPS):
        training.whole_step()
    training.synchronize()
    step = max((time.perf_counter() - began) / TIMED_STEPS, 1e-6)
    if runs_behind:
        return max(LEAST_DEVICE_STEPS, round(LEAST_DEVICE_SECONDS / step))
    return max(1, round(LEAST_BLOCK_SECONDS / step))


def _swapped_in(change: Sequence[CodeChange]) -> CodeVariant:
    """A patch as a variant. Raises NotSwappable."""
    variant = prepare(change)
    if not variant.swaps:
        raise NotSwappable("the patch changes no function")
    return variant


def _try(training: Steps, variant: Variant) -> None:
    """Make one step with a variant. Raises NotSwappable where that raises, or runs not all of what it changes."""
    try:
        variant.enter()
        missing = variant.parts_not_run(training.whole_step)
    except Exception as error:
        raise NotSwappable(
            f"with it, a step raises {type(error).__name__}: {said(error)[:300]}{where(error)}"
        ) from error
    finally:
        variant.leave()
    if missing:
        raise NotSwappable(f"a step does not run {', '.join(missing)}, which the patch changes")


def _each_once(changes: Sequence[CodeChange]) -> list[CodeChange]:
    """The same functions, each in one change only."""
    seen: set[tuple[str, str, int]] = set()
    found = []
    for change in changes:
        new = []
        for item in change.functions:
            key = (change.path, item.name, item.before.co_firstlineno)
            if key not in seen:
                seen.add(key)
                new.append(item)
        found.append(CodeChange(change.path, tuple(new)))
    return found


def _sent(turns: Generator[Turn, float, None], seconds: float) -> Turn | None:
    with contextlib.suppress(StopIteration):
        return turns.send(seconds)
    return None
