"""What `git apply` makes of our diffs: the text after the edits, byte for byte, whatever the texts look like."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path
from random import Random

import pytest

from perfaudit.findings import Edit, Span
from perfaudit.static import edit, line_diff, unified_diff
from perfaudit.static.line_diff import changes, hunks

REPEATED = ("\n", "    {\n", "    },\n", "   ]\n", "        x = f(x)\n")


def git_applies(folder: Path, before: str, diff: str) -> bytes:
    """What git leaves of a file; it fails the test where git refuses."""
    (folder / "t.py").write_bytes(before.encode())
    command = ["git", "apply", "--whitespace=nowarn", "-"]
    done = subprocess.run(command, cwd=folder, input=diff.encode(), capture_output=True, check=False)
    assert done.returncode == 0, f"{done.stderr.decode()}\n{diff}"
    return (folder / "t.py").read_bytes()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    subprocess.run(["git", "init", "-q", "."], cwd=tmp_path, check=True)
    return tmp_path


def test_two_changes_far_apart_with_blank_lines_behind_the_last(folder: Path) -> None:
    """From 200 lines on difflib anchors nothing on lines that repeat: the hunk ended without context, and git refused."""
    lines = [
        "x = 1\n",
        *(line for n in range(120) for line in (f"line {n}\n", "\n")),
        "y = 1\n",
        "\n",
        "\n",
        "\n",
        "end\n",
    ]
    before = "".join(lines)
    after = before.replace("x = 1", "x = 2").replace("y = 1", "y = 2")
    diff = unified_diff.diff("t.py", before, after)
    assert diff.endswith("@@ -239,7 +239,7 @@\n \n line 119\n \n-y = 1\n+y = 2\n \n \n \n")
    assert git_applies(folder, before, diff) == after.encode()


def written(random: Random, size: int, newline: str) -> str:
    """A file in which most lines repeat."""
    lines = [random.choice((*REPEATED, f"line {n}\n")) for n in range(size)]
    text = "".join(lines).replace("\n", newline)
    return text + random.choice(("", "end", newline))


def edited(random: Random, text: str, newline: str) -> str:
    """Some edits at random places, often at the very start and end: lines taken out, put in, doubled, changed within."""
    places = sorted(random.sample(range(len(text) + 1), min(2 * random.choice((1, 2, 6)), len(text) // 2 * 2)))
    spans = [Span(a, b if b - a < 40 else a) for a, b in zip(places[::2], places[1::2], strict=True)]
    if random.random() < 0.5:
        spans = [s for s in spans if s.start > 3 and s.end < len(text) - 3]
        spans = [Span(0, min(3, len(text))), *spans, Span(max(3, len(text) - 3), max(3, len(text)))]
        spans = [s for s in spans if s.end <= len(text)]
    words = ("", "new", f"new{newline}", newline, *(line.replace("\n", newline) for line in REPEATED))
    return edit.apply(text, [Edit(span, random.choice(words)) for span in spans])


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
@pytest.mark.parametrize("size", [0, 1, 2, 5, 12, 60, 199, 230, 700])
def test_git_applies_every_diff(folder: Path, size: int, newline: str) -> None:
    random = Random(size)
    for _ in range(12):
        before = written(random, size, newline)
        after = edited(random, before, newline)
        if before != after:
            assert git_applies(folder, before, unified_diff.diff("t.py", before, after)) == after.encode()


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
@pytest.mark.parametrize("size", [3, 30, 260])
def test_git_applies_the_diff_of_edits(folder: Path, size: int, newline: str) -> None:
    random = Random(size)
    for _ in range(12):
        before = written(random, size, newline)
        first, last = random.randrange(len(before) // 2), random.randrange(len(before) // 2, len(before))
        edits = (Edit(Span(first, first + 1), f"a{newline}"), Edit(Span(last, last), "b"))
        diff = unified_diff.diff_of("t.py", before, edits)
        assert git_applies(folder, before, diff) == edit.apply(before, edits).encode()


def test_git_applies_the_diff_of_a_long_file(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where equal lines are too many to compare each with each, lines that stand once part the text."""
    monkeypatch.setattr(line_diff, "MAX_PAIRS", 300)
    random = Random(1)
    for size in (3, 40, 260, 900):
        for _ in range(12):
            before = written(random, size, "\n")
            after = edited(random, before, "\n")
            if before != after:
                assert git_applies(folder, before, unified_diff.diff("t.py", before, after)) == after.encode()


def rebuilt(before: Sequence[str], after: Sequence[str]) -> list[str]:
    """The new lines from the old ones and the changes: what lies between changes must be equal."""
    lines: list[str] = []
    at = 0
    for change in changes(before, after):
        lines += [*before[at : change.start], *after[change.new_start : change.new_end]]
        at = change.end
    return [*lines, *before[at:]]


@pytest.mark.parametrize("most", [0, 10, 1000])
def test_changes_lead_from_one_text_to_the_other(most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(line_diff, "MAX_PAIRS", most)
    random = Random(0)
    for _ in range(2000):
        before = random.choices("abcdefg", k=random.randrange(12))
        after = random.choices("abcdefg", k=random.randrange(12))
        assert rebuilt(before, after) == after


def test_a_part_of_very_many_equal_lines_is_one_change(monkeypatch: pytest.MonkeyPatch) -> None:
    before, after = ["x", *"ab" * 30, "y"], ["z", *"ba" * 30, "w"]
    assert len(changes(before, after)) > 1
    monkeypatch.setattr(line_diff, "MAX_PAIRS", 100)
    (change,) = changes(before, after)
    assert (change.start, change.end) == (0, len(before))
    assert rebuilt(before, after) == after


@pytest.mark.parametrize(
    ("before", "after", "header"),
    [
        ("", "a", "@@ -0,0 +1 @@\n"),
        ("a", "", "@@ -1 +0,0 @@\n"),
        ("abc", "axc", "@@ -1,3 +1,3 @@\n"),
        ("abcdefghi", "abcdefghix", "@@ -7,3 +7,4 @@\n"),
    ],
)
def test_headers_count_as_diff_does(before: str, after: str, header: str) -> None:
    assert next(hunks(before, after, 3)) == header
