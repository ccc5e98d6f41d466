"""Calls read from texts are those that the trees hold."""

from __future__ import annotations

import ast
from collections import Counter
from pathlib import Path

import pytest

from perfaudit.static.call_index import MANY, CallIndex, CallShape, CallsOfFile, shape_of

PACKAGE = Path(__file__).parent.parent.parent / "perfaudit"


def in_tree(text: str) -> dict[str, Counter[CallShape]]:
    table: dict[str, Counter[CallShape]] = {}
    for call in ast.walk(ast.parse(text)):
        if isinstance(call, ast.Call):
            name = getattr(call.func, "attr", getattr(call.func, "id", ""))
            table.setdefault(name, Counter())[shape_of(call)] += 1
    return table


def test_calls_of_our_own_files_are_those_of_their_trees() -> None:
    files = sorted(str(path) for path in (PACKAGE / "static").rglob("*.py"))
    index, everywhere = CallIndex(files), (1 << len(files)) - 1
    for number, file in enumerate(files):
        for name, shapes in in_tree(Path(file).read_text()).items():
            if name:
                assert number in index.files_calling(name, everywhere), f"{name} in {file}"
                assert Counter(index.calls(number, name)) == shapes, f"{name} in {file}"


@pytest.mark.parametrize(
    ("text", "shapes"),
    [
        ("make(1, 2)", [CallShape(2)]),
        ("a.b[0].make(n=1)(2)", [CallShape(0, frozenset({"n"}))]),
        ("make(*a)\nmake(**k)", [CallShape(1, unpacks=True), CallShape(0, unpacks=True)]),
        ("make(make(1), lambda a, b: (a, b), [1, 2])", [CallShape(1), CallShape(3)]),
        ("make(x for x in y)", [CallShape(1)]),
        ("make (1)\nmake\\\n(1, 2)", [CallShape(1), CallShape(2)]),
        ("(make)(1)\n(make\n)(1, 2)", [CallShape(1), CallShape(2)]),
        ("(make  # of wood (\n  (1))", [CallShape(1)]),
        ("x = make\n(a, b) = c", []),
        ("def make(a, b): ...\nclass Other:\n    async def make(self): ...", []),
        ("class make(Base): ...", []),
        ("@make(1)\ndef f(): ...", [CallShape(1)]),
        ("# make(1)\n\"make(2)\"\n'''make(3) \" '''\nremake(4)", []),
        ('f("(", make("it\'s )", 1))', [CallShape(2)]),
        ('f"{make(1, 2)}"', [CallShape(2)]),
        ("rf'{make(1)} {{'", [CallShape(1)]),
        ('make(b"a" b"b")', [CallShape(1)]),
        ('s = """a\\""""b"""\nmake(1)', []),  # does not parse: a text too many
        ("make(1)\r# of wood\rmake(1, 2)", [CallShape(1), CallShape(2)]),
        ("make(1", []),
        ("ｍake(1)", [CallShape(1)]),  # the parser reads an ordinary letter
        ('name = "ä"\nmake(1)', [CallShape(1)]),
        ("match x:\n    case make():\n        make(1)", [CallShape(1)]),  # a pattern
    ],
)
def test_calls(tmp_path: Path, text: str, shapes: list[CallShape]) -> None:
    path = tmp_path / "train.py"
    path.write_bytes(text.encode())
    assert Counter(CallsOfFile(str(path)).of("make")) == Counter(shapes)
    index = CallIndex([str(path)])
    for _ in range(2 * MANY if shapes else 0):  # looked for in the file, and then in what was noted of it
        assert index.files_calling("make", 1) == [0]


def test_a_bracket_is_behind_nothing_where_the_line_above_ends_in_something_else(tmp_path: Path) -> None:
    path = tmp_path / "names.py"
    path.write_text("make\ntable = [\n  (1, 2),\n  # of wood\n\n  (3, 4),\n]\n")
    index = CallIndex([str(path)])
    for _ in range(MANY):
        index.files_calling("make", 1)  # in the text, which the first questions look at
    assert index.files_calling("make", 1) == []


@pytest.mark.parametrize(
    ("text", "may_call"),
    [
        ("# ä\nmake(1)", True),
        ("# ä\nother(1)", False),
        ("ｍake(1)", True),  # the parser reads an ordinary letter
        ("# coding: latin-1\n# \xe4\nother(1)", False),
        ("# coding: utf-16\n# \xe4\nother(1)", False),  # no text in that
    ],
)
def test_letters_that_are_not_ascii_make_no_call(tmp_path: Path, text: str, may_call: bool) -> None:
    path = tmp_path / "train.py"
    path.write_bytes(text.encode("latin-1" if "coding" in text else "utf-8"))
    assert CallIndex([str(path)]).files_calling("make", 1) == [0] * may_call


def test_what_cannot_be_read_calls_nothing(tmp_path: Path) -> None:
    index = CallIndex([str(tmp_path / "missing.py")])
    assert index.files_calling("make", 1) == []
    assert index.calls(0, "make") == []


@pytest.mark.parametrize(
    ("shape", "may_pass"),
    [
        (CallShape(1), False),
        (CallShape(2), True),
        (CallShape(0, frozenset({"n"})), True),
        (CallShape(0, frozenset({"m"})), False),
        (CallShape(0, unpacks=True), True),
    ],
)
def test_may_pass(shape: CallShape, may_pass: bool) -> None:
    assert shape.may_pass("n", 1) is may_pass
    assert shape.may_pass("other", None) is shape.unpacks
