"""How many samples a batch has. Knows no torch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def count_samples(batch: Any, dimensions: int = 1) -> int:
    """How many samples a batch has: the length of the first tensor of so many dimensions in it; 0 where there is none."""
    found = first_tensor(batch, dimensions)
    return 0 if found is None else int(found.shape[0])


def first_tensor(batch: Any, dimensions: int = 1) -> Any:
    """The first tensor of so many dimensions in a batch; None where there is none."""
    if not isinstance(batch, (list, tuple)):
        shape = getattr(batch, "shape", None)
        if shape is not None:  # a tensor has `values` too, which raises
            return batch if len(shape) >= dimensions else None
        if not isinstance(batch, Mapping):
            return None
        batch = batch.values()
    for part in batch:
        if (found := first_tensor(part, dimensions)) is not None:
            return found
    return None
