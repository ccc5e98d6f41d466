"""A context around the forward pass and the loss of a script's steps, whose loop is its own. Child only."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator


class AroundForward:
    """What the script's steps run in from the first call of a model that is to be trained up to the backward pass.

    That is what stands under the context in patched text, but for what the script does between its model's call and `backward`
    beside the loss. Nothing by default.
    """

    def __init__(self) -> None:
        self._make: Callable[[], contextlib.AbstractContextManager[object]] | None = None
        self._inside = contextlib.ExitStack()
        self._is_inside = False

    @contextlib.contextmanager
    def made_by(self, make: Callable[[], contextlib.AbstractContextManager[object]]) -> Iterator[None]:
        """Inside, forward passes run in a context of this kind."""
        before, self._make = self._make, make
        try:
            yield
        finally:
            self.end()
            self._make = before

    def begin(self) -> None:
        """A model is called whose gradients are wanted."""
        if self._make is not None and not self._is_inside:
            self._is_inside = True
            self._inside.enter_context(self._make())

    def end(self) -> None:
        """The backward pass begins, or the step is over."""
        if self._is_inside:
            self._is_inside = False
            self._inside.close()
