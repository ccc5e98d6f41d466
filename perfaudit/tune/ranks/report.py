"""What the race of sets of ranks has shown, as a report has it, and which patch is handed over."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from typing import TYPE_CHECKING

from perfaudit.findings import Saving
from perfaudit.measure.stats import LOOKS
from perfaudit.measurements import Winner
from perfaudit.tune.ranks.patches import RankPatch, is_unchanged
from perfaudit.tune.ranks.plan import Pace
from perfaudit.tune.ranks.race import BASE, CONTROL, KNOB, LEAST_GAIN, Race
from perfaudit.tune.session import INTERRUPTED

FEWEST_GENERATIONS = 2  # that have a scatter

if TYPE_CHECKING:
    from perfaudit.report import Report
    from perfaudit.tune.ranks.screened_patches import Screened


def report_of_race(
    report: Report,
    race: Race,
    by_key: Mapping[str, RankPatch],
    screened: Screened | None = None,
    pace: Pace | None = None,
) -> Report:
    """The report with what the race has shown, and the patch that is handed over. screened: what one running set has.

    pace: what a longer budget is told by.
    """
    notes = [*report.notes, *(screened.notes() if screened is not None else ())]
    of_running = screened.comparisons() if screened is not None else ()
    if BASE in race.failures:
        notes.append("nothing was compared, as a set of your own code failed")
    elif _tells_nothing(race):
        if not report.interrupted:
            more = (
                "--budget gives more time"
                if pace is None
                else f"{pace.budget_to_look(len(_open(race)))} has time for it"
            )
            notes.append(
                f"too few generations fitted into the budget, the first look at which is after {LOOKS[0].generations}: {more}"
            )
    elif race.settings and CONTROL in race.generations[0]:
        notes.append(_control(race))
    notes += filter(None, map(race.batches_words, race.settings))
    notes += [INTERRUPTED] * report.interrupted
    has_screened = any(each.verdict == "faster" for each in of_running)
    winner = _winner(race, by_key, has_screened, pace, report.interrupted)
    return report.with_(
        trials=tuple(race.trials()) if race.settings else (),
        comparisons=(*race.comparisons(), *of_running),
        winners=(winner,),
        notes=tuple(notes),
    )


def _tells_nothing(race: Race) -> bool:
    """Whether patches that did not fail were raced in too few generations for an interval."""
    return bool(_open(race)) and len(race.generations) < FEWEST_GENERATIONS


def _open(race: Race) -> set[str]:
    """Patches that neither failed nor were given up."""
    return race.settings.keys() - race.failures.keys() - race.given_up


def _control(race: Race) -> str:
    """How identical code came out against the user's, in the same generations."""
    ratio, low, high = _control_of(race, ())
    said = f"identical code, raced as a patch is, took {ratio:.3f} [{low:.3f}, {high:.3f}] of the time of your code"
    return said if low <= 1 <= high else f"{said}: this run is not to be trusted"


def _control_of(race: Race, changes: tuple[str, ...]) -> tuple[float, float, float]:
    """Ratio of identical code, and its interval, compared as a patch with these changes is."""
    return Race({CONTROL: {}}, {CONTROL: changes}, generations=race.generations).interval(CONTROL)


def _why_nothing_pays(race: Race, pace: Pace | None) -> str:
    """That nothing pays; of what is called faster, why that is too little, and the budget that would tell more."""
    faster = race.faster_by_too_little()
    if not faster:
        return "nothing that was raced was shown to pay"
    said = f"{faster[0]} is faster, by less than {100 * LEAST_GAIN:.0f} % at worst, which is too little for a patch"
    wanted = race.generations_to_show(faster[0])
    if wanted is None or pace is None:
        return said
    more = pace.budget_for_more(wanted, len(_open(race)))
    return f"{said}; {wanted} more round{'s' if wanted > 1 else ''} would decide it if they scatter as these do: {more}"


def _winner(
    race: Race,
    by_key: Mapping[str, RankPatch],
    has_screened: bool = False,
    pace: Pace | None = None,
    is_interrupted: bool = False,
) -> Winner:
    """What to do. has_screened: whether a patch was faster in the running set."""
    key = race.best()
    control = _control_of(race, race.changes[key] if key else ())
    if not key or not control[1] <= 1 <= control[2]:
        why = _why_nothing_pays(race, pace) if not key else "the control is not the same as your code"
        if _tells_nothing(race):
            why = "too little was measured to tell anything"
            if has_screened:
                why = "what was faster in the running set was not raced often enough in fresh ones to be handed over"
        if is_interrupted and not key and not race.faster_by_too_little():
            why = "interrupted before anything was decided"
        return Winner(KNOB, race.now, True, f"keep what you have: {why}")
    candidate = by_key[key]
    ratio, low, high = race.interval(key)
    by_mean = race.has_other_order(key)
    base = statistics.median(each[BASE].mean if by_mean else each[BASE].seconds for each in race.generations)
    saving = Saving("measured", 1 - high, 1 - low, seconds_per_step=base * (1 - ratio))
    verified = race.loss_words(key)
    fix, how = candidate.fix, ""
    if why := _why_it_stays_here(race, key, candidate):
        return Winner(
            KNOB,
            candidate.settings,
            False,
            candidate.words,
            saving,
            None,
            None,
            "",
            (),
            f"its patch is not handed over: {why}",
        )
    return Winner(KNOB, candidate.settings, False, candidate.words, saving, fix, candidate.location, verified, (), how)


def _why_it_stays_here(race: Race, key: str, candidate: RankPatch) -> str:
    """Why the patch that gains most is not handed over; "" where it is."""
    if why := race.why_losses_tell_nothing(key):
        return why
    if not race.loss_words(key):
        return "its losses were not compared"
    if not any(CONTROL in each for each in race.generations):
        return "no set of identical code has run to its end"
    return "" if is_unchanged(candidate) else f"{candidate.path} has changed meanwhile"
