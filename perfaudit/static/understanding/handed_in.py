"""What other files hand to the parameters of a file: the calls by which they run its functions and build its classes."""

from __future__ import annotations

import ast
import functools

from perfaudit.static.call_index import CallShape, shape_of
from perfaudit.static.source import FUNCTIONS, Function, Source
from perfaudit.static.understanding.called_functions import callers
from perfaudit.static.understanding.losses import arguments_of
from perfaudit.static.understanding.members import is_own, own_values
from perfaudit.static.understanding.names import last_name
from perfaudit.static.understanding.values import assigned_value

_MAX_MEANT = 4  # parameters that an expression may stand for, through the callers of a function


def handed_in(source: Source, node: ast.expr) -> list[tuple[Source, ast.expr]]:
    """What other files hand in where an expression is a parameter of a file, or keeps one: each with the file that does.

    Nothing where it may be something else too, or where no call is in sight.
    """
    parameters = _parameters_behind(source, node, set())
    if not parameters or len(parameters) > _MAX_MEANT:
        return []
    return [found for parameter in parameters for found in _passed_for(source, parameter)]


def _parameters_behind(source: Source, node: ast.expr | None, seen: set[int]) -> list[ast.arg] | None:
    """The parameters that an expression may stand for; None where it may be anything else."""
    if node is None or id(node) in seen:
        return None if node is None else []
    seen.add(id(node))
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in ("to", "cuda"):
        return _parameters_behind(source, node.func.value, seen)
    if isinstance(node, ast.Attribute):
        values = own_values(source, node, node.attr) if is_own(node) else []
        return _all_of([_parameters_behind(source, value, seen) for value in values])
    if not isinstance(node, ast.Name):
        return None
    return _all_of([_bound_to(source, binding, seen) for binding in source.lookup(node)])


def _bound_to(source: Source, binding: ast.AST, seen: set[int]) -> list[ast.arg] | None:
    if not isinstance(binding, ast.arg):
        return _parameters_behind(source, assigned_value(source, binding), seen)
    function = source.enclosing(binding, *FUNCTIONS, ast.Lambda)
    if not isinstance(function, FUNCTIONS) or id(binding) in seen:
        return None if not isinstance(function, FUNCTIONS) else []
    seen.add(id(binding))
    calls = callers(source, function)
    if not calls:
        return [binding]
    given = [dict(arguments_of(call, function)).get(binding.arg) for call in calls]
    return _all_of([_parameters_behind(source, value, seen) for value in given])


def _all_of(parts: list[list[ast.arg] | None]) -> list[ast.arg] | None:
    if not parts or any(part is None for part in parts):
        return None
    return [parameter for part in parts if part is not None for parameter in part]


@functools.lru_cache(maxsize=64)  # asked for each call in the code of a step
def _passed_for(source: Source, parameter: ast.arg) -> tuple[tuple[Source, ast.expr], ...]:
    function = source.enclosing(parameter, *FUNCTIONS)
    if not isinstance(function, FUNCTIONS):
        return ()
    given = [
        (there, dict(arguments_of(_as_method(call), function)).get(parameter.arg))
        for there, call in _calls(source, function)
    ]
    return tuple((there, value) for there, value in given if value is not None)


def _as_method(call: ast.Call) -> ast.Call:
    """A call as one of a method, for which `self` counts as passed: `Trainer(model)` runs `__init__` with an object before it."""
    return ast.Call(ast.Attribute(call.func, "__init__"), call.args, call.keywords)


@functools.lru_cache(maxsize=16)
def _calls(source: Source, function: Function) -> tuple[tuple[Source, ast.Call], ...]:
    """The calls in other files that run a function, or build an object of the class whose `__init__` it is."""
    owner, neighbours = source.parent(function), source.neighbours
    if neighbours is None:
        return ()
    builds = isinstance(owner, ast.ClassDef) and function.name == "__init__"
    name = owner.name if builds and isinstance(owner, ast.ClassDef) else function.name
    files = neighbours.program_calling(name, lambda shape: fits(source, function, shape))
    is_method = isinstance(owner, ast.ClassDef) and not builds
    return tuple(
        (there, call)
        for there in files
        for call in there.nodes(ast.Call)
        if last_name(call.func) == name
        and fits(source, function, shape_of(call))
        and (isinstance(call.func, ast.Attribute) if is_method else _is_of(source, there, call))
    )


def fits(source: Source, function: Function, shape: CallShape) -> bool:
    """Whether a call passes as many arguments as a function wants: `model.train()` is no call of a trainer's `train(x, y)`."""
    if shape.unpacks:
        return True
    names, given = parameters_of(source, function), shape.positional + len(shape.keywords)
    is_open = function.args.vararg is not None or function.args.kwarg is not None
    return len(names) - len(function.args.defaults) <= given and (shape.positional <= len(names) or is_open)


def parameters_of(source: Source, function: Function) -> list[str]:
    """The parameters of a function, without the `self` of a method."""
    names = [a.arg for a in (*function.args.posonlyargs, *function.args.args)]
    is_static = any(last_name(decorator) == "staticmethod" for decorator in function.decorator_list)
    return names[1:] if isinstance(source.parent(function), ast.ClassDef) and not is_static else names


def _is_of(source: Source, there: Source, call: ast.Call) -> bool:
    """Whether what a call names is imported from the file that is scanned."""
    dotted = there.qualified_name(call.func)
    if dotted is None and isinstance(call.func, ast.Name) and source.neighbours is not None:
        return source.neighbours.is_taken_by_star(call.func.id, there)
    if dotted is None or source.neighbours is None or not source.neighbours.is_own_module(dotted, there):
        return False
    return source.neighbours.definition_of(dotted, there) is None
