"""Where nodes stand in a text, and what is written there."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from perfaudit.static.source import Source
from perfaudit.static.source.syntax import walk


def call_of(source: Source, name: str = "call") -> ast.Call:
    return next(c for c in source.nodes(ast.Call) if isinstance(c.func, ast.Name) and c.func.id == name)


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("call()", (1, 1, 1, 7)),
        ("x = 'größer'; call()", (1, 15, 1, 21)),
        ("x = '训练'; call('é')", (1, 11, 1, 20)),
        ("x = '𝒳'; call()", (1, 10, 1, 16)),
        ("\n\n  \ncall(\n  1,\n)", (4, 1, 6, 2)),
        ("a = 1\r\ncall(\r\n)", (2, 1, 3, 2)),
        ("a = 1\rcall()", (2, 1, 2, 7)),
        ("a = '\x0c'\ncall()", (2, 1, 2, 7)),
        ("a = '\u2028'\ncall()", (2, 1, 2, 7)),
        ("\tif x:\n\t\tcall()".replace("\tif", "if").replace("\t\t", "\t"), (2, 2, 2, 8)),
    ],
)
def test_location_counts_characters_from_one(text: str, place: tuple[int, ...]) -> None:
    source = Source("a.py", text)
    call = call_of(source)
    found = source.location(call)
    assert (found.path, found.line, found.column, found.end_line, found.end_column) == ("a.py", *place)
    assert source.text_of(call).startswith("call(")
    assert source.text_of(call).endswith(")")


def test_lines_and_newline() -> None:
    assert Source("a.py", "a\r\nb\n").lines == ["a", "b", ""]
    assert [Source("a.py", text).newline for text in ("", "a", "a\r\nb\n", "a\n", "a\rb")] == [
        "\n",
        "\n",
        "\r\n",
        "\n",
        "\r",
    ]


def test_brief_is_one_line_of_bounded_length() -> None:
    source = Source("a.py", "call(\n    1,\n    2)\n")
    assert source.brief(call_of(source)) == "call( 1, 2)"
    assert source.brief(call_of(source), limit=6) == "call(…"


def test_code_without_comments_and_docstrings() -> None:
    text = 'def f():\r\n    """fp16"""\r\n    x = "# ü"  # fp16\r\n    return x\r\n'
    code = Source("a.py", text).code
    assert code == text.replace('"""fp16"""', " " * 10).replace("# fp16", " " * 6)


@pytest.mark.parametrize(
    ("text", "comments"),
    [
        ("x = 1  # one", ["# one"]),
        ("# first\rx = 1  # second\r\n# third", ["# first", "# second", "# third"]),
        ("x = '#'  # '#'", ["# '#'"]),
        ("x = '''\n# in it\n'''  # out", ["# out"]),
        ('x = rb"""#"""\n# out', ["# out"]),
        ("x = ('a'  # between\n     'b#')", ["# between"]),
        ("x = ('''a\n#'''\n     # between\n     '''b''')", ["# between"]),
        ("x = f'{y[\"#\"]}#'  # out", ["# out"]),
        ("x = f'''\n# {y}\n'''  # out", ["# out"]),
        ("x = (f'{y}#'  # between\n     f'{z}')  # out", ["# between", "# out"]),
        ("x = 'é#'; y = 'ü'  # ä", ["# ä"]),
        ("x = 'a\\\n#'  # out", ["# out"]),
    ],
)
def test_comments_are_what_no_string_holds(text: str, comments: list[str]) -> None:
    code = Source("a.py", text).code
    blank = [n for n, (before, after) in enumerate(zip(text, code, strict=True)) if before != after]
    expected = text
    for comment in comments:
        expected = expected.replace(comment, " " * len(comment))
    assert code == expected
    assert blank


def test_a_walk_meets_the_nodes_of_ast_in_its_order() -> None:
    text = (Path(ast.__file__)).read_text(encoding="utf-8")
    tree = ast.parse(text + "\nmatch x:\n    case {'a': [1, *y], **z} | A(b=None) if not c: pass\n")
    left_out = (ast.expr_context, ast.operator, ast.boolop, ast.unaryop, ast.cmpop)
    expected = [node for node in ast.walk(tree) if not isinstance(node, left_out)]
    met = list(walk(tree))
    assert len(met) == len(expected)
    assert all(one is other for one, other in zip(met, expected, strict=True))
