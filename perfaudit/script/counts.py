"""What of a training has been counted so far, and when it first came. Knows no torch."""

from __future__ import annotations

import time
from collections.abc import Callable


class Counts:
    """Counts of all updates, backward passes and batches, and times on the clock of `time.monotonic`.

    on_sign: called after each batch and backward pass as long as there was no update, and behind that after each batch and each
    call of a model without gradients. evaluated: these calls since the last update, and batches. loader_at: when the loader was
    begun that has the first batch. first_update_at: when the first update had ended.
    """

    def __init__(self, on_sign: Callable[[], None]) -> None:
        self.on_sign = on_sign
        self.updates = self.backwards = self.batches = self.evaluated = 0
        self.torch_at: float | None = None  # when torch had been imported
        self.loader_at: float | None = None
        self.first_batch_at: float | None = None
        self.first_update_at: float | None = None

    def begin_loader(self) -> None:
        """A loader is begun."""
        if not self.backwards:
            self.loader_at = time.monotonic()

    def add_batch(self) -> None:
        """A loader has given a batch."""
        self.batches += 1
        self.add_evaluated()

    def add_evaluated(self) -> None:
        """A batch is there, or a model was called without gradients: whoever waits for a step hears what is done meanwhile."""
        self.evaluated += 1
        if self.updates:
            self.on_sign()

    def note_early_batch(self) -> None:
        """A batch is there before the first update, or before the first backward pass."""
        if not self.updates:
            self.on_sign()
        if not self.backwards:
            self.first_batch_at = time.monotonic()

    def add_backward(self) -> None:
        """A backward pass begins."""
        if not self.backwards and self.first_batch_at is None:
            self.first_batch_at = time.monotonic()
        self.backwards += 1
        self.evaluated = 0

    def add_update(self) -> None:
        """An update has ended."""
        if not self.updates:
            self.first_update_at = time.monotonic()
        self.updates += 1
        self.evaluated = 0
