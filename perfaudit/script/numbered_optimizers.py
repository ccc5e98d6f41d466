"""The optimizers of a training, by number. Knows no torch."""

from __future__ import annotations

import weakref
from typing import Any

NO_NUMBER = -1  # of an update without an optimizer


class NumberedOptimizers:
    """Gives each optimizer a number, and keeps none alive: some scripts build one after the other, each with a model of its own.

    kinds: the names of their classes, by number.
    """

    def __init__(self) -> None:
        self.kinds: list[str] = []
        self._optimizers: list[weakref.ref[Any]] = []
        self._numbers: dict[int, int] = {}  # by the id of an optimizer

    def number(self, optimizer: Any) -> int:
        """That of an optimizer; a new one, where another one was in its place in memory."""
        if optimizer is None:
            return NO_NUMBER
        number = self._numbers.get(id(optimizer))
        if number is None or self._optimizers[number]() is not optimizer:
            number = self._numbers[id(optimizer)] = len(self._optimizers)
            self._optimizers.append(weakref.ref(optimizer))
            self.kinds.append(type(optimizer).__name__)
        return number

    def optimizer(self, number: int) -> Any:
        """The optimizer of this number, None where it is gone."""
        return self._optimizers[number]()
