"""Whether counters of a training step are the same in every process: `python benchmarks/counters_stability.py`.

Each sample model is counted in fresh processes one after another, with another hash seed each and one or two threads in
turn. Prints a Markdown table of the counters, names those that differed with the values they had, and says how many seconds
one `count` of the gate (two processes side by side) took, of the processor and on the clock. Exits with 1 where anything
differed.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from perfaudit.gate.counting import count
from perfaudit.measure.child import Child
from perfaudit.measure.environment import host
from perfaudit.target.names import Target

ROOT = Path(__file__).resolve().parent.parent
SAMPLES = sorted((ROOT / "sample_models").rglob("*.py"))
TIMEOUT = 300.0  # seconds to build a training, and to count its step
SHOWN = ("operators", "flops", "bytes_allocated", "peak_live_bytes", "host_syncs", "samples_skipped")

Reply = dict[str, Any]  # JSON


def main() -> int:
    parser = argparse.ArgumentParser(description="count one step of each sample model in many fresh processes")
    parser.add_argument("--processes", type=int, default=20)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--only", default="", help="sample models whose path has this in it")
    parser.add_argument("--write", type=Path, help="file for the table")
    arguments = parser.parse_args()
    os.chdir(ROOT)
    command = f"python benchmarks/counters_stability.py --processes {arguments.processes}"
    rows, differing, torch_version = [], [], ""
    for path in (p.relative_to(ROOT) for p in SAMPLES if arguments.only in str(p.relative_to(ROOT))):
        replies = [counted(path, arguments.device, seed, 1 + seed % 2) for seed in range(1, arguments.processes + 1)]
        torch_version = replies[0]["torch"]
        different = differences(replies)
        differing += [f"- {path}: {words}" for words in different]
        started, used = time.perf_counter(), processor_seconds()
        found = count(Target(str(path)), None, arguments.device, TIMEOUT)
        seconds, used = time.perf_counter() - started, processor_seconds() - used
        differing += [f"- {path}: set aside: {name}: {words}" for name, words in found.set_aside.items()]
        values = " | ".join(f"{found.values[name]:,}" if name in found.values else "-" for name in SHOWN)
        rows.append(f"| {path} | {values} | {len(replies)} | {len(different)} | {used:.1f} | {seconds:.1f} |")
        print(rows[-1], file=sys.stderr, flush=True)
    text = table(command, rows, differing, arguments.device, torch_version)
    print(text)
    if arguments.write:
        arguments.write.write_text(text + "\n")
    return 1 if differing else 0


def counted(path: Path, device: str, hash_seed: int, threads: int) -> Reply:
    """The counters of one step in a process of its own."""
    target = {"file": str(path), "names": {}}
    with environment(PYTHONHASHSEED=str(hash_seed), OMP_NUM_THREADS=str(threads)):
        child = Child(fresh=True)
    with child:
        build = {"do": "build", "target": target, "overlay": {}, "knob": "", "settings": {}, "device": device}
        facts = child.ask(build, TIMEOUT)
        if facts["host"]["threads"] != threads:
            raise SystemExit(f"{path} runs with {facts['host']['threads']} threads, not {threads}")
        return child.ask({"do": "count"}, TIMEOUT)


def processor_seconds() -> float:
    """Seconds of the processor that ended children have used."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def differences(replies: list[Reply]) -> list[str]:
    """Counters, parts and places that were not the same in all replies, with the values they had and how often."""
    found = []
    for part in ("values", "by_name", "places", "unsteady", "absent"):
        for name in sorted({name for reply in replies for name in reply[part]}):
            seen = Counter(json.dumps(reply[part].get(name), sort_keys=True) for reply in replies)
            if len(seen) > 1:
                told = ", ".join(f"{value[:60]} in {times}" for value, times in seen.most_common())
                found.append(f"{part} of {name}: {told}")
    found += [f"{name}: {words}" for name, words in replies[0]["unsteady"].items()]
    return found


def table(command: str, rows: list[str], differing: list[str], device: str, torch_version: str) -> str:
    machine = host()
    names = " | ".join(name.replace("_", " ") for name in SHOWN)
    return "\n".join(
        [
            "# Counters of one training step, in fresh processes",
            "",
            f"`{command}`, torch {torch_version}, device {device}, {machine.platform}, {machine.cores} cores, "
            f"load {machine.load}. Hash seeds 1 to n,",
            "1 or 2 threads in turn. All counters, their parts by operator, and their lines are compared, more than shown. "
            "Seconds are of one",
            "`count` of the gate, which starts two processes: of the processor, and on the clock.",
            "",
            f"| step | {names} | processes | differing | processor s | s |",
            "|---|" + "---:|" * (len(SHOWN) + 4),
            *rows,
            "",
            *(differing or ["Nothing differed."]),
        ]
    )


@contextmanager
def environment(**settings: str) -> Iterator[None]:
    """Variables that processes started inside have."""
    before = {name: os.environ.get(name) for name in settings}
    os.environ.update(settings)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


if __name__ == "__main__":
    sys.exit(main())
