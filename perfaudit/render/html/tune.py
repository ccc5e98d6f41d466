"""A search as parts of a page: before and after, the ladder, candidates with their control, the patch, what is left."""

from __future__ import annotations

import math
from collections.abc import Sequence

from perfaudit.measurements import NOT_CLAIMED, Calibration, Comparison, Ladder, Rung, Trial, Winner, settings_text
from perfaudit.render.html.charts import (
    Axis,
    Band,
    BarRow,
    IntervalRow,
    axis_from_zero,
    axis_over,
    bars,
    intervals,
    legend,
    unit_of_bytes,
)
from perfaudit.render.html.code import copyable_diff, patch
from perfaudit.render.html.knob_curves import knob_curves
from perfaudit.render.html.losses import losses_picture
from perfaudit.render.html.markup import (
    Markup,
    Part,
    bullets,
    element,
    fold_away,
    paragraphs,
    section,
    sentence,
    table,
    together,
    words,
)
from perfaudit.render.ladder import (
    alone_text,
    final_race,
    headline,
    is_several,
    knobs_left,
    known_peaks,
    offer_text,
    reading,
    step_before,
    unsure_words,
)
from perfaudit.render.run import milliseconds
from perfaudit.render.tables import (
    busy_text,
    candidate_name,
    control_text,
    differing_names,
    machine_line,
    noise_text,
    of_text,
    own_loop_text,
    parts_of,
    reasons_of,
    settings_words,
    size,
    trial_rows,
)
from perfaudit.render.words import (
    clock_words,
    count,
    distrust,
    interval_text,
    saving_text,
    step_time,
    unit_of,
)
from perfaudit.report import Report

LEAST_PHASE = 0.005  # of a step; shorter ones are not drawn
ROOM = 400_000  # bytes of all files of a patch
MUCH_QUEUED = 0.1  # of a step: less is within what times of two runs differ by anyway
KNOB_HEADINGS = {"patch": "Patches that were raced"}  # of what is no knob
MOST_RATIO, LEAST_RATIO = 2.0, 0.25  # of a picture; what lies outside is an arrow at its edge
CONTROLS = {"own": "control: identical code", "twins": "control: identical code, in a second training"}
_VERDICTS = (
    ("faster", "faster"),
    ("slower", "slower"),
    ("undecided", "undecided"),
    ("control", "control: identical code"),
)


def tune_header(report: Report) -> Markup:
    """The result: the step before and after, how sure that is, and on what machine."""
    head = element("h1", f"perfaudit {report.command}: {report.target}")
    found = report.ladder
    result = headline(report, with_names=True).replace(" -> ", " → ") if found is not None else search_result(report)
    verdict, _, rest = result.partition("; ")
    sure = [final_race(found).replace(" -> ", " → "), _check_words(found)] if found is not None else []
    not_learning = found.not_learning if found is not None else ""
    offer = offer_text(report) if found is not None else ""
    return element(
        "header",
        head,
        element("p", words(verdict), class_="verdict"),
        paragraphs(sentence(said) for said in (rest, offer, *sure)),
        paragraphs([sentence(not_learning)], class_="doubt"),
        on_what(report),
    )


def on_what(report: Report) -> Markup:
    """Why figures are not to be trusted, where they are not, and the machine that they were measured on."""
    doubt = paragraphs([sentence(distrust(report))], class_="doubt")
    machine = paragraphs(map(sentence, (machine_line(report), busy_text(report))), class_="dim")
    return together(doubt, machine, paragraphs([own_loop_text(report)], class_="dim"))


def measured_body(report: Report, exact: Report) -> Markup:
    """What a step consists of, and what was raced for each knob or patch. exact: the report before signs were put into it."""
    return together(section("What a step consists of", "phases", _phases(report)), _knobs(report, exact))


def _check_words(found: Ladder) -> str:
    """How losses were compared, "" where they were not."""
    if not found.verified:
        return ""
    return f"{'checked' if NOT_CLAIMED in found.verified or found.not_learning else 'verified'}: {found.verified}"


def search_result(report: Report) -> str:
    """Of a search over named knobs: what pays most."""
    paying = [winner for winner in report.winners if not winner.keeps_current]
    if not (report.trials or report.comparisons or report.winners):
        return "Nothing could be raced here"
    if not paying and report.comparisons and not any(c.says_something for c in report.comparisons):
        return "Undecided: everything was raced too briefly to say anything"
    if not paying:
        return "Nothing was shown to pay here"
    if len(paying) > 1:
        return f"{count(len(paying), 'setting')} pay here, each measured by itself against your code"
    saving = paying[0].saving
    saves = f": {saving_text(saving)}" if saving is not None else ""
    settings = settings_text(paying[0].settings)  # of a run of the history they are not known
    return f"{settings} pays here{saves}" if settings else f"{sentence(paying[0].words)}{saves}"


def tune_body(report: Report, exact: Report) -> Markup:
    """The pictures, the patches, and what is left. exact: the report before signs were put into it."""
    found, parts = report.ladder, [Markup()]
    if found is not None:
        assert exact.ladder is not None
        parts += [
            section("Before and after", "before-after", _before_after(report, found), _phases_of_both(found)),
            section("The ladder", "ladder", _ladder(report, found)),
            section("The patch", "patch", _files(found, exact.ladder)),
            section("Losses before and after", "losses", losses_picture(found)),
        ]
    parts.append(section("What pays", "pays", _ranking(report.winners) if found is None else ""))
    parts.append(section("What a step consists of", "phases", _phases(report)))
    if found is not None:
        parts.append(
            section("Every candidate that was raced", "raced", _race_ratios(report, report.comparisons, with_knob=True))
        )
    parts.append(_knobs(report, exact))
    parts.append(section("What was not taken, and why", "left", _what_is_left(report)))
    return together(parts)


def _ranking(winners: Sequence[Winner]) -> Markup:
    """The savings of several knobs, the most certain first."""
    paying = [(w, w.saving) for w in winners if not w.keeps_current and w.saving is not None]
    if len(paying) < 2:
        return Markup()
    rows = []
    for winner, saving in paying:
        figures = f"{100 * saving.low:.1f} to {100 * saving.high:.1f} %, {saving.basis}{clock_words(saving.clock)}"
        rows.append(
            BarRow(settings_text(winner.settings) or winner.words, figures, saving.low, saving.high, saving.basis)
        )
    axis = axis_over(
        [0.0, *(end for row in rows for end in (row.start, row.end))], lambda share: f"{100 * share:.0f} %"
    )
    said = "Savings of the whole step, each by itself against your code, by the lower bound. They do not add up."
    return element("figure", element("figcaption", said), bars(rows, axis, "Savings in percent of a step", base=0.0))


def _before_after(report: Report, found: Ladder) -> Markup:
    before, after = step_before(report), found.patched_seconds_per_step
    if before is None or after is None or found.ratio is None:
        return Markup()
    low, high = (found.low * before, found.high * before) if math.isfinite(found.high) else (None, None)
    basis = found.basis or "measured"
    figures = (
        f"{step_time(after)} [{step_time(low)}, {step_time(high)}]"
        if low is not None and high is not None
        else step_time(after)
    )
    axis = axis_from_zero(max(before, high or after), milliseconds)
    with_patch = f"with {'all patches' if is_several(found) else 'the patch'}, {basis}"
    rows = [
        BarRow("your code", step_time(before), 0.0, before, "rest"),
        BarRow(with_patch, figures, 0.0, after, basis, low, high),
    ]
    parts: list[Part] = [
        element(
            "figcaption",
            f"Time of a step{clock_words(found.clock)}. The 95 % interval is that of the ratio to your code.",
        ),
        bars(rows, axis, "Time of a step"),
    ]
    parts.append(_memory(found, with_patch))
    return element("figure", parts)


def _phases_of_both(found: Ladder) -> Markup:
    """Each phase of a step in the final race, of the user's code and with the patch."""
    before, after = found.phases, found.patched_phases
    names = [
        name
        for name in before
        if name in after and max(before[name], after[name]) >= LEAST_PHASE * sum(before.values())
    ]
    if not names:
        return Markup()
    rows = []
    for name in names:
        said = name.replace("_", " ")
        rows.append(BarRow(said, step_time(before[name]), 0.0, before[name], "rest"))
        ratio = f", {after[name] / before[name]:.2f} of it" if before[name] else ""
        with_patch = element("span", f"{said} with the patch", class_="dim")
        rows.append(BarRow(with_patch, f"{step_time(after[name])}{ratio}", 0.0, after[name], "measured"))
    axis = axis_from_zero(max(row.end for row in rows), milliseconds)
    caption = element("figcaption", "Phases of a step in the final race, medians; they have no interval.")
    return element("figure", caption, bars(rows, axis, "Phases of a step before and after"))


def _memory(found: Ladder, with_patch: str) -> Markup:
    peaks = known_peaks(found)
    if peaks is None:
        return Markup()
    before, after = peaks
    unit, name = unit_of_bytes(max(before, after))
    axis = axis_from_zero(max(before, after) / unit, lambda value: f"{value:,.4g} {name}")
    rows = [
        BarRow("your code", size(before), 0.0, before / unit, "rest"),
        BarRow(with_patch, size(after), 0.0, after / unit, "working"),
    ]
    return together(element("p", "Peak memory of a step.", class_="dim"), bars(rows, axis, "Peak memory of a step"))


def _ladder(report: Report, found: Ladder) -> Markup:
    """The rungs as steps downwards from the user's time, each by what it saves alone; the last bar is the race of all."""
    stayed = [rung for rung in found.rungs if not rung.dropped]
    base = step_before(report)
    parts: list[Part] = []
    if stayed and base is not None:
        level, rows = base, [BarRow("your code", step_time(base), 0.0, base, "rest")]
        for number, rung in enumerate(stayed, start=1):
            name = (f"{number}  ", words(rung.words), element("span", _changes(rung.changes), class_="dim"))
            if rung.ratio is None:
                rows.append(BarRow(name, _rung_figures(rung, len(stayed)), level, level, "undecided"))
                continue
            low, high = (level * rung.low, level * rung.high) if math.isfinite(rung.high) else (None, None)
            kind = rung.basis if rung.ratio < 1 else "slower"
            rows.append(BarRow(name, _rung_figures(rung, len(stayed)), level, level * rung.ratio, kind, low, high))
            level *= rung.ratio
        rows += _last_bar(found, base)
        axis = axis_from_zero(max(base, *(row.high or 0.0 for row in rows)), milliseconds)
        caption = (
            "Each patch is drawn by what it saves alone, below those above it. Patches overlap, so the last bar, which is of all "
            "of them together, need not end where they do."
        )
        parts += [element("p", caption, class_="dim"), bars(rows, axis, "The ladder: time of a step, patch by patch")]
    elif stayed:  # without the time of a step there are no bars
        parts.append(
            bullets((words(r.words), ": ", _rung_figures(r, len(stayed)), ";", _changes(r.changes)) for r in stayed)
        )
    parts.append(_dropped_table([rung for rung in found.rungs if rung.dropped]))
    below = [element("p", words(said), class_="dim") for said in (reading(found), unsure_words(found)) if said]
    return together(parts, *below) if found.rungs else Markup()


def _last_bar(found: Ladder, base: float) -> list[BarRow]:
    interval = (found.ratio, found.low, found.high) if found.ratio is not None else found.screened
    if interval is None or interval[0] is None:
        return []
    ratio, low, high = interval
    basis = (found.basis or "screened") if found.ratio is not None else "screened"
    ends = (base * low, base * high) if math.isfinite(high) else (None, None)
    name = "all patches together" if is_several(found) else "the patch"
    return [
        BarRow(
            f"{name}, {basis}",
            f"{step_time(base * ratio)}: {interval_text(ratio, low, high)}",
            0.0,
            base * ratio,
            basis,
            *ends,
        )
    ]


def _rung_figures(rung: Rung, stayed: int) -> Part:
    if rung.in_halves:
        beside = f"; beside the others {interval_text(*rung.beside)}" if rung.beside is not None else ""
        return f"{alone_text(rung)}, {rung.basis}{beside}"
    alone = f"alone {alone_text(rung)}" if rung.ratio is not None or rung.quads else "not raced alone"
    if stayed < 2:
        return f"{alone}, {rung.basis}"
    beside = (
        f"beside the others {interval_text(*rung.beside)}" if rung.beside is not None else "not raced beside the others"
    )
    return f"{alone}, {rung.basis}; {beside}"


def _changes(changes: tuple[str, ...]) -> str:
    return f" changes {', '.join(changes)}" if changes else " changes nothing but speed"


def _dropped_table(rungs: Sequence[Rung]) -> Markup:
    if not rungs:
        return Markup()
    rows = [
        [
            words(rung.words),
            alone_text(rung),
            element("td", words(rung.dropped), class_="words"),
        ]
        for rung in rungs
    ]
    return table("Taken out again", ("patch", "alone", "why"), rows, "names places")


def _files(found: Ladder, exact: Ladder) -> Markup:
    if not found.files:
        return paragraphs([sentence(found.trouble)])
    changes = f"It changes {', '.join(found.changes)}." if found.changes else "It changes nothing but speed."
    parts, taken = [Markup()], 0
    for number, (file, as_read) in enumerate(zip(found.files, exact.files, strict=True)):
        own = patch(file.diff, file.path, copyable_diff(as_read.diff, as_read.encoding))
        taken += len(own.encode())
        if taken > ROOM:
            left = f"{count(len(found.files) - number, 'more file')} not shown; `--out FILE` writes the whole patch."
            parts.append(element("p", words(left), class_="dim"))
            break
        parts += [element("h3", element("code", file.path)), own]
    return together(element("p", changes), parts)


def _phases(report: Report) -> Markup:
    """The phases of a step of the user's code, one after the other, and how far identical code came out from it."""
    seen = report.calibration
    if seen is None:
        return Markup()
    parts = parts_of(seen)
    whole = sum(parts.values())
    at, rows = 0.0, []
    for name, seconds_ in parts.items():
        if whole and seconds_ / whole >= 0.0005:
            kind = "waiting" if name in ("loading", "transfer") else "working"
            figures = f"{100 * seconds_ / whole:.1f} %, {step_time(seconds_)}"
            rows.append(BarRow(name.replace("_", " "), figures, at, at + seconds_, kind))
        at += seconds_
    drawn = bars(rows, axis_from_zero(at, milliseconds), "Phases of a step of your code") if rows else ""
    waited = ", with the time in which it waits for cores that others hold" if _waits(seen) else ""
    said = f"A step of your code takes {step_time(seen.seconds_per_step)}{waited}."
    return together(
        element("p", said), drawn, paragraphs(map(sentence, (control_text(seen), noise_text(seen))), class_="dim")
    )


def _waits(seen: Calibration) -> bool:
    """Whether waiting for cores makes this step much longer than that of a race, which may leave it out."""
    return seen.clock == "wall" and seen.queued >= MUCH_QUEUED


def _race_ratios(report: Report, compared: Sequence[Comparison], with_knob: bool = False) -> Markup:
    """The ratios with their intervals against the base, and the control beside them."""
    bounded = [c for c in compared if math.isfinite(c.high)]
    if not bounded:
        return bullets(f"{_compared_name(c, compared, with_knob)}: {_compared_row('', c).figures}" for c in compared)
    controls = report.calibration.controls if report.calibration is not None else {}
    axis = _ratio_axis([*((c.low, c.high) for c in bounded), *(seen[1:] for seen in controls.values())])
    bands = [Band(*seen[1:], "control") for name, seen in controls.items() if name == "own"]
    rows = [IntervalRow(CONTROLS[name], interval_text(*seen), "control", *seen) for name, seen in controls.items()]
    ordered = sorted(compared, key=lambda c: (not math.isfinite(c.high), c.ratio))
    rows += [_compared_row(_compared_name(c, compared, with_knob), c) for c in ordered]
    kinds = {row.kind for row in rows if row.middle is not None}
    drawn = intervals(rows, axis, "Time of a step over that of your code, with intervals", base=1.0, bands=bands)
    control = " The band is the control: identical code, put in place as a patch is." if bands else ""
    said = f"Time over that of your code, which is 1; below is faster. Intervals of 95 %.{control}"
    return element("figure", element("figcaption", said), legend(one for one in _VERDICTS if one[0] in kinds), drawn)


def _compared_name(c: Comparison, compared: Sequence[Comparison], with_knob: bool) -> str:
    if with_knob:
        return candidate_name(c)
    names = differing_names([compared[0].baseline, *(one.candidate for one in compared)])
    return f"{settings_words(c.candidate, names)}{of_text(c)}"


def _ratio_axis(told: Sequence[tuple[float, float]]) -> Axis:
    inside = [min(max(end, LEAST_RATIO), MOST_RATIO) for interval in told for end in interval]
    return axis_over([1.0, *inside], lambda ratio: f"{ratio:.4g}")


def _compared_row(name: str, c: Comparison) -> IntervalRow:
    raced = count(c.n, unit_of(c))
    clock = clock_words(c.clock)
    if not math.isfinite(c.high):
        could_not = "it looked no faster" if c.ratio >= 1 else f"at {c.ratio:.2f} it could not win"
        said = f"stopped early: {could_not}" if c.given_up else "no interval yet"
        return IntervalRow(name, f"{said} ({raced}, {c.basis})", "undecided")
    verdict = "stopped early" if c.given_up else c.verdict
    figures = f"{interval_text(c.ratio, c.low, c.high)} {verdict} ({raced}, {c.basis}{clock})"
    return IntervalRow(name, figures, c.verdict, c.ratio, c.low, c.high)


def _knobs(report: Report, exact: Report) -> Markup:
    """For each knob that has trials, or was searched by name: its curve, its race, what it recommends."""
    is_climb = report.ladder is not None
    seen = [*(t.knob for t in report.trials), *(c.knob for c in report.comparisons if not is_climb)]
    parts = []
    for number, name in enumerate(dict.fromkeys(seen), start=1):
        trials = [t for t in report.trials if t.knob == name]
        winners = [
            (w, e) for w, e in zip(report.winners, exact.winners, strict=True) if w.knob == name and not is_climb
        ]
        raced = [c for c in report.comparisons if c.knob == name and not is_climb]
        inner = together(
            (_winner(winner, as_read) for winner, as_read in winners),
            knob_curves(trials, [winner for winner, _ in winners], raced),
            _race_ratios(report, raced),
            _trials(trials),
        )
        parts.append(section(KNOB_HEADINGS.get(name, sentence(name.replace("_", " "))), f"knob-{number}", inner))
    return together(parts)


def _winner(winner: Winner, exact: Winner) -> Markup:
    """What a knob recommends, with what it saves and the patch."""
    parts: list[Part] = [
        element("p", words(sentence(winner.words)), class_="better" if not winner.keeps_current else None)
    ]
    if winner.keeps_current and winner.settings:
        parts.append(element("p", f"It stays at {settings_text(winner.settings)}."))
    if not winner.keeps_current and winner.saving is not None:
        parts.append(element("p", words(sentence(saving_text(winner.saving)))))
    if winner.verified:
        checked = "Checked" if NOT_CLAIMED in winner.verified else "Verified"
        parts.append(element("p", words(f"{checked}: {winner.verified}")))
    parts.append(paragraphs(map(sentence, winner.remarks), class_="dim"))
    if winner.fix is not None and exact.fix is not None and winner.location is not None:
        changes = f", changes {', '.join(winner.fix.changes)}" if winner.fix.changes else ""
        place = f"{winner.location.path}:{winner.location.line}"
        parts.append(element("p", f"Patch ({winner.fix.safety}{changes}) of ", element("code", place)))
        parts.append(patch(winner.fix.diff, place, copyable_diff(exact.fix.diff, exact.fix.encoding)))
    elif winner.handed_over:
        parts.append(element("p", words(sentence(winner.handed_over))))
    return together(parts)


def _trials(trials: Sequence[Trial]) -> Markup:
    """All figures of the trials, folded."""
    if not trials:
        return Markup()
    columns, rows = trial_rows(trials)
    failed = [f"{settings_text(t.settings)}: {t.reason}" for t in trials if t.status == "failed"]
    return fold_away("All trials as a table", table("Trials", columns, rows), paragraphs(failed))


def _what_is_left(report: Report) -> Markup:
    """What more time or more leave would try, and what cannot matter here."""
    found = knobs_left(report) if report.ladder is not None else {}
    idle = reasons_of(item for item in report.not_applicable if not (report.ladder is not None and item.late))
    listed = bullets(_reason(names, why) for why, names in found.items())
    return together(
        listed, fold_away("Knobs that were not searched", bullets(_reason(names, why) for why, names in idle.items()))
    )


def _reason(names: Sequence[str], why: str) -> Markup:
    return together(element("strong", ", ".join(names)), ": ", words(why))
