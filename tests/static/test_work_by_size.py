"""The work of a scan grows with a file as the file does: generated code and long modules are read in time, too.

Work is counted in calls of functions, which are the same on every machine.
"""

from __future__ import annotations

import ast
import sys
import weakref
from collections.abc import Callable
from types import FrameType

import pytest

from perfaudit.rules import rule_heads
from perfaudit.static.registry import run_checks
from perfaudit.static.source import Source
from perfaudit.static.understanding.answers import remember
from perfaudit.static.understanding.backward import backward_calls
from perfaudit.static.understanding.called_functions import callers
from perfaudit.static.understanding.defaults import leaves_out
from perfaudit.static.understanding.devices import uses_cuda
from perfaudit.static.understanding.families import roots_of
from perfaudit.static.understanding.loaders import passes
from perfaudit.static.understanding.members import attributes, attributes_of
from perfaudit.static.understanding.rarely import runs_rarely
from perfaudit.static.understanding.step_loops import step_loops


def callers_of_first(source: Source) -> object:
    return callers(source, source.nodes(ast.FunctionDef)[0])


HEAD = "import torch\nfrom torch import nn\n\n"


def classes(count: int) -> str:
    """Models that all call their layers alike, as those of a zoo do."""
    return HEAD + "".join(
        f"class Net{n}(nn.Module):\n"
        "    def __init__(self):\n"
        "        super().__init__()\n"
        "        self.conv = nn.Conv2d(3, 8, 3)\n"
        "        self.norm = nn.BatchNorm2d(8)\n"
        "    def forward(self, x):\n"
        "        return self.norm(self.conv(x))\n"
        for n in range(count)
    )


def elif_chain(count: int) -> str:
    """A step that picks one of many losses."""
    return (
        f"{HEAD}def train(model, loader, optimizer, kind):\n"
        "    for x, y in loader:\n"
        "        x, y = x.cuda(), y.cuda()\n"
        "        if kind == -1:\n"
        "            loss = nn.functional.mse_loss(model(x), y)\n"
        + "".join(
            f"        elif kind == {n}:\n            loss = nn.functional.mse_loss(model(x) * {n}, y)\n"
            for n in range(count)
        )
        + "        loss.backward()\n        optimizer.step()\n        print(loss.item())\n"
    )


def long_step(count: int) -> str:
    """A step of many statements in a row, as code that is generated has it."""
    return (
        f"{HEAD}def train(model, loader, optimizer):\n    for x, y in loader:\n        x = x.cuda()\n"
        + "".join(f"        x = torch.relu(x + {n})\n" for n in range(count))
        + "        loss = nn.functional.mse_loss(model(x), y.cuda())\n"
        "        loss.backward()\n        optimizer.step()\n        print(loss.item())\n"
    )


def trainings(count: int) -> str:
    """Functions that train by themselves, with a helper each, as a file of experiments has them."""
    return HEAD + "".join(
        f"def norm{n}(model):\n"
        "    return sum(p.grad.norm().item() for p in model.parameters())\n"
        f"def train{n}(model, loader, optimizer):\n"
        "    for x, y in loader:\n"
        "        loss = nn.functional.mse_loss(model(x.cuda()), y.cuda())\n"
        "        loss.backward()\n"
        f"        print(norm{n}(model))\n"
        "        optimizer.step()\n"
        for n in range(count)
    )


def averages(count: int) -> str:
    """Copies of models that follow them."""
    return HEAD + "".join(
        "import copy\n"
        f"def follow{n}(net, loader, optimizer):\n"
        "    average = copy.deepcopy(net)\n"
        "    for x in loader:\n"
        "        net(x).sum().backward()\n"
        "        optimizer.step()\n"
        "        for a, b in zip(average.parameters(), net.parameters()):\n"
        "            a.data.mul_(0.99).add_(b.data, alpha=0.01)\n"
        for n in range(count)
    )


def evaluations(count: int) -> str:
    """Trainers that each train a model and evaluate it, and never put it into eval mode."""
    return HEAD + "".join(
        f"class Trainer{n}:\n"
        "    def __init__(self, loader, test_loader):\n"
        f"        self.net, self.net{n} = Net(), Net()\n"
        "        self.loader, self.test_loader = loader, test_loader\n"
        f"        self.optimizer = torch.optim.SGD([*self.net.parameters(), *self.net{n}.parameters()], 0.1)\n"
        "    def train(self):\n"
        "        for x, y in self.loader:\n"
        f"            loss = nn.functional.mse_loss(self.net{n}(self.net(x)), y)\n"
        "            loss.backward()\n"
        "            self.optimizer.step()\n"
        "    def evaluate(self):\n"
        "        total = 0\n"
        "        for x, y in self.test_loader:\n"
        f"            total += nn.functional.mse_loss(self.net{n}(self.net(x)), y).item()\n"
        "        return total\n"
        for n in range(count)
    )


def validations(count: int) -> str:
    """Functions that each evaluate a model by another one, in a file one function of which differentiates by itself."""
    penalty = "def penalty(net, x):\n    return torch.autograd.grad(net(x).sum(), x, create_graph=True)[0]\n"
    return (
        HEAD
        + penalty
        + "def train(net, x):\n    penalty(net, x).sum().backward()\n"
        + "".join(
            f"def right{n}(net{n}, rows):\n"
            f"    net{n}.eval()\n"
            "    found = []\n"
            "    for x in rows:\n"
            f"        found.append(label{n}(net{n}, x))\n"
            "    return found\n"
            f"def label{n}(net{n}, x):\n"
            f"    return net{n}(x).argmax(1).tolist()\n"
            for n in range(2 * count)  # what is looked at for each anew shows only among many
        )
    )


def loaders(count: int) -> str:
    """Functions that each make a loader and hand their options on to it."""
    return (
        HEAD
        + "net = nn.Linear(4, 4).cuda()\n"
        + "".join(
            f"def load{n}(data, **options{n}):\n"
            f"    return torch.utils.data.DataLoader(data, batch_size=4, **options{n})\n"
            f"for x in load{n}(rows, shuffle=True):\n"
            "    net(x.cuda()).sum().backward()\n"
            for n in range(count)
        )
    )


def calls_made(run: Callable[[], object]) -> int:
    """How many calls of functions something makes."""
    count = 0

    def note(frame: FrameType, event: str, argument: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(note)
    try:
        run()
    finally:
        sys.setprofile(None)
    return count


def work(text: str) -> int:
    """How many calls a scan of this text makes, after one that has imported what it needs."""
    run_checks(Source("a.py", text), rule_heads())
    source = Source("a.py", text)
    return calls_made(lambda: run_checks(source, rule_heads()))


@pytest.mark.parametrize(
    "make",
    [classes, elif_chain, long_step, trainings, averages, evaluations, validations],
    ids=lambda make: make.__name__,
)
def test_twice_the_file_is_about_twice_the_work(make: Callable[[int], str]) -> None:
    assert work(make(100)) < 2.4 * work(make(50))


def test_what_one_function_leaves_out_takes_the_same_in_a_longer_file() -> None:
    def work_of_second(count: int) -> int:
        source = Source("a.py", loaders(count))
        first, second, *_ = source.calls("torch.utils.data.DataLoader")
        assert leaves_out(source, first, "num_workers")
        return calls_made(lambda: leaves_out(source, second, "num_workers"))

    assert work_of_second(40) == work_of_second(20)


def test_a_chain_of_a_thousand_conditions_is_read() -> None:
    found = run_checks(Source("a.py", elif_chain(1000)), rule_heads(), frozenset(["PA601"]))
    assert [finding.rule for finding in found] == ["PA601"]


@pytest.mark.parametrize(
    ("statements", "findings"),
    [
        (("if a:", "    v = 1.0", "elif b:", "    v = 2.0", "else:", "    v = y.mean()"), 0),
        (("if a:", "    v = y.mean()", "elif b:", "    v = y.max()", "else:", "    v = y.mean()"), 1),
        (("v = y.mean()", "if a:", "    pass", "elif b:", "    v = 1.0"), 0),
        (("v = y.mean()", "if a:", "    v = y.max()", "elif b:", "    v = y.min()"), 1),
        (("v = 1.0", "if a:", "    raise E", "elif b:", "    raise E", "else:", "    v = y.mean()"), 1),
        (("v = y.mean()", "if a:", "    raise E", "elif b:", "    raise E", "else:", "    v = 1.0"), 0),
        (("v = y.mean()", "if a:", "    v = 1.0", "    raise E", "elif b:", "    v = 2.0", "    raise E"), 1),
    ],
)
def test_what_a_chain_of_conditions_leaves(statements: tuple[str, ...], findings: int) -> None:
    step = ("x = x.cuda()", "y = model(x)", "y.sum().backward()", "optimizer.step()", *statements, "print(float(v))")
    body = "".join(f"        {line}\n" for line in step)
    text = f"import torch\ndef train(model, loader, optimizer, a, b):\n    for x in loader:\n{body}"
    assert len(run_checks(Source("a.py", text), rule_heads(), frozenset(["PA601"]))) == findings


CLASSES = """
class A:
    def set(self): self.x = 1
class B(A):
    def set(self): self.x = 2
class C(A):
    def set(self): self.x = 3
class Other:
    def set(self): self.x = 4
class Both(B, Other):
    def set(self): self.x = 5
if old:
    class Loop(Loop2):
        def set(self): self.x = 6
class Loop2(Loop):
    def set(self): self.x = 7
model.x = 8
"""


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("A", [1, 2, 3, 5, 8]),
        ("C", [1, 2, 3, 5, 8]),
        ("Other", [4, 5, 8]),
        ("Both", [1, 2, 3, 4, 5, 8]),
        ("Loop", [6, 7, 8]),
        ("Loop2", [6, 7, 8]),
    ],
)
def test_attributes_that_may_be_of_a_class(name: str, values: list[int]) -> None:
    source = Source("a.py", CLASSES)
    definition = next(node for node in source.nodes(ast.ClassDef) if node.name == name)
    found = [source.parent(use) for use in attributes_of(source, "x", definition)]
    assert [
        node.value.value for node in found if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant)
    ] == values


def test_an_answer_is_found_once_for_each_part() -> None:
    asked: list[tuple[str, str]] = []

    @remember
    def length(source: Source, word: str) -> int:
        asked.append((source.path, word))
        return len(word)

    first, second = Source("a.py", ""), Source("b.py", "")
    assert [length(first, "ab"), length(first, "ab"), length(first, "c"), length(second, "ab")] == [2, 2, 1, 2]
    assert asked == [("a.py", "ab"), ("a.py", "c"), ("b.py", "ab")]
    ends = weakref.ref(first)
    del first
    assert ends() is None


STEPS = """import torch

def timed(function):
    return function

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = torch.nn.Conv2d(3, 8, 3)

loader = torch.utils.data.DataLoader(data)
for step, x in enumerate(loader):
    loss = timed(net)(x.cuda()).mean()
    loss.backward()
    optimizer.step()
    if step % 100 == 0:
        print(loss)
"""


@pytest.mark.parametrize("ask", [attributes, backward_calls, callers_of_first, passes, roots_of, step_loops, uses_cuda])
def test_what_is_known_of_a_file_ends_with_it(ask: Callable[[Source], object]) -> None:
    source = Source("a.py", STEPS)
    assert ask(source)
    ends = weakref.ref(source)
    del source
    assert ends() is None


def test_a_condition_ends_with_its_file() -> None:
    source = Source("a.py", STEPS)
    assert any(runs_rarely(source, call, source.tree) for call in source.nodes(ast.Call))
    ends = weakref.ref(source.nodes(ast.If)[0].test)
    del source
    assert ends() is None
