"""Patterns as in `.gitignore`: they say what pathspec says, and no name makes them try for long."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pathspec import GitIgnoreSpec

from perfaudit import patterns
from perfaudit.patterns import MAX_LENGTH, MAX_PATTERNS, is_pattern, spec_of

Run = Callable[..., Any]

PIECES = ["a", "b", ".", "*", "**", "/", "/**/", "?", "[ab]", "[a-b]", "\\*", "!", " ", "#", "**/", "/**"]
a_pattern = st.lists(st.sampled_from(PIECES), min_size=1, max_size=10).map("".join)
a_name = st.text("ab.*", min_size=1, max_size=5)
a_path = st.tuples(st.lists(a_name, min_size=1, max_size=5).map("/".join), st.sampled_from(["", "/"])).map("".join)


@settings(max_examples=500, deadline=None)
@given(st.lists(a_pattern, min_size=1, max_size=4), st.lists(a_path, min_size=1, max_size=6))
def test_as_pathspec_says(lines: list[str], paths: list[str]) -> None:
    """Also several patterns at once, where those of folders and of files do not weigh the same."""
    usable = [line for line in lines if is_pattern(line)]
    assert usable == [line for line in lines if theirs(line) is not None]
    for path in paths:
        assert spec_of(usable).check_file(path).include == GitIgnoreSpec.from_lines(usable).check_file(path).include


def theirs(line: str) -> GitIgnoreSpec | None:
    try:
        return GitIgnoreSpec.from_lines([line])
    except (ValueError, re.error):
        return None


@pytest.mark.parametrize(
    ("pattern", "name"),
    [
        ("*a" * 40 + "*b", "a" * 250),
        ("**/a/" * 40 + "b", "a/" * 2_000 + "c"),
        ("**/*a*a*a/" * 30 + "b", ("a" * 250 + "/") * 16 + "c"),
        ("*[ab]" * 40 + "*c", "ab" * 125),
        ("*?" * 60 + "b", "a" * 250),
        ("**" * 100 + "b", "a" * 250),
    ],
)
def test_no_name_makes_a_pattern_try_for_long(pattern: str, name: str) -> None:
    """Eight stars took 150 s for a name of 60 letters."""
    assert not spec_of([pattern]).match_file(name)


@pytest.mark.parametrize("pattern", ["*a*b*c", "**/a/**/b/**/c", "*a*b*/**/c*d*e/**/f", "x*y*z*/", "!*?*?*?"])
def test_nothing_but_the_last_part_is_tried_again(pattern: str) -> None:
    """Of the repetitions in an expression, all but those of the last part stand in an atomic group."""
    (one,) = spec_of([pattern]).patterns
    assert one.regex is not None
    text = one.regex.pattern
    while (shorter := re.sub(r"\(\?>[^()]*\)|\(\?:/?\[\^/\]\+\+/?\)\*\?", "", text)) != text:
        text = shorter
    last = text.replace("(?:.+/)?", "").replace("(?:/.+)?", "")
    assert all(
        segment.count("[^/]*") <= 1 for segment in last.replace("[^/]", "[^|]").replace("[^|]*", "[^/]*").split("/")
    )
    assert text.count(".+") <= 1


def test_what_is_no_pattern() -> None:
    assert not is_pattern("[z-a]")  # it ended a scan with a traceback
    assert not is_pattern("[z-a]***")
    assert not is_pattern("!")
    assert not is_pattern("a" * (MAX_LENGTH + 1))
    assert is_pattern("a" * MAX_LENGTH)
    assert is_pattern("***[")


def test_an_ignore_file_that_says_too_much(project: Any, perfaudit: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("perfaudit.patterns.MAX_PATTERNS", 5)
    folder = project(**{"net.py": "import torch\n", "sub/net.py": "import torch\n", "late.py": "import torch\n"})
    (folder / ".git").mkdir()
    Path(".gitignore").write_text("[z-a]\n# a remark\n\nx1\nx2\n" + "y" * 2_000 + "\nx3\n")
    Path("sub/.gitignore").write_text("x4\nx5\nnet.py\nx6\n")
    done = perfaudit("scan", ".", "--no-cache")
    assert ".gitignore: not audited: 1 of its patterns not used: 5 hold for a path" in done.out
    assert "sub/.gitignore: not audited: 2 of its patterns not used" in done.out
    assert "3 files" in done.out  # `net.py` was the sixth that would have held


def test_settings_with_too_many_patterns(project: Any, perfaudit: Run) -> None:
    names = ", ".join(f'"a{n}"' for n in range(MAX_PATTERNS + 1))
    project(**{"net.py": "import torch\n", "pyproject.toml": f"[tool.perfaudit]\nexclude = [{names}]\n"})
    done = perfaudit("scan", ".")
    assert (done.code, done.err.partition("pyproject.toml")[2]) == (
        2,
        ":2: tool.perfaudit.exclude has more than 2,000 patterns\n",
    )


def test_patterns_are_read_once_for_all_findings(project: Any, perfaudit: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """They were read again for each finding: 100,000 findings took an hour."""
    calls = []
    real = patterns.pattern_of
    monkeypatch.setattr(patterns, "pattern_of", lambda line: calls.append(line) or real(line))
    loaders = "import torch\n" + "torch.utils.data.DataLoader(d)\n" * 50
    project(**{"net.py": loaders, "pyproject.toml": '[tool.perfaudit.per-file-ignores]\n"n*" = ["PA101"]\n'})
    assert perfaudit("scan", "net.py", "--select", "PA101").code == 0
    assert calls == ["n*", "n*"]  # once to see whether it is one
