"""The names that a text says, read without a tree."""

from __future__ import annotations

import pytest

from perfaudit.static.name_index import names_in


def test_names_behind_a_dot_come_with_the_word_before_them() -> None:
    code = b"loss = model.head (x) . mean( ) .item\nself.nets[0].train()\nnumbers = 1.5\nrows..x"
    found = {(b"model", b"head"), (b"", b"mean"), (b"", b"item"), (b"self", b"nets"), (b"", b"train"), (b"", b"x")}
    assert names_in(code).dotted == found


@pytest.mark.parametrize("text", [b"A", b" ", b".", b"a.", b"'"], ids=["picture", "blanks", "dots", "chain", "quotes"])
def test_a_long_text_of_one_kind_is_read_once(text: bytes) -> None:
    """A picture in a notebook is one word of megabytes: tried from each of its letters, it is never done."""
    names = names_in(text * 1_000_000 + b"\nmodel.head(x)", is_notebook=True)
    assert (b"model", b"head") in names.dotted
