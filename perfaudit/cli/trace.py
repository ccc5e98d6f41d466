"""`perfaudit trace`: what traces of torch.profiler say about why a training is slow."""

from __future__ import annotations

import enum
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from perfaudit.cli.options import HtmlFile, format_option
from perfaudit.cli.output import check_writable, emit, is_terminal, say, write
from perfaudit.errors import FOUND, NOTHING_MEASURED, OK, UserError

if TYPE_CHECKING:
    from perfaudit.report import Report
    from perfaudit.trace.file_result import FileResult

HELP = """Read traces of torch.profiler, of one rank or many: why devices were idle, and what could be saved. Nothing is run.

\b
    perfaudit trace trace.json.gz               one trace
    perfaudit trace traces/                     a folder: the ranks of a job
    perfaudit trace before.json after.json      one rank twice: what changed
    perfaudit trace --compare monday/ tuesday/  two folders: what changed
    perfaudit trace traces/ --rank 3 --window 2:4
    perfaudit trace trace.json.gz --source .    with lines of your code
    perfaudit trace traces/ --html report.html
    perfaudit trace traces/ --on ray            read by the nodes of a cluster

FILES are .json, .json.gz, .zip or .tar.gz, or folders with them. Traces of old and new versions of PyTorch, of CUDA, ROCm and
XPU devices are read; a trace without a device shows how long the host waits for data.

The saving of a finding is an upper bound: all of its time, as if nothing took its place. Findings overlap in time, so savings
do not add up.

Exit codes: 0 nothing worth doing was found · 1 findings · 2 wrong use · 3 nothing could be read, or concluded, or compared ·
130 interrupted.
"""
STEP = "perfaudit.step.json"


class Export(enum.StrEnum):
    """What a step is written for."""

    perfetto = "perfetto"


def command(
    paths: Annotated[
        list[Path], typer.Argument(metavar="FILES...", readable=False, help="Traces, or folders with traces.")
    ],
    compare: Annotated[
        bool | None,
        typer.Option(
            "--compare/--ranks",
            help="Whether two paths are traces before and after a change, or ranks of one job. Default: ranks, unless both "
            "files are of the same rank.",
        ),
    ] = None,
    rank: Annotated[int | None, typer.Option(min=0, help="Look at this rank only.")] = None,
    window: Annotated[
        str | None, typer.Option(metavar="FIRST:LAST", help="Steps to look at, by the numbers of ProfilerStep#N.")
    ] = None,
    source: Annotated[
        list[Path] | None,
        typer.Option(
            help="Code of the training, a file or folder; may be given several times. Findings name its lines and patches."
        ),
    ] = None,
    export: Annotated[
        Export | None,
        typer.Option(
            help=f"Also write {STEP}: the events of one step of the rank with the first finding, and why its device was idle."
        ),
    ] = None,
    jobs: Annotated[
        int,
        typer.Option("--jobs", "-j", min=0, help="Processes, of each node with --on; 0: as many as there are cores."),
    ] = 0,
    on: Annotated[
        str, typer.Option("--on", metavar="ray|slurm", help="Have nodes of a cluster read the files, a share each.")
    ] = "",
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Also print kernels, where idle time lies, all ranks and all notes.")
    ] = False,
    exit_zero: Annotated[bool, typer.Option("--exit-zero", help="Exit with 0 where there are findings.")] = False,
    format: Annotated[str, format_option("text", "json", "html", "markdown")] = "text",
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Write the report to a file.")] = None,
    html: HtmlFile = None,
) -> None:
    from perfaudit.trace.report import are_two_jobs

    check_writable(output, html)
    check_writable(Path(STEP) if export else None)
    steps = _window(window)
    if compare and len(paths) != 2:
        raise UserError(f"--compare takes two paths, before and after; {len(paths)} given")
    by_path = _read(paths, steps, jobs, on)
    _check_window(steps, [one for results in by_path for one in results])
    if compare is None:
        compare = len(paths) == 2 and are_two_jobs([one for results in by_path for one in results], paths)
    if compare:
        report = _compare(paths, by_path, rank)
    else:
        report = _report([one for results in by_path for one in results], rank)
    if source:
        from perfaudit.cli.trace_source import join_with_code

        report = join_with_code(report, source)
    if export is not None:
        _export(report, paths, by_path[-1] if compare else [one for results in by_path for one in results], rank, steps)
    emit(report, format, output, verbose, html)
    if report.traces is None:
        for item in report.skipped if format != "text" else ():
            say(f"perfaudit: {item.path}: {item.reason}")
        raise typer.Exit(NOTHING_MEASURED)
    if all("cut-work" in device.notes for device in report.traces.ranks) or (compare and not report.traces.compared):
        raise typer.Exit(NOTHING_MEASURED)
    raise typer.Exit(FOUND if report.findings and not exit_zero else OK)


def _window(text: str | None) -> tuple[int, int] | None:
    """The numbers of the first and the last step; raises UserError."""
    if text is None:
        return None
    found = re.fullmatch(r"(\d+)(?:[:-](\d+))?", text)
    if found is None or int(found[2] or found[1]) < int(found[1]):
        raise UserError(f"--window {text}: give the first and the last step, as 2:4")
    return int(found[1]), int(found[2] or found[1])


def _check_window(window: tuple[int, int] | None, results: list[FileResult]) -> None:
    """Raises UserError where no file has a step in it, and says where the steps of the files end before it."""
    if window is None:
        return
    shown = f"--window {window[0]}" if window[0] == window[1] else f"--window {window[0]}:{window[1]}"
    numbers = [one.steps for one in results if one.steps is not None]
    first, last = min((one[0] for one in numbers), default=0), max((one[1] for one in numbers), default=0)
    if any(one.is_outside for one in results) and all(one.problem for one in results):
        if not numbers:
            raise UserError(f"{shown}: no steps are marked in these traces")
        raise UserError(f"{shown}: no such steps; these traces have {first} to {last}")
    if numbers and (window[0] < first or window[1] > last):
        say(f"perfaudit: {shown}: these traces have only steps {first} to {last}")


def _read(paths: list[Path], steps: tuple[int, int] | None, jobs: int, on: str) -> list[list[FileResult]]:
    """What is in the traces below each path. One that is not there costs the others nothing; raises UserError where none is.

    on: whose nodes read them, "" for this machine.
    """
    from perfaudit.cli.trace_nodes import read_here, read_on
    from perfaudit.trace.file_result import FileResult
    from perfaudit.trace.trace_files import find_traces, why_missing

    missing = {path: why for path in paths if (why := why_missing(path))}
    is_any_there = len(missing) < len(set(paths))
    files = [[] if is_any_there and path in missing else find_traces([path]) for path in paths]
    if not any(files):
        names = ", ".join(str(path) for path in paths)
        raise UserError(f"{names}: no traces there; they are called *.json, *.json.gz, *.zip or *.tar.gz")
    everything = [file for several in files for file in several]
    with _Progress(len(everything)) as progress:
        if not on:
            results = read_here(everything, steps, jobs, progress)
        else:
            from perfaudit.cli.nodes import opener

            with opener(on)(None) as nodes:
                assert nodes is not None  # of a name that was given
                results = read_on(nodes, everything, steps, jobs, progress)
    by_file = dict(zip(everything, results, strict=True))
    gone = {path: FileResult(str(path), problem=why) for path, why in missing.items()}
    return [
        [gone[path]] if path in gone else [by_file[file] for file in several]
        for path, several in zip(paths, files, strict=True)
    ]


class _Progress:
    """A line that stays current on a terminal while several files are read; nothing elsewhere."""

    def __init__(self, files: int) -> None:
        self._is_shown = files > 1 and is_terminal(sys.stderr)

    def __enter__(self) -> _Progress:
        return self

    def __call__(self, done: int, files: int, name: str) -> None:
        if self._is_shown:
            print(f"\r\x1b[Kread {done} of {files} traces: {name[-50:]}", end="", file=sys.stderr, flush=True)

    def __exit__(self, *_: object) -> None:
        if self._is_shown:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)


def _report(results: list[FileResult], rank: int | None, name: str = "") -> Report:
    """The report of a job. name: what messages call it, where there are two. Raises UserError."""
    from perfaudit.rules import rule_heads
    from perfaudit.trace.report import report_of

    report = report_of(results, rule_heads(), rank)
    ranks = sorted({one.rank for one in results if one.rank is not None})
    if rank is not None and report.traces is None and any(one.devices for one in results):
        there = f"there are {', '.join(map(str, ranks))}" if ranks else "no file tells its rank"
        raise UserError(f"--rank {rank}: no such rank{f' in {name}' if name else ''}; {there}")
    return report


def _compare(paths: list[Path], by_path: list[list[FileResult]], rank: int | None) -> Report:
    from perfaudit.trace.report import compare_jobs

    before, after = (_report(results, rank, str(path)) for path, results in zip(paths, by_path, strict=True))
    return compare_jobs(before, after, (str(paths[0]), str(paths[1])))


def _export(
    report: Report, paths: list[Path], results: list[FileResult], rank: int | None, window: tuple[int, int] | None
) -> None:
    """Write a step of the file that shows the first finding most."""
    from perfaudit.trace.report import cut_out, place_of_first_finding
    from perfaudit.trace.trace_files import find_traces, why_missing

    shown, step = place_of_first_finding(report, [one for one in results if rank in (None, one.rank)])
    there = [path for path in paths if not why_missing(path)]
    file = next((file for file in find_traces(there) if file.name == shown), None)
    trimmed = None if file is None else cut_out(file, window, step)
    if trimmed is None or isinstance(trimmed, str):
        say(f"perfaudit: {STEP}: not written: {trimmed or 'no trace of a device was read'}")
        return
    write(trimmed.text, Path(STEP))
    what = "the window" if trimmed.step is None else f"step {trimmed.step}"
    cut = f", without its last {trimmed.left_out:,} events, which are too many" if trimmed.left_out else ""
    say(f"{STEP}: {what} of {shown}{cut}; ui.perfetto.dev and chrome://tracing open it")
