"""A gate whose pairs are measured on nodes: in this process, with real children, everything that crosses is pickled."""

from __future__ import annotations

import sys
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fake_nodes import FakeNodes

from perfaudit.config import Config
from perfaudit.errors import UserError
from perfaudit.gate.checkout import Checkout
from perfaudit.gate.gate import gate
from perfaudit.gate.pair_lab import PairLab
from perfaudit.gate.records import TargetRecord
from perfaudit.gate.request import Request
from perfaudit.gate.settings import GateSettings
from perfaudit.measure.journal import all_runs, begin
from perfaudit.measure.watch import Watch
from perfaudit.target.names import Target, choose_target

TRAIN = """
import time
import torch

SECONDS = 0.002

def build_model():
    return torch.nn.Linear(4, 2)

def build_dataloader(train=True):
    return torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.ones(4000, 4)), batch_size=2)

def build_optimizer(model):
    return torch.optim.SGD(model.parameters(), lr=0.1)

def training_step(model, batch):
    time.sleep(SECONDS)
    return model(batch[0]).square().mean()
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository whose working files make steps that sleep four times as long; a line has it raced in pairs of processes.

    Pairs of half a second a side: as many quads of each as ever, in a sixth of the time.
    """
    import subprocess

    monkeypatch.setattr("perfaudit.gate.pair_plan.SIDE_SECONDS", 0.5)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", "/dev/null")
    (tmp_path / "slow.py").write_text(TRAIN)
    git = ["git", "-c", "user.name=n", "-c", "user.email=e"]
    for command in (["init", "-qb", "main"], ["add", "slow.py"], ["commit", "-qm", "first"]):
        subprocess.run([*git, *command], check=True)
    (tmp_path / "slow.py").write_text(TRAIN.replace("0.002", "0.008"))
    return tmp_path


def asked(nodes: FakeNodes, resume: bool = False, **more: Any) -> Request:
    target = choose_target(["slow.py"], Path.cwd(), {})
    settings = GateSettings(against="main", layers=("time",), budget=120.0)
    request = Request((target,), settings, Config(), "cpu", begin=begin(Path.cwd(), resume), on="ray")
    return replace(request, nodes=lambda like: nullcontext(nodes), **more)


@pytest.mark.slow
def test_a_gate_goes_on_on_other_nodes_with_the_same_journal(folder: Path) -> None:
    nodes, likes = FakeNodes(2), []

    def interrupt(number: int) -> None:
        if number == 3:  # a race in one training, which refuses, and a pair before: too few to decide
            raise KeyboardInterrupt

    nodes.on_work = interrupt
    cut = gate(asked(nodes), Watch()).gate
    assert cut is not None and cut.verdict == "failed"
    (run,) = all_runs(folder)
    assert [line["kind"] for line in run.records].count("generation") == 1
    again = FakeNodes(2, lose=(1,))

    def opened(like: Any) -> Any:
        likes.append(like)
        return nullcontext(again)

    done = gate(replace(asked(nodes, resume=True), nodes=opened), Watch()).gate
    assert done is not None and done.verdict == "regressed"
    assert done.times[0].pairs >= 4  # of the first look, or of a later one where other programs disturb
    assert (likes, again.width) == ([{"cores": 2}], 1)
    # Of steps that sleep for 8 ms instead of 2.
    assert done.times[0].ratio is not None and 1.5 < done.times[0].ratio < 6
    assert "timed on fake nodes" in done.notes and len(nodes.shared) == 1


def test_what_ran_on_one_node_must_be_what_ran_on_all() -> None:
    lab = PairLab((), Checkout(Path("/a"), Path("/b"), Path("/b")))
    record = TargetRecord("train.py")
    lab.take(({}, {("head", "/b/train.py"): "1"}), record)
    assert record.failures == {}
    lab.take(({}, {("head", "/b/train.py"): "2"}), record)
    assert record.failures["head"].endswith("train.py is not the same on all nodes, or changed while it was measured")


@pytest.mark.parametrize(
    ("on", "why"), [("moon", "it is one of ray, slurm"), ("ray", "needs Ray, which this Python lacks")]
)
def test_a_name_that_is_none_and_a_package_that_is_missing(on: str, why: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from perfaudit.cli import nodes

    monkeypatch.setattr(nodes.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(UserError, match=why):
        nodes.opener(on)


@pytest.mark.parametrize(("on", "package"), [("ray", "ray"), ("slurm", "submitit")])
def test_a_package_that_cannot_be_imported_is_told(
    on: str, package: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from perfaudit.cli import nodes

    (tmp_path / f"{package}.py").write_text("import a_module_that_is_not_there\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, package, raising=False)
    with pytest.raises(UserError, match=f"{package} cannot be imported: No module named 'a_module_that_is_not_there'"):
        nodes.opener(on)


def test_a_target_is_picklable() -> None:
    import pickle

    assert pickle.loads(pickle.dumps(Target("train.py"))) == Target("train.py")
