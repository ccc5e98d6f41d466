"""Sparklines: one sign a value, gaps, buckets, and terminals without blocks."""

from __future__ import annotations

import pytest

from perfaudit.render.sparkline import ASCII, BLOCKS, has_blocks, in_ascii, sparkline


@pytest.mark.parametrize(
    ("values", "width", "line"),
    [
        ([], 10, ""),
        ([5.0], 10, "▄"),
        ([5.0, 5.0], 10, "▄▄"),
        ([0.0, 1, 2, 3, 4, 5, 6, 7], 10, "▁▂▃▄▅▆▇█"),
        ([7.0, 0.0], 2, "█▁"),
        ([0.0, None, 7.0], 10, "▁ █"),
        ([None, None], 10, "  "),
        ([1.0, 1, 9, 1, 9, 9], 2, "▁█"),  # medians of three: 1 and 9
        ([1.0, None, None, 9.0], 2, "▁█"),
        ([None, None, None, 9.0], 2, " ▄"),
        ([-2.0, 0.0, 2.0], 3, "▁▅█"),
        ([1e-300, 2e-300], 3, "▁█"),
    ],
)
def test_a_line(values: list[float | None], width: int, line: str) -> None:
    assert sparkline(values, width) == line


@pytest.mark.parametrize("count", [1, 59, 60, 61, 119, 1000])
def test_no_wider_than_asked(count: int) -> None:
    assert len(sparkline([float(i) for i in range(count)], 60)) == min(count, 60)


def test_in_ascii() -> None:
    assert sparkline([0.0, 1, 2, 3, 4, 5, 6, 7], 10, ASCII) == ASCII
    assert ASCII.isascii()
    assert len(ASCII) == len(BLOCKS)
    assert in_ascii("▲ a: 41 µs → 44 µs · − ─ … ▁é") == "^ a: 41 us -> 44 us - - - ... ▁é"


@pytest.mark.parametrize(
    ("encoding", "has"),
    [
        ("utf-8", True),
        ("UTF8", True),
        ("ascii", False),
        ("latin-1", False),
        ("cp1252", False),
        (None, False),
        ("x", False),
    ],
)
def test_which_terminals_have_blocks(encoding: str | None, has: bool) -> None:
    assert has_blocks(encoding) is has
