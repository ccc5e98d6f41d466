"""What an imported file says of cuDNN's flags, and whether it builds what settings name."""

from __future__ import annotations

import pytest

from perfaudit.static.project.program_marks import BUILDS_BY_SETTINGS, look_finding


def marks_of(text: str, mark: str) -> set[str]:
    look = look_finding(mark)
    assert look is not None
    return look(text.encode(), (), "data.py")


@pytest.mark.parametrize(
    ("text", "decides"),
    [
        ("from lightning import Trainer, seed_everything\n\nseed_everything(42)\n", False),
        ("from pytorch_lightning.utilities.seed import seed_everything\n\nseed_everything(42)\n", False),
        ("import pytorch_lightning as pl\n\npl.seed_everything(42)\n", False),
        ("from tools import seed_everything\n\nseed_everything(42)\n", True),
        ("def seed_everything(seed):\n    torch.manual_seed(seed)\n", True),
        ("from lightning import seed_everything\n\nseed_everything(42)\ncudnn.deterministic = True\n", True),
    ],
)
def test_seeds_of_lightning_set_no_flag(text: str, decides: bool) -> None:
    assert ("cudnn" in marks_of(text, "cudnn")) is decides


@pytest.mark.parametrize(
    ("text", "builds"),
    [
        ("model = hydra.utils.instantiate(cfg.model)\n", True),
        ("model = instantiate_from_config(config.model)\n", True),
        ('module, name = config["_target_"].rsplit(".", 1)\n', True),
        ("new_target_ = 1\n", False),
        ("# what they instantiate\n", False),
    ],
)
def test_code_that_builds_what_settings_name(text: str, builds: bool) -> None:
    assert marks_of(text, BUILDS_BY_SETTINGS) == ({BUILDS_BY_SETTINGS} if builds else set())
