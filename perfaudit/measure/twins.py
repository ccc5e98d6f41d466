"""Second trainings and second loaders in one process, of which only one at a time has its loader workers running. Child only."""

from __future__ import annotations

import json
import types
from collections.abc import Callable, Container, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Protocol

from perfaudit.training import Variant
from perfaudit.training.workers import Workers

FIRST = ""  # whose turn it is while the first training's own loader is in place


class Twin(Variant, Protocol):
    """A variant that is a training of its own, from modules of its own by name."""

    training: Any
    modules: dict[str, types.ModuleType]

    def close(self) -> None:
        """Let go of it."""


class OtherLoader(Variant, Protocol):
    """A variant whose steps take their batches from a loader of its own; `loader` is None before it was first entered."""

    @property
    def loader(self) -> Any:
        """The DataLoader."""


@dataclass(slots=True)
class Twins:
    """Second trainings of this process by the text that they are built from: several races of it share them.

    build: makes one of texts by path; raises NotSwappable, also where memory does not hold another. Here is also known whose
    loader workers run: those of the first training, of a twin, or of a loader that takes the place of the training's.
    may_stop: see `Workers`.
    """

    build: Callable[[Mapping[str, str]], Twin]
    may_stop: Callable[[], Container[int] | None] = lambda: None
    _built: dict[str, Twin] = field(default_factory=dict)
    _workers: Workers = field(init=False)

    def __post_init__(self) -> None:
        self._workers = Workers(FIRST, self.may_stop)

    def of(self, texts: Mapping[str, str]) -> Twin:
        """The twin with these texts. Raises NotSwappable."""
        key = json.dumps(texts, sort_keys=True)
        if key not in self._built:
            self._workers.give_turn_to(key)  # processes that building it starts are its own
            try:
                self._built[key] = self.build(texts)
            finally:
                self._workers.give_turn_to(FIRST)
        return self._built[key]

    def drop(self, twin: Variant) -> None:
        """Let go of a twin that is no use."""
        if key := self._key(twin):
            self._built.pop(key).close()

    @property
    def modules(self) -> list[types.ModuleType]:
        """The modules of all twins."""
        return [module for twin in self._built.values() for module in twin.modules.values()]

    def training_of(self, variant: Variant | None) -> Any:
        """The training that makes a variant's steps where it is one of its own; None where the first one does."""
        key = self._key(variant)
        return self._built[key].training if key else None

    def give_turn_to(self, variant: Variant | None, loader: OtherLoader | None = None) -> None:
        """Let the loader workers that a variant's steps need go on, and all others stand still.

        variant: None for the first training. loader: that takes the place of the training's while the variant is in it.
        """
        self._workers.give_turn_to(self._key(variant) if loader is None else f"loader {id(loader)}")

    def _key(self, variant: Variant | None) -> str:
        return next((key for key, twin in self._built.items() if twin is variant), FIRST)

    def first_goes_on(self) -> AbstractContextManager[None]:
        """Around the first training's own loader being asked for its batches: its workers go on, whoever has the turn."""
        return self._workers.going_on(FIRST)

    def close(self) -> None:
        """Let go of all of them; workers that stand still could not end."""
        self._workers.close()
        for twin in self._built.values():
            twin.close()
