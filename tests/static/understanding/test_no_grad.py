"""Where gradients are off."""

from __future__ import annotations

import ast

import pytest

from perfaudit.static.source import Source
from perfaudit.static.understanding.no_grad import in_no_grad


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("with torch.no_grad():\n    here()", True),
        ("with torch.inference_mode(), autocast():\n    here()", True),
        ("with torch.inference_mode(False):\n    here()", False),
        ("with torch.set_grad_enabled(False):\n    here()", True),
        ("with torch.autograd.set_grad_enabled(mode=False):\n    here()", True),
        ("with torch.set_grad_enabled(training):\n    here()", False),
        ("@torch.no_grad()\ndef f():\n    here()", True),
        ("@torch.no_grad\ndef f():\n    here()", True),
        ("with torch.enable_grad():\n    here()", False),
        ("here()", False),
    ],
)
def test_in_no_grad(text: str, expected: bool) -> None:
    source = Source("t.py", f"import torch\n{text}\n")
    here = next(c for c in source.nodes(ast.Call) if isinstance(c.func, ast.Name) and c.func.id == "here")
    assert in_no_grad(source, here) is expected
