"""Subclasses that take the arguments of their base."""

from __future__ import annotations

import ast

import pytest

from perfaudit.static.source import Source


@pytest.mark.parametrize(
    ("code", "name"),
    [
        ("from torch.utils.data import DataLoader\nclass L(DataLoader): pass\nL(ds)", "torch.utils.data.DataLoader"),
        ("from torch import nn\nclass A(nn.Conv2d): pass\nclass B(A): pass\nB(1)", "torch.nn.Conv2d"),
        ("from torch import nn\nclass A(nn.Conv2d, Mixin): pass\nA(1)", None),
        ("from torch import nn\nclass A(nn.Module): pass\nA(1)", None),
        ("from torch import nn\n@wrap\nclass A(nn.Conv2d): pass\nA(1)", None),
        ("from torch import nn\nclass A(nn.Conv2d): pass\nA = other\nA(1)", None),
    ],
)
def test_subclasses_of_the_same_file(code: str, name: str | None) -> None:
    source = Source("a.py", code)
    assert source.qualified_name(source.nodes(ast.Call)[-1].func) == name


def test_a_subclass_hands_arguments_to_its_loader() -> None:
    code = (
        "from torch.utils.data import DataLoader\nclass L(DataLoader):\n def __init__(s, d): super().__init__(d, 4)\n"
    )
    (call,) = Source("a.py", code).calls("torch.utils.data.DataLoader")
    assert call.lineno == 3
