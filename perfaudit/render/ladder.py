"""A climb as a person reads it: the result in one line, each rung alone and beside the others, the patch, what is left."""

from __future__ import annotations

from dataclasses import dataclass

from perfaudit.measurements import (
    FILE_CHANGED,
    NOT_CLAIMED,
    NOT_REACHED_YET,
    PAY_ALL_THE_SAME,
    UNCHECKED,
    ClockName,
    Interval,
    Ladder,
    Rung,
    settings_text,
)
from perfaudit.render.ladder_details import details
from perfaudit.render.paint import Paint, colour, painted_diff, wrap
from perfaudit.render.tables import environment, parts_of, size, table
from perfaudit.render.words import CLOCKS, clock_words, count, distrust, interval_text, kept_text, seconds, step_time
from perfaudit.report import Report

THOUSAND = 1000  # steps, for which the saving is told
SHORT = 90  # characters of a reason in the first line; the whole of a longer one stands where the patch would
REFUSED = "not handed over: "  # how the reason begins why there is no patch
AND_WHY = ", and "  # before the reason why what pays is no patch
RATIOS = "Ratios of the time of a step: below 1 is faster."
ALONE = "Alone: against your code."
IN_HALVES = (
    "Screened: timed with half of the other patches in place, so that it lies between what a patch gains alone and what it gains "
    "beside all the others."
)
BESIDE = "Beside the others: all patches against all but this one."
SCREENED_MEANS = "Screened: timed in turn in one running training, before losses were compared."
PHASE_OF_KNOB = {"dataloader": "loading", "optimizer": "optimizer", "ema": "average"}
LARGE = 0.25  # of the step; chosen
SCREENED = "screened: the final race did not decide"
WHY_NONE = {
    UNCHECKED: "no time was left to check a patch",
    NOT_REACHED_YET: "no patch was checked before the interruption",
    FILE_CHANGED: "no patch is handed over, because a file changed meanwhile",
}  # what pays
TWIN = "where a second training lies in memory changes its time too: that is not in the interval"
CHOSEN = " (it chose the patches, too, so they may save less)"
NOT_TAKEN = "not taken, and why"  # above what is not in the patch and might be


def climb(report: Report, paint: Paint, width: int, verbose: bool = False) -> list[str]:
    """The parts of a report of a climb, the result first; `verbose` adds what only an expert asks for."""
    found = report.ladder
    assert found is not None
    first, *below = head_lines(report, width)
    head = [wrap(paint(first, "bold"), width, ""), *(wrap(line, width, "") for line in below)]
    if found.not_learning:
        head.append(wrap(paint(found.not_learning, "bold red"), width, ""))
    if doubt := distrust(report):
        head.append(wrap(paint(doubt, "bold red"), width, ""))
    parts = ["\n".join(head) + "\n"]
    if report.environment is not None:
        parts.append(environment(report, paint, width, brief=not verbose))
    parts += ladder(report, paint, width)
    notes = [note for note in report.notes if note != found.not_learning]  # its line stands at the top
    parts += [wrap(f"note: {note}", width, "") + "\n" for note in notes]
    if kept := kept_text(report):
        parts.append(paint(wrap(kept, width, ""), "dim") + "\n")
    more = details(report, paint, width)
    if verbose:
        parts += [text for _, text in more]
    elif more:
        names = ", ".join(name for name, _ in more)
        parts.append(paint(wrap(f"--verbose adds: {names}", width, ""), "dim") + "\n")
    return [part for part in parts if part]


def headline(report: Report, with_names: bool = False) -> str:
    """What the climb came to, in one line: the step before and after, how many patches, whether they are verified.

    with_names: of the knobs that it counts as open.
    """
    open_ = [each.with_names if with_names else each.words for each in [*_offers(report), *_open_knobs(report)]]
    return "; ".join([_first_words(report), *([", ".join(open_)] if open_ else [])])


def head_lines(report: Report, width: int) -> list[str]:
    """The same with all names, on one line of so many characters, or the result on one and below it what has no room there.

    Where patches would pay and are not allowed, the next line has the command that allows them.
    """
    offer = offer_text(report)
    open_ = [*([] if offer else _offers(report)), *_open_knobs(report)]
    first, *below = _result_lines(_first_words(report), open_, width)
    return [first, *([offer] if offer else []), *below]


def offer_text(report: Report) -> str:
    """What patches would gain that are not allowed, and the command that allows them; "" where it is not known."""
    found = report.ladder
    assert found is not None
    if not found.allow_command:
        return ""
    ratios = {name: f" (takes {seen[0]:.2f} of the step, screened)" for name, seen in found.offered_ratios.items()}
    if len(found.offered) == 1:
        return f"{found.offered[0]} would pay{ratios.get(found.offered[0], '')} and is not allowed: `{found.allow_command}`"
    knobs = " and ".join(name + ratios.get(name, "") for name in found.offered)
    return f"{knobs} would pay and are not allowed: `{found.allow_command}`"


def _result_lines(first: str, open_: list[_Open], width: int) -> list[str]:
    """The result with what is open, on one line where that fits, else what has no room below it."""
    whole = "; ".join([first, *([", ".join(each.with_names for each in open_)] if open_ else [])])
    if len(whole) <= width:
        return [whole]
    below = list[str]()
    if len(first) > width:
        first, below = _shorter(first, width)
    between = "; "
    for each in open_:
        if len(first) + len(between) + len(each.words) <= width:
            first, between = first + between + each.words, ", "
        elif not each.names:
            below.append(each.words)
    below += [f"{each.state}: {', '.join(each.names)}" for each in open_ if each.names]
    return [first, *(["; ".join(below)] if below else [])]


def _shorter(result: str, width: int) -> tuple[str, list[str]]:
    """A result without its reason, without its clock where that is still too long, and what was left out."""
    below = list[str]()
    if SCREENED in result:
        result, below = result.replace(SCREENED, "screened"), [SCREENED]
    for between, left in ((REFUSED, REFUSED.rstrip(": ")), (AND_WHY, "")):
        said, found, why = result.partition(between)
        if found:
            result, below = said + left, [REFUSED + why if left else why]
            break
    own = clock_words("own")
    if len(result) > width and own in result:
        result, below = result.replace(own, ""), [*below, CLOCKS["own"]]
    return result, below


def _first_words(report: Report) -> str:
    """The result, without what is open."""
    found = report.ladder
    assert found is not None
    stayed = [rung for rung in found.rungs if not rung.dropped]
    if found.files:
        return _result(found, len(stayed))
    before = step_before(report)
    step = f"{step_time(before)} a step{_in_clock(_clock_before(report))}: " if before is not None else ""
    return f"{step}{_refusal_words(found, len(stayed)) if stayed else _none_paid(report)}"


@dataclass(frozen=True, slots=True)
class _Open:
    """Something that a climb has left open, in words; the knobs of which this is the state, where the words only count them."""

    words: str
    state: str = ""
    names: tuple[str, ...] = ()

    @property
    def with_names(self) -> str:
        """The words with the names that they count: "1 undecided (attention)"."""
        return f"{self.words} ({', '.join(self.names)})" if self.names else self.words


def _offers(report: Report) -> list[_Open]:
    """That patches would pay which change more than is allowed."""
    assert report.ladder is not None
    knobs = report.ladder.offered
    is_or_are = "are" if knobs[1:] else "is"
    return [_Open(f"{' and '.join(knobs)} would pay and {is_or_are} not allowed")] if knobs else []


def _open_knobs(report: Report) -> list[_Open]:
    """What else the climb has left open."""
    found = report.ladder
    assert found is not None
    undecided = _undecided_knobs(report)
    late = [item.knob for item in (*found.left, *report.not_applicable) if item.late]
    late = [name for name in dict.fromkeys([*late, *found.undecided]) if name not in undecided]
    said = []
    for state, names in (("undecided", undecided), ("failed", found.failed), ("not reached", late)):
        if names:
            said.append(_Open(f"{len(names)} {state}", state, tuple(names)))
    return [*said, *([_Open("interrupted")] if report.interrupted else [])]


def _undecided_knobs(report: Report) -> tuple[str, ...]:
    """Knobs that were raced and are not decided; none where the race ended before it told of any."""
    assert report.ladder is not None
    return report.ladder.undecided if report.comparisons or report.ladder.rungs else ()


def step_before(report: Report) -> float | None:
    """Seconds per step of the user's code, None where no step was timed."""
    assert report.ladder is not None
    if report.ladder.seconds_per_step is None and report.calibration is not None:
        return report.calibration.seconds_per_step
    return report.ladder.seconds_per_step


def _clock_before(report: Report) -> ClockName:
    """By which that time is told."""
    assert report.ladder is not None
    if report.ladder.seconds_per_step is None and report.calibration is not None:
        return report.calibration.clock
    return report.ladder.clock


def _in_clock(clock: ClockName) -> str:
    """Behind a figure, what it is of; "" where it is of all seconds on the wall."""
    return f" in {CLOCKS[clock]}" if clock == "cpu" else clock_words(clock)


def _result(found: Ladder, patches: int) -> str:
    """Of a patch that is handed over, so its losses were compared, and a race has shown it to be faster."""
    assert found.ratio is not None
    verified = "verified for its first steps only" if found.not_learning else "verified"
    verified = "ran; losses not comparable" if NOT_CLAIMED in found.verified else verified
    said = f"{count(patches, 'patch', 'patches')}, {verified}"
    times = f"{1 / found.ratio:.2f} x{_in_clock(found.clock)}"
    doubt = f", {SCREENED}" if found.basis == "screened" else ""
    before, after = found.seconds_per_step, found.patched_seconds_per_step
    if before is None or after is None:  # the base had no timed step by itself; ratios were told all the same
        return f"a step is faster ({times}{doubt}), {said}"
    return f"{step_time(before)} -> {step_time(after)} a step ({times}{doubt}), {said}"


def _refusal_words(found: Ladder, patches: int) -> str:
    return f"{count(patches, 'patch', 'patches')}, {REFUSED}{_short(found.trouble.removeprefix(REFUSED))}"


def _short(reason: str) -> str:
    """The reason on one line of SHORT characters at most."""
    line = reason.strip().partition("\n")[0]
    if line == reason.strip() and len(line) <= SHORT:
        return line
    return line[: SHORT - 4].rpartition(" ")[0] + " ..." if len(line) > SHORT else f"{line} ..."


def _none_paid(report: Report) -> str:
    raced = len({(c.knob, str(c.candidate)) for c in report.comparisons})
    unchecked = (
        [rung.dropped for rung in report.ladder.rungs if rung.dropped in PAY_ALL_THE_SAME] if report.ladder else []
    )
    if unchecked:
        return f"{count(len(unchecked), 'patch pays', 'patches pay')} (screened){AND_WHY}{WHY_NONE[unchecked[0]]}"
    if not raced:
        return "no patch was raced"
    if not any(compared.says_something for compared in report.comparisons):
        return f"{count(raced, 'patch', 'patches')} raced too briefly to say anything"
    if report.ladder is not None and report.ladder.offered:
        return "no patch that is allowed was shown to pay"
    return f"no patch of {raced} was shown to pay" if raced > 1 else "the one patch that was raced was not shown to pay"


def ladder(report: Report, paint: Paint, width: int) -> list[str]:
    """The table of rungs, the final race, the patch of all that stayed, and what is left with its reasons."""
    found = report.ladder
    assert found is not None
    parts = [
        _rungs(found, paint, width),
        _final_race(found, width),
        _patch(found, paint, width),
        _left_text(report, width),
    ]
    return [part for part in parts if part]


def _rungs(found: Ladder, paint: Paint, width: int) -> str:
    if not found.rungs:
        return ""
    stayed = [rung for rung in found.rungs if not rung.dropped]
    rows = [_row(f"{n}", rung, len(stayed)) for n, rung in enumerate(stayed, start=1)]
    rows += [_row("-", rung, len(stayed)) for rung in found.rungs if rung.dropped]
    if found.screened is not None and len(stayed) > 1:
        together = _changes(found.changes)
        rows.append(["   all patches together", interval_text(*found.screened), "", together])
    first = "of the step, screened" if are_halves(found) else "alone, screened"
    columns = ["   patch", first, "beside the others", "also changes"]
    if not shows_beside(found):
        columns, rows = [columns[0], first, columns[3]], [[*row[:2], row[3]] for row in rows]
    below = [wrap(said, width, "") for said in (reading(found), unsure_words(found)) if said]
    return "\n".join([table(columns, rows, paint is colour, width, columns[1:-1]), *below]) + "\n"


def are_halves(found: Ladder) -> bool:
    """Whether the figures of single patches were taken with half of the others in place."""
    return any(rung.in_halves for rung in found.rungs)


def shows_beside(found: Ladder) -> bool:
    """Whether there is something to say of patches beside all the others."""
    return not are_halves(found) or any(rung.beside is not None for rung in found.rungs)


def reading(found: Ladder) -> str:
    """How the figures of the patches are to be read."""
    beside = BESIDE if shows_beside(found) else ""
    said = (IN_HALVES, beside) if are_halves(found) else (ALONE, beside, SCREENED_MEANS)
    return " ".join(part for part in (RATIOS, *said) if part)


def unsure_words(found: Ladder) -> str:
    """Why patches stay of which no interval excludes 1, "" where there are none."""
    stayed = [rung for rung in found.rungs if not rung.dropped]
    unsure = [rung.knob for rung in stayed if rung.high >= 1 and (rung.beside is None or rung.beside[2] >= 1)]
    if len(stayed) < 2 or not unsure:
        return ""
    they_stay, each_of_them = ("They stay", "each of them") if unsure[1:] else ("It stays", "it")
    return (
        f"No interval of {' and '.join(unsure)} excludes 1. {they_stay} because all patches together were shown to be faster, "
        f"and {each_of_them} looked faster both alone and beside the others."
    )


def _row(number: str, rung: Rung, stayed: int) -> list[str]:
    place = f"{rung.location.path}:{rung.location.line}"
    what = rung.words if place in rung.words else f"{rung.words} ({place})"
    alone = alone_text(rung)
    basis = "" if rung.basis == "screened" else f" {rung.basis}"
    beside = _beside(rung, stayed)
    alone, beside = (alone, beside + basis) if rung.ratio is None else (alone + basis, beside)
    return [f"{number}  {what}", alone, beside, _outcome(rung)]


def alone_text(rung: Rung) -> str:
    """What it takes by itself, with the interval; of one that was chosen by a few quads, that these were too few."""
    if rung.ratio is None:
        return "too briefly" if rung.quads else "not raced"
    return interval_text(rung.ratio, rung.low, rung.high)


def _outcome(rung: Rung) -> str:
    """What else it changes, or what became of it."""
    if rung.dropped:
        return "not checked" if rung.dropped in PAY_ALL_THE_SAME else "taken out"
    return _changes(rung.changes)


def _beside(rung: Rung, stayed: int) -> str:
    if rung.beside is not None:
        return interval_text(*rung.beside)
    if rung.in_halves:
        return ""
    return "not raced" if stayed > 1 and not rung.dropped else ""  # a single one has no others


def _changes(changes: tuple[str, ...]) -> str:
    return ", ".join(changes) or "nothing"


def _final_race(found: Ladder, width: int) -> str:
    said = final_race(found)
    return wrap(said, width, "") + "\n" if said else ""


def final_race(found: Ladder) -> str:
    """What the race of the patch in fresh processes said, or that it did not decide; "" where neither is known."""
    if found.ratio is None:
        return ""
    clock = clock_words(found.clock)
    if found.basis == "screened":
        race = "not decided, no round was finished"
        if found.rounds:
            race = f"not decided after {count(found.rounds, 'round')}{_so_far(found)}"
        said = f"final race: {race}; the patch, screened{clock}: {_ratio(found)}"
        said += f" ({TWIN})" if found.has_twin else ""
        said += CHOSEN if found.is_chosen_by_it else ""
    else:
        rounds = count(found.rounds, "round")
        said = f"final race, the patch against your code in fresh processes ({rounds}{clock}): {_ratio(found)}"
    if found.high < 1 and (gained := saving_of_patch(found)):
        said += f"; saves {gained}"
    if (peaks := known_peaks(found)) and (before := size(peaks[0])) != (after := size(peaks[1])):
        said += f"; peak memory {before} -> {after}"
    return said


def _so_far(found: Ladder) -> str:
    """What the final race has shown until then, which is no verdict."""
    if found.final_so_far is None:
        return ""
    ratio, low, high = found.final_so_far
    return f", at {interval_text(ratio, low, high)}" if high < float("inf") else f", at {ratio:.3f}"


def known_peaks(found: Ladder) -> tuple[int, int] | None:
    """Peak memory of a step without and with the patch; None where it is not known.

    That is the memory of tensors in the training's process: what the workers of another loader hold is not in it.
    """
    has_other_loader = any(rung.knob == "dataloader" and not rung.dropped for rung in found.rungs)
    if has_other_loader or not found.peak_memory_bytes or not found.patched_peak_memory_bytes:
        return None
    return found.peak_memory_bytes, found.patched_peak_memory_bytes


def is_several(found: Ladder) -> bool:
    return sum(not rung.dropped for rung in found.rungs) > 1


def saving_of_patch(found: Ladder) -> str:
    """What the patch saves in THOUSAND steps, "" where no interval is known."""
    if found.seconds_per_step is None or found.ratio is None or found.high == float("inf"):
        return ""
    low, middle, high = (THOUSAND * found.seconds_per_step * (1 - r) for r in (found.high, found.ratio, found.low))
    return f"{seconds(middle)} [{seconds(low)}, {seconds(high)}] in a thousand steps"


def _ratio(found: Ladder) -> str:
    assert found.ratio is not None
    interval: Interval = (found.ratio, found.low, found.high)
    return interval_text(*interval)


def _patch(found: Ladder, paint: Paint, width: int) -> str:
    if found.trouble:
        whole = found.trouble.removeprefix(REFUSED)
        return "" if _short(whole) == whole else wrap(f"no patch: {whole}", width, "") + "\n"
    if not found.files:
        return ""
    changes = f"changes {', '.join(found.changes)}" if found.changes else "changes nothing but speed"
    lines = [paint(f"the patch ({changes}):", "cyan")]
    for item in found.files:
        lines += [f"  {line}" if line else "" for line in painted_diff(item.diff, paint)]
    return "\n".join(lines) + "\n"


def _left_text(report: Report, width: int) -> str:
    """What is not in the patch and might be, one line a reason."""
    lines = [wrap(f"{', '.join(names)}: {reason}", width, "  ") for reason, names in knobs_left(report).items()]
    return "\n".join([f"{NOT_TAKEN}:", *lines]) + "\n" if lines else ""


def knobs_left(report: Report) -> dict[str, list[str]]:
    """What is not in the patch and might be: knobs by the reason."""
    found = report.ladder
    assert found is not None
    reasons: dict[str, list[str]] = {}
    for rung in found.rungs:
        if rung.dropped:
            what = "it pays, and is not handed over" if rung.dropped in PAY_ALL_THE_SAME else "taken out again"
            reasons.setdefault(f"{what}: {rung.dropped}", []).append(rung.knob)
    for item in (*found.left, *(item for item in report.not_applicable if item.late)):
        reasons.setdefault(item.reason, []).append(item.knob)
    known = {knob for names in reasons.values() for knob in names}
    undecided = _undecided_knobs(report)
    if open_ := [knob for knob in found.undecided if knob in undecided and knob not in known]:
        reasons["undecided: more time would decide it"] = open_
    if waiting := [knob for knob in found.undecided if knob not in undecided and knob not in known]:
        reasons["not raced: the race ended before it told anything"] = waiting
    known |= {*found.undecided, *(rung.knob for rung in found.rungs)}
    for knob, why in _large_and_not_faster(report).items():
        if knob not in known:
            reasons[why] = [knob]
    return reasons


def _large_and_not_faster(report: Report) -> dict[str, str]:
    """By knob that works on much of the step, what the best of its settings took: somebody asks why it is not in the patch."""
    seen, found = report.calibration, dict[str, str]()
    whole = sum(parts_of(seen).values()) if seen is not None else 0.0
    for knob, phase in PHASE_OF_KNOB.items():
        share = seen.phases.get(phase, 0.0) / whole if seen is not None and whole else 0.0
        raced = [each for each in report.comparisons if each.knob == knob and each.high < float("inf")]
        if share < LARGE or not raced:
            continue
        best = min(raced, key=lambda each: each.ratio)
        taken = interval_text(best.ratio, best.low, best.high)
        settings = settings_text(best.candidate)
        shown = "not shown to be faster" if best.high >= 1 else "faster, but not shown to save as much as a patch must"
        found[knob] = f"{shown}: {settings} took {taken} of your step, of which {phase} is {100 * share:.0f} %"
    return found
