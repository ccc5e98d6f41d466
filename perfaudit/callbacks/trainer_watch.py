"""The watch of a training that a trainer has built already, put in place when it begins and taken away when it ends.

A model's calls are not timed by its class, as `perfaudit run` does it: the class is the user's, and what is compiled would break
at a function of ours. The forward pass is what lies between a batch and the backward pass.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

from perfaudit.script import replaced_functions
from perfaudit.script.replaced_functions import Function
from perfaudit.script.watch import Watch

_Replaced = tuple[Any, str, Function]  # owner, name, and our function


class TrainerWatch(Watch):
    """Watches from `begin` to `end`; afterwards all functions of torch are its own again."""

    def __init__(self, on_update: Callable[[int], None], clock: Callable[[], float] = time.perf_counter) -> None:
        super().__init__(on_update, clock)
        self._has_optimizer = True  # it was built before
        self._steps: list[_Replaced] = []
        self._tensors: list[_Replaced] = []

    def begin(self, forward: tuple[Any, str] | None = None) -> None:
        """Put everything in place. forward: an object and its method that is the forward pass, where there is one."""
        self._notes.begin_in_this_thread()
        self._watch_steps(_into(self._steps))
        if forward is not None:
            _into(self._steps)(*forward, lambda original: self._notes.in_phase("forward", original))
        if not is_something_compiled():
            self._watch_tensors(_into(self._tensors))

    def leave_tensors(self) -> None:
        """Watch reads and copies no more: inside of what is compiled, each would break the graph."""
        _put_back(self._tensors)

    @property
    def times_reads(self) -> bool:
        """Whether reads on the host and copies to a device are phases of their own."""
        return bool(self._tensors)

    def end(self) -> None:
        """Take everything away. What somebody has wrapped meanwhile stays, and does nothing."""
        self._notes.here = self._notes.thread = 0
        self._notes.only_counts = False
        _put_back(self._tensors)
        _put_back(self._steps)
        for hook in self._hooks:
            hook.remove()
        self._hooks = ()

    def _look_for_models(self) -> None:
        """No model's class is timed."""


def is_something_compiled() -> bool:
    """Whether this process has asked for anything to be compiled."""
    dynamo: Any = sys.modules.get("torch._dynamo")
    if dynamo is None:
        return False
    backends = getattr(getattr(dynamo, "eval_frame", None), "cached_backends", {})
    return bool(getattr(dynamo.utils, "counters", {}).get("frames")) or any(map(_is_backend, backends.values()))


def _is_backend(kept: object) -> bool:
    return kept is not None and kept is not False


def _into(replaced: list[_Replaced]) -> Callable[[Any, str, Callable[[Function], Function]], Function]:
    """What replaces functions and notes them in this list."""

    def replace(owner: Any, name: str, watch: Callable[[Function], Function]) -> Function:
        ours = replaced_functions.replace(owner, name, watch)
        replaced.append((owner, name, ours))
        return ours

    return replace


def _put_back(replaced: list[_Replaced]) -> None:
    while replaced:
        replaced_functions.put_back(*replaced.pop())
