"""Calls the factories of a target, and says what they do wrong. Child only."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from perfaudit.errors import TargetError
from perfaudit.target.construction import anything_built
from perfaudit.target.load import Factory, faults_named
from perfaudit.target.provenance import Site


@dataclass(frozen=True, slots=True)
class FactoryCalls:
    """The factories of a target by role, and its file, which messages name. Each method raises TargetError."""

    file: str
    by_role: dict[str, Factory]

    def refuse_without(self, what: str, has: dict[str, Any], overrides: dict[str, Any], names: tuple[str, ...]) -> None:
        """Raise TargetError where something was not built with what it was to be built with: it would be measured as it is."""
        for name in names:
            value = has.get(name)
            # A loader with a batch_sampler has no batch size.
            if name not in overrides or name not in has or (name, value) == ("batch_size", None):
                continue
            if (value or False) != (overrides[name] or False):
                raise TargetError(
                    f"{self.file}: the {what} has {name}={value!r} and cannot be built with {overrides[name]!r}: "
                    f"it is built where that cannot be changed; build it in the {what.lower().removeprefix('data')} factory"
                )

    def call(self, role: str, wanted: type, *args: Any) -> Any:
        """What the factory of a role gives, which must be of a type."""
        factory = self.by_role[role]
        name = getattr(factory, "__name__", str(factory))
        takes = required_arguments(factory)
        if len(takes) > len(args):
            raise TargetError(
                f"{self.file}: {name}({', '.join(takes)}) takes arguments; the {role} factory is called with "
                f"{'none' if not args else len(args)}: give them defaults, or write a small function that fills them in"
            )
        with faults_named(f"{self.file}: {name}() failed"):
            value = factory(*args)
        if not isinstance(value, wanted):
            expected = f"{wanted.__module__.partition('.')[0]} {wanted.__name__}"
            raise TargetError(f"{self.file}: {name}() returned {kind(value)}, not a {expected}")
        return value

    def optimizer(self, model: Any) -> Any:  # torch.nn.Module
        """The optimizer of the user's factory, an AdamW where there is none."""
        import torch

        if "optimizer" in self.by_role:
            optimizer = self.call("optimizer", torch.optim.Optimizer, model)
            if required_arguments(optimizer.step):  # LBFGS
                raise TargetError(
                    f"{self.file}: {type(optimizer).__name__} evaluates the loss again within its step and needs a "
                    "closure for it; only optimizers that step once after backward() can be measured"
                )
            return optimizer
        parameters = [p for p in model.parameters() if p.requires_grad]
        if not parameters:
            raise TargetError(f"{self.file}: the model has no parameters to train")
        return torch.optim.AdamW(parameters, lr=1e-3)

    def average(self, model: Any) -> tuple[Any, Callable[[Any], Any] | None, Site | None]:
        """The user's average of a model, its update by a model, and the call that built it; None for each without a factory."""
        if "ema" not in self.by_role:
            return None, None, None
        with anything_built() as site_of:
            ema = self.call("ema", object, model)
        update = getattr(ema, "update", None) or getattr(ema, "update_parameters", None)
        if not callable(update):
            raise TargetError(f"{self.file}: build_ema() returned {kind(ema)}, which has no update(...)")
        return ema, update if required_arguments(update) else lambda model: update(), site_of(ema)


def required_arguments(function: Factory) -> list[str]:
    """The names of the arguments that a function must be given in order."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return []
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return [p.name for p in parameters if p.kind in kinds and p.default is inspect.Parameter.empty]


def kind(value: object) -> str:
    """What a value is, in words for a sentence."""
    if isinstance(value, (list, tuple)) and len(value) <= 4:
        inner = ", ".join(type(item).__name__ for item in value)
        return f"a {type(value).__name__} ({inner})"
    name = type(value).__name__
    return "None" if value is None else f"{'an' if name[0] in 'AEIOUaeiou' else 'a'} {name}"
