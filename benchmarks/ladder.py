"""How far `perfaudit tune --all` climbs by itself, against the hand-tuned twin: `python benchmarks/ladder.py char_gpt`.

    char_gpt, photo_resnet, digits_cnn   samples to climb, one after the other
    gpt2            benchmarks/gpt2/naive.py against expert.py; refused without an accelerator, unless --device cpu is given
    --budget S      seconds of each climb (default 900)
    --race S        seconds of the race afterwards (default 420)
    --programs N    rounds of whole programs (default 5; 0 for none)
    --device NAME   cpu, cuda, … (default: an accelerator if there is one)
    --write         put the records and the tables beside this file (ladder_<device>.json, ladder.md)

Each sample is climbed as a user does it: in a folder of its own, `perfaudit tune SAMPLE.py --all --allow … --out plan.patch`.
`perfaudit apply report.json` then patches a fresh copy. Three texts of the program are raced, interleaved, in fresh processes:
the sample, the fresh copy as patched, and its twin of `sample_models/fast/`, which a person tuned. A whole step is timed,
loading with it. `twin / climbed` is the share of the twin's speed that the climb reaches.

Beside that, each program is run as it stands, `python SAMPLE.py --steps N`, for two numbers of steps, in turn; the difference is
the time of its own steps in its own loop, with what that loop does besides (reading the loss, emptying caches), which the
climb does not touch.

gpt2 has not been run on an accelerator yet. Of what its expert changes the climb has a knob for bfloat16 or TF32 (`precision`
takes one of the two: under bfloat16 hardly a float32 product is left to round), `compile`, `attention`, `fusion` (GELU),
`optimizer` and `transfer` (pinned memory). It cannot pad the vocabulary: PA206 finds it and says to what size, but has no
patch, because embedding and head get other shapes, so that old checkpoints load no more, and because what draws the tokens
must stay below the old size. That rung is the expert's alone; in the published ladder it is the one from 96 to 93 ms.

A step of naive.py keeps tens of GiB of tensors alive, and a knob's search holds all its candidates at once: where they do not
fit, they fail as out of memory and are not climbed. Lower BATCH_SIZE in both files then.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import platform
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from perfaudit.machine.limits import load_average, usable_cores
from perfaudit.measure.clock import Deadline, WallClock
from perfaudit.measure.generations import measure
from perfaudit.measure.judge import comparison
from perfaudit.measure.lab import ChildLab
from perfaudit.measure.ledger import Ledger, Variant
from perfaudit.measure.stats import ratio_interval

HERE = Path(__file__).parent
SAMPLES = HERE.parent / "sample_models"
PERFAUDIT = [sys.executable, "-m", "perfaudit"]
# What the twins change besides speed, apart from the average that lags one step behind (photo_resnet's `algorithm`).
ALLOW = {
    "char_gpt": "rounding",
    "photo_resnet": "rounding,rng,checkpoint",
    "digits_cnn": "rounding,rng,checkpoint",
    "gpt2": "rounding,checkpoint",
}
# Steps of a short and of a long run of the program.
STEPS = {"char_gpt": (10, 60), "photo_resnet": (4, 28), "digits_cnn": (4, 24), "gpt2": (10, 40)}
NAMES = ("sample", "climbed", "twin")
STAGE = "ladder"

Record = dict[str, Any]  # JSON


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("samples", nargs="*", choices=[*ALLOW, []], metavar="SAMPLE")
    parser.add_argument("--budget", type=float, default=900.0)
    parser.add_argument("--race", type=float, default=420.0)
    parser.add_argument("--programs", type=int, default=5)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--write", action="store_true")
    args = parser.parse_args()

    device = args.device if args.device != "auto" else _device()
    if "gpt2" in args.samples and args.device == "auto" and device == "cpu":
        parser.exit(2, "gpt2 takes hours on a CPU, and there is no accelerator; --device cpu climbs it all the same\n")
    kept = HERE / f"ladder_{device}.json"
    records: dict[str, Record] = json.loads(kept.read_text()) if kept.exists() else {}
    for sample in args.samples:
        records[sample] = climbed(sample, args.budget, args.race, args.programs, args.device)
        if args.write:  # before anything else can fail
            kept.write_text(json.dumps(records, indent=1) + "\n")
        print(table(sample, records[sample]))
    if args.write:
        (HERE / "ladder.md").write_text(page())


def _device() -> str:
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"


def texts_of(sample: str) -> tuple[str, str]:
    """The program to climb, and its hand-tuned twin."""
    folder = HERE / sample
    both = SAMPLES / f"{sample}.py", SAMPLES / "fast" / f"{sample}.py"
    slow, fast = (folder / "naive.py", folder / "expert.py") if folder.is_dir() else both
    return slow.read_text(encoding="utf-8"), fast.read_text(encoding="utf-8")


def climbed(sample: str, budget: float, race_seconds: float, rounds: int, device: str) -> Record:
    """One sample climbed, applied to a fresh copy, raced against its twin, and run as a program."""
    file = f"{sample}.py"
    original, twin = texts_of(sample)
    command = ["tune", file, "--all", "--allow", ALLOW[sample], "--budget", f"{budget:.0f}s", "--device", device]
    load = load_average()
    with _folder(file, original) as folder:
        started = time.monotonic()
        options = ["--out", "plan.patch", "--format", "json", "--output", "report.json"]
        subprocess.run([*PERFAUDIT, *command, *options], check=False)
        seconds = time.monotonic() - started
        report = json.loads(Path("report.json").read_text())
        saved = folder / "report.json"
        with _folder(file, original) as fresh:
            applied = subprocess.run([*PERFAUDIT, "apply", str(saved)], check=False, capture_output=True, text=True)
            patched = (fresh / file).read_text(encoding="utf-8")
            texts = {"sample": original, "climbed": patched, "twin": twin}
            return {
                "command": "perfaudit " + " ".join([*command, "--out", "plan.patch"]),
                "options": f"--budget {budget:.0f} --race {race_seconds:.0f} --programs {rounds} --device {device}",
                "machine": f"{report['environment']['device']}, {platform.machine()}, {usable_cores()} cores, "
                f"torch {report['environment']['torch']}, Python {platform.python_version()}",
                "load": [load, load_average()],
                "seconds": round(seconds),
                "ladder": report["ladder"],
                "apply": [applied.returncode, (applied.stdout + applied.stderr).strip()],
                "race": race(file, texts, race_seconds, device),
                "programs": programs(file, texts, STEPS[sample], rounds) if rounds else None,
            }


@contextlib.contextmanager
def _folder(file: str, text: str) -> Iterator[Path]:
    """A folder with this one file, which is the working directory inside."""
    before = Path.cwd()
    with tempfile.TemporaryDirectory() as name:
        Path(name, file).write_text(text, encoding="utf-8")
        os.chdir(name)
        try:
            yield Path(name)
        finally:
            os.chdir(before)


def race(file: str, texts: dict[str, str], seconds: float, device: str) -> Record:
    """The three texts raced on whole steps: ms per step of each, and the ratios with their intervals."""
    ledger = Ledger()
    variants = {name: Variant(name, "", {}, {file: texts[name]}) for name in NAMES}
    lab = ChildLab({"file": file, "names": {}}, device)
    measure(lab, list(variants.values()), ledger, Deadline(seconds, WallClock()), 7, STAGE)
    ratios = {}
    for over, under in (("sample", "climbed"), ("sample", "twin"), ("climbed", "twin")):
        seen = comparison(ledger, variants[over], variants[under], STAGE)
        ratios[f"{under} / {over}"] = [seen.ratio, seen.low, seen.high, seen.n] if seen is not None else None
    blocks = {name: [block.seconds_per_step for block in ledger.blocks(name)] for name in NAMES}
    return {
        "ms": {name: 1e3 * statistics.median(values) for name, values in blocks.items() if values},
        "ratios": ratios,
        "failures": ledger.failures,
        "load": load_average(),
    }


def programs(file: str, texts: dict[str, str], steps: tuple[int, int], rounds: int) -> Record:
    """Seconds per step of each program in its own loop, from a short and a long run, and ratios over the rounds."""
    per_step: dict[str, list[float]] = {name: [] for name in NAMES}
    for name in NAMES:
        Path(f"program_{name}.py").write_text(texts[name], encoding="utf-8")
    order = random.Random(0)
    for _ in range(rounds):
        names = list(NAMES)
        order.shuffle(names)
        for name in names:
            short, long = (_seconds([sys.executable, f"program_{name}.py", "--steps", str(n)]) for n in steps)
            per_step[name].append((long - short) / (steps[1] - steps[0]))
    return {"steps": steps, "seconds": per_step}


def _seconds(command: list[str]) -> float:
    started = time.monotonic()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return time.monotonic() - started


# ---- tables ------------------------------------------------------------------------------------------------------------


def table(sample: str, record: Record) -> str:
    """One sample's ladder, race and programs in Markdown."""
    lines = [f"## {sample}", "", f"`{record['command']}` took {record['seconds']} s on {record['machine']}; "]
    lines[-1] += f"load {record['load'][0]} before, {record['load'][1]} after."
    lines += ["", *_rungs(record["ladder"]), "", "| | ms per step | against the sample | against the twin |"]
    lines += ["|---|---|---|---|"]
    ms, ratios = record["race"]["ms"], record["race"]["ratios"]
    for name in NAMES:
        start = _ratio(ratios.get(f"{name} / sample")) if name != "sample" else "1"
        twin = {"sample": "", "climbed": _inverse(ratios.get("twin / climbed")), "twin": "1"}[name]
        lines.append(f"| {name} | {ms.get(name, float('nan')):.1f} | {start} | {twin} |")
    lines += [
        "",
        f"`perfaudit apply report.json` on the fresh copy: {record['apply'][1] or 'nothing'} (exit {record['apply'][0]}).",
    ]
    if reached := ratios.get("twin / climbed"):
        lines += [
            f"Of the twin's speed the climb reaches {100 * reached[0]:.0f} % [{100 * reached[1]:.0f}, {100 * reached[2]:.0f}].",
        ]
    lines += [f"Not raced to the end: {name}: {why}" for name, why in record["race"].get("failures", {}).items()]
    if record.get("programs"):
        lines += ["", _programs(record["programs"])]
    return "\n".join(lines) + "\n"


def _rungs(ladder: Record) -> list[str]:
    """The climb's own table: each rung screened alone and beside the others or, in older records, each on top of those before."""
    if not any(rung["from_start"] is not None for rung in ladder["rungs"]):
        return [*_screened_rungs(ladder), "", *_said(ladder)]
    lines = ["| rung | ms per step | of the sample's step | peak memory, MiB | also changes |", "|---|---|---|---|---|"]
    for number, rung in enumerate(ladder["rungs"], start=1):
        if rung["dropped"]:
            lines.append(f"| taken out again: {rung['words']} | | {rung['dropped']} | | |")
            continue
        ratio = _ratio([rung["from_start"], rung["from_low"], rung["from_high"]])
        memory = f"{rung['peak_memory_bytes'] / 2**20:.1f}" if rung["peak_memory_bytes"] else ""
        changes = ", ".join(rung["changes"]) or "nothing"
        lines.append(
            f"| {number} {rung['words']} | {1e3 * rung['seconds_per_step']:.1f} | {ratio} | {memory} | {changes} |"
        )
    if ladder["ratio"] is not None:
        whole = _ratio(_interval(ladder))
        ms = 1e3 * ladder["patched_seconds_per_step"]
        lines.append(f"| all of it, raced against the sample | {ms:.1f} | {whole} | | {', '.join(ladder['changes'])} |")
    return [*lines, "", *_said(ladder)]


def _screened_rungs(ladder: Record) -> list[str]:
    lines = ["| rung | alone, screened | beside the others | also changes |", "|---|---|---|---|"]
    for number, rung in enumerate(ladder["rungs"], start=1):
        name = f"taken out again: {rung['words']}" if rung["dropped"] else f"{number} {rung['words']}"
        alone, beside = _ratio(_interval(rung)), _ratio(rung["beside"])
        changes = rung["dropped"] or ", ".join(rung["changes"]) or "nothing"
        lines.append(f"| {name} | {alone} | {beside} | {changes} |")
    if ladder["ratio"] is None:
        return lines
    before, after = (1e3 * ladder[name] for name in ("seconds_per_step", "patched_seconds_per_step"))
    how = "screened" if ladder["basis"] == "screened" else "raced in fresh processes"
    return [*lines, "", f"All of it, {how}: {_ratio(_interval(ladder))}, {before:.1f} -> {after:.1f} ms per step."]


def _interval(found: Record) -> list[float]:
    """The ratio of a rung or of a ladder, with bounds that hold anything where JSON has none."""
    low, high = found["low"], found["high"]
    return [found["ratio"], low if low is not None else 0.0, high if high is not None else float("inf")]


def _said(ladder: Record) -> list[str]:
    """What was checked, what stands in the way, and what was not climbed."""
    said = [f"checked: {ladder['verified']}"] if ladder["verified"] else []
    said += [ladder["trouble"]] if ladder["trouble"] else []
    reasons: dict[str, list[str]] = {}
    for item in ladder["left"]:
        reasons.setdefault(item["reason"], []).append(item["knob"])
    said += [f"not climbed: {', '.join(names)}: {reason}" for reason, names in reasons.items()]
    return [f"- {line}" for line in said]


def _programs(found: Record) -> str:
    seconds = found["seconds"]
    rows = []
    for name in ("climbed", "twin"):
        both = zip(seconds[name], seconds["sample"], strict=True)
        logs = [[math.log(a / b)] for a, b in both if min(a, b) > 0]  # others noise has turned around
        rows.append(f"{name} {_ratio(list(ratio_interval(logs))) if len(logs) > 1 else ''}")
    middle = ", ".join(f"{name} {1e3 * statistics.median(seconds[name]):.0f} ms" for name in NAMES)
    return (
        f"As programs (`--steps {found['steps'][0]}` and `--steps {found['steps'][1]}`, {len(seconds['sample'])} rounds), "
        f"a step of their own loop: {middle}; against the sample: {', '.join(rows)}."
    )


def _ratio(found: list[float] | None) -> str:
    return f"{found[0]:.3f} [{found[1]:.3f}, {found[2]:.3f}]" if found else "not measured"


def _inverse(found: list[float] | None) -> str:
    return _ratio([1 / found[0], 1 / found[2], 1 / found[1]]) if found else "not measured"


def page() -> str:
    """The page of all records that are there, and below them what was written by hand (ladder_notes.md)."""
    kept: list[dict[str, Record]] = [json.loads(file.read_text()) for file in sorted(HERE.glob("ladder_*.json"))]
    commands = [
        f"    python benchmarks/ladder.py {sample} {record['options']} --write\n"
        for records in kept
        for sample, record in records.items()
    ]
    parts = ["# From naive to expert by itself\n\n" + "".join(commands)]
    parts += [table(sample, record) for records in kept for sample, record in records.items()]
    notes = HERE / "ladder_notes.md"
    return "\n".join([*parts, *([notes.read_text(encoding="utf-8")] if notes.exists() else [])])


if __name__ == "__main__":
    main()
