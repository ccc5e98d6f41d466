"""`perfaudit scan`: static rules, patches, and with `--measure` what each patch is worth on the user's model."""

from __future__ import annotations

import enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from perfaudit.cli.output import (
    HtmlFile,
    behind_dashes,
    check_writable,
    emit,
    emit_statistics,
    format_option,
    names,
    say,
    write,
    write_patch,
)
from perfaudit.cli.scanning import Plan, fix_files, fix_stdin, known_findings, write_known
from perfaudit.cli.settings import RuleFolders
from perfaudit.errors import FOUND, INTERRUPTED, NOTHING_MEASURED, OK, UserError

if TYPE_CHECKING:
    from perfaudit.report import Report
    from perfaudit.target.names import Typed

HELP = """Find what makes training slow, by reading the code. Your code is neither imported nor run, unless --measure is given.

\b
    perfaudit scan train.py
    perfaudit scan src/ --select PA1,PA601       only some rules
    perfaudit scan train.py --diff | git apply   take the safe patches
    perfaudit scan train.py --fix                the same, written in place; reports what is left
    perfaudit scan train.py --measure            measure what each patch saves
    perfaudit scan train.py --measure -- --epochs 1     the same, of a script with arguments
    perfaudit scan small --measure               the same, of a name of [tool.perfaudit.targets]
    perfaudit scan . --baseline known.json       only what is new; --update-baseline accepts what there is
    perfaudit scan - --stdin-filename train.py   for editors

A comment `# perfaudit: ignore[PA101] reason` or `# noqa: PA101` on the first or last line of a finding silences it,
`# perfaudit: ignore-file[PA101]` the whole file. Test files below a folder are read with --tests only. Rules written in
Python run with --rules DIR, or where `perfaudit rules trust` said so.
"""


BUDGET, BUDGET_OF_SCRIPT = "75s", "3m"  # a script is started several times


class Level(enum.StrEnum):
    """Severities, from the worst."""

    error = "error"
    warning = "warning"
    info = "info"
    hint = "hint"


def command(
    paths: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="PATH...", help="Python files, notebooks and folders (default: here); - is standard input."
        ),
    ] = None,
    format: Annotated[str, format_option()] = "text",
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Write the report to a file.")] = None,
    html: HtmlFile = None,
    diff: Annotated[bool, typer.Option("--diff", help="Print only the patch that --fix would apply.")] = False,
    fix: Annotated[
        bool, typer.Option("--fix", help="Apply safe fixes (nothing but speed changes), then report what is left.")
    ] = False,
    unsafe_fixes: Annotated[
        bool,
        typer.Option(
            "--unsafe-fixes",
            help="With --fix or --diff: also fixes that change rounding, precision, the random stream, checkpoints, …",
        ),
    ] = False,
    allow: Annotated[
        list[str] | None,
        typer.Option(
            metavar="CHANGES",
            help="With --fix or --diff: also fixes that change only these, as rounding,rng or one in each --allow.",
        ),
    ] = None,
    select: Annotated[
        list[str] | None, typer.Option(help="Only these rules: ids, beginnings of ids, or names.")
    ] = None,
    ignore: Annotated[list[str] | None, typer.Option(help="Not these rules.")] = None,
    severity: Annotated[
        Level | None,
        typer.Option(
            help="Lowest severity that is reported (default: info; of rules that --select names one by one, hint)."
        ),
    ] = None,
    exit_zero: Annotated[bool, typer.Option("--exit-zero", help="Exit with 0 even when something was found.")] = False,
    tests: Annotated[bool, typer.Option("--tests", help="Also report test files found below a folder.")] = False,
    statistics: Annotated[
        bool, typer.Option("--statistics", help="Print how many findings each rule has instead of the findings.")
    ] = False,
    baseline: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Report only what this file does not know.")
    ] = None,
    update_baseline: Annotated[
        bool, typer.Option("--update-baseline", help="With --baseline: write what there is into the file.")
    ] = False,
    stdin_filename: Annotated[
        str | None, typer.Option(metavar="NAME", help="With -: the path that the text has or will have.")
    ] = None,
    jobs: Annotated[int, typer.Option("--jobs", "-j", min=0, help="Processes at most (0: as many as pay).")] = 0,
    no_cache: Annotated[
        bool, typer.Option("--no-cache", help="Audit every file anew, and keep no results for the next scan.")
    ] = False,
    force_exclude: Annotated[
        bool, typer.Option("--force-exclude", help="Leave out excluded files and tests even where they are named.")
    ] = False,
    isolated: Annotated[bool, typer.Option("--isolated", help="Pay no attention to any pyproject.toml.")] = False,
    rules: RuleFolders = None,
    measure: Annotated[
        bool,
        typer.Option(
            "--measure",
            help="Run the training, factories or a script with the arguments behind --, and measure what each patch saves.",
        ),
    ] = False,
    in_place: Annotated[
        bool, typer.Option("--in-place", help="With --measure: let a script write its files, and its trackers record.")
    ] = False,
    budget: Annotated[
        str, typer.Option(help="With --measure: time for all measuring, e.g. 90s or 5m (default: 75s, of a script 3m).")
    ] = "",
    timeout: Annotated[
        str, typer.Option(help="With --measure: longest time that loading, or one step, may take.")
    ] = "2m",
    factory: Annotated[
        list[str] | None, typer.Option(metavar="ROLE=NAME", help="With --measure: name a factory, as in `tune`.")
    ] = None,
    device: Annotated[
        str, typer.Option(help="With --measure: cpu, cuda, … (default: an accelerator if there is one).")
    ] = "auto",
    resume: Annotated[
        bool, typer.Option("--resume", help="With --measure: go on with the newest unfinished scan of this folder.")
    ] = False,
    verbose: Annotated[
        bool,
        typer.Option("--verbose", "-v", help="With --measure: also print noise and processor time. JSON has both."),
    ] = False,
) -> None:
    """Parse, scan, render, exit."""
    given, script_arguments = behind_dashes(paths or ["."]) if measure else (paths or ["."], ())
    typed = _target_by_name(given, script_arguments) if measure else None
    given = given if typed is None else [_file_of(typed)]
    allowed = allowed_changes(names(allow))
    _go_together(diff, fix, bool(unsafe_fixes or allowed), measure, format)
    if html is not None and (diff or statistics or update_baseline or (fix and "-" in given)):
        other = (
            "--diff"
            if diff
            else "--statistics"
            if statistics
            else "--update-baseline"
            if update_baseline
            else "--fix of -"
        )
        raise UserError(f"--html writes a report as a page, and {other} makes none: choose one")
    if resume and not measure:
        raise UserError("--resume goes on with a scan that measured: add --measure")
    _go_together_too(given, measure, statistics, diff, format, baseline, update_baseline, stdin_filename)
    chosen = names(select), names(ignore)
    plan = Plan.of(
        given,
        stdin_filename,
        *chosen,
        severity and severity.value,
        tests,
        jobs,
        no_cache,
        isolated,
        force_exclude,
        rules or [],
    )
    known = None if baseline is None or update_baseline else known_findings(baseline)
    check_writable(output if measure or html else None, html)

    def keep_new_findings(report: Report) -> Report:
        if known is None:
            return report
        from perfaudit.static.baseline import compare_with_known

        new, old, gone = compare_with_known(report.findings, known, plan.places, plan.selected)
        return report.with_(findings=new, known=old, gone=gone)

    report = plan.scan_all()
    if not report.files:
        for skipped in report.skipped:
            say(f"perfaudit: {skipped.path}: not audited: {skipped.reason}")
        if not report.skipped:
            left_out = f" besides {report.tests_left_out} tests (--tests reads them)" if report.tests_left_out else ""
            say(f"perfaudit: no Python files in {', '.join(given)}{left_out}")
        if plan.data is not None and (fix or diff):
            write(plan.data if fix else b"", output)  # an editor puts what comes back into its buffer
        elif format != "text" or output:
            emit(report, format, output, page=html)
        elif html is not None:
            emit(report, "html", html)
        raise typer.Exit(NOTHING_MEASURED)
    if baseline is not None and update_baseline:
        write_known(baseline, plan)
        raise typer.Exit(OK)
    report = keep_new_findings(report)
    if not measure:
        report = plan.shown_part(report)
    else:
        from perfaudit.cli.measuring import factory_names

        try:
            roles = factory_names(plan.config, factory or [])
            measured = given, script_arguments, roles, typed
            report = _measure_findings(*measured, report, budget, device, timeout, plan.selected, resume, in_place)
        except UserError:  # what reading alone found is not lost with it
            emit(_for_format(plan, plan.shown_part(report), format), format, output, page=html)
            raise
        report = plan.shown_part(report, with_timed=True)
    if diff:
        patched = plan.patches(report, unsafe_fixes, allowed)
        patch = b"".join(item.diff_bytes for item in patched)
        if not patch:
            say(f"perfaudit: {_why_no_patch(report, unsafe_fixes, bool(allowed))}")
        write_patch(patch, output)
    elif fix and plan.is_stdin:
        report = fix_stdin(plan, report, unsafe_fixes, allowed, output)
    else:
        if fix:
            report = fix_files(
                report, lambda: plan.shown_part(keep_new_findings(plan.scan_all())), unsafe_fixes, allowed
            )
        shown = _for_format(plan, report, format)
        if statistics:
            emit_statistics(shown, format, output)
        else:
            emit(shown, format, output, verbose, html, plan.read)
    if report.interrupted:
        raise typer.Exit(INTERRUPTED)
    raise typer.Exit(OK if exit_zero or not report.findings else FOUND)


def _why_no_patch(report: Report, unsafe: bool, is_allowed: bool) -> str:
    """Why a patch is empty: `git apply` only calls it invalid. is_allowed: some changes are, by --allow."""
    from perfaudit.render.words import count

    if not report.findings:
        return "nothing found, so there is no patch"
    found = count(len(report.findings), "finding")
    others = sum(finding.fix is not None and finding.fix.safety == "unsafe" for finding in report.findings)
    if unsafe or not others:
        return f"no patch: there is no fix for the {found}"
    changes = "changes" if others == 1 else "change"
    return (
        f"no patch: no fix for the {found} is {'allowed' if is_allowed else 'safe'}; "
        f"--unsafe-fixes takes {others} that {changes} results too"
    )


def _for_format(plan: Plan, report: Report, format: str) -> Report:
    from perfaudit.render import BY_PLACE

    return report if format in BY_PLACE else plan.as_read(report)


def _go_together_too(
    given: list[str],
    measure: bool,
    statistics: bool,
    diff: bool,
    format: str,
    baseline: Path | None,
    update_baseline: bool,
    stdin_filename: str | None,
) -> None:
    if "-" in given and (len(given) > 1 or measure):
        raise UserError("- reads one text from standard input: name no other path, and measure a file")
    if stdin_filename is not None and given != ["-"]:
        raise UserError("--stdin-filename names the text that `perfaudit scan -` reads")
    if update_baseline and baseline is None:
        raise UserError("--update-baseline writes the file that --baseline names: add --baseline FILE")
    if statistics and diff:
        raise UserError("--statistics counts findings, --diff prints their patch: choose one")
    if statistics and format not in ("text", "json"):
        raise UserError(f"--statistics prints text or json, not {format}")


def _go_together(diff: bool, fix: bool, unsafe: bool, measure: bool, format: str) -> None:
    """Raises UserError for options of which one would be passed over in silence."""
    if measure and (fix or diff):
        raise UserError("--measure prints a report; apply its patches with a second call: --fix, or --diff | git apply")
    if diff and fix:
        raise UserError("--diff prints the patch, --fix writes it into the files: choose one")
    if unsafe and not (diff or fix):
        raise UserError(
            "--unsafe-fixes and --allow say which patches are taken: add --fix to write them, --diff to see them"
        )
    if diff and format != "text":
        raise UserError(
            f"--diff prints a patch, not {format}; without --diff, every finding of the JSON report has its own"
        )


def allowed_changes(allow: tuple[str, ...]) -> frozenset[str]:
    """What `--allow` names. Raises UserError for what no fix changes."""
    from perfaudit.findings import CHANGES

    for name in allow:
        if name not in CHANGES:
            raise UserError(f"--allow {name}: fixes change {', '.join(CHANGES)}")
    return frozenset(allow)


def _target_by_name(given: list[str], arguments: tuple[str, ...]) -> Typed | None:
    """The target of `[tool.perfaudit.targets]` that is meant by a name; None where what is given is no such name."""
    from perfaudit.cli.settings import typed_target
    from perfaudit.config import find_config

    typed = typed_target(find_config(Path.cwd()), given[0], arguments) if len(given) == 1 else None
    return typed if typed is not None and typed.name else None


def _file_of(typed: Typed) -> str:
    from perfaudit.target.names import parse

    return (typed.script() or parse(typed.text)).file


def _measure_findings(
    paths: list[str],
    arguments: tuple[str, ...],
    roles: dict[str, str],
    named: Typed | None,
    report: Report,
    budget: str,
    device: str,
    timeout: str,
    selected: frozenset[str],
    resume: bool,
    in_place: bool,
) -> Report:
    from perfaudit.cli.measuring import live, needs_no_launcher, needs_torch
    from perfaudit.measure.folder import measuring
    from perfaudit.quantities import seconds_of
    from perfaudit.target.names import choose_target, script_target
    from perfaudit.tune.price import price
    from perfaudit.tune.recording import begin

    needs_torch("scan --measure")
    script = named.script() if named is not None else None
    if named is None and len(paths) == 1 and not roles.keys() - {"file"}:
        script = script_target(paths[0], arguments, False)
    if script is None and arguments:
        raise UserError(f"{' '.join(paths)}: arguments behind -- are for one script; name that")
    target = script or choose_target(paths if named is None else [named.text], Path.cwd(), roles)
    needs_no_launcher("scan --measure", target)
    seconds = seconds_of(budget or (BUDGET_OF_SCRIPT if target.is_script else BUDGET))
    with measuring(Path.cwd()), live(seconds) as watch:
        return price(
            target, report, seconds, device, watch, seconds_of(timeout), selected,
            begin=begin(Path.cwd(), resume), in_place=in_place,
        )  # fmt: skip
