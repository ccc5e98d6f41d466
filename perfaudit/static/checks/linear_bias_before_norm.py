"""PA202: a linear layer with a bias that the batch norm behind it subtracts again."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from perfaudit.static.checks.conv_bias_before_norm.redundant_bias import biases_before_norm
from perfaudit.static.registry import Seen, check
from perfaudit.static.source import Source
from perfaudit.static.understanding.names import last_name

BIAS = 2  # position of the parameter
NORMS = {"torch.nn.BatchNorm1d", "torch.nn.SyncBatchNorm"}


@check("PA202", ast.Module)
def linear_bias_before_norm(source: Source, module: ast.Module) -> Iterator[Seen]:
    if source.mentions("Linear") and source.mentions("BatchNorm") and source.imports_torch:  # most files are passed by
        yield from biases_before_norm(source, {"torch.nn.Linear": BIAS}, _fits, _doubt)


def _fits(kind: str, linear: ast.Call, norm_kind: str, norm: ast.Call) -> bool:
    """Whether the norm is over the linear layer's outputs.

    Of three dimensions it normalises the second, which is not that of the outputs. Then the numbers differ as a rule;
    on (batch, d, d) they are the same by chance, which `_doubt` is for.
    """
    outputs, features = _argument_of(linear, "out_features", 1), _argument_of(norm, "num_features", 0)
    return (
        norm_kind in NORMS and outputs is not None and features is not None and ast.dump(outputs) == ast.dump(features)
    )


def _doubt(source: Source, linear: ast.Call) -> str:
    """The condition to name where a layer as wide as its input may run on (batch, d, d), with another axis normalised.

    "" where inputs and outputs differ, here or in a layer of the same statement, or where the input is flattened.
    """
    layers = [node for node in ast.walk(source.statement(linear)) if isinstance(node, ast.Call)]
    if _changes_width(linear) or any(
        source.qualified_name(n.func) == "torch.nn.Linear" and _changes_width(n) for n in layers
    ):
        return ""
    around = source.enclosing(linear, ast.ClassDef) or source.statement(linear)
    if any(_flattens(source, node) for node in ast.walk(around) if isinstance(node, ast.Call)):
        return ""
    return "its input has two dimensions: of three the norm takes another axis"


def _changes_width(linear: ast.Call) -> bool:
    inputs, outputs = _argument_of(linear, "in_features", 0), _argument_of(linear, "out_features", 1)
    return inputs is not None and outputs is not None and ast.dump(inputs) != ast.dump(outputs)


def _flattens(source: Source, call: ast.Call) -> bool:
    """Whether a call leaves two dimensions: `nn.Flatten()`, `torch.flatten(x, 1)`, `x.view(x.size(0), -1)`."""
    name = source.qualified_name(call.func)
    if name == "torch.nn.Flatten":
        return not call.args and not call.keywords
    shape = call.args[1:] if name in ("torch.flatten", "torch.reshape") else call.args
    method = last_name(call.func) if name in (None, "torch.flatten", "torch.reshape") else ""
    if method == "flatten":
        return len(shape) == 1 and isinstance(shape[0], ast.Constant) and shape[0].value == 1 and not call.keywords
    return method in ("view", "reshape") and len(shape) == 2 and not isinstance(shape[0], ast.Starred)


def _argument_of(call: ast.Call, name: str, position: int) -> ast.expr | None:
    named = next((k.value for k in call.keywords if k.arg == name), None)
    if named is not None or any(isinstance(a, ast.Starred) for a in call.args):
        return named
    return call.args[position] if position < len(call.args) else None
