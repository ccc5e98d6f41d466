"""A series as one line of blocks, "▁▂▂▁▆▇█", and text for terminals that have no such signs."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

BLOCKS = "▁▂▃▄▅▆▇█"
ASCII = "_.-=+*#@"  # the same steps with signs that every terminal has

# Signs of reports and of help, for terminals that lack them.
_STAND_IN = dict(zip(BLOCKS, ASCII, strict=True)) | {
    "│": "|",
    "–": "-",
    "×": "x",
    "≤": "<=",
    "≥": ">=",
    "≈": "~",
    "±": "+-",
}
_PLAIN = {"▲": "^", "→": "->", "·": "-", "…": "...", "µ": "u", "−": "-", "─": "-"}
_STAND_IN |= _PLAIN


def sparkline(values: Sequence[float | None], width: int, blocks: str = BLOCKS) -> str:
    """One sign a value, lowest to highest; a gap for None. Of more than `width` values, medians of as many buckets.

    The lowest value is the lowest block, not zero: a caller says the lowest and the highest beside it. Equal values lie in
    the middle. "" for no values.
    """
    shown = list(values) if len(values) <= width else _medians(values, width)
    known = [value for value in shown if value is not None]
    if not known:
        return " " * len(shown)
    low, high = min(known), max(known)
    return "".join(" " if value is None else _block(value, low, high, blocks) for value in shown)


def _medians(values: Sequence[float | None], width: int) -> list[float | None]:
    """The series in `width` pieces of almost equal length, each as its median; None for a piece that holds nothing."""
    medians: list[float | None] = []
    for i in range(width):
        piece = [v for v in values[i * len(values) // width : (i + 1) * len(values) // width] if v is not None]
        medians.append(statistics.median(piece) if piece else None)
    return medians


def _block(value: float, low: float, high: float, blocks: str) -> str:
    if high == low:
        return blocks[len(blocks) // 2 - 1]
    return blocks[min(int((value - low) / (high - low) * len(blocks)), len(blocks) - 1)]


def has_blocks(encoding: str | None) -> bool:
    """Whether a stream with this encoding can show the blocks and the other signs of a history."""
    try:
        (BLOCKS + "".join(_PLAIN)).encode(encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return False
    return True


def encodable(text: str, encoding: str | None) -> str:
    """The text as a stream with this encoding can show it: signs of ours that it lacks in ASCII, of others "?"."""
    encoding = encoding or "ascii"
    try:
        text.encode(encoding)
    except LookupError:
        return encodable(text, "ascii")
    except UnicodeEncodeError:
        signs = {sign: _sign(sign, encoding) for sign in set(text) if not sign.isascii()}
        return "".join(signs.get(sign, sign) for sign in text)
    return text


def _sign(sign: str, encoding: str) -> str:
    try:
        sign.encode(encoding)
    except UnicodeEncodeError:
        return _STAND_IN.get(sign, "?")
    return sign


def in_ascii(text: str) -> str:
    """The text with ASCII in place of the signs of ours that a terminal may lack; blocks and other people's words stay."""
    return "".join(_PLAIN.get(sign, sign) for sign in text)
