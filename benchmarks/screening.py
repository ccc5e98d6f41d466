"""Patches and settings screened in one running training: `python benchmarks/screening.py FILE... [--seconds N] [--write]`.

For each target: the fixes of a scan, rule by rule, and a setting of every knob that can be put into a training that runs, in
turn with the code as it is, in one process, beside a control (identical code swapped in). Prints for each the ratio of the
step's time with its interval, the quads it rests on, and the seconds until it was decided; then what could not be put in
place, with the reason. --write adds the tables to benchmarks/screening.md.
"""

from __future__ import annotations

import argparse
import os
import platform
import time
from pathlib import Path
from typing import Any

from perfaudit import scan
from perfaudit.findings import Finding
from perfaudit.measure.child import Child
from perfaudit.measure.lab import build_command
from perfaudit.measure.ledger import Variant
from perfaudit.static.fix import together

PAGE = Path(__file__).with_name("screening.md")
SAMPLES = ["sample_models/char_gpt.py", "sample_models/digits_cnn.py"]
LEAST = 0.01  # of the step
SLICE = 1.0  # seconds between two looks at how the race stands
TIMEOUT = 300.0
# One setting of each knob that a user would want to know of, where the target has it otherwise.
SETTINGS: dict[str, list[Any]] = {
    "optimizer: fused": ["optimizer", {"update": "fused"}],
    "memory_format: channels_last": ["memory_format", {"memory_format": "channels_last"}],
    "precision: bf16": ["precision", {"precision": "bf16"}],
    "anomaly: off": ["anomaly", {"anomaly": False}],
    "threads: 1": ["threads", {"threads": 1}],
}

Json = dict[str, Any]


def patches_of(file: str) -> dict[str, dict[str, list[str]]]:
    """By rule, the texts of the file before and after all fixes of that rule."""
    groups: dict[str, list[Finding]] = {}
    for finding in scan([file]).findings:
        if finding.fix is not None and finding.fix.edits:
            groups.setdefault(finding.rule, []).append(finding)
    made = {rule: together(findings) for rule, findings in groups.items()}
    return {rule: {done.path: [done.before, done.after]} for rule, done in made.items() if done is not None}


def screen(file: str, seconds: float, seed: int) -> Json:
    """The state of the race at its end; under "decided", seconds after which each candidate was."""
    decided: dict[str, float] = {}
    with Child(False) as child:
        child.ask(build_command({"file": file, "names": {}}, Variant("screened", "", {}), "auto", 0), TIMEOUT)
        command = {"do": "screen", "patches": patches_of(file), "settings": SETTINGS, "least": LEAST, "seed": seed}
        began = time.monotonic()
        child.ask(command, TIMEOUT)
        prepared = time.monotonic() - began
        state: Json = {"ended": False}
        while not state["ended"] and time.monotonic() - began < seconds:
            state = child.ask({"do": "race", "seconds": SLICE}, TIMEOUT)
            for key, entrant in state["entrants"].items():
                if entrant["left"]:
                    decided.setdefault(key, time.monotonic() - began)
        state = child.ask({"do": "race", "seconds": 0.0, "last": True}, TIMEOUT)
    return {**state, "decided": decided, "prepared": prepared, "took": time.monotonic() - began}


def table(state: Json) -> list[str]:
    """The state as lines of Markdown."""
    lines = ["| in place | time of a step | quads | decided after |", "|---|---|---:|---:|"]
    for key, entrant in state["entrants"].items():
        found, after = entrant["interval"], state["decided"].get(key)
        told = f"{found[0]:.3f} [{found[1]:.3f}, {found[2]:.3f}]" if found else "too few quads"
        why = "" if entrant["left"] in ("", "decided") else f" ({entrant['left']})"
        when = f"{after:.0f} s" if after is not None else "open" if key != "control" else "-"
        lines.append(f"| {key}{why} | {told} | {len(entrant['log_ratios'])} | {when} |")
    lines += ["", *(f"- {key}: not in place: {why}" for key, why in state["refused"].items()), ""]
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*", default=SAMPLES)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    os.environ.setdefault("OMP_WAIT_POLICY", "ACTIVE")  # one process: its threads may spin, as they do for the user
    pages = []
    for file in options.files:
        before = os.getloadavg()[0]
        state = screen(file, options.seconds, options.seed)
        said = (
            f"`python benchmarks/screening.py {file} --seconds {options.seconds:g} --seed {options.seed}`: "
            f"{state['took']:.0f} s, of which {state['prepared']:.0f} s for trying each once; blocks of {state['block']} steps; "
            f"{os.cpu_count()} cores, {platform.machine()}, load {before:.1f} before and {os.getloadavg()[0]:.1f} after"
        )
        page = "\n".join([said, "", *table(state)])
        print(page)
        pages.append(page)
    if options.write:
        former = (
            PAGE.read_text(encoding="utf-8") if PAGE.exists() else "# Candidates screened in one running training\n\n"
        )
        PAGE.write_text(former + "\n".join(pages), encoding="utf-8")


if __name__ == "__main__":
    main()
