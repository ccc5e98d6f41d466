"""What is looked at while a script trains: its updates, and the phases and batches of each.

Child only. Torch is not imported here: the script imports it when it does, after setting what it wants to set before.
Hooks on modules would be copied and saved with them, and each call inside a compiled function would break its graph; so a
model's calls are timed by its class, and not at all inside what is compiled.
What is noted, and where, is in `notes`.
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
    GRADIENTS,
    GRADIENTS_IN_UPDATE,
    MOST_NOTED,
    NO_GRADIENTS,
    OPTIMIZER,
    OURS,
    TOLD,
    UPDATE,
    UPDATED,
    WANTED,
)
from perfaudit.script.notes import Notes
from perfaudit.script.rank_values import RankValues
from perfaudit.script.read_loaders import ReadLoaders
from perfaudit.script.replaced_functions import Function, Replace
from perfaudit.script.samples import count_samples, first_tensor
from perfaudit.script.timed_models import TimedModels
from perfaudit.script.watched_tensors import WatchedTensors

Json = dict[str, Any]  # Any: nested JSON
_NOTHING: Json = {}
_thread_now = threading.get_ident
LOOKS_FOR_MODELS = (0, 1, 4)  # after so many updates the models that are there are looked at; some are built late
# Of a closure in one update, each a step from then on: L-BFGS makes 25 at most by default, and may make a whole training in one.
MOST_EVALUATIONS = 64
# Where an optimizer may make so many, as one that makes a whole training, each is a step as soon as the first few are over.
MANY_EVALUATIONS, FIRST_EVALUATIONS = 1000, 3


class Watch:
    """The updates of one training, each with what happened since the one before.

    on_update: called with the number of its optimizer right after each update, -1 where there is none; `take_records` has its
    record by then. on_sign: called after each batch and backward pass as long as there was no update, and behind that after each
    batch and each call of a model without gradients. of_rank: what records have besides, where this is one of several ranks.
    """

    times_forwards = True  # puts a function of ours around them
    has_values = False  # whether a record has more than what is noted, see `_values`

    def __init__(
        self,
        on_update: Callable[[int], None],
        clock: Callable[[], float] = time.perf_counter,
        on_sign: Callable[[], None] = lambda: None,
        of_rank: RankValues | None = None,
    ) -> None:
        self._notes = Notes(clock)
        self.on_update, self.on_sign = on_update, on_sign
        self.torch_at: float | None = None  # when torch had been imported, on the clock of `time.monotonic`
        self.loader_at: float | None = None  # when the loader was begun that has the first batch
        self.first_batch_at: float | None = None
        self.backwards = self.batches = 0  # all of them
        # The batches before the last loader that was begun, and that loader.
        self._epoch: tuple[int, Callable[[], Any]] = (0, lambda: None)
        self.kinds_of_optimizers: list[str] = []  # their names, by number
        # Some scripts build one optimizer after the other, each with a model of its own.
        self._optimizers: list[weakref.ref[Any]] = []
        self._numbers: dict[int, int] = {}  # by the id of an optimizer
        self._stepped_by_scaler: Any = None
        self._has_optimizer = False  # without any, each backward pass ends a step
        self._compiles = False  # whether torch.compile was called
        self._built = BuiltModules()
        self._models = TimedModels(self._watch_calls, self.times_forwards, self._built)
        self._nodes: Callable[[], int] = int  # how many graphs of this thread have had; 0 where torch does not tell
        self._has_gradients: Callable[[], bool] = bool
        self._has_samples = False  # whether a batch since the last update has told how many
        self._input: Callable[[], Any] = lambda: None  # the tensor that a model was last called with, while it is there
        self._inputs = self._inputs_again = 0  # since the last update, and of these those that are the one before
        self._wants_inputs = True  # whether the next call of a model is to tell: the first one before a backward pass
        self.loaders = ReadLoaders()
        self._hooks: tuple[Any, ...] = ()  # of torch's updates; each can be removed
        self.of_rank = of_rank
        self.updates = 0
        self._evaluations = 0  # of the closure of the update that is under way
        self.has_long_updates = False  # of which each evaluation of the closure was a step
        self.evaluated = 0  # calls of models without gradients since the last update, and batches

    # ---- putting it in place -----------------------------------------------------------------------------------------

    def wait_for_torch(self) -> None:
        """Put everything in place as soon as torch has been imported."""
        after_import("torch", self.put_in_place)
        after_import("torch._dynamo.trace_rules", _let_nothing_of_ours_be_compiled)
        after_import("bdb", self._leave_out_debuggers)
        after_import("pdb", self._leave_out_their_making)

    def put_in_place(self) -> None:
        """Watch from now on."""
        import torch

        self.torch_at = time.monotonic()
        from torch.utils.data import dataloader as loading

        replace = replaced_functions.replace
        replace(torch, "compile", self._watch_compiling)
        replace(torch.nn.Module, "compile", self._watch_compiling)
        replace(torch.nn.Module, "__init__", self._built.watch_building)
        replace(torch.nn.Module, "__setstate__", self._built.watch_building)
        replace(torch.optim.Optimizer, "__init__", self._watch_building)
        replace(loading.DataLoader, "__init__", self.loaders.watch_building)
        self._watch_steps(replace)
        self._watch_tensors(replace)
        if self.of_rank is not None:
            self.of_rank.collectives.put_in_place()

    def _leave_out_debuggers(self) -> None:
        """Leave out of all steps what a debugger takes where it stops: `pdb` and others are a `bdb.Bdb`, and it is told here."""
        for name in ("dispatch_line", "dispatch_call", "dispatch_return", "dispatch_exception"):
            replaced_functions.replace(sys.modules["bdb"].Bdb, name, self._leave_out)

    def _leave_out_their_making(self) -> None:
        """The same of what a `pdb.Pdb` takes to be made: it reads settings and a history of commands."""
        replaced_functions.replace(sys.modules["pdb"].Pdb, "__init__", self._leave_out)

    def _leave_out(self, original: Function) -> Function:
        notes = self._notes

        def stop(*args: Any, **kwargs: Any) -> Any:
            began = notes.clock()
            try:
                return original(*args, **kwargs)
            finally:
                if _thread_now() == notes.thread:
                    notes.note((OURS, notes.clock(), began))
                    notes.add_up_many()

        return stop

    def _watch_steps(self, replace: Replace) -> None:
        """Watch updates, backward passes and batches. replace: as `replaced_functions.replace`."""
        import torch
        from torch.utils.data import dataloader as loading

        self._nodes = getattr(torch._C._autograd, "_get_sequence_nr", int)
        self._has_gradients = torch.is_grad_enabled
        in_phase = self._notes.in_phase
        self._hook_updates()
        replace(torch.optim.Optimizer, "zero_grad", WatchedTensors(self._notes, self._nodes).watch_zero_grad)
        replace(torch.autograd, "backward", self._watch_backward)
        replace(torch.autograd, "grad", functools.partial(self._watch_backward, accumulates=False))
        replace(loading._BaseDataLoaderIter, "__next__", self._watch_batches)
        replace(loading.DataLoader, "__iter__", self._watch_epochs)
        replace(torch.amp.GradScaler, "step", self._watch_scaled_steps)
        replace(torch.amp.GradScaler, "unscale_", functools.partial(in_phase, "optimizer"))
        replace(torch.optim.swa_utils.AveragedModel, "update_parameters", functools.partial(in_phase, "average"))

    def _hook_updates(self) -> None:
        from torch.optim import optimizer as updates

        self._hooks = (
            updates.register_optimizer_step_pre_hook(self._before_update),
            updates.register_optimizer_step_post_hook(self._after_update),
        )

    def _watch_tensors(self, replace: Replace) -> None:
        """Watch reads on the host and copies to a device."""
        import torch

        from perfaudit.target.accelerator import knows_host_only

        tensors, is_alone = WatchedTensors(self._notes, self._nodes), knows_host_only()
        replace(torch.Tensor, "item", tensors.watch_items_on_host if is_alone else tensors.watch_reads_by_device)
        for name in ("numpy", "cpu"):
            replace(torch.Tensor, name, tensors.watch_reads_on_host if is_alone else tensors.watch_reads_by_device)
        replace(torch.Tensor, "tolist", tensors.watch_reads)
        if not is_alone:
            for name in ("to", "cuda"):
                replace(torch.Tensor, name, tensors.watch_copies)

    def _is_elsewhere(self) -> bool:
        """Whether this is another thread than that of the training."""
        return threading.get_ident() != self._notes.thread

    def watch_next(self, is_watched: bool) -> None:
        """Until the next update, time phases or only count. To be called when an update has ended.

        What is counted all the same: updates, beginnings of epochs, and calls of models without gradients, as in an evaluation.
        """
        notes = self._notes
        is_between = (notes.only_counts or notes.here) and not notes.depth and not notes.running.frames
        if is_between and self._has_optimizer and self._stepped_by_scaler is None:
            notes.time_phases(is_watched)

    @property
    def events_per_update(self) -> float:
        """How many are noted between two updates, on average, where phases are timed."""
        return self._notes.made.events_per_update

    def take_records(self) -> list[Json]:
        """The records of the updates that have ended since the last call, see `UpdateRecords`."""
        self._notes.add_up()
        return self._notes.made.take()

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

    def _before_update(
        self, optimizer: Any, args: tuple[Any, ...], kwargs: Json
    ) -> tuple[tuple[Any, ...], Json] | None:
        """The arguments that the update is to have in place of its own, None for those."""
        notes = self._notes
        frames, began = notes.running.frames, notes.clock()
        if not self.updates and not frames:
            notes.begin_in_this_thread()
        if _thread_now() != notes.thread:
            return None
        if frames:
            notes.end_raised()
            began = notes.clock()
        is_outermost = not frames
        if is_outermost and self.updates in LOOKS_FOR_MODELS:
            self._look_for_models()
            began = notes.clock()
        frames.append(sys._getframe(1))
        if not notes.only_counts:
            notes.note((UPDATE, began, notes.clock()) if is_outermost else (OPTIMIZER, began, None))
            notes.depth += 1
        return self._with_watched_closure(optimizer, args, kwargs) if is_outermost else None

    def _with_watched_closure(
        self, optimizer: Any, args: tuple[Any, ...], kwargs: Json
    ) -> tuple[tuple[Any, ...], Json] | None:
        """Arguments with a closure of which each call is a step, where an update makes many of them; None without a closure.

        args: the optimizer and what its `step` was given.
        """
        self._evaluations = 0
        closure = args[1] if len(args) > 1 else kwargs.get("closure")
        if not callable(closure):
            return None
        allowed = max((group.get("max_eval") or 0 for group in optimizer.param_groups), default=0)
        most = FIRST_EVALUATIONS if allowed >= MANY_EVALUATIONS else MOST_EVALUATIONS

        def evaluate(*args: Any, **kwargs: Any) -> Any:
            result = closure(*args, **kwargs)
            if not self._is_elsewhere() and len(self._notes.running.frames) == 1:
                self._evaluations += 1
                self.has_long_updates |= self._evaluations > most
                if self.has_long_updates:
                    self._end_update(optimizer, self._notes.clock())
            return result

        return ((args[0], evaluate, *args[2:]), kwargs) if len(args) > 1 else (args, {**kwargs, "closure": evaluate})

    def _after_update(self, optimizer: Any, *_: Any) -> None:
        notes = self._notes
        now = notes.clock()
        if _thread_now() != notes.thread:
            return
        frames, frame = notes.running.frames, sys._getframe(1)
        if len(frames) == 1 and frames[0] is frame:
            frames.clear()
            notes.end_phase(now)
        else:
            for _each in range(notes.running.end(frame)):
                notes.end_phase(now)
        if not frames and self._stepped_by_scaler is None and not (self.has_long_updates and self._evaluations):
            self._end_update(optimizer, now)

    def _watch_scaled_steps(self, original: Function) -> Function:
        """A step of a GradScaler, which skips the optimizer's where gradients overflow: a step all the same."""

        in_phase = self._notes.in_phase("optimizer", original)

        def step(scaler: Any, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
            if self._is_elsewhere() or self._stepped_by_scaler is not None:
                return original(scaler, optimizer, *args, **kwargs)
            self._stepped_by_scaler = scaler
            try:
                result = in_phase(scaler, optimizer, *args, **kwargs)
            finally:
                self._stepped_by_scaler = None
            self._end_update(optimizer, self._notes.clock())
            return result

        return step

    def _end_update(self, optimizer: Any, now: float) -> None:
        """What takes place from now on until that is noted is no part of a step."""
        number = self._number(optimizer) if optimizer is not None else -1
        notes = self._notes
        kind = COUNTED if notes.only_counts else UPDATED
        of_rank = self.of_rank.take() if self.of_rank is not None else _NOTHING  # first: its clocks end the step, too
        values = self._values(optimizer) if self.has_values else _NOTHING
        if self._inputs and self._inputs == self._inputs_again:
            values = {**values, "same_inputs": True}
        self._inputs = self._inputs_again = 0
        notes.note((kind, now, (number, {**values, **of_rank} if of_rank else values)))
        self.updates += 1
        self.evaluated = 0
        if self.loaders.is_other:
            self.loaders.end_update()
        self._has_samples, self._wants_inputs = False, True
        self.on_update(number)
        if self.of_rank is not None:
            self.of_rank.begin_update()
        notes.note((TOLD, notes.clock(), None))

    def _number(self, optimizer: Any) -> int:
        """That of an optimizer; a new one, where another one was in its place in memory."""
        number = self._numbers.get(id(optimizer))
        if number is None or self._optimizers[number]() is not optimizer:
            number = self._numbers[id(optimizer)] = len(self._optimizers)
            self._optimizers.append(weakref.ref(optimizer))
            self.kinds_of_optimizers.append(type(optimizer).__name__)
        return number

    @property
    def compiles(self) -> bool:
        """Whether code of the script's was compiled by torch, whose calls the interpreter does not tell."""
        return self._compiles or any(kind.__module__.startswith("torch.jit") for kind in self._built.kinds)

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

    def _watch_backward(self, original: Function, accumulates: bool = True) -> Function:
        """accumulates: whether it adds to the gradients of parameters, which `torch.autograd.grad` does not."""
        notes, frames = self._notes, self._notes.running.frames
        events, note, clock = notes.events, notes.note, notes.clock
        outside, inside = (BACKWARD, BACKWARD_IN_UPDATE) if accumulates else (GRADIENTS, GRADIENTS_IN_UPDATE)

        def backward(*args: Any, **kwargs: Any) -> Any:
            is_here = _thread_now() == notes.here
            # A model may take gradients in its forward pass, too: those end no step.
            if not is_here and (self.updates or not notes.here):
                return original(*args, **kwargs)
            if frames:
                notes.end_raised()
            if not self.backwards and self.first_batch_at is None:
                self.first_batch_at = time.monotonic()
            self.backwards += 1
            self.evaluated = 0
            self._wants_inputs = not self._has_samples
            # Straight behind a model's call it is known where the loss was computed, see `Spans`: asking takes some time.
            is_known = events[-3:-2] == [CALLED] and events[-1] != NO_GRADIENTS
            loss = math.inf if is_known or not args else _node(args[0])
            note((inside if frames else outside, clock(), loss))
            if is_here:
                notes.depth += 1
                notes.here = 0  # what it calls, such as a model whose activations were not kept, counts for it
            else:
                note((END, clock(), None))
            try:
                result = original(*args, **kwargs)
            finally:
                if is_here:
                    note((END, clock(), None))
                    notes.here = notes.thread
                    notes.depth -= 1
            if not self.updates:
                self.on_sign()
            if not self._has_optimizer and not notes.depth:
                if self.updates in LOOKS_FOR_MODELS:
                    self._look_for_models()
                self._end_update(None, clock())
            elif len(events) > MOST_NOTED:
                notes.add_up()
            return result

        return backward

    def _watch_epochs(self, original: Function) -> Function:
        notes, in_phase = self._notes, self._notes.in_phase("data_wait", original)

        def begin(loader: Any) -> Any:
            if self._is_elsewhere():
                return original(loader)
            notes.note((EPOCH, notes.clock(), None))
            if not self.backwards:
                self.loader_at = time.monotonic()
            self._epoch = self.batches, weakref.ref(loader)
            batches = in_phase(loader)
            self.loaders.begin(loader, batches)
            return batches

        return begin

    def _watch_batches(self, original: Function) -> Function:
        load, notes, loaders = self._watch_loading(original), self._notes, self.loaders
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

            samples = count_samples(batch)
            note((BATCH, now, samples))
            self._count_batch(batch)
            if loaders.last != id(batches):
                loaders.read(id(batches))
            if samples:
                self._has_samples = True
                self._wants_inputs = False
            if not self.updates or not self.backwards:
                self._note_early_batch()
            if len(events) > MOST_NOTED:
                notes.add_up()
            return batch

        def count_batch(batches: Any) -> Any:
            notes.depth = 1
            try:
                batch = load(batches)
            finally:
                notes.depth = 0
            self._count_batch(batch)
            if loaders.last != id(batches):
                loaders.read(id(batches))
            return batch

        return next_batch

    def _count_batch(self, batch: Any) -> None:
        self.batches += 1
        if self.of_rank is not None:
            self.of_rank.see_batch(batch)
        self._note_evaluation()

    def _note_evaluation(self) -> None:
        """A batch is there, or a model was called without gradients: whoever waits for a step hears what is done meanwhile."""
        self.evaluated += 1
        if self.updates:
            self.on_sign()

    def _note_early_batch(self) -> None:
        if not self.updates:
            self.on_sign()
        if not self.backwards:
            self.first_batch_at = time.monotonic()

    def _watch_loading(self, original: Function) -> Function:
        """What gives the next batch of an iterator over a loader."""
        return original

    # ---- models ------------------------------------------------------------------------------------------------------

    def _look_for_models(self) -> None:
        """Time the models that are there; this is no part of a step."""
        notes = self._notes
        began = notes.clock()
        self._time_models()
        notes.note((OURS, notes.clock(), began))

    def _time_models(self) -> None:
        self._notes.add_up()
        self._models.time_what_is_there(self._compiles, self._notes.made.called)
        self._built.is_open = self.updates < LOOKS_FOR_MODELS[-1]

    def _watch_calls(self, original: Function) -> Function:
        notes, has_gradients, thread_now = self._notes, self._has_gradients, threading.get_ident
        events, note, clock = notes.events, notes.note, notes.clock

        def call(model: Any, *args: Any, **kwargs: Any) -> Any:
            here = notes.here
            if not here or thread_now() != here:
                if here or not notes.only_counts or notes.depth or has_gradients():
                    return original(model, *args, **kwargs)
                return self._count_call(original, model, *args, **kwargs)
            notes.here = 0
            notes.depth += 1
            note((FORWARD, clock(), type(model)))
            try:
                return original(model, *args, **kwargs)
            finally:
                now = clock()
                notes.here = notes.thread
                notes.depth -= 1
                samples = 0 if has_gradients() else NO_GRADIENTS
                if self._wants_inputs and not samples:
                    self._wants_inputs = False
                    samples = self._count_inputs([*args, *kwargs.values()])
                note((CALLED, now, samples))
                if samples == NO_GRADIENTS:
                    self._note_evaluation()
                if len(events) > MOST_NOTED:
                    notes.add_up()

        return call

    def _count_inputs(self, given: list[Any]) -> int:
        """The samples that a model is called with."""
        found = first_tensor(given, dimensions=2)
        self._inputs += 1
        self._inputs_again += found is not None and found is self._input()
        try:
            self._input = weakref.ref(found) if found is not None else lambda: None
        except TypeError:  # of a kind that cannot be looked for later
            self._input = lambda: None
        return 0 if found is None else int(found.shape[0])

    def _count_call(self, original: Function, *args: Any, **kwargs: Any) -> Any:
        """Call a model without gradients where only that is told; models inside of it count for it."""
        notes = self._notes
        if self._is_elsewhere():
            return original(*args, **kwargs)
        notes.depth += 1
        try:
            return original(*args, **kwargs)
        finally:
            notes.depth -= 1
            notes.note((CALLED, notes.clock(), NO_GRADIENTS))
            self._note_evaluation()
            notes.add_up_many()


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
