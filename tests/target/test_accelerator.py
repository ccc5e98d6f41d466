"""What talks to a device is told which one: nothing is asked of the current device, and nobody else asks."""

from __future__ import annotations

import ast
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeGuard

import pytest
import torch
from fake_cuda import FakeCuda

from perfaudit.errors import TargetError
from perfaudit.knobs import ema
from perfaudit.measure.gather_facts import facts_of
from perfaudit.measure.memory import memory_of_step
from perfaudit.measure.memory_prediction import _put_back
from perfaudit.measure.step_times import step_seconds
from perfaudit.target.accelerator import accelerator_of, device_in_use, make_current, pick_device, same_random_numbers
from perfaudit.target.names import Target
from perfaudit.target.observed.same_state import same_model_state
from perfaudit.target.phases import HOST, Phases
from perfaudit.training.factory_training import FactoryTraining

PACKAGE = Path(__file__).parents[2] / "perfaudit"

# Where else the package may speak of a device's interface, and why.
MAY_ASK: dict[str, str] = {
    "target/accelerator.py": "this is its place",
    "machine/tell_torch.py": "a script of its own process, which imports nothing of ours and only asks what is there",
}
APIS = {"cuda", "mps", "xpu", "accelerator", "mtia", "hpu"}


def is_named(node: ast.AST, function: str) -> TypeGuard[ast.Call]:
    """Whether it is a call of that function by its plain name."""
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == function


def asks_a_device(tree: ast.AST) -> list[str]:
    """What a module asks a device through torch's interfaces, each with its line."""
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "torch":
            if node.attr in APIS | {"Event", "Stream", "get_device_module"}:
                found.append(f"{node.lineno}: torch.{node.attr}")
        elif isinstance(node, ast.Attribute) and node.attr == "mps" and ast.unparse(node) == "torch.backends.mps":
            found.append(f"{node.lineno}: {ast.unparse(node)}")
        elif isinstance(node, ast.Attribute) and node.attr == "fork_rng":
            found.append(f"{node.lineno}: fork_rng")
        elif is_named(node, "getattr") and ast.unparse(node.args[0]) == "torch":
            if not isinstance(node.args[1], ast.Constant) and "device" in ast.unparse(node.args[1]):
                found.append(f"{node.lineno}: {ast.unparse(node)}")
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            module = getattr(node, "module", None)
            names = [f"{module}.{a.name}" if module else a.name for a in node.names]
            parts = [name.split(".") for name in names]
            found += [f"{node.lineno}: {'.'.join(p)}" for p in parts if p[0] == "torch" and APIS & set(p[1:2])]
    return found


def test_one_module_talks_to_devices() -> None:
    for path in sorted(PACKAGE.rglob("*.py")):
        if path.relative_to(PACKAGE).as_posix() not in MAY_ASK:
            assert asks_a_device(ast.parse(path.read_text())) == [], path


@pytest.mark.parametrize(
    "code",
    [
        "torch.cuda.synchronize()",
        "torch.Event(enable_timing=True)",
        "from torch import cuda",
        "import torch.mps",
        "from torch.cuda import Stream",
        "getattr(torch, device.type).synchronize()",
        "torch.random.fork_rng([])",
        "torch.backends.mps.is_available()",
    ],
)
def test_asking_is_seen(code: str) -> None:
    assert asks_a_device(ast.parse(code))


@pytest.mark.parametrize("code", ["torch.backends.cuda.matmul", "torch.autocast('cuda')", "'torch.cuda.Stream'"])
def test_switches_and_words_are_no_questions(code: str) -> None:
    assert not asks_a_device(ast.parse(code))


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> FakeCuda:
    return FakeCuda().put_in(monkeypatch)


TRAIN = """
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def build_model():
    return nn.Linear(8, 2)


def build_dataloader():
    return DataLoader(TensorDataset(torch.randn(64, 8), torch.randint(0, 2, (64,))), batch_size=8)
"""


@pytest.fixture
def on_second(cuda: FakeCuda, project: Callable[..., Path]) -> Any:
    """A training whose tensors are on the host and which says, and times, that it is on the second CUDA device."""
    project(**{"train.py": TRAIN})
    training = FactoryTraining(Target("train.py"), "cpu")
    training.fixed_batch()
    training.device = torch.device("cuda:1")
    training.accelerator = accelerator_of(training.device)
    training.phases = Phases(training.accelerator)
    cuda.asked.clear()
    return training


def test_steps_are_timed_and_waited_for_on_the_trainings_device(cuda: FakeCuda, on_second: Any) -> None:
    step_seconds(on_second, 2, lambda _: 8, fixed=True)
    on_second.synchronize()
    assert cuda.devices() == {"cuda:1"}
    assert {"record", "synchronize"} == {name for name, _ in cuda.asked}
    phases = on_second.phases.take()
    # A millisecond lies between two events, and two steps were made.
    assert {name: round(s, 6) for name, s in phases.items() if not name.endswith(HOST)} == {
        "zero_grad": 0.002,
        "forward": 0.002,
        "backward": 0.002,
        "optimizer": 0.002,
    }


def test_memory_is_that_of_the_trainings_device(cuda: FakeCuda, on_second: Any) -> None:
    assert memory_of_step(on_second, on_second.fixed_batch()).tensors == 1000
    assert cuda.devices() == {"cuda:1"}
    asked = [name for name, _ in cuda.asked if name != "record"]
    assert asked.index("reset_peak_memory_stats") < len(asked) - 1 - asked[::-1].index("synchronize")


def test_facts_are_those_of_the_trainings_device(cuda: FakeCuda, on_second: Any) -> None:
    device = facts_of(on_second).device
    assert (device.type, device.name, device.capability) == ("cuda", "cuda (Fake)", (9, 0))
    assert (device.room, device.driver.partition(",")[0]) == (7 + 1200, "CUDA 12.8")  # free, and reserved
    assert cuda.devices() == {"cuda:1"}


def test_an_average_beside_the_step_is_on_the_trainings_device(cuda: FakeCuda, on_second: Any) -> None:
    with ema.KNOB.setup({"average": ema.SIDE_STREAM, "when": "after step"}).applied(on_second):
        on_second.step(on_second.fixed_batch())
        cuda.asked.clear()
        on_second.step(on_second.fixed_batch())
    assert cuda.devices() == {"cuda:1"}
    order = [name for name, _ in cuda.asked if "wait" in name]
    assert order == ["usual waits for side", "side waits for usual"]  # the optimizer's step, then the average


def test_what_the_allocator_holds_is_asked_of_the_device(cuda: FakeCuda) -> None:
    accelerator = accelerator_of(torch.device("cuda:1"))
    assert accelerator.free_bytes() == 7
    assert (accelerator.reserved_bytes(), accelerator.peak_reserved_bytes()) == (1200, 1400)
    assert cuda.devices() == {"cuda:1"}


@pytest.mark.parametrize("around", ["same_random_numbers", "untouched", "predicting"])
def test_random_streams_of_all_devices_are_put_back(cuda: FakeCuda, on_second: Any, around: str) -> None:
    contexts: dict[str, Callable[[], Any]] = {
        "same_random_numbers": same_random_numbers,
        "untouched": lambda: same_model_state(on_second.model),
        "predicting": lambda: _put_back(on_second),
    }
    before = torch.get_rng_state()
    with contexts[around]():
        torch.rand(3)
    assert torch.equal(torch.get_rng_state(), before)
    both = ["cuda:0", "cuda:1"]
    assert [d for name, d in cuda.asked if name == "get_rng_state"] == both
    assert [d for name, d in cuda.asked if name == "set_rng_state"] == both


def test_a_device_that_nobody_uses_is_left_asleep(cuda: FakeCuda) -> None:
    cuda.initialized = False
    with same_random_numbers():
        pass
    assert (cuda.asked, device_in_use()) == ([], "")
    cuda.initialized = True
    assert device_in_use() == "cuda"


def test_the_named_device_is_current_before_the_users_code_runs(cuda: FakeCuda) -> None:
    """`.cuda()` in the user's file means the device that was asked for; one that is not there is not set."""
    for name, queued in (("auto", 0), ("cpu", 0), ("cuda", 0), ("cuda:7", 1), ("cuda:1", 2)):
        make_current(name)
        assert len(cuda.queued) == queued, name
    assert cuda.current == 0  # nothing is initialised by asking
    for choose in cuda.queued:
        choose()
    assert cuda.current == 1


def test_the_users_file_finds_the_named_device_current(
    cuda: FakeCuda, project: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    project(**{"train.py": "import torch\ntorch.seen = torch.cuda.current_device()\n" + TRAIN})
    monkeypatch.setattr(torch.cuda, "_lazy_call", lambda choose: choose())  # as where it is in use already
    monkeypatch.setattr(torch, "seen", None, raising=False)
    with pytest.raises(TargetError, match="not usable here"):  # there is no such device after all
        FactoryTraining(Target("train.py"), "cuda:1")
    assert torch.seen == 1


def test_the_device_has_a_number_from_then_on(cuda: FakeCuda) -> None:
    cuda.current = 1  # by torch.cuda.set_device in the user's file
    assert pick_device("auto") == torch.device("cuda:1")


@pytest.mark.parametrize("name", ["cuda:1", "nosuch", "meta"])
def test_a_device_that_is_not_usable_is_said(name: str) -> None:
    with pytest.raises(TargetError, match=f"--device {name}: "):
        accelerator_of(pick_device(name))


class Placed:
    """A model factory's result of which only the place of its parameters is looked at."""

    def __init__(self, *devices: str) -> None:
        self.devices, self.moved = devices, ""

    def parameters(self) -> list[Any]:
        return [types.SimpleNamespace(device=torch.device(device)) for device in self.devices]

    def to(self, device: Any) -> None:
        self.moved = str(device)


@pytest.mark.parametrize(
    ("own", "asked", "ours", "device", "moved"),
    [
        (["cpu"], "cuda:1", "cuda:1", "cuda:1", "cuda:1"),
        (["cpu"], "cpu", "cpu", "cpu", ""),
        ([], "cuda:1", "cuda:1", "cuda:1", "cuda:1"),
        (["cuda:1"], "auto", "cuda:0", "cuda:1", ""),  # the user's own place is the training's
        (["cuda:1"], "cuda:1", "cuda:1", "cuda:1", ""),
        (["mps:0"], "mps", "mps", "mps", ""),
        (["cuda:0", "cuda:1"], "auto", "cuda:0", "cuda:0", ""),  # spread over devices, by the user's own hand
        (["meta"], "auto", "cpu", "cpu", ""),
    ],
)
def test_where_the_model_goes(own: list[str], asked: str, ours: str, device: str, moved: str) -> None:
    training = FactoryTraining.__new__(FactoryTraining)
    training.device, training.target, training.model = torch.device(ours), Target("train.py"), Placed(*own)
    training._place_model(asked)
    assert (str(training.device), training.model.moved) == (device, moved)


@pytest.mark.parametrize(("own", "asked"), [("cuda:0", "cuda:1"), ("cuda:0", "cpu")])
def test_a_model_that_is_elsewhere_than_asked_for_is_refused(own: str, asked: str) -> None:
    """It would run there, and what is waited for here would be nothing."""
    training = FactoryTraining.__new__(FactoryTraining)
    training.device, training.target, training.model = torch.device(asked), Target("train.py"), Placed(own)
    training.factories = {"model": Placed}
    with pytest.raises(TargetError, match=f"puts the model on {own}, and --device says {asked}; leave --device out"):
        training._place_model(asked)
