"""Which source call built this object, and building it with other arguments: DataLoader construction under observation."""

from __future__ import annotations

import os
import sys
import sysconfig
import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_LIBRARIES = tuple(
    os.path.realpath(path) + os.sep
    for path in {sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
)
_OURS = str(Path(__file__).resolve().parents[1]) + os.sep


@dataclass(frozen=True, slots=True)
class Site:
    """A call in the user's code: lines from 1, columns from 0 in UTF-8 bytes, as `ast` counts them."""

    path: str
    line: int
    end_line: int
    column: int
    end_column: int


def call_site(frame: types.FrameType | None) -> Site | None:
    """The innermost call on the stack that stands in the user's own code, with the exact span of the expression."""
    while frame is not None:
        path = os.path.realpath(frame.f_code.co_filename)
        if Path(path).is_file() and not path.startswith((*_LIBRARIES, _OURS)):
            positions = list(frame.f_code.co_positions())[frame.f_lasti // 2]
            if all(value is not None for value in positions):
                line, end_line, column, end_column = positions
                return Site(path, line, end_line, column, end_column)  # type: ignore[arg-type]  # checked above
            return None
        frame = frame.f_back
    return None


@contextmanager
def loaders_built(overrides: dict[str, Any]) -> Iterator[Callable[[Any], Site | None]]:
    """While it is open, every DataLoader is built with these keyword arguments replaced, and its call site is kept.

    Yields a function from a loader to its site. overrides may hold num_workers, pin_memory, prefetch_factor, batch_size, …;
    what a setting rules out is dropped (prefetch_factor and persistent_workers without workers).
    """
    from torch.utils.data import DataLoader

    sites: dict[int, tuple[Any, Site | None]] = {}  # with the loader itself, so that no other takes over its id
    original = DataLoader.__init__

    def observed(self: Any, *args: Any, **kwargs: Any) -> None:  # Any: whatever the user passes on
        sites.setdefault(id(self), (self, call_site(sys._getframe(1))))
        if not overrides:
            original(self, *args, **kwargs)
            return
        names = original.__code__.co_varnames[1 : original.__code__.co_argcount]
        named = {**dict(zip(names, args, strict=False)), **kwargs}
        batches_itself = named.get("batch_sampler") is not None or named.get("batch_size", 1) is None
        named.update({k: v for k, v in overrides.items() if not (k == "batch_size" and batches_itself)})
        if named.get("num_workers", 0) == 0:
            for name in ("prefetch_factor", "persistent_workers", "multiprocessing_context"):
                named.pop(name, None)
            named.pop("timeout", None)
        original(self, **named)

    DataLoader.__init__ = observed  # type: ignore[method-assign]
    try:
        yield lambda loader: sites[id(loader)][1] if id(loader) in sites else None
    finally:
        DataLoader.__init__ = original  # type: ignore[method-assign]
