"""What is looked at while a script trains: its updates, and the phases and batches of each.

Child only. Torch is not imported here: the script imports it when it does, after setting what it wants to set before.
Hooks on modules would be copied and saved with them, and each call inside a compiled function would break its graph; so a
model's calls are timed by its class, and not at all inside what is compiled.
What is noted, and where, is in `notes`.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Collection
from typing import Any

from perfaudit.script import replaced_functions
from perfaudit.script.after_import import after_import
from perfaudit.script.built_modules import BuiltModules
from perfaudit.script.counts import Counts
from perfaudit.script.debugger_stops import DebuggerStops
from perfaudit.script.noted_events import COUNTED, OURS, TOLD, UPDATED
from perfaudit.script.notes import Notes
from perfaudit.script.numbered_optimizers import NumberedOptimizers
from perfaudit.script.rank_values import RankValues
from perfaudit.script.read_loaders import ReadLoaders
from perfaudit.script.replaced_functions import Function, Replace
from perfaudit.script.step_samples import StepSamples
from perfaudit.script.timed_models import TimedModels
from perfaudit.script.watched_backward import WatchedBackward
from perfaudit.script.watched_batches import WatchedBatches
from perfaudit.script.watched_calls import WatchedCalls
from perfaudit.script.watched_tensors import WatchedTensors
from perfaudit.script.watched_updates import LOOKS_FOR_MODELS, WatchedUpdates

Json = dict[str, Any]  # Any: nested JSON
_NOTHING: Json = {}
# Backward passes without an update of the optimizer that was built, behind which there will be none: more than are accumulated.
UNUSED = 2000


class Watch:
    """The updates of one training, each with what happened since the one before.

    on_update: called with the number of its optimizer right after each update, -1 where there is none; `take_records` has its
    record by then. on_sign: see `Counts`. of_rank: what records have besides, where this is one of several ranks.
    """

    times_forwards = True  # puts a function of ours around them
    has_own_batches = True  # whether no other loader takes the place of the script's
    has_values = False  # whether a record has more than what is noted, see `_values`

    def __init__(
        self,
        on_update: Callable[[int], None],
        clock: Callable[[], float] = time.perf_counter,
        on_sign: Callable[[], None] = lambda: None,
        of_rank: RankValues | None = None,
    ) -> None:
        self.on_update, self.of_rank = on_update, of_rank
        self.counts = Counts(on_sign)
        self._notes = notes = Notes(clock)
        self._samples = samples = StepSamples()
        self._updates = WatchedUpdates(notes, self.counts, self._end_update, self._look_for_models)
        self._backward = WatchedBackward(notes, self.counts, samples, self._end_step_without_optimizer)
        see_batch = of_rank.see_batch if of_rank is not None else None
        self._batches = WatchedBatches(notes, self.counts, samples, see_batch, self.has_own_batches)
        self._calls = WatchedCalls(notes, self.counts, samples)
        self._optimizers = NumberedOptimizers()
        self._has_optimizer = False  # without any, each backward pass ends a step
        self._compiles = False  # whether torch.compile was called
        self._built = BuiltModules()
        self._models = TimedModels(self._watch_calls, self.times_forwards, self._built)
        self._hooks: tuple[Any, ...] = ()  # of torch's updates; each can be removed

    # ---- putting it in place -----------------------------------------------------------------------------------------

    def wait_for_torch(self) -> None:
        """Put everything in place as soon as torch has been imported."""
        after_import("torch", self.put_in_place)
        after_import("torch._dynamo.trace_rules", _let_nothing_of_ours_be_compiled)
        DebuggerStops(self._notes).wait_for_debuggers()

    def put_in_place(self) -> None:
        """Watch from now on."""
        import torch

        self.counts.torch_at = time.monotonic()
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

    def _watch_steps(self, replace: Replace) -> None:
        """Watch updates, backward passes and batches. replace: as `replaced_functions.replace`."""
        import torch
        from torch.utils.data import dataloader as loading

        self._calls.has_gradients = torch.is_grad_enabled
        in_phase = self._notes.in_phase
        self._hook_updates()
        replace(torch.optim.Optimizer, "zero_grad", WatchedTensors(self._notes, _nodes()).watch_zero_grad)
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
            updates.register_optimizer_step_pre_hook(self._updates.before),
            updates.register_optimizer_step_post_hook(self._updates.after),
        )

    def _watch_tensors(self, replace: Replace) -> None:
        """Watch reads on the host and copies to a device."""
        import torch

        from perfaudit.target.accelerator import knows_host_only

        tensors = WatchedTensors(self._notes, _nodes(), self._samples.note_read)
        is_alone = knows_host_only()
        replace(torch.Tensor, "item", tensors.watch_items_on_host if is_alone else tensors.watch_reads_by_device)
        for name in ("numpy", "cpu"):
            replace(torch.Tensor, name, tensors.watch_reads_on_host if is_alone else tensors.watch_reads_by_device)
        replace(torch.Tensor, "tolist", tensors.watch_reads)
        if not is_alone:
            for name in ("to", "cuda"):
                replace(torch.Tensor, name, tensors.watch_copies)

    # ---- what a kind of watch may put a function of its own around ------------------------------------------------------

    def _watch_compiling(self, original: Function) -> Function:
        def compile(*args: Any, **kwargs: Any) -> Any:
            self._compiles = True
            return original(*args, **kwargs)

        return compile

    def _watch_building(self, original: Function) -> Function:
        note = self._optimizers.watch_building(original)

        def build(*args: Any, **kwargs: Any) -> Any:
            self._has_optimizer = True
            return note(*args, **kwargs)

        return build

    def _watch_backward(self, original: Function, accumulates: bool = True) -> Function:
        return self._backward.watch(original, accumulates)

    def _watch_scaled_steps(self, original: Function) -> Function:
        return self._updates.watch_scaled_steps(original)

    def _watch_epochs(self, original: Function) -> Function:
        return self._batches.watch_epochs(original)

    def _watch_batches(self, original: Function) -> Function:
        return self._batches.watch_batches(original, self._watch_loading(original))

    def _watch_loading(self, original: Function) -> Function:
        """What gives the next batch of an iterator over a loader."""
        return original

    def _watch_calls(self, original: Function) -> Function:
        return self._calls.watch(original)

    # ---- updates -----------------------------------------------------------------------------------------------------

    def watch_next(self, is_watched: bool) -> None:
        """Until the next update, time phases or only count. To be called when an update has ended.

        What is counted all the same: updates, beginnings of epochs, and calls of models without gradients, as in an evaluation.
        """
        notes = self._notes
        is_between = (notes.only_counts or notes.here) and not notes.depth and not notes.running.frames
        if is_between and self._has_optimizer and not self._updates.is_scaled():
            notes.time_phases(is_watched)

    def take_records(self) -> list[Json]:
        """The records of the updates that have ended since the last call, see `UpdateRecords`."""
        self._notes.add_up()
        return self._notes.made.take()

    def _end_update(self, optimizer: Any, now: float) -> None:
        """What takes place from now on until that is noted is no part of a step."""
        number = self._optimizers.number(optimizer)
        notes = self._notes
        kind = COUNTED if notes.only_counts else UPDATED
        of_rank = self.of_rank.take() if self.of_rank is not None else _NOTHING  # first: its clocks end the step, too
        values = self._values(optimizer) if self.has_values else _NOTHING
        if self._samples.are_again():
            values = {**values, "same_inputs": True}
        notes.note((kind, now, (number, {**values, **of_rank} if of_rank else values)))
        self.counts.add_update()
        if self.loaders.is_other:
            self.loaders.end_update()
        self._samples.end_update()
        self.on_update(number)
        if self.of_rank is not None:
            self.of_rank.begin_update()
        notes.note((TOLD, notes.clock(), None))

    def _end_step_without_optimizer(self) -> bool:
        """A backward pass is over; whether it was a step.

        An optimizer that is built and never updates anything is none: parameters are updated by hand.
        """
        if self._has_optimizer and not self.counts.updates and self.counts.backwards >= UNUSED:
            self._has_optimizer = False
        if self._has_optimizer or self._notes.depth:
            return False
        if self.counts.updates in LOOKS_FOR_MODELS:
            self._look_for_models()
        self._end_update(None, self._notes.clock())
        return True

    def _values(self, optimizer: Any) -> Json:
        """What else its record has of an update that has just ended."""
        return {}

    def _look_for_models(self) -> None:
        """Time the models that are there; this is no part of a step."""
        notes = self._notes
        began = notes.clock()
        self._time_models()
        notes.note((OURS, notes.clock(), began))

    def _time_models(self) -> None:
        self._notes.add_up()
        self._models.time_what_is_there(self._compiles, self._notes.made.called)
        self._built.is_open = self.counts.updates < LOOKS_FOR_MODELS[-1]

    # ---- what is known -----------------------------------------------------------------------------------------------

    @property
    def loaders(self) -> ReadLoaders:
        """The loaders that the script has built, and read."""
        return self._batches.loaders

    @property
    def fraction_of_epoch(self) -> float | None:
        """See `WatchedBatches`."""
        return self._batches.fraction_of_epoch

    @property
    def has_long_updates(self) -> bool:
        """See `WatchedUpdates`."""
        return self._updates.has_long_updates

    @property
    def events_per_update(self) -> float:
        """How many are noted between two updates, on average, where phases are timed."""
        return self._notes.made.events_per_update

    @property
    def compiles(self) -> bool:
        """Whether code of the script's was compiled by torch, whose calls the interpreter does not tell."""
        return self._compiles or any(kind.__module__.startswith("torch.jit") for kind in self._built.kinds)

    def never_built(self, files: Collection[str]) -> dict[str, list[str]]:
        """See `BuiltModules`."""
        return self._built.never_built(files)

    @property
    def kinds_of_optimizers(self) -> list[str]:
        """The names of their classes, by number."""
        return self._optimizers.kinds

    def calls_of_optimizers(self) -> list[tuple[str, int, int]]:
        """See `NumberedOptimizers.calls`."""
        return self._optimizers.calls()

    def optimizer(self, number: int) -> Any:
        """The optimizer of this number, None where it is gone."""
        return self._optimizers.optimizer(number)


def _nodes() -> Callable[[], int]:
    """How many graphs of this thread have had; 0 where torch does not tell."""
    import torch

    return getattr(torch._C._autograd, "_get_sequence_nr", int)


def _let_nothing_of_ours_be_compiled() -> None:
    """What is compiled is broken off at a hook of ours, and goes on behind it, as it does at one of the script's own.

    Otherwise the hooks would be compiled too, again and again, as what they count changes.
    """
    import torch._dynamo.trace_rules as rules

    if hasattr(rules, "add"):
        rules.add(__package__.partition(".")[0])
