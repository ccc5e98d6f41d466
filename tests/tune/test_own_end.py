"""Whose fault it is that a script ends with an error while candidates are raced in it."""

from __future__ import annotations

import pytest

from perfaudit.tune.own_end import End, error_of, is_own

ERROR = "FileNotFoundError: no such file: 'checkpoints/1.pt' (train.py:40 in save)"


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (f"a step raises {ERROR}", ERROR),
        (f"with it, a step raises {ERROR}", ERROR),
        (f"with it, a step raises {ERROR}; that ended the script", ERROR),
        (f"after a step with it, a step of your code raises {ERROR}", ERROR),
        ("with it, t.py: the script left with code 1 after 40 updates", "t.py: the script left with code 1 after 40 updates"),
        ("t.py: the script ended after 40 updates of its optimizers", ""),
        ("with it, losses become NaN or infinite", ""),
        ("the process ended by signal SIGSEGV", ""),
        ("", ""),
    ],
)  # fmt: skip
def test_the_error_is_the_same_however_it_is_told(words: str, error: str) -> None:
    assert error_of(words) == error


@pytest.mark.parametrize(
    ("inside", "former", "own"),
    [
        (set(), [], True),  # the code as it is
        ({"a"}, [], False),
        ({"a"}, [(ERROR, {"a"})], False),
        ({"b"}, [(ERROR, {"a"})], True),
        ({"b"}, [("ValueError", {"a"})], False),
        ({"b"}, [(ERROR, {"a", "b"})], False),
        ({"b"}, [(ERROR, {"a", "b"}), (ERROR, {"a", "c"})], True),
        ({"b", "c"}, [(ERROR, {"a"})], True),
    ],
)
def test_an_error_is_the_scripts_own_without_candidates_or_with_others(
    inside: set[str], former: list[tuple[str, set[str]]], own: bool
) -> None:
    ends = [End(error, frozenset(keys)) for error, keys in former]
    assert is_own(End(ERROR, frozenset(inside)), ends) == own


@pytest.mark.parametrize(
    ("end", "words"),
    [
        (End(ERROR, updates=94), f"train.py ends by itself with {ERROR} after 94 updates of its optimizers"),
        (End(ERROR), f"train.py ends by itself with {ERROR}"),
        (End("train.py: the script left with code 1 after 40 updates"), "train.py: the script left with code 1 after 40 updates"),
    ],
)  # fmt: skip
def test_what_is_said_of_it(end: End, words: str) -> None:
    assert end.words("train.py") == words
