"""Acceptance: what a project takes although it is worse, with a reason that is committed and reviewed with the change."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from perfaudit.errors import ConfigError
from perfaudit.findings import Finding
from perfaudit.gate.baseline import Acceptance, Baseline, counter_values, gate_baseline_if_there
from perfaudit.gate.comparable import Fingerprint, compare_fingerprints
from perfaudit.quantities import percent
from perfaudit.static.baseline import Known, compare_with_known
from perfaudit.verdicts import CountersVerdict, FindingsVerdict, GateVerdict, TimeVerdict

Entry = TypeVar("Entry")


def new_acceptances(head: Baseline | None, base: Baseline | None) -> tuple[Acceptance, ...]:
    """The entries that the reference's file does not hold, in their order; all of them where it has no file."""
    return _new_entries(head.accepted if head else (), base.accepted if base else (), lambda entry: entry)


def _new_entries(now: Iterable[Entry], before: Iterable[Entry], key: Callable[[Entry], Hashable]) -> tuple[Entry, ...]:
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


def acceptances_since(head: Baseline | None, base_file: Path | None, stands_for: Path) -> tuple[Accepted, str]:
    """What has been accepted since a reference, and a note in words, "" where there is nothing to say.

    base_file: the baseline in the reference's worktree; stands_for: where it lies in the user's project. No such file is
    no fault. Where none can be (None: it lies outside the repository), or one that cannot be read, it is not known what
    was accepted before, so nothing counts as new, and the note says so.
    """
    if head is None or not head.accepted:
        return Accepted(), ""
    if base_file is None:
        outside = f"{stands_for} lies outside the repository, so the reference has no such file"
        return Accepted(), f"nothing counts as accepted by this change: {outside}"
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
    return _new_entries(
        head.findings, base.findings if base else (), lambda known: (known.path, known.rule, known.digest)
    )


def with_acceptances(
    counters: CountersVerdict, head: Baseline | None, accepted: Accepted, environment: Fingerprint | None = None
) -> CountersVerdict:
    """The verdict on counters where the project has accepted growth in this change.

    Growth is accepted to the very value that the baseline of this change holds; any other has regressed all the same. What
    is not reproducible has no value, and is accepted where that baseline says so too; where it does not, it stays open.
    environment: of this count, which says whether that baseline was written where other values are to be expected.
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
    if beyond and environment is not None:
        beyond += _written_elsewhere(state.environment, environment)
    is_open = any(name in stored and name not in counters.counters for name in counters.set_aside)
    said: GateVerdict = "regressed" if beyond else "inconclusive" if is_open else "accepted"
    reason = "; ".join(filter(None, [counters.reason, *beyond]))
    return replace(counters, verdict=said, changes=tuple(changes), reason=reason)


def _written_elsewhere(stored: Fingerprint, now: Fingerprint) -> list[str]:
    """Why an accepted value cannot be that of now, and what helps, where the file is of another environment; [] else."""
    comparable = compare_fingerprints(stored, now)
    if comparable.level != "nothing":
        return []
    return [
        f"what was accepted was counted in another environment ({comparable.reason}) and cannot be compared: write the file "
        'anew in an environment like this one, with `perfaudit gate update --accept "why"`'
    ]


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
    beyond = f"accepted up to {percent(share)} slower ({why}), it is at least {percent(verdict.low - 1)}"
    return replace(verdict, reason="; ".join(filter(None, [verdict.reason, beyond])))


def findings_with_acceptances(
    verdict: FindingsVerdict, findings: tuple[Finding, ...], accepted: Accepted
) -> tuple[FindingsVerdict, tuple[Finding, ...]]:
    """The verdict on new findings, and those of them that this change has not accepted.

    A finding that the reference's file holds as well is not accepted: it was known there, and came back. Where all are
    accepted and a file can no longer be audited, the layer has failed: what that file holds is not known. Where all are
    accepted and of others it is not known whether they are new, it is inconclusive.
    """
    if verdict.verdict != "regressed" or not accepted.findings:
        return verdict, findings
    left, taken, _ = compare_with_known(findings, accepted.findings, (), frozenset())
    if not taken:
        return verdict, findings
    counted = replace(verdict, new=len(left), accepted=verdict.accepted + taken)
    reasons = "; ".join(dict.fromkeys(entry.reason for entry in accepted.entries))
    told = "; ".join(filter(None, [verdict.reason, f"accepted: {reasons}"]))
    if left:
        return replace(counted, reason=told), left
    if lost := verdict.lost:
        return replace(counted, verdict="failed", reason=lost), left
    if verdict.unjudged:
        return replace(counted, verdict="inconclusive", reason=f"{told}; {verdict.unjudged}"), left
    return replace(counted, verdict="accepted", reason=told), left
