"""What is looked at while a script trains: its updates, and the phases and batches of each.

Child only. Torch is not imported here: the script imports it when it does, after setting what it wants to set before.
Hooks on modules would be copied and saved with them, and each call inside a compiled function would break its graph; so a
model's calls are timed by its class, and not at all inside what is compiled.

A step pays for each function of ours that it calls, and more where these are long, as torch has taken their place in the
processor's caches. So they are closures that note an event and nothing else (`noted_events`).
"""

from __future__ import annotations

import functools
import math
import sys
import threading
import time
import weakref
from collections.abc import Callable, Collection
from typing import Any

from perfaudit.script import replaced_functions
from perfaudit.script.after_import import after_import
from perfaudit.script.built_modules import BuiltModules
from perfaudit.script.noted_events import (
    BACKWARD,
    BACKWARD_IN_UPDATE,
    BATCH,
    CALLED,
    COUNTED,
    END,
    EPOCH,
    FORWARD,
    MOST_NOTED,
    NO_GRADIENTS,
    OPTIMIZER,
    OURS,
    STRETCH_ENDS,
    TOLD,
    UPDATE,
    UPDATED,
    WANTED,
    UpdateRecords,
)
from perfaudit.script.read_loaders import ReadLoaders
from perfaudit.script.replaced_functions import Function
from perfaudit.script.running_updates import RunningUpdates
from perfaudit.script.samples import count_samples
from perfaudit.script.spans import PHASES
from perfaudit.script.timed_models import TimedModels

Json = dict[str, Any]  # Any: nested JSON
_NOTHING: Json = {}
_NOWHERE = -1  # no thread's number
LOOKS_FOR_MODELS = (0, 1, 4)  # after so many updates the models that are there are looked at; some are built late


class Watch:
    """The updates of one training, each with what happened since the one before.

    on_update: called with the number of its optimizer right after each update, -1 where there is none; `take_records` has its
    record by then. on_sign: called after each batch and backward pass as long as there was no update.
    """

    times_forwards = True  # puts a function of ours around them
    has_values = False  # whether a record has more than what is noted, see `_values`

    def __init__(
        self,
        on_update: Callable[[int], None],
        clock: Callable[[], float] = time.perf_counter,
        on_sign: Callable[[], None] = lambda: None,
    ) -> None:
        self._clock = clock
        self._events: list[Any] = []  # as `UpdateRecords.add` takes them
        self._note = self._events.extend
        self._made = UpdateRecords(clock())
        self.on_update, self.on_sign = on_update, on_sign
        self.torch_at: float | None = None  # when torch had been imported, on the clock of `time.monotonic`
        self.loader_at: float | None = None  # when the loader was begun that has the first batch
        self.first_batch_at: float | None = None
        self.backwards = self.batches = 0  # all of them
        self._epoch: tuple[int, Callable[[], Any]] = (
            0,
            lambda: None,
        )  # batches before the last loader that was begun, and that loader
        self.kinds_of_optimizers: list[str] = []  # their names, by number
        self._optimizers: list[
            weakref.ref[Any]
        ] = []  # some scripts build one after the other, each with a model of its own
        self._numbers: dict[int, int] = {}  # by the id of an optimizer
        self._thread = threading.get_ident()
        self._running = RunningUpdates()
        self._depth = 0  # of phases that have begun and not ended
        # The thread in which calls are noted; 0 inside a model's call or a backward pass, or while a batch is loaded: what runs
        # there counts for it.
        # _NOWHERE while only updates are counted, see `watch_next`.
        self._notes_in = self._thread
        self._stepped_by_scaler: Any = None
        self._has_optimizer = False  # without any, each backward pass ends a step
        self._compiles = False  # whether torch.compile was called
        self._built = BuiltModules()
        self._models = TimedModels(self._watch_calls, self.times_forwards, self._built)
        self._nodes: Callable[[], int] = int  # how many graphs of this thread have had; 0 where torch does not tell
        self._has_gradients: Callable[[], bool] = bool
        self._has_samples = False  # whether a batch since the last update has told how many
        self._wants_inputs = True  # whether the next call of a model is to tell: the first one before a backward pass
        self.loaders = ReadLoaders()
        self.updates = 0

    # ---- putting it in place -----------------------------------------------------------------------------------------

    def wait_for_torch(self) -> None:
        """Put everything in place as soon as torch has been imported."""
        after_import("torch", self.put_in_place)
        after_import("torch._dynamo.trace_rules", _let_nothing_of_ours_be_compiled)

    def put_in_place(self) -> None:
        """Watch from now on."""
        import torch

        self.torch_at = time.monotonic()
        from torch.optim import optimizer as updates
        from torch.utils.data import dataloader as loading

        from perfaudit.target.accelerator import knows_host_only

        self._nodes = getattr(torch._C._autograd, "_get_sequence_nr", int)
        self._has_gradients = torch.is_grad_enabled
        is_alone = knows_host_only()
        watch_reads = self._watch_reads_on_host if is_alone else self._watch_reads_by_device
        replace = replaced_functions.replace
        replace(torch, "compile", self._watch_compiling)
        replace(torch.nn.Module, "compile", self._watch_compiling)
        replace(torch.nn.Module, "__init__", self._built.watch_building)
        replace(torch.nn.Module, "__setstate__", self._built.watch_building)
        replace(torch.optim.Optimizer, "__init__", self._watch_building)
        updates.register_optimizer_step_pre_hook(self._before_update)
        updates.register_optimizer_step_post_hook(self._after_update)
        replace(torch.optim.Optimizer, "zero_grad", self._watch_zero_grad)
        replace(torch.autograd, "backward", self._watch_backward)
        replace(torch.autograd, "grad", self._watch_backward)
        replace(loading._BaseDataLoaderIter, "__next__", self._watch_batches)
        replace(loading.DataLoader, "__iter__", self._watch_epochs)
        replace(loading.DataLoader, "__init__", self.loaders.watch_building)
        replace(torch.amp.GradScaler, "step", self._watch_scaled_steps)
        replace(torch.amp.GradScaler, "unscale_", functools.partial(self._watch_phase, "optimizer"))
        replace(
            torch.optim.swa_utils.AveragedModel, "update_parameters", functools.partial(self._watch_phase, "average")
        )
        for name in ("item", "numpy", "cpu"):
            replace(torch.Tensor, name, watch_reads)
        replace(torch.Tensor, "tolist", self._watch_reads)
        if not is_alone:
            for name in ("to", "cuda"):
                replace(torch.Tensor, name, self._watch_copies)

    def _is_elsewhere(self) -> bool:
        """Whether this is another thread than that of the training."""
        return threading.get_ident() != self._thread

    def _notes_here(self) -> bool:
        """Whether a call is noted here and now."""
        return threading.get_ident() == self._notes_in

    def watch_next(self, is_watched: bool) -> None:
        """Until the next update, time phases or only count. To be called when an update has ended.

        What is counted all the same: updates, beginnings of epochs, and calls of models without gradients, as in an evaluation.
        """
        is_between = self._notes_in in (self._thread, _NOWHERE) and not self._depth and not self._running.frames
        if is_between and self._has_optimizer and self._stepped_by_scaler is None:
            self._notes_in = self._thread if is_watched else _NOWHERE

    @property
    def events_per_update(self) -> float:
        """How many are noted between two updates, on average, where phases are timed."""
        return self._made.events_per_update

    def take_records(self) -> list[Json]:
        """The records of the updates that have ended since the last call, see `UpdateRecords`."""
        self._add_up()
        return self._made.take()

    def _add_up(self) -> None:
        """Make records of what was noted. That takes time which is nobody's."""
        began = self._clock()
        self._made.add(self._events)
        self._events.clear()
        self._note((OURS, self._clock(), began))

    # ---- updates -----------------------------------------------------------------------------------------------------

    def _watch_compiling(self, original: Function) -> Function:
        def compile(*args: Any, **kwargs: Any) -> Any:
            self._compiles = True
            return original(*args, **kwargs)

        return compile

    def _watch_building(self, original: Function) -> Function:
        def build(*args: Any, **kwargs: Any) -> Any:
            self._has_optimizer = True
            return original(*args, **kwargs)

        return build

    def _before_update(self, optimizer: Any, *_: Any) -> None:
        frames = self._running.frames
        if not self.updates and not frames:
            self._thread = self._notes_in = threading.get_ident()
        if threading.get_ident() != self._thread:
            return
        if frames:
            self._end_raised()
        is_outermost = not frames
        if is_outermost and self.updates in LOOKS_FOR_MODELS:
            self._look_for_models()
        frames.append(sys._getframe(1))
        if self._notes_in == _NOWHERE:
            return
        self._note((UPDATE if is_outermost else OPTIMIZER, self._clock(), None))
        self._depth += 1

    def _after_update(self, optimizer: Any, *_: Any) -> None:
        if threading.get_ident() != self._thread:
            return
        frames, frame = self._running.frames, sys._getframe(1)
        if len(frames) == 1 and frames[0] is frame:
            frames.clear()
            self._end_phase()
        else:
            for _each in range(self._running.end(frame)):
                self._end_phase()
        if not frames and self._stepped_by_scaler is None:
            self._end_update(optimizer)

    def _end_phase(self) -> None:
        if self._notes_in == _NOWHERE:
            return
        self._note((END, self._clock(), None))
        self._depth -= 1

    def _end_raised(self) -> None:
        """End the phases of updates that have raised; what they took is the next one's."""
        for _each in range(self._running.drop_raised()):
            self._end_phase()

    def _watch_scaled_steps(self, original: Function) -> Function:
        """A step of a GradScaler, which skips the optimizer's where gradients overflow: a step all the same."""

        in_phase = self._watch_phase("optimizer", original)

        def step(scaler: Any, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
            if self._is_elsewhere() or self._stepped_by_scaler is not None:
                return original(scaler, optimizer, *args, **kwargs)
            self._stepped_by_scaler = scaler
            try:
                result = in_phase(scaler, optimizer, *args, **kwargs)
            finally:
                self._stepped_by_scaler = None
            self._end_update(optimizer)
            return result

        return step

    def _end_update(self, optimizer: Any) -> None:
        number = self._number(optimizer) if optimizer is not None else -1
        kind = COUNTED if self._notes_in == _NOWHERE else UPDATED
        self._note((kind, self._clock(), (number, self._values(optimizer) if self.has_values else _NOTHING)))
        self.updates += 1
        self.loaders.end_update()
        self._has_samples, self._wants_inputs = False, True
        self.on_update(number)
        self._note((TOLD, self._clock(), None))

    def _number(self, optimizer: Any) -> int:
        """That of an optimizer; a new one, where another one was in its place in memory."""
        number = self._numbers.get(id(optimizer))
        if number is None or self._optimizers[number]() is not optimizer:
            number = self._numbers[id(optimizer)] = len(self._optimizers)
            self._optimizers.append(weakref.ref(optimizer))
            self.kinds_of_optimizers.append(type(optimizer).__name__)
        return number

    def never_built(self, files: Collection[str]) -> dict[str, list[str]]:
        """See `BuiltModules`."""
        return self._built.never_built(files)

    def optimizer(self, number: int) -> Any:
        """The optimizer of this number, None where it is gone."""
        return self._optimizers[number]()

    def _values(self, optimizer: Any) -> Json:
        """What else its record has of an update that has just ended."""
        return {}

    @property
    def fraction_of_epoch(self) -> float | None:
        """Share of a loader's batches that it has given since it was begun; None for a loader without a length."""
        before, loader = self._epoch
        try:
            return (self.batches - before) / len(loader())
        except (TypeError, NotImplementedError, ZeroDivisionError):
            return None

    # ---- phases ------------------------------------------------------------------------------------------------------

    def _watch_phase(self, phase: str, original: Function) -> Function:
        number, note, clock, thread_now = PHASES.index(phase), self._note, self._clock, threading.get_ident

        def in_phase(*args: Any, **kwargs: Any) -> Any:
            if thread_now() != self._notes_in:
                return original(*args, **kwargs)
            note((number, clock(), None))
            self._depth += 1
            try:
                return original(*args, **kwargs)
            finally:
                note((END, clock(), None))
                self._depth -= 1

        return in_phase

    def _watch_reads(self, original: Function) -> Function:
        in_phase, events, note = self._watch_phase("host_reads", original), self._events, self._note
        clock, nodes, thread_now = self._clock, self._nodes, threading.get_ident

        def read(*args: Any, **kwargs: Any) -> Any:
            if thread_now() != self._notes_in:
                return original(*args, **kwargs)
            result = in_phase(*args, **kwargs)
            note((STRETCH_ENDS, clock(), nodes()))
            if len(events) > MOST_NOTED:
                self._add_up()
            return result

        return read

    def _watch_reads_on_host(self, original: Function) -> Function:
        """A number is read for which nothing is waited: it takes no time worth a phase, and a policy has many in a step.

        An Adam without `fused` reads two for each parameter.
        """
        events, note, clock, nodes, thread_now = self._events, self._note, self._clock, self._nodes, threading.get_ident

        def read(*args: Any, **kwargs: Any) -> Any:
            if self._depth or thread_now() != self._notes_in:  # what is read inside a phase ends nothing
                return original(*args, **kwargs)
            result = original(*args, **kwargs)
            note((STRETCH_ENDS, clock(), nodes()))
            if len(events) > MOST_NOTED:
                self._add_up()
            return result

        return read

    def _watch_reads_by_device(self, original: Function) -> Function:
        """Of a tensor on the host nothing is waited for, whatever device there is."""
        waiting, at_once = self._watch_reads(original), self._watch_reads_on_host(original)

        def read(tensor: Any, *args: Any, **kwargs: Any) -> Any:
            return (at_once if tensor.is_cpu else waiting)(tensor, *args, **kwargs)

        return read

    def _watch_zero_grad(self, original: Function) -> Function:
        in_phase, note, clock = self._watch_phase("optimizer", original), self._note, self._clock
        nodes, thread_now = self._nodes, threading.get_ident

        def zero_grad(*args: Any, **kwargs: Any) -> Any:
            if thread_now() != self._notes_in:
                return original(*args, **kwargs)
            result = in_phase(*args, **kwargs)
            if not self._depth:
                note((STRETCH_ENDS, clock(), nodes()))
            return result

        return zero_grad

    def _watch_backward(self, original: Function) -> Function:
        events, note, clock, thread_now = self._events, self._note, self._clock, threading.get_ident
        frames = self._running.frames

        def backward(*args: Any, **kwargs: Any) -> Any:
            is_here = thread_now() == self._notes_in
            if not is_here and (
                self.updates or not self._notes_in
            ):  # gradients that a model takes in its forward pass, too
                return original(*args, **kwargs)
            if frames:
                self._end_raised()
            if not self.backwards and self.first_batch_at is None:
                self.first_batch_at = time.monotonic()
            self.backwards += 1
            self._wants_inputs = not self._has_samples
            # Straight behind a model's call it is known where the loss was computed, see `Spans`: asking takes some time.
            is_known = events[-3:-2] == [CALLED] and events[-1] != NO_GRADIENTS
            loss = math.inf if is_known or not args else _node(args[0])
            note((BACKWARD_IN_UPDATE if frames else BACKWARD, clock(), loss))
            if is_here:
                self._depth += 1
                self._notes_in = 0  # what it calls, such as a model whose activations were not kept, counts for it
            else:
                note((END, clock(), None))
            try:
                result = original(*args, **kwargs)
            finally:
                if is_here:
                    note((END, clock(), None))
                    self._notes_in = self._thread
                    self._depth -= 1
            if not self.updates:
                self.on_sign()
            if not self._has_optimizer and not self._depth:
                if self.updates in LOOKS_FOR_MODELS:
                    self._look_for_models()
                self._end_update(None)
            elif len(events) > MOST_NOTED:
                self._add_up()
            return result

        return backward

    def _watch_epochs(self, original: Function) -> Function:
        in_phase = self._watch_phase("data_wait", original)

        def begin(loader: Any) -> Any:
            if self._is_elsewhere():
                return original(loader)
            self._note((EPOCH, self._clock(), None))
            if not self.backwards:
                self.loader_at = time.monotonic()
            self._epoch = self.batches, weakref.ref(loader)
            batches = in_phase(loader)
            self.loaders.begin(loader, batches)
            return batches

        return begin

    def _watch_batches(self, original: Function) -> Function:
        load, frames = self._watch_loading(original), self._running.frames
        events, note, clock, thread_now = self._events, self._note, self._clock, threading.get_ident
        loaders = self.loaders

        def next_batch(batches: Any) -> Any:
            if thread_now() != self._thread:
                return original(batches)
            if frames:
                self._end_raised()
            if self._depth:
                return original(batches)
            if self._notes_in == _NOWHERE:
                batch = original(batches)
                self.batches += 1
                loaders.last = id(batches)
                return batch
            note((WANTED, clock(), None))
            self._depth = 1
            self._notes_in = 0
            try:
                batch = load(batches)
            except BaseException:
                note((END, clock(), None))
                raise
            finally:
                self._depth = 0
                self._notes_in = self._thread
            now = clock()

            samples = count_samples(batch)
            note((BATCH, now, samples))
            self.batches += 1
            loaders.last = id(batches)
            if samples:
                self._has_samples = True
                self._wants_inputs = False
            if not self.updates or not self.backwards:
                self._note_early_batch()
            if len(events) > MOST_NOTED:
                self._add_up()
            return batch

        return next_batch

    def _note_early_batch(self) -> None:
        if not self.updates:
            self.on_sign()
        if not self.backwards:
            self.first_batch_at = time.monotonic()

    def _watch_loading(self, original: Function) -> Function:
        """What gives the next batch of an iterator over a loader."""
        return original

    def _watch_copies(self, original: Function) -> Function:
        copy = self._watch_phase("host_to_device", original)

        def copy_to_device(tensor: Any, *args: Any, **kwargs: Any) -> Any:
            if not self._notes_in or not tensor.is_cpu:
                return original(tensor, *args, **kwargs)
            return copy(tensor, *args, **kwargs)

        return copy_to_device

    # ---- models ------------------------------------------------------------------------------------------------------

    def _look_for_models(self) -> None:
        """Time the models that are there; this is no part of a step."""
        began = self._clock()
        self._time_models()
        self._note((OURS, self._clock(), began))

    def _time_models(self) -> None:
        self._add_up()
        self._models.time_what_is_there(self._compiles, self._made.called)
        self._built.is_open = self.updates < LOOKS_FOR_MODELS[-1]

    def _watch_calls(self, original: Function) -> Function:
        events, note, clock, thread_now = self._events, self._note, self._clock, threading.get_ident
        has_gradients = self._has_gradients

        def call(model: Any, *args: Any, **kwargs: Any) -> Any:
            if thread_now() != self._notes_in:
                if self._notes_in != _NOWHERE or has_gradients():
                    return original(model, *args, **kwargs)
                return self._count_call(original, model, *args, **kwargs)
            self._notes_in = 0
            self._depth += 1
            note((FORWARD, clock(), type(model)))
            try:
                return original(model, *args, **kwargs)
            finally:
                now = clock()
                self._notes_in = self._thread
                self._depth -= 1
                samples = 0 if has_gradients() else NO_GRADIENTS
                if self._wants_inputs and not samples:
                    self._wants_inputs = False
                    samples = count_samples([*args, *kwargs.values()], dimensions=2)
                note((CALLED, now, samples))
                if len(events) > MOST_NOTED:
                    self._add_up()

        return call

    def _count_call(self, original: Function, *args: Any, **kwargs: Any) -> Any:
        """Call a model without gradients where only that is told; models inside of it count for it."""
        if self._is_elsewhere():
            return original(*args, **kwargs)
        self._notes_in = 0
        try:
            return original(*args, **kwargs)
        finally:
            self._notes_in = _NOWHERE
            self._note((CALLED, self._clock(), NO_GRADIENTS))
            if len(self._events) > MOST_NOTED:
                self._add_up()


def _node(roots: Any) -> float:
    """The number of the node that a backward pass begins with; infinity where torch does not tell."""
    try:
        begin = roots.grad_fn
    except AttributeError:  # several of them
        begin = getattr(next(iter(roots or ()), None), "grad_fn", None)
    ask = getattr(begin, "_sequence_nr", None)
    return math.inf if ask is None else ask()


def _let_nothing_of_ours_be_compiled() -> None:
    """What is compiled is broken off at a hook of ours, and goes on behind it, as it does at one of the script's own.

    Otherwise the hooks would be compiled too, again and again, as what they count changes.
    """
    import torch._dynamo.trace_rules as rules

    if hasattr(rules, "add"):
        rules.add(__package__.partition(".")[0])
