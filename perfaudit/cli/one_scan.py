"""One scan as it was asked for: settings, findings, what `--measure` adds, fixes, the report; its exit code. Imports no typer."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from perfaudit.cli.output import behind_dashes, check_writable, emit, emit_statistics, names, say, write, write_patch
from perfaudit.cli.scanning import Plan, fix_files, fix_stdin, known_findings, write_known
from perfaudit.errors import FOUND, INTERRUPTED, NOTHING_MEASURED, OK, UserError
from perfaudit.records import record

if TYPE_CHECKING:
    from perfaudit.report import Report
    from perfaudit.target.names import Typed

BUDGET, BUDGET_OF_SCRIPT = "75s", "3m"  # a script is started several times


@record(frozen=True, slots=True)
class ScanOptions:
    """What the options of `perfaudit scan` say, under their names there."""

    paths: list[str] | None = None
    format: str = "text"
    output: Path | None = None
    html: Path | None = None
    diff: bool = False
    fix: bool = False
    unsafe_fixes: bool = False
    allow: list[str] | None = None
    select: list[str] | None = None
    ignore: list[str] | None = None
    severity: str | None = None
    exit_zero: bool = False
    tests: bool = False
    statistics: bool = False
    baseline: Path | None = None
    update_baseline: bool = False
    stdin_filename: str | None = None
    jobs: int = 0
    no_cache: bool = False
    force_exclude: bool = False
    isolated: bool = False
    rules: list[Path] | None = None
    measure: bool = False
    in_place: bool = False
    budget: str = ""
    timeout: str = "2m"
    factory: list[str] | None = None
    device: str = "auto"
    resume: bool = False
    verbose: bool = False


def scan_as_asked(asked: ScanOptions) -> int:
    """Parse, scan, render; the exit code."""
    paths, fix, diff, format, output, html = (
        asked.paths or ["."],
        asked.fix,
        asked.diff,
        asked.format,
        asked.output,
        asked.html,
    )
    given, script_arguments = behind_dashes(paths) if asked.measure else (paths, ())
    typed = _target_by_name(given, script_arguments) if asked.measure else None
    given = given if typed is None else [_file_of(typed)]
    allowed = allowed_changes(names(asked.allow))
    _go_together(asked, given, bool(asked.unsafe_fixes or allowed))
    chosen = names(asked.select), names(asked.ignore)
    plan = Plan.of(
        given,
        asked.stdin_filename,
        *chosen,
        asked.severity and str(asked.severity),
        asked.tests,
        asked.jobs,
        asked.no_cache,
        asked.isolated,
        asked.force_exclude,
        asked.rules or [],
    )
    known = None if asked.baseline is None or asked.update_baseline else known_findings(asked.baseline)
    check_writable(output if asked.measure or html else None, html)

    def keep_new_findings(report: Report) -> Report:
        if known is None:
            return report
        from perfaudit.static.baseline import compare_with_known

        unread = (skipped.path for skipped in report.skipped)
        new, old, gone = compare_with_known(report.findings, known, plan.places, plan.selected, unread)
        return report.with_(findings=new, known=old, gone=gone)

    report = plan.scan_all()
    if not report.files:
        left_out = _left_out_as_asked(asked, given, report)
        _tell_nothing_read(asked, given, plan, report, left_out)
        return OK if left_out else NOTHING_MEASURED
    if asked.baseline is not None and asked.update_baseline:
        write_known(asked.baseline, plan)
        if report.named_unread:
            _tell_skipped(report)
        return _code_without_findings(report)
    report = keep_new_findings(report)
    if not asked.measure:
        report = plan.shown_part(report)
    else:
        from perfaudit.cli.measuring import factory_names

        try:
            roles = factory_names(plan.config, asked.factory or [])
            report = _measure_findings(asked, given, script_arguments, roles, typed, report, plan.selected)
        except UserError:  # what reading alone found is not lost with it
            emit(_for_format(plan, plan.shown_part(report), format), format, output, page=html)
            raise
        report = plan.shown_part(report, with_timed=True)
    if diff:
        patched = plan.patches(report, asked.unsafe_fixes, allowed)
        patch = b"".join(item.diff_bytes for item in patched)
        if not patch:
            say(f"perfaudit: {_why_no_patch(report, asked.unsafe_fixes, bool(allowed))}")
        write_patch(patch, output)
    elif fix and plan.is_stdin:
        report = fix_stdin(plan, report, asked.unsafe_fixes, allowed, output)
    else:
        if fix:
            report = fix_files(
                report, lambda: plan.shown_part(keep_new_findings(plan.scan_all())), asked.unsafe_fixes, allowed
            )
        shown = _for_format(plan, report, format)
        if asked.statistics:
            emit_statistics(shown, format, output)
        else:
            emit(shown, format, output, asked.verbose, html, plan.read)
    if report.interrupted:
        return INTERRUPTED
    if report.findings:
        return OK if asked.exit_zero else FOUND
    return _code_without_findings(report)


def _code_without_findings(report: Report) -> int:
    return NOTHING_MEASURED if report.named_unread else OK


def _tell_skipped(report: Report) -> None:
    for skipped in report.skipped:
        say(f"perfaudit: {skipped.path}: not audited: {skipped.reason}")


def _left_out_as_asked(asked: ScanOptions, given: list[str], report: Report) -> str:
    """How many files `--force-exclude` left out and why, where it left out all: as a hook wants it. "" where that is not so."""
    from perfaudit.render.words import count

    is_scan_alone = not (asked.measure or asked.update_baseline)
    if not (asked.force_exclude and is_scan_alone) or report.skipped or not all(Path(path).is_file() for path in given):
        return ""
    tests = report.tests_left_out
    excluded = len({Path(path).resolve() for path in given}) - tests
    said = [f"{count(excluded, 'file')} left out: excluded"] if excluded else []
    return "; ".join([*said, *([f"{count(tests, 'test file')} left out"] if tests else [])])


def _tell_nothing_read(asked: ScanOptions, given: list[str], plan: Plan, report: Report, left_out: str) -> None:
    """Say why no file was audited; an editor, or who asked for a format, gets what they can read all the same.

    left_out: the files that are not audited on purpose, in words.
    """
    from perfaudit.render.words import count

    _tell_skipped(report)
    if left_out:
        say(f"perfaudit: {left_out}")
    elif not report.skipped:
        tests = report.tests_left_out
        reads = "reads it" if tests == 1 else "reads them"
        besides = f" besides {count(tests, 'test')} (--tests {reads})" if tests else ""
        say(f"perfaudit: no Python files in {', '.join(given)}{besides}")
    if plan.data is not None and (asked.fix or asked.diff):
        write(plan.data if asked.fix else b"", asked.output)  # an editor puts what comes back into its buffer
    elif asked.format != "text" or asked.output:
        emit(report, asked.format, asked.output, page=asked.html)
    elif asked.html is not None:
        emit(report, "html", asked.html)


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


def _go_together(asked: ScanOptions, given: list[str], unsafe: bool) -> None:
    """Raises UserError for options of which one would be passed over in silence."""
    if asked.measure and (asked.fix or asked.diff):
        raise UserError("--measure prints a report; apply its patches with a second call: --fix, or --diff | git apply")
    if asked.diff and asked.fix:
        raise UserError("--diff prints the patch, --fix writes it into the files: choose one")
    if unsafe and not (asked.diff or asked.fix):
        raise UserError(
            "--unsafe-fixes and --allow say which patches are taken: add --fix to write them, --diff to see them"
        )
    if asked.diff and asked.format != "text":
        raise UserError(
            f"--diff prints a patch, not {asked.format}; without --diff, every finding of the JSON report has its own"
        )
    if asked.html is not None and (other := _without_page(asked, given)):
        raise UserError(f"--html writes a report as a page, and {other} makes none: choose one")
    if asked.resume and not asked.measure:
        raise UserError("--resume goes on with a scan that measured: add --measure")
    if "-" in given and (len(given) > 1 or asked.measure):
        raise UserError("- reads one text from standard input: name no other path, and measure a file")
    if asked.stdin_filename is not None and given != ["-"]:
        raise UserError("--stdin-filename is the name of what `perfaudit scan -` reads from stdin: add `-`")
    if asked.update_baseline and asked.baseline is None:
        raise UserError("--update-baseline writes the file that --baseline names: add --baseline FILE")
    if asked.statistics and asked.diff:
        raise UserError("--statistics counts findings, --diff prints their patch: choose one")
    if asked.statistics and asked.format not in ("text", "json"):
        raise UserError(f"--statistics prints text or json, not {asked.format}")


def _without_page(asked: ScanOptions, given: list[str]) -> str:
    """The option whose output is no report, so that there is none to make a page of; "" without one."""
    if asked.diff or asked.statistics or asked.update_baseline:
        return "--diff" if asked.diff else "--statistics" if asked.statistics else "--update-baseline"
    return "--fix of -" if asked.fix and "-" in given else ""


def allowed_changes(allow: tuple[str, ...]) -> frozenset[str]:
    """What `--allow` names. Raises UserError for what no fix changes."""
    from perfaudit.findings import CHANGES

    for name in allow:
        if name not in CHANGES:
            raise UserError(f"--allow {name}: no fix changes that; fixes change {', '.join(CHANGES)}")
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
    asked: ScanOptions,
    paths: list[str],
    arguments: tuple[str, ...],
    roles: dict[str, str],
    named: Typed | None,
    report: Report,
    selected: frozenset[str],
) -> Report:
    from perfaudit.cli.measuring import live, needs_no_launcher, needs_torch
    from perfaudit.cli.script_text import check_text
    from perfaudit.measure.folder import measuring
    from perfaudit.quantities import seconds_of
    from perfaudit.target.names import check_names, choose_target, script_target
    from perfaudit.tune.price import price
    from perfaudit.tune.recording import begin

    needs_torch("scan --measure")
    script = named.script() if named is not None else None
    if named is None and len(paths) == 1 and not roles.keys() - {"file"}:
        script = script_target(paths[0], arguments, False)
    if script is None and arguments:
        raise UserError(f"{' '.join(paths)}: arguments behind -- are for one script; name that")
    if script is not None:
        check_text(script.file)
    target = script or check_names(choose_target(paths if named is None else [named.text], Path.cwd(), roles))
    needs_no_launcher("scan --measure", target)
    seconds = seconds_of(asked.budget or (BUDGET_OF_SCRIPT if target.is_script else BUDGET))
    with measuring(Path.cwd()), live(seconds) as watch:
        return price(
            target, report, seconds, asked.device, watch, seconds_of(asked.timeout), selected,
            begin=begin(Path.cwd(), asked.resume), in_place=asked.in_place,
        )  # fmt: skip
