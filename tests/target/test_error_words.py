"""An error of the user's code in one line."""

from __future__ import annotations

import bdb

from perfaudit.target.load import MOST_SAID, is_out_of_memory, words_of_error


def test_of_a_long_error_the_beginning_is_shown() -> None:
    assert words_of_error(ValueError("no file\n  at a")) == "no file at a"
    shown = words_of_error(ValueError("no file, " + "x" * 5000))
    assert shown.startswith("no file, x") and shown.endswith(" …") and len(shown) == MOST_SAID + 2


def test_what_onednn_does_not_have_is_no_lack_of_memory() -> None:
    assert is_out_of_memory(RuntimeError("could not create a primitive"))
    assert not is_out_of_memory(
        RuntimeError("could not create a primitive descriptor for the LSTM forward propagation primitive")
    )


def test_a_debugger_that_gets_no_answer() -> None:
    assert words_of_error(bdb.BdbQuit()).startswith("a breakpoint waits for a debugger, and none can answer here")
