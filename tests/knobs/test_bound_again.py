"""Which calls give a name another value later, for certain or in a loop."""

from __future__ import annotations

import ast

import pytest

from perfaudit.knobs._bound_again import calls_bound_again
from perfaudit.static.source import Source

KINDS = {"torch.optim.Adam", "torch.optim.SGD"}
# Each with its first call of these classes on line 3, which is the one that is asked about.
ANEW_AFTER_A_WARM_UP = """
    opt = optim.Adam(model.parameters())
    for step in range(100):
        if step == 50:
            opt = optim.Adam(model.parameters(), lr=1e-4)
        opt.step()
"""
A_SECOND_STAGE = """
    opt = optim.Adam(head.parameters())
    for step in range(100):
        opt.step()
    opt: optim.Optimizer = optim.SGD(model.parameters())
    for step in range(100):
        opt.step()
"""
OF_AN_OBJECT = """
    self.opt = optim.Adam(model.parameters())
    while True:
        if self.reset:
            self.opt = optim.Adam(model.parameters())
        self.opt.step()
"""
ONE_OR_THE_OTHER = """
    if adam:
        opt = optim.Adam(model.parameters())
    else:
        opt = optim.SGD(model.parameters())
"""
BY_NAME = """
    if name == "adam":
        opt = optim.Adam(model.parameters())
    if name == "sgd":
        opt = optim.SGD(model.parameters())
"""
TWO = """
    opt = optim.Adam(model.parameters())
    other = optim.Adam(critic.parameters())
    for step in range(100):
        opt.step(), other.step()
"""
FOR_EACH_FOLD = """
    for fold in folds:
        opt = optim.Adam(model.parameters())
        for step in range(100):
            opt.step()
"""
WRAPPED = """
    opt = optim.Adam(model.parameters())
    opt = Wrapped(opt)
"""
ELSEWHERE = """
    opt = optim.Adam(model.parameters())

def other(model):
    opt = optim.SGD(model.parameters())
"""


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        (ANEW_AFTER_A_WARM_UP, [6]), (A_SECOND_STAGE, [6]), (OF_AN_OBJECT, [6]), (ONE_OR_THE_OTHER, []), (BY_NAME, []),
        (TWO, []), (FOR_EACH_FOLD, []), (WRAPPED, []), (ELSEWHERE, []),
    ],
)  # fmt: skip
def test_calls_that_build_it_anew_later(text: str, lines: list[int]) -> None:
    source = Source(
        "train.py", f"from torch import optim\ndef train(self, model, head, critic, folds, name, adam):{text}"
    )
    first = min(
        (call for call in source.nodes(ast.Call) if source.qualified_name(call.func) in KINDS),
        key=lambda call: call.lineno,
    )
    assert [call.lineno for call in calls_bound_again(source, first, KINDS)] == lines
