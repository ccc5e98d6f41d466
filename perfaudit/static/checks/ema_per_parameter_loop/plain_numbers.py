"""Whether an expression is provably a Python number, and not a tensor of one."""

from __future__ import annotations

import ast
import re

from perfaudit.expressions import regex
from perfaudit.static.source import FUNCTIONS, Function, Source
from perfaudit.static.understanding.calls_by_name import calls_by_last_name
from perfaudit.static.understanding.defaults import default
from perfaudit.static.understanding.members import attributes, is_own, own_values, stores_of
from perfaudit.static.understanding.names import last_name
from perfaudit.static.understanding.values import assigned_value, constant

_ARITHMETIC = (ast.Add, ast.Sub, ast.Mult, ast.Div, ast.Pow, ast.FloorDiv, ast.Mod)
_MAKERS = {"float", "int", "len", "range"}
_CHOICES = {"min", "max", "abs", "round"}
_OPTIONS = regex(r"^(args?|opts?|options|config|cfg|hparams|flags)$", re.IGNORECASE)
_DEPTH = 4


def is_plain_number(
    source: Source, node: ast.expr, depth: int = _DEPTH, following: frozenset[int] = frozenset()
) -> bool:
    """Whether a value is a number wherever this file binds it: by a literal, arithmetic, an annotation, a default, its calls.

    `following` are the bindings on the way here: `decay = min(decay, 0.99)` is a number if the other bindings are.
    """
    value = constant(source, node)
    if isinstance(value, (int, float)):
        return True
    if not depth:
        return False
    if isinstance(node, ast.UnaryOp):
        return is_plain_number(source, node.operand, depth, following)
    if isinstance(node, ast.BinOp) and isinstance(node.op, _ARITHMETIC):
        return all(is_plain_number(source, side, depth, following) for side in (node.left, node.right))
    if isinstance(node, ast.IfExp):
        return all(is_plain_number(source, side, depth, following) for side in (node.body, node.orelse))
    if isinstance(node, ast.Call):
        name = source.qualified_name(node.func) or (node.func.id if isinstance(node.func, ast.Name) else "")
        if name in _CHOICES:
            return bool(node.args) and all(is_plain_number(source, item, depth, following) for item in node.args)
        return name in _MAKERS or name.startswith("math.")
    if isinstance(node, ast.Name):
        bindings = source.lookup(node)
        known = following | {id(binding) for binding in bindings}
        new = [binding for binding in bindings if id(binding) not in following]
        return bool(bindings) and all(_binds_number(source, binding, depth - 1, known) for binding in new)
    if isinstance(node, ast.Attribute):
        return _is_number_of_class(source, node, depth - 1) or _has_number_by_default(source, node)
    return False


def _has_number_by_default(source: Source, node: ast.Attribute) -> bool:
    """`args.tau` of an option with a number, or of a field that a class of options declares as one."""
    if any(not isinstance(use.ctx, ast.Load) and not is_own(use) for use in attributes(source).get(node.attr, ())):
        return False
    found = default(source, node)
    if found is not None and isinstance(found.value, (int, float)):
        return True
    fields = [n for n in source.nodes(ast.AnnAssign) if isinstance(n.target, ast.Name) and n.target.id == node.attr]
    in_class = bool(fields) and all(isinstance(source.parent(n), ast.ClassDef) for n in fields)
    is_option = isinstance(node.value, ast.Name) and _OPTIONS.search(node.value.id) is not None
    return is_option and in_class and all(set(_names(n.annotation)) <= {"float", "int"} for n in fields)


def _binds_number(source: Source, binding: ast.AST, depth: int, following: frozenset[int]) -> bool:
    if isinstance(binding, ast.arg):
        return _is_number_for_callers(source, binding, depth)
    statement = source.parent(binding)
    if isinstance(statement, ast.AugAssign):
        return isinstance(statement.op, _ARITHMETIC) and is_plain_number(source, statement.value, depth, following)
    around = source.parent(statement) if isinstance(statement, ast.Tuple) and statement.elts[0] is binding else None
    if isinstance(around, ast.For):
        return isinstance(around.iter, ast.Call) and last_name(around.iter.func) == "enumerate"
    if isinstance(statement, ast.For) and statement.target is binding:
        return isinstance(statement.iter, ast.Call) and last_name(statement.iter.func) == "range"
    value = assigned_value(source, binding)
    return value is not None and is_plain_number(source, value, depth, following)


def _is_number_of_class(source: Source, node: ast.Attribute, depth: int) -> bool:
    """`self.decay`, which the class sets to numbers only, and nothing else does."""
    if not is_own(node):
        return False
    values = own_values(source, node, node.attr)
    if not values or len(stores_of(source, node)) != len(values):
        return False
    return all(value is not None and is_plain_number(source, value, depth) for value in values)


def _is_number_for_callers(source: Source, parameter: ast.arg, depth: int) -> bool:
    """Whether a parameter gets numbers: its annotation or default says so and no call the opposite, or every call shows it."""
    function = source.enclosing(parameter, *FUNCTIONS, ast.Lambda)
    if not isinstance(function, FUNCTIONS):
        return False
    given = values_given(source, function, parameter)
    if given is None:
        return False
    if _says_number(source, function, parameter):
        return not any(_may_be_other(source, value) for value in given)
    if has_common_name(source, function) or given_elsewhere(source, function):
        return False
    return bool(given) and all(is_plain_number(source, value, depth) for value in given)


def _says_number(source: Source, function: Function, parameter: ast.arg) -> bool:
    if parameter.annotation is not None:
        return set(_names(parameter.annotation)) <= {"float", "int", "None", "Optional", "Union"}
    positional = [*function.args.posonlyargs, *function.args.args]
    pairs = [
        *zip(reversed(positional), reversed(function.args.defaults), strict=False),
        *zip(function.args.kwonlyargs, function.args.kw_defaults, strict=True),
    ]
    value = next((constant(source, v) for item, v in pairs if item is parameter and v is not None), None)
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _names(annotation: ast.expr) -> list[str]:
    found = [last_name(n) for n in ast.walk(annotation) if isinstance(n, (ast.Name, ast.Attribute))]
    found += [str(n.value) for n in ast.walk(annotation) if isinstance(n, ast.Constant)]
    return found or ["?"]


def _may_be_other(source: Source, value: ast.expr) -> bool:
    """Whether an argument looks as if it were no number: an element, or what a library computes."""
    if isinstance(value, ast.Name):
        bound = [assigned_value(source, binding) for binding in source.lookup(value)]
        return any(v is not None and not isinstance(v, ast.Name) and _may_be_other(source, v) for v in bound)
    nodes = list(ast.walk(value))
    calls = [source.qualified_name(n.func) or "" for n in nodes if isinstance(n, ast.Call)]
    return any(isinstance(n, ast.Subscript) for n in nodes) or any(name.startswith("torch.") for name in calls)


def has_common_name(source: Source, function: Function) -> bool:
    """Whether calls of a method cannot be told by its name: `update` of a progress bar."""
    is_method = isinstance(source.parent(function), ast.ClassDef)
    return is_method and function.name != "__init__" and "_" not in function.name


def given_elsewhere(source: Source, function: Function) -> bool:
    """Whether files that import this one call the function, or build its class."""
    owner = source.parent(function)
    name = owner.name if isinstance(owner, ast.ClassDef) and function.name == "__init__" else function.name
    return source.neighbours is not None and source.neighbours.is_called_by_importers(name)


def values_given(source: Source, function: Function, parameter: ast.arg) -> list[ast.expr] | None:
    """What the calls in this file pass for a parameter; None where one cannot be read. Calls are told by the last name."""
    owner = source.parent(function)
    name, skipped = function.name, 0
    if isinstance(owner, ast.ClassDef):
        name = owner.name if function.name == "__init__" else function.name
        skipped = int(not any(last_name(d) == "staticmethod" for d in function.decorator_list))
    calls = calls_by_last_name(source).get(name, ())
    names = [a.arg for a in (*function.args.posonlyargs, *function.args.args)][skipped:]
    given: list[ast.expr] = []
    for call in calls:
        if any(isinstance(a, ast.Starred) for a in call.args) or any(k.arg is None for k in call.keywords):
            return None
        place = names.index(parameter.arg) if parameter.arg in names else len(call.args)
        given += call.args[place : place + 1]
        given += [k.value for k in call.keywords if k.arg == parameter.arg]
    return given
