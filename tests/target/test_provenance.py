# ruff: noqa: E501 - a row of a table is one line, so that texts can be compared
"""Where loaders and optimizers were built: the user's own call, however many constructors and helpers lie between."""

from __future__ import annotations

import importlib.util
import inspect
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from perfaudit.target.provenance import Site, loaders_built, optimizers_built

torch = pytest.importorskip("torch")

Project = Callable[..., Path]

HEAD = """
import functools
import torch
from torch.utils.data import DataLoader, TensorDataset

W = torch.nn.Parameter(torch.zeros(3))
DATA = TensorDataset(torch.zeros(4, 1))
"""


def module_of(project: Project, text: str, name: str = "user_code") -> tuple[ModuleType, str]:
    """The user's file, imported, and its text."""
    path = project(**{f"{name}.py": HEAD + text}) / f"{name}.py"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module, path.read_text()


def text_at(text: str, site: Site | None) -> str | None:
    """The source text of a site."""
    if site is None:
        return None
    lines = [line.encode() for line in text.splitlines(keepends=True)][site.line - 1 : site.end_line]
    lines[-1] = lines[-1][: site.end_column]
    lines[0] = lines[0][site.column :]
    return b"".join(lines).decode()


OPTIMIZERS = [  # code that defines `build()`, and the call that is found
    ("def build(): return torch.optim.SGD([W], lr=0.1)", "torch.optim.SGD([W], lr=0.1)"),
    ("def build(): é = 'ü'; return torch.optim.AdamW([W])", "torch.optim.AdamW([W])"),
    ("def build():\n    return torch.optim.Adam(\n        [W],\n        lr=1,\n    )", "torch.optim.Adam(\n        [W],\n        lr=1,\n    )"),
    ("def make(kind, **kw): return kind([W], **kw)\ndef build(): return make(torch.optim.AdamW, lr=1)", "kind([W], **kw)"),
    ("MAKE = functools.partial(torch.optim.SGD, lr=1)\ndef build(): return MAKE([W])", "MAKE([W])"),
    ("def build(): return next(map(torch.optim.Adam, [[W]]))", "next(map(torch.optim.Adam, [[W]]))"),
    ("class Mine(torch.optim.SGD): ...\ndef build(): return Mine([W], lr=1)", "Mine([W], lr=1)"),
    (
        "class Mine(torch.optim.SGD):\n    def __init__(self, params):\n        super().__init__(params, lr=1)\n"
        "class More(Mine):\n    def __init__(*args):\n        super(More, args[0]).__init__([W])\n"
        "def build(): return More()",
        "More()",
    ),
    (
        "class Mine(torch.optim.Optimizer):\n    def __init__(self, params):\n        self.set_up(params)\n"
        "    def set_up(self, params): super().__init__(params, {})\n"
        "def build(): return Mine([W])",
        "Mine([W])",
    ),
    (
        "class Trainer:\n    def __init__(self):\n        self.optimizer = torch.optim.Adam([W])\n"
        "def build(): return Trainer().optimizer",
        "torch.optim.Adam([W])",
    ),
    (
        "class Meta(type):\n    def __call__(cls, *args): return super().__call__(*args)\n"
        "class Mine(torch.optim.Adam, metaclass=Meta): ...\n"
        "def build(): return Mine([W])",
        "Mine([W])",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("code", "call"), OPTIMIZERS)
@pytest.mark.parametrize("overrides", [None, {"capturable": False}, {"foreach": True}])
def test_where_an_optimizer_was_built(project: Project, code: str, call: str, overrides: dict[str, Any] | None) -> None:
    user, text = module_of(project, code)
    with optimizers_built(overrides) as site_of:
        optimizer = user.build()
    assert text_at(text, site_of(optimizer)) == call
    assert site_of(torch.optim.SGD([user.W])) is None  # built afterwards


def test_the_users_calls_around_it(project: Project) -> None:
    user, text = module_of(
        project,
        """
class Mine(torch.optim.SGD):
    def __init__(self, params):
        super().__init__(params, lr=1)

def make(params):
    return Mine(params)

def build():
    return list(map(make, [[W]]))[0]
""",
    )
    with optimizers_built() as site_of:
        site = site_of(user.build())
    assert site is not None
    assert [text_at(text, s) for s in (site, site.stack[0])] == ["Mine(params)", "list(map(make, [[W]]))"]
    assert [text_at(text, s) for s in site.through] == ["super().__init__(params, lr=1)"]
    assert site.stack[1].path == str(Path(__file__).resolve())
    assert str(site).startswith("user_code.py:13, called from user_code.py:16, called from /")
    assert site == Site(site.path, site.line, site.end_line, site.column, site.end_column)


LOADERS = [
    ("def build(): return DataLoader(DATA, 2)", "DataLoader(DATA, 2)", []),
    ("class Mine(DataLoader): ...\ndef build(): return Mine(DATA)", "Mine(DATA)", []),
    (
        "class Mine(DataLoader):\n    def __init__(self, n):\n        super().__init__(DATA, batch_size=n)\n"
        "def build(): return Mine(2)",
        "Mine(2)",
        ["super().__init__(DATA, batch_size=n)"],
    ),
]


@pytest.mark.parametrize(("code", "call", "through"), LOADERS)
def test_where_a_loader_was_built(project: Project, code: str, call: str, through: list[str]) -> None:
    user, text = module_of(project, code)
    with loaders_built({}) as site_of:
        site = site_of(user.build())
    assert site is not None
    assert text_at(text, site) == call
    assert [text_at(text, s) for s in site.through] == through


@pytest.mark.parametrize(
    ("arguments", "overrides", "built"),
    [
        ("2", {"batch_size": 4}, {"batch_size": 4, "num_workers": 0}),
        ("num_workers=2, prefetch_factor=4", {"num_workers": 0}, {"num_workers": 0, "prefetch_factor": None}),
        ("num_workers=2, persistent_workers=True, timeout=5", {"num_workers": 0}, {"persistent_workers": False, "timeout": 0}),
        ("2", {"num_workers": 1, "prefetch_factor": 3}, {"batch_size": 2, "num_workers": 1, "prefetch_factor": 3}),
        ("batch_sampler=[[0, 1]]", {"batch_size": 4, "pin_memory": True}, {"batch_size": None, "pin_memory": True}),
        ("batch_size=None", {"batch_size": 4}, {"batch_size": None}),
        ("num_workers=1, prefetch_factor=7", {}, {"num_workers": 1, "prefetch_factor": 7}),
    ],
)  # fmt: skip
def test_loaders_built_otherwise(
    project: Project, arguments: str, overrides: dict[str, Any], built: dict[str, Any]
) -> None:
    user, _ = module_of(project, f"def build(): return DataLoader(DATA, {arguments})")
    with loaders_built(overrides):
        loader = user.build()
    assert {name: getattr(loader, name) for name in built} == built


def test_an_argument_that_no_loader_has() -> None:
    with pytest.raises(TypeError, match="DataLoader takes no speed"), loaders_built({"speed": 1}):
        pass


@pytest.mark.parametrize(
    ("call", "overrides", "built"),
    [
        ("torch.optim.AdamW([W], 1.0)", {"fused": True}, {"lr": 1.0, "fused": True, "foreach": None}),
        ("torch.optim.AdamW([W], foreach=True)", {"fused": True}, {"fused": True, "foreach": None}),
        ("torch.optim.SGD([W], fused=True)", {"foreach": True}, {"fused": None, "foreach": True}),
        ("torch.optim.SGD([W], foreach=True)", {"fused": False}, {"fused": False, "foreach": True}),
        ("torch.optim.Adam([W])", {"fused": False, "foreach": True}, {"fused": False, "foreach": True}),
        ("torch.optim.SGD([W])", {"fused": True, "capturable": True}, {"fused": True}),  # SGD cannot be captured
        ("torch.optim.LBFGS([W])", {"fused": True}, {"lr": 1}),  # names none of it
        ("torch.optim.SGD([W], foreach=True)", {}, {"foreach": True}),
        ("Mine([W])", {"fused": True}, {"lr": 2, "fused": True}),
        ("Strict([W])", {"fused": True}, {"lr": 3, "fused": True}),
    ],
)
def test_optimizers_built_otherwise(
    project: Project, call: str, overrides: dict[str, Any], built: dict[str, Any]
) -> None:
    user, _ = module_of(
        project,
        f"""
class Mine(torch.optim.AdamW):
    def __init__(self, params, **kwargs):
        super().__init__(params, lr=2, **kwargs)

class Strict(torch.optim.SGD):
    def __init__(self, params):
        super().__init__(params, lr=3, foreach=True)

def build(): return {call}
""",
    )
    with optimizers_built(overrides):
        optimizer = user.build()
    assert {name: optimizer.defaults[name] for name in built} == built


def test_constructors_look_and_are_put_back() -> None:
    kinds = [torch.optim.Optimizer, torch.optim.AdamW, torch.utils.data.DataLoader]
    before = [(kind.__init__, inspect.signature(kind)) for kind in kinds]
    with pytest.raises(KeyError), optimizers_built({"fused": True}), loaders_built({}):
        assert "fused" in inspect.signature(torch.optim.AdamW).parameters  # as training code asks
        assert [inspect.signature(kind) for kind in kinds] == [signature for _, signature in before]
        with pytest.raises(TypeError, match="missing 1 required positional argument: 'params'"):
            torch.optim.AdamW()
        raise KeyError
    assert [(kind.__init__, inspect.signature(kind)) for kind in kinds] == before
