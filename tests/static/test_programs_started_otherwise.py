"""PA301 and PA304 in programs that the command line or Lightning's trainer starts, where loop and model are in other files."""

from __future__ import annotations

from pathlib import Path

import pytest

from perfaudit.rules import all_rules
from perfaudit.static.project import Project
from perfaudit.static.registry import run_checks
from perfaudit.static.source import Source

NET = """
from torch import nn

class Net(nn.Sequential):
    def __init__(self):
        super().__init__(nn.Conv2d(3, 512, 3), nn.ReLU(), nn.Conv2d(512, 512, 3))
"""
ENGINE = """
from net import Net

def train(loader, optimizer):
    model = Net().cuda()
    for x, y in loader:
        loss = model(x.cuda()).mean()
        loss.backward()
        optimizer.step()
"""
LIT = """
import lightning
from net import Net

class Lit(lightning.LightningModule):
    def __init__(self):
        self.net = Net()

    def training_step(self, batch, index):
        return self.net(batch).mean()
"""
BOTH = ["PA301", "PA304"]


@pytest.mark.parametrize(
    ("main", "rules"),
    [
        ("import fire\nfrom engine import train\n\nfire.Fire(train)", BOTH),
        ("import fire\nfrom engine import train\n\nif __name__ == '__main__':\n    fire.Fire()", BOTH),
        ("from fire import Fire\nimport engine\n\ndef start(n):\n    engine.train(n, n)\n\nFire()", BOTH),
        ("import fire\nfrom engine import train\n\ndef start():\n    fire.Fire(train)", []),
        ("import lightning\nfrom lit import Lit\n\nlightning.Trainer().fit(Lit())", BOTH),
        ("import lightning\nfrom lit import Lit\n\nlightning.Trainer(benchmark=True).fit(Lit())", ["PA304"]),
        ("import lightning\nfrom lit import Lit\n\nlightning.Trainer(precision='bf16-mixed').fit(Lit())", ["PA301"]),
        ("import lightning\nfrom lit import Lit\n\nlightning.Trainer(accelerator='cpu').fit(Lit())", []),
        ("import lightning\nfrom lit import Lit\n\nlightning.Trainer().test(Lit())", []),
        ("import pytorch_lightning as pl\nfrom lit import Lit\n\npl.Trainer().fit(Lit())", []),
        ("import pytorch_lightning as pl\nfrom lit import Lit\n\npl.Trainer(gpus=1).fit(Lit())", BOTH),
    ],
)
def test_who_starts_the_program(tmp_path: Path, main: str, rules: list[str]) -> None:
    for name, text in (("net.py", NET), ("engine.py", ENGINE), ("lit.py", LIT), ("main.py", main)):
        (tmp_path / name).write_text(text)
    project = Project(sorted(tmp_path.glob("*.py")))
    source = Source("main.py", main, project.seen_from(tmp_path / "main.py"))
    assert [finding.rule for finding in run_checks(source, all_rules(), frozenset(BOTH))] == rules
