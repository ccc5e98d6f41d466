"""What a loop walks: the parameters or the state of a module, lists named so, or what an optimizer updates."""

from __future__ import annotations

import ast
import re

from perfaudit.expressions import regex
from perfaudit.static.source import Source
from perfaudit.static.source.syntax import walk
from perfaudit.static.understanding.called_functions import called_function
from perfaudit.static.understanding.loaders import given_to
from perfaudit.static.understanding.members import attributes
from perfaudit.static.understanding.names import dotted_name, last_name
from perfaudit.static.understanding.values import constant, resolve

WALKS = {"parameters", "named_parameters", "state_dict", "buffers", "named_buffers"}
PARAMETER_LIST = regex(r"param", re.IGNORECASE)
STATE = regex(r"param|shadow|state|averag|(^|_)ema(_|$)", re.IGNORECASE, words="param|shadow|state|averag|ema")


def walks_parameters(source: Source, iterable: ast.expr) -> bool:
    """Whether a loop goes over a module's parameters or state, or over lists named as such."""
    iterable = _without_numbers(iterable)
    if isinstance(iterable, (ast.Name, ast.Attribute)) and STATE.search(last_name(iterable)):
        return True
    if is_of_optimizer(source, iterable):
        return True
    has_walks = any(map(source.mentions, WALKS)) and not WALKS.isdisjoint(attributes(source))
    for node in walk(iterable) if has_walks else ():
        if isinstance(node, ast.Name) and _stands_for_walk(source, node):
            return True
        if isinstance(node, ast.Attribute) and node.attr in WALKS:
            return True
    if isinstance(iterable, ast.Call) and isinstance(iterable.func, ast.Attribute):
        if iterable.func.attr in ("items", "keys") and STATE.search(last_name(iterable.func.value)):
            return True
        # A method that chains parameters and buffers.
        function = called_function(source, iterable) if has_walks else None
        if function is not None:
            return any(isinstance(n, ast.Attribute) and n.attr in WALKS for n in walk(function))
    if isinstance(iterable, ast.Call) and isinstance(iterable.func, ast.Name) and iterable.func.id == "zip":
        return len(iterable.args) == 2 and all(PARAMETER_LIST.search(ast.unparse(a)) for a in iterable.args)
    return False


def is_of_optimizer(source: Source, iterable: ast.expr) -> bool:
    """`group["params"]`, in a loop over the groups of an optimizer."""
    if not isinstance(iterable, ast.Subscript) or not isinstance(iterable.value, ast.Name):
        return False
    groups = source.enclosing(iterable, ast.For)
    while isinstance(groups, ast.For) and dotted_name(groups.target) != iterable.value.id:
        groups = source.enclosing(groups, ast.For)
    is_group = isinstance(groups, ast.For) and last_name(groups.iter) == "param_groups"
    return is_group and constant(source, iterable.slice) == "params"


def _stands_for_walk(source: Source, name: ast.Name) -> bool:
    """Whether a name, or all that the calls in the file hand in for it, is such a walk."""
    value = resolve(source, name)
    bindings = source.lookup(name)
    parameter = bindings[0] if len(bindings) == 1 else None
    given = given_to(source, parameter) if isinstance(parameter, ast.arg) and value is None else None
    made = [value] if value is not None else given or []
    return bool(made) and all(
        isinstance(part, (ast.Call, ast.IfExp, ast.ListComp))
        and any(isinstance(n, ast.Attribute) and n.attr in WALKS for n in walk(part))
        for part in made
    )


def _without_numbers(iterable: ast.expr) -> ast.expr:
    """`x` of `enumerate(x)` and `range(len(x))`."""
    for name in ("enumerate", "range", "len"):
        is_call = isinstance(iterable, ast.Call) and isinstance(iterable.func, ast.Name) and iterable.func.id == name
        if is_call and isinstance(iterable, ast.Call) and len(iterable.args) == 1:
            iterable = iterable.args[0]
    return iterable
