"""One knob searched on one target: what looks best in a first look is raced, as patched source, in fresh processes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from perfaudit.findings import Fix, Location
from perfaudit.knobs import Bench, Knob, Probe, Refused, Reply, Survey, Told, Unanswered, knob
from perfaudit.knobs._code import Patch
from perfaudit.measure.child import Child, ChildFailed
from perfaudit.measure.clock import Deadline
from perfaudit.measure.facts import Facts
from perfaudit.measure.judge import clock_for, hopeless_variants, settled_variants
from perfaudit.measure.ledger import Ledger, Variant
from perfaudit.measure.runner import BLOCK_SECONDS, ROUNDS, TrialFailed, affordable, measure
from perfaudit.measurements import NO_TIME, ClockName, NotApplicable, Settings
from perfaudit.static.ondisk import digest_of
from perfaudit.tune.bout import Bout, key_of, variant_of
from perfaudit.tune.first_look import finalists_of, is_clear, is_raced_in_place, known_seconds, look
from perfaudit.tune.short_names import variant_name
from perfaudit.tune.tuning import Tuning
from perfaudit.tune.verify import Verifier

FINALISTS = 2  # the fastest of the first look, and beside them the smallest that is not much slower
RACED_AT_ONCE = 3  # candidates that need no first look: four processes that each hold the model
NOT_MUCH = 1.10  # time per sample against the fastest of the first look, whose two rounds tell no finer
SCREENING_ROUNDS = 2
SHORT_ROUNDS, SHORT_BLOCK_SECONDS = 1, 0.12  # of a race that shows once more what the first look has shown clearly
LEAST_ASKING = 20.0  # seconds that a question may take however little time there is: building the training is in it
FEWEST_GENERATIONS = 2  # without which there is no interval: fewer candidates are raced rather than for nothing
FEWEST_RACED = 2  # the current setting and another one, once
NO_LINE = "no patch could be made of it without a doubt; named alone it is measured all the same, and told in words"
CHANGED = "your source changed while it was measured"
PROBING_SHARE = 0.3  # of a knob's time, for asking what fits into memory and the like
SCREENING_SHARE = 0.4  # of a knob's time, at most; the race is what the verdict rests on


def search(
    tuning: Tuning,
    name: str,
    deadline: Deadline,
    memory_budget: int,
) -> None:
    """Search one knob; the result is in `tuning`, complete or as far as it came."""
    module = knob(name)
    tuning.build()
    survey = tuning.survey
    reason = module.not_applicable(survey) or (pointless(module, survey) if tuning.skips_idle else "")
    late = ""
    step = tuning.calibration.seconds_per_step if tuning.calibration is not None else tuning.seconds_per_step
    ledger = Ledger(seconds_to_open=tuning.seconds_to_open, seconds_per_step=step)
    if not reason and affordable(ledger, deadline.left(), 1) < FEWEST_RACED:
        late = NO_TIME
    if not reason and not late:
        late = too_little_time(module, deadline)
    if reason or late:
        tuning.not_applicable.append(NotApplicable(name, reason or late, late=bool(late)))
        return
    tuning.watch.stage(f"{name}: {module.title}")
    bout = Bout(name, survey, _base(tuning, module), tuning.share_of(name), tuning.computes_alone(), ledger)
    bout.variants[bout.base.key] = bout.base
    bout.ledger.on_block = lambda key, seconds: tuning.watch.block(variant_name(bout.variants[key].settings), seconds)
    tuning.bouts.append(bout)
    probing = tuning.deadline(PROBING_SHARE * deadline.left())
    bench = bench_of(tuning, bout, memory_budget, probing, deadline.left())
    refused = ""
    try:
        tried = _added(bout, module.candidates(bench))
        if not tried:
            told = Told(survey, (), (), bout.kept, None)
            refused = " ".join([module.kept_words(told) or "there is nothing else to try here", *module.remarks(told)])
    except Refused as refusal:
        refused = str(refusal)
    if refused:
        tuning.bouts.remove(bout)
        tuning.not_applicable.append(NotApplicable(name, refused))
        return
    screening = tuning.deadline(SCREENING_SHARE * deadline.left())
    if is_raced_in_place(module) and look(
        tuning, bout, tried, lambda variant: _text_of(tuning, bout, variant), screening
    ):
        tried = finalists_of(bout)
    elif len(tried) > RACED_AT_ONCE:
        _screen(tuning, bout, tried, screening)
        tried = _finalists(bout, module)
    if module.measures_memory:
        for variant in bout.variants.values():
            if variant.key not in bout.peaks and variant.key not in bout.ledger.failures:
                bench.probe(variant.settings)
    _race(tuning, bout, module, [v for v in tried if v.key not in bout.ledger.failures], deadline)


def _base(tuning: Tuning, module: Knob) -> Variant:
    base = variant_of(module.name, module.current(tuning.survey))
    return base if module.base_is_applied else replace(base, applied="")


def too_little_time(module: Knob, deadline: Deadline) -> str:
    """Why a knob that takes long is not begun; "" where it has its time."""
    if deadline.left() >= module.seconds_needed:
        return ""
    return (
        f"it needs {module.seconds_needed:.0f} s of measuring and had {deadline.left():.0f} s; give it longer "
        f"with --budget, or search it alone with --{module.name.replace('_', '-')}"
    )


def pointless(module: Knob, survey: Survey) -> str:
    """Why the profile of the step says that a knob cannot gain what it would have to."""
    share = module.share(survey)
    if share >= module.min_gain:
        return ""
    phases = module.gains_from or module.phases
    if idle := module.idle_words(survey):
        return idle
    what = " and ".join(phases)
    verb = "take" if len(phases) > 1 else "takes"
    return f"{what.replace('_', ' ')} {verb} {100 * share:.1f} % of the step, so there is next to nothing to gain"


def _text_of(tuning: Tuning, bout: Bout, variant: Variant) -> dict[str, str]:
    found = patch_for(tuning, bout.name, bout.survey, variant)
    return found[0].overlay if found is not None else {}


def _added(bout: Bout, settings: list[Settings]) -> list[Variant]:
    """These settings as variants of the bout, those that are new."""
    new = [variant_of(bout.name, s) for s in settings if key_of(bout.name, s) not in bout.variants]
    bout.variants.update({variant.key: variant for variant in new})
    return new


def bench_of(tuning: Tuning, bout: Bout, memory_budget: int, deadline: Deadline, seconds: float) -> Bench:
    """What a knob may ask; its questions go to processes of their own. deadline: for asking; seconds: of the whole search."""

    def probe(settings: Settings) -> Probe:
        variant = variant_of(bout.name, settings)
        tuning.watch.opening(variant_name(settings))
        try:
            _, reply = tuning.ask(f"memory {variant.key}", variant, {"do": "memory"})
        except ChildFailed as failure:
            bout.variants.setdefault(variant.key, variant)
            bout.ledger.failures[variant.key] = str(failure)
            return Probe(settings, failure=str(failure), out_of_memory=failure.kind == "oom")
        bout.peaks[variant.key] = reply["peak_bytes"]
        return Probe(settings, reply["peak_bytes"], reply["resident_bytes"], reply.get("taken_bytes"))

    def ask(settings: Settings, question: str, timeout: float = tuning.timeout, **arguments: Any) -> Reply:
        variant = variant_of(bout.name, settings)
        timeout = min(timeout, max(LEAST_ASKING, deadline.left() / PROBING_SHARE))
        command = {
            "do": "ask",
            "knob": variant.applied,
            "question": question,
            "arguments": arguments,
            "timeout": timeout,
        }
        key = (
            f"{question} {variant.key}"  # without arguments that the clock or free memory set: a resumed run asks again
        )
        try:
            return tuning.ask(key, variant, command)[1]
        except ChildFailed as failure:
            raise Unanswered(str(failure), failure.kind == "oom") from failure

    return Bench(bout.survey, tuning.cores, memory_budget, probe, ask, bout.kept, deadline.left, seconds)


def _screen(tuning: Tuning, bout: Bout, added: list[Variant], deadline: Deadline) -> None:
    """A first look at many settings, in one generation of processes: it chooses, and judges nothing.

    Where time is short, the last of them are not looked at.
    """
    room = max(1, affordable(bout.ledger, deadline.left(), 1) - 1)
    measure(
        tuning.workshop.lab(), [bout.base, *added[:room]], bout.ledger, deadline, 1, f"{bout.name} first look",
        generations=1, rounds=SCREENING_ROUNDS, memo=tuning.record,
    )  # fmt: skip


def _finalists(bout: Bout, module: Knob) -> list[Variant]:
    skip = {bout.base.key, _reference_key(module)}
    speed = _speed(bout)
    order = sorted((v for v in bout.variants.values() if v.key not in skip and bout.ledger.blocks(v.key)), key=speed)
    if not order:
        return []
    finalists = order[:FINALISTS]
    near = [variant for variant in order if speed(variant) <= NOT_MUCH * speed(order[0])]
    smallest = min(near, key=lambda variant: module.size(variant.settings))
    return finalists if smallest in finalists else [*finalists, smallest]


def _race(tuning: Tuning, bout: Bout, module: Knob, chosen: list[Variant], deadline: Deadline) -> None:
    """The current setting against the chosen ones in fresh processes, each as the patched source where there is one."""
    reference = bout.variants.get(_reference_key(module))
    beside = [reference] if reference is not None and reference.key != bout.base.key else []
    room = affordable(bout.ledger, deadline.left(), FEWEST_GENERATIONS) - 1 - len(beside)
    chosen = chosen[: max(1, room)]
    if not chosen:
        return
    bout.finalists = [_as_patched(tuning, bout, variant) for variant in chosen]
    reference = bout.variants.get(_reference_key(module))
    beside = [reference] if reference is not None and reference.key != bout.base.key else []
    checked = [v for v in bout.finalists if v.key in bout.patched or module.is_checked(v.settings)]
    changes = {variant.key: _promised(bout, module, variant) for variant in checked}
    with Verifier(bout.base.key, changes, tuning.reference, bout.ledger.checked, tuning.memory_limit) as verifier:

        def check(child: Child, variant: Variant, facts: Facts) -> None:
            if variant.key in bout.patched and not module.holds(replace(bout.survey, facts=facts), variant.settings):
                raise TrialFailed(f"the patched source does not build {module.words(variant.settings, bout.survey)}")
            verifier.check(child, variant, facts)

        def settled(ledger: Ledger) -> set[str]:
            clock, stage = clock_of(bout), race_of(bout)
            ledger.given_up |= hopeless_variants(ledger, bout.base, bout.finalists, stage, clock)
            return ledger.given_up | settled_variants(
                ledger, bout.base, bout.finalists, least_gain(bout), stage, clock,
                lambda variant: module.phases_for(variant.settings),
            )  # fmt: skip

        lab = tuning.workshop.lab(check)
        is_short = all(is_clear(bout, variant) for variant in bout.finalists)
        rounds, block = (SHORT_ROUNDS, SHORT_BLOCK_SECONDS) if is_short else (ROUNDS, BLOCK_SECONDS)
        measure(
            lab, [bout.base, *bout.finalists, *beside], bout.ledger, deadline, 2, race_of(bout), rounds=rounds,
            block_seconds=block, settled=settled, memo=tuning.record, known=known_seconds(bout) if is_short else None,
        )  # fmt: skip


def _promised(bout: Bout, module: Knob, variant: Variant) -> tuple[str, ...]:
    if variant.key in bout.patched:
        return bout.patched[variant.key][0].changes
    return module.promised(variant.settings, bout.survey)


def _as_patched(tuning: Tuning, bout: Bout, variant: Variant) -> Variant:
    """The setting as the source that would have it; as it is where that source cannot be written."""
    found = patch_for(tuning, bout.name, bout.survey, variant)
    if found is None:
        return variant
    patched, fix, location = found
    bout.patched[variant.key] = (fix, location)
    bout.variants[variant.key] = patched
    return patched


def patch_for(tuning: Tuning, name: str, survey: Survey, variant: Variant) -> tuple[Variant, Fix, Location] | None:
    """A setting as patched source: the variant to measure, the fix, and where it stands; None where none can be written."""
    written = fix_for(tuning, name, survey, variant.settings)
    if written is None:
        return None
    patch, fix = written
    return replace(variant, overlay={patch.path: patch.after}, applied=""), fix, patch.location


def fix_for(tuning: Tuning, name: str, survey: Survey, settings: Settings) -> tuple[Patch, Fix] | None:
    """The patch that makes this the setting, and the same as a fix with its title; None where none can be written."""
    module = knob(name)
    patch = module.patch(tuning.code(), settings)
    if patch is None:
        return None
    changes = patch.changes if patch.changes is not None else module.changes(settings)
    words, before = module.words(settings, survey), digest_of(patch.path, patch.before)
    return patch, Fix(words, "unsafe" if changes else "safe", changes, patch.edits, patch.diff, before)


def least_gain(bout: Bout) -> float:
    """The share that must be gained of what is compared, so that the knob's least gain of the whole step comes of it."""
    return min(0.5, knob(bout.name).min_gain / max(bout.share, 1e-6))


def race_of(bout: Bout) -> str:
    """The stage of the ledger on which verdicts rest; the first look chose, so it does not count."""
    return f"{bout.name} race"


def clock_of(bout: Bout) -> ClockName:
    """The clock by which this knob's settings are compared."""
    return clock_for(bout.ledger, bout.base, knob(bout.name).in_process and bout.alone)


def _reference_key(module: Knob) -> str:
    return key_of(module.name, module.reference) if module.reference is not None else ""


def _speed(bout: Bout) -> Any:  # a sort key
    def seconds_per_sample(variant: Variant) -> float:
        blocks = sorted(block.seconds_per_step for block in bout.ledger.blocks(variant.key))
        return blocks[len(blocks) // 2] / bout.ledger.samples_per_step(variant.key)

    return seconds_per_sample
