"""Acceptance: what a project takes although it is worse, with a reason that is committed and reviewed with the change."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from perfaudit.errors import ConfigError, UserError
from perfaudit.findings import Finding
from perfaudit.gate.baseline import (
    Acceptance,
    Baseline,
    TargetState,
    counter_values,
    gate_baseline_if_there,
)
from perfaudit.gate.baseline_changes import changes_between, essence
from perfaudit.gate.comparable import Seconds
from perfaudit.gate.comparable import compared as compared_environments
from perfaudit.static.baseline import Known
from perfaudit.static.baseline import compared as compared_with_known
from perfaudit.verdicts import CountersVerdict, FindingsVerdict, GateVerdict, TimeVerdict

Entry = TypeVar("Entry")

SAME_TIME = 0.01  # of a step: the slowdown that never fails; a time that is this near the stored one is no change
WORK = ("operators", "flops", "bytes_allocated")  # counters that tell how much longer a step that does more may take


def updated(
    before: Baseline | None, now: Baseline, reason: str, at: str, time: bool = True, slower: float | None = None
) -> tuple[Baseline, tuple[str, ...]]:
    """The baseline with what is now in it and why, and what changed in words; the same one, and (), where nothing did.

    now: all findings that the file shall hold, and the targets that were counted; others stay as they were. at: the day,
    as "2026-11-22". The entry names the targets whose counters are not what the file said, and by how much the step of
    each may be slower: `slower` for all targets of now, as a share of the step; without it, as much as its work grew
    (`_growth`). A stored time that changed speaks for no slower step: it is too noisy for a bound. time: False to keep
    stored times and to accept no slower step.
    Raises UserError for an empty reason, and for `slower` without a target.
    """
    if not reason.strip():
        raise UserError(
            'an acceptance needs a reason, which is kept: perfaudit gate update --accept "why it is wanted"'
        )
    if slower is not None and not now.targets:
        raise UserError("a slower step is accepted of a target; name one: perfaudit gate update train.py …")
    old = before or Baseline()
    targets = {name: _renewed(old.targets.get(name), state, time) for name, state in now.targets.items()}
    after = replace(old, findings=now.findings, targets={**old.targets, **targets})
    bounds = _bounds(old.targets, targets, slower) if time else {}
    words = [f"{name} may be up to {_percent(share)} slower" for name, share in sorted(bounds.items())]
    changes = (*changes_between(old, after), *words)
    if not changes:
        return old, ()
    recounted = tuple(sorted(name for name, state in targets.items() if _is_recounted(old.targets.get(name), state)))
    entry = Acceptance(at, reason.strip(), recounted, changes, tuple(sorted(bounds.items())))
    return replace(after, accepted=(*old.accepted, entry)), changes


def _bounds(old: Mapping[str, TargetState], now: Mapping[str, TargetState], slower: float | None) -> dict[str, float]:
    """By how much the step of each target may be slower, as a share; without those for which that says nothing."""
    if slower is not None:
        return dict.fromkeys(now, slower)
    grown = {name: round(_growth(old.get(name), state), 4) for name, state in now.items()}
    return {name: share for name, share in grown.items() if share > SAME_TIME}


def _growth(old: TargetState | None, now: TargetState) -> float:
    """The largest relative growth among the counters of WORK, by sample; 0 where nothing grew, or nothing is comparable.

    A sample takes longer by about as much as is done more for it, unless that is of another kind: a host sync may cost far
    more than the two operators it consists of. That has to be accepted in so many words.
    """
    if old is None or compared_environments(old.environment, now.environment).level == "nothing":
        return 0.0
    before, after = counter_values(old), counter_values(now)
    batches = [values.get("samples", 0) for values in (before, after)]
    larger = batches[1] / batches[0] if all(batches) else 1.0  # times of unequal batches are compared by sample too
    grown = [after[name] / before[name] / larger - 1 for name in WORK if name in after and before.get(name)]
    return max(grown, default=0.0)


def _is_recounted(old: TargetState | None, now: TargetState) -> bool:
    return old is None or essence(old) != essence(now)


def _renewed(old: TargetState | None, now: TargetState, time: bool) -> TargetState:
    """What is kept of a target. A stored time stays where nothing else changed and that of now is none or much the same."""
    if old is None:
        return now
    stored, seconds = old.seconds_per_step, now.seconds_per_step
    if old.environment == now.environment and essence(old) == essence(now):
        keeps = not time or seconds is None or (stored is not None and not _differs(stored, seconds))
        return old if keeps else now
    if time:
        return now
    return replace(now, seconds_per_step=stored if old.environment == now.environment else None)


def _differs(stored: Seconds, now: Seconds) -> bool:
    """Whether a step takes another time, as far as two measurements on different days can say.

    Where the quartiles meet it is a noisy hour as likely, and no change to be kept.
    """
    return stored.is_apart_from(now) and abs(now.median / stored.median - 1) > SAME_TIME


def new_acceptances(head: Baseline | None, base: Baseline | None) -> tuple[Acceptance, ...]:
    """The entries that the reference's file does not hold, in their order; all of them where it has no file."""
    return _added(head.accepted if head else (), base.accepted if base else (), lambda entry: entry)


def _added(now: Iterable[Entry], before: Iterable[Entry], key: Callable[[Entry], Hashable]) -> tuple[Entry, ...]:
    """What there is now and was not before, in its order; of equal ones, as many as there are more."""
    left = Counter(map(key, before))
    new = []
    for entry in now:
        if left[key(entry)] > 0:
            left[key(entry)] -= 1
        else:
            new.append(entry)
    return tuple(new)


@dataclass(frozen=True, slots=True)
class Accepted:
    """What this change accepts. findings: those that the project's file holds and that of the reference does not."""

    entries: tuple[Acceptance, ...] = ()
    findings: tuple[Known, ...] = ()


def acceptances_since(head: Baseline | None, base_file: Path, stands_for: Path) -> tuple[Accepted, str]:
    """What has been accepted since a reference, and a note in words, "" where there is nothing to say.

    base_file: the baseline in the reference's worktree; stands_for: where it lies in the user's project. No such file is
    no fault. Of one that cannot be read it is not known what it accepts, so nothing counts as new, and the note says so.
    """
    if head is None or not head.accepted:
        return Accepted(), ""
    try:
        base = gate_baseline_if_there(base_file, stands_for)
    except ConfigError as error:
        return (
            Accepted(),
            f"nothing counts as accepted by this change, because the reference's baseline cannot be read: {error}",
        )
    entries = new_acceptances(head, base)
    return Accepted(entries, _not_known_before(head, base) if entries else ()), ""


def _not_known_before(head: Baseline, base: Baseline | None) -> tuple[Known, ...]:
    """The findings of a file that the reference's does not hold, by what decides."""
    return _added(head.findings, base.findings if base else (), lambda known: (known.path, known.rule, known.digest))


def with_acceptances(counters: CountersVerdict, head: Baseline | None, accepted: Accepted) -> CountersVerdict:
    """The verdict on counters where the project has accepted growth in this change.

    Growth is accepted to the very value that the baseline of this change holds; any other has regressed all the same. What
    is not reproducible has no value, and is accepted where that baseline says so too; where it does not, it stays open.
    """
    why = next((entry.reason for entry in reversed(accepted.entries) if counters.target in entry.targets), "")
    state = head.targets.get(counters.target) if head else None
    if counters.verdict != "regressed" or not why or state is None:
        return counters
    stored = counter_values(state)
    changes, beyond = [], []
    for change in counters.changes:
        if change.grew and not change.allowed and not change.accepted:
            varies = change.counter not in counters.counters and change.counter in state.counters.get("set_aside", {})
            if varies or stored.get(change.counter) == change.after:
                change = replace(change, accepted=why)
            else:
                taken = stored.get(change.counter, "nothing")
                beyond.append(f"{change.counter} is accepted at {taken}, it is {change.after} now")
        changes.append(change)
    is_open = any(name in stored and name not in counters.counters for name in counters.set_aside)
    said: GateVerdict = "regressed" if beyond else "inconclusive" if is_open else "accepted"
    reason = "; ".join(filter(None, [counters.reason, *beyond]))
    return replace(counters, verdict=said, changes=tuple(changes), reason=reason)


def time_with_acceptances(verdict: TimeVerdict, accepted: Accepted) -> TimeVerdict:
    """The verdict on time where the project has accepted a slower step of this target in this change, and how much slower.

    The largest bound counts. It is exceeded where all of the interval lies beyond it, as with a regression.
    """
    bounds = [
        (dict(entry.slower)[verdict.target], entry.reason)
        for entry in reversed(accepted.entries)
        if verdict.target in dict(entry.slower)
    ]
    if verdict.verdict != "regressed" or not bounds:
        return verdict
    share, why = max(bounds, key=lambda bound: bound[0])  # the latest of equal ones
    if verdict.low - 1 <= share:
        return replace(verdict, verdict="accepted", accepted=why)
    beyond = f"accepted up to {_percent(share)} slower ({why}), it is at least {_percent(verdict.low - 1)}"
    return replace(verdict, reason="; ".join(filter(None, [verdict.reason, beyond])))


def findings_with_acceptances(
    verdict: FindingsVerdict, findings: tuple[Finding, ...], accepted: Accepted
) -> tuple[FindingsVerdict, tuple[Finding, ...]]:
    """The verdict on new findings, and those of them that this change has not accepted.

    A finding that the reference's file holds as well is not accepted: it was known there, and came back. Where all are
    accepted and a file can no longer be audited, the layer has failed: what that file holds is not known.
    """
    if verdict.verdict != "regressed" or not accepted.findings:
        return verdict, findings
    left, taken, _ = compared_with_known(findings, accepted.findings, (), frozenset())
    if not taken:
        return verdict, findings
    counted = replace(verdict, new=len(left), accepted=verdict.accepted + taken)
    reasons = "; ".join(dict.fromkeys(entry.reason for entry in accepted.entries))
    told = "; ".join(filter(None, [verdict.reason, f"accepted: {reasons}"]))
    if left:
        return replace(counted, reason=told), left
    if lost := verdict.lost:
        return replace(counted, verdict="failed", reason=lost), left
    return replace(counted, verdict="accepted", reason=told), left


def _percent(share: float) -> str:
    return f"{100 * share:.3g} %"
