"""What `perfaudit tune --all` reaches in a minute or two: `python benchmarks/climb_speed.py --runs 5 --write`.

    --programs char_gpt …    samples, and programs by other people (default: all)
    --sources DIR            clones of the latter, see benchmarks/own_processes.py; without it they are left out
    --goals DIR              where the goal of each of the latter is kept, made by a long climb if it is not there
    --goal-budget S          of that climb (900)
    --states calm loaded     the machine as it is, and beside three busy processes that this starts
    --budgets S …            of each climb (60 120)
    --runs N                 until so many of each row are on record; 0 only prints what is
    --rounds N               of the race afterwards (9)
    --write                  put the table into climb_speed.md

A row is climbed as a user does it, in a folder of its own: `perfaudit tune FILE --all --budget 60s --allow … --out
plan.patch`. `perfaudit apply report.json` then patches a fresh copy. Afterwards, with the machine as it is, three texts are raced
without perfaudit: a bare loop over the factories of the program, of the copy as patched, and of the goal, in processes of
their own, in turn. The goal of a sample is its hand-tuned twin of `sample_models/fast/`; that of a program by other people
is what a long climb of the calm machine has made of it.

*Share* is the time per step that the climb saves over what the goal saves, the median over the runs of a row, and its
range; a run whose goal was not shown to be faster has none. Runs agree when they accept the same patches; knobs count as
not reached where the report says that time ran out. A run is a line of climb_speed.jsonl.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from gate_power import machine
from ladder import ALLOW
from machine_states import STATES, busy_cores, machine_in
from own_processes import BARE, OTHERS, SAMPLES, commit_of, median_ratio, put, seconds_per_step
from records import keep, read, tell

HERE = Path(__file__).resolve().parent
RECORDS, PAGE = HERE / "climb_speed.jsonl", HERE / "climb_speed.md"
PERFAUDIT = [sys.executable, "-m", "perfaudit"]
NAMES = ("program", "climbed", "goal")
STEPS = 20  # of each process of the race
HEAD = ("program", "from", "machine", "load", "budget", "took", "step, ms", "climbed", "goal", "share (range), of runs")
HEAD += ("same patches in", "undecided", "not reached")
GRACE = 600.0  # seconds beyond its budget after which a climb has failed

Json = dict[str, Any]


def allowed(program: str) -> str:
    return OTHERS[program].allow if program in OTHERS else ALLOW[program]


def climb(file: Path, program: str, budget: float) -> Json:
    """One climb of a file, in its folder: the ladder of the report, seconds it took, and how it ended."""
    options = ["--all", "--budget", f"{budget:.0f}s", "--allow", allowed(program), "--device", "cpu"]
    command = ["tune", file.name, *options, "--out", "plan.patch"]
    began = time.monotonic()
    done = subprocess.run(
        [*PERFAUDIT, *command, "--format", "json", "--output", "report.json"],
        cwd=file.parent, capture_output=True, text=True, timeout=budget + GRACE, check=False,
    )  # fmt: skip
    seconds = time.monotonic() - began
    report = file.parent / "report.json"
    ladder = json.loads(report.read_text()).get("ladder") if report.exists() else None
    return {
        "command": "perfaudit " + " ".join(command),
        "code": done.returncode,
        "said": "" if ladder else (done.stdout + done.stderr)[-500:],
        "took": round(seconds, 1),
        "ladder": summary_of(ladder) if ladder else None,
    }


def summary_of(ladder: Json) -> Json:
    """What a record keeps of a report's ladder: no text of the program."""
    rungs = ladder.get("rungs") or []
    return {
        "patches": sorted({rung["knob"] for rung in rungs if not rung.get("dropped")}),
        "words": [rung["words"] for rung in rungs if not rung.get("dropped")],
        "dropped": [rung["words"] for rung in rungs if rung.get("dropped")],
        "said": [ladder.get("ratio"), ladder.get("low"), ladder.get("high"), ladder.get("basis")],
        "undecided": list(ladder.get("undecided") or []),
        "left": {item["knob"]: item["reason"] for item in ladder.get("left") or []},
        "late": [item["knob"] for item in ladder.get("left") or [] if item.get("late")],
        "verified": ladder.get("verified", ""),
        "trouble": ladder.get("trouble", ""),
    }


def apply(report: Path, file: Path) -> str:
    """Patch a fresh copy of the program; what the command said."""
    done = subprocess.run(
        [*PERFAUDIT, "apply", str(report)], cwd=file.parent, capture_output=True, text=True, check=False
    )
    return f"exit {done.returncode}: {(done.stdout + done.stderr).strip()[-300:]}"


def put_goal(program: str, folder: Path, arguments: argparse.Namespace) -> Path:
    """The goal's file in a folder: the hand-tuned twin, or what a long climb made of a program by other people."""
    if program in SAMPLES:
        file = folder / f"{program}.py"
        shutil.copyfile(HERE.parent / "sample_models" / "fast" / file.name, file)
        return file
    kept: Path = arguments.goals / program
    if not kept.exists():
        with tempfile.TemporaryDirectory(prefix="climb_goal_") as name:
            tried = put(program, Path(name), arguments.sources)
            found = climb(tried, program, arguments.goal_budget)
            fresh = kept.with_name(f"{program}.part")
            fresh.mkdir(parents=True)
            apply(tried.parent / "report.json", put(program, fresh, arguments.sources))
            (fresh / "goal.json").write_text(json.dumps(found, indent=1))
            fresh.rename(kept)
    shutil.copytree(kept, folder, dirs_exist_ok=True)
    return folder / f"{program}.py"


def goal_patches(goal: Path) -> list[str] | None:
    """Knobs whose patches a long climb has put into a goal; None for a twin, which is tuned by hand."""
    told = goal.with_name("goal.json")
    if not told.exists():
        return None
    ladder = json.loads(told.read_text())["ladder"]
    return ladder["patches"] if ladder else []


def one(program: str, state: str, budget: float, number: int, arguments: argparse.Namespace) -> Json:
    """One climb, applied to a fresh copy and raced, as a record."""
    with contextlib.ExitStack() as stack:
        names = ("climb", *NAMES)
        folders = {name: Path(stack.enter_context(tempfile.TemporaryDirectory(prefix=f"{name}_"))) for name in names}
        goal = put_goal(program, folders["goal"], arguments)
        tried = put(program, folders["climb"], arguments.sources)
        others = busy_cores()
        with machine_in(state):
            time.sleep(2.0 if state == "loaded" else 0.0)  # until the others compute
            load = os.getloadavg()[0]
            found = climb(tried, program, budget)
            after = os.getloadavg()[0]
        files = {"program": put(program, folders["program"], arguments.sources), "goal": goal}
        files["climbed"] = put(program, folders["climbed"], arguments.sources)
        report = folders["climb"] / "report.json"
        applied = apply(report, files["climbed"]) if report.exists() else "no report"
        seconds = race(files, arguments.rounds)
    return {
        "program": program, "state": state, "budget": budget, "number": number, "commit": commit_of(program),
        "at": round(time.time()), "others": others, "load": [round(load, 1), round(after, 1)], "machine": machine(), **found,
        "goal": goal_patches(goal), "applied": applied, "race": {"seconds": seconds, "load": round(os.getloadavg()[0], 1)},
    }  # fmt: skip


def race(files: dict[str, Path], rounds: int) -> dict[str, list[float]]:
    """Seconds per step of each text in a bare loop, one process of each in every round, in random order."""
    order = random.Random(0)
    seconds: dict[str, list[float]] = {name: [] for name in NAMES}
    for _ in range(rounds):
        for name in order.sample(NAMES, len(NAMES)):
            seconds[name].append(round(seconds_per_step(BARE, files[name], STEPS), 6))
    return seconds


# ---- the table -----------------------------------------------------------------------------------------------------


def ratio(record: Json, name: str, to: str) -> tuple[float, float, float]:
    """Step of one text over that of another in the race of this run, with its interval over the rounds."""
    found = median_ratio(record["race"]["seconds"][name], record["race"]["seconds"][to])
    assert found is not None, "a race has two rounds or more"
    return found


def share_of(record: Json) -> float | None:
    """What the climb saves of a step over what the goal saves; None where the goal is the program, or not surely faster."""
    if record.get("goal") == []:
        return None
    climbed, goal = ratio(record, "climbed", "program"), ratio(record, "goal", "program")
    return (1 - climbed[0]) / (1 - goal[0]) if goal[2] < 1 else None


def patches_of(record: Json) -> tuple[str, ...]:
    """Knobs whose patches are in what was handed over; none where nothing was."""
    ladder = record["ladder"]
    return tuple(ladder["patches"]) if ladder and not ladder["trouble"] else ()


def rows_of(records: Sequence[Json]) -> Iterator[list[Json]]:
    """The runs of each row of the table."""
    for state in STATES:
        for program in (*SAMPLES, *OTHERS):
            for budget in sorted({record["budget"] for record in records}):
                key = (program, state, budget)
                if mine := [r for r in records if (r["program"], r["state"], r["budget"]) == key]:
                    yield mine


def cells_of(mine: Sequence[Json]) -> list[str]:
    """A row of the table."""
    middle = statistics.median
    shares = [share for record in mine if (share := share_of(record)) is not None]
    sets = Counter(patches_of(record) for record in mine)
    (common, times), *_ = sets.most_common(1)
    seconds = [record["race"]["seconds"] for record in mine]
    undecided = [len(record["ladder"]["undecided"]) if record["ladder"] else 0 for record in mine]
    not_reached = [len(record["ladder"]["late"]) if record["ladder"] else 0 for record in mine]
    said = f"{100 * middle(shares):.0f} % ({100 * min(shares):.0f} to {100 * max(shares):.0f}), " if shares else "– "
    return [
        mine[0]["program"],
        mine[0]["commit"],
        mine[0]["state"],
        f"{middle(record['load'][1] for record in mine):.1f}",
        f"{mine[0]['budget']:.0f} s",
        f"{middle(record['took'] for record in mine):.0f} s",
        f"{1e3 * middle(second for one in seconds for second in one['program']):.0f}",
        f"{middle(ratio(record, 'climbed', 'program')[0] for record in mine):.3f}",
        _goal_cell(mine),
        f"{said}{len(shares)} of {len(mine)} runs",
        f"{times} of {len(mine)}: {', '.join(common) or 'none'}",
        f"{middle(undecided):.0f}",
        f"{middle(not_reached):.0f}",
    ]


def _goal_cell(mine: Sequence[Json]) -> str:
    goals = {tuple(goal) for record in mine if (goal := record.get("goal")) is not None}
    ratios = f"{statistics.median(ratio(record, 'goal', 'program')[0] for record in mine):.3f}"
    if goals == {()}:
        return f"no patch ({ratios})"
    return f"{ratios} ({', '.join(max(goals, key=len))})" if goals else ratios


def commands_of(records: Sequence[Json]) -> list[str]:
    """The commands that made these records, as they were: runs of a row, and rounds of the race behind each."""
    own = " --sources SOURCES --goals GOALS" if {record["program"] for record in records} & set(OTHERS) else ""
    runs: dict[int, int] = {}
    for mine in rows_of(records):
        for rounds, times in Counter(len(record["race"]["seconds"]["program"]) for record in mine).items():
            runs[rounds] = max(times, runs.get(rounds, 0))
    return [
        f"    python benchmarks/climb_speed.py --runs {times} --rounds {rounds}{own} --write"
        for rounds, times in sorted(runs.items())
    ]


def page(records: Sequence[Json]) -> str:
    lines = [
        "# What a climb reaches in its budget", "",
        *commands_of(records), "",
        " / ".join(sorted({record["machine"] for record in records})) + ".",
        "Load is that of the last minute, at the end of the climb, which is in it. The race afterwards is on the machine as",
        "it is. *climbed*, *goal*: their step over the program's, median of the runs. *share*: what the climb saves of a step",
        "over what the goal saves, over those runs whose goal was shown to be faster. Where a long climb found nothing to patch,",
        "the goal is the program itself, and its ratio is what two runs of identical code differ by.", "",
        f"| {' | '.join(HEAD)} |", f"|{'---|' * len(HEAD)}",
    ]  # fmt: skip
    lines += [f"| {' | '.join(cells_of(mine))} |" for mine in rows_of(records)]
    failed = Counter(f"{r['program']}, {r['state']}, {r['budget']:.0f} s" for r in records if not r["ladder"])
    lines += ["", *(f"- {row}: {times} climbs ended without a report" for row, times in failed.items())]
    return "\n".join(lines).rstrip() + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--programs", nargs="+", choices=(*SAMPLES, *OTHERS))
    parser.add_argument("--sources", type=Path)
    parser.add_argument("--goals", type=Path)
    parser.add_argument("--goal-budget", type=float, default=900.0)
    parser.add_argument("--states", nargs="+", choices=STATES, default=list(STATES))
    parser.add_argument("--budgets", nargs="+", type=float, default=[60.0, 120.0])
    parser.add_argument("--runs", type=int, default=0)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--records", type=Path, default=RECORDS)
    parser.add_argument("--write", action="store_true")
    arguments = parser.parse_args()
    programs = arguments.programs or (*SAMPLES, *(OTHERS if arguments.sources and arguments.goals else ()))
    if arguments.runs and not arguments.goals and set(programs) & set(OTHERS):
        parser.error(
            "programs by other people are held against a long climb of theirs: name a folder for it with --goals"
        )
    records = read(arguments.records)
    rows = [(p, state, budget) for p in programs for budget in arguments.budgets for state in arguments.states]
    for number in range(arguments.runs):
        for row in rows:
            if sum((r["program"], r["state"], r["budget"]) == row for r in records) > number:
                continue
            record = one(*row, number, arguments)
            records.append(record)
            keep(arguments.records, record)
            print(f"{' '.join(map(str, row))}: {patches_of(record)} {record['said']}", flush=True)
    if records:
        tell(page(records), PAGE, arguments.write)


if __name__ == "__main__":
    main()
