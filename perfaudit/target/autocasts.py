"""Which types a training enters autocast with. Child only."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any


@contextlib.contextmanager
def autocasts() -> Iterator[set[str]]:
    """The set it gives gathers the types that autocast is entered with inside."""
    import torch

    seen: set[str] = set()
    enter = torch.autocast.__enter__

    def noted(self: Any) -> Any:
        if self._enabled:
            seen.add(str(self.fast_dtype).removeprefix("torch."))
        return enter(self)  # type: ignore[no-untyped-call]  # torch's

    torch.autocast.__enter__ = noted  # type: ignore[method-assign]  # put back below
    try:
        yield seen
    finally:
        torch.autocast.__enter__ = enter  # type: ignore[method-assign]
