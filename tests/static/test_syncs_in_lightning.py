"""PA601 in a step of Lightning's whose trainer is in another file."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from perfaudit.rules import all_rules
from perfaudit.static.project import Project
from perfaudit.static.registry import run_checks
from perfaudit.static.source import Source

BASE = """
    import lightning

    class Base(lightning.LightningModule):
        def configure_optimizers(self):
            return None
"""
MODEL = """
    import torch
    from base import Base

    class Model(Base):
        def training_step(self, batch, index):
            loss = self.net(batch).mean()
            self.history.append(loss.item())
            return loss
"""
TRAIN = """
    import lightning
    from model import Model

    lightning.Trainer({}).fit(Model())
"""


@pytest.mark.parametrize(
    ("arguments", "lines"),
    [
        ("accelerator='gpu', devices=2", [8]),
        ("accelerator='auto'", [8]),
        ("gpus=1", [8]),
        ("gpus=0", []),
        ("accelerator='cpu'", []),
        ("num_gpus=1, accelerator='cpu'", []),
        ("max_epochs=3", [8]),  # a GPU where there is one
        ("**options", []),
    ],
)
@pytest.mark.parametrize("package", ["lightning", "pytorch_lightning"])
def test_the_trainer_says_where_the_module_is_trained(
    tmp_path: Path, arguments: str, lines: list[int], package: str
) -> None:
    if (package, arguments) == ("pytorch_lightning", "max_epochs=3"):  # had the CPU by default
        lines = []
    train = TRAIN.format(arguments).replace("lightning", package)
    for name, text in (("base.py", BASE), ("model.py", MODEL), ("train.py", train)):
        (tmp_path / name).write_text(textwrap.dedent(text))
    project = Project(sorted(tmp_path.glob("*.py")))
    source = Source("model.py", textwrap.dedent(MODEL), project.seen_from(tmp_path / "model.py"))
    found = run_checks(source, all_rules(), frozenset(["PA601"]))
    assert [finding.location.line for finding in found if finding.location] == lines


LOGGED = """
    import torch{imports}

    class Model({base}):
        def training_step(self, batch, index=0):
            loss = self.net(batch.cuda()).mean()
            self.log("loss", loss.item())
            return loss

        def fit(self, batches):
            for batch in batches:
                loss = self.net(batch.cuda()).mean()
                loss.backward()
                self.optimizer.step()
                self.log("loss", loss.item())
"""


@pytest.mark.parametrize(
    ("imports", "base", "is_of_lightning"),
    [
        (", lightning", "lightning.LightningModule", [True, False]),
        ("", "", [False]),
    ],
)
def test_what_is_logged_is_handed_over_where_lightning_takes_it(
    imports: str, base: str, is_of_lightning: list[bool]
) -> None:
    text = LOGGED.format(imports=imports, base=base)
    found = run_checks(Source("model.py", textwrap.dedent(text)), all_rules(), frozenset(["PA601"]))
    assert ["Lightning" in finding.fix.title for finding in found if finding.fix] == is_of_lightning
