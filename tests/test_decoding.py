"""Values that somebody else wrote: each is taken as what it is, or refused with the path of its key."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from perfaudit.decoding import Damaged, Value

HERE = Value({"a": [{"b": 1, "c": None}], "d": {"x.y": "z"}, "huge": 10**5000, "low": -1.5, "yes": True})


@pytest.mark.parametrize(
    ("take", "value"),
    [
        (lambda: HERE.at("a").items()[0].at("b").whole(), 1),
        (lambda: HERE.at("a").items()[0].maybe("c"), None),
        (lambda: HERE.maybe("gone"), None),
        (lambda: HERE.at("a").items()[0].keys({"b"}, {"c", "d"}).at("b").number(), 1.0),
        (lambda: [(key, value.path, value.text()) for key, value in HERE.at("d").fields()], [("x.y", "d['x.y']", "z")]),
        (lambda: HERE.at("low").number(), -1.5),
        (lambda: HERE.at("yes").is_true(), True),
        (lambda: Value(["a", "b"]).texts(), ("a", "b")),
        (lambda: Value("b").one_of(("a", "b")), "b"),
        (lambda: Value("0a" * 32).digest(), "0a" * 32),
        (lambda: Value.of_toml("[tool]\nx = 1\n").at("tool").at("x").path, "tool.x"),
        (lambda: Value.of_json(b'[{"x": 1}]').items()[0].at("x").path, "[0].x"),
    ],
)
def test_what_is_there(take: Callable[[], Any], value: object) -> None:
    assert take() == value


@pytest.mark.parametrize(
    ("take", "said"),
    [
        (lambda: HERE.at("gone").text(), "gone is missing"),
        (lambda: HERE.at("a").items()[0].at("c").text(), "a[0].c must be a string, it is None"),
        (lambda: HERE.at("a").at("b"), "a must be an object, it is [{'b': 1, 'c': None}]"),
        (lambda: HERE.at("a").items(most=0), "a has 1 entries, and at most 0 are read"),
        (lambda: HERE.at("d").items(), "d must be a list, it is {'x.y': 'z'}"),
        (lambda: HERE.at("d").keys({"e"}), "d has no key 'x.y' (it has: e)"),
        (lambda: HERE.at("d").keys({"e"}, {"x.y"}), "d lacks 'e'"),
        (lambda: HERE.at("huge").number(), "huge must be a number, it is int of too many digits"),
        (lambda: HERE.at("yes").number(), "yes must be a number, it is True"),
        (lambda: HERE.at("yes").whole(), "yes must be a whole number of at least 0, it is True"),
        (lambda: HERE.at("low").whole(), "low must be a whole number of at least 0, it is -1.5"),
        (lambda: Value(3, "n").whole(least=4), "n must be a whole number of at least 4, it is 3"),
        (lambda: Value(3, "n").number(most=2), "n must be a number of at most 2, it is 3"),
        (lambda: Value(-1, "n").number(least=0, most=1), "n must be a number of at least 0 and at most 1, it is -1"),
        (lambda: Value(float("nan"), "n").number(), "n must be a number, it is nan"),
        (lambda: Value(float("inf"), "n").number(), "n must be a number, it is inf"),
        (lambda: Value(1, "n").is_true(), "n must be true or false, it is 1"),
        (lambda: Value(["a", 2], "n").texts(), "n[1] must be a string, it is 2"),
        (lambda: Value("a", "n").texts(), "n must be a list of strings, such as ['a'], it is 'a'"),
        (lambda: Value([], "n").one_of(("a", "b")), "n must be one of a, b, it is []"),
        (
            lambda: Value("A" * 64, "n").digest(),
            "n must be a SHA-256 in hexadecimal, it is 'AAAAAAAAAAAA...AAAAAAAAAAAAA'",
        ),
        (lambda: Value(1).text(), "the file must be a string, it is 1"),
        (lambda: Value({"\x1b[2J": 1}, "n").at("\x1b[2J").text(), "n['\\x1b[2J'] must be a string, it is 1"),
    ],
)
def test_what_is_wrong_is_said_with_its_path(take: Callable[[], Any], said: str) -> None:
    with pytest.raises(Damaged) as error:
        take()
    assert str(error.value) == said
