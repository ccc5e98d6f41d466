"""A training that runs in a child, and variants that are put in place between two of its steps."""

from __future__ import annotations

from collections.abc import Callable
from types import FunctionType
from typing import Any, Protocol


class Training(Protocol):
    """A training as those see it who race its variants: steps, and what is looked at between two of them.

    `factory_training.FactoryTraining` is one, whose loop is ours, `script_training.ScriptTraining` one whose loop is the user's.
    """

    is_script: bool
    has_ended: bool  # a script, whose loop is over or has raised

    trainer: Any  # of a library, that makes a script's steps (`trainers.Trainer`); None for a loop of its own

    loader: Any
    phases: Any
    restart_seconds: list[float]
    model: Any
    optimizer: Any
    optimizers: list[Any]
    last_loss: Any

    def whole_step(self, fixed: bool = False) -> Any:
        """Load a batch and make a step; of the fixed batch, only the step."""

    def synchronize(self) -> None:
        """Wait until the device has done all it was given."""

    def restart_per_step(self) -> float:
        """Seconds that beginning an epoch takes, shared out among its steps."""

    def step_functions(self) -> list[FunctionType]:
        """The user's functions that every step calls."""


class Variant(Protocol):
    """A change that is put in place at a step boundary and taken back at another."""

    def enter(self) -> None:
        """Put it in place."""

    def leave(self) -> None:
        """Put back what was there, also where it was entered only in part."""

    def parts_not_run(self, work: Callable[[], object]) -> list[str]:
        """Names of what `work`, a step that is not timed, does not run of it while it is in place."""
