"""Regular expressions that are compiled when they are first used: a scan of one file uses a few of some 300."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, AnyStr, cast

_METHODS = ("findall", "finditer", "fullmatch", "match", "search", "split", "sub", "subn")


class _Expression:
    """Stands for a compiled expression; what that has is here too, from the first time on that something is asked for."""

    def __init__(self, text: str | bytes, flags: int) -> None:
        self._text, self._flags = text, flags

    def __getattr__(self, name: str) -> Any:  # Any: whatever an expression has
        compiled: re.Pattern[Any] = re.compile(self._text, self._flags)
        for method in _METHODS:  # found in the object from now on, which is as fast as asking the expression itself
            setattr(self, method, getattr(compiled, method))
        return getattr(compiled, name)


def regex(text: AnyStr, flags: int = 0) -> re.Pattern[AnyStr]:
    """The expression as `re.compile` gives it, for a name of a module. A wrong one raises where it is first used."""
    return cast("re.Pattern[AnyStr]", _Expression(text, flags))


def matches_at_lines_with(word: bytes, pattern: re.Pattern[bytes], data: bytes) -> Iterator[re.Match[bytes]]:
    """Where a pattern matches at the beginning of a line that holds a word: five times as fast as a search for `^`."""
    at = data.find(word)
    while at >= 0:
        if match := pattern.match(data, data.rfind(b"\n", 0, at) + 1):
            yield match
        line_end = data.find(b"\n", at)
        at = data.find(word, line_end) if line_end >= 0 else -1
