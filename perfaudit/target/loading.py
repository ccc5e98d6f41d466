"""Batches of a loader without end, and how far they have been taken: what changes when another loader takes its place."""

from __future__ import annotations

import statistics
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

Batch = Any  # whatever the user's loader yields
USUAL_OF = 64  # batches, of which the usual wait is the mean: with workers, every other one may be there at once


class Empty(Exception):
    """A loader that yields no batch."""


@dataclass(slots=True)
class Loading:
    """A loader and the epoch it is in.

    epoch_batches: None until an epoch of a dataset without a length has ended. restart_seconds: of each epoch, what its first
    batch took longer than the others do: the loader is asked for its iterator, workers start, and the first of them begins. Where
    no other batch is known, all of it.
    """

    loader: Any  # torch.utils.data.DataLoader
    epoch_batches: int | None = field(init=False)
    restart_seconds: list[float] = field(default_factory=list)
    _batches: Iterator[Batch] | None = None
    # Seconds for batches that are no epoch's first.
    _waits: deque[float] = field(default_factory=lambda: deque(maxlen=USUAL_OF))
    _first_batch_seconds: float = 0.0  # of the first epoch, behind the start of its workers
    _yielded: int = 0

    def __post_init__(self) -> None:
        self.epoch_batches = _length(self.loader)

    def next_batch(self) -> Batch:
        """The next batch, from one epoch to the next. Raises Empty for a loader without any, and what the loader raises."""
        started = time.perf_counter()
        if self._batches is not None:
            try:
                batch = next(self._batches)
                self._waits.append(time.perf_counter() - started)
                self._yielded += 1
                return batch
            except StopIteration:
                self.epoch_batches = self.epoch_batches or self._yielded
        self._batches = iter(self.loader)
        begun = time.perf_counter()
        try:
            batch = next(self._batches)
        except StopIteration:
            raise Empty from None
        self._first_batch_seconds = self._first_batch_seconds or time.perf_counter() - begun
        self.restart_seconds.append(self._beyond_usual(time.perf_counter() - started))
        self._yielded = 1
        return batch

    def restart_per_step(self) -> float:
        """Seconds that beginning an epoch takes, as a median without the first, shared out among its steps.

        While only the first is known: without the start of workers that stay for the next.
        """
        first = [self._first_batch_seconds] if self._keeps_workers else self.restart_seconds
        known = sorted(self.restart_seconds[1:] or map(self._beyond_usual, first))
        return known[len(known) // 2] / self.epoch_batches if known and self.epoch_batches else 0.0

    def _beyond_usual(self, seconds: float) -> float:
        """What an epoch's first batch takes longer than the others: without workers that is next to nothing."""
        return max(0.0, seconds - statistics.fmean(self._waits)) if self._waits else seconds

    @property
    def _keeps_workers(self) -> bool:
        return bool(getattr(self.loader, "persistent_workers", False)) and bool(self.restart_seconds)

    def close(self) -> None:
        """Let go of the loader's workers."""
        self._batches = None


def _length(loader: Any) -> int | None:
    try:
        return len(loader)
    except TypeError:  # an iterable dataset without a length
        return None


def arguments_of(loader: Any) -> dict[str, Any]:
    """The arguments with which a DataLoader over the same samples is built as this one is."""
    import torch

    own = (
        "dataset collate_fn num_workers pin_memory timeout worker_init_fn multiprocessing_context generator "
        "prefetch_factor persistent_workers"
    )
    found = {name: getattr(loader, name) for name in own.split()}
    if isinstance(loader.dataset, torch.utils.data.IterableDataset):
        return {**found, "batch_size": loader.batch_size, "drop_last": loader.drop_last}
    if loader.batch_size is not None:
        return {**found, "batch_size": loader.batch_size, "sampler": loader.sampler, "drop_last": loader.drop_last}
    if loader.batch_sampler is not None:
        return {**found, "batch_sampler": loader.batch_sampler}
    return {**found, "batch_size": None, "sampler": loader.sampler}
