"""Functions of torch and of the script's models, each with one of ours around it."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

Function = Callable[..., Any]  # Any: of torch, or one of ours in its place
Replace = Callable[[Any, str, Callable[[Function], Function]], Function]


def replace(owner: Any, name: str, watch: Callable[[Function], Function]) -> Function:
    """Put a function of ours in the place of an attribute, and return it. watch: makes it of the original."""
    original = getattr(owner, name)
    ours = functools.wraps(original)(watch(original))
    setattr(owner, name, ours)
    return ours


def put_back(owner: Any, name: str, ours: Function) -> None:
    """Put the original, which a class may have from another, in the place of our function, if that is still there."""
    if vars(owner).get(name) is not ours:
        return
    original = ours.__wrapped__  # set by `replace`
    delattr(owner, name)
    if getattr(owner, name, None) != original:  # a method of an object is made anew each time
        setattr(owner, name, original)
