"""Peak bytes of a training step: the allocator's on an accelerator, live tensor bytes on the CPU. Child only."""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from perfaudit.machine.limits import free_memory
from perfaudit.target.accelerator import Accelerator, accelerator_of
from perfaudit.target.batches import tensors_in
from perfaudit.training.code_change import NotSwappable

Run = Callable[[Any, Any, Any], Any]  # operator, positional and keyword arguments: what the operator returns


def resident_bytes() -> int:
    """Bytes of physical memory this process holds now; 0 where the system does not say."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError):
        return 0


def peak_resident_bytes() -> int:
    """The most physical memory this process ever held, in bytes; 0 where the system does not say."""
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:"))
    except (OSError, ValueError, StopIteration):
        return 0


@dataclass(frozen=True, slots=True)
class StepMemory:
    """Peak bytes of a training step. tensors: held by tensors, parameters and optimizer state included.

    reserved: by the caching allocator, which takes whole segments and keeps fragments; None where there is none to ask.
    outside: what libraries took from the driver past the allocator while the steps were made (kernels that are loaded,
    handles and workspaces of cuBLAS and cuDNN, buffers of NCCL). The bare context of the process is in neither.
    """

    tensors: int
    reserved: int | None = None
    outside: int = 0

    @property
    def bytes_on_device(self) -> int | None:
        """What the training takes on its device: a memory budget is for this. None where only tensors can be counted."""
        return None if self.reserved is None else self.reserved + self.outside


def memory_of_script(training: Any) -> StepMemory:
    """Peak memory of one step of a script: see `memory_of_step`. With it comes the batch that the step loads."""

    def step(batch: Any) -> None:
        training.whole_step()

    return _memory_of(training, [], step, lambda: None)


def memory_of_step(training: Any, batch: Any) -> StepMemory:
    """Peak memory of one training step on a batch.

    One step is made first, so that the optimizer's state exists and libraries have what they need. What is reserved is
    the most that was since the process began. On the CPU the bytes of live storages are counted at every operator; buffers
    inside a library (oneDNN's scratch memory) are not among them.
    """
    return _memory_of(training, batch, training.step, training.optimizer.zero_grad)


def _memory_of(
    training: Any, batch: Any, step: Callable[[Any], object], forget_gradients: Callable[[], object]
) -> StepMemory:
    device = accelerator_of(training.device)
    before = _held_of(device)
    step(batch)
    forget_gradients()
    device.synchronize()
    earlier = device.peak_reserved_bytes()
    device.reset_peak()
    if device.peak_bytes() is not None:
        step(batch)
        device.synchronize()
        reserved = device.peak_reserved_bytes()
        after = _held_of(device)
        known = reserved is not None and before is not None and after is not None
        return StepMemory(
            device.peak_bytes() or 0,
            max(reserved or 0, earlier or 0) if known else None,
            outside(before, after) if before is not None and after is not None else 0,
        )
    with live_bytes() as live:
        for tensor in [*held_tensors(training), *tensors_in(batch)]:
            live.see(tensor)
        step(batch)
        return StepMemory(int(live.peak))


def _held_of(device: Accelerator) -> tuple[int, int] | None:
    """Bytes that the driver has free and that the allocator has reserved; None where one of them is not told."""
    device.synchronize()
    free, reserved = device.free_bytes(), device.reserved_bytes()
    return None if free is None or reserved is None else (free, reserved)


def outside(before: tuple[int, int], after: tuple[int, int]) -> int:
    """What the driver gave in between past the allocator, from what it has free and the allocator reserved, in bytes.

    Another process on the device counts against this one while it takes memory; one that gives it back hides as much.
    """
    return max(0, (before[0] - after[0]) - (after[1] - before[1]))


def room(device: Any) -> dict[str, int | None]:  # torch.device
    """Bytes of a device that are "free" now, whoever holds the rest, and that this process has "taken" at most; null where
    that is not told. The context of a process, which it has before anything of the training, is not in what it has taken.
    """
    if device.type == "cpu":
        return {"free": free_memory() or None, "taken": peak_resident_bytes() or None}
    accelerator = accelerator_of(device)
    return {"free": accelerator.free_bytes(), "taken": accelerator.peak_reserved_bytes()}


def refuse_without_room(device: Any) -> None:  # torch.device
    """Raise NotSwappable where the device, as far as it tells, has no room for a second training like that of this process."""
    seen = room(device)
    free, taken = seen["free"], seen["taken"]
    if free is not None and taken is not None and taken > free:
        raise NotSwappable(
            f"memory does not hold a second training beside the first: {free / 2**20:.0f} MiB are free, and this one has "
            f"taken {taken / 2**20:.0f} MiB"
        )


def held_tensors(training: Any) -> Iterator[Any]:
    """The tensors there are between two steps: parameters, buffers, and what the optimizer keeps."""
    yield from training.model.parameters()
    yield from training.model.buffers()
    for optimizer in training.optimizers:
        yield from tensors_in(list(optimizer.state.values()))


def _as_it_is(func: Any, args: Any, kwargs: Any) -> Any:
    return func(*args, **kwargs)


def live_bytes(run: Run = _as_it_is) -> Any:
    """A dispatch mode that counts the bytes of storages alive; `peak` is the most there were at once.

    run: how an operator is carried out; its result is what is counted.
    """
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode
    from torch.utils._pytree import tree_iter

    class LiveBytes(TorchDispatchMode):
        def __init__(self) -> None:
            super().__init__()  # type: ignore[no-untyped-call]  # torch's
            self.now = self.peak = 0
            self._alive: dict[int, weakref.ref[Any]] = {}

        def see(self, tensor: torch.Tensor) -> None:
            try:
                storage = tensor.untyped_storage()
            except (RuntimeError, NotImplementedError):  # sparse and opaque layouts have none
                return
            key, size = storage._cdata, storage.nbytes()
            if key in self._alive:
                return

            def let_go(_: object) -> None:
                self._alive.pop(key, None)
                self.now -= size

            self._alive[key] = weakref.ref(storage, let_go)
            self.now += size
            self.peak = max(self.peak, self.now)

        # The signature is torch's.
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            result = run(func, args, kwargs or {})
            for value in tree_iter(result):
                if isinstance(value, torch.Tensor):
                    self.see(value)
            return result

    return LiveBytes()
