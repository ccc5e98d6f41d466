"""Layers of a running script without their biases: what `bias=False` in the calls that built them makes of a step. Child only."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from typing import Any

from perfaudit.errors import TargetError
from perfaudit.target.provenance import Site
from perfaudit.target.working_folder import full_path


@contextlib.contextmanager
def without_biases(training: Any, path: str, places: Sequence[str]) -> Iterator[None]:
    """Inside, layers that calls at these places of a file have built have no bias; afterwards they have what they had.

    places: "line:column" within each call, as `Site` counts them. Raises TargetError where no layer was built there.
    """
    real = os.path.realpath(full_path(path))
    points = [(int(line), int(column)) for line, _, column in (place.partition(":") for place in places)]
    layers = [
        layer
        for model in training.models
        for layer in model.modules()
        if getattr(layer, "bias", None) is not None and _is_built_at(training.module_site(layer), real, points)
    ]
    if not layers:
        raise TargetError(
            f"{training.target}: none of the layers in its model was built in {path} where the patch edits"
        )
    kept = [(layer, layer.bias, layer.bias.grad) for layer in layers]
    try:
        for layer, bias, _ in kept:
            layer.bias = bias.grad = None  # the optimizer still has the parameter, and leaves out what has no gradient
        yield
    finally:
        for layer, bias, gradient in kept:
            layer.bias, bias.grad = bias, gradient


def _is_built_at(site: Site | None, path: str, points: Sequence[tuple[int, int]]) -> bool:
    if site is None:
        return False
    call = site.calls[0]
    begins, ends = (call.line, call.column), (call.end_line, call.end_column)
    return call.path == path and any(begins <= point <= ends for point in points)
