"""Who takes batches from a loader: in a function and in a notebook the text says it, a module's variable may be imported."""

from __future__ import annotations

import ast

import pytest

from perfaudit.static.checks.dataloader_no_workers.loader_uses import (
    is_asked_for_batches,
    only_looks_at_batches,
    only_names_batch,
    stays_on_host,
)
from perfaudit.static.source import Source

IMPORT = "from torch.utils.data import DataLoader\n"


def loader_of(text: str, path: str = "n.ipynb") -> tuple[Source, ast.Call]:
    source = Source(path, IMPORT + text)
    return source, source.calls("torch.utils.data.DataLoader")[0]


@pytest.mark.parametrize(
    ("text", "is_asked"),
    [
        ("loader = DataLoader(data)\n", False),
        ("DataLoader(data)\n", False),
        ("loader = DataLoader(data)\nx, y = next(iter(loader))\nprint(len(loader), loader.dataset)\n", False),
        ("loader = DataLoader(data)\nx = iter(loader).next()\n", False),
        ("loader = DataLoader(data)\nfor x in loader: step(x)\n", True),
        ("loader = DataLoader(data)\nfor n, x in enumerate(tqdm(loader)): step(x)\n", True),
        ("loader = DataLoader(data)\nlosses = [step(x) for x in loader]\n", True),
        ("loader = DataLoader(data)\nbatches = iter(loader)\nfor step in range(9): train(next(batches))\n", True),
        ("loader = DataLoader(data)\ntrain(loader)\n", True),
        ("loaders = {'train': DataLoader(data)}\nfit(loaders)\n", True),
        ("a, b = DataLoader(data), 1\nprint(b)\n", False),
        ("self.loader = DataLoader(data)\n", True),
        ("def f():\n    return DataLoader(data)\n", True),
        ("def f():\n    loader = DataLoader(data)\n    print(loader)\n", False),
        ("with tqdm(DataLoader(data)) as batches:\n    train(batches)\n", True),
    ],
)
def test_who_takes_batches(text: str, is_asked: bool) -> None:
    assert is_asked_for_batches(*loader_of(text)) is is_asked


def test_a_variable_of_a_module_may_be_imported() -> None:
    text = "loader = DataLoader(data)\n"
    assert is_asked_for_batches(*loader_of(text, "data.py"))
    assert not is_asked_for_batches(*loader_of(text, "data.ipynb"))


@pytest.mark.parametrize(
    ("path", "text", "only_looks"),
    [
        ("n.ipynb", "for x in loader: print(x.shape)\n", True),
        ("n.ipynb", "for x in loader: model(x.cuda())\n", False),
        ("n.ipynb", "look(loader)\n", False),
        ("n.py", "for x in loader: print(x.shape)\n", False),
    ],
)
def test_loops_that_only_look(path: str, text: str, only_looks: bool) -> None:
    assert only_looks_at_batches(*loader_of(f"loader = DataLoader(data)\n{text}", path)) is only_looks


@pytest.mark.parametrize(
    ("body", "only_names"),
    [
        ("for x, y in loader:\n    images = x\n    labels = y\n", True),
        ("for batch in loader:\n    images, labels = batch[0], batch[1]\n", True),
        ("for x, y in loader:\n    images = x.numpy()\n", False),
        ("for x, y in loader:\n    rows[y] = x\n", False),
        ("for x, y in loader:\n    pass\n", False),
        ("for x, y in loader:\n    images = other\n", False),
        ("for x in loader:\n    images = x\nfor x in loader:\n    step(x)\n", False),
    ],
)
def test_loops_that_only_name_their_batch(body: str, only_names: bool) -> None:
    assert only_names_batch(*loader_of(f"loader = DataLoader(data)\n{body}", "t.py")) is only_names


@pytest.mark.parametrize(
    ("head", "body", "on_host"),
    [
        ("def test():\n    model = Net()", "for x in loader: score(model(x))", True),
        ("def test():\n    model = Net().cuda()", "for x in loader: score(model(x))", False),
        ("def test(model):", "for x in loader: score(model(x))", False),
        ("model = Net()\ndef test():", "for x in loader: score(model(x))", False),
        ("def test():\n    model = Net()", "for x in loader: model(x).sum().backward()", False),
        ("def test():\n    model = Net()", "for x in loader: model(x)\n    return loader", False),
        ("def move(x): return x.cuda()\ndef test():\n    model = Net()", "for x in loader: model(move(x))", False),
    ],
)
def test_functions_that_work_on_the_cpu(head: str, body: str, on_host: bool) -> None:
    text = f"{head}\n    loader = DataLoader(data)\n    {body}\n"
    assert stays_on_host(*loader_of(text, "t.py")) is on_host
