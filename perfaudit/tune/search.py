"""One knob searched on one target: what looks best in a first look is raced, as patched source, in fresh processes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from perfaudit.knobs import REFUTED, Bench, Knob, Probe, Refused, Reply, Survey, Told, Unanswered, knob
from perfaudit.measure.child import Child, ChildFailed
from perfaudit.measure.clock import Deadline
from perfaudit.measure.facts import Facts
from perfaudit.measure.generations import ROUNDS, affordable, measure
from perfaudit.measure.judge import clock_for, comparison, hopeless_variants, settled_variants
from perfaudit.measure.ledger import Ledger, Variant
from perfaudit.measure.runner import BLOCK_SECONDS, TrialFailed
from perfaudit.measure.stats import LOOKS, LOOKS_OF_LARGE
from perfaudit.measurements import NO_TIME, ClockName, NotApplicable, Settings, computing
from perfaudit.tune.bout import Bout, key_of, patch_for, variant_of
from perfaudit.tune.first_look import is_clear, is_raced_in_place, known_seconds, look
from perfaudit.tune.profile import Profile
from perfaudit.tune.session import Session
from perfaudit.tune.short_names import variant_name
from perfaudit.tune.verify import Verifier

FINALISTS = 2  # the fastest of the first look, and beside them the smallest that is not much slower
RACED_AT_ONCE = 3  # candidates that need no first look: four processes that each hold the model
NOT_MUCH = 1.10  # time per sample against the fastest of the first look, whose two rounds tell no finer
SCREENING_ROUNDS = 2
SHORT_ROUNDS, SHORT_BLOCK_SECONDS = 1, 0.12  # of a race that shows once more what the first look has shown clearly
LEAST_ASKING = 20.0  # seconds that a question may take however little time there is: building the training is in it
FEWEST_GENERATIONS = 2  # without which there is no interval: fewer candidates are raced rather than for nothing
FEWEST_RACED = 2  # the current setting and another one, once
NO_LINE = "no line of yours was found that could be edited for it with certainty"
CHANGED = "your source changed while it was measured"
PROBING_SHARE = 0.3  # of a knob's time, for asking what fits into memory and the like
SCREENING_SHARE = 0.4  # of a knob's time, at most; the race is what the verdict rests on


def search(
    session: Session, profile: Profile, name: str, deadline: Deadline, begun: list[Bout]
) -> Bout | NotApplicable:
    """Search one knob. begun: has the search from its beginning, as far as it came, so that an interruption can report it."""
    module, survey = knob(name), profile.survey
    reason = module.why_not(survey) or (pointless(module, survey) if session.skips_idle else "")
    if reason:
        return NotApplicable(name, reason)
    ledger = Ledger(
        seconds_to_open=profile.seconds_to_open, seconds_per_step=profile.calibrated_seconds_per_step,
        by_tokens=module.counts_tokens,
    )  # fmt: skip
    has_time = affordable(ledger, deadline.seconds_left(), 1) >= FEWEST_RACED
    if late := too_little_time(module, deadline) if has_time else NO_TIME:
        return NotApplicable(name, late, late=True)
    session.watch.stage(f"{name}: {module.title}")
    share = computing(survey.profile) if module.fixed_batch and not survey.facts.is_script else 1.0
    bout = Bout(name, survey, _base(survey, module), share, profile.computes_alone, ledger)
    bout.variants[bout.base.key] = bout.base
    bout.ledger.on_block = lambda key, seconds: session.watch.block(variant_name(bout.variants[key].settings), seconds)
    begun.append(bout)
    probing = session.deadline(PROBING_SHARE * deadline.seconds_left())
    bench = bench_of(session, bout, probing, deadline.seconds_left())
    try:
        wanted = module.candidates(bench)
        bout.prediction = module.prediction(bench, wanted)
        tried = _add_variants(bout, wanted if bout.prediction is None else [bout.prediction.settings])
        if not tried:
            told = Told(survey, (), (), bout.kept, None)
            why = module.kept_words(told) or "there is nothing else to try here"
            raise Refused(" ".join([why, *module.remarks(told)]))
    except Refused as refusal:
        begun.remove(bout)
        return NotApplicable(name, str(refusal))
    _choose_and_race(session, profile, bout, bench, tried, deadline)
    if bout.prediction is not None and (why := _refutation(bout)):
        others = _add_variants(bout, wanted)
        if others and affordable(bout.ledger, deadline.seconds_left(), FEWEST_GENERATIONS) >= FEWEST_RACED:
            bout.refuted, bout.refuted_looks = bout.finalists, bout.looks
            bout.kept[REFUTED], bout.prediction, bout.finalists = why, None, []
            _choose_and_race(session, profile, bout, bench, others, deadline)
    return bout


def _choose_and_race(
    session: Session, profile: Profile, bout: Bout, bench: Bench, tried: list[Variant], deadline: Deadline
) -> None:
    """The best of these in a first look, if they are looked at, raced against the current setting."""
    module = knob(bout.name)
    screening = session.deadline(SCREENING_SHARE * deadline.seconds_left())
    has_look = is_raced_in_place(module) and bout.prediction is None
    looked = look(session, profile, bout, tried, screening) if tried and has_look else None
    if looked is not None:
        tried = looked
    elif len(tried) > RACED_AT_ONCE:
        _screen(session, bout, tried, screening)
        tried = _finalists(bout, module)
    if module.measures_memory:
        for variant in bout.variants.values():
            if variant.key not in bout.peaks and variant.key not in bout.ledger.failures:
                bench.probe(variant.settings)
    chosen = [variant for variant in tried if variant.key not in bout.ledger.failures]
    _race(session, profile.with_calibration(bout.calibration), bout, module, chosen, deadline)


def _refutation(bout: Bout) -> str:
    """Why the predicted setting is not the one to take, as the race has shown; "" where it is, or where time ran out."""
    for variant in bout.finalists:
        if failure := bout.ledger.failures.get(variant.key):
            return f"failed ({failure})"
        last = bout.ledger.generations_with(bout.base.key, variant.key, race_of(bout)) >= bout.looks[-1].generations
        clock, least = clock_of(bout), least_gain(bout)
        found = comparison(bout.ledger, bout.base, variant, race_of(bout), clock=clock, least=least, looks=bout.looks)
        if (last or variant.key in _settled_keys(bout)) and found is not None and found.verdict != "faster":
            return "did not prove faster in fresh processes"
    return ""


def _settled_keys(bout: Bout) -> set[str]:
    """Keys of finalists on which the race needs no more measuring, or which look too slow for any."""
    clock, stage, ledger, module = clock_of(bout), race_of(bout), bout.ledger, knob(bout.name)
    ledger.given_up |= hopeless_variants(ledger, bout.base, bout.finalists, stage, clock, bout.looks)
    return ledger.given_up | settled_variants(
        ledger, bout.base, bout.finalists, least_gain(bout), stage, clock,
        lambda variant: module.phases_on(bout.survey, variant.settings), bout.looks,
    )  # fmt: skip


def _base(survey: Survey, module: Knob) -> Variant:
    base = variant_of(module.name, module.current(survey))
    return base if module.base_is_applied else replace(base, applied="")


def too_little_time(module: Knob, deadline: Deadline) -> str:
    """Why a knob that takes long is not begun; "" where it has its time."""
    if deadline.seconds_left() >= module.seconds_needed:
        return ""
    had = f"it needs {module.seconds_needed:.0f} s of measuring and had {deadline.seconds_left():.0f} s"
    return f"{had}; give it longer with --budget"


def by_name(name: str) -> str:
    """That a knob without a patch can be measured all the same."""
    return f"--{name.replace('_', '-')} measures it without a patch and says what to change"


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


def _add_variants(bout: Bout, settings: list[Settings]) -> list[Variant]:
    """These settings as variants of the bout, those that are new."""
    new = [variant_of(bout.name, s) for s in settings if key_of(bout.name, s) not in bout.variants]
    bout.variants.update({variant.key: variant for variant in new})
    return new


def bench_of(session: Session, bout: Bout, deadline: Deadline, seconds: float) -> Bench:
    """What a knob may ask; its questions go to processes of their own. deadline: for asking; seconds: of the whole search."""

    def probe(settings: Settings) -> Probe:
        variant = variant_of(bout.name, settings)
        session.watch.opening(variant_name(settings))
        try:
            _, reply = session.questions.ask(f"memory {variant.key}", variant, {"do": "memory"})
        except ChildFailed as failure:
            bout.variants.setdefault(variant.key, variant)
            bout.ledger.failures[variant.key] = str(failure)
            return Probe(settings, failure=str(failure), out_of_memory=failure.kind == "oom")
        bout.peaks[variant.key] = reply["peak_bytes"]
        return Probe(settings, reply["peak_bytes"], reply["resident_bytes"], reply.get("taken_bytes"))

    def ask(settings: Settings, question: str, timeout: float = session.timeout, **arguments: Any) -> Reply:
        variant = variant_of(bout.name, settings)
        timeout = min(timeout, max(LEAST_ASKING, deadline.seconds_left() / PROBING_SHARE))
        key = f"{question} {variant.key}"  # without arguments set by clock or free memory: a resumed run asks again
        module = knob(bout.name)
        is_as_it_is = settings == module.current(bout.survey) and not module.base_is_applied
        if is_as_it_is and (session.target.is_script or not module.asks_for_memory):
            variant = Variant("as it is", "", {})  # which a process that waits can be asked
        return ask_knob(session, module, key, variant, question, arguments, timeout)

    memory = session.memory_budget
    return Bench(bout.survey, session.cores, memory, probe, ask, bout.kept, deadline.seconds_left, seconds)


def ask_knob(
    session: Session, module: Knob, key: str, variant: Variant, question: str, arguments: Reply, timeout: float
) -> Reply:
    """What a knob wants to know of this variant, in a process of its own; key: under which that is kept. Raises Unanswered."""
    command = {"do": "ask", "knob": module.found_at, "question": question, "arguments": arguments, "timeout": timeout}
    try:
        return session.questions.ask(key, variant, command)[1]
    except ChildFailed as failure:
        raise Unanswered(str(failure), failure.kind == "oom") from failure


def _screen(session: Session, bout: Bout, added: list[Variant], deadline: Deadline) -> None:
    """A first look at many settings, in one generation of processes: it chooses, and judges nothing.

    Where time is short, the last of them are not looked at.
    """
    room = max(1, affordable(bout.ledger, deadline.seconds_left(), 1) - 1)
    measure(
        session.workshop.lab(), [bout.base, *added[:room]], bout.ledger, deadline, 1, f"{bout.name} first look",
        generations=1, rounds=SCREENING_ROUNDS, block_seconds=BLOCK_SECONDS, memo=session.record,
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


def _race(
    session: Session, profile: Profile, bout: Bout, module: Knob, chosen: list[Variant], deadline: Deadline
) -> None:
    """The current setting against the chosen ones in fresh processes, each as the patched source where there is one."""
    reference = bout.variants.get(_reference_key(module))
    beside = [reference] if reference is not None and reference.key != bout.base.key else []
    room = affordable(bout.ledger, deadline.seconds_left(), FEWEST_GENERATIONS) - 1 - len(beside)
    chosen = chosen[: max(1, room)]
    if not chosen:
        return
    bout.finalists = [_as_patched(session, bout, variant) for variant in chosen]
    reference = bout.variants.get(_reference_key(module))
    beside = [reference] if reference is not None and reference.key != bout.base.key else []
    checked = [v for v in bout.finalists if v.key in bout.patched or module.is_checked(v.settings)]
    changes = {variant.key: _promised_changes(bout, module, variant) for variant in checked}
    own = session.questions.reference(profile)
    averages = frozenset(bout.patched if bout.name == "ema" else ())
    with Verifier(
        bout.base.key, changes, own, bout.ledger.checked, session.memory_limit, of_average=averages
    ) as verifier:

        def check(child: Child, variant: Variant, facts: Facts) -> None:
            patched = replace(bout.survey, facts=facts)
            if variant.key in bout.patched and not module.holds(patched, variant.settings):
                raise TrialFailed(f"the patched source does not build {module.words(variant.settings, bout.survey)}")
            if variant.key in bout.patched and (lost := module.spoils(bout.survey, patched)):
                raise TrialFailed(lost)
            verifier.check(child, variant, facts)

        is_short = all(is_clear(bout, variant) for variant in bout.finalists)
        rounds, block = (SHORT_ROUNDS, SHORT_BLOCK_SECONDS) if is_short else (ROUNDS, BLOCK_SECONDS)
        known = known_seconds(bout) if is_short else {}
        bout.looks = LOOKS_OF_LARGE if is_short else LOOKS
        lab = session.workshop.lab(check, verifier.start_of, known)
        measure(
            lab, [bout.base, *bout.finalists, *beside], bout.ledger, deadline, 2, race_of(bout), rounds=rounds,
            block_seconds=block, settled=lambda ledger: _settled_keys(bout), memo=session.record, known=known, looks=bout.looks,
        )  # fmt: skip


def _promised_changes(bout: Bout, module: Knob, variant: Variant) -> tuple[str, ...]:
    if variant.key in bout.patched:
        return bout.patched[variant.key][0].changes
    return module.changes_in_place(variant.settings, bout.survey)


def _as_patched(session: Session, bout: Bout, variant: Variant) -> Variant:
    """The setting as the source that would have it; as it is where that source cannot be written."""
    found = patch_for(session, bout, variant)
    if found is None:
        return variant
    patched, fix, location = found
    bout.patched[variant.key] = (fix, location)
    bout.variants[variant.key] = patched
    return patched


def least_gain(bout: Bout) -> float:
    """The share that must be gained of what is compared, so that the knob's least gain of the whole step comes of it."""
    return min(0.5, knob(bout.name).min_gain / max(bout.share, 1e-6))


def race_of(bout: Bout, variant: Variant | None = None) -> str:
    """The stage of the ledger on which verdicts rest; the first look chose, so it does not count.

    variant: of the race in which this one was, the last one without it.
    """
    is_second = bool(bout.refuted) and variant not in bout.refuted
    return f"{bout.name} race of others" if is_second else f"{bout.name} race"


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
