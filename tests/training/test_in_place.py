"""Settings and code put into a running training and taken back: it is as one in which nothing was entered, to the bit."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from perfaudit.knobs import all_knobs, knob
from perfaudit.measurements import Settings
from perfaudit.target.flags import flags
from perfaudit.target.names import Target
from perfaudit.training.code_change import code_change
from perfaudit.training.code_variant import prepare
from perfaudit.training.factory_training import FactoryTraining
from perfaudit.training.setting_variant import SettingVariant
from perfaudit.training.start_of_step import Numbers
from perfaudit.training.together import Together

Build = Callable[..., FactoryTraining]
TARGET = """
import torch
from torch import nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

def build_model():
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Dropout(0.1), nn.Flatten(), nn.Linear(144, 5))

def build_dataloader():
    data = torch.utils.data.TensorDataset(torch.randn(64, 3, 8, 8), torch.randint(0, 5, (64,)))
    return torch.utils.data.DataLoader(data, 8, shuffle=True)

def build_optimizer(model):
    return torch.optim.OPTIMIZER

def build_ema(model):
    return AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.9))
"""
STEP = """
def training_step(model, batch):
    images, labels = batch
    return nn.functional.cross_entropy(model(images), labels)
"""
ADAM, SGD = "AdamW(model.parameters(), lr=1e-2)", "SGD(model.parameters(), lr=1e-2, momentum=0.9)"
# A setting of each knob that can be put into a training that runs, with the optimizer beside it.
IN_PLACE: list[tuple[str, Settings, str]] = [
    ("anomaly", {"anomaly": True}, ADAM),
    ("cudnn", {"benchmark": True}, ADAM),
    ("ema", {"average": "none", "when": "-"}, ADAM),
    ("ema", {"average": "foreach_lerp", "when": "before step"}, ADAM),
    ("memory_format", {"memory_format": "channels_last"}, ADAM),
    ("memory_format", {"memory_format": "channels_last"}, SGD),
    ("optimizer", {"update": "fused"}, ADAM),
    ("optimizer", {"update": "foreach"}, ADAM),
    ("optimizer", {"update": "fused"}, SGD),
    ("precision", {"precision": "bf16"}, ADAM),
    ("precision", {"precision": "tf32"}, ADAM),
    ("threads", {"threads": 2}, ADAM),  # one, as tests are run
    ("zero_grad", {"set_to_none": False}, ADAM),
]
UNTOUCHED: dict[str, list[str]] = {}  # losses of a training in which nothing was entered, by its optimizer
CASES = pytest.mark.parametrize(("name", "settings", "optimizer"), IN_PLACE)


@pytest.fixture
def build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Build]:
    import torch

    torch.set_num_threads(1)  # also before the first test of a process: losses of several tests are compared to the bit
    monkeypatch.chdir(tmp_path)
    built: list[FactoryTraining] = []

    def start(optimizer: str = ADAM, text: str = TARGET) -> FactoryTraining:
        name = f"target_{len(built)}.py"
        (tmp_path / name).write_text(text.replace("OPTIMIZER", optimizer))
        built.append(FactoryTraining(Target(name, {}), "cpu", seed=3))
        return built[-1]

    yield start
    for training in built:
        training.close()


def losses(training: FactoryTraining, steps: int) -> list[str]:
    return [float(training.step(training.batch()).detach()).hex() for _ in range(steps)]


def state(training: FactoryTraining) -> dict[str, Any]:
    """Everything that a variant may touch, in a form that can be compared."""
    own = {
        key: value for key, value in vars(training).items() if key in ("set_to_none", "non_blocking", "scaler", "ema")
    }
    groups = [{k: v for k, v in group.items() if k != "params"} for group in training.optimizer.param_groups]
    layout = [
        (name, p.stride(), p.grad.stride() if p.grad is not None else None)
        for name, p in training.model.named_parameters()
    ]
    kept = [
        {
            key: (value.stride(), value.dtype, str(value.device))
            for key, value in training.optimizer.state[p].items()
            if hasattr(value, "stride")
        }
        for p in training.model.parameters()
    ]
    hooks = len(training.optimizer._optimizer_step_pre_hooks)
    attributes = {k for k in vars(training.optimizer) if k.startswith(("_step", "_need"))}
    modules = [training, training.model, *training.model.modules(), training.optimizer]
    code = {
        f"{type(item).__qualname__}.{name}": function.__code__
        for item in modules
        for name, function in inspect.getmembers(type(item), inspect.isfunction)
    }
    buffers = [(name, b.stride(), b.dtype, b.shape, str(b.device)) for name, b in training.model.named_buffers()]
    own_names = [(type(item).__name__, sorted(vars(item))) for item in modules[1:-1]]
    return {
        "code": code, "buffers": buffers, "names": own_names,
        "flags": flags(), "own": own, "around": training.around_loss, "average": training.average_kept, "groups": groups,
        "layout": layout, "kept": kept, "hooks": hooks, "attributes": attributes,
    }  # fmt: skip


@pytest.mark.slow
@CASES
def test_a_training_that_was_left_goes_on_to_the_bit(
    build: Build, name: str, settings: Settings, optimizer: str
) -> None:
    if optimizer not in UNTOUCHED:
        UNTOUCHED[optimizer] = losses(build(optimizer), 6)
    training = build(optimizer)
    first = losses(training, 3)
    before = state(training)
    variant = SettingVariant(lambda: knob(name).in_place(training, settings))
    variant.enter()
    variant.leave()
    variant.leave()  # one that is not in place is left without a word
    assert state(training) == before
    assert [*first, *losses(training, 3)] == UNTOUCHED[optimizer]


@pytest.mark.slow
@CASES
def test_steps_inside_leave_nothing_but_their_learning(
    build: Build, name: str, settings: Settings, optimizer: str
) -> None:
    training = build(optimizer)
    losses(training, 2)
    before = state(training)
    variant = SettingVariant(lambda: knob(name).in_place(training, settings))
    for _ in range(2):
        variant.enter()
        assert state(training) != before, "the setting changes nothing that is looked at"
        assert variant.parts_not_run(lambda: losses(training, 2)) == []
        variant.leave()
        assert state(training) == before


@pytest.mark.slow
@pytest.mark.parametrize("optimizer", [ADAM, SGD])
@pytest.mark.parametrize("update", ["fused", "foreach", "for-loop"])
def test_an_update_in_place_is_that_of_an_optimizer_built_so(build: Build, optimizer: str, update: str) -> None:
    arguments = {"fused": "fused=True", "foreach": "foreach=True", "for-loop": "foreach=False"}[update]
    built = losses(build(f"{optimizer[:-1]}, {arguments})"), 4)
    training = build(optimizer)
    with knob("optimizer").in_place(training, {"update": update}):
        assert losses(training, 4) == built


@pytest.mark.slow
def test_a_format_in_place_is_that_of_a_model_built_so(build: Build) -> None:
    """Also after steps in the other one: what the optimizer keeps lies as the parameters do."""
    import torch

    training = build()
    losses(training, 2)
    with knob("memory_format").in_place(training, {"memory_format": "channels_last"}):
        losses(training, 1)
        weight = training.model[0].weight
        for value in (weight, weight.grad, *training.optimizer.state[weight].values()):
            assert value.dim() != 4 or value.is_contiguous(memory_format=torch.channels_last)


@pytest.mark.slow
@pytest.mark.parametrize("optimizer", [ADAM, SGD])
def test_numbers_are_put_back_after_a_format_was_tried(build: Build, optimizer: str) -> None:
    """What the optimizer keeps are the same tensors in the format and after it."""
    import torch

    training = build(optimizer)
    losses(training, 2)
    numbers = Numbers(training)
    before = kept_of(training)
    variant = SettingVariant(lambda: knob("memory_format").in_place(training, {"memory_format": "channels_last"}))
    variant.enter()
    training.whole_step()
    variant.leave()
    with torch.no_grad():
        for values in training.optimizer.state.values():
            for value in values.values():
                value.fill_(float("nan"))
    numbers.put_back()
    assert kept_of(training) == before


@pytest.mark.slow
@pytest.mark.usefixtures("nothing_compiled")
def test_a_training_whose_code_was_swapped_goes_on_to_the_bit(build: Build) -> None:
    """With an import that only the patch has, and a setting beside it."""
    untouched = losses(build(text=TARGET + STEP), 6)
    training = build(text=TARGET + STEP)
    first = losses(training, 3)
    step, *_ = training.step_functions()
    before, own, names = state(training), step.__code__, set(step.__globals__)
    text = Path("target_1.py").read_text()
    patched = "import math\n" + text.replace("model(images)", "model(math.pi * images)")
    setting = SettingVariant(lambda: knob("optimizer").in_place(training, {"update": "fused"}))
    variant = Together([prepare([code_change("target_1.py", text, patched)]), setting])
    variant.enter()
    assert (step.__code__ is own, set(step.__globals__) - names) == (False, {"math"})
    assert state(training) != before
    variant.leave()
    assert (step.__code__ is own, set(step.__globals__), state(training)) == (True, names, before)
    assert [*first, *losses(training, 3)] == untouched


def kept_of(training: Any) -> list[Any]:
    """What the optimizer keeps of each parameter, as numbers."""
    return [{key: value.tolist() for key, value in kept.items()} for kept in training.optimizer.state.values()]


def test_every_knob_says_how_it_comes_into_a_training() -> None:
    ways = {name: knob(name).way for name in all_knobs()}
    tried = {name for name, _, _ in IN_PLACE}
    assert {name for name, way in ways.items() if way == "setting"} == tried
    assert {name for name, way in ways.items() if way == "code"} == {"attention", "fusion", "host_syncs"}
