"""`perfaudit scan`: static rules, patches, and with `--measure` what each finding is worth on the user's model."""

from __future__ import annotations

import enum
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from perfaudit.cli.output import Format, check_writable, emit, names, say, write
from perfaudit.errors import FOUND, INTERRUPTED, NOTHING_MEASURED, OK, UserError

if TYPE_CHECKING:
    from perfaudit.report import Report

HELP = """Find what makes training slow, by reading the code. Nothing is imported or run, unless --measure is given.

\b
    perfaudit scan train.py
    perfaudit scan src/ --select PA1,PA601       only some rules
    perfaudit scan train.py --diff | git apply   take the safe patches
    perfaudit scan train.py --fix                the same, written in place; reports what is left
    perfaudit scan train.py --measure            load the model and price each finding

A comment `# perfaudit: ignore[PA101] reason` on the first or last line of a finding silences it.
"""


class Level(enum.StrEnum):
    """Severities, from the worst."""

    error = "error"
    warning = "warning"
    info = "info"


def command(
    paths: Annotated[
        list[str] | None, typer.Argument(metavar="PATH...", help="Files and folders (default: here).")
    ] = None,
    format: Annotated[Format, typer.Option("--format", help="Format of the report.")] = Format.text,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Write the report to a file.")] = None,
    diff: Annotated[bool, typer.Option("--diff", help="Print only the patch that --fix would apply.")] = False,
    fix: Annotated[
        bool, typer.Option("--fix", help="Apply safe fixes (nothing but speed changes), then report what is left.")
    ] = False,
    unsafe_fixes: Annotated[
        bool,
        typer.Option(
            "--unsafe-fixes",
            help="With --fix or --diff: also fixes that change rounding, the random stream, checkpoints, …",
        ),
    ] = False,
    allow: Annotated[
        list[str] | None, typer.Option(help="With --fix or --diff: also fixes that change only these (rounding,rng,…).")
    ] = None,
    select: Annotated[
        list[str] | None, typer.Option(help="Only these rules: ids, beginnings of ids, or names.")
    ] = None,
    ignore: Annotated[list[str] | None, typer.Option(help="Not these rules.")] = None,
    severity: Annotated[Level, typer.Option(help="Lowest severity that is reported.")] = Level.info,
    exit_zero: Annotated[bool, typer.Option("--exit-zero", help="Exit with 0 even when something was found.")] = False,
    measure: Annotated[
        bool, typer.Option("--measure", help="Load the factories and measure each finding (runs your code).")
    ] = False,
    budget: Annotated[str, typer.Option(help="With --measure: time for all measuring, e.g. 90s or 5m.")] = "5m",
    timeout: Annotated[
        str, typer.Option(help="With --measure: longest time that loading, or one step, may take.")
    ] = "2m",
    factory: Annotated[
        list[str] | None, typer.Option(metavar="ROLE=NAME", help="With --measure: name a factory, as in `tune`.")
    ] = None,
    device: Annotated[
        str, typer.Option(help="With --measure: cpu, cuda, … (default: an accelerator if there is one).")
    ] = "auto",
) -> None:
    """Parse, scan, render, exit."""
    from perfaudit import rank
    from perfaudit.config import find_config, selected
    from perfaudit.findings import SEVERITIES
    from perfaudit.rules import all_rules
    from perfaudit.static.scan import scan

    config = find_config(Path.cwd())
    chosen = selected(all_rules(), names(select), names(ignore), config)
    allowed = _changes(names(allow))
    _go_together(diff, fix, bool(unsafe_fixes or allowed), measure, format)
    base = config.path.parent if config.path else None

    def scanned() -> Report:
        with _progress() as progress:
            report = scan(paths or ["."], chosen, config.exclude, progress, base)
        reported = [f for f in report.findings if SEVERITIES.index(f.severity) <= SEVERITIES.index(severity.value)]
        return report.with_(findings=rank.ranked(reported))

    report = scanned()
    if not report.files:
        for skipped in report.skipped:
            say(f"perfaudit: {skipped.path}: not audited: {skipped.reason}")
        if not report.skipped:
            say(f"perfaudit: no Python files in {', '.join(paths or ['.'])}")
        if format is Format.json or output:
            emit(report, format, output)
        raise typer.Exit(NOTHING_MEASURED)
    if measure:
        check_writable(output)
        from perfaudit.cli.measuring import factory_names

        try:
            roles = factory_names(config, factory or [])
            report = _measured(paths or ["."], roles, report, budget, device, timeout)
        except UserError:  # what reading alone found is not lost with it
            emit(report, format, output)
            raise
    if diff:
        from perfaudit.static.fix import patches

        write(b"".join(patched.diff_bytes for patched in patches(report.findings, unsafe_fixes, allowed)), output)
    else:
        if fix and _fix(report, unsafe_fixes, allowed):
            report = scanned()
        emit(report, format, output)
    if report.interrupted:
        raise typer.Exit(INTERRUPTED)
    raise typer.Exit(OK if exit_zero or not report.findings else FOUND)


def _go_together(diff: bool, fix: bool, unsafe: bool, measure: bool, format: Format) -> None:
    """Raises UserError for options of which one would be passed over in silence."""
    if measure and (fix or diff):
        raise UserError("--measure prints a report; apply its patches with a second call: --fix, or --diff | git apply")
    if diff and fix:
        raise UserError("--diff prints the patch, --fix writes it into the files: choose one")
    if unsafe and not (diff or fix):
        raise UserError(
            "--unsafe-fixes and --allow say which patches are taken: add --fix to write them, --diff to see them"
        )
    if diff and format is not Format.text:
        raise UserError(
            f"--diff prints a patch, not {format.value}; without --diff, every finding of the JSON report has its own"
        )


def _changes(allow: tuple[str, ...]) -> frozenset[str]:
    from perfaudit.findings import CHANGES

    for name in allow:
        if name not in CHANGES:
            raise UserError(f"--allow {name}: fixes change {', '.join(CHANGES)}")
    return frozenset(allow)


def _measured(
    paths: list[str], roles: dict[str, str], report: Report, budget: str, device: str, timeout: str
) -> Report:
    from perfaudit.cli.measuring import live, needs_torch, seconds_of
    from perfaudit.target.names import choose_target
    from perfaudit.tune.price import price

    needs_torch("scan --measure")
    target = choose_target(paths, Path.cwd(), roles)
    with live(seconds_of(budget)) as watch:
        return price(target, report, seconds_of(budget), device, watch, seconds_of(timeout))


def _fix(report: Report, unsafe: bool, allow: frozenset[str]) -> int:
    """Write the fixes and say so; how many there were."""
    from perfaudit.static.fix import patches
    from perfaudit.static.fix import write as write_patch

    done = patches(report.findings, unsafe, allow)
    for patched in done:
        write_patch(patched)
        say(f"{patched.path}: {len(patched.applied)} fixed")
    if waiting := sum(len(patched.waiting) for patched in done):
        say(
            f"{waiting} more touch{'' if waiting > 1 else 'es'} the same lines: run again for {'them' if waiting > 1 else 'it'}"
        )
    if not done:
        say("nothing to fix")
    return sum(len(patched.applied) for patched in done)


class _progress:
    """Files done, on a terminal's stderr, once a scan takes longer than two seconds."""

    def __enter__(self) -> _progress:
        import time

        self._start = time.monotonic()
        self._shown = False
        return self

    def __call__(self, done: int, total: int) -> None:
        import time

        if not sys.stderr.isatty() or time.monotonic() - self._start < 2 or (done % 20 and done != total):
            return
        self._shown = True
        sys.stderr.write(f"\rscanning {done}/{total} files")
        sys.stderr.flush()

    def __exit__(self, *_: object) -> None:
        if self._shown:
            sys.stderr.write("\r\x1b[K")
