"""Quads against pairs of blocks with halves in place, on simulated steps: `python benchmarks/simulated_halves.py --write`.

    --runs N   of each row (1000)
    --write    put the tables into simulated_halves.md

How wide intervals are after as many steps, how often what gains something is shown to gain 1 %, and how often an interval misses
what is true; the race is `perfaudit/measure/race.py` as it is, ended by the time. A step's time is lognormal, on a machine whose
mood (an autoregressive walk) outlasts a round; three steps of a hundred are disturbed, by half of their time on average, or
more. Effects are factors, and seconds in the rows where patches gain parts of the same step. A second table has
what the product of the ratios of those that were shown to pay promises, which is the figure of all of them where a budget ends.
"""

from __future__ import annotations

import argparse
import math
import os
import random
import statistics
import sys
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from records import tell

from perfaudit.measure.entrants import BASE, CONTROL, Terms
from perfaudit.measure.race import Race

HERE = Path(__file__).resolve().parent

MOOD, MEMORY = 0.03, 0.97
DISTURBED, BY, FAR = 0.03, 0.5, 1.4
LEAST = 0.01
PAGE = HERE / "simulated_halves.md"
SOME = {"a": 0.82, "b": 0.90, "c": 0.95, "d": 1.0}
MANY = {"a": 0.90, "b": 0.95, **dict.fromkeys("cdefg", 1.0)}
NONE = dict.fromkeys("abcd", 1.0)
PARTS = {"a": 0.75, "b": 0.85, "c": 0.95, "d": 1.0}
HEAD = ("candidates", "noise", "steps", "raced in", "half width", "shown to gain", "missed", "control told from 1")


@dataclass(frozen=True)
class Seen:
    """What a race has come to: by candidate whether it was shown to gain, and whether its interval misses what is true."""

    widths: tuple[float, ...]
    ratios: Mapping[str, float]
    gains: Mapping[str, bool]
    misses: tuple[bool, ...]
    control: bool


def step_times(draw: random.Random, noise: float, by: float) -> Callable[[float], float]:
    """A function that gives the seconds of the next step of one that should take so long. by: of disturbances, in logarithms."""
    mood = [0.0]

    def seconds(ideal: float) -> float:
        mood[0] = MEMORY * mood[0] + draw.gauss(0.0, MOOD * math.sqrt(1 - MEMORY**2))
        disturbed = abs(draw.gauss(0.0, by)) if draw.random() < DISTURBED else 0.0
        return ideal * math.exp(mood[0] + draw.gauss(0.0, noise) + disturbed)

    return seconds


def race(
    truth: Mapping[str, float], noise: float, steps: int, in_halves: bool, are_parts: bool, seed: int, by: float = BY
) -> Seen:
    draw = random.Random(seed)
    seconds = step_times(draw, noise, by)
    slots = [*([key] for key in truth), [CONTROL]] if in_halves else []
    running = Race([*truth], Terms(LEAST, seed), slots=slots)
    turns, left = running.turns(), steps
    turn = next(turns, None)
    while turn is not None and left > 0:
        keys = running.together.get(turn.key, frozenset({turn.key}) - {BASE})
        ratios = [truth.get(key, 1.0) for key in keys]
        ideal = 1 - sum(1 - ratio for ratio in ratios) if are_parts else math.prod(ratios)
        left -= turn.steps
        took = sum(seconds(ideal) for _ in range(turn.steps))
        try:
            turn = turns.send(took)
        except StopIteration:
            turn = None
    running.end()
    found = {key: running.entrants[key].interval for key in (*truth, CONTROL)}
    known = {key: interval for key, interval in found.items() if interval is not None and key != CONTROL}
    own = found[CONTROL]
    return Seen(
        tuple(math.log(interval.high / interval.low) / 2 for interval in known.values()),
        {key: interval.ratio for key, interval in known.items()},
        {key: key in known and 1 - known[key].high >= LEAST for key in truth},
        () if are_parts else tuple(not each.low <= truth[key] <= each.high for key, each in known.items()),
        own is not None and not own.low <= 1 <= own.high,
    )


def row(
    name: str, truth: Mapping[str, float], noise: float, steps: int, in_halves: bool, runs: int, by: float = BY
) -> list[str]:
    seen = [race(truth, noise, steps, in_halves, truth is PARTS, seed, by) for seed in range(runs)]
    widths = [width for each in seen for width in each.widths]
    misses = [missed for each in seen for missed in each.misses]
    shown = [
        f"{truth[key]:.2f}: {100 * sum(each.gains[key] for each in seen) / runs:.0f} %"
        for key in truth
        if truth[key] < 1 or key == max(truth)
    ]
    return [
        name,
        f"{noise:.2f}",
        f"{steps}",
        "halves" if in_halves else "quads",
        f"{100 * statistics.median(widths):.1f} %" if len(widths) > runs * len(truth) / 2 else "no interval",
        ", ".join(shown),
        f"{100 * sum(misses) / len(misses):.1f} %" if misses else "–",
        f"{100 * sum(each.control for each in seen) / runs:.1f} %",
    ]


def promise(gain: float, noise: float, steps: int, runs: int) -> list[str]:
    """What the product of the ratios of patches that were shown to pay promises, of eight that gain as much each."""
    truth = dict.fromkeys("abcdefgh", 1 - gain)
    promised = []
    for seed in range(runs):
        seen = race(truth, noise, steps, True, False, seed)
        chosen = [key for key, is_shown in seen.gains.items() if is_shown]
        if chosen:
            told, true = math.prod(seen.ratios[key] for key in chosen), math.prod(truth[key] for key in chosen)
            promised.append((1 - told) / (1 - true))
    middle = f"{statistics.median(promised):.2f}" if promised else "–"
    return [f"{100 * gain:.0f} %", f"{noise:.2f}", f"{steps}", f"{len(promised)} of {runs}", middle]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--write", action="store_true")
    arguments = parser.parse_args()
    lines = [
        "# Candidates raced with half of the others in place, simulated",
        "",
        f"    python benchmarks/simulated_halves.py --runs {arguments.runs} --write",
        "",
        f"{arguments.runs} runs of each row. *Steps*: of the whole race, warming up included. *Half width*: of an interval, the",
        "middle of all. *Shown to gain*: at least 1 % of the step, by the true ratio. *Missed*: intervals that do not hold the",
        "true ratio, at most 5 % are promised. In the last rows patches gain parts of one step in seconds, so that a ratio",
        "depends on what else is in place, and no one ratio is true.",
        "",
        f"| {' | '.join(HEAD)} |",
        f"|{'---|' * len(HEAD)}",
    ]
    kinds = [("four", SOME), ("four of no effect", NONE), ("seven", MANY), ("four, parts of a step", PARTS)]
    rows = [
        (name, truth, noise, steps, in_halves, arguments.runs)
        for name, truth in kinds
        for noise in (0.05, 0.09)
        for steps in (60, 120, 240)
        for in_halves in (False, True)
    ]
    rows = [(*one, BY) for one in rows]
    few = [("one of no effect", dict.fromkeys("a", 1.0)), ("three of no effect", dict.fromkeys("abc", 1.0))]
    rows += [(name, truth, 0.05, steps, True, arguments.runs, BY) for name, truth in few for steps in (120, 240, 480)]
    far = [*few, ("four of no effect", NONE), ("seven of no effect", dict.fromkeys("abcdefg", 1.0))]
    rows += [(f"{name}, far disturbances", truth, 0.05, 240, True, arguments.runs, FAR) for name, truth in far]
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        for cells in pool.map(row, *zip(*rows, strict=True)):
            lines.append(f"| {' | '.join(cells)} |")
            print(lines[-1], file=sys.stderr, flush=True)
        lines += [
            "",
            "Eight patches that gain as much each, in halves. *Promised*: what the product of the ratios of those that were",
            "",
        ]
        lines[-1:] = ["shown to gain saves, over what these save, the middle of the runs.", ""]
        lines += ["| gain of each | noise | steps | runs that show one | promised |", "|---|---|---|---|---|"]
        few_steps = [
            (gain, noise, steps, arguments.runs)
            for gain in (0.02, 0.03, 0.1)
            for noise in (0.05,)
            for steps in (70, 140)
        ]
        for cells in pool.map(promise, *zip(*few_steps, strict=True)):
            lines.append(f"| {' | '.join(cells)} |")
    tell("\n".join(lines) + "\n", PAGE, arguments.write)


if __name__ == "__main__":
    main()
