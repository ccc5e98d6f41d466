"""What a run of a script showed, as text: seconds a step, a bar of its phases, and what limits it."""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterable
from pathlib import Path

from perfaudit.findings import Finding
from perfaudit.render.paint import Paint, hanging, wrap
from perfaudit.render.run_ranks import ranks_block
from perfaudit.render.words import MOST_LOAD, count, lines_of
from perfaudit.report import Report
from perfaudit.runs import HELP_PRINTED, NEVER_BUILT, PHASE_WORDS, SETUP_WORDS, Run, StepsProfile, rank_with_most

_LIMITS = {
    "data": "The step waits for data: a faster loader shortens it, a faster model does not.",
    "compute": "The step computes: data come in time.",
    "host": "The host limits: it hands out work more slowly than the device does it.",
    "device": "The device limits: the host waits for it.",
}
_IDLE_HOST = (
    "The step waits, and not for data: its thread computes less than half of the time. "
    "It sleeps, or waits for other processes."
)
TENTHS_SHOWN = 0.05  # seconds; what takes less is told in milliseconds, as it is none of these tenths
SETUP_DOMINATES = 0.5  # of all that was run
SETUP_SECONDS = 5.0  # below, there is nothing to gain that somebody would notice
SETUP_LONG = 30.0  # where the steps were ended early, so that the setup's share in a whole training is not known
_SETUP_ADVICE = {
    "until_torch": "`python -X importtime` shows which import takes it.",
    "until_loader": "Other imports lie there (`python -X importtime` shows them), the model and the data set. What is computed "
    "each time (tokens, decoded images) can be kept in a file.",
    "until_batch": "It is the start of the loader's workers, and the batch itself: fewer workers start sooner.",
}
_WITHOUT_LOADER = (
    "It lies between the import of torch and the first backward pass: other imports, data, the model, and what the script "
    "computes first, such as the first episodes of an agent."
)
MOST_ELSEWHERE = 0.5  # of a step
FEWEST_TO_TUNE = 20  # steps of a whole training; of one with fewer, `tune` hands over nothing
# Times the median, from which on the time of a step does not seem to fit what is of all steps: samples a second, and phases.
MEAN_APART = 1.1
MEAN_FAR = 1.5  # times the median, from which on the two tell different things
MUCH_UNEVEN = 0.2  # of the time of all steps; what is not counted is then a good part of the training
MOST_UNEVEN = 0.5  # of it; then it is what a reader has to know first
FAR_MORE = 2.0  # times the first rank's share, from which on another rank's is told in its place
EXPOSED_SHARE = 0.5  # of what is neither model nor optimizer; then communication is most of that
DATA_IN_TIME = 0.05  # of a step; what waits for data longer is not called in time
USUAL_BUDGET = 300.0  # seconds that `tune` takes without --budget
STEPS_TO_COMPARE = 28  # of two variants, as `tune` counts them
COMPARISONS = 4  # with fewer, hardly anything is decided
_SHOWN_FILES = 4  # where there are more, one less and the number of the others
_BAR = 30  # characters of a share of 100 %
_LEAST_BAR = 8  # with fewer, bars say nothing
_NUMBERS = 19  # columns of a line of phases without name and bar


_SHOWN = 8  # findings; a scan shows all of them, with their patches


def run_page(report: Report, run: Run, paint: Paint, width: int) -> str:
    """The run, then what is wrong in the files it imported: what was seen to take time first."""
    parts = [run_block(run, paint, width, finding_of_data(report))]
    if busy := busy_before(report):
        parts.append(wrap(paint(busy, "yellow"), width, "") + "\n")
    if run.profile is not None:
        parts.append(_profile(run.profile, width))
    findings = [finding for finding in report.findings if not is_never_built(finding)]
    for number, finding in enumerate(findings[:_SHOWN], start=1):
        place = f"{paint(str(finding.location), 'bold')}  " if finding.location else ""
        lines = [hanging(f"{number:>3}  ", f"{place}{finding.rule} {finding.name}", width)]
        places = lines_of(finding.places) if len(finding.places) > 1 else ""
        lines += [wrap(text, width, "     ") for text in (finding.message, places, finding.note) if text]
        parts.append("\n".join(lines) + "\n")
    parts += [f"{item.path}: not audited: {item.reason}\n" for item in report.skipped]
    if unbuilt := len(report.findings) - len(findings):
        parts.append(f"{count(unbuilt, 'finding')} in models that the script has not built: see --format json\n")
    if findings:
        more = len(findings) - _SHOWN
        rest = f"{count(more, 'more finding')}. " if more > 0 else ""
        command = scan_command(findings)
        with_patches = f"With patches: {paint(command, 'bold')}" if command else ""
        parts += [f"{rest}{with_patches}\n"] if rest or with_patches else []
    if may_be_tuned(run):
        parts.append(f"To have patches tried and measured: {paint(next_command(run), 'bold')}\n")
    return "\n".join(parts)


def is_never_built(finding: Finding) -> bool:
    """Whether it lies in a model that the script has not built."""
    return finding.note.startswith(NEVER_BUILT)


def scan_command(findings: Iterable[Finding]) -> str:
    """The command that prints these findings with their patches, "" where none has a file."""
    placed = [finding for finding in findings if finding.location]
    files = list(dict.fromkeys(finding.location.path for finding in placed if finding.location))
    hints = ["--severity", "hint"] if any(finding.severity == "hint" for finding in placed) else []  # else left out
    return shlex.join(["perfaudit", "scan", *hints, *files]) if files else ""


def may_be_tuned(run: Run) -> bool:
    """Whether `tune` can measure the script: it leaves the only process between two steps, and needs some of them."""
    is_short = run.ended == "finished" and run.steps < FEWEST_TO_TUNE
    return bool(run.counted) and not run.in_started and run.ranks < 2 and run.ended != "failed" and not is_short


def next_command(run: Run) -> str:
    """The command that tries on this script what can be tried; the loader alone where the step waits for data."""
    words = shlex.split(run.script)
    script, arguments = (words[:2], words[2:]) if words[0] == "-m" else (words[:1], words[1:])
    knobs = ["--dataloader"] if run.limited_by == "data" else []
    return shlex.join(["perfaudit", "tune", *knobs, *_budget(run), *script, *(["--", *arguments] if arguments else [])])


def _budget(run: Run) -> list[str]:
    """An option with time for some comparisons, where steps are too long for what `tune` takes by itself.

    On a busy machine a step may take far less, so that nothing is said.
    """
    needed = (run.setup_seconds or 0.0) + COMPARISONS * STEPS_TO_COMPARE * (run.seconds_per_step or 0.0)
    return [] if needed <= USUAL_BUDGET or run.is_busy else ["--budget", f"{math.ceil(needed / 60)}m"]


def busy_before(report: Report) -> str:
    """That others used the machine when the script was started; "" where they did not, and where that explains nothing."""
    machine = report.environment
    if machine is None or machine.load is None or machine.load <= MOST_LOAD * machine.cores:
        return ""
    if report.run is not None and report.run.is_busy:
        return ""  # what was seen in the steps says it
    what = "a step may take less"
    if report.run is not None and not report.run.counted:
        if report.run.ended != "late":
            return ""
        what = "it may come to its first step sooner"
    cores = count(machine.cores, "core")
    return f"The machine was busy before the script started (load {machine.load:.3g} on {cores}): alone, {what}."


def finding_of_data(report: Report) -> str:
    """The first finding of what lies in waiting for data, as its rule and place; "" for none."""
    observed = f"observed: {PHASE_WORDS['data_wait']} "
    found = next((each for each in report.findings if (each.note or "").startswith(observed)), None)
    return f"{found.rule} ({found.location})" if found is not None else ""


def run_block(run: Run, paint: Paint, width: int, of_data: str = "") -> str:
    """The result first: how long a step takes, then where it goes, then what was seen besides.

    of_data: a finding of what makes data come late.
    """
    if not run.counted:
        first, *others = no_step(run)
        text = "\n".join([paint(first, "bold red"), *(wrap(sentence, width, "") for sentence in others)]) + "\n"
        return "\n".join(filter(None, [text, ranks_block(run, paint, width)]))
    lines = [wrap(paint(headline(run), "bold"), width, "")]
    if _share_of_uneven(run) >= MOST_UNEVEN:
        lines.append(wrap(_uneven(run), width, ""))
    lines += ["", *_phases(run, paint, width)]
    if ranks := ranks_block(run, paint, width):
        lines += ["", ranks.rstrip("\n")]
    lines += ["", wrap(limited_by(run, of_data), width, "")]
    lines += [wrap(sentence, width, "") for sentence in seen_besides(run)]
    return "\n".join(lines) + "\n"


def milliseconds(seconds: float) -> str:
    """A time of a step in its unit: 3.21 ms, 142 ms, 2.5 s."""
    if seconds >= 1:
        return f"{figures(seconds)} s"
    return f"{figures(1000 * seconds)} ms"


def figures(number: float) -> str:
    """A number to three figures, without an exponent: 0.0159, 58.2, 8,280, 120,000."""
    if number < 999.5:
        return f"{number:.3g}" if number >= 1e-4 else "0"
    return f"{float(f'{number:.3g}'):,.0f}"


def headline(run: Run) -> str:
    """How long a step takes, between which quartiles, on how many steps that rests; the mean too where samples a second and
    phases, which are those of all steps together, would not fit the median.
    """
    assert run.seconds_per_step is not None and run.quartiles is not None
    low, high = run.quartiles
    rate = f", {figures(run.samples_per_second)} samples/s" if run.samples_per_second else ""
    if run.ranks > 1 and rate:
        rates = [each.samples_per_second for each in run.by_rank if each.samples_per_second]
        is_known = len(rates) == run.ranks
        rate = f", {figures(sum(rates))} samples/s on {run.ranks} ranks" if is_known else f"{rate} on the first rank"
    quartiles = f"quartiles {milliseconds(low)} to {milliseconds(high)}"
    if is_mean_apart(run):
        quartiles, rate = f"median; {quartiles}", f"; on average {milliseconds(run.mean_seconds_per_step or 0.0)}{rate}"
    return (
        f"{milliseconds(run.seconds_per_step)} a step ({quartiles}){rate}"
        f"; {count(run.counted, 'step')} of {run.steps} counted"
    )


def is_mean_apart(run: Run) -> bool:
    """Whether what is of all steps together does not fit their median."""
    return not 1 / MEAN_APART < _mean_over_median(run) < MEAN_APART


def _mean_over_median(run: Run) -> float:
    mean, median = run.mean_seconds_per_step, run.seconds_per_step
    return mean / median if mean is not None and median else 1.0


def seconds_of_phases(run: Run) -> float:
    """What the times of phases add up to: the median of a step, or the mean where that is another."""
    return (run.mean_seconds_per_step if is_mean_apart(run) else run.seconds_per_step) or 0.0


def _phases(run: Run, paint: Paint, width: int) -> list[str]:
    named = min(28, width - _NUMBERS)
    longest = min(_BAR, width - _NUMBERS - named - 2)  # of 100 %; a narrow terminal has shorter bars, or none
    step = seconds_of_phases(run)
    lines = [f"  Of a step on average, {milliseconds(step)}:"] if is_mean_apart(run) else []
    for name, share in run.phases.items():
        if share < 0.0005:
            continue
        bar = "█" * round(longest * share) if longest >= _LEAST_BAR else ""
        drawn = f"  {paint(bar, 'cyan')}" if bar else ""
        time = milliseconds(share * step)
        lines.append(f"  {PHASE_WORDS[name]:<{named}}{100 * share:>5.1f} %  {time:>8}{drawn}")
    return lines


def limited_by(run: Run, of_data: str) -> str:
    """What limits a step, in a sentence. of_data: a finding of what makes data come late."""
    if run.limited_by == "host" and run.device == "cpu":
        return _IDLE_HOST
    if run.limited_by == "compute" and (of_rank := _late_data(run)):
        return of_rank
    if run.limited_by == "compute" and (share := run.phases.get("data_wait", 0.0)) >= DATA_IN_TIME:
        cure = f" {of_data} may shorten it." if of_data else ""
        return f"The step computes more than it waits: waiting for data takes {100 * share:.0f} % of a step.{cure}"
    if run.limited_by == "compute" and (share := run.phases.get("other", 0.0)) >= MOST_ELSEWHERE:
        outside = f"The step computes, but {100 * share:.0f} % of it is neither model nor optimizer"
        if (exposed := run.communication_exposed or 0.0) >= EXPOSED_SHARE * share:
            return f"{outside}; communication that nothing hides takes {100 * exposed:.0f} % of it."
        return f"{outside}: logging, saving, an environment, or batches that the loop makes by itself."
    if (
        run.limited_by == "compute"
        and not run.phases.get("data_wait")
        and run.setup
        and "until_loader" not in run.setup
    ):
        return "The step computes, and waits for no DataLoader."
    return _LIMITS[run.limited_by or "compute"]


def _late_data(run: Run) -> str:
    """That another rank than the first, whose phases are shown, waits for data; "" where none waits far longer."""
    most = rank_with_most("data_wait", run)
    share = most.phases.get("data_wait", 0.0) if most is not None else 0.0
    if most is None or share < max(DATA_IN_TIME, FAR_MORE * run.phases.get("data_wait", 0.0)):
        return ""
    return (
        f"Rank {most.rank} waits for data for {100 * share:.0f} % of a step; the first rank, whose phases these are, "
        "computes."
    )


def seen_besides(run: Run) -> list[str]:
    """What else was seen of the steps, the setup, the files and the end of the script, a sentence each."""
    said = []
    if run.counted == 1:
        said.append("A single step was counted, which tells little: others may take longer or shorter.")
    if run.is_traced:
        said.append("A debugger or a tracer follows the script line by line: its times are not those of a training.")
    if run.is_busy:
        share = 100 * (run.queued or 0.0)
        said.append(
            "The cores are shared with other programs or with loader workers: threads of the training waited for them for "
            f"{share:.0f} % of its time, all threads together. With the cores to itself, a step may take far less."
        )
    if run.in_started:
        said.append("The steps are those of one process that the script has started.")
    if _mean_over_median(run) >= MEAN_FAR:
        said.append(
            f"On average a step takes {milliseconds(run.mean_seconds_per_step or 0.0)}: some take far longer than most. "
            "Samples/s and phases are those of all these steps together."
        )
    if 0 < run.steps_watched < run.counted:
        timed = f"Phases were timed in {run.steps_watched} of {count(run.counted, 'step')}, the first and others chosen at random"
        moved = ": rare long steps (evaluations, plots) among these move the shares"
        said.append(f"{timed}{moved if is_mean_apart(run) else ''}.")
    said += _setup(run)
    if run.uneven and _share_of_uneven(run) < MOST_UNEVEN:  # else it stands above
        said.append(_uneven(run))
    if run.updates_per_step > 1 or run.optimizers > 1:
        order = "" if run.is_regular else ", in no order that repeats"
        said.append(
            f"A step is {count(run.updates_per_step, 'update')} of {count(run.optimizers, 'optimizer')}{order}."
        )
    if run.has_long_updates:
        said.append("An update of the optimizer calls its closure many times: a step is one of these calls.")
    if run.optimizers == 0:
        said.append("No torch.optim optimizer was stepped: a step is from one backward pass to the next.")
    backwards = run.backwards_per_step - run.gradients_per_step
    if backwards > 1.5 and run.updates_per_step == 1:
        why = "gradients are accumulated"
        if run.backwards_in_update > 1.5:  # a closure that is called once ends what batches before it have accumulated
            why = "the update of the optimizer calls its closure, which computes the loss again"
        elif backwards - run.backwards_zeroed <= 1.5:  # as sharpness-aware minimization does
            why = "gradients are set to zero between them, so none are accumulated"
        said.append(f"A step has {backwards:.3g} backward passes: {why}.")
    if backwards > 0 and run.gradients_per_step > 0:
        times = "once" if run.gradients_per_step == 1 else f"{run.gradients_per_step:.3g} times"
        said.append(
            f"A step also calls `torch.autograd.grad` {times}, for a penalty or derivatives say: part of the backward pass."
        )
    if run.peak_memory_bytes:
        what = "of this process" if run.device == "cpu" else "of the device, in tensors"
        said.append(f"Peak memory: {run.peak_memory_bytes / 2**20:,.0f} MiB {what}.")
    return [*said, *_about_files(run), *_how_it_ended(run)]


def _share_of_uneven(run: Run) -> float:
    """The share of steps that are not counted in the time of all steps."""
    counted = run.counted * (run.mean_seconds_per_step or 0.0)
    return run.uneven_seconds / (run.uneven_seconds + counted) if counted else 0.0


def _uneven(run: Run) -> str:
    """How much time steps took that are not counted."""
    share = _share_of_uneven(run)
    of_all = f", {100 * share:.0f} % of the time of all," if share >= MUCH_UNEVEN else ""
    besides, with_these = "an evaluation, the beginning of an epoch", ""
    if share >= MOST_UNEVEN:
        besides += ", the episodes that an agent plays"
        mean = (run.uneven_seconds + run.counted * (run.mean_seconds_per_step or 0.0)) / (run.uneven + run.counted)
        these = "it" if run.uneven == 1 else "them"
        with_these = f" With {these}, a step takes {milliseconds(mean)} on average, which is what `tune` compares."
    took = f"{run.uneven_seconds:.1f} s" if run.uneven_seconds >= TENTHS_SHOWN else milliseconds(run.uneven_seconds)
    return (
        f"{count(run.uneven, 'step')} with something besides ({besides}) took "
        f"{took}{of_all} and {'is' if run.uneven == 1 else 'are'} not counted.{with_these}"
    )


def _setup(run: Run) -> list[str]:
    """How long setup takes and which part of it; where it takes longer than the steps, what can be done."""
    if run.setup_seconds is None:
        return []
    has_loader = "until_loader" in run.setup
    words = SETUP_WORDS if has_loader else SETUP_WORDS | {"until_batch": "until the first backward pass"}
    parts = ", ".join(f"{seconds:.1f} s {words[name]}" for name, seconds in run.setup.items())
    said = [f"Setup took {run.setup_seconds:.1f} s: {parts}."]
    is_whole = run.ended == "finished"
    if (run.setup_share or 0.0) >= SETUP_DOMINATES and run.setup_seconds >= (SETUP_SECONDS if is_whole else SETUP_LONG):
        largest = max(run.setup, key=lambda name: run.setup[name])
        what = "the training" if is_whole else f"the {count(run.steps, 'step')} that were watched"
        advice = _SETUP_ADVICE[largest] if has_loader or largest == "until_torch" else _WITHOUT_LOADER
        said.append(f"Setup takes longer than {what}. {advice}")
    return said


def _profile(profile: StepsProfile, width: int) -> str:
    """What takes the time of the profiled steps, as shares."""
    if not profile.operators and not profile.kernels:
        return f"No profile: {profile.why or 'the script ended before'}.\n"
    lines = [f"{count(profile.steps, 'step')} under torch.profiler, which slows them: shares, and no times of a step"]
    for title, rows in (("operators, their own time", profile.operators), ("kernels of the device", profile.kernels)):
        if rows:
            lines += ["", f"  {title:<{width - 28}}  share  calls a step"]
            room = width - 28
            lines += [f"  {row.name[:room]:<{room}}  {100 * row.share:>4.1f} %  {row.calls:>12.4g}" for row in rows]
    return "\n".join(lines) + "\n"


def _from_here(file: str) -> str:
    """A file below the working directory as it is called from there; any other as it is."""
    here = Path.cwd()
    return str(Path(file).relative_to(here)) if Path(file).is_relative_to(here) else file


def _about_files(run: Run) -> list[str]:
    said = []
    number = len(run.redirected) + run.redirected_more
    if number:
        files = run.redirected[: _SHOWN_FILES if number <= _SHOWN_FILES else _SHOWN_FILES - 1]
        shown = ", ".join(_from_here(file) for file in files)
        shown += f" and {number - _SHOWN_FILES + 1} more" if number > _SHOWN_FILES else ""
        said.append(f"{count(number, 'file')} the script wrote {'was' if number == 1 else 'were'} kept away: {shown}")
    if run.in_place:
        said.append("The script ran in place: what it wrote is where it wrote it.")
    return said


def _how_it_ended(run: Run) -> list[str]:
    if run.ended == "finished":
        few = f"with fewer than {FEWEST_TO_TUNE} steps, `tune` has no patch checked. To tune it, have it train longer"
        return [f"The script ended by itself; {few}." if run.steps < FEWEST_TO_TUNE else "The script ended by itself."]
    if run.ended == "enough":
        return [run.message] if run.message else []
    if run.by_rank and run.ended in ("failed", "stopped", "late"):
        return []  # told with the ranks
    if run.is_refused:
        return [f"The script was ended early: {run.message}"]
    if run.ended == "failed":
        return [f"The script failed: {run.message}"]
    if run.ended == "stopped":
        return [f"It was ended: {run.message}."]
    if run.ended == "late":
        return [f"No further step came in time. {run.message}{_where_it_stands(run)}"]
    return ["Interrupted; this is what was seen until then."] if run.ended == "interrupted" else []


def _where_it_stands(run: Run) -> str:
    return f" It stands at {run.stands}." if run.stands else ""


def no_step(run: Run) -> list[str]:
    """Why no step could be timed: the first sentence says it, others what was seen."""
    said = {
        "finished": "The script ended without a step that could be timed.",
        "failed": f"The script failed before a step could be timed: {run.message}",
        "late": "No step was seen in time.",
        "stopped": f"Ended before a step could be timed: {run.message}.",
        "interrupted": "Interrupted before a step could be timed.",
        "enough": "No step could be timed.",
    }[run.ended]
    if run.is_refused:
        said = f"The script was ended before a step could be timed: {run.message}"
    if run.message == HELP_PRINTED:
        return [run.message, *_about_files(run)]
    # How each rank ended is told behind this; a launcher interrupts the others when one has died.
    is_told = bool(run.by_rank) and (
        run.ended in ("failed", "stopped", "late") or any(rank.ended in ("dead", "failed") for rank in run.by_rank)
    )
    sentences = ["No step could be timed." if is_told else said]
    if run.ended in ("late", "finished", "enough") and run.message and not is_told:
        sentences.append(f"{run.message}{_where_it_stands(run)}")
    if run.steps:
        sentences.append(
            f"{count(run.steps, 'step')} seen; the first does not count, as the start of the script is in it."
        )
    return [*sentences, *_about_files(run)]
