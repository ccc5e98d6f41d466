"""How a screening begins: each candidate in place for a step, some steps of the base for the length of a block, and the race.

Child only.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from perfaudit.errors import NoBatches
from perfaudit.machine.limits import free_memory
from perfaudit.measure.agreement import ALONE, Alone
from perfaudit.measure.entrants import BASE, CONTROL, CONTROLS, TWIN_CONTROL, Terms, way_of_control
from perfaudit.measure.own_time import fits_cores
from perfaudit.measure.pace import Pace, balance_paces, block_steps, pace_of
from perfaudit.measure.preparation import Candidate, Preparation, ends_in_words, step_once
from perfaudit.measure.race import Race
from perfaudit.measure.screening import Screening
from perfaudit.measure.slots import slots_of
from perfaudit.measure.step_kinds import MOST_KINDS, ROUNDS, may_take_turns, period_of
from perfaudit.measure.twins import Twins
from perfaudit.training import Training
from perfaudit.training.code_change import NotSwappable
from perfaudit.training.start_of_step import Numbers, around, bytes_of, differences

NUMBERS_SHARE = 0.1  # of the free memory of the host, which a copy of parameters and optimizer may take
TIMED_STEPS = 3  # of the base, for the length of a block
STEPS_OF_KINDS = ROUNDS * MOST_KINDS  # to see whether steps of several kinds take turns
SECONDS_OF_KINDS = 2.0  # that these may take


def prepare_screening(
    training: Training,
    candidates: Sequence[Candidate],
    terms: Terms,
    twins: Twins,
    runs_behind: bool = False,
    mark: Callable[[str], None] = lambda key: None,
    may_count_own: bool = False,
    agreement: Alone = ALONE,
    period: int = 1,
) -> Screening:
    """Put each candidate in place for a step, time some of the base's, and be ready to run the race.

    terms: where its base is not the training as it is, that is compared too. runs_behind: a device runs behind the host.
    may_count_own: the training does nothing but compute in this process, so that its own time can be told, see `own_time`.
    mark: called with the key of what is put in place, "" when it is taken back. agreement: with the other ranks of the training,
    which prepare the same candidates. period: steps of a round, as another process of this race has seen it, 1 where it has not.
    Raises what a step of the training as it is raises, LeavesSomething, and NotSwappable for a base that cannot be put in place.
    """
    with ends_in_words(training):
        prepared = _prepare(training, candidates, twins, mark, agreement)
    if terms.base in prepared.refused:
        raise NotSwappable(prepared.refused[terms.base])
    slots = [] if terms.is_apart or terms.rivals or terms.base != BASE else slots_of(candidates, prepared)
    _add_controls(prepared, candidates, terms.base, has_halves=bool(slots))
    with ends_in_words(training):
        block, period = _block_steps(training, runs_behind, agreement, period)
    keys = (BASE, *prepared.variants)
    take_turns = bool(prepared.loaders) or "twin" in prepared.ways.values()
    is_long = not terms.rivals
    paces = {
        key: _pace(prepared.loader_of(key), block, key in prepared.loaders and is_long, take_turns, period)
        for key in keys
    }
    # Of rivals, three quads choose, and the steps of a base that waits for data are the longest by far.
    if not terms.rivals:
        paces = balance_paces(paces, terms.base)
    others = [key for key in keys if key not in (terms.base, *CONTROLS)]
    controls = [key for key in CONTROLS if key in keys]
    race = Race(others, _with_controls(terms, controls, prepared, slots), paces, slots, controls, period)
    # Workers hold cores for the training itself, so that its waiting for them is its own.
    has_workers = any(getattr(prepared.loader_of(key), "num_workers", 0) for key in keys)
    counts_own = may_count_own and not runs_behind and not prepared.loaders and not has_workers and fits_cores()
    return Screening(prepared, race, mark, counts_own, period)


def _prepare(
    training: Training, candidates: Sequence[Candidate], twins: Twins, mark: Callable[[str], None], agreement: Alone
) -> Preparation:
    """Candidates, each of which was in place for a step."""
    step_once(training)
    first = around(training)
    step_once(training)
    lacks_room = agreement.any(bytes_of(training) >= NUMBERS_SHARE * free_memory())
    numbers = None if lacks_room else Numbers(training)
    unsteady = frozenset(differences(first, around(training)))
    prepared = Preparation(training, twins, unsteady, numbers, agreement=agreement)
    # Twins come last: what they compile keeps code from being swapped.
    for candidate in sorted(candidates, key=lambda item: item.way == "twin"):
        if candidate.way != "control":
            mark(candidate.key)
            try:
                prepared.put_in(candidate)
            except NoBatches:
                mark("")
                raise
    mark("")
    return prepared


def _add_controls(prepared: Preparation, candidates: Sequence[Candidate], base: str, has_halves: bool) -> None:
    """Put in the controls, and candidates that are identical code: as another copy of the base, where that is a candidate.

    has_halves: some are raced in halves, of which the control is code. Twins beside them have another one.
    """
    keys = [candidate.key for candidate in candidates if candidate.way == "control"]
    if has_halves:
        prepared.variants[CONTROL], prepared.ways[CONTROL] = prepared.code_control(), "code"
        if (twin := prepared.twin_control()) is not None:
            prepared.variants[TWIN_CONTROL], prepared.ways[TWIN_CONTROL] = twin, "twin"
    for key in keys if has_halves else [CONTROL, *keys]:
        own = prepared.variants.get(base)
        if own is not None:
            prepared.variants[key], prepared.ways[key] = own, prepared.ways[base]
        else:
            prepared.variants[key], prepared.ways[key] = prepared.control()
        if base in prepared.loaders:
            prepared.loaders[key] = prepared.loaders[base]


def _with_controls(
    terms: Terms, controls: Sequence[str], prepared: Preparation, slots: Sequence[Sequence[str]]
) -> Terms:
    """The terms, in which each of these controls goes on with what one of its way has shown."""
    in_halves = {key for slot in slots for key in slot}
    ways = {key: way_of_control(key, prepared.ways, in_halves) for key in controls}
    known = [replace(terms.controls[way], key=key) for key, way in ways.items() if way in terms.controls]
    return replace(terms, former=[*terms.former, *known])


def _pace(loader: Any, block: int, is_long: bool, take_turns: bool, period: int) -> Pace:
    """How steps with this loader are timed: see `pace.pace_of`."""
    workers, prefetch = getattr(loader, "num_workers", 0), getattr(loader, "prefetch_factor", None) or 0
    return pace_of(block, workers, prefetch, is_long, take_turns, period)


def _block_steps(training: Training, runs_behind: bool, agreement: Alone = ALONE, period: int = 1) -> tuple[int, int]:
    """How many steps a block needs, and how many are a round of steps that take turns, 1 where they do not.

    period: of steps that take turns, where it is known. A script may not have many steps, and none is made for it then.

    Where a few steps differ, some more are made to see whether they take turns; on a device they always are, as the host, which
    runs ahead, does not tell how long one takes.
    """
    training.synchronize()
    found = [] if runs_behind else [_seconds_of(training, 1) for _ in range(TIMED_STEPS)]
    spent = sum(found) if found else _seconds_of(training, TIMED_STEPS)
    seconds = max(agreement.slowest(spent) / TIMED_STEPS, 1e-6)
    if period > 1:
        training.phases.take()
        return block_steps(seconds, runs_behind), period
    if agreement.any(runs_behind or may_take_turns(found)):
        more = min(STEPS_OF_KINDS - len(found), int(SECONDS_OF_KINDS / seconds))
        found += [_seconds_of(training, 1) for _ in range(more)]
    training.phases.take()
    return block_steps(seconds, runs_behind), int(agreement.slowest(float(period_of(found))))


def _seconds_of(training: Training, steps: int) -> float:
    """Seconds of so many steps, without the begin of an epoch."""
    began, restarts = time.perf_counter(), len(training.restart_seconds)
    for _ in range(steps):
        step_once(training)
    training.synchronize()
    return time.perf_counter() - began - sum(training.restart_seconds[restarts:])
