"""What `perfaudit scan` scans and how: settings, standard input, baseline, fixes, progress."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from perfaudit.cli.output import say, write
from perfaudit.errors import UserError
from perfaudit.records import record, replace

if TYPE_CHECKING:
    from perfaudit.config import Config
    from perfaudit.findings import Finding
    from perfaudit.report import Report
    from perfaudit.static.baseline import Known
    from perfaudit.static.document import Document
    from perfaudit.static.fix import Patched
    from perfaudit.static.plan import OwnRules
    from perfaudit.static.scan import Options


@record()
class Plan:
    """What is scanned and how.

    name: the path that standard input stands for. severity: the lowest that is reported, None where nobody said it. named:
    rules that were selected one by one. data, document: standard input, and what was read of it; None without.
    """

    given: list[str]
    name: str
    config: Config
    options: Options
    selected: frozenset[str]
    severity: str | None
    named: frozenset[str]
    own: OwnRules
    data: bytes | None = None
    document: Document | None = None

    @classmethod
    def of(
        cls,
        given: list[str],
        stdin_filename: str | None,
        select: tuple[str, ...],
        ignore: tuple[str, ...],
        severity: str | None,
        tests: bool,
        jobs: int,
        no_cache: bool,
        isolated: bool,
        force_exclude: bool,
        rules: list[Path],
    ) -> Plan:
        from perfaudit.cli.settings import rules_to_run, settings_of_project
        from perfaudit.config import Config, named_in_full, start_of
        from perfaudit.reading import MAX_FILE_BYTES
        from perfaudit.static.registry import catalogue

        start = start_of([stdin_filename or "."] if given == ["-"] else given)
        config = Config() if isolated else settings_of_project(start)
        planned = rules_to_run(config, rules, select, ignore)
        assert planned.options is not None
        config = planned.config
        options = replace(
            planned.options,
            exclude_named=force_exclude,
            tests=tests or config.tests,
            cache=not no_cache and given != ["-"],
            processes=jobs,
        )
        name = stdin_filename or "stdin.py"
        if given == ["-"] and sys.stdin is None:
            raise UserError("standard input is closed; - reads one text from it")
        data = sys.stdin.buffer.read(MAX_FILE_BYTES + 1) if given == ["-"] else None
        if data is not None and len(data) > MAX_FILE_BYTES:
            raise UserError(f"standard input holds more than {MAX_FILE_BYTES >> 20} MiB")
        named = named_in_full(catalogue(options.rule_folders).rules, select, config)
        selected = options.selected or frozenset()
        return cls(given, name, config, options, selected, severity, named, planned.own, data)

    @property
    def is_stdin(self) -> bool:
        return self.data is not None

    @property
    def places(self) -> tuple[str, ...]:
        """The files and folders of this scan as reports show them."""
        from perfaudit.static.discover import shown_path

        return tuple(shown_path(Path(path)) for path in ([self.name] if self.is_stdin else self.given))

    def scan_as_asked(self) -> Report:
        """The report of the scan: configured, of the severity asked for, ranked."""
        return self.shown_part(self.scan_all())

    def scan_all(self) -> Report:
        """The same with findings of every severity, hints among them."""
        from perfaudit import rank
        from perfaudit.static.plan import as_configured
        from perfaudit.static.scan import scan, scan_bytes

        if self.data is not None:
            report, self.document = scan_bytes(self.data, self.name, self.options)
        else:
            with Progress() as progress:
                report = scan(self.given, self.options, progress)
        report = as_configured(report, self.options, self.config).with_(rules_left_out=self.own.as_items())
        return report.with_(findings=rank.sort_findings(report.findings))

    def is_shown(self, finding: Finding) -> bool:
        """Whether a finding is severe enough. Where nobody said what is, all are but hints of rules that nobody named."""
        from perfaudit.findings import SEVERITIES

        if self.severity is None:
            return finding.severity != "hint" or finding.rule in self.named
        return SEVERITIES.index(finding.severity) <= SEVERITIES.index(self.severity)

    def shown_part(self, report: Report, with_timed: bool = False) -> Report:
        """The report without what is not severe enough; with_timed: but with hints that were timed on the user's training."""
        from perfaudit import rank

        kept, hints = [], 0
        for finding in report.findings:
            is_timed = with_timed and self.severity is None and rank.group(finding) != rank.NOT_MEASURED
            if self.is_shown(finding) or is_timed:
                kept.append(finding)
            else:
                hints += finding.severity == "hint"
        return report.with_(findings=tuple(kept), hints_left_out=hints)

    def as_read(self, report: Report) -> Report:
        """The report with findings that say the same of one file as one, for formats in which that is not said by place."""
        from perfaudit.static.alike import merge_alike

        return report.with_(findings=merge_alike(report.findings, self.read))

    def read(self, path: str) -> Document | None:
        """What a file of this scan holds: standard input where that is scanned, else what it holds on disk by now."""
        from perfaudit.static.document import read_again

        return read_again(path) if self.document is None else self.document

    def patches(self, report: Report, unsafe: bool, allow: frozenset[str]) -> list[Patched]:
        from perfaudit.static.discover import shown_path
        from perfaudit.static.fix import allowed_fixes, patch_document, patches

        if self.document is None:
            return patches(report.findings, unsafe, allow)
        wanted = allowed_fixes(report.findings, unsafe, allow)
        return [patch_document(shown_path(Path(self.name)), self.document, wanted)] if wanted else []


def known_findings(baseline: Path) -> tuple[Known, ...]:
    """What the baseline holds, paths as this scan shows them."""
    from perfaudit.static.baseline import read_baseline

    return read_baseline(baseline)


def write_known(path: Path, plan: Plan) -> None:
    """Write what a scan finds into the baseline, whatever its severity; what it did not look at stays as it was.

    So does what is known of a file that could not be read: nobody knows whether that is gone. Hints only where they were
    asked for: the same statement may be in a loop one day, and then it is new.
    """
    from perfaudit.static.baseline import as_known, is_below, of_unread, read_baseline, write_baseline

    before = read_baseline(path) if path.exists() else ()
    places = plan.places
    report = plan.scan_all()
    now = as_known(f for f in report.findings if f.severity != "hint" or plan.is_shown(f))
    kept = [k for k in before if not (is_below(k.path, places) and k.rule in plan.selected)]
    looked_for = [k for k in before if is_below(k.path, places) and k.rule in plan.selected]
    unsure = of_unread(looked_for, now, (skipped.path for skipped in report.skipped))
    write_baseline(path, [*kept, *unsure, *now])
    elsewhere = f", {len(kept)} kept that this scan does not look at" if kept else ""
    unread = f", {len(unsure)} kept of files that could not be read" if unsure else ""
    say(f"{path}: {len(now)} finding{'' if len(now) == 1 else 's'} accepted{elsewhere}{unread}")


def fix_stdin(plan: Plan, report: Report, unsafe: bool, allow: frozenset[str], output: Path | None) -> Report:
    """Print the text with the report's fixes and leave what is left to stderr, in one line for each finding."""
    from perfaudit.render import concise

    patched = plan.patches(report, unsafe, allow)
    if plan.data is not None and patched and patched[0].applied:
        plan.data = patched[0].after.encode(patched[0].encoding)
        report = plan.scan_as_asked()
    write(plan.data or b"", output)
    for line in concise.render(report).splitlines():
        say(line)
    return report


def fix_files(
    report: Report,
    again: Callable[[], Report],
    unsafe: bool,
    allow: frozenset[str],
    tell: Callable[[str], None] = say,
) -> Report:
    """Write the report's fixes, those that `--diff` prints and no others, and scan again: what is left.

    A patch may make room for another, which nobody has seen yet: it is in the report of what is left.
    tell: takes how many there were in each file. Raises UserError at the end for files that could not be written.
    """
    from perfaudit.files import sweep
    from perfaudit.render.words import one_line
    from perfaudit.rules import all_rules
    from perfaudit.static.edit import overlap
    from perfaudit.static.fix import patches
    from perfaudit.static.fix import write as write_patch

    for folder in dict.fromkeys(_folders_to_patch(report)):
        for line in sweep(folder):  # what a run that was killed left there
            tell(one_line(line))
    of_several = {rule.id for rule in all_rules().values() if rule.several_processes}
    fixed: Counter[str] = Counter()
    launched: dict[str, str] = {}  # what is said of files that a launcher starts from now on
    refused: dict[str, str] = {}
    touching = 0  # fixes of text that another has changed now
    for patched in patches(report.findings, unsafe, allow):
        if not patched.applied:
            continue
        try:
            write_patch(patched)
        except UserError as error:  # the other files are written all the same
            refused[patched.path] = str(error)
            continue
        fixed[patched.path] += len(patched.applied)
        touching += sum(overlap(patched.edits, f.fix.edits) for f in patched.waiting if f.fix is not None)
        for finding in patched.applied:
            if finding.fix is not None and finding.rule in of_several:
                launched[patched.path] = finding.fix.title
    if fixed:
        report = again()
    for path, number in sorted(fixed.items()):
        tell(f"{one_line(path)}: {number} fixed{f'; {one_line(launched[path])}' if path in launched else ''}")
    if touching:
        one = touching == 1
        tell(f"{touching} more {'touches' if one else 'touch'} the same lines: run again for {'it' if one else 'them'}")
    if refused:
        raise UserError("; ".join(refused.values()))
    if not fixed:
        tell("nothing to fix")
    return report


def _folders_to_patch(report: Report) -> Iterator[Path]:
    """Folders of files with findings, as far as a fix may be written there."""
    from perfaudit.files import source_place

    for path in dict.fromkeys(f.location.path for f in report.findings if f.location is not None):
        with suppress(OSError):
            yield source_place(Path(path)).parent


class Progress:
    """Files done, on a terminal's stderr, once a scan takes longer than two seconds."""

    def __enter__(self) -> Progress:
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
