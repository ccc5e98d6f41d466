"""Whether the model of a file is large, as far as its text says: layers that are written there, or a model of a library."""

from __future__ import annotations

import ast

from perfaudit.static.source import LOOPS, Source
from perfaudit.static.source.syntax import walk
from perfaudit.static.understanding.answers import remember
from perfaudit.static.understanding.model_parts import builds_of_library, is_module_class, module_classes, whole_models
from perfaudit.static.understanding.values import constant

# Limits by judgement, not measured: the update of a smaller model is a few kernels, or a few milliseconds of one core.
MANY_LAYERS = 24  # with weights
MANY_WEIGHTS = 8_000_000  # in one layer
REPEATED = 4  # as often a layer built in a loop counts whose number of rounds is not written
_DEEP = 6  # classes inside of classes

_SIZED = {"Linear", "Bilinear", "Embedding", "LazyLinear"}  # their weights are the product of their first two arguments
_LAYERS = _SIZED | {
    *(f"{name}{n}d" for name in ("Conv", "ConvTranspose", "BatchNorm", "InstanceNorm") for n in (1, 2, 3)),
    *("LayerNorm", "GroupNorm", "RMSNorm", "SyncBatchNorm", "PReLU", "LSTM", "GRU", "RNN", "LSTMCell", "GRUCell"),
}
_WHOLE = {f"torch.nn.{name}" for name in ("Transformer", "TransformerEncoder", "TransformerDecoder")}
_REPEATS = (*LOOPS, ast.ListComp, ast.GeneratorExp)


@remember  # asked for each optimizer of a file
def has_large_model(source: Source) -> bool:
    """Whether a file builds a model of many weights or of many layers; False where it does not show what it builds."""
    if whole_models(source) or any(source.calls(name) for name in _WHOLE):
        return True
    if any(builds_of_library(source, call) for call in source.nodes(ast.Call)):
        return True
    if any(_weights(source, call) >= MANY_WEIGHTS for name in _SIZED for call in source.calls(f"torch.nn.{name}")):
        return True
    classes = {definition.name: definition for definition in module_classes(source)}
    outside = [call for call in source.nodes(ast.Call) if source.enclosing(call, ast.ClassDef) is None]
    return max((_layers_in(source, root, classes) for root in classes.values()), default=0) >= MANY_LAYERS or (
        _layers(source, outside, source.tree, classes, frozenset()) >= MANY_LAYERS
    )


def _weights(source: Source, call: ast.Call) -> float:
    """The number of weights of a layer whose two widths are written, 0 where they are not."""
    widths = [constant(source, argument) for argument in call.args[:2]]
    if len(widths) < 2 or not all(isinstance(width, (int, float)) for width in widths):
        return 0
    return float(widths[0]) * float(widths[1])  # type: ignore[arg-type]  # the line above says so


def _layers_in(
    source: Source, root: ast.ClassDef, classes: dict[str, ast.ClassDef], known: frozenset[str] = frozenset()
) -> int:
    """The layers with weights that a class builds, those of the classes of this file that it builds among them."""
    if root.name in known or len(known) >= _DEEP:
        return 0
    calls = [node for node in walk(root) if isinstance(node, ast.Call)]
    return _layers(source, calls, root, classes, known | {root.name})


def _layers(
    source: Source, calls: list[ast.Call], within: ast.AST, classes: dict[str, ast.ClassDef], known: frozenset[str]
) -> int:
    total = 0
    for call in calls:
        name = source.qualified_name(call.func) or ""
        number = 1 if name.startswith("torch.nn.") and name.rpartition(".")[2] in _LAYERS else 0
        if isinstance(call.func, ast.Name) and call.func.id in classes and is_module_class(source, call.func):
            number = _layers_in(source, classes[call.func.id], classes, known)
        if number:
            total += number * (REPEATED if source.enclosing(call, *_REPEATS, within=within) is not None else 1)
    return total
