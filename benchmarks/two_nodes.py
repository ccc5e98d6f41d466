"""What a second node saves a gate of four targets: `python benchmarks/two_nodes.py --runs 4 --write`.

    --runs N     gates on one node and on two, in turn, the order changing (4)
    --write      put the table into two_nodes.md

Needs `perfaudit[ray]`, `taskset` and a core for each node: each is a `ray start` that may use one core of this machine and no
other. The targets are benchmarks/rank_programs/rows.py under four names, all of them changed to be slower by the same edit, so
that each is decided at its first looks on any node. A run is a line of two_nodes.jsonl.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from gate_power import machine
from records import Json, keep, read, tell

from perfaudit.measure.stats import ratio_interval

HERE = Path(__file__).resolve().parent
RECORDS, PAGE = HERE / "two_nodes.jsonl", HERE / "two_nodes.md"
PROGRAM = HERE / "rank_programs" / "rows.py"
NAMES = ("first.py", "second.py", "third.py", "fourth.py")
SLOWER = ("DEPTH = 2", "DEPTH = 3")  # a constant of the module: no swap in one training, but pairs of processes
BUDGET = "20m"
PORT = 6399
GOAL = 0.6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=4)
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < 2 or shutil.which("taskset") is None:
        raise SystemExit("two nodes need two cores and `taskset`")
    for number in range(options.runs):
        for nodes in (1, 2) if number % 2 == 0 else (2, 1):
            if (number, nodes) not in {(each["round"], each["nodes"]) for each in read(RECORDS)}:
                keep(RECORDS, {"round": number, "nodes": nodes, **run(cores[:nodes])})
    tell(page(read(RECORDS)), PAGE, options.write)


def run(cores: list[int]) -> Json:
    """A gate on a cluster with a node on each of these cores: its seconds, without the start of the cluster, and its verdicts."""
    ray = [str(Path(sys.executable).with_name("ray"))]
    address, load = f"127.0.0.1:{PORT}", os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as folder:
        commit(Path(folder))
        try:
            for at, core in enumerate(cores):
                where = ["--head", f"--port={PORT}"] if at == 0 else [f"--address={address}"]
                subprocess.run(
                    ["taskset", "-c", str(core), *ray, "start", *where, "--num-cpus=1", "--disable-usage-stats"],
                    check=True, capture_output=True, env={**os.environ, "RAY_AUTH_MODE": "token"},
                )  # fmt: skip
            began = time.monotonic()
            done = subprocess.run(
                [sys.executable, "-m", "perfaudit", "gate", *NAMES, "--against", "main", "--layers", "time", "--budget", BUDGET,
                 "--on", "ray", "--format", "json", "--no-history"],
                cwd=folder, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL,
                env={**os.environ, "RAY_ADDRESS": address, "RAY_AUTH_MODE": "token"},
            )  # fmt: skip
            seconds = time.monotonic() - began
        finally:
            subprocess.run([*ray, "stop", "--force"], check=False, capture_output=True)
    if done.returncode not in (0, 1):
        raise SystemExit(f"the gate left with {done.returncode}: {done.stderr[-2000:]}")
    report = json.loads(done.stdout)
    return {
        "seconds": seconds,
        "code": done.returncode,
        "targets": [
            {name: timed[name] for name in ("target", "verdict", "ratio", "pairs", "way")}
            for timed in report["gate"]["times"]
        ],
        "said": [line for line in done.stderr.splitlines() if "measuring on" in line],
        "load": load,
        "machine": machine(),
    }


def commit(folder: Path) -> None:
    """A repository with the four targets, and a change of each of them that is not committed."""

    def git(*words: str) -> None:
        name = ["-c", "user.name=perfaudit", "-c", "user.email=perfaudit@example.org"]
        subprocess.run(["git", *name, *words], cwd=folder, check=True, capture_output=True)

    text = PROGRAM.read_text(encoding="utf-8")
    for name in NAMES:
        (folder / name).write_text(text, encoding="utf-8")
    git("init", "--initial-branch=main")
    git("add", ".")
    git("commit", "-m", "four targets")
    for name in NAMES:
        (folder / name).write_text(text.replace(*SLOWER), encoding="utf-8")


def page(records: list[Json]) -> str:
    lines = [
        "# Four targets on two nodes",
        "",
        "Printed by `python benchmarks/two_nodes.py --write` from two_nodes.jsonl. `perfaudit gate --layers time --on ray` of",
        "four targets that all got slower. A node is a `ray start` on one core of this machine. Seconds of the whole command,",
        "the cluster being there.",
        "",
        "| round | one node, s | two nodes, s | ratio | pairs, one node | pairs, two | load before |",
        "|---:|---:|---:|---:|---:|---:|---|",
    ]
    both = {(each["round"], each["nodes"]): each for each in records}
    ratios = []
    for number in sorted({each["round"] for each in records}):
        one, two = both.get((number, 1)), both.get((number, 2))
        if one is None or two is None:
            continue
        ratios.append([math.log(two["seconds"] / one["seconds"])])
        pairs = [sum(target["pairs"] or 0 for target in each["targets"]) for each in (one, two)]
        ratio = two["seconds"] / one["seconds"]
        lines.append(
            f"| {number + 1} | {one['seconds']:.0f} | {two['seconds']:.0f} | {ratio:.2f} | {pairs[0]} | {pairs[1]} | "
            f"{one['load']:.1f}, {two['load']:.1f} |"
        )
    if len(ratios) > 1:
        middle, low, high = ratio_interval(ratios)
        lines += [
            "",
            f"Two nodes take {middle:.2f} [{low:.2f}, {high:.2f}] of the time of one; the goal is {GOAL:.2f}.",
        ]
    return "\n".join([*lines, "", f"Machine: {'; '.join(sorted({each['machine'] for each in records}))}", ""])


if __name__ == "__main__":
    main()
