"""One training step with each of its operators counted: their number, operations, bytes, copies and lines. Child only."""

from __future__ import annotations

import contextlib
import gc
import linecache
import os
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

from perfaudit.measure.flop_formulas import formulas
from perfaudit.measure.memory import held_tensors, live_bytes
from perfaudit.target.batches import samples_in, tensors_in
from perfaudit.target.provenance import is_users
from perfaudit.target.working_folder import shown_path

Reply = dict[str, Any]  # JSON

OF_A_STEP = ("operators", "flops", "bytes_allocated", "peak_live_bytes", "samples")
_LABELS = "profiler::"  # marks for a profiler, which compute nothing; optimizers set two a step
# Backward passes and updates: their operators follow from what the model is, and no line of a loop that calls them is to blame.
_OF_NO_LINE = re.compile(r"[/\\]torch[/\\](autograd[/\\](graph|__init__)\.py|optim[/\\])")
COPIES = ("copies_to_device", "bytes_to_device", "unpinned_copies")  # on an accelerator, too


def counted_step(training: Any) -> Reply:
    """One step on the loader's next batch, from the batch on: values, by_name, places and absent as in `counters`."""
    loaded = training.next_batch()
    step = OperatorCounts(training.device.type, sys._getframe())
    with nothing_collected():
        step.know_all([*held_with_gradients(training), *tensors_in(loaded)])
        with step.mode:
            training.step(training.to_device(loaded))
    training.synchronize()
    return step.reply(samples_in(loaded))


def held_with_gradients(training: Any) -> list[Any]:
    """The tensors there are between two steps, gradients among them."""
    return [*held_tensors(training), *(p.grad for p in training.model.parameters() if p.grad is not None)]


class OperatorCounts:
    """Carries out the operators of one step and counts them.

    mode: to be entered while the step is made. is_paused: what runs is no part of the step, and is not counted.
    """

    def __init__(self, device_type: str, top: Any = None) -> None:  # Any: a frame
        self.is_paused = False
        self._formulas = formulas()
        self._device_type = device_type
        self._top = top  # its callers are none of the step's
        self._running = ""  # the operator whose results are looked at
        self.mode = live_bytes(self.run)
        self._see = self.mode.see
        self.mode.see = self._count_allocation
        self.begin()

    def begin(self) -> None:
        """Forget what was counted, for another step; what is alive stays known."""
        self.operators, self.flops, self.allocated = Counter[str](), Counter[str](), Counter[str]()
        self.lines: Counter[tuple[str, int, str]] = Counter()  # path, line, operator
        self.copies: Counter[str] = Counter()
        self.no_flops = ""
        self.mode.peak = self.mode.now

    def reply(self, samples: int) -> Reply:
        """What was counted, as `counted_step` has it."""
        values = {
            "operators": self.operators.total(),
            "bytes_allocated": self.allocated.total(),
            "peak_live_bytes": self.mode.peak,
        }
        by_name = {"operators": dict(self.operators), "bytes_allocated": dict(self.allocated)}
        absent = {}
        if self.no_flops:
            absent["flops"] = self.no_flops
        else:
            values["flops"], by_name["flops"] = self.flops.total(), dict(self.flops)
        values["samples"] = samples
        if self._device_type != "cpu":
            values.update({name: self.copies[name] for name in COPIES})
        return {"values": values, "by_name": by_name, "places": {"operators": places(self.lines)}, "absent": absent}

    def know_all(self, tensors: Iterable[Any]) -> None:
        """These tensors are there already: see `know`."""
        for tensor in tensors:
            self.know(tensor)

    def know(self, tensor: Any) -> None:
        """This tensor is there already: it counts as alive, but not as allocated."""
        if tensor.device.type == self._device_type:
            self._see(tensor)

    def _count_allocation(self, tensor: Any) -> None:
        if self.is_paused:
            return
        before = self.mode.now
        self.know(tensor)
        if self.mode.now > before:
            self.allocated[self._running] += self.mode.now - before

    def run(self, func: Any, args: Any, kwargs: Any) -> Any:
        if self.is_paused:
            return func(*args, **kwargs)
        for tensor in _tensors((args, kwargs)):
            self.know(tensor)
        result = func(*args, **kwargs)
        schema = getattr(func, "_schema", None)
        name = self._running = str(schema.name if schema is not None else func)
        if name.startswith(_LABELS):
            return result
        self.operators[name] += 1
        if (line := self._users_line()) is not None:
            self.lines[(*line, name)] += 1
        self._count_flops(name, func, args, kwargs, result)
        if self._device_type != "cpu":
            self.copies.update(copy_counts(name, args, kwargs, self._device_type))
        return result

    def _count_flops(self, name: str, func: Any, args: Any, kwargs: Any, result: Any) -> None:
        formula = self._formulas.get(getattr(func, "_overloadpacket", None))
        if formula is None or self.no_flops:
            return
        try:
            self.flops[name] += int(formula(*args, **kwargs, out_val=result))
        except Exception as error:  # formulas do not take every layout
            self.no_flops = f"those of {name} cannot be counted: {type(error).__name__}: {error}"[:300]

    def _users_line(self) -> tuple[str, int] | None:
        frame = sys._getframe(2)
        while frame is not None and frame is not self._top:
            if is_users(frame):
                return frame.f_code.co_filename, frame.f_lineno
            if _OF_NO_LINE.search(frame.f_code.co_filename):
                return None
            frame = frame.f_back  # type: ignore[assignment]  # None ends the loop
        return None


def copy_counts(name: str, args: Any, kwargs: Any, device_type: str) -> dict[str, int]:
    """What an operator adds to the copies from the host to the device, {} if it is none."""
    if name == "aten::_to_copy":
        source, target = args[0], kwargs.get("device")
    elif name == "aten::copy_":
        source, target = args[1], args[0].device
    else:
        return {}
    if target is None or target.type != device_type or source.device.type != "cpu":
        return {}
    size = source.numel() * source.element_size()
    return {"copies_to_device": 1, "bytes_to_device": size, "unpinned_copies": int(not source.is_pinned())}


def _tensors(value: Any) -> Iterator[Any]:
    import torch
    from torch.utils._pytree import tree_iter

    return (item for item in tree_iter(value) if isinstance(item, torch.Tensor))


def places(lines: Counter[tuple[str, int, str]]) -> list[list[str | int]]:
    """[path, line, text, what, how often], in order; paths as seen from the working directory."""
    return sorted(
        [shown_path(os.path.realpath(path)), line, linecache.getline(path, line).strip(), what, count]
        for (path, line, what), count in lines.items()
    )


@contextlib.contextmanager
def nothing_collected() -> Iterator[None]:
    """Cycles are collected before and not inside, so that what is alive does not depend on when they happen to be."""
    gc.collect()
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
