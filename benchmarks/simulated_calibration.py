"""Whether our intervals hold what they say: `python benchmarks/simulated_calibration.py [--runs N] > simulated_calibration.md`.

Simulates log ratios of interleaved rounds in generations of fresh processes, judges them with `perfaudit.measure.stats`
at every look until a comparison is settled, and counts false calls, misses, power and cost; the true ratio is known here.
What is simulated, each part relative to `noise`, the standard deviation of one round's log ratio:
  process   a shift that all rounds of a generation share: half of the variance, as much as was ever seen on real machines
  rounds    the other half; half of it autocorrelated (0.4 from one round to the next), half of it outliers (Student's t, 3
            degrees of freedom)
  drift     the machine's speed wanders by a tenth of the noise from block to block and drifts by the noise per round; a
            round is A B B A, so that only part of the wandering remains
KINDS vary this. Behind them are tables of quads of one training (`perfaudit.measure.quads`), which share blocks of the base with
their neighbours, of races of short steps that go on for long, and of looks for large gains. Everything is drawn from one seed; a
few minutes on one core.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from perfaudit.measure.quads import LOOKS as QUAD_LOOKS
from perfaudit.measure.quads import PAIR_LOOKS, interval_of_quads
from perfaudit.measure.stats import (
    LOOKS,
    LOOKS_OF_LARGE,
    Look,
    interval_at,
    is_settled,
    ratio_interval,
    smallest_callable,
    student_quantile,
    verdict,
)

SEED = 20
ROUNDS = 3  # per generation, as the runner has them
START = 2  # what starting a generation costs, in rounds
LEAST = 0.01  # the saving worth having: measuring stops when it is shown, or excluded
EFFECTS = (0.01, 0.03, 0.05, 0.10)
NOISES = (0.01, 0.02, 0.04)
SCHEDULES = {
    "4 6 12, most last (ours)": LOOKS,
    "4 6 12, equal": (Look(4, 0.05 / 3), Look(6, 0.05 / 3), Look(12, 0.05 / 3)),
    "4 8 12": (Look(4, 0.010), Look(8, 0.015), Look(12, 0.025)),
    "4 6 9 12": (Look(4, 0.010), Look(6, 0.010), Look(9, 0.010), Look(12, 0.020)),
    "3 6 12": (Look(3, 0.010), Look(6, 0.015), Look(12, 0.025)),
    "12 only": (Look(12, 0.05),),
}

# Of short steps: the noise of one value, and the looks, ours and such that end an eighth of the way with all that is left.
LONG_RACES = {
    "quads": (0.15, QUAD_LOOKS, (*QUAD_LOOKS[:-4], Look(128, 0.025))),
    "pairs": (0.30, PAIR_LOOKS, (*PAIR_LOOKS[:-4], Look(512, 0.02))),
}
LONG_EFFECTS = (0.03, 0.04)
AT_ONCE = 500  # such races in memory

# Of gains that a race in one training has shown to be large: the noise of the only round of a generation.
LARGE_NOISE, LARGE_EFFECTS = 0.06, (0.15, 0.3, 0.5, 0.8)

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Kind:
    """A kind of noise; shares are of the variance."""

    process: float = 0.5
    layouts: bool = False  # processes come in two kinds, fast and slow, instead of a normal distribution
    alike: float = 0.0  # correlation of neighbouring generations
    outliers: float = 0.5  # of the rounds' part
    hiccups: float = 0.0  # share of rounds that something else disturbs, by five times the noise on average


KINDS = {
    "as described": Kind(),
    "processes do not differ": Kind(process=0.0),
    "two memory layouts": Kind(process=0.8, layouts=True),
    "all rounds t3": Kind(outliers=1.0),
    "5 % of rounds disturbed": Kind(hiccups=0.05),
    "generations alike, 0.3 (violates what we assume)": Kind(alike=0.3),
}


def simulated(draw: np.random.Generator, shape: tuple[int, int, int], noise: float, kind: Kind) -> Floats:
    """Log ratios of identical code, one per run, generation and round."""
    runs, generations, rounds = shape
    if kind.layouts:
        process = (draw.integers(0, 2, (runs, generations)) - draw.integers(0, 2, (runs, generations))) * math.sqrt(2)
    else:
        process = draw.normal(size=(runs, generations))
        for g in range(1, generations):
            process[:, g] = kind.alike * process[:, g - 1] + math.sqrt(1 - kind.alike**2) * process[:, g]
    correlated = draw.normal(size=shape)
    for r in range(1, rounds):
        correlated[:, :, r] = 0.4 * correlated[:, :, r - 1] + math.sqrt(1 - 0.4**2) * correlated[:, :, r]
    outliers = draw.standard_t(3, shape) / math.sqrt(3)
    scatter = math.sqrt(1 - kind.outliers) * correlated + math.sqrt(kind.outliers) * outliers
    speed = np.cumsum(draw.normal(0.25, 0.1, (*shape, 4)), axis=-1)  # of the machine, over the blocks A B B A
    drift = (speed[..., 1] + speed[..., 2] - speed[..., 0] - speed[..., 3]) / 2 * draw.choice([-1, 1], shape)
    hiccup = (draw.random(shape) < kind.hiccups) * draw.exponential(5, shape) * draw.choice([-1, 1], shape)
    shift = math.sqrt(kind.process) * process[:, :, None]
    return np.asarray(noise * (shift + math.sqrt(1 - kind.process) * scatter + drift + hiccup))


@dataclass(frozen=True)
class Outcome:
    """Shares and means over all runs of one cell."""

    called: float  # faster, or slower if the code is identical: any difference
    wrong: float  # called in the wrong direction; identical code: in any
    shown: float  # called faster by LEAST or more
    missed: float  # the last interval does not hold the true ratio
    missed_at_any: (
        float  # that of some look does not, had it gone on to the end: the worst that any stopping rule could do
    )
    generations: float
    smallest: float  # median of the smallest effect that could have been called


def race(data: Floats, effect: float, looks: Sequence[Look]) -> Outcome:
    """Every run judged look after look until settled."""
    true = 1 - effect
    rows = []
    for groups in (data + math.log(true)).tolist():
        stop: tuple[float, float, int] | None = None
        missed_at_any = False
        for look in looks:
            _, low, high = interval_at(groups[: look.generations], looks)
            missed_at_any |= not low <= true <= high
            if stop is None and (is_settled(low, high, LEAST) or look == looks[-1]):
                stop = low, high, look.generations
        assert stop is not None
        low, high, generations = stop
        word = verdict(low, high)
        called = word == "faster" if effect else word != "undecided"
        wrong = word == "slower" if effect else called
        missed = not low <= true <= high
        rows.append(
            (called, wrong, 1 - high >= LEAST, missed, missed_at_any, generations, smallest_callable(low, high))
        )
    table = np.array(rows, dtype=float)
    return Outcome(*map(float, table[:, :6].mean(axis=0)), smallest=float(np.median(table[:, 6])))


def of_bootstrap(data: Floats, draw: np.random.Generator) -> Floats:
    """Whether the plain 95 % bootstrap interval of the mean of all rounds misses zero, by run."""
    values = data.reshape(len(data), -1)
    means = np.empty((len(values), 400))
    for i in range(means.shape[1]):
        means[:, i] = values[:, draw.integers(0, values.shape[1], values.shape[1])].mean(axis=1)
    low, high = np.quantile(means, [0.025, 0.975], axis=1)
    return np.asarray((low > 0) | (high < 0))


def of_signed_rank(data: Floats) -> Floats:
    """Whether Wilcoxon's signed-rank test over all rounds finds a difference at 5 %, by run (normal approximation)."""
    values = data.reshape(len(data), -1)
    n = values.shape[1]
    ranks = np.argsort(np.argsort(np.abs(values), axis=1), axis=1) + 1
    statistic = (ranks * (values > 0)).sum(axis=1)
    distance = np.abs(statistic - n * (n + 1) / 4) - 0.5
    return np.asarray(distance / math.sqrt(n * (n + 1) * (2 * n + 1) / 24) > 1.96)


def of_ours(data: Floats) -> Floats:
    """Whether `ratio_interval` at 95 % misses 1, by run."""
    return np.array([not low <= 1 <= high for _, low, high in map(ratio_interval, data.tolist())])


def percent(value: float) -> str:
    return f"{100 * value:.1f}"


def print_table(title: str, head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    print(f"\n## {title}\n\n| {' | '.join(head)} |\n|{'---|' * len(head)}")
    for row in rows:
        print(f"| {' | '.join(row)} |")


def methods(draw: np.random.Generator, runs: int) -> None:
    rows = []
    for name, kind in KINDS.items():
        data = simulated(draw, (runs, 12, ROUNDS), 0.02, kind)
        cells = []
        for method in (lambda d: of_bootstrap(d, draw), of_signed_rank, of_ours):
            at = [method(data[:, :generations]) for generations in (4, 6, 12)]
            cells += [percent(at[0].mean()), percent(at[2].mean()), percent(np.any(at, axis=0).mean())]
        rows.append([name, *cells])
    head = ["noise of 2 %"]
    for name in ("plain bootstrap", "signed rank over rounds", "Student over generations"):
        head += [f"{name}: 4 generations", "12", "at 4, 6 or 12"]
    print_table("Identical code called different by one 95 % interval, and by looking three times, %", head, rows)


def student(blocks: Floats, alpha: float) -> tuple[Floats, Floats]:
    """Centre and half width of Student's interval over the last axis, by run."""
    n = blocks.shape[1]
    half = student_quantile(n - 1, alpha) * blocks.std(axis=1, ddof=1) / math.sqrt(n)
    return blocks.mean(axis=1), np.asarray(half)


def signed_rank_interval(values: Floats, alpha: float) -> tuple[Floats, Floats, Floats]:
    """Hodges-Lehmann centre and signed-rank interval of each run (Hollander, Wolfe & Chicken 2014, ch. 3)."""
    n = values.shape[1]
    counts = [1] + [0] * (n * (n + 1) // 2)  # of sign patterns, by the sum of the positive ranks
    for rank in range(1, n + 1):
        for value in range(len(counts) - 1, rank - 1, -1):
            counts[value] += counts[value - rank]
    outside = int(np.searchsorted(np.cumsum(np.array(counts, dtype=float)), alpha / 2 * 2**n, side="right")) - 1
    first, second = np.triu_indices(n)
    walsh = np.sort((values[:, first] + values[:, second]) / 2, axis=1)
    return np.median(walsh, axis=1), walsh[:, outside], walsh[:, -1 - outside]


def blocks(draw: np.random.Generator, runs: int) -> None:
    rows = []
    for name, kind in KINDS.items():
        for look in (LOOKS[0], LOOKS[-1]):
            data = simulated(draw, (runs, look.generations, ROUNDS), 0.02, kind)
            centre, half = student(np.median(data, axis=2), look.alpha)
            intervals = {"medians": (centre - half, centre + half)}
            mean, wide = student(data.mean(axis=2), look.alpha)
            intervals["means"] = (mean - wide, mean + wide)
            middle, low, high = signed_rank_interval(data.reshape(runs, -1), look.alpha)
            intervals["larger of medians and signed rank"] = (
                np.minimum(low, middle - half),
                np.maximum(high, middle + half),
            )
            cells = [
                f"{percent(((low > 0) | (high < 0)).mean())} / {100 * float(np.median(high - low)) / 2:.2f}"
                for low, high in intervals.values()
            ]
            rows.append([name, str(look.generations), percent(look.alpha), *cells])
    head = ["noise of 2 %", "generations", "nominal error, %", "medians of generations (ours)", "means"]
    print_table(
        "Other intervals at the first and the last look: misses, % / median half width, %",
        [*head, "larger of medians and signed rank over all rounds"],
        rows,
    )


def false_calls(draw: np.random.Generator, runs: int) -> None:
    rows = []
    for name, kind in KINDS.items():
        for noise in NOISES:
            found = race(simulated(draw, (runs, LOOKS[-1].generations, ROUNDS), noise, kind), 0.0, LOOKS)
            shares = [percent(share) for share in (found.called, found.missed, found.missed_at_any)]
            rows.append([name, f"{noise:.0%}", *shares, f"{found.generations:.1f}", percent(found.smallest)])
    head = ["kind", "noise", "called different, %", "interval at stop misses, %", "some look's misses, %"]
    head += ["mean generations", "smallest callable, %"]
    print_table("The whole rule on identical code", head, rows)


def power(draw: np.random.Generator, runs: int) -> None:
    rows = []
    for noise in NOISES:
        for effect in EFFECTS:
            data = simulated(draw, (runs, LOOKS[-1].generations, ROUNDS), noise, Kind())
            found = race(data, effect, LOOKS)
            shares = [percent(s) for s in (found.called, found.shown, found.wrong, found.missed, found.missed_at_any)]
            cost = found.generations * (START + ROUNDS)
            rows.append([f"{noise:.0%}", f"{effect:.0%}", *shares, f"{found.generations:.1f}", f"{cost:.0f}"])
    head = ["noise", "true saving", "called faster, %", f"shown to save {LEAST:.0%}, %", "called slower, %"]
    head += ["interval at stop misses, %", "some look's misses, %", "mean generations", "mean cost, rounds"]
    print_table("The whole rule on faster code", head, rows)


def schedules(draw: np.random.Generator, runs: int) -> None:
    data = {
        (noise, kind): simulated(draw, (runs, 12, ROUNDS), noise, KINDS[kind])
        for noise in (0.02, 0.04)
        for kind in ("as described", "two memory layouts")
    }
    rows = []
    for name, looks in SCHEDULES.items():
        layouts = race(data[0.02, "two memory layouts"], 0.0, looks)
        cells = [percent(layouts.called), percent(layouts.missed_at_any)]
        for noise, effect in ((0.02, 0.0), (0.02, 0.03), (0.02, 0.05), (0.02, 0.10), (0.04, 0.03), (0.04, 0.05)):
            found = race(data[noise, "as described"], effect, looks)
            cells.append(f"{percent(found.called)} / {found.generations * (START + ROUNDS):.0f}")
        rows.append([name, *cells])
    head = ["looks after", "two layouts, identical: called, %", "some look's misses, %", "2 % noise, identical"]
    head += ["2 %, saving 3 %", "2 %, 5 %", "2 %, 10 %", "4 %, 3 %", "4 %, 5 %"]
    print_table("Other schedules: called, % / mean cost in rounds", head, rows)


def ended_by_budget(draw: np.random.Generator, runs: int) -> None:
    rows = []
    for name, kind in KINDS.items():
        data = simulated(draw, (runs, LOOKS[-1].generations, ROUNDS), 0.02, kind)
        called = 0
        for groups, last in zip(data.tolist(), draw.integers(2, 13, runs).tolist(), strict=True):
            called += budgeted(groups, last)
        rows.append([name, percent(called / runs)])
    print_table(
        "Identical code, 2 % noise, measuring ended by a budget after 2 to 12 generations (`ended=True`)",
        ["kind", "called different, %"],
        rows,
    )


def budgeted(groups: list[list[float]], last: int) -> bool:
    """Whether identical code is called different when the budget ends after `last` generations."""
    for look in LOOKS:
        if look.generations < last:
            _, low, high = interval_at(groups[: look.generations])
            if is_settled(low, high, LEAST):
                return verdict(low, high) != "undecided"
    _, low, high = interval_at(groups[:last], ended=True)
    return verdict(low, high) != "undecided"


def families(draw: np.random.Generator, runs: int) -> None:
    rows = []
    for candidates in (1, 2, 4, 8):
        shape = (runs, LOOKS[-1].generations, ROUNDS)
        base = simulated(draw, shape, 0.02 / math.sqrt(2), Kind())
        any_faster = np.zeros(runs, dtype=bool)
        each = []
        for _ in range(candidates):
            data = simulated(draw, shape, 0.02 / math.sqrt(2), Kind()) - base
            words = [stopped_verdict(groups) for groups in data.tolist()]
            each.append(np.mean([word != "undecided" for word in words]))
            any_faster |= np.array([word == "faster" for word in words])
        rows.append([str(candidates), percent(float(np.mean(each))), percent(float(any_faster.mean()))])
    head = ["candidates", "called different, % of comparisons", "some candidate called faster, % of races"]
    print_table("Several copies of the code raced against one base, 2 % noise", head, rows)


def stopped_verdict(groups: list[list[float]]) -> str:
    for look in LOOKS:
        _, low, high = interval_at(groups[: look.generations])
        if is_settled(low, high, LEAST):
            break
    return verdict(low, high)


def chained_quads(
    draw: np.random.Generator, runs: int, quads: int, alike: float, entrants: int, t: float, disturbed: float = 0.0
) -> Floats:
    """Log ratios of one candidate's quads, as a race makes them of blocks; `entrants` take turns in random order.

    alike: correlation of the machine's speed from one block to the next. t: share of the variance that is Student's t with 3
    degrees of freedom, block by block. disturbed: share of the blocks that take twice as long on average, for others' work.
    """
    shape = (runs, 3 * quads * entrants + 1)
    speed = draw.normal(size=shape)
    for block in range(1, shape[1]):
        speed[:, block] = alike * speed[:, block - 1] + math.sqrt(1 - alike**2) * speed[:, block]
    times = 0.05 * (math.sqrt(1 - t) * speed + math.sqrt(t / 3) * draw.standard_t(3, shape))
    times += (draw.random(shape) < disturbed) * draw.exponential(math.log(2), shape)
    ratios = (times[:, 1::3] + times[:, 2::3] - times[:, 0:-1:3] - times[:, 3::3]) / 2
    mine = np.arange(quads) * entrants + draw.integers(0, entrants, (runs, quads))
    return np.take_along_axis(ratios, mine, 1)


def alike_quads(draw: np.random.Generator, runs: int, quads: int, alike: float) -> Floats:
    """Log ratios of quads that resemble their neighbours themselves: a race of one candidate whose own speed wanders."""
    ratios = draw.normal(size=(runs, quads))
    for quad in range(1, quads):
        ratios[:, quad] = alike * ratios[:, quad - 1] + math.sqrt(1 - alike**2) * ratios[:, quad]
    return 0.05 * ratios


def quads_ended_by_time(draw: np.random.Generator, runs: int) -> None:
    kinds: dict[str, Callable[[int, float], Floats]] = {
        "the machine's blocks, 2 entrants": lambda quads, alike: chained_quads(draw, runs, quads, alike, 2, 0.0),
        "the machine's blocks, 6 entrants": lambda quads, alike: chained_quads(draw, runs, quads, alike, 6, 0.0),
        "the machine's blocks, 2 entrants, half t3": lambda quads, alike: chained_quads(
            draw, runs, quads, alike, 2, 0.5
        ),
        "the machine's blocks, 6 entrants, 3 % disturbed": lambda quads, alike: chained_quads(
            draw, runs, quads, alike, 6, 0.0, 0.03
        ),
        "the quads (violates what we assume)": lambda quads, alike: alike_quads(draw, runs, quads, alike),
    }
    counts = (5, 8, 11, 16, 32)
    rows = []
    for name, quads_of in kinds.items():
        for alike in (0.0, 0.3, 0.6):
            long = quads_of(40, alike)
            of_quads = float((long[:, 1:] * long[:, :-1]).mean() / long.var())
            cells = [
                percent(sum(called_different(values, count) for values in quads_of(count, alike).tolist()) / runs)
                for count in counts
            ]
            rows.append([name, f"{alike}", f"{of_quads:.2f}", *cells])
    head = [
        "what is alike",
        "from one to the next",
        "quads of a candidate then",
        *(f"{count} quads" for count in counts),
    ]
    print_table("Identical code called different, %: quads of one training, ended by time (`ended=True`)", head, rows)


def called_different(log_ratios: list[float], quads: int) -> bool:
    """Whether an interval misses 1, that of a look before the end or the last one."""
    looks = [interval_of_quads(log_ratios[: look.generations]) for look in QUAD_LOOKS if look.generations < quads]
    seen = [*looks, interval_of_quads(log_ratios, ended=True)]
    return any(found is not None and not found.low <= 1 <= found.high for found in seen)


def long_races(draw: np.random.Generator, runs: int) -> None:
    rows = []
    for what, (noise, ours, shorter) in LONG_RACES.items():
        for kind, values_of in LONG_KINDS.items():
            found = {looks: dict[float, list[Floats]]() for looks in (shorter, ours)}
            for begun in range(0, runs, AT_ONCE):
                values = noise * values_of(draw, (min(AT_ONCE, runs - begun), ours[-1].generations))
                for looks, of_effect in found.items():
                    for effect in (0.0, *LONG_EFFECTS):
                        shifted = (values[:, : looks[-1].generations] + math.log(1 - effect)).tolist()
                        of_effect.setdefault(effect, []).append(np.array([by_looks(v, effect, looks) for v in shifted]))
            for looks, of_effect in found.items():
                means = {effect: np.concatenate(parts).mean(axis=0) for effect, parts in of_effect.items()}
                cells = [percent(means[0.0][0]), percent(max(mean[1] for mean in means.values()))]
                cells += [f"{percent(means[effect][2])} / {means[effect][3]:.0f}" for effect in LONG_EFFECTS]
                rows.append([kind, f"{noise:.0%}", f"{looks[-1].generations} {what}", *cells])
    head = ["kind", "noise of one", "last look after", "identical: called different, %", "some look's misses, %"]
    head += [f"saving {effect:.0%}" for effect in LONG_EFFECTS]
    title = f"Races of short steps that go on for long: shown to save {LEAST:.0%}, % / mean number of quads or pairs"
    print_table(title, head, rows)


def by_looks(values: list[float], effect: float, looks: Sequence[Look]) -> tuple[bool, bool, bool, int]:
    """Whether an effect is called, whether some look misses it, whether LEAST is shown, and after how many values."""
    stop, missed, true = None, False, 1 - effect
    for look in looks:
        found = interval_of_quads(values[: look.generations], looks=looks)
        if found is None:
            continue
        missed |= not found.low <= true <= found.high
        if stop is None and (is_settled(found.low, found.high, LEAST) or look == looks[-1]):
            stop = found
    assert stop is not None
    return verdict(stop.low, stop.high) != "undecided", missed, 1 - stop.high >= LEAST, stop.quads


def disturbed(draw: np.random.Generator, shape: tuple[int, int]) -> Floats:
    hiccups = (draw.random(shape) < 0.05) * draw.exponential(5, shape) * draw.choice([-1, 1], shape)
    return np.asarray(draw.normal(size=shape) + hiccups)


LONG_KINDS: dict[str, Callable[[np.random.Generator, tuple[int, int]], Floats]] = {
    "independent": lambda draw, shape: draw.normal(size=shape),
    "Student's t, 3 degrees of freedom": lambda draw, shape: draw.standard_t(3, shape) / math.sqrt(3),
    "5 % disturbed": disturbed,
    "neighbours alike, 0.3 (violates what we assume)": lambda draw, shape: 20 * alike_quads(draw, *shape, 0.3),
}


def large_gains(draw: np.random.Generator, runs: int) -> None:
    rows = []
    for name, kind in KINDS.items():
        data = simulated(draw, (runs, LOOKS[-1].generations, 1), LARGE_NOISE, kind)
        for looks in (LOOKS, LOOKS_OF_LARGE):
            same = race(data, 0.0, looks)
            cells = [percent(same.called), percent(same.missed_at_any)]
            for effect in LARGE_EFFECTS:
                found = race(data, effect, looks)
                cells.append(f"{percent(found.shown)} / {found.generations:.2f}")
            rows.append([name, " ".join(str(look.generations) for look in looks), *cells])
    head = ["kind", "looks after", "identical: called different, %", "some look's misses, %"]
    head += [f"saving {effect:.0%}" for effect in LARGE_EFFECTS]
    noise = f"{LARGE_NOISE:.0%} noise, one round a generation"
    print_table(f"Looks for large gains: shown to save {LEAST:.0%}, % / mean generations; {noise}", head, rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=4000, help="simulated comparisons per cell")
    runs = parser.parse_args().runs
    print("# Intervals and stopping rule on simulated noise\n")
    print(
        f"Printed by `python benchmarks/simulated_calibration.py --runs {runs}`, seed {SEED}. {runs} comparisons per cell: a true"
    )
    print(
        f"5 % prints as 5 ± {196 * math.sqrt(0.05 * 0.95 / runs):.1f}. The kinds of noise are described in the program. Looks:"
    )
    print(", ".join(f"after {look.generations} generations at {look.alpha:.1%}" for look in LOOKS) + ".")
    parts: list[Callable[[np.random.Generator, int], None]] = [
        methods,
        blocks,
        false_calls,
        power,
        schedules,
        ended_by_budget,
        families,
        quads_ended_by_time,
        long_races,
        large_gains,
    ]
    for number, part in enumerate(parts):
        part(np.random.default_rng([SEED, number]), runs)


if __name__ == "__main__":
    main()
