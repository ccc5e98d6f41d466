"""`perfaudit tune` as one of several ranks: all run the sets that the first one orders, and the first one reports."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from perfaudit.cli.output import say
from perfaudit.cli.rank_sets import Sets, rank_sets
from perfaudit.cli.ranks_child import Gone
from perfaudit.cli.run_ranks import together
from perfaudit.errors import NothingMeasured, UserError
from perfaudit.knobs._batches_by_length import WINDOW
from perfaudit.tune.ranks.plan import (
    STARTS_TO_SCREEN,
    Pace,
    Shares,
    budget_to_screen,
    budget_words,
    in_order,
    number_that_fit,
    seconds_that_fit,
    seconds_to_screen,
)
from perfaudit.tune.ranks.race import BASE, NUDGED, PATCH, SPOILED, Race, SetRun

if TYPE_CHECKING:
    from perfaudit.distributed.launch import RankPlace
    from perfaudit.report import Report
    from perfaudit.script.request import Script
    from perfaudit.target.names import Target
    from perfaudit.tune.ranks.candidates import Choice
    from perfaudit.tune.ranks.patches import RankPatch
    from perfaudit.tune.ranks.screened_patches import Screened

FEWEST_STEPS, MOST_STEPS = 40, 200  # of a set, with those that do not count
# Of a set, where sets are long, and the budget has no time otherwise for the generations that tell anything.
SHORT_STEPS = 20
LOOK_STEPS = 8  # of the first set, which tells what the script runs; it is no part of the race


def tune_on_ranks(
    place: RankPlace,
    target: Target,
    budget: float,
    timeout: float,
    allow: frozenset[str],
    in_place: bool,
    meet: Path | None,
    hand_over: Callable[[Report], object],
    only_by_length: bool = False,
) -> None:
    """Have the first rank lead; the others run what it orders, and wait until its report is out.

    hand_over: prints the report, on the first rank, and may end the command. only_by_length: race batches by length, and
    nothing else.
    """
    if place.is_on_several_nodes and meet is None:
        raise UserError("ranks on several nodes are tuned through a folder that all of them see: name it with --meet")
    from perfaudit.script.request import Script

    script = Script(target.module or target.file, target.arguments or (), bool(target.module))
    target = replace(target, in_place=in_place)
    with together(place, script, 0, meet) as ranks, rank_sets(ranks, script, target, timeout, in_place) as sets:
        if not ranks.is_first:
            sets.follow()
            if not ranks.wait_for_report():
                raise NothingMeasured(f"{script}: rank {ranks.first}, which was to report, is gone")
            return
        try:
            try:
                report = _lead(sets, place, target, script, budget, allow, only_by_length)
            finally:
                sets.end()
            hand_over(report)
        finally:  # a launcher ends all ranks when another one leaves first
            ranks.tell_reported()


def _lead(
    sets: Sets,
    place: RankPlace,
    target: Target,
    script: Script,
    budget: float,
    allow: frozenset[str],
    only_by_length: bool,
) -> Report:
    """Order a first set, choose candidates, screen in a running set what can stand there, race them generation by generation.

    The report has all of it.
    """
    from perfaudit.measure.environment import host
    from perfaudit.report import Report
    from perfaudit.tune.ranks.report import report_of_race
    from perfaudit.tune.ranks.screened_patches import Screened

    machine, began = host(), time.monotonic()
    first = _look(sets, place, script, allow, only_by_length, began, budget)
    facts, choice = sets.facts, first.choice
    machine = replace(
        machine, device=facts.get("device", "cpu"), torch=facts.get("torch", ""), threads=facts.get("threads", 0)
    )
    report, screened = Report("tune", target=str(script), environment=machine, notes=tuple(choice.left)), Screened()
    try:
        if not only_by_length:
            _screen(sets, target, allow, budget, first, screened)
    except KeyboardInterrupt:
        report = report.with_(interrupted=True)
    except Gone as why:
        report = _note_early_end(report, why)
    if not (choice.candidates or screened.candidates or report.interrupted) and sets.is_complete:
        raise _nothing_to_race(script, "; ".join([*choice.left, *screened.left]))
    found = [*screened.survivors(), *screened.undecided_candidates(choice.candidates)]
    wanted = in_order(found, first.shares, screened.savings(), screened.looks())
    race, waiting, pace = _race(choice, wanted), [*wanted], Pace(first.of_set, first.seconds)
    pace.has_screened = bool(screened.candidates)
    try:
        if not report.interrupted and sets.is_complete:
            _race_in_fresh_sets(sets, race, waiting, first, began + budget, pace)
            if waiting and BASE not in race.failures:
                keys = "; ".join(each.key for each in waiting)
                enough = pace.budget_to_look(len(race.settings) + len(waiting))
                screened.left.append(
                    f"not raced in fresh sets, for which the budget had no time: {keys}; {enough} has time for all"
                )
    except KeyboardInterrupt:
        report = report.with_(interrupted=True)
    except Gone as why:
        report = _note_early_end(report, why)
    pace.spent = time.monotonic() - began
    return report_of_race(report, race, {each.key: each for each in wanted}, screened, pace)


@dataclass(frozen=True, slots=True)
class _First:
    """What the first set has told. steps: of each later set; seconds: that it took, with the choice of candidates; of_set: that
    a later one is to take; of_long_set: that it takes where the budget is long.
    """

    choice: Choice
    shares: Shares
    steps: int
    seconds: float
    of_set: float
    of_long_set: float


def _look(
    sets: Sets,
    place: RankPlace,
    script: Script,
    allow: frozenset[str],
    only_by_length: bool,
    began: float,
    budget: float,
) -> _First:
    """Run the first set, and choose what to try. Raises UserError and NothingMeasured where there is nothing to go on from."""
    from perfaudit.measure.environment import host
    from perfaudit.tune.ranks.candidates import BY_LENGTH, FINDS, Choice, NoCandidates, candidates_of
    from perfaudit.tune.ranks.patches import SeenRanks

    say("the script runs once on all ranks, to see what it runs")
    try:
        run = sets.run({}, LOOK_STEPS, reads_samples=True)
    except KeyboardInterrupt:
        say(f"{script}: interrupted before anything was measured")
        raise
    except Gone as why:
        raise NothingMeasured(f"{script}: {why}, so that nothing was measured") from None
    start = time.monotonic() - began
    if sets.differ:
        raise UserError(sets.differ)
    if run.why:
        if run.has_failed:
            raise UserError(f"{script}: {run.why}")
        raise NothingMeasured(f"{script}: {run.all_ranks or run.why}")
    facts = sets.facts
    seen = SeenRanks(
        max(1, host().cores // place.local_ranks),
        str(facts.get("collectives", {}).get("backend", "gloo")),
        facts.get("sample_lengths") or {},
        facts.get("loaders_read", ()),
        [name for each in facts.get("wrapped", ()) for name in each["changed_buffers"]],
        bool(facts.get("reads_iterable")),
        any(each["tracks_statistics"] for each in facts.get("wrapped", ())),
    )
    try:
        choice = candidates_of(facts.get("files", []), allow, seen, BY_LENGTH if only_by_length else FINDS)
    except NoCandidates as why:
        if only_by_length:
            raise _nothing_to_race(script, str(why)) from None
        choice = Choice({}, [], [str(why)], why.moved)
    seconds = (time.monotonic() - began) or 1.0
    steps = _steps_of_set(run.seconds, start, seconds_that_fit(budget - seconds))
    of_set, of_long_set = (
        seconds + max(0, number - LOOK_STEPS) * run.seconds for number in (steps, _steps_of_set(run.seconds, start))
    )
    return _First(choice, sets.shares, steps, seconds, of_set, of_long_set)


def _screen(
    sets: Sets, target: Target, allow: frozenset[str], budget: float, first: _First, screened: Screened
) -> None:
    """Screen in a running set what can stand there, where there is time for it. Raises Gone."""
    candidates = first.choice.candidates
    seconds = seconds_to_screen(budget, first.seconds, first.of_set, candidates, first.shares)
    if seconds >= STARTS_TO_SCREEN * first.seconds:
        sets.screen(target, allow, seconds, screened, candidates)
        return
    kept_for_nothing = seconds_to_screen(budget, first.seconds, first.of_set, (), first.shares)
    why = "the budget is too short for them"
    if kept_for_nothing >= STARTS_TO_SCREEN * first.seconds:
        why = "the budget is kept for a patch that promises more"
    enough = budget_to_screen(first.seconds, first.of_long_set, candidates, first.shares)
    screened.left.append(
        f"patches that a running set of ranks can be given are not screened, for which it needs {STARTS_TO_SCREEN} starts of "
        f"{first.seconds:.0f} s: {why}; {budget_words(enough)} has time for them"
    )


def _race_in_fresh_sets(
    sets: Sets, race: Race, waiting: list[RankPatch], first: _First, end: float, pace: Pace
) -> None:
    """Race them generation by generation until this time, as many at once as there is time for. Raises Gone.

    waiting: what is to be raced, in order; what is raced is taken out. pace: is told what a set takes.
    """
    steps = first.steps
    if any("order" in each.fix.changes for each in waiting):
        steps = _whole_windows(steps)
    texts = {each.key: {each.path: each.text} for each in waiting}
    if moved := first.choice.moved:
        texts |= {NUDGED: {moved.path: moved.nudged}, SPOILED: {moved.path: moved.spoiled}}
    while True:
        left = end - time.monotonic()
        if waiting and not race.order() and BASE not in race.failures:
            # One is raced, however little time there is.
            number = max(int(not race.settings), number_that_fit(left, pace.of_set))
            race.admit(waiting[:number])
            del waiting[:number]
        order = race.order()
        if not order or left < pace.of_set * len(order):
            return
        say(f"generation {len(race.generations) + 1}: {len(order)} sets of ranks, {left:.0f} s left")
        generation: dict[str, SetRun] = {}
        began = time.monotonic()
        for key in order:
            generation[key] = sets.run(texts.get(key, {}), steps)
            if key == BASE and generation[key].why:
                break  # there is nothing to compare with
        race.add(generation)
        pace.of_set = (time.monotonic() - began) / len(order)


def _nothing_to_race(script: Script, why: str) -> UserError:
    return UserError(f"{script}: {why}; behind a launcher `tune` races what several ranks have together")


def _note_early_end(report: Report, why: Gone) -> Report:
    return report.with_(notes=(*report.notes, f"{why}: what was measured until then is shown"))


def _race(choice: Choice, wanted: Sequence[RankPatch]) -> Race:
    """The race that these candidates are to be admitted to."""
    nudges = choice.moved is not None and any("rounding" in each.fix.changes for each in wanted)
    return Race({}, {}, {PATCH: "none"}, os.getpid(), nudges, choice.moved is not None)


def _steps_of_set(step: float, start: float, fits: float = math.inf) -> int:
    """Steps that take half as long as the start of a set: more would tell less than another set does. All in seconds.

    fits: that a set may take for the generations before the first look to fit into the budget. Where FEWEST_STEPS take longer,
    there are fewer, as four generations of short sets tell something, and one of long sets nothing.
    """
    if step <= 0:
        return FEWEST_STEPS
    fitting = LOOK_STEPS + (fits - start) / step
    fewest = int(min(FEWEST_STEPS, max(SHORT_STEPS, fitting)))
    return min(MOST_STEPS, max(fewest, round(start / step / 2)))


def _whole_windows(steps: int) -> int:
    """Steps in whole windows of a sampler by length, two of them at least: the first one is not counted."""
    return max(2, math.ceil(steps / WINDOW)) * WINDOW
