"""The watch that keeps the loss and the norm of the gradients of each update, for scalars. Child only.

They are computed between two updates, in time that is nobody's, and read when records are told: a read waits for the device.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any

from perfaudit.script.replaced_functions import Function
from perfaudit.script.watch import Watch

Json = dict[str, Any]  # Any: nested JSON, and tensors of one number until they are read
LOSS, NORM = "loss", "gradient_norm"


class ValuesWatch(Watch):
    """Records have `loss`, of the last backward pass, and `gradient_norm`, of the optimizer's parameters, as tensors."""

    has_values = True
    _loss: Any = None
    _scale: Any = None  # by which a GradScaler has multiplied the loss

    def _watch_backward(self, original: Function, accumulates: bool = True) -> Function:
        watched = super()._watch_backward(original, accumulates)

        def backward(*args: Any, **kwargs: Any) -> Any:
            if args and self._notes.are_taken_here():
                first = args[0] if hasattr(args[0], "detach") else next(iter(args[0]), None)
                if first is not None:
                    self._loss = first.detach().sum().clone()
            return watched(*args, **kwargs)

        return backward

    def _watch_scaled_steps(self, original: Function) -> Function:
        watched = super()._watch_scaled_steps(original)

        def step(scaler: Any, *args: Any, **kwargs: Any) -> Any:
            with contextlib.suppress(AttributeError):  # a scaler that is off has no scale
                self._scale = scaler._scale.detach().clone()
            return watched(scaler, *args, **kwargs)

        return step

    def _values(self, optimizer: Any) -> Json:
        found: Json = {}
        if self._loss is not None:
            found[LOSS] = self._loss if self._scale is None else self._loss / self._scale
        with contextlib.suppress(Exception):  # gradients of a kind that has no norm
            if optimizer is not None:
                found[NORM] = _norm(optimizer)
        self._loss = self._scale = None
        return {name: value for name, value in found.items() if value is not None}


def _norm(optimizer: Any) -> Any:
    """The norm of all gradients of an optimizer, a tensor; None without any."""
    import torch

    gradients = [each.grad for group in optimizer.param_groups for each in group["params"] if each.grad is not None]
    dense = [each.coalesce().values() if each.is_sparse else each for each in gradients]
    norms = [torch.linalg.vector_norm(each.detach(), dtype=torch.float32) for each in dense]
    return torch.stack([each.to(norms[0].device) for each in norms]).norm() if norms else None


def read_values(records: Sequence[Json]) -> None:
    """Put numbers in the place of the tensors of these records."""
    for record in records:
        for name in (LOSS, NORM):
            if name in record:
                record[name] = float(record[name])
