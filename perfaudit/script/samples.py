"""How many samples a batch has. Imports no torch."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterator, Mapping
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
    except (TypeError, NotImplementedError):  # it has no end, or does not know it
        return itertools.repeat(size)
    return itertools.chain(itertools.repeat(size, samples // size), [samples % size])
