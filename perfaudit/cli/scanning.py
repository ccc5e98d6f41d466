"""What `perfaudit scan` scans and how: settings, standard input, baseline, fixes, progress."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from perfaudit.cli.output import say, write
from perfaudit.errors import UserError

if TYPE_CHECKING:
    from perfaudit.config import Config
    from perfaudit.report import Report
    from perfaudit.static.baseline import Known
    from perfaudit.static.document import Document
    from perfaudit.static.fix import Patched
    from perfaudit.static.scan import Options


@dataclass
class Plan:
    """What is scanned and how.

    name: the path that standard input stands for. data, document: standard input, and what was read of it; None without.
    """

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
        severity: str,
        tests: bool,
        jobs: int,
        no_cache: bool,
        isolated: bool,
    ) -> Plan:
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
        return cls(given, name, config, options, chosen, severity, data)

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
            with Progress() as progress:
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


def known_findings(baseline: Path) -> tuple[Known, ...]:
    """What the baseline holds."""
    from perfaudit.static.baseline import read_baseline

    return read_baseline(baseline)


def write_known(path: Path, report: Report, plan: Plan) -> None:
    """Write what the scan found into the baseline; what it did not look at stays as it was."""
    from perfaudit.static.baseline import as_known, is_below, read_baseline, write_baseline

    before = read_baseline(path) if path.exists() else ()
    places = plan.places
    kept = [k for k in before if not (is_below(k.path, places) and k.rule in plan.selected)]
    now = as_known(report.findings)
    write_baseline(path, [*kept, *now])
    elsewhere = f", {len(kept)} kept that this scan does not look at" if kept else ""
    say(f"{path}: {len(now)} finding{'' if len(now) == 1 else 's'} accepted{elsewhere}")


def fix_stdin(plan: Plan, report: Report, unsafe: bool, allow: frozenset[str], output: Path | None) -> Report:
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


def fix_files(report: Report, unsafe: bool, allow: frozenset[str]) -> int:
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
