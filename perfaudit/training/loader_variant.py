"""Another loader in the place of the training's: built by the same factory with other arguments. Child only.

Each has its own iterator and its own workers, so it goes on where it stopped whenever it is put in place again. Whoever enters
it sees to it that workers of the others stand still (`training.workers`).
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from perfaudit.errors import TargetError
from perfaudit.target.loading import Loading
from perfaudit.target.random_streams import same_random_streams
from perfaudit.training.code_change import NotSwappable
from perfaudit.training.twin import folder_kept


@dataclass(slots=True)
class LoaderVariant:
    """The training with a loader that is built with these arguments, by name."""

    training: Any  # training.factory_training.FactoryTraining
    overrides: dict[str, Any]
    loading: Loading | None = None
    _displaced: Loading | None = None

    @property
    def loader(self) -> Any:
        """The DataLoader, None before it was first entered."""
        return self.loading.loader if self.loading is not None else None

    def enter(self) -> None:
        """Take batches from this loader. Raises NotSwappable where the factory does not build one with these arguments."""
        if self._displaced is not None:
            return
        if self.loading is None:
            self.loading = self._build()
        self._displaced = self.training.exchange_loading(self.loading)

    def leave(self) -> None:
        """Take batches from the loader that was there, where that stopped."""
        if self._displaced is not None:
            self.training.exchange_loading(self._displaced)
            self._displaced = None

    def parts_not_run(self, work: Callable[[], object]) -> list[str]:
        """Nothing: whatever step there is takes its batch from the loader. `work` runs all the same."""
        work()
        return []

    def close(self) -> None:
        """Let go of the loader and its workers."""
        self.leave()
        if self.loading is not None:
            self.loading.close()
        self.loading = None

    def _build(self) -> Loading:
        loading: Loading
        try:
            with same_random_streams(), folder_kept(self.training.folder):
                loading = self.training.other_loading(self.overrides)
        except TargetError as error:
            raise NotSwappable(str(error)) from error
        return loading


@dataclass(slots=True)
class LoaderVariants:
    """Second loaders of a training, one for each set of arguments: several races share them, and their warm workers."""

    training: Any  # training.factory_training.FactoryTraining
    _built: dict[str, LoaderVariant] = field(default_factory=dict)

    def of(self, overrides: dict[str, Any]) -> LoaderVariant:
        """The variant with these arguments."""
        key = json.dumps(overrides, sort_keys=True)
        if key not in self._built:
            self._built[key] = LoaderVariant(self.training, overrides)
        return self._built[key]

    def close(self) -> None:
        """Let go of all of them. Workers that stand still must have been let go on before: see `Workers.close`."""
        for variant in self._built.values():
            variant.close()
