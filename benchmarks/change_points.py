"""What `perfaudit history` sees in a series of gates: `python benchmarks/change_points.py [--runs N] > change_points.md`.

Simulates the step times that one gate after another writes down, and the ratios between them, and counts how often a change
of level is called where there is none, how often a step or a slow drift is seen, and after how many gates. The E-divisive
means of `perfaudit.gate.change_points` are compared with the same method in MongoDB's package, with PELT and with a
permuted CUSUM. The two packages are not dependencies of perfaudit: `pip install ruptures signal-processing-algorithms`.
Everything is drawn from one seed.
"""

from __future__ import annotations

import argparse
import math
import random
import statistics
import time
from collections.abc import Callable, Sequence
from itertools import pairwise

import numpy as np
import ruptures
from signal_processing_algorithms.energy_statistics.energy_statistics import e_divisive

from perfaudit.gate.change_points import LEVEL, MINIMUM, PERMUTATIONS, change_points
from perfaudit.gate.drift import drift_direction, drifts
from perfaudit.gate.series import Point, Series

SEED = 20
NOISE = 0.01  # standard deviation of a step time between gates of a calm machine
HALF = 0.02  # half of the interval of one gate's ratio, at the level below
QUANTILE = 2.8  # of the normal distribution, for an interval that a gate's looks leave at about 99.5 %

Method = Callable[[Sequence[float]], list[int]]
Draw = Callable[[random.Random, int], list[float]]


def ours(values: Sequence[float]) -> list[int]:
    return [change.index for change in change_points(values)]


def mongodb(values: Sequence[float]) -> list[int]:
    """E-divisive means of signal-processing-algorithms, at our level and with as many permutations."""
    return sorted(int(at) for at in e_divisive(list(values), pvalue=LEVEL, permutations=PERMUTATIONS))


def pelt(values: Sequence[float]) -> list[int]:
    """PELT for changes of the mean (Killick, Fearnhead and Eckley 2012), penalty 3 · variance · log n.

    The variance is that of the differences of neighbours, from their median deviation, so that steps do not count.
    """
    differences = [b - a for a, b in pairwise(values)]
    spread = 1.4826 * statistics.median(abs(d) for d in differences) / math.sqrt(2)
    penalty = 3 * spread**2 * math.log(len(values))
    found = ruptures.Pelt(model="l2", min_size=MINIMUM, jump=1).fit(np.array(values)).predict(pen=max(penalty, 1e-12))
    return [at for at in found if at < len(values)]


def cusum(values: Sequence[float], offset: int = 0, seed: int = 0) -> list[int]:
    """Range of the cumulated sums against shuffled series (Taylor 2000, Change-Point Analysis), each part split in turn."""
    if len(values) < 2 * MINIMUM:
        return []
    data = np.array(values) - np.mean(values)
    sums = np.cumsum(data)
    draw = np.random.default_rng(seed)
    shuffled = np.cumsum(draw.permuted(np.tile(data, (PERMUTATIONS, 1)), axis=1), axis=1)
    as_strong = 1 + int(np.sum(np.ptp(shuffled, axis=1) >= np.ptp(sums)))
    at = int(np.argmax(np.abs(sums))) + 1
    if as_strong / (PERMUTATIONS + 1) > LEVEL or not MINIMUM <= at <= len(values) - MINIMUM:
        return []
    return [*cusum(values[:at], offset, seed), offset + at, *cusum(values[at:], offset + at, seed)]


METHODS: dict[str, Method] = {"ours": ours, "MongoDB's": mongodb, "PELT": pelt, "permuted CUSUM": cusum}


def normal(draw: random.Random, count: int) -> list[float]:
    return [draw.gauss(1.0, NOISE) for _ in range(count)]


def heavy(draw: random.Random, count: int) -> list[float]:
    """Student's t with 3 degrees of freedom."""
    return [
        1.0 + NOISE * draw.gauss(0, 1) / math.sqrt(sum(draw.gauss(0, 1) ** 2 for _ in range(3)) / 3)
        for _ in range(count)
    ]


def disturbed(draw: random.Random, count: int) -> list[float]:
    """One gate in twenty ran beside something else and is 10 to 50 % slower."""
    return [v * (1 + draw.uniform(0.1, 0.5)) if draw.random() < 0.05 else v for v in normal(draw, count)]


def alike(draw: random.Random, count: int) -> list[float]:
    """Neighbouring gates share half of what disturbs them: a machine that is slow for some hours."""
    values, state = [], draw.gauss(0, NOISE)
    for _ in range(count):
        state = 0.5 * state + math.sqrt(0.75) * draw.gauss(0, NOISE)
        values.append(1.0 + state)
    return values


KINDS: dict[str, Draw] = {
    "normal": normal,
    "heavy tails": heavy,
    "5 % disturbed": disturbed,
    "neighbours alike, 0.5 (violates what all assume)": alike,
}


def table(title: str, head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    print(f"\n## {title}\n")
    print("| " + " | ".join(head) + " |")
    print("|" + "---|" * len(head))
    for row in rows:
        print("| " + " | ".join(row) + " |")


def percent(part: int, whole: int) -> str:
    return f"{100 * part / whole:.1f}"


def false_calls(runs: int) -> None:
    rows = []
    for kind, draw in KINDS.items():
        for count in (12, 40):
            chance = random.Random(f"{SEED} {kind} {count}")
            all_values = [draw(chance, count) for _ in range(3 * runs)]
            row = [kind, str(count)]
            for name, method in METHODS.items():
                judged = all_values if name == "ours" else all_values[:runs]
                row.append(percent(sum(bool(method(values)) for values in judged), len(judged)))
            rows.append(row)
    table("Series without any change in which a change is called, %", ["noise", "gates", *METHODS], rows)


def steps(runs: int) -> None:
    rows = []
    for noise in (1, 3):
        for step in (0.02, 0.05, 0.10):
            chance = random.Random(f"{SEED} {noise} {step}")
            all_values = [
                [1 + (v - 1) * noise + (step if i >= 20 else 0) for i, v in enumerate(normal(chance, 40))]
                for _ in range(runs)
            ]
            row = [f"{100 * NOISE * noise:.0f} %", f"{100 * step:.0f} %"]
            for method in METHODS.values():
                found = [method(values) for values in all_values]
                near = sum(any(abs(at - 20) <= 2 for at in each) for each in found)
                row.append(f"{percent(near, runs)} / {percent(sum(len(each) > 1 for each in found), runs)}")
            rows.append(row)
    title = "A step after 20 of 40 gates: found within 2 gates of it, % / more than one change called, %"
    table(title, ["noise", "step", *METHODS], rows)


def shortest(runs: int) -> None:
    """How many gates must follow a step until it is called, by how many points a level must have at least."""
    rows = []
    for minimum in (2, 3, 4, 6):
        chance = random.Random(f"{SEED} shortest")
        delays = []
        for _ in range(runs):
            values = [v + (0.05 if i >= 20 else 0) for i, v in enumerate(normal(chance, 40))]
            seen = (n for n in range(1, 21) if change_points(values[: 20 + n], minimum=minimum))
            delays.append(next(seen, 21))
        ever, pairs = 0, 0
        for _ in range(runs):
            ever += any(change_points(normal(chance, 40)[:n], minimum=minimum) for n in range(2 * minimum, 41, 4))
            values = normal(chance, 40)
            values[30] = values[31] = 1.15
            pairs += bool(change_points(values, minimum=minimum))
        late = sorted(delays)[int(0.9 * runs)]
        rows.append(
            [str(minimum), f"{statistics.median(delays):.0f}", str(late), percent(ever, runs), percent(pairs, runs)]
        )
    head = [
        "points at least",
        "5 % step seen after, median",
        "90 %",
        "no change, called at some of 40 gates, %",
        "two slow gates in a row called, %",
    ]
    table("How many points a level must have (noise of 1 %)", head, rows)


def ratio_series(chance: random.Random, count: int, drift: float, bias: float) -> Series:
    """What gates write down of commits that each cost `drift` more, measured with an error and a bias."""
    points = []
    for i in range(count):
        log = math.log1p(drift) + math.log1p(bias) + chance.gauss(0, HALF / QUANTILE)
        low, high = math.exp(log - HALF), math.exp(log + HALF)
        points.append(Point(i, "", f"{i + 1:012}", f"{i:012}", math.exp(log), low, high))
    return Series("ratio", "time", "train.py", {}, tuple(points))


def slow(runs: int, fewer: int) -> None:
    """Both ways to see a drift: the product of the ratios, and changes of level of the times (`fewer` series)."""
    rows = []
    for drift, bias in (
        (0.0, 0.0),
        (0.0, 0.0005),
        (0.0, 0.001),
        (0.001, 0.0),
        (0.003, 0.0),
        (0.005, 0.0),
        (-0.003, 0.0),
    ):
        chance = random.Random(f"{SEED} slow {drift} {bias}")
        at_some: list[int] = []
        for _ in range(runs):
            (chain,) = drifts([ratio_series(chance, 40, drift, bias)])
            looks = (Series("drift", "time", "", {}, chain.points[:n]) for n in range(1, 41))
            at_some.append(next((n for n, look in enumerate(looks, start=1) if drift_direction(look)), 99))
        row = [f"{100 * drift:+.1f} %", f"{100 * bias:.2f} %"]
        row += [percent(sum(first <= gates for first in at_some), runs) for gates in (5, 10, 20, 40)]
        for spread in () if bias else (NOISE, 3 * NOISE):
            series = ([(1 + drift) ** i * chance.gauss(1.0, spread) for i in range(40)] for _ in range(fewer))
            row.append(percent(sum(bool(ours(values)) for values in series), fewer))
        row += ["", ""] if bias else []
        rows.append(row)
    head = ["each commit costs", "bias of a gate", "drift called by gate 5, %", "10", "20", "40"]
    head += ["changes of step_time seen in 40 gates, noise 1 %", "noise 3 %"]
    table(f"A slow drift, each gate's ratio known to ±{100 * HALF:.0f} %", head, rows)


def agreement(runs: int) -> None:
    """How often two implementations of one method find the same, where ours may place changes as near the ends as the other."""
    chance = random.Random(f"{SEED} agreement")
    same = 0
    for _ in range(runs):
        values = [v + (0.03 if 15 <= i < 30 else 0) for i, v in enumerate(normal(chance, 45))]
        same += [c.index for c in change_points(values, minimum=2)] == mongodb(values)
    print(
        "\nA bump of 3 % for 15 of 45 gates: ours, with 2 points at least, and MongoDB's package find exactly the same"
    )
    print(f"changes in {percent(same, runs)} % of {runs} series; both draw their permutations at random.")


def cost() -> None:
    rows = []
    for count in (100, 300, 1000):
        values = [v + (0.05 if i >= count // 2 else 0) for i, v in enumerate(normal(random.Random(SEED), count))]
        row = [str(count)]
        for name, method in METHODS.items():
            if count > 300 and name != "ours":
                row.append("")
                continue
            began = time.process_time()
            method(values)
            row.append(f"{time.process_time() - began:.2f}")
        rows.append(row)
    table("Seconds of processor time for a series with one step", ["gates", *METHODS], rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=150, help="series per cell; a third in slow tables")
    runs = parser.parse_args().runs
    print("# What the history of the gates sees\n")
    print(
        f"Printed by `python benchmarks/change_points.py --runs {runs}`, seed {SEED}. {runs} series per cell, so a true 50 %"
    )
    print(f"prints as 50 ± {98 / math.sqrt(runs):.0f}; three times as many of ours without a change, a true 1 % as 1 ±")
    print(
        f"{196 * math.sqrt(0.01 * 0.99 / (3 * runs)):.1f}; a third where histories are looked at gate by gate and where times"
    )
    print("drift; ten times as many chains of ratios.")
    print(f"Level {LEVEL:.0%}, {PERMUTATIONS} permutations, {MINIMUM} points at least on each side.")
    false_calls(runs)
    steps(runs)
    fewer = max(1, runs // 3)
    agreement(fewer)
    shortest(fewer)
    slow(10 * runs, fewer)
    cost()


if __name__ == "__main__":
    main()
