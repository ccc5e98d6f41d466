"""What `run` and `tune` make of training scripts by other people: `python benchmarks/scripts.py --sources DIR --write`.

    --programs NAME …   default: all that SOURCES has
    --sources DIR       clones, as `git clone https://github.com/OWNER/NAME SOURCES/OWNER+NAME`; commits are named below
    --budget S          of each climb (60)
    --steps N           that are timed of each program by itself, and by `run` (40)
    --write             put the table into scripts.md

Each program is put into a folder of its own, with data where it wants some. There it is run by itself, and a hook that this file
registers with torch tells when each optimizer was updated; then by `perfaudit run`; then by `perfaudit tune --all`. *updates* is
what the hook and `run` counted in the same number of steps: one update is a step where there is one optimizer. *step* is the
median by itself, and *in run* that of `run` over it: both are single runs, so the machine's scatter from process to process is in
the ratio. *files* are those of the folder that are not what they were afterwards. A run is a line of scripts.jsonl.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import json
import os
import pickle
import random
import statistics
import string
import subprocess
import sys
import tarfile
import tempfile
from array import array
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gate_power import machine
from records import keep, read, tell

HERE = Path(__file__).resolve().parent
RECORDS, PAGE = HERE / "scripts.jsonl", HERE / "scripts.md"
ALLOW = "rounding,rng"
GRACE = 300.0  # seconds beyond a budget after which a command has failed
HEAD = ("program", "from", "kind", "updates: by itself, in run", "step, ms", "in run", "limited by", "tuned: patches")
HEAD += ("of the step", "basis", "losses", "left", "files changed")

Json = dict[str, Any]

# The program as it is run from a shell, ended after so many updates.
OWN = """
import json, os, runpy, sys, time
steps, name = int(sys.argv[1]), sys.argv[2]
sys.argv[:] = sys.argv[2:]
sys.path[0] = os.path.dirname(os.path.abspath(name))
from torch.optim.optimizer import register_optimizer_step_post_hook
ends = []
def note(*_):
    ends.append(time.perf_counter())
    if len(ends) > steps:
        print("\\n" + json.dumps([b - a for a, b in zip(ends, ends[1:])]), flush=True)
        os._exit(0)
register_optimizer_step_post_hook(note)
runpy.run_path(name, run_name="__main__")
"""


def letters(folder: Path) -> None:
    """Tokens for nanoGPT's character data set, drawn at random: what a step takes does not depend on them."""
    dice, place = random.Random(0), folder / "data" / "shakespeare_char"
    for name, count in (("train.bin", 400_000), ("val.bin", 40_000)):
        (place / name).write_bytes(array("H", [dice.randrange(65) for _ in range(count)]).tobytes())
    (place / "meta.pkl").write_bytes(pickle.dumps({"vocab_size": 65, "itos": {}, "stoi": {}}))


def prose(folder: Path) -> None:
    """Text for minGPT's chargpt."""
    dice = random.Random(0)
    (folder / "input.txt").write_text("".join(dice.choice(string.ascii_letters + " ,.!\n") for _ in range(200_000)))


@dataclass(frozen=True)
class Program:
    """A script: where it is from, the folder that it is run in, how it is called, what kind it is, and data it needs."""

    repository: str
    commit: str
    folder: str
    command: tuple[str, ...]
    kind: str
    prepare: Callable[[Path], None] = lambda folder: None
    parts: tuple[str, ...] = ()  # folders of the repository that are needed; all of it where none is named


ZERO, EXAMPLES, MINGPT = "hunkim/PyTorchZeroToAll", "pytorch/examples", "karpathy/minGPT"
PROGRAMS = {
    "nanogpt": Program(
        "karpathy/nanoGPT", "3adf61e1", ".",
        ("train.py", "config/train_shakespeare_char.py", "--device=cpu", "--compile=False", "--eval_iters=1", "--block_size=64",
         "--batch_size=8", "--n_layer=4", "--n_head=4", "--n_embd=128", "--dtype=float32"),
        "loop at top level, GradScaler, no loader", letters,
    ),
    "diabetes": Program(ZERO, "e5a260f", ".", ("08_2_dataset_loade_logistic.py",), "loop at top level"),
    "char_rnn": Program(ZERO, "e5a260f", ".", ("13_3_char_rnn.py",), "loop in a function"),
    "two_layers": Program("jcjohnson/pytorch-examples", "0003fcd", "nn", ("two_layer_net_optim.py",), "no loader"),
    "regression": Program(EXAMPLES, "77f55b9", "regression", ("main.py",), "by hand, no optimizer", parts=("regression",)),
    "adder": Program(MINGPT, "37baab7", ".", ("projects/adder/adder.py",), "trainer of its own, callbacks"),
    "chargpt": Program(
        MINGPT, "37baab7", ".", ("projects/chargpt/chargpt.py", "--model.model_type=gpt-nano", "--data.block_size=64"),
        "trainer of its own, callbacks", prose,
    ),
}  # fmt: skip


def put(program: Program, folder: Path, sources: Path) -> Path | None:
    """The program and its data in a folder; that in which it is run, None where SOURCES lack it."""
    clone = sources / program.repository.replace("/", "+")
    clone = clone / "repo" if (clone / "repo").exists() else clone
    if not clone.exists():
        return None
    packed = subprocess.run(
        ["git", "-C", str(clone), "archive", program.commit, *program.parts], check=True, capture_output=True
    ).stdout
    with tarfile.open(fileobj=io.BytesIO(packed)) as files:
        files.extractall(folder, filter="data")
    program.prepare(folder / program.folder)
    return folder / program.folder


def digests(folder: Path) -> dict[str, str]:
    """Of every file in a folder, but for those of the interpreter and of perfaudit's own."""
    found = {}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if path.is_file() and "__pycache__" not in name and ".perfaudit" not in name and path.name != "report.json":
            found[name] = hashlib.sha256(path.read_bytes()).hexdigest()
    return found


def by_itself(program: Program, folder: Path, steps: int) -> list[float]:
    """Seconds between its updates; [] for a program that makes none that torch knows of, which is ended."""
    environment = {**os.environ, "PYTHONPATH": str(folder)}
    try:
        done = subprocess.run(
            [sys.executable, "-c", OWN, str(steps), *program.command],
            cwd=folder, env=environment, capture_output=True, text=True, timeout=30.0, check=False,
        )  # fmt: skip
        found: list[float] = json.loads(done.stdout.splitlines()[-1])
    except (subprocess.TimeoutExpired, json.JSONDecodeError, IndexError):
        return []
    return found


def perfaudit(command: list[str], program: Program, folder: Path, seconds: float) -> Json:
    """A command of ours on the program: its JSON, or what it said."""
    (folder / "report.json").unlink(missing_ok=True)
    path = [str(HERE.parent), str(folder)]
    done = subprocess.run(
        [sys.executable, "-m", "perfaudit", *command, "--format", "json", "--output", "report.json", program.command[0],
         "--", *program.command[1:]],
        cwd=folder, env={**os.environ, "PYTHONPATH": os.pathsep.join(path)}, capture_output=True, text=True,
        timeout=seconds, check=False,
    )  # fmt: skip
    if not (folder / "report.json").exists():
        return {"said": (done.stderr.strip().splitlines() or [""])[-1][:300], "code": done.returncode}
    report: Json = json.loads((folder / "report.json").read_text())
    return report | {"code": done.returncode}


def one(name: str, sources: Path, budget: float, steps: int) -> Json | None:
    """A run of one program; None where SOURCES lack it."""
    program = PROGRAMS[name]
    with tempfile.TemporaryDirectory() as place:
        folder = put(program, Path(place), sources)
        if folder is None:
            return None
        seconds = by_itself(program, folder, steps)
        before = digests(Path(place))
        seen = perfaudit(["run", "--quiet", "--steps", str(steps), "--timeout", "2m"], program, folder, 120 + GRACE)
        tuned = perfaudit(
            ["tune", "--all", "--budget", f"{budget:.0f}s", "--allow", ALLOW], program, folder, budget + GRACE
        )
        after = digests(Path(place))
        changed = sorted(file for file in before.keys() | after.keys() if before.get(file) != after.get(file))
        ladder = tuned.get("ladder")
        return {
            "program": name, "machine": machine(), "load": round(os.getloadavg()[0], 1), "budget": budget,
            "own": {"updates": len(seconds), "seconds": statistics.median(seconds[2:]) if len(seconds) > 4 else None},
            "run": seen.get("run") or {"said": seen.get("said", "")},
            "tuned": {"said": tuned.get("said", ""), "ladder": ladder, "notes": tuned.get("notes", [])},
            "changed": changed,
        }  # fmt: skip


def cells(record: Json) -> list[str]:
    """A row of the table."""
    program, run, tuned = PROGRAMS[record["program"]], record["run"], record["tuned"]
    own, ladder = record["own"]["seconds"], tuned["ladder"]
    row = [record["program"], f"{program.repository} {program.commit}", program.kind]
    row += [f"{record['own']['updates']}, {run.get('steps', 0)}", f"{1e3 * own:.2f}" if own else "–"]
    row += [f"{run['seconds_per_step'] / own:.2f}" if own and run.get("seconds_per_step") else "–"]
    row += [run.get("limited_by") or run.get("said") or "–"]
    if ladder is None:
        return [*row, "–", "–", "–", tuned["said"].removeprefix("perfaudit: "), "–", str(len(record["changed"]))]
    rungs = [rung["knob"] for rung in ladder["rungs"] if not rung["dropped"]] if not ladder["trouble"] else []
    row += [", ".join(rungs) or "none"]
    row += [f"{ladder['ratio']:.3f} [{ladder['low']:.3f}, {ladder['high']:.3f}]" if rungs else "–"]
    row += [
        ladder["basis"] if rungs else "–",
        ladder["verified"].partition(";")[0] if rungs else ladder["trouble"] or "–",
    ]
    left = [*ladder["undecided"], *(item["knob"] for item in ladder["left"] if item["late"])]
    return [*row, ", ".join(left) or "none", str(len(record["changed"]))]


def page(records: list[Json]) -> str:
    last = {record["program"]: record for record in records}
    budgets = " / ".join(sorted({f"{record['budget']:.0f} s" for record in last.values()}))
    lines = [
        "# Training scripts by other people, as they are", "",
        "    python benchmarks/scripts.py --sources SOURCES --write", "",
        " / ".join(sorted({record["machine"] for record in last.values()})) + f"; each climb had {budgets}.",
        "The last run of each program. What the columns mean stands at the top of scripts.py. *left*: what the climb left",
        "undecided or did not reach.", "",
        f"| {' | '.join(HEAD)} |", f"|{'---|' * len(HEAD)}",
    ]  # fmt: skip
    lines += [f"| {' | '.join(cells(last[name]))} |" for name in PROGRAMS if name in last]
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--programs", nargs="*", choices=PROGRAMS, default=list(PROGRAMS))
    parser.add_argument("--sources", type=Path, required=True)
    parser.add_argument("--budget", type=float, default=60.0)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--write", action="store_true")
    args = parser.parse_args()
    for name in args.programs:
        record = one(name, args.sources, args.budget, args.steps)
        if record is None:
            print(f"{name}: not in {args.sources}", file=sys.stderr)
            continue
        print(" | ".join(cells(record)), file=sys.stderr, flush=True)
        keep(RECORDS, record)
    tell(page(read(RECORDS)), PAGE, args.write)


if __name__ == "__main__":
    main()
