"""By which name code runs the model that DistributedDataParallel wraps."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from perfaudit.records import NamedTuple
from perfaudit.static.source import FUNCTIONS, Function, Source
from perfaudit.static.understanding.called_functions import called_function, callers
from perfaudit.static.understanding.demonstrations import is_main_guard
from perfaudit.static.understanding.distributed import ddp_calls
from perfaudit.static.understanding.losses import arguments_of
from perfaudit.static.understanding.names import dotted_name, last_name
from perfaudit.tune.ranks.unsynced.assigned_names import last_names

_DEEPEST = 3  # functions that hand the wrapped model on
_USUAL_NAME = "model"  # of the model in a function that gets it from another file


class Run(NamedTuple):
    """place: where statements first run the model; name: the model as they can name it."""

    place: ast.expr
    name: ast.expr


def run_of_model(sources: Sequence[Source], source: Source, block: Sequence[ast.stmt]) -> Run | None:
    """Where statements first run the model, by a name that surely is wrapped, else by one of the name of such a model.

    It is called, or given to a function of the project, which `use_of_gradients` looks at; or a method of the same object calls
    it as an attribute (`self.training_step(batch)`).
    """
    calls = [call for statement in block for call in ast.walk(statement) if isinstance(call, ast.Call)]
    own = {function.name for each in sources for function in each.nodes(ast.FunctionDef)}
    given = [
        each
        for call in calls
        if last_name(call.func) in own
        for each in (*call.args, *(k.value for k in call.keywords))
    ]
    named = [each for each in (*(call.func for call in calls), *given) if dotted_name(each)]
    wrapped = [Run(name, name) for name in named if isinstance(name, ast.Name) and is_wrapped(source, name)]
    if not wrapped:
        names = _names_of_wrapped(sources)
        if isinstance(scope := source.enclosing(block[0], *FUNCTIONS), FUNCTIONS):
            names |= _parameters_with_model(sources, scope, names)
        wrapped = [Run(name, name) for name in named if last_name(name) in names and not source.qualified_name(name)]
        wrapped = wrapped or [
            Run(call, name) for call in calls if (name := _attribute_called(source, call, names)) is not None
        ]
    return min(wrapped, key=lambda run: (run.place.lineno, run.place.col_offset), default=None)


def _attribute_called(source: Source, call: ast.Call, names: set[str]) -> ast.expr | None:
    """The `self.model` that a method calls which this call runs; None where it is no method of the same object, or calls none."""
    if not dotted_name(call.func).startswith("self.") or (method := called_function(source, call)) is None:
        return None
    return next(
        (
            node.func
            for node in ast.walk(method)
            if isinstance(node, ast.Call) and dotted_name(node.func) in {f"self.{name}" for name in names}
        ),
        None,
    )


def _names_of_wrapped(sources: Sequence[Source]) -> set[str]:
    """Last names of what a wrapped model, or what a function gives that wraps one, is assigned to; and the usual one."""
    wrapping = {id(call) for source in sources for call in ddp_calls(source)}
    makers = {
        each.name
        for source in sources
        for call in ddp_calls(source)
        for each in source.ancestors(call)
        if isinstance(each, FUNCTIONS) and each.name != "__init__"
    }
    names, known = {_USUAL_NAME}, set[str]()
    while names - known:
        known = set(names)
        for assigned in (node for source in sources for node in source.nodes(ast.Assign)):
            value = assigned.value
            is_made = isinstance(value, ast.Call) and (id(value) in wrapping or last_name(value.func) in makers)
            if is_made or last_name(value) in known:
                names |= {each.lstrip(".") for target in assigned.targets for each in last_names(target)}
    return names


def _parameters_with_model(
    sources: Sequence[Source], scope: Function, names: set[str], depth: int = _DEEPEST
) -> set[str]:
    """The parameters of a function that get what has one of these names where it is called."""
    found = set[str]()
    for source in sources:
        for call in source.nodes(ast.Call):
            if last_name(call.func) == scope.name:
                known, around = names, source.enclosing(call, *FUNCTIONS)
                if depth and isinstance(around, FUNCTIONS):
                    known = names | _parameters_with_model(sources, around, names, depth - 1)
                found |= {name for name, value in arguments_of(call, scope) if last_name(value) in known}
    return found


def is_wrapped(source: Source, name: ast.Name, depth: int = _DEEPEST) -> bool:
    """Whether a name is the wrapped model in any case: what is wrapped under a condition has no `no_sync` without it."""
    scope = source.scope(name)
    for wrapping in ddp_calls(source):
        assigned = source.parent(wrapping)
        if (
            isinstance(assigned, ast.Assign)
            and any(isinstance(target, ast.Name) and target.id == name.id for target in assigned.targets)
            and source.scope(assigned) in (scope, source.tree)
            and (source.scope(assigned) is scope or name.id not in source.bound_in(scope))
            and not any(
                isinstance(each, (ast.If, ast.Try)) and not is_main_guard(each) for each in source.ancestors(assigned)
            )
        ):
            return True
    bindings = source.lookup(name)
    if not (depth and len(bindings) == 1 and isinstance(bindings[0], ast.arg) and isinstance(scope, FUNCTIONS)):
        return False
    calls = callers(source, scope)
    given = [value for call in calls for parameter, value in arguments_of(call, scope) if parameter == bindings[0].arg]
    return (
        bool(given)
        and len(given) == len(calls)
        and all(isinstance(value, ast.Name) and is_wrapped(source, value, depth - 1) for value in given)
    )
