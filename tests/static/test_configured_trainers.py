"""Findings on trainers of Lightning whose device stands in settings files, and on such as an option may run dry."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from perfaudit.rules import all_rules
from perfaudit.static.project import Project
from perfaudit.static.registry import run_checks
from perfaudit.static.source import Source

Folder = Callable[..., Path]

SCRIPT = """
import pytorch_lightning as pl
import torchvision
from omegaconf import OmegaConf

def main(cfg, dry=False):
    model = Classifier(torchvision.models.resnet50())
    trainer = pl.Trainer({given}max_epochs=9)
    trainer.fit(model, Images(cfg.data))

if __name__ == "__main__":
    main(OmegaConf.load("configs/train.yaml"))
"""
CONFIGURED = "accelerator=cfg.trainer.accelerator, "


@pytest.mark.parametrize(
    ("given", "says", "is_told"),
    [
        (CONFIGURED, {"configs/train.yaml": "trainer:\n  accelerator: gpu\n"}, True),
        (CONFIGURED, {"configs/train.yaml": "trainer:\n  accelerator: auto\n"}, True),
        (CONFIGURED, {"configs/train.yaml": "trainer:\n  accelerator: cpu\n"}, False),
        (CONFIGURED, {"a.yaml": "accelerator: gpu\n", "b.yaml": "accelerator: ${device}\n"}, False),
        (CONFIGURED, {}, False),
        ("", {"configs/train.yaml": "trainer:\n  accelerator: gpu\n"}, False),  # nothing hands it over
        ("gpus=1, ", {}, True),
        ("gpus=1, fast_dev_run=dry, ", {}, True),
        ("gpus=1, fast_dev_run=False, ", {}, True),
        ("gpus=1, fast_dev_run=10, ", {}, False),
        ("gpus=1, overfit_batches=dry, ", {}, False),
    ],
)
@pytest.mark.parametrize("rule", ["PA301", "PA304"])
def test_a_trainer_that_runs_on_a_gpu(
    project: Folder, given: str, says: dict[str, str], rule: str, *, is_told: bool
) -> None:
    folder = project(**{"train.py": SCRIPT.replace("{given}", given), **says})
    path = folder / "train.py"
    source = Source("train.py", path.read_text(), Project([path], folders=[folder]).seen_from(path))
    assert bool(list(run_checks(source, all_rules(), frozenset([rule])))) == is_told
