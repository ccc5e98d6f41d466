"""Models that are a row of layers of torch's, which a function of another file writes out: whether any of them is wide."""

from __future__ import annotations

import ast

from perfaudit.expressions import regex
from perfaudit.static.source import FUNCTIONS, Source
from perfaudit.static.understanding.entry import behind_moves
from perfaudit.static.understanding.model_parts import ALL_CONVOLUTIONS, WIDE_CONVOLUTION, WIDE_LINEAR
from perfaudit.static.understanding.names import last_name
from perfaudit.static.understanding.values import constant, resolve

_NARROW = regex(  # layers of torch's that multiply no large matrices
    r"^(\w*(ReLU|ELU|GELU|SiLU|Mish|Sigmoid|Hardswish|Hardtanh|Tanh|Soft(max|min|plus|sign)2?d?|Dropout|Norm|Pool|Pad)[0-9]?d?"
    r"|Flatten|Unflatten|Identity|Upsample|Pixel(Uns|S)huffle)$"
)
_TURNS_ONLY = regex(r"[Ff]latten|[Rr]eshape|View$|Identity")
_HOLDERS = ("torch.nn.Sequential", "torch.nn.ModuleList")  # of layers


def trained_layers(source: Source) -> list[tuple[Source, ast.Call]]:
    """The layers of the models that the optimizers of a file get, each with its file, where functions of other files build all.

    Such a function returns one `nn.Sequential` that is written out. Empty where one of the models is not in sight.
    """
    found: list[tuple[Source, ast.Call]] = []
    for call in source.calls(".parameters"):
        optimizer = source.parent(call)
        kind = source.qualified_name(optimizer.func) if isinstance(optimizer, ast.Call) else ""
        if not (kind or "").startswith("torch.optim.") or not isinstance(call.func, ast.Attribute):
            continue
        row = _row_built(source, call.func.value)
        if row is None:
            return []
        found += row
    return found


def _row_built(source: Source, model: ast.expr) -> list[tuple[Source, ast.Call]] | None:
    made = behind_moves(resolve(source, model))
    dotted = source.qualified_name(made.func) if isinstance(made, ast.Call) else None
    there = source.neighbours.definition_of(dotted) if dotted and source.neighbours is not None else None
    if there is None or not isinstance(there[1], FUNCTIONS):
        return None
    returned = [node.value for node in ast.walk(there[1]) if isinstance(node, ast.Return)]
    value = returned[0] if len(returned) == 1 else None
    row = behind_moves(resolve(there[0], value) if value is not None else None)
    if not isinstance(row, ast.Call) or there[0].qualified_name(row.func) != "torch.nn.Sequential":
        return None
    layers = [layer for layer in row.args if isinstance(layer, ast.Call)]
    return [(there[0], layer) for layer in layers] if layers and len(layers) == len(row.args) else None


def may_convolve(source: Source, layer: ast.Call) -> bool:
    """Whether a layer is a convolution, or may hold one: a block of the project's."""
    name = source.qualified_name(layer.func) or ""
    if name in _HOLDERS:
        return True
    return "Conv" in name if name.startswith("torch.nn.") else not _TURNS_ONLY.search(last_name(layer.func))


def trains_small_rows(source: Source) -> bool:
    """Whether all that a file trains are rows of layers of torch's in sight, none of them wide."""
    layers = trained_layers(source)
    return bool(layers) and not any(_may_be_wide(there, layer) for there, layer in layers)


def _may_be_wide(source: Source, layer: ast.Call) -> bool:
    name = source.qualified_name(layer.func) or ""
    if not name.startswith("torch.nn."):
        return not _TURNS_ONLY.search(last_name(layer.func))
    if name != "torch.nn.Linear" and name not in ALL_CONVOLUTIONS:
        return not _NARROW.search(last_name(layer.func))  # an unknown one, as a layer of a transformer
    limit = WIDE_LINEAR if name == "torch.nn.Linear" else WIDE_CONVOLUTION
    widths = [constant(source, given) for given in layer.args[:2]]
    if len(widths) < 2 or not any(isinstance(width, int) for width in widths):
        return True
    return all(not isinstance(width, int) or width >= limit for width in widths)
