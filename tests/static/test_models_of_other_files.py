"""Models of other files that record no graph, or differentiate (PA801); datasets that are made in other files (PA101)."""

from __future__ import annotations

from pathlib import Path

import pytest

from perfaudit.rules import all_rules
from perfaudit.static.project import Project
from perfaudit.static.registry import run_checks
from perfaudit.static.source import Source

EVALUATION = """\
import torch
from net import Net

model = Net()
model.eval()
for x in loader:
    y = model(x.cuda())
    show(y.cpu())
"""
PLAIN = """\
import torch

class Net(torch.nn.Module):
    def forward(self, x):
        return self.body(x)
"""
ADAPTS = PLAIN.replace("return self.body(x)", "return x - torch.autograd.grad(self.body(x).sum(), x)[0]")
KEPT = """\
import torch
from net import Net

class Tester:
    def __init__(self):
        self.model = Net()
        self.model = self.model.cuda()

    def test(self, loader):
        self.model.eval()
        for x in loader:
            print(self.model(x.cuda()).argmax(1).tolist())
"""
WITHOUT = PLAIN.replace("return self.body(x)", "with torch.no_grad():\n            return self.body(x)")
FROZEN = """\
import torch

class Net(torch.nn.Module):
    def __init__(self, requires_grad=False):
        super().__init__()
        for parameter in self.parameters():
            parameter.requires_grad = requires_grad
"""
MODULE = """\
from torch.utils.data import DataLoader
import build

class Data:
    def setup(self):
        self.train, self.val = build.sets()

    def train_dataloader(self):
        return DataLoader(self.train, batch_size=32)
"""
SETS = """\
from torch.utils.data import {kind}

def sets():
    return {kind}(x), {kind}(y)
"""


def rules_found(folder: Path, rule: str, **texts: str) -> list[str]:
    """The rules that the last of the files shows."""
    for name, text in texts.items():
        (folder / f"{name}.py").write_text(text)
    project = Project(sorted(folder.glob("*.py")))
    path = folder / f"{name}.py"
    source = Source(path.name, text, neighbours=project.seen_from(path))
    return [
        finding.rule for finding in run_checks(source, all_rules(), frozenset([rule])) if finding.severity != "hint"
    ]


@pytest.mark.parametrize(
    ("net", "found"),
    [
        (PLAIN, ["PA801"]),
        (WITHOUT, []),
        (FROZEN, []),
        (FROZEN.replace("requires_grad=False", "requires_grad=True"), ["PA801"]),
        (ADAPTS, []),
    ],
)
@pytest.mark.parametrize("run", [EVALUATION, KEPT])
def test_an_evaluation_of_a_model_that_records_nothing_or_differentiates_is_left_alone(
    net: str, run: str, found: list[str], tmp_path: Path
) -> None:
    assert rules_found(tmp_path, "PA801", net=net, run=run) == found


OWN_MODE = """\
import torch
from base import Base

class Tagger(Base):
    def __init__(self):
        super().__init__()
        self.body = torch.nn.Linear(8, 8)

    def predict(self, x):
        return self.body(x)

    def validate(self, loader):
        self.eval()
        for x in loader:
            print(self.predict(x).argmax(1).tolist())
"""


@pytest.mark.parametrize(("base", "found"), [("torch.nn.Module", ["PA801"]), ("object", [])])
def test_the_mode_of_an_object_is_that_of_a_model_where_its_base_in_another_file_is_a_module(
    base: str, found: list[str], tmp_path: Path
) -> None:
    text = f"import torch\n\nclass Base({base}):\n    pass\n"
    assert rules_found(tmp_path, "PA801", base=text, run=OWN_MODE) == found


TAGGER = """\
import torch

class Tagger(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.body = torch.nn.Linear(8, 8)

    def decode(self, x):
        return self.body(x)
{more}"""
BUILT = """\
import torch
from build import make_tagger

def main(loader):
    tagger = make_tagger()
    tagger.eval()
    for x in loader:
        print(tagger.decode(x).argmax(1).tolist())
"""
DECODED = """\
import torch

def tag(model, loader):
    model.eval()
    for x in loader:
        print(model.decode(x).argmax(1).tolist())
"""
BUILDS = "from net import Tagger\n\ndef make_tagger():\n    return Tagger()\n"
TRAINER = "\nclass Trainer:\n    def fit(self, loss):\n        loss.backward()\n"


@pytest.mark.parametrize(
    ("more", "builds", "found"),
    [
        ("", BUILDS, ["PA801"]),
        ("", f"{BUILDS}\ndef other():\n    return None\n", ["PA801"]),
        ("", BUILDS.replace("return Tagger()", "return Tagger() if big else load()"), []),  # whatever that gives
        ("\n    def forward(self, x):\n        with torch.no_grad():\n            return x\n", BUILDS, []),
    ],
)
def test_a_model_that_a_function_of_another_file_builds_is_run_by_the_methods_of_its_class(
    more: str, builds: str, found: list[str], tmp_path: Path
) -> None:
    assert rules_found(tmp_path, "PA801", net=TAGGER.format(more=more), build=builds, run=BUILT) == found


@pytest.mark.parametrize(
    ("call", "found"),
    [
        ("tag(Tagger(), loader)", ["PA801"]),
        ("tag(make_tagger(), loader)", ["PA801"]),
        ("tag(Tagger(), loader)\ntag(unknown, loader)", []),
        ("tag(Tagger(), loader)\ntag(Trainer(), loader)", []),
    ],
)
def test_a_model_that_other_files_hand_in_is_run_by_the_methods_of_its_class(
    call: str, found: list[str], tmp_path: Path
) -> None:
    main = f"from build import make_tagger\nfrom net import Tagger\nfrom tags import tag\n\n{call}\n"
    assert rules_found(tmp_path, "PA801", net=TAGGER.format(more=""), build=BUILDS, main=main, tags=DECODED) == found


def test_a_trainer_that_a_file_builds_is_no_model_that_it_is_handed(tmp_path: Path) -> None:
    run = "from fit import Trainer\n" + DECODED.replace("decode(x)", "forward(x)") + "\nTrainer().fit(loss)\n"
    assert rules_found(tmp_path, "PA801", fit=f"import torch\n{TRAINER}", run=run) == ["PA801"]


@pytest.mark.parametrize(("kind", "found"), [("TensorDataset", []), ("ConcatDataset", ["PA101"])])
def test_datasets_that_a_function_elsewhere_returns(kind: str, found: list[str], tmp_path: Path) -> None:
    assert rules_found(tmp_path, "PA101", build=SETS.format(kind=kind), data=MODULE) == found


NETS = """\
from torch import nn

def wide():
    return nn.Sequential(nn.Conv2d(3, 256, 3), nn.Conv2d(256, 256, 3))

def small():
    {row}
"""
TRAINS_ONE = """\
import torch
import nets

def main():
    model = nets.small().cuda()
    optimizer = torch.optim.Adam(model.parameters())
    for x, y in loader:
        loss = torch.nn.functional.mse_loss(model(x.cuda()), y.cuda())
        loss.backward()
        optimizer.step()

if __name__ == "__main__":
    main()
"""


@pytest.mark.parametrize(
    ("row", "found"),
    [
        ("return nn.Sequential(nn.Linear(561, 500), nn.ReLU(), nn.Linear(500, 6))", []),
        ("model = nn.Sequential(nn.Conv2d(3, 16, 3), Flatten(), nn.Linear(32 * 7, 9))\n    return model", []),
        ("return nn.Sequential(nn.Conv2d(3, 256, 3), nn.Conv2d(256, 256, 3))", ["PA301", "PA304"]),
        ("return nn.Sequential(Block(3, width), nn.Linear(500, 6))", ["PA301", "PA304"]),
        ("return build(561)", ["PA301", "PA304"]),
        ("return nn.Sequential(nn.TransformerEncoderLayer(1024, 16), nn.Linear(1024, 6))", ["PA304"]),
        ("return nn.Sequential(nn.LSTM(1024, 1024), nn.Linear(1024, 6))", ["PA304"]),
        ("return nn.Sequential(nn.Sequential(nn.Conv2d(3, 256, 3)), nn.Linear(500, 6))", ["PA301", "PA304"]),
        (
            "return nn.Sequential(nn.Linear(561, 50), nn.BatchNorm1d(50), nn.Dropout(0.5), nn.LeakyReLU(), nn.Tanh())",
            [],
        ),
    ],
)
def test_a_small_model_beside_a_wide_one(tmp_path: Path, row: str, found: list[str]) -> None:
    texts = {"nets": NETS.format(row=row), "train": TRAINS_ONE}
    told = [rule for rule in ("PA301", "PA304") if rules_found(tmp_path, rule, **texts)]
    assert told == found
