"""Calls of a library in which some arguments are ours, whatever the script says, and calls that do nothing."""

from __future__ import annotations

import copy
import functools
import inspect
import sys
from collections.abc import Callable, Mapping
from typing import Any

Call = Callable[..., Any]  # of a library, which may take anything


def put_in_place(module: str, name: str, make: Callable[[Call], Call]) -> None:
    """Put what `make` makes of a function, or of what begins an instance of a class, where a module that is imported has it.

    name: in the module, as `Task.set_offline` for a method. A class stays the class that it is. A name that this version of the
    library does not have is left out, and so is one of a module that only has the library's name.
    """
    holder, _, last = name.rpartition(".")
    owner: Any = sys.modules[module]
    for part in filter(None, holder.split(".")):
        owner = getattr(owner, part, None)
    theirs: Any = inspect.getattr_static(owner, last, None)
    if isinstance(theirs, type):
        begin: Any = vars(theirs).get("__init__") or theirs.__init__  # type: ignore[misc]  # of the class, or inherited
        if not hasattr(begin, "_by_perfaudit"):  # it may have two names
            type.__setattr__(theirs, "__init__", _mark(make(begin)))
    elif isinstance(theirs, (classmethod, staticmethod)):
        setattr(owner, last, type(theirs)(make(theirs.__func__)))
    elif callable(theirs):
        setattr(owner, last, make(theirs))


def _mark(ours: Call) -> Call:
    ours._by_perfaudit = True  # type: ignore[attr-defined]  # an attribute of our own function
    return ours


def always_with(**ours: Any) -> Callable[[Call], Call]:
    """What makes of a function one that gets these arguments from us; those that it does not know are left out.

    Each call gets its own copies: a library may add to a list that it is given.
    """

    def make(theirs: Call) -> Call:
        @functools.wraps(theirs)
        def call(*given: Any, **named: Any) -> Any:
            arguments = _with_ours(theirs, given, named, {name: copy.copy(value) for name, value in ours.items()})
            return theirs(*arguments[0], **arguments[1])

        return call

    return make


def returns(value: object) -> Callable[[Call], Call]:
    """What makes of a function one that does nothing and gives this value."""

    def make(theirs: Call) -> Call:
        @functools.wraps(theirs)
        def call(*given: Any, **named: Any) -> object:
            return value

        return call

    return make


def _with_ours(
    theirs: Call, given: tuple[Any, ...], named: dict[str, Any], ours: Mapping[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """What a function is called with: what was given and named, and ours in its place, which may have been given by position."""
    try:
        signature = inspect.signature(theirs)
        bound = signature.bind_partial(*given, **named)
    except (TypeError, ValueError):  # a wrong call, of which it says what is wrong, or a function without a signature
        return given, named
    takes_any = [each.name for each in signature.parameters.values() if each.kind is each.VAR_KEYWORD]
    for name, value in ours.items():
        if name in signature.parameters:
            bound.arguments[name] = value
        elif takes_any:
            bound.arguments.setdefault(takes_any[0], {})[name] = value
    return bound.args, bound.kwargs
