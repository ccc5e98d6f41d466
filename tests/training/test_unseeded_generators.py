"""Generators of NumPy that a script makes without a seed: two runs from one seed of ours draw the same numbers from them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

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


def first_steps(seed: int, folder: Path) -> list[object]:
    own = {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(
        [sys.executable, "-c", DRIVER, str(seed)],
        cwd=folder, capture_output=True, text=True, timeout=300, check=False, env={**os.environ, **own},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    found: list[object] = json.loads(done.stdout.splitlines()[-1])
    return found


def test_two_runs_draw_the_same(tmp_path: Path) -> None:
    """So gradients and losses of a patched script can be compared, as in an environment that is reset without a seed."""
    (tmp_path / "train.py").write_text(SCRIPT)
    one = first_steps(0, tmp_path)
    assert one == first_steps(0, tmp_path) and one != first_steps(1, tmp_path)
