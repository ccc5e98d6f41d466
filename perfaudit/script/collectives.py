"""What a rank waits for others: seconds in collectives, update by update. Child only.

Two places are timed. Collectives that Python calls (`all_reduce`, `barrier`, `Work.wait` ...), whose callers are kept, too. And
the end of a backward pass under DistributedDataParallel: between the last gradient, when its last bucket can leave, and
the end of the pass the thread does nothing but wait for the buckets that are under way. That is the communication which no
computation hides.

On an accelerator a collective of NCCL is queued, and the host goes on at once: these times say nothing, and are not told.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
import time
import weakref
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from perfaudit.script import replaced_functions
from perfaudit.script.core_queue import CoreQueue
from perfaudit.script.replaced_functions import Function

Json = dict[str, Any]  # Any: nested JSON
OfThread = Callable[[], tuple[float, float]]  # clocks of a thread: seconds of waiting for a core, and on one
COLLECTIVES = (
    "all_reduce",
    "all_reduce_coalesced",
    "broadcast",
    "reduce",
    "all_gather",
    "all_gather_into_tensor",
    "all_gather_coalesced",
    "gather",
    "scatter",
    "reduce_scatter",
    "reduce_scatter_tensor",
    "all_to_all",
    "all_to_all_single",
    "barrier",
    "monitored_barrier",
    "send",
    "recv",
    "batch_isend_irecv",
    "all_gather_object",
    "gather_object",
    "broadcast_object_list",
    "scatter_object_list",
    "_broadcast_coalesced",  # of DistributedDataParallel: the buffers of a model before each forward pass
)
LAST_READY = (
    3  # parameters whose gradients came last in the first backward passes: one of them is the last in later ones
)
BACKWARDS_SEEN = 2  # in which the order is looked at; DistributedDataParallel makes its buckets anew behind the first
MOST_CALLERS = 32
MOST_BUFFERS = 4  # named
# Numbers of updates behind which threads and workers are counted: none are there before the first.
HELPERS_LOOKED_FOR = (3, 12)
NANOSECONDS = 1e-9


class Collectives:
    """Seconds that this process spends in collectives, by update: see `take`.

    see_inputs: called with what a model of DistributedDataParallel is called with.
    """

    def __init__(
        self,
        see_inputs: Callable[[Any], None] = lambda inputs: None,
        clock: Callable[[], float] = time.perf_counter,
        queue: Callable[[], float] | None = None,
        processor: Callable[[], float] = time.thread_time,
    ) -> None:
        self._see_inputs = see_inputs
        self._clock = clock
        queued = queue or CoreQueue().seconds
        # Of the training's thread: seconds of waiting for a core, and on one.
        self._of_thread: OfThread = lambda: (queued(), processor())
        self._at = (0.0, 0.0)  # of these clocks, at the last `take`
        self._inside = (0.0, 0.0)  # since then, in collectives
        self._depth = 0  # collectives that are called by others
        self._waited = self._in_buckets = 0.0
        self._behind_gradients = (
            0.0  # seconds of a backward pass in collectives that Python calls behind the last gradient
        )
        self._callers: dict[tuple[str, int, str], list[float]] = {}  # seconds and calls, by place and name
        self._buckets: list[_Buckets] = []
        self._wrapped: list[_Wrapped] = []
        self._updates, self._has_threads, self._has_workers = 0, False, False
        self.is_inside = ""  # the collective that this process is in

    def put_in_place(self) -> None:
        """Time from now on. Torch has been imported."""
        import torch
        import torch.distributed as communication

        if not communication.is_available():
            return
        modules = (communication, communication.distributed_c10d)
        for name in COLLECTIVES:
            original = getattr(modules[1], name, getattr(communication, name, None))
            if original is None:
                continue
            for module in modules:
                if getattr(module, name, None) is original:
                    replaced_functions.replace(module, name, self._watch(name))
        with contextlib.suppress(AttributeError, TypeError):  # a torch that does not let it be replaced
            replaced_functions.replace(torch._C._distributed_c10d.Work, "wait", self._watch("wait"))
        replaced_functions.replace(torch.nn.parallel.DistributedDataParallel, "__init__", self._watch_building)
        replaced_functions.replace(torch.nn.parallel.DistributedDataParallel, "forward", self._watch_forward)
        replaced_functions.replace(torch.autograd, "backward", self._watch_backward)

    def take(self) -> Json:
        """Seconds since the last call: `waited` in collectives, of those `in_buckets`; outside of them, `queued` for a core
        and `computed` on one.
        """
        self._updates += 1
        if self._updates in HELPERS_LOOKED_FOR:
            self._look_for_helpers()
        now = self._of_thread()
        queued, computed = (max(0.0, a - b - c) for a, b, c in zip(now, self._at, self._inside, strict=True))
        told = {"waited": self._waited, "in_buckets": self._in_buckets, "queued": queued, "computed": computed}
        self._waited = self._in_buckets = 0.0
        self._at, self._inside = now, (0.0, 0.0)
        return told

    def begin_update(self) -> None:
        """What the thread's clocks have counted since `take` belongs to no update, as what takes place meanwhile does.

        Telling of an update wakes the process that is told, which then often takes the core: without this, waits of
        milliseconds would count that no step has in its seconds.
        """
        self._at = self._of_thread()

    def _look_for_helpers(self) -> None:
        import multiprocessing

        import torch

        self._has_threads |= torch.get_num_threads() > 1
        self._has_workers |= bool(multiprocessing.active_children())

    def _leave(self, entered: tuple[float, float]) -> None:
        """A collective has ended that was entered at this time of the thread's clocks."""
        now = self._of_thread()
        self._inside = (self._inside[0] + now[0] - entered[0], self._inside[1] + now[1] - entered[1])

    def facts(self) -> Json:
        """What is known so far: backend, who calls collectives, and what DistributedDataParallel has counted itself.

        has_threads: whether the training's thread computes together with other threads; has_workers: whether the process has
        others, such as workers of a loader.
        """
        import torch.distributed as communication

        if not (communication.is_available() and communication.is_initialized()):
            return {}
        found: Json = {"backend": _backend(), "world_size": communication.get_world_size()}
        found |= {"has_threads": self._has_threads, "has_workers": self._has_workers}
        found["callers"] = [
            {"file": file, "line": line, "name": name, "seconds": seconds, "calls": calls}
            for (file, line, name), (seconds, calls) in sorted(self._callers.items(), key=lambda item: -item[1][0])
        ]
        own = [each.torch_timings() for each in self._buckets]
        found["parallel_models"] = [each for each in own if each]
        return found

    def wrapped_models(self) -> list[Json]:
        """Models given to DistributedDataParallel: by which line, bytes of their gradients, whether they were called.

        changed_buffers, tracks_statistics: see `_Wrapped`.
        """
        names = ("line", "gradient_bytes", "is_called", "tracks_statistics")
        return [
            {"file": os.path.abspath(each.file), "changed_buffers": each.changed_buffers()}  # noqa: PTH100  # as others tell it
            | {name: getattr(each, name) for name in names}
            for each in self._wrapped
        ]

    def _watch(self, name: str) -> Callable[[Function], Function]:
        clock, of_thread = self._clock, self._of_thread

        def watch(original: Function) -> Function:
            def call(*args: Any, **kwargs: Any) -> Any:
                if self._depth:
                    return original(*args, **kwargs)
                entered = of_thread()
                self._depth, self.is_inside, began = 1, name, clock()
                try:
                    return original(*args, **kwargs)
                finally:
                    seconds = clock() - began
                    self._depth, self.is_inside = 0, ""
                    self._waited += seconds
                    self._leave(entered)
                    if self._buckets and began > max(each.last for each in self._buckets):
                        self._behind_gradients += seconds
                    self._count(sys._getframe(1), name, seconds)

            return call

        return watch

    def _count(self, frame: Any, name: str, seconds: float) -> None:
        """Count a call for the line that made it; for a library's the name alone says who it was."""
        code = frame.f_code
        key = (code.co_filename, frame.f_lineno, name)
        found = self._callers.get(key)
        if found is None:
            if len(self._callers) >= MOST_CALLERS:
                return
            found = self._callers[key] = [0.0, 0]
        found[0] += seconds
        found[1] += 1

    def _watch_building(self, original: Function) -> Function:
        def build(model: Any, *args: Any, **kwargs: Any) -> None:
            original(model, *args, **kwargs)
            frame = sys._getframe(1)
            self._wrapped.append(_Wrapped(frame.f_code.co_filename, frame.f_lineno, weakref.ref(model)))
            with contextlib.suppress(Exception):  # a model of some class of the script's own
                self._wrapped[-1].gradient_bytes = sum(
                    each.numel() * each.element_size() for each in model.parameters() if each.requires_grad
                )
                self._buckets.append(_Buckets(model, self._clock, self._of_thread))
                self._wrapped[-1].tracks_statistics = _tracks_statistics(model)
                self._wrapped[-1].buffers = _digests_of_buffers(model)

        return build

    def _watch_forward(self, original: Function) -> Function:
        def forward(model: Any, *inputs: Any, **named: Any) -> Any:
            self._see_inputs([*inputs, named])
            for each in self._wrapped:
                if not each.is_called and each.model() is model:
                    each.is_called = True
            return original(model, *inputs, **named)

        return forward

    def _watch_backward(self, original: Function) -> Function:
        clock = self._clock

        def backward(*args: Any, **kwargs: Any) -> Any:
            if not self._buckets or self._depth:
                return original(*args, **kwargs)
            self._behind_gradients = 0.0
            began = clock()
            for each in self._buckets:
                each.last = 0.0
            try:
                return original(*args, **kwargs)
            finally:
                now = clock()
                latest = max(self._buckets, key=lambda each: each.last)
                if latest.last > began:  # otherwise it was no pass of these models
                    seconds = max(0.0, now - latest.last - self._behind_gradients)
                    self._leave(latest.of_thread_then)
                    self._waited += seconds
                    self._in_buckets += seconds
                for each in self._buckets:
                    each.end_backward()

        return backward


@dataclass(slots=True)
class _Wrapped:
    """A model of DistributedDataParallel, and the line that has built it. buffers: digests of them then, by name.

    tracks_statistics: see `_tracks_statistics`.
    """

    file: str
    line: int
    model: weakref.ref[Any]
    gradient_bytes: int = 0
    is_called: bool = False
    tracks_statistics: bool = False
    buffers: dict[str, int] = field(default_factory=dict)

    def changed_buffers(self) -> list[str]:
        """Names of the buffers that ranks send each other and that are not what they were, MOST_BUFFERS at most."""
        with contextlib.suppress(Exception):  # a model of some class of the script's own
            now = _digests_of_buffers(self.model())
            changed = (name for name, value in self.buffers.items() if now.get(name, value) != value)
            return sorted(changed)[:MOST_BUFFERS]
        return []


def _tracks_statistics(model: Any) -> bool:
    """Whether batch norm has running statistics that the first rank sends to the others, which have seen other batches.

    Those of SyncBatchNorm are of all ranks.
    """
    import torch

    return bool(getattr(model, "broadcast_buffers", True)) and any(
        isinstance(module, torch.nn.modules.batchnorm._NormBase)
        and not isinstance(module, torch.nn.SyncBatchNorm)
        and module.running_mean is not None
        for module in model.module.modules()
    )


def _digests_of_buffers(model: Any) -> dict[str, int]:
    """A digest of each buffer that DistributedDataParallel sends from the first rank to the others, by name.

    Without those of batch norm, which no forward pass of a training reads.
    """
    import torch

    if model is None or not getattr(model, "broadcast_buffers", True):
        return {}
    found = {}
    for place, module in model.module.named_modules():
        if not isinstance(module, torch.nn.modules.batchnorm._NormBase):
            for name, buffer in module.named_buffers(recurse=False):
                with contextlib.suppress(Exception):  # of a kind that has no bytes, as a sparse one
                    found[f"{place}.{name}" if place else name] = _digest(buffer)
    return found


def _digest(buffer: Any) -> int:
    """Of its bytes on the host, so that values that change places, or signs, tell: sums do not."""
    held = buffer.detach().cpu().contiguous()
    size = held.numel() * held.element_size()
    return zlib.crc32((ctypes.c_char * size).from_address(held.data_ptr())) if size else 0


class _Buckets:
    """When the last gradient of a model of DistributedDataParallel was there: hooks on the parameters that come last.

    A hook on each parameter would cost a small step more than a hundredth; so after BACKWARDS_SEEN passes only those stay that
    came last in one of them.
    """

    def __init__(self, model: Any, clock: Callable[[], float], of_thread: OfThread) -> None:
        self._model = weakref.ref(model)
        self._clock, self._of_thread = clock, of_thread
        self.last, self.of_thread_then = 0.0, (0.0, 0.0)  # of the clocks, when the last gradient was there
        self._order: list[int] = []
        self._passes = 0
        self._stay: set[int] = set()
        self._handles = {
            number: parameter.register_post_accumulate_grad_hook(self._note(number))
            for number, parameter in enumerate(model.parameters())
            if parameter.requires_grad
        }

    def _note(self, number: int) -> Callable[[Any], None]:
        def note(_: Any) -> None:
            self.last, self.of_thread_then = self._clock(), self._of_thread()
            if self._passes < BACKWARDS_SEEN:
                self._order.append(number)

        return note

    def end_backward(self) -> None:
        """A backward pass has ended."""
        if not self._order:
            return
        self._stay.update(self._order[-LAST_READY:])
        self._order.clear()
        self._passes += 1
        if self._passes == BACKWARDS_SEEN:
            for number in self._handles.keys() - self._stay:
                self._handles.pop(number).remove()

    def torch_timings(self) -> Json:
        """Of the passes that torch samples itself, mean seconds: all communication, and that behind computation; {} without.

        `DDPLoggingData` of torch: passes of the first ten steps, and of each hundredth.
        """
        model: Any = self._model()
        with contextlib.suppress(Exception):  # private to torch, and not there for each device
            told = model._get_ddp_logging_data()
            whole, hidden = (
                told[name] * NANOSECONDS
                for name in ("avg_backward_comm_time", "avg_backward_compute_comm_overlap_time")
            )
            return {"communication": whole, "hidden": hidden, "bucket_bytes": told.get("bucket_sizes", "")}
        return {}


def _backend() -> str:
    """What carries collectives of the default group: of a GPU's tensors, where it has another one for these.

    A group that was made without naming any calls itself "undefined", and has one for each kind of device; it may also be
    made with one for each, as "cpu:gloo,cuda:nccl".
    """
    import torch.distributed as communication

    name = str(communication.get_backend())
    config = name if ":" in name else communication.get_backend_config() if name == "undefined" else ""
    by_device = dict(each.split(":", 1) for each in config.split(",") if ":" in each)
    if not by_device:
        return name
    if len(set(by_device.values())) == 1:
        return next(iter(by_device.values()))
    others = [backend for device, backend in by_device.items() if device != "cpu"]
    return others[0] if others else by_device.get("cpu", name)
