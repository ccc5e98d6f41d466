"""Which types a training enters autocast with, and where it switches autocast off. Child only."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from typing import Any

from perfaudit.target.provenance import Site, users_call


@contextlib.contextmanager
def autocasts(off: set[tuple[str, Site]] | None = None) -> Iterator[set[str]]:
    """The set it gives gathers the types that autocast is entered with inside.

    off: gathers where the user's code switches autocast off: the type of device, and the call.
    """
    import torch

    seen: set[str] = set()
    enter = torch.autocast.__enter__

    def note_and_enter(self: Any) -> Any:
        if self._enabled:
            seen.add(str(self.fast_dtype).removeprefix("torch."))
        elif off is not None and (site := users_call(sys._getframe(1))) is not None:
            off.add((self.device, site))
        return enter(self)  # type: ignore[no-untyped-call]  # torch's

    torch.autocast.__enter__ = note_and_enter  # type: ignore[method-assign]  # put back below
    try:
        yield seen
    finally:
        torch.autocast.__enter__ = enter  # type: ignore[method-assign]
