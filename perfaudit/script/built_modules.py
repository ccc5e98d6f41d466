"""The modules that a script has built. To look for them among all objects takes longer than many a step. Child only."""

from __future__ import annotations

import weakref
from typing import Any

from perfaudit.script.replaced_functions import Function

FEWEST = 1024  # references, before those to modules that are gone are dropped


class BuiltModules:
    """The modules that were built, copied or loaded since this was put in place, as long as they are there."""

    def __init__(self) -> None:
        self._built: list[weakref.ref[Any]] = []
        self._most = FEWEST
        self.is_open = True  # whether any more are wanted

    def watch_building(self, original: Function) -> Function:
        """In the place of `Module.__init__`, and of `Module.__setstate__`, by which copies and what is loaded come to be."""

        def build(module: Any, *args: Any, **kwargs: Any) -> Any:
            if self.is_open:
                self._add(module)
            return original(module, *args, **kwargs)

        return build

    def _add(self, module: Any) -> None:
        if len(self._built) >= self._most:
            self._built = [each for each in self._built if each() is not None]
            self._most = max(FEWEST, 2 * len(self._built))
        self._built.append(weakref.ref(module))

    def alive(self) -> list[Any]:
        """Those that are there, each once."""
        found = {id(module): module for each in self._built if (module := each()) is not None}
        return list(found.values())
