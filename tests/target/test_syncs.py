# ruff: noqa: E501 - a row of a table is one line, so that texts can be compared
"""Host syncs of one step: what is read of the model or the batch, on which line of the user's, how often."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from perfaudit.target.names import Target
from perfaudit.target.observed.same_state import Unobservable
from perfaudit.target.observed.syncs import _wait_of, syncs
from perfaudit.training.factory_training import FactoryTraining

torch = pytest.importorskip("torch")

Project = Callable[..., Path]

HEAD = """\
import copy, math
import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset

class Data(Dataset):
    def __len__(self): return 64
    def __getitem__(self, i): return torch.full((4,), float(torch.tensor(i))) / 64, i % 3

def build_dataloader(): return DataLoader(Data(), batch_size=8)
def loss_of(model, batch): return F.cross_entropy(model(batch[0]), batch[1])
"""
MODEL = "def build_model(): return nn.Linear(4, 3)\n"


def seen_in(project: Project, text: str, name: str) -> list[tuple[str, str, str, int]]:
    """What was observed of a training: what, of, the source line, how often a step."""
    model = "" if "def build_model" in text else MODEL
    path = project(**{f"{name}.py": HEAD + model + text}) / f"{name}.py"
    training = FactoryTraining(Target(str(path), {}), "cpu")
    found = syncs(training)
    training.close()
    assert all(item["path"] == f"{name}.py" for item in found)
    lines = path.read_text().splitlines()
    return [(item["what"], item["of"], lines[item["line"] - 1].strip(), item["count"]) for item in found]


def step(*lines: str) -> str:
    """A training step of these lines, which have `model`, `batch`, `x`, `y` and `loss`."""
    body = "".join(f"    {line}\n" for line in lines)
    return (
        f"def training_step(model, batch):\n    x, y = batch\n    loss = loss_of(model, batch)\n{body}    return loss\n"
    )


def in_forward(*lines: str) -> str:
    """A model whose forward has these lines between input `x` and output."""
    body = "".join(f"        {line}\n" for line in lines)
    return (
        "class Net(nn.Module):\n    def __init__(self):\n        super().__init__()\n        self.fc = nn.Linear(4, 3)\n"
        "        self.register_buffer('seen', torch.zeros(()))\n"
        f"    def forward(self, x):\n{body}        return self.fc(x)\n"
        "def build_model(): return Net()\n"
    )


def with_optimizer(kind: str, more: str = "") -> str:
    return f"def build_optimizer(model): return torch.optim.{kind}(model.parameters(), lr=0.1{more})\n"


SYNCS = [
    (step("print(loss.item())"), [("item", "parameters", "print(loss.item())", 1)]),
    (step("total = loss.item() + loss.item()"), [("item", "parameters", "total = loss.item() + loss.item()", 2)]),
    (step("if loss > 3: loss = loss * 1"), [("bool", "parameters", "if loss > 3: loss = loss * 1", 1)]),
    (step("if torch.isnan(loss): raise ValueError"), [("bool", "parameters", "if torch.isnan(loss): raise ValueError", 1)]),
    (step("assert not math.isnan(loss)"), [("float", "parameters", "assert not math.isnan(loss)", 1)]),
    (step("loss.data.item()"), [("item", "parameters", "loss.data.item()", 1)]),
    (step("y.tolist()"), [("tolist", "batch", "y.tolist()", 1)]),
    (step("for i in range(2):", "    y[i].item()"), [("item", "batch", "y[i].item()", 2)]),
    (step("names = list(range(3))[y[0]]"), [("int", "batch", "names = list(range(3))[y[0]]", 1)]),
    (step("x[y[0]].sum()"), [("item", "batch", "x[y[0]].sum()", 1)]),
    (step("x[x > 0].sum()"), [("mask", "batch", "x[x > 0].sum()", 1)]),
    (step("z = x.clone()", "z[x > 0] = z[x > 0] * 2"), [("mask", "batch", "z[x > 0] = z[x > 0] * 2", 2)]),
    (step("x.masked_select(x > 0), torch.nonzero(y), y.unique()"), [(w, "batch", "x.masked_select(x > 0), torch.nonzero(y), y.unique()", 1) for w in ("masked_select", "nonzero", "unique")]),
    (step("torch.where(y > 0)"), [("nonzero", "batch", "torch.where(y > 0)", 1)]),
    (step("torch.equal(y, y)"), [("equal", "batch", "torch.equal(y, y)", 1)]),
    (step("torch.allclose(x, x * 2)"), [("equal", "batch", "torch.allclose(x, x * 2)", 1)]),
    (step("y.repeat_interleave(y)"), [("repeat_interleave", "batch", "y.repeat_interleave(y)", 1)]),
    (step("F.one_hot(y)"), [("item", "batch", "F.one_hot(y)", 2)]),
    (step("print(loss)"), [("print", "parameters", "print(loss)", 1)]),
    (step("f'{loss:.3f}'"), [("print", "parameters", "f'{loss:.3f}'", 1)]),
    (step("'%.3f' % loss"), [("float", "parameters", "'%.3f' % loss", 1)]),
    (step("np.asarray(loss.detach())"), [("numpy", "parameters", "np.asarray(loss.detach())", 1)]),
    (step("x.cpu().sum()"), [("cpu", "batch", "x.cpu().sum()", 1)]),
    (step("on_host = loss.detach().cpu()", "on_host.numpy(), on_host.item()"), [("cpu", "parameters", "on_host = loss.detach().cpu()", 1)]),
    (step("a = torch.zeros(2)", "a[0] = loss.detach()", "a.tolist()"), [("tolist", "parameters", "a.tolist()", 1)]),
    (step("loss_of(model, batch).backward()", "nn.utils.clip_grad_norm_(model.parameters(), 1.0, error_if_nonfinite=True)"), [("bool", "parameters", "nn.utils.clip_grad_norm_(model.parameters(), 1.0, error_if_nonfinite=True)", 1)]),
    (step("model.weight.requires_grad and model.weight.norm().item()"), [("item", "parameters", "model.weight.requires_grad and model.weight.norm().item()", 1)]),
    (in_forward("if (x != x).any(): raise ValueError"), [("bool", "batch", "if (x != x).any(): raise ValueError", 1)]),
    (in_forward("self.seen += 1", "if self.seen > 9: x = x * 1"), [("bool", "parameters", "if self.seen > 9: x = x * 1", 1)]),
    (
        "class Mine(torch.optim.SGD):\n    def step(self, closure=None):\n        norm = self.param_groups[0]['params'][0].grad.norm().item()\n        super().step()\n"
        "def build_optimizer(model): return Mine(model.parameters(), lr=0.1)\n",
        [("item", "parameters", "norm = self.param_groups[0]['params'][0].grad.norm().item()", 1)],
    ),
    (
        "class Ema:\n    def __init__(self, model): self.copy = [p.detach().clone() for p in model.parameters()]\n"
        "    def update(self, model):\n        with torch.no_grad(): torch._foreach_lerp_(self.copy, list(model.parameters()), 0.1)\n"
        "        self.copy[0].mean().item()\n"
        "def build_ema(model): return Ema(model)\n",
        [("item", "parameters", "self.copy[0].mean().item()", 1)],
    ),
    (
        "class Batch:\n    def __init__(self, items): self.x = torch.stack([a for a, _ in items]); self.y = {'label': [torch.tensor([b for _, b in items])]}\n"
        "def build_dataloader(): return DataLoader(Data(), batch_size=8, collate_fn=Batch)\n"
        "def training_step(model, batch):\n    batch.y['label'][0].tolist()\n    return model(batch.x).sum()\n",
        [("tolist", "batch", "batch.y['label'][0].tolist()", 1)],
    ),
    (
        "class Double(torch.autograd.Function):\n    @staticmethod\n    def forward(ctx, x): return x * 2\n"
        "    @staticmethod\n    def backward(ctx, g):\n        g.sum().item()\n        return g * 2\n" + step("loss = Double.apply(loss)"),
        [("item", "parameters", "g.sum().item()", 1)],
    ),
]  # fmt: skip

SILENT = [
    with_optimizer("Adam"),
    with_optimizer("Adam", ", foreach=False"),
    with_optimizer("AdamW", ", fused=True"),
    with_optimizer("SGD", ", momentum=0.9"),
    "class Mine(torch.optim.Adam):\n    def step(self, closure=None): super().step()\n"  # Adam reads its step counters, under a line of the user's
    "def build_optimizer(model): return Mine(model.parameters(), lr=0.1, foreach=False)\n",
    "class Ema:\n    def __init__(self, model): self.model, self.updates = copy.deepcopy(model), 0\n"
    "    @torch.no_grad()\n    def update(self, model):\n        self.updates += 1\n        decay = min(0.99, (1 + self.updates) / (10 + self.updates))\n"
    "        for a, b in zip(self.model.parameters(), model.parameters()): a.lerp_(b, 1 - decay)\n"
    "def build_ema(model): return Ema(model)\n",
    "def build_ema(model): return torch.optim.swa_utils.AveragedModel(model)\n",
    step("loss_of(model, batch).backward()", "nn.utils.clip_grad_norm_(model.parameters(), 1.0)"),
    step("float(torch.tensor(3.0)), torch.arange(3).tolist(), int(torch.randint(3, ()))"),
    step("x.shape[0], len(x), x.size(), x.dtype, x.is_floating_point(), loss.requires_grad, x is y, x.numel()"),
    step("z = x.clone()", "z[x > 0] = 0"),  # one number: filled in place
    step("torch.where(x > 0, x, -x), x.masked_fill(x > 0, 0), x[y], x[:, None], x.topk(2), x.sort()"),
    step("F.one_hot(y, 3), F.dropout(x), F.gumbel_softmax(model(x))"),  # one_hot looks at the classes on a CPU only
    step("y.repeat_interleave(2), x.bernoulli(), torch.multinomial(x.abs() + 1, 2)"),
    step("hash(x), id(x), x == y[:, None], copy.copy(loss)"),
    "import random\n" + step("random.random()", "np.random.rand()"),
    step("nn.LSTM(4, 4)(nn.utils.rnn.pack_padded_sequence(x[None], torch.ones(8, dtype=torch.long)))"),
    in_forward("x = F.relu(x) + torch.arange(4, device=x.device)"),
]  # fmt: skip


@pytest.mark.parametrize(("number", "text", "expected"), [(n, *row) for n, row in enumerate(SYNCS)])
def test_what_waits_is_found_on_its_line(project: Project, number: int, text: str, expected: list[Any]) -> None:
    assert seen_in(project, text, f"waits_{number}") == expected


@pytest.mark.parametrize(("number", "text"), list(enumerate(SILENT)))
def test_what_does_not_wait_is_silent(project: Project, number: int, text: str) -> None:
    assert seen_in(project, text, f"silent_{number}") == []


def test_compiled_code_is_seen_as_it_is_written(project: Project) -> None:
    text = "@torch.compile\n" + step("loss.item()") + "def build_model(): return torch.compile(nn.Linear(4, 3))\n"
    assert seen_in(project, text, "compiled") == [("item", "parameters", "loss.item()", 1)]


@pytest.mark.parametrize(
    ("operator", "arguments", "named", "waits"),
    [
        ("_to_copy", ("x",), {"device": "cpu"}, True),
        ("_to_copy", ("x",), {"device": "cpu", "non_blocking": True}, False),
        ("_to_copy", ("x",), {"device": "meta"}, False),
        ("_to_copy", ("x",), {"dtype": "float"}, False),
        ("copy_", ("x", "x"), {}, True),
        ("copy_", ("x", "x", True), {}, False),
        ("copy_", ("other", "x"), {}, False),
    ],
)
def test_copies_from_an_accelerator_wait_unless_told_not_to(
    operator: str, arguments: tuple[object, ...], named: dict[str, Any], waits: bool
) -> None:
    """What no machine without one can run, asked of the function that decides."""
    values = {"x": torch.zeros(2), "other": torch.zeros(2, device="meta")}
    given = tuple(values[a] if isinstance(a, str) else a for a in arguments)
    if "device" in named:
        named = {**named, "device": torch.device(named["device"])}
    func = getattr(torch.ops.aten, operator).default
    assert (_wait_of(func, given, named, "cuda")[0] == "copy") is waits
    assert _wait_of(func, given, named, "cpu") == ("", [])


def test_a_step_that_fails_says_why_in_one_line(project: Project) -> None:
    path = project(**{"fails.py": HEAD + MODEL + step("raise RuntimeError('no\\nmore')")}) / "fails.py"
    training = FactoryTraining(Target(str(path), {}), "cpu")
    with pytest.raises(Unobservable, match=r"^a step under observation failed: RuntimeError: no$"):
        syncs(training)


def test_the_training_learns_on_as_if_nobody_had_looked(project: Project) -> None:
    """Two steps more, from the batches that came next."""
    text = HEAD + MODEL + step("print(loss)") + with_optimizer("Adam")
    losses = []
    for name in ("looked", "alone"):
        path = project(**{f"{name}.py": text}) / f"{name}.py"
        training = FactoryTraining(Target(str(path), {}), "cpu")
        if name == "looked":
            syncs(training)
        else:
            training.whole_step()
            training.whole_step()
        losses.append([training.step(training.batch()).item() for _ in range(3)])
    assert losses[0] == losses[1]
