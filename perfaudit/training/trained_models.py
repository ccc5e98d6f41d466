"""Which modules of a process are models that its optimizers train. Child only."""

from __future__ import annotations

import gc
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Models:
    """Modules that are no part of another one. trained: in the order in which the optimizers have their parameters.

    What only has parameters of another one is left out: a network of whose layers the model was built, or a trace of the model,
    as a logger of graphs makes one.
    """

    trained: list[Any]
    others: list[Any]


def all_modules() -> list[Any]:
    """All modules of torch that are in this process, found among its objects."""
    import torch

    return [each for each in gc.get_objects() if issubclass(type(each), torch.nn.Module)]


def find_models(optimizers: Sequence[Any]) -> Models:
    """All models of this process."""
    groups = [group for each in optimizers for group in each.param_groups]
    trained = {id(parameter): at for at, parameter in enumerate(p for group in groups for p in group["params"])}
    modules = all_modules()
    parts = {id(part) for each in modules for part in each.children()}
    tops = [each for each in modules if id(each) not in parts]
    firsts = [
        (min((trained.get(id(parameter), math.inf) for parameter in each.parameters()), default=math.inf), each)
        for each in tops
    ]
    held = {id(each): trained.keys() & {id(parameter) for parameter in each.parameters()} for each in tops}
    traced = [each for each in tops if _is_trace(each)]
    plain = [each for each in tops if not any(each is other for other in traced)]
    traces = {id(each) for each in traced if any(set() < held[id(each)] == held[id(other)] for other in plain)}
    firsts = [
        item for item in firsts
        if id(item[1]) not in traces and not any(set() < held[id(item[1])] < held[id(other)] for other in tops)
    ]  # fmt: skip
    models = sorted((item for item in firsts if item[0] < math.inf), key=lambda item: item[0])
    return Models([each for _, each in models], [each for first, each in firsts if first == math.inf])


def _is_trace(module: Any) -> bool:
    """Whether a module is compiled by TorchScript, or one in which torch wraps a model to trace it."""
    import torch

    return isinstance(module, torch.jit.ScriptModule) or type(module).__module__.startswith("torch.jit")
