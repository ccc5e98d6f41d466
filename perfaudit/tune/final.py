"""The last race of a climb: all patches together against the user's code, and against themselves without each one."""

from __future__ import annotations

import math
from dataclasses import replace

from perfaudit.measure.child import Child
from perfaudit.measure.clock import Deadline
from perfaudit.measure.facts import Facts
from perfaudit.measure.judge import comparison, settled_variants
from perfaudit.measure.ledger import Ledger, Variant
from perfaudit.measure.runner import measure
from perfaudit.measure.stats import settled
from perfaudit.measurements import Comparison, Settings
from perfaudit.static.layers import text_of, without
from perfaudit.tune.shares import LARGEST_RACE, at_once, seconds_to_decide
from perfaudit.tune.tuning import Accepted, Climb, Final, Tuning, digest_of_texts
from perfaudit.tune.verify import Verifier

MARGIN = 1.8  # times what the races before it suggest: losses are compared in it, and workers warmed up (photo_resnet)
LEAST = 0.01  # of the step; a rung that for certain gains less in the presence of all others is taken out again
KNOB = "climb"  # in the place of a knob's name: its variants are patches, and nothing is applied at run time
START = Variant("as it is", KNOB, {"patch": "none"}, apply_knob=False)


def seconds_for_final(tuning: Tuning, state: Climb) -> float:
    """What the final race must be left, with one more rung: the user's code, all rungs, all but each of them."""
    return MARGIN * _seconds_for(tuning, state, 3 + len(state.rungs))


def _seconds_for(tuning: Tuning, state: Climb, variants: int) -> float:
    opening = max([tuning.seconds_to_open, *(rung.seconds_to_open for rung in state.rungs)])
    return seconds_to_decide(tuning, variants, opening)


def final_race(tuning: Tuning, state: Climb, deadline: Deadline) -> None:
    """Race what was accepted; while a rung is shown not to pay any more, take it out and, where time is left, race again.

    Where memory does not hold so many trainings side by side, or time is short, only the whole is raced. The last
    race is in `state.final` from its beginning, so that an interruption keeps it; where no time was left for it, what an
    earlier one said stays.
    """
    while state.rungs:
        top = Variant("all", KNOB, {"patch": "all"}, texts_of(state), apply_knob=False)
        variants = 2 + len(state.rungs)
        fits = variants <= min(LARGEST_RACE, at_once(tuning, state.start_bytes))
        fits = fits and deadline.left() >= _seconds_for(tuning, state, variants)
        lacking = _lacking(state) if fits else {}
        stage = f"final {digest_of_texts(top.overlay, *(variant.overlay for variant, _ in lacking.values()))}"
        untested = [r.winner.knob for n, r in enumerate(state.rungs) if n not in lacking and len(state.rungs) > 1]
        tuning.watch.stage("all of it against your code, and against itself without each patch")
        earlier, ledger = state.final, Ledger(seconds_to_open=tuning.seconds_to_open)
        state.final = Final(ledger, START, top, stage, tuple(untested))
        _race(tuning, state, ledger, top, lacking, stage, deadline)
        failed = {START.key, top.key} & ledger.failures.keys()
        if not failed and _against(ledger, START, top, stage) is None and (earlier or not ledger.generations):
            state.final = earlier
            return
        worst = _no_longer_pays(ledger, top, lacking, stage)
        if worst is None:
            return
        at, why = worst
        state.dropped.append((state.rungs[at], why, at))
        variant, state.rungs = lacking[at]
        state.final = Final(ledger, START, variant, stage, tuple(untested))


def texts_of(state: Climb, rungs: list[Accepted] | None = None) -> dict[str, str]:
    """By path, the text with all rungs, or with these."""
    rungs = state.rungs if rungs is None else rungs
    paths = dict.fromkeys(rung.path for rung in rungs)
    return {
        path: text_of(state.originals[path][0], [rung.edits for rung in rungs if rung.path == path]) for path in paths
    }


def _lacking(state: Climb) -> dict[int, tuple[Variant, list[Accepted]]]:
    """By number, all rungs but that one, with the edits they then have; those on which a later one builds are missing."""
    found = {}
    for number, rung in enumerate(state.rungs):
        rest = _without(state, number) if len(state.rungs) > 1 else None
        if rest is not None:
            name = rung.winner.knob
            settings: Settings = {"patch": f"all but {name}"}
            texts = texts_of(state, rest)
            found[number] = Variant(f"without {name}", KNOB, settings, texts, apply_knob=False), rest
    return found


def _without(state: Climb, number: int) -> list[Accepted] | None:
    path = state.rungs[number].path
    same = [rung for rung in state.rungs if rung.path == path]
    kept = without(state.originals[path][0], [rung.edits for rung in same], same.index(state.rungs[number]))
    if kept is None:
        return None
    edits = iter(kept)
    others = [rung for at, rung in enumerate(state.rungs) if at != number]
    return [replace(rung, edits=next(edits)) if rung.path == path else rung for rung in others]


def _race(
    tuning: Tuning,
    state: Climb,
    ledger: Ledger,
    top: Variant,
    lacking: dict[int, tuple[Variant, list[Accepted]]],
    stage: str,
    deadline: Deadline,
) -> None:
    """Race them into the ledger, with the losses of all checked against those of the user's code."""
    others = [variant for variant, _ in lacking.values()]
    variants = [START, top, *others]
    settings = {variant.key: variant.settings for variant in variants}
    ledger.on_block = lambda key, seconds: tuning.watch.block(settings[key], seconds)
    changes = {variant.key: state.changes for variant in variants[1:]}
    with Verifier(START.key, changes, tuning.reference, ledger.checked, tuning.memory_limit) as verifier:

        def check(child: Child, variant: Variant, facts: Facts) -> None:
            verifier.check(child, variant, facts)

        def done(ledger: Ledger) -> set[str]:
            decided = {v.key for v in others if v.key in ledger.failures or _is_settled(ledger, v, top, stage)}
            if len(decided) == len(others):
                decided |= settled_variants(ledger, START, [top], LEAST, stage)
            return decided

        measure(tuning.workshop.lab(check), variants, ledger, deadline, 5, stage, settled=done, memo=tuning.record)


def _against(ledger: Ledger, other: Variant, top: Variant, stage: str) -> Comparison | None:
    """All rungs over the user's code or over all but one, None without an interval."""
    seen = comparison(ledger, other, top, stage, least=LEAST)
    return seen if seen is not None and math.isfinite(seen.high) else None


def _is_settled(ledger: Ledger, lacking: Variant, top: Variant, stage: str) -> bool:
    seen = _against(ledger, lacking, top, stage)
    return seen is not None and settled(seen.low, seen.high, LEAST)


def _no_longer_pays(
    ledger: Ledger, top: Variant, lacking: dict[int, tuple[Variant, list[Accepted]]], stage: str
) -> tuple[int, str] | None:
    """The number of the rung that for certain gains less than LEAST beside the others, the most certain one, and words."""
    compared = {
        number: seen
        for number, (variant, _) in lacking.items()
        if variant.key not in ledger.failures
        and (seen := _against(ledger, variant, top, stage)) is not None
        and seen.low > 1 - LEAST
    }
    if not compared:
        return None
    worst = max(compared, key=lambda number: compared[number].low)
    c = compared[worst]
    return worst, f"beside the others it takes {c.ratio:.3f} [{c.low:.3f}, {c.high:.3f}] of the time without it"
