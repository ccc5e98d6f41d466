"""Loops over generators of the project that yield, one by one, what they are given."""

from __future__ import annotations

import ast
from collections.abc import Callable
from pathlib import Path

import pytest

from perfaudit.rules import all_rules
from perfaudit.static.project import Project
from perfaudit.static.registry import run_checks
from perfaudit.static.source import Source
from perfaudit.static.understanding.generators import iterable_behind

Folder = Callable[..., Path]

LOGGER = """
class Logger:
    def log_every(self, items, freq):
        for number, item in enumerate(items):
            {yields}
            if number % freq == 0:
                print(number)
"""
TRAIN = """
import torch
from torch.utils.data import DataLoader
from meters import Logger

def train(model, loader, optimizer):
    logger = Logger()
    for x, y in logger.log_every(loader, 10):
        x, y = x.cuda(), y.cuda()
        loss = model(x, y)
        loss.backward()
        optimizer.step()

train(model, DataLoader(ds, batch_size=8, num_workers=4, pin_memory=True), optimizer)
"""


@pytest.mark.parametrize(
    ("yields", "is_told"), [("yield item", True), ("yield change(item)", False), ("yield number", False)]
)
def test_a_logger_that_hands_on_the_batches_hides_no_loader(project: Folder, yields: str, is_told: bool) -> None:
    base = project(**{"meters.py": LOGGER.format(yields=yields), "train.py": TRAIN})
    neighbours = Project(sorted(base.rglob("*.py"))).seen_from(base / "train.py")
    found = list(run_checks(Source("train.py", TRAIN, neighbours), all_rules(), frozenset(["PA104"])))
    assert bool(found) is is_told


@pytest.mark.parametrize(
    ("body", "given"),
    [
        ("for x in items:\n        if x:\n            yield x", "a"),
        ("it = iter(items)\n    while True:\n        x = next(it)\n        yield x", "a"),
        ("x = next(items)\n    yield x", None),
        ("it = iter(items)\n    it = other(it)\n    x = next(it)\n    yield x", None),
        ("items = wrap(items)\n    for x in items:\n        yield x", None),
        ("for x in items:\n        x = move(x)\n        yield x", None),
        ("for x in items:\n        if x is not None and len(x):\n            yield x", "a"),
        ("for x in items:\n        for k in x:\n            x[k] = x[k].cuda()\n        yield x", None),
        ("for x in items:\n        x.image = x.image.cuda()\n        yield x", None),
        ("for x in items:\n        move(x)\n        yield x", None),
        ("for x in items:\n        x.to('cuda')\n        yield x", None),
        ("for x in items:\n        y = x\n        y[0] = y[0].cuda()\n        yield x", None),
        ("for x, y in items:\n        yield x", None),
        ("for x in items:\n        yield x\n    yield None", None),
        ("for x in items:\n        yield x, 1", None),
        ("yield from items", "a"),
        ("while True:\n        yield from items", "a"),
        ("yield from items\n    yield None", None),
        ("yield from items\n    yield from first", None),
        ("yield from change(items)", None),
        ("items = change(items)\n    yield from items", None),
        ("return items", None),
    ],
)
def test_what_a_generator_yields(body: str, given: str | None) -> None:
    source = Source("x.py", f"def walk(first, items):\n    {body}\n\nfor z in walk(1, a):\n    pass\n")
    call = source.nodes(ast.For)[-1].iter
    assert isinstance(call, ast.Call)
    found = iterable_behind(source, call)
    assert (found and ast.unparse(found)) == given


ENDLESS = """
def again(items):
    while True:
        {yields}
"""
TAKES = """
import torch
from torch.utils.data import DataLoader
from endless import again

def main(first, second):
    loader = DataLoader(first, batch_size=8, num_workers=4, pin_memory=True)
    other = DataLoader(second, batch_size=8, num_workers=4, pin_memory=True)
    batches = {batches}
    for _ in range(1000):
        (x, _), (y, _) = next(batches)
        x, y = x.cuda(), y.cuda()
        loss = model(x, y)
        loss.backward()
        optimizer.step()
"""
ROWS = "zip(again(loader), again(other))"


@pytest.mark.parametrize(
    ("yields", "batches", "is_told"),
    [
        ("yield from items", ROWS, True),
        ("yield from items", f"iter({ROWS})", True),
        ("yield from items", "zip(again(loader), again(unknown))", False),
        ("yield from change(items)", ROWS, False),
        ("yield from items", "again(loader)", True),
    ],
)
def test_batches_taken_one_by_one_of_loaders_that_run_for_ever(
    project: Folder, yields: str, batches: str, is_told: bool
) -> None:
    train = TAKES.format(batches=batches)
    base = project(**{"endless.py": ENDLESS.format(yields=yields), "train.py": train})
    neighbours = Project(sorted(base.rglob("*.py"))).seen_from(base / "train.py")
    found = list(run_checks(Source("train.py", train, neighbours), all_rules(), frozenset(["PA104"])))
    assert bool(found) is is_told


def test_what_a_decorator_makes_of_a_generator_is_unknown() -> None:
    source = Source(
        "x.py", "@moved\ndef walk(items):\n    for x in items:\n        yield x\n\nfor z in walk(a):\n    pass\n"
    )
    call = source.nodes(ast.For)[-1].iter
    assert isinstance(call, ast.Call)
    assert iterable_behind(source, call) is None
