"""Two scripts that draw other numbers for their parameters begin alike: with the same ones, and with the same batches."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from perfaudit.target.random_streams import digest_of_streams
from perfaudit.training.parameters import take_parameters
from perfaudit.training.script_start import UNCALLED, ScriptStart, Start


class Net(nn.Module):
    """A bias that a norm subtracts again, and dropout, so that each step draws numbers."""

    def __init__(self, bias: bool) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, 6, bias=bias), nn.BatchNorm1d(6), nn.Dropout(0.5))
        self.head = nn.Linear(6, 2)

    def forward(self, x: Any) -> Any:
        return self.head(self.body(x))


class Frozen(nn.Linear):
    """What no optimizer trains, the only one of its class."""


def first_step(bias: bool, asked: Start) -> tuple[ScriptStart, float, str]:
    """What a script does up to its first update: its start, its loss, and where its random streams stand then."""
    torch.manual_seed(1)
    start = ScriptStart(asked, seed=5)
    data = TensorDataset(torch.arange(64.0).reshape(16, 4).sin())
    net = Net(bias)
    frozen = Frozen(4, 4)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    start.add_optimizer(optimizer)
    with torch.no_grad():
        net.eval()(torch.zeros(2, 4))  # an evaluation before the training trains nothing
    net.train()
    start.begin_loader()
    (x,) = next(iter(DataLoader(data, batch_size=4, shuffle=True)))
    loss = net(frozen(x)).square().mean()
    start.end()
    return start, loss.item(), digest_of_streams()


def test_parameters_and_batches_are_those_of_the_first(tmp_path: Path) -> None:
    file = str(tmp_path / "start.pt")
    kept, loss, streams = first_step(True, Start(save=file))
    taken, again, same = first_step(False, Start(load=file))
    assert (kept.why, taken.why) == ("", "")
    assert again == pytest.approx(loss, rel=1e-5)
    assert streams == same
    # Its parameters took fewer numbers.
    assert [a == b for a, b in zip(kept.stood, taken.stood, strict=True)] == [False, True]
    assert first_step(False, Start())[1] != pytest.approx(loss, rel=1e-2)  # its own parameters
    assert not torch.nn.modules.module._global_forward_pre_hooks


def test_why_parameters_are_not_taken_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = str(tmp_path / "start.pt")
    first_step(False, Start(save=file))
    lacking, _, _ = first_step(True, Start(load=file))  # a patch that adds one
    assert lacking.why == "the patch changes which parameters there are, such as body.0.bias"
    absent, _, _ = first_step(True, Start(load=str(tmp_path / "none.pt")))
    assert absent.why.startswith("FileNotFoundError")
    assert first_step(True, Start())[0].why == UNCALLED


def test_streams_are_told_apart_by_what_was_drawn() -> None:
    seen = []
    for draw in (random.random, lambda: torch.rand(1), lambda: None):
        random.seed(1)
        torch.manual_seed(1)
        before = digest_of_streams()
        draw()
        seen.append(before == digest_of_streams())
    assert seen == [False, False, True]


def test_parameters_are_taken_by_name(tmp_path: Path) -> None:
    file = str(tmp_path / "state.pt")
    torch.save(Net(True).state_dict(), file)
    assert take_parameters(Net(False), file) == ""
