"""Tensors that the training process makes in host memory itself, which no loader has pinned."""

from __future__ import annotations

import ast

from perfaudit.static.source import Source
from perfaudit.static.understanding.names import last_name
from perfaudit.static.understanding.reaching import reaching
from perfaudit.static.understanding.same_memory import VARIABLE, VIEWS
from perfaudit.static.understanding.values import assigned_value, value_bound

_ALSO_VIEWS = VIEWS | {"permute", "transpose", "t", "detach", "expand", "narrow"}  # the same memory, in another order
# Views whose values do not lie in memory in order, so that `.contiguous()` copies them.
_REORDERS = {"permute", "transpose", "t", "swapaxes", "swapdims", "movedim", "moveaxis", "expand", "expand_as"}
_CONVERTS = {"double", "half", "bfloat16", "int", "short", "byte", "bool", "type", "type_as"}
_COMPUTES = {
    "add",
    "sub",
    "mul",
    "div",
    "true_divide",
    "clamp",
    "round",
    "abs",
    "neg",
    "pow",
    "sqrt",
    "exp",
    "log",
    "repeat",
}
# Samples and labels mostly have these types, and the call is there to be on the safe side.
_MAY_CONVERT = {"float", "long"}
_NEW_TENSORS = {
    f"torch.{name}"
    for name in (
        *("cat", "concat", "concatenate", "stack", "hstack", "vstack", "tensor", "Tensor", "as_tensor", "from_numpy"),
        *("FloatTensor", "DoubleTensor", "LongTensor", "zeros", "ones", "full", "empty", "eye", "arange", "linspace"),
        *("rand", "randn", "randint", "randperm", "zeros_like", "ones_like", "rand_like", "randn_like", "full_like"),
    )
}


def is_made_on_host(source: Source, node: ast.expr, depth: int = 6) -> bool:
    """Whether an expression is, or may well be, a tensor that the training process made in host memory itself.

    Converted, joined, computed or filled there: nobody has page-locked its memory, whatever the loader did with the
    batch. `.type(torch.FloatTensor)` may find nothing to do; who writes it expects that it does.
    """
    if isinstance(node, ast.BinOp):
        return True
    if not depth:
        return False
    if isinstance(node, ast.Subscript):
        return is_made_on_host(source, node.value, depth - 1)
    if isinstance(node, ast.Call):
        name = source.qualified_name(node.func) or ""
        if name == VARIABLE:
            return bool(node.args) and is_made_on_host(source, node.args[0], depth - 1)
        if name in _NEW_TENSORS:
            return not any(keyword.arg in ("pin_memory", None) for keyword in node.keywords)
        if not isinstance(node.func, ast.Attribute):
            return False
        if node.func.attr == "contiguous" and (_is_reordered(source, node.func.value) or _is_turned(source, node)):
            return True
        if node.func.attr in _ALSO_VIEWS | _MAY_CONVERT | {"contiguous"}:
            return is_made_on_host(source, node.func.value, depth - 1)
        return node.func.attr in _CONVERTS | _COMPUTES
    if not isinstance(node, ast.Name):
        return False
    values = [assigned_value(source, binding) for binding in reaching(source, node)]
    return bool(values) and all(value is not None and is_made_on_host(source, value, depth - 1) for value in values)


def _is_reordered(source: Source, node: ast.expr, depth: int = 6) -> bool:
    """Whether an expression is a view in another order than that of the memory: `x.transpose(1, 0)`, `x.T`, `x[:, 0]`."""
    if not depth:
        return False
    if isinstance(node, ast.Subscript):
        parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else []
        is_whole_first = bool(parts) and (isinstance(parts[0], ast.Slice) or _is_constant(parts[0], ...))
        picks = [p for p in parts[1:] if not _is_constant(p, None) and not _is_full_slice(p)]
        return bool(is_whole_first and picks) or _is_reordered(source, node.value, depth - 1)
    if isinstance(node, ast.Attribute):
        return node.attr in ("T", "mT")
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        is_view = node.func.attr in _ALSO_VIEWS | _MAY_CONVERT
        return node.func.attr in _REORDERS or (is_view and _is_reordered(source, node.func.value, depth - 1))
    values = [assigned_value(source, b) for b in reaching(source, node)] if isinstance(node, ast.Name) else []
    return bool(values) and all(value is not None and _is_reordered(source, value, depth - 1) for value in values)


def _is_turned(source: Source, call: ast.Call) -> bool:
    """Whether a call asks for channels last: `x.contiguous(memory_format=torch.channels_last)`."""
    given = [source.qualified_name(keyword.value) or "" for keyword in call.keywords]
    return any(name.startswith("torch.channels_last") for name in given)


def _is_constant(node: ast.expr, value: object) -> bool:
    return isinstance(node, ast.Constant) and node.value is value


def _is_full_slice(node: ast.expr) -> bool:
    return isinstance(node, ast.Slice) and node.lower is None and node.upper is None and node.step is None


def holds_tensors(source: Source, node: ast.expr) -> bool:
    """Whether an expression is a list of nothing but tensors made in host memory: an empty one, filled by `append`, or its like.

    A loader that pins goes through lists.
    """
    if isinstance(node, ast.ListComp):
        return is_made_on_host(source, node.elt)
    bindings = source.lookup(node) if isinstance(node, ast.Name) else []
    value = value_bound(source, bindings[0]) if len(bindings) == 1 else None
    if isinstance(value, ast.ListComp):
        return is_made_on_host(source, value.elt)
    if not isinstance(value, ast.List) or value.elts or not isinstance(node, ast.Name):
        return False
    methods = [source.parent(use) for use in source.uses_of(bindings[0], node.id) if use is not node]
    calls = [source.parent(method) for method in methods if isinstance(method, ast.Attribute)]
    put = [call for call in calls if isinstance(call, ast.Call) and last_name(call.func) == "append" and call.args]
    return 0 < len(put) == len(methods) and all(is_made_on_host(source, call.args[0]) for call in put)
