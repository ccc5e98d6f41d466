# ruff: noqa: E501 - a row of a table is one line, so that texts can be compared
"""Edit verbs: the new tree is the old one plus what was meant, and no comment is lost, in every layout people write."""

from __future__ import annotations

import ast
import io
import shutil
import subprocess
import tokenize
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perfaudit.findings import Edit, Span
from perfaudit.static import edit, unified_diff
from perfaudit.static.source import Source

# ---- layouts of a call -------------------------------------------------------------------------------------------

ADDED = [  # text, and with `new=1` added to the call of `f`
    ("f()", "f(new=1)"),
    ("f( )", "f(new=1 )"),
    ("f(\n)", "f(new=1\n)"),
    ("f(  # nothing, yet\n)", "f(new=1  # nothing, yet\n)"),
    ("f(a)", "f(a, new=1)"),
    ("f(a, b=2)", "f(a, b=2, new=1)"),
    ("f(a,)", "f(a, new=1,)"),
    ("f((a))", "f((a), new=1)"),
    ("f( ( (a) ) )", "f( ( (a) ), new=1 )"),
    ("f(b=(2))", "f(b=(2), new=1)"),
    ("(f)(a)", "(f)(a, new=1)"),
    ("f (a)", "f (a, new=1)"),
    ("(f  # which (one\n)(a)", "(f  # which (one\n)(a, new=1)"),
    ("f(a, *b, **c)", "f(a, *b, **c, new=1)"),
    ("f(*(a))", "f(*(a), new=1)"),
    ("f(b=2, *a)", "f(b=2, *a, new=1)"),
    ("f(lambda: 0)", "f(lambda: 0, new=1)"),
    ("f(lambda x, y=1: (x, y))", "f(lambda x, y=1: (x, y), new=1)"),
    ("f(a if b else c)", "f(a if b else c, new=1)"),
    ("f(a := b)", "f(a := b, new=1)"),
    ("f((x for x in y))", "f((x for x in y), new=1)"),
    ("f([x for x in y])", "f([x for x in y], new=1)"),
    ("f('),# (')", "f('),# (', new=1)"),
    ("f(f'{a},)' '#')", "f(f'{a},)' '#', new=1)"),
    ('f("""one\n# two)\n""")', 'f("""one\n# two)\n""", new=1)'),
    ("f('é', ü)", "f('é', ü, new=1)"),
    ("é = 'ü)'; f('日本', ü)", "é = 'ü)'; f('日本', ü, new=1)"),
    ("f(g(a, b))", "f(g(a, b), new=1)"),
    ("g(f(a), b)", "g(f(a, new=1), b)"),
    ("f(a,\n  b)", "f(a,\n  b, new=1)"),
    ("f(a,\n  b  # why\n  )", "f(a,\n  b,  # why\n  new=1,\n  )"),
    ("f(a,\n  b,  # why\n  )", "f(a,\n  b,  # why\n  new=1,\n  )"),
    ("f(\n    a, b\n)", "f(\n    a, b, new=1\n)"),
    ("f(\n    a, b,  # both\n)", "f(\n    a, b, new=1,  # both\n)"),
    ("f(\n    a,\n    b\n)", "f(\n    a,\n    b,\n    new=1\n)"),
    ("f(\n    a,\n    b,\n)", "f(\n    a,\n    b,\n    new=1,\n)"),
    ("f(\n    a,  \n)", "f(\n    a,\n    new=1,  \n)"),
    ("f(\n    a  \n)", "f(\n    a,\n    new=1  \n)"),
    ("f(\n\ta,\n\tb,\n)", "f(\n\ta,\n\tb,\n\tnew=1,\n)"),
    ("f(\n    a,\n    b)", "f(\n    a,\n    b, new=1)"),
    ("f(\n    a,\n    b  # of b\n)", "f(\n    a,\n    b,  # of b\n    new=1,\n)"),
    ("f(\n    a,\n    b,  # of b\n)", "f(\n    a,\n    b,  # of b\n    new=1,\n)"),
    ("f(\n    a,  # of a\n    # of b\n    b,\n    # the end,\n)", "f(\n    a,  # of a\n    # of b\n    b,\n    new=1,\n    # the end,\n)"),
    ("f(\n    a\n  , b\n)", "f(\n    a\n  , b, new=1\n)"),
    ("f(\n    a  # of a\n    ,\n)", "f(\n    a  # of a\n    ,\n    new=1,\n)"),
    ("f(\n    (\n        a\n    ),\n)", "f(\n    (\n        a\n    ),\n    new=1,\n)"),
    ("f(\n    g(\n        a,\n    )\n)", "f(\n    g(\n        a,\n    ),\n    new=1\n)"),
    ("f(a, \\\n  b)", "f(a, \\\n  b, new=1)"),
    ("f(\\\n  a\\\n)", "f(\\\n  a,\n  new=1\\\n)"),
    ("x = (\n    y.g()\n    .f(a)\n    .h()\n)", "x = (\n    y.g()\n    .f(a, new=1)\n    .h()\n)"),
    ("@f(a)\ndef g(): ...", "@f(a, new=1)\ndef g(): ..."),
    ("@f()\nclass G: ...", "@f(new=1)\nclass G: ..."),
    ("if f(a): pass", "if f(a, new=1): pass"),
    ("f(a); g(b)  # both", "f(a, new=1); g(b)  # both"),
]  # fmt: skip
TEXTS = [before for before, _ in ADDED]


def in_function(text: str) -> str:
    return "def outer():\n\t" + text.replace("\n", "\n\t") if '"""' not in text else text


def as_crlf(text: str) -> str:
    return text.replace("\n", "\r\n")


SETTINGS: list[Callable[[str], str]] = [
    lambda text: text,
    lambda text: text + "\n",
    lambda text: f"# a comment (\n{text}\nafter = 1  # another\n",
    in_function,
    lambda text: as_crlf(f"import g  # é\n{text}\n"),
    lambda text: as_crlf(f"def outer():\n    if x:\n        {text}\n") if "\n" not in text else as_crlf(text),
]


def call_of(text: str, name: str = "f") -> tuple[Source, ast.Call]:
    """The text, and the call of `f` or of a method `.f` in it."""
    source = Source("a.py", text)
    calls = [c for c in source.nodes(ast.Call) if ast.unparse(c.func).rpartition(".")[2] == name]
    return source, calls[0]


def comments(text: str) -> Counter[str]:
    tokens = tokenize.generate_tokens(io.StringIO(text, newline="").readline)
    return Counter(token.string.strip() for token in tokens if token.type == tokenize.COMMENT)


def line_ends(text: str) -> set[str]:
    return {line[len(line.rstrip("\r\n")) :] for line in text.split("\n")[:-1] for line in [line + "\n"]}


def dump(text: str) -> str:
    return ast.dump(ast.parse(text))


def with_keywords(text: str, **values: str) -> str:
    """The tree of the text, dumped, whose call of `f` has these keywords: set where present, else behind the others."""
    source, call = call_of(text)
    for name, value in values.items():
        expression = ast.parse(value, mode="eval").body
        if (existing := edit.keyword(call, name)) is not None:
            existing.value = expression
        else:
            call.keywords.append(ast.keyword(name, expression))
    return ast.dump(source.tree)


def check_kept(before: str, after: str) -> None:
    assert comments(after) == comments(before)
    if "\n" in before:
        assert line_ends(after) == line_ends(before)
    assert after.endswith("\n") == before.endswith("\n")


@pytest.mark.parametrize(("before", "after"), ADDED)
def test_add_keyword(before: str, after: str) -> None:
    source, call = call_of(before)
    edits = edit.add_keyword(source, call, "new", "1")
    assert edits is not None
    assert edit.apply(before, edits) == after


@pytest.mark.parametrize("where", SETTINGS, ids=range(len(SETTINGS)))
@pytest.mark.parametrize("text", TEXTS)
def test_set_keyword_in_every_surrounding(text: str, where: Callable[[str], str]) -> None:
    before = where(text)
    source, call = call_of(before)
    edits = edit.set_keyword(source, call, "new", "a.b[0]")
    assert edits is not None
    after = edit.apply(before, edits)
    assert dump(after) == with_keywords(before, new="a.b[0]")
    check_kept(before, after)
    source, call = call_of(after)
    again = edit.set_keyword(source, call, "new", "a.b[0]")
    assert again is not None
    assert edit.apply(after, again) == after
    assert edit.add_keyword(source, call, "new", "1") is None


@pytest.mark.parametrize("text", TEXTS)
def test_two_keywords_at_once(text: str) -> None:
    source, call = call_of(text)
    first, second = (edit.add_keyword(source, call, name, "1") for name in ("num_workers", "pin_memory"))
    assert first is not None
    assert second is not None
    if not (call.args or call.keywords):
        assert edit.overlap(first, second)
        return
    assert not edit.overlap(first, second)
    after = edit.apply(text, (*first, *second))
    assert dump(after) == with_keywords(text, num_workers="1", pin_memory="1")
    check_kept(text, after)


@pytest.mark.parametrize("where", SETTINGS, ids=range(len(SETTINGS)))
@pytest.mark.parametrize("text", TEXTS)
def test_a_keyword_added_can_be_removed(text: str, where: Callable[[str], str]) -> None:
    before = where(text)
    source, call = call_of(before)
    added = edit.add_keyword(source, call, "new", "1")
    assert added is not None
    middle = edit.apply(before, added)
    source, call = call_of(middle)
    removed = edit.remove_keyword(source, call, "new")
    if removed is not None:
        after = edit.apply(middle, removed)
        assert dump(after) == dump(before)
        check_kept(before, after)
    else:
        assert "#" in before


@pytest.mark.parametrize(
    "text",
    [
        "f(x for x in y)",  # it would need brackets
        "f(\n    x\n    for x in y\n)",
        "z = f'{f(a)}'",  # a quote or a bracket inside would end the string, and ast misplaces what stands in it
        "f(a, new=2)",
    ],
)
def test_add_keyword_refuses(text: str) -> None:
    source, call = call_of(text)
    assert edit.add_keyword(source, call, "new", "1") is None


ARGUMENTS = [
    "a",
    "'),# ('",
    "(a)",
    "((\n  a  # inner\n))",
    "g(a, b)",
    "[1,\n 2]",
    "*a",
    "lambda: (0, 1)",
    "b if c else d",
    "(y for y in z)",
    "-1",
    '"""x\n),#\n"""',
    "f'{a!r:>{b}},'",
    "'é' 'ü'",
    "{'k': (v),}",
    "(w := 1)",
    "a.b[0:1]",
    "not a",
]
GAPS = ["", " ", "\n", "\n    ", "  # c, (\n", "\n# own )\n    ", " \\\n  ", "\t"]
argument_lists = st.lists(
    st.tuples(st.sampled_from(GAPS), st.sampled_from(ARGUMENTS), st.sampled_from(GAPS), st.booleans()), max_size=4
)


@st.composite
def calls(draw: st.DrawFn) -> str:
    """A call with arguments, gaps and comments in any place where the grammar lets them stand."""
    parts: list[str] = []
    keywords_only = False
    for number, (before, argument, after, named) in enumerate(draw(argument_lists)):
        keywords_only = keywords_only or (named and argument != "*a")
        name = f"k{number}=" if keywords_only and argument != "*a" else ""
        parts.append(f"{before}{name}{argument}{after}")
    comma = draw(st.sampled_from(["", ",", ",  # end\n"])) if parts else ""
    head = draw(st.sampled_from(["", "é = ", "g(1)[", "await_ = not "]))
    text = f"{head}f({','.join(parts)}{comma}{draw(st.sampled_from(GAPS))}){']' if head.endswith('[') else ''}\n"
    return text.replace("\n", draw(st.sampled_from(["\n", "\r\n"])))


@settings(max_examples=500, deadline=None)
@given(calls())
def test_keywords_of_any_call(text: str) -> None:
    source, call = call_of(text)
    first, second = edit.set_keyword(source, call, "new", "1"), edit.set_keyword(source, call, "other", "'x'")
    assert first is not None
    assert second is not None
    after = edit.apply(text, first)
    assert dump(after) == with_keywords(text, new="1")
    check_kept(text, after)
    if call.args or call.keywords:
        both = edit.apply(text, (*first, *second))
        assert dump(both) == with_keywords(text, new="1", other="'x'")
        check_kept(text, both)


@settings(max_examples=500, deadline=None)
@given(calls())
def test_keywords_removed_from_any_call(text: str) -> None:
    source, call = call_of(text)
    for name in [k.arg for k in call.keywords if k.arg]:
        edits = edit.remove_keyword(source, call, name)
        if edits is None:
            assert "#" in text
            continue
        after = edit.apply(text, edits)
        other_source, other = call_of(text)
        other.keywords = [k for k in other.keywords if k.arg != name]
        assert dump(after) == ast.dump(other_source.tree)
        assert comments(after) == comments(text)


@settings(max_examples=500, deadline=None)
@given(calls(), st.sampled_from(["2", "x", "g(1)", "a + b", "'é'", "lambda: 0"]))
def test_every_keyword_set_and_the_call_replaced(text: str, value: str) -> None:
    source, call = call_of(text)
    for name in [k.arg for k in call.keywords if k.arg]:
        edits = edit.set_keyword(source, call, name, value)
        if edits is not None:
            after = edit.apply(text, edits)
            assert dump(after) == with_keywords(text, **{name: value})
            check_kept(text, after)
    edits = edit.replace(source, call, value)
    if edits is not None:
        assert dump(edit.apply(text, edits)) == dump(text.replace(source.text_of(call), f"({value})"))


REMOVED = [
    ("f(k=1)", "f()"),
    ("f(k=1,)", "f()"),
    ("f(k=(1))", "f()"),
    ("f(a, k=1)", "f(a)"),
    ("f(a, k=1,)", "f(a,)"),
    ("f(a, k=1, b=2)", "f(a, b=2)"),
    ("f(k=1, b=2)", "f(b=2)"),
    ("f(k=1, **b)", "f(**b)"),
    ("f((a), k=')', b=2)", "f((a), b=2)"),
    ("f(a, k=g(1, 2), b=2)", "f(a, b=2)"),
    ("f(\n    a,\n    k=1,\n    b=2,\n)", "f(\n    a,\n    b=2,\n)"),
    ("f(\n    a,\n    k=1,\n)", "f(\n    a,\n)"),
    ("f(\n    a,\n    k=1\n)", "f(\n    a,\n)"),
    ("f(\n    a,  # of a\n    k=1,\n)", "f(\n    a,  # of a\n)"),
    ("f(\n    k=1,\n)", "f(\n)"),
    ("f(a,\n  k=1,\n  b=2)", "f(a,\n  b=2)"),
    ("f(a,\n  k=1)", "f(a)"),
    ("f(a,  # of a\n  k=1, b=2)", "f(a,  # of a\n  b=2)"),
    ("f(\n    a, k=g(\n        1,\n    ), b=2\n)", "f(\n    a, b=2\n)"),
    ("f(\n    a,\n    k=1,  # of k\n)", None),
    ("f(a, k=g(  # of g\n    1), b=2)", None),
    ("f(a, **k)", None),
    ("f'{f(a, k=1)}'", None),
]


@pytest.mark.parametrize(("before", "after"), REMOVED)
def test_remove_keyword(before: str, after: str | None) -> None:
    source, call = call_of(before)
    edits = edit.remove_keyword(source, call, "k")
    assert (edit.apply(before, edits) if edits else None) == after


def test_set_and_add_on_one_call() -> None:
    text = "f(a, num_workers=0)"
    source, call = call_of(text)
    first, second = (
        edit.set_keyword(source, call, "num_workers", "2"),
        edit.add_keyword(source, call, "pin_memory", "True"),
    )
    assert first is not None
    assert second is not None
    assert not edit.overlap(first, second)
    assert edit.apply(text, (*second, *first)) == "f(a, num_workers=2, pin_memory=True)"


def test_what_is_removed_and_what_is_added_there_do_not_go_together() -> None:
    source, call = call_of("f(k=1)")
    removed, added = edit.remove_keyword(source, call, "k"), edit.add_keyword(source, call, "new", "1")
    assert removed is not None
    assert added is not None
    assert edit.overlap(removed, added)


# ---- replace -----------------------------------------------------------------------------------------------------

REPLACED = [  # text, the expression to replace, by what, the new text
    ("y = x + 1", "x", "a", "y = a + 1"),
    ("y = x + 1", "x", "a if b else c", "y = (a if b else c) + 1"),
    ("y = x.t()", "x", "a + b", "y = (a + b).t()"),
    ("y = x.t()", "x", "a.b(1)", "y = a.b(1).t()"),
    ("y = x.real", "x", "1", "y = (1).real"),
    ("y = (x).t()", "x", "a + b", "y = (a + b).t()"),
    ("y = z[x]", "x", "a + b", "y = z[a + b]"),
    ("y = x[z]", "x", "a + b", "y = (a + b)[z]"),
    ("y = g(x)", "x", "a + b", "y = g(a + b)"),
    ("y = x(z)", "x", "lambda z: z", "y = (lambda z: z)(z)"),
    ("y = -x ** 2", "x", "-a", "y = -(-a) ** 2"),
    ("y = not x", "x", "a or b", "y = not (a or b)"),
    ("y = x if z else 0", "x", "a", "y = a if z else 0"),
    ("y = x if z else 0", "x", "lambda: 0", "y = (lambda: 0) if z else 0"),
    ("y = [z for z in x if w]", "x", "a if b else c", "y = [z for z in (a if b else c) if w]"),
    ("def g():\n    return(x*2)+1", "x * 2 + 1", "a", "def g():\n    return a"),
    ("y = 1 if(x)else 0", "x", "a", "y = 1 if(a)else 0"),
    ("y = é + x", "x", "ü", "y = é + ü"),
    ("y = g(x,  # of x\n)", "x", "a", "y = g(a,  # of x\n)"),
    ("y = g(\n    1,  # one\n)", "g(1)", "a", None),  # the comment would be lost
    ("y = {**x, 'k': x2}", "x", "a or b", "y = {**(a or b), 'k': x2}"),
    ("y = {'k': x, **z}", "x", "a or b", "y = {'k': a or b, **z}"),
    ("y = f'{x}'", "x", "a", None),
    ('y = g("#")', "g('#')", "a", "y = a"),
]


@pytest.mark.parametrize(("before", "old", "new", "after"), REPLACED)
def test_replace(before: str, old: str, new: str, after: str | None) -> None:
    source = Source("a.py", before)
    node = next(n for n in ast.walk(source.tree) if isinstance(n, ast.expr) and ast.unparse(n) == old)
    edits = edit.replace(source, node, new)
    assert (edit.apply(before, edits) if edits else None) == after


OPERATORS = [
    "{} + 1",
    "1 - {}",
    "-{}",
    "not {}",
    "{}.t",
    "{}[0]",
    "z[{}]",
    "{}()",
    "g({})",
    "g(k={})",
    "g(*{})",
    "{} if a else b",
    "a if {} else b",
    "a if b else {}",
    "{} < 1",
    "{} and a",
    "a or {}",
    "[{}]",
    "{{'k': {}}}",
    "lambda: {}",
    "[a for a in {}]",
    "[a for a in b if {}]",
    "[{} for a in b]",
    "(a := {})",
    "{} ** 2",
    "2 ** {}",
    "z[{}:1]",
    "({}, 1)",
    "({})",
]
VALUES = [
    "a",
    "a + b",
    "a if b else c",
    "lambda: a",
    "-a",
    "not a",
    "a.b(c)",
    "a == b",
    "a or b",
    "(a, b)",
    "1",
    "'s'",
    "a ** b",
    "[a for a in b]",
]


@pytest.mark.parametrize("value", VALUES)
@pytest.mark.parametrize("around", OPERATORS)
def test_replace_beside_any_operator(around: str, value: str) -> None:
    before = f"r = {around.format('OLD')}\n"
    source = Source("a.py", before)
    old = next(n for n in source.nodes(ast.Name) if n.id == "OLD")
    edits = edit.replace(source, old, value)
    assert edits is not None
    assert dump(edit.apply(before, edits)) == dump(f"r = {around.format(f'({value})')}\n")


# ---- statements --------------------------------------------------------------------------------------------------

DELETED = [  # text, the text without the statement that holds `gone`
    ("a = 1\ngone()\nb = 2\n", "a = 1\nb = 2\n"),
    ("a = 1\r\ngone()\r\nb = 2\r\n", "a = 1\r\nb = 2\r\n"),
    ("a = 1\ngone()", "a = 1\n"),
    ("gone()\na = 1", "a = 1"),
    ("a = 1\ngone(\n    1,\n    2,\n)\nb = 2\n", "a = 1\nb = 2\n"),
    ("a = 1\ngone()  # note\nb = 2\n", "a = 1\n# note\nb = 2\n"),
    ("if x:\n    gone()\nb = 2\n", "if x:\n    pass\nb = 2\n"),
    ("if x:\n    gone()  # note\nb = 2\n", "if x:\n    pass  # note\nb = 2\n"),
    ("if x:\n    a = 1\nelse:\n    gone()\n", "if x:\n    a = 1\nelse:\n    pass\n"),
    ("try:\n    a = 1\nexcept E:\n    gone()\n", "try:\n    a = 1\nexcept E:\n    pass\n"),
    ("match x:\n    case 1:\n        gone()\n", "match x:\n    case 1:\n        pass\n"),
    ("def g():\n\ta = 1\n\tgone()\n\treturn a\n", "def g():\n\ta = 1\n\treturn a\n"),
    ("# é\na = 'é'\ngone('ü#')\nb = 2\n", "# é\na = 'é'\nb = 2\n"),
    ("a = 1; gone()\n", None),
    ("gone(); a = 1\n", None),
    ("if x: gone()\n", None),
    ("a = 1; \\\ngone()\n", None),
    ("gone(  # note\n)\na = 1\n", None),
    ("if gone():\n    a = 1\n", None),
    ("for x in gone(): pass\n", None),
    ("match gone():\n    case 1:\n        pass\n", None),
]


@pytest.mark.parametrize(("before", "after"), DELETED)
def test_delete_statement(before: str, after: str | None) -> None:
    source, call = call_of(before, "gone")
    edits = edit.delete_statement(source, source.statement(call))
    assert (edit.apply(before, edits) if edits else None) == after


def test_statements_that_are_all_of_a_block_leave_a_pass() -> None:
    before = "if x:\n    gone(1)\n    gone(2)\n    gone(3)\n"
    source = Source("t.py", before)
    every = [source.statement(call) for call in source.nodes(ast.Call)]
    edits = [edit.delete_statement(source, statement, every) or () for statement in every]
    assert edit.apply(before, [*edits[0], *edits[1], *edits[2]]) == "if x:\n    pass\n"
    assert edit.apply(before, edits[0]) == "if x:\n    pass\n    gone(2)\n    gone(3)\n"
    assert edit.apply(before, [*edits[1], *edits[2]]) == "if x:\n    gone(1)\n"
    left = [edit.delete_statement(source, statement, every[1:]) or () for statement in every[1:]]
    assert edit.apply(before, [*left[0], *left[1]]) == "if x:\n    gone(1)\n"


WRAPPED = [  # text, and with the statements of the block in which `x()` stands under `with w:`
    ("x()\ny()\n", "with w:\n    x()\n    y()\n"),
    ("x()", "with w:\n    x()"),
    ("x()\r\ny()\r\n", "with w:\r\n    x()\r\n    y()\r\n"),
    ("def g():\n  x()\n  y()  # note\n", "def g():\n  with w:\n    x()\n    y()  # note\n"),
    ("def g():\n\tx()\n\n\t# about y\n\ty()\n", "def g():\n\twith w:\n\t\tx()\n\n\t\t# about y\n\t\ty()\n"),
    ("class C:\n  def g(self):\n    x()\n", "class C:\n  def g(self):\n    with w:\n      x()\n"),
    ("if a:\n    pass\ndef g():\n\tx()\n", "if a:\n    pass\ndef g():\n\twith w:\n\t\tx()\n"),
    ("for i in r:\n    x(\n        1,\n  2,\n    )\n", "for i in r:\n    with w:\n        x(\n            1,\n      2,\n        )\n"),
    ('for i in r:\n    x("""a\n  b\n    """)\n', 'for i in r:\n    with w:\n        x("""a\n  b\n    """)\n'),
    ('for i in r:\n    x(f"""a\n  {b}\n    """,\n      c)\n', 'for i in r:\n    with w:\n        x(f"""a\n  {b}\n    """,\n          c)\n'),
    ('for i in r:\n    x("a"\n      f"b")\n', 'for i in r:\n    with w:\n        x("a"\n          f"b")\n'),
    ("for i in r:\n    x('a\\\n  b')\n", "for i in r:\n    with w:\n        x('a\\\n  b')\n"),
    ("for i in r:\n    x(1, \\\n  2)\n", "for i in r:\n    with w:\n        x(1, \\\n      2)\n"),
    ("for i in r:\n    x()\n# far left\n    y()\n", "for i in r:\n    with w:\n        x()\n    # far left\n        y()\n"),
    ("@d\ndef x():\n    pass\nx()\n", "with w:\n    @d\n    def x():\n        pass\n    x()\n"),
    ("\x0cfor i in r:\n\x0c  x()\n\x0c  y()\n", "\x0cfor i in r:\n\x0c  with w:\n\x0c    x()\n\x0c    y()\n"),
    ("x()\n\x0c\n\x0cif a:\n\x0c    b\n", "with w:\n    x()\n\x0c\n\x0c    if a:\n\x0c        b\n"),
    ("if a:\n    b\nelif x():\n    c\n", None),
    ("if a: x()\n", None),
    ("x(); \\\ny()\nz();\n", None),
    ("a = 1; x()\n", "with w:\n    a = 1; x()\n"),
]  # fmt: skip


@pytest.mark.parametrize(("before", "after"), WRAPPED)
def test_wrap_block(before: str, after: str | None) -> None:
    source, call = call_of(before, "x")
    edits = edit.wrap_block(source, source.block(source.statement(call)), "with w:")
    result = edit.apply(before, edits) if edits else None
    assert result == after
    if result is not None:
        assert comments(result) == comments(before)
        wrapped = next(n for n in ast.walk(ast.parse(result)) if isinstance(n, ast.With))
        statements = source.block(source.statement(call))
        assert [ast.dump(n) for n in wrapped.body] == [ast.dump(n) for n in statements]


INSERTED = [  # text, with `new` before the statement of `x()`, with `new` after it
    ("x()\n", "new\nx()\n", "x()\nnew\n"),
    ("x()", "new\nx()", "x()\nnew"),
    ("a\r\nx()\r\nb\r\n", "a\r\nnew\r\nx()\r\nb\r\n", "a\r\nx()\r\nnew\r\nb\r\n"),
    ("if a:\n\tx()  # note\n", "if a:\n\tnew\n\tx()  # note\n", "if a:\n\tx()  # note\n\tnew\n"),
    ("x(\n    1,\n)\nb\n", "new\nx(\n    1,\n)\nb\n", "x(\n    1,\n)\nnew\nb\n"),
    ("é = x('''a\n  ''')\nb\n", "new\né = x('''a\n  ''')\nb\n", "é = x('''a\n  ''')\nnew\nb\n"),
    ("for i in x():\n    a\nb\n", "new\nfor i in x():\n    a\nb\n", "for i in x():\n    a\nnew\nb\n"),
    ("# é\n@x()\ndef g():\n    a\nb\n", "# é\nnew\n@x()\ndef g():\n    a\nb\n", "# é\n@x()\ndef g():\n    a\nnew\nb\n"),
    ("if a:\n    b\nelif x():\n    c\n", None, None),
    ("if a: x()\n", None, None),  # the line would run whether `a` or not
    ("x(); b\n", "new\nx(); b\n", None),
    ("a; x()\n", None, None),
    ("a; \\\n x()\n", None, None),
    ("# not a \\\nx()\n", "# not a \\\nnew\nx()\n", "# not a \\\nx()\nnew\n"),
]


@pytest.mark.parametrize(("text", "with_before", "with_after"), INSERTED)
def test_insert(text: str, with_before: str | None, with_after: str | None) -> None:
    source, call = call_of(text, "x")
    statement = source.statement(call)
    for edits, expected in (
        (edit.insert_before(source, statement, "new"), with_before),
        (edit.insert_after(source, statement, "new"), with_after),
    ):
        assert (edit.apply(text, edits) if edits else None) == expected


# ---- names -------------------------------------------------------------------------------------------------------

NAMES = [  # text, how torch.nn.functional.gelu is written in it, the text with the import
    ("import torch\n", "torch.nn.functional.gelu", None),
    ("import torch.nn.functional as F\n", "F.gelu", None),
    ("import torch\nimport torch.nn.functional as F\nfrom torch import nn\n", "F.gelu", None),
    ("from torch.nn import functional\n", "functional.gelu", None),
    ("from torch.nn.functional import gelu\n", "gelu", None),
    ("from torch.nn.functional import gelu as act\n", "act", None),
    ("from torch import nn\nF = 1\n", "nn.functional.gelu", None),
    ("import torch\nimport torch.nn.functional as F\ndef g(F): ...\n", "torch.nn.functional.gelu", None),
    ("import torch.utils.data\n", "torch.nn.functional.gelu", None),
    ("x = 1\n", "torch.nn.functional.gelu", "import torch\nx = 1\n"),
    ('"""Doc."""\n# note\nx = 1\n', "torch.nn.functional.gelu", '"""Doc."""\n# note\nimport torch\nx = 1\n'),
    ('"""Doc."""\r\n', "torch.nn.functional.gelu", '"""Doc."""\r\nimport torch\r\n'),
    ('"""Doc."""', "torch.nn.functional.gelu", '"""Doc."""\nimport torch'),
    ('"""Doc."""; x = 1\n', "torch.nn.functional.gelu", '"""Doc."""; import torch; x = 1\n'),
    ("from __future__ import annotations\nimport os\n", "torch.nn.functional.gelu", "from __future__ import annotations\nimport torch\nimport os\n"),
    ("#!/usr/bin/env python\n# -*- coding: utf-8 -*-\n", "torch.nn.functional.gelu", "#!/usr/bin/env python\n# -*- coding: utf-8 -*-\nimport torch\n"),
    ("@d\ndef g(): ...\n", "torch.nn.functional.gelu", "import torch\n@d\ndef g(): ...\n"),
    ("def g():\n    import torch.nn.functional as F\n", "torch.nn.functional.gelu", "import torch\ndef g():\n    import torch.nn.functional as F\n"),
    ("from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import torch\n", "torch.nn.functional.gelu", "import torch\nfrom typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import torch\n"),
    ("import mytorch as torch\n", "_torch.nn.functional.gelu", "import torch as _torch\nimport mytorch as torch\n"),
    ("torch = None\n", "_torch.nn.functional.gelu", "import torch as _torch\ntorch = None\n"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "name", "after"), NAMES)
def test_name_for(text: str, name: str, after: str | None) -> None:
    source = Source("a.py", text)
    written, edits = edit.name_for(source, "torch.nn.functional.gelu")
    assert (written, edit.apply(text, edits)) == (name, text if after is None else after)
    again, edits = edit.name_for(Source("a.py", edit.apply(text, edits)), "torch.nn.functional.gelu")
    assert (again, edits) == (name, ())


# ---- edits together ----------------------------------------------------------------------------------------------


def at(start: int, text: str, end: int | None = None) -> edit.Edits:
    return (Edit(Span(start, start if end is None else end), text),)


OVERLAPS = [
    (at(0, "a", 3), at(2, "b", 5), True),
    (at(0, "a", 3), at(3, "b", 5), False),
    (at(0, "a", 5), at(2, "b"), True),
    (at(0, "a", 3), at(3, ", x=1"), False),
    (at(0, "", 3), at(3, ", x=1"), True),
    (at(3, ", x=1"), at(3, ", y=1"), False),
    (at(3, " x=1,"), at(3, " y=1,"), False),
    (at(3, "x=1"), at(3, "y=1"), True),
    (at(3, "\n    x=1,"), at(3, "\n    y=1,"), False),
    (at(3, "import a\n"), at(3, "import b\n"), False),
    (at(3, "    a()\n"), at(3, "b()\n"), True),
    (at(3, "import a\n"), at(3, "import a\n"), False),
    (at(3, "a"), at(4, "b"), False),
    (at(3, "a", 4), at(3, "a", 4), False),
]


@pytest.mark.parametrize(("first", "second", "expected"), OVERLAPS)
def test_overlap(first: edit.Edits, second: edit.Edits, expected: bool) -> None:
    assert edit.overlap(first, second) is expected
    assert edit.overlap(second, first) is expected


def test_apply_keeps_the_order_of_insertions_at_one_place_and_makes_equal_ones_once() -> None:
    edits = [*at(1, ", b"), *at(1, ", a"), *at(1, ", b"), *at(0, "x", 1)]
    assert edit.apply("y", edits) == "x, b, a"


def test_apply_refuses_edits_that_cross() -> None:
    with pytest.raises(ValueError, match="character 2"):
        edit.apply("abcdef", [*at(0, "", 3), *at(2, "", 4)])


def test_together_is_all_or_nothing() -> None:
    assert edit.together(at(0, "a"), (), at(1, "b")) == (*at(0, "a"), *at(1, "b"))
    assert edit.together(at(0, "a"), None) is None


# ---- diff --------------------------------------------------------------------------------------------------------

TWENTY = "".join(f"line {n}\n" for n in range(20))
DIFFS = [
    ("a\nb\nc\n", "a\nB\nc\n"),
    ("a\nb\n", "A\nb\n"),
    ("a\nb\n", "a\nB\n"),
    ("a\nb", "a\nB"),
    ("a\nb", "a\nb\n"),
    ("a\nb\n", "a\nb"),
    ("a", "b"),
    ("a\n", "import torch\na\n"),
    ("a\nb", "a\nb\nc"),
    ("a\r\nb\r\nc\r\n", "a\r\nB\r\nc\r\n"),
    ("a\r\nb", "A\r\nb"),
    ("a\r\nb\nc\r\n", "a\r\nB\nc\r\n"),
    ("a\rb\rc\n", "a\rB\rc\n"),
    ("é\n日本\n", "é\n日本語\n"),
    ("a\x0cb\nc\u2028d\n", "a\x0cb\nC\u2028d\n"),
    ("-- a\n++ b\n", "-- A\n++ B\n"),
    ("\n\n\n", "\n\n"),
    (TWENTY, TWENTY.replace("line 3\n", "").replace("line 17", "seventeen")),
    (TWENTY, ""),
]


@pytest.mark.parametrize("command", [["git", "apply", "-p1"], ["patch", "-s", "-p1"]], ids=["git", "patch"])
@pytest.mark.parametrize("name", ["a.py", "sub folder/my model.py"])
@pytest.mark.parametrize(("before", "after"), DIFFS)
def test_diff_applies(tmp_path: Path, before: str, after: str, name: str, command: list[str]) -> None:
    if shutil.which(command[0]) is None:
        pytest.skip(f"{command[0]} is not installed")
    file = tmp_path / name
    file.parent.mkdir(exist_ok=True)
    file.write_bytes(before.encode())
    run = subprocess.run(
        command, cwd=tmp_path, input=unified_diff.diff(name, before, after).encode(), capture_output=True
    )
    assert run.returncode == 0, run.stderr
    assert (file.read_bytes() if file.exists() else b"") == after.encode()


def test_diff_of_nothing() -> None:
    assert unified_diff.diff("a.py", "a\n", "a\n") == ""
