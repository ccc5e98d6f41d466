"""The race of sets of ranks: what runs next, and what the runs so far say. Pure.

Of a generation each set of ranks gives one number: the median step of the slowest rank, since a step ends when all are
there. Sets are started afresh, so numbers of different generations are independent, and Student's interval over the ratios of
the generations holds (`measure.stats`).

A patch that changes which samples a step has is compared otherwise: by the mean of all steps, whose batches are long and short,
over the same samples, divided by the tokens that they have where masks tell these.
"""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field

from perfaudit.measure.stats import (
    LOOKS,
    TooFewRounds,
    interval_at,
    is_look,
    is_settled,
    quartiles,
    smallest_callable,
    verdict,
)
from perfaudit.measurements import NOT_CLAIMED, Comparison, Settings, Trial
from perfaudit.tune.ranks.patches import RankPatch
from perfaudit.tune.ranks.plan import generations_to_show

BASE, CONTROL = "your code", "identical code"
NUDGED = "your code with each gradient moved by its last bit"  # once, to see how far roundings carry the losses
SPOILED = "your code with gradients spoiled by chance"  # once, to see whether the losses tell that, where no norms do
KNOB = "ranks"  # in the place of a knob's name, whatever shares the model out
PATCH = "patch"  # the one setting of a set of ranks
LEAST_GAIN = 0.01  # of a step, by the lower end of the interval, for a patch to be worth having
HOPELESS = 1.1  # times the base's step in each of its first generations: such a patch is not run any more
HOPELESS_AFTER = 2  # generations
LOSSES = 10  # of each rank, that are compared, and as many norms of gradients
LOSS, NORM = "losses", "norms"
WHAT = {LOSS: "losses", NORM: "norms of gradients"}
MOST_GENERATIONS = LOOKS[-1].generations


@dataclass(frozen=True, slots=True)
class SetRun:
    """What a set of ranks has shown: seconds of a step, and the first losses, rank by rank; norms: of the gradients there.

    why: it has none of that; has_failed: for the script raised an error on a rank; all_ranks: what is said of each of them
    there. mean: seconds of a step, of the rank that takes longest, over whole windows of a sampler by length; tokens: of all
    ranks in a step, 0 where no mask tells; padding: its share of what batches hold, None likewise; spread: see
    `distributed.compare.spread_of_batches`.
    """

    seconds: float = 0.0
    losses: tuple[tuple[float, ...], ...] = ()
    why: str = ""
    has_failed: bool = False
    all_ranks: str = ""
    mean: float = 0.0
    tokens: float = 0.0
    padding: float | None = None
    spread: float | None = None
    norms: tuple[tuple[float, ...], ...] = ()


@dataclass(slots=True)
class Race:
    """The sets of all generations. settings: of each candidate by its key; changes: what else than speed it may change.

    now: the settings of the user's code. nudges, spoils: whether there is a text for NUDGED, and for SPOILED.
    """

    settings: dict[str, Settings]
    changes: dict[str, tuple[str, ...]]
    now: Settings = field(default_factory=dict)
    seed: int = 0
    nudges: bool = False
    spoils: bool = False
    generations: list[dict[str, SetRun]] = field(default_factory=list)
    failures: dict[str, str] = field(default_factory=dict)
    given_up: set[str] = field(default_factory=set)

    def admit(self, candidates: Sequence[RankPatch]) -> None:
        """Race these, too, from the next generation on. Each is called by its patch: another one's file has no such setting."""
        for each in candidates:
            self.settings[each.key], self.changes[each.key] = {PATCH: each.key}, each.fix.changes

    def order(self) -> list[str]:
        """The sets of the next generation, in random order; [] where nothing is open any more."""
        done = len(self.generations)
        if BASE in self.failures or not self.open():
            return []
        keys = [BASE, CONTROL, *self.open(), *([NUDGED] if self.nudges and not done else [])]
        if self.spoils and done == 1 and not all(map(self._tells_gradients, self.open())):
            keys.append(SPOILED)
        random.Random(self.seed + done).shuffle(keys)
        return keys

    def open(self) -> list[str]:
        """Candidates that are raced on: neither failed, nor hopeless, nor settled at a planned look."""
        return [
            key
            for key in self.settings
            if key not in self.failures
            and key not in self.given_up
            and len(self._log_ratios(key)) < MOST_GENERATIONS
            and not self._is_settled(key)
        ]

    def add(self, generation: dict[str, SetRun]) -> None:
        """A generation has been run, all of it or as far as there was time."""
        for key, run in generation.items():
            if run.why:
                self.failures[key] = run.why
        kept = {key: run for key, run in generation.items() if not run.why}
        if BASE not in kept:
            return
        self.generations.append(kept)
        for key in self.settings:
            if key not in self.failures and (why := self.why_losses_differ(key)):
                self.failures[key] = why
        for key in self.open():
            ratios = self._log_ratios(key)
            if len(ratios) == HOPELESS_AFTER and all(ratio > math.log(HOPELESS) for ratio in ratios):
                self.given_up.add(key)

    def _log_ratios(self, key: str) -> list[float]:
        both = [(each[BASE], each[key]) for each in self.generations if key in each]
        if not self.has_other_order(key):
            return [math.log(run.seconds / base.seconds) for base, run in both]
        tells = self.tells_tokens(key)
        return [math.log(run.mean / base.mean * (base.tokens / run.tokens if tells else 1)) for base, run in both]

    def has_other_order(self, key: str) -> bool:
        """Whether a step has other samples with this patch than without it."""
        return "order" in self.changes[key]

    def tells_tokens(self, key: str) -> bool:
        """Whether this patch is compared by the token."""
        runs = [each[name] for each in self.generations if key in each for name in (BASE, key)]
        return self.has_other_order(key) and all(run.tokens for run in runs)

    def _is_settled(self, key: str) -> bool:
        ratios = self._log_ratios(key)
        if not is_look(LOOKS, len(ratios)):
            return False
        _, low, high = interval_at([[ratio] for ratio in ratios])
        return is_settled(low, high, LEAST_GAIN)

    def interval(self, key: str) -> tuple[float, float, float]:
        """Ratio of the seconds of a step over those of the base, low and high; 0 and infinity of too few generations."""
        groups = [[ratio] for ratio in self._log_ratios(key)]
        try:
            if is_look(LOOKS, len(groups)) and self._is_settled(key):
                return interval_at(groups)
            return interval_at(groups, ended=True)
        except TooFewRounds:
            middle = statistics.fmean(ratio for group in groups for ratio in group) if groups else 0.0
            return math.exp(middle), 0.0, math.inf

    def comparisons(self) -> list[Comparison]:
        """Each candidate that was run against the base."""
        found = []
        for key, settings in self.settings.items():
            if n := len(self._log_ratios(key)):
                ratio, low, high = self.interval(key)
                is_given_up = key in self.given_up
                if is_given_up:
                    low, high = 0.0, math.inf
                smallest = smallest_callable(low, high) if math.isfinite(high) else None
                found.append(
                    Comparison(
                        KNOB,
                        self.now,
                        settings,
                        ratio,
                        low,
                        high,
                        verdict(low, high),
                        n,
                        smallest=smallest,
                        given_up=is_given_up,
                        per="token" if self.tells_tokens(key) else "step",
                    )
                )
        return found

    def trials(self) -> list[Trial]:
        """The base and each candidate: seconds of a step over the generations, or why there are none."""
        found = []
        by_mean = any(map(self.has_other_order, self.settings))
        for key, settings in {BASE: self.now, **self.settings}.items():
            seconds = [each[key].mean if by_mean else each[key].seconds for each in self.generations if key in each]
            if key in self.failures or not seconds:
                status = "failed" if key in self.failures else "not_measured"
                found.append(Trial(KNOB, settings, status, reason=self.failures.get(key, "not reached")))  # type: ignore[arg-type]  # a Status
                continue
            middle, low, high = quartiles(seconds)
            found.append(
                Trial(KNOB, settings, "ok", "seconds_per_step", middle, low, high, len(seconds), samples=tuple(seconds))
            )
        return found

    def best(self) -> str:
        """The key of the candidate that is shown to gain most by its lower end; "" where none is shown to pay."""
        return next((key for key, high in self._faster() if high <= 1 - LEAST_GAIN), "")

    def faster_by_too_little(self) -> list[str]:
        """Keys of candidates that are called faster, and not shown to gain as much as a patch must; best first."""
        return [key for key, high in self._faster() if high > 1 - LEAST_GAIN]

    def _faster(self) -> list[tuple[str, float]]:
        """What is called faster, as `comparisons` tells it, with the upper end of its ratio; the one that gains most first."""
        judged = {key: self.interval(key) for key in self.settings if key not in {*self.failures, *self.given_up}}
        found = [(key, high) for key, (_, low, high) in judged.items() if verdict(low, high) == "faster"]
        return sorted(found, key=lambda each: each[1])

    def generations_to_show(self, key: str) -> int | None:
        """How many more generations would show that a candidate pays, if they scatter as these do; None where no number would."""
        ratios = self._log_ratios(key)
        wanted = generations_to_show(ratios, LEAST_GAIN)
        return None if wanted is None else wanted - len(ratios)

    def batches_words(self, key: str) -> str:
        """What batches hold with a patch that changes which samples they have, and without; "" for other patches."""
        both = [(each[BASE], each[key]) for each in self.generations if key in each]
        if not self.has_other_order(key) or not both:
            return ""
        said = []
        paddings = [(base.padding, run.padding) for base, run in both]
        if known := [(before, after) for before, after in paddings if before is not None and after is not None]:
            before, after = map(statistics.fmean, zip(*known, strict=True))
            said.append(f"padding is {100 * before:.0f} % of what batches hold, and {100 * after:.0f} % with it")
        spreads = [(base.spread, run.spread) for base, run in both]
        if known := [(before, after) for before, after in spreads if before is not None and after is not None]:
            before, after = map(statistics.fmean, zip(*known, strict=True))
            said.append(
                f"the fullest batch of a step holds {before:.2f} times the mean of all ranks, and {after:.2f} times with it"
            )
        counted = "the token" if self.tells_tokens(key) else "the step, as no mask tells the tokens of a batch"
        return f"{key}: {'; '.join([*said, f'it is compared by {counted}'])}"

    # ---- whether it is the same training -----------------------------------------------------------------------------

    def noise(self, of: str = LOSS) -> float:
        """How far losses, or norms, of the user's own code are apart, relatively: of all its sets, the identical ones with them.

        Infinity where one is no number, as two trainings that have both diverged say nothing of each other.
        """
        sets = [getattr(each[key], of) for each in self.generations for key in (BASE, CONTROL) if key in each]
        if not all(math.isfinite(value) for ranks in sets for values in ranks for value in values):
            return math.inf
        return max((gap(first, other) for other in sets for first in sets[:1]), default=0.0)

    def why_losses_tell_nothing(self, key: str) -> str:
        """Why no patch can be told from another training by its losses; "" where one can, or none is compared by them."""
        noise = self.noise()
        if self.has_other_order(key):
            return ""
        if noise <= MOST_NOISE:
            return "" if self._tells_gradients(key) or not self.spoils else self._why_gradients_are_not_told(key)
        if not math.isfinite(noise):
            return "losses of your own code are not finite, or not as many in each start"
        return f"losses of identical code are up to {noise:.1e} apart, and {MOST_NOISE:.0e} is the most that tells anything"

    def _tells_gradients(self, key: str) -> bool:
        """Whether norms tell a patch with wrong gradients, or its losses are not asked."""
        return self.has_other_order(key) or self.tells_norms(key)

    def _why_gradients_are_not_told(self, key: str) -> str:
        """Why losses alone do not tell wrong gradients, as where a learning rate begins at nothing; "" where they do."""
        spoiled, limit = self._gap(SPOILED, LOSS), self.limit(key)
        if not any(SPOILED in each for each in self.generations):
            return "norms of gradients were not compared, and it was not shown that losses tell wrong ones"
        if spoiled > limit:
            return ""
        return (
            f"these losses do not tell wrong gradients from yours: spoiled ones move them by {spoiled:.1e}, where {limit:.1e} "
            "may be, and norms were not compared"
        )

    def why_losses_differ(self, key: str) -> str:
        """Why a candidate's training is not the user's; "" where its losses are, or may be, the same.

        Of other samples nothing but finite losses is asked.
        """
        if self.has_other_order(key):
            losses = [loss for each in self.generations if key in each for rank in each[key].losses for loss in rank]
            return "" if all(map(math.isfinite, losses)) else "its losses are not finite"
        for of, what in WHAT.items():
            if of == NORM and not self.tells_norms(key):
                continue
            limit, found = self.limit(key, of), self._gap(key, of)
            if found > limit:
                return f"its {what} are not those of your code: up to {found:.1e} apart, where {limit:.1e} may be"
        return ""

    def _gap(self, key: str, of: str) -> float:
        """How far losses, or norms, of a candidate are from those of the user's code in the same generation."""
        both = [(each[BASE], each[key]) for each in self.generations if key in each and BASE in each]
        return max((gap(getattr(base, of), getattr(run, of)) for base, run in both), default=0.0)

    def tells_norms(self, key: str) -> bool:
        """Whether norms are compared: each rank tells them, and neither identical code nor roundings carry them too far.

        Norms that are all the same are those of gradients that were clipped, and tell nothing of what was clipped.
        """
        bases = [each[BASE].norms for each in self.generations if BASE in each]
        is_told = bool(bases) and all(norms and all(norms) and any(map(_vary, norms)) for norms in bases)
        reach = self._gap(NUDGED, NORM) if "rounding" in self.changes[key] else 0.0
        return is_told and self.noise(NORM) <= MOST_NOISE and reach <= MOST_OF_ROUNDINGS

    def limit(self, key: str, of: str = LOSS) -> float:
        """How far they may be apart, relatively: as those of identical code, or by what the patch changes: see MAY_BE."""
        apart = self.noise(of)
        if "rounding" in self.changes[key]:
            apart = max(apart, self.reach_of_roundings(of))
        may_be = MAY_BE if of == LOSS else NORM_MAY_BE
        return max(TIMES_NOISE * apart, *(may_be.get(each, 0.0) for each in self.changes[key]), 0.0)

    def reach_of_roundings(self, of: str = LOSS) -> float:
        """How far they are from those with all gradients moved by their last bit, relatively; 0 where that was not run."""
        runs = [(each[BASE], each[NUDGED]) for each in self.generations if NUDGED in each]
        found = [gap(getattr(base, of), getattr(nudged, of)) for base, nudged in runs]
        return max((each for each in found if each <= MOST_OF_ROUNDINGS), default=0.0)

    def loss_words(self, key: str) -> str:
        """What the comparison of losses has shown; "" where no losses were compared."""
        pairs = [(each[BASE].losses, each[key].losses) for each in self.generations if key in each]
        if not pairs or not all(first and all(first) for first, _ in pairs):
            return ""
        number = min(len(losses) for losses in pairs[0][0])
        if self.has_other_order(key):
            return (
                f"the first {number} losses of each rank are finite, in {len(pairs)} starts; {NOT_CLAIMED}, because the patch "
                "changes the order in which samples come"
            )
        starts, largest = f"in {len(pairs)} starts", max(gap(first, other) for first, other in pairs)
        if largest == 0.0:
            said = f"the first {number} losses of each rank are those of your code to the bit, {starts}"
        else:
            said = (
                f"the first {number} losses of each rank agree with those of your code within {largest:.1e} "
                f"(those of identical code within {self.noise():.1e}), {starts}"
            )
        if not any(each[key].norms for each in self.generations if key in each):
            return said
        if not self.tells_norms(key):
            said += "; norms of gradients are not compared, as not all ranks tell them, or they are clipped to one, or far apart"
            has_spoiled = any(SPOILED in each for each in self.generations)
            return (
                f"{said}; spoiled gradients move these losses by {self._gap(SPOILED, LOSS):.1e}"
                if has_spoiled
                else said
            )
        apart = self._gap(key, NORM)
        return f"{said}; norms of their gradients agree " + (f"within {apart:.1e}" if apart else "to the bit")


CLIPPED = 1e-3  # of a norm, by which it must change from update to update: all are alike where each was clipped to it
# Relatively, by what a patch changes. float32 sums in another order differ by 1e-7, and some steps make that grow. A gradient in
# bfloat16 is off by up to 4e-3, and a loss by a part of that in each step.
MAY_BE = {"rounding": 1e-4, "precision": 1e-2}
# Norms of gradients move faster: by 9e-4 in ten steps of a program under `no_sync`, whose losses move by 4e-5. With another pass
# than the last one synchronised they are 0.55 off, and the losses 1.6e-2 (`python benchmarks/rank_norms.py`, rank_norms.md).
NORM_MAY_BE = {"rounding": 1e-2, "precision": 3e-2}
MOST_NOISE = 1e-2  # of losses of identical code, in whose distance a wrong sum of gradients would be lost
MOST_OF_ROUNDINGS = 1e-2  # what is further off than that says nothing of a patch any more
TIMES_NOISE = 3.0


def _vary(norms: Sequence[float]) -> bool:
    """Whether the norms of a rank's updates differ; of a single one that is not known, and it counts."""
    return len(norms) < 2 or max(norms) > (1 + CLIPPED) * min(norms)


def gap(first: Sequence[Sequence[float]], other: Sequence[Sequence[float]]) -> float:
    """The largest difference of two sets' numbers, relative to the larger; infinity where one has fewer, or is no number."""
    if len(first) != len(other):
        return math.inf
    largest = 0.0
    for mine, theirs in zip(first, other, strict=True):
        if len(mine) != len(theirs):
            return math.inf
        for a, b in zip(mine, theirs, strict=True):
            if a == b:
                continue
            if not (math.isfinite(a) and math.isfinite(b)):
                return math.inf
            largest = max(largest, abs(a - b) / max(abs(a), abs(b)))
    return largest
