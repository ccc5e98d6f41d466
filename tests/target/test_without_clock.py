"""A device such as MPS: no float64 on it, and no figure that measures only what launching takes."""

from __future__ import annotations

import ast
import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from fake_device import DEVICE, Elsewhere, FakeDevice

from perfaudit.checkpoints.check import _gap
from perfaudit.checkpoints.fold import Copy, fold
from perfaudit.measure import gradients
from perfaudit.measure.counters import counters
from perfaudit.measure.gather_facts import facts_of
from perfaudit.measure.holder import Holder
from perfaudit.measure.memory import memory_of_step
from perfaudit.measure.verbs import building, first_losses, timing
from perfaudit.target.accelerator import Accelerator
from perfaudit.target.observed.same_state import same_model_state
from perfaudit.target.phases import PHASES
from perfaudit.target.random_streams import seed_all
from perfaudit.training.parameters import nudge
from perfaudit.training.script_average import Averages

PACKAGE = Path(__file__).parents[2] / "perfaudit"


class Clockless(Accelerator):
    """A device that has done nothing before it is waited for; each wait takes a second of the clock."""

    has_doubles = False
    waits = 0

    def synchronize(self) -> None:
        Clockless.waits += 1


TRAIN = """
import copy
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def build_model():
    return nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.1), nn.Linear(8, 2))


def build_dataloader():
    return DataLoader(TensorDataset(torch.randn(64, 8), torch.randint(0, 2, (64,))), batch_size=8)


class Average:
    def __init__(self, model):
        self.kept = [p.detach().clone() for p in model.parameters()]

    def update(self, model):
        for kept, parameter in zip(self.kept, model.parameters()):
            kept.lerp_(parameter.detach(), 0.1)


def build_ema(model):
    return Average(model)
"""


@pytest.fixture
def holder(project: Callable[..., Path], monkeypatch: pytest.MonkeyPatch) -> Iterator[Holder]:
    """A child's side with a training on a device that refuses float64 and has no clock."""
    for module in (
        "training.factory_training",
        "measure.gather_facts",
        "measure.memory",
        "measure.step_times",
        "measure.exact",
    ):
        monkeypatch.setattr(f"perfaudit.{module}.accelerator_of", Clockless)
    monkeypatch.setattr("perfaudit.measure.own_time.time.perf_counter", lambda: float(Clockless.waits))
    project(**{"train.py": TRAIN})
    with FakeDevice():
        holder = Holder()
        building.build(holder, {"file": "train.py", "names": {}}, {}, "", {}, str(DEVICE))
        yield holder


def test_the_training_is_on_the_device(holder: Holder) -> None:
    assert all(isinstance(p.data, Elsewhere) for p in holder.training.model.parameters())
    with pytest.raises(TypeError, match="no float64"):
        holder.training.fixed_batch()[0].double()
    assert first_losses.exact(holder, 2, 1) == {"why": "meta has no float64"}


def test_no_command_makes_a_double_on_the_device(holder: Holder, tmp_path: Path) -> None:
    file = str(tmp_path / "g.pt")
    training = holder.training
    batch = training.fixed_batch()
    losses = first_losses.losses(holder, steps=2, seed=1, nudge=1e-4)
    assert len(losses["losses"]) == 2 and len(losses["average"]) == 2
    assert timing.block(holder, 2)["finite"]
    assert len(timing.block(holder, 2)["each"]["seconds"]) == 2
    assert facts_of(training).device.phases_by_waiting
    assert memory_of_step(training, batch).tensors > 0
    training.step(batch)
    gradients.save(training, batch, file)
    nudge(training.model, 1e-3)
    with same_model_state(training.model):
        training.loss(batch).backward()
        before = {name: p.grad.clone() for name, p in training.model.named_parameters()}
        assert gradients.gap_to(training.model, before)["gap"] == (0.0).hex()
    found = gradients.sensitivity(training, 1, 2, lambda draw: contextlib.nullcontext(), seed_all)
    assert found.keys() == {"again", "stream", "nudged"}


def test_parts_of_a_step_are_told_by_waiting_and_never_inside_the_timed_steps(holder: Holder) -> None:
    steps = 5
    timing.block(holder, 1)
    Clockless.waits = 0
    reply = timing.block(holder, steps)
    # On this clock a second passes with every wait: the one at the end of the block is all that its wall time has.
    assert reply["wall"] == 1.0
    parts = {name: seconds / steps for name, seconds in reply["phases"].items() if name != "loading"}
    assert parts == dict.fromkeys([name for name in PHASES if name != "loading"], 1.0)
    # One before the block, one at its end, and in each of the other steps one for each part and two that begin a stretch.
    assert Clockless.waits == 2 + timing.WAITED_STEPS * (len(parts) + 2)


def test_timed_steps_have_no_parts(holder: Holder) -> None:
    training = holder.training
    training.phases.take()
    training.whole_step()
    assert set(training.phases.take()) == {"loading"}  # which is the host's own


def test_checkpoints_are_folded_in_double_on_the_host() -> None:
    class Fold:
        biases, means = ("b",), ("m",)

    with FakeDevice():
        state = {"b": torch.ones(3).to(DEVICE), "m": torch.full((3,), 2.0).to(DEVICE)}
        copied: Any = Copy.__new__(Copy)
        object.__setattr__(copied, "state", state)
        object.__setattr__(copied, "prefix", "")
        object.__setattr__(copied, "folds", [Fold])
        fold(copied)
        assert isinstance(state["m"], Elsewhere) and state["m"].cpu().tolist() == [1.0] * 3
        assert _gap([state["m"]], [state["m"] + 1]) == 1.0


def test_averages_of_a_script_are_copied_to_the_host() -> None:
    with FakeDevice():
        model = torch.nn.Linear(19, 29).to(DEVICE)
        kept = [p.detach().clone() for p in model.parameters()]
        training: Any = SimpleNamespace(optimizers=[torch.optim.SGD(model.parameters(), lr=0.1)], first_gradients={})
        averages = Averages(training)
        (row,) = averages._rows
        assert not any(isinstance(each, Elsewhere) for each in row.before.values())
        assert all(isinstance(each, Elsewhere) for each in kept)
        kept[1] += 1.0
        assert [each[0] for each in averages.take_movements(1) if each[2]] == ["bias"]
        assert not averages._rows  # nothing is kept while memory is measured


def test_doubles_are_made_on_the_host() -> None:
    """Wherever the package asks for float64, the tensor is brought to the host in the same expression, or is there."""
    # The first brings them there before, and the above runs it; the second asks whether the device has doubles; the third keeps
    # copies on the host, and brings there what it compares with them.
    # The last makes its own on the host, for ranks that agree over gloo.
    on_host = {"measure/gradients.py", "measure/exact.py", "training/script_average.py", "measure/agreement.py"}
    found = []
    for path in PACKAGE.rglob("*.py"):
        place = path.relative_to(PACKAGE).as_posix()
        if place.startswith("static/") or place in on_host:
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "double":
                if ".cpu()" not in ast.unparse(node.func.value):
                    found.append(f"{place}:{node.lineno}")
            elif isinstance(node, ast.Attribute) and ast.unparse(node) in ("torch.float64", "torch.double"):
                found.append(f"{place}:{node.lineno}")
    assert not found


def test_counting_needs_no_double(holder: Holder) -> None:
    found = counters(holder.training)
    assert found["values"]["parameters"] == 8 * 8 + 8 + 8 * 2 + 2
