"""A gate against a baseline file: findings and counters of now against those it holds; its times are advice."""

from __future__ import annotations

from pathlib import Path

from perfaudit.config import Config
from perfaudit.decoding import Value
from perfaudit.errors import UserError
from perfaudit.gate.baseline import TargetState, gate_baseline_if_there, read_gate_baseline
from perfaudit.gate.baseline_changes import factory_words
from perfaudit.gate.comparable import Comparable, Seconds, compare_fingerprints, fingerprint, stored_time
from perfaudit.gate.counters_compared import compare_counters
from perfaudit.gate.counting import count
from perfaudit.gate.new_findings import against_known
from perfaudit.gate.request import Known, Request, as_stored, inside_here, new_counters, own_names, take_findings
from perfaudit.gate.settings import GateSettings, baseline_in
from perfaudit.gate.step_time import step_time
from perfaudit.gate.target_counters import Counted
from perfaudit.measure.child import ChildFailed
from perfaudit.measure.environment import host
from perfaudit.measure.watch import Watch
from perfaudit.target.names import Target
from perfaudit.verdicts import CountersVerdict, TimeVerdict


def against_file(request: Request, known: Known, watch: Watch) -> None:
    """Judge findings and counters against the file that the settings name, into `known`. Raises UserError."""
    settings = request.settings
    name = settings.baseline or baseline_in(Path.cwd())
    if not name:
        raise UserError(
            "nothing to compare with: name a commit (--against origin/main), or write a baseline (perfaudit gate init)"
        )
    known.against = name
    known.baseline = read_gate_baseline(Path(name))
    if "time" in settings.layers:
        raise UserError(f"{name} holds times as advice only; the time layer measures against a commit: --against REF")
    if not request.targets and not known.baseline.targets and request.layers != ("findings",):
        known.notes.append("no target: no file here defines factories, so counters are not judged")
    if "findings" in request.layers:
        watch.stage("scanning")
        take_findings(known, *against_known(known.baseline.findings, settings.paths, request.config))
    if "counters" in request.layers:
        targets = [inside_here(target) for target in request.targets]
        _tell_what_is_left(request, known, {target.label for target in targets})
        for target in targets:
            _judge(request, known, target, known.baseline.targets.get(target.label), watch)


def stored_targets(settings: GateSettings, config: Config) -> dict[str, bool]:
    """Targets here that the baseline to compare with holds counters of, as they are typed, and whether each is a script.

    {} for a gate against a commit, and without a file. Raises ConfigError for a file that cannot be read.
    """
    name = "" if settings.against else settings.baseline or baseline_in(Path.cwd())
    baseline = gate_baseline_if_there(Path(name)) if name else None
    return {
        label: state.script is not None
        for label, state in (baseline.targets if baseline else {}).items()
        if is_still_there(label, state, config) and not _is_outside(file_of(label, state))
    }


def is_still_there(label: str, state: TargetState, config: Config) -> bool:
    """Whether there is what a target of a baseline was: its file, and its name in the project file where it has one."""
    is_named = state.script is not None and label != str(state.script)
    return label in config.targets if is_named else Path(file_of(label, state)).is_file()


def file_of(label: str, state: TargetState) -> str:
    """The file of a target of a baseline."""
    return state.script.file if state.script is not None else label


def _is_outside(file: str) -> bool:
    return Path(file).is_absolute() or Path(file).parts[:1] == ("..",)


def _tell_what_is_left(request: Request, known: Known, judged: set[str]) -> None:
    """Say which targets of the file are not judged: on purpose where others were named, no pass where none was."""
    assert known.baseline is not None
    left = sorted(known.baseline.targets.keys() - judged)
    files = {label: file_of(label, state) for label, state in known.baseline.targets.items()}
    on_purpose = [each for each in left if request.settings.targets or (judged and _is_outside(files[each]))]
    if on_purpose:
        why = "not named" if request.settings.targets else "outside the working directory"
        known.notes.append(f"{known.against} has counters of {', '.join(on_purpose)} too, which are not judged: {why}")
    for each in sorted(set(left) - set(on_purpose)):
        why = "it lies outside the working directory: run the gate in the folder of that file"
        if not _is_outside(files[each]):
            gone = "file" if not Path(files[each]).is_file() else "name in [tool.perfaudit.targets]"
            why = f'there is no such {gone}; where that is wanted: perfaudit gate update --accept "why"'
        known.counters[each] = CountersVerdict(each, "failed", f"{known.against} has counters of it, and {why}")


def _judge(request: Request, known: Known, target: Target, state: TargetState | None, watch: Watch) -> None:
    """Judge one target by what the file says of it: its counters, and its time as advice."""
    if state is None:
        known.new_targets.add(target.label)
        known.counters[target.label] = new_counters(request, known, target, watch)
        return
    if words := _other_script(target, state) or _other_factories(target, state, request.config):
        known.counters[target.label] = CountersVerdict(target.label, "failed", f"{known.against} {words}")
        return
    target = as_stored(target, state, request.config)
    watch.stage(f"counting a step of {target.label}")
    try:
        now = count(target, None, request.device, request.timeout, enough=request.enough_seconds)
    except (ChildFailed, UserError) as failure:
        known.counters[target.label] = CountersVerdict(target.label, "failed", f"your code does not run: {failure}")
        return
    known.counted[target.label] = now
    comparable = compare_fingerprints(state.environment, fingerprint(now.training_facts, host()))
    known.counters[target.label] = _stored_counters(target.label, state, now, comparable, request.settings)
    if "time" in request.layers:
        known.times[target.label] = _stored_time(request, target, state.seconds_per_step, comparable, watch)


def _other_script(target: Target, state: TargetState) -> str:
    """In words, that a name stands for another script, or other arguments, than those that were counted; "" else."""
    if str(state.script or "") == (str(target) if target.is_script else ""):
        return ""
    was, now = (
        str(each) if each is not None else "factories" for each in (state.script, target if target.is_script else None)
    )
    return (
        f'has counters of it as {was}, and it is {now} now; where that is wanted: perfaudit gate update --accept "why"'
    )


def _other_factories(target: Target, state: TargetState, config: Config) -> str:
    """In words, that a target is asked for with other factories than those that were counted; "" else."""
    asked = own_names(target, config)
    if not asked or not state.names or asked == state.names:
        return ""
    return f"has counters of it with other factories ({factory_words(state.names)}) than those asked for ({factory_words(asked)})"


def _stored_time(
    request: Request, target: Target, stored: Seconds | None, comparable: Comparable, watch: Watch
) -> TimeVerdict:
    """What the stored time says; a step is timed only where both are of the same environment."""
    if stored is None or comparable.level != "all":
        return stored_time(target.label, stored, None, comparable)
    try:
        seconds, _ = step_time(target, request.device, request.timeout, watch)
    except UserError as failure:
        return stored_time(target.label, stored, None, comparable, str(failure))
    return stored_time(target.label, stored, seconds, comparable)


def _stored_counters(
    target: str, state: TargetState, now: Counted, comparable: Comparable, settings: GateSettings
) -> CountersVerdict:
    if comparable.level == "nothing":
        return CountersVerdict(target, "not_judged", f"not comparable: {comparable.reason}", dict(now.values))
    if not state.counters:
        return CountersVerdict(target, "not_judged", "the file holds no counters of it", dict(now.values))
    return compare_counters(target, Counted.from_json(Value(state.counters)), now, settings.tolerance)
