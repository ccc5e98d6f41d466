"""How often real A/A pairs are called different, and real slowdowns found: `python benchmarks/calibration.py RECORDS.jsonl`.

    --pairs N         measure until every slowdown has N comparisons on record; without it, only judge what is there
    --slowdowns 0 3 5 10    percent; 0 is code against itself
    --passes N        of which a step consists (100); fewer are quicker, and then slowdowns must make whole passes
    --block-seconds S, --rounds N    as `perfaudit.measure.generations.measure` takes them

A small network is trained on the CPU by `perfaudit.measure`, each variant in fresh processes, interleaved,
through the whole sequential rule. Its step makes 100 passes forward and backward over as many parts of the batch; the
slowed-down base makes 103, 105 or 110, by patched text, and the candidate is the file as it is. The fixed part of the step
(loader, optimizer) makes the true saving a little less than 3 / 103, 5 / 105 and 10 / 110.

Each comparison is appended to the records when it is finished (log ratios by generation and round, on both clocks), so
that it can be interrupted, run in parts, and judged anew. It goes on until the rule has ended it on both clocks; each is
judged on its own, at the look that ended it. Prints the table with 95 % Wilson intervals.
"""

from __future__ import annotations

import argparse
import math
import os
import platform
import statistics
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from records import keep, read

from perfaudit.measure.clock import Deadline, WallClock
from perfaudit.measure.generations import ROUNDS, measure
from perfaudit.measure.lab import ChildLab
from perfaudit.measure.ledger import Ledger, Variant, cpu, wall
from perfaudit.measure.runner import BLOCK_SECONDS
from perfaudit.measure.stats import LOOKS, interval_at, is_settled, smallest_callable, verdict
from perfaudit.target.names import factories

LEAST = 0.01  # the saving worth having: a comparison ends when it is shown, or excluded
STAGE = "race"
PAIR_SECONDS = 1800.0  # after which a comparison is given up, and not recorded
CLOCKS = {"wall": wall, "cpu": cpu}

PROGRAM = """
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

PASSES = 100


def build_model():
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))


def build_dataloader():
    generator = torch.Generator().manual_seed(0)
    images = torch.rand(4096, 1, 8, 8, generator=generator)
    labels = torch.randint(10, (4096,), generator=generator)
    return DataLoader(TensorDataset(images, labels), batch_size=64, drop_last=True)


def build_optimizer(model):
    return torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)


def training_step(model, batch):
    images, labels = batch
    for number in range(PASSES):
        part = slice(number * 8 % 64, number * 8 % 64 + 8)
        loss = nn.functional.cross_entropy(model(images[part]), labels[part]) / PASSES
        if number < PASSES - 1:
            loss.backward()
    return loss
"""


@dataclass(frozen=True)
class Judged:
    """One comparison on one clock, as the rule ends it."""

    ratio: float
    low: float
    high: float
    generations: int


def judged(groups: Sequence[Sequence[float]]) -> Judged | None:
    """Where the rule ends these log ratios; None if they end before it does."""
    for look in LOOKS:
        if len(groups) < look.generations:
            return None
        ratio, low, high = interval_at(groups[: look.generations])
        if is_settled(low, high, LEAST) or look == LOOKS[-1]:
            return Judged(ratio, low, high, look.generations)
    return None


def program(passes: int) -> str:
    return PROGRAM.replace("PASSES = 100", f"PASSES = {passes}")


def compare(
    file: Path, slowdown: int, seed: int, rounds: int, block_seconds: float, passes: int
) -> dict[str, Any] | None:
    """Measure one comparison; its record, or None if it was not finished."""
    file.write_text(program(passes))
    slowed = program(passes + slowdown * passes // 100)
    base = Variant("base", "", {}, {str(file): slowed} if slowdown else {})
    candidate = Variant("candidate", "", {})
    lab = ChildLab({"file": str(file), "names": factories(str(file))}, "cpu")
    ledger = Ledger()

    def groups() -> dict[str, list[list[float]]]:
        return {name: ledger.log_ratios("base", "candidate", STAGE, clock) for name, clock in CLOCKS.items()}

    def done(_: Ledger) -> set[str]:
        return {"candidate"} if all(judged(found) is not None for found in groups().values()) else set()

    started = time.monotonic()
    measure(
        lab,
        [base, candidate],
        ledger,
        Deadline(PAIR_SECONDS, WallClock()),
        seed,
        STAGE,
        rounds=rounds,
        block_seconds=block_seconds,
        settled=done,
    )
    if ledger.failures or not done(ledger):
        print(f"slowdown {slowdown} %, seed {seed}: not finished {ledger.failures or ''}", flush=True)
        return None
    blocks = ledger.blocks("base") + ledger.blocks("candidate")
    return {
        "slowdown": slowdown,
        "seed": seed,
        "passes": passes,
        "seconds": round(time.monotonic() - started, 1),
        "load": round(os.getloadavg()[0], 1),
        "wall_per_step": statistics.median(block.seconds_per_step for block in blocks),
        "cpu_per_step": statistics.median(block.cpu_per_step for block in blocks),
        "log_ratios": {
            name: [[round(value, 6) for value in group] for group in found] for name, found in groups().items()
        },
    }


def wilson(hits: int, of: int) -> tuple[float, float]:
    """95 % interval of a share. Wilson, JASA 22 (1927) 209."""
    z2 = 1.96**2
    middle = (hits + z2 / 2) / (of + z2)
    half = 1.96 / (of + z2) * math.sqrt(hits * (of - hits) / of + z2 / 4)
    return max(0.0, middle - half), min(1.0, middle + half)


def share(hits: int, of: int) -> str:
    low, high = wilson(hits, of)
    return f"{100 * hits / of:.1f} [{100 * low:.1f}, {100 * high:.1f}]"


def table(records: list[dict[str, Any]]) -> str:
    """What became of the comparisons, by slowdown and clock."""
    head = ["slowdown", "clock", "comparisons", "called faster, %", "called slower, %", "called different, %"]
    head += ["median ratio", "smallest callable, %", "scatter of generations, %", "generations", "seconds", "load"]
    lines = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    for slowdown in sorted({record["slowdown"] for record in records}):
        mine = [record for record in records if record["slowdown"] == slowdown]
        for clock in CLOCKS:
            found = [one for record in mine if (one := judged(record["log_ratios"][clock])) is not None]
            if not found:
                continue
            words = [verdict(one.low, one.high) for one in found]
            scatter = [statistics.stdev(map(statistics.median, record["log_ratios"][clock])) for record in mine]
            cells = [
                f"{slowdown} %" if slowdown else "none (A/A)",
                clock,
                str(len(found)),
                share(words.count("faster"), len(found)),
                share(words.count("slower"), len(found)),
                share(len(words) - words.count("undecided"), len(found)),
                f"{statistics.median(one.ratio for one in found):.3f}",
                f"{100 * statistics.median(smallest_callable(one.low, one.high) for one in found):.1f}",
                f"{100 * statistics.median(scatter):.1f}",
                f"{statistics.fmean(one.generations for one in found):.1f}",
                f"{statistics.fmean(record['seconds'] for record in mine):.0f}",
                f"{statistics.median(record['load'] for record in mine):.1f}",
            ]
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def missing(records: list[dict[str, Any]], slowdowns: list[int], pairs: int) -> tuple[int, int] | None:
    """Slowdown and seed of the next comparison, so that all slowdowns see the same hours of the machine; None if done."""
    counts = {slowdown: sum(record["slowdown"] == slowdown for record in records) for slowdown in slowdowns}
    slowdown = min(counts, key=lambda one: counts[one])
    return (slowdown, len(records)) if counts[slowdown] < pairs else None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("records", type=Path)
    parser.add_argument("--pairs", type=int, default=0)
    parser.add_argument("--slowdowns", type=int, nargs="+", default=[0, 3, 5, 10])
    parser.add_argument("--passes", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--block-seconds", type=float, default=BLOCK_SECONDS)
    arguments = parser.parse_args()
    if any(slowdown * arguments.passes % 100 for slowdown in arguments.slowdowns):
        parser.error(f"{arguments.passes} passes cannot be slowed down by exactly {arguments.slowdowns} percent")
    records = read(arguments.records)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "train.py"
        failures = 0
        while failures < 3 and (wanted := missing(records, arguments.slowdowns, arguments.pairs)) is not None:
            slowdown, seed = wanted
            record = compare(
                file, slowdown, seed + failures, arguments.rounds, arguments.block_seconds, arguments.passes
            )
            if record is None:
                failures += 1
                continue
            failures = 0
            records.append(record)
            keep(arguments.records, record)
    if records:
        print(f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}\n\n{table(records)}")


if __name__ == "__main__":
    main()
