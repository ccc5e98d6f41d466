"""At which lines of the function that calls `backward` a script's modules were called before it. Child only.

A loss that a method computes does not show in the text that it comes from a model.
"""

from __future__ import annotations

import sys
import types
from dataclasses import dataclass, field
from typing import Any

from perfaudit.target.provenance import Site, users_call, users_frames

MOST_CALLS = 20_000  # of modules that are looked at: a step of the first ones may be very long
_Frame = tuple[int, types.CodeType]  # one that runs; its code, as another may come to be where it was


@dataclass(slots=True)
class Lines:
    """Of the function with a call of `backward`. forwards: at which modules ran that are trained, since the backward pass before;
    backwards: at which functions were called with a backward pass of their own.
    """

    forwards: set[int] = field(default_factory=set)
    backwards: set[int] = field(default_factory=set)


class ForwardLines:
    """Looks at all modules from `watch` to `end`. sites: what it has seen by the calls behind the backward passes.

    None among the sites is a backward pass that is no call of the script's own.
    """

    def __init__(self) -> None:
        self.sites: dict[Site | None, Lines] = {}
        self._since: dict[_Frame, Lines] = {}  # the last backward pass
        self._calls = 0
        self._hook: Any = None

    def watch(self) -> None:
        """Look from now on. To be called when torch has been imported."""
        from torch.nn.modules.module import register_module_forward_pre_hook

        self._hook = register_module_forward_pre_hook(self._note_call)

    def end(self) -> None:
        """Look no more."""
        if self._hook is not None:
            self._hook.remove()
        self._hook = None
        self._since.clear()

    def _note_call(self, module: Any, _: Any) -> None:
        import torch

        if not torch.is_grad_enabled() or not _is_trained(module):
            return
        self._calls += 1
        if self._calls > MOST_CALLS:
            self.end()
            return
        for frame in users_frames(sys._getframe(1)):
            self._of(frame).forwards.add(frame.f_lineno or 0)

    def note_backward(self, frame: types.FrameType) -> None:
        """A backward pass begins. frame: the innermost one of its call."""
        seen = self.sites.setdefault(users_call(frame), Lines())
        around = list(users_frames(frame))
        if self._hook is None or not around:
            return
        own = self._of(around[0])
        seen.forwards |= own.forwards
        seen.backwards |= own.backwards
        for lines in self._since.values():
            lines.forwards.clear()
        for outer in around[1:]:
            self._of(outer).backwards.add(outer.f_lineno or 0)

    def _of(self, frame: types.FrameType) -> Lines:
        return self._since.setdefault((id(frame), frame.f_code), Lines())


def _is_trained(module: Any) -> bool:
    """Whether it has parameters of its own of which gradients are wanted."""
    return any(each is not None and each.requires_grad for each in module._parameters.values())
