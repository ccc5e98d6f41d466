"""Whether a training loop works in host memory, as far as its program shows, though that names an accelerator elsewhere."""

from __future__ import annotations

import ast

from perfaudit.static.source import FUNCTIONS, Function, Source
from perfaudit.static.source.syntax import walk
from perfaudit.static.understanding.answers import remember
from perfaudit.static.understanding.called_functions import callers
from perfaudit.static.understanding.devices import changes_default_device, moves_to_device
from perfaudit.static.understanding.host_classes import moves_nothing, names_device
from perfaudit.static.understanding.losses import arguments_of
from perfaudit.static.understanding.step_code import step_code
from perfaudit.static.understanding.step_loops import StepLoop
from perfaudit.static.understanding.values import assigned_value

_KEEPS_DEVICE = {  # methods of a model that leave it where it is
    *("parameters", "named_parameters", "zero_grad", "train", "eval", "state_dict", "load_state_dict", "modules"),
    *("children", "apply", "forward", "requires_grad_"),
}


@remember
def trains_on_host(source: Source, step: StepLoop) -> bool:
    """Whether nothing in the loop is moved, and a model it runs is built in the same scope and not moved before its end.

    Such are tutorials that train on the CPU first and show `net.to(device)` afterwards.
    """
    nodes = [node for code in step_code(source, step) for node in walk(code.root)]
    calls = [node for node in nodes if isinstance(node, ast.Call)]
    if any(moves_to_device(source, call) or names_device(call) for call in calls) or changes_default_device(source):
        return False
    called = {call.func.id: call.func for call in calls if isinstance(call.func, ast.Name)}
    return any(_stays_on_host(source, name, step) for name in called.values())


def _stays_on_host(source: Source, model: ast.Name, step: StepLoop) -> bool:
    """Whether a name is bound to models in the loop's own scope, and nothing may move them before its end.

    Or is the parameter of a function that is called in this file alone, with nothing else.
    """
    scope = source.scope(step.loop)
    bindings = source.lookup(model)
    if not bindings or not all(source.scope(b) is scope for b in bindings):
        return False
    end = step.loop.end_lineno or 0
    if len(bindings) == 1 and isinstance(bindings[0], ast.arg) and isinstance(scope, FUNCTIONS):
        return _is_moved_nowhere(source, bindings[0], model.id, end) and _is_given_on_host(source, scope, model.id)
    return all(_builds_on_host(source, b) for b in bindings) and _is_moved_nowhere(source, bindings[0], model.id, end)


def _is_moved_nowhere(source: Source, binding: ast.AST, name: str, end: int) -> bool:
    """Whether nothing may move what a name stands for, up to a line."""
    return not any(_may_move(source, use) for use in source.uses_of(binding, name) if use.lineno <= end)


def _is_given_on_host(source: Source, function: Function, parameter: str) -> bool:
    """Whether all calls of a function are in this file and give a model that is built there and not moved before."""
    if source.neighbours is not None and source.neighbours.is_imported():
        return False
    calls = callers(source, function)
    given = [value for call in calls for name, value in arguments_of(call, function) if name == parameter]
    if not calls or len(given) != len(calls) or len(source.uses_of(function, function.name)) != len(calls):
        return False
    for value in given:
        bindings = source.lookup(value) if isinstance(value, ast.Name) else []
        if not bindings or not isinstance(value, ast.Name) or not all(_builds_on_host(source, b) for b in bindings):
            return False
        uses = [use for use in source.uses_of(bindings[0], value.id) if not any(use is one for one in given)]
        if any(_may_move(source, use) for use in uses):
            return False
    return True


def _builds_on_host(source: Source, binding: ast.AST) -> bool:
    """Whether a name is bound by `Net(...)` with a class in sight that moves nothing, or one of torch's layers or models."""
    value = assigned_value(source, binding)
    if not isinstance(value, ast.Call) or names_device(value):
        return False
    name = source.qualified_name(value.func) or ""
    if name.startswith(("torch.nn.", "torchvision.models.")):
        return not name.endswith(("Loss", "Parallel", "DataParallel"))
    made = [(source, d) for d in (source.lookup(value.func) if isinstance(value.func, ast.Name) else [])]
    found = source.neighbours.definition_of(name) if source.neighbours is not None and name else None
    made = [found] if found is not None else made
    return bool(made) and all(isinstance(d, ast.ClassDef) and moves_nothing(source, there, d) for there, d in made)


def _may_move(source: Source, use: ast.Name) -> bool:
    """Whether what is done with a model may move it: `net.to(device)`, or code that is not read here gets it."""
    parent = source.parent(use)
    if isinstance(parent, ast.Attribute):
        return isinstance(source.parent(parent), ast.Call) and parent.attr not in _KEEPS_DEVICE
    if isinstance(parent, ast.Call):
        printed = isinstance(parent.func, ast.Name) and parent.func.id in ("print", "len", "repr", "str")
        return parent.func is not use and not printed
    return source.enclosing(use, *FUNCTIONS, within=source.scope(use)) is not None or not isinstance(parent, ast.Expr)
