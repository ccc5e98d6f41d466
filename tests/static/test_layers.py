"""Layers of edits with one of them left out: the text is as if it had never been made."""

from __future__ import annotations

import random

import pytest

from perfaudit.findings import Edit, Span
from perfaudit.static import edit
from perfaudit.static.layers import text_of, without


def put(start: int, end: int, text: str) -> tuple[Edit, ...]:
    return (Edit(Span(start, end), text),)


TEXT = "abcdefghij"


@pytest.mark.parametrize(
    ("layers", "left_out", "text"),
    [
        ([put(1, 2, "BBB"), put(8, 9, "G")], 0, "abcdefGhij"),  # the second counts in the text with the first
        ([put(1, 2, "BBB"), put(8, 9, "G")], 1, "aBBBcdefghij"),
        ([put(8, 9, "III"), put(1, 2, "B")], 0, "aBcdefghij"),
        ([put(4, 4, "+"), put(0, 1, ""), put(9, 10, "J")], 0, "bcdefghiJ"),
        ([put(1, 2, "XYZ"), put(2, 3, "y")], 0, None),  # inside what the first wrote
        ([put(1, 1, "("), put(1, 1, "[")], 0, None),  # which stands first is not known
        ([put(1, 2, ""), put(1, 1, "+")], 0, None),  # where the first took something out
        ([put(1, 2, "B")], 0, TEXT),
    ],
)
def test_a_layer_left_out(layers: list[tuple[Edit, ...]], left_out: int, text: str | None) -> None:
    kept = without(TEXT, layers, left_out)
    assert (None if kept is None else text_of(TEXT, kept)) == text


@pytest.mark.parametrize("seed", range(200))
def test_any_layers_in_places_of_their_own(seed: int) -> None:
    """Each layer changes letters of its own, so leaving one out is the same as never having made it."""
    draw = random.Random(seed)
    start = "".join(f"<{letter}>" for letter in "abcdefghij")
    names = draw.sample("abcdefghij", 6)
    news = {name: draw.choice(["", "1", "22", "333"]) * draw.randint(0, 3) for name in names}

    def layered(order: list[list[str]]) -> tuple[str, list[tuple[Edit, ...]]]:
        text, layers = start, []
        for group in order:
            places = [(text.index(f"<{name}>") + 1, name) for name in group]
            layer = tuple(Edit(Span(at, at + 1), news[name]) for at, name in places)
            layers.append(layer)
            text = edit.apply(text, layer)
        return text, layers

    order = [names[:2], names[2:3], names[3:]]
    _, layers = layered(order)
    for number in range(3):
        kept = without(start, layers, number)
        assert kept is not None
        assert text_of(start, kept) == layered(order[:number] + order[number + 1 :])[0]
