"""What the gate says of both versions in one training, on simulated quads: how often it cries wolf, and what it catches.

    gate_one_training.py --runs 1000

Blocks of one training are drawn in the order in which a race runs them: base, candidate, candidate, base, the last block of a
quad being the first of the next, the reference and the control in random order. They are judged as `gate.one_training` does: the
control at its looks, the reference at those of the gate, until something is settled or time ends the race. `gate_power.py run
--way one` asks real trainings.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from perfaudit.gate.decision import LIMIT, TOLERATED, time_verdict
from perfaudit.gate.one_training_quads import LOOKS, differs_from_itself
from perfaudit.gate.records import OneTraining, TargetRecord

Floats = npt.NDArray[np.float64]

SEED = 20
TRUE = (0.0, TOLERATED, 0.03, 0.05, 0.10)  # how much slower the code is than the reference
ENDS = (24, 512)  # quads after which time ends the race


@dataclass(frozen=True)
class Noise:
    """Of blocks. scatter: standard deviation of a block's log. alike: correlation of one block to the next. t: share of the
    variance that is Student's t with 3 degrees of freedom. hiccups: share of blocks that take half as long again.
    quads_alike: correlation of the quads of one entrant themselves, which the machine alone does not make.
    """

    scatter: float = 0.05
    alike: float = 0.0
    t: float = 0.0
    hiccups: float = 0.0
    quads_alike: float = 0.0


NOISES = {
    "2 %, independent": Noise(0.02),
    "5 %, independent": Noise(),
    "5 %, blocks alike by 0.3": Noise(alike=0.3),
    "5 %, blocks alike by 0.6": Noise(alike=0.6),
    "5 %, blocks alike by 0.6, half t3": Noise(alike=0.6, t=0.5),
    "5 %, blocks alike by 0.6, hiccups in 3 %": Noise(alike=0.6, hiccups=0.03),
    "10 %, blocks alike by 0.6": Noise(0.10, alike=0.6),
    "5 %, quads alike by 0.3 (violates what we assume)": Noise(quads_alike=0.3),
    "5 %, quads alike by 0.6 (violates what we assume)": Noise(quads_alike=0.6),
}


def chained(draw: np.random.Generator, runs: int, count: int, alike: float) -> Floats:
    """So many values a run, each of which resembles the one before; their standard deviation is 1."""
    values = draw.normal(size=(runs, count))
    for at in range(1, count):
        values[:, at] = alike * values[:, at - 1] + math.sqrt(1 - alike**2) * values[:, at]
    return values


def raced(draw: np.random.Generator, noise: Noise, quads: int, runs: int) -> tuple[Floats, Floats]:
    """Log ratios of the quads of the reference and of the control in races of identical code, a row for each."""
    if noise.quads_alike:
        reference, control = (chained(draw, runs, quads, noise.quads_alike) for _ in range(2))
        return noise.scatter * reference, noise.scatter * control
    shape = runs, 6 * quads + 1
    speed = math.sqrt(1 - noise.t) * chained(draw, *shape, noise.alike)
    logs = noise.scatter * (speed + math.sqrt(noise.t / 3) * draw.standard_t(3, shape))
    times = np.exp(logs + (draw.random(shape) < noise.hiccups) * math.log(1.5))
    ratios = np.log((times[:, 1::3] + times[:, 2::3]) / (times[:, 0:-1:3] + times[:, 3::3]))
    first = 2 * np.arange(quads) + draw.integers(0, 2, (runs, quads))
    return np.take_along_axis(ratios, first, 1), np.take_along_axis(ratios, first ^ 1, 1)


def said(reference: Floats, control: Floats, end: int) -> tuple[str, int]:
    """The verdict of a race that ends after so many quads, and how many it took; "pairs" where the control sends it there."""
    looks = sorted({look.generations for look in LOOKS if look.generations < end} | {end})
    for quads in looks:
        is_last = quads == end
        one = OneTraining((-reference[:quads]).tolist(), [0.1] * quads, control[:quads].tolist())
        if not is_last and differs_from_itself(one, ended=False):
            return "pairs", quads
        found = time_verdict(TargetRecord("t.py", one=one), LIMIT, TOLERATED, ended=is_last)
        if found.verdict != "inconclusive":
            return found.verdict, quads
    return "inconclusive", end


def row(name: str, noise: Noise, slower: float, end: int, runs: int) -> list[str]:
    draw = np.random.default_rng([SEED, list(NOISES).index(name), round(1000 * slower), end])
    words, counts = [], []
    for reference, control in zip(*raced(draw, noise, end, runs), strict=True):
        word, quads = said(reference - math.log1p(slower), control, end)
        words.append(word)
        counts.append(quads)
    shares = [
        f"{100 * words.count(word) / runs:.1f}" for word in ("regressed", "improved", "pass", "inconclusive", "pairs")
    ]
    return [name, f"+{100 * slower:g} %", str(end), *shares, f"{np.median(counts):.0f}"]


def print_table(rows: Sequence[Sequence[str]]) -> None:
    head = ["noise of a block", "truly slower", "time ends after quads", "regressed, %", "improved, %", "pass, %"]
    head += ["inconclusive, %", "to pairs, %", "quads, median"]
    print(f"\n| {' | '.join(head)} |\n|{'---|' * len(head)}")
    for cells in rows:
        print(f"| {' | '.join(cells)} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=1000, help="simulated races per row")
    runs = parser.parse_args().runs
    print(f"""\
# The gate in one training, on simulated quads

Printed by `python benchmarks/gate_one_training.py --runs {runs}`, seed {SEED}: {runs} races a row, so a true 1 % prints as
1 ± {196 * math.sqrt(0.01 * 0.99 / runs):.1f}. Noise is described in the program. `regressed` in rows of +0 % is a false alarm;
in those of +{100 * TOLERATED:g} %, which is just what is tolerated, it is wrong as well. `to pairs` are races whose control,
which is identical code, differed from itself while there was time for pairs; at the end of the time they are inconclusive.""")
    print_table(
        [row(name, noise, slower, end, runs) for end in ENDS for name, noise in NOISES.items() for slower in TRUE]
    )


if __name__ == "__main__":
    main()
