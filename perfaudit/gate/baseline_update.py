"""The baseline file after a change that is wanted: what there is now, why it was accepted, and how much slower it may be."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from perfaudit.errors import UserError
from perfaudit.gate.baseline import Acceptance, Baseline, TargetState, counter_values
from perfaudit.gate.baseline_changes import changes_between, essence
from perfaudit.gate.comparable import Seconds, compare_fingerprints
from perfaudit.quantities import percent

SAME_TIME = 0.01  # of a step: the slowdown that never fails; a time that is this near the stored one is no change
WORK = ("operators", "flops", "bytes_allocated")  # counters that tell how much longer a step that does more may take


def update_baseline(
    before: Baseline | None,
    now: Baseline,
    reason: str,
    at: str,
    time: bool = True,
    slower: float | None = None,
    gone: Collection[str] = (),
) -> tuple[Baseline, tuple[str, ...]]:
    """The baseline with what is now in it and why, and what changed in words; the same one, and (), where nothing did.

    before: None where there is no file yet; all of now is new then. now: all findings that the file shall hold, and the
    targets that were counted; others stay as they were, without those that are gone. at: the day, as "2026-11-22". The
    entry names the targets whose counters are not what the file said, and by how much the step of each may be slower:
    `slower` for all targets of now, as a share of the step; without it, as much as its work grew (`_growth`). A stored time
    that changed speaks for no slower step: it is too noisy for a bound. time: False to keep stored times and to accept no
    slower step. Raises UserError for an empty reason, and for `slower` without a target.
    """
    if not reason.strip():
        raise UserError(
            'an acceptance needs a reason, which is kept: perfaudit gate update --accept "why it is wanted"'
        )
    if slower is not None and not now.targets:
        raise UserError("a slower step is accepted of a target; name one: perfaudit gate update train.py …")
    old = before or Baseline()
    targets = {name: _state_to_keep(old.targets.get(name), state, time) for name, state in now.targets.items()}
    left = {name: state for name, state in old.targets.items() if name not in gone}
    after = replace(old, findings=now.findings, targets={**left, **targets})
    bounds = _bounds(old.targets, targets, slower) if time else {}
    words = [f"{name} may be up to {percent(share)} slower" for name, share in sorted(bounds.items())]
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
    """The largest relative growth among the counters of WORK, by sample; 0 where nothing grew, or nothing is comparable:
    in another environment, or of other factories.

    A sample takes longer by about as much as is done more for it, unless that is of another kind: a host sync may cost far
    more than the two operators it consists of. That has to be accepted in so many words.
    """
    if old is None or old.names != now.names or old.script != now.script:
        return 0.0
    if compare_fingerprints(old.environment, now.environment).level == "nothing":
        return 0.0
    before, after = counter_values(old), counter_values(now)
    batches = [values.get("samples", 0) for values in (before, after)]
    larger = batches[1] / batches[0] if all(batches) else 1.0  # times of unequal batches are compared by sample too
    grown = [after[name] / before[name] / larger - 1 for name in WORK if name in after and before.get(name)]
    return max(grown, default=0.0)


def _is_recounted(old: TargetState | None, now: TargetState) -> bool:
    return old is None or essence(old) != essence(now)


def _state_to_keep(old: TargetState | None, now: TargetState, time: bool) -> TargetState:
    """What is kept of a target. A stored time stays where nothing else changed and that of now is none or much the same."""
    if old is None:
        return now
    stored, seconds = old.seconds_per_step, now.seconds_per_step
    is_same = (old.environment, old.names, old.script) == (now.environment, now.names, now.script)
    if is_same and essence(old) == essence(now):
        keeps = not time or seconds is None or (stored is not None and not _differs(stored, seconds))
        return old if keeps else now
    if time:
        return now
    return replace(now, seconds_per_step=stored if is_same else None)


def _differs(stored: Seconds, now: Seconds) -> bool:
    """Whether a step takes another time, as far as two measurements on different days can say.

    Where the quartiles meet it is a noisy hour as likely, and no change to be kept.
    """
    return stored.is_apart_from(now) and abs(now.median / stored.median - 1) > SAME_TIME
