"""Write patches that were measured into the source they were measured on, at once or from a saved report."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from perfaudit.errors import UserError
from perfaudit.findings import FilePatch, Finding
from perfaudit.measurements import Winner
from perfaudit.report import Report
from perfaudit.static.document import document
from perfaudit.static.edit import in_order
from perfaudit.static.fix import allowed_fixes, is_allowed, patch_document
from perfaudit.static.ondisk import (
    Opened,
    Planned,
    named_twice,
    open_file,
    refuse,
    require_unchanged,
    sweep_beside,
    write_all,
)
from perfaudit.static.patching import as_promised, git_patch, git_patch_of, plan_writes, replace_text, within_limits
from perfaudit.static.source import Unreadable

ALREADY = "already applied"
NOTHING = "nothing to apply: every knob keeps what you have"


@dataclass(frozen=True, slots=True)
class Plan:
    """What would be written, and what there is to say: of each file what goes into it; and what is left, and why."""

    files: tuple[Planned, ...] = ()
    done: tuple[str, ...] = ()
    left: tuple[str, ...] = ()


def sweep_for(report: Report, root: Path) -> list[str]:
    """Delete what a killed process left beside the files of a report; sentences on what was kept of it."""
    places = [*(finding.location for finding in report.findings), *(winner.location for winner in report.winners)]
    ladder = report.ladder.files if report.ladder is not None else ()
    return sweep_beside([*(place.path for place in places if place), *(file.path for file in ladder)], root)


def apply_winners(report: Report) -> list[str]:
    """Write what `of_tuning` plans, and say what was done and what is left. Raises UserError; then nothing was written."""
    kept = sweep_for(report, Path.cwd())
    plan = of_tuning(report, Path.cwd())
    write_all(plan.files)
    return [*kept, *plan.done, *plan.left]


def patch_bytes(report: Report) -> bytes:
    """What `apply_winners` would write as one patch that `git apply` takes, in the encoding of the files; empty for none.

    Raises UserError where a source is no longer what was measured.
    """
    if report.ladder is not None:
        return git_patch(report.ladder.files)
    return git_patch_of(of_tuning(report, Path.cwd()).files)


def of_tuning(report: Report, root: Path) -> Plan:
    """The patch of the whole ladder; without a ladder, that of the winner that saves most for certain.

    One winner, because each was measured and checked alone: what several do together is only known when they have been
    measured together, so the next is for another run, on top of this one. What changes the algorithm (another batch
    size) is applied where it is the only patch. Where a ladder was climbed and nothing stayed, nothing is applied.
    Raises UserError where a source is no longer what was measured.
    """
    if report.ladder is None:
        return _of_winners(report.winners, root)
    files = plan_writes(report.ladder.files, root)
    if not report.ladder.files:
        return Plan(left=(f"nothing to apply: {report.ladder.trouble or 'no patch was shown to pay'}",))
    to_write = {item.path for item in files}
    said = [f"{f.path}: {'patched' if f.path in to_write else ALREADY}" for f in report.ladder.files]
    return Plan(tuple(files), tuple(said))


def _of_winners(winners: tuple[Winner, ...], root: Path) -> Plan:
    patches = [w for w in winners if w.fix is not None and w.location is not None and w.fix.edits]
    left = [f"{w.knob}: nothing to apply, {w.words}" for w in winners if w not in patches and not w.keeps_current]
    ordered = sorted(patches, key=lambda w: (_is_another_training(w), -w.saving.low if w.saving else 0.0))
    for winner in ordered[1:]:
        why = "it was measured without the one above; run again to have it measured on top"
        if _is_another_training(winner):
            why = "it is another training, so name it alone to have it applied"
        left.append(f"{winner.knob}: not applied, {why}")
    if not ordered:
        return Plan(left=tuple(left) or (NOTHING,))
    first = ordered[0]
    files = plan_writes([_patch_of(first)], root)
    return Plan(tuple(files), (f"{_path_of(first)}: {first.knob} {'applied' if files else ALREADY}",), tuple(left))


def _is_another_training(winner: Winner) -> bool:
    return winner.fix is not None and "algorithm" in winner.fix.changes


def _patch_of(winner: Winner) -> FilePatch:
    fix, path = winner.fix, _path_of(winner)
    assert fix is not None
    if not (fix.before and fix.after):
        raise UserError(f"{path}: not applied: the report does not say which text {winner.knob} was measured on")
    return FilePatch(path, fix.before, fix.after, fix.diff, fix.encoding, fix.edits)


def of_scan(report: Report, root: Path, unsafe: bool, allow: frozenset[str]) -> Plan:
    """The allowed fixes of a scan, as `scan --fix` takes them; of those that touch the same text, the first.

    Raises UserError where a file is not the one that was scanned, or edits are not of it.
    """
    placed = [finding for finding in report.findings if finding.location is not None]
    with_fix = [finding for finding in placed if finding.fix is not None and finding.fix.edits]
    wanted = sorted((f for f in allowed_fixes(placed, unsafe, allow) if f.location is not None), key=_path_of)
    refused = named_twice({_path_of(f): None for f in wanted}, root)
    groups = {path: list(group) for path, group in groupby(wanted, key=_path_of)}
    plans = within_limits(lambda path: _of_file(path, groups[path], root), groups, refused)
    refuse(refused)
    return Plan(
        tuple(file for plan in plans for file in plan.files),
        tuple(line for plan in plans for line in plan.done),
        (
            *(line for plan in plans for line in plan.left),
            *_not_wanted([f for f in with_fix if not is_allowed(f, unsafe, allow)]),
        ),
    )


def _not_wanted(findings: list[Finding]) -> list[str]:
    changed = dict.fromkeys(
        c for f in findings if f.fix is not None and f.fix.safety == "unsafe" for c in f.fix.changes
    )
    n = sum(f.fix is not None and f.fix.safety == "unsafe" for f in findings)
    words = f"{n} fix{'' if n == 1 else 'es'} not applied, changing {', '.join(changed) or 'more than speed'}"
    return [f"{words}: --unsafe-fixes or --allow takes {'it' if n == 1 else 'them'}"] if n else []


def _path_of(of: Finding | Winner) -> str:
    return of.location.path if of.location is not None else ""


def _of_file(path: str, findings: list[Finding], root: Path) -> Plan:
    file = open_file(path, root)
    try:
        found = document(file.text, file.real, file.encoding)
        for finding in findings:
            _check(finding, file, len(found.text))
        patched = patch_document(path, found, findings)
    except (Unreadable, ValueError) as error:
        raise UserError(f"{path}: {error}") from error
    waiting = tuple(
        f"{f.location}: {f.rule} not applied, it touches the text of another; run `perfaudit scan` again"
        for f in patched.waiting
    )
    if not patched.applied:
        return Plan(left=waiting)
    done = replace_text(file, patched.after)
    alone = patched.applied[0].fix if len(patched.applied) == 1 else None
    if alone is not None and alone.after:
        as_promised(done, alone.after)
    return Plan((done,), (f"{path}: {len(patched.applied)} fixed",), waiting)


def _check(finding: Finding, file: Opened, length: int) -> None:
    """Raises UserError for the fix of another text, ValueError for one whose edits leave it or overlap."""
    assert finding.fix is not None
    if not finding.fix.before:
        raise UserError(f"{file.path}: the report does not say which text it is of; run `perfaudit scan` again")
    require_unchanged(file, finding.fix.before, "scan")
    try:
        in_order(finding.fix.edits, length)
    except ValueError as error:
        raise ValueError(f"{finding.rule}: its edits do not fit: {error}") from error
