"""The tutorial's example, an unmodified script run and tuned: `python benchmarks/script_demonstration.py [--write]`.

Does what a reader is told to type, `perfaudit run` and `perfaudit tune` on a sample with its loop in `main()` (some minutes),
and prints the blocks of docs/tutorial.md. --write also keeps the record (script_demonstration.json), puts each block between its
marks, and draws the README's picture anew (report_picture.py). Run it on a machine that does nothing else.
"""

from __future__ import annotations

import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from demonstration import ROOT, Json, keep, main, put_in

RECORD = ROOT / "benchmarks" / "script_demonstration.json"
SCRIPT = "sample_models/denoise_patches.py"
COMMANDS = (f"run {SCRIPT}", f"tune {SCRIPT} --allow rounding,rng --out plan.patch")
PAGE = "docs/tutorial.md"
FINE = (0, 1)  # exit codes: nothing to report, something faster was found


def printed(command: str, folder: Path) -> Json:
    """What a command printed, of a copy of the script in this folder, with its load, seconds and exit code."""
    before, began = os.getloadavg()[0], time.monotonic()
    done = subprocess.run(
        [sys.executable, "-m", "perfaudit", *command.split()],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "118", "NO_COLOR": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode not in FINE:
        raise SystemExit(f"perfaudit {command} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return {
        "command": command,
        "lines": done.stdout.replace(f"{folder}/", "").rstrip().splitlines(),
        "code": done.returncode,
        "seconds": round(time.monotonic() - began),
        "load": [round(before, 1), round(os.getloadavg()[0], 1)],
    }


def measured_record() -> Json:
    """The record of one run: its conditions, and what both commands printed."""
    import torch

    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / SCRIPT
        copy.parent.mkdir()
        copy.write_bytes((ROOT / SCRIPT).read_bytes())
        return {
            "device": f"{os.cpu_count()}-core {platform.machine()} CPU",
            "versions": f"torch {torch.__version__.partition('+')[0]}",
            "printed": [printed(command, Path(folder)) for command in COMMANDS],
        }


def shown_lines(command: str, lines: Sequence[str]) -> list[str]:
    """What the tutorial shows of a report: of `run` the step and its phases, of `tune` all up to the end of the patch."""
    if command.startswith("run"):
        end = next(number for number, line in enumerate(lines) if line.startswith("  ") and line.strip()[0] == "1")
        return [*lines[:end], "…", "", lines[-1]]
    patch = next((number for number, line in enumerate(lines) if line.startswith("the patch")), None)
    if patch is None:
        raise SystemExit("nothing was shown to pay here, so there is nothing to show: run it on a calmer machine")
    end = next((number for number in range(patch + 1, len(lines)) if lines[number][:1].strip()), len(lines))
    return [*lines[:end], "…"]


def blocks(record: Json) -> list[str]:
    """A block of the tutorial for each command: part of what it printed, and under which conditions."""
    found = []
    for one in record["printed"]:
        name = one["command"].split()[0]
        shown = "\n".join(line.rstrip() for line in shown_lines(one["command"], one["lines"]))
        where = f"a {record['device']} without GPU ({record['versions']}, {one['seconds']} s, load {one['load'][1]})"
        printed_there = (
            f"```console\n$ perfaudit {one['command']}\n\n{shown}\n```\n\nPart of what it printed on {where}."
        )
        begin, end = f"<!-- written by benchmarks/script_demonstration.py: {name} -->", f"<!-- until here: {name} -->"
        found.append(f"{begin}\n\n{printed_there}\n\n{end}\n")
    return found


def block(record: Json) -> str:
    return "\n".join(blocks(record))


def write(record: Json) -> None:
    """Keep a record, put its blocks into the tutorial, and draw the picture."""
    import report_picture

    keep(record, RECORD)
    for each in blocks(record):
        put_in(ROOT / PAGE, each)
    report_picture.write()


if __name__ == "__main__":
    main(__doc__, measured_record, block, write)
