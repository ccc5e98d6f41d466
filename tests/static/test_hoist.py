"""A function or lambda moved to the module: what it does stays, and what it needs is there."""

from __future__ import annotations

import ast

import pytest

from perfaudit.static import edit
from perfaudit.static.hoist import hoist
from perfaudit.static.source import Source

NESTED = """import torch

LIMIT = 3


def main(scale):
    numbers = [1, 2]

    def collate(batch):
        # keeps its comment
        return {body}

    return collate([1]), numbers


print(main(2))
"""


def hoisted(text: str) -> str | None:
    source = Source("a.py", text)
    wanted = [n for n in ast.walk(source.tree) if isinstance(n, ast.Lambda) or getattr(n, "name", "") == "collate"]
    edits = hoist(source, wanted[0], "collate")  # type: ignore[arg-type]  # functions by this name
    return None if edits is None else edit.apply(text, edits)


def test_a_function_is_moved_with_its_comment() -> None:
    after = hoisted(NESTED.format(body="torch.tensor(batch[:LIMIT])"))
    assert after is not None
    moved = "def collate(batch):\n    # keeps its comment\n    return torch.tensor(batch[:LIMIT])\n\n\ndef main(scale):"
    assert moved in after
    assert "    numbers = [1, 2]\n\n    return collate([1]), numbers\n" in after


@pytest.mark.parametrize("body", ["[x + y for x in batch for y in [1]]", "sorted(batch)", "[LIMIT for _ in batch]"])
def test_what_it_does_stays(body: str) -> None:
    text = NESTED.format(body=body).replace("import torch\n", "")
    after = hoisted(text)
    assert after is not None
    said: list[list[object]] = []
    for program in (text, after):
        printed: list[object] = []
        exec(program, {"print": printed.append})
        said.append(printed)
    assert said[0] == said[1] != []


@pytest.mark.parametrize(
    "body",
    ["batch * scale", "numbers + batch", "[x for x in batch if x in numbers]", "unknown(batch)", "(yield batch)"],
)
def test_one_that_needs_what_is_around_it_stays(body: str) -> None:
    assert hoisted(NESTED.format(body=body)) is None


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("def collate(batch):", "def collate(batch, k=numbers):"),
        ("    def collate", "    @torch.no_grad()\n    def collate"),
        ("LIMIT = 3", "collate = 3"),  # the name is taken
        ("import torch", "import torch\nfrom helpers import *"),  # it may be
        ("        # keeps its comment", '        """Two\n        lines."""'),  # white space of a text
        ("import torch", "if __name__ == '__main__':\n    LIMIT = 3\nimport torch"),  # a worker has no such name
    ],
)
def test_no_edit_where_it_may_mean_something_else(old: str, new: str) -> None:
    text = NESTED.format(body="batch[:LIMIT]")
    assert hoisted(text) is not None
    assert hoisted(text.replace(old, new)) is None


def test_a_lambda_becomes_a_function() -> None:
    after = hoisted("def main():\n    return load(f=lambda batch: tuple(zip(*batch)))\n")
    assert after == "def collate(batch):\n    return tuple(zip(*batch))\n\n\ndef main():\n    return load(f=collate)\n"


def test_two_that_are_moved_at_once_keep_apart() -> None:
    """All fixes of a file are applied together, so what one moves must not take the name of what another moves."""
    lambdas = "def main():\n    return load(f=lambda batch: batch[0]), load(f=lambda batch: batch[1])\n"
    source = Source("a.py", lambdas)
    moved = [hoist(source, n, "collate") for n in ast.walk(source.tree) if isinstance(n, ast.Lambda)]
    after = edit.apply(lambdas, [each for edits in moved for each in edits or ()])
    assert "return load(f=collate_1), load(f=collate_2)" in after
    assert after.count("def collate_") == 2
    nested = "def one():\n    x = 1\n    def collate(b):\n        return b\n    return load(collate)\n"
    assert hoisted(nested) is not None
    assert hoisted(nested + nested.replace("one", "two").replace("return b\n", "return b[0]\n")) is None


def test_a_lambda_gets_a_name_that_is_free() -> None:
    source = Source("a.py", "collate = 1\nx = load(f=lambda batch: batch)\n")
    node = next(n for n in ast.walk(source.tree) if isinstance(n, ast.Lambda))
    edits = hoist(source, node, "collate")
    assert edits is not None and "f=collate1)" in edit.apply(source.text, edits)


def test_a_comment_behind_the_last_line_moves_along() -> None:
    nested = "def main():\n    def collate(b):\n        return b[0]  # one sample\n    return load(collate)\n"
    moved = "def collate(b):\n    return b[0]  # one sample\n\n\ndef main():\n    return load(collate)\n"
    assert hoisted(nested) == moved
