"""Traces of a job, or of two, as a report: verdict, ranks, at most five findings in the order of what they could save."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from perfaudit.findings import Finding, Location, Saving
from perfaudit.forked_work import Limits, Lost, in_children
from perfaudit.report import Report, Skipped
from perfaudit.rules import Rule
from perfaudit.trace.analyse import analyse
from perfaudit.trace.file_result import FileResult, TraceFinding
from perfaudit.trace.perfetto import TrimmedTrace, trimmed_trace
from perfaudit.trace.ranks import Job, compare_ranks
from perfaudit.trace.trace_files import NotReadable, TraceFile
from perfaudit.trace.words import ranks_in_words
from perfaudit.traces import SHARE_WORDS, FindingChange, RankTrace, TraceChange, Traces, duration

MOST_FINDINGS = 5
LEAST = 0.02  # of the window
# How the verdict says why a device is idle.
_IDLE_BY = {
    "idle_data": "waiting for data",
    "idle_sync": "because the host waited for it",
    "idle_allocation": "while memory is allocated",
    "idle_launch": "because launches come late",
    "idle_other": "for a reason that the trace does not show",
}
ALL = 0.95  # of idle time, from which on one cause is said to be that of all
MUCH = 0.1  # of the window; so much loss without a finding is said
LIMITS = Limits(cpu_seconds=3600, wall_seconds=7200, memory_bytes=3 << 30, doing="read")
Progress = Callable[[int, int, str], None]


def read_all(
    files: Sequence[TraceFile], window: tuple[int, int] | None, processes: int, progress: Progress | None = None
) -> list[FileResult]:
    """What is in each file, in the order given; in child processes with a bound on memory where there are several."""
    results: dict[TraceFile, FileResult] = {}
    work = in_children(lambda file: _analyse(file, window), files, processes, LIMITS)
    for number, (file, result) in enumerate(work, start=1):
        results[file] = FileResult(file.name, problem=result.reason) if isinstance(result, Lost) else result
        if progress is not None:
            progress(number, len(files), file.name)
    return [results[file] for file in files]


def _analyse(file: TraceFile, window: tuple[int, int] | None) -> FileResult:
    """What is in a file. What nobody has foreseen in one file must not cost the others."""
    try:
        return analyse(file, window)
    except Exception as error:
        return FileResult(file.name, problem=f"cannot be analysed: {type(error).__name__}: {str(error)[:200]}")


def cut_out(file: TraceFile, window: tuple[int, int] | None, step: int | None) -> TrimmedTrace | str | None:
    """One step of a file as a trace of its own, made in a child process; None without work of a device, a text where it
    cannot be read.
    """
    for _, made in in_children(lambda one: _cut_out(one, window, step), [file], 1, LIMITS):
        return made.reason if isinstance(made, Lost) else made
    return None


def _cut_out(file: TraceFile, window: tuple[int, int] | None, step: int | None) -> TrimmedTrace | str | None:
    try:
        return trimmed_trace(file, window, step)
    except NotReadable as error:
        return str(error)


def report_of(results: Sequence[FileResult], rules: Mapping[str, Rule], rank: int | None = None) -> Report:
    """One job. rank: the only one to look at, None for all."""
    skipped = [Skipped(one.file, one.problem) for one in results if one.problem]
    usable, more, notes = _one_job([one for one in results if not one.problem])
    skipped += more
    job = compare_ranks(usable)  # all ranks also where one is looked at: how long it waits for others shows beside them
    notes += job.notes
    if rank is not None:
        usable = [one for one in usable if one.rank == rank]
        job = replace(job, findings=tuple(one for one in job.findings if one.rank == rank))
    found = _together([*(finding for one in usable for finding in _without_waiting(one, job)), *job.findings])
    found = [one for one in found if one.share >= LEAST]
    devices = tuple(device for one in usable for device in one.devices)
    traces = Traces(
        verdict(devices, found, rules),
        devices,
        job.stragglers,
        job.waits,
        max(0, len(found) - MOST_FINDINGS),
        {one.rule: one.share for one in found},
    )
    findings = tuple(_finding(one, rules) for one in found[:MOST_FINDINGS])
    return Report(
        "trace", findings, tuple(skipped), files=len(usable), notes=tuple(notes), traces=traces if devices else None
    )


def _one_job(results: list[FileResult]) -> tuple[list[FileResult], list[Skipped], list[str]]:
    """The files of the job that most are of, those left out, and remarks: ranks of another job, a rank that is there twice."""
    results, skipped, notes = _of_usual_job(results)
    results, exports = _without_exports(results)
    skipped += exports
    sizes = {one.world_size for one in results if one.world_size is not None}
    kept: dict[int | None, FileResult] = {}
    unknown = []
    for one in sorted(results, key=_certainty):
        if one.rank is None:
            unknown.append(one)
        elif one.rank in kept and _is_ranked_by_name(one):
            # A name tells too little to leave a file out.
            notes.append(
                f"{one.file} is named like rank {one.rank}, and so is {kept[one.rank].file}: the first is analysed by itself."
                if _is_ranked_by_name(kept[one.rank])
                else f"{one.file} is named like rank {one.rank}, but {kept[one.rank].file} says that it is rank {one.rank}: "
                "the first is analysed by itself."
            )
            unknown.append(replace(one, rank=None, devices=tuple(replace(each, rank=None) for each in one.devices)))
        elif one.rank in kept:
            skipped.append(Skipped(one.file, f"of rank {one.rank} too, which is read from {kept[one.rank].file}"))
        else:
            kept[one.rank] = one
    places = {one.file: place for place, one in enumerate(results)}
    unknown.sort(key=lambda one: places[one.file])
    ordered = [*(kept[rank] for rank in sorted(kept, key=lambda rank: rank or 0)), *unknown]
    size = next(iter(sizes), None) if len(sizes) == 1 else None
    if size is not None and 1 < len(kept) < size:
        notes.append(f"{len(kept)} of the {size} ranks of the job were read; who is late is judged among these.")
    if len(ordered) > 1 and len(unknown) == len(ordered):
        notes.append("No file says which rank it is of: each is analysed by itself.")
    elif kept and (nameless := [one for one in results if one.rank is None]):
        is_single = len(nameless) == 1
        who = f"{nameless[0].file} does" if is_single else f"{len(nameless)} files do"
        notes.append(
            f"{who} not say of which rank: {'it' if is_single else 'each'} is analysed by itself, not as part of the job."
        )
    return ordered, skipped, notes


def place_of_first_finding(report: Report, results: Sequence[FileResult]) -> tuple[str, int | None]:
    """The file that shows the first finding most, or that of the straggler, and the number of the step that holds most of it.

    Without a finding the first file that was read, "" where none was; None for no step in particular.
    """
    usable = [one for one in results if one.devices]
    rule = report.findings[0].rule if report.findings else ""
    late = {one.rank for one in report.traces.stragglers} if report.traces and rule == "PA904" else set()
    shown = [(seen.share, one.file, seen.step) for one in usable for seen in one.findings if seen.rule == rule]
    if shown:
        _, file, step = max(shown, key=lambda each: each[0])
        return file, step
    return next((one.file for one in usable if one.rank in late), usable[0].file if usable else ""), None


def _of_usual_job(results: list[FileResult]) -> tuple[list[FileResult], list[Skipped], list[str]]:
    """Those of the job that most files are of, by what the files say of their jobs; the others with the reason, and a remark
    where as many files are of several jobs: then it is the job of the first file.
    """
    jobs = Counter(one.job for one in results if one.job)  # in the order of the files
    if len(jobs) < 2:
        return results, [], []
    usual = max(jobs, key=lambda job: jobs[job])  # of several the first
    others = [one for one in results if one.job not in (usual, "")]
    kept = [one for one in results if one not in others]
    is_tied = sum(number == jobs[usual] for number in jobs.values()) > 1
    first = next(one.file for one in kept if one.job)
    chosen = f"{first}, the first file, is of {usual}" if is_tied else f"most files are of {usual}"
    notes = [
        f"The files are of {len(jobs)} jobs, and no job has most of them. This is the report of the job of the first file, "
        f"{first}. Name the files of another job to read that."
    ]
    return kept, [Skipped(one.file, f"of another job: {one.job}; {chosen}") for one in others], notes if is_tied else []


def _without_exports(results: list[FileResult]) -> tuple[list[FileResult], list[Skipped]]:
    """The files without steps that `--export` cut out of them, whatever these are called now. One whose rank no other file has
    is read.
    """
    whole = {one.rank: one.file for one in results if not one.export_of}
    kept, skipped = [], []
    for one in results:
        if one.export_of and (one.rank in whole or (one.rank is None and whole)):
            of_whom = f"rank {one.rank} is read from {whole[one.rank]}" if one.rank in whole else "the others are whole"
            skipped.append(Skipped(one.file, f"one step that --export cut out of {one.export_of}; {of_whom}"))
        else:
            kept.append(one)
    return kept, skipped


def _certainty(result: FileResult) -> tuple[bool, bool]:
    """Of two files of one rank the smaller is kept: one that tells its rank, and one that does not end in the middle."""
    return _is_ranked_by_name(result), any("truncated" in device.notes for device in result.devices)


def _is_ranked_by_name(result: FileResult) -> bool:
    """Whether the rank of a file is taken from its name, which a copy may have lost or another file may have too."""
    return any("rank-from-name" in device.notes for device in result.devices)


def _without_waiting(result: FileResult, job: Job) -> Iterable[TraceFinding]:
    """The findings of a rank, where waiting for other ranks is no communication that could be overlapped."""
    waiting = (job.waiting or {}).get(result.rank if result.rank is not None else -1, 0.0)
    for finding in result.findings:
        if finding.rule in ("PA903", "PA708") and waiting and finding.share > 0:
            left = max(0.0, finding.share - waiting) / finding.share
            each = finding.seconds_per_step
            said = f"{100 * min(waiting, finding.share):.0f} % of the time is waiting for other ranks"
            yield replace(
                finding,
                share=finding.share * left,
                seconds=finding.seconds * left,
                seconds_per_step=None if each is None else each * left,
                message=f"{finding.message}. Of this, {said}",
            )
        else:
            yield finding


def _together(findings: Iterable[TraceFinding]) -> list[TraceFinding]:
    """One finding a rule, that of the rank where it could save most; it says which other ranks, or how many files, have it. The
    largest first.
    """
    by_rule: dict[str, list[TraceFinding]] = {}
    everything = list(findings)
    for finding in everything:
        by_rule.setdefault(finding.rule, []).append(finding)
    found = []
    for several in by_rule.values():
        most = max(several, key=lambda one: one.share)
        ranks = sorted({one.rank for one in several if one.rank is not None})
        if len(several) > 1 and len(ranks) > 1:
            most = replace(
                most, message=f"{most.message} (figures of rank {most.rank}; {ranks_in_words(ranks)} have this finding)"
            )
        elif most.rank is None and most.file and len({one.file for one in everything}) > 1:
            most = replace(most, message=f"{most.message} ({most.file})")
        found.append(most)
    return sorted(found, key=lambda one: -one.share)


def _finding(found: TraceFinding, rules: Mapping[str, Rule]) -> Finding:
    rule = rules[found.rule]
    where = found.where
    location = Location(where.source, where.line, 1, where.line, 1) if where.source else None
    parts = []
    if where.operator and where.operator not in found.message:
        parts.append(f"in the operator `{where.operator}`")
    if where.annotation:
        parts.append(f"under the annotation `{where.annotation}`")
    return Finding(
        rule=rule.id,
        name=rule.name,
        severity=rule.severity,
        message=found.message,
        location=location,
        saving=Saving("profiled", 0.0, found.share, seconds_per_step=found.seconds_per_step),
        note=f"mostly {', '.join(parts)}" if parts else "",
        hot=True,
    )


def verdict(devices: Sequence[RankTrace], findings: Sequence[TraceFinding], rules: Mapping[str, Rule]) -> str:
    """The one line: how long a step takes, what the devices do, and what could be saved most."""
    if not devices:
        return "nothing could be read"
    # A rank whose trace has no work of a device tells nothing about devices, nor does one whose work is cut off.
    devices = [device for device in devices if "no-device" not in device.notes] or devices
    devices = [device for device in devices if "cut-work" not in device.notes] or devices
    ranked = [device for device in devices if device.rank is not None]
    if len({device.file for device in ranked}) > 1:
        devices = ranked  # what is not known to be of the job tells nothing about it
    is_cut = "cut-work" in devices[0].notes
    if _are_unrelated(devices):
        return _of_unrelated(devices, findings, rules)
    mean = {name: sum(device.shares[name] for device in devices) / len(devices) for name in SHARE_WORDS}
    times = [device.seconds_per_step for device in devices if device.seconds_per_step]
    step = f"{duration(sum(times) / len(times))} a step; " if times else ""
    if all("no-device" in device.notes for device in devices):
        has = "the trace has" if len(devices) == 1 else "the traces have"
        lacks = f"{has} no work of a device, so nothing is known about the device"
        if is_cut:
            # The host may run ahead of its device: the time of its steps would be taken for that of the training.
            return f"{lacks}; {'it ends' if len(devices) == 1 else 'they end'} in the middle"
        return f"{step}{lacks}; the host waits for data for {100 * mean['idle_data']:.0f} % of the time"
    one = len(devices) == 1
    head = f"{step}{'the device computes' if one else 'devices compute'} for {100 * mean['compute']:.0f} % of the time"
    lost = {name: share for name, share in mean.items() if name != "compute"}
    worst = max(lost, key=lambda name: lost[name])
    idle = sum(share for name, share in lost.items() if name.startswith("idle_"))
    if is_cut:
        files = "the file, which ends in the middle," if one else "the files, which end in the middle,"
        return f"{head} of what is there of {files} and what could be saved is not known"
    if any("sampled" in device.notes for device in devices):
        return f"{head}, as far as a sample of the events tells; why {'it is' if one else 'they are'} idle is not known"
    if lost[worst] >= LEAST and worst.startswith("idle_"):
        part = "most of it" if lost[worst] > idle / 2 else "the largest part"
        mostly = f"{part} ({100 * lost[worst]:.0f} %) " if lost[worst] < ALL * idle else ""
        head += f" and {'is' if one else 'are'} idle for {100 * idle:.0f} %, {mostly}{_IDLE_BY[worst]}"
    elif lost[worst] >= LEAST:
        does = {"communication_exposed": "communicate{s} and compute{s} nothing", "memory_exposed": "only cop{ies}"}[
            worst
        ]
        does = does.format(s="s", ies="ies") if one else does.format(s="", ies="y")
        head += f"; for {100 * lost[worst]:.0f} % {'it' if one else 'they'} {does}"
    if not findings:
        is_idle = lost[worst] >= MUCH
        return f"{head}: no rule says what to change" if is_idle else f"{head}: nothing worth doing was found"
    first = findings[0]
    return f"{head}; the largest finding ({first.rule} {rules[first.rule].name}) could save at most {100 * first.share:.0f} %"


def _are_unrelated(devices: Sequence[RankTrace]) -> bool:
    """Whether several files are not known to be ranks of one job, so that a mean over them is of nothing."""
    return len({device.file for device in devices}) > 1 and any(device.rank is None for device in devices)


def _of_unrelated(devices: Sequence[RankTrace], findings: Sequence[TraceFinding], rules: Mapping[str, Rule]) -> str:
    """The line for files of which each is looked at by itself: ranges, and no mean."""
    number = len({device.file for device in devices})
    head = f"{number} traces, not known to be of one job"
    if all("no-device" in device.notes for device in devices):
        return f"{head}; nothing is known about devices, of which they have no work"
    if any("cut-work" in device.notes for device in devices):
        return f"{head}; they end in the middle, and what could be saved is not known"
    computing = sorted({round(100 * device.shares["compute"]) for device in devices})
    head += f"; devices compute for {' to '.join(map(str, dict.fromkeys((computing[0], computing[-1]))))} % of the time"
    if findings:
        first = findings[0]
        name = f"{first.rule} {rules[first.rule].name}"
        return f"{head}; the largest finding ({name}) could save at most {100 * first.share:.0f} % of one of them"
    is_idle = any(share >= MUCH for one in devices for name, share in one.shares.items() if name != "compute")
    return f"{head}: no rule says what to change" if is_idle else f"{head}: nothing worth doing was found"


def compare_jobs(before: Report, after: Report, names: tuple[str, str]) -> Report:
    """The report of the second, with what changed since the first."""
    first, second = before.traces, after.traces
    if first is None or second is None:
        readable, name = (after, names[0]) if first is None else (before, names[1])
        said = f"Nothing is compared, because {name} could not be read. This is the report of the other trace alone."
        return readable.with_(skipped=(*before.skipped, *after.skipped), notes=(said, *readable.notes))
    for traces, name in zip((first, second), names, strict=True):
        if all("cut-work" in device.notes for device in traces.ranks):
            other = before if traces is second else after
            why = f"{name} ends in the middle of its work"
            said = f"Nothing is compared, because {why}. This is the report of the other trace alone."
            return other.with_(skipped=(*before.skipped, *after.skipped), notes=(said, *other.notes))
    mean = [
        {name: sum(one.shares[name] for one in traces.ranks) / len(traces.ranks) for name in SHARE_WORDS}
        for traces in (first, second)
    ]
    savings = [traces.upper_bounds for traces in (first, second)]
    rules = sorted(
        {*savings[0], *savings[1]}, key=lambda rule: -max(savings[0].get(rule, 0.0), savings[1].get(rule, 0.0))
    )
    change = TraceChange(
        *names,
        _step(first.ranks),
        _step(second.ranks),
        {name: mean[1][name] - mean[0][name] for name in SHARE_WORDS},
        tuple(FindingChange(rule, savings[0].get(rule), savings[1].get(rule)) for rule in rules),
        {name: (_in_a_step(first.ranks, name), _in_a_step(second.ranks, name)) for name in SHARE_WORDS}
        if _step(first.ranks) and _step(second.ranks)
        else {},
    )
    sizes = [
        (len(traces.ranks), sorted({one.rank for one in traces.ranks if one.rank is not None}))
        for traces in (first, second)
    ]
    devices = [sorted({one.device_name for one in traces.ranks if one.device_name}) for traces in (first, second)]
    notes = after.notes
    if all(devices) and devices[0] != devices[1]:
        words = " and ".join(", ".join(names) for names in devices)
        notes = (
            f"The traces are of different devices ({words}): a difference may come from the device, and not from the code.",
            *notes,
        )
    if sizes[0] != sizes[1]:
        notes = (
            "The traces are not of the same ranks: a difference may come from the ranks, and not from the code.",
            *notes,
        )
    return after.with_(traces=replace(second, compared=change), skipped=(*before.skipped, *after.skipped), notes=notes)


def _in_a_step(ranks: Sequence[RankTrace], name: str) -> float:
    """Seconds of a step that a share is, on average over the ranks with steps."""
    times = [
        device.seconds_per_step * (device.usual_shares or device.shares)[name]
        for device in ranks
        if device.seconds_per_step
    ]
    return sum(times) / len(times)


def _step(ranks: Sequence[RankTrace]) -> float | None:
    times = [device.seconds_per_step for device in ranks if device.seconds_per_step]
    return sum(times) / len(times) if times else None


def are_two_jobs(results: Sequence[FileResult], paths: Sequence[Path]) -> bool:
    """Whether two files are traces of one rank before and after, and not of two ranks of a job."""
    usable = [one for one in results if not one.problem]
    sizes = {one.world_size for one in usable if one.world_size is not None}
    is_pair = len(paths) == len(usable) == 2 and len({bool(one.export_of) for one in usable}) == 1
    return is_pair and (len({one.rank for one in usable}) == 1 or len(sizes) > 1)
