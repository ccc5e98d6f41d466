"""What a knob's search found: trials, comparisons, the winner with its words. Reads ledgers, measures nothing."""

from __future__ import annotations

import math
import statistics
from dataclasses import replace

from perfaudit.knobs import Tokens, Told, knob
from perfaudit.measure.entrants import BEATEN, CONTROL, FUTILE
from perfaudit.measure.judge import comparison, saving, trial
from perfaudit.measure.ledger import Variant
from perfaudit.measure.stats import LOOKS, quartiles, smallest_callable, verdict
from perfaudit.measurements import Comparison, Settings, Trial, Winner, settings_text
from perfaudit.tune.bout import Bout, key_of, variant_of
from perfaudit.tune.first_look import smallest_as_good
from perfaudit.tune.losses import was_compared
from perfaudit.tune.race_results import Raced
from perfaudit.tune.search import clock_of, least_gain, race_of
from perfaudit.tune.too_short import is_too_short

UNDECIDED = "keep what you have: the budget was too small to decide anything"
TOO_SHORT = "keep what you have: the training is too short to decide anything"
LAST_LOOK = "this race made all its rounds, so a longer budget shows no more"


def trials_of(bout: Bout) -> list[Trial]:
    """Every setting tried; what it adds to the knob's reference is filled in where there is one."""
    module = knob(bout.name)
    trials = []
    for variant in sorted(bout.variants.values(), key=lambda v: module.order(v.settings)):
        peak = bout.peaks.get(variant.key) or module.peak_bytes(variant.settings, bout.kept)
        entry = trial(bout.ledger, variant, peak, module.metric)
        if entry.status == "not_measured" and bout.look is not None:
            entry = _trial_with_look(bout, bout.look, variant, entry)
        if module.reference is not None and variant.settings != module.reference and entry.status == "ok":
            entry = replace(entry, added_seconds=_added_seconds(bout, variant_of(bout.name, module.reference), variant))
        trials.append(entry)
    return trials


def _trial_with_look(bout: Bout, look: Raced, variant: Variant, entry: Trial) -> Trial:
    """A setting as the race in one training has shown it; the user's own as its control, which is the same code."""
    if variant.key in look.refused:
        return replace(entry, status="failed", reason=look.refused[variant.key])
    seen = look.entrants.get(CONTROL if variant.key == bout.base.key else variant.key)
    if seen is None:
        return entry
    if not seen.seconds:
        return replace(entry, status="failed", reason=f"not raced: {seen.left}") if seen.left else entry
    samples = tuple(seen.seconds)
    middle, low, high = quartiles(samples)
    if entry.metric == "samples_per_second":
        size = bout.survey.facts.loader.batch_size or bout.ledger.samples_per_step(bout.base.key)
        middle, low, high = size / middle, size / high, size / low
    return replace(entry, status="ok", median=middle, low=low, high=high, n=len(samples), reason="", samples=samples)


def _added_seconds(bout: Bout, reference: Variant, variant: Variant) -> tuple[float, float | None, float | None] | None:
    """Seconds per step that a setting adds to the reference: middle and interval; None where that cannot be said."""
    compared = comparison(
        bout.ledger, reference, variant, phases=knob(bout.name).phases_on(bout.survey, variant.settings)
    )
    blocks = bout.ledger.blocks(reference.key)
    if compared is None or not blocks:
        return None
    step = statistics.median(block.seconds_per_step for block in blocks)
    if compared.high == math.inf:
        return (compared.ratio - 1) * step, None, None
    return (compared.ratio - 1) * step, (compared.low - 1) * step, (compared.high - 1) * step


def comparisons_of(bout: Bout) -> list[Comparison]:
    """Each setting that was raced against the current one: whole steps, and before them the piece that the knob changes."""
    module = knob(bout.name)
    clock, least = clock_of(bout), least_gain(bout)
    found = []
    for variant in (*bout.refuted, *bout.finalists):
        phases, stage = module.phases_on(bout.survey, variant.settings), race_of(bout, variant)
        looks = bout.refuted_looks if variant in bout.refuted else bout.looks
        if phases:
            found.append(comparison(bout.ledger, bout.base, variant, stage, phases, least=least, looks=looks))
        found.append(comparison(bout.ledger, bout.base, variant, stage, clock=clock, least=least, looks=looks))
    known = [replace(compared, without_loading=module.fixed_batch) for compared in found if compared is not None]
    return [*known, *_screened_comparisons(bout, {key_of(bout.name, compared.candidate) for compared in known})]


def _screened_comparisons(bout: Bout, measured: set[str]) -> list[Comparison]:
    """The settings that were raced in one training, but for those that were measured in fresh processes after it."""
    found = []
    for key, seen in (bout.look.entrants if bout.look is not None else {}).items():
        if key in measured or key not in bout.variants or not seen.quads:
            continue
        assert bout.look is not None
        middle = math.exp(statistics.median(bout.look.log_ratios[key]))
        ratio, low, high = seen.interval or (middle, 0.0, math.inf)
        smallest = smallest_callable(low, high) if math.isfinite(high) else None
        found.append(
            Comparison(
                bout.name, bout.base.settings, bout.variants[key].settings, ratio, low, high, verdict(low, high),
                seen.quads, smallest=smallest, given_up=seen.left in (FUTILE, BEATEN), basis="screened",
                way=bout.look.ways.get(key, ""),
            )
        )  # fmt: skip
    return found


def decisive_comparisons(bout: Bout, compared: list[Comparison]) -> dict[str, Comparison]:
    """By key, the comparison that decides about a setting: of the piece where the knob has one, else of the step.

    Where the whole step excludes what the piece promises (it got slower, or its interval lies above the piece's), the step
    decides: something else changed with the piece.
    """
    decisive: dict[str, Comparison] = {}
    for c in compared:
        key = key_of(bout.name, c.candidate)
        if key not in decisive or (c.of == "step" and (c.verdict == "slower" or c.low > decisive[key].high)):
            decisive[key] = c
    return decisive


def winner_of(bout: Bout, interrupted: bool = False) -> Winner:
    """The setting to take: the smallest that is as good as the best one shown to be faster, else the current one.

    Its patch is left out where its losses were not compared with those of the user's code.
    """
    module = knob(bout.name)
    everything = comparisons_of(bout)
    compared = decisive_comparisons(bout, everything)
    taken = _fastest(bout, compared)
    told = _results_for_knob(bout, everything, taken)
    remarks = tuple(module.remarks(told))
    if taken is None:
        words = module.kept_words(told) or _why_kept(bout, compared, module.min_gain, interrupted)
        return Winner(bout.name, bout.base.settings, True, words, remarks=remarks)
    fix, location = bout.patched.get(taken.key, (None, None))
    checked, how = bout.ledger.checked.get(taken.key, ""), module.handed_over(taken.settings, bout.survey)
    if fix is not None and not was_compared(checked):
        fix, how = None, f"its patch is not handed over: {checked or 'its losses were not compared'}"
    words = module.words(taken.settings, bout.survey)
    saved = saving(bout.ledger, bout.base, compared[taken.key], bout.share)
    return Winner(bout.name, taken.settings, False, words, saved, fix, location, checked, remarks, how)


def _fastest(bout: Bout, compared: dict[str, Comparison]) -> Variant | None:
    """Of the settings that were measured to gain what they must, the smallest that is as good as the best; None for none."""
    faster = {key: c for key, c in compared.items() if c.basis == "measured" and c.verdict == "faster"}
    least, failures = least_gain(bout), bout.ledger.failures
    ratios = {key: c.ratio for key, c in faster.items() if 1 - c.high >= least and key not in failures}
    best = smallest_as_good(ratios, lambda key: knob(bout.name).size(bout.variants[key].settings))
    return bout.variants[best] if best is not None else None


def _results_for_knob(bout: Bout, compared: list[Comparison], taken: Variant | None) -> Told:
    """What a knob is told of its search, for its remarks and words."""

    def seconds_in(settings: Settings, phase: str) -> float | None:
        blocks = bout.ledger.blocks(key_of(bout.name, settings))
        timed = [block.phases_per_step((phase,)) for block in blocks if phase in block.phases]
        return statistics.median(timed) if timed else None

    def tokens_in(settings: Settings) -> Tokens | None:
        key = key_of(bout.name, settings)
        blocks = bout.ledger.blocks(key)
        if not blocks or not bout.ledger.tells_tokens(key):
            return None
        tokens, padding = sum(block.tokens for block in blocks), sum(block.padding for block in blocks)
        steps, seconds = sum(block.steps for block in blocks), sum(block.wall for block in blocks)
        return Tokens(tokens / steps, padding / (tokens + padding), seconds / tokens)

    chosen = taken.settings if taken is not None else None
    return Told(bout.survey, trials_of(bout), compared, bout.kept, chosen, seconds_in, tokens_in)


def _why_kept(bout: Bout, compared: dict[str, Comparison], least: float, interrupted: bool) -> str:
    if bout.base.key in bout.ledger.failures:
        return f"nothing to say: your own setting failed: {bout.ledger.failures[bout.base.key]}"
    slow = [c for c in compared.values() if c.given_up]
    if slow and len(slow) == len(compared):
        return "keep what you have: " + ", ".join(_look_words(c) for c in slow)
    promising = [c for c in compared.values() if _waits_for_a_race(bout, c, least)]
    undecided = bool(promising) or all(c.high == math.inf and not c.given_up for c in compared.values())
    if undecided and interrupted:
        return "keep what you have: interrupted before anything was decided"
    failed = [v for v in bout.variants.values() if v.key != bout.base.key and v.key in bout.ledger.failures]
    if chosen := [v for v in bout.finalists if promising and v in failed]:
        return f"keep what you have: {'; '.join(_failure_words(bout, variant) for variant in chosen)}"
    if undecided and failed and len(failed) == len(bout.variants) - 1:
        return f"keep what you have: {'; '.join(_failure_words(bout, variant) for variant in failed)}"
    gone = _gone_in_look(bout)
    if undecided and gone and len(gone) == len(bout.variants) - 1:
        return "keep what you have: " + "; ".join(gone)
    if undecided:
        needs_race = any(math.isfinite(c.high) for c in promising)  # of fresh processes, which a longer budget has
        is_short = bout.look is not None and (bout.look.gave_up or (is_too_short(bout.look) and not needs_race))
        unraced = [c for c in compared.values() if c.basis == "measured" and not c.says_something]
        return TOO_SHORT if is_short else _faster_in_look(bout, [*promising, *unraced]) or UNDECIDED
    if all(c.verdict == "slower" for c in compared.values()):
        return "keep what you have: everything raced against it is slower"
    if faster := [c for c in compared.values() if c.verdict == "faster"]:
        certain = max(1 - c.high for c in faster)
        must = f"a change must gain {100 * least:.0f} %"
        return f"keep what you have: only {100 * certain:.1f} % is certain to be gained, and {must}"
    smallest = max((c.smallest for c in compared.values() if c.smallest is not None), default=None)
    seen = f"; effects under {100 * smallest:.1f} % could not have been seen" if smallest is not None else ""
    hopeful = [c for c in compared.values() if c.basis == "measured" and 1 - c.low >= least]
    over = f"; {LAST_LOOK}" if hopeful and all(_had_last_look(bout, c) for c in hopeful) else ""
    return f"keep what you have: nothing else was shown to gain {100 * least:.0f} % or more{seen}{over}"


def _waits_for_a_race(bout: Bout, c: Comparison, least: float) -> bool:
    """Whether a setting may gain what it must by the race in one training, and had no time for a race of fresh processes."""
    if c.basis != "screened" or c.given_up or 1 - c.low < least or bout.look is None:
        return False
    key = key_of(bout.name, c.candidate)
    return key in {variant.key for variant in bout.finalists} or not bout.look.entrants[key].left


def _faster_in_look(bout: Bout, open_ones: list[Comparison]) -> str:
    """That the race in one training has shown one of these to be faster, and that fresh processes have not; "" of none."""
    known = (
        [(c, bout.look.interval(key_of(bout.name, c.candidate))) for c in open_ones] if bout.look is not None else []
    )
    faster = [(interval, c) for c, interval in known if interval is not None and verdict(*interval[1:]) == "faster"]
    if not faster:
        return ""
    interval, c = min(faster, key=lambda item: item[0])
    (ratio, low, high), setting = interval, _changed_text(c.candidate, c.baseline)
    before = (
        "it was raced in fresh processes" if c.basis == "screened" else "its race in fresh processes had an interval"
    )
    return (
        f"keep what you have: {setting} looks faster ({ratio:.3f} [{low:.3f}, {high:.3f}], screened); the budget ended before "
        f"{before}: give it longer with --budget"
    )


def _failure_words(bout: Bout, variant: Variant) -> str:
    """Why a setting is measured no more, on one line: the trials have the whole of it."""
    why = bout.ledger.failures[variant.key].strip().partition("\n")[0]
    return f"{_changed_text(variant.settings, bout.base.settings)}: {why}"


def _gone_in_look(bout: Bout) -> list[str]:
    """Each setting that has left the race in one training without an interval, and why: a step raises with it, say."""
    seen = bout.look.entrants if bout.look is not None else {}
    found = []
    for variant in bout.variants.values():
        entrant = seen.get(variant.key)
        if variant is not bout.base and entrant is not None and entrant.left and entrant.interval is None:
            found.append(f"{_changed_text(variant.settings, bout.base.settings)}: {entrant.left}")
    return found


def _had_last_look(bout: Bout, c: Comparison) -> bool:
    """Whether it has had all generations of processes that a race has."""
    key = key_of(bout.name, c.candidate)
    return bout.ledger.generations_with(bout.base.key, key, race_of(bout)) >= LOOKS[-1].generations


def _look_words(c: Comparison) -> str:
    said = _changed_text(c.candidate, c.baseline)
    if c.ratio < 1.005:
        return f"{said} looked no faster"
    return f"{said} looked {100 * (c.ratio - 1):.0f} % slower and was not measured further"


def _changed_text(settings: Settings, base: Settings) -> str:
    """What of a setting is not as in the base's."""
    changed = {key: value for key, value in settings.items() if base.get(key) != value}
    return settings_text(changed or settings)
