"""The modules that a script has built. To look for them among all objects takes longer than many a step. Child only."""

from __future__ import annotations

import os
import sys
import weakref
from collections.abc import Collection
from typing import Any

from perfaudit.script.replaced_functions import Function

FEWEST = 1024  # references, before those to modules that are gone are dropped


class BuiltModules:
    """The modules that were built, copied or loaded since this was put in place, as long as they are there.

    kinds: classes of all of them, also of those that were built when no more were wanted.
    """

    def __init__(self) -> None:
        self._built: list[weakref.ref[Any]] = []
        self._most = FEWEST
        self.kinds: set[type] = set()
        self.is_open = True  # whether any more are wanted

    def watch_building(self, original: Function) -> Function:
        """In the place of `Module.__init__`, and of `Module.__setstate__`, by which copies and what is loaded come to be."""

        def build(module: Any, *args: Any, **kwargs: Any) -> Any:
            self.kinds.add(type(module))
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

    def never_built(self, files: Collection[str]) -> dict[str, list[str]]:
        """Names of the modules' classes in these files, by file, of which, and of whose subclasses, none was built."""
        if (torch := sys.modules.get("torch.nn")) is None:
            return {}  # a script that ended before it imported torch has no such class; to import it takes seconds
        Module = torch.Module
        built, others = {base for kind in self.kinds for base in kind.__mro__}, []
        known: dict[str, set[str]] = {}  # a file may be imported under two names, and has each class twice then
        for module in list(sys.modules.values()):
            file = os.path.abspath(getattr(module, "__file__", None) or "")  # noqa: PTH100
            if file not in files:
                continue
            for name, kind in vars(module).items():
                if isinstance(kind, type) and issubclass(kind, Module) and kind.__module__ == module.__name__:
                    others += [(file, name)] if kind not in built else []
                    known.setdefault(file, set()).update([name] if kind in built else [])
        found: dict[str, list[str]] = {}
        for file, name in dict.fromkeys(others):
            if name not in known.get(file, ()):
                found.setdefault(file, []).append(name)
        return found
