"""What stands in the place of an optimizer where a script updates its parameters itself. Child only."""

from __future__ import annotations

from typing import Any

from perfaudit.training.trained_models import all_modules


class UpdatedByHand:
    """Has the parameters of which a backward pass made gradients, in one group, and keeps nothing of them."""

    def __init__(self) -> None:
        self.param_groups = [{"params": _with_gradients()}]
        self.state: dict[Any, Any] = {}


def _with_gradients() -> list[Any]:
    """Parameters of all modules that have a gradient, each once."""
    every = (p for module in all_modules() for p in module._parameters.values())
    held = {id(p): p for p in every if p is not None and p.grad is not None}
    return list(held.values())
