"""Findings that depend on what other files of the project say."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from perfaudit.rules import all_rules
from perfaudit.static.project import Project
from perfaudit.static.registry import run_checks
from perfaudit.static.source import Source

Folder = Callable[..., Path]

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


@pytest.mark.parametrize(
    ("other", "severity"),
    [
        ("import net\nCONFIG = {'image_size': 32, 'patch_size': 4}", "hint"),
        ("import net\nCONFIG = {'image_size': 224, 'patch_size': 16}", "warning"),
        ("import net\nclass Net:\n    def __init__(self, img_size=(32, 32), patch_size=2): ...", "warning"),
        ("CONFIG = {'image_size': 32, 'patch_size': 4}", "warning"),  # nothing joins the two
    ],
)
def test_patches_that_another_file_cuts(project: Folder, other: str, severity: str) -> None:
    text = f"{ATTENTION}\n# patches of an image\n"
    folder = project(**{"net.py": text, "train.py": other})
    neighbours = Project(sorted(folder.glob("*.py"))).seen_from(folder / "net.py")
    (finding,) = run_checks(Source("net.py", text, neighbours), all_rules(), frozenset(["PA203"]))
    assert finding.severity == severity


WINDOWS = """
import torch
from torch import nn

class WindowAttention(nn.Module):
    def __init__(self, width, window_size, heads):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.bias = nn.Parameter(torch.zeros(heads, window_size * window_size, window_size * window_size))

    def forward(self, x):
        q, k, v = self.qkv(x).reshape(x.shape[0], x.shape[1], 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        weights = (q @ k.transpose(-2, -1) + self.bias).softmax(dim=-1)
        return (weights @ v).transpose(1, 2).flatten(2)
"""


@pytest.mark.parametrize(
    ("block", "network", "severity"),
    [
        ("def __init__(self, width, window_size=7): ...", "pass", "hint"),
        ("def __init__(self, width, window_size): ...", "Block(96, window_size=8)", "hint"),
        ("def __init__(self, width, window_size=7): ...", "Block(96, window_size=12)", "warning"),
        ("def __init__(self, width, window_size=7): ...", "Block(96, window_size=int(argv[1]))", "warning"),
        ("def __init__(self, width, window_size): ...", "pass", "warning"),  # nobody says one
    ],
)
def test_windows_whose_size_other_files_name(project: Folder, block: str, network: str, severity: str) -> None:
    block = f"from windows import WindowAttention\nclass Block:\n    {block}\n"
    network = f"from sys import argv\nfrom block import Block\n{network}\n"
    folder = project(**{"windows.py": WINDOWS, "block.py": block, "network.py": network})
    neighbours = Project(sorted(folder.glob("*.py"))).seen_from(folder / "windows.py")
    (finding,) = run_checks(Source("windows.py", WINDOWS, neighbours), all_rules(), frozenset(["PA203"]))
    assert finding.severity == severity


ASKED_FOR = """
import torch
from torch import nn

class Attention(nn.Module):
    def __init__(self, output_attention=False):
        super().__init__()
        self.output_attention = output_attention

    def forward(self, q, k, v):
        weights = (q @ k.transpose(-2, -1)).softmax(dim=-1)
        out = weights @ v
        return (out, weights) if self.output_attention else (out, None)
"""


@pytest.mark.parametrize(
    ("other", "is_silent"),
    [
        ("from net import Attention\nlayer = Attention(output_attention=True)", True),
        (
            "from net import Attention\ndef build(asked=True):\n    return Attention(output_attention=asked)",
            True,
        ),
        ("from net import Attention\nlayer = Attention(output_attention=False)", False),
        (
            "from net import Attention\ndef build(output_attention):\n    return Attention(output_attention=output_attention)",
            False,
        ),
        ("from net import Attention\nlayer = Other(output_attention=True)", False),
        ("layer = Attention(output_attention=True)", False),  # another class: nothing joins the two
    ],
)
def test_weights_of_an_attention_that_another_file_asks_for(project: Folder, other: str, is_silent: bool) -> None:
    folder = project(**{"net.py": ASKED_FOR, "train.py": other})
    neighbours = Project(sorted(folder.glob("*.py"))).seen_from(folder / "net.py")
    found = run_checks(Source("net.py", ASKED_FOR, neighbours), all_rules(), frozenset(["PA203"]))
    assert (not found) is is_silent
