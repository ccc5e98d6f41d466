"""What an update in the backward pass is worth on ranks: `python benchmarks/optimizer_in_backward.py --write`.

    --starts N   of each kind of optimizer (4)
    --write      put the table into optimizer_in_backward.md

Two ranks of gloo train benchmarks/rank_programs/optimizer_in_backward.py. Each start is kept in optimizer_in_backward.jsonl.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
from pathlib import Path

from gate_power import machine
from records import Json, keep, read, tell

from perfaudit.measure.stats import ratio_interval

HERE = Path(__file__).resolve().parent
PROGRAM = HERE / "rank_programs" / "optimizer_in_backward.py"
RECORDS, PAGE = HERE / "optimizer_in_backward.jsonl", HERE / "optimizer_in_backward.md"
KINDS = ("AdamW", "AdamW, fused", "SGD")


def start(kind: str) -> Json:
    """One start of the program, with the load before it."""
    load = os.getloadavg()[0]
    command = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--nproc-per-node",
        "2",
        "--standalone",
        str(PROGRAM),
        kind,
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    told: Json = json.loads(done.stdout.splitlines()[-1])
    return {**told, "load": load, "machine": machine()}


def page(records: list[Json]) -> str:
    lines = [
        "# The optimizer in the backward pass, on two ranks",
        "",
        "Printed by `python benchmarks/optimizer_in_backward.py --write` from optimizer_in_backward.jsonl. Under",
        "DistributedDataParallel a communication hook sums each bucket over two ranks of gloo and then updates its parameters.",
        "The ratio is a step with it over a step that updates at its end, of blocks in turn; the interval is Student's over",
        "starts.",
        "",
        "| optimizer | ratio [95 %] | starts | losses and weights | load before |",
        "|---|---|---:|---|---:|",
    ]
    for kind in KINDS:
        runs = [each for each in records if each["kind"] == kind]
        if len(runs) < 2:
            continue
        ratio, low, high = ratio_interval([[math.log(b / a) for a, b in each["pairs"]] for each in runs])
        loads = [each["load"] for each in runs]
        steps = runs[0]["steps"]
        same = f"the same to the bit in {sum(each['same'] for each in runs)} of {len(runs)}, after {steps} steps"
        lines.append(
            f"| {kind} | {ratio:.3f} [{low:.3f}, {high:.3f}] | {len(runs)} | {same} | {min(loads):.3g} to {max(loads):.3g} |"
        )
    return "\n".join([*lines, "", f"Machine: {'; '.join(sorted({each['machine'] for each in records}))}", ""])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--starts", type=int, default=4)
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    for number in range(options.starts):
        for kind in KINDS:
            if sum(each["kind"] == kind for each in read(RECORDS)) <= number:
                keep(RECORDS, start(kind))
    tell(page(read(RECORDS)), PAGE, options.write)


if __name__ == "__main__":
    main()
