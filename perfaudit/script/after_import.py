"""Something done once a module has been imported, whoever imports it: the script sets variables before it imports torch."""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import sys
import types
from collections.abc import Callable, Sequence


def after_import(name: str, then: Callable[[], None]) -> None:
    """Call a function when a module has been imported; at once where it has been already."""
    if name in sys.modules:
        then()
    else:
        sys.meta_path.insert(0, _AfterImport(name, then))


class _AfterImport(importlib.abc.MetaPathFinder):
    """Calls a function once a module has been imported, whoever imports it.

    It stays until then: libraries ask first whether there is such a module (`importlib.util.find_spec`), and import it later.
    """

    def __init__(self, name: str, then: Callable[[], None]) -> None:
        self._name = name
        self._then = then
        self._is_looking = False

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name != self._name or self._is_looking:
            return None
        self._is_looking = True
        try:
            spec = importlib.util.find_spec(name)
        finally:
            self._is_looking = False
        if spec is None or spec.loader is None:
            return spec
        execute = spec.loader.exec_module

        def execute_and_tell(module: types.ModuleType) -> None:
            execute(module)
            if self in sys.meta_path:  # not where it has been imported before, and is again
                sys.meta_path.remove(self)
                self._then()

        spec.loader.exec_module = execute_and_tell  # type: ignore[method-assign]  # of this one loader
        return spec
