"""What a call gives: of torch or einops, of a method, of a layer, of a function of the file."""

from __future__ import annotations

import ast
import re
from dataclasses import replace
from typing import TYPE_CHECKING

from perfaudit.expressions import regex
from perfaudit.static.checks.handwritten_attention.attention_changes import (
    change,
    drop_out,
    keep_in_place,
    read_where,
    rearrange,
    softmax_axis,
    take_softmax,
)
from perfaudit.static.checks.handwritten_attention.attention_products import PRODUCTS, read_einsum, read_product
from perfaudit.static.checks.handwritten_attention.attention_steps import (
    TURNS,
    arithmetic,
    operand_after_method,
    turned_operand,
)
from perfaudit.static.checks.handwritten_attention.attention_values import PLAIN, Operand, Scores, Value, chains, want
from perfaudit.static.checks.handwritten_attention.function_results import follow
from perfaudit.static.understanding.called_functions import called_function
from perfaudit.static.understanding.members import built_as
from perfaudit.static.understanding.names import dotted_name, last_name
from perfaudit.static.understanding.values import resolve

if TYPE_CHECKING:
    from perfaudit.static.checks.handwritten_attention.attention_reader import Reader

_ASKS_SHAPE = {"expand_as", "view_as", "reshape_as", "type_as"}  # `mask.expand_as(scores)`: not of the values
_LIKE = {f"torch.{name}_like" for name in ("zeros", "ones", "full", "empty")}
_ARITHMETIC = {"add": ast.Add, "mul": ast.Mult, "div": ast.Div, "sub": ast.Sub, "multiply": ast.Mult}
_DROPOUT = regex(r"drop", re.IGNORECASE)
_DROPOUTS = {f"torch.nn.{name}" for name in ("Dropout", "Dropout1d", "Dropout2d", "Dropout3d", "AlphaDropout")}
_PASSES = _DROPOUTS | {"torch.nn.Identity"}
_SOFTMAX = {"torch.softmax", "torch.nn.functional.softmax", "torch.special.softmax"}
_FUNCTIONS = "torch.", "torch.nn.functional."


def read_call(reader: Reader, node: ast.Call) -> Value:
    """What a call gives; a plain operand where nothing else is known."""
    value = _read_known_call(reader, node)
    if value != PLAIN or not node.args:
        return value
    if isinstance(node.func, ast.Name) and node.func.id == "map" and len(node.args) == 2:
        return _read_map(reader, node.args[0], node.args[1])
    return _after_norm(reader, node.func, node.args[0])


def _read_map(reader: Reader, function: ast.expr, items: ast.expr) -> Value:
    if isinstance(function, ast.Lambda):
        return reader.each(function.body)
    if not isinstance(items, (ast.Tuple, ast.List)) or not items.elts:
        return PLAIN
    found = {_after_norm(reader, function, item) for item in items.elts}
    return replace(found.pop(), is_many=True) if len(found) == 1 else PLAIN


def _after_norm(reader: Reader, function: ast.expr, given: ast.expr) -> Operand:
    """A name after something that calls itself a norm, which leaves the axes where they are."""
    value = reader.names.get(given.id) if isinstance(given, ast.Name) else None
    if not isinstance(value, Operand) or "norm" not in last_name(function).lower():
        return PLAIN
    return Operand(rank=value.rank, features=value.features)


def _read_known_call(reader: Reader, node: ast.Call) -> Value:
    name = reader.source.qualified_name(node.func)
    if name is not None:
        return _read_imported(reader, node, name)
    if isinstance(node.func, ast.Call) and reader.source.qualified_name(node.func.func) == "torch.nn.Softmax":
        return take_softmax(reader, node.args[:1], softmax_axis(reader, node.func, 0), node)
    function = called_function(reader.source, node)
    if function is not None:
        return follow(reader, function, node)
    if isinstance(node.func, ast.Attribute):
        base = dotted_name(node.func)
        if base.startswith("self.") and base.count(".") == 1:
            return _read_layer(reader, node, node.func.attr)
        return _read_method(reader, node, node.func)
    if isinstance(node.func, ast.Name):
        made = resolve(reader.source, node.func)
        if isinstance(made, ast.Call) and reader.source.qualified_name(made.func) == "torch.nn.Softmax":
            return take_softmax(reader, node.args[:1], softmax_axis(reader, made, 0), node)
        if _DROPOUT.search(node.func.id) and len(node.args) == 1:
            return drop_out(reader, node.args[0])
    return _read_unknown(reader, node)


def _read_unknown(reader: Reader, node: ast.Call) -> Value:
    """A call that nothing is known of; what goes in serves it."""
    if not isinstance(node.func, ast.Name):
        want(reader.value(node.func))
    for item in [*node.args, *(k.value for k in node.keywords)]:
        want(reader.value(item.value if isinstance(item, ast.Starred) else item))
    return PLAIN


def _read_imported(reader: Reader, node: ast.Call, name: str) -> Value:
    short = name.rpartition(".")[2]
    if name in ("torch.einsum", "torch.functional.einsum", "einops.einsum", "opt_einsum.contract"):
        return read_einsum(reader, node)
    if name == "einops.rearrange":
        return rearrange(reader, node)
    if not name.startswith(_FUNCTIONS) or not node.args:
        return _read_unknown(reader, node)
    if name in _LIKE:
        return PLAIN
    if name in _SOFTMAX:
        return take_softmax(reader, node.args[:1], softmax_axis(reader, node, 1), node)
    if short in PRODUCTS and len(node.args) == 2:
        values = reader.value(node.args[0]), reader.value(node.args[1])
        return read_product(reader, node, node.args[0], node.args[1], *values)
    if short == "baddbmm" and len(node.args) == 3:
        want(reader.value(node.args[0]))
        values = reader.value(node.args[1]), reader.value(node.args[2])
        product = read_product(reader, node, node.args[1], node.args[2], *values)
        return replace(product, rank=3) if isinstance(product, Scores) else product
    if short in ("dropout", "dropout_"):
        return drop_out(reader, node.args[0])
    if short == "where" and len(node.args) == 3:
        return read_where(reader, node)
    first = reader.value(node.args[0])
    if short in _ARITHMETIC and len(node.args) == 2:
        second = reader.value(node.args[1])
        return arithmetic(_ARITHMETIC[short], first, second, node.args[1], node.args[0])
    if isinstance(first, Operand):
        for item in [*node.args[1:], *(k.value for k in node.keywords)]:
            want(reader.value(item))
        if short in TURNS:
            return turned_operand(reader.source, first, short, node.args[1:])
        return replace(first, turned=False) if short in ("normalize", "relu", "elu") else PLAIN
    return change(reader, node, short, first, node.args[1:])


def _read_method(reader: Reader, node: ast.Call, func: ast.Attribute) -> Value:
    base = reader.value(func.value)
    short = func.attr
    if short in PRODUCTS and len(node.args) == 1:
        return read_product(reader, node, func.value, node.args[0], base, reader.value(node.args[0]))
    if short.rstrip("_") in _ARITHMETIC and len(node.args) == 1:
        op = _ARITHMETIC[short.rstrip("_")]
        return keep_in_place(reader, func, arithmetic(op, base, reader.value(node.args[0]), node.args[0]))
    if isinstance(base, Operand):
        for item in [*node.args, *(k.value for k in node.keywords)] if short not in _ASKS_SHAPE else ():
            want(reader.value(item.value if isinstance(item, ast.Starred) else item))
        return operand_after_method(reader.source, node, short, base)
    return keep_in_place(reader, func, change(reader, node, short, base, node.args))


def _read_layer(reader: Reader, node: ast.Call, attribute: str) -> Value:
    """`self.name(x)`: a softmax or a dropout, where the class builds one under that name."""
    rows = [_layers_of(reader, made) for made in built_as(reader.source, node, attribute)]
    first = {reader.source.qualified_name(row[0].func) for row in rows}
    rest = {reader.source.qualified_name(layer.func) for row in rows for layer in row[1:]}
    if len(node.args) != 1:
        return _read_unknown(reader, node)
    if first == {"torch.nn.Softmax"} and rest <= _PASSES:
        dims = {softmax_axis(reader, row[0], 0) for row in rows}
        value = take_softmax(reader, node.args, dims.pop() if len(dims) == 1 else None, node)
        for chain in chains(value) if rest & _DROPOUTS else ():
            chain.has_dropout = True
        return value
    is_dropout = bool(first) and first | rest <= _PASSES
    if is_dropout or (_DROPOUT.search(attribute) and "torch.nn.Sequential" not in first | rest):
        return drop_out(reader, node.args[0])
    return _read_unknown(reader, node)


def _layers_of(reader: Reader, made: ast.Call) -> list[ast.Call]:
    """The layers of a Sequential that is written out, else the layer itself."""
    inner = [item for item in made.args if isinstance(item, ast.Call)]
    is_row = reader.source.qualified_name(made.func) == "torch.nn.Sequential" and inner and len(inner) == len(made.args)
    return inner if is_row else [made]
