"""What imported names stand for: re-exports, star imports, subclasses, what a script adds to the search path."""

from __future__ import annotations

import ast
from collections.abc import Callable
from pathlib import Path

import pytest

from perfaudit.rules import all_rules
from perfaudit.static.project import Project
from perfaudit.static.project.update_words import may_update_weights
from perfaudit.static.registry import run_checks
from perfaudit.static.source import Source
from perfaudit.static.understanding.names import is_like_an_optimizer

Folder = Callable[..., Path]

LAYERS = """
    import torch.nn as nn
    from torch.nn import functional as F, Conv1d
    from torch.utils.data import DataLoader

    class Loader(DataLoader):
        pass

    class Handing(DataLoader):
        def __init__(self, *args, **kwargs):
            super().__init__(*args, **kwargs)

    class Older(DataLoader):
        def __init__(self, *args, **kwargs):
            super(Older, self).__init__(*args, **kwargs)
            self.collate_fn = collate

    class Other(DataLoader):
        def __init__(self, dataset):
            super().__init__(dataset, num_workers=4)

    class Changing(DataLoader):
        def __init__(self, *args, **kwargs):
            kwargs["num_workers"] = 4
            super().__init__(*args, **kwargs)

    class Conv(nn.Conv2d):
        '''A convolution under another name.'''

    class Scaled(nn.Conv2d):
        def forward(self, x):
            return self._conv_forward(x, self.weight * 2, None)

    class Second(Loader): ...
"""


def qualified(folder: Path, code: str, name: str = "train.py") -> str | None:
    """What the function of the last call in a file stands for."""
    files = [path for path in folder.rglob("*.py") if path.name != name]
    source = Source(name, code, Project([*files, folder / name]).seen_from(folder / name))
    return source.qualified_name(source.nodes(ast.Call)[-1].func)


@pytest.mark.parametrize(
    ("code", "name"),
    [
        ("from layers import Conv\nConv(1, 2, 3)", "torch.nn.Conv2d"),
        ("from layers import Loader as L\nL(ds)", "torch.utils.data.DataLoader"),
        ("from layers import Handing\nHanding(ds)", "torch.utils.data.DataLoader"),
        ("from layers import Older\nOlder(ds)", "torch.utils.data.DataLoader"),
        ("from layers import Second\nSecond(ds)", "torch.utils.data.DataLoader"),
        ("from layers import Conv1d\nConv1d(1, 2, 3)", "torch.nn.Conv1d"),
        ("from layers import nn\nnn.Conv3d(1, 2, 3)", "torch.nn.Conv3d"),
        ("import layers\nlayers.Conv(1, 2, 3)", "torch.nn.Conv2d"),
        ("import layers as l\nl.nn.Linear(1, 2)", "torch.nn.Linear"),
        ("from layers import *\nnn.Linear(1, 2)", "torch.nn.Linear"),
        ("from layers import *\nLoader(ds)", "torch.utils.data.DataLoader"),
        ("from .layers import Conv\nConv(1, 2, 3)", "torch.nn.Conv2d"),
        ("from . import layers\nlayers.Conv(1, 2, 3)", "torch.nn.Conv2d"),
        ("from pack import Conv\nConv(1, 2, 3)", "torch.nn.Conv2d"),
        ("from short import G\nG.relu(x)", "torch.nn.functional.relu"),
        ("from pack.inner import F\nF.relu(x)", "torch.nn.functional.relu"),
        ("from layers import Other\nOther(ds)", "layers.Other"),
        ("from layers import Changing\nChanging(ds)", "layers.Changing"),
        ("from layers import Scaled\nScaled(1, 2, 3)", "layers.Scaled"),
        ("from elsewhere import Conv\nConv(1, 2, 3)", "elsewhere.Conv"),
        ("from loop_a import Conv\nConv(1)", "loop_a.Conv"),
        ("from broken import Conv\nConv(1)", "broken.Conv"),
        ("from starred import Conv\nConv(1, 2, 3)", "torch.nn.Conv2d"),
        ("from starred import *\nConv(1, 2, 3)", "torch.nn.Conv2d"),
        ("from layers import *\ndef nn(): ...\nnn()", None),
        ("from layers import Conv\nConv = make()\nConv(1)", None),
    ],
)
def test_names_of_other_files(project: Folder, code: str, name: str | None) -> None:
    folder = project(
        **{
            "layers.py": LAYERS,
            "pack/__init__.py": "from .inner import Conv",
            "pack/inner.py": "from layers import *\nfrom layers import Conv, F",
            "starred/__init__.py": "from .inner import *\nfrom .others import *",
            "starred/inner.py": LAYERS,
            "starred/others.py": "def conv(x): ...",
            "short.py": "import torch.nn.functional as G",
            "loop_a.py": "from loop_b import Conv",
            "loop_b.py": "from loop_a import Conv",
            "broken.py": "class Conv(",
            "pyproject.toml": "",
        }
    )
    assert qualified(folder, code) == name


def test_hundreds_of_star_imports_are_read_once(project: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    files = {f"lib/m{n}.py": f"import torch.nn as nn\nclass Conv{n}(nn.Conv2d): ..." for n in range(100)}
    stars = "".join(f"from .m{n} import *\n" for n in range(100))
    folder = project(**files, **{"lib/__init__.py": stars, "top.py": "from lib import *", "pyproject.toml": ""})
    names = Project(sorted(folder.rglob("*.py"))).seen_from(folder / "train.py")
    assert names.torch_name("top.Conv7") == "torch.nn.Conv2d"
    asked = []
    monkeypatch.setattr(
        Project, "glance", lambda self, path, real=Project.glance: asked.append(path) or real(self, path)
    )
    assert [names.torch_name(f"top.Other{n}") for n in range(50)] == [""] * 50
    assert len(asked) < 2 * 100 + 2 * 50
    assert {str(folder / f"lib/m{n}.py") for n in range(100)} <= names.asked.files  # tomorrow one of them may bind it


@pytest.mark.parametrize(
    ("line", "is_found"),
    [
        ("sys.path.append('core')", True),
        ("sys.path.insert(0, 'core')", True),
        ("sys.path.append('./core/')", True),
        ("sys.path.append(name)", False),
        ("name = osp.join(this_dir, 'core')\nsys.path.insert(0, name)", True),
        ("name = os.path.join(os.path.dirname(__file__), 'core')\nsys.path.append(name)", True),
        ("name = osp.join(this_dir, '..', 'inside/core')\nsys.path.insert(0, name)", True),
        ("name = osp.join(this_dir, '..', 'outside')\nsys.path.insert(0, name)", False),
        ("name = osp.join(this_dir, 'core')\nprint(sys.path)", False),
        ("sys.path.append('../outside')", False),  # of the project nothing is known there
        ("", False),
    ],
)
def test_what_a_script_adds_to_the_search_path(project: Folder, line: str, is_found: bool) -> None:
    layers = "import torch.nn as nn\nclass Conv(nn.Conv2d): pass\n"
    root = project(**{
        "inside/pyproject.toml": "", "inside/core/layers.py": layers, "outside/layers.py": layers,
        "inside/train.py": f"import sys\n{line}\nfrom layers import Conv\nConv(3, 8)\n",
    })  # fmt: skip
    path = root / "inside" / "train.py"
    neighbours = Project(sorted((root / "inside").rglob("*.py"))).seen_from(path)
    source = Source("train.py", path.read_text(), neighbours=neighbours)
    assert bool(source.calls("torch.nn.Conv2d")) is is_found


RENAMED = """
    from torch.nn import Conv2d as C, BatchNorm2d as N
    from torch.autograd import set_detect_anomaly as dbg
    from torch.utils.checkpoint import checkpoint as ck
"""


@pytest.mark.parametrize(
    ("rule", "code"),
    [
        ("PA201", "from torch import nn\nfrom lib import C, N\nnet = nn.Sequential(C(3, 8, 3), N(8))"),
        ("PA201", "from torch import nn\nimport lib\nnet = nn.Sequential(lib.C(3, 8, 3), lib.N(8))"),
        ("PA501", "from lib import dbg\ndbg(True)"),
        ("PA802", "import lib as tools\ny = tools.ck(run, x, use_reentrant=True)"),
    ],
)
def test_names_of_torch_that_the_file_never_spells(project: Folder, rule: str, code: str) -> None:
    folder = project(**{"lib.py": RENAMED})
    source = Source("net.py", code, Project([folder / "lib.py", folder / "net.py"]).seen_from(folder / "net.py"))
    assert [f.rule for f in run_checks(source, all_rules(), frozenset([rule]))] == [rule]


def test_whether_the_file_that_a_class_comes_from_may_update_weights(project: Folder) -> None:
    """A file that hands the class on may have it from one that does; what is installed does nothing."""
    folder = project(
        **{
            "trains.py": "class Base:\n    def fit(self):\n        loss.backward ()",
            "handed.py": "class Base:\n    def fit(self):\n        update(self.solver, loss)",
            "computes.py": "class Base:\n    def forward(self, x, option, optimal):\n        return x",
            "given.py": "from trains import Other, \\\n    Base",
            "starred.py": "from computes import *",
            "told.py": "class Base:  # as loss.backward() does\n    '''Of an optimizer, it says.'''",
            "model.py": "",
        }
    )
    seen = Project(sorted(folder.glob("*.py"))).seen_from(folder / "model.py")
    names = ("trains", "handed", "computes", "given", "starred", "told", "os")
    assert [name for name in names if not seen.may_have_updates(f"{name}.Base")] == ["computes", "told", "os"]
    assert {Path(path).stem for path in seen.asked.files} == set(names) - {"os"}


def test_whether_the_file_that_a_function_comes_from_may_update_weights(project: Folder) -> None:
    """A method or another function by such a name beside it is not what is imported."""
    folder = project(
        **{
            "trains.py": "async def run():\n    optimizer.step()",
            "computes.py": "def run(x):\n    return x",
            "method.py": "from trains import run\n\nclass Plot:\n    def run(self): ...",
            "longer.py": "from trains import run\n\ndef run_all(): ...",
            "chosen.py": "try:\n    from trains import run\nexcept ImportError:\n    def run(): ...",
            "model.py": "",
        }
    )
    seen = Project(sorted(folder.glob("*.py"))).seen_from(folder / "model.py")
    names = ("trains", "computes", "method", "longer", "chosen")
    assert [name for name in names if not seen.may_have_updates(f"{name}.run")] == ["computes"]


@pytest.mark.parametrize(
    "name", ["opt", "self.optimizerD", "optimizer_generator", "self.Optimizer", "scaler", "adam_1", "sgd"]
)
def test_every_name_of_an_optimizer_that_is_handed_on_is_seen_in_the_bytes(name: str) -> None:
    assert is_like_an_optimizer(name.rpartition(".")[2])
    assert may_update_weights(f"update({name}, loss)".encode())
    assert not may_update_weights(b"update(model, loss)")


@pytest.mark.parametrize(
    ("init", "is_found"),
    [
        ("from .losses import *", True),
        ("from .layers import *\nfrom .losses import *", True),
        ("from .losses import *\nfrom .layers import *", True),  # which binds no such name
        ("from .losses import *\nfrom .others import *", False),  # which binds another function
        ("from .losses import *\nfrom .unsure import *", False),
        ("from .losses import *\nfrom library import *", False),
        ("from .losses import *\nmean_of = None", False),
        ("from .losses import *\nfrom library import mean_of", False),
        ("from .circle import *", False),
        ("from . import *", False),
        ("from .losses import *\nfrom .through import *", False),  # which may take it from a package that is installed
        ("from .losses import *\nfrom .perhaps import *", False),
        ("from .losses import *\nfrom .listing import *", False),  # another function, which its list names
        ("try:\n    from .others import *\nexcept ImportError:\n    from .losses import *", False),
        ("import sys\nif sys.argv[1:]:\n    from .losses import *", False),
    ],
)
def test_a_function_that_a_package_takes_with_all_of_a_module(project: Folder, init: str, *, is_found: bool) -> None:
    package = {
        "losses": "def mean_of(loss):\n    return loss.mean().item()\n",
        "layers": "def build():\n    pass\n",
        "others": "def mean_of(loss):\n    return loss\n",
        "unsure": "from .others import mean_of\n__all__ = names()\n",
        "circle": "from . import *\n",
        "through": "from library.losses import *\n",
        "perhaps": "from .unsure import *\n",
        "listing": "from .others import *\n__all__ = ['mean_of']\n",
    }
    folder = project(
        **{f"parts/{name}.py": text for name, text in package.items()}, **{"parts/__init__.py": init, "train.py": ""}
    )
    neighbours = Project(sorted(folder.rglob("*.py"))).seen_from(folder / "train.py")
    found = neighbours.definition_of("parts.mean_of")
    assert (found is not None and "item" in found[0].text) is is_found
