"""What other files of a project say: re-exports, star imports, subclasses, who imports whom."""

from __future__ import annotations

import ast
from collections.abc import Callable
from pathlib import Path

import pytest

from perfaudit import forked_work as workers
from perfaudit.forked_work import in_children
from perfaudit.rules import all_rules
from perfaudit.static.call_index import CallShape
from perfaudit.static.project import MAX_GLANCED, Project, glance
from perfaudit.static.registry import run_checks
from perfaudit.static.source import Source

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
    return source.qualified(source.nodes(ast.Call)[-1].func)


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
            "short.py": "import torch.nn.functional as G",
            "loop_a.py": "from loop_b import Conv",
            "loop_b.py": "from loop_a import Conv",
            "broken.py": "class Conv(",
            "pyproject.toml": "",
        }
    )
    assert qualified(folder, code) == name


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
    assert source.qualified(source.nodes(ast.Call)[-1].func) == name


def test_a_subclass_hands_arguments_to_its_loader() -> None:
    code = (
        "from torch.utils.data import DataLoader\nclass L(DataLoader):\n def __init__(s, d): super().__init__(d, 4)\n"
    )
    (call,) = Source("a.py", code).calls("torch.utils.data.DataLoader")
    assert call.lineno == 3


@pytest.mark.parametrize(
    ("text", "imports"),
    [
        (b"import a.b, c as d\n", ("a.b", "c", "d")),
        (b"from .x import (\n    y,\n    z as w,\n)\n", (".x", ".x.y", ".x.z", ".x.w")),
        (b"from . import y  # z\n", (".", ".y")),
        (b"def f():\n    from p import *\n", ("p", "p.*")),
        (b"x = 'import y'\nfromage = 1\n", ()),
    ],
)
def test_glance_at_imports(text: bytes, imports: tuple[str, ...]) -> None:
    assert glance(text).imports == imports


SIZE = 400_000  # bytes; a first look at 80 kB of dots took five minutes, at as much of `.to(` one

HOSTILE = {
    "dots": b"from " + b"." * SIZE + b"!import",
    "spaces": b"from" + b" " * SIZE + b"!import",
    "brackets": b"from a import (\n" * (SIZE // 16),
    "one bracket in the end": b"from a import (\n" * (SIZE // 16) + b")",
    "casts": b"half\n" + b".to(" * (SIZE // 4),
    "one line": b"x = 1; " + b"import " * (10 * SIZE // 7),
}


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_no_text_takes_a_first_look_for_long(text: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """The scan itself takes it, not a child of it that has limits."""
    monkeypatch.setattr(workers, "CPU_SECONDS", 5)
    ((_, seen),) = in_children(glance, [text])
    assert not isinstance(seen, workers.Lost)


def test_a_first_look_sees_so_much_and_no_more() -> None:
    """A prefix of a megabyte before each of as many names would be a terabyte."""
    names = b", ".join(b"a%d" % number for number in range(MAX_GLANCED + 10))
    seen = glance(b"from " + b"m" * 250 + b" import " + names)
    assert len(seen.imports) == MAX_GLANCED
    assert glance(b"from " + b"m" * 251 + b" import a").imports == ()
    assert len(glance(b"".join(b"class a%d(b):\n" % n for n in range(MAX_GLANCED + 10))).subclasses) == MAX_GLANCED


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


def test_who_imports_whom(project: Folder) -> None:
    folder = project(
        **{
            "data.py": "import torch",
            "engine.py": "from data import loader",
            "train.py": "import engine\nmodel.cuda()",
            "alone.py": "model.cuda()",
        }
    )
    seen = Project(sorted(folder.glob("*.py")))
    assert seen.seen_from(folder / "data.py").is_imported_by_a_marked_file("accelerator")
    assert not seen.seen_from(folder / "alone.py").is_imported_by_a_marked_file("accelerator")
    asked = seen.seen_from(folder / "data.py")
    asked.is_imported_by_a_marked_file("accelerator")
    assert asked.asked.imports


def test_a_package_that_hands_on_what_says_torch_is_asked(project: Folder) -> None:
    folder = project(
        **{
            "net/__init__.py": "from .tracker import Tracker",
            "net/tracker.py": "import torch",
            "plain/__init__.py": "from .words import Word\nfrom plain import Word",
            "plain/words.py": "import re",
            "train.py": "from net import Tracker",
        }
    )
    seen = Project(sorted(folder.rglob("*.py"))).seen_from(folder / "train.py")
    assert seen.imports_a_marked_file("torch", ["net", "net.Tracker"])
    assert str(folder / "net" / "tracker.py") in seen.asked.files
    assert not seen.imports_a_marked_file("torch", ["plain", "plain.Word"])


def test_a_program_is_who_imports_and_what_they_import(project: Folder) -> None:
    folder = project(
        **{
            "data.py": "import torch",
            "train.py": "import data, engine",
            "engine.py": "batch.cuda()",
            "alone.py": "import json",
        }
    )
    seen = Project(sorted(folder.glob("*.py")))
    assert seen.seen_from(folder / "data.py").program_carries("accelerator")
    assert seen.seen_from(folder / "train.py").program_carries("accelerator")
    assert not seen.seen_from(folder / "engine.py").program_carries("accelerator")  # what others do; it is that file
    assert not seen.seen_from(folder / "alone.py").program_carries("accelerator")


def test_calls_by_importers(project: Folder) -> None:
    folder = project(
        **{
            "data.py": "def make(n=0): ...",
            "train.py": "import data\ndata.make(4)",
            "other.py": "make(1, 2)",
            "broken.py": "import data\nmake(",
        }
    )
    project_of_scan = Project(sorted(folder.glob("*.py")))
    neighbours = project_of_scan.seen_from(folder / "data.py")
    assert neighbours.calls_by_importers("make") == [CallShape(1)]
    assert neighbours.asked.importers
    before = project_of_scan.digest_of_importers(str(folder / "data.py"))
    (folder / "broken.py").write_text("import data\ndata.make(n=4)")
    changed = Project(sorted(folder.glob("*.py")))
    assert changed.digest_of_importers(str(folder / "data.py")) != before
    shapes = changed.seen_from(folder / "data.py").calls_by_importers("make")
    assert shapes == [CallShape(0, frozenset({"n"})), CallShape(1)]


def test_some_file(project: Folder) -> None:
    folder = project(**{"a.py": "m.bias", "b.py": "m.bias.zero_()", "c.py": "zero_()", "d.py": "m.bias ("})
    neighbours = Project(sorted(folder.glob("*.py"))).seen_from(folder / "a.py")

    def zeroes(source: Source) -> bool:
        return bool(source.calls(".zero_"))

    assert Path(neighbours.some_file("bias", zeroes)).name == "b.py"
    assert neighbours.asked.marks == {"bias"}
    assert Project([folder / "b.py"]).seen_from(folder / "b.py").some_file("bias", zeroes) == ""  # not of itself


def test_questions_share_what_they_need(project: Folder) -> None:
    """A file of which the shared fact does not hold is read once, whatever is asked besides."""
    folder = project(**{"a.py": "m.bias", "b.py": "m.bias", "c.py": "zero_(m.bias)", "d.py": "zero_(m.bias, 1)"})
    neighbours = Project(sorted(folder.glob("*.py"))).seen_from(folder / "a.py")
    read: list[str] = []

    def calls_something(source: Source) -> bool:
        read.append(Path(source.path).name)
        return bool(source.nodes(ast.Call))

    def passes_two(source: Source) -> bool:
        return any(len(call.args) == 2 for call in source.nodes(ast.Call))

    def passes_three(source: Source) -> bool:
        return any(len(call.args) == 3 for call in source.nodes(ast.Call))

    assert Path(neighbours.some_file("bias", passes_two, calls_something)).name == "d.py"
    assert neighbours.some_file("bias", passes_three, calls_something) == ""
    assert neighbours.some_relative("bias", passes_three, calls_something) == ""
    assert read == ["b.py", "c.py", "d.py"]


NET = "from torch import nn\nnet = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8))"
SETS = "from torch import nn\ndef init(net):\n    for m in net.modules():\n        m.bias.data.zero_()"


@pytest.mark.parametrize(
    ("files", "is_advice"),
    [
        ({"init.py": SETS}, True),  # beside it
        ({"lib/init.py": SETS, "train.py": ""}, True),  # below the same top, for files lie where both parts do
        ({"pyproject.toml": "", "lib/init.py": SETS}, True),
        ({"other/init.py": SETS}, False),  # a folder of projects, none of which knows the other
        ({"other/init.py": SETS, "other/setup.py": "", "a/setup.py": ""}, False),
        ({"other/init.py": SETS, "a/train.py": "import net\nfrom ..other import init"}, True),  # one program
        ({"init.py": "def f(m):\n    if m.bias is not None:\n        m.bias.data.zero_()"}, False),
        ({"init.py": SETS.replace("m.bias", "if isinstance(m, nn.BatchNorm2d): m.bias")}, False),
        ({"init.py": SETS.replace("m.bias", "if isinstance(m, nn.Conv3d): m.bias")}, False),
        ({"init.py": SETS.replace("m.bias", "if isinstance(m, (nn.Conv2d, nn.Linear)): m.bias")}, True),
        ({"init.py": SETS.replace("m.bias", "if isinstance(m, Block): m.bias")}, True),
    ],
)
def test_other_files_that_set_biases(project: Folder, files: dict[str, str], is_advice: bool) -> None:
    net = "net.py" if "init.py" in files else "a/net.py"
    folder = project(**{net: NET, **files})
    neighbours = Project(sorted(folder.rglob("*.py"))).seen_from(folder / net)
    source = Source(net, NET, neighbours)
    (finding,) = run_checks(source, all_rules(), frozenset(["PA201"]))
    assert finding.fix is not None
    assert (finding.fix.safety == "manual") is is_advice


ATTENTION = """
from torch import nn

class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.attend = nn.Softmax(dim=-1)

    def forward(self, q, k, v):
        attn = self.attend(q @ k.transpose(-2, -1))
        return attn @ v
"""


@pytest.mark.parametrize(
    ("other", "is_advice"),
    [
        ("for m in net.modules():\n    m.attend.register_forward_hook(keep)", True),
        ("for name, m in net.named_modules():\n    if 'attend' in name:\n        m.register_forward_hook(keep)", True),
        ("from torch import nn\nif isinstance(m, nn.Softmax):\n    m.register_full_backward_hook(keep)", True),
        ("net.layer4.register_forward_hook(keep)", False),
        ("net.layer4.attend(x)", False),
    ],
)
def test_hooks_on_an_attention(project: Folder, other: str, is_advice: bool) -> None:
    folder = project(**{"net.py": ATTENTION, "record.py": other})
    neighbours = Project(sorted(folder.glob("*.py"))).seen_from(folder / "net.py")
    (finding,) = run_checks(Source("net.py", ATTENTION, neighbours), all_rules(), frozenset(["PA203"]))
    assert finding.fix is not None
    assert (finding.fix.safety == "manual") is is_advice


PARALLEL = """
from torch import nn
from torch.nn.parallel import DataParallel as DP, DistributedDataParallel

class Gathering(nn.DataParallel):
    def __init__(self, module, output):
        super().__init__(module)

    def gather(self, outputs, device): ...

class Scattering(Gathering):
    def scatter(self, *args): ...

class Short(DP):
    def forward(self, x): ...

class Better(DistributedDataParallel): ...

class Mixed(Gathering, Logging): ...
"""


@pytest.mark.parametrize(
    ("code", "is_found"),
    [
        ("from lib import Scattering\nnet = Scattering(net)", True),
        ("import lib.parallel as p\nnet = p.Gathering(net, 0)", True),
        ("from lib.parallel import Short as S\nnet = S(net)", True),
        ("from lib import Gathering\nclass Mine(Gathering):\n    pass\nnet = Mine(net)", True),
        ("from lib import Better\nnet = Better(net)", False),
        ("from lib import Mixed\nnet = Mixed(net)", False),
        ("from elsewhere import Scattering\nnet = Scattering(net)", False),
    ],
)
def test_subclasses_of_data_parallel(project: Folder, code: str, is_found: bool) -> None:
    folder = project(**{"lib/__init__.py": "from .parallel import *", "lib/parallel.py": PARALLEL, "train.py": code})
    neighbours = Project(sorted(folder.rglob("*.py"))).seen_from(folder / "train.py")
    findings = run_checks(Source("train.py", code, neighbours), all_rules(), frozenset(["PA701"]))
    assert bool(findings) is is_found


MAKES = "from torch.utils.data import DataLoader\ndef make(dataset):\n    return DataLoader(dataset, batch_size=8)"


@pytest.mark.parametrize(
    ("train", "advice"),
    [
        ("from data import make\nfor x in make(ds):\n    step(x)", "`train.py`"),
        ("import data\ntrainer.fit(model, data.make(ds))", "`train.py`"),
        ("import data\nif __name__ == '__main__':\n    for x in data.make(ds):\n        step(x)", ""),
        ("import data\ndef main():\n    for x in data.make(ds):\n        step(x)", ""),
        ("for x in make(ds):\n    step(x)", ""),  # it does not import the loader
    ],
)
def test_a_script_without_a_main_guard(project: Folder, train: str, advice: str) -> None:
    folder = project(**{"data.py": MAKES, "train.py": train})
    neighbours = Project(sorted(folder.glob("*.py"))).seen_from(folder / "data.py")
    (finding,) = run_checks(Source("data.py", MAKES, neighbours), all_rules(), frozenset(["PA101"]))
    assert finding.fix is not None
    assert (finding.fix.safety == "manual") is bool(advice)
    assert advice in finding.fix.title


LOADERS = """
from torch.utils.data import DataLoader

def make_loader(dataset, num_workers=0):
    return DataLoader(dataset, batch_size=64, num_workers=num_workers)

def mean_of(dataset):
    return sum(x.mean() for x in DataLoader(dataset, num_workers=2))
"""


@pytest.mark.parametrize(
    ("train", "expected"),
    [
        ("import data\nfor x in data.make_loader(ds):\n    x.cuda()", [("PA101", 4), ("PA102", 4)]),
        ("import data\nfor x in data.make_loader(ds, 4):\n    x.cuda()", [("PA102", 4)]),
        ("import data\nfor x in data.make_loader(ds, **kw):\n    x.cuda()", [("PA102", 4)]),
        ("import data, engine\nengine.train(data.make_loader(ds))", [("PA101", 4), ("PA102", 4)]),
        ("import data\nfor x in data.make_loader(ds):\n    model(x)", [("PA101", 4)]),
        ("model.cuda()", [("PA101", 4)]),  # it does not import the loaders
    ],
)
def test_loaders_are_built_in_one_file_and_used_in_another(
    project: Folder, train: str, expected: list[tuple[str, int]]
) -> None:
    folder = project(**{"data.py": LOADERS, "engine.py": "def train(loader): batch.cuda()", "train.py": train})
    neighbours = Project(sorted(folder.glob("*.py"))).seen_from(folder / "data.py")
    source = Source("data.py", (folder / "data.py").read_text(), neighbours)
    findings = run_checks(source, all_rules(), frozenset(["PA101", "PA102"]))
    assert [(f.rule, f.location.line) for f in findings if f.location] == expected


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


@pytest.mark.parametrize(
    ("other", "safety"),
    [
        ("from net import Block\nBlock().attn.register_forward_hook(print)", "manual"),
        ("from net import Block\nblock = Block()\nblock.attn.forward = kept(block.attn.forward)", "manual"),
        ("from net import Block\nblock = Block()", "unsafe"),
    ],
)
def test_what_may_see_attention_weights_from_another_file(project: Folder, other: str, safety: str) -> None:
    code = (
        "from torch import nn\nclass Block(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        "        self.attn = nn.MultiheadAttention(64, 4)\n    def forward(self, x):\n"
        "        return self.attn(x, x, x)[0]\n"
    )
    folder = project(**{"show.py": other, "net.py": code})
    source = Source("net.py", code, Project([folder / "show.py", folder / "net.py"]).seen_from(folder / "net.py"))
    (finding,) = run_checks(source, all_rules(), frozenset(["PA208"]))
    assert finding.fix is not None and finding.fix.safety == safety
