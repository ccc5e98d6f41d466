"""What the bytes of one file say to a question of another one, without parsing: marks that each file of a scan is given."""

from __future__ import annotations

import re

from perfaudit.expressions import matches_at_lines_with, regex
from perfaudit.static.project.loader_marks import marks_of_loaders

# Each begins with letters that stand for themselves: such an expression is looked for ten times as fast as a choice of several.
_TO_ACCELERATOR = tuple(
    regex(pattern)
    for pattern in (
        *(rb"%s%s\b" % (quote, name) for name in (b"cuda", b"mps", b"xpu") for quote in (b'"', b"'")),
        *(rb"\.cuda\(", rb"\.to\(\s*(?:\w+\.)*device\b", rb"accelerator\.prepare"),
        rb"accelerator=[\"']gpu[\"']",  # of a trainer
    )
)
# Of a trainer, too; not in a comment, nor `--gpus=2` of a command line. Searched only where the word is.
_GPUS = regex(rb"^[^#\n]*(?<![a-zA-Z_-])gpus=(?!0\b|None\b|[\"']{2})", re.MULTILINE)
_AUTO = regex(rb"accelerator=[\"']auto[\"']")
_MAC_WORDS = (b'"mps', b"'mps", b".mps")
_SECOND_WORDS = (b"create_graph", b"autograd", b"torch.func", b"functorch", b"learn2learn", b"pyhessian", b"torchopt")
_MIXED_TYPES = tuple(
    regex(pattern)
    for pattern in (
        *(rb"\.half\(\s*\)", rb"\.bfloat16\(\s*\)", rb"\.to\((?:(?!\.to\()[^)\n])*?(?:float16|half\b|dtype)"),
        *(rb"FullyShardedDataParallel", rb"fully_shard", rb"deepspeed"),
    )
)
_TYPE_WORDS = (b"half", b"float16", b"dtype", b"fully_shard", b"FullyShardedDataParallel", b"deepspeed")
_HOOK_WORDS = (b"register_forward", b"register_full_backward", b"register_backward")
# Imports of what no torch from 2.0 on has; indented, they may be one of two ways.
OLD_TORCH = "old torch"
# Of these, what no torch with autocast in bfloat16, from 1.10 on, has: all but `torch._six`, which went with 2.0.
BEFORE_AUTOCAST = "torch before autocast"
# A loss that is indexed without dimensions, which raises in every torch since 1.0.
INDEXED_LOSS = "indexed loss"
# Marks that every file's first look has, so that any file may ask for them.
FIRST_LOOK = frozenset({OLD_TORCH, BEFORE_AUTOCAST, INDEXED_LOSS, "accelerator"})
_OLD_WORDS = (b"torch._six", b"torch.utils.ffi")  # and torchtext's own
_OLD_TORCH = regex(rb"(?:from|import)[ \t]+(?:torchtext\.legacy|torch\._six|torch\.utils\.ffi)\b")
_SIX = regex(rb"(?:from|import)[ \t]+torch\._six\b")
_XRANGE = regex(rb"\bxrange\b(?!\()")  # where Python 3 is given one
# What torchtext had until torch 1.8.
_OLD_TORCHTEXT = regex(rb"\bdata\.(?:Field|LabelField|BucketIterator|TabularDataset)\(")
_INDEXED_LOSS = regex(rb"\bloss\w{0,20}\.data\[0\]")


def marks_of_bytes(data: bytes) -> frozenset[str]:
    """What decides whether a file is worth parsing for a question: "torch", "accelerator", "bias", "hook" and so on.

    Every word takes a look at the whole text, of every file of a scan: none is looked for twice.
    """
    marks = []
    has_cuda, has_accelerator, has_mps = b"cuda" in data, b"accelerator" in data, b"mps" in data
    names_device = has_cuda or has_accelerator or has_mps or b"device" in data or b"xpu" in data
    if b".parameters()" in data or b".backward(" in data:
        marks.append("weights")
    if b"torch" in data or b"\0" in data:  # null bytes: another encoding, in which the word would look otherwise
        marks.append("torch")
    moves = names_device and any(p.search(data) for p in _TO_ACCELERATOR)
    if moves or (b"gpus=" in data and _GPUS.search(data)):
        marks.append("accelerator")
    if b"TrainingArguments(" in data:
        marks.append("trainer")  # of transformers, which trains a model of torch's for a file that need not say so
    if has_accelerator and _AUTO.search(data):
        marks.append("accelerator if there is one")
    if has_cuda:
        marks.append("cuda")
    if has_mps and any(word in data for word in _MAC_WORDS):
        marks.append("mac")
    if b".bias" in data:
        marks.append("bias")
    if b"register_" in data and any(word in data for word in _HOOK_WORDS):
        marks.append("hook")
    if b".forward" in data and (b".forward =" in data or b".forward=" in data):
        marks.append("forward")
    if any(word in data for word in _TYPE_WORDS) and any(p.search(data) for p in _MIXED_TYPES):
        marks.append("mixed types")
    marks += marks_of_loaders(data)
    if any(word in data for word in _SECOND_WORDS) or b"innerloop_ctx" in data:
        marks.append("second derivatives")
    if b".grad.detach_(" in data:
        marks.append("gradients detached in place")
    return frozenset((*marks, *_marks_of_age(data)))


def _marks_of_age(data: bytes) -> tuple[str, ...]:
    """Whether a text needs a torch from before 2.0, and whether one from before autocast in bfloat16."""
    has_torchtext = b"torchtext" in data
    may_import = has_torchtext or any(word in data for word in _OLD_WORDS)
    found = matches_at_lines_with(b"import", _OLD_TORCH, data) if may_import else ()
    imported = {match[0] for match in found}
    indexed = (INDEXED_LOSS,) if b".data[0]" in data and _INDEXED_LOSS.search(data) else ()
    is_older = has_torchtext and _OLD_TORCHTEXT.search(data) is not None
    if is_older or any(not _SIX.match(name) for name in imported) or is_python_2(data):
        return OLD_TORCH, BEFORE_AUTOCAST, *indexed
    return (OLD_TORCH, *indexed) if imported else indexed


def is_python_2(data: bytes) -> bool:
    """Whether a text calls `xrange` and nothing in it makes one."""
    return b"xrange(" in data and _XRANGE.search(data) is None
