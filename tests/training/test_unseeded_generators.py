"""Generators of NumPy that a script makes without a seed: two runs from one seed of ours draw the same numbers from them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from forked_programs import run_code

pytest.importorskip("greenlet")
pytest.importorskip("numpy")
ROOT = Path(__file__).parents[2]
SCRIPT = """
import torch, numpy as np
model = torch.nn.Linear(2, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
while True:
    model(torch.tensor(np.random.default_rng().random((4, 2)), dtype=torch.float32)).square().sum().backward()
    optimizer.step()
    optimizer.zero_grad()
"""
DRIVER = """
import json, os, sys
from perfaudit.target.names import Target
from perfaudit.target.working_folder import begin
begin()
from perfaudit.training.script_training import ScriptTraining
training = ScriptTraining(Target("train.py", {}, ()), seed=int(sys.argv[1]))
training.whole_step()
print("\\n" + json.dumps([training.first_gradients["weight"].tolist(), float(training.last_loss)]), flush=True)
os._exit(0)
"""

FORKS = """
import os, sys, numpy as np, numpy.random
from perfaudit.script.unseeded_streams import seed_unseeded
seed_unseeded(int(sys.argv[1]))
for _ in range(2):  # as the workers of two epochs
    if not os.fork():
        if not os.fork():  # as an environment of a worker
            print(np.random.default_rng().random(), flush=True)
            os._exit(0)
        os.wait()
        print(np.random.default_rng().random(), flush=True)
        os._exit(0)
    os.wait()
print(np.random.default_rng().random(), flush=True)
"""

# What a worker draws without a seed of its own; loaders seed the global streams of theirs, other processes do not.
STARTED = """
import multiprocessing, random
import numpy as np

def draw(told, more):
    told.put([np.random.default_rng().random(), np.random.random(), random.random()])
    if more:  # as an environment of a worker
        start(told, 0)

def start(told, more):
    process = multiprocessing.get_context({way!r}).Process(target=draw, args=(told, more))
    process.start()
    process.join()

if __name__ == "__main__":
    import sys
    from perfaudit.script.unseeded_streams import seed_unseeded
    seed_unseeded(int(sys.argv[1]))
    told = multiprocessing.get_context({way!r}).SimpleQueue()
    for _ in range(2):
        start(told, 1)
    for _ in range(4):
        print(*told.get(), sep="\\n")
"""
LOADED = """
import numpy as np, torch

class Rows(torch.utils.data.Dataset):
    def __len__(self):
        return 64
    def __getitem__(self, number):
        return torch.tensor(np.random.default_rng().random(2), dtype=torch.float32)

if __name__ == "__main__":
    model = torch.nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for batch in torch.utils.data.DataLoader(Rows(), 4, num_workers=1, multiprocessing_context="spawn"):
        model(batch).square().sum().backward()
        optimizer.step()
        optimizer.zero_grad()
"""


def first_steps(seed: int, folder: Path) -> list[object]:
    """In a fork that has torch imported; loader workers that are spawned are interpreters of their own there, too."""
    done = run_code(DRIVER, "driver.py", [str(seed)], folder, variables={"CUDA_VISIBLE_DEVICES": ""})
    assert done.code == 0, done.err[-3000:]
    found: list[object] = json.loads(done.out.splitlines()[-1])
    return found


def told_lines(code: str, seed: int, folder: Path) -> list[str]:
    return lines_of(["-c", code, str(seed)], folder)


def lines_of(arguments: list[str], folder: Path) -> list[str]:
    own = {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=folder, capture_output=True, text=True, timeout=300, check=False, env={**os.environ, **own},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout.splitlines()


@pytest.mark.parametrize("script", [SCRIPT, LOADED])
def test_two_runs_draw_the_same(script: str, tmp_path: Path) -> None:
    """So gradients and losses of a patched script can be compared, as in an environment that is reset without a seed."""
    (tmp_path / "train.py").write_text(script)
    one = first_steps(0, tmp_path)
    assert one == first_steps(0, tmp_path) and one != first_steps(1, tmp_path)


def test_forks_draw_the_same_in_two_runs_and_differ_from_each_other(tmp_path: Path) -> None:
    drawn = told_lines(FORKS, 0, tmp_path)
    assert drawn == told_lines(FORKS, 0, tmp_path)
    assert len(drawn) == len({*drawn, *told_lines(FORKS, 1, tmp_path)}) / 2 == 5


@pytest.mark.parametrize("way", ["spawn", "forkserver"])
def test_new_interpreters_draw_the_same_in_two_runs_and_differ_from_each_other(way: str, tmp_path: Path) -> None:
    (tmp_path / "draw.py").write_text(STARTED.format(way=way))
    drawn = lines_of(["draw.py", "0"], tmp_path)
    assert drawn == lines_of(["draw.py", "0"], tmp_path)
    assert len(drawn) == len({*drawn, *lines_of(["draw.py", "1"], tmp_path)}) / 2 == 12
