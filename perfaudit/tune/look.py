"""The first look of a climb at every patch on the user's code: it says who comes first, and judges nothing."""

from __future__ import annotations

import math
import statistics
from dataclasses import replace

from perfaudit.knobs import Bench, Probe, Refused, Reply, Unanswered, knob
from perfaudit.measure.clock import Deadline
from perfaudit.measure.ledger import Ledger, Variant, wall
from perfaudit.measure.runner import affordable, least_seconds, measure
from perfaudit.tune.final import START
from perfaudit.tune.search import patch_for
from perfaudit.tune.shares import at_once
from perfaudit.tune.tuning import Climb, Tuning, digest_of_texts, variant_of

AT_ONCE = 4  # patches beside the user's code in one look: five processes that each hold the model
ROUNDS = 3


def gains_per_second(tuning: Tuning, state: Climb, knobs: list[str], deadline: Deadline) -> dict[str, float]:
    """By knob, the share of the step gained in the worst of its rounds, per second that one generation of it takes.

    Knobs that must ask before they know their candidates, those that take long to compile, and those whose settings change
    how batches are loaded are not looked at; nor is what the time is not enough for.
    """
    tuning.watch.stage("a first look at every patch")
    patched = [variant for name in knobs for variant in _patches(tuning, state, name)]
    base = replace(START, key="look", fixed_batch=True)
    gains: dict[str, float] = {}
    many = min(AT_ONCE, at_once(tuning, state.start_bytes) - 1)
    for number in range(0, len(patched), many):
        group = patched[number : number + many]
        share = tuning.deadline(deadline.left() / math.ceil((len(patched) - number) / many))
        if affordable(Ledger(seconds_to_open=tuning.seconds_to_open), share.left(), 1) < len(group) + 1:
            break
        for name, gain in _looked(tuning, base, group, share).items():
            gains[name] = max(gain, gains.get(name, -math.inf))
    return gains


def _looked(tuning: Tuning, base: Variant, group: list[Variant], deadline: Deadline) -> dict[str, float]:
    """The same of some patches side by side, in one generation of processes."""
    ledger = Ledger(seconds_to_open=tuning.seconds_to_open)
    settings = {variant.key: variant.settings for variant in [base, *group]}
    ledger.on_block = lambda key, seconds: tuning.watch.block(settings[key], seconds)
    stage = f"look {digest_of_texts(*(variant.overlay for variant in group))}"
    measure(
        tuning.workshop.lab(), [base, *group], ledger, deadline, 4, stage, generations=1, rounds=ROUNDS,
        memo=tuning.record,
    )  # fmt: skip
    gains: dict[str, float] = {}
    for variant in group:
        rounds = [value for found in ledger.log_ratios(base.key, variant.key, stage, wall) for value in found]
        if rounds:
            ledger.seconds_per_step = statistics.median(b.seconds_per_step for b in ledger.blocks(variant.key))
            gain = (1 - math.exp(max(rounds))) / max(least_seconds(ledger), 1e-9)
            gains[variant.knob] = max(gain, gains.get(variant.knob, -math.inf))
    return gains


def _patches(tuning: Tuning, state: Climb, name: str) -> list[Variant]:
    """A knob's settings as patched source, those that are allowed and known without asking."""
    module = knob(name)
    if not module.fixed_batch or module.seconds_needed:
        return []

    def silent(*_: object, **__: object) -> Reply:
        raise Unanswered("nothing is asked in a first look")

    bench = Bench(tuning.facts, tuning.cores, 0, lambda s: Probe(s, failure="not tried"), silent)
    try:
        candidates = module.candidates(bench)
    except (Unanswered, Refused):
        return []
    found = (patch_for(tuning, name, tuning.facts, variant_of(name, settings)) for settings in candidates)
    return [patch[0] for patch in found if patch is not None and set(patch[1].changes) <= state.allow]
