"""`perfaudit gate`: a red check for changes that make training slower, and only for those."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator, Sized
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
import typer.core

from perfaudit.cli.output import check_writable, emit, format_option, say
from perfaudit.errors import FOUND, INTERRUPTED, NOTHING_MEASURED, OK, NothingMeasured, UserError

if TYPE_CHECKING:
    from perfaudit.config import Config
    from perfaudit.gate.gate import Request
    from perfaudit.gate.settings import GateSettings
    from perfaudit.measure.watch import Watch
    from perfaudit.report import Report
    from perfaudit.target.names import Target

HELP = """Judge this code against a reference: a red check when it makes training slower, and only then.

\b
    perfaudit gate train.py --against origin/main            findings, counters and time, measured here and now
    perfaudit gate train.py --against HEAD~1 --layers findings,counters     quick, exact, needs no quiet machine
    perfaudit gate train.py --baseline perfaudit-gate.json   against a file that is committed
    perfaudit gate --self-test train.py                      what the gate can and cannot see on this machine

\b
    perfaudit gate init train.py                   write perfaudit-gate.json and print the snippet for CI
    perfaudit gate update --accept "deeper model"  take what is there now, with the reason

Three layers, each with its own verdict:

\b
    findings   no finding of `perfaudit scan` that the reference does not have; your code is not run
    counters   one training step, counted: operators, FLOPs, bytes, syncs with their line. Exact, so growth is growth
    time       both versions in pairs of processes, interleaved in one run on one machine; with --against only

A time has regressed when the whole interval lies beyond --tolerate, and passes when it lies below --max-regression;
the former is asked first. The reference is the commit at which this branch left --against. Targets define factories
as for `perfaudit tune`; settings come from [tool.perfaudit.gate].

Exit codes: 0 passed · 1 regressed · 2 wrong use, or a damaged baseline · 3 could not be measured · 130 interrupted.
"""

INIT_HELP = """Write a baseline file, meant to be committed, and print the snippet for CI.

\b
    perfaudit gate init train.py
    perfaudit gate init train.py --ci gitlab

The file holds the findings there are, and for each target the counters of one step and, as advice, its time.
"""

UPDATE_HELP = """Take what there is now into the baseline file, after a change that is wanted, with the reason.

\b
    perfaudit gate update --accept "two more layers: accuracy first"

Counters that grew, new findings, and (without --no-time) a slower step of these targets are accepted: the gate of this
change says so with the reason, and passes. The file is part of the change and is reviewed with it.
"""


class _ChecksByDefault(typer.core.TyperGroup):
    """A group in which what is no subcommand goes to `check`: `perfaudit gate train.py` gates train.py."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:  # Any: click's context, which typer bundles
        if not args or args[0] not in self.commands:
            args = ["check", *args]
        return super().parse_args(ctx, args)


FORMATS = ("text", "json", "markdown", "github", "gitlab", "junit", "sarif")

_WIDE = {"help_option_names": ["-h", "--help"], "max_content_width": 110}  # as the other commands have it

app = typer.Typer(
    name="gate",
    cls=_ChecksByDefault,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings=_WIDE,
)

_Targets = Annotated[
    list[str] | None, typer.Argument(metavar="TARGET...", help="Files with factories, file.py:factory or modules.")
]
_Baseline = Annotated[
    Path | None, typer.Option("--baseline", metavar="FILE", help="The file that holds what is known.")
]
_Device = Annotated[str, typer.Option("--device", help="cpu, cuda, … (default: an accelerator if there is one).")]
_Timeout = Annotated[str, typer.Option("--timeout", help="Longest time that loading, or one step, may take.")]
_Factory = Annotated[
    list[str] | None, typer.Option("--factory", metavar="ROLE=NAME", help="Name a factory, as in `tune`.")
]
_Paths = Annotated[
    list[str] | None, typer.Option("--path", metavar="PATH", help="What is scanned for findings (default: all).")
]


@app.command("check", help=HELP)
def check(
    targets: _Targets = None,
    against: Annotated[
        str, typer.Option(metavar="REF", help="A git reference; measured is where this branch left it.")
    ] = "",
    baseline: _Baseline = None,
    layers: Annotated[
        str, typer.Option(metavar="LAYERS", help="findings,counters,time (default: all the reference allows).")
    ] = "",
    max_regression: Annotated[str, typer.Option(help="A pass excludes a slowdown of this (default 5%).")] = "",
    tolerate: Annotated[str, typer.Option(help="A slowdown up to this never fails (default 1%).")] = "",
    budget: Annotated[str, typer.Option(help="Time for the time layer, all targets together (default 120s).")] = "",
    inconclusive: Annotated[
        str, typer.Option(metavar="pass|fail", help="What a time does that stays undecided (default pass).")
    ] = "",
    link: Annotated[
        list[str] | None,
        typer.Option(metavar="PATH", help="A folder that git ignores (data) and the reference needs as well."),
    ] = None,
    path: _Paths = None,
    factory: _Factory = None,
    device: _Device = "auto",
    timeout: _Timeout = "2m",
    self_test: Annotated[
        bool, typer.Option("--self-test", help="Gate identical code, several times: what can be seen here?")
    ] = False,
    runs: Annotated[int, typer.Option(min=1, help="With --self-test: gates per target.")] = 5,
    format: Annotated[str, format_option(*FORMATS)] = "text",
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Write the report to a file.")] = None,
    report: Annotated[
        list[str] | None,
        typer.Option(metavar="FORMAT=FILE", help="Write the report in a further format (several times)."),
    ] = None,
    no_history: Annotated[bool, typer.Option("--no-history", help="Do not note this gate for `history`.")] = False,
    exit_zero: Annotated[bool, typer.Option("--exit-zero", help="Exit with 0 even when it regressed.")] = False,
) -> None:
    """Parse, gate, note, render, exit."""
    from perfaudit.gate.gate import gate
    from perfaudit.gate.self_test import self_test as test_itself

    config, settings = _settings(targets, path)
    settings = _with_options(settings, against, baseline, layers, max_regression, tolerate, budget, inconclusive, link)
    others = [_report_file(text) for text in report or []]
    for file in (output, *(file for _, file in others)):
        check_writable(file)
    request = _request(config, settings, factory, device, timeout)
    with _measures(request) as watch:
        done = test_itself(request, runs, watch) if self_test else gate(request, watch)
    if not no_history and not self_test:
        _note(done, request)
    emit(done, format, output)
    for format_, file in others:
        emit(done, format_, file)
    raise typer.Exit(_code(done, exit_zero))


@app.command("init", help=INIT_HELP)
def init(
    targets: _Targets = None,
    baseline: _Baseline = None,
    ci: Annotated[
        str, typer.Option(metavar="github|gitlab|pre-commit|plain|none", help="Which snippet is printed.")
    ] = "github",
    path: _Paths = None,
    factory: _Factory = None,
    device: _Device = "auto",
    timeout: _Timeout = "2m",
    force: Annotated[bool, typer.Option("--force", help="Write over a baseline that is there.")] = False,
) -> None:
    """Parse, take stock, write, print the snippet."""
    from perfaudit.cli.output import write
    from perfaudit.gate.baseline import write_gate_baseline
    from perfaudit.gate.snippets import snippet
    from perfaudit.gate.stock import stock

    config, settings = _settings(targets, path)
    file = _file(baseline, settings)
    if file.exists() and not force:
        raise UserError(
            f"{file}: is there already; `perfaudit gate update --accept WHY` takes what changed, --force writes anew"
        )
    check_writable(file)
    request = _request(config, replace(settings, baseline=str(file), against=""), factory, device, timeout)
    printed = "" if ci == "none" else snippet(ci, settings, file)
    with _measures(request) as watch:
        now = stock(request, watch)
    write_gate_baseline(file, now)
    held = f"{len(now.findings)} finding{_s(now.findings)}, {len(now.targets)} target{_s(now.targets)}"
    say(f"{file}: written: {held}; commit it")
    write(printed, None)


@app.command("update", help=UPDATE_HELP)
def update(
    targets: _Targets = None,
    accept: Annotated[str, typer.Option(metavar="REASON", help="Why the change is wanted.")] = "",
    baseline: _Baseline = None,
    no_time: Annotated[bool, typer.Option("--no-time", help="Do not accept a slower step.")] = False,
    slower: Annotated[
        bool, typer.Option("--slower", help="Accept a slower step although the file shows no difference.")
    ] = False,
    path: _Paths = None,
    factory: _Factory = None,
    device: _Device = "auto",
    timeout: _Timeout = "2m",
) -> None:
    """Parse, take stock, write what changed and why."""
    import datetime

    from perfaudit.gate.accepted import updated
    from perfaudit.gate.baseline import read_gate_baseline, write_gate_baseline
    from perfaudit.gate.stock import stock

    if slower and no_time:
        raise UserError("--slower accepts a slower step, --no-time does not: choose one")
    if not accept.strip():
        raise UserError('name the reason, which is kept in the file: perfaudit gate update --accept "why it is wanted"')
    config, settings = _settings(targets, path)
    file = _file(baseline, settings)
    before = read_gate_baseline(file)
    check_writable(file)
    if not settings.targets:
        settings = replace(settings, targets=tuple(before.targets))
    request = _request(config, replace(settings, baseline=str(file), against=""), factory, device, timeout)
    with _measures(request) as watch:
        now = stock(request, watch)
    today = datetime.date.today().isoformat()  # as the people who review it have it
    also = [f"{name} may be slower" for name in now.targets] if slower else []
    after, changes = updated(before, now, accept.strip(), today, not no_time, also)
    write_gate_baseline(file, after)
    for change in changes:
        say(f"  {change}")
    accepted = f"{len(changes)} change{'' if len(changes) == 1 else 's'} accepted"
    say(f"{file}: written, {accepted}" if changes else f"{file}: nothing changed, nothing written")


def _settings(targets: list[str] | None, paths: list[str] | None) -> tuple[Config, GateSettings]:
    from perfaudit.config import find_config
    from perfaudit.gate.settings import settings_of

    config = find_config(Path.cwd())
    settings = settings_of(config)
    return config, replace(settings, targets=tuple(targets or settings.targets), paths=tuple(paths or settings.paths))


def _with_options(
    settings: GateSettings,
    against: str,
    baseline: Path | None,
    layers: str,
    max_regression: str,
    tolerate: str,
    budget: str,
    inconclusive: str,
    link: list[str] | None,
) -> GateSettings:
    """The settings with what the command line says over them. Raises UserError for what does not go together."""
    from perfaudit.cli.output import names
    from perfaudit.gate.settings import checked, layers_of, outcome_of
    from perfaudit.quantities import seconds_of, share_of

    if against and baseline is not None:
        raise UserError("--against compares with a commit, --baseline with a file: choose one")
    changes: dict[str, Any] = {}  # Any: each field has a type of its own
    if against:
        changes["against"] = against
    if baseline is not None:
        changes |= {"against": "", "baseline": str(baseline)}
    if layers:
        changes["layers"] = layers_of(names([layers]))
    if max_regression:
        changes["max_regression"] = share_of(max_regression)
    if tolerate:
        changes["tolerate"] = share_of(tolerate)
    if budget:
        changes["budget"] = seconds_of(budget)
    if inconclusive:
        changes["inconclusive"] = outcome_of(inconclusive)
    if link:
        changes["links"] = names(link)
    return checked(replace(settings, **changes))


def _request(config: Config, settings: GateSettings, factory: list[str] | None, device: str, timeout: str) -> Request:
    from perfaudit.cli.measuring import factory_names
    from perfaudit.gate.gate import Request
    from perfaudit.quantities import seconds_of

    roles = factory_names(config, factory or [])
    return Request(_chosen(settings, roles), settings, config, device, seconds_of(timeout))


def _chosen(settings: GateSettings, roles: dict[str, str]) -> tuple[Target, ...]:
    """The targets named, else the configured one, else the one file here that defines factories; none where there is none."""
    from perfaudit.errors import TargetError
    from perfaudit.target.names import choose_target

    if settings.layers == ("findings",):
        return ()
    if settings.targets:
        return tuple(choose_target([text], Path.cwd(), roles) for text in settings.targets)
    try:
        return (choose_target([], Path.cwd(), roles),)
    except TargetError as error:
        if settings.layers or "several" in str(error):  # a layer that runs code was asked for, or it is not clear which
            raise
        return ()


def _s(things: Sized) -> str:
    return "" if len(things) == 1 else "s"


def _file(baseline: Path | None, settings: GateSettings) -> Path:
    from perfaudit.gate.settings import BASELINE

    return baseline or Path(settings.baseline or BASELINE)


def _report_file(text: str) -> tuple[str, Path]:
    from perfaudit.cli.output import ALIASES

    format_, equals, file = text.partition("=")
    format_ = ALIASES.get(format_, format_)
    if not equals or not file or format_ not in FORMATS:
        raise UserError(f"--report {text}: write FORMAT=FILE with a format of {', '.join(FORMATS)}")
    return format_, Path(file)


@contextlib.contextmanager
def _measures(request: Request) -> Iterator[Watch]:
    """Progress while it runs; SIGTERM ends it as Ctrl-C does, so that what is known is printed. Only one gate a folder."""
    from perfaudit.cli.measuring import live, needs_torch
    from perfaudit.tune.journal import measuring

    with contextlib.ExitStack() as stack:
        before = signal.signal(signal.SIGTERM, _terminated)
        stack.callback(signal.signal, signal.SIGTERM, before)
        if request.targets:
            needs_torch("gate")
            stack.enter_context(measuring(Path.cwd()))
        yield stack.enter_context(live(request.settings.budget))


def _terminated(number: int, frame: object) -> None:
    raise KeyboardInterrupt


def _note(done: Report, request: Request) -> None:
    """Append the gate to the history; why that was not possible is said and fails nothing."""
    from perfaudit.gate.store import append

    if done.gate is None or done.environment is None:
        return
    if problem := append(Path.cwd(), done.gate, done.environment.commit, done.environment):
        say(f"perfaudit: {problem}")


def _code(done: Report, exit_zero: bool) -> int:
    """The exit code of a gate: what could not be measured is no pass, and what is known to have regressed is told first."""
    gate = done.gate
    if gate is None:
        raise NothingMeasured("nothing was judged")
    if gate.fails:
        return OK if exit_zero else FOUND
    if done.interrupted:
        return INTERRUPTED
    return NOTHING_MEASURED if gate.verdict in ("failed", "not_judged") else OK
