"""Write patches that were measured into the source they were measured on, at once or from a saved report."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path

from perfaudit.errors import UserError
from perfaudit.findings import Finding
from perfaudit.measurements import Winner
from perfaudit.report import Report
from perfaudit.static import unified
from perfaudit.static.document import is_notebook
from perfaudit.static.fix import allowed, patch
from perfaudit.static.ondisk import Planned, known, named_twice, opened, refuse, sweep_beside, write_all
from perfaudit.static.patching import git_patch, git_patch_of, has_diff, planned, replaced, with_diff, within_limits

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
    files = planned(report.ladder.files, root)
    if not report.ladder.files:
        return Plan(left=(f"nothing to apply: {report.ladder.trouble or 'no change stayed on the ladder'}",))
    to_write = {item.path for item in files}
    said = [f"{f.path}: {'patched' if f.path in to_write else ALREADY}" for f in report.ladder.files]
    return Plan(tuple(files), tuple(said))


def _of_winners(winners: tuple[Winner, ...], root: Path) -> Plan:
    patches = [w for w in winners if w.fix is not None and w.location is not None and w.fix.diff]
    left = [f"{w.knob}: nothing to apply, {w.words}" for w in winners if w not in patches and not w.keeps_current]
    ordered = sorted(patches, key=lambda w: (_is_another_training(w), -w.saving.low if w.saving else 0.0))
    for winner in ordered[1:]:
        why = "it was measured without the one above; run again to have it measured on top"
        if _is_another_training(winner):
            why = "it is another training, so name it alone to have it applied"
        left.append(f"{winner.knob}: not applied, {why}")
    if not ordered:
        return Plan(left=tuple(left) or (NOTHING,))
    refused: list[str] = []
    made = within_limits(lambda _: _of_winner(ordered[0], root), [_path_of(ordered[0])], refused)
    if refused:
        raise UserError("; ".join(refused))
    ((file, words),) = made
    return Plan((file,) if file else (), (words,), tuple(left))


def _is_another_training(winner: Winner) -> bool:
    return winner.fix is not None and "algorithm" in winner.fix.changes


def _of_winner(winner: Winner, root: Path) -> tuple[Planned | None, str]:
    assert winner.fix is not None and winner.location is not None
    fix, file = winner.fix, opened(winner.location.path, root)
    if not fix.before:
        raise UserError(f"{file.path}: not applied: the report does not say which text {winner.knob} was measured on")
    if file.digest != fix.before and has_diff(file, fix.diff, fix.before):
        return None, f"{file.path}: {winner.knob} {ALREADY}"
    known(file, fix.before, "tune")
    return with_diff(file, fix.diff), f"{file.path}: {winner.knob} applied"


def of_scan(report: Report, root: Path, unsafe: bool, allow: frozenset[str]) -> Plan:
    """The allowed fixes of a scan, as `scan --fix` takes them, from their diffs; fixes of one line are for another scan.

    Raises UserError where a file is not the one that was scanned, or a diff is not of it.
    """
    with_fix = [f for f in report.findings if f.location is not None and f.fix is not None and f.fix.diff]
    wanted = sorted((f for f in with_fix if allowed(f, unsafe, allow)), key=_path_of)
    refused = named_twice({_path_of(f): None for f in wanted}, root)
    groups = {path: list(group) for path, group in groupby(wanted, key=_path_of)}
    plans = within_limits(lambda path: _of_file(path, groups[path], root), groups, refused)
    refuse(refused)
    return Plan(
        tuple(file for plan in plans for file in plan.files),
        tuple(line for plan in plans for line in plan.done),
        (
            *(line for plan in plans for line in plan.left),
            *_not_wanted([f for f in with_fix if not allowed(f, unsafe, allow)]),
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
    file = opened(path, root)
    if is_notebook(file.real):  # cells are JSON on disk, and the diff of a long one is not of the file
        return Plan(left=(f"{path}: not applied: `perfaudit scan --fix` writes notebooks",))
    fixes = []
    for finding in findings:
        assert finding.fix is not None
        if not finding.fix.before:
            raise UserError(f"{path}: the report does not say which text it is of; run `perfaudit scan` again")
        known(file, finding.fix.before, "scan")
        try:
            edits = unified.edits(path, finding.fix.diff, file.text)
        except unified.DoesNotFit as error:
            raise UserError(f"{path}: {finding.rule}: {error}") from error
        fixes.append(finding.with_(fix=replace(finding.fix, edits=edits)))
    patched = patch(path, file.text, fixes, file.encoding)
    waiting = tuple(
        f"{f.location}: {f.rule} not applied, it touches the text of another; run `perfaudit scan` again"
        for f in patched.waiting
    )
    if not patched.applied:
        return Plan(left=waiting)
    return Plan((replaced(file, patched.after),), (f"{path}: {len(patched.applied)} fixed",), waiting)
