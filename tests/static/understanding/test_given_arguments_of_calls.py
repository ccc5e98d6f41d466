"""What all calls of a file pass for a parameter."""

from __future__ import annotations

import ast

from perfaudit.static.source import Source
from perfaudit.static.understanding.loaders import given_to

METHOD = """
class Averages(dict):
    def update(self, rate):
        return rate

    def step(self):
        self.update(0.9)

    def reset(self):
        self.update()
"""


def test_no_call_passes_the_object_of_a_method() -> None:
    """It stands before the call. Neither the last argument nor, of a call without any, an error is meant."""
    source = Source("train.py", METHOD)
    update = next(node for node in ast.walk(source.tree) if isinstance(node, ast.FunctionDef))
    own, rate = update.args.args
    assert given_to(source, own) is None
    assert given_to(source, rate) is None  # one call passes none
    source = Source("train.py", METHOD.replace("update()", "update(0.5)"))
    update = next(node for node in ast.walk(source.tree) if isinstance(node, ast.FunctionDef))
    own, rate = update.args.args
    assert given_to(source, own) is None
    assert [ast.unparse(each) for each in given_to(source, rate) or ()] == ["0.9", "0.5"]
