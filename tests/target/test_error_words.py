"""An error of the user's code in one line."""

from __future__ import annotations

from perfaudit.target.load import MOST_SAID, said


def test_of_a_long_error_the_beginning_is_shown() -> None:
    assert said(ValueError("no file\n  at a")) == "no file at a"
    shown = said(ValueError("no file, " + "x" * 5000))
    assert shown.startswith("no file, x") and shown.endswith(" …") and len(shown) == MOST_SAID + 2
