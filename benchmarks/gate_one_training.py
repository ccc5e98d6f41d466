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

from perfaudit.gate.decision import LIMIT, TOLERATED, judged
from perfaudit.gate.one_training_quads import LOOKS, QUADS, differs_from_itself
from perfaudit.gate.records import OneTraining, TargetRecord
from perfaudit.measure.quads import LOOKS as CONTROL_LOOKS

Floats = npt.NDArray[np.float64]

SEED = 20
TRUE = (0.0, TOLERATED, 0.03, 0.05, 0.10)  # how much slower the code is than the reference
ENDS = (24, QUADS)  # quads after which time ends the race


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


def raced(draw: np.random.Generator, noise: Noise, quads: int) -> tuple[Floats, Floats]:
    """Log ratios of the quads of the reference and of the control of one race of identical code."""
    if noise.quads_alike:
        ratios = draw.normal(size=(2, quads))
        for quad in range(1, quads):
            mine = math.sqrt(1 - noise.quads_alike**2) * ratios[:, quad]
            ratios[:, quad] = noise.quads_alike * ratios[:, quad - 1] + mine
        return noise.scatter * ratios[0], noise.scatter * ratios[1]
    count = 6 * quads + 1
    speed = draw.normal(size=count)
    for block in range(1, count):
        speed[block] = noise.alike * speed[block - 1] + math.sqrt(1 - noise.alike**2) * speed[block]
    logs = noise.scatter * (math.sqrt(1 - noise.t) * speed + math.sqrt(noise.t / 3) * draw.standard_t(3, count))
    logs = logs + (draw.random(count) < noise.hiccups) * math.log(1.5)
    times = np.exp(logs)
    all_ = np.log((times[1::3] + times[2::3]) / (times[0:-1:3] + times[3::3]))
    first = draw.integers(0, 2, quads)
    return all_[2 * np.arange(quads) + first], all_[2 * np.arange(quads) + 1 - first]


def said(reference: Floats, control: Floats, end: int) -> tuple[str, int]:
    """The verdict of a race that ends after so many quads, and how many it took; "pairs" where the control sends it there."""
    looks = sorted({look.generations for look in (*LOOKS, *CONTROL_LOOKS) if look.generations < end} | {end})
    for quads in looks:
        is_last = quads == end
        one = OneTraining((-reference[:quads]).tolist(), [0.1] * quads, control[:quads].tolist())
        if not is_last and differs_from_itself(one, ended=False):
            return "pairs", quads
        found = judged(TargetRecord("t.py", one=one), LIMIT, TOLERATED, ended=is_last)
        if found.verdict != "inconclusive":
            return found.verdict, quads
    return "inconclusive", end


def row(name: str, noise: Noise, slower: float, end: int, runs: int) -> list[str]:
    draw = np.random.default_rng([SEED, list(NOISES).index(name), round(1000 * slower), end])
    words, counts = [], []
    for _ in range(runs):
        reference, control = raced(draw, noise, end)
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
