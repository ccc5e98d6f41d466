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
    """Watches from `begin` to `end`; afterwards all functions of torch are its own again, as they are while it rests."""

    def __init__(self, on_update: Callable[[int], None], clock: Callable[[], float] = time.perf_counter) -> None:
        super().__init__(on_update, clock)
        self._has_optimizer = True  # it was built before
        self._forward: tuple[Any, str] | None = None
        self._in_place: dict[tuple[int, str], _Replaced] = {}  # by the id of the owner and the name
        self._has_left_tensors = False

    def begin(self, forward: tuple[Any, str] | None = None) -> None:
        """Put everything in place. forward: an object and its method that is the forward pass, where there is one."""
        self._notes.begin_in_this_thread()
        self._forward = forward
        self.go_on()

    def rest(self) -> None:
        """Take all away but what counts updates, until `go_on`. To be called when an update has ended."""
        if self._notes.only_counts:
            self._put_back()

    def go_on(self) -> None:
        """Put it in place again."""
        self._has_left_tensors |= is_something_compiled()
        self._watch_steps(self._replace)
        if self._forward is not None:
            self._replace(*self._forward, lambda original: self._notes.in_phase("forward", original))
        if not self._has_left_tensors:
            self._watch_tensors(self._replace)

    def leave_tensors(self) -> None:
        """Watch reads and copies no more: inside of what is compiled, each would break the graph."""
        self._has_left_tensors = True
        self._put_back()
        self.go_on()

    @property
    def times_reads(self) -> bool:
        """Whether reads on the host and copies to a device are phases of their own."""
        return not self._has_left_tensors

    def end(self) -> None:
        """Take everything away. What somebody has wrapped meanwhile stays, and does nothing."""
        self._notes.here = self._notes.thread = 0
        self._notes.only_counts = False
        self._put_back()
        for hook in self._hooks:
            hook.remove()
        self._hooks = ()

    def _hook_updates(self) -> None:
        if not self._hooks:
            super()._hook_updates()

    def _replace(self, owner: Any, name: str, watch: Callable[[Function], Function]) -> Function:
        """As `replaced_functions.replace`, but where ours is in place still, as somebody has put another function around it."""
        place = id(owner), name
        if place not in self._in_place:
            self._in_place[place] = owner, name, replaced_functions.replace(owner, name, watch)
        return self._in_place[place][-1]

    def _put_back(self) -> None:
        for place, (owner, name, ours) in list(self._in_place.items()):
            if vars(owner).get(name) is ours:
                replaced_functions.put_back(owner, name, ours)
                del self._in_place[place]

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
