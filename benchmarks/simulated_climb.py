"""What a climb hands over in a short budget, on simulated trainings: `python benchmarks/simulated_climb.py --write`.

    --programs NAME …   of PROGRAMS (all)
    --noise SHARE …     of a step, standard deviation of its logarithm (0.05 0.09)
    --runs N            of each, with other draws (20)
    --write             put the table into simulated_climb.md

`perfaudit tune --all` as it is, but for what runs: a step takes as long as PROGRAMS says, on a clock that passes only in steps
(`simulated/switches.py`), so that an hour of climbing takes seconds and the truth is known. The constants that share out the
budget (`perfaudit/tune/climb_time.py`) were chosen with it, and how few quads say that a patch is worth racing together.
In three steps of a hundred something else has the machine: the logarithm of their time grows by the size of a normal draw of
deviation 0.5. Building a training takes START seconds; a check compares eight steps of each of two.
Real machines drift and remember; `climb_speed.py` has what real climbs reach.
"""

from __future__ import annotations

import argparse
import math
import os
import random
import statistics
import sys
import tempfile
import types
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "simulated"))

import switches  # noqa: E402
from fake_clock import FakeClock  # noqa: E402
from records import tell  # noqa: E402

import perfaudit.tune.patched_source  # noqa: E402
import perfaudit.tune.search  # noqa: E402
from perfaudit.measure.ledger import Variant  # noqa: E402
from perfaudit.measure.race import Turn  # noqa: E402
from perfaudit.static.patching import plan_writes  # noqa: E402
from perfaudit.target.names import Target  # noqa: E402
from perfaudit.tune.report import tune  # noqa: E402

START = 1.5
OUTLIERS, OUTLIER = 0.03, 0.5
CHECKED_STEPS = 8
PAGE = HERE / "simulated_climb.md"
HEAD = ("program", "step, ms", "ratios of its patches", "seconds", "noise", "share of the best", "in the worst run")
HEAD += ("patches handed over, runs", "took, s")


@dataclass(frozen=True)
class Program:
    """step, and budget left when the training runs: seconds. ratios: of a step with each patch, by its name."""

    step: float
    budget: float
    ratios: dict[str, float]

    def ratio(self, on: switches.Switches) -> float:
        return math.prod(ratio for name, ratio in self.ratios.items() if on[name])

    @property
    def best(self) -> float:
        return math.prod(min(1.0, ratio) for ratio in self.ratios.values())


TWO = {"a": 0.82, "b": 0.85, "c": 1.7, "d": 0.98}  # as char_gpt
MANY = {"a": 0.93, "b": 0.90, "c": 0.97, "d": 1.0, "e": 1.0, "f": 1.02}
PROGRAMS = {
    "two large, slow steps": Program(0.25, 38.0, {"a": 0.82, "b": 0.85, "c": 1.0}),
    "two large": Program(0.25, 46.0, TWO),
    "two large, two minutes": Program(0.25, 106.0, TWO),
    "three small": Program(0.10, 46.0, MANY),
    "three small, two minutes": Program(0.10, 106.0, MANY),
    "one": Program(0.20, 46.0, {"a": 0.88, "b": 1.0, "c": 1.0, "d": 1.03, "e": 1.0}),
    "quick steps": Program(0.06, 46.0, {"a": 0.6, "b": 0.9, "c": 0.95, "d": 1.0, "e": 1.0, "f": 1.02}),
    "none": Program(0.20, 46.0, {"a": 1.0, "b": 1.0, "c": 1.0, "d": 1.0, "e": 1.0}),
}


class Training(switches.Engine):
    """A training in which steps take as long as a program's, with noise of one seed."""

    shop: Machine

    def screen(self, entrants: list[dict[str, Any]], *terms: Any, **more: Any) -> dict[str, Any]:
        self.shop.clock.sleep(0.5 + 2 * switches.STEP * len(entrants))  # each is put in place for a step, and looked at
        self.draws = random.Random(f"{self.shop.seed} {self.shop.blocks}")
        return super().screen(entrants, *terms, **more)

    def _step(self, turn: Turn) -> float:
        self.inside = turn.key
        self.shop.blocks += 1
        noise = self.draws.gauss(0.0, self.shop.noise)
        if self.draws.random() < OUTLIERS:
            noise += abs(self.draws.gauss(0.0, OUTLIER))
        seconds = self.shop.speed(self.switches_in(turn)) * switches.STEP * turn.steps * math.exp(noise)
        self.shop.clock.sleep(seconds)
        if turn.key == self.base:
            self.totals["steps"] += turn.steps
            for total in (self.totals, self.totals["phases"]):
                for name in {"wall", "cpu", "forward"} & total.keys():
                    total[name] += seconds
        return seconds


@dataclass
class Machine(switches.Shop):
    """The workshop of such a training."""

    seed: int = 0

    def open(self, variants: Sequence[Variant]) -> dict[str, Any]:
        self.clock.sleep(START * len(variants))
        if self.check is not None:
            self.clock.sleep(len(variants) * CHECKED_STEPS * switches.STEP)
        return super().open(variants)

    def ask(self, variant: Variant, *commands: dict[str, Any]) -> list[dict[str, Any]]:
        replies = super().ask(variant, *commands)
        for command, reply in zip(commands, replies[1:], strict=True):
            if command["do"] == "block":
                reply |= {"steps": command["steps"], "wall": command["steps"] * switches.STEP}
                self.clock.sleep(reply["wall"])
            if command["do"] == "memory":
                self.clock.sleep(START + 2 * switches.STEP)
        return replies

    def engine(self) -> Training:
        self.clock.sleep(START)
        return Training(self)


class Patch(switches.Switch):
    """One of a program's patches."""

    def share(self, survey: Any) -> float:
        return 0.5


def climb(program: Program, noise: float, seed: int) -> tuple[str, float]:
    """The patches that a climb hands over, by their names in a row, and the seconds that it took."""
    switches.STEP = program.step
    Path("t.py").write_text("import torch\n\n" + "".join(f"{name} = 0\n" for name in program.ratios))
    for name in program.ratios:
        module = types.ModuleType(f"perfaudit.knobs.{name}")
        module.KNOB = Patch(name)  # type: ignore[attr-defined]
        sys.modules[module.__name__] = module
    clock = FakeClock()
    machine = Machine(clock, program.ratio, noise=noise, seed=seed, in_halves=True)
    report = tune(
        Target("t.py", {}),
        [*program.ratios],
        program.budget,
        workshop=machine,
        clock=clock,
        allow=frozenset({"rounding"}),
    )
    if report.ladder is None or not report.ladder.files:
        return "", clock.now()
    (item,) = plan_writes(report.ladder.files, Path.cwd())
    return "".join(name for name, on in switches.switches(item.after.decode()).items() if on), clock.now()


def row(name: str, noise: float, runs: int) -> list[str]:
    program = PROGRAMS[name]
    climbs = [climb(program, noise, seed) for seed in range(runs)]
    ratios = [math.prod(program.ratios[patch] for patch in patches) for patches, _ in climbs]
    shares = [(1 - ratio) / (1 - program.best) for ratio in ratios] if program.best < 1 else []
    sets = Counter(patches or "none" for patches, _ in climbs)
    return [
        name,
        f"{1000 * program.step:.0f}",
        ", ".join(f"{patch} {ratio:.2f}" for patch, ratio in program.ratios.items()),
        f"{program.budget:.0f}",
        f"{noise:.2f}",
        f"{100 * statistics.fmean(shares):.0f} %" if shares else "–",
        f"{100 * min(shares):.0f} %" if shares else "–",
        ", ".join(f"{patches} {times}" for patches, times in sets.most_common()),
        f"{statistics.fmean(seconds for _, seconds in climbs):.0f}",
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--programs", nargs="+", choices=[*PROGRAMS], default=[*PROGRAMS])
    parser.add_argument("--noise", nargs="+", type=float, default=[0.05, 0.09])
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--write", action="store_true")
    arguments = parser.parse_args()
    perfaudit.tune.patched_source.Verifier = perfaudit.tune.search.Verifier = switches.Agreeing  # type: ignore[assignment,misc]
    lines = [
        "# What a climb hands over in a short budget, simulated",
        "",
        "    python benchmarks/simulated_climb.py --write",
        "",
    ]
    lines += [f"{arguments.runs} runs of each. The budget is what is left of it when the training runs.", ""]
    lines += [f"| {' | '.join(HEAD)} |", f"|{'---|' * len(HEAD)}"]
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        for name in arguments.programs:
            for noise in arguments.noise:
                lines.append(f"| {' | '.join(row(name, noise, arguments.runs))} |")
                print(lines[-1], file=sys.stderr, flush=True)
        os.chdir(HERE)
    tell("\n".join(lines) + "\n", PAGE, arguments.write)


if __name__ == "__main__":
    main()
