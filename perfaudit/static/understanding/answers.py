"""Answers about parts of a file that many places ask for: each is found once as long as the file is looked at."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Concatenate, ParamSpec, TypeVar

from perfaudit.static.source import Source

P = ParamSpec("P")
T = TypeVar("T")
_NEVER = object()


def remember(function: Callable[Concatenate[Source, P], T]) -> Callable[Concatenate[Source, P], T]:
    """Keeps what a function says of a file for each further argument (nodes, texts), however many there are.

    A cache of a fixed number of answers fails a file with more loops or functions than that: the time to look at it grows
    with their square. The answers end with the source; none of them may hold it, which would keep its tree.
    """

    @functools.wraps(function)
    def answer(source: Source, *parts: P.args, **more: P.kwargs) -> T:
        known = source.answers.get(function)
        if known is None:
            known = source.answers[function] = {}
        key = (*parts, *more.items()) if more else parts
        found = known.get(key, _NEVER)
        if found is _NEVER:
            found = known[key] = function(source, *parts, **more)
        return found  # type: ignore[return-value]  # what the function gave

    return answer  # type: ignore[return-value]  # wraps names the first parameter
