"""Loaders whose batches have no memory to pin: indices, strings, graphs of a library."""

from __future__ import annotations

import ast

from perfaudit.static.checks.dataloader_no_workers.samples import (
    class_of_samples,
    function_named,
    method_of,
    values_held,
)
from perfaudit.static.source import FUNCTIONS, Source
from perfaudit.static.understanding.names import dotted_name, last_name
from perfaudit.static.understanding.values import argument, assigned_value, resolve

COLLATE = 6  # position of the parameter in DataLoader.__init__ of every torch since 1.0
_MAKES_STRINGS = {"splitlines", "readlines", "split", "strip", "rstrip", "lower", "join", "glob", "listdir", "replace"}
_GRAPHS = {"dgl.batch"}  # objects without a `pin_memory` method that the loader's thread could call


def has_nothing_to_pin(source: Source, call: ast.Call) -> bool:
    """Whether what a batch mostly consists of has no memory that a loader pins: strings, indices, graphs, own classes.

    `pin_memory` goes through lists, tuples and dicts, and asks other objects for a method of this name; strings and objects
    without one are passed by. A few labels beside a graph are not worth it.
    """
    dataset, collate = argument(source, call, "dataset", 0), argument(source, call, "collate_fn", COLLATE)
    if isinstance(collate, ast.expr):
        return _cannot_be_pinned(source, collate)
    return isinstance(dataset, ast.expr) and (_are_indices(source, dataset) or _are_strings(source, dataset))


def _are_indices(source: Source, dataset: ast.expr) -> bool:
    """A `range`, or tensors of one: the batch says which rows to take of data that lie elsewhere."""
    node = resolve(source, dataset) or dataset
    while isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "list" and node.args:
        node = resolve(source, node.args[0]) or node.args[0]
    if not isinstance(node, ast.Call):
        return False
    name = source.qualified_name(node.func) or last_name(node.func)
    if name in ("torch.utils.data.TensorDataset", "TensorDataset"):
        return len(node.args) == 1 and _are_indices(source, node.args[0])
    return name in ("range", "torch.arange", "torch.randperm", "numpy.arange")


def _are_strings(source: Source, dataset: ast.expr) -> bool:
    """Whether a sample of a class of the project is text, beside which there may be its index or a number."""
    found = class_of_samples(source, dataset)
    if found is None or (item := method_of(found[0][1], "__getitem__")) is None or len(item.args.args) != 2:
        return False
    inside, definition = found[0]
    index = item.args.args[1].arg
    returned = [node.value for node in ast.walk(item) if isinstance(node, ast.Return)]
    parts = [part for value in returned if value is not None for part in _parts(value)]
    of_text = [_is_text(inside, definition, part) for part in parts]
    small = [isinstance(part, ast.Name) and part.id == index for part in parts]
    return any(of_text) and all(text or number for text, number in zip(of_text, small, strict=True))


def _parts(value: ast.expr) -> list[ast.expr]:
    if isinstance(value, (ast.Tuple, ast.List)):
        return list(value.elts)
    return [part for part in value.values if part is not None] if isinstance(value, ast.Dict) else [value]


def _is_text(source: Source, definition: ast.ClassDef, node: ast.expr) -> bool:
    node = resolve(source, node) or node
    if isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str)):
        return True
    if isinstance(node, ast.Call):
        return isinstance(node.func, ast.Attribute) and node.func.attr in _MAKES_STRINGS
    if isinstance(node, ast.Subscript):
        name = dotted_name(node.value)
        held = list(values_held(source, definition, name.split(".")[1])) if name.startswith("self.") else []
        return bool(held) and all(_holds_text(value) for value in held)
    return False


def _holds_text(value: ast.expr) -> bool:
    """`open(path).read().splitlines()`, `[line.strip() for line in file]`, `sorted(glob.glob(...))`."""
    if isinstance(value, ast.ListComp):
        return _holds_text(value.elt)
    if isinstance(value, ast.Call):
        if last_name(value.func) in ("sorted", "list") and value.args:
            return _holds_text(value.args[0])
        return last_name(value.func) in _MAKES_STRINGS
    return False


def _cannot_be_pinned(source: Source, collate: ast.expr) -> bool:
    """Whether the collate function returns a graph or an object of a class of the project that has no `pin_memory`."""
    found = function_named(source, collate)
    if found is None:
        return False
    inside, function = found
    if isinstance(function, ast.Lambda):
        returned: list[ast.expr | None] = [function.body]
    else:
        returned = [node.value for node in ast.walk(function) if isinstance(node, ast.Return)]
    firsts = [_firsts(inside, value) for value in returned if value is not None]
    return bool(firsts) and all(first and _is_unpinnable(inside, first[0]) for first in firsts)


def _firsts(source: Source, value: ast.expr) -> list[ast.expr]:
    """The first part of what is returned; of `tuple(batch)` what `batch[0]` was set to, if that is done once."""
    if isinstance(value, ast.Call) and isinstance(value.func, ast.Name) and value.func.id == "tuple" and value.args:
        row = value.args[0]
        uses = source.uses_of(bound[0], row.id) if isinstance(row, ast.Name) and (bound := source.lookup(row)) else []
        places = [source.parent(use) for use in uses]
        stored = [p for p in places if isinstance(p, ast.Subscript) and isinstance(p.ctx, ast.Store)]
        values = [assigned_value(source, p) for p in stored if isinstance(p.slice, ast.Constant) and p.slice.value == 0]
        return [v for v in values if v is not None] if len(values) == 1 else []
    return _parts(value)[:1]


def _is_unpinnable(source: Source, node: ast.expr, depth: int = 1) -> bool:
    node = resolve(source, node) or node
    if not isinstance(node, ast.Call):
        return False
    if source.qualified_name(node.func) in _GRAPHS:
        return True
    definitions = source.lookup(node.func) if isinstance(node.func, ast.Name) else []
    definition = definitions[0] if len(definitions) == 1 else None
    if isinstance(definition, FUNCTIONS) and depth:
        returned = [n.value for n in ast.walk(definition) if isinstance(n, ast.Return) and n.value is not None]
        return any(_is_unpinnable(source, value, depth - 1) for value in returned)
    if not isinstance(definition, ast.ClassDef):
        return False
    bases = {source.text_of(base) for base in definition.bases} - {"object"}
    return not bases and method_of(definition, "pin_memory") is None
