"""What the names of a running function stand for, looked at without changing what the function sees. Child only."""

from __future__ import annotations

import contextlib
import inspect
import sys
import types
from collections.abc import Iterator
from typing import Any

# With one of these a function sees the dictionary of its names, which before Python 3.13 a look from outside fills anew.
SEES_ITS_NAMES = frozenset({"locals", "vars", "dir", "eval", "exec", "f_locals"})


@contextlib.contextmanager
def names_in(frame: types.FrameType) -> Iterator[dict[str, Any]]:
    """Inside, what each name of a frame stands for; nothing where the function may see that somebody looks.

    Of a function it is a copy, which is emptied afterwards: it would keep the tensors of this step alive. Of a module it is its
    globals.
    """
    code = frame.f_code
    is_copy = bool(code.co_flags & inspect.CO_OPTIMIZED) and sys.version_info < (3, 13)
    if is_copy and SEES_ITS_NAMES & {*code.co_names}:
        yield {}
        return
    names = frame.f_locals
    try:
        yield names
    finally:
        if is_copy:
            names.clear()
