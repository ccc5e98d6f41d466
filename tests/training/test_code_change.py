"""What of a patch can be swapped into a running process: bodies of functions and added imports, nothing else."""

from __future__ import annotations

import textwrap

import pytest

from perfaudit.training.code_change import CodeChange, NotSwappable, code_change, is_gone


def change(before: str, after: str) -> CodeChange:
    return code_change("a.py", textwrap.dedent(before), textwrap.dedent(after))


def names(before: str, after: str) -> list[str]:
    return [item.name for item in change(before, after).functions]


TWO = """
    def f(x):
        return x + 1
    def g(x):
        return x + 2
"""


def test_a_body_that_changes_is_the_only_change() -> None:
    assert names(TWO, TWO.replace("x + 2", "x * 2")) == ["g"]


def test_lines_that_move_change_nothing() -> None:
    assert names(TWO, "# a comment\n\n" + textwrap.dedent(TWO)) == []


def test_the_codes_are_those_of_the_two_texts() -> None:
    (item,) = change(TWO, TWO.replace("x + 1", "x + 10")).functions
    assert (item.before.co_consts[1], item.after.co_consts[1]) == (1, 10)
    assert (item.before.co_firstlineno, item.before.co_filename) == (2, "a.py")


def test_functions_of_one_name_are_told_apart_by_their_lines() -> None:
    before = """
        class A:
            def forward(self, x):
                return x + 1
        class B:
            def forward(self, x):
                return x + 2
    """
    assert names(before, before.replace("x + 2", "x + 3")) == ["B.forward"]


def test_decorated_functions_methods_and_properties() -> None:
    before = """
        class A:
            @property
            def size(self):
                return 1
            @staticmethod
            @cache
            def f(x):
                return x
            async def g(self):
                return 2
    """
    after = before.replace("return 1", "return 10").replace("return x", "return x + 1").replace("return 2", "return 3")
    assert names(before, after) == ["A.size", "A.f", "A.g"]


def test_functions_within_functions_come_after_them() -> None:
    before = """
        def outer(a):
            def inner(x):
                return x + a
            return inner
    """
    assert names(before, before.replace("x + a", "x - a")) == ["outer", "outer.<locals>.inner"]


def test_a_function_within_that_the_patch_removes_is_gone() -> None:
    before = """
        def outer(xs):
            return sum(map(lambda x: x + 1, xs))
    """
    (outer, inner) = change(before, before.replace("sum(map(lambda x: x + 1, xs))", "sum(xs) + len(xs)")).functions
    assert not is_gone(outer)
    assert (inner.name, is_gone(inner)) == ("outer.<locals>.<lambda>", True)


def test_imports_that_are_added_are_named() -> None:
    after = "import torch.nn.functional as F\nfrom math import pi\n" + textwrap.dedent(TWO).replace(
        "x + 1", "F.relu(x)"
    )
    assert [type(item).__name__ for item in change(TWO, after).imports] == ["Import", "ImportFrom"]
    assert names(TWO, after) == ["f"]


CLASS = """
    import torch
    RATE = 3
    class Net(torch.nn.Module):
        size = 4
        def forward(self, x, y=RATE):
            return x
"""


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("RATE = 3", "RATE = 4", "changes line 3, which ran on import"),
        ("size = 4", "size = 5", "changes line 5, which ran on import"),
        ("size = 4", "size = 4\n        extra = 1", "changes line 6, which ran on import"),
        ("    RATE = 3\n", "", "changes line 3, which ran on import"),
        ("            return x\n", "            return x\n    print()\n", "adds line 8, which runs on import"),
        ("torch.nn.Module", "torch.nn.Sequential", "changes how the class Net is made"),
        ("y=RATE", "y=3", "changes the parameters of forward"),
        ("def forward", "@torch.compile\n        def forward", "changes the decorators or the name of forward"),
        ("forward", "__call__", "changes the decorators or the name of forward"),
        ("def forward", "async def forward", "changes line 6, which ran on import"),
        ("import torch\n", "from __future__ import annotations\n    import torch\n", "adds an import from __future__"),
        (
            "return x",
            "return super().forward(x)",
            "Net.forward uses other variables of the code around it, or calls super",
        ),
        ("return x", "return (", "does not parse"),
    ],
)
def test_what_cannot_be_swapped(old: str, new: str, reason: str) -> None:
    assert old in CLASS
    with pytest.raises(NotSwappable, match=reason.replace("(", r"\(")):
        change(CLASS, CLASS.replace(old, new))


def test_a_copy_of_its_own_code() -> None:
    mine = change(TWO, TWO.replace("x + 1", "x + 3")).with_own_code()
    (item,) = mine.functions
    assert item.after == item.before
    assert item.after is not item.before
    assert mine.imports == ()
