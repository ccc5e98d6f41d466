"""What was measured, as tables: the machine, each knob's trials, the race, the winner with its patch."""

from __future__ import annotations

import io
import shlex
from collections.abc import Collection, Iterable, Sequence

from perfaudit.measurements import Calibration, Comparison, NotApplicable, Settings, Trial, Winner, settings_text
from perfaudit.render.paint import Paint, colour, painted_diff, wrap
from perfaudit.render.words import clock_words, count, interval_text, saving_text, seconds, unit_of
from perfaudit.report import Report

LEAST_OTHER = 0.005  # of a step, which is in no phase of it: less is said nowhere
LEAST_QUEUED = 0.01  # of a step, which it waits for cores: less is said nowhere
_UNITS = ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))


def environment(report: Report, paint: Paint, width: int, brief: bool = False) -> str:
    """One line on target and machine, and a warning when others use the machine: another line, or `brief` a word.

    Where the file has a loop of its own that was not measured, a line says so.
    """
    env = report.environment
    assert env is not None
    text = f"{paint(report.target, 'bold')} {machine_line(report)}"
    busy = busy_text(report)
    if busy and brief:
        text += ", " + paint(f"busy (load {env.load})", "yellow")
    elif busy:
        text += "\n" + paint(busy, "yellow")
    if loop := own_loop_text(report):
        text += "\n" + wrap(loop, width, "")
    return text + "\n"


def own_loop_text(report: Report) -> str:
    """That the file's factories were measured and not its own loop, and the command for that; "" where it has none."""
    loop = report.own_loop
    if loop is None:
        return ""
    *names, last = loop.factories
    functions = f"{', '.join(names)} and {last}" if names else last
    where = f"in {loop.function}() ({loop.path}:{loop.line})" if loop.function else f"at {loop.path}:{loop.line}"
    behind = f"{shlex.quote(loop.path)} -- ARGS, with the script's arguments"
    if report.command == "tune":
        how = f"perfaudit tune -m {loop.module}" if loop.module else f"perfaudit tune {behind}"
    else:
        how = f"perfaudit {report.command} --measure {behind}"
    return (
        f"{loop.path} builds its training by {functions}: these are measured, not the loop {where}. For the loop: {how}"
    )


def busy_text(report: Report) -> str:
    """That others used the machine when measuring began, "" where they did not or where nobody looked."""
    env = report.environment
    if env is None or env.load is None or env.load <= env.cores * 0.75:
        return ""
    return f"the machine was busy (load {env.load} on {env.cores} cores): intervals are wider for it"


def machine_line(report: Report) -> str:
    """The machine and its versions in one line, "" where nothing is known of them."""
    env = report.environment
    if env is None:
        return ""
    driver = f", {env.driver}" if env.driver else ""
    return (
        f"on {env.device}{driver}, {env.cores} core{'s' if env.cores != 1 else ''}, "
        f"{env.threads} thread{'s' if env.threads != 1 else ''}, {size(env.memory_bytes)}, torch {env.torch}, Python {env.python}"
    )


def calibration(report: Report, width: int = 100, verbose: bool = False) -> str:
    """What a step consists of, and how far identical code, a control, came out from the user's.

    verbose: also how far the control's ratios scatter, and the processor time of a step.
    """
    seen = report.calibration
    assert seen is not None
    found = parts_of(seen)
    whole = sum(found.values())
    parts = sorted(((s / whole, name) for name, s in found.items() if whole and s / whole >= LEAST_OTHER), reverse=True)
    phases = ", ".join(f"{name.replace('_', ' ')} {100 * share:.0f} %" for share, name in parts)
    step = wrap(f"a step takes {seconds(seen.seconds_per_step)}{clock_words(seen.clock)}: {phases}", width, "")
    lines = [control_text(seen), *([noise_text(seen)] if verbose else [])]
    return "\n".join([step, *(wrap(line, width, "") for line in lines)]) + "\n"


def parts_of(seen: Calibration) -> dict[str, float]:
    """Seconds of each part of a step: its phases, and as "other" what is in none of them."""
    timed = sum(seen.phases.values())
    other = seen.seconds_per_step - timed
    if not timed or other < LEAST_OTHER * seen.seconds_per_step:
        return seen.phases
    return {**seen.phases, "other": other}


def control_text(seen: Calibration) -> str:
    """How far identical code came out from the user's."""
    how = "in a second training" if seen.control_way == "twin" else "put in place as a patch is"
    said = f"control: identical code, {how}"
    if seen.low is None or seen.high is None:
        said = f"{said}: too few comparisons for an interval ({seen.rounds})"
    else:
        taken = f"took {interval_text(seen.ratio, seen.low, seen.high)} of the time of your code"
        said = f"{said}, {taken} ({count(seen.rounds, unit_of(seen))})"
    if (twins := seen.of_twins) is None:
        return said
    quads = count(twins.rounds, "comparison")
    if twins.ratio is None or twins.low is None or twins.high is None:
        return f"{said}; in a second training it was timed too briefly for an interval ({quads})"
    return f"{said}; in a second training it took {interval_text(twins.ratio, twins.low, twins.high)} ({quads})"


def noise_text(seen: Calibration) -> str:
    """How far quads of identical code scatter, and what a step takes of the processor: less than it lasts where it waits."""
    scatter = (
        [f"single {unit_of(seen)}s of the control scatter by {100 * seen.scatter:.1f} %"]
        if seen.scatter is not None
        else []
    )
    computed = seen.cpu_per_step or seen.seconds_per_step / (seen.wall_over_cpu or 1.0)
    processor = f"a step takes {seconds(computed)} of processor time, all threads"
    queued = seconds(seen.queued * seen.seconds_per_step)  # of all threads, so it may be longer than the step
    waited = f", and they wait {queued} together for cores that others hold"
    return "noise: " + "; ".join([*scatter, processor + (waited if seen.queued >= LEAST_QUEUED else "")])


def knobs(report: Report, paint: Paint, width: int) -> list[str]:
    """For each knob: the trials, the race against the current setting, and the winner; at the end what pays, in order."""
    parts = []
    seen = [*(t.knob for t in report.trials), *(c.knob for c in report.comparisons)]
    names = [name for name in dict.fromkeys(seen) if name != "patch"]
    for name in names:
        trials = [t for t in report.trials if t.knob == name]
        parts.append(paint(name, "bold") + "\n" + (_trials(trials, paint, width) if trials else ""))
        raced = [c for c in report.comparisons if c.knob == name]
        if raced:
            parts.append(_race(raced, paint, trials[0].metric if trials else "", width))
        parts += [_winner(w, paint, width) for w in report.winners if w.knob == name]
    for basis in ("screened", "measured"):
        patches = [c for c in report.comparisons if c.knob == "patch" and c.basis == basis]
        if patches:
            parts.append(_patches(patches, paint))
    if report.not_applicable:
        parts.append(not_searched(report, paint, width))
    if len(names) > 1:
        parts.append(_ranking(report.winners, paint, width))
    return parts


def not_searched(report: Report, paint: Paint, width: int) -> str:
    """The knobs that cannot matter here, one line a reason."""
    reasons = reasons_of(report.not_applicable)
    lines = [
        wrap(f"{', '.join(paint(name, 'bold') for name in names)}: {reason}", width, "  ")
        for reason, names in reasons.items()
    ]
    return "\n".join(["not searched:", *lines]) + "\n"


def reasons_of(items: Iterable[NotApplicable]) -> dict[str, list[str]]:
    """Knobs by the reason why they were not searched."""
    reasons: dict[str, list[str]] = {}
    for item in items:
        reasons.setdefault(item.reason, []).append(item.knob)
    return reasons


def _ranking(winners: tuple[Winner, ...], paint: Paint, width: int) -> str:
    """What pays, most certain saving first: the answer of a run over many knobs."""
    paying = [w for w in winners if not w.keeps_current and w.saving is not None]
    if not paying:
        return paint("RANKED: nothing was shown to pay here", "bold") + "\n"
    rows = [
        [
            str(number),
            settings_text(w.settings),
            f"{100 * w.saving.low:.1f} … {100 * w.saving.high:.1f} %{clock_words(w.saving.clock)}",
            _handed_over(w),
        ]
        for number, w in enumerate(paying, start=1)
        if w.saving is not None
    ]
    heading = paint("RANKED: measured one by one against your code, by the lower bound; savings do not add up", "bold")
    columns = ["", "setting", "saves of the whole step", "patch"]
    return heading + "\n" + table(columns, rows, paint is colour, width)


def _handed_over(winner: Winner) -> str:
    if winner.fix is None or winner.location is None:
        return "see above" if winner.handed_over else "by hand"
    place = f"{winner.location.path}:{winner.location.line}"
    return place + (f" ({', '.join(winner.fix.changes)})" if winner.fix.changes else "")


def _trials(trials: list[Trial], paint: Paint, width: int) -> str:
    settings = differing_names([t.settings for t in trials])
    unmeasured = {t.reason for t in trials} if all(t.status == "not_measured" for t in trials) else set()
    if len(unmeasured) == 1 and not any(t.peak_memory_bytes for t in trials):
        return wrap(f"{unmeasured.pop()}: {_settings_line(trials, settings)}", width, "  ") + "\n"
    columns, rows = trial_rows(trials)
    failed = [f"  {settings_text(t.settings)}: {t.reason}" for t in trials if t.status == "failed"]
    return table(columns, rows, paint is colour, width) + "".join(f"{line}\n" for line in failed)


def trial_rows(trials: Sequence[Trial]) -> tuple[list[str], list[list[str]]]:
    """The columns and rows of a knob's trials: settings that differ, the figures with their unit, and what is known besides."""
    settings = differing_names([t.settings for t in trials])
    per_second = trials[0].metric == "samples_per_second"
    columns = [*settings, "samples/s" if per_second else "ms/step", "quartiles", "blocks"]
    if any(t.peak_memory_bytes for t in trials):
        columns.append("peak memory")
    if any(t.added_seconds for t in trials):
        columns.append("adds, ms [95 %]")
    rows = []
    for t in trials:
        row = [_value(t.settings.get(key)) for key in settings]
        if t.status != "ok" or t.median is None or t.low is None or t.high is None:
            row += [t.status.replace("_", " "), "see below" if t.status == "failed" else t.reason, ""]
        elif per_second:
            row += [f"{t.median:,.0f}", f"{t.low:,.0f} … {t.high:,.0f}", str(t.n)]
        else:
            row += [f"{t.median * 1e3:.2f}", f"{t.low * 1e3:.2f} … {t.high * 1e3:.2f}", str(t.n)]
        if "peak memory" in columns:
            row.append(size(t.peak_memory_bytes) if t.peak_memory_bytes else "")
        if columns[-1].startswith("adds"):
            row.append(_added_milliseconds(t))
        rows.append(row)
    return columns, rows


def _settings_line(trials: list[Trial], names: list[str]) -> str:
    """Settings on one line, without the name where they differ in one only: "batch_size 8, 16, 32"."""
    if len(names) == 1:
        return f"{names[0]} {', '.join(_value(t.settings.get(names[0])) for t in trials)}"
    return "; ".join(settings_words(t.settings, names) for t in trials)


def _added_milliseconds(t: Trial) -> str:
    if t.added_seconds is None:
        return ""
    middle, low, high = t.added_seconds
    if low is None or high is None:
        return f"{1e3 * middle:+.2f} [few rounds]"
    return f"{1e3 * middle:+.2f} [{1e3 * low:+.2f}, {1e3 * high:+.2f}]"


def differing_names(settings: Sequence[Settings]) -> list[str]:
    """The names in which some of these settings differ; all where none do."""
    names = list(dict.fromkeys(key for each in settings for key in each))
    return [name for name in names if len({str(each.get(name)) for each in settings}) > 1] or names


def _race(raced: list[Comparison], paint: Paint, metric: str, width: int) -> str:
    unit = "token" if raced[0].per == "token" else "sample" if metric == "samples_per_second" else "step"
    unit += ", loading left out" if raced[0].without_loading else ""
    names = differing_names([raced[0].baseline, *(c.candidate for c in raced)])
    bases = {c.basis for c in raced}
    how = "in one running training" if bases == {"screened"} else "in fresh processes"
    how += ", or screened in one running training" if len(bases) > 1 else ""
    lines = [f"against {settings_words(raced[0].baseline, names)}, {how}, time per {unit}:"]
    lines += [
        wrap(
            f"{settings_words(c.candidate, names)}{of_text(c)}{'' if c.per == raced[0].per else f', by the {c.per}'}: "
            f"{ratio_text(c, paint)}",
            width,
            "  ",
        )
        for c in raced
    ]
    return "\n".join(lines) + "\n"


def settings_words(settings: Settings, names: list[str]) -> str:
    return settings_text({name: settings.get(name) for name in names})


def candidate_name(c: Comparison) -> str:
    """A candidate among those of other knobs: its knob, which is not named twice, and its settings."""
    knob = "" if c.knob in c.candidate else f"{c.knob} "
    return f"{knob}{settings_text(c.candidate)}{of_text(c)}".strip()


def of_text(c: Comparison) -> str:
    """What a comparison is of, where it is not the whole step."""
    return "" if c.of == "step" else f", if only {c.of.replace('+', ' and ').replace('_', ' ')} changed"


def _patches(compared: list[Comparison], paint: Paint) -> str:
    screened = "patches in one running training, each in turn with your code, time per step"
    measured = "patched source against the source as it is, time per step"
    lines = [paint(screened if compared[0].basis == "screened" else measured, "bold")]
    for c in compared:
        place = f" in {c.candidate['path']}" if "path" in c.candidate else ""
        lines.append(f"  {c.candidate['patch']}{place}: {ratio_text(c, paint)}")
    return "\n".join(lines) + "\n"


def ratio_text(c: Comparison, paint: Paint) -> str:
    """A ratio with its interval and verdict, "0.94 [0.93, 0.95] faster"; none where none was measured yet."""
    style = {"faster": "green", "slower": "red", "undecided": "yellow"}[c.verdict]
    clock = clock_words(c.clock)
    if c.given_up and c.basis == "screened":
        could_not = (
            "it looked no faster" if c.knob == "patch" or not c.has_ratio else f"at {c.ratio:.2f} it could not win"
        )
        return f"{paint('stopped early', 'yellow')} ({count(c.n, unit_of(c))}: {could_not})"
    if c.given_up:
        return f"{c.ratio:.3f} {paint('stopped early', 'yellow')} ({c.n} rounds: it looked slower in every generation)"
    undecided = c.verdict == "undecided" and c.smallest is not None
    smallest = f"; under {100 * (c.smallest or 0):.1f} % nothing could be seen" if undecided else ""
    rounds = count(c.n, unit_of(c))
    basis = "" if c.basis == "measured" else f", {c.basis}"
    ratio = interval_text(c.ratio, c.low, c.high) if c.has_ratio else "no ratio yet:"
    return f"{ratio} {paint(c.verdict, style)} ({rounds}{basis}{clock}{smallest})"


def _winner(winner: Winner, paint: Paint, width: int) -> str:
    remarks = [wrap(remark, width, "  ") for remark in winner.remarks]
    if winner.keeps_current:
        said = wrap(f"→ {winner.words} ({settings_text(winner.settings)})", width, "")
        return "\n".join([said, *remarks]) + "\n"
    lines = [f"{paint('→ ' + winner.words, 'bold')}"]
    if winner.saving is not None:
        lines.append(f"  {saving_text(winner.saving, paint)}")
    if winner.verified:
        lines.append(f"  checked: {winner.verified}")
    lines += remarks
    if winner.fix is not None:
        changes = f": changes {', '.join(winner.fix.changes)}" if winner.fix.changes else ""
        lines.append(f"  {paint(f'fix ({winner.fix.safety}{changes})', 'cyan')} at {winner.location}:")
        lines += [f"    {line}" if line else "" for line in painted_diff(winner.fix.diff, paint)]
    else:
        by_hand = "no line of your project builds this in a way that can be patched: change it by hand as said above"
        lines.append(wrap(winner.handed_over, width, "  ") if winner.handed_over else f"  {by_hand}")
    return "\n".join(lines) + "\n"


def size(count: int) -> str:
    """Bytes in the largest binary unit that keeps it above one."""
    for unit, name in _UNITS:
        if count >= unit:
            return f"{count / unit:.1f} {name}"
    return f"{count} B"


def table(
    columns: list[str], rows: Iterable[list[str]], in_colour: bool, width: int, whole: Collection[str] = ()
) -> str:
    """A table drawn by rich, `width` characters at most; cells of the columns named in `whole` stay on one line."""
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    drawn = Table(box=SIMPLE_HEAD, pad_edge=False)
    for index, name in enumerate(columns):
        drawn.add_column(Text(name), justify="left" if index == 0 else "right", overflow="fold", no_wrap=name in whole)
    for row in rows:
        drawn.add_row(*(Text(cell) for cell in row))
    out = io.StringIO()
    console = Console(file=out, width=width, color_system="standard" if in_colour else None)
    console.print(drawn)
    return "\n".join(line.rstrip() for line in out.getvalue().rstrip().splitlines()) + "\n"


def _value(value: object) -> str:
    return "-" if value is None else str(value)
