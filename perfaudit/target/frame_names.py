"""What the names of a running function stand for, looked at without changing what the function sees. Child only."""

from __future__ import annotations

import contextlib
import dis
import functools
import inspect
import sys
import types
from collections.abc import Iterator, Sequence
from typing import Any

# With one of these a function sees the dictionary of its names, which before Python 3.13 a look from outside fills anew.
SEES_ITS_NAMES = frozenset({"locals", "vars", "dir", "eval", "exec", "f_locals"})
OF_AN_ARGUMENT = frozenset({"vars", "dir"})  # of these, those that look at their argument where they are given one
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
    instructions = list(dis.get_instructions(code))
    return any(
        each.opname in _LOOKED_UP and each.argval in named and not _looks_at_its_argument(instructions, at)
        for at, each in enumerate(instructions)
    )


def _looks_at_its_argument(instructions: Sequence[dis.Instruction], at: int) -> bool:
    """Whether what is looked up there is called at once, and is given an argument at which it looks: `vars(args)`."""
    looked_up, behind = instructions[at], [each.opname for each in instructions[at + 1 : at + 3]]
    has_place_for_self = bool((looked_up.arg or 0) & 1)  # which is made for a call alone
    is_called = looked_up.opname == "LOAD_GLOBAL" and has_place_for_self
    is_given = bool(behind) and behind[0] not in ("PRECALL", "CALL") and "CALL_FUNCTION_EX" not in behind
    return looked_up.argval in OF_AN_ARGUMENT and is_called and is_given
