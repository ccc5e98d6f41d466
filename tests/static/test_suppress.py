"""Comments that silence findings, and those that silence none."""

from __future__ import annotations

import pytest

from perfaudit.findings import Finding, Location
from perfaudit.rules import all_rules
from perfaudit.static.suppress import Suppression, silence, suppressions

RULES = {id_: all_rules()[id_] for id_ in ("PA101", "PA102", "PA201", "PA501")}


def comment(line: int, *rules: str, whole_file: bool = False, foreign: bool = False) -> Suppression:
    return Suppression(line, frozenset(rules), whole_file, foreign=foreign)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("x = 1  # perfaudit: ignore[PA101]", [comment(1, "PA101")]),
        ("x = 1  # perfaudit: ignore[pa101, PA2 ,] why", [comment(1, "PA101", "PA2")]),
        ("x = 1  #perfaudit:ignore", [comment(1)]),
        ("x = 1  # type: ignore # perfaudit: ignore: why", [comment(1)]),
        ("# perfaudit: ignore[A]\r\n\r\n# perfaudit: ignore[B]\r\n", [comment(1, "A"), comment(3, "B")]),
        ("x = '# perfaudit: ignore'", []),
        ('"""\n# perfaudit: ignore\n"""', []),
        ("x = 1  # perfaudit: ignores", []),
        ("x = 1  # perfaudit: ignore-next", []),
        ("x = 1  # perfaudit: ignore[PA101", []),
        ("x = 1  # perfaudit: ignore [PA101", []),
        ("x = (1,  # perfaudit: ignore\n", [comment(1)]),  # what could be read counts
        ("x = 1  # ignore[PA101]", []),
        ("\n# perfaudit: ignore-file\n", [comment(2, whole_file=True)]),
        ("# perfaudit: ignore-file[PA1] old code", [comment(1, "PA1", whole_file=True)]),
        ("x = 1  # noqa: PA101", [comment(1, "PA101", foreign=True)]),
        ("x = 1  # noqa: E501, pa101 long", [comment(1, "E501", "PA101", foreign=True)]),
        ("x = 1  # noqa:E501 PA101", [comment(1, "E501", "PA101", foreign=True)]),
        ("x = 1  # noqa", []),  # written because the line is long
        ("", []),
    ],
)
def test_suppressions(text: str, found: list[Suppression]) -> None:
    assert [item._replace(text="") for item in suppressions(text)] == found


FINDING = Finding("PA101", "dataloader-no-workers", "warning", "slow", Location("a.py", 3, 1, 5, 2))


@pytest.mark.parametrize(
    ("comments", "lines", "is_silent"),
    [
        ([comment(3, "PA101")], [3], True),
        ([comment(3, "PA1")], [3], True),
        ([comment(3, "DATALOADER-NO-WORKERS")], [3], True),
        ([comment(3)], [3], True),
        ([comment(5, "PA101")], [3, 5], True),
        ([comment(9, "PA101", whole_file=True)], [3], True),
        ([comment(9, whole_file=True)], [3], True),
        ([comment(3, "E501", "PA101", foreign=True)], [3], True),
        ([comment(3, "PA102")], [3], False),
        ([comment(4, "PA101")], [3, 5], False),
        ([comment(9, "PA2", whole_file=True)], [3], False),
        ([comment(3, "PA102"), comment(5, "PA101")], [3, 5], True),
        ([], [3], False),
    ],
)
def test_silence(comments: list[Suppression], lines: list[int], is_silent: bool) -> None:
    kept, _ = silence([(FINDING, lines)], comments, "a.py", RULES, frozenset(RULES))
    assert (not kept) is is_silent


@pytest.mark.parametrize(
    ("comments", "unused"),
    [
        ([comment(3, "PA101")], []),
        ([comment(3, "PA101", "PA102")], [(3, ("PA102",))]),
        ([comment(7, "PA101")], [(7, ("PA101",))]),
        ([comment(7)], []),  # a rule that did not run may be what it is for
        ([comment(3), comment(3, "PA1")], []),
        ([comment(7, "PA501")], []),  # that rule did not run
        ([comment(7, "PA50")], []),
        ([comment(7, "PA")], []),  # the same
        ([comment(7, "CONV-BAIS")], [(7, ("CONV-BAIS",))]),  # no rule is called so
        ([comment(7, "PA999")], [(7, ("PA999",))]),
        ([comment(7, "E501", foreign=True)], []),
        ([comment(7, "PA101", "E501", foreign=True)], [(7, ("PA101",))]),
        ([comment(7, "PA2", whole_file=True)], [(7, ("PA2",))]),
    ],
)
def test_unused(comments: list[Suppression], unused: list[tuple[int, tuple[str, ...]]]) -> None:
    _, found = silence([(FINDING, [3])], comments, "a.py", RULES, frozenset({"PA101", "PA102", "PA201"}))
    assert [(item.line, item.rules) for item in found] == unused


def test_a_comment_for_everything_is_unused_when_every_rule_ran() -> None:
    _, found = silence([(FINDING, [3])], [comment(7), comment(8, "PA")], "a.py", RULES, frozenset(RULES))
    assert [item.line for item in found] == [7, 8]


def test_what_is_said_of_unused_comments() -> None:
    text = "a  # noqa: PA101 x\nb  # perfaudit: ignore[PA102, CONV-BAIS] why"
    _, found = silence([], suppressions(text), "a.py", RULES, frozenset(RULES))
    assert [(item.comment, item.unknown) for item in found] == [
        ("# noqa: PA101", ()),
        ("# perfaudit: ignore[PA102, CONV-BAIS]", ("CONV-BAIS",)),
    ]
