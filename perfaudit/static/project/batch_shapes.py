"""Whether the text of a file says that batches differ in shape: images in several sizes, samples that are padded. Reads bytes."""

from __future__ import annotations

from itertools import islice

from perfaudit.expressions import regex
from perfaudit.static.bare_code import without_comments

_MAX_FUNCTIONS = 10_000  # of one file that are looked at
_WORDS = (b"scale_jitter", b"RandomResize(", b"bucket", b"models.detection", b"rogressive", b"ROGRESSIVE")
# Of sequences, which may be captions beside pictures of one size: it hangs on how the program collates.
PADS, _PADDED = "pads sequences", (b"pad_sequence", b"pack_padded")
# Progressive growing or resizing; score_sde has an option by the bare word for how its model is built.
_WHAT_PROGRESSES = r"[_ -]?(?:grow|resiz|size|train|learn|gan|image|patch|res_|scal)"
PROGRESSIVE = rf"progressive(?={_WHAT_PROGRESSES})"  # in any case
# Words in the text of an option, that one, padded targets of a loss and a histogram that is shown say nothing of the batches.
_BESIDE = regex(
    rb"\bhelp\s*=\s*(?:\"[^\"\n]*+\"|'[^'\n]*+')|\bimport\b[^\n]*+|(?:target|label|gt)\w{0,20}\s*=\s*pad_sequence\b|\bhist\w{0,20}\.bucket|"
    + rf"(?i:progressive(?!{_WHAT_PROGRESSES}))".encode()
)
# Of distances between places, as attention with relative positions counts them.
_OF_POSITIONS, _BUCKETS = b"relative_position", regex(rb"\w{0,40}bucket\w{0,40}")
_AUDIO = (b"torchaudio", b"librosa")  # clips differ in length, unless a loader stacks them as they are
# Images in several sizes. A loss, a discriminator, a layer or an output on several scales says nothing of the batches, nor does
# an option of monodepth2 for how its loss treats its scales.
SEVERAL_SIZES = (
    r"(?<!v1[_ ])(?<!without )multi[_-]?scale"
    r"(?![a-z_ ]{0,20}(?:loss|epe|ssim|stft|disc|feat|fus|att|deform|conv|block|modul|net|head|weight|output))"
)
_SEVERAL_SIZES = regex(SEVERAL_SIZES.encode())
# The same of a discriminator, by an option (`--netD`) or in its text, says nothing of them either.
_OF_DISCRIMINATOR = regex(
    rb"[\"']--net_?D[\"'][^\n]*+|\bhelp\s*=\s*(?:\"[^\"\n]*?discriminat[^\"\n]*+\"|'[^'\n]*?discriminat[^'\n]*+')"
)
# What a comment, too, may say of them alone: `# multi-scale training`.
_SEVERAL_IN_TRAINING = regex(
    rb"(?<!without )multi[_ -]?scale[_ -]{1,3}(?:train|test|input|image|img|crop|resiz|augment|batch|sampl|data)"
)
_OF_FEATURES = regex(rb"\bmulti_?scale\w{0,20}\s*=\s*torch\.(?:cat|stack)\(")  # of one batch, on several scales
# A function that makes batches, and in it the length of the longest sample.
_PADS = regex(
    rb"def \w{0,40}(?:pad|batch)\w{0,40}\((?:(?!\ndef |\nclass )[^\x00]){0,1500}?max\(\[?(?:len\(|map\(len|\w+\.(?:size|shape))"
)
# An image that is a batch by itself, in its own size: `img.reshape((1, 1, img.shape[0], img.shape[1]))`.
_ONE_IMAGE = regex(rb"\b(\w{1,40})\.reshape\(\(?\s?1,\s?[13],\s?\1\.shape\[0\],\s?\1\.shape\[1\]")
# What puts samples together; one that stacks them, and pads none, gives batches of one size where the samples have one.
COLLATES, STACKS_ONLY = "collates in a way of its own", "stacks what it collates"
_COLLATE = regex(rb"def \w{0,40}collat\w{0,40}\(")
# torch's own function, and the parameter that has it by default and is handed on.
_AS_USUAL = regex(rb"\bdefault_collate\b|[\"']?\bcollate_fn[\"']?\s*[:=]\s*(?:default_collate|(?:self\.)?collate_fn)\b")
_STACKS = (b"stack(", b"default_collate(")
_PADDING = regex(rb"pad|max\(|zeros|ones\(|full\(|resize|interpolate|\bdgl\b|Batch\b|batch\(")
# Boxes and the like are as many as there are in a sample, in images of one size; captions are as long as they are.
OF_LABELS = regex(rb"annot|box|target|label|gt_|caption")
_NEAR_BEFORE, _NEAR_BEHIND = 30, 10  # bytes around what pads in which the name of what is padded stands


def marks_of_shapes(data: bytes) -> set[str]:
    """Whether "sizes change", the file pads sequences, has to do with "audio", and how it collates."""
    marks = {"audio"} if any(word in data for word in _AUDIO) else set()
    if any(word in data for word in (*_WORDS, *_PADDED)):
        code = _BESIDE.sub(b"", without_comments(data))
        code = _BUCKETS.sub(b"", code) if _OF_POSITIONS in code else code
        marks |= {mark for mark, words in (("sizes change", _WORDS), (PADS, _PADDED)) if any(w in code for w in words)}
    if b"max(" in data and _PADS.search(data):
        marks.add("sizes change")
    if b"multi" in data and _SEVERAL_SIZES.search(data):
        code = _OF_DISCRIMINATOR.sub(b"", without_comments(data))
        is_said = _SEVERAL_IN_TRAINING.search(data) or _SEVERAL_SIZES.search(code)
        if is_said and not _OF_FEATURES.search(data):
            marks.add("sizes change")
    if b".reshape(" in data and _ONE_IMAGE.search(data):
        marks.add("sizes change")
    return marks | marks_of_collation(data) if b"collat" in data else marks


def marks_of_collation(data: bytes) -> set[str]:
    """Whether the text of a file has to do with collation, and defines functions for it that stack tensors and pad none."""
    if b"default_collate" in data and b"collat" not in _AS_USUAL.sub(b"", data):
        return set()
    found = list(islice(_COLLATE.finditer(data), _MAX_FUNCTIONS))
    bodies = [_body(data, match.start()) for match in found]
    if found and all(any(word in body for word in _STACKS) and not _pads_inputs(body) for body in bodies):
        return {COLLATES, STACKS_ONLY}
    return {COLLATES} | ({"sizes change"} if found else set())


def _pads_inputs(body: bytes) -> bool:
    """Whether a collate function pads something that is not named as boxes or labels right there."""
    for match in _PADDING.finditer(body):
        line_start = body.rfind(b"\n", 0, match.start()) + 1
        if not OF_LABELS.search(body, max(line_start, match.start() - _NEAR_BEFORE), match.end() + _NEAR_BEHIND):
            return True
    return False


def _body(data: bytes, at: int) -> bytes:
    """The text of a function from its `def` to the next line that is indented no deeper."""
    indent = at - data.rfind(b"\n", 0, at) - 1
    end = data.find(b"\n", at)
    while 0 <= end < len(data):
        stop = data.find(b"\n", end + 1)
        line = data[end + 1 : stop if stop >= 0 else len(data)]
        if line.strip() and len(line) - len(line.lstrip()) <= indent and not line.lstrip().startswith((b")", b"#")):
            return data[at:end]
        end = stop
    return data[at:]
