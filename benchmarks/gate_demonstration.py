"""A small project with a history, gated commit by commit: an innocent change, a sync in the loop, a tenth more work.

    python benchmarks/gate_demonstration.py [--budget 120] [--layers findings,counters,time] [--write]

Makes a repository in a temporary folder, runs `perfaudit gate train.py --against HEAD~1` at each commit, and prints what came
of it as Markdown. Exits with 1 where a verdict is not the expected one.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PROGRAM = '''"""Trains a classifier of random vectors."""

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

DEPTH = 10
WIDTH = 384


def build_model():
    layers = [nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU()) for _ in range(DEPTH)]
    return nn.Sequential(*layers, nn.Linear(WIDTH, 10))


def build_dataloader():
    generator = torch.Generator().manual_seed(0)
    images = torch.randn(2048, WIDTH, generator=generator)
    labels = torch.randint(10, (2048,), generator=generator)
    return DataLoader(TensorDataset(images, labels), batch_size=256)


def build_optimizer(model):
    return torch.optim.SGD(model.parameters(), lr=1e-3)


def training_step(model, batch):
    images, labels = batch
    return F.cross_entropy(model(images), labels)


def train(epochs=2):
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = build_model().to(device)
    optimizer = build_optimizer(model)
    for epoch in range(epochs):
        for images, labels in build_dataloader():
            optimizer.zero_grad()
            loss = training_step(model, (images.to(device), labels.to(device)))
            loss.backward()
            optimizer.step()
        print(epoch)


if __name__ == "__main__":
    train()
'''

# What a report comes from.
PERFAUDIT = [sys.executable, "-m", "perfaudit"]
LOSS = "    return F.cross_entropy(model(images), labels)\n"


@dataclass(frozen=True, slots=True)
class Commit:
    """A change of the program, and what each layer must say of it against the commit before."""

    title: str
    old: str
    new: str
    expected: dict[str, str]


COMMITS = (
    Commit(
        "name the loss function's arguments, and say more",
        f"    images, labels = batch\n{LOSS}",
        '    """Cross-entropy of one batch."""\n    inputs, targets = batch\n'
        "    return F.cross_entropy(model(inputs), target=targets)\n",
        {"findings": "pass", "counters": "pass", "time": "pass"},
    ),
    Commit(
        "refuse losses that are not finite",
        "    return F.cross_entropy(model(inputs), target=targets)\n",
        "    loss = F.cross_entropy(model(inputs), target=targets)\n    if loss.item() > 1e6:\n"
        '        raise RuntimeError("the loss explodes")\n    return loss\n',
        {"findings": "regressed", "counters": "regressed"},
    ),
    Commit(
        "one layer more: a tenth more work", "DEPTH = 10\n", "DEPTH = 11\n", {"findings": "pass", "time": "regressed"}
    ),
)


def repository(folder: Path) -> list[str]:
    """A repository with the program and its commits; their hashes, the program's first."""
    text = PROGRAM
    hashes = []
    _git(folder, "init", "--quiet", "--initial-branch=main")
    for title, old, new in (("a classifier", "", ""), *((c.title, c.old, c.new) for c in COMMITS)):
        if old not in text:
            raise ValueError(f"{title}: the program does not hold {old!r}")
        text = text.replace(old, new) if old else text
        (folder / "train.py").write_text(text)
        _git(folder, "add", "--all")
        _git(folder, "commit", "--quiet", "--message", title)
        hashes.append(_git(folder, "rev-parse", "HEAD"))
    return hashes


def gated(folder: Path, commit: str, layers: str, budget: float) -> dict[str, Any]:
    """The JSON report of the gate of one commit against the one before, with its exit code as "rc"."""
    _git(folder, "checkout", "--quiet", commit)
    command = [
        *PERFAUDIT, "gate", "train.py", "--against", "HEAD~1", "--layers", layers,
        "--budget", f"{budget:g}s", "--format", "json", "--no-history",
    ]  # fmt: skip
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=900)
    if not done.stdout:
        raise RuntimeError(done.stderr)
    return {**json.loads(done.stdout), "rc": done.returncode}


def verdicts(report: dict[str, Any]) -> dict[str, str]:
    """The verdict of each layer that was judged."""
    gate = report["gate"]
    layers = {
        "findings": [gate["findings"]] if gate["findings"] else [],
        "counters": gate["counters"],
        "time": gate["times"],
    }
    return {name: parts[0]["verdict"] for name, parts in layers.items() if parts}


def row(commit: Commit, report: dict[str, Any]) -> str:
    """What came of a commit, as a row of the table."""
    gate = report["gate"]
    said = verdicts(report)
    where = [f"{f['rule']} at {f['path']}:{f['line']}" for f in report["findings"]]
    places = [
        f"{change['after'] - change['before']:+,} {change['counter'].replace('_', ' ')}"
        + "".join(f" at {p['path']}:{p['line']}" for p in change["places"][:1] if change["counter"] == "host_syncs")
        for counters in gate["counters"]
        for change in counters["changes"]
        if change["counter"] in ("host_syncs", "flops", "operators")
    ]
    times = [interval(time) for time in gate["times"]]
    cells = [
        commit.title,
        f"{said.get('findings', '-')} {', '.join(where)}",
        f"{said.get('counters', '-')} {', '.join(places)}",
        f"{said.get('time', '-')} {', '.join(times)}",
        str(report["rc"]),
    ]
    return "| " + " | ".join(cell.strip() for cell in cells) + " |"


def machine(environment: dict[str, Any]) -> str:
    """Where the gates ran, as a sentence; load is that at the start."""
    versions = f"torch {environment['torch']}, Python {environment['python']}"
    cores, threads = environment["cores"], os.environ.get("OMP_NUM_THREADS", "not set")
    load = f"load {environment['load']:.2f}, OMP_NUM_THREADS {threads}"
    return f"On {environment['device']}, {cores} cores, {versions}, {environment['platform']}, {load}."


def interval(time: dict[str, Any]) -> str:
    """A ratio with its interval; why there is none where there is none."""
    if time["ratio"] is None or time["low"] is None:
        return str(time["reason"])
    high = "" if time["high"] is None else f"{time['high']:.3f}"
    return f"{time['ratio']:.3f} [{time['low']:.3f}, {high}], {time['pairs']} pairs"


def unexpected(commit: Commit, report: dict[str, Any]) -> list[str]:
    """Layers that said something else than they must."""
    said = verdicts(report)
    wrong = [layer for layer, verdict in commit.expected.items() if layer in said and said[layer] != verdict]
    fails = "regressed" in [verdict for layer, verdict in commit.expected.items() if layer in said]
    return [
        *(f"{layer}: {said[layer]}" for layer in wrong),
        *([f"exit {report['rc']}"] if fails != (report["rc"] == 1) else []),
    ]


def _git(folder: Path, *arguments: str) -> str:
    names = {f"GIT_{who}_{what}": "demonstration" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    environment = {**os.environ, **names, "GIT_CONFIG_GLOBAL": os.devnull}
    command = ["git", *arguments]
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=True
    ).stdout.strip()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--budget", type=float, default=120.0, help="seconds for the time layer of each commit")
    parser.add_argument("--layers", default="findings,counters,time")
    parser.add_argument("--write", action="store_true", help="write gate_demonstration.md beside this file")
    asked = parser.parse_args()
    lines = ["| commit | findings | counters | time | exit |", "|---|---|---|---|---|"]
    wrong, on = [], ""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for commit, made in zip(COMMITS, repository(folder)[1:], strict=True):
            report = gated(folder, made, asked.layers, asked.budget)
            lines.append(row(commit, report))
            print(lines[-1], flush=True)
            on = on or machine(report["environment"])
            wrong += [f"{commit.title}: {problem}" for problem in unexpected(commit, report)]
    command = "python " + " ".join(["benchmarks/gate_demonstration.py", *sys.argv[1:]])
    said = (
        "Each row is the gate of one commit against the one before; the ratio is of time per step, with its interval."
    )
    text = f"# A project gated commit by commit\n\n    {command}\n\n{said} {on}\n\n" + "\n".join(lines) + "\n"
    if asked.write:
        (Path(__file__).parent / "gate_demonstration.md").write_text(text)
    if wrong:
        sys.exit("not as expected: " + "; ".join(wrong))


if __name__ == "__main__":
    main()
