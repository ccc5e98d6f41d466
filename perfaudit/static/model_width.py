"""Whether the text of a file names layers that work on sequences or maps, and widths that keep a GPU busy, by names and numbers.

Widths are read where layers do not show them: options, defaults, constants, configurations. Reads bytes, parses nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice

from perfaudit.expressions import regex

LAYERS, WIDTH, NARROW = "layers of sequences or maps", "wide by name", "narrow by name"
_LAYER_WORDS = (
    *(b"Conv1d(", b"Conv2d(", b"Conv3d(", b"ConvTranspose1d(", b"ConvTranspose2d(", b"ConvTranspose3d("),
    *(b".LSTM(", b".GRU(", b"MultiheadAttention(", b"TransformerEncoderLayer(", b"TransformerDecoderLayer("),
    b"timm.models.vision_transformer",
)
# A recurrent layer of a kind that an option names: `getattr(nn, rnn_type)(size, hidden_size)`.
_RECURRENT_BY_TEXT = regex(rb"\bgetattr\(\s*(?:\w{1,10}\.)?nn\s*,\s*[\w.\[\]\"']{0,30}(?:rnn|RNN|lstm|LSTM|gru|GRU)")
_MAX_NUMBERS = 400  # of one file that are looked at
_REACH = 90  # bytes before a number in which its name is looked for
_NUMBER = regex(rb"\b\d{1,4}\b")
_NARROW_NUMBERS = frozenset(b"8 16 24 32 48 64 96 100 128 192 200".split())
_WIDE_NUMBERS = frozenset(b"256 320 384 512 640 768 896 1024 1280 1536 2048 3072 4096".split())
# `hidden_size=512`, `"d_model": 512`, `dim: int = 512`, `dim: int = field(default=512`, `add_argument("--hidden", type=int,
# default=512)`, and an option in a table: `"--hid-sz": {"type": int, "default": 512`.
_NAMED = regex(
    rb"(?<![a-z])(\w{0,20}?(?:hidden|hid[-_](?:sz|size|dim|[ST](?!\w))|d_?model|model_?dim|channel|filters|planes|n_?feat|feature|n_?embd|embed|rnn_size|d_?inner|d_?ff|dim|emb_?size)"
    rb"\w{0,20})[\"']?"
    rb"(?:\s*(?::\s*int\s*)?[=:]\s*(?:(?:attrs?\.)?(?:ib|field|Field)\(\s*(?:default\s*=\s*)?)?|\s*,\s*(?:[\"'][\w-]{1,20}[\"']\s*,\s*)?(?:type\s*=\s*int\s*,\s*)?default\s*=\s*"
    rb"|\s*:\s*\{\s*(?:[\"']type[\"']\s*:\s*int\s*,\s*)?[\"']default[\"']\s*:\s*)\[?$",
    2,
)
# A layer or a block of layers that is given the number: `ConvNorm(80, 512`, `nn.LSTM(512`, `Down(256, 512`; of a function that
# makes a row of layers also as its third argument: `_make_layer(block, counts[3], 640`.
_GIVEN = regex(
    rb"(?:[Cc]onv|LSTM|GRU|[Bb]lock|[Ll]ayer|\bDown|\bUp)\w{0,20}\(\s*(?:[\w.+*-]{1,20}\s*,\s*)?$"
    rb"|_make_\w{0,20}layer\w{0,20}\(\s*(?:[\w.\[\]]{1,20}\s*,\s*){2}$"
)
# A convolution that is given the name: `nn.Conv2d(64, self.feat_dim`.
_GIVEN_NUMBER = rb"\b%s\s*(?::\s*int\s*)?=\s*(\d{1,4})\b"
_CONVOLVES = rb"[Cc]onv\w{0,20}\(\s*(?:[\w.+*]{1,30}\s*,\s*)?(?:self\.)?%s\b(?!\s*/)"
# `n_filters * 16`, of which a default says what it is: `n_filters=16`. The number is looked for, and then its name before it.
_FACTOR = regex(rb"\*\s?(\d{1,2})\b")
_MULTIPLIED = regex(
    rb"\b(\w{0,20}(?:filters?|filts?|channels?|planes|feats?|features|width|n[dg]?f|dim|base_c\w?)|n1|base|ch)\s?$",
    words="filt|ch|planes|feat|width|nf|ndf|ngf|dim|base|n1",
)
# `8 * n_filters`: the factor first.
_FACTOR_FIRST = regex(
    rb"(?<![\w.*])(\d{1,2})\s?\*\s?(?:self\.)?(\w{0,20}(?:filters?|filts?|channels?|planes|feats?|features|features_[a-z]|n[dg]?f))\b(?!\s?\*)"
)
# `dim * 2**3`, as the deepest level of a U-shaped model has it, and `dim * 2 ** (self.num_layers - 1)`, of four levels as a rule.
_POWER = regex(rb"\b(\w{0,20})\s?\*\s?2\s?\*\*\s?(?:(\d)\b|\((?:self\.)?num_layers\s?-\s?1\))")
_LEVELS = 4
# `(2**level) * self.n_feat`, `self.start_filts * (2**i)` and `n_feat * stride**level`, of three levels at the least.
_RISING = regex(
    rb"\(2\s?\*\*\s?[a-z]\w{0,7}\)\s?\*\s?(?:self\.)?(\w{1,20})"
    rb"|\b(\w{1,20})\s?\*\s?\(?(?:2|stride)\s?\*\*\s?[a-z]\w{0,7}\b"
)
_RISEN = 4
_WIDENED = regex(rb"\b(\d{2,3})\s?\*\s?(?:self\.)?(widen\w{0,10})\b")  # `256 * self.widen_factor`
# `--widen-factor`, of which 8 is a wide residual network; 4 is what scripts of many models have it by default.
_WIDEN_FACTOR = regex(rb"\bwiden[-_]?factor[\"']?\s*(?:=|,[^\n#]{0,40}?\bdefault\s*=)\s*(\d{1,2})\b")
_WIDEST = 8  # the factor from which on the last layers have 512 channels
_DEFAULT = rb"\b(?:(?:init|initial|base|start|num|n)_)?%s\s*(?::\s*int\s*)?=\s*(\d{1,3})\b"
_NAME_REACH = 40  # bytes before a factor in which its name is looked for
# `channels=128` and `channel_mult=[1, 2, 4]` of one configuration: a level of the model for each factor.
_FACTORS = regex(
    rb"\b(?:\w{0,12}_)?mult(?:s|ipliers?)?[\"']?\s*(?::\s*[\w.\[\], ]{1,20})?(?:=|:|,\s*default\s*=)\s*[\[(]([\d, ]{3,40})[\])]"
)
_BASE = regex(
    rb"\b(?:ch|dim|(?:\w{0,10}_)?channels?)[\"']?\s*(?:[=:]|,\s*(?:type\s*=\s*int\s*,\s*)?default\s*=)\s*(\d{2,4})\b"
)
_WIDE = 256  # channels, as `entry.WIDE_CONVOLUTION`
_FEWEST = 16  # channels: fewer are those of images
# Sizes of images, windows, texts and tables, levels of sound, and what linear layers get once for each sample.
_NO_WIDTH = (
    *(b"image", b"img", b"crop", b"seq", b"len", b"batch", b"vocab", b"fft", b"mel", b"audio", b"class", b"hop"),
    *(b"win_", b"output", b"out_dim", b"quanti", b"fc_channel", b"fcchannel"),
)
_OF_NOISE = regex(rb"latent|noise|^n?z_?dim")  # what a generator is given: few numbers in front of wide layers
_GETS_NOISE = regex(rb"(?i:generator|decoder)")  # a class by this name, and no other
_BUILDS_GENERATOR = regex(rb"\b\w*Generator\(")
_IN_CLASS = regex(rb"^class[ \t]+(\w+)", re.MULTILINE)
_TENSORS = regex(rb"(?:\w*Tensor|Variable)$")
# The call that a place is an argument of, directly: its name, and what it is given before. One that builds something has a
# name of a class or a layer.
_CALLED = regex(rb"([A-Za-z_]\w*)\((?:[^()]|\([^()]*+\))*+$")
_BUILDS = regex(rb"[A-Z]|\w*(?:conv|block|layer|linear|norm)")
_IS_ARGUMENT = regex(rb"(?:[(,]|[(,]\s*\w+\s*=)\s*$")
_CALL_REACH = 300  # bytes before a place in which its call is looked for
_ATTENTION = regex(rb"[Aa]ttention|[Tt]ransformer")


def marks_of_width(data: bytes) -> set[str]:
    """Which of `LAYERS`, `WIDTH` and `NARROW` the text of a file carries: the last where it names widths, and none is wide."""
    marks = set()
    attends = b"Linear(" in data and b"softmax" in data and _ATTENTION.search(data) is not None
    is_recurrent = b"getattr(" in data and _RECURRENT_BY_TEXT.search(data) is not None
    if attends or is_recurrent or any(word in data for word in _LAYER_WORDS):
        marks.add(LAYERS)
    wide = {_width(data, place) for place in _places_of(_WIDE_NUMBERS, data)}
    narrow = {_width(data, place, is_narrow=True) for place in _places_of(_NARROW_NUMBERS, data)}
    # Convolutions that are narrow in sight say more of a model than a wide name beside them, which may be that of its head;
    # unless one of them is given it.
    is_wide = bool(wide & {"convolution", "layer"}) or _has_wide_product(data) or _has_wide_level(data)
    if is_wide or ("named" in wide and ("convolution" not in narrow or _gives_wide_name(data))):
        marks.add(WIDTH)
    elif (wide | narrow) - {""}:
        marks.add(NARROW)
    return marks


def _places_of(numbers: frozenset[bytes], data: bytes) -> Iterator[int]:
    """Where the text has one of these numbers, as far as it is looked at."""
    return islice((match.start() for match in _NUMBER.finditer(data) if match[0] in numbers), _MAX_NUMBERS)


def _gives_wide_name(data: bytes) -> bool:
    """Whether a convolution is given a name of a width that is wide wherever the text gives it a number: `feat_dim = 256`."""
    names = set()
    for place in _places_of(_WIDE_NUMBERS, data):
        before = data[max(place - _REACH, 0) : place]
        if _width(data, place) == "named" and (named := _NAMED.search(before)):
            names.add(named[1])
    return any(
        re.search(_CONVOLVES % re.escape(name), data)
        and min((int(value) for value in re.findall(_GIVEN_NUMBER % re.escape(name), data)), default=0) >= _WIDE
        for name in names
    )


def _has_wide_product(data: bytes) -> bool:
    """Whether the text multiplies or widens channels, and the smallest number that it gives makes them wide."""
    factors: dict[bytes, int] = {}
    for match in islice(_FACTOR.finditer(data), _MAX_NUMBERS):
        if named := _MULTIPLIED.search(data[max(match.start() - _NAME_REACH, 0) : match.start()]):
            factors[named[1]] = max(factors.get(named[1], 0), int(match[1]))
    for match in islice(_FACTOR_FIRST.finditer(data), _MAX_NUMBERS):
        if not _is_built_with(data, match.start()):
            continue
        factors[match[2]] = max(factors.get(match[2], 0), int(match[1]))
    has_power = b"**" in data
    for match in islice(_POWER.finditer(data), _MAX_NUMBERS) if has_power else ():
        if _MULTIPLIED.fullmatch(match[1]):
            factors[match[1]] = max(factors.get(match[1], 0), 2 ** int(match[2] or _LEVELS - 1))
    for match in islice(_RISING.finditer(data), _MAX_NUMBERS) if has_power else ():
        if _MULTIPLIED.fullmatch(name := match[1] or match[2]):
            factors[name] = max(factors.get(name, 0), _RISEN)
    for name, factor in factors.items():
        given = [int(value) for value in re.findall(_DEFAULT % re.escape(name), data)]
        # `softmax(dim=1)` names an axis, `log(x, base=10)` no channels
        given = [value for value in given if value >= _FEWEST or name not in (b"dim", b"base")]
        if given and min(given) * factor >= _WIDE and not _is_no_width(name):
            return True
    if b"widen" not in data:
        return False
    if any(int(match[1]) >= _WIDEST for match in islice(_WIDEN_FACTOR.finditer(data), _MAX_NUMBERS)):
        return True
    return any(
        int(match[1]) * min((int(value) for value in re.findall(_DEFAULT % match[2], data)), default=1) >= _WIDE
        for match in islice(_WIDENED.finditer(data), _MAX_NUMBERS)
    )


def _has_wide_level(data: bytes) -> bool:
    """Whether the text gives channels and the factors of the levels of a model, and the smallest of either make one wide."""
    if b"mult" not in data:
        return False
    factors = [
        max(int(f) for f in m[1].split(b",") if f.strip()) for m in islice(_FACTORS.finditer(data), _MAX_NUMBERS)
    ]
    if not factors:
        return False
    bases = [int(match[1]) for match in islice(_BASE.finditer(data), _MAX_NUMBERS)]
    widths = [base for base in bases if base >= _FEWEST]  # `in_channels=3` is no width
    return bool(widths) and min(widths) * min(factors) >= _WIDE


def _is_built_with(data: bytes, at: int) -> bool:
    """Whether the place is an argument of a call that builds something: `Block(8 * features)`, `conv(out_channels=8 * n)`."""
    before = data[max(at - _CALL_REACH, 0) : at]
    called = _CALLED.search(before) if _IS_ARGUMENT.search(before) else None
    return called is not None and _BUILDS.match(called[1]) is not None


def _is_no_width(name: bytes) -> bool:
    name = name.lower()
    return any(word in name for word in _NO_WIDTH)


def _is_noise(data: bytes, name: bytes) -> bool:
    """Whether a name is by its word that of the noise which a generator or decoder gets, and no other class of the text.

    Where none gets it, the text builds a generator, which has it by default.
    """
    if not _OF_NOISE.search(name.lower()):
        return False
    getters = set()
    for match in islice(re.finditer(rb"(?<![A-Za-z0-9_])%s\b" % re.escape(name), data), _MAX_NUMBERS):
        called = _CALLED.search(data[max(match.start() - _CALL_REACH, 0) : match.start()])
        if called is not None and called[1][:1].isupper() and not _TENSORS.match(called[1]):
            getters.add(called[1])
        elif called is not None and called[1] == b"__init__":
            getters |= {found[1] for found in [*_IN_CLASS.finditer(data, 0, match.start())][-1:]}
    return all(_GETS_NOISE.search(g) for g in getters) if getters else _BUILDS_GENERATOR.search(data) is not None


def _width(data: bytes, at: int, *, is_narrow: bool = False) -> str:
    """Whether the number there is given to a "convolution" or another "layer", or is "named" as a width; "" for neither.

    Noise and latent spaces are no layers: a wide one says nothing of them, a narrow one that generators and decoders get neither.
    """
    before = data[max(at - _REACH, 0) : at]
    if before.rpartition(b"\n")[2].lstrip().startswith(b"#"):
        return ""
    if named := _NAMED.search(before):
        name = named[1]
        is_none = _is_no_width(name) or (_is_noise(data, name) if is_narrow else _OF_NOISE.search(name.lower()))
        return "" if is_none else "named"
    if given := _GIVEN.search(before):
        return "convolution" if given[0].lower().startswith(b"conv") else "layer"
    return ""
