"""What an argument is worth, and what cannot be said."""

from __future__ import annotations

import ast

import pytest

from perfaudit.static.source import Source
from perfaudit.static.understanding.defaults import default
from perfaudit.static.understanding.values import ABSENT, UNKNOWN, Known, argument, constant, dict_items, local_class


def call_in(code: str) -> tuple[Source, ast.Call]:
    source = Source("a.py", code)
    return source, next(c for c in source.nodes(ast.Call) if isinstance(c.func, ast.Name) and c.func.id == "call")


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("call(x=1)", "1"),
        ("call(0, 1)", "1"),
        ("call(0)", ABSENT),
        ("call()", ABSENT),
        ("call(y=1)", ABSENT),
        ("call(*a)", UNKNOWN),
        ("call(0, *a)", UNKNOWN),
        ("call(0, 1, *a)", "1"),
        ("call(*a, x=1)", "1"),
        ("call(**kw)", UNKNOWN),
        ("call(0, 1, **kw)", "1"),
        ("call(**{'x': 1})", "1"),
        ("call(**{'y': 1})", ABSENT),
        ("call(**{key: 1})", UNKNOWN),
        ("call(**dict(x=1))", "1"),
        ("call(**dict(a, x=1))", UNKNOWN),
        ("kw = {'x': 1}\ncall(**kw)", "1"),
        ("kw = {'y': 1}\ncall(**kw)", ABSENT),
        ("kw = {**{'x': 1}}\ncall(**kw)", "1"),
        ("kw = {}\nkw['x'] = 1\ncall(**kw)", UNKNOWN),
        ("kw = {}\nkw['y'] = 1\ncall(**kw)", ABSENT),
        ("kw = {}\nkw[key] = 1\ncall(**kw)", UNKNOWN),
        ("kw = {}\nif gpu:\n    kw.update(x=1)\ncall(**kw)", UNKNOWN),
        ("kw = {}\nkw.update({'y': 1})\ncall(**kw)", ABSENT),
        ("kw = {}\nkw.update(other)\ncall(**kw)", UNKNOWN),
        ("kw = {}\nkw.update(kw)\ncall(**kw)", UNKNOWN),
        ("kw = {}\nkw.setdefault('x', 1)\ncall(**kw)", UNKNOWN),
        ("kw = {'x': 1}\nkw.pop('x')\ncall(**kw)", UNKNOWN),
        ("kw = {'x': 1}\nkw.pop(key)\ncall(**kw)", UNKNOWN),
        ("kw = {'x': 1}\ndel kw['x']\ncall(**kw)", UNKNOWN),
        ("kw = {'x': 1}\nkw.clear()\ncall(**kw)", UNKNOWN),
        ("kw = {'x': 1}\nprint(kw['x'], kw.get('x'), 'x' in kw)\ncall(**kw)", "1"),
        ("kw = {'x': 1}\nfill(kw)\ncall(**kw)", UNKNOWN),
        ("kw = {'x': 1}\nother = kw\ncall(**kw)", UNKNOWN),
        ("kw = {'x': 1}\nkw |= other\ncall(**kw)", UNKNOWN),
        ("kw = {'x': 1} if gpu else {}\ncall(**kw)", UNKNOWN),
        ("kw = {'y': 1} if gpu else {}\ncall(**kw)", ABSENT),
        ("kw = {'x': 1} if gpu else other\ncall(**kw)", UNKNOWN),
        ("kw = {'y': 1}\nif gpu:\n    kw = {'x': 1}\ncall(**kw)", UNKNOWN),
        ("def f(**kw):\n    call(**kw)", UNKNOWN),
        ("def f(**kw):\n    kw = dict(kw, y=1)\n    call(**kw)", UNKNOWN),
        ("kw = {**kw, 'y': 1}\ncall(**kw)", UNKNOWN),
        ("kw = dict(kw)\ncall(**kw)", UNKNOWN),
        ("a = dict(b)\nb = dict(a)\ncall(**a)", UNKNOWN),
        ("kw = {}\ndef f():\n    kw['x'] = 1\ncall(**kw)", UNKNOWN),
        ("kw = {}\ndef f():\n    global kw\n    kw = {'x': 1}\ncall(**kw)", UNKNOWN),
    ],
)
def test_argument(code: str, expected: str | Known) -> None:
    source, call = call_in(code)
    found = argument(source, call, "x", 1)
    assert (found if isinstance(found, Known) else source.text_of(found)) == expected


def test_a_keyword_only_argument_has_no_position() -> None:
    source, call = call_in("call(1, 2, 3)")
    assert argument(source, call, "x") is ABSENT


@pytest.mark.parametrize(
    ("code", "value"),
    [
        ("call(1)", 1),
        ("call('a')", "a"),
        ("call(None)", None),
        ("call(-2.5)", -2.5),
        ("call(not True)", False),
        ("call(not n)", UNKNOWN),
        ("call(2 * 3 + 1)", 7),
        ("call(7 // 2)", 3),
        ("call(1 / 0)", UNKNOWN),
        ("call('a' * 1000000000)", UNKNOWN),
        ("call(2 ** 10)", UNKNOWN),
        ("n = 4\ncall(n)", 4),
        ("n = m = 4\ncall(n)", 4),
        ("n: int = 4\ncall(n)", 4),
        ("n = 4\nm = n * 2\ncall(m)", 8),
        ("n = 4\nn = 5\ncall(n)", UNKNOWN),
        ("n = 4\nn += 1\ncall(n)", UNKNOWN),
        ("n, m = 4, 5\ncall(n)", UNKNOWN),
        ("n = 4\ndef f(n):\n    call(n)", UNKNOWN),
        ("n = 4\ndef f():\n    global n\n    n = 5\ncall(n)", UNKNOWN),
        ("for n in x:\n    call(n)", UNKNOWN),
        ("n = n + 1\ncall(n)", UNKNOWN),
        ("n = m\nm = n\ncall(n)", UNKNOWN),
        ("call(f())", UNKNOWN),
        ("call(a.n)", UNKNOWN),
    ],
)
def test_constant(code: str, value: object) -> None:
    source, call = call_in(code)
    found = constant(source, call.args[0])
    assert found == value
    assert type(found) is type(value)


def test_constant_of_what_is_no_expression() -> None:
    source, _ = call_in("call()")
    assert constant(source, ABSENT) is UNKNOWN


def test_dict_items_of_what_is_no_dict() -> None:
    source, call = call_in("call([1])")
    assert dict_items(source, call.args[0]) is None


@pytest.mark.parametrize(
    ("code", "name"),
    [
        ("class A: pass\ncall(A())", "A"),
        ("class A: pass\na = A()\ncall(a)", "A"),
        ("def A(): pass\ncall(A())", None),
        ("class A: pass\ncall(A)", None),
        ("call(B())", None),
    ],
)
def test_local_class(code: str, name: str | None) -> None:
    source, call = call_in(code)
    found = local_class(source, call.args[0])
    assert (found.name if found else None) == name


PARSER = "parser = ArgumentParser()\nparser.add_argument('--x', '-x', type=int, default=3)\n"


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("def f(x=3):\n    call(x)", 3),
        ("def f(x=3):\n    call(int(x))", 3),
        ("def f(x=3):\n    y = x\n    call(y)", 3),
        ("def f(*, x=3):\n    call(x)\nf()", 3),
        ("N = 3\ndef f(x=N):\n    call(x)", 3),
        ("def f(x=make()):\n    call(x)", None),
        ("def f(x):\n    call(x)", None),
        ("def f(x=3):\n    x = x or 4\n    call(x)", None),
        ("def f(x=3):\n    call(x)\nf(4)", None),
        ("def f(x=3):\n    call(x)\nf(x=4)", None),
        ("def f(x=3):\n    call(x)\nf(**kw)", None),
        ("def f(x=3):\n    call(x)\nf(*a)", None),
        ("def f(x=3):\n    call(x)\nrun(f)", None),
        ("def f(y, x=3):\n    call(x)\nf(4)", 3),
        ("@wrap\ndef f(x=3):\n    call(x)", None),
        ("class C:\n    def f(self, x=3):\n        call(x)\nc.f()", 3),
        ("class C:\n    def f(self, x=3):\n        call(x)\nc.f(4)", None),
        ("class C:\n    def __init__(self, x=3):\n        call(x)", None),
        ("class C:\n    def __init__(self, x=3):\n        call(x)\nC()", 3),
        ("class C:\n    def __init__(self, x=3):\n        self.x = x\n    def f(self):\n        call(self.x)\nC()", 3),
        ("class C:\n    def __init__(self, x=3):\n        call(x)\nclass D(C): pass\nC()", None),
        (PARSER + "args = parser.parse_args()\ncall(args.x)", 3),
        (PARSER + "a = parser.parse_args()\ncall(a.x)", 3),
        (PARSER + "def main(opt):\n    call(opt.x)", 3),
        (PARSER + "class C:\n    def f(self):\n        call(self.args.x)", 3),
        (PARSER + "def main(point):\n    call(point.x)", None),
        (PARSER + "def main(opt):\n    opt.x = 4\n    call(opt.x)", None),
        (PARSER + "parser.set_defaults(x=4)\ncall(args.x)", None),
        (PARSER + PARSER + "call(args.x)", None),
        ("parser.add_argument('--x', type=int)\ncall(args.x)", None),
        ("parser.add_argument('--x', action='store_true')\ncall(args.x)", None),
        ("parser.add_argument('--n-x', dest='x', default=3)\ncall(args.x)", 3),
        ("parser.add_argument('--n-x', default=3)\ncall(args.n_x)", 3),
        ("@click.option('--x', default=3)\ndef f(x):\n    call(x)", 3),
        ("@click.option('--x')\ndef f(x):\n    call(x)", None),
        ("class Config:\n    x: int = 3\nconfig = Config()\ncall(config.x)", 3),
        ("class Config:\n    x: int = 3\nconfig = Config(x=4)\ncall(config.x)", None),
        ("class Config:\n    x: int = 3\ncall(config.x)", None),
        ("call(args.x)", None),
        ("call(unknown)", None),
    ],
)
def test_default(code: str, expected: object) -> None:
    source, call = call_in(code)
    found = default(source, call.args[0])
    assert (found.value if found else None) == expected
