"""The optimizers of a training, by number, and the calls that have built them. Knows no torch."""

from __future__ import annotations

import contextlib
import sys
import weakref
from collections.abc import Callable
from typing import Any

from perfaudit.target.provenance import Site, call_site

Lines = tuple[str, int, int]  # file, first and last line of a call
NO_NUMBER = -1  # of an update without an optimizer


class NumberedOptimizers:
    """Gives each optimizer a number, and keeps none alive: some scripts build one after the other, each with a model of its own.

    kinds: the names of their classes, by number.
    """

    def __init__(self) -> None:
        self.kinds: list[str] = []
        self._optimizers: list[weakref.ref[Any]] = []
        self._numbers: dict[int, int] = {}  # by the id of an optimizer
        self._built: weakref.WeakKeyDictionary[Any, Site] = weakref.WeakKeyDictionary()
        self._sites: set[Site | None] = set()  # of those that have a number, None where one of these is not known

    def watch_building(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """In the place of `Optimizer.__init__`."""

        def build(optimizer: Any, *args: Any, **kwargs: Any) -> Any:
            if (site := call_site(sys._getframe(1), optimizer)) is not None:
                with contextlib.suppress(TypeError):  # a class of optimizers may have no hash
                    self._built[optimizer] = site
            return original(optimizer, *args, **kwargs)

        return build

    def number(self, optimizer: Any) -> int:
        """That of an optimizer; a new one, where another one was in its place in memory."""
        if optimizer is None:
            return NO_NUMBER
        number = self._numbers.get(id(optimizer))
        if number is None or self._optimizers[number]() is not optimizer:
            number = self._numbers[id(optimizer)] = len(self._optimizers)
            self._optimizers.append(weakref.ref(optimizer))
            self._sites.add(self._site_of(optimizer))
            self.kinds.append(type(optimizer).__name__)
        return number

    def _site_of(self, optimizer: Any) -> Site | None:
        with contextlib.suppress(TypeError):
            return self._built.get(optimizer)
        return None

    def optimizer(self, number: int) -> Any:
        """The optimizer of this number, None where it is gone."""
        return self._optimizers[number]()

    def calls(self) -> list[Lines]:
        """Those that have built the optimizers with a number; [] where that of one is not known."""
        known = [site for site in self._sites if site is not None]
        return [(site.path, site.line, site.end_line) for site in known] if len(known) == len(self._sites) else []
