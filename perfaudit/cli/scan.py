"""`perfaudit scan`: static rules, patches, and with `--measure` what each finding is worth on the user's model."""

from __future__ import annotations

import enum
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from perfaudit.cli.output import check_writable, emit, emit_statistics, format_option, names, say, write
from perfaudit.errors import FOUND, INTERRUPTED, NOTHING_MEASURED, OK, UserError

if TYPE_CHECKING:
    from perfaudit.config import Config
    from perfaudit.report import Report
    from perfaudit.static.baseline import Known
    from perfaudit.static.document import Document
    from perfaudit.static.fix import Patched
    from perfaudit.static.scan import Options

HELP = """Find what makes training slow, by reading the code. Nothing is imported or run, unless --measure is given.

\b
    perfaudit scan train.py
    perfaudit scan src/ --select PA1,PA601       only some rules
    perfaudit scan train.py --diff | git apply   take the safe patches
    perfaudit scan train.py --fix                the same, written in place; reports what is left
    perfaudit scan train.py --measure            load the model and price each finding
    perfaudit scan . --baseline known.json       only what is new; --update-baseline accepts what there is
    perfaudit scan - --stdin-filename train.py   for editors

A comment `# perfaudit: ignore[PA101] reason` or `# noqa: PA101` on the first or last line of a finding silences it,
`# perfaudit: ignore-file[PA101]` the whole file. Test files below a folder are read with --tests only.
"""


class Level(enum.StrEnum):
    """Severities, from the worst."""

    error = "error"
    warning = "warning"
    info = "info"


def command(
    paths: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="PATH...", help="Python files, notebooks and folders (default: here); - is standard input."
        ),
    ] = None,
    format: Annotated[str, format_option()] = "text",
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
        bool, typer.Option("--no-cache", help="Neither read nor write .perfaudit_cache in the project's folder.")
    ] = False,
    isolated: Annotated[bool, typer.Option("--isolated", help="Pay no attention to any pyproject.toml.")] = False,
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
    given = paths or ["."]
    allowed = _changes(names(allow))
    _go_together(diff, fix, bool(unsafe_fixes or allowed), measure, format)
    _go_together_too(given, measure, statistics, format, baseline, update_baseline, stdin_filename)
    plan = _Plan.of(given, stdin_filename, names(select), names(ignore), severity, tests, jobs, no_cache, isolated)
    known = _known(baseline, update_baseline)

    def compared(report: Report) -> Report:
        if known is None:
            return report
        from perfaudit.static.baseline import compared

        new, old, gone = compared(report.findings, known, plan.places, plan.selected)
        return report.with_(findings=new, known=old, gone=gone)

    report = plan.scanned()
    if not report.files:
        for skipped in report.skipped:
            say(f"perfaudit: {skipped.path}: not audited: {skipped.reason}")
        if not report.skipped:
            left_out = f" besides {report.tests_left_out} tests (--tests reads them)" if report.tests_left_out else ""
            say(f"perfaudit: no Python files in {', '.join(given)}{left_out}")
        if format != "text" or output:
            emit(report, format, output)
        raise typer.Exit(NOTHING_MEASURED)
    if baseline is not None and update_baseline:
        _update(baseline, report, plan)
        raise typer.Exit(OK)
    report = compared(report)
    if measure:
        check_writable(output)
        from perfaudit.cli.measuring import factory_names

        try:
            roles = factory_names(plan.config, factory or [])
            report = _measured(given, roles, report, budget, device, timeout)
        except UserError:  # what reading alone found is not lost with it
            emit(report, format, output)
            raise
    if diff:
        patched = plan.patches(report, unsafe_fixes, allowed)
        write(b"".join(item.diff_bytes for item in patched), output)
    elif fix and plan.is_stdin:
        report = _fix_stdin(plan, report, unsafe_fixes, allowed, output)
    else:
        if fix and _fix(report, unsafe_fixes, allowed):
            report = compared(plan.scanned())
        emit_statistics(report, format, output) if statistics else emit(report, format, output)
    if report.interrupted:
        raise typer.Exit(INTERRUPTED)
    raise typer.Exit(OK if exit_zero or not report.findings else FOUND)


@dataclass
class _Plan:
    """What is scanned and how; `text` holds standard input once it was read."""

    given: list[str]
    name: str
    config: Config
    options: Options
    selected: frozenset[str]
    severity: str
    data: bytes | None = None
    document: Document | None = None

    @classmethod
    def of(
        cls,
        given: list[str],
        stdin_filename: str | None,
        select: tuple[str, ...],
        ignore: tuple[str, ...],
        severity: Level,
        tests: bool,
        jobs: int,
        no_cache: bool,
        isolated: bool,
    ) -> _Plan:
        from perfaudit.config import Config, find_config, project_folder, selected, start_of
        from perfaudit.static.registry import catalogue
        from perfaudit.static.scan import Options

        start = start_of([stdin_filename or "."] if given == ["-"] else given)
        config = Config() if isolated else find_config(start)
        folders = config.own_rule_folders(Path.cwd())
        chosen = selected(catalogue(folders).rules, select, ignore, config)
        options = Options(
            chosen,
            config.exclude,
            config.path.parent if config.path else None,
            tests or config.tests,
            None if no_cache or given == ["-"] else project_folder(start),
            jobs,
            folders,
        )
        name = stdin_filename or "stdin.py"
        data = sys.stdin.buffer.read() if given == ["-"] else None
        return cls(given, name, config, options, chosen, severity.value, data)

    @property
    def is_stdin(self) -> bool:
        return self.data is not None

    @property
    def places(self) -> tuple[str, ...]:
        """The files and folders of this scan as reports show them."""
        from perfaudit.static.discover import shown

        return tuple(shown(Path(path)) for path in ([self.name] if self.is_stdin else self.given))

    def scanned(self) -> Report:
        """The report of the scan: configured, of the severity asked for, ranked."""
        from perfaudit import rank
        from perfaudit.config import configured
        from perfaudit.findings import SEVERITIES
        from perfaudit.static.registry import catalogue
        from perfaudit.static.scan import scan, scan_bytes

        if self.data is not None:
            report, self.document = scan_bytes(self.data, self.name, self.options)
        else:
            with _progress() as progress:
                report = scan(self.given, self.options, progress)
        findings = configured(report.findings, self.config, catalogue(self.options.rule_folders).rules)
        lowest = SEVERITIES.index(self.severity)
        return report.with_(findings=rank.ranked([f for f in findings if SEVERITIES.index(f.severity) <= lowest]))

    def patches(self, report: Report, unsafe: bool, allow: frozenset[str]) -> list[Patched]:
        from perfaudit.static.discover import shown
        from perfaudit.static.fix import allowed, patch_document, patches

        if self.document is None:
            return patches(report.findings, unsafe, allow)
        wanted = [finding for finding in report.findings if allowed(finding, unsafe, allow)]
        return [patch_document(shown(Path(self.name)), self.document, wanted)] if wanted else []


def _known(baseline: Path | None, update: bool) -> tuple[Known, ...] | None:
    """What the baseline holds, None where there is none to compare with."""
    if baseline is None or update:
        return None
    from perfaudit.static.baseline import read_baseline

    return read_baseline(baseline)


def _update(path: Path, report: Report, plan: _Plan) -> None:
    """Write what the scan found into the baseline; what it did not look at stays as it was."""
    from perfaudit.static.baseline import as_known, is_below, read_baseline, write_baseline

    before = read_baseline(path) if path.exists() else ()
    places = plan.places
    kept = [k for k in before if not (is_below(k.path, places) and k.rule in plan.selected)]
    now = as_known(report.findings)
    write_baseline(path, [*kept, *now])
    elsewhere = f", {len(kept)} kept that this scan does not look at" if kept else ""
    say(f"{path}: {len(now)} finding{'' if len(now) == 1 else 's'} accepted{elsewhere}")


def _fix_stdin(plan: _Plan, report: Report, unsafe: bool, allow: frozenset[str], output: Path | None) -> Report:
    """Print the fixed text and leave the report of what is left to stderr, in one line for each finding."""
    patched = plan.patches(report, unsafe, allow)
    if plan.data is None or plan.document is None:
        return report
    data = patched[0].after.encode(patched[0].encoding) if patched else plan.data
    write(data, output)
    plan.data = data
    left = plan.scanned()
    from perfaudit.render import concise

    sys.stderr.write(concise.render(left))
    return left


def _go_together_too(
    given: list[str],
    measure: bool,
    statistics: bool,
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

    done, refused = [], []
    for patched in patches(report.findings, unsafe, allow):
        try:
            write_patch(patched)
        except UserError as error:  # the other files are written all the same
            refused.append(str(error))
            continue
        done.append(patched)
        say(f"{patched.path}: {len(patched.applied)} fixed")
    if waiting := sum(len(patched.waiting) for patched in done):
        say(
            f"{waiting} more touch{'' if waiting > 1 else 'es'} the same lines: run again for {'them' if waiting > 1 else 'it'}"
        )
    if refused:
        raise UserError("; ".join(refused))
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
