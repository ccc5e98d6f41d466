"""Layer 1: what a scan finds in the code now and not in the reference. Reads both, and runs nothing of either."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from perfaudit import rank
from perfaudit.config import Config
from perfaudit.errors import UserError
from perfaudit.findings import Finding, only, parts_of
from perfaudit.gate.gitref import Reference
from perfaudit.gate.own_rules import rules_of_gate
from perfaudit.report import Report
from perfaudit.static.baseline import Known, as_known, compare_with_known, is_below
from perfaudit.static.discover import python_files, shown_path
from perfaudit.static.plan import ScanPlan, as_configured
from perfaudit.static.scan import Options, scan
from perfaudit.verdicts import FindingsVerdict

Judged = tuple[FindingsVerdict, tuple[Finding, ...], Report]
MAX_NAMES = 3  # files that a reason names


@dataclass(frozen=True, slots=True)
class Before:
    """What the reference holds, paths as a scan of the working directory shows them.

    unseen: files and folders of which it does not say what they held, with the reason. seen: files that it could read.
    """

    known: tuple[Known, ...]
    unseen: dict[str, str] = field(default_factory=dict)
    seen: frozenset[str] = frozenset()


def against_ref(reference: Reference, paths: Sequence[str], config: Config) -> Judged:
    """The verdict on findings that the working files have and the reference has not, these findings, and the whole scan.

    Both are scanned with the same rules and configuration, those of the working files; of the project's own rules with those
    that the reference holds as they are. paths: as given to a scan here.
    Raises UserError for a path that does not exist here, or that lies outside the repository.
    """
    rules = rules_of_gate(config, reference)
    if (options := rules.options) is None:
        return _no_rule(rules)
    config = rules.config
    places = [_place(path, reference) for path in paths or ["."]]
    before = _scanned_there(reference, places, options, config)
    here = [shown_path(reference.to_here(place)) for place in places]
    return _judge(scanned_here(here, options, config), before, here, rules)


def against_known(known: Sequence[Known], paths: Sequence[str], config: Config) -> Judged:
    """The same against the findings that a file keeps, paths as a scan here shows them. Without the project's own rules."""
    rules = rules_of_gate(config, None)
    if (options := rules.options) is None:
        return _no_rule(rules)
    given = list(paths) or ["."]
    before = Before(tuple(known), seen=frozenset(item.path for item in known))
    return _judge(scanned_here(given, options, rules.config), before, given, rules)


def _no_rule(rules: ScanPlan) -> Judged:
    """What is said where only rules are selected that a gate does not run."""
    verdict = FindingsVerdict("not_judged", f"no rule is left: {rules.own.note}")
    return verdict, (), Report("gate", rules_left_out=rules.own.as_items())


def scanned_here(paths: Sequence[str], options: Options, config: Config) -> Report:
    """The report of a scan of the working files, as configured, without hints: no build fails for one."""
    return _without_hints(as_configured(scan(paths, replace(options, cache=True)), options, config))


def _without_hints(report: Report) -> Report:
    return report.with_(findings=tuple(finding for finding in report.findings if finding.severity != "hint"))


def _place(path: str, reference: Reference) -> Path:
    if place := reference.to_there(path):
        return place
    raise UserError(f"{path}: outside the repository {reference.head_root}, of which alone there is a {reference.name}")


def _scanned_there(reference: Reference, places: Sequence[Path], options: Options, config: Config) -> Before:
    """What the reference holds at these places, which lie in it; and in files that are no longer here."""
    base = reference.to_there(options.base or reference.head_root) or reference.root
    there = replace(options, base=base, seen_from=reference.folder)
    reports = [scan([str(place) for place in places if place.exists()], there)]
    files = python_files([str(reference.root)], seen_from=reference.folder)
    gone = [file.path for file in files if not reference.to_here(file.path).exists()]
    left = [str(path) for path in gone if not any(map(path.is_relative_to, places))]
    if left:  # they may have moved to where the scan looks
        reports.append(scan(left, replace(there, exclude_named=True)))
    found = Report("scan", tuple(finding for report in reports for finding in report.findings))
    known = as_known(_without_hints(as_configured(found, options, config)).findings)
    unread = {path: reason for report in reports for path, reason in _unread(report).items()}
    unseen = {path: f"the reference's could not be audited ({reason})" for path, reason in unread.items()}
    unseen |= {
        shown_path(reference.head_root / path): "the reference's submodule is not here" for path in reference.missing
    }
    return Before(tuple(known), unseen, frozenset(file.shown_as for file in files) - unseen.keys())


def _unread(report: Report) -> dict[str, str]:
    """Files of which a scan could say nothing, with the reason; not those of which it could not say all."""
    found_in = {finding.location.path for finding in report.findings if finding.location}
    return {skipped.path: skipped.reason for skipped in report.skipped if skipped.path not in found_in}


# ---- comparing -------------------------------------------------------------------------------------------------------


def _judge(head: Report, before: Before, paths: Sequence[str], rules: ScanPlan) -> Judged:
    selected = (rules.options and rules.options.selected) or frozenset()
    unread = _unread(head)
    known = tuple(item for item in before.known if item.path not in unread)  # not known to be gone
    places = tuple(shown_path(Path(path)) for path in paths)
    each = tuple(parts_of(head.findings))
    new, old, gone = compare_with_known(each, known, places, selected)
    unknown = _not_known_otherwise(new, each, [item for item in known if is_below(item.path, places)])
    moved = len(new) - len(unknown)
    left = only(head.findings, lambda part: any(part is one for one in unknown))
    blind = [finding for finding in left if _reason_unseen(finding, before)]
    seen = rank.sort_findings([finding for finding in left if not _reason_unseen(finding, before)])
    verdict = FindingsVerdict("pass", "", len(seen), old + moved, max(0, gone - moved))
    lost = sorted(path for path in unread if path in before.seen)
    verdict = _with_words(verdict, head, unread, lost, paths, told := _notes(blind, before))
    notes = (*filter(None, [rules.own.note]), *(told if verdict.verdict != "inconclusive" else ()))
    report = head.with_(
        command="gate",
        findings=seen,
        known=verdict.known,
        gone=verdict.gone,
        notes=notes,
        rules_left_out=rules.own.as_items(),
    )
    return verdict, seen, report


def _not_known_otherwise(new: Sequence[Finding], findings: Sequence[Finding], known: Sequence[Known]) -> list[Finding]:
    """The new findings without those that are gone from somewhere and stand here now.

    First, what has the same statement in a scope of the same name, and is gone from another file that is still there;
    `compare_with_known` has looked at files that are not. Then, what says the same of the same file: its statement was edited.
    """
    now = Counter((f.location.path if f.location else "", f.rule, f.text_digest) for f in findings)
    gone = []
    for item in known:
        now[item.path, item.rule, item.digest] -= 1
        if now[item.path, item.rule, item.digest] < 0 and Path(item.path).exists():
            gone.append(item)
    left = list(new)
    for same in (_is_moved, _is_edited):
        unknown = []
        for finding in left:
            if before := next((item for item in gone if same(item, finding)), None):
                gone.remove(before)
            else:
                unknown.append(finding)
        left = unknown
    return left


def _is_moved(before: Known, now: Finding) -> bool:
    return (before.rule, before.digest) == (now.rule, now.text_digest)


def _is_edited(before: Known, now: Finding) -> bool:
    path = now.location.path if now.location else ""
    return (before.path, before.rule, before.message) == (path, now.rule, now.message)


def _reason_unseen(finding: Finding, before: Before) -> str:
    """Why the reference does not say whether it had this finding; "" where it does."""
    path = finding.location.path if finding.location else ""
    return next((reason for place, reason in before.unseen.items() if is_below(path, (place,))), "")


def _notes(blind: Sequence[Finding], before: Before) -> tuple[str, ...]:
    counts = Counter((f.location.path if f.location else "", _reason_unseen(f, before)) for f in blind)
    return tuple(
        f"{path}: {'1 finding is' if count == 1 else f'{count} findings are'} not judged: {reason}"
        for (path, reason), count in sorted(counts.items())
    )


def _with_words(
    verdict: FindingsVerdict,
    report: Report,
    unread: dict[str, str],
    lost: Sequence[str],
    paths: Sequence[str],
    blind: Sequence[str],
) -> FindingsVerdict:
    """The verdict and its reason.

    A file that the reference could read and that cannot be read now is no pass, and where it is not known what the
    reference held, it is not known whether what is here now is new. blind: of which files that is so, in words.
    """
    if not report.files and not unread:
        tests = report.tests_left_out
        left_out = f" besides {tests} test{'' if tests == 1 else 's'}" if tests else ""
        return replace(verdict, verdict="not_judged", reason=f"no Python files in {', '.join(paths)}{left_out}")
    reason = f"not audited: {_paths_with_reasons(unread, sorted(unread))}" if unread else ""
    verdict = replace(verdict, unjudged="; ".join(blind))
    if lost:
        verdict = replace(verdict, lost=f"could be audited before: {_paths_with_reasons(unread, lost)}")
    if verdict.new:
        return replace(verdict, verdict="regressed", reason=reason)
    if lost:
        return replace(verdict, verdict="failed", reason=verdict.lost)
    if blind:
        return replace(verdict, verdict="inconclusive", reason="; ".join(filter(None, [reason, verdict.unjudged])))
    return replace(verdict, verdict="pass" if report.files else "failed", reason=reason)


def _paths_with_reasons(reasons: dict[str, str], paths: Sequence[str]) -> str:
    names = "; ".join(f"{path} ({reasons[path]})" for path in paths[:MAX_NAMES])
    return names + (f"; and {len(paths) - MAX_NAMES} more" if len(paths) > MAX_NAMES else "")
