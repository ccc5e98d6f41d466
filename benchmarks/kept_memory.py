"""What a step takes where glibc keeps the memory that steps free, and by itself: `python benchmarks/kept_memory.py --write`.

    --programs char_gpt …    samples, and programs by other people (default: all)
    --sources DIR            clones of the latter, see benchmarks/own_processes.py; without it they are left out
    --rounds N               of a process of each kind (default: 7); 0 only prints what is on record
    --write                  put the table into kept_memory.md

In every round each program runs in its own loop (one without a loop that can be run, in a bare one), once as it is and once with
the lines of the knob `allocator` before it, in random order, each in a process of its own. Of each the median of STEPS steps
counts, after some that do not, with the page faults of these steps and the most memory that the process ever held. Perfaudit does
not run there.

A ratio is that of the two processes of a round. It is the median of the rounds, with an interval by ranks; of fewer than six
rounds, their range. "Saved for each fault": the difference of the two median steps, over that of their page faults.

A run is a line of kept_memory.jsonl; the table shows the last of each program.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gate_power import machine
from own_processes import BARE, OTHERS, OWN, SAMPLES, TIMEOUT, commit_of, median_ratio, put
from records import keep, read, tell

from perfaudit.knobs.allocator import LINES, NAMES

HERE = Path(__file__).resolve().parent
RECORDS, PAGE = HERE / "kept_memory.jsonl", HERE / "kept_memory.md"
ROUNDS = 7
STEPS = 40
UNTIMED = 4
WAYS = ("returned", "kept")

# Before a loop: what it prints for its steps goes to `told`, which adds the page faults of those that count and the peak memory.
AROUND = """
import resource
def told(seconds):
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return [seconds, (usage.ru_minflt - began_with) / len(seconds[UNTIMED:]), usage.ru_maxrss * 1024]
def note_step(made):
    global began_with
    if made == UNTIMED:
        began_with = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
"""
# What the loops of own_processes do at the end of a step, and what they print: with the counters of AROUND besides.
COUNTED = {
    BARE: (("seconds.append(ended - began)", "seconds.append(ended - began); note_step(len(seconds))"), "seconds"),
    OWN: (
        ("ends.append(time.perf_counter())", "ends.append(time.perf_counter()); note_step(len(ends) - 1)"),
        "[b - a for a, b in zip(ends, ends[1:])]",
    ),
}

Json = dict[str, Any]


def loop_of(program: str, way: str) -> str:
    """The text of a process that runs a program, by itself or with the lines of the knob before it."""
    loop = OWN if program in SAMPLES or OTHERS[program].own_loop else BARE
    (at_step, counted), steps = COUNTED[loop]
    for before, after in ((at_step, counted), (f"json.dumps({steps})", f"json.dumps(told({steps}))")):
        assert loop.count(before) == 1
        loop = loop.replace(before, after)
    keeps = "import ctypes, platform\n" + "\n".join(LINES).format(*NAMES) + "\n" if way == "kept" else ""
    return keeps + AROUND.replace("UNTIMED", str(UNTIMED)) + loop


def measured_once(program: str, file: Path, way: str) -> Json:
    """Seconds of the median step, page faults of a step, and the peak memory of a process. Raises SystemExit where it fails."""
    command = [sys.executable, "-c", loop_of(program, way), str(file.parent), file.stem, str(UNTIMED + STEPS)]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        command, cwd=file.parent, env=environment, capture_output=True, text=True, timeout=TIMEOUT, check=False
    )
    if done.returncode:
        raise SystemExit(f"{file.name} by itself ended with {done.returncode}:\n{done.stderr[-2000:]}")
    seconds, faults, peak = json.loads(done.stdout.splitlines()[-1])
    return {"seconds": round(statistics.median(seconds[UNTIMED:]), 6), "faults": round(faults), "peak": peak}


def measured(program: str, rounds: int, sources: Path | None) -> Json:
    """A program, as a record: by way, what each round has shown."""
    with tempfile.TemporaryDirectory(prefix="kept_memory_") as folder:
        file = put(program, Path(folder), sources)
        load, order, seen = os.getloadavg()[0], random.Random(0), dict[str, list[Json]]()
        for _ in range(rounds):
            for way in order.sample(WAYS, len(WAYS)):
                seen.setdefault(way, []).append(measured_once(program, file, way))
    return {
        "program": program, "commit": commit_of(program), "at": round(time.time()),
        "load": [round(load, 1), round(os.getloadavg()[0], 1)], "machine": machine(), "seen": seen,
    }  # fmt: skip


def page(records: Sequence[Json]) -> str:
    last = {record["program"]: record for record in records}
    order = {name: place for place, name in enumerate((*SAMPLES, *OTHERS))}
    shown = sorted(last.values(), key=lambda record: order[record["program"]])
    rounds = {len(record["seen"]["kept"]) for record in shown}
    lines = [
        "# Memory that a step frees, kept for the next one", "",
        *(f"    python benchmarks/kept_memory.py --rounds {n} --sources SOURCES --write" for n in sorted(rounds)), "",
        " / ".join(sorted({record["machine"] for record in shown})) + ". Load is that of the last minute.", "",
        "| program | from | load | step, ms | kept over returned | page faults of a step (range of processes) | kept "
        "| saved for each fault, us | peak memory, MiB | kept |",
        "|---|---|---:|---:|---|---:|---:|---:|---:|---:|",
    ]  # fmt: skip
    return "\n".join([*lines, *(row(record) for record in shown)]) + "\n"


def row(record: Json) -> str:
    """A line of the table."""
    of = {way: {name: [each[name] for each in seen] for name in seen[0]} for way, seen in record["seen"].items()}
    middle = {way: {name: statistics.median(values) for name, values in found.items()} for way, found in of.items()}
    found = median_ratio(of["kept"]["seconds"], of["returned"]["seconds"])
    fewer = middle["returned"]["faults"] - middle["kept"]["faults"]
    saved = 1e6 * (middle["returned"]["seconds"] - middle["kept"]["seconds"]) / fewer if fewer > 1000 else None
    cells = [
        record["program"], record["commit"], f"{record['load'][1]:.1f}", f"{1e3 * middle['returned']['seconds']:.1f}",
        "–" if found is None else f"{found[0]:.3f} [{found[1]:.3f}, {found[2]:.3f}]",
        *(f"{middle[way]['faults']:.0f} ({min(of[way]['faults'])} to {max(of[way]['faults'])})" for way in WAYS),
        "–" if saved is None else f"{saved:.1f}",
        *(f"{middle[way]['peak'] / (1 << 20):.0f}" for way in WAYS),
    ]  # fmt: skip
    return f"| {' | '.join(cells)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--programs", nargs="+", choices=(*SAMPLES, *OTHERS))
    parser.add_argument("--sources", type=Path)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--write", action="store_true")
    args = parser.parse_args()
    programs = args.programs or [*SAMPLES, *(OTHERS if args.sources is not None else ())]
    for program in programs if args.rounds else ():
        keep(RECORDS, measured(program, args.rounds, args.sources))
        print(row(read(RECORDS)[-1]), flush=True)
    if records := read(RECORDS):
        tell(page(records), PAGE, args.write)


if __name__ == "__main__":
    main()
