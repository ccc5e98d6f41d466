"""What names stand for, and what binds them."""

from __future__ import annotations

import ast

import pytest

from perfaudit.static.source import Source
from perfaudit.static.source.torch_names import canonical


def call_of(source: Source) -> ast.Call:
    return next(c for c in source.nodes(ast.Call) if isinstance(c.func, ast.Name) and c.func.id == "call")


@pytest.mark.parametrize(
    ("code", "name"),
    [
        ("import torch\ncall(torch.nn.Conv2d)", "torch.nn.Conv2d"),
        ("from torch import nn\ncall(nn.Conv2d)", "torch.nn.Conv2d"),
        ("import torch.nn as layers\ncall(layers.Conv2d)", "torch.nn.Conv2d"),
        ("import torch.nn\ncall(torch.nn.Conv2d)", "torch.nn.Conv2d"),
        ("from torch.nn import Conv2d as C\ncall(C)", "torch.nn.Conv2d"),
        ("from torch.nn.modules.conv import Conv2d\ncall(Conv2d)", "torch.nn.Conv2d"),
        ("from torch.nn import *\ncall(Conv2d)", "torch.nn.Conv2d"),
        ("def f():\n    from torch import nn\n    call(nn.Conv2d)", "torch.nn.Conv2d"),
        ("from . import nn\ncall(nn.Conv2d)", ".nn.Conv2d"),
        ("import torch\ndef f(torch):\n    call(torch.nn)", None),
        ("import torch\ntorch = fake()\ncall(torch.nn)", None),
        ("import nets\nnets = call(nets.Net)\nnets = nets.cuda()", "nets.Net"),
        ("import nets\nnets = fake()\nnets = call(nets.Net)", None),
        ("import nets\nfor n in ns:\n    nets = call(nets.Net)", None),  # the next turn has what this one makes
        ("import torch\ndef f():\n    torch = fake()\n    call(torch.nn)", None),
        ("import torch\ndef f():\n    torch = fake()\ncall(torch.nn)", "torch.nn"),
        ("import torch\ndef f():\n    global torch\n    torch = fake()\ncall(torch.nn)", None),
        ("try:\n    from torch import nn\nexcept ImportError:\n    from fake import nn\ncall(nn.Conv2d)", None),
        ("call(nn.Conv2d)", None),
        ("call(f().x)", None),
    ],
)
def test_qualified(code: str, name: str | None) -> None:
    source = Source("a.py", code)
    assert source.qualified_name(call_of(source).args[0]) == name


@pytest.mark.parametrize(
    ("name", "documented"),
    [
        ("torch.nn.modules.conv.Conv2d", "torch.nn.Conv2d"),
        ("torch.utils.data.dataloader.DataLoader", "torch.utils.data.DataLoader"),
        ("torch.optim.adam.Adam", "torch.optim.Adam"),
        ("torch.optim.lr_scheduler.StepLR", "torch.optim.lr_scheduler.StepLR"),
        ("mytorch.optim.adam.Adam", "mytorch.optim.adam.Adam"),
    ],
)
def test_canonical(name: str, documented: str) -> None:
    assert canonical(name) == documented


@pytest.mark.parametrize(
    ("code", "bindings"),
    [
        ("x = 1\ncall(x)", 1),
        ("x = 1\nx = 2\ncall(x)", 2),
        ("x = 1\ndef f():\n    x = 2\n    call(x)", 1),
        ("x = 1\ndef f(x):\n    call(x)", 1),
        ("x = 1\nclass A:\n    x = 2\n    def f(self):\n        call(x)", 1),
        ("x = 1\ndef f():\n    global x\n    x = 2\ncall(x)", 2),
        ("x = 1\ndef f():\n    global x\n    x = 2\n    call(x)", 2),
        ("def f():\n    x = 1\n    def g():\n        nonlocal x\n        x = 2\n    call(x)", 2),
        ("for x in y:\n    call(x)", 1),
        ("x += 1\ncall(x)", 1),
        ("import x\ncall(x)", 0),
        ("call(x)", 0),
    ],
)
def test_lookup(code: str, bindings: int) -> None:
    source = Source("a.py", code)
    name = call_of(source).args[0]
    assert isinstance(name, ast.Name)
    assert len(source.lookup(name)) == bindings


def test_module_imports() -> None:
    code = "import a.b\nfrom c import d as e\nif TYPE_CHECKING:\n    import f\ndef g():\n    import h\n"
    assert Source("a.py", code).module_imports == {"a", "e"}
