"""What differs between two states of a baseline, in words that are kept with an acceptance and read in its review."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from perfaudit.gate.baseline import Baseline, TargetState, counter_values
from perfaudit.gate.comparable import differences
from perfaudit.static.baseline import Known


def changes_between(before: Baseline, after: Baseline) -> tuple[str, ...]:
    """What differs, in words: findings and targets that came and went, then environment, counters and time of each target."""
    old, new = Counter(before.findings), Counter(after.findings)
    came = [f"new finding {_in_words(known)}" for known in sorted((new - old).elements())]
    went = [f"gone: finding {_in_words(known)}" for known in sorted((old - new).elements())]
    of_targets = [
        f"{name} {words}"
        for name, state in sorted(after.targets.items())
        for words in _target_changes(before.targets.get(name), state)
    ]
    left = [f"{name} is gone" for name in sorted(before.targets.keys() - after.targets.keys())]
    return (*came, *went, *left, *of_targets)


def _in_words(known: Known) -> str:
    return f"{known.rule} in {known.path or 'the environment'}: {known.message}"


def _target_changes(old: TargetState | None, new: TargetState) -> list[str]:
    if old is None:
        return ["is new"]
    before, after = counter_values(old), counter_values(new)
    differing = differences(old.environment, new.environment)
    changes = [f"{name} {was} -> {now}" for name, (was, now) in differing.items()]
    if old.names != new.names:
        changes.append(f"factories {factory_words(old.names)} -> {factory_words(new.names)}")
    if str(old.script or "") != str(new.script or ""):
        changes.append(f"{old.script or 'factories'} -> {new.script or 'factories'}")
    other = [name for name in sorted(before.keys() | after.keys()) if before.get(name) != after.get(name)]
    changes += [f"{name} {before.get(name, 'not counted')} -> {after.get(name, 'not counted')}" for name in other]
    if not changes and essence(old) != essence(new):
        changes.append("counters have other parts with the same sums, or others are set aside")
    stored, seconds = old.seconds_per_step, new.seconds_per_step
    if seconds and seconds != stored:
        changes.append(
            f"step {f'{1000 * stored.median:.4g} ms' if stored else 'not timed'} -> {1000 * seconds.median:.4g} ms"
        )
    return changes


def factory_words(names: Mapping[str, str]) -> str:
    """The factories of a target in words: "model make_a, step my_step"."""
    return ", ".join(f"{role} {name}" for role, name in sorted(names.items())) or "found by their names"


def essence(state: TargetState) -> tuple[object, ...]:
    """What a change of the code changes: not the numbers of lines, nor the values of what is not reproducible."""
    parts = state.counters
    return parts.get("values"), parts.get("by_name"), {*parts.get("set_aside", ())}, {*parts.get("absent", ())}
