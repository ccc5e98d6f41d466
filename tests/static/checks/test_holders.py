"""Which layers an initialiser meets: those of its own class and of what that builds, not those of a class beside it.

A bias that an initialiser only gives its first value is reported without an edit.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from perfaudit.rules import all_rules
from perfaudit.static.project import Project
from perfaudit.static.registry import run_checks
from perfaudit.static.source import Source

OTHER = """
class Other(nn.Module):
    def __init__(self{parameters}):
        super().__init__()
        {built}
        {initialised}
"""
LOOP = "for m in self.modules():\n            m.bias.data.zero_()"
RUNS = "\n\n    def forward(self, x):\n        return self.stages[0](x)"
NET = """
class Net({base}):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3)
        self.norm = nn.BatchNorm2d(8)

    def forward(self, x):
        return self.norm(self.conv(x))
"""
HEAD = "import torch\nfrom torch import nn\nfrom weights import init_weights\n"


def reports(other: str, base: str = "nn.Module") -> list[bool]:
    """Whether each report of PA201 comes with an edit."""
    found = run_checks(Source("a.py", HEAD + other + NET.format(base=base)), all_rules(), frozenset(["PA201"]))
    return [bool(finding.fix and finding.fix.edits) for finding in found]


@pytest.mark.parametrize(
    ("parameters", "built", "initialised", "meets"),
    [
        ("", "self.fc = nn.Linear(3, 4)", LOOP, False),
        ("", "self.net = Net()", LOOP, True),
        ("", "self.net = wide()", LOOP, False),
        (", block", "self.net = block()", LOOP, True),  # somebody may hand it the class
        (", net", "self.net = net", LOOP, True),
        (", net", "self.net = nn.Sequential(net)", LOOP, True),
        (", width=4", "self.width = width", LOOP, False),
        ("", "self.net = getattr(models, 'Net')()", LOOP, True),
        ("", "self.net = create_model('net')", LOOP, True),
        ("", "self.net = MODELS['net']()", LOOP, True),
        ("", "self.net = self.make_net()", LOOP, False),
        (", shape", "self.shape = (shape,)", LOOP, True),
        (", shape", "self.shape = (shape,)\n        self.scale = nn.Parameter(torch.ones(shape))", LOOP, False),
        ("", "self.stages = nn.ModuleList([nn.Linear(3, 4)])", LOOP + RUNS, False),  # which builds nothing
        ("", "self.stages = KINDS", LOOP + RUNS, True),  # a table of classes, of which the forward pass builds one
        ("", "self.stages = nn.ModuleList([nn.Linear(3, 4)])\n        self.stages = KINDS", LOOP + RUNS, True),
        ("", "pass", LOOP + RUNS.replace("forward", "built"), True),
        ("", "pass", LOOP + RUNS.replace("self.stages", "MODELS"), True),
        ("", "pass", LOOP.replace("self.modules()", "model.modules()"), True),
        (
            "",
            "pass",
            LOOP.replace("m.bias.data.zero_()", "if m.bias is not None:\n                m.bias.data.zero_()"),
            False,
        ),
    ],
)
def test_what_a_loop_over_its_own_modules_meets(parameters: str, built: str, initialised: str, meets: bool) -> None:
    assert reports(OTHER.format(parameters=parameters, built=built, initialised=initialised)) == (
        [False] if meets else [True]
    )


BLOCK = """
class Block(nn.Module):
    def __init__(self, layer=nn.Linear):
        super().__init__()
        self.layer = layer(3, 4)
"""


@pytest.mark.parametrize(("built", "meets"), [("Block()", False), ("Block(kind)", True), ("Block(layer=kind)", True)])
def test_a_parameter_that_keeps_its_default(built: str, meets: bool) -> None:
    other = OTHER.format(parameters=", kind=3", built=f"self.net = {built}", initialised=LOOP)
    assert reports(BLOCK + other) == ([False] if meets else [True])


def test_a_class_derived_from_it_is_met() -> None:
    assert reports(OTHER.format(parameters="", built="pass", initialised=LOOP), base="Other") == [False]


def test_a_method_given_to_apply_meets_its_own() -> None:
    method = OTHER.format(parameters="", built="self.apply(self.start)", initialised="") + (
        "\n    def start(self, m):\n        m.bias.data.zero_()\n"
    )
    assert reports(method) == [True]
    assert reports(method.replace("self.apply(self", "model.apply(self")) == [False]


def test_more_than_the_bias_hangs_on_it() -> None:
    ask = "for m in model.modules():\n            if m.bias is not None:\n                {}"
    bias_only = OTHER.format(parameters="", built="pass", initialised=ask.format("m.bias.data.zero_()"))
    weights = OTHER.format(
        parameters="", built="pass", initialised=ask.format("m.weight.data.normal_(); m.bias.data.zero_()")
    )
    assert (reports(bias_only), reports(weights)) == ([True], [])


def test_an_initialiser_of_another_module_that_is_given_its_own_parts() -> None:
    given = OTHER.format(parameters="", built="self.fc = nn.Linear(3, 4)", initialised="init_weights(self.fc)")
    assert reports(given) == [True]
    assert reports(given.replace("init_weights(self.fc)", "init_weights(model)")) == [False]
    assert reports(given.replace("nn.Linear(3, 4)", "Net()")) == [False]


@pytest.mark.parametrize(
    ("net", "other", "has_edit"),
    [
        ("", "", True),  # two models of one package know nothing of each other
        ("", "from net import Net\n", False),
        ("from other import Other\n", "", False),
        ("", "# block\n", False),  # whoever builds it may hand it a class of any file
    ],
)
def test_a_loop_in_another_file(tmp_path: Path, net: str, other: str, has_edit: bool) -> None:
    imports = "import torch\nfrom torch import nn\n"
    (tmp_path / "net.py").write_text(imports + net + NET.format(base="nn.Module"))
    given = (
        {"parameters": ", block", "built": "self.net = block()"}
        if "block" in other
        else {"parameters": "", "built": "pass"}
    )
    (tmp_path / "other.py").write_text(imports + other + OTHER.format(**given, initialised=LOOP))
    (tmp_path / "train.py").write_text("from net import Net\nfrom other import Other\nprint(Net(), Other())\n")
    path = tmp_path / "net.py"
    source = Source("net.py", path.read_text(), neighbours=Project(sorted(tmp_path.glob("*.py"))).seen_from(path))
    found = run_checks(source, all_rules(), frozenset(["PA201"]))
    assert [bool(finding.fix and finding.fix.edits) for finding in found] == [has_edit]


@pytest.mark.parametrize(
    ("script", "train", "has_edit"),
    [
        ("args = parser.parse_args()\n", "", True),  # a script of its own, as one of a collection has it
        ("args = parser.parse_args()\n", "import other\n", False),
        ("from net import Net\nargs = parser.parse_args()\n", "", False),
        ("def main():\n    args = parser.parse_args()\n", "", False),  # which somebody may load by its name
        ("", "", False),
    ],
)
def test_an_initialiser_of_any_model_in_a_script(tmp_path: Path, script: str, train: str, has_edit: bool) -> None:
    imports = "import argparse\nimport torch\nfrom torch import nn\nparser = argparse.ArgumentParser()\n"
    initialiser = "\n\ndef initialize_weights(net):\n    for m in net.modules():\n        m.bias.data.zero_()\n"
    (tmp_path / "net.py").write_text(imports + NET.format(base="nn.Module"))
    (tmp_path / "other.py").write_text(imports + script + initialiser)
    (tmp_path / "train.py").write_text(f"from net import Net\n{train}print(Net())\n")
    files = [tmp_path / name for name in ("net.py", "other.py", "train.py")]
    neighbours = Project(files, folders=[tmp_path]).seen_from(files[0])
    found = run_checks(Source("net.py", files[0].read_text(), neighbours), all_rules(), frozenset(["PA201"]))
    assert [bool(finding.fix and finding.fix.edits) for finding in found] == [has_edit]
