"""What feeds what, as a table: code, and the links in it written "first > second", "first > second if flag".

A "?" behind the condition: it may have another value where the first layer is built.
"""

from __future__ import annotations

import ast

import pytest

from perfaudit.static.checks.conv_bias_before_norm.flow import Link, links
from perfaudit.static.checks.conv_bias_before_norm.layer_rows import elements, rows
from perfaudit.static.source import Source
from perfaudit.static.understanding.branches import branches, exclude_each_other, is_steady, text_where_all

HEAD = "import torch\nfrom torch import nn\nfrom collections import OrderedDict\n"


def all_links(source: Source) -> tuple[Link, ...]:
    """The links to every call, whatever it builds."""
    return links(source, frozenset(id(call) for call in source.nodes(ast.Call)))


def written(source: Source) -> list[str]:
    """Each link by the classes it joins; `Conv2d(3, 8, 3)` is "Conv2d" here."""

    def short(call: ast.Call) -> str:
        return source.text_of(call.func).removeprefix("nn.")

    return [
        f"{short(link.first.call)} > {short(link.second.call)}"
        + (f" if {text_where_all(source, link.where)}" if link.where else "")
        + ("" if all(is_steady(source, test, link.first.call) for test, _ in link.where) else " ?")
        for link in all_links(source)
    ]


IN_A_ROW = [
    ("nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU())", ["Conv2d > BatchNorm2d", "BatchNorm2d > ReLU"]),
    ("nn.Sequential(*[nn.Conv2d(3, 8, 3), nn.ReLU()])", ["Conv2d > ReLU"]),
    ("nn.Sequential(*([nn.Conv2d(3, 8, 3)] + [nn.ReLU()]))", ["Conv2d > ReLU"]),
    ("nn.Sequential(OrderedDict([('a', nn.Conv2d(3, 8, 3)), ('b', nn.ReLU())]))", ["Conv2d > ReLU"]),
    ("nn.Sequential(OrderedDict({'a': nn.Conv2d(3, 8, 3), 'b': nn.ReLU()}))", ["Conv2d > ReLU"]),
    ("nn.Sequential(nn.Conv2d(3, 8, 3), *more(), nn.ReLU())", []),  # something may come in between
    ("nn.Sequential(nn.Sequential(nn.Conv2d(3, 8, 3)), nn.ReLU())", ["Conv2d > ReLU"]),
    ("nn.ModuleList([nn.Conv2d(3, 8, 3), nn.ReLU()])", []),
    (
        "act = f()\nnn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU() if act else nn.GELU())",
        ["Conv2d > ReLU if act", "Conv2d > GELU if not act"],
    ),
    (
        "act = f()\nnn.Sequential(nn.Conv2d(3, 8, 3), *([nn.ReLU()] if act else []), nn.Tanh())",
        ["Conv2d > ReLU if act", "ReLU > Tanh"],
    ),
    (
        "nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU() if a == 1 else nn.Identity(), nn.Tanh())",
        ["Conv2d > ReLU if a == 1 ?"],
    ),
    # names and attributes
    ("conv = nn.Conv2d(3, 8, 3)\nconv.weight.data.zero_()\nnn.Sequential(conv, nn.ReLU())", ["Conv2d > ReLU"]),
    ("conv = nn.Conv2d(3, 8, 3)\nnn.Sequential(conv, nn.ReLU())\nnn.Sequential(conv, nn.Tanh())", []),
    # an opened Sequential
    ("net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU())\nnet[0].weight.data.zero_()", ["Conv2d > ReLU"]),
    ("net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU())\ny = net[0](x)", []),
    ("net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU())\nfor layer in net: x = layer(x)", []),
    ("net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU())\nnet = net.cuda()\ny = net[:1](x)", []),
    ("net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU())\ndef early(x):\n    return net[0](x)", []),
    ("net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU())\ndef run(x):\n    return net(x)", ["Conv2d > ReLU"]),
    ("layers = [nn.Conv2d(3, 8, 3), nn.ReLU()]\nlayers = nn.Sequential(*layers)\nlayers[0](x)", []),
    ("layers = [nn.Conv2d(3, 8, 3), nn.ReLU()]\nnet = nn.Sequential(*layers)\nnet[0](x)", []),
    # grown Sequentials and lists
    ("net = nn.Sequential()\nnet.add_module('a', nn.Conv2d(3, 8, 3))\nnet.append(nn.ReLU())", ["Conv2d > ReLU"]),
    ("net = nn.Sequential(nn.Conv2d(3, 8, 3))\nnet.append(nn.ReLU())\nnet.insert(1, nn.Tanh())", []),
    (
        "l = [nn.Conv2d(3, 8, 3)]\nl += [nn.ReLU()]\nl.append(nn.Tanh())\nnn.Sequential(*l)",
        ["Conv2d > ReLU", "ReLU > Tanh"],
    ),
    ("l = []\nl.extend([nn.Conv2d(3, 8, 3)])\nl = l + [nn.ReLU()]\nnn.Sequential(*l)", ["Conv2d > ReLU"]),
    ("l: list = [nn.Conv2d(3, 8, 3)]\nl.append(nn.ReLU())\nprint(len(l))\nnn.Sequential(*l)", ["Conv2d > ReLU"]),
    ("l = [nn.Conv2d(3, 8, 3)]\nm = [*l, nn.Tanh()]\nm += [nn.ReLU()]\nnn.Sequential(*m)", ["Tanh > ReLU"]),
    ("l = [nn.Conv2d(3, 8, 3), nn.ReLU()]\nl.pop()\nnn.Sequential(*l)", []),
    ("l = [nn.Conv2d(3, 8, 3), nn.ReLU()]\nchange(l)\nnn.Sequential(*l)", []),
    ("l = [nn.Conv2d(3, 8, 3), nn.ReLU()]\nnn.Sequential(*l)\nnn.Sequential(*l)", []),
    ("l = [nn.Conv2d(3, 8, 3)]\nnn.Sequential(*l)\nl.append(nn.ReLU())", []),
    ("l = [nn.Conv2d(3, 8, 3)]\nnn.Sequential(*l)\nl = [nn.ReLU(), nn.Tanh()]\nnn.Sequential(*l)", ["ReLU > Tanh"]),
    ("l = [nn.Conv2d(3, 8, 3), nn.ReLU()]", []),  # never a Sequential
    ("def f(l):\n    l += [nn.Conv2d(3, 8, 3), nn.ReLU()]\n    return nn.Sequential(*l)", []),
    ("l = [nn.Conv2d(3, 8, 3)]\ndef f():\n    l.append(nn.Tanh())\nl.append(nn.ReLU())\nnn.Sequential(*l)", []),
]

UNDER_CONDITIONS = [
    (
        "l = [nn.Conv2d(3, 8, 3)]\nif flag:\n    l.append(nn.ReLU())\nl.append(nn.Tanh())",
        ["Conv2d > ReLU if flag", "ReLU > Tanh"],
    ),
    ("l = [nn.Conv2d(3, 8, 3)]\nif not flag:\n    l.append(nn.ReLU())", ["Conv2d > ReLU if not flag"]),
    ("l = [nn.Conv2d(3, 8, 3)]\nif a.flag:\n    l.append(nn.ReLU())", ["Conv2d > ReLU if a.flag"]),
    ("l = [nn.Conv2d(3, 8, 3)]\na.flag = False\nif a.flag:\n    l.append(nn.ReLU())", ["Conv2d > ReLU if a.flag ?"]),
    ("l = [nn.Conv2d(3, 8, 3)]\nflag = 1\nif flag:\n    l.append(nn.ReLU())", ["Conv2d > ReLU if flag ?"]),
    ("l = [nn.Conv2d(3, 8, 3)]\nif flag:\n    pass\nelse:\n    l.append(nn.ReLU())", ["Conv2d > ReLU if not flag"]),
    (
        "l = []\nif flag:\n    l.append(nn.Conv2d(3, 8, 3))\nelse:\n    l.append(nn.Linear(3, 8))\nl.append(nn.ReLU())",
        ["Conv2d > ReLU", "Linear > ReLU"],
    ),
    ("l = []\nif flag:\n    l += [nn.Conv2d(3, 8, 3), nn.ReLU()]", ["Conv2d > ReLU"]),
    ("l = []\nif a:\n    l += [nn.Conv2d(3, 8, 3)]\nif b:\n    l += [nn.ReLU()]", []),
    (
        "l = []\nconv = nn.Conv2d(3, 8, 3)\nif flag:\n    l += [conv, nn.ReLU()]\nelse:\n    l += [conv, nn.Tanh()]",
        ["Conv2d > ReLU if flag", "Conv2d > Tanh if not flag"],
    ),
    # loops
    ("l = []\nfor i in n:\n    l += [nn.Conv2d(3, 8, 3)]\n    l += [nn.ReLU()]", ["Conv2d > ReLU"]),
    ("l = []\nfor i in n:\n    l += [nn.Conv2d(3, 8, 3)]\nl += [nn.ReLU()]", []),
    ("l = [nn.Conv2d(3, 8, 3)]\nfor i in n:\n    l += [nn.ReLU()]", []),
    ("l = []\nconv = nn.Conv2d(3, 8, 3)\nfor i in n:\n    l += [conv, nn.ReLU()]", []),
    ("l = []\nfor i in n:\n    l += [nn.Conv2d(3, 8, 3)]\n    if i: continue\n    l += [nn.ReLU()]", []),
    (
        "l = []\nfor i in n:\n    if i:\n        continue\n    l += [nn.Conv2d(3, 8, 3)]\n    l += [nn.ReLU()]",
        ["Conv2d > ReLU"],
    ),
]

BUILDERS = [
    ("def f(c):\n    return [nn.Conv2d(3, c, 3), nn.ReLU()]\nnn.Sequential(*f(8))", ["Conv2d > ReLU"]),
    ("def f(c):\n    return [nn.Conv2d(3, c, 3), nn.ReLU()]\nl = f(8)\nnn.Sequential(*l)", []),
    ("def f(c):\n    return [nn.Conv2d(3, c, 3), nn.ReLU()]\nl = []\nl += f(8)\nnn.Sequential(*l)", ["Conv2d > ReLU"]),
    ("def f(c):\n    return [nn.Conv2d(3, c, 3), nn.ReLU()]", []),
    ("def f(c):\n    return [nn.Conv2d(3, c, 3), nn.ReLU()]\nnn.Sequential(*f(8))\nnn.ModuleList(f(8))", []),
    (
        "def f(c):\n    l = [nn.Conv2d(3, c, 3)]\n    l.append(nn.ReLU())\n    return l\nnn.Sequential(*f(8), *f(9))",
        ["Conv2d > ReLU"],
    ),
    ("def f(c):\n    l = [nn.Conv2d(3, c, 3), nn.ReLU()]\n    return l, c\nnn.Sequential(*f(8)[0])", []),
    ("def f(c):\n    return [nn.Conv2d(3, c, 3), *f(c - 1)]\nnn.Sequential(*f(8))", []),
    (
        "class A:\n    def f(self):\n        return [nn.Conv2d(3, 8, 3), nn.ReLU()]\n"
        "    def __init__(self):\n        self.net = nn.Sequential(*self.f())",
        ["Conv2d > ReLU"],
    ),
    (
        "class A(nn.Sequential):\n    def __init__(self):\n        super().__init__(nn.Conv2d(3, 8, 3), nn.ReLU())",
        ["Conv2d > ReLU"],
    ),
    (
        "class A(nn.Sequential):\n    def __init__(self):\n        super().__init__()\n"
        "        self.add_module('conv', nn.Conv2d(3, 8, 3))\n        self.add_module('relu', nn.ReLU())",
        ["Conv2d > ReLU"],
    ),
    (
        "class A(nn.Sequential):\n    def __init__(self):\n        super().__init__(nn.Conv2d(3, 8, 3), nn.ReLU())\n"
        "    def forward(self, x):\n        return self[1](x)",
        [],
    ),
]


@pytest.mark.parametrize(("code", "expected"), [*IN_A_ROW, *BUILDERS])
def test_rows(code: str, expected: list[str]) -> None:
    assert written(Source("net.py", HEAD + code)) == expected


@pytest.mark.parametrize(("code", "expected"), UNDER_CONDITIONS)
def test_rows_under_conditions(code: str, expected: list[str]) -> None:
    lines = "".join(f"    {line}\n" for line in code.splitlines())
    function = f"def build(flag, a, b, n):\n{lines}    return nn.Sequential(*l)\n"
    assert written(Source("net.py", HEAD + function)) == expected


FORWARDS = [  # the body of forward, where self.a … self.d are layers
    ("return self.b(self.a(x))", ["A > B"]),
    ("x = self.a(x)\nx = self.b(x)\nreturn x", ["A > B"]),
    ("x = self.a(x)\nreturn self.b(x)", ["A > B"]),
    ("y = self.a(x)\nz = self.b(y)\nreturn z", ["A > B"]),
    ("y = self.a(x)\nlog(x)\ny = torch.relu(self.b(y))\nreturn y", ["A > B"]),
    ("y = self.a(x)\nz = self.b(y)\ny = self.c(z)\nreturn y", ["A > B", "B > C"]),
    ("with autocast():\n    x = self.a(x)\n    x = self.b(x)\nreturn x", ["A > B"]),
    ("for i in range(3):\n    x = self.a(x)\n    x = self.b(x)\nreturn x", ["A > B"]),
    ("if self.training:\n    return self.b(self.a(x))\nreturn x", ["A > B"]),
    # a second consumer, or none that is certain
    ("y = self.a(x)\nreturn self.b(y) + y", []),
    ("y = self.a(x)\nz = self.b(y)\nreturn z + y", []),
    ("y = self.a(x)\nlog(y)\ny = self.b(y)\nreturn y", []),
    ("y = x\nfor i in range(3):\n    x = self.a(y)\n    y = self.b(x)\nreturn x", []),
    ("x = self.a(x)\nif self.flag:\n    x = self.b(x)\nreturn x", []),
    ("x = self.a(x)\nx = self.b(x) if self.flag else x\nreturn x", []),
    ("x = self.a(x)\nx += 1\nx = self.b(x)\nreturn x", []),
    ("x = self.a(x)\nf = lambda: x\nx = self.b(x)\nreturn x", []),
    ("x = torch.relu(self.a(x))\nreturn self.b(x)", []),
    ("return self.b(torch.relu(self.a(x)))", []),
    ("return self.b(self.a(x)) + self.a(x)", []),
    ("return self.b(self.a(x)) + self.b(x)", []),
    ("return self.b(self.a(x), None)", []),
    ("return self.b(checkpoint(self.a, x))", []),
    ("x = y = self.a(x)\nx = self.b(x)\nreturn x + y", []),
]


@pytest.mark.parametrize(("body", "expected"), FORWARDS)
def test_layers_called_in_turn(body: str, expected: list[str]) -> None:
    assert written(Source("net.py", HEAD + module(body))) == expected


def module(forward: str, init: str = "", more: str = "") -> str:
    """A module with layers a to d of the classes A to D, and what is added to it."""
    built = "".join(f"        self.{name} = {name.upper()}(8)\n" for name in "abcd")
    extra = "".join(f"        {line}\n" for line in init.splitlines())
    body = "".join(f"        {line}\n" for line in forward.splitlines())
    return f"class Net(nn.Module):\n    def __init__(self):\n{built}{extra}    def forward(self, x):\n{body}{more}"


@pytest.mark.parametrize(
    ("init", "more", "linked"),
    [
        ("nn.init.zeros_(self.a.weight)", "", True),
        ("if self.a.bias is not None: self.a.bias.data.zero_()", "", True),
        ("self.a = A(9)", "", False),
        ("self.b = None", "", False),
        ("self.again = self.a", "", False),
        ("self.row = nn.Sequential(self.a)", "", False),
        ("self.a.register_forward_hook(print)", "", False),
        ("", "net.a = A(3)\n", False),
        ("", "hook(net, 'a')\n", False),
        ("", "x = net.a(x)\n", False),
        ("", "class Other(nn.Module):\n    def forward(self, x):\n        return self.a(x)\n", True),
        ("", "class Child(Net):\n    def forward(self, x):\n        return self.a(x)\n", False),
        ("", "    def taps(self):\n        return [getattr(self, n) for n in 'abc']\n", False),
        ("", "    def taps(self):\n        return list(self.children())\n", False),
    ],
)
def test_what_else_reaches_a_layer(init: str, more: str, linked: bool) -> None:
    source = Source("net.py", HEAD + module("return self.b(self.a(x))", init, more))
    assert written(source) == (["A > B"] if linked else [])


def test_a_layer_carries_the_name_that_holds_it() -> None:
    code = "s = nn.Sequential(OrderedDict([('in', nn.Conv2d(3, 8, 3)), ('act', nn.ReLU())]))\n" + module(
        "return self.b(self.a(x))"
    )
    assert [(link.first.name, link.second.name) for link in all_links(Source("net.py", HEAD + code))] == [
        ("in", "act"),
        ("a", "b"),
    ]


def test_rows_keep_what_cannot_be_read_as_none() -> None:
    source = Source("net.py", HEAD + "nn.Sequential(nn.ReLU(), *more, nn.Tanh())")
    assert [[item and source.text_of(item) for item in row] for row in rows(source, frozenset({id(source.tree)}))] == [
        ["nn.ReLU()", None, "nn.Tanh()"]
    ]


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("[a, b]", ["a", "b"]),
        ("(a,)", ["a"]),
        ("[a, *[b, c]] + [d]", ["a", "b", "c", "d"]),
        ("[a] if x else [b, c]", ["a", "b", "c"]),
        ("[a if x else b]", ["a", "b"]),
        ("[a, *f()]", ["a", None]),
        ("[f(i) for i in n]", [None]),
        ("[a] * 3", [None]),
    ],
)
def test_elements(code: str, expected: list[str | None]) -> None:
    source = Source("net.py", code)
    row = elements(source, source.nodes(ast.Expr)[0].value)
    assert [item and source.text_of(item) for item in row] == expected


@pytest.mark.parametrize("handler", ["except ValueError", "except* ValueError"])
def test_what_a_try_holds_may_not_run_to_its_end(handler: str) -> None:
    source = Source("net.py", f"try:\n    one\n{handler}:\n    two\nfour")
    guarded = {name.id: bool(branches(source, name)) for name in source.nodes(ast.Name) if name.id != "ValueError"}
    assert guarded == {"one": True, "two": True, "four": False}


def test_branches_exclude_each_other() -> None:
    source = Source("net.py", "if a:\n    one\nelif b:\n    two\nelse:\n    three\nfour")
    place = {name.id: branches(source, name) for name in source.nodes(ast.Name)}
    pairs = [(x, y) for x in ("one", "two", "three", "four") for y in ("one", "two", "three", "four") if x < y]
    excluded = [(x, y) for x, y in pairs if exclude_each_other(place[x], place[y])]
    assert sorted(excluded) == [("one", "three"), ("one", "two"), ("three", "two")]


def test_a_file_without_torch_has_no_links() -> None:
    assert all_links(Source("net.py", "import nn\nnn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU())")) == ()
