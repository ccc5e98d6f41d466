"""PA304 and PA301 of trainers of Lightning whose arguments, and whose models, stand in settings files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from perfaudit.findings import Finding
from perfaudit.rules import all_rules
from perfaudit.static.project import Project
from perfaudit.static.registry import run_checks
from perfaudit.static.source import Source

Folder = Callable[..., Path]
BOTH = {"PA301", "PA304"}

BUILT = """
import hydra
from pytorch_lightning import Trainer

@hydra.main(config_path="conf", config_name="train")
def main(cfg):
    model = hydra.utils.instantiate(cfg.model)
    images = hydra.utils.instantiate(cfg.data)
    trainer: Trainer = hydra.utils.instantiate(cfg.trainer, logger=False)
    if cfg.get("train"):
        trainer.fit(model=model, datamodule=images)

if __name__ == "__main__":
    main()
"""
NET = """
import pytorch_lightning as pl
from torch import nn

class Net(pl.LightningModule):
    def __init__(self, channels=512):
        super().__init__()
        self.layers = nn.Sequential(nn.Conv2d(3, channels, 3), nn.ReLU(), nn.Conv2d(channels, channels, 3))
"""
SMALL = NET.replace("512", "16")
PLAIN = {
    "net.py": NET,
    "small.py": SMALL,
    "conf/train.yaml": "defaults:\n  - model: net\n  - trainer: gpu.yaml\n  - debug: null\ntrain: true\n",
    "conf/model/net.yaml": "_target_: net.Net\n",
    "conf/trainer/default.yaml": (
        "_target_: pytorch_lightning.Trainer\naccelerator: cpu\ndeterministic: False\n"
        "# mixed precision for extra speed-up\n# precision: 16\n"
    ),
    "conf/trainer/gpu.yaml": "defaults:\n  - default.yaml\naccelerator: gpu\n",
    "conf/debug/dry.yaml": "trainer:\n  fast_dev_run: true\n  accelerator: cpu\n",
}


def findings_in(folder: Path, name: str = "train.py") -> list[Finding]:
    path = folder / name
    neighbours = Project(sorted(folder.rglob("*.py")), folders=[folder]).seen_from(path)
    return list(run_checks(Source(name, path.read_text(), neighbours), all_rules(), frozenset(BOTH)))


@pytest.mark.parametrize(
    ("files", "rules"),
    [
        ({}, BOTH),
        ({"conf/trainer/default.yaml": PLAIN["conf/trainer/default.yaml"] + "precision: 32\n"}, BOTH),
        ({"conf/trainer/gpu.yaml": PLAIN["conf/trainer/gpu.yaml"] + "precision: 16-mixed\n"}, {"PA301"}),
        ({"conf/trainer/other.yaml": "precision: bf16-mixed\n"}, {"PA301"}),  # somebody has tried it
        ({"conf/trainer/other.yaml": "precision: ${bits}\n"}, {"PA301"}),
        ({"conf/experiment/a.yaml": "trainer:\n  precision: 16\n"}, {"PA301"}),
        ({"run.sh": "python train.py trainer.precision=16\n"}, {"PA301"}),
        ({"conf/trainer/other.yaml": "strategy: deepspeed_stage_2\n"}, {"PA301"}),
        ({"conf/trainer/other.yaml": "strategy: ddp\n"}, BOTH),
        ({"conf/trainer/other.yaml": "benchmark: true\n"}, {"PA304"}),
        ({"conf/trainer/other.yaml": "benchmark: false\n"}, {"PA304"}),
        ({"conf/trainer/other.yaml": "deterministic: true\n"}, {"PA304"}),
        ({"conf/trainer/gpu.yaml": "defaults:\n  - default.yaml\naccelerator: gpu\nfast_dev_run: 10\n"}, set()),
        ({"conf/trainer/gpu.yaml": "defaults:\n  - default.yaml\naccelerator: gpu\nfast_dev_run: false\n"}, BOTH),
        ({"conf/trainer/gpu.yaml": "accelerator: gpu\nlimit_train_batches: 2\n"}, set()),
        ({"conf/trainer/gpu.yaml": "accelerator: gpu\nlimit_train_batches: 1\n"}, set()),
        ({"conf/trainer/gpu.yaml": "accelerator: gpu\nlimit_train_batches: 500\n"}, BOTH),
        ({"conf/trainer/gpu.yaml": "accelerator: gpu\nlimit_train_batches: 1.0\n"}, BOTH),
        ({"conf/trainer/gpu.yaml": "accelerator: gpu\noverfit_batches: 1\n"}, set()),
        ({"conf/trainer/gpu.yaml": "accelerator: gpu\nfast_dev_run: true\n"}, set()),
        (
            {"conf/train.yaml": "defaults:\n  - model: net\n  - trainer: default.yaml\n  - debug: null\n"},
            set(),
        ),  # the CPU
        ({"conf/model/net.yaml": "_target_: small.Net\n"}, {"PA301"}),
        ({"conf/model/net.yaml": "_target_: net.Net\nchannels: 16\n"}, {"PA301"}),
        ({"conf/model/small.yaml": "_target_: small.Net\nchannels: 16\n"}, BOTH),  # which nothing chooses
        ({"conf/model/net.yaml": "_target_: ${paths.package}.net.Net\n"}, BOTH),
        ({"conf/model/net.yaml": "net:\n  _target_: torchvision.models.resnet18\n"}, BOTH),
        ({"conf/model/net.yaml": "_target_: elsewhere.Net\n"}, set()),
        ({"conf/data/images.yaml": "# @package datasets\nroot: images\n"}, set()),  # sections stand elsewhere
        ({"conf/trainer/default.yaml": "_target_: transformers.Trainer\n"}, set()),
        ({"train.py": BUILT.replace("trainer.fit", "trainer.test")}, set()),
        ({"train.py": BUILT.replace("logger=False", "precision=16")}, {"PA301"}),
        ({"train.py": BUILT.replace("    trainer:", '    cfg.trainer.precision = "bf16"\n    trainer:')}, {"PA301"}),
        (
            {"train.py": BUILT.replace("    model =", "    torch.set_float32_matmul_precision('high')\n    model =")},
            {"PA301"},
        ),
        ({"net.py": NET.replace("class", "torch.backends.cudnn.benchmark = True\n\nclass")}, {"PA304"}),
        (
            {"net.py": NET.replace("from torch", "from torch.amp import autocast\nfrom torch") + "\nautocast\n"},
            {"PA301"},
        ),
    ],
)
def test_a_trainer_that_hydra_builds(project: Folder, files: dict[str, str], rules: set[str]) -> None:
    folder = project(**{"train.py": BUILT, **PLAIN, **files})
    assert {found.rule for found in findings_in(folder)} == rules


def test_models_of_another_program(project: Folder) -> None:
    """What lies in the folder that another script gives hydra is not built by this one."""
    own = {path.replace("conf/", "conf/small/"): text for path, text in PLAIN.items()}
    other = {path.replace("conf/", "conf/large/"): text for path, text in PLAIN.items() if path.startswith("conf/")}
    own["conf/small/model/net.yaml"] = "_target_: linear.Net\n"
    script = BUILT.replace('"conf"', '"conf/{}"')
    linear = NET.replace("Conv2d(3, channels, 3)", "Linear(3, 9)").replace("Conv2d(channels, channels, 3)", "Tanh()")
    scripts = {"train.py": script.format("small"), "large.py": script.format("large"), "linear.py": linear}
    folder = project(**{**own, **other, **scripts})
    assert findings_in(folder) == []
    assert {found.rule for found in findings_in(folder, "large.py")} == BOTH


UNPACKED = """
import torchvision
from lightning.pytorch import Trainer
from omegaconf import OmegaConf

def main(cfg):
    trainer = Trainer(max_epochs=9, **cfg.trainer)
    trainer.fit(Classifier(torchvision.models.resnet50()), Images(cfg.data))

if __name__ == "__main__":
    main(OmegaConf.load("train.yaml"))
"""


@pytest.mark.parametrize(
    ("script", "says", "rules"),
    [
        (UNPACKED, "trainer:\n  devices: 1\n  accelerator: gpu\n", BOTH),
        (UNPACKED, "trainer:\n  accelerator: cpu\n", set()),
        (UNPACKED, "trainer:\n  gradient_clip_val: 1\n", BOTH),  # it takes a GPU where there is one
        (UNPACKED.replace("lightning.pytorch", "pytorch_lightning"), "trainer:\n  gradient_clip_val: 1\n", set()),
        (UNPACKED, "trainer:\n  accelerator: gpu\n  precision: 32\n", BOTH),
        (UNPACKED, "trainer:\n  accelerator: gpu\n  precision: 16-mixed\n", {"PA301"}),
        (UNPACKED, "trainer:\n  accelerator: gpu\n  plugins: [a]\n", {"PA301"}),
        (UNPACKED, "trainer:\n  accelerator: gpu\n  benchmark: true\n", {"PA304"}),
        (UNPACKED.replace("**cfg.trainer", "**options"), "trainer:\n  accelerator: gpu\n", set()),
        (UNPACKED.replace("**cfg.trainer", "**cfg.trainer, **cfg.more"), "trainer:\n  accelerator: gpu\n", set()),
        (UNPACKED.replace("from omegaconf", "from mmcv"), "trainer:\n  accelerator: gpu\n", set()),
        (UNPACKED, "data:\n  root: images\n", set()),  # its settings are out of sight
        (UNPACKED, "precision: 16-mixed\nbenchmark: true\n", set()),  # they may be these
        (UNPACKED, "fast: &fast\n  precision: 16\ntrainer:\n  <<: *fast\n  accelerator: gpu\n", set()),
        (UNPACKED, "fast:\n  precision: 16\n  accelerator: gpu\ntrainer: ${fast}\n", set()),
        (UNPACKED.replace("max_epochs=9", "fast_dev_run=True"), "trainer:\n  accelerator: gpu\n", set()),
        (UNPACKED.replace("max_epochs=9", "limit_train_batches=2"), "trainer:\n  accelerator: gpu\n", set()),
    ],
)
def test_a_trainer_that_is_given_a_part_of_a_configuration(
    project: Folder, script: str, says: str, rules: set[str]
) -> None:
    folder = project(**{"train.py": script, "train.yaml": says})
    assert {found.rule for found in findings_in(folder)} == rules


@pytest.mark.parametrize(
    ("code", "rules"),
    [
        ("def change(cfg):\n    cfg.trainer.benchmark = True\n", {"PA304"}),
        ("def change(cfg):\n    cfg['trainer']['precision'] = '16-mixed'\n", {"PA301"}),
        ("class Trainer:\n    benchmark: bool = True\n    precision: str = 'bf16-mixed'\n", set()),
        ("DEFAULTS = {'precision': 32, 'benchmarks': True}\n", BOTH),
        ("import torch\ntorch.set_printoptions(precision=4)\n", BOTH),
    ],
)
def test_what_imported_code_gives_the_configuration(project: Folder, code: str, rules: set[str]) -> None:
    script = UNPACKED.replace("import torchvision", "import settings\nimport torchvision")
    folder = project(**{"train.py": script, "settings.py": code, "train.yaml": "trainer:\n  accelerator: gpu\n"})
    assert {found.rule for found in findings_in(folder)} == rules


@pytest.mark.parametrize(
    ("name", "rules"), [("test.py", set()), ("eval_all.py", set()), ("fine_tune.py", BOTH), ("contest.py", BOTH)]
)
def test_the_name_of_the_script(project: Folder, name: str, rules: set[str]) -> None:
    folder = project(**{name: BUILT, **PLAIN})
    assert {found.rule for found in findings_in(folder, name)} == rules


def test_what_is_said_of_it(project: Folder) -> None:
    folder = project(**{"train.py": BUILT, **PLAIN})
    assert {found.rule: found.message for found in findings_in(folder)} == {
        "PA304": "the trainer of `cfg.trainer`, without `precision` in its settings, computes in float32, off most of the "
        "tensor cores",
        "PA301": "the trainer of `cfg.trainer`, without `benchmark` in its settings, has cuDNN pick convolution algorithms "
        "untimed; timing pays while input sizes stay the same, and hurts if they change",
    }
    (folder / "conf/trainer/gpu.yaml").write_text("accelerator: gpu\nprecision: 32\n")
    told = " ".join(found.message for found in findings_in(folder))
    assert "the trainer of `cfg.trainer`, with `precision: 32` (`conf/trainer/gpu.yaml:2`), computes" in told
