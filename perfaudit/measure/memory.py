"""Peak bytes of a training step: the allocator's on an accelerator, live tensor bytes on the CPU. Child only."""

from __future__ import annotations

import os
import weakref
from pathlib import Path
from typing import Any


def resident_bytes() -> int:
    """Bytes of physical memory this process holds now; 0 where the system does not say."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError):
        return 0


def peak_of_step(training: Any, batch: Any) -> int:
    """Peak bytes held by tensors during one training step on a batch, parameters and optimizer state included.

    One step is made first, so that the optimizer's state exists. On the CPU the bytes of live storages are counted at
    every operator; buffers inside a library (oneDNN's scratch memory) are not among them.
    """
    import torch

    training.step(batch)
    training.optimizer.zero_grad()
    if training.device.type == "cuda":
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        training.step(batch)
        torch.cuda.synchronize()
        return int(torch.cuda.max_memory_allocated())
    with _live_bytes() as live:
        for tensor in _held(training, batch):
            live.see(tensor)
        training.step(batch)
        return int(live.peak)


def _held(training: Any, batch: Any) -> list[Any]:
    import torch

    tensors = [*training.model.parameters(), *training.model.buffers()]
    queue: list[Any] = [*training.optimizer.state.values(), batch]
    while queue:
        value = queue.pop()
        if isinstance(value, torch.Tensor):
            tensors.append(value)
        elif isinstance(value, dict):
            queue += value.values()
        elif isinstance(value, (list, tuple)):
            queue += value
    return tensors


def _live_bytes() -> Any:
    """A dispatch mode that counts the bytes of storages alive; `peak` is the most there were at once."""
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

            def gone(_: object) -> None:
                self._alive.pop(key, None)
                self.now -= size

            self._alive[key] = weakref.ref(storage, gone)
            self.now += size
            self.peak = max(self.peak, self.now)

        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:  # torch's own signature
            result = func(*args, **(kwargs or {}))
            for value in tree_iter(result):
                if isinstance(value, torch.Tensor):
                    self.see(value)
            return result

    return LiveBytes()
