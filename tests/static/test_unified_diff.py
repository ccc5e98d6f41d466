"""Diffs as whole texts, the names in them as git writes them, and what may stand beside a new text."""

from __future__ import annotations

import pytest

from perfaudit.findings import Edit, Span
from perfaudit.static import edit, unified_diff
from perfaudit.static.source import Source

LINES = [f"line {n}\n" for n in range(1, 31)]


def changed(*numbers: int) -> str:
    return "".join(f"new {n}\n" if n in numbers else line for n, line in enumerate(LINES, 1))


HEAD = "--- a/t.py\n+++ b/t.py\n"


@pytest.mark.parametrize(
    ("after", "expected"),
    [
        (
            changed(10, 25),
            "@@ -7,7 +7,7 @@\n line 7\n line 8\n line 9\n-line 10\n+new 10\n line 11\n line 12\n line 13\n"
            "@@ -22,7 +22,7 @@\n line 22\n line 23\n line 24\n-line 25\n+new 25\n line 26\n line 27\n line 28\n",
        ),
        (changed(1), "@@ -1,4 +1,4 @@\n-line 1\n+new 1\n line 2\n line 3\n line 4\n"),
        (changed(30), "@@ -27,4 +27,4 @@\n line 27\n line 28\n line 29\n-line 30\n+new 30\n"),
        (
            "".join(LINES[:14] + LINES[15:]),
            "@@ -12,7 +12,6 @@\n line 12\n line 13\n line 14\n-line 15\n line 16\n line 17\n line 18\n",
        ),
        (
            "".join(LINES)[:-1],
            "@@ -27,4 +27,4 @@\n line 27\n line 28\n line 29\n-line 30\n+line 30\n\\ No newline at end of file\n",
        ),
    ],
)
def test_a_diff_is_told_whole(after: str, expected: str) -> None:
    assert unified_diff.diff("t.py", "".join(LINES), after) == HEAD + expected


@pytest.mark.parametrize(
    ("changes", "compared"),
    [({15}, (11, 18)), ({10, 20}, (6, 23)), ({1}, (1, 4)), ({30}, (26, 30)), ({2}, (1, 5))],
)
def test_only_lines_around_the_changes_are_compared(changes: set[int], compared: tuple[int, int]) -> None:
    """A file with 5,000 findings has 5,000 diffs: those around the first and the last change."""
    before = "".join(LINES)
    start, end, other_end = unified_diff._changed_lines(before, changed(*changes))
    first, last = compared
    assert before[start:end] == "".join(LINES[first - 1 : last])
    assert changed(*changes)[start:other_end].count("\n") == last - first + 1


@pytest.mark.parametrize(
    ("name", "written"),
    [
        ("a/plain.py", "a/plain.py"),
        ("a/two words.py", "a/two words.py\t"),
        ("a/größe.py", "a/größe.py"),
        ("a/\n\t\r.py", '"a/\\n\\t\\r.py"'),
        ('a/"q".py', '"a/\\"q\\".py"'),
        ("a\\b.py", '"a\\\\b.py"'),
        ("a/ \x1f\x7f\x80.py", '"a/ \\037\\177\x80.py"'),
    ],
)
def test_names_as_git_writes_them(name: str, written: str) -> None:
    assert unified_diff._name_in_diff(name) == written


@pytest.mark.parametrize(
    ("text", "old", "new", "after"),
    [
        ("x = 1if a else 2\n", "1", "b", "x = b if a else 2\n"),
        ("x = (1)if a else 2\n", "1", "b", "x = (b)if a else 2\n"),
        ("def f(): return(x)\n", "x", "y", "def f(): return(y)\n"),
        ("x = a if 1else 2\n", "1", "b", "x = a if b else 2\n"),
        ("x = 'a'if b else 2\n", "'a'", "c", "x = c if b else 2\n"),
        ("x = b if c else'a'\n", "'a'", '"d"', 'x = b if c else "d"\n'),
        ("x = b if c else'a'\n", "'a'", "(d)", "x = b if c else(d)\n"),
        ("x = b if c else'a'\n", "'a'", "_d", "x = b if c else _d\n"),
    ],
)
def test_words_do_not_run_together(text: str, old: str, new: str, after: str) -> None:
    import ast

    source = Source("t.py", text)
    (node,) = [n for n in ast.walk(source.tree) if isinstance(n, ast.expr) and source.text_of(n) == old]
    edits = edit.replace(source, node, new)
    assert edits is not None
    assert edit.apply(text, edits) == after


@pytest.mark.parametrize(
    ("one", "other", "together"),
    [
        (", a=1", ", b=1", True),
        (", a=1", "b=1,", False),
        ("a=1,", "b=1,", True),
        ("a=1,", "b=1", False),
        ("a=1", "b=1,", False),
        (", a=1", "b=1", False),
        ("a=1", ", b=1", False),
        ("a=1,", ", b=1,", False),
        ("\n    a", "\n    b,", False),
        ("    a\n", "    b\n", True),
        ("    a\n", "  b\n", False),
        ("\n    a", "\n    b", True),
        ("a", "b", False),
        ("    a\n", "b", False),
    ],
)
def test_insertions_at_one_place(one: str, other: str, together: bool) -> None:
    first, second = ((Edit(Span(3, 3), text),) for text in (one, other))
    assert edit.overlap(first, second) is not together
