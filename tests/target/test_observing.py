# ruff: noqa: E501 - a row of a table is one line, so that programs can be compared
"""What a model does when it runs: which norm a layer feeds, which parameters learn nothing, sizes, types and layouts."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from perfaudit.measure.child import Child
from perfaudit.rules import rule_heads
from perfaudit.static.checks import unaligned_dimension
from perfaudit.static.registry import run_checks
from perfaudit.static.source import read_source
from perfaudit.target.names import Target
from perfaudit.target.observed import alignment, observe
from perfaudit.target.observed.adjacency import pairs
from perfaudit.target.observed.alignment import unaligned_layers
from perfaudit.target.observed.layout import flowing
from perfaudit.target.observed.unused_parameters import unused_parameters
from perfaudit.training.factory_training import FactoryTraining

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

PLANES = torch.zeros(2, 3, 8, 8)
ROWS = torch.zeros(4, 3, 5)
ONE_BATCH = torch.zeros(4, 5)
SPACE = torch.zeros(2, 3, 4, 4, 4)


class Net(nn.Module):
    """Layers and norms by name, and a forward that is given."""

    def __init__(self, forward: Any, **layers: nn.Module) -> None:
        super().__init__()
        for name, layer in layers.items():
            setattr(self, name, layer)
        self.run = forward

    def forward(self, x: Any) -> Any:
        return self.run(self, x)


def found(net: nn.Module, given: Any = PLANES) -> list[tuple[str, str, int]]:
    return [(pair["layer"], pair["norm"], pair["consumers"]) for pair in pairs(net, lambda: net(given))]


@pytest.mark.parametrize(
    ("layer", "norm", "given", "kinds"),
    [
        (nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), PLANES, ("Conv2d", "BatchNorm2d", True)),
        (nn.Conv2d(3, 4, 3, bias=False), nn.BatchNorm2d(4), PLANES, ("Conv2d", "BatchNorm2d", False)),
        (nn.ConvTranspose2d(3, 4, 3), nn.BatchNorm2d(4), PLANES, ("ConvTranspose2d", "BatchNorm2d", True)),
        (nn.Conv1d(3, 4, 3), nn.BatchNorm1d(4), ROWS, ("Conv1d", "BatchNorm1d", True)),
        (nn.Conv3d(3, 4, 3), nn.InstanceNorm3d(4), SPACE, ("Conv3d", "InstanceNorm3d", True)),
        (nn.Conv2d(3, 4, 3), nn.GroupNorm(4, 4), PLANES, ("Conv2d", "GroupNorm", True)),
        (nn.Linear(5, 4), nn.BatchNorm1d(4), ONE_BATCH, ("Linear", "BatchNorm1d", True)),
        (nn.utils.parametrizations.weight_norm(nn.Conv2d(3, 4, 3)), nn.BatchNorm2d(4), PLANES, ("Conv2d", "BatchNorm2d", True)),
    ],
)  # fmt: skip
def test_a_layer_and_the_norm_behind_it(layer: Any, norm: Any, given: Any, kinds: tuple[str, str, bool]) -> None:
    net = nn.Sequential(layer, norm, nn.ReLU())
    [pair] = pairs(net, lambda: net(given))
    assert (pair["kind"], pair["norm_kind"], pair["bias"]) == kinds
    assert (pair["layer"], pair["norm"], pair["consumers"]) == ("0", "1", 1)


def never_learning() -> nn.Module:
    """The running mean stays what it was, so that evaluation needs the bias."""
    net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8))
    net[1].momentum = 0.0
    return net


def half_frozen() -> nn.Module:
    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4))
    net[1].eval()
    return net


class Scaled(nn.Conv2d):
    """A convolution whose bias no norm subtracts: the output is bent."""

    def forward(self, x: Any) -> Any:
        return super().forward(x).tanh()


class Bent(nn.Conv2d):
    """The same, where torch's own forward calls it."""

    def _conv_forward(self, *arguments: Any) -> Any:
        return super()._conv_forward(*arguments).tanh()


def hooked() -> nn.Module:
    layer = nn.Conv2d(3, 4, 3)
    layer.register_forward_hook(lambda *given: given[2].tanh())
    return nn.Sequential(layer, nn.BatchNorm2d(4))


@pytest.mark.parametrize(
    ("net", "given"),
    [
        (nn.Sequential(nn.Conv2d(3, 4, 3), nn.GroupNorm(2, 4)), PLANES),  # a mean over two channels
        (nn.Sequential(nn.Linear(5, 4), nn.LayerNorm(4)), ONE_BATCH),  # a mean over features
        (nn.Sequential(nn.Linear(5, 4), nn.BatchNorm1d(3)), ROWS),  # channels are the middle dimension, the bias is not
        (never_learning(), PLANES),
        (half_frozen(), PLANES),  # subtracts what it kept, not what came in
        (nn.Sequential(Scaled(3, 4, 3), nn.BatchNorm2d(4)), PLANES),
        (nn.Sequential(Bent(3, 4, 3), nn.BatchNorm2d(4)), PLANES),
        (hooked(), PLANES),
        (nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.BatchNorm2d(4)), PLANES),
        (nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(inplace=True)), PLANES),
        (nn.Sequential(nn.Conv2d(3, 4, 3), nn.Flatten(2), nn.BatchNorm1d(4)), PLANES),  # a view: not followed
    ],
)  # fmt: skip
def test_no_pair(net: nn.Module, given: Any) -> None:
    assert found(net, given) == []


CONV = {"conv": lambda: nn.Conv2d(3, 3, 1), "bn": lambda: nn.BatchNorm2d(3), "bn2": lambda: nn.BatchNorm2d(3)}


class Remembers(nn.Module):
    """A block that keeps what its convolution made."""

    def forward(self, net: Any, x: Any) -> Any:
        net.kept = [net.conv(x)]
        return net.bn(net.kept[0])


def in_place(net: Any, x: Any) -> Any:
    out = net.conv(x)
    out.mul_(2)
    return net.bn(out)


def tried(net: Any, x: Any) -> Any:
    try:
        net.conv(x[:, :2])
    except RuntimeError:
        y = net.conv(x)
        return y + net.bn(y)


def penalty(net: Any, x: Any) -> Any:
    return net.bn(net.conv(x)).sum() + net.conv.bias.square().sum()


def differentiated(net: Any, x: Any) -> Any:
    x = x.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(net.bn(net.conv(x)).square().sum(), x, create_graph=True)
    return gradient.square().sum()


@pytest.mark.parametrize(
    ("forward", "expected"),
    [
        (lambda net, x: net.bn(net.conv(x)), [("conv", "bn", 1)]),
        (lambda net, x: net.bn(net.conv(x)) + x, [("conv", "bn", 1)]),
        (lambda net, x: torch.utils.checkpoint.checkpoint(lambda x: net.bn(net.conv(x)), x, use_reentrant=False), [("conv", "bn", 1)]),
        (differentiated, [("conv", "bn", 1)]),
        (lambda net, x: net.bn(net.bn2(net.conv(x))), [("conv", "bn2", 1)]),
        (lambda net, x: net.bn(net.conv(net.bn(net.conv(x)))), [("conv", "bn", 1)]),
        (lambda net, x: net.bn2(net.conv(net.bn(net.conv(x)))), [("conv", "bn", 1), ("conv", "bn2", 1)]),
        (lambda net, x: (lambda y: y.shape[0] * net.bn(y))(net.conv(x)), [("conv", "bn", 1)]),  # sizes do not count
        (lambda net, x: (lambda y: y + net.bn(y))(net.conv(x)), [("conv", "bn", 2)]),
        (lambda net, x: (lambda y: torch.cat([y, net.bn(y)]))(net.conv(x)), [("conv", "bn", 2)]),
        (lambda net, x: (lambda y: F.relu(y) + y.mean() + net.bn(y))(net.conv(x)), [("conv", "bn", 3)]),
        (lambda net, x: (lambda y: net.bn(y) + y.view(-1).sum())(net.conv(x)), [("conv", "bn", 2)]),
        (lambda net, x: (lambda y: net.bn(y) + net.bn2(y))(net.conv(x)), [("conv", "bn", 2), ("conv", "bn2", 2)]),
        (lambda net, x: net.bn(net.conv(x)) + net.conv(x).relu(), [("conv", "bn", 2)]),  # called twice
        (lambda net, x: (lambda y: (net.bn(y), y))(net.conv(x)), [("conv", "bn", 2)]),  # returned as well
        (lambda net, x: (lambda y: net.bn2(net.bn(y)) * y.std().item())(net.conv(x)), [("conv", "bn", 2)]),
        (lambda net, x: net.bn(input=net.conv(x)), [("conv", "bn", 1)]),
        (lambda net, x: net.bn(net.conv(x)) + net.conv(x[0]), [("conv", "bn", 2)]),  # of one sample: not followed
        (tried, [("conv", "bn", 3)]),  # what became of the first call is not known
        (in_place, [("conv", "bn", 2)]),
        (penalty, [("conv", "bn", 2)]),
        (Remembers(), [("conv", "bn", 2)]),
    ],
)  # fmt: skip
def test_everything_that_takes_the_output_counts(forward: Any, expected: list[tuple[str, str, int]]) -> None:
    net = Net(forward, **{name: make() for name, make in CONV.items()})
    assert found(net) == expected


def test_the_users_hooks_on_the_norm_take_the_output_too() -> None:
    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4))
    net[1].register_forward_hook(lambda norm, given, out: out + given[0].mean())
    assert found(net) == [("0", "1", 2)]


def test_a_bias_that_two_layers_share_is_counted() -> None:
    net = nn.Sequential(nn.Conv2d(3, 3, 1), nn.BatchNorm2d(3), nn.Conv2d(3, 3, 1))
    net[2].bias = net[0].bias
    assert found(net) == [("0", "1", 2)]


def test_a_shared_layer_has_one_name() -> None:
    layer = nn.Conv2d(3, 3, 1)
    net = nn.Sequential(layer, nn.BatchNorm2d(3), layer, nn.ReLU())
    assert found(net) == [("0", "1", 2)]


def test_autocast_and_compiled_models() -> None:
    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4))
    with torch.autocast("cpu", torch.bfloat16):
        assert found(net) == [("0", "1", 1)]
    compiled = torch.compile(net)
    assert found(compiled) == [("_orig_mod.0", "_orig_mod.1", 1)]


def test_nothing_is_left_behind() -> None:
    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Dropout())
    given = torch.rand(2, 3, 8, 8)
    net(given).sum().backward()
    before = {name: value.clone() for name, value in net.state_dict().items()}
    gradients = [(p.grad, p.grad.clone()) for p in net.parameters() if p.grad is not None]
    torch.manual_seed(0)
    random.seed(0)
    pairs(net, lambda: net(given) * random.random())
    drawn = torch.rand(3), random.random()
    torch.manual_seed(0)
    random.seed(0)
    assert (torch.rand(3), random.random())[1] == drawn[1]
    torch.manual_seed(0)
    assert torch.equal(torch.rand(3), drawn[0])
    assert all(torch.equal(value, before[name]) for name, value in net.state_dict().items())
    assert all(
        p.grad is kept and torch.equal(kept, copy) for p, (kept, copy) in zip(net.parameters(), gradients, strict=True)
    )
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in net.modules())


def test_nothing_is_left_behind_when_the_run_fails() -> None:
    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Linear(3, 3))
    with pytest.raises(RuntimeError, match="cannot be multiplied"):
        pairs(net, lambda: net(PLANES))
    assert not net[1].num_batches_tracked
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in net.modules())


# ---- unused parameters -----------------------------------------------------------------------------------------------


def unused(net: nn.Module, *givens: Any) -> list[tuple[str, int]]:
    losses = [lambda given=given: net(given).sum() for given in givens or (torch.ones(2, 5),)]
    return [(entry["name"], entry["elements"]) for entry in unused_parameters(net, losses)]


def test_parameters_without_a_gradient() -> None:
    layers = {name: nn.Linear(5, 3) for name in ("used", "idle", "frozen", "cut")}
    net = Net(lambda net, x: net.used(x) + net.frozen(x) + net.cut(x).detach(), **layers)
    net.frozen.requires_grad_(False)
    assert unused(net) == [("idle.weight", 15), ("idle.bias", 3), ("cut.weight", 15), ("cut.bias", 3)]
    assert all(p.grad is None for p in net.parameters())


def test_one_batch_that_uses_a_branch_is_enough() -> None:
    layers = {name: nn.Linear(5, 3) for name in ("even", "odd")}
    net = Net(lambda net, x: net.even(x) if int(x.sum()) % 2 == 0 else net.odd(x), **layers)
    assert unused(net, torch.zeros(2, 5)) == [("odd.weight", 15), ("odd.bias", 3)]
    assert unused(net, torch.zeros(2, 5), torch.ones(1, 5)) == []


@pytest.mark.parametrize(
    "net",
    [
        nn.Sequential(nn.Linear(5, 4), nn.BatchNorm1d(4)),
        Net(lambda net, x: torch.utils.checkpoint.checkpoint(net.a, x, use_reentrant=False), a=nn.Linear(5, 4)),
        Net(lambda net, x: x @ net.a.weight.T + net.a.bias * 0, a=nn.Linear(5, 4)),  # a gradient of zero is one
    ],
)
def test_all_parameters_are_used(net: nn.Module) -> None:
    assert unused(net) == []


def test_all_parameters_of_a_compiled_model_are_used() -> None:
    """Compiled here and no row above: it imports a compiler for seconds, which each process that collects tests would do."""
    assert unused(torch.compile(nn.Sequential(nn.Linear(5, 4), nn.ReLU()))) == []


# ---- sizes -----------------------------------------------------------------------------------------------------------


def ragged(net: nn.Module, given: Any) -> list[tuple[str, str, int, int]]:
    found = unaligned_layers(net, lambda: net(given))
    return [(entry["module"], entry["dimension"], entry["size"], entry["wanted"]) for entry in found]


TOKENS = torch.zeros(1, 2, dtype=torch.long)


@pytest.mark.parametrize(
    ("net", "given", "expected"),
    [
        (nn.Sequential(nn.Embedding(1001, 8), nn.Linear(8, 1001)), TOKENS, [("1", "out_features", 1001, 64)]),
        (nn.Sequential(nn.Embedding(1032, 8), nn.Linear(8, 1032)), TOKENS, [("1", "out_features", 1032, 64)]),
        (nn.Sequential(nn.Linear(5, 1001), nn.Linear(1001, 8)), ONE_BATCH, [("0", "out_features", 1001, 8)]),
        (nn.Sequential(nn.Conv2d(3, 513, 1), nn.Conv2d(513, 8, 1)), PLANES, [("0", "out_channels", 513, 8)]),
        (nn.Sequential(nn.Embedding(9, 515), nn.Linear(515, 8)), TOKENS, [("0", "embedding_dim", 515, 8)]),
        (nn.LSTM(5, 515), ROWS, [("", "hidden_size", 515, 8)]),
    ],
)
def test_a_size_that_misses_the_step(net: nn.Module, given: Any, expected: list[tuple[str, str, int, int]]) -> None:
    assert ragged(net, given) == expected


@pytest.mark.parametrize(
    ("net", "given"),
    [
        (nn.Sequential(nn.Embedding(1024, 8), nn.Linear(8, 1024)), TOKENS),
        (nn.Sequential(nn.Embedding(97, 8), nn.Linear(8, 97)), TOKENS),  # small
        (nn.Sequential(nn.Embedding(50257, 8), nn.Linear(8, 8)), TOKENS),  # an embedding alone is looked up, not multiplied
        (nn.Sequential(nn.Linear(5, 64), nn.Linear(64, 10)), ONE_BATCH),  # classes
        (nn.Sequential(nn.Linear(5, 64), nn.Linear(64, 1203)), ONE_BATCH),  # many classes
        (nn.Sequential(nn.Linear(5, 65), nn.Linear(65, 8)), ONE_BATCH),  # narrow
        (nn.Sequential(nn.Linear(5, 1024), nn.Linear(1024, 8)), ONE_BATCH),
        (nn.Sequential(nn.Conv2d(3, 513, 1), nn.ReLU()), PLANES),  # nothing takes it in
        (Net(lambda net, x: net.a(x), a=nn.Linear(5, 5), b=nn.Linear(5, 1001), c=nn.Linear(1001, 5)), ONE_BATCH),  # never run
        (nn.GRU(5, 50), ROWS),
    ],
)  # fmt: skip
def test_sizes_that_are_left_alone(net: nn.Module, given: Any) -> None:
    assert ragged(net, given) == []


def test_the_steps_are_those_of_the_rule() -> None:
    names = ("VOCABULARY", "VOCABULARY_STEP", "WIDTH", "WIDTH_STEP")
    assert [getattr(alignment, name) for name in names] == [getattr(unaligned_dimension, name) for name in names]


# ---- types and layouts -----------------------------------------------------------------------------------------------

LAST = PLANES.to(memory_format=torch.channels_last)


@pytest.mark.parametrize(
    ("net", "given", "dtypes", "layouts"),
    [
        (nn.Sequential(nn.Linear(5, 4), nn.ReLU()), ONE_BATCH, {"float32": 1.0}, {"contiguous": 1.0}),
        (nn.Sequential(nn.ReLU(), nn.Tanh()), LAST, {"float32": 1.0}, {"channels_last": 1.0}),
        (nn.Sequential(nn.ReLU(), nn.Flatten()), LAST, {"float32": 1.0}, {"channels_last": 0.5, "contiguous": 0.5}),
        (nn.Sequential(nn.Identity(), nn.Linear(5, 5).half()), ONE_BATCH.half(), {"float16": 1.0}, {"contiguous": 1.0}),
        (nn.Sequential(nn.Identity(), nn.Embedding(3, 3)), TOKENS, {"float32": 0.75, "int64": 0.25}, {"contiguous": 1.0}),
        (nn.Identity(), PLANES.transpose(2, 3)[:, :, ::2], {"float32": 1.0}, {"strided": 1.0}),
        (nn.Identity(), ONE_BATCH.to_sparse(), {"float32": 1.0}, {"sparse": 1.0}),
        (Net(lambda net, x: x.double()), ONE_BATCH, {"float64": 1.0}, {"contiguous": 1.0}),  # nothing but functions
        (Net(lambda net, x: 3), ONE_BATCH, {}, {}),
    ],
)  # fmt: skip
def test_types_and_layouts(net: nn.Module, given: Any, dtypes: dict[str, float], layouts: dict[str, float]) -> None:
    assert flowing(net, lambda: net(given)) == (dtypes, layouts)


def test_types_under_autocast() -> None:
    net = nn.Sequential(nn.Identity(), nn.Linear(5, 5))

    def run() -> None:
        with torch.autocast("cpu", torch.bfloat16):
            net(ONE_BATCH)

    assert flowing(net, run) == ({"float32": 0.5, "bfloat16": 0.5}, {"contiguous": 1.0})


# ---- a whole training ------------------------------------------------------------------------------------------------

SAMPLES = Path(__file__).resolve().parents[2] / "sample_models"


def trained(path: Path) -> FactoryTraining:
    return FactoryTraining(Target(str(path)), device="cpu")


def test_the_pairs_of_a_sample_are_the_places_that_reading_finds() -> None:
    path = SAMPLES / "photo_resnet.py"
    training = trained(path)
    batch = (torch.rand(2, 3, 32, 32), torch.zeros(2, dtype=torch.long))
    seen = pairs(training.model, lambda: training.loss(batch), training.module_sites)
    training.close()
    convolutions = [name for name, m in training.model.named_modules() if isinstance(m, nn.Conv2d)]
    assert [(pair["layer"], pair["consumers"]) for pair in seen] == [(name, 1) for name in convolutions]
    found = run_checks(read_source(path, "photo_resnet.py"), rule_heads(), frozenset({"PA201"}))
    places = {(f.location.line, f.location.column) for f in found if f.location is not None}
    assert {(pair["site"][1], pair["site"][3] + 1) for pair in seen} == places
    assert {pair["site"][0] for pair in seen} == {str(path)}


PROGRAM = """
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

def block():
    return nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4))

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.block = block()
        self.idle = nn.Linear(4, 4)
    def forward(self, x):
        return self.block(x)

def build_model():
    return Net()

def build_dataloader():
    return DataLoader(TensorDataset(torch.zeros(8, 4), torch.zeros(8, dtype=torch.long)), batch_size=4)

def training_step(model, batch):
    loss = nn.functional.cross_entropy(model(batch[0]), batch[1])
    {more}
    return loss
"""


def test_a_training_observed(project: Callable[..., Path]) -> None:
    folder = project(**{"observed_whole.py": PROGRAM.replace("{more}", "assert loss.item() < 100")})
    path = str(folder / "observed_whole.py")
    training = trained(folder / "observed_whole.py")
    before = {name: value.clone() for name, value in training.model.state_dict().items()}
    seen = json.loads(json.dumps(observe(training)))
    training.close()
    assert seen["problems"] == []
    assert [(p["layer"], p["norm"], p["site"][:2], [s[:2] for s in p["stack"][:2]]) for p in seen["pairs"]] == [
        ("block.0", "block.1", [path, 6], [[path, 11], [path, 17]])
    ]
    assert [(u["name"], u["site"][:2]) for u in seen["unused_parameters"]] == [
        ("idle.weight", [path, 12]),
        ("idle.bias", [path, 12]),
    ]
    assert [(s["what"], s["line"]) for s in seen["syncs"]] == [("item", 24)]
    assert (seen["unaligned"], seen["dtypes"], seen["layouts"]) == ([], {"float32": 1.0}, {"contiguous": 1.0})
    assert before.keys() == training.model.state_dict().keys()


def test_a_part_that_fails_is_a_problem_and_the_others_go_on(project: Callable[..., Path]) -> None:
    guard = "if torch.is_grad_enabled() and model.block[0]._forward_hooks: raise ValueError('no hooks, please')"
    folder = project(**{"observed_guarded.py": PROGRAM.replace("{more}", guard)})
    training = trained(folder / "observed_guarded.py")
    seen = observe(training)
    training.close()
    where = "(observed_guarded.py:24 in training_step)"
    assert f"pairs: ValueError: no hooks, please {where}" in seen["problems"]
    assert seen["pairs"] == []
    assert [entry["name"] for entry in seen["unused_parameters"]] == ["idle.weight", "idle.bias"]


@pytest.mark.parametrize(
    ("more", "problem"),
    [
        ("loss = loss.item()", "observed_3_0.py: training_step() returned a float, not a loss tensor"),
        ("import sys; sys.exit(3)", "SystemExit: 3 (observed_3_1.py:24 in training_step)"),
    ],
)
def test_a_training_that_cannot_be_run_is_all_problems(project: Callable[..., Path], more: str, problem: str) -> None:
    number = 0 if "loss" in more else 1
    folder = project(**{f"observed_3_{number}.py": PROGRAM.replace("{more}", more)})
    training = FactoryTraining(Target(f"observed_3_{number}.py"), device="cpu")
    seen = observe(training)
    training.close()
    assert folder.is_dir()
    assert f"pairs: {problem}" in seen["problems"]
    assert len(seen["problems"]) == 6


@pytest.mark.slow
def test_a_child_observes(project: Callable[..., Path]) -> None:
    project(**{"observed_child.py": PROGRAM.replace("{more}", "")})
    what = {
        "target": {"file": "observed_child.py", "names": {}},
        "overlay": {},
        "knob": "",
        "settings": {},
        "device": "cpu",
    }
    with Child() as child:
        child.ask({"do": "build", **what}, 120)
        reply = child.ask({"do": "observe"}, 120)
    assert (reply["problems"], len(reply["pairs"])) == ([], 1)


# ---- what a pair promises --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("net", "given"),
    [
        (nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU()), PLANES),
        (nn.Sequential(nn.ConvTranspose2d(3, 4, 3), nn.BatchNorm2d(4)), PLANES),
        (nn.Sequential(nn.Conv1d(3, 4, 3), nn.InstanceNorm1d(4, affine=True)), ROWS),
        (nn.Sequential(nn.Conv2d(3, 4, 3), nn.GroupNorm(4, 4)), PLANES),
        (nn.Sequential(nn.Conv3d(3, 4, 3), nn.BatchNorm3d(4, track_running_stats=False)), SPACE),
        (nn.Sequential(nn.Conv2d(3, 4, 3), nn.InstanceNorm2d(4, track_running_stats=True)), PLANES),
        (nn.Sequential(nn.Linear(5, 4), nn.BatchNorm1d(4), nn.Linear(4, 2)), ONE_BATCH),
    ],
)
def test_without_the_bias_of_a_pair_the_output_is_the_same(net: nn.Module, given: Any) -> None:
    given = torch.rand_like(given, dtype=torch.float64)
    net.double()
    [pair] = pairs(net, lambda: net(given))
    assert pair["consumers"] == 1
    before = net(given)
    with torch.no_grad():
        net.get_submodule(pair["layer"]).bias.add_(torch.arange(4) + 1)
    assert torch.allclose(net(given), before, rtol=0, atol=1e-12)
