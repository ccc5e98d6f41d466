"""What `run` and `tune` make of training scripts by other people: `python benchmarks/scripts.py --sources DIR --write`.

    --programs NAME …   default: all of `script_programs`
    --sources DIR       clones, as `git clone https://github.com/OWNER/NAME SOURCES/OWNER+NAME`
    --parts run phases tune
                        default: all. Each is a record of scripts.jsonl as soon as it ends, so that it can be run in pieces
    --new               leave out what has a record of this machine
    --budget S          of each climb (180)
    --steps N           that are timed of each program by itself, and by `run` (60)
    --write             put the table into scripts.md; with --programs and no name, the table alone

Each program is put into a folder of its own, with data where it wants some. *run*: it runs by itself, with marks in its text
that time its phases (`marked_phases`), then by `perfaudit run`, then by itself once more. *right*: the marks count as many
steps as `run`, of as many updates each; a script with fewer steps than asked for is run to its end. *phases* is the largest
difference between the share of a phase that `run` tells and the mean of the two marked runs, in points, and behind it the
largest one between these two. The machine is not the same from run to run, so that *phases in one process* has a run of the
marked text by `perfaudit run`: both time the same steps. *step* is the median by itself, and *in run* that of `run` over it.
*tune*: `perfaudit tune --all`. *files* are those of the folder that are not what they were afterwards, time stamps included.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shlex
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gate_power import machine
from marked_phases import FILE
from records import keep, read, tell
from script_programs import PROGRAMS, Program, put

HERE = Path(__file__).resolve().parent
RECORDS, PAGE = HERE / "scripts.jsonl", HERE / "scripts.md"
ALLOW = "rounding,rng"
GRACE = 300.0  # seconds beyond a budget after which a command has failed
LONGEST = 300.0  # seconds of a marked run
PARTS = ("run", "phases", "tune")
WARM_UP = 3  # steps of a marked run that do not count, as in `run`
HEAD = ("program", "kind", "steps: by itself, in run", "updates a step", "right", "step, ms", "in run")
HEAD += ("phases: largest difference, points (between two runs by itself)", "limited by", "phases in one process")
HEAD += ("tuned: patches", "of the step", "basis", "losses", "left", "files changed")

Json = dict[str, Any]


def digests(folder: Path) -> dict[str, str]:
    """Of every file in a folder, with its time stamp, but for those of the interpreter and of perfaudit's own."""
    found = {}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if path.is_file() and "__pycache__" not in name and ".perfaudit" not in name and path.name != "report.json":
            found[name] = f"{hashlib.sha256(path.read_bytes()).hexdigest()} {path.stat().st_mtime_ns}"
    return found


def surroundings(program: Program, folder: Path, *paths: str) -> dict[str, str]:
    """The environment of a program; paths: before the program's own."""
    own = {name: value.replace("{folder}", str(folder)) for name, value in program.variables.items()}
    path = os.pathsep.join([*paths, own.pop("PYTHONPATH", str(folder))])
    return {**os.environ, **own, "PYTHONPATH": path}


def by_itself(program: Program, folder: Path, steps: int) -> list[Json]:
    """What its marks tell of each step; [] where it tells nothing in time."""
    try:
        done = subprocess.run(
            [sys.executable, str(HERE / "marked_phases.py"), str(steps), json.dumps(program.marks()), *program.command],
            cwd=folder, env=surroundings(program, folder), capture_output=True, text=True, stdin=subprocess.DEVNULL,
            timeout=LONGEST, check=False,
        )  # fmt: skip
        found: list[Json] = json.loads(done.stdout.splitlines()[-1])
    except (subprocess.TimeoutExpired, json.JSONDecodeError, IndexError):
        return []
    return found


def part_phases(program: Program, folder: Path, steps: int) -> Json:
    """A marked run that `perfaudit run` watches."""
    marked = [str(HERE / "marked_phases.py"), "--", str(steps), json.dumps(program.marks()), *program.command]
    asked = f"run --in-place --quiet --steps {10 * steps} --timeout 3m --format json --output report.json"
    try:
        subprocess.run(
            [sys.executable, "-m", "perfaudit", *asked.split(), *marked],
            cwd=folder, env=surroundings(program, folder, str(HERE.parent)) | {FILE: "marked.json"}, capture_output=True,
            stdin=subprocess.DEVNULL, timeout=180 + GRACE, check=False,
        )  # fmt: skip
        own = json.loads((folder / "marked.json").read_text())
        run = json.loads((folder / "report.json").read_text()).get("run") or {}
    except (subprocess.TimeoutExpired, json.JSONDecodeError, OSError):
        return {"own": {"steps": 0}, "run": {}}
    return {"own": summary(own), "run": run}


def summary(steps: Sequence[Json]) -> Json:
    """Of a marked run: its steps and updates, the median step, and the shares of its phases."""
    counted = steps[min(WARM_UP, len(steps) // 4) :]
    if not counted:
        return {"steps": len(steps)}
    whole = sum(step["seconds"] for step in counted)
    names = {name for step in counted for name in step["phases"]}
    return {
        "steps": len(steps),
        "updates": statistics.median_low([step["updates"] for step in counted]),
        "seconds": statistics.median(step["seconds"] for step in counted),
        "phases": {name: sum(step["phases"].get(name, 0.0) for step in counted) / whole for name in sorted(names)},
    }


def perfaudit(command: list[str], program: Program, folder: Path, seconds: float) -> Json:
    """A command of ours on the program: its JSON, or what it said."""
    (folder / "report.json").unlink(missing_ok=True)
    try:
        done = subprocess.run(
            [sys.executable, "-m", "perfaudit", *command, "--format", "json", "--output", "report.json",
             program.command[0], "--", *program.command[1:]],
            cwd=folder, env=surroundings(program, folder, str(HERE.parent)), capture_output=True, text=True,
            stdin=subprocess.DEVNULL, timeout=seconds, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return {"said": f"no end after {seconds:.0f} s", "code": None}
    if not (folder / "report.json").exists():
        said = next((line for line in reversed(done.stderr.splitlines()) if line.startswith("perfaudit")), "")
        return {"said": said[:300], "code": done.returncode}
    report: Json = json.loads((folder / "report.json").read_text())
    return report | {"code": done.returncode}


def part_run(program: Program, folder: Path, steps: int) -> Json:
    """A marked run, `perfaudit run`, and a marked run."""
    first = summary(by_itself(program, folder, steps))
    seen = perfaudit(["run", "--quiet", "--steps", str(steps), "--timeout", "3m"], program, folder, 180 + GRACE)
    second = summary(by_itself(program, folder, steps))
    return {"own": [first, second], "run": seen.get("run") or {"said": seen.get("said", "")}}


def part_tune(program: Program, folder: Path, budget: float) -> Json:
    tuned = perfaudit(
        ["tune", "--all", "--budget", f"{budget:.0f}s", "--allow", ALLOW], program, folder, budget + GRACE
    )
    notes = tuned.get("notes", [])
    return {"budget": budget, "tuned": {"said": tuned.get("said", ""), "ladder": tuned.get("ladder"), "notes": notes}}


def one(name: str, part: str, sources: Path, budget: float, steps: int) -> Json | None:
    """A part of one program's row; None where SOURCES lack it."""
    program = PROGRAMS[name]
    with tempfile.TemporaryDirectory() as place:
        folder = put(program, Path(place), sources)
        if folder is None:
            return None
        if part == "run":  # what it writes by itself is not ours: every run has its folder
            record = part_run(program, folder, steps)
        elif part == "phases":
            record = part_phases(program, folder, steps)
        else:
            record = {}
        before = digests(Path(place))
        if part == "tune":
            record = part_tune(program, folder, budget)
        elif part == "run":
            perfaudit(["run", "--quiet", "--steps", "10", "--timeout", "3m"], program, folder, 180 + GRACE)
        after = digests(Path(place))
    changed = sorted(file for file in before.keys() | after.keys() if before.get(file) != after.get(file))
    return {
        "program": name,
        "part": part,
        "machine": machine(),
        "load": round(os.getloadavg()[0], 1),
        **record,
        "changed": changed,
    }


def largest(run: Json, own: Sequence[Json]) -> str:
    """The largest difference of a phase between `run` and the marks, and between the two marked runs."""
    # Without marks, everything is `other`.
    first, second = (each["phases"] if len(each.get("phases", {})) > 1 else None for each in own)
    if not (run.get("phases") and first and second):
        return "–"
    names = {*run["phases"], *first, *second}
    marked = {name: (first.get(name, 0.0) + second.get(name, 0.0)) / 2 for name in names}
    worst = max(names, key=lambda name: abs(run["phases"].get(name, 0.0) - marked[name]))
    between = max(abs(first.get(name, 0.0) - second.get(name, 0.0)) for name in names)
    off = 100 * (run["phases"].get(worst, 0.0) - marked[worst])
    return f"{worst} {off:+.1f} ({100 * between:.1f})"


def cells_of_run(record: Json) -> list[str]:
    own, run = record["own"], record["run"]
    marked = own[0]
    row = [
        f"{marked['steps']}, {run.get('steps', 0)}",
        f"{marked.get('updates', '–')}, {run.get('updates_per_step', '–')}",
    ]
    is_known = bool(marked["steps"] and run.get("steps"))
    # Without an optimizer there is no update to count.
    same = marked["steps"] == run.get("steps") and marked.get("updates") in (run.get("updates_per_step"), 0)
    row += [("yes" if same else "no") if is_known else "–"]
    seconds = [each["seconds"] for each in own if "seconds" in each]
    alone = statistics.fmean(seconds) if seconds else None
    row += [f"{1e3 * alone:.2f}" if alone else "–"]
    row += [f"{run['seconds_per_step'] / alone:.2f}" if alone and run.get("seconds_per_step") else "–"]
    return [*row, largest(run, own), run.get("limited_by") or run.get("message") or run.get("said") or "–"]


def cells_of_tuning(record: Json) -> list[str]:
    tuned = record["tuned"]
    ladder = tuned["ladder"]
    if ladder is None:
        return ["–", "–", "–", tuned["said"].removeprefix("perfaudit: "), "–"]
    rungs = [rung["knob"] for rung in ladder["rungs"] if not rung["dropped"]] if not ladder["trouble"] else []
    row = [", ".join(rungs) or "none"]
    row += [f"{ladder['ratio']:.3f} [{ladder['low']:.3f}, {ladder['high']:.3f}]" if rungs else "–"]
    row += [ladder["basis"] if rungs else "–"]
    row += [ladder["verified"].partition(";")[0] if rungs else ladder["trouble"] or "–"]
    left = [*ladder["undecided"], *(item["knob"] for item in ladder["left"] if item["late"])]
    return [*row, ", ".join(left) or "none"]


def cells(name: str, parts: dict[str, Json]) -> list[str]:
    """A row of the table."""
    run, tune = parts.get("run"), parts.get("tune")
    row = [name, PROGRAMS[name].kind]
    row += cells_of_run(run) if run else ["–"] * 7
    phases = parts.get("phases")
    row += [largest(phases["run"], [phases["own"]] * 2).partition(" (")[0] if phases else "–"]
    row += cells_of_tuning(tune) if tune else ["–"] * 5
    changed = {file for part in parts.values() for file in part["changed"]}
    return [text.replace("|", "\\|") for text in [*row, str(len(changed))]]


def page(records: Sequence[Json]) -> str:
    last: dict[str, dict[str, Json]] = {}
    for record in records:
        last.setdefault(record["program"], {})[record["part"]] = record
    shown = [name for name in PROGRAMS if name in last]
    every = [record for parts in last.values() for record in parts.values()]
    budgets = " / ".join(f"{budget:.0f} s" for budget in sorted({r["budget"] for r in every if r["part"] == "tune"}))
    lines = [
        "# Training scripts by other people, as they are", "",
        "    python benchmarks/scripts.py --sources SOURCES --write", "",
        " / ".join(sorted({record["machine"] for record in every})) + f"; each climb had {budgets or 'no time yet'}.",
        f"Load of the machine while they ran: {min(r['load'] for r in every)} to {max(r['load'] for r in every)}.",
        "The last run of each program. What the columns mean stands at the top of scripts.py. *left*: what the climb left",
        "undecided or did not reach.", "",
        f"| {' | '.join(HEAD)} |", f"|{'---|' * len(HEAD)}",
        *(f"| {' | '.join(cells(name, last[name]))} |" for name in shown), "",
        "| program | from | folder | command |", "|---|---|---|---|",
        *(f"| {name} | {each.repository} {each.commit} | {each.folder} | `{shlex.join(each.command)}` |"
          for name, each in ((name, PROGRAMS[name]) for name in shown)),
    ]  # fmt: skip
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--programs", nargs="*", choices=PROGRAMS, default=list(PROGRAMS))
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--sources", type=Path, required=True)
    parser.add_argument("--new", action="store_true")
    parser.add_argument("--budget", type=float, default=180.0)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--write", action="store_true")
    args = parser.parse_args()
    here = machine()
    known = {(each["program"], each["part"]) for each in read(RECORDS) if args.new and each["machine"] == here}
    for name in args.programs:
        for part in args.parts:
            if (name, part) in known:
                continue
            record = one(name, part, args.sources, args.budget, args.steps)
            if record is None:
                print(f"{name}: not in {args.sources}", file=sys.stderr)
                break
            print(" | ".join(cells(name, {part: record})), file=sys.stderr, flush=True)
            keep(RECORDS, record)
    tell(page(read(RECORDS)), PAGE, args.write)


if __name__ == "__main__":
    main()
