# ruff: noqa: E501 - a row of a table is one line, so that texts can be compared
"""Where the parts of a training were built: the user's own call, however many constructors and helpers lie between."""

from __future__ import annotations

import importlib.util
import inspect
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from perfaudit.target.built_otherwise import loaders_built, optimizers_built
from perfaudit.target.construction import anything_built, modules_built
from perfaudit.target.names import Target
from perfaudit.target.provenance import Site, is_library, site_as_json, span
from perfaudit.training.factory_training import FactoryTraining

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


BLOCK = """
import copy, pickle
from torch import nn

class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.layer = nn.Linear(width, width)

class Wide(nn.Linear):
    def __init__(self, width):
        super().__init__(width, width, bias=False)

"""

MODULES = [  # code that defines `build()`, and the call that is found for what it returns
    ("def build(): return nn.Linear(1, 2)", "nn.Linear(1, 2)"),
    ("def build(): return Block(3)", "Block(3)"),
    ("def build(): return Block(3).layer", "nn.Linear(width, width)"),
    ("def build(): return Wide(3)", "Wide(3)"),
    ("def make(kind, *sizes): return kind(*sizes)\ndef build(): return make(nn.Linear, 1, 2)", "kind(*sizes)"),
    ("def build(): return nn.ModuleList([nn.Linear(1, n) for n in (1, 2)])[1]", "nn.Linear(1, n)"),
    ("def build(): return nn.ModuleList(nn.Linear(1, n) for n in (1, 2))[1]", "nn.Linear(1, n)"),
    ("def build(): return nn.Sequential(\n    Block(1),\n    nn.ReLU(),\n)", "nn.Sequential(\n    Block(1),\n    nn.ReLU(),\n)"),
    ("MAKE = functools.partial(nn.Linear, 2)\ndef build(): return MAKE(3)", "MAKE(3)"),
    ("def kind_of(base):\n    class Made(base): ...\n    return Made\ndef build(): return kind_of(Block)(4)", "kind_of(Block)(4)"),
    ("def shown(f):\n    @functools.wraps(f)\n    def inner(*a): return f(*a)\n    return inner\n@shown\ndef build(): return Block(1)", "Block(1)"),
    ("@torch.no_grad()\ndef build(): return Block(1)", "Block(1)"),
    ("def build(): return build.cached()\nbuild.cached = functools.lru_cache(lambda: Block(1))", "Block(1)"),
    ("from dataclasses import dataclass\n@dataclass(eq=False)\nclass Data(nn.Module):\n    width: int\n    def __post_init__(self): super().__init__()\ndef build(): return Data(2)", "Data(2)"),
    ("class Meta(type):\n    def __call__(cls, *a): return super().__call__(*a)\nclass Made(Block, metaclass=Meta): ...\ndef build(): return Made(2)", "Made(2)"),
    ("class Old(nn.Linear):\n    def __init__(*args, **kwargs):\n        nn.Linear.__init__(*args, 2, **kwargs)\ndef build(): return Old(1)", "Old(1)"),
    ("class Still(nn.Module):\n    @torch.no_grad()\n    def __init__(self): super().__init__()\ndef build(): return Still()", "Still()"),
    ("é = 'ü'; build = lambda: nn.Linear(1, 2)", "nn.Linear(1, 2)"),
    ("def build(): return eval('Block(1)')", None),  # no text of the user's has its arguments
    ("def build():\n    names = {}\n    exec('from torch import nn\\nmodel = nn.Linear(1, 2)', names)\n    return names['model']", None),
    ("def build(): return copy.deepcopy(Block(1))", None),
    ("def build(): return pickle.loads(pickle.dumps(nn.Linear(1, 2)))", None),
    ("def build(): return nn.TransformerEncoderLayer(4, 1).linear1", None),  # built by a library
    ("def build(): return nn.TransformerEncoderLayer(4, 1)", "nn.TransformerEncoderLayer(4, 1)"),
    ("def build(): return nn.utils.skip_init(nn.Linear, 1, 2)", None),
]  # fmt: skip


@pytest.mark.parametrize(("code", "call"), MODULES)
def test_where_a_module_was_built(project: Project, code: str, call: str | None) -> None:
    with modules_built() as origins:
        user, text = module_of(project, BLOCK + code)
        built, again = user.build(), user.build()  # a factory that is called twice
    assert text_at(text, origins.of_module(built)) == call
    assert text_at(text, origins.of_module(again)) == call
    assert origins.of_module(torch.nn.Linear(1, 1)) is None  # built afterwards


def test_two_modules_of_one_line_and_their_ways_there(project: Project) -> None:
    with modules_built() as origins:
        user, text = module_of(project, BLOCK + "def build():\n    return Wide(1), Wide(1)")
        first, second = (origins.of_module(module) for module in user.build())
    assert first is not None and second is not None
    assert first.line == second.line and first.end_column < second.column
    assert [text_at(text, call) for call in first.calls[:2]] == [
        "super().__init__(width, width, bias=False)",
        "Wide(1)",
    ]
    assert span(first) == [
        first.path,
        *(getattr(first.through[0], n) for n in ("line", "end_line", "column", "end_column")),
    ]
    assert site_as_json(None) == {"site": None, "stack": []}


def test_a_copy_of_a_file_is_another_place(project: Project) -> None:
    sites = []
    for name in ("first_copy", "second_copy"):
        with modules_built() as origins:
            user, _ = module_of(project, BLOCK + "def build(): return Block(1)", name)
            sites.append(origins.of_module(user.build()))
    assert [Path(site.path).name for site in sites if site] == ["first_copy.py", "second_copy.py"]


COMPILED = [
    ("def build(): return torch.compile(Block(1))", "torch.compile(Block(1))"),
    ("def build():\n    model = Block(1)\n    model.compile(dynamic=False)\n    return model", "model.compile(dynamic=False)"),
    ("@torch.compile\ndef work(x): return x\ndef build(): return work", "torch.compile"),
    ("@torch.compile(dynamic=False)\ndef work(x): return x\ndef build(): return work", "torch.compile(dynamic=False)"),
    ("def fast(f, **kw): return torch.compile(f, **kw)\ndef build(): return fast(Block(1), dynamic=False)", "torch.compile(f, **kw)"),
    ("def build(): return Block(1)", None),
]  # fmt: skip


@pytest.mark.parametrize(("code", "call"), COMPILED)
def test_where_something_was_compiled(project: Project, code: str, call: str | None) -> None:
    original = torch.compile, torch.nn.Module.compile
    with modules_built() as origins:
        user, text = module_of(project, BLOCK + code)
        thing = user.build()
    assert text_at(text, origins.of_compiling(thing)) == call
    assert original == (torch.compile, torch.nn.Module.compile)


def test_what_the_users_code_puts_around_a_constructor_stays(project: Project) -> None:
    before = torch.nn.Module.__init__
    try:
        with modules_built() as origins:
            user, _ = module_of(
                project,
                BLOCK
                + "original, COUNT = nn.Module.__init__, []\n"
                + "def counted(self, *a, **k):\n    COUNT.append(self)\n    original(self, *a, **k)\n"
                + "nn.Module.__init__ = counted",
            )
        model = user.Block(1)
        assert len(user.COUNT) == 2
        assert origins.of_module(model) is None
    finally:
        torch.nn.Module.__init__ = before


AVERAGES = [
    ("class Ema:\n    def __init__(self, model): self.model = copy.deepcopy(model)\ndef build(): return Ema(Block(1))", "Ema(Block(1))"),
    ("class Base:\n    def __init__(self, m): self.m = m\nclass Ema(Base):\n    def __init__(self, m): super().__init__(m)\ndef make(m): return Ema(m)\ndef build(): return make(Block(1))", "Ema(m)"),
    ("from dataclasses import dataclass\n@dataclass\nclass Ema:\n    model: object\ndef build(): return Ema(Block(1))", "Ema(Block(1))"),
    ("from torch.optim.swa_utils import AveragedModel\ndef build(): return AveragedModel(Block(1))", "AveragedModel(Block(1))"),
    ("class Ema:\n    def __init__(self): ...\nEMA = Ema()\ndef build(): return EMA", None),  # before we looked
    ("class Ema:\n    def __init__(self): ...\ndef build(): return copy.copy(Ema())", None),
    ("import types\ndef build(): return types.SimpleNamespace(update=print)", None),  # no `__init__` in Python
]  # fmt: skip


@pytest.mark.parametrize(("code", "call"), AVERAGES)
def test_where_an_average_was_built(project: Project, code: str, call: str | None) -> None:
    user, text = module_of(project, BLOCK + code)
    with anything_built() as site_of:
        average = user.build()
    assert text_at(text, site_of(average)) == call
    assert sys.getprofile() is None


PROGRAM = """
import copy
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

class Ema:
    def __init__(self, model):
        self.model = copy.deepcopy(model)
    def update(self, model): ...

def block(width):
    return nn.Sequential(nn.Linear(width, width), nn.BatchNorm1d(width))

def build_model():
    return nn.Sequential(block(4), block(4), nn.Linear(4, 2))

def build_dataloader():
    return DataLoader(TensorDataset(torch.zeros(8, 4), torch.zeros(8, dtype=torch.long)), batch_size=4)

def build_optimizer(model):
    return torch.optim.SGD(model.parameters(), lr=0.1)

def build_ema(model):
    return Ema(model)

@torch.compile
def training_step(model, batch):
    return nn.functional.cross_entropy(model(batch[0]), batch[1])
"""


def test_twelve_of_twelve_parts_of_a_training(project: Project) -> None:
    path = project(**{"program_of_twelve.py": PROGRAM}) / "program_of_twelve.py"
    training = FactoryTraining(Target(str(path)), device="cpu")
    text = path.read_text()
    found = {name: text_at(text, site) for name, site in training.module_sites.items()}
    linear, norm, made = (
        "nn.Linear(width, width)",
        "nn.BatchNorm1d(width)",
        "nn.Sequential(nn.Linear(width, width), nn.BatchNorm1d(width))",
    )
    assert found == {
        "": "nn.Sequential(block(4), block(4), nn.Linear(4, 2))",
        "0": made, "0.0": linear, "0.1": norm,
        "1": made, "1.0": linear, "1.1": norm,
        "2": "nn.Linear(4, 2)",
    }  # fmt: skip
    around = [training.module_sites[name].stack[0] for name in ("0.0", "1.0")]
    assert [text_at(text, site) for site in around] == ["block(4)", "block(4)"]
    assert around[0].end_column < around[1].column  # the two blocks are told apart
    assert text_at(text, training.loader_site) == text.split("return ")[3].split("\n")[0]
    assert text_at(text, training.optimizer_site) == "torch.optim.SGD(model.parameters(), lr=0.1)"
    assert text_at(text, training.ema_site) == "Ema(model)"
    assert {name: text_at(text, site) for name, site in training.compiled_sites.items()} == {"step": "torch.compile"}


def test_a_library_that_pip_has_put_into_a_folder_of_pythonpath_is_not_the_user_s(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script, libraries, project = (tmp_path / name for name in ("script", "libraries", "project"))
    for folder in (script, libraries, project):
        folder.mkdir()
        (folder / "made.py").write_text("import torch\ndef make(): return torch.nn.Linear(1, 1)\n")
    (libraries / "somelib-1.0.dist-info").mkdir()
    monkeypatch.setattr(sys, "path", [str(script), str(libraries), str(project), *sys.path])
    assert is_library(str(libraries / "made.py"))
    assert not is_library(str(project / "made.py"))
    built_at = {}
    for folder in (libraries, project):
        spec = importlib.util.spec_from_file_location(f"made_in_{folder.name}", folder / "made.py")
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        with modules_built() as origins:
            site = origins.of_module(module.make())
        built_at[folder.name] = site.path if site is not None else None
    assert built_at == {"libraries": None, "project": str(project / "made.py")}
