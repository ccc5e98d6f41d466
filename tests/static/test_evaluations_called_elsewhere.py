"""PA801 and who calls an evaluation from another file: with gradients, or where they are off."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.static.test_programs_of_several_files import findings_in, write

EVALUATION = """
import torch

def validate(model, loader):
    model.eval()
    for x, y in loader:
        print((model(x).argmax(1) == y).sum().item())
"""
TRAINER = """
class Trainer:
    def run_epoch(self, phase, loader):
        if phase == "train":
            self.model.train()
        else:
            self.model.eval()
        for x, y in loader:
            loss = criterion(self.model(x), y)
            if phase == "train":
                loss.backward()

    def train(self, loader):
        self.run_epoch("train", loader)

    def val(self, loader):
        self.run_epoch("val", loader)
"""
CALL = "import torch\nfrom evaluation import validate\n\n"


@pytest.mark.parametrize(
    "script",
    [
        CALL + "with torch.no_grad():\n    validate(model, loader)\n",
        CALL + "@torch.inference_mode()\ndef main():\n    validate(model, loader)\n",
        CALL + "torch.set_grad_enabled(False)\nvalidate(model, loader)\n",
        CALL + "with ema.average_parameters():\n    validate(model, loader)\n",  # who knows
        CALL + "def run():\n    validate(model, loader)\n\nwith torch.no_grad():\n    run()\n",
        "import evaluation\nimport torch\n\nwith torch.no_grad():\n    evaluation.validate(model, loader)\n",
    ],
)
def test_silent_where_every_call_runs_without_gradients(tmp_path: Path, script: str) -> None:
    folder = write(tmp_path, {"evaluation.py": EVALUATION, "train.py": script})
    assert findings_in(folder, "evaluation.py", {"PA801"}) == []


@pytest.mark.parametrize(
    "script",
    [
        CALL + "validate(model, loader)\n",
        CALL + "with torch.no_grad():\n    print(model(x))\nvalidate(model, loader)\n",
        "import evaluation\n\ndef validate():\n    pass\n\nwith torch.no_grad():\n    validate()\n",
    ],
)
def test_found_where_no_call_switches_gradients_off(tmp_path: Path, script: str) -> None:
    folder = write(tmp_path, {"evaluation.py": EVALUATION, "train.py": script})
    (finding,) = findings_in(folder, "evaluation.py", {"PA801"})
    assert finding.message.endswith("which no backward pass uses")


def test_of_two_calls_the_one_with_gradients_is_named(tmp_path: Path) -> None:
    inside = CALL + "with torch.no_grad():\n    validate(model, loader)\n"
    folder = write(tmp_path, {"evaluation.py": EVALUATION, "train.py": inside, "test.py": CALL + "validate(a, b)\n"})
    (finding,) = findings_in(folder, "evaluation.py", {"PA801"})
    assert finding.message.endswith("which no backward pass uses, where test.py calls it outside of `no_grad`")


def test_training_through_the_same_method_is_no_evaluation_with_gradients(tmp_path: Path) -> None:
    script = "import torch\nimport trainer\n\nrun.train(loader)\nwith torch.no_grad():\n    run.val(loader)\n"
    folder = write(tmp_path, {"trainer.py": "import torch\n" + TRAINER, "train.py": script})
    assert findings_in(folder, "trainer.py", {"PA801"}) == []
    (folder / "train.py").write_text(script + "if args.test:\n    run.val(loader)\n", encoding="utf-8")
    (finding,) = findings_in(folder, "trainer.py", {"PA801"})
    assert finding.message.endswith("where train.py calls it outside of `no_grad`")
