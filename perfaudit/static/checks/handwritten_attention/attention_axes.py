"""The axes that equations, patterns and sizes speak of."""

from __future__ import annotations

import ast
import re

from perfaudit.expressions import regex
from perfaudit.static.understanding.names import last_name

_WIDTH = regex(r"[cde]", re.IGNORECASE)  # the letters that patterns have for channels and the width of a head
_HEAD_WIDTH = regex(r"head_?(dim|size|width|channels)|(dim|d|size|channels|per)_?head|^d_?[kqv]$", re.IGNORECASE)


def equation(text: str) -> tuple[list[list[str]], list[str]] | None:
    """The axes of both inputs and of the output; None where it has no output or not two inputs."""
    if "->" not in text:
        return None
    left, _, right = text.partition("->")
    inputs = left.split(",")
    if len(inputs) != 2:
        return None
    return [axes(side) for side in inputs], axes(right)


def axes(text: str) -> list[str]:
    """The axes of one operand: letters, or words parted by spaces as einops writes them."""
    words = text.replace("...", " ... ").split()
    if any(len(word) > 1 and word != "..." for word in words) and len([w for w in words if w != "..."]) > 1:
        return words
    return [letter for word in words for letter in ([word] if word == "..." else list(word))]


def letters(axis: str) -> list[str]:
    return re.findall(r"[^\s()]+", axis)


def score_axes(inputs: list[list[str]], out: list[str]) -> tuple[int, int, int] | None:
    """Which input are the queries, which the keys, and the axis of the keys counted from the end.

    Both share what is summed over, and each brings axes of its own; the keys bring one.
    """
    first, second = set(inputs[0]), set(inputs[1])
    if not (first & second) - set(out) or (first ^ second) - set(out):
        return None
    only = [[a for a in out if a in first - second], [a for a in out if a in second - first]]
    if not (only[0] and only[1]) or min(len(only[0]), len(only[1])) != 1:
        return None
    swapped = len(only[1]) != 1 or (len(only[0]) == 1 and out.index(only[0][0]) > out.index(only[1][0]))
    query, key = (1, 0) if swapped else (0, 1)
    return query, key, out.index(only[key][0]) - len(out)


def sums_over(letters: list[str], others: list[str], out: list[str], axis: int) -> bool:
    """Whether an equation sums weights over the axis of the keys, and over nothing else of them."""
    if len(letters) < -axis:
        return False
    key = letters[axis]
    return key in others and key not in out and all(a in out for a in letters if a != key)


def pattern_axes(pattern: str) -> tuple[list[str], list[str]]:
    """Both sides of an einops pattern: "b n (h d) -> b h n d" is ["b", "n", "(h d)"] and ["b", "h", "n", "d"]."""
    before, _, after = pattern.partition("->")
    return re.findall(r"\([^)]*\)|[^\s()]+", before), re.findall(r"\([^)]*\)|[^\s()]+", after)


def width_in_pattern(before: list[str], after: list[str]) -> int | None:
    """Where a pattern that parts the heads puts the width of one, counted from the end: -1 in "b n (h d) -> b h n d"."""
    parted = [letters(axis) for axis in before if axis not in after and len(letters(axis)) > 1]
    if len(parted) != 1 or not _WIDTH.match(parted[0][-1]) or parted[0][-1] not in after:
        return None
    return after.index(parted[0][-1]) - len(after)


def width_in_sizes(sizes: list[ast.expr]) -> int | None:
    """The same of sizes: -2 in `view(b, heads, c // heads, n)`. Of three axes the quotient may be of the positions."""
    found = [place for place in (-1, -2) if len(sizes) > 2 and _is_head_width(sizes[place], len(sizes))]
    return found[0] if len(found) == 1 else None


def _is_head_width(size: ast.expr, count: int) -> bool:
    if isinstance(size, ast.BinOp):
        return count > 3 and isinstance(size.op, ast.FloorDiv)
    return _HEAD_WIDTH.search(last_name(size)) is not None
