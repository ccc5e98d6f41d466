"""Whether a model is wide in the code that a script reaches, and not only beside it in a file that the script imports."""

from __future__ import annotations

import re

from perfaudit.expressions import regex
from perfaudit.static.bare_code import without_comments
from perfaudit.static.model_width import LAYERS, WIDTH, marks_of_width
from perfaudit.static.project.convolution_marks import marks_of_convolutions
from perfaudit.static.source import Source
from perfaudit.static.understanding.reached_code import reached_code

# Policies over a few numbers, recurrent ones too: whatever their width, launches are what takes time.
ENVIRONMENT = regex(
    r"env\.step\(|\bgym(?:nasium)?\.make\(|ReplayBuffer", re.IGNORECASE, words="env.step(|make(|replaybuffer"
)
_SQUARED = regex(rb"\b\w*(?:channel|feature|feat|filter|plane|dim|width|nf)\w*\s*\*\s*\(?\s*\w+\s*\*\*\s*2\b")


def may_reach_width(source: Source) -> bool:
    """Whether what the script reaches, and its own text, name wide layers; True wherever what it reaches is not clear.

    Nor is it for layers of a width that is multiplied by a square, as those in front of a `PixelShuffle` are.
    """
    data = reached_bytes(source)
    if data is None or _SQUARED.search(data):
        return True
    if "wide convolutions" in marks_of_convolutions(data):
        return True
    return not ENVIRONMENT.search(data.decode("utf-8", "replace")) and {LAYERS, WIDTH} <= marks_of_width(data)


def may_reach_layers(source: Source) -> bool:
    """Whether what the script reaches names layers of sequences or maps; True wherever what it reaches is not clear."""
    data = reached_bytes(source)
    return data is None or LAYERS in marks_of_width(data)


def reached_bytes(source: Source) -> bytes | None:
    """The text of a script and what it reaches, without comments; None where that is not clear, or a library lends models."""
    reached = reached_code(source)
    if reached is None or reached.borrows_models:
        return None
    others = [there.text_of(node) for there, node in reached.code if there is not source]
    return without_comments("\n".join([source.text, *others]).encode("utf-8", "replace"))
