"""How much a batch has to compute, and how much of that is padding. Knows no torch."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any

from perfaudit.script.samples import attribute_of

MASK = "attention_mask"
MASKS = ("attention_mask", "padding_mask")  # 1 where there is a token, as tokenizers of Hugging Face make them
MOST_DEPTH = 4


def contents_of(batch: Any) -> tuple[int, int]:
    """Elements of a batch's largest tensor, those of padding left out where a mask tells, and how many of them are padding.

    Of a batch of texts, elements are tokens. (0, 0) where no tensor is in sight. A mask on an accelerator is not read: that
    would wait for the device.
    """
    if (mask := _mask(batch, MOST_DEPTH)) is not None:
        with contextlib.suppress(Exception):  # a mask of some class of the script's own
            tokens = int(mask.sum())
            if 0 <= tokens <= mask.numel():
                return tokens, mask.numel() - tokens
    return _largest(batch, MOST_DEPTH), 0


def tokens_of(batch: Any) -> tuple[int, int] | None:
    """Tokens of a batch of texts and the padding beside them, where a mask of one number a token is certain about it."""
    mask = _mask(batch, MOST_DEPTH, (MASK,))
    if mask is None or attribute_of(mask, "ndim") != 2:
        return None
    with contextlib.suppress(Exception):  # a mask of some class of the script's own
        tokens = int((mask != 0).sum())
        return (tokens, mask.numel() - tokens) if tokens else None
    return None


def _mask(batch: Any, depth: int, names: tuple[str, ...] = MASKS) -> Any:
    if isinstance(batch, Mapping):
        for name in names:
            found = batch.get(name)
            if attribute_of(attribute_of(found, "device"), "type") == "cpu":
                return found
    if depth and isinstance(batch, (list, tuple)):
        return next((found for part in batch if (found := _mask(part, depth - 1, names)) is not None), None)
    return None


def _largest(batch: Any, depth: int) -> int:
    count = attribute_of(batch, "numel")
    if callable(count):
        with contextlib.suppress(Exception):  # a class of the script's own that is called the same
            return int(count())
        return 0
    parts: Any = batch.values() if isinstance(batch, Mapping) else batch if isinstance(batch, (list, tuple)) else ()
    return max((_largest(part, depth - 1) for part in parts), default=0) if depth else 0
