"""A call at the bottom of a stack of its own, as deep as in the user's own loop. Child only.

What a step takes may depend on how many frames lie below it: where autograd's anomaly detection is on, each operation of the
forward pass writes all of them down. benchmarks/fidelity.py compares such a step with the same one of a bare loop.
"""

from __future__ import annotations

import contextvars
import sys
from collections.abc import Callable
from typing import TypeVar

from greenlet import greenlet

Result = TypeVar("Result")


def call_at_bottom(function: Callable[..., Result], *arguments: object) -> Result:
    """Call a function with no frame below it but its own; it raises what that raises. One that is traced is called as usual."""
    if sys.gettrace() is not None or sys.getprofile() is not None:
        return function(*arguments)
    stack = greenlet(function)
    stack.gr_context = contextvars.copy_context()
    result: Result = stack.switch(*arguments)
    return result
