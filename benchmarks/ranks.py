"""What `perfaudit run` says of two ranks with one thing wrong, and with nothing: `python benchmarks/ranks.py --runs 10 --write`.

    --runs N     of each training (10)
    --only ...   of these trainings
    --steps N    of each run (60)
    --write      put the table into ranks.md, and one report of each training beside it

Two ranks of gloo on this machine, started by torchrun. Each run is kept in ranks.jsonl as it ends, so that a run of the
benchmark can be broken off; --anew forgets the earlier ones.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

from gate_power import machine
from records import Json, keep, read, tell

from perfaudit.measure.stats import ratio_interval

HERE = Path(__file__).resolve().parent
PROGRAMS = HERE / "rank_programs"
RECORDS, PAGE = HERE / "ranks.jsonl", HERE / "ranks.md"
# What is wrong, and the rule that must say so; "" for nothing that `run` has a rule for.
TRAININGS = {
    "balanced": ("nothing", ""),
    "straggler": ("rank 1 sleeps for 5 ms a step", "PA904"),
    "imbalance": ("texts of 16 or 96 tokens, drawn by batch and rank", "PA905"),
    "two threads": ("nothing: each rank computes with two threads", ""),
    "worker": ("nothing: each rank's loader has a worker", ""),
    "evened": ("nothing: the same texts, sorted so that both ranks have one length at a time", ""),
    "unoverlapped": ("gradients are reduced one by one behind the backward pass", "PA903"),
    "each_pass": ("gradients of four passes are summed in each of them, where the step needs it in the last", ""),
    "no_sync": ("nothing: the same, summed in the last pass", ""),
    "searching": ("as each_pass, and each pass looks for unused parameters", ""),
}
# Trained by other programs. The first has none of the words of the others, which would tell `tune` that it needs no patch.
PROGRAM_OF = {
    "each_pass": "accumulating_ranks.py",
    "no_sync": "synced_ranks.py",
    "searching": "synced_ranks.py",
}
# What the work on Mask R-CNN and the tuning guide gain by: a training, that without it, and who says it.
WORTH = {
    "all-reduce overlapped with the backward pass": (
        "balanced",
        "unoverlapped",
        "Mask R-CNN work; PyTorch's tuning guide (DDP)",
    ),
    "ranks balanced by length": ("evened", "imbalance", "Mask R-CNN work; PyTorch's tuning guide (load balance)"),
    "accumulation of 4 passes under `no_sync`": ("no_sync", "each_pass", "PyTorch's tuning guide (DDP)"),
    "no search for unused parameters": ("each_pass", "searching", "PyTorch's tuning guide (DDP)"),
}
RULES = ("PA903", "PA904", "PA905")
CALM = 3.0  # load before a run, up to which its steps are compared: the two ranks hold two cores themselves
JUDGED = 5  # raised when something else is said of the same steps: earlier runs then count for their times only


def run(training: str, steps: int, number: int) -> Json:
    """One run, of this round: what it said, its step and the load of the machine before it."""
    load = os.getloadavg()[0]
    program = PROGRAMS / PROGRAM_OF.get(training, "text_ranks.py")
    done = subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--standalone", "-m", "perfaudit",
         "run", program.name, "--steps", str(steps), "--format", "json", "--quiet", "--", training],
        cwd=PROGRAMS, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode:
        raise SystemExit(f"{training}: {done.stderr[-2000:]}")
    report = json.loads(done.stdout)
    seen = report["run"]
    said = [each for each in report["findings"] if each["rule"] in RULES]
    return {
        "training": training,
        "round": number,
        "judged": JUDGED,
        "rules": [each["rule"] for each in said],
        "messages": [each["message"] for each in said],
        "step": seen["seconds_per_step"],
        "mean_step": seen["mean_seconds_per_step"],
        "exposed": seen["communication_exposed"],
        "overlap": seen["communication_overlap"],
        "imbalance": seen["imbalance"],
        "stragglers": seen["stragglers"],
        "load": load,
        "machine": machine(),
    }


def page(records: list[Json]) -> str:
    lines = [
        "# Two ranks with one thing wrong",
        "",
        "Printed by `python benchmarks/ranks.py --write` from ranks.jsonl. The programs of `benchmarks/rank_programs` are",
        "trained by two ranks of gloo on one machine and watched by `perfaudit run`. Named: in how many runs the rule that",
        "is meant said it. Besides: what else was said of ranks.",
        "",
        "| training | what is wrong | named | besides | step, ms | exposed | waiting for the last | load before |",
        "|---|---|---:|---|---:|---:|---:|---:|",
    ]
    for training, (wrong, rule) in TRAININGS.items():
        runs = [each for each in records if each["training"] == training and is_judged(each)]
        if not runs:
            lines.append(f"| {training} | {wrong} | not run | | | | | |")
            continue
        named: object = sum(rule in each["rules"] for each in runs) if rule else "-"
        besides = Counter(other for each in runs for other in each["rules"] if other != rule)
        words = ", ".join(f"{other} {number} times" for other, number in sorted(besides.items())) or "nothing"
        lines.append(
            f"| {training} | {wrong} | {named} of {len(runs)} | {words} | {span(runs, 'step', 1000)} | "
            f"{span(runs, 'exposed', 100)} % | {span(runs, 'imbalance', 100)} % | {span(runs, 'load', 1)} |"
        )
    lines += ["", *earlier_verdicts(records)]
    lines += [
        "",
        *_how_late(records),
        "## What it is worth here",
        "",
        "Mean seconds of a step with it over those without, of runs of the same round, both begun at a load of at most "
        f"{CALM:g}; the interval is Student's over rounds. Runs of a round have one order and no control beside them. "
        "Earlier rounds do not count: they kept the median, which is the step of one length of texts where lengths are drawn.",
        "",
        *worth(records),
    ]
    lines += ["", f"Machine: {'; '.join(sorted({each['machine'] for each in records}))}", ""]
    lines += ["What was said in the first run of each:", ""]
    for training in TRAININGS:
        first = next((each for each in records if each["training"] == training and is_judged(each)), None)
        if first is not None:
            lines.append(f"- {training}: {' '.join(first['messages']) or 'nothing'}")
    return "\n".join([*lines, ""])


def earlier_verdicts(records: list[Json]) -> list[str]:
    """How many of the runs were named that were judged in the way before, as Markdown."""
    runs = [each for each in records if each.get("judged", 1) == JUDGED - 1]
    named = []
    for training, (_, rule) in TRAININGS.items():
        of_training = [each for each in runs if each["training"] == training]
        if rule:
            named.append(f"{training} {sum(rule in each['rules'] for each in of_training)} of {len(of_training)}")
    others = [each for each in runs if not TRAININGS[each["training"]][1]]
    silent = sum(not each["rules"] for each in others)
    return [
        f"In the way in which they were judged before, these were named: {', '.join(named)}.",
        f"Nothing was said in {silent} of {len(others)} runs that no rule covers.",
    ]


def is_judged(record: Json) -> bool:
    """Whether a run was judged as runs are now."""
    return bool(record.get("judged", 1) == JUDGED)


def _how_late(records: list[Json]) -> list[str]:
    """In how many runs the straggler was shown to come later, and not only to idle longer."""
    named = [
        each["messages"] for each in records if is_judged(each) and each["training"] == "straggler" and each["rules"]
    ]
    shown = sum("behind the others" in " ".join(messages) for messages in named)
    said = f"In {shown} of {len(named)} runs the straggler was shown to come so much behind the other rank, in the rest only "
    return [f"{said}to idle so much longer.", ""]


def worth(records: list[Json]) -> list[str]:
    """The table of what is gained, as Markdown."""
    rows = ["| what | source | ratio [95 %] | rounds | shown |", "|---|---|---|---:|---|"]
    # Rounds are counted anew where runs are judged in another way; the earliest records do not say theirs.
    calm = [each for each in records if "mean_step" in each and each["load"] <= CALM]
    steps = {((each["judged"], each["round"]), each["training"]): each["mean_step"] for each in calm}
    for what, (faster, slower, source) in WORTH.items():
        both = [n for n, name in sorted(steps) if name == faster and (n, slower) in steps]
        ratios = [[math.log(steps[n, faster] / steps[n, slower])] for n in both]
        if len(ratios) > 1:
            middle, low, high = ratio_interval(ratios)
            shown = "faster" if high < 1 else "slower" if low > 1 else "no difference"
            rows.append(f"| {what} | {source} | {middle:.3f} [{low:.3f}, {high:.3f}] | {len(ratios)} | {shown} |")
    return rows


def span(runs: list[Json], key: str, scale: float) -> str:
    values = sorted(scale * each[key] for each in runs if each[key] is not None)
    return f"{values[0]:.3g} to {values[-1]:.3g}" if values else "-"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--only", nargs="+", choices=TRAININGS, default=list(TRAININGS), metavar="TRAINING")
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--anew", action="store_true")
    options = parser.parse_args()
    if options.anew:
        RECORDS.unlink(missing_ok=True)
    for number in range(options.runs):
        for training in options.only:  # in turn, so that all meet the same machine
            done = [(each.get("round"), each["training"]) for each in read(RECORDS) if is_judged(each)]
            if (number, training) not in done:
                keep(RECORDS, run(training, options.steps, number))
    tell(page(read(RECORDS)), PAGE, options.write)


if __name__ == "__main__":
    main()
