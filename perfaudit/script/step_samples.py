"""Which call tells the samples of a step: a loader's, or a model's where batches do not tell. Knows no torch."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

from perfaudit.script.batch_axis import UNCLEAR
from perfaudit.script.samples import first_tensor, length_of


class StepSamples:
    """Says of the model's calls of a step whether they are to tell, and whether they had the tensor of the one before.

    wants_inputs: whether the next call of a model is to tell: the first one before a backward pass, and the first one behind a
    number that was read, where no batch has told. parted_at: nodes that graphs had at the last such number between two calls that
    were to tell; 0 where there is none. Calls before it may have chosen actions, and then no loss is made of them.
    """

    def __init__(self) -> None:
        self.wants_inputs = True
        self._has_samples = False  # whether a batch since the last update has told how many
        self._input: Callable[[], Any] = lambda: None  # the tensor that a model was last called with, while it is there
        self._inputs = self._inputs_again = 0  # since the last update, and of these those that are the one before
        self._has_told = False  # whether a call since the last backward pass was to tell
        self._read_at = self.parted_at = 0

    def take_batch(self) -> None:
        """A batch has told how many samples it has."""
        self._has_samples = True
        self.wants_inputs = False

    def begin_backward(self) -> None:
        """The next call of a model belongs to another backward pass."""
        self.wants_inputs = not self._has_samples
        self._has_told, self._read_at, self.parted_at = False, 0, 0

    def note_read(self, node: int) -> None:
        """A number was read. node: how many nodes graphs have had by then."""
        if self._has_told:
            self.wants_inputs, self._read_at = not self._has_samples, node

    def count_inputs(self, given: list[Any], axis: int) -> int:
        """The samples that a model is called with, which is to tell. axis: see `BatchAxes`. 0 where it is not clear."""
        self.wants_inputs = False
        self._has_told, self.parted_at = True, self._read_at
        found = first_tensor(given, dimensions=2)
        self._inputs += 1
        self._inputs_again += found is not None and found is self._input()
        try:
            self._input = weakref.ref(found) if found is not None else lambda: None
        except TypeError:  # of a kind that cannot be looked for later
            self._input = lambda: None
        return 0 if found is None or axis == UNCLEAR else length_of(found, axis)

    def are_again(self) -> bool:
        """Whether models were called with what they had been called with before, and with nothing else, since `end_update`."""
        return bool(self._inputs) and self._inputs == self._inputs_again

    def end_update(self) -> None:
        """What comes now belongs to the next update."""
        self._inputs = self._inputs_again = 0
        self._has_samples, self.wants_inputs = False, True
        self._has_told, self._read_at, self.parted_at = False, 0, 0
