"""What the names of a running function stand for, looked at without changing what the function sees. Child only."""

from __future__ import annotations

import contextlib
import dis
import functools
import inspect
import sys
import types
from collections.abc import Iterator
from typing import Any

# With one of these a function sees the dictionary of its names, which before Python 3.13 a look from outside fills anew.
SEES_ITS_NAMES = frozenset({"locals", "vars", "dir", "eval", "exec", "f_locals"})
# Instructions that take a name from the file or from Python, not from an object.
_LOOKED_UP = ("LOAD_GLOBAL", "LOAD_NAME")


@contextlib.contextmanager
def names_in(frame: types.FrameType) -> Iterator[dict[str, Any]]:
    """Inside, what each name of a frame stands for; nothing where the function may see that somebody looks.

    Of a function it is a copy, which is emptied afterwards: it would keep the tensors of this step alive. Of a module it is its
    globals.
    """
    code = frame.f_code
    is_copy = bool(code.co_flags & inspect.CO_OPTIMIZED) and sys.version_info < (3, 13)
    if is_copy and _sees_its_names(code):
        yield {}
        return
    names = frame.f_locals
    try:
        yield names
    finally:
        if is_copy:
            names.clear()


@functools.lru_cache(maxsize=1024)
def _sees_its_names(code: types.CodeType) -> bool:
    """Whether a function looks up one of these names. `model.eval()` is a method of something else, `builtins.eval` is not."""
    named = SEES_ITS_NAMES & {*code.co_names}
    if not named or "f_locals" in named or "builtins" in code.co_names:
        return bool(named)
    return any(each.opname in _LOOKED_UP and each.argval in named for each in dis.get_instructions(code))
