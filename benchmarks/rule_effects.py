"""What each rule's own fix saves of a step of a program that has its finding: `python benchmarks/rule_effects.py --write`.

    --rules PA201 …     default: all that have a program in benchmarks/rule_programs
    --runs N            measure until each rule has N runs of this device on record (1); 0 only prints what is there
    --seconds S         of each race (40)
    --device NAME       cpu or cuda (default: an accelerator if there is one)
    --write             put the table into rule_effects.md, and the savings into the rule files

The program is an unmodified script: it is scanned, the fixes of its rule are applied to a copy, and the copy is raced against it.
*one training*: the patch is swapped in and out of one running training, in quads, as `scan --measure` does. Nothing leaves the
race when it is decided, so that it ends when its time is over and its interval is as narrow as the time allows. *processes*:
where the patch cannot be swapped, before and after run in turn in processes of their own, two of each in the order A B B A; the
interval is that of the mean log ratio by Student's t. The saving is that of these programs on this machine and of no other:
a table of what is worth trying first, not a forecast.

A run is a line of rule_effects.jsonl. A rule that runs more than once is told by its widest bounds.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import re
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from gate_power import machine
from records import keep, read, tell

from perfaudit.measure.child import Child
from perfaudit.measure.lab import build_command
from perfaudit.measure.ledger import Variant
from perfaudit.measure.stats import student_quantile
from perfaudit.rules import Rule, all_rules
from perfaudit.static.fix import patch
from perfaudit.static.registry import run_checks
from perfaudit.static.source import Source

HERE = Path(__file__).resolve().parent
PROGRAMS = HERE / "rule_programs"
RECORDS, PAGE = HERE / "rule_effects.jsonl", HERE / "rule_effects.md"
TIMEOUT = 180.0  # seconds that one question to a child may take
SLICE = 0.5  # seconds between two looks at how the race stands
WARM_STEPS, BLOCK_STEPS = 10, 40  # of each process, where the two run in processes of their own
LEAST_TURNS = 4  # of A B B A in processes
KEY = "after"
# Rules with a patch and no program, and why.
WITHOUT = {
    "PA304": "bfloat16 pays on GPUs that have units for it",
    "PA103": "its effect is at the turn of an epoch, not in a step",
    "PA701": "its patch makes a program of several processes (data_parallel_ranks.md)",
    "PA704": "it needs several processes that train together",
    "PA801": "its effect is in evaluation, not in a step",
}

Json = dict[str, Any]


def program_of(rule: str) -> Path | None:
    """The program that has the rule's finding."""
    return next(iter(sorted(PROGRAMS.glob(f"{rule}_*.py"))), None)


def fixed(path: Path, rule: str) -> str:
    """The program after every fix of the rule. Raises SystemExit where the rule does not see it, or has no fix for it."""
    source = Source(path.name, path.read_text(encoding="utf-8"))
    findings = run_checks(source, all_rules(), frozenset([rule]))
    patched = patch(path.name, source.text, [finding for finding in findings if finding.fix and finding.fix.edits])
    if not patched.applied:
        raise SystemExit(f"{path.name}: {rule} has no fix for it")
    return patched.after


def target_of(file: Path) -> Json:
    return {"file": str(file), "names": {}, "arguments": [], "module": "", "scratch": "", "shared": ""}


def raced(file: Path, after: str, device: str, seconds: float) -> Json:
    """The race in one training: its interval, or why the patch cannot be swapped (`refused`)."""
    before = file.read_text(encoding="utf-8")
    entrant = {
        "key": KEY,
        "way": "in place",
        "code": {str(file): [before, after]},
        "settings": [],
        "whole": {str(file): after},
    }
    with Child(False) as child:
        child.ask(build_command(target_of(file), Variant("base", "", {}), device, 0), TIMEOUT)
        step = statistics.median(child.ask({"do": "block", "steps": WARM_STEPS}, TIMEOUT)["each"]["seconds"])
        state = child.ask({"do": "screen", "entrants": [entrant], "least": None, "seed": 0}, TIMEOUT)
        if state["refused"]:
            return {"refused": state["refused"][KEY]}
        began = time.monotonic()
        while time.monotonic() - began < seconds:
            state = child.ask({"do": "race", "seconds": SLICE}, TIMEOUT)
            if left := state["entrants"][KEY]["left"]:
                return {"refused": left}
        state = child.ask({"do": "race", "seconds": 0.0, "last": 1.0}, TIMEOUT)
    entrant, control = state["entrants"][KEY], state["entrants"]["control"]
    if entrant["interval"] is None:
        return {"refused": "too few quads"}
    low, middle, high = sorted(entrant["interval"][:3])
    return {
        "how": "one training", "step": round(step, 5), "ratio": round(middle, 4), "low": round(low, 4),
        "high": round(high, 4), "n": entrant["interval"][3],
        "control": sorted(round(value, 4) for value in control["interval"][:3]) if control["interval"] else None,
    }  # fmt: skip


def step_of(file: Path, device: str) -> float:
    """Seconds of a step of a script in a process of its own: the median of BLOCK_STEPS after WARM_STEPS."""
    with Child(False) as child:
        child.ask(build_command(target_of(file), Variant("base", "", {}), device, 0), TIMEOUT)
        child.ask({"do": "block", "steps": WARM_STEPS}, TIMEOUT)
        return statistics.median(child.ask({"do": "block", "steps": BLOCK_STEPS}, TIMEOUT)["each"]["seconds"])


def in_processes(file: Path, after: str, device: str, seconds: float) -> Json:
    """Before and after in processes of their own, in turn, until the time is over."""
    other = file.with_name(f"after_{file.name}")
    other.write_text(after, encoding="utf-8")
    ratios, steps = [], []
    began = time.monotonic()
    while time.monotonic() - began < 2 * seconds or len(ratios) < LEAST_TURNS:
        a, b, c, d = (step_of(path, device) for path in (file, other, other, file))
        ratios.append((math.log(b / a) + math.log(c / d)) / 2)
        steps += [a, d]
    error = student_quantile(len(ratios) - 1, 0.05) * statistics.stdev(ratios) / math.sqrt(len(ratios))
    middle = statistics.fmean(ratios)
    return {
        "how": "processes", "step": round(statistics.median(steps), 5), "ratio": round(math.exp(middle), 4),
        "low": round(math.exp(middle - error), 4), "high": round(math.exp(middle + error), 4), "n": len(ratios), "control": None,
    }  # fmt: skip


def run(rule: str, device: str, seconds: float) -> Json:
    """One rule's program before and after its fixes, as a record."""
    import torch

    path = program_of(rule)
    assert path is not None
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory(prefix="rule_effects_") as name:
        file = Path(name) / path.name
        file.write_bytes(path.read_bytes())
        after = fixed(path, rule)
        found = raced(file, after, device, seconds)
        why = found.get("refused", "")
        if why:
            found = in_processes(file, after, device, seconds)
    return {
        "rule": rule, "program": path.name, "device": device, "torch": torch.__version__, "seconds": seconds,
        "at": round(time.time()), "load": [round(load, 1), round(os.getloadavg()[0], 1)], "machine": machine(), "why": why,
        **found,
    }  # fmt: skip


def bounds(records: list[Json]) -> tuple[float, float, float]:
    """Of all runs of a rule on one device: the least lower bound, the mean ratio, the greatest upper bound."""
    logs = [math.log(record["ratio"]) for record in records]
    middle = math.exp(statistics.fmean(logs))
    return min(r["low"] for r in records), middle, max(r["high"] for r in records)


def page(records: list[Json]) -> str:
    """The table: a row for each rule with a patch."""
    lines = [
        "# What the fix of each rule saves of a step",
        "",
        "`python benchmarks/rule_effects.py --write`. The programs are in `rule_programs/`: naive scripts, each with the",
        "finding of one rule in its step. *Ratio* is a step after all fixes of the rule over a step before, with a 95 %",
        "interval: below 1 is faster. *Identical code* is the control of the same race. How it is raced stands in the script's",
        "first lines. A ratio is of that program on that device: it says what is worth trying first, not what your step gains.",
        "",
        "| rule | name | device | step before, ms | ratio | runs | raced in | identical code | load |",
        "|---|---|---|---:|---|---:|---|---|---|",
    ]
    for rule in all_rules().values():
        if not rule.has_patch:
            continue
        for device in ("cpu", "cuda"):
            own = [record for record in records if record["rule"] == rule.id and record["device"] == device]
            lines.append(_row(rule, device, own))
    return "\n".join(lines) + "\n"


def _row(rule: Rule, device: str, own: list[Json]) -> str:
    if not own:
        why = WITHOUT.get(
            rule.id, "the rule is about accelerators" if device == "cpu" and rule.accelerator_only else ""
        )
        return f"| {rule.id} | {rule.name} | {device} | | not measured{f': {why}' if why else ' yet'} | 0 | | | |"
    low, middle, high = bounds(own)
    controls = [record["control"] for record in own if record["control"]]
    control = f"{controls[-1][1]:.3f} [{controls[-1][0]:.3f}, {controls[-1][2]:.3f}]" if controls else ""
    load = max(max(record["load"]) for record in own)
    how = ", ".join(sorted({record["how"] for record in own}))
    step = statistics.median(record["step"] for record in own)
    cells = (
        rule.id,
        rule.name,
        device,
        f"{1000 * step:.1f}",
        f"{middle:.3f} [{low:.3f}, {high:.3f}]",
        str(len(own)),
        how,
    )
    return "| " + " | ".join((*cells, control, f"to {load:.1f}")) + " |"


def saving_of(rule: str, own: list[Json]) -> Json:
    """What the rule's file says of these runs: the saving as fractions of a step, the command, the device, the versions."""
    low, _, high = bounds(own)
    cores = re.search(r"(\d+) of \d+ cores", own[-1]["machine"])
    return {
        "low": round(1 - high, 3),
        "high": round(1 - low, 3),
        "command": f"python benchmarks/rule_effects.py --rules {rule}",
        "device": f"{cores[1] if cores else 'some'}-core x86_64 CPU; GPU: not measured yet",
        "versions": "torch " + own[-1]["torch"].partition("+")[0],
    }


def put_into_rule(rule: Rule, own: list[Json]) -> None:
    """Write the saving into the rule's file, in the place of one that was benchmarked before."""
    said = ", ".join(f"{key} = {json.dumps(value)}" for key, value in saving_of(rule.id, own).items())
    line = f"benchmarked = {{ {said} }}\n"
    path = Path(rule.path)
    text = path.read_text(encoding="utf-8")
    if re.search(r"^benchmarked = .*\n", text, re.MULTILINE):
        text = re.sub(r"^benchmarked = .*\n", lambda _: line, text, count=1, flags=re.MULTILINE)
    else:
        text = text.replace("\nwhy = ", f"\n{line}why = ", 1)
    path.write_text(text, encoding="utf-8")


def main() -> None:
    import torch

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    known = sorted({path.name.partition("_")[0] for path in PROGRAMS.glob("PA*_*.py")})
    parser.add_argument("--rules", nargs="+", choices=known, default=known)
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=40.0)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--records", type=Path, default=RECORDS)
    parser.add_argument("--write", action="store_true")
    given = parser.parse_args()
    for rule in given.rules:
        done = [r for r in read(given.records) if r["rule"] == rule and r["device"] == given.device]
        for _ in range(given.runs - len(done)):
            record = run(rule, given.device, given.seconds)
            keep(given.records, record)
            print(
                f"{rule}: {record['ratio']:.3f} [{record['low']:.3f}, {record['high']:.3f}] ({record['how']})",
                flush=True,
            )
    records = read(given.records)
    tell(page(records), PAGE, given.write)
    if given.write:
        for rule in all_rules().values():
            if own := [record for record in records if record["rule"] == rule.id and record["device"] == "cpu"]:
                put_into_rule(rule, own)


if __name__ == "__main__":
    main()
