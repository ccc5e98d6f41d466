"""Functions that take the place of those of a loader: an epoch begins, a batch is wanted. Child only; knows no torch."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any

from perfaudit.script.counts import Counts
from perfaudit.script.noted_events import BATCH, END, EPOCH, MOST_NOTED, WANTED
from perfaudit.script.notes import Notes
from perfaudit.script.read_loaders import ReadLoaders
from perfaudit.script.replaced_functions import Function
from perfaudit.script.samples import count_samples, sizes_by_loader
from perfaudit.script.step_samples import StepSamples

_thread_now = threading.get_ident


class WatchedBatches:
    """Makes these functions.

    see_batch: called with each batch, where somebody wants to see what is in it. are_its_own: whether a loader's iterator gives
    what that loader has loaded, so that its sampler knows how many samples a batch has.
    """

    def __init__(
        self,
        notes: Notes,
        counts: Counts,
        samples: StepSamples,
        see_batch: Callable[[Any], None] | None,
        are_its_own: bool,
    ) -> None:
        self._notes, self._counts, self._samples, self._see_batch = notes, counts, samples, see_batch
        self._are_its_own = are_its_own
        # By the id of an iterator; what it gives next. One that is gone leaves its id to another, which begins anew.
        self._sizes: dict[int, Iterator[int] | None] = {}
        self.loaders = ReadLoaders()
        # The batches before the last loader that was begun, and that loader.
        self._epoch: tuple[int, Callable[[], Any]] = (0, lambda: None)

    @property
    def fraction_of_epoch(self) -> float | None:
        """Share of a loader's batches that it has given since it was begun; None for a loader without a length."""
        before, loader = self._epoch
        try:
            return (self._counts.batches - before) / len(loader())
        except (TypeError, NotImplementedError, ZeroDivisionError):
            return None

    def watch_epochs(self, original: Function) -> Function:
        """An iterator over a loader is made."""
        notes, in_phase = self._notes, self._notes.in_phase("data_wait", original)

        def begin(loader: Any) -> Any:
            if notes.is_elsewhere():
                return original(loader)
            notes.note((EPOCH, notes.clock(), None))
            self._counts.begin_loader()
            self._epoch = self._counts.batches, weakref.ref(loader)
            batches = in_phase(loader)
            self.loaders.begin(loader, batches)
            self._sizes[id(batches)] = sizes_by_loader(loader) if self._are_its_own else None
            return batches

        return begin

    def watch_batches(self, original: Function, load: Function) -> Function:
        """The next batch is wanted. load: gives it; original: gives it in another thread, and within a phase."""
        notes, loaders, counts = self._notes, self.loaders, self._counts
        events, note, clock, frames = notes.events, notes.note, notes.clock, notes.running.frames

        def next_batch(batches: Any) -> Any:
            if _thread_now() != notes.thread:
                return original(batches)
            if frames:
                notes.end_raised()
            if notes.depth:
                return original(batches)
            if notes.only_counts:
                return count_batch(batches)
            note((WANTED, clock(), None))
            notes.depth = 1
            notes.here = 0
            try:
                batch = load(batches)
            except BaseException:
                note((END, clock(), None))
                raise
            finally:
                notes.depth = 0
                notes.here = notes.thread
            now = clock()

            samples = self._size_by_loader(batches) or count_samples(batch)
            note((BATCH, now, samples))
            self._count_batch(batch)
            if loaders.last != id(batches):
                loaders.read(id(batches))
            if samples:
                self._samples.take_batch()
            if not counts.updates or not counts.backwards:
                counts.note_early_batch()
            if len(events) > MOST_NOTED:
                notes.add_up()
            return batch

        def count_batch(batches: Any) -> Any:
            notes.depth = 1
            try:
                batch = load(batches)
            finally:
                notes.depth = 0
            self._size_by_loader(batches)
            self._count_batch(batch)
            if loaders.last != id(batches):
                loaders.read(id(batches))
            return batch

        return next_batch

    def _size_by_loader(self, batches: Any) -> int:
        """How many samples the sampler has chosen for the batch that has just come; 0 where that is not known."""
        sizes = self._sizes.get(id(batches))
        return next(sizes, 0) if sizes is not None else 0

    def _count_batch(self, batch: Any) -> None:
        if self._see_batch is not None:
            self._see_batch(batch)
        self._counts.add_batch()
