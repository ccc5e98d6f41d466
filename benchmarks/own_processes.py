"""Trainings run by themselves, each in a process of its own, without perfaudit: what its figures are held against.

Programs of sample_models stand in this repository. Those of other people are taken from bare or full clones, as
`git clone https://github.com/OWNER/NAME SOURCES/OWNER+NAME`, at a commit that is named here; a file of `programs/` is put beside
their code and imports it. None of theirs is in this repository.
"""

from __future__ import annotations

import io
import json
import math
import os
import statistics
import subprocess
import sys
import tarfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
SAMPLES = ("char_gpt", "photo_resnet", "digits_cnn")
TIMEOUT = 600.0
UNTIMED = 2  # steps of a process before those that count


@dataclass(frozen=True)
class Other:
    """A program by other people: where it is from, and what it may change when it is tuned."""

    repository: str
    commit: str
    allow: str
    own_loop: bool  # whether `main` runs a loop of theirs
    parts: tuple[str, ...] = ()  # folders of it that are needed; all of them where none is named


OTHERS = {
    "mingpt_chars": Other("karpathy/minGPT", "37baab71b9abea1b76ab957409a1cc2fbfba8a26", "rounding,rng", True),
    "mnist_convnet": Other(
        "pytorch/examples", "77f55b912142e11fcfdf5b530231fb9c52f181e8", "rounding,rng", True, ("mnist",)
    ),
    "cifar_resnet18": Other(
        "kuangliu/pytorch-cifar", "49b7aa97b0c12fe0d4054e670403a16b6b834ddd", "rounding,rng,checkpoint", False
    ),
}

# Our loop over the factories of a file, and nothing else: what a user writes first.
BARE = """
import importlib, json, os, sys, time
folder, name, steps = sys.argv[1], sys.argv[2], int(sys.argv[3])
sys.path[0] = folder
sys.argv[1:] = []
program = importlib.import_module(name)
import torch
torch.manual_seed(0)
model, loader = program.build_model(), program.build_dataloader()
optimizer = program.build_optimizer(model)
average = program.build_ema(model) if hasattr(program, "build_ema") else None
model.train()
seconds = []
began = time.perf_counter()
while len(seconds) < steps:
    for batch in loader:
        optimizer.zero_grad()
        loss = program.training_step(model, batch)
        loss.backward()
        optimizer.step()
        if average is not None:
            average.update(model)
        ended = time.perf_counter()
        seconds.append(ended - began)
        began = ended
        if len(seconds) == steps:
            break
print("\\n" + json.dumps(seconds), flush=True)
os._exit(0)
"""

# The program as it is run from a shell, stopped after so many updates.
OWN = """
import json, os, runpy, sys, time
folder, name, steps = sys.argv[1], sys.argv[2], int(sys.argv[3])
sys.path[0] = folder
path = os.path.join(folder, name + ".py")
sys.argv[:] = [path]
from torch.optim.optimizer import register_optimizer_step_post_hook
ends = []
def note(*_):
    ends.append(time.perf_counter())
    if len(ends) > steps:
        print("\\n" + json.dumps([b - a for a, b in zip(ends, ends[1:])]), flush=True)
        os._exit(0)
register_optimizer_step_post_hook(note)
runpy.run_path(path, run_name="__main__")
"""


def put(program: str, folder: Path, sources: Path | None) -> Path:
    """The program's file in a folder, with all that it imports. Raises SystemExit where sources lack it."""
    if program in SAMPLES:
        file = folder / f"{program}.py"
        file.write_text((HERE.parent / "sample_models" / file.name).read_text(encoding="utf-8"), encoding="utf-8")
        return file
    other = OTHERS[program]
    clone = sources / other.repository.replace("/", "+") if sources is not None else None
    if clone is None or not clone.exists():
        raise SystemExit(f"--sources has no clone of {other.repository}; see benchmarks/own_processes.py")
    if (clone / "repo").exists():
        clone = clone / "repo"
    command = ["git", "-C", str(clone), "archive", other.commit, *other.parts]
    packed = subprocess.run(command, check=True, capture_output=True).stdout
    with tarfile.open(fileobj=io.BytesIO(packed)) as files:
        files.extractall(folder, filter="data")
    file = folder / f"{program}.py"
    file.write_text((HERE / "programs" / file.name).read_text(encoding="utf-8"), encoding="utf-8")
    return file


def seconds_per_step(loop: str, file: Path, steps: int) -> float:
    """The median step of a program in a process of its own. loop: BARE or OWN. Raises SystemExit with what it said last."""
    command = [sys.executable, "-c", loop, str(file.parent), file.stem, str(UNTIMED + steps)]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        command, cwd=file.parent, env=environment, capture_output=True, text=True, timeout=TIMEOUT, check=False
    )
    if done.returncode:
        raise SystemExit(f"{file.name} by itself ended with {done.returncode}:\n{done.stderr[-2000:]}")
    return statistics.median(json.loads(done.stdout.splitlines()[-1])[UNTIMED:])


def commit_of(program: str) -> str:
    """`karpathy/minGPT 37baab7`, or that it stands in sample_models."""
    return f"{OTHERS[program].repository} {OTHERS[program].commit[:7]}" if program in OTHERS else "sample_models"


def median_ratio(ours: Sequence[float], theirs: Sequence[float]) -> tuple[float, float, float] | None:
    """The median over rounds of ours / theirs, with its 95 % interval by ranks; their whole range for fewer than six rounds.

    By ranks, because a process that shares its cores with another now and then takes ten times as long. A round in which
    either is not above zero has no ratio. None for fewer than two.
    """
    ratios = sorted(a / b for a, b in zip(ours, theirs, strict=True) if min(a, b) > 0)
    if len(ratios) < 2:
        return None
    aside, below = 0, 0.5 ** len(ratios)  # ratios left out at each end, and how often the median lies beyond the next
    while 2 * (below + math.comb(len(ratios), aside + 1) * 0.5 ** len(ratios)) <= 0.05:
        aside += 1
        below += math.comb(len(ratios), aside) * 0.5 ** len(ratios)
    return statistics.median(ratios), ratios[aside], ratios[-1 - aside]
