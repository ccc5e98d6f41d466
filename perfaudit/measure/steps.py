"""What a race asks of a training: steps, and what is looked at between two of them."""

from __future__ import annotations

import math
from types import FunctionType
from typing import Any, Protocol


class Steps(Protocol):
    """A training as far as screening it goes; `target.training.Training` is one."""

    loader: Any
    phases: Any
    restart_seconds: list[float]
    model: Any
    optimizer: Any
    last_loss: Any

    def whole_step(self, fixed: bool = False) -> Any:
        """Load a batch and make a step; of the fixed batch, only the step."""

    def synchronize(self) -> None:
        """Wait until the device has done all it was given."""

    def restart_per_step(self) -> float:
        """Seconds that beginning an epoch takes, shared out among its steps."""

    def step_functions(self) -> list[FunctionType]:
        """The user's functions that every step calls."""


def is_finite(loss: Any) -> bool:
    """Whether a loss is a number; none at all is no fault."""
    return loss is None or math.isfinite(float(loss))
