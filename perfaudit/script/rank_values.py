"""What a record of an update has besides, where the script is one of several ranks. Child only."""

from __future__ import annotations

from typing import Any

from perfaudit.script.batch_contents import contents_of
from perfaudit.script.collectives import Collectives

Json = dict[str, Any]  # Any: nested JSON


class RankValues:
    """What happened between two updates: see `Collectives.take`, and `elements` and `padding` of batches."""

    def __init__(self) -> None:
        self.collectives = Collectives(self._see_inputs)
        self._elements = self._padding = 0
        self._has_batches = False  # a loop without a loader makes them itself: then the model's inputs tell

    def see_batch(self, batch: Any) -> None:
        """A loader has given a batch."""
        self._has_batches = True
        self._add(batch)

    def _see_inputs(self, inputs: Any) -> None:
        if not self._has_batches:
            self._add(inputs)

    def _add(self, batch: Any) -> None:
        elements, padding = contents_of(batch)
        self._elements += elements
        self._padding += padding

    def take(self) -> Json:
        """Those since the last call."""
        told = self.collectives.take() | {"elements": self._elements, "padding": self._padding}
        self._elements = self._padding = 0
        return told

    def begin_update(self) -> None:
        """What took place since `take` belongs to no update."""
        self.collectives.begin_update()
