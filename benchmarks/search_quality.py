"""How well and how fast settings are searched: `python benchmarks/search_quality.py loader RECORDS.jsonl`.

    loader          num_workers, against an exhaustive sweep in the same run
    batch           the largest batch that fits into a budget, against exhaustive bisection and Lightning (batch_limits.py)
    --repeats N     searches to add to the records, regimes in turn; 0 only judges what is there
    --regime NAME   only this one (again for several)
    --budget S      seconds a search may take at most
    --write         also write the table and the records' summary beside this file (search_quality.md, .json; of batch
                    search_quality_batch.md, .json)

Each run of loader is one regime (where batches come from × what a step is): our search as a user types it,
`perfaudit tune --dataloader`, then the sweep: SWEPT settings, each timed in a process of its own, one after the other,
SWEEP_SECONDS long behind a warm-up, as a careful person does it. Then the setting that the search left in place, the
sweep's best and the current one are raced head to head, interleaved, in fresh processes; that, and not the sweep's own
figures, is the regret:

    regret = time per sample with our choice / time with the sweep's best - 1

with a 95 % interval. "against current" is the same race's ratio of our choice to the setting that was there before.
Loads are those of the whole machine, the workers that a run starts included; *others* is how many cores were busy in the second
before a run. Each run is appended to the records when it is finished, so that it can be interrupted, run in parts, and judged
anew.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import platform
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from batch_limits import MODELS, batch_run, batch_table
from machine_states import busy_cores
from records import keep, read

from perfaudit.knobs.dataloader import KNOB
from perfaudit.machine.limits import load_average, usable_cores
from perfaudit.measure.clock import Deadline, WallClock
from perfaudit.measure.generations import measure
from perfaudit.measure.judge import comparison
from perfaudit.measure.lab import ChildLab
from perfaudit.measure.ledger import Ledger, Variant
from perfaudit.measure.runner import TrialFailed
from perfaudit.measurements import Settings
from perfaudit.target.names import Target, factories
from perfaudit.tune.bout import variant_of
from perfaudit.tune.report import tune

CLOSE = 0.03  # regret that is no regret
SHARE = 0.25  # of the sweep's time that a search may take
SWEEP_SECONDS = 6.0  # a setting: what a careful person gives each
SWEPT_WORKERS = (0, 1, 2, 3, 4, 6, 8, 12, 16)  # kept from one epoch to the next, so that each setting is a number
HEAD_TO_HEAD = 6  # generations of fresh processes
STAGE = "head to head"

Record = dict[str, Any]  # JSON

# A sample waits for a disk or a network: no core is busy.
WAITING = """
class Samples(Dataset):
    def __len__(self):
        return 2048

    def __getitem__(self, index):
        {}
        return torch.full((3, 32, 32), index / 2048), index % 10
"""
SAMPLES = {
    "io": WAITING.format("time.sleep(0.0015)"),
    "fast io": WAITING.format("time.sleep(0.0003)"),
    "slow io": WAITING.format("time.sleep(0.006)"),
    "jitter": WAITING.format("time.sleep(0.0005 if index % 16 else 0.02)"),
    # A sample is a JPEG of a photograph's size that is decoded and cropped: a core is busy.
    "decode": """
def encoded(number):
    noise = np.random.default_rng(number).integers(0, 255, (24, 24, 3), dtype=np.uint8)
    kept = io.BytesIO()
    Image.fromarray(noise).resize((256, 256)).save(kept, "JPEG")
    return kept.getvalue()


class Samples(Dataset):
    def __init__(self):
        self.files = [encoded(number) for number in range(32)]

    def __len__(self):
        return 2048

    def __getitem__(self, index):
        image = Image.open(io.BytesIO(self.files[index % 32])).convert("RGB").resize((32, 32), box=(16, 16, 240, 240))
        return torch.from_numpy(np.array(image)).permute(2, 0, 1).float() / 255, index % 10
""",
    # All samples lie in one tensor.
    "memory": """
class Samples(Dataset):
    def __init__(self):
        self.images = torch.rand(2048, 3, 32, 32, generator=torch.Generator().manual_seed(0))

    def __len__(self):
        return 2048

    def __getitem__(self, index):
        return self.images[index], index % 10
""",
}
STEPS = {
    # An accelerator computes: the host waits.
    "sleeping": """
def training_step(model, batch):
    time.sleep(0.012)
    return nn.functional.cross_entropy(model(batch[0].flatten(1)[:, :8]), batch[1])


def build_model():
    return nn.Linear(8, 10)
""",
    # The host computes.
    "real": """
def training_step(model, batch):
    return nn.functional.cross_entropy(model(batch[0]), batch[1])


def build_model():
    torch.set_num_threads(1)
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(),
        nn.MaxPool2d(2), nn.Flatten(), nn.Linear(32 * 64, 10),
    )
""",
}
HEAD = """
import io
import time

import numpy as np
import torch
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, Dataset
"""
LOADER = """

def build_dataloader():
    return DataLoader(Samples(), batch_size=32, shuffle=True, drop_last=True)
"""
REGIMES = {
    f"{source}, {step} step": HEAD + SAMPLES[source] + LOADER + "\n" + STEPS[step]
    for source in SAMPLES
    for step in STEPS
}


@dataclass(frozen=True)
class Part:
    """One kind of search: its regimes, how a run of one is made, and the table of all runs."""

    regimes: tuple[str, ...]
    run: Callable[[str, float], Record]
    table: Callable[[list[Record]], str]
    file: str  # that --write writes, without its ending


# ---- loaders ------------------------------------------------------------------------------------------------------


def loader_run(regime: str, budget: float) -> Record:
    """One search, one sweep, and the race between what they chose."""
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        file = Path(folder) / "train.py"
        file.write_text(REGIMES[regime])
        others, before = busy_cores(), load_average()
        started = time.monotonic()
        report = tune(Target(str(file), {}), ["dataloader"], budget, device="cpu")
        searched = time.monotonic() - started
        (winner,) = report.winners
        current = {"num_workers": 0, "pin_memory": False, "prefetch_factor": None, "persistent_workers": False}
        ours = winner.settings
        lab = ChildLab({"file": str(file), "names": factories(str(file))}, "cpu")
        started = time.monotonic()
        speeds = {json.dumps(s): swept(lab, s) for s in swept_settings()}
        sweeping = time.monotonic() - started
        best: Settings = json.loads(min(speeds, key=lambda key: speeds[key]))
        regret, against_current = head_to_head(lab, ours, best, current)
        return {
            "part": "loader", "regime": regime, "others": others, "load": [before, load_average()], "cores": usable_cores(),
            "ours": ours, "kept": winner.keeps_current, "best": best, "seconds": searched, "sweep_seconds": sweeping,
            "raced": [[c.candidate["num_workers"], c.ratio, c.low, min(c.high, 1e9), c.n] for c in report.comparisons],
            "said": winner.words, "sweep": speeds,
            "regret": regret, "against_current": against_current,
        }  # fmt: skip


def swept_settings() -> list[Settings]:
    """What an exhaustive sweep tries."""
    found: list[Settings] = []
    for workers in SWEPT_WORKERS:
        ahead, kept = (2, True) if workers else (None, False)
        found.append(
            {"num_workers": workers, "pin_memory": False, "prefetch_factor": ahead, "persistent_workers": kept}
        )
    return found


def swept(lab: ChildLab, settings: Settings) -> float:
    """Seconds per step of one setting, timed alone for SWEEP_SECONDS; infinite where it fails."""
    variant = variant_of(KNOB.name, settings)
    subject = lab.open([variant])[variant.key]
    if isinstance(subject, TrialFailed):
        return math.inf
    try:
        first = subject.block(variant.least_steps)
        return subject.block(max(variant.least_steps, round(SWEEP_SECONDS / first.seconds_per_step))).seconds_per_step
    except TrialFailed:
        return math.inf
    finally:
        subject.close()


def head_to_head(lab: ChildLab, ours: Settings, best: Settings, current: Settings) -> tuple[list[float], list[float]]:
    """Our choice against the sweep's best and against the current one, as (ratio - 1, low, high), interleaved."""
    variants = {json.dumps(s): variant_of(KNOB.name, s) for s in (ours, best, current)}
    base = variants[json.dumps(ours)]
    ledger = Ledger()
    if len(variants) > 1:
        measure(
            lab, list(variants.values()), ledger, Deadline(600, WallClock()), 7, STAGE, HEAD_TO_HEAD
        )  # fmt: skip

    def against(other: Settings) -> list[float]:
        variant: Variant = variants[json.dumps(other)]
        if variant is base:
            return [0.0, 0.0, 0.0]
        found = comparison(ledger, variant, base, STAGE)
        return [math.nan] * 3 if found is None else [found.ratio - 1, found.low - 1, found.high - 1]

    return against(best), against(current)


def loader_table(records: list[Record]) -> str:
    """One row a run, and how many of them reach what is promised."""
    head = [
        "regime",
        "our choice",
        "sweep's best",
        "regret, %",
        "against current, %",
        "ours / sweep, s",
        "share, %",
        "load",
        "others",
    ]
    lines = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    for r in sorted(records, key=lambda r: r["regime"]):
        cells = [
            r["regime"],
            short(r["ours"]),
            short(r["best"]),
            percent(r["regret"]),
            percent(r["against_current"]),
            f"{r['seconds']:.0f} / {r['sweep_seconds']:.0f}",
            f"{100 * r['seconds'] / r['sweep_seconds']:.0f}",
            f"{max(r['load']):.1f}",
            "–" if r.get("others") is None else f"{r['others']:.2f}",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join([*lines, "", summary(records)])


def summary(records: list[Record]) -> str:
    """What share of runs keeps each promise."""
    n = len(records)
    close = sum(r["regret"][0] <= CLOSE for r in records)
    shown = sum(r["regret"][1] > CLOSE for r in records)
    worse = sum(r["against_current"][1] > 0 for r in records)
    shares = [r["seconds"] / r["sweep_seconds"] for r in records]
    longer = sum(share > SHARE for share in shares)
    return (
        f"{n} runs: regret at most {100 * CLOSE:.0f} % in {close} ({100 * close / n:.0f} %), shown to be larger in "
        f"{shown}; worse than the current setting by more than the interval in {worse}; time "
        f"{100 * statistics.median(shares):.0f} % of the sweep's (median), over {100 * SHARE:.0f} % in {longer}"
    )


def short(settings: Settings) -> str:
    """ "4 workers, kept"."""
    workers = settings["num_workers"]
    if not workers:
        return "none"
    return f"{workers} worker{'s' if workers != 1 else ''}{', kept' if settings['persistent_workers'] else ''}"


def percent(interval: list[float]) -> str:
    middle, low, high = interval
    if math.isnan(middle):
        return "left the race early"
    if low == high == 0:
        return "same setting"
    return (
        f"{100 * middle:+.1f} [{100 * low:+.1f}, {100 * high:+.1f}]" if math.isfinite(high) else f"{100 * middle:+.1f}"
    )


PARTS = {
    "loader": Part(tuple(REGIMES), loader_run, loader_table, "search_quality"),
    "batch": Part(tuple(MODELS), batch_run, batch_table, "search_quality_batch"),
}


# ---- the command --------------------------------------------------------------------------------------------------


def next_regime(records: list[Record], regimes: list[str]) -> str:
    """The one that has been run least, so that all see the same hours of the machine."""
    return min(regimes, key=lambda regime: sum(r["regime"] == regime for r in records))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=PARTS)
    parser.add_argument("records", type=Path)
    parser.add_argument("--repeats", type=int, default=0)
    parser.add_argument("--regime", action="append")
    parser.add_argument("--budget", type=float, default=50.0)
    parser.add_argument("--write", action="store_true")
    arguments = parser.parse_args()
    part = PARTS[arguments.part]
    regimes = arguments.regime or list(part.regimes)
    if unknown := [regime for regime in regimes if regime not in part.regimes]:
        parser.error(f"no regime {unknown[0]!r}; there are {', '.join(map(repr, part.regimes))}")
    for _ in range(arguments.repeats):
        mine = [r for r in read(arguments.records) if r["part"] == arguments.part]
        record = part.run(next_regime(mine, regimes), arguments.budget)
        arguments.records.parent.mkdir(parents=True, exist_ok=True)
        keep(arguments.records, record)
        print(part.table([record]), flush=True)
    records = [r for r in read(arguments.records) if r["part"] == arguments.part]
    if not records:
        return
    machine = f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}"
    text = f"{machine}\n\n{part.table(records)}"
    print(text)
    if arguments.write:
        here = Path(__file__).with_name(f"{part.file}.md")
        command = f"`python benchmarks/search_quality.py {arguments.part} RECORDS.jsonl --repeats N --write`"
        here.write_text(f"# How well and how fast settings are searched\n\n{command}\n\n{text}\n")
        here.with_suffix(".json").write_text(json.dumps({"machine": machine, "runs": records}, indent=1) + "\n")


if __name__ == "__main__":
    main()
