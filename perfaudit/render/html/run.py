"""What a run of a script showed, as parts of a page: how long a step takes, where it goes, the setup, the profile."""

from __future__ import annotations

from collections.abc import Sequence

from perfaudit.render.html.charts import BarRow, IntervalRow, axis_from_zero, bars, intervals
from perfaudit.render.html.markup import Markup, element, paragraphs, section, shorten, together, words
from perfaudit.render.html.run_ranks import ranks_section
from perfaudit.render.run import (
    busy_before,
    finding_of_data,
    headline,
    is_mean_apart,
    is_never_built,
    limited_by,
    may_be_tuned,
    milliseconds,
    next_command,
    no_step,
    scan_command,
    seconds_of_phases,
    seen_besides,
)
from perfaudit.render.tables import machine_line
from perfaudit.render.words import count, seconds
from perfaudit.report import Report
from perfaudit.runs import PHASE_WORDS, SETUP_WORDS, ProfileRow, Run, StepsProfile

LEAST_SHARE = 0.0005  # of a step; less is not drawn
_WAITING = {"data_wait", "host_to_device", "host_reads"}


def run_header(report: Report, run: Run) -> Markup:
    """The result: how long a step takes, how sure that is, what limits it, what to type next."""
    head = element("h1", f"perfaudit {report.command}: {run.script}")
    if not run.counted:
        first, *others = no_step(run)
        why = [*others, busy_before(report)]
        return element("header", head, element("p", words(first), class_="verdict"), paragraphs(why))
    step, _, sure = headline(run).partition(" (")
    parts = [
        head,
        element("p", step, class_="verdict"),
        element("p", sure.replace(")", "", 1)),
        element("p", words(limited_by(run, finding_of_data(report)))),
        element("p", machine_line(report), class_="dim"),
        paragraphs([busy_before(report)], class_="dim"),
    ]
    if may_be_tuned(run):
        parts.append(element("p", "To have patches tried and measured: ", words(f"`{next_command(run)}`")))
    return element("header", parts)


def run_body(run: Run) -> Markup:
    """The pictures of a run with their figures, and what was seen besides."""
    if not run.counted:
        return ranks_section(run)
    return together(
        section("Where a step goes", "phases", _phases(run), _spread(run)),
        ranks_section(run),
        section("Setup", "setup", _setup(run)),
        section("Operators", "operators", _profile(run.profile) if run.profile is not None else ""),
    )


def run_notes(report: Report, run: Run) -> list[str]:
    """Sentences on what was seen besides, and on findings that are not shown."""
    unbuilt = sum(is_never_built(finding) for finding in report.findings)
    said = seen_besides(run) if run.counted else []
    if unbuilt:
        said.append(f"{count(unbuilt, 'finding')} in models that the script has not built: see `--format json`")
    return said


def below_findings(report: Report) -> Markup:
    """The command that prints the patches of what was found."""
    typed = scan_command(finding for finding in report.findings if not is_never_built(finding))
    return element("p", "With patches: ", words(f"`{typed}`")) if typed else Markup()


def _phases(run: Run) -> Markup:
    """The phases one after the other along a step, so that the last bar ends where the step does."""
    step = seconds_of_phases(run)
    at, rows = 0.0, []
    for name, share in run.phases.items():
        if share >= LEAST_SHARE:
            kind = "waiting" if name in _WAITING else "rest" if name == "other" else "working"
            figures = f"{100 * share:.1f} %, {milliseconds(share * step)}"
            rows.append(BarRow(PHASE_WORDS[name], figures, at * step, (at + share) * step, kind))
        at += share
    which = f"a step on average ({milliseconds(step)})" if is_mean_apart(run) else "a step"
    caption = element("figcaption", f"Phases of {which}, in the order of the list; orange ones wait.")
    return element("figure", caption, bars(rows, axis_from_zero(step, milliseconds), "Phases of a step"))


def _spread(run: Run) -> Markup:
    """The median of the steps with their quartiles, and their mean: how much they differ from each other."""
    assert run.seconds_per_step is not None and run.quartiles is not None
    low, high = run.quartiles
    rows = [
        IntervalRow(
            "median, quartiles", f"{milliseconds(run.seconds_per_step)} [{milliseconds(low)}, {milliseconds(high)}]", "plain",
            run.seconds_per_step, low, high,
        )
    ]  # fmt: skip
    mean = run.mean_seconds_per_step
    if mean is not None:
        rows.append(IntervalRow("mean", milliseconds(mean), "plain", mean))
    axis = axis_from_zero(max(high, mean or 0.0), milliseconds)
    caption = element("figcaption", f"How long {count(run.counted, 'step')} took.")
    return element("figure", caption, intervals(rows, axis, "How long steps took"))


def _setup(run: Run) -> Markup:
    if not run.setup or run.setup_seconds is None:
        return Markup()
    at, rows = 0.0, []
    for name, value in run.setup.items():
        said = (
            SETUP_WORDS[name]
            if "until_loader" in run.setup or name != "until_batch"
            else "until the first backward pass"
        )
        rows.append(BarRow(said, seconds(value), at, at + value, "rest"))
        at += value
    return bars(rows, axis_from_zero(at, seconds), "Parts of the setup")


def _profile(profile: StepsProfile) -> Markup:
    """What takes the time of the profiled steps, as shares."""
    if not profile.operators and not profile.kernels:
        return element("p", words(f"No profile: {profile.why or 'the script ended before'}."))
    steps = count(profile.steps, "step")
    said = f"{steps} under torch.profiler, which slows them: shares, and no times of a step."
    return together(
        element("p", said, class_="dim"),
        _shares("Operators, their own time", profile.operators),
        _shares("Kernels of the device", profile.kernels),
    )


def _shares(title: str, rows: Sequence[ProfileRow]) -> Markup:
    if not rows:
        return Markup()
    drawn = [
        BarRow(
            element("code", shorten(row.name, 120)), f"{100 * row.share:.1f} %, {row.calls:.4g} calls a step", 0.0, row.share,
            "working",
        )
        for row in rows
    ]  # fmt: skip
    axis = axis_from_zero(max(row.share for row in rows), lambda share: f"{100 * share:.0f} %")
    return element("figure", element("figcaption", title), bars(drawn, axis, title))
