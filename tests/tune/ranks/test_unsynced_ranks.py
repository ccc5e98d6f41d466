"""What two ranks learn with the passes of an accumulation under `no_sync`, and where they would learn something else."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from forked_programs import run_on_ranks

from perfaudit.tune.ranks.candidates import candidates_of
from perfaudit.tune.ranks.patches import SeenRanks

pytestmark = pytest.mark.slow

START = """\
import contextlib, json
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(4, 4), nn.Linear(4, 4)
        self.register_buffer("codes", torch.zeros(4))
    def forward(self, x, is_deep=True):
        x = self.first(x) + self.codes
        if CODES:
            with torch.no_grad():
                self.codes.mul_(0.9).add_(0.1 * x.mean(0))
        return self.last(x) if is_deep else x

CODES = False
dist.init_process_group("gloo")
torch.manual_seed(0)
model = DistributedDataParallel(Net())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
torch.manual_seed(100 + dist.get_rank())
"""
END = """
print(json.dumps([model.module.codes.tolist(), [w.tolist() for w in model.parameters()]]))
dist.destroy_process_group()
"""
EVALUATED = """
with torch.no_grad():
    print(model.eval()(torch.ones(3, 4)).square().mean().item())
dist.destroy_process_group()
"""
CONDITION = """
steps = 0
for i in range(20):
    x = torch.randn(3, 4)
    loss = model(x).square().mean() / 4
    steps += 1
    loss.backward()
    if steps % 4 == 0:
        optimizer.step()
        optimizer.zero_grad()
"""
COUNTED = """
for i in range(5):
    for number in range(4):
        loss = model(torch.randn(3, 4)).square().mean() / 4
        if number > 1:
            (2 * loss).backward()
        else:
            loss.backward()
    optimizer.step()
    optimizer.zero_grad()
"""
# The last layer has no gradient in the last pass, and one in those before it.
SHALLOW_LAST = CONDITION.replace("model(x)", "model(x, is_deep=steps % 4 < 3)")
# Passes that are told in front of the pass, some of them left out, and by a count behind it that starts anew.
FLAG = """
for i in range(20):
    last = i % 4 == 3
    if i in (2, 7):
        continue
    loss = model(torch.randn(3, 4)).square().mean() / 4
    loss.backward()
    if not last:
        continue
    optimizer.step()
    optimizer.zero_grad()
"""
ANEW = """
count = 0
for i in range(20):
    loss = model(torch.randn(3, 4)).square().mean() / 4
    loss.backward()
    count += 1
    if count == 4:
        count = 0
        optimizer.step()
        optimizer.zero_grad()
"""
# Passes since the last step, one call that makes pass and step, and a method that runs the model beside a loop with own passes.
SINCE = """
last = -1
for i in range(19):
    loss = model(torch.randn(3, 4)).square().mean() / 4
    loss.backward()
    if i - last >= 4:
        optimizer.step()
        optimizer.zero_grad()
        last = i
"""
TOLD = """
class Scaler:
    def __call__(self, loss, optimizer, update=True):
        loss.backward()
        if update:
            optimizer.step()
            optimizer.zero_grad()
loss_scaler = Scaler()
for i in range(18):
    loss = model(torch.randn(3, 4)).square().mean() / 4
    loss_scaler(loss, optimizer, update=(i + 1) % 4 == 0)
"""
OBJECT = """
class Trainer:
    def __init__(self, model, optimizer):
        self.model, self.optimizer, self.steps = model, optimizer, 0
    def loss(self):
        return self.model(torch.randn(3, 4)).square().mean() / 4
    def fit(self):
        for i in range(18):
            loss = self.loss()
            loss.backward()
            self.steps += 1
            if self.steps % 4 == 0:
                self.optimizer.step()
                self.optimizer.zero_grad()
    def finish(self):
        for i in range(3):
            self.optimizer.zero_grad()
            loss = self.loss()
            loss.backward()
            self.optimizer.step()
trainer = Trainer(model, optimizer)
trainer.fit()
trainer.finish()
"""
# Two functions that accumulate, each of which leaves passes that no step has followed to the other one.
APART = """
def first():
    for i in range(6):
        loss = model(torch.randn(3, 4)).square().mean() / 4
        loss.backward()
        if (i + 1) % 4 == 0:
            optimizer.step()
            optimizer.zero_grad()
def second():
    for i in range(7):
        loss = (model(torch.randn(3, 4)) - 1).square().mean() / 4
        loss.backward()
        if (i + 1) % 3 == 0:
            optimizer.step()
            optimizer.zero_grad()
for epoch in range(3):
    first()
    second()
"""
WRONG = 1e-3  # of a weight: float32 sums in another order are 1e-7 off


def weights(text: str, folder: Path) -> list[Any]:
    """What two ranks print: they have the same weights, whatever else."""
    ranks = run_on_ranks(text, "train.py", [], folder)
    assert [each.code for each in ranks] == [0, 0], ranks[0].err + ranks[1].err
    first, second = (json.loads(each.out)[1] for each in ranks)
    assert first == second
    return flat(first)


def first_weights(text: str, folder: Path) -> list[Any]:
    """What the first rank has in the end, whatever the other one has."""
    return flat(json.loads(run_on_ranks(text, "train.py", [], folder)[0].out)[1])


def flat(values: Any) -> list[float]:
    return [each for value in values for each in flat(value)] if isinstance(values, list) else [values]


def patched(text: str, folder: Path, monkeypatch: pytest.MonkeyPatch, **seen: Any) -> str:
    monkeypatch.chdir(folder)
    Path("train.py").write_text(text)
    found = candidates_of(["train.py"], frozenset({"rounding"}), SeenRanks(**seen)).candidates
    return next((each.text for each in found if each.key == "no_sync=True"), "")


@pytest.mark.parametrize("loop", [CONDITION, COUNTED, SHALLOW_LAST, FLAG, ANEW, SINCE, TOLD, OBJECT, APART])
def test_two_ranks_learn_the_same(loop: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = START + loop + END
    if loop is SHALLOW_LAST:
        text = text.replace("(Net())", "(Net(), find_unused_parameters=True)")
    other = patched(text, tmp_path, monkeypatch)
    assert "model.no_sync():" in other
    assert weights(other, tmp_path) == pytest.approx(weights(text, tmp_path), abs=1e-6)


def test_buffers_that_steps_change_would_have_them_learn_something_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = START.replace("CODES = False", "CODES = True") + CONDITION + END
    assert patched(text, tmp_path, monkeypatch, changed_buffers=["codes"]) == ""
    other = patched(text, tmp_path, monkeypatch)
    apart = [abs(a - b) for a, b in zip(weights(text, tmp_path), weights(other, tmp_path), strict=True)]
    assert max(apart) > WRONG


def test_beside_a_static_graph_torch_raises(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = START.replace("(Net())", "(Net(), static_graph=True)") + CONDITION + END
    assert patched(text, tmp_path, monkeypatch) == ""
    other = patched(START + CONDITION + END, tmp_path, monkeypatch).replace("(Net())", "(Net(), static_graph=True)")
    first = run_on_ranks(other, "train.py", [], tmp_path)[0]
    assert first.code != 0
    assert "expect_autograd_hooks_" in first.err, first.err  # an assertion of its reducer


def test_ranks_that_make_different_numbers_of_passes_would_learn_something_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop = CONDITION.replace("range(20)", "range(10 + 4 * dist.get_rank())").splitlines()
    text = START + "with model.join():\n" + "".join(f"    {line}\n" for line in loop) + END
    assert patched(text, tmp_path, monkeypatch) == ""
    other = patched(text.replace("model.join():", "contextlib.nullcontext():"), tmp_path, monkeypatch)
    other = other.replace("contextlib.nullcontext():\n", "model.join():\n")
    assert "model.no_sync():" in other
    apart = [abs(a - b) for a, b in zip(first_weights(text, tmp_path), first_weights(other, tmp_path), strict=True)]
    assert max(apart) > WRONG


@pytest.mark.parametrize("passes", [20, 18])
def test_the_first_rank_alone_keeps_its_statistics_of_batch_norm(
    passes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The others have the first rank's behind passes that a step follows, and their own behind passes that none follows."""
    text = (START + CONDITION + EVALUATED).replace("nn.Linear(4, 4), nn.L", "nn.BatchNorm1d(4), nn.L")
    text = text.replace("range(20)", f"range({passes})")
    other = patched(text, tmp_path, monkeypatch, tracks_statistics=True)
    assert "model.no_sync():" in other
    now, then = (
        [json.loads(each.out) for each in run_on_ranks(one, "train.py", [], tmp_path)] for one in (text, other)
    )
    assert then[0] == pytest.approx(now[0], abs=1e-6)
    assert (abs(then[1] - now[1]) > WRONG) == bool(passes % 4)
