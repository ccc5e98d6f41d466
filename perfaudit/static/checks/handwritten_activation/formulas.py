"""Formulas that are written out on purpose: for a compiler to fuse, with a backward of their own, or as a reference."""

from __future__ import annotations

import ast
import re

from perfaudit.expressions import regex
from perfaudit.static.source import FUNCTIONS, Source
from perfaudit.static.understanding.names import last_name
from perfaudit.static.understanding.values import argument, assigned_value, constant

COMPILED = regex(r"jit|script|compile|fuse|decomposition|impl")  # in a decorator
EXPORTED = regex(  # the comment on a header
    r"#.*\b(export|onnx|coreml|torchscript|tensorrt)", re.IGNORECASE, words="export|onnx|coreml|torchscript|tensorrt"
)
REFERENCE = regex(r"(^|_)(ref|reference|naive|expected|test)", re.IGNORECASE, words="ref|naive|expected|test")

_INTEGERS = {"torch.arange", "torch.randint", "torch.randperm", "torch.argmax", "torch.argmin", "torch.bincount"}
_FROM_VALUES = {"torch.tensor", "torch.as_tensor", "torch.full", "torch.arange"}  # of the type of what they are given
_TO_INTEGERS = {"long", "int", "short", "byte", "bool", "argmax", "argmin", "argsort"}
_TYPE = regex(r"^torch\.(u?int\d*|long|short|bool)$")
_DEPTH = 4


def may_hold_integers(source: Source, node: ast.expr, depth: int = _DEPTH) -> bool:
    """Whether a value is a number, or a tensor made of integers: a curve of one is a float, its fused form raises."""
    if isinstance(node, ast.Name):
        bindings = source.lookup(node)
        return bool(depth) and any(_binds_integers(source, binding, depth - 1) for binding in bindings)
    if isinstance(constant(source, node), (int, float)):
        return True
    if isinstance(node, ast.BinOp) and not isinstance(node.op, ast.Div):
        return all(may_hold_integers(source, side, depth) for side in (node.left, node.right))
    if isinstance(node, ast.Subscript):
        return may_hold_integers(source, node.value, depth)
    return isinstance(node, ast.Call) and _makes_integers(source, node, depth)


def _binds_integers(source: Source, binding: ast.AST, depth: int) -> bool:
    around = source.parent(binding)
    if isinstance(around, (ast.For, ast.comprehension)):
        return isinstance(around.iter, ast.Call) and (
            last_name(around.iter.func) == "range" or may_hold_integers(source, around.iter, depth)
        )
    value = assigned_value(source, binding)
    return value is not None and may_hold_integers(source, value, depth)


def _makes_integers(source: Source, call: ast.Call, depth: int) -> bool:
    name = source.qualified_name(call.func)
    given = argument(source, call, "dtype")
    if isinstance(given, ast.expr):
        return _TYPE.match(source.qualified_name(given) or "") is not None
    if name in _FROM_VALUES:
        values = [n.value for a in call.args for n in ast.walk(a) if isinstance(n, ast.Constant)]
        return not any(isinstance(value, float) for value in values)
    if name is not None:
        return name in _INTEGERS
    if not isinstance(call.func, ast.Attribute):
        return isinstance(call.func, ast.Name) and call.func.id in ("int", "float", "len")
    if call.func.attr in ("to", "type") and call.args:
        return _TYPE.match(source.qualified_name(call.args[0]) or "") is not None
    if call.func.attr in ("float", "half", "double", "bfloat16"):
        return False
    if call.func.attr in (
        "view",
        "reshape",
        "unsqueeze",
        "squeeze",
        "cuda",
        "cpu",
        "to",
        "repeat",
        "expand",
        "flatten",
        "clone",
    ):
        return may_hold_integers(source, call.func.value, depth)
    return call.func.attr in _TO_INTEGERS


def is_wanted_written_out(source: Source, node: ast.AST) -> bool:
    """Whether the formula is wanted: for a compiler to fuse or to export, beside its own backward, as a reference."""
    for ancestor in source.ancestors(node):
        name = getattr(ancestor, "arg" if isinstance(ancestor, ast.keyword) else "name", None) or ""
        if REFERENCE.search(name):
            return True
        if not isinstance(ancestor, (*FUNCTIONS, ast.ClassDef)):
            continue
        if EXPORTED.search(source.lines[ancestor.lineno - 1]):
            return True
        if any(COMPILED.search(source.text_of(decorator)) for decorator in ancestor.decorator_list):
            return True
        if isinstance(ancestor, ast.ClassDef) and any(source.text_of(b).endswith("Function") for b in ancestor.bases):
            return True
        arguments = [a for name in ("torch.jit.script", "torch.compile") for c in source.calls(name) for a in c.args]
        if any(isinstance(n, ast.Name) and n.id == ancestor.name for a in arguments for n in ast.walk(a)):
            return True
    return False
