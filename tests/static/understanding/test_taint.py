"""Which expressions of a training loop are tensors on the device, and which names carry its loss."""

from __future__ import annotations

import ast

import pytest

from perfaudit.static.source import Source
from perfaudit.static.understanding.kinds import Kind
from perfaudit.static.understanding.losses import backpropagated_names, loss_names
from perfaudit.static.understanding.step_loops import step_loops
from perfaudit.static.understanding.taint import device_values

LOOP = """
import torch
import torch.nn.functional as F
import numpy as np

def host(out, y):
    return (out == y).sum().item()

def pair(out):
    return out.mean().item(), out

def train(loader, criterion, device):
    for i, (x, y) in enumerate(loader):
        x = x.to(device)
        out = model(x)
        loss = F.cross_entropy(out, y)
        loss.backward()
        {line}
"""


def kind(line: str, expression: str) -> Kind:
    """The kind of the last expression with this text, after the loop with this line."""
    source = Source("train.py", LOOP.format(line=line.replace("\n", "\n        ")))
    [step] = step_loops(source)
    region = device_values(source, step)[0]
    found = [n for n in ast.walk(step.loop) if isinstance(n, ast.expr) and source.text_of(n) == expression]
    return region.kind(max(found, key=lambda n: (n.lineno, n.col_offset)))


@pytest.mark.parametrize(
    ("line", "expression", "expected"),
    [
        ("loss", "loss", Kind.TENSOR),
        ("out", "out", Kind.TENSOR),  # the first argument of the criterion
        ("z = loss * 2 + 1", "loss * 2 + 1", Kind.TENSOR),
        ("z = loss > 1", "loss > 1", Kind.TENSOR),
        ("z = loss is None", "loss is None", Kind.HOST),
        ("z = loss.detach().sum()", "loss.detach().sum()", Kind.TENSOR),
        ("z = loss.data", "loss.data", Kind.TENSOR),
        ("z = x.shape", "x.shape", Kind.HOST),
        ("z = x.size(0)", "x.size(0)", Kind.HOST),
        ("z = torch.isnan(loss)", "torch.isnan(loss)", Kind.TENSOR),
        ("z = loss.item()\nz", "z", Kind.HOST),
        ("loss = loss.item()\nloss", "loss", Kind.HOST),
        ("if a:\n    loss = loss.item()\nloss", "loss", Kind.MAYBE),
        ("z = loss.cpu()\nz", "z", Kind.HOST),
        ("z = loss.to('cpu')\nz", "z", Kind.HOST),
        ("z = accuracy(out, y)\nz", "z", Kind.MAYBE),
        ("z = host(out, y)\nz", "z", Kind.HOST),
        ("a, b = pair(out)\na", "a", Kind.HOST),
        ("a, b = pair(out)\nb", "b", Kind.TENSOR),
        ("_, z = torch.max(out, 1)\nz", "z", Kind.TENSOR),
        ("z = [loss, out]\nz", "z", Kind.MAYBE),
        ("z = {'loss': loss}\nz['loss']", "z['loss']", Kind.MAYBE),
        ("for z in [loss, out]:\n    z", "z", Kind.TENSOR),
        ("z = []\nz.append(loss)\nz", "z", Kind.MAYBE),
        ("total = 0\ntotal += loss\ntotal", "total", Kind.TENSOR),
        ("z = np.mean(i)\nz", "z", Kind.HOST),
        ("z = torch.zeros(3)\nz", "z", Kind.HOST),
        ("z = torch.zeros(3, device=device)\nz", "z", Kind.TENSOR),
        ("z = torch.nn.utils.clip_grad_norm_(model.parameters(), 1)\nz", "z", Kind.TENSOR),
        ("i", "i", Kind.HOST),
        ("y", "y", Kind.MAYBE),
        ("z = unknown\nz", "z", Kind.UNKNOWN),
        ("z = scheduler.get_last_lr()[0]\nz", "z", Kind.UNKNOWN),
        ("z = f'{loss}'\nz", "z", Kind.HOST),
        ("z = '%f' % loss\nz", "z", Kind.HOST),
        ("z = [l.item() for l in [loss]]\nz", "z", Kind.HOST),
    ],
)
def test_kind(line: str, expression: str, expected: Kind) -> None:
    assert kind(line, expression) is expected


@pytest.mark.parametrize(
    ("body", "losses", "inputs"),
    [
        ("loss.backward()", {"loss"}, set()),
        ("(loss / 4).backward()", {"loss"}, set()),
        ("scaler.scale(loss).backward()", {"loss"}, set()),
        ("accelerator.backward(loss)", {"loss"}, set()),
        ("self.manual_backward(loss)", {"loss"}, set()),
        ("torch.autograd.backward([a, b])", set(), set()),  # two at once: which of them is assigned here is not seen
        ("losses['total'].backward()", {"losses['total']"}, {"losses"}),
        ("self.loss_G.mean().backward()", {"self.loss_G"}, set()),
        ("loss = out.loss\n    loss.backward()", {"loss", "out.loss"}, set()),
        ("kl = f(x)\n    loss = kl + self.decay\n    loss.backward()", {"loss", "kl"}, {"x"}),
        ("loss = 0.1 * kl + weight * l1_loss\n    l1_loss = g(y)\n    loss.backward()", {"loss", "l1_loss"}, {"y"}),
        ("loss = loss_fn(out, labels)\n    loss.backward()", {"loss"}, {"out", "labels"}),
        (
            "loss_scale = f(n)\n    loss = loss * loss_scale\n    loss.backward()",
            {"loss"},
            set(),
        ),  # a number, by its name
        ("y.backward(torch.ones_like(y))", {"y"}, set()),
    ],
)
def test_loss_names(body: str, losses: set[str], inputs: set[str]) -> None:
    source = Source("train.py", f"import torch\nfor x in loader:\n    {body}\n")
    [step] = step_loops(source)
    assert backpropagated_names(source, step.loop) == losses
    assert {name for name, is_loss in loss_names(source, step.loop).items() if not is_loss} == inputs


def test_attributes_are_shared_by_the_methods_of_a_step() -> None:
    source = Source(
        "train.py",
        """
class Trainer:
    def optimize(self):
        self.loss = self.net(self.x)
        self.loss.backward()
    def log(self):
        print(self.loss)
    def fit(self, loader):
        for self.x in loader:
            self.optimize()
            self.log()
""",
    )
    [step] = step_loops(source)
    _, _, log = device_values(source, step)
    [read] = [n for n in ast.walk(log.code.root) if isinstance(n, ast.Attribute)]
    assert log.kind(read) is Kind.TENSOR


def test_recursion_ends() -> None:
    source = Source(
        "t.py", "def f(x):\n    x.backward()\n    return f(g(x))\ndef g(x): return f(x)\nfor x in y:\n    f(x)\n"
    )
    [step] = step_loops(source)
    assert len(device_values(source, step)) == 3
