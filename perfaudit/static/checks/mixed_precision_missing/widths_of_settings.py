"""How wide the layers of a program are as its settings files say: `hidden_dim: 512`, `channels: [64, 128, 256, 512]`."""

from __future__ import annotations

import functools
import re
from itertools import pairwise

from perfaudit.expressions import regex
from perfaudit.static.checks.mixed_precision_missing.reached_width import reached_bytes
from perfaudit.static.model_width import NARROW, WIDTH
from perfaudit.static.source import Source
from perfaudit.static.understanding.answers import remember
from perfaudit.static.understanding.built_by_settings import classes_built, files_of_program, may_be_chosen
from perfaudit.static.understanding.configured_values import is_configured_by_files

_READ_ONLY = {"fvcore"}  # whose nodes are those of yacs, with nothing in them
_WIDE = 256  # channels or features, as in `model_width`
_SET = regex(
    r"""^[ \t]*(?:-[ \t]+)?["']?(\w{2,40})["']?[ \t]*[:=][ \t]*(\d{2,4}|\[[ \t]*\d[\d, \t]{4,60}\])[ \t]*,?[ \t]*(?:\#.*)?$""",
    re.MULTILINE,
)
_NAMED = regex(
    r"(?i)hidden|hid_|d_?model|model_?dim|channel|filters|planes|n_?feat|features|embd|embed|rnn_size|d_?inner|d_?ff|_dims?(?:_|$)|^dims?_"
)
# Sizes of images, windows, texts and tables, and what is given out once for each sample.
_NO_WIDTH = regex(
    r"(?i)image|img|crop|seq|len|batch|vocab|fft|mel|audio|class|hop|win_|output|out_dim|latent|noise|size_"
)
# What may be as large as a width and is none: what goes in, how often, until when. A small number by such a name counts.
_COUNTS_ELSE = regex(
    r"(?i)every|step|freq|interval|epoch|iter|rate|max_|min_|limit|input|(?:^|_)in_|action|state|obs|_id$|(?:^n|num)_features$"
)
# The same of lists that double, by names that say no width: `milestones: [100, 200, 400]`, `resolutions: [64, 128, 256]`.
_LISTS_ELSE = regex(
    r"(?i)resol|(?:^|_)res(?:_|$)|mile|bound|bucket|bin|point|sched|decay|warm|lr|scale|stride|anchor|sigma|thresh|sizes|shape|window|patch|token"
    r"|positions|shots|counts|samples|budget|memory"
)
_FEWEST_LEVELS = 3


@remember
def width_of_settings(source: Source) -> str:
    """`WIDTH` where settings files give a width that the script reads and is wide in each of them, `NARROW` where none is.

    "" where they give none, or what the script reads is not clear. Of hydra's files those count that may be chosen. Where
    settings build the model, what they say of widths is read.
    """
    if source.neighbours is None or not is_configured_by_files(source, _READ_ONLY):
        return ""
    code = reached_bytes(source)
    if code is None and not classes_built(source):
        return ""
    given: dict[str, list[int]] = {}
    texts = dict(source.neighbours.texts_of_settings())
    own = files_of_program(source, set(texts))
    for file, text in texts.items():
        if file not in own:
            continue
        found = _names_and_widths(text)
        if any(width for _, width in found) and may_be_chosen(source, file):
            for name, width in found:
                given.setdefault(name, []).extend([width] if width else [])
    read = [widths for name, widths in given.items() if widths and (code is None or _is_read(code, name))]
    if not read:
        return ""
    return WIDTH if any(min(widths) >= _WIDE for widths in read) else NARROW


@functools.lru_cache(maxsize=512)  # each script of a project asks for the same files, of which there are 400 at most
def _names_and_widths(text: str) -> list[tuple[str, int]]:
    """The names of a text of settings with a number or a list, and the width that each gives, 0 for none."""
    return [(match[1], _widest(match[1], match[2])) for match in _SET.finditer(text)]


def _widest(name: str, value: str) -> int:
    """The largest number of a setting that is a width by its name, or a list of channels that double level by level; else 0."""
    numbers = [int(each) for each in value.strip("[] \t").split(",") if each.strip()]
    if _NO_WIDTH.search(name):
        return 0
    doubles = len(numbers) >= _FEWEST_LEVELS and all(b in (a, 2 * a) for a, b in pairwise(numbers))
    is_list_of_channels = doubles and numbers[-1] > numbers[0]
    is_named = _NAMED.search(name) is not None
    if not is_named and not is_list_of_channels:
        return 0
    is_doubtful = _COUNTS_ELSE.search(name) or (not is_named and _LISTS_ELSE.search(name))
    return 0 if is_doubtful and max(numbers) >= _WIDE else max(numbers)


def _is_read(code: bytes, name: str) -> bool:
    """Whether code takes a setting by its name: `cfg.hidden_dim`, `cfg["hidden_dim"]`, `**cfg` of a parameter of that name."""
    return re.search(rb"(?:[.\"'(,]|^)[ \t\r\n]*%s\b" % name.encode(), code) is not None
