"""What is looked at while a script trains: its updates, and the phases and batches of each.

Child only. Torch is not imported here: the script imports it when it does, after setting what it wants to set before.
Hooks on modules would be copied and saved with them, and each call inside a compiled function would break its graph; so a
model's calls are timed by its class, and not at all inside what is compiled.
"""

from __future__ import annotations

import functools
import gc
import math
import threading
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from perfaudit.script.after_import import after_import
from perfaudit.script.running_updates import RunningUpdates
from perfaudit.script.spans import Spans

Json = dict[str, Any]  # Any: nested JSON
LOOKS_FOR_MODELS = (0, 1, 4)  # after so many updates all modules there are looked through; models may be built late
MOST_CALLS = (
    4  # of models before a backward pass that share a batch; more are the signs of a text, or actions of an episode
)


class Watch:
    """The updates of one training, each with what happened since the one before.

    on_update: called with the record of each update, see `_end_update`, right after it. on_sign: called after each batch and
    backward pass as long as there was no update.
    """

    times_forwards = True  # puts a function of ours around them

    def __init__(
        self,
        on_update: Callable[[Json], None],
        clock: Callable[[], float] = time.perf_counter,
        on_sign: Callable[[], None] = lambda: None,
    ) -> None:
        self._clock = clock
        self.spans = Spans(clock)
        self.on_update, self.on_sign = on_update, on_sign
        self.torch_at: float | None = None  # when torch had been imported, on the clock of `time.monotonic`
        self.loader_at: float | None = None  # when the loader was begun that has the first batch
        self.first_batch_at: float | None = None
        self.backwards = self.batches = 0  # all of them
        self._epoch: tuple[int, Callable[[], Any]] = (
            0,
            lambda: None,
        )  # batches of the last loader that was begun, and that loader
        self.optimizers: list[Any] = []
        self._thread = threading.get_ident()
        self._running = RunningUpdates()
        # Whether a model's call is, or a batch is loaded: what runs in it counts for it, as transforms that are modules.
        self._calling = False
        self._stepped_by_scaler: Any = None
        self._has_optimizer = False  # without any, each backward pass ends a step
        self._compiles = False  # whether torch.compile was called
        self._timed_classes: set[type] = set()
        self._timed_forwards: set[type] = set()
        self._called_classes: set[type] = set()  # of these, those that were called by the script itself
        self._nodes: Callable[[], int] = int  # how many graphs of this thread have had; 0 where torch does not tell
        self._has_gradients: Callable[[], bool] = bool
        self.updates = 0
        self._forget()

    def _forget(self) -> None:
        self._batches = self._samples = self._epochs = self._without_gradients = self._recent_backwards = 0
        self._backwards_in_update = 0  # of a closure
        self._inputs = 0  # samples of models' inputs, where there are no batches
        self._are_inputs_clear = True
        self._called()
        self._began = self._clock()

    def _called(self) -> None:
        """Forget the calls of models, and the samples of the first of them."""
        self._calls = self._first_inputs = 0

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

        from perfaudit.target.accelerator import pick_device

        _replace(torch, "compile", self._compile)
        _replace(torch.nn.Module, "compile", self._compile)
        _replace(torch.optim.Optimizer, "__init__", self._build_optimizer)
        updates.register_optimizer_step_pre_hook(self._before_update)
        updates.register_optimizer_step_post_hook(self._after_update)
        _replace(torch.optim.Optimizer, "zero_grad", self._zero_grad)
        _replace(torch.autograd, "backward", self._backward)
        _replace(torch.autograd, "grad", self._backward)
        _replace(loading._BaseDataLoaderIter, "__next__", self._next_batch)
        _replace(loading.DataLoader, "__iter__", self._begin_epoch)
        _replace(torch.amp.GradScaler, "step", self._scaled_step)
        _replace(torch.amp.GradScaler, "unscale_", functools.partial(self._in_phase, "optimizer"))
        _replace(torch.optim.swa_utils.AveragedModel, "update_parameters", functools.partial(self._in_phase, "average"))
        is_alone = pick_device("auto").type == "cpu"
        for name in ("item", "numpy", "cpu"):
            _replace(torch.Tensor, name, self._read_on_host if is_alone else self._read)
        _replace(torch.Tensor, "tolist", self._read)
        self._nodes = getattr(torch._C._autograd, "_get_sequence_nr", int)
        self._has_gradients = torch.is_grad_enabled
        if not is_alone:
            for name in ("to", "cuda"):
                _replace(torch.Tensor, name, self._copy_to_device)

    def _is_elsewhere(self) -> bool:
        """Whether this is another thread than that of the training."""
        return threading.get_ident() != self._thread

    # ---- updates -----------------------------------------------------------------------------------------------------

    def _compile(self, original: Any, *args: Any, **kwargs: Any) -> Any:
        self._compiles = True
        return original(*args, **kwargs)

    def _build_optimizer(self, original: Any, *args: Any, **kwargs: Any) -> Any:
        self._has_optimizer = True
        return original(*args, **kwargs)

    def _before_update(self, optimizer: Any, *_: Any) -> None:
        if not self.updates and not self._running:
            self._thread = threading.get_ident()
        if self._is_elsewhere():
            return
        self._end_raised()
        if not self._running:
            self.spans.settle(is_backward=False)
            self._look_for_models()
        self._running.begin()
        self.spans.begin("optimizer")

    def _after_update(self, optimizer: Any, *_: Any) -> None:
        if self._is_elsewhere():
            return
        for _each in range(self._running.end()):
            self.spans.end()
        if not self._running and self._stepped_by_scaler is None:
            self._end_update(optimizer)

    def _end_raised(self) -> None:
        """End the phases of updates that have raised; what they took is the next one's."""
        for _each in range(self._running.drop_raised() if self._running else 0):
            self.spans.end()

    def _scaled_step(self, original: Any, scaler: Any, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        """A step of a GradScaler, which skips the optimizer's where gradients overflow: a step all the same."""
        if self._is_elsewhere() or self._stepped_by_scaler is not None:
            return original(scaler, optimizer, *args, **kwargs)
        self._stepped_by_scaler = scaler
        self.spans.begin("optimizer")
        try:
            result = original(scaler, optimizer, *args, **kwargs)
        finally:
            self.spans.end()
            self._stepped_by_scaler = None
        self._end_update(optimizer)
        return result

    def _end_update(self, optimizer: Any) -> None:
        phases = self.spans.take()
        now = self._clock()
        record: Json = {
            "optimizer": self._number(optimizer),
            "seconds": now - self._began,
            "phases": phases,
            "batches": self._batches,
            "samples": self._samples or (self._inputs if self._are_inputs_clear else 0),
            "epochs": self._epochs,
            "without_gradients": self._without_gradients,
            "backwards": self._recent_backwards,
            "backwards_in_update": self._backwards_in_update,
        }
        record |= self._values(optimizer)
        self.updates += 1
        self._forget()
        self.on_update(record)
        self._began = self._clock()  # what the record took is nobody's
        self.spans.take()

    def _values(self, optimizer: Any) -> Json:
        """What else its record has of an update that has just ended."""
        return {}

    @property
    def fraction_of_epoch(self) -> float | None:
        """Share of a loader's batches that it has given since it was begun; None for a loader without a length."""
        batches, loader = self._epoch
        try:
            return batches / len(loader())
        except (TypeError, NotImplementedError, ZeroDivisionError):
            return None

    def _number(self, optimizer: Any) -> int:
        if optimizer is None:
            return -1
        for number, known in enumerate(self.optimizers):
            if known is optimizer:
                return number
        self.optimizers.append(optimizer)
        return len(self.optimizers) - 1

    # ---- phases ------------------------------------------------------------------------------------------------------

    def _in_phase(self, phase: str, original: Any, *args: Any, **kwargs: Any) -> Any:
        if self._is_elsewhere() or self._calling:
            return original(*args, **kwargs)
        self.spans.begin(phase)
        try:
            return original(*args, **kwargs)
        finally:
            self.spans.end()

    def _read(self, original: Any, *args: Any, **kwargs: Any) -> Any:
        if self._calling or threading.get_ident() != self._thread:
            return original(*args, **kwargs)
        result = self._in_phase("host_reads", original, *args, **kwargs)
        self.spans.end_stretch(self._nodes())
        return result

    def _read_on_host(self, original: Any, *args: Any, **kwargs: Any) -> Any:
        """A number is read for which nothing is waited: it takes no time worth a phase, and a policy has many in a step."""
        result = original(*args, **kwargs)
        if not self._calling and threading.get_ident() == self._thread:
            self.spans.end_stretch(self._nodes())
        return result

    def _zero_grad(self, original: Any, *args: Any, **kwargs: Any) -> Any:
        result = self._in_phase("optimizer", original, *args, **kwargs)
        if not self._is_elsewhere():
            self.spans.end_stretch(self._nodes())
        return result

    def _backward(self, original: Any, *args: Any, **kwargs: Any) -> Any:
        if self._is_elsewhere() and self.updates:
            return original(*args, **kwargs)
        if self._calling:  # gradients that a model takes in its forward pass
            return original(*args, **kwargs)
        self._end_raised()
        self.backwards += 1
        is_again = (
            bool(self._running) and self._recent_backwards > 0
        )  # a closure computes the loss of the same samples again
        self._recent_backwards += 1
        self._backwards_in_update += bool(self._running)
        self._inputs += 0 if is_again else self._first_inputs
        self._are_inputs_clear &= 0 < self._calls <= MOST_CALLS
        self._called()
        if self.first_batch_at is None:
            self.first_batch_at = time.monotonic()
        self.spans.settle(is_backward=True, loss=_node(args[0] if args else None))
        result = self._in_phase("backward", original, *args, **kwargs)
        if not self.updates:
            self.on_sign()
        if not self._has_optimizer and not self.spans.is_inside:
            self._look_for_models()
            self._end_update(None)
        return result

    def _begin_epoch(self, original: Any, loader: Any) -> Any:
        if self._is_elsewhere():
            return original(loader)
        self._epochs += 1
        if not self.backwards:
            self.loader_at = time.monotonic()
        self._epoch = 0, weakref.ref(loader)
        return self._in_phase("data_wait", original, loader)

    def _next_batch(self, original: Any, batches: Any) -> Any:
        if self._is_elsewhere():
            return original(batches)
        self._end_raised()
        if self.spans.is_inside:
            return original(batches)
        self.spans.settle(is_backward=False)
        self.spans.begin("data_wait")
        before, self._calling = self._calling, True
        try:
            batch = self._load(original, batches)
        finally:
            self._calling = before
            self.spans.end()
        self._batches += 1
        self.batches += 1
        self._epoch = self._epoch[0] + 1, self._epoch[1]
        if not self.updates:
            self.on_sign()
        self._samples += count_samples(batch)
        if not self.backwards:
            self.first_batch_at = time.monotonic()
        self.spans.hold_back()
        return batch

    def _load(self, original: Any, batches: Any) -> Any:
        """The next batch of an iterator over a loader."""
        return original(batches)

    def _copy_to_device(self, original: Any, tensor: Any, *args: Any, **kwargs: Any) -> Any:
        if not tensor.is_cpu or self._is_elsewhere() or self._calling:
            return original(tensor, *args, **kwargs)
        return self._in_phase("host_to_device", original, tensor, *args, **kwargs)

    # ---- models ------------------------------------------------------------------------------------------------------

    def _look_for_models(self) -> None:
        """Time the models that are there, in some of the first steps; this is no part of a step."""
        if self.updates not in LOOKS_FOR_MODELS:
            return
        self.spans.charge()
        began = self._clock()
        self._time_models()
        self._began += self._clock() - began
        self.spans.leave_out()

    def _time_models(self) -> None:
        """Time the calls of the classes of all modules that are no part of another one; of parts, where the whole is not called.

        A LightningModule is not called, but has parts that are. Of the script's own classes that are not called, `forward` is
        timed too, which some call by its name.
        """
        import torch

        everything = [each for each in gc.get_objects() if issubclass(type(each), torch.nn.Module)]
        parts = {id(part) for each in everything for part in _children(each)}
        models = [each for each in everything if id(each) not in parts]
        uncalled = self._timed_classes - self._called_classes
        models += [part for each in everything if type(each) in uncalled for part in _children(each)]
        if self._compiles:  # a call of ours would break the graph of what is compiled
            models = [each for each in models if type(each).__name__ == "OptimizedModule"]
        for kind in {type(each) for each in models if getattr(each, "_compiled_call_impl", None) is None}:
            if not any(known in kind.__mro__ for known in self._timed_classes):
                self._timed_classes.add(kind)
                _replace(kind, "__call__", self._call)
        if self.times_forwards and not self._compiles:
            for kind in uncalled - self._timed_forwards:
                self._timed_forwards.add(kind)
                if "forward" in vars(kind) and not kind.__module__.startswith("torch."):
                    _replace(kind, "forward", self._call)

    def _call(self, original: Any, model: Any, *args: Any, **kwargs: Any) -> Any:
        if self._calling or threading.get_ident() != self._thread:
            return original(model, *args, **kwargs)
        self._calling = True
        self._called_classes.add(type(model))
        self.spans.begin("forward")
        try:
            return original(model, *args, **kwargs)
        finally:
            self._calling = False
            has_gradients = self._has_gradients()
            self.spans.end(is_loss_next=has_gradients)
            if has_gradients:
                self._calls += 1
                if self._calls == 1:
                    self._first_inputs = count_samples([*args, *kwargs.values()], dimensions=2)
            else:
                self._without_gradients += 1


def count_samples(batch: Any, dimensions: int = 1) -> int:
    """How many samples a batch has: the length of the first tensor of so many dimensions in it; 0 where there is none."""
    queue = [batch]
    while queue:
        value = queue.pop(0)
        shape = getattr(value, "shape", None)
        if shape is not None:  # a tensor has `values` too, which raises
            if len(shape) >= dimensions:
                return int(shape[0])
        elif isinstance(value, Mapping):
            queue = [*value.values(), *queue]
        elif isinstance(value, (list, tuple)):
            queue = [*value, *queue]
    return 0


def _node(roots: Any) -> float:
    """The number of the node that a backward pass begins with; infinity where torch does not tell."""
    root = roots if hasattr(roots, "grad_fn") else next(iter(roots or ()), None)
    ask = getattr(getattr(root, "grad_fn", None), "_sequence_nr", None)
    return ask() if ask is not None else math.inf


def _let_nothing_of_ours_be_compiled() -> None:
    """What is compiled is broken off at a hook of ours, and goes on behind it, as it does at one of the script's own.

    Otherwise the hooks would be compiled too, again and again, as what they count changes.
    """
    import torch._dynamo.trace_rules as rules

    if hasattr(rules, "add"):
        rules.add(__package__.partition(".")[0])


def _children(module: Any) -> Sequence[Any]:
    return [child for child in vars(module).get("_modules", {}).values() if child is not None]


def _replace(owner: Any, name: str, ours: Callable[..., Any]) -> None:
    """Put a function in the place of an attribute; it is given the original and then its arguments."""
    original = getattr(owner, name)

    @functools.wraps(original)
    def watched(*args: Any, **kwargs: Any) -> Any:  # Any: whatever the script passes on
        return ours(original, *args, **kwargs)

    setattr(owner, name, watched)
