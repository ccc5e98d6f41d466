"""Whether the base's step in a training of ours is the user's step: `python benchmarks/fidelity.py --rounds 12 --write`.

    --programs char_gpt …    samples, and programs by other people (default: all)
    --sources DIR            clones of the latter, see benchmarks/own_processes.py; without it they are left out
    --states calm loaded     the machine as it is (default), and beside three busy processes that this starts
    --rounds N               of fresh processes of each kind (default: 12); 0 only prints what is on record
    --write                  put the table into fidelity.md

Every round runs, in random order and one after the other, in a process of its own each: the training that perfaudit builds,
its code raced beside a control as `tune` races it (*race*, the step that a report leads with); the same training undisturbed
(*training*, the worker's verb `block`); a bare loop over the same factories; the program as it is run from a shell, in its own
loop, stopped after so many updates; and the same program as perfaudit runs a script, in its own loop as well (*script*). Of
each the median step counts, loading with it, after some that do not. Of a race that is the median of the base's timed blocks,
two at a time, as a quad has them. Samples are run one more way, to the end, for two numbers of steps: the difference is what
their steps take, without start and evaluation. A ratio is that of the race, the training or the script to another of the same
round. It is the median of the rounds, and its interval goes by ranks.

Like is held against like: the training over the bare loop, and the script over the program's own loop. The factories of a
program do not say what its own loop does besides (reading the loss, printing, clipping gradients), so the ratio of a training
to the own loop has that in it as well. In char_gpt the own loop keeps the graphs of twenty steps by a sum of losses (PA603),
and the allocator has to ask the system for memory in every step.

Steps of two processes of identical code differ by a few percent. Of three rounds an interval is the whole range, and six are
the fewest with one of 95 %.

A run is a line of fidelity.jsonl; the table shows the last of each program and state.
"""

from __future__ import annotations

import argparse
import contextlib
import math
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from gate_power import machine
from machine_states import STATES, busy_cores, machine_in
from own_processes import BARE, OTHERS, OWN, SAMPLES, UNTIMED, commit_of, median_ratio, put, seconds_per_step
from records import keep, read, tell

from perfaudit.measure.child import Child
from perfaudit.measure.engine import ChildEngine
from perfaudit.measure.lab import build_command
from perfaudit.measure.ledger import Variant
from perfaudit.measure.scratch import target_json
from perfaudit.target.names import Target

HERE = Path(__file__).resolve().parent
RECORDS, PAGE = HERE / "fidelity.jsonl", HERE / "fidelity.md"
ROUNDS = 12
STEPS = 16  # of each process
QUADS = 8  # of a race: each has two blocks of the base, of which it shares one with the next
SLICE = 1.0  # seconds between two looks at a race, as `tune` has them
LENGTHS = {"char_gpt": (5, 30), "photo_resnet": (8, 48), "digits_cnn": (10, 60)}  # steps of whole programs
TIMEOUT = 300.0
OURS = {
    "race": "The base's step in a race",
    "training": "The same training undisturbed",
    "script": "The same program as a script, in its own loop",
}
WAYS = {"training": "undisturbed", "bare": "a bare loop", "own": "its own loop", "whole": "whole runs, long less short"}

OF_OURS = {
    "race": tuple(WAYS),
    "training": ("bare", "own", "whole"),
    "script": ("own", "whole"),
}  # what each is held against

Json = dict[str, Any]


def training_seconds(file: Path) -> float:
    """The median step of the training that perfaudit builds of a file, in a child."""
    with contextlib.chdir(file.parent), Child(False) as child:
        child.ask(build_command({"file": file.name, "names": {}}, Variant("base", "", {}), "cpu", 0), TIMEOUT)
        reply = child.ask({"do": "block", "steps": STEPS, "untimed": UNTIMED}, TIMEOUT)
    return statistics.median(reply["each"]["seconds"])


def script_seconds(file: Path) -> float:
    """The median step of a program that perfaudit runs as a script, in the program's own loop, in a child."""
    with contextlib.chdir(file.parent), Child(False) as child:
        target = target_json(Target(file.name, {}, ()), child)
        child.ask(build_command(target, Variant("base", "", {}), "cpu", 0), TIMEOUT)
        reply = child.ask({"do": "block", "steps": STEPS, "untimed": UNTIMED}, TIMEOUT)
    return statistics.median(reply["each"]["seconds"])


def race_seconds(file: Path) -> float:
    """The median step of the base in a race beside a control, in a child as `tune` starts it."""
    with contextlib.chdir(file.parent):
        child = Child(False)
        engine = ChildEngine(child, TIMEOUT)
        try:
            child.ask(build_command({"file": file.name, "names": {}}, Variant("screening", "", {}), "cpu", 0), TIMEOUT)
            engine.screen([], None, 0)
            seconds: list[float] = []
            while len(seconds) < QUADS:
                seconds = base_seconds(engine.race(SLICE, last=False)["entrants"]["control"])
        finally:
            engine.close()
    return statistics.median(seconds)


def base_seconds(control: Json) -> list[float]:
    """The base's step in each quad of an entrant, the mean of its two blocks, from the quad's ratio and the entrant's step."""
    pairs = zip(control["seconds"], control["log_ratios"], strict=True)
    return [seconds / math.exp(log_ratio) for seconds, log_ratio in pairs]


def whole_seconds(file: Path, lengths: tuple[int, int]) -> float:
    """Seconds of a step from a short and a long run of a program that is given the number of its steps."""
    took = []
    for steps in lengths:
        began = time.monotonic()
        command = [sys.executable, file.name, "--steps", str(steps)]
        subprocess.run(command, cwd=file.parent, check=True, capture_output=True)
        took.append(time.monotonic() - began)
    return (took[1] - took[0]) / (lengths[1] - lengths[0])


def measured(program: str, state: str, rounds: int, sources: Path | None) -> Json:
    """A program in a state of the machine, as a record: by way, the seconds per step of each round."""
    others = busy_cores()
    with tempfile.TemporaryDirectory(prefix="fidelity_") as folder, machine_in(state):
        file = put(program, Path(folder), sources)
        ways: dict[str, Callable[[], float]] = {
            "race": lambda: race_seconds(file),
            "training": lambda: training_seconds(file),
            "bare": lambda: seconds_per_step(BARE, file, STEPS),
        }
        if program in SAMPLES or OTHERS[program].own_loop:
            ways |= {"own": lambda: seconds_per_step(OWN, file, STEPS), "script": lambda: script_seconds(file)}
        if program in LENGTHS:
            ways["whole"] = lambda: whole_seconds(file, LENGTHS[program])
        load, began, order = os.getloadavg()[0], time.monotonic(), random.Random(0)
        seconds: dict[str, list[float]] = {way: [] for way in ways}
        for _ in range(rounds):
            for way in order.sample(list(ways), len(ways)):
                seconds[way].append(round(ways[way](), 6))
    return {
        "program": program, "state": state, "commit": commit_of(program), "at": round(time.time()),
        "took": round(time.monotonic() - began), "others": others, "load": [round(load, 1), round(os.getloadavg()[0], 1)],
        "machine": machine(), "seconds": seconds,
    }  # fmt: skip


def ratio(record: Json, ours: str, way: str) -> tuple[float, float, float] | None:
    """The step of one of OURS over that of another way, with its interval over the rounds; None for fewer than two of them.

    A round of whole runs that noise has turned around, the long one being the shorter, has no ratio.
    """
    seconds = record["seconds"]
    return median_ratio(seconds[ours], seconds[way]) if ours in seconds and way in seconds else None


def page(records: Sequence[Json]) -> str:
    last = {(record["program"], record["state"]): record for record in records}
    states: dict[int, set[str]] = {}
    for record in last.values():
        states.setdefault(len(record["seconds"]["training"]), set()).add(record["state"])
    order = {name: place for place, name in enumerate((*SAMPLES, *OTHERS))}
    shown = sorted(last.values(), key=lambda one: (STATES.index(one["state"]), order[one["program"]]))
    lines = [
        "# The step of a training, and the step of the program by itself", "",
        *(
            f"    python benchmarks/fidelity.py --rounds {n} --sources SOURCES --states {' '.join(sorted(states[n]))} --write"
            for n in sorted(states)
        ), "",
        " / ".join(sorted({record["machine"] for record in last.values()})) + ". Load is that of the last minute.",
    ]  # fmt: skip
    for ours, title in OURS.items():
        ways = OF_OURS[ours]
        if not any(ours in record["seconds"] for record in shown):
            continue
        lines += [
            "", f"## {title}", "",
            f"| program | from | machine | load | step, ms | {' | '.join(f'ratio to {WAYS[way]}' for way in ways)} |",
            "|---|---|---|---:|---:|" + "---|" * len(ways),
        ]  # fmt: skip
        lines += [row(record, ours, ways) for record in shown if ours in record["seconds"]]
    return "\n".join(lines) + "\n"


def row(record: Json, ours: str, ways: Sequence[str]) -> str:
    """A line of a table: the step of one of OURS, and its ratios to other ways."""
    cells = [
        record["program"], record["commit"], record["state"], f"{record['load'][1]:.1f}",
        f"{1e3 * statistics.median(record['seconds'][ours]):.1f}",
    ]  # fmt: skip
    for way in ways:
        found = ratio(record, ours, way)
        cells.append(f"{found[0]:.3f} [{found[1]:.3f}, {found[2]:.3f}]" if found else "–")
    return f"| {' | '.join(cells)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--programs", nargs="+", choices=(*SAMPLES, *OTHERS))
    parser.add_argument("--sources", type=Path)
    parser.add_argument("--states", nargs="+", choices=STATES, default=["calm"])
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--records", type=Path, default=RECORDS)
    parser.add_argument("--write", action="store_true")
    arguments = parser.parse_args()
    programs = arguments.programs or (*SAMPLES, *(OTHERS if arguments.sources else ()))
    for state in arguments.states if arguments.rounds else ():
        for program in programs:
            record = measured(program, state, arguments.rounds, arguments.sources)
            keep(arguments.records, record)
    if records := read(arguments.records):
        tell(page(records), PAGE, arguments.write)


if __name__ == "__main__":
    main()
