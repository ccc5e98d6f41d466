"""Acceptance: what a project takes although it is worse, with a reason that is committed and reviewed with the change."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from perfaudit.errors import ConfigError, UserError
from perfaudit.findings import Finding
from perfaudit.gate.baseline import (
    Acceptance,
    Baseline,
    TargetState,
    counter_values,
    gate_baseline_if_there,
)
from perfaudit.gate.comparable import Seconds, differences
from perfaudit.static.baseline import Known
from perfaudit.static.baseline import compared as compared_with_known
from perfaudit.verdicts import CountersVerdict, FindingsVerdict, TimeVerdict

SAME_TIME = 0.01  # of a step: the slowdown that never fails; a time that is this near the stored one is no change


def updated(
    before: Baseline | None, now: Baseline, reason: str, at: str, time: bool = True, also: Sequence[str] = ()
) -> tuple[Baseline, tuple[str, ...]]:
    """The baseline with what is now in it and why, and what changed in words; the same one, and (), where nothing did.

    now: all findings that the file shall hold, and the targets that were counted; others stay as they were. at: the day,
    as "2026-11-22". time: whether a slower step of these targets is accepted too; without it stored times stay. also:
    what shall be accepted although the file shows no difference, in words.
    Raises UserError for an empty reason.
    """
    if not reason.strip():
        raise UserError(
            'an acceptance needs a reason, which is kept: perfaudit gate update --accept "why it is wanted"'
        )
    old = before or Baseline()
    targets = {name: _renewed(old.targets.get(name), state, time) for name, state in now.targets.items()}
    after = replace(old, findings=now.findings, targets={**old.targets, **targets})
    changes = (*changes_between(old, after), *also)
    if not changes:
        return old, ()
    entry = Acceptance(at, reason.strip(), tuple(sorted(targets)), changes, time)
    return replace(after, accepted=(*old.accepted, entry)), changes


def _renewed(old: TargetState | None, now: TargetState, time: bool) -> TargetState:
    """What is kept of a target. A stored time stays where nothing else changed and that of now is none or much the same."""
    if old is None:
        return now
    stored, seconds = old.seconds_per_step, now.seconds_per_step
    if old.environment == now.environment and _essence(old) == _essence(now):
        keeps = not time or seconds is None or (stored is not None and not _differs(stored, seconds))
        return old if keeps else now
    if time:
        return now
    return replace(now, seconds_per_step=stored if old.environment == now.environment else None)


def _essence(state: TargetState) -> tuple[object, ...]:
    """What a change of the code changes: not the numbers of lines, nor the values of what is not reproducible."""
    parts = state.counters
    return parts.get("values"), parts.get("by_name"), {*parts.get("set_aside", ())}, {*parts.get("absent", ())}


def _differs(stored: Seconds, now: Seconds) -> bool:
    """Whether a step takes another time, as far as two measurements on different days can say.

    Where the quartiles meet it is a noisy hour as likely: an acceptance of that would speak for a slower step by accident.
    """
    return stored.is_apart_from(now) and abs(now.median / stored.median - 1) > SAME_TIME


def changes_between(before: Baseline, after: Baseline) -> tuple[str, ...]:
    """What differs, in words: findings that came and went, then counters, environment and time of each target."""
    old, new = Counter(before.findings), Counter(after.findings)
    came = [f"new finding {_in_words(known)}" for known in sorted((new - old).elements())]
    went = [f"gone: finding {_in_words(known)}" for known in sorted((old - new).elements())]
    of_targets = [
        f"{name} {words}"
        for name, state in sorted(after.targets.items())
        for words in _target_changes(before.targets.get(name), state)
    ]
    return (*came, *went, *of_targets)


def _in_words(known: Known) -> str:
    return f"{known.rule} in {known.path or 'the environment'}: {known.message}"


def _target_changes(old: TargetState | None, new: TargetState) -> list[str]:
    if old is None:
        return ["is new"]
    before, after = counter_values(old), counter_values(new)
    differing = differences(old.environment, new.environment)
    changes = [f"{name} {was} -> {now}" for name, (was, now) in differing.items()]
    other = [name for name in sorted(before.keys() | after.keys()) if before.get(name) != after.get(name)]
    changes += [f"{name} {before.get(name, 'not counted')} -> {after.get(name, 'not counted')}" for name in other]
    if not changes and _essence(old) != _essence(new):
        changes.append("counters have other parts with the same sums, or others are set aside")
    stored, seconds = old.seconds_per_step, new.seconds_per_step
    if seconds and seconds != stored:
        changes.append(
            f"step {f'{1000 * stored.median:.4g} ms' if stored else 'not timed'} -> {1000 * seconds.median:.4g} ms"
        )
    return changes


def new_acceptances(head: Baseline | None, base: Baseline | None) -> tuple[Acceptance, ...]:
    """The entries that the reference's file does not hold, in their order; all of them where it has no file."""
    left = Counter(base.accepted if base else ())
    new = []
    for entry in head.accepted if head else ():
        if left[entry] > 0:
            left[entry] -= 1
        else:
            new.append(entry)
    return tuple(new)


def acceptances_since(head: Baseline | None, base_file: Path, stands_for: Path) -> tuple[tuple[Acceptance, ...], str]:
    """The acceptances made since a reference, and a note in words, "" where there is nothing to say.

    base_file: the baseline in the reference's worktree; stands_for: where it lies in the user's project. No such file is
    no fault. Of one that cannot be read it is not known what it accepts, so nothing counts as new, and the note says so.
    """
    if head is None or not head.accepted:
        return (), ""
    try:
        base = gate_baseline_if_there(base_file, stands_for)
    except ConfigError as error:
        return (
            (),
            f"nothing counts as accepted by this change, because the reference's baseline cannot be read: {error}",
        )
    return new_acceptances(head, base), ""


def with_acceptances(counters: CountersVerdict, head: Baseline | None, new: Sequence[Acceptance]) -> CountersVerdict:
    """The verdict on counters where the project has accepted growth in this change.

    Growth is accepted up to what the baseline of this change says, exactly; what is above has regressed all the same.
    """
    why = _why(new, counters.target)
    state = head.targets.get(counters.target) if head else None
    if counters.verdict != "regressed" or not why or state is None:
        return counters
    stored = counter_values(state)
    changes, beyond = [], []
    for change in counters.changes:
        open_ = change.grew and not change.allowed and not change.accepted
        if open_ and stored.get(change.counter) == change.after:
            change = replace(change, accepted=why)
        elif open_:
            taken = stored.get(change.counter, "nothing")
            beyond.append(f"{change.counter} is accepted at {taken}, it is {change.after} now")
        changes.append(change)
    reason = "; ".join(filter(None, [counters.reason, *beyond]))
    return replace(counters, verdict="regressed" if beyond else "accepted", changes=tuple(changes), reason=reason)


def time_with_acceptances(verdict: TimeVerdict, new: Sequence[Acceptance]) -> TimeVerdict:
    """The verdict on time where the project has accepted a slower step of this target in this change."""
    why = _why([entry for entry in new if entry.time], verdict.target)
    if verdict.verdict != "regressed" or not why:
        return verdict
    return replace(verdict, verdict="accepted", accepted=why)


def findings_with_acceptances(
    verdict: FindingsVerdict, findings: tuple[Finding, ...], head: Baseline | None, new: Sequence[Acceptance]
) -> tuple[FindingsVerdict, tuple[Finding, ...]]:
    """The verdict on new findings, and those of them that the baseline of this change does not hold.

    A finding of the file alone is not accepted: only an acceptance made in this change speaks for what it brings.
    """
    if verdict.verdict != "regressed" or head is None or not new:
        return verdict, findings
    left, taken, _ = compared_with_known(findings, head.findings, (), frozenset())
    if not taken:
        return verdict, findings
    reasons = tuple(dict.fromkeys(entry.reason for entry in new))
    return (
        replace(
            verdict,
            verdict="regressed" if left else "accepted",
            new=len(left),
            accepted=verdict.accepted + taken,
            reason=verdict.reason or f"accepted: {'; '.join(reasons)}",
        ),
        left,
    )


def _why(new: Sequence[Acceptance], target: str) -> str:
    """The reason of the latest acceptance that names a target, "" where none does."""
    return next((entry.reason for entry in reversed(new) if target in entry.targets), "")
