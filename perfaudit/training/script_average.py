"""How far the averages of its weights move that a script keeps by itself, found among the objects of its process. Child only."""

from __future__ import annotations

import gc
from collections.abc import Iterator, Sequence
from typing import Any

from perfaudit.training.trained_models import find_models


class Averages:
    """Everything that holds tensors shaped as the trained weights, and is neither those nor their gradients, as it was once.

    That is a module, as an `AveragedModel`, or a dict or a list of tensors. Target networks and the best weights so far are among
    them: where two trainings are alike, these are alike, too.
    """

    def __init__(self, training: Any) -> None:
        self._rows = [(row, [tensor.detach().clone() for tensor in _tensors(row)]) for row in _averages(training)]

    def moved(self) -> list[float]:
        """Σ|Δ| and √ΣΔ² over all of their floats since then; [] where there is none."""
        pairs = [
            (now.detach().cpu().double(), then.cpu().double())  # MPS has no float64
            for row, before in self._rows
            for now, then in zip(_tensors(row), before, strict=False)
            if now.is_floating_point() and now.shape == then.shape
        ]
        if not pairs:
            return []
        apart = [now - then for now, then in pairs]
        return [
            float(sum(each.abs().sum() for each in apart)),
            float(sum(each.square().sum() for each in apart)) ** 0.5,
        ]


def _averages(training: Any) -> Iterator[Any]:
    models = find_models(training.optimizers)
    own = {
        id(value) for model in models.trained for p in model.parameters() for value in (p, p.grad) if value is not None
    }
    own |= {id(buffer) for model in models.trained for buffer in model.buffers()}
    own |= {id(gradient) for gradient in training.first_gradients.values()}
    shapes = set()
    for model in models.trained:
        parameters = list(model.parameters())
        shapes |= {_shapes(parameters), _shapes([p for p in parameters if p.requires_grad])}
        shapes.add(_shapes(list(model.state_dict().values())))
    lengths = {len(each) for each in shapes}
    for row in [*models.others, *(each for each in gc.get_objects() if _is_row(each, lengths))]:
        tensors = _tensors(row)
        if tensors and _shapes(tensors) in shapes and not any(id(tensor) in own for tensor in tensors):
            yield row


def _is_row(value: Any, lengths: set[int]) -> bool:
    import torch

    if not issubclass(type(value), (dict, list)) or len(value) not in lengths:
        return False
    return all(
        issubclass(type(each), torch.Tensor) for each in (value.values() if issubclass(type(value), dict) else value)
    )


def _tensors(row: Any) -> list[Any]:
    """What a module, a dict or a list holds, in its order."""
    if isinstance(row, dict):
        return list(row.values())
    return list(row) if isinstance(row, list) else list(row.parameters())


def _shapes(tensors: Sequence[Any]) -> tuple[Any, ...]:
    return tuple(tensor.shape for tensor in tensors)
