"""How many samples a batch has. Imports no torch.

Batches, and what models are called with, are of any class of the script's: one that raises when it is asked tells nothing.
"""

from __future__ import annotations

import contextlib
import itertools
import sys
from collections.abc import Iterator, Mapping
from typing import Any


def count_samples(batch: Any, dimensions: int = 1) -> int:
    """How many samples a batch has: the length of the first tensor of so many dimensions in it; 0 where there is none."""
    found = first_tensor(batch, dimensions)
    return 0 if found is None else length_of(found, 0)


def attribute_of(thing: Any, name: str) -> Any:
    """An attribute of an object of the script's; None where it has none, or raises, as a dict whose keys are attributes."""
    try:
        return getattr(thing, name, None)
    except Exception:
        return None


def length_of(tensor: Any, axis: int) -> int:
    """The size of a dimension of what has a shape; 0 where that is no number."""
    try:
        return int(tensor.shape[axis])
    except Exception:  # whatever a class of the script's own calls its shape
        return 0


def first_tensor(batch: Any, dimensions: int = 1) -> Any:
    """The first tensor of so many dimensions in a batch; None where there is none."""
    with contextlib.suppress(Exception):
        return _first_tensor(batch, dimensions)
    return None


def _first_tensor(batch: Any, dimensions: int) -> Any:
    if not isinstance(batch, (list, tuple)):
        shape = attribute_of(batch, "shape")
        if shape is not None:  # a tensor has `values` too, which raises
            return batch if len(shape) >= dimensions else None
        if not isinstance(batch, Mapping):
            return None
        batch = batch.values()
    for part in batch:
        if (found := first_tensor(part, dimensions)) is not None:
            return found
    return None


def sizes_by_loader(loader: Any) -> Iterator[int] | None:
    """How many samples each batch of an epoch has, however they are put together: as lists, or with the time as first dimension.

    None where torch's own sampler does not choose them one by one. So it is with one sample a batch, which may be a whole batch
    of the data set's.
    """
    data = sys.modules["torch.utils.data"]
    sampler = loader.batch_sampler
    if type(sampler) is not data.BatchSampler or isinstance(loader.dataset, data.IterableDataset):
        return None
    size = int(sampler.batch_size)
    if size == 1:
        return None
    try:
        samples = len(sampler.sampler)
    except Exception:  # it has no end, or does not know it
        return itertools.repeat(size)
    return itertools.chain(itertools.repeat(size, samples // size), [samples % size])
