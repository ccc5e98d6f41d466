"""One knob searched on one target: screened in one generation of processes, the best raced in fresh ones, patched."""

from __future__ import annotations

import contextlib
import json
import math
import statistics
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from types import ModuleType
from typing import Any

from perfaudit.errors import NothingMeasured, TargetError, UserError
from perfaudit.findings import Finding, Fix, Location
from perfaudit.knobs import Bench, Probe, knob
from perfaudit.measure import environment
from perfaudit.measure.child import Child, ChildFailed
from perfaudit.measure.clock import Deadline, WallClock
from perfaudit.measure.lab import ChildLab, Facts, build_command
from perfaudit.measure.nursery import nursery
from perfaudit.measure.runner import (
    GENERATIONS,
    Ledger,
    TrialFailed,
    Variant,
    clock_for,
    comparison,
    measure,
    saving,
    trial,
)
from perfaudit.measurements import Comparison, Environment, NotApplicable, Settings, Trial, Winner
from perfaudit.target.names import Target, imported_modules, sets_variables_early
from perfaudit.tune.plan import merge, site_patch
from perfaudit.tune.verify import Verifier, losses_of
from perfaudit.tune.watch import Watch

FINALISTS = 2  # the fastest of the screening, and beside them the smallest that is not much slower
NOT_MUCH = 1.10  # time per sample against the fastest of the screening, whose two rounds tell no finer
AS_GOOD = 1.03  # time per sample against the best; a smaller setting this close is taken instead
SCREENING_ROUNDS = 2
PROBING_SHARE = 0.25  # of a knob's time, for finding out which settings fit into memory
SCREENING_SHARE = 0.45  # of a knob's time, at most; the race is what the verdict rests on


@dataclass(slots=True)
class Bout:
    """The state of one knob's search; it grows while measuring, so that an interruption can still report it."""

    name: str
    facts: Facts
    base: Variant
    ledger: Ledger = field(default_factory=Ledger)
    variants: dict[str, Variant] = field(default_factory=dict)
    patched: dict[str, tuple[Fix, Location]] = field(default_factory=dict)  # by key of a finalist
    said: dict[str, str] = field(default_factory=dict)
    peaks: dict[str, int] = field(default_factory=dict)
    finals: int | None = None  # index of the first generation of the final race
    finalists: list[Variant] = field(default_factory=list)


@dataclass(slots=True)
class Tuning:
    """What a tuning of one target has found so far."""

    target: Target
    device: str
    watch: Watch
    facts: Facts = field(default_factory=dict)
    environment: Environment | None = None
    bouts: list[Bout] = field(default_factory=list)
    not_applicable: list[NotApplicable] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    timeout: float = 120.0
    fresh: bool = False  # see `measure.child.Child`

    def __post_init__(self) -> None:
        """Have the libraries that the target imports ready for all children, unless it sets variables before importing."""
        self.fresh = sets_variables_early(self.target.file)
        parent = None if self.fresh else nursery()
        if parent is not None:
            self.watch.stage("importing torch")
            parent.preload(imported_modules(self.target.file))

    @property
    def target_json(self) -> dict[str, Any]:
        return {"file": self.target.file, "names": self.target.names}

    def survey(self) -> Facts:
        """Build the user's training once, as it is, and make a step. Raises TargetError when that fails."""
        if self.facts:
            return self.facts
        self.watch.stage(f"loading {self.target.file}")
        with Child(self.fresh) as child:
            try:
                command = build_command(self.target_json, Variant("survey", "", {}), self.device, 0)
                self.facts = child.ask(command, self.timeout)
                child.ask({"do": "block", "steps": 1}, self.timeout)
            except ChildFailed as failure:
                raise as_target_error(self.target, failure, self.timeout) from failure
        self.environment = environment_of(self.facts)
        return self.facts


def base_losses(tuning: Tuning) -> list[float]:
    """The first losses of the unpatched code in another process, to see whether it repeats itself; [] if it fails."""
    with Child(tuning.fresh) as child:
        try:
            child.ask(build_command(tuning.target_json, Variant("again", "", {}), tuning.device, 0), tuning.timeout)
            return losses_of(child)
        except ChildFailed:
            return []


def environment_of(facts: Facts) -> Environment:
    """The machine, with what a child said of torch and the device."""
    return environment.host(facts["device_name"], facts["torch"], facts["driver"], facts["threads"])


def as_target_error(target: Target, failure: ChildFailed, timeout: float) -> UserError:
    """The fault of a child as the message a user reads: TargetError while it loads, NothingMeasured once it trains."""
    if failure.kind == "step":
        return NothingMeasured(str(failure))
    if failure.kind == "timeout":
        return TargetError(f"{target.file}: {failure}; give it longer with --timeout (now {timeout:.0f} s)")
    if failure.kind == "crash":
        return TargetError(f"{target.file}: loading it ended the process: {failure}")
    if failure.kind == "oom":
        return NothingMeasured(f"{target.file}: one training step does not fit into memory: {failure}")
    return TargetError(str(failure))


def search(tuning: Tuning, name: str, deadline: Deadline, memory_budget: int, findings: list[Finding]) -> None:
    """Search one knob; the result is in `tuning`, complete or as far as it came.

    findings: of a scan of the target; their fixes are the patch where a knob has no call of its own to edit.
    """
    module = knob(name)
    facts = tuning.survey()
    reason = module.not_applicable(facts)
    if reason:
        tuning.not_applicable.append(NotApplicable(name, reason))
        return
    tuning.watch.stage(f"{name}: {module.TITLE}")
    now = _variant(name, module.current(facts))
    bout = Bout(name, facts, now, variants={now.key: now})
    bout.ledger.on_block = lambda key, seconds: tuning.watch.block(bout.variants[key].settings, seconds)
    tuning.bouts.append(bout)
    probing = new_deadline(PROBING_SHARE * deadline.left())
    bench = Bench(
        facts, environment.usable_cores(), memory_budget, lambda settings: _probe(tuning, bout, settings), probing.left
    )
    screening = new_deadline(SCREENING_SHARE * deadline.left())
    _screen(tuning, bout, module.candidates(bench), screening)
    best = _fastest(bout, exclude=set())
    if best is not None:
        more = [s for s in module.refine(bench, best.settings) if _key(name, s) not in bout.variants]
        if more:
            _screen(tuning, bout, more, screening, beside=[best])
    _race(tuning, bout, module, deadline, findings)


def _screen(
    tuning: Tuning, bout: Bout, settings: list[Settings], deadline: Deadline, beside: list[Variant] | None = None
) -> None:
    added = [_variant(bout.name, s) for s in settings if _key(bout.name, s) not in bout.variants]
    bout.variants.update({variant.key: variant for variant in added})
    lab = _lab(tuning)
    variants = list({v.key: v for v in [bout.base, *(beside or []), *added]}.values())
    rounds = getattr(knob(bout.name), "SCREENING_ROUNDS", SCREENING_ROUNDS)
    measure(lab, variants, bout.ledger, deadline, seed=1, generations=1, rounds=rounds)


def _race(tuning: Tuning, bout: Bout, module: ModuleType, deadline: Deadline, findings: list[Finding]) -> None:
    """The current setting against the fastest others in fresh processes, each as the patched source where there is one."""
    reference = getattr(module, "REFERENCE", None)
    skip = {bout.base.key} | ({_key(bout.name, reference)} if reference else set())
    order = sorted(
        (v for v in bout.variants.values() if v.key not in skip and v.key in bout.ledger.blocks), key=_speed(bout)
    )
    finalists = order[:FINALISTS]
    if order:
        speed = _speed(bout)
        near = [variant for variant in order if speed(variant) <= NOT_MUCH * speed(order[0])]
        smallest = min(near, key=lambda variant: module.size(variant.settings))
        finalists += [smallest] if smallest not in finalists else []
    racing = [patched for patched in [_patched_by_findings(bout, module, findings)] if patched is not None]
    if not finalists and not racing:
        return
    for variant in finalists:
        found = site_patch(module, bout.facts, variant.settings) if hasattr(module, "edits") else None
        if found is not None:
            fix, location, overlay = found
            bout.patched[variant.key] = (fix, location)
            variant = Variant(variant.key, variant.knob, variant.settings, overlay, apply_knob=False)
        racing.append(variant)
    bout.finalists = racing
    bout.finals = len(bout.ledger.rounds)
    changes = {v.key: module.changes() for v in racing if not v.apply_knob}
    with Verifier(bout.base.key, changes, lambda: base_losses(tuning), bout.said) as verifier:
        lab = _lab(tuning)

        def check(child: Child, variant: Variant, facts: Facts) -> None:
            expected = variant.settings if hasattr(module, "edits") else None
            if not variant.apply_knob and expected is not None and module.current(facts) != expected:
                raise TrialFailed(f"the patched source builds {module.current(facts)}, not {variant.settings}")
            verifier.check(child, variant, facts)

        lab.check = check
        extra = (
            [bout.variants[_key(bout.name, reference)]]
            if reference and _key(bout.name, reference) in bout.variants
            else []
        )
        base = bout.base
        if any(not v.apply_knob and not v.fixed_batch for v in racing):
            base = Variant(base.key, base.knob, base.settings, apply_knob=False)  # the user's source as it is
        measure(lab, [base, *racing, *extra], bout.ledger, deadline, seed=2, generations=GENERATIONS)


def _patched_by_findings(bout: Bout, module: ModuleType, findings: list[Finding]) -> Variant | None:
    """The user's code with the fixes of the findings that this knob prices, for knobs that say what that amounts to."""
    wanted = [f for f in findings if f.rule in module.RULES and f.fix is not None and f.fix.edits]
    if not hasattr(module, "patched") or not wanted or not bout.facts["has_ema"]:
        return None
    merged = merge(wanted)
    if merged is None:
        return None
    finding, overlay = merged
    settings = module.patched(module.current(bout.facts))
    variant = Variant(_key(bout.name, settings), bout.name, settings, overlay, apply_knob=False, fixed_batch=True)
    bout.variants[variant.key] = variant
    assert finding.fix is not None and finding.location is not None
    bout.patched[variant.key] = (finding.fix, finding.location)
    return variant


def _lab(tuning: Tuning) -> ChildLab:
    lab = ChildLab(tuning.target_json, tuning.device, timeout=tuning.timeout, fresh=tuning.fresh)
    lab.on_open = lambda variant: tuning.watch.opening(variant.settings)
    return lab


def _probe(tuning: Tuning, bout: Bout, settings: Settings) -> Probe:
    """One setting tried once in a process of its own: its peak memory, or why it failed."""
    variant = _variant(bout.name, settings)
    tuning.watch.opening(settings)
    with Child(tuning.fresh) as child:
        try:
            child.ask(build_command(tuning.target_json, variant, tuning.device, 0), tuning.timeout)
            reply = child.ask({"do": "memory"}, tuning.timeout)
        except ChildFailed as failure:
            bout.variants.setdefault(variant.key, variant)
            bout.ledger.failures[variant.key] = str(failure)
            return Probe(settings, failure=str(failure), out_of_memory=failure.kind == "oom")
    bout.peaks[variant.key] = reply["peak_bytes"]
    return Probe(settings, reply["peak_bytes"], reply["resident_bytes"])


def _key(name: str, settings: Settings) -> str:
    return f"{name} {json.dumps(settings, sort_keys=True)}"


def _variant(name: str, settings: Settings) -> Variant:
    return Variant(_key(name, settings), name, settings)


def _speed(bout: Bout) -> Any:  # a sort key
    def seconds_per_sample(variant: Variant) -> float:
        blocks = sorted(bout.ledger.blocks.get(variant.key, [math.inf]))
        return blocks[len(blocks) // 2] / bout.ledger.samples_per_step.get(variant.key, 1.0)

    return seconds_per_sample


def _fastest(bout: Bout, exclude: set[str]) -> Variant | None:
    measured = [v for v in bout.variants.values() if v.key in bout.ledger.blocks and v.key not in exclude]
    return min(measured, key=_speed(bout), default=None)


# ---- what was found ------------------------------------------------------------------------------------------------


def trials_of(bout: Bout) -> list[Trial]:
    """Every setting tried, in the order tried; what an average adds is filled in where there is a step without one."""
    module = knob(bout.name)
    reference = getattr(module, "REFERENCE", None)
    trials = []
    for variant in (
        sorted(bout.variants.values(), key=lambda v: module.order(v.settings))
        if hasattr(module, "order")
        else bout.variants.values()
    ):
        entry = trial(bout.ledger, variant, bout.peaks.get(variant.key), module.METRIC)
        if reference is not None and variant.settings != reference and entry.status == "ok":
            entry = replace(entry, added_seconds=_added(bout, _variant(bout.name, reference), variant))
        trials.append(entry)
    return trials


def _added(bout: Bout, reference: Variant, variant: Variant) -> tuple[float, float | None, float | None] | None:
    """Seconds per step that a setting adds to the reference: middle and interval; None where that cannot be said."""
    compared = comparison(bout.ledger, reference, variant, of_piece=True)
    blocks = bout.ledger.blocks.get(reference.key)
    if compared is None or not blocks:
        return None
    step = statistics.median(blocks)
    if compared.high == math.inf:
        return (compared.ratio - 1) * step, None, None
    return (compared.ratio - 1) * step, (compared.low - 1) * step, (compared.high - 1) * step


def comparisons_of(bout: Bout) -> list[Comparison]:
    """Each setting that was raced against the current one, by the race alone; the screening chose, so it does not count."""
    if bout.finals is None:
        return []
    module, facts = knob(bout.name), bout.facts
    of_piece = getattr(module, "OF_PIECE", False)
    computes_alone = (
        getattr(module, "IN_PROCESS", False) and facts["device"] == "cpu" and not facts["loader"]["num_workers"]
    )
    clock = clock_for(bout.ledger, bout.base, computes_alone)
    finals = slice(bout.finals, None)
    found = (comparison(bout.ledger, bout.base, variant, finals, of_piece, clock) for variant in bout.finalists)
    return [compared for compared in found if compared is not None]


def patch_of(bout: Bout, compared: Comparison) -> Fix | None:
    """The patch that was raced in this comparison, None where a setting was applied at run time."""
    return bout.patched.get(_key(bout.name, compared.candidate), (None, None))[0]


def winner_of(bout: Bout, interrupted: bool = False) -> Winner:
    """The setting to take: the smallest that is as good as the best one shown to be faster, else the current one."""
    module = knob(bout.name)
    compared = {_key(bout.name, c.candidate): c for c in comparisons_of(bout)}
    paying = [
        k
        for k, c in compared.items()
        if c.verdict == "faster" and 1 - c.high >= module.MIN_GAIN and k not in bout.ledger.failures
    ]
    if not paying:
        words = _why_kept(bout, compared, module.MIN_GAIN, interrupted)
        if hasattr(module, "without") and compared:
            words = module.without(bout.facts, min(compared.values(), key=lambda c: c.ratio).candidate) or words
        return Winner(bout.name, bout.base.settings, True, words)
    best = min(paying, key=lambda k: compared[k].ratio)
    close = [k for k in paying if compared[k].ratio <= compared[best].ratio * AS_GOOD]
    taken = min(close, key=lambda k: module.size(bout.variants[k].settings))
    variant, result = bout.variants[taken], compared[taken]
    fix, location = bout.patched.get(taken, (None, None))
    return Winner(
        bout.name,
        variant.settings,
        False,
        module.words(variant.settings, bout.facts),
        saving(bout.ledger, bout.base, result),
        fix,
        location,
        bout.said.get(taken, ""),
    )


def _why_kept(bout: Bout, compared: dict[str, Comparison], least: float, interrupted: bool) -> str:
    if bout.base.key in bout.ledger.failures:
        return f"nothing to say: your own setting failed: {bout.ledger.failures[bout.base.key]}"
    undecided = not compared or all(c.high == math.inf for c in compared.values())
    if undecided and interrupted:
        return "keep what you have: interrupted before anything was decided"
    if undecided:
        return "keep what you have: the budget was too small to decide anything, give it longer with --budget"
    if all(c.verdict == "slower" for c in compared.values()):
        return "keep what you have: everything raced against it is slower"
    return f"keep what you have: nothing else was shown to gain {100 * least:.0f} % or more"


@contextlib.contextmanager
def interruptible(notes: list[str]) -> Iterator[list[bool]]:
    """Ctrl-C and TERM inside end the block early and are remembered in the list it gives: [True] if it happened."""
    import signal

    happened = [False]

    def stop(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    previous = signal.signal(signal.SIGTERM, stop)
    try:
        yield happened
    except KeyboardInterrupt:
        happened[0] = True
        notes.append("interrupted; what was measured until then is in this report")
    finally:
        signal.signal(signal.SIGTERM, previous)


def new_deadline(seconds: float) -> Deadline:
    """A deadline on the machine's clock."""
    return Deadline(seconds, WallClock())
