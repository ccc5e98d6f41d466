"""What is looked at while a script trains a step at a time: its losses, its batches, the phases of its updates. Child only."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import weakref
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from perfaudit.script.replaced_functions import Function, replace
from perfaudit.script.spans import PHASES
from perfaudit.script.watch import Watch
from perfaudit.training.forward_lines import ForwardLines

if TYPE_CHECKING:
    from perfaudit.training.script_training import ScriptTraining

# What a phase of a script is called where steps are ours (`target.phases`); the others have no other name.
_PHASES = {"data_wait": "loading", "host_to_device": "transfer"}


class ScriptWatch(Watch):
    """The watch over a script's steps, which leaves the script at the end of each update."""

    times_forwards = False  # patches are put into these functions
    has_own_batches = False

    def __init__(self, training: ScriptTraining) -> None:
        super().__init__(training.update_ends)
        self._training = training
        self.optimizers_built = 0
        self.loader: Any = None  # of the last batch before the first update
        self.batch: Any = None  # this batch
        self.forward_lines = ForwardLines()  # of the first steps
        self._is_backward = False
        # By iterator, which nobody must keep alive because its workers end with it: the loader, and whether that is own.
        self._loaders: weakref.WeakKeyDictionary[Any, tuple[Any, bool]] = weakref.WeakKeyDictionary()
        self._others: weakref.WeakSet[Any] = weakref.WeakSet()  # iterators of loaders in the place of the script's
        # By iterator, how many batches it has given, those of a loader in its place among them.
        self._given: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()

    def _watch_building(self, original: Function) -> Function:
        watched = super()._watch_building(original)

        def build(*args: Any, **kwargs: Any) -> Any:
            self.optimizers_built += 1
            result = watched(*args, **kwargs)
            if not self._training.is_known:
                self._training.start.add_optimizer(args[0])
            elif self._training.knows_its_steps:
                self._training.note_optimizer(args[0])
            return result

        return build

    def put_in_place(self) -> None:
        from torch.optim.optimizer import register_optimizer_step_pre_hook
        from torch.utils.data import dataloader as loading

        register_optimizer_step_pre_hook(self._before_first_update)
        replace(loading._MultiProcessingDataLoaderIter, "_shutdown_workers", _let_go)
        self.forward_lines.watch()
        super().put_in_place()

    def _watch_compiling(self, original: Function) -> Function:
        watched = super()._watch_compiling(original)

        def compile(*args: Any, **kwargs: Any) -> Any:
            self.forward_lines.end()  # a hook of ours would break the graph of what is compiled
            return watched(*args, **kwargs)

        return compile

    def _before_first_update(self, optimizer: Any, *_: Any) -> None:
        if not self._training.is_known and not self._notes.running.frames:
            self._training.before_first_update(optimizer)

    def _watch_backward(self, original: Function, accumulates: bool = True) -> Function:
        watched = super()._watch_backward(original, accumulates)

        def backward(*args: Any, **kwargs: Any) -> Any:
            # A backward pass inside another one recomputes activations, and begins with no loss.
            if args and self._notes.here and not self._is_backward:
                self._training.note_loss(args[0])
                self._training.around_forward.end()
                if not self._training.knows_its_steps:
                    self.forward_lines.note_backward(sys._getframe(1))
            is_outermost, self._is_backward = not self._is_backward, True
            try:
                return watched(*args, **kwargs)
            finally:
                self._is_backward = not is_outermost

        return backward

    def _watch_calls(self, original: Function) -> Function:
        watched = super()._watch_calls(original)

        def call(model: Any, *args: Any, **kwargs: Any) -> Any:
            if self._notes.are_taken_here() and self._calls.has_gradients():
                self._training.around_forward.begin()
            return watched(model, *args, **kwargs)

        return call

    def _watch_epochs(self, original: Function) -> Function:
        watched = super()._watch_epochs(original)

        def begin(loader: Any) -> Any:
            if not self._training.is_known:
                self._training.start.begin_loader()
            is_own = self._training.is_known and (loader is self.loader or self._training.is_own(loader))
            with self._training.unseen(), self._training.around_own_epochs() if is_own else contextlib.nullcontext():
                batches = watched(loader)
                self._given.pop(batches, None)  # workers that stay give each epoch by the same iterator
                self._loaders[batches] = loader, is_own
            if self._training.is_other(loader):
                self._others.add(batches)
            return batches

        return begin

    def loader_workers(self) -> set[int]:
        """The workers of the script's loader, and of those that were in its place."""
        own = [batches for batches, (loader, is_own) in self._loaders.items() if is_own or loader is self.loader]
        workers = (getattr(batches, "_workers", ()) for batches in (*own, *self._others))
        return {worker.pid for each in workers for worker in each}

    def _watch_loading(self, original: Function) -> Function:
        def load(batches: Any) -> Any:
            with self._training.unseen():
                batch = self._load_unseen(original, batches)
            self._training.on_batch(batch)
            return batch

        return load

    def _load_unseen(self, original: Any, batches: Any) -> Any:
        loader, is_own = self._loaders.get(batches, (None, False))
        if not self._training.is_known:
            self.loader = loader if loader is not None else self.loader
            self.batch = original(batches)
            self._given[batches] = self._given.get(batches, 0) + 1
            return self.batch
        self.batch = None
        if not (is_own or loader is self.loader):
            return original(batches)
        given = self._given.get(batches, 0)
        if self._training.is_over(given):
            raise StopIteration
        self._given[batches] = given + 1
        return self._training.load(original, batches)


def _let_go(original: Function) -> Function:
    """Workers go on when they are to end: the end of one that stands still is waited for in vain."""

    def end(batches: Any) -> None:
        for worker in getattr(batches, "_workers", ()):
            # It may have ended, and another has its number; one that was never started has none.
            with contextlib.suppress(OSError, TypeError):
                os.kill(worker.pid, signal.SIGCONT)
        original(batches)

    return end


class ScriptPhases:
    """Seconds of each part of the steps since they were last taken."""

    needs_waits = False

    def __init__(self) -> None:
        self._seconds: dict[str, float] = {}

    def add(self, seconds: Sequence[float]) -> None:
        """Those of an update, in the order of `spans.PHASES`."""
        for name, value in zip(PHASES, seconds, strict=True):
            if value:
                name = _PHASES.get(name, name)
                self._seconds[name] = self._seconds.get(name, 0.0) + value

    def take(self) -> dict[str, float]:
        """Seconds by phase since the last call."""
        found, self._seconds = self._seconds, {}
        return found
