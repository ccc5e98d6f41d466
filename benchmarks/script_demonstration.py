"""The README's first example, an unmodified script run and tuned: `python benchmarks/script_demonstration.py [--write]`.

Does what a reader is told to type, `perfaudit run` and `perfaudit tune` on a sample with its loop in `main()` (some minutes),
and prints the README's block. --write also keeps the record (script_demonstration.json) and puts the block between its marks.
Run it on a machine that does nothing else.
"""

from __future__ import annotations

import os
import platform
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Sequence
from pathlib import Path

from demonstration import ROOT, WIDTH, Json, keep, main

RECORD = ROOT / "benchmarks" / "script_demonstration.json"
SCRIPT = "sample_models/denoise_patches.py"
COMMANDS = (f"run {SCRIPT}", f"tune {SCRIPT} --allow rounding,rng --out plan.patch")
BEGIN, END = "<!-- written by benchmarks/script_demonstration.py -->\n", "<!-- until here: script_demonstration -->\n"
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
    """What the README shows of a report: of `run` the step and its phases, of `tune` all up to the end of the patch."""
    if command.startswith("run"):
        end = next(number for number, line in enumerate(lines) if line.startswith("  ") and line.strip()[0] == "1")
        return [*lines[:end], "…", "", lines[-1]]
    patch = next((number for number, line in enumerate(lines) if line.startswith("the patch")), None)
    if patch is None:
        raise SystemExit("nothing was shown to pay here, so there is nothing to show: run it on a calmer machine")
    end = next((number for number in range(patch + 1, len(lines)) if lines[number][:1].strip()), len(lines))
    return [*lines[:end], "…"]


def block(record: Json) -> str:
    """The README's block: part of what each command printed, and under which conditions."""
    parts = []
    for one in record["printed"]:
        shown = "\n".join(f"    {line}".rstrip() for line in shown_lines(one["command"], one["lines"]))
        parts.append(f"    $ perfaudit {one['command']}\n\n{shown}\n")
    took = " and ".join(f"{one['seconds']} s at load {one['load'][1]}" for one in record["printed"])
    where = f"on a {record['device']} without GPU ({record['versions']})"
    said = f"Part of what both printed {where}, in {took}; your numbers will differ."
    return "\n".join([BEGIN, *parts, textwrap.fill(said, WIDTH), "", END])


def write(record: Json) -> None:
    """Keep a record, and put its block into the README."""
    keep(record, RECORD, block(record))


if __name__ == "__main__":
    main(__doc__, measured_record, block, write)
