"""`perfaudit run`: some steps of an unmodified script, and where each of them goes."""

from __future__ import annotations

import ast
import contextlib
import dataclasses
import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Any

import typer

from perfaudit.cli.options import HtmlFile, format_option
from perfaudit.cli.output import check_writable, emit, say
from perfaudit.cli.run_export import MOST_UPDATES, Export, check_export, write_steps
from perfaudit.cli.run_progress import is_live, progress
from perfaudit.errors import INTERRUPTED, NOTHING_MEASURED, OK, WRONG_USE, UserError
from perfaudit.files import append_only
from perfaudit.files.own_outputs import PROFILE, SCALARS, TRACE
from perfaudit.render.words import count

if TYPE_CHECKING:
    from perfaudit.cli.run_ranks import Ranks
    from perfaudit.findings import Finding
    from perfaudit.measurements import Environment
    from perfaudit.report import Report
    from perfaudit.runs import Run
    from perfaudit.script.observe import Seen
    from perfaudit.script.request import Request, Script

HELP = """Run an unmodified training script for some steps, and print where each step goes and what is wrong in it.

\b
    perfaudit run train.py
    perfaudit run train.py -- --epochs 1 --data DIR      what comes after -- is the script's
    perfaudit run -m package.train -- config.yaml        a module, as `python -m` runs it
    perfaudit run small                                  a name of [tool.perfaudit.targets] in pyproject.toml
    perfaudit run train.py --steps 50
    perfaudit run train.py --to-end                      until the script ends by itself
    perfaudit run train.py --profile                     which operators take the time, too
    perfaudit run train.py --export chrome               the steps as a trace, too
    torchrun --nproc-per-node 2 -m perfaudit run train.py    every rank; the first one reports for all

The script runs as `python train.py` runs it, without an edit, in a process of its own. It is ended after --seconds of training.
What it writes goes to a scratch folder that is deleted afterwards: no checkpoint of yours is touched. Experiment trackers are
off. With --in-place, files and trackers are as they always are.

A step ends with the update of the optimizer; of several optimizers, with the last one of a round. Its phases add up to 100 %.

Exit codes: 0 steps were measured · the script's own code where it ends by itself, after a step, with another one than 0 ·
2 wrong use, a script that fails before its first step, or one that was ended before it sent something to a server ·
3 no step could be timed · 130 interrupted.
"""
SECONDS = 20.0  # of training, where nothing else is said
STEPS_OF_RANKS = 80  # of each process that a launcher has started: one that ends alone leaves the others waiting
SILENT = (
    "It ended without reporting its end, so not all of its steps may have been seen. os._exit in a thread or in a library does "
    "that, and so does os.closerange, which closes the pipe through which steps are reported."
)
MOST_OUTPUT = 1 << 20  # bytes of what a script prints that are kept with --quiet


def command(
    script: Annotated[
        str,
        typer.Argument(
            metavar="SCRIPT", help="The script, or with -m the module, or a name of [tool.perfaudit.targets]."
        ),
    ],
    arguments: Annotated[
        list[str] | None, typer.Argument(metavar="[-- ARGS]", help="What the script is given.")
    ] = None,
    module: Annotated[bool, typer.Option("-m", help="SCRIPT is a module, as `python -m` has it.")] = False,
    steps: Annotated[int, typer.Option(min=0, help="End the script after so many steps.")] = 0,
    seconds: Annotated[
        str,
        typer.Option(
            help="End the script after training for so long (default: 20s, or as long as --steps take); not behind a launcher, "
            "where all ranks end at the same step: --steps."
        ),
    ] = "",
    to_end: Annotated[bool, typer.Option("--to-end", help="Let the script end by itself.")] = False,
    timeout: Annotated[
        str, typer.Option(help="Longest time for the first step, and between two without --to-end.")
    ] = "10m",
    in_place: Annotated[
        bool, typer.Option("--in-place", help="Let the script write its files, and its trackers record.")
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Do not show what the script prints.")] = False,
    export: Annotated[
        Export | None,
        typer.Option(
            help=f"Also write the steps: chrome as {TRACE}, for chrome://tracing or ui.perfetto.dev, with --profile its trace as "
            f"{PROFILE}, too; tensorboard as scalars in {SCALARS}: step time, data wait, loss, gradient norm."
        ),
    ] = None,
    profile: Annotated[
        bool,
        typer.Option("--profile", help="Run some more steps under torch.profiler, and say what takes their time."),
    ] = False,
    meet: Annotated[
        Path | None,
        typer.Option(
            help="Of ranks on several nodes: a folder that all of them see. Without it each node reports by itself."
        ),
    ] = None,
    format: Annotated[str, format_option("text", "json", "html")] = "text",
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Write the report to a file.")] = None,
    html: HtmlFile = None,
) -> None:
    from perfaudit.cli.measuring import needs_torch
    from perfaudit.cli.run_ranks import together
    from perfaudit.cli.script_text import check_script
    from perfaudit.cli.settings import settings_of_project, typed_target
    from perfaudit.distributed.launch import place_of
    from perfaudit.quantities import seconds_of
    from perfaudit.script.request import Request, Script
    from perfaudit.script.scratch_folders import scratch_root

    check_writable(output, html)
    check_export(export)
    if to_end and profile:
        raise UserError(
            "--profile is for steps behind the timed ones, which --to-end leaves none: use --steps or --seconds"
        )
    if to_end and (steps or seconds):
        raise UserError("--to-end lets the script end by itself: leave --steps and --seconds out")
    typed = typed_target(settings_of_project(), script, tuple(arguments or ()), module)
    script = typed.text
    check_script(script, typed.is_module)
    needs_torch("run")
    place = place_of(os.environ)
    if place.is_launched and not to_end:
        if seconds:
            raise UserError(
                f"{place.ranks} processes of a launcher are to end at the same step: --steps N, not --seconds"
            )
        steps = steps or STEPS_OF_RANKS
    wanted = Script(script, typed.arguments, typed.is_module)
    limit = 0.0 if to_end or (steps and not seconds) else seconds_of(seconds) if seconds else SECONDS
    scratch = None if in_place else scratch_root(wanted)
    longest = seconds_of(timeout)
    request = Request(
        wanted, steps, limit, scratch, profile=profile, values=export is Export.tensorboard, is_live=is_live(sys.stderr),
        is_whole=export is not None, is_rank=place.is_launched,
    )  # fmt: skip
    asked = _Asked(request, longest, in_place, quiet, export, format, output, html)
    if not place.is_launched:
        raise typer.Exit(_run(asked))
    with together(place, wanted, steps, meet) as ranks:
        raise typer.Exit(_run(asked, ranks))


@dataclasses.dataclass(frozen=True, slots=True)
class _Asked:
    """What the command was asked for. longest: seconds between two steps."""

    request: Request
    longest: float
    in_place: bool
    quiet: bool
    export: Export | None
    format: str
    output: Path | None
    html: Path | None


def _run(asked: _Asked, ranks: Ranks | None = None) -> int:
    """Run the script, report, and return the exit code. ranks: of a launcher, of which the first one reports for all."""
    from perfaudit.measure.environment import host
    from perfaudit.render.run_ranks import late_words
    from perfaudit.script.observe import observe

    request, export = asked.request, asked.export
    script = request.script.name
    reports = ranks is None or ranks.is_first
    machine = host()  # before the script makes it busy
    with tempfile.TemporaryFile() as trace:
        with (
            output_of_script(asked.quiet) as (stream, last_lines),
            progress(request, sys.stderr) if reports else contextlib.nullcontext(_say_nothing) as tell,
        ):

            def heed(seen: Seen) -> None:
                last_lines()
                tell(seen)
                if ranks is not None:
                    ranks.heed(seen)

            kept = MOST_UPDATES if export is not None else 0
            into = trace.fileno() if request.profile else -1
            seen = observe(request, asked.longest, heed, stream, kept, into)
            said = last_lines()
        if export is not None and seen.kept and reports:
            write_steps(export, seen, str(request.script), trace)
        in_trace = _findings_of_trace(trace) if request.profile else ()
    run = run_of(seen, request.script, asked.longest, asked.in_place)
    if request.profile and reports and seen.number and seen.ended == "finished" and not seen.profile:
        say(
            "--profile: nothing was profiled, because the script ended within the timed steps; end these earlier, with --steps N"
        )
    of_ranks: tuple[Finding, ...] = ()
    if ranks is not None:
        run = dataclasses.replace(run, ranks=ranks.place.ranks)
        if run.ended in ("failed", "late", "stopped") and 0 < request.steps - 1 <= run.steps:
            run = dataclasses.replace(run, ended="enough", message="", stands="", exit_code=None)  # another ended first
        elif run.ended == "late" and run.steps:
            run = dataclasses.replace(run, message=late_words(run.steps, asked.longest))
        ranks.tell_done(run, seen)
        if ranks.misnumbered_ranks:
            if ranks.leave_word_to_first():
                raise UserError(ranks.misnumbered_ranks)
            return WRONG_USE
        if ranks.differ:
            return _refuse_ranks(ranks)
        if not ranks.is_first:
            if not ranks.wait_for_report() and run.ended not in ("enough", "finished"):
                say(f"{script}, rank {ranks.place.rank} of {ranks.place.ranks}: {run.message}")
            return exit_code_of(run)
        from perfaudit.cli.ranks_report import with_ranks

        run, of_ranks = with_ranks(run, ranks.gather())
    with ranks.quiet() if ranks is not None else contextlib.nullcontext():
        found = report_of(run, seen.facts, machine)
    found = found.with_(findings=(*of_ranks, *in_trace, *found.findings))
    emit(found, asked.format, asked.output, page=asked.html)
    if ranks is not None:
        ranks.tell_reported()
    if run.is_refused and (asked.format != "text" or asked.output is not None):
        say(f"{script}: {run.message}")
    if asked.quiet and run.ended == "failed" and said:
        say(f"{script} said last:\n{said}")
    return exit_code_of(run)


def _refuse_ranks(ranks: Ranks) -> int:
    """The exit code of ranks that do not run the same. Raises UserError on the first one, which says so for all."""
    if not ranks.is_first:
        ranks.wait_for_report()
        return WRONG_USE
    ranks.gather()
    ranks.tell_reported()
    raise UserError(ranks.differ)


def _say_nothing(_: Seen) -> None:
    """No progress: another rank tells it."""


def run_of(seen: Seen, script: Script, longest: float, in_place: bool) -> Run:
    """What was seen, as a report has it. longest: seconds between two steps. Raises UserError where nothing ran."""
    from perfaudit.runs import HELP_PRINTED
    from perfaudit.script.summary import summarize

    _refuse(seen, script.name)
    if seen.ended == "late":
        seen.message = _why_late(seen, longest)
    elif seen.ended == "enough" and seen.is_in_evaluation:
        updates = count(seen.number, "update")
        seen.message = f"When the time was up, it was in an evaluation behind {updates}. --seconds gives it longer."
    elif seen.ended == "finished" and not seen.number:
        seen.message = HELP_PRINTED if _is_asked_for_help(seen, script) else f"Seen: {_signs(seen)}."
    if seen.ended == "finished" and seen.is_silent:
        seen.message = f"{seen.message} {SILENT}".lstrip()
    return summarize(seen, str(script), in_place)


def _refuse(seen: Seen, script: str) -> None:
    """Raise UserError where nothing ran, or not on."""
    from perfaudit.target.names import no_module

    if seen.refused:
        raise UserError(
            f"nothing was run: what {script} writes cannot be kept away from your files here ({seen.refused}); "
            "--in-place runs it all the same"
        )
    if seen.not_kept_away and not seen.number:
        raise UserError(f"{script}: {seen.not_kept_away}")
    if seen.ended == "missing":
        raise UserError(no_module(script, "is a package" in seen.message))


def _findings_of_trace(trace: IO[bytes]) -> tuple[Finding, ...]:
    """What `perfaudit trace` finds in the trace of the profiled steps; nothing without work of a device in it."""
    from perfaudit.rules import rule_heads
    from perfaudit.trace.analyse import analyse
    from perfaudit.trace.report import report_of
    from perfaudit.trace.trace_files import TraceFile

    if not os.fstat(trace.fileno()).st_size:
        return ()
    result = analyse(TraceFile("the profile", descriptor=trace.fileno()))
    on_device = [device for device in result.devices if "no-device" not in device.notes]
    findings = report_of([result], rule_heads()).findings if on_device else ()
    return tuple(
        finding.with_(note=". ".join(part for part in ("observed in the profile", finding.note) if part))
        for finding in findings
    )


def exit_code_of(run: Run) -> int:
    """The script's own code where it ended by itself behind a step; 3 where nothing was measured, and where ranks of a job hang.

    A script that fails before its first step is a target that does not load, as for `tune`. Its own code would be taken for
    ours: 1 for findings, for example.
    """
    if run.ended == "interrupted":
        return INTERRUPTED
    if run.is_refused or (run.ended == "failed" and not run.steps):
        return WRONG_USE
    if run.exit_code:
        return run.exit_code
    hangs = run.ended == "late" and run.ranks > 1
    return OK if run.counted and run.ended != "stopped" and not hangs else NOTHING_MEASURED


def _why_late(seen: Seen, longest: float) -> str:
    from perfaudit.script.stands import MEETING

    if seen.number:
        return f"In {longest:.0f} s after its last step there was none. --timeout gives it longer."
    if MEETING in seen.stands:
        return (
            f"Seen in {longest:.0f} s: {_signs(seen)}. Ranks have not met: each must reach MASTER_ADDR at MASTER_PORT."
        )
    return f"Seen in {longest:.0f} s: {_signs(seen)}. --timeout gives the first step longer."


def _is_asked_for_help(seen: Seen, script: Script) -> bool:
    """Whether a script that made no step was to print its help, and nothing else came of it."""
    is_asked = "--help" in script.arguments or script.arguments[-1:] == ("-h",)  # -h with a value is the script's own
    return is_asked and not (seen.batches or seen.backwards or seen.replaced or seen.started or seen.is_silent)


def _signs(seen: Seen) -> str:
    """What was seen of a training without an update."""
    if seen.replaced:
        return f"another program took the place of the script ({seen.replaced}), in which nothing is seen"
    if seen.backwards:
        return f"{count(seen.backwards, 'backward pass', 'backward passes')}, but no update of an optimizer"
    signs = "no batch of a DataLoader and no backward pass"
    if seen.batches:
        signs = f"{count(seen.batches, 'batch', 'batches')} of a DataLoader, but no backward pass"
    if seen.started:
        what = ", ".join(dict.fromkeys(seen.started))
        number = len(seen.started)
        gone = f" which {'have' if number > 1 else 'has'} ended," if seen.started_are_gone else ""
        signs += (
            f"; it started {count(number, 'process', 'processes')} ({what}),{gone} and training in them was not seen"
        )
    return signs


def report_of(run: Run, facts: Mapping[str, Any], machine: Environment) -> Report:
    """The run, with what a scan finds in the files of the project that it imported: what lies in long phases first.

    machine: as it was before the script began.
    """
    from perfaudit.cli.scanning import Plan
    from perfaudit.report import Report
    from perfaudit.rules import rule_heads
    from perfaudit.script.advice import order_findings
    from perfaudit.script.never_called import (
        lines_called,
        lines_never_called,
        loaders_never_built,
        optimizers_never_used,
    )
    from perfaudit.static.alike import merge_alike
    from perfaudit.static.discover import shown_path

    given = [shown_path(Path(file)) for file in facts.get("files", []) if Path(file).is_file()]
    report = Report("run")
    if given and run.counted:
        report = Plan.of(given, None, (), (), "hint", True, 0, False, False, False, []).scan_as_asked()
    only = {rule.id for rule in rule_heads().values() if rule.accelerator_only}
    never_built = _lines_of_classes(report.findings, facts.get("never_built", {}))
    never_run = _lines_under_guards(report.findings, facts.get("main", ""))
    heard = facts.get("called", {})
    never_called, called = lines_never_called(report.findings, heard), lines_called(report.findings, heard)
    read, never_read = facts.get("loaders_read", []), facts.get("loaders_never_read", [])
    never_read = [*never_read, *loaders_never_built(report.findings, [*read, *never_read] if read else [])]
    never_used = optimizers_never_used(report.findings, facts.get("optimizer_calls", []))
    findings = order_findings(
        report.findings, run, only, never_read, never_built, never_run, never_called, called, facts.get("wrapped"),
        never_used,
    )  # fmt: skip
    findings = merge_alike(findings)
    machine = dataclasses.replace(
        machine, device=run.device or "cpu", torch=facts.get("torch", ""), threads=facts.get("threads", 0)
    )
    return report.with_(command="run", target=run.script, run=run, findings=findings, environment=machine)


def _lines_of_classes(findings: Sequence[Finding], names: Mapping[str, Sequence[str]]) -> list[tuple[str, int, int]]:
    """File, first and last line of classes at the top of the files in which something was found. names: by file."""
    wanted = {os.path.realpath(file): some for file, some in names.items()}
    return [
        (file, node.lineno, node.end_lineno or node.lineno)
        for file in _files_of(findings)
        if file in wanted
        for node in _statements(file)
        if isinstance(node, ast.ClassDef) and node.name in wanted[file]
    ]


def _lines_under_guards(findings: Sequence[Finding], main: str) -> list[tuple[str, int, int]]:
    """The same of `if __name__ == "__main__"` in other files than that of the script; [] where that is not known."""
    return [
        (file, node.lineno, node.body[-1].end_lineno or node.lineno)
        for file in _files_of(findings)
        if main and file != os.path.realpath(main)
        for node in _statements(file)
        if isinstance(node, ast.If) and ast.unparse(node.test) == "__name__ == '__main__'"
    ]


def _files_of(findings: Sequence[Finding]) -> list[str]:
    return list(dict.fromkeys(os.path.realpath(each.location.path) for each in findings if each.location))


def _statements(file: str) -> list[ast.stmt]:
    """Those at the top of a file; [] where it has changed since it was read."""
    with contextlib.suppress(OSError, SyntaxError, ValueError, RecursionError):
        return ast.parse(Path(file).read_bytes()).body
    return []


@contextlib.contextmanager
def output_of_script(quiet: bool) -> Iterator[tuple[IO[str] | None, Callable[[], str]]]:
    """Where the script prints: stderr, as stdout is for the report; with --quiet a file, whose last lines can be asked for.

    Asked often, it keeps the file small.
    """
    if not quiet:
        yield sys.stderr, lambda: ""
        return
    with tempfile.TemporaryFile("w+", errors="replace") as file:
        append_only(file.fileno())
        said = ""

        def last_lines() -> str:
            nonlocal said
            size = os.fstat(file.fileno()).st_size
            kept = (said + os.pread(file.fileno(), 4000, max(0, size - 4000)).decode(errors="replace"))[-4000:]
            if size > MOST_OUTPUT:
                os.ftruncate(file.fileno(), 0)
                said = kept
            return "\n".join(kept.splitlines()[-15:])

        yield file, last_lines
