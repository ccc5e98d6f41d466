"""`perfaudit gate`: findings, counters and step time of this code against a reference; it fails where one got worse."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from perfaudit.cli import gate_baseline
from perfaudit.cli.gate_options import (
    Baseline,
    Device,
    Factory,
    InPlace,
    Module,
    Paths,
    Targets,
    Timeout,
    measures,
    request_for,
    settings_for,
)
from perfaudit.cli.group import group_with_default
from perfaudit.cli.help_text import Command
from perfaudit.cli.nodes import On
from perfaudit.cli.options import HtmlFile, format_option
from perfaudit.cli.output import check_writable, emit, say
from perfaudit.errors import FOUND, INTERRUPTED, NOTHING_MEASURED, OK, NothingMeasured, UserError
from perfaudit.gate.signals import ended_by_signals, hold_back

if TYPE_CHECKING:
    from perfaudit.gate.request import Request
    from perfaudit.gate.settings import GateSettings
    from perfaudit.report import Report

HELP = """Judge this code against a reference: does the change make training slower?

\b
    perfaudit gate train.py --against origin/main            findings, counters and time, measured here and now
    perfaudit gate train.py --against HEAD~1 --layers findings,counters     quick, exact, needs no quiet machine
    perfaudit gate train.py --against HEAD~1 -- --epochs 1   a script; what comes after -- is given to it
    perfaudit gate train.py --against HEAD~1 --resume        go on with a gate that was cut off
    perfaudit gate small --against HEAD~1                    a name of [tool.perfaudit.targets] in pyproject.toml
    perfaudit gate train.py --baseline perfaudit-gate.json   against a file that is committed
    perfaudit gate --self-test train.py                      what the gate can and cannot see on this machine

\b
    perfaudit gate init train.py                   write perfaudit-gate.json and print the snippet for CI
    perfaudit gate update --accept "deeper model"  take what is there now, with the reason

Three layers, each with its own verdict:

\b
    findings   no finding of `perfaudit scan` that the reference does not have; your code is not run
    counters   one training step, counted: operators, FLOPs, bytes, syncs with their line. Exact, so growth is growth
    time       both versions in turn on one machine, in one training or in pairs of processes; with --against only

A time has regressed when the whole interval lies beyond --tolerate, and passes when it lies below --max-regression;
the former is asked first. The reference is the commit at which this branch left --against. Targets are scripts or define
factories, as for `perfaudit tune`; settings come from [tool.perfaudit.gate]. Of a script, the commit's own is run with the same
arguments. What scripts write goes to a scratch folder that is deleted afterwards.

Exit codes: 0 passed · 1 regressed · 2 wrong use, or a damaged baseline · 3 could not be measured · 130 interrupted.
"""


RUNS = 5  # of a self-test; ten minutes of measuring for a target, at the default budget
FORMATS = ("text", "json", "markdown", "github", "gitlab", "junit", "sarif", "html")

app = group_with_default("gate", "check")
app.command("init", help=gate_baseline.INIT_HELP, cls=Command)(gate_baseline.init)
app.command("update", help=gate_baseline.UPDATE_HELP, cls=Command)(gate_baseline.update)


@app.command("check", help=HELP, cls=Command)
def check(
    targets: Targets = None,
    against: Annotated[
        str, typer.Option(metavar="REF", help="A git reference; measured is where this branch left it.")
    ] = "",
    baseline: Baseline = None,
    layers: Annotated[
        list[str] | None,
        typer.Option(metavar="LAYERS", help="findings,counters,time (default: all the reference allows)."),
    ] = None,
    max_regression: Annotated[str, typer.Option(help="A pass excludes a slowdown of this (default 5%).")] = "",
    tolerate: Annotated[str, typer.Option(help="A slowdown up to this never fails (default 1%).")] = "",
    budget: Annotated[str, typer.Option(help="Time for the time layer, all targets together (default 120s).")] = "",
    inconclusive: Annotated[
        str, typer.Option(metavar="pass|fail", help="What a layer does that could not tell (default pass).")
    ] = "",
    link: Annotated[
        list[str] | None,
        typer.Option(metavar="PATH", help="A folder that git ignores (data) and the reference needs as well."),
    ] = None,
    path: Paths = None,
    factory: Factory = None,
    module: Module = False,
    in_place: InPlace = False,
    device: Device = "auto",
    on: On = "",
    timeout: Timeout = "2m",
    self_test: Annotated[
        bool,
        typer.Option(
            "--self-test",
            help="Gate identical code, --runs times a target and up to --budget each: what can be seen here? "
            "Exit code 0 whatever it saw, 3 where the code does not run.",
        ),
    ] = False,
    runs: Annotated[
        int | None,
        typer.Option(min=1, help="With --self-test: gates per target (default 5, which take up to 10 minutes)."),
    ] = None,
    format: Annotated[str, format_option(*FORMATS)] = "text",
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Write the report to a file.")] = None,
    html: HtmlFile = None,
    report: Annotated[
        list[str] | None,
        typer.Option(metavar="FORMAT=FILE", help="Write the report in a further format (several times)."),
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with the newest gate here that was cut off: what it timed counts.")
    ] = False,
    no_history: Annotated[bool, typer.Option("--no-history", help="Keep nothing of this gate for `history`.")] = False,
    exit_zero: Annotated[bool, typer.Option("--exit-zero", help="Exit with 0 even when it regressed.")] = False,
) -> None:
    """Parse, gate, note, render, exit."""
    from perfaudit.gate.against_file import stored_targets
    from perfaudit.gate.gate import gate
    from perfaudit.gate.self_test import self_test as test_itself
    from perfaudit.measure.journal import begin

    if self_test and (against or baseline is not None):
        raise UserError("--self-test gates this code against itself: leave --against and --baseline out")
    if runs is not None and not self_test:
        raise UserError("--runs is how many gates --self-test makes; a gate is one run")
    if resume and no_history:
        raise UserError("--resume goes on with what is kept of a gate, and --no-history keeps nothing: choose one")
    typed = Typed(
        against, baseline, tuple(layers or ()), max_regression, tolerate, budget, inconclusive, tuple(link or ())
    )
    config, settings = settings_for(targets, path, module, in_place)
    settings = typed.over(settings)
    if on and (self_test or not settings.against or "time" not in (settings.layers or ("time",))):
        raise UserError(f"--on {on} is for what is timed against a commit: give --against, and the layer time")
    others = [_report_file(text) for text in report or []]
    check_writable(output, html)
    for _, file in others:
        check_writable(file)
    if resume and (self_test or not settings.against or "time" not in (settings.layers or ("time",))):
        raise UserError("--resume goes on with what was timed against a commit: give --against, and the layer time")
    journal = None if no_history or self_test else begin(Path.cwd(), resume)
    request = request_for(config, settings, factory, device, timeout, stored_targets(settings, config), journal, on)
    with ended_by_signals():
        with measures(request, budget=_longest(request, (runs or RUNS) if self_test else 0)) as watch:
            done = test_itself(request, runs or RUNS, watch) if self_test else gate(request, watch)
            hold_back()
        if not no_history and not self_test and not done.interrupted:
            done = _note(done)
        emit(done, format, output, page=html)
        for format_, file in others:
            emit(done, format_, file)
    raise typer.Exit(_code(done, exit_zero))


@dataclass(frozen=True, slots=True)
class Typed:
    """What the command line says of the settings, "", None and () for nothing."""

    against: str
    baseline: Path | None
    layers: tuple[str, ...]
    max_regression: str
    tolerate: str
    budget: str
    inconclusive: str
    links: tuple[str, ...]

    def over(self, settings: GateSettings) -> GateSettings:
        """The settings with these over them. Raises UserError for what does not go together."""
        from perfaudit.cli.output import names
        from perfaudit.gate.settings import check_settings, layers_of, outcome_of
        from perfaudit.quantities import seconds_of, share_of

        if self.against and self.baseline is not None:
            raise UserError("--against compares with a commit, --baseline with a file: choose one")
        changes: dict[str, Any] = {}  # Any: each field has a type of its own
        if self.against:
            changes["against"] = self.against
        if self.baseline is not None:
            changes |= {"against": "", "baseline": str(self.baseline)}
        if any(self.layers):
            changes["layers"] = layers_of(names(list(self.layers)))
        if self.max_regression:
            changes["max_regression"] = share_of(self.max_regression)
        if self.tolerate:
            changes["tolerate"] = share_of(self.tolerate)
        if self.budget:
            changes["budget"] = seconds_of(self.budget)
        if self.inconclusive:
            changes["inconclusive"] = outcome_of(self.inconclusive)
        if self.links:
            changes["links"] = names(list(self.links))
        return check_settings(replace(settings, **changes))


def _report_file(text: str) -> tuple[str, Path]:
    from perfaudit.cli.output import ALIASES

    format_, equals, file = text.partition("=")
    format_ = ALIASES.get(format_, format_)
    if not equals or not file or format_ not in FORMATS:
        raise UserError(f"--report {text}: write FORMAT=FILE with a format of {', '.join(FORMATS)}")
    return format_, Path(file)


def _longest(request: Request, runs: int) -> float | None:
    """Seconds that timing may take in all, None where nothing has a budget. runs: of a self-test, 0 for a gate."""
    if runs:
        return request.settings.budget * runs * len(request.targets)
    return request.settings.budget if request.settings.against and "time" in request.layers else None


def _note(done: Report) -> Report:
    """Append the gate to the history, and say in the report where that is; why it was not possible is said and fails nothing."""
    from perfaudit.gate.store import NAME, append
    from perfaudit.measure.folder import FOLDER

    if done.gate is None or done.environment is None:
        return done
    if problem := append(Path.cwd(), done.gate, done.environment.commit, done.environment):
        say(f"perfaudit: {problem}")
        return done
    return done.with_(kept_in=f"{FOLDER}/{NAME}")


def _code(done: Report, exit_zero: bool) -> int:
    """The exit code of a gate: what could not be measured is no pass, and what is known to have regressed is told first.

    `Gate.fails` is whether it is not 0; --exit-zero is about what regressed, and makes no pass of what could not be measured.
    """
    gate = done.gate
    if gate is None:
        raise NothingMeasured("nothing was judged")
    if done.interrupted and gate.verdict != "regressed":
        return INTERRUPTED
    if gate.verdict in ("failed", "not_judged"):
        return NOTHING_MEASURED
    return FOUND if gate.fails and not exit_zero else OK
