"""What a program of today does not get to, since it raises before, is a hint: and nothing beside that."""

from __future__ import annotations

import textwrap

import pytest

from perfaudit.rules import all_rules
from perfaudit.static.registry import run_checks
from perfaudit.static.source import Source

TRAINS = """\
    for x, y in loader:
        loss = criterion(model(x.cuda()), y.cuda())
        loss.backward()
        optimizer.step()
        print(loss.item())
"""
TURNS = """\
    batches = iter(loader)
    for step in range(steps):
        {take}
        loss = criterion(model(x.cuda()), y.cuda())
        loss.backward()
        optimizer.step()
        print(loss.item())
"""
TRAINS_AGAIN = f"def train(loader, steps):\n{TURNS}"
SHOWS = "def show(loader):\n    print(iter(loader).next())\n\n"
GUARDED = """\
try:
            x, y = batches.next()
        except {error}:
            x, y = next(batches)"""
TRIED_AGAIN = """\
try:
            x, y = batches.next()
        except{error}:
            batches = iter(loader)
            {again}"""
IN_BRANCH = """\
if debug:
            x, y = batches.next()
        else:
            x, y = next(batches)"""
STEP = """\
def step(x, y):
    loss = criterion(model(x.cuda()), y.cuda())
    loss.backward()
    optimizer.step()
    print(loss.item())

"""
RUNS_STEP = """\
    for turn in range(steps):
        x, y = iter(loader).next()
        step(x, y)
"""


def severities(text: str) -> list[str]:
    source = Source("train.py", f"import torch\n\n{textwrap.dedent(text)}")
    return [finding.severity for finding in run_checks(source, all_rules(), frozenset(["PA601"]))]


@pytest.mark.parametrize(
    ("text", "is_hint"),
    [
        (f"def train(loader):\n{TRAINS}", False),
        (f"{SHOWS}def train(loader):\n{TRAINS}", False),  # a helper that nobody runs on the way
        (f"{SHOWS}def train(loader):\n    show(loader)\n{TRAINS}", True),
        (f"{SHOWS}def train(loader):\n    if debug:\n        show(loader)\n{TRAINS}", False),
        (f"{SHOWS}def train(loader):\n{TRAINS}    show(loader)\n", False),
        (f"{SHOWS}def main(loader):\n    show(loader)\n    train(loader)\n\ndef train(loader):\n{TRAINS}", True),
        (f"{SHOWS}def main(loader):\n    train(loader)\n    show(loader)\n\ndef train(loader):\n{TRAINS}", False),
        (f"def train(loader, steps):\n{TURNS.format(take='x, y = batches.next()')}", True),
        (f"def train(loader, steps):\n{TURNS.format(take='x, y = next(batches)')}", False),
        (f"def train(loader, steps):\n{TURNS.format(take=IN_BRANCH)}", False),
        (f"def train(loader, steps):\n{TURNS.format(take=GUARDED.format(error='AttributeError'))}", False),
        (f"def train(loader, steps):\n{TURNS.format(take=GUARDED.format(error='StopIteration'))}", True),
        (TRAINS_AGAIN.format(take=TRIED_AGAIN.format(error="", again="x, y = batches.next()")), True),
        (TRAINS_AGAIN.format(take=TRIED_AGAIN.format(error=" Exception", again="x, y = batches.next()")), True),
        (TRAINS_AGAIN.format(take=TRIED_AGAIN.format(error="", again="x, y = next(batches)")), False),
        (TRAINS_AGAIN.format(take=TRIED_AGAIN.format(error="", again="if more: x, y = batches.next()")), False),
        (f"{STEP}def train(loader, steps):\n{RUNS_STEP}", True),
        (f"{STEP}def train(loader, steps):\n{RUNS_STEP}\ndef other(x, y):\n    step(x, y)\n", False),
        # Iterators that have a `next`: of DALI, of the file, and of a class that is none of torch's loaders.
        (f"from nvidia import dali\n\ndef train(loader, steps):\n{TURNS.format(take='x, y = batches.next()')}", False),
        (f"print('for nvidia')\n\ndef train(loader, steps):\n{TURNS.format(take='x, y = batches.next()')}", True),
        (f"def next(self): ...\n\ndef train(loader, steps):\n{TURNS.format(take='x, y = batches.next()')}", False),
        (f"loader = Episodes(8)\n\ndef train(steps):\n{TURNS.format(take='x, y = batches.next()')}", False),
        (f"loader = DataLoader(images)\n\ndef train(steps):\n{TURNS.format(take='x, y = batches.next()')}", True),
        # An array of a loss, on each turn and in another function.
        (f"def train(loader):\n{TRAINS}        print(loss.data.cpu().numpy()[0])\n", True),
        (f"def test(loss):\n    print(loss.data.numpy()[0])\n\ndef train(loader):\n{TRAINS}", False),
    ],
)
def test_only_what_is_not_reached_is_a_hint(text: str, *, is_hint: bool) -> None:
    found = severities(text)
    assert found
    assert {severity == "hint" for severity in found} == {is_hint}
