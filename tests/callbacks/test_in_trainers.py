"""Callbacks in the real trainers: what their loggers are given. Each needs its package; `make trainers` has them all."""

from __future__ import annotations

import csv
import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROGRAMS = ROOT / "tests" / "training" / "trainer_programs"
PHASES = {"data_wait", "forward", "backward", "optimizer", "other", "host_reads", "host_to_device"}
LEAST = 0.05  # of a step: an item sleeps for longer than all else takes

# By program: its package, and what is written in the place of what.
PROGRAMS_WITH = {
    "hugging_face": (
        "transformers",
        {
            "from transformers import Trainer,": (
                "import json, time\nfrom perfaudit.callbacks.transformers import PerfauditCallback\n"
                "from transformers import Trainer,"
            ),
            "max_steps=2000": "max_steps=60",
            "inputs = torch.randn": "time.sleep(0.001)\n        inputs = torch.randn",
            "    Trainer(model": "    trainer = Trainer(model",
            "train_dataset=Points()).train()": (
                "train_dataset=Points(), callbacks=[PerfauditCallback()])\n"
                "    trainer.train()\n    print(json.dumps(trainer.state.log_history))"
            ),
        },
    ),
    "lightning_fit": (
        "lightning",
        {
            "import lightning\n": (
                "import lightning, time\nfrom lightning.pytorch.loggers import CSVLogger\n"
                "from perfaudit.callbacks.lightning import PerfauditCallback\n"
            ),
            "max_steps=2000": "max_steps=60, log_every_n_steps=10, callbacks=[PerfauditCallback()]",
            "logger=False": 'logger=CSVLogger("logs")',
            "shuffle=True": "shuffle=True, collate_fn=slow",
            "class Points": (
                "def slow(rows):\n    time.sleep(0.01)\n    return torch.utils.data.default_collate(rows)\n\nclass Points"
            ),
        },
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("program", PROGRAMS_WITH)
def test_loggers_are_given_where_steps_go(program: str, tmp_path: Path) -> None:
    package, changes = PROGRAMS_WITH[program]
    if importlib.util.find_spec(package) is None:
        pytest.skip(f"{package} is not installed; `make trainers` has it")
    text = (PROGRAMS / f"{program}.py").read_text()
    for before, after in changes.items():
        assert text.count(before) == 1, before
        text = text.replace(before, after)
    (tmp_path / "train.py").write_text(text)
    own = {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "", "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(
        [sys.executable, "train.py"],
        cwd=tmp_path, capture_output=True, text=True, timeout=600, check=False, env={**os.environ, **own},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    if program == "hugging_face":
        rows = json.loads(done.stdout.splitlines()[-1])
    else:
        (file,) = tmp_path.glob("logs/*/*/metrics.csv")
        rows = [{name: float(value) for name, value in row.items() if value} for row in csv.DictReader(file.open())]
    logged = [
        {name.removeprefix("perfaudit/"): value for name, value in row.items() if name.startswith("perfaudit/")}
        for row in rows
    ]
    logged = [row for row in logged if row]
    assert len(logged) == 6
    assert all("seconds_per_step" in row for row in logged)
    timed = [row for row in logged if set(row) >= {"samples_per_second", *PHASES}]
    assert timed
    for row in timed:  # of a few steps between two logs, the phases of none may be timed
        assert sum(row[phase] for phase in PHASES) == pytest.approx(1.0)
        assert row["data_wait"] > LEAST and 0 < row["backward"] < 1 and row["forward"] > 0
    (said,) = [line for line in done.stderr.splitlines() if "PA101:" in line]
    assert "waiting for data takes" in said and "the loader has no workers" in said
