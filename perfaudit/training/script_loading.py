"""Where a script's batches come from: its own loader, or another one in its place. Child only."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable
from typing import Any

from perfaudit.errors import TargetError
from perfaudit.target.loading import Batch, Loading, arguments_of
from perfaudit.target.names import Target
from perfaudit.target.queue_time import queued_seconds

PLAIN_LOADERS = ("torch.utils.data.dataloader", "accelerate.data_loader")  # whose loaders only move their batches
# What a class of loaders gives its batches by.
GIVING = ("__iter__", "__len__", "_get_iterator", "_index_sampler", "_auto_collation")


class Load:
    """A batch with the seconds that loading it took: on the wall, of the process, of its threads' waiting for a core, and of the
    processor by the thread that asks for it.
    """

    __slots__ = ("batch", "cpu", "own", "queued", "wall")

    def __init__(self, wall: float, cpu: float, queued: float, own: float, batch: Batch) -> None:
        self.wall, self.cpu, self.queued, self.own, self.batch = wall, cpu, queued, own, batch


def _clocks() -> tuple[float, float, float, float]:
    return time.perf_counter(), time.process_time(), queued_seconds(), time.thread_time()


class ScriptLoading:
    """The part of a script's training that loads: its loader can be exchanged between two steps."""

    target: Target
    device: Any  # torch.device

    def __init__(self) -> None:
        self.loading: Loading | None = None  # None until the first update, and where the script has no loader
        self._own: Loading | None = None  # the script's, likewise
        self._was_exchanged = False
        self.loads: list[Load] | None = None  # gathered where somebody asks
        self.unseen: Callable[[], contextlib.AbstractContextManager[None]] = contextlib.nullcontext  # around loading
        # Around the script asking its own loader for its batches.
        self.around_own_epochs: Callable[[], contextlib.AbstractContextManager[None]] = contextlib.nullcontext
        self.on_batch: Callable[[Batch], None] = lambda batch: None  # told each batch that was loaded

    def begin_loading(self, loader: Any) -> None:
        """Know the script's loader, None where it has none."""
        self._own = self.loading = Loading(loader) if loader is not None else None

    @property
    def loader(self) -> Any:
        """The DataLoader from which batches are taken, None where the script has none."""
        return self.loading.loader if self.loading is not None else None

    @property
    def epoch_batches(self) -> int | None:
        """Batches of an epoch, None where that is not known."""
        return self.loading.epoch_batches if self.loading is not None else None

    @property
    def restart_seconds(self) -> list[float]:
        """Of each epoch of another loader in the place of the script's: see `Loading`. The script's own are in its steps."""
        return self._other.restart_seconds if self._other is not None else []

    def restart_per_step(self) -> float:
        """Seconds that beginning an epoch of another loader takes, shared out among its steps."""
        return self._other.restart_per_step() if self._other is not None else 0.0

    @property
    def _other(self) -> Loading | None:
        """That of another loader in the place of the script's; None where the script's own is in place."""
        return self.loading if self.loading is not self._own else None

    def other_loading(self, overrides: dict[str, Any]) -> Loading:
        """A loader over the same samples, built with these arguments instead of the script's. Raises TargetError."""
        import torch

        own = self._own.loader if self._own is not None else None
        if own is None or not (_gives_as_torch_does(type(own)) or self._is_plain_on_host(type(own))):
            raise TargetError(f"{self.target}: its batches do not come from a plain DataLoader")
        arguments = {**arguments_of(own), **overrides}
        if not arguments["num_workers"]:
            arguments |= {
                "prefetch_factor": None,
                "persistent_workers": False,
                "timeout": 0,
                "multiprocessing_context": None,
            }
        return Loading(torch.utils.data.DataLoader(**arguments))

    def _is_plain_on_host(self, kind: type) -> bool:
        return kind.__module__ in PLAIN_LOADERS and self.device.type == "cpu"

    def exchange_loading(self, loading: Loading) -> Loading:
        """Take the next batches from there; the loading that had been in place, which goes on where it stopped when put back."""
        assert self.loading is not None, "a loader of the script's was exchanged for another one"
        before, self.loading = self.loading, loading
        self._was_exchanged = True
        return before

    def is_other(self, loader: Any) -> bool:
        """Whether a loader is the one that is in the place of the script's."""
        return self._other is not None and self._other.loader is loader

    def is_over(self, batches: int) -> bool:
        """Whether a pass over the script's loader has given all its batches, those of another in its place among them."""
        return self._was_exchanged and self._own is not None and batches >= (self._own.epoch_batches or math.inf)

    def load(self, original: Callable[[Any], Batch], batches: Any) -> Batch:
        """The next batch of the script's loader, or of that which is in its place. batches: the script's iterator."""
        other = self._other
        if self.loads is None:
            return original(batches) if other is None else other.next_batch()
        began = _clocks()
        batch = original(batches) if other is None else other.next_batch()
        wall, cpu, queued, own = (now - then for now, then in zip(_clocks(), began, strict=True))
        self.loads.append(Load(wall, cpu, queued, own, batch))
        return batch


def _gives_as_torch_does(kind: type) -> bool:
    """Whether loaders of a class, such as one that only splits off samples to validate with, give batches as torch's do."""
    from torch.utils.data import DataLoader

    return issubclass(kind, DataLoader) and all(getattr(kind, name) is getattr(DataLoader, name) for name in GIVING)
