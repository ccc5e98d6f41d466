"""What the patch of PA701 makes of a script on two ranks: `python benchmarks/data_parallel_ranks.py --rounds 10 --write`.

    --rounds N   each with one run of each way to train, in random order (10)
    --steps N    of each run (60)
    --write      put the table into data_parallel_ranks.md

benchmarks/rank_programs/data_parallel.py wraps its model in DataParallel. It is run as it is, and patched, by one process and by
two ranks of gloo that torchrun starts; `perfaudit run` tells the step. Each run is kept in data_parallel_ranks.jsonl as it ends.
Without CUDA, DataParallel does nothing, so this shows what the patched program is worth beside one process, and not what it is
worth beside DataParallel on several GPUs.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import subprocess
import sys
import tempfile
from pathlib import Path

from gate_power import machine
from records import Json, keep, read, tell

from perfaudit.measure.stats import ratio_interval
from perfaudit.rules import all_rules
from perfaudit.static.fix import patch
from perfaudit.static.registry import run_checks
from perfaudit.static.source import Source

HERE = Path(__file__).resolve().parent
PROGRAM = HERE / "rank_programs" / "data_parallel.py"
RECORDS, PAGE = HERE / "data_parallel_ranks.jsonl", HERE / "data_parallel_ranks.md"
BATCH = 64  # samples of a step, whoever makes it
WAYS = {  # whether it is patched, ranks (0: no launcher), threads of each process
    "as it is, on one core": (False, 0, 1),
    "as it is, on two cores": (False, 0, 2),
    "patched, started by Python, on one core": (True, 0, 1),
    "patched, two ranks, a core each": (True, 2, 1),
}
RANKS = "patched, two ranks, a core each"
PAIRS = {  # candidate and base
    "two ranks beside one process on one core": (RANKS, "as it is, on one core"),
    "two ranks beside one process on two cores": (RANKS, "as it is, on two cores"),
    "one process, patched beside as it is": ("patched, started by Python, on one core", "as it is, on one core"),
}


def patch_program() -> str:
    """The program after the fix. Raises SystemExit where there is none."""
    source = Source(PROGRAM.name, PROGRAM.read_text(encoding="utf-8"))
    findings = run_checks(source, all_rules(), frozenset(["PA701"]))
    done = patch(PROGRAM.name, source.text, [finding for finding in findings if finding.fix and finding.fix.edits])
    if not done.applied:
        raise SystemExit(f"{PROGRAM.name}: PA701 has no fix for it")
    return done.after


def run(way: str, steps: int, number: int) -> Json:
    """One run: its step, and the load of the machine before it."""
    is_patched, ranks, threads = WAYS[way]
    load = os.getloadavg()[0]
    launcher = ["-m", "torch.distributed.run", "--nproc-per-node", str(ranks), "--standalone"] if ranks else []
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / PROGRAM.name).write_text(patch_program() if is_patched else PROGRAM.read_text(encoding="utf-8"))
        done = subprocess.run(
            [sys.executable, *launcher, "-m", "perfaudit", "run", PROGRAM.name, "--steps", str(steps),
             "--format", "json", "--quiet", "--", "--threads", str(threads)],
            cwd=folder, capture_output=True, text=True, check=False,
        )  # fmt: skip
    if done.returncode not in (0, 1):
        raise SystemExit(f"{way}: {done.stderr[-2000:]}")
    seen = json.loads(done.stdout)["run"]
    return {
        "round": number,
        "way": way,
        "step": seen["seconds_per_step"],
        "exposed": seen["communication_exposed"],
        "load": load,
        "machine": machine(),
    }


def page(records: list[Json]) -> str:
    lines = [
        "# A script with DataParallel, and its patch on two ranks",
        "",
        "Printed by `python benchmarks/data_parallel_ranks.py --write` from data_parallel_ranks.jsonl. A small convolutional",
        f"network is trained on batches of {BATCH} samples in all; `perfaudit run` tells the step. The patch is what `perfaudit",
        "scan --fix --unsafe-fixes` makes of the script.",
        "",
        "Without CUDA, DataParallel calls the model as it is. So this is the patched program beside one process, and not",
        "beside DataParallel on several GPUs: copies of the model, and threads that wait for the interpreter, are not in it.",
        "Other programs used the machine as well. Two threads of one process wait for each other in every operation, so on such",
        "a machine they are slower than one: the ratio beside two cores says more of the machine than of the patch.",
        "",
        "| way | runs | step, ms | samples a second | exposed communication | load before |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    for way in WAYS:
        runs = [each for each in records if each["way"] == way]
        if runs:
            rates = [{"rate": BATCH / each["step"]} for each in runs]
            lines.append(
                f"| {way} | {len(runs)} | {span(runs, 'step', 1000)} | {span(rates, 'rate', 1)} | "
                f"{span(runs, 'exposed', 100)} % | {span(runs, 'load', 1)} |".replace("| - % |", "| - |")
            )
    lines += [
        "",
        "Samples a second of the first beside those of the second, of runs in one round; the interval is Student's over the",
        "rounds.",
        "",
        "| what | ratio [95 %] | rounds |",
        "|---|---|---:|",
    ]
    for what, (candidate, base) in PAIRS.items():
        ratios = ratios_of(records, candidate, base)
        if len(ratios) > 1:
            middle, low, high = ratio_interval([[ratio] for ratio in ratios])
            lines.append(f"| {what} | {middle:.3f} [{low:.3f}, {high:.3f}] | {len(ratios)} |")
    lines += ["", f"Machine: {'; '.join(sorted({each['machine'] for each in records}))}"]
    return "\n".join([*lines, ""])


def ratios_of(records: list[Json], candidate: str, base: str) -> list[float]:
    """Logarithms of how many samples a second the first makes for one of the second, one for each round that has both."""
    steps = {(each["round"], each["way"]): each["step"] for each in records}
    rounds = sorted({number for number, _ in steps})
    both = [n for n in rounds if (n, candidate) in steps and (n, base) in steps]
    return [math.log(steps[n, base] / steps[n, candidate]) for n in both]


def span(runs: list[Json], key: str, scale: float) -> str:
    values = sorted(scale * each[key] for each in runs if each[key] is not None)
    return f"{values[0]:.3g} to {values[-1]:.3g}" if values else "-"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    for number in range(options.rounds):
        done = {each["way"] for each in read(RECORDS) if each["round"] == number}
        for way in random.sample([*WAYS], len(WAYS)):
            if way not in done:
                keep(RECORDS, run(way, options.steps, number))
    tell(page(read(RECORDS)), PAGE, options.write)


if __name__ == "__main__":
    main()
