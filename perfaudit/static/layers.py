"""Patches made one on top of the other: the text with one of them left out again."""

from __future__ import annotations

from collections.abc import Sequence

from perfaudit.findings import Edit, Span
from perfaudit.static import edit
from perfaudit.static.edit import Edits


def text_of(text: str, layers: Sequence[Edits]) -> str:
    """The text with all layers."""
    for layer in layers:
        text = edit.apply(text, layer)
    return text


def without(text: str, layers: Sequence[Edits], left_out: int) -> list[Edits] | None:
    """The layers but one, as they read where it was never made; None where a later one changes what that one wrote.

    layers: edits of the text as the layers before have left it, each without overlaps.
    """
    kept = list(layers[:left_out])
    below = text_of(text, kept)
    back = _inverse(below, layers[left_out])  # from the text with the layer to that without it
    for layer in layers[left_out + 1 :]:
        moved, rest = _moved(layer, back), _moved(back, layer)
        if moved is None or rest is None:
            return None
        kept.append(moved)
        back = rest
    return kept


def _inverse(text: str, edits: Edits) -> Edits:
    """The edits that take these back, as spans of the edited text."""
    undo, shift = [], 0
    for item in sorted(edits):
        start = item.span.start + shift
        undo.append(Edit(Span(start, start + len(item.text)), text[item.span.start : item.span.end]))
        shift += len(item.text) - (item.span.end - item.span.start)
    return tuple(undo)


def _moved(edits: Edits, over: Edits) -> Edits | None:
    """The edits as they read once `over`, which are of the same text, have been made; None where the two touch."""
    moved = []
    for item in edits:
        shift = 0
        for other in over:
            if _touch(item.span, other.span):
                return None
            if other.span.end <= item.span.start:
                shift += len(other.text) - (other.span.end - other.span.start)
        moved.append(Edit(Span(item.span.start + shift, item.span.end + shift), item.text))
    return tuple(moved)


def _touch(a: Span, b: Span) -> bool:
    """Whether two spans share a character or a border: what was inserted at a border may belong to either."""
    return a.start <= b.end and b.start <= a.end
