"""JSON that is committed: how it is written, line for line, and what in it could mean two things."""

from __future__ import annotations

import pytest

from perfaudit.gate.committed_json import LARGEST, json_text, parse_json


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ({}, "{\n\n}\n"),
        ({"b": 1, "a": "é"}, '{\n "b": 1,\n "a": "é"\n}\n'),  # keys of the whole as they come
        ({"a": {}, "b": []}, '{\n "a": {},\n "b": []\n}\n'),
        ({"a": {"d": 1, "c": 2}}, '{\n "a": {\n  "c": 2,\n  "d": 1\n }\n}\n'),
        ({"a": [1, "x"]}, '{\n "a": [\n  1,\n  "x"\n ]\n}\n'),
        ({"a": [{"d": 1, "c": None}, {}]}, '{\n "a": [\n  {"c": null, "d": 1},\n  {}\n ]\n}\n'),
        ({"a": [{"d": [1]}]}, '{\n "a": [\n  {\n   "d": [\n    1\n   ]\n  }\n ]\n}\n'),
        ({"a": [{"d": {"e": 1}}]}, '{\n "a": [\n  {\n   "d": {\n    "e": 1\n   }\n  }\n ]\n}\n'),
        ({"a": [[1, 2], [[3]]]}, '{\n "a": [\n  [1, 2],\n  [\n   [3]\n  ]\n ]\n}\n'),
    ],
)
def test_one_thing_a_line(content: dict[str, object], text: str) -> None:
    assert json_text(content) == text
    assert parse_json(text.encode()) == content


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_what_is_no_number_is_not_written(value: float) -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        json_text({"a": value})


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (str(LARGEST), LARGEST),
        (str(-LARGEST), -LARGEST),
        ("0.5e1", 5.0),
        ("\ufeff1", 1),  # as some editors begin a file
        ('"<<<<<<< a"', "<<<<<<< a"),  # no line of its own
        ("{\n}\n", {}),
    ],
)
def test_what_is_read(text: str, value: object) -> None:
    assert parse_json(text.encode()) == value
    assert type(parse_json(text.encode())) is type(value)


def twice(number: int) -> str:
    return "{" + ",\n".join(['"a": 1'] * number) + "}"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (str(LARGEST + 1), f"{LARGEST + 1}… is too large a number"),
        (str(-LARGEST - 1), f"{-LARGEST - 1}… is too large a number"),
        ("1" + 30 * "0", "10000000000000000000… is too large a number"),
        ("1e400", "1e400 is not a finite number"),
        ("-Infinity", "-Infinity is not a finite number"),
        ("NaN", "NaN is not a finite number"),
        ('{"a": 1, "a": 2}', "'a' stands 2 times in one object (lines 1)"),
        (twice(2), "'a' stands 2 times in one object (lines 1, 2)"),
        (twice(4), "'a' stands 4 times in one object (lines 1, 2, 3, 4)"),
        (twice(5), "'a' stands 5 times in one object"),
        ('{"\\u0061": 1, "\\u0061": 2}', "'a' stands 2 times in one object"),  # written otherwise
        ("{\n<<<<<<< main\n}", "line 2: a merge conflict is not resolved (<<<<<<<)"),
        ("\n\n=======\n", "line 3: a merge conflict is not resolved (=======)"),
        ("||||||| 1f2e\n", "line 1: a merge conflict is not resolved (|||||||)"),
        (">>>>>>> a branch\n<<<<<<< b", "line 1: a merge conflict is not resolved (>>>>>>>)"),
        ("<<<<<<<<\n", "Expecting value: line 1 column 1 (char 0)"),
    ],
)
def test_what_is_refused(text: str, problem: str) -> None:
    with pytest.raises(ValueError) as caught:  # its words are compared
        parse_json(text.encode())
    assert str(caught.value) == problem
