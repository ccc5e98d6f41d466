"""`perfaudit apply`: the patches of a saved report, written into the files they were made for."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from perfaudit.cli.output import names, say, write_patch
from perfaudit.errors import FOUND, OK, UserError

if TYPE_CHECKING:
    from perfaudit.report import Report
    from perfaudit.tune.apply import Plan

HELP = """Apply the patches of a saved report. Nothing is run.

\b
    perfaudit tune train.py --all --format json -o report.json
    perfaudit apply report.json --check          see what would be written
    perfaudit apply report.json                  write it

Of `tune` that is the patch that was measured, as a whole; of `scan` the fixes that `scan --fix` would make. Start it in the
folder in which the report was made. A file that is no longer the one that was read, or lies outside of that folder, is
refused, and then nothing is written at all. Exit code of --check: 1 when something would be written, 0 when nothing.
"""


def command(
    report: Annotated[Path, typer.Argument(metavar="REPORT.json", help="What `--format json` wrote.")],
    check: Annotated[bool, typer.Option("--check", help="Write nothing, print the patch.")] = False,
    unsafe_fixes: Annotated[
        bool,
        typer.Option(
            "--unsafe-fixes",
            help="Of a scan: also fixes that change rounding, precision, the random stream, checkpoints, …",
        ),
    ] = False,
    allow: Annotated[
        list[str] | None,
        typer.Option(
            metavar="CHANGES",
            help="Of a scan: also fixes that change only these, as rounding,rng or one in each --allow.",
        ),
    ] = None,
    select: Annotated[
        list[str] | None, typer.Option(help="Of a scan: only these rules: ids, beginnings of ids, or names.")
    ] = None,
) -> None:
    """Read, plan, write or print, exit."""
    from perfaudit.cli.one_scan import allowed_changes
    from perfaudit.render.words import one_line
    from perfaudit.static.ondisk import write_all
    from perfaudit.static.patching import git_patch_of
    from perfaudit.tune.apply import sweep_for
    from perfaudit.tune.saved_report import read_report

    allowed, rules = allowed_changes(names(allow)), names(select)
    read = read_report(report)
    if not check:
        for line in sweep_for(read, Path.cwd()):
            say(one_line(line))
    plan = _plan(read, unsafe_fixes, allowed, rules)
    if check:
        write_patch(git_patch_of(plan.files), None)
    else:
        write_all(plan.files)
    if not (check and plan.files):  # else the patch says it
        for line in plan.done:
            say(one_line(line))
    for line in plan.left:
        say(one_line(line))
    if not (plan.done or plan.left):
        say("nothing to apply")
    raise typer.Exit(FOUND if check and plan.files else OK)


def _plan(report: Report, unsafe: bool, allow: frozenset[str], rules: tuple[str, ...]) -> Plan:
    from perfaudit.tune.apply import of_scan, of_tuning

    if report.command == "tune":
        if unsafe or allow or rules:
            raise UserError(
                "--unsafe-fixes, --allow and --select choose among fixes of a scan; a patch of tune is taken as it was measured"
            )
        return of_tuning(report, Path.cwd())
    if report.command != "scan":
        raise UserError(f"a report of {report.command!r} has no patches: name one of scan or tune")
    chosen = [f for f in report.findings if not rules or f.name in rules or f.rule.startswith(rules)]
    if rules and not chosen:
        raise UserError(f"--select {','.join(rules)}: the report has no such finding")
    return of_scan(report.with_(findings=tuple(chosen)), Path.cwd(), unsafe, allow)
