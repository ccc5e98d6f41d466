"""PA202: a linear layer with a bias that the batch norm behind it subtracts again."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from perfaudit.static.registry import Seen, check
from perfaudit.static.source import Source
from perfaudit.static.understanding.redundant_bias import biases_before_norm

BIAS = 2  # position of the parameter
NORMS = {"torch.nn.BatchNorm1d", "torch.nn.SyncBatchNorm"}


@check("PA202", ast.Module)
def linear_bias_before_norm(source: Source, module: ast.Module) -> Iterator[Seen]:
    if "Linear" in source.text and "BatchNorm" in source.text and source.imports_torch:  # most files are passed by
        yield from biases_before_norm(source, {"torch.nn.Linear": BIAS}, _fits)


def _fits(kind: str, linear: ast.Call, norm_kind: str, norm: ast.Call) -> bool:
    """Whether the norm is over the linear layer's outputs.

    Of three dimensions it normalises the second, which is not that of the outputs; then the numbers differ, or the code
    would not run.
    """
    outputs, features = _given(linear, "out_features", 1), _given(norm, "num_features", 0)
    return (
        norm_kind in NORMS and outputs is not None and features is not None and ast.dump(outputs) == ast.dump(features)
    )


def _given(call: ast.Call, name: str, position: int) -> ast.expr | None:
    named = next((k.value for k in call.keywords if k.arg == name), None)
    if named is not None or any(isinstance(a, ast.Starred) for a in call.args):
        return named
    return call.args[position] if position < len(call.args) else None
