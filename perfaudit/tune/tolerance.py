"""How far the losses of a patched training may lie from the user's: what rounding, another seed and running it again move."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from perfaudit.measure.facts import Facts
from perfaudit.measure.ledger import Variant
from perfaudit.tune.averages import Averages, averages_of
from perfaudit.tune.exact import STEPS as EXACT_STEPS
from perfaudit.tune.exact import Exact, Json, exact_of

SEED = 20_231
OTHER_SEED = 74_207
FEWEST_STEPS, MOST_STEPS = 4, 20  # compared; the fourth loss feels three updates, and rounding drowns the later ones
COMPARING_SECONDS = 2.0  # for these steps, if a step is short enough

# One rounding moves a value by at most so much of itself: half of torch.finfo(...).eps; TF32 keeps 10 bits as float16 does.
ROUNDOFF = {"float32": 2**-24, "tf32": 2**-11, "float16": 2**-11, "bfloat16": 2**-8}

# A copy of the user's own training whose initial parameters are moved by NUDGE roundings, up or down by chance, says how far
# rounding goes in this model. It differs widely: moved by one eps (2**-23), the losses of sample_models/char_gpt.py stay
# within 2e-7 for 20 steps, those of digits_cnn.py are 5e-4 apart at the third step and 1e-2 at the twelfth, those of
# photo_resnet.py 7e-4 at the third and 8e-2 at the eleventh, which is as far as another seed takes them. So one tolerance for
# all steps is either blind in the first or wrong in the last, and each step has its own.
# Patches that reorder sums in every layer of every step go further than one nudge: channels_last moved the second and fourth
# loss of digits_cnn.py by 4e-4 and 6e-3 to 9e-3, where nudges of 16 and of 64 roundings moved the fourth by 1e-3. What one
# nudge does is a draw as well: nudged otherwise, the largest gap up to a step was up to 4 times as large.
NUDGE = 64.0  # roundings, but at most NUDGE_MOST
NUDGE_MOST = 2**-8  # of a parameter: types as coarse as bfloat16 are nudged once, which is no small change already
SPREAD_OF_NUDGES = 16.0  # times what a nudge does; twice the largest gap of a right patch seen here, 9 times
FLOOR = 64.0  # roundings of the loss, but at most FLOOR_MOST, for models that let them fade, as char_gpt.py does
FLOOR_MOST = 2**-6  # of the loss; bfloat16 moved the first two losses of digits_cnn.py by 9e-5 and 3e-3
NEAR_ZERO = 0.1  # of the median loss: a smaller one happens to cross zero
# What a coarser type than float32 does is measured as well: the user's own training runs with the operands of its matmuls and
# convolutions rounded to the type by chance (`measure.rounding`). Of three small trainings (test_wrong_patches.py), autocast to
# bfloat16 moved the first gradients by 9.3e-2, 1.5e-1 and 8.0e-3, and this made 1.1e-1, 1.6e-1 and 1.2e-2; TF32, whose unit is an
# eighth, made 5.5e-2, 7.8e-2 and 1.6e-3. A loss is one number, and by chance a draw hardly moves it: the largest gap of DRAWS
# draws is less than 1/SPREAD_OF_ROUNDED of another draw's in 0.2 % of cases (for a normal one).
DRAWS = 3
SPREAD_OF_ROUNDED = 8.0
STEPS_SURE = 3  # compared however fast roundings grow
AVERAGE = 1e-3  # of the sums over the user's moving average, which follows the parameters slowly

SHARE_OF_SPREAD = 0.5  # of the gap between two seeds: losses further apart than that are another training's
ANOTHER_STREAM = 0.25  # of the loss, on average, at most: other dropout stays below, a broken model does not
STREAMS = 2.0  # times the gap that one other random stream makes: a single draw of it
SMALL_NOISE = 0.05  # of the loss: two runs of one program that are further apart in STEPS_SURE steps prove nothing
REPEATS = 2.0  # times the gap of two runs of one program: a single draw of it


def steps_to_compare(seconds_per_step: float) -> int:
    """As many steps as COMPARING_SECONDS are enough for, at least FEWEST_STEPS, at most MOST_STEPS."""
    if seconds_per_step <= 0:
        return MOST_STEPS
    return max(FEWEST_STEPS, min(MOST_STEPS, int(COMPARING_SECONDS / seconds_per_step)))


def losses_command(steps: int, seed: int = SEED, **options: Any) -> Json:
    """The command for the first losses of a child that has just been built."""
    return {"do": "losses", "steps": steps, "seed": seed, **options}


@dataclass(frozen=True, slots=True)
class FirstGradients:
    """The largest gap of a parameter's first gradient to the base's (see `measure.gradients.gap_to`), and whose it is.

    same_batch: whether both saw the same numbers. why: what kept them from being compared, "" if nothing did. lost: the largest
    gap of a parameter that was left out, with its name.
    """

    gap: float
    name: str = ""
    same_batch: bool = True
    why: str = ""
    lost: tuple[float, str] = (0.0, "")


@dataclass(frozen=True, slots=True)
class Sensitivity:
    """Such gaps of the user's code to itself: again, from another random stream, and with its parameters nudged.

    stream: None where that is not known.
    """

    again: float
    stream: float | None
    nudged: float


@dataclass(frozen=True, slots=True)
class Curve:
    """The first losses of a training, the sums over its moving average behind them, and the types it autocasts to.

    missing: why parameters could not be copied into it by name, "" if they could or need not. gradients: of its first step,
    beside the base's. sensitivity: in place of losses, where that was asked. start: of a script, why its first step did not begin
    as was asked, "" if it did, None for factories. streams: tells apart how many random numbers a script's first step has drawn;
    stood: the same of what was drawn before it, once for each time that the streams were then seeded. averages: how far those
    move that a script keeps, None for factories.
    """

    losses: tuple[float, ...]
    average: tuple[float, ...] = ()
    missing: str = ""
    dtypes: tuple[str, ...] = ()
    gradients: FirstGradients | None = None
    sensitivity: Sensitivity | None = None
    start: str | None = None
    streams: str = ""
    stood: tuple[str, ...] = ()
    averages: Averages | None = None

    @property
    def is_finite(self) -> bool:
        return all(map(math.isfinite, (*self.losses, *self.average)))

    @property
    def stands_still(self) -> bool:
        """Whether every step gave the same loss."""
        return len(self.losses) > 1 and len(set(self.losses)) == 1


def curve_of(reply: Json) -> Curve:
    """The curve in a child's reply to the command "losses" or "sensitivity"."""
    losses, average = (tuple(map(float.fromhex, reply.get(name) or ())) for name in ("losses", "average"))
    first, moved = reply.get("gradients"), reply.get("sensitivity")
    gradients = sensitivity = None
    if first:
        gap = float.fromhex(first.get("gap", "inf"))
        size, name = first.get("lost") or ((0.0).hex(), "")
        gradients = FirstGradients(
            gap, first.get("name", ""), first.get("same_batch", True), first.get("why", ""), (float.fromhex(size), name)
        )
    if moved:
        sensitivity = Sensitivity(*(float.fromhex(moved[name]) for name in ("again", "stream", "nudged")))
    dtypes, start, streams = tuple(reply.get("dtypes") or ()), reply.get("start"), reply.get("streams", "")
    stood = tuple(reply.get("stood") or ())
    averages = averages_of(reply.get("averages"))
    return Curve(losses, average, reply.get("why", ""), dtypes, gradients, sensitivity, start, streams, stood, averages)


def gaps(curve: Curve, base: Curve) -> list[float]:
    """|difference| of each step's losses over that step's loss, or over NEAR_ZERO of the median one where it is smaller."""
    usual = NEAR_ZERO * statistics.median(map(abs, base.losses)) if base.losses else 0.0
    return [_relative(a, b, usual) for a, b in zip(curve.losses, base.losses, strict=False)]


def average_gap(curve: Curve, base: Curve) -> float:
    """The larger gap of the two sums over the moving average, 0 without one."""
    return max((_relative(a, b, 0.0) for a, b in zip(curve.average, base.average, strict=False)), default=0.0)


def _relative(value: float, base: float, usual: float) -> float:
    if value == base:
        return 0.0
    gap = abs(value - base) / max(abs(base), usual, 1e-12)
    return gap if math.isfinite(gap) else math.inf


def roundoff(names: Sequence[str]) -> float:
    """The coarsest roundoff among these types, at least float32's; names it does not know count as float32."""
    return max((ROUNDOFF.get(name, 0.0) for name in names), default=0.0) or ROUNDOFF["float32"]


def coarsest(names: Sequence[str]) -> str:
    """The coarsest of these types, "" where none is coarser than float32."""
    name = max(names, key=lambda name: ROUNDOFF.get(name, 0.0), default="")
    return name if ROUNDOFF.get(name, 0.0) > ROUNDOFF["float32"] else ""


def types_of(facts: Facts) -> list[str]:
    """The types that a training's parameters, its step's autocast and the switches of torch make it compute in."""
    names = [*facts.model.dtypes, facts.step_autocast]
    precision = facts.flags["matmul_precision"]
    on_cuda = facts.device.type == "cuda"
    if precision == "medium" and not on_cuda:
        names.append("bfloat16")
    elif precision in ("high", "medium") or (on_cuda and facts.flags["cudnn.allow_tf32"] and facts.model.convolutions):
        names.append("tf32")
    return names


@dataclass(slots=True)
class Reference:
    """The user's code run again in fresh processes, each way at most once and only when something depends on it.

    ask: runs the user's unpatched code with this command "losses"; None where that failed. peak_of: peak bytes of one step
    of a variant; raises ChildFailed. steps: how many are compared. timeout: seconds for all of them. ask_of: a variant's reply
    to a command, None where that failed. is_of_script: each question starts a script anew. tells_memory: a process that is
    checked is asked for its peak, too, as nothing that it did before is in that figure. keep_peak: the peak of a variant, from
    what such a process has told.
    """

    ask: Callable[[Json], Curve | None]
    peak_of: Callable[[Variant], int]
    steps: int = FEWEST_STEPS
    timeout: float = 300.0
    ask_of: Callable[[Variant, Json], Json | None] | None = None
    is_of_script: bool = False
    tells_memory: bool = False
    keep_peak: Callable[[Variant, Json], int] = lambda variant, memory: int(memory["peak_bytes"])
    _known: dict[str, Curve | None] = field(default_factory=dict)
    _exact: dict[str, Exact] = field(default_factory=dict)

    def know(self, curve: Curve) -> None:
        """The losses of the user's code, seen elsewhere."""
        self._known.setdefault("first", curve)

    def first(self) -> Curve | None:
        return self._run("first", {"seed": SEED})

    def again(self) -> list[float] | None:
        """Gaps between two runs from one seed: all 0 where the user's code repeats itself; None if it cannot be run."""
        first, again = self.first(), self._run("again", {"seed": SEED, "run": 2})
        if first is None or again is None:
            return None
        return [*gaps(again, first), average_gap(again, first)]

    def averages_again(self) -> Averages | None:
        """How far averages move in that second run."""
        again = self._run("again", {"seed": SEED, "run": 2})
        return again.averages if again is not None else None

    def averages_nudged(self, names: Sequence[str]) -> Averages | None:
        """The same where the initial parameters are moved by roundings in the coarsest of these types."""
        share = share_to_nudge(roundoff(names))
        nudged = self._run(f"nudged {share!r}", {"seed": SEED, "nudge": share})
        return nudged.averages if nudged is not None else None

    def seed(self) -> tuple[float | None, tuple[str, ...]]:
        """The mean gap to a training from another seed, and the types that autocast took part with."""
        other = self._run("seed", {"seed": OTHER_SEED, "build_seed": OTHER_SEED, "observe": True})
        return self._mean(other), other.dtypes if other is not None else ()

    def stream(self) -> float | None:
        """The mean gap to a training that starts from the same parameters with another random stream."""
        return self._mean(self._run("stream", {"seed": OTHER_SEED}))

    def nudged_gaps(self, share: float) -> tuple[list[float], float]:
        """Gaps of the losses, and of the average, when the initial parameters are moved by this share; [] if unknown."""
        first, nudged = self.first(), self._run(f"nudged {share!r}", {"seed": SEED, "nudge": share})
        if first is None or nudged is None or not nudged.is_finite:
            return [], 0.0
        return gaps(nudged, first), average_gap(nudged, first)

    def rounded_gaps(self, kind: str) -> tuple[list[float], float]:
        """The same when matmuls and convolutions round to this type, the largest gap of DRAWS draws each; [] if unknown."""
        first = self.first()
        runs = [self._run(f"{kind} {n}", {"seed": SEED, "rounded": kind, "run": n}) for n in range(DRAWS)]
        known = [run for run in runs if run is not None and run.is_finite]
        if first is None or not known:
            return [], 0.0
        found = [max(each) for each in zip(*(gaps(run, first) for run in known), strict=True)]
        return (found, max(average_gap(run, first) for run in known)) if any(found) else ([], 0.0)

    def sensitivity(self, share: float, kind: str = "") -> Sensitivity | None:
        """How far the first gradients move, also when the parameters are moved by this share; None if unknown.

        kind: compute as in this type in place of moving parameters; None where that moves nothing, as in compiled code.
        """
        key = f"sensitivity {share!r} {kind}"
        if key not in self._known:
            more = {"rounded": kind} if kind else {}
            command = {"do": "sensitivity", "seed": SEED, "other_seed": OTHER_SEED, "nudge": share, **more}
            self._known[key] = self.ask(command)
        found = self._known[key]
        if kind and found is not None and found.sensitivity is not None and not found.sensitivity.nudged:
            return None
        return found.sensitivity if found is not None else None

    def exact(self, variant: Variant, nudge: float = 0.0) -> Exact:
        """The first steps of a variant with every float a double."""
        key = json.dumps(
            [variant.key, variant.knob, variant.settings, variant.overlay, variant.applied, nudge], sort_keys=True
        )
        if self.ask_of is None:
            return Exact(why="nobody is there to ask")
        if self.is_of_script:  # which is not started to say so
            return Exact(why="a script computes in the types that it builds")
        if key not in self._exact:
            command = {"do": "exact", "steps": EXACT_STEPS, "seed": SEED, "nudge": nudge}
            self._exact[key] = exact_of(self.ask_of(variant, command))
        return self._exact[key]

    def _mean(self, other: Curve | None) -> float | None:
        first = self.first()
        if first is None or other is None or not (first.is_finite and other.is_finite):
            return None
        return statistics.fmean(gaps(other, first)) if other.losses else None

    def _run(self, key: str, options: Json) -> Curve | None:
        if key not in self._known:
            self._known[key] = self.ask(losses_command(self.steps, **options))
        return self._known[key]


@dataclass(frozen=True, slots=True)
class Tolerance:
    """How far each loss may lie from the user's; `steps` has as many as are compared: rounding drowns those behind them."""

    steps: tuple[float, ...]
    average: float
    spread: float | None  # the mean gap between two seeds

    def allows(self, found: Sequence[float], average: float) -> bool:
        """Whether the gaps keep within it; those of the later steps within what another seed makes of them."""
        later = found[len(self.steps) :]
        wild = bool(later) and statistics.fmean(later) > max(STREAMS * (self.spread or 0.0), *self.steps)
        return all(a <= b for a, b in zip(found, self.steps, strict=False)) and average <= self.average and not wild

    def words(self, found: Sequence[float]) -> str:
        """ "20 steps from one seed agree within 3.1e-06 of the loss (largest at step 17; tolerance 1.2e-03)"."""
        n = min(len(self.steps), len(found))
        step = largest(found[:n])
        if not any(found):
            return f"{len(found)} steps from one seed give the same losses to the bit"
        text = (
            f"{n} steps from one seed agree within {found[step]:.1e} of the loss (largest at step {step + 1}; "
            f"tolerance {self.steps[step]:.1e})"
        )
        if n == len(found):
            return text
        late = n + largest(found[n:])
        return (
            f"{text}; of the {len(found) - n} steps after them, where roundings grow to what another seed changes, "
            f"{found[late]:.1e} at step {late + 1}"
        )


def least_tolerance(steps: int) -> Tolerance:
    """What `tolerance` allows whatever the types and however steady the training; found without running anything."""
    return Tolerance((FLOOR * ROUNDOFF["float32"],) * steps, AVERAGE, None)


def tolerance(reference: Reference, names: Sequence[str], steps: int, repeats: Sequence[float]) -> Tolerance:
    """The tolerance of roundings in these types (see `types_of`), from what the user's own training does.

    repeats: gaps between two runs of the user's code, where it does not repeat itself; they widen it.
    """
    spread, autocast = reference.seed()
    one, kind = roundoff([*names, *autocast]), coarsest([*names, *autocast])
    nudged, average = reference.rounded_gaps(kind) if kind else ([], 0.0)
    spread_of = SPREAD_OF_ROUNDED
    if nudged:  # measured, so that only what float32 does besides is left to allow
        one = ROUNDOFF["float32"]
    else:
        nudged, average = reference.nudged_gaps(share_to_nudge(one))
        spread_of = SPREAD_OF_NUDGES
    floor = min(FLOOR * one, FLOOR_MOST)
    most = SHARE_OF_SPREAD * spread if spread else ANOTHER_STREAM
    allowed: list[float] = []
    for step in range(steps):
        grown = spread_of * max(nudged[: step + 1]) if nudged else floor
        noise = REPEATS * max([*repeats[: step + 1], 0.0])
        here = max(floor, grown, noise)
        if here > max(most, floor) and step >= STEPS_SURE:
            break
        allowed.append(max(floor, noise, min(here, most)))
    noise = REPEATS * max([*repeats, 0.0])
    return Tolerance(tuple(allowed), max(AVERAGE, spread_of * average, noise), spread)


def share_to_nudge(one: float) -> float:
    """By which share of themselves parameters are moved to see what roundings of this size do."""
    return max(one, min(NUDGE * one, NUDGE_MOST))


def largest(found: Sequence[float]) -> int:
    """Where the largest of these is, counted from 0."""
    return max(range(len(found)), key=lambda i: found[i])
