"""How many samples a batch has. Knows no torch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def count_samples(batch: Any, dimensions: int = 1) -> int:
    """How many samples a batch has: the length of the first tensor of so many dimensions in it; 0 where there is none."""
    return _count(batch, dimensions) or 0


def _count(batch: Any, dimensions: int) -> int | None:
    if not isinstance(batch, (list, tuple)):
        shape = getattr(batch, "shape", None)
        if shape is not None:  # a tensor has `values` too, which raises
            return int(shape[0]) if len(shape) >= dimensions else None
        if not isinstance(batch, Mapping):
            return None
        batch = batch.values()
    for part in batch:
        if (found := _count(part, dimensions)) is not None:
            return found
    return None
