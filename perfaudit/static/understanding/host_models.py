"""Whether a training loop provably works in host memory, in a file that uses an accelerator elsewhere."""

from __future__ import annotations

import ast

from perfaudit.static.source import FUNCTIONS, Source
from perfaudit.static.source.syntax import walk
from perfaudit.static.understanding.answers import remember
from perfaudit.static.understanding.devices import changes_default_device, moves_to_device
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
    if any(moves_to_device(source, call) or _names_device(call) for call in calls) or changes_default_device(source):
        return False
    called = {call.func.id: call.func for call in calls if isinstance(call.func, ast.Name)}
    return any(_stays_on_host(source, name, step) for name in called.values())


def _names_device(call: ast.Call) -> bool:
    return any(keyword.arg == "device" for keyword in call.keywords)


def _stays_on_host(source: Source, model: ast.Name, step: StepLoop) -> bool:
    """Whether a name is bound to models of this file in the loop's own scope, and nothing may move them before its end."""
    scope = source.scope(step.loop)
    bindings = source.lookup(model)
    if not bindings or not all(source.scope(b) is scope and _builds_on_host(source, b) for b in bindings):
        return False
    uses = source.uses_of(bindings[0], model.id)
    return not any(_may_move(source, use) for use in uses if use.lineno <= (step.loop.end_lineno or 0))


def _builds_on_host(source: Source, binding: ast.AST) -> bool:
    """Whether a name is bound by `Net(...)` with a class of this file that names no device, or one of torch's layers."""
    value = assigned_value(source, binding)
    if not isinstance(value, ast.Call) or _names_device(value):
        return False
    name = source.qualified_name(value.func) or ""
    if name.startswith("torch.nn."):
        return not name.endswith(("Loss", "Parallel", "DataParallel"))
    made = source.lookup(value.func) if isinstance(value.func, ast.Name) else []
    if not made or not all(isinstance(definition, ast.ClassDef) for definition in made):
        return False
    inside = [node for definition in made for node in walk(definition) if isinstance(node, ast.Call)]
    return not any(moves_to_device(source, call) or _names_device(call) for call in inside)


def _may_move(source: Source, use: ast.Name) -> bool:
    """Whether what is done with a model may move it: `net.to(device)`, or code that is not read here gets it."""
    parent = source.parent(use)
    if isinstance(parent, ast.Attribute):
        return isinstance(source.parent(parent), ast.Call) and parent.attr not in _KEEPS_DEVICE
    if isinstance(parent, ast.Call):
        printed = isinstance(parent.func, ast.Name) and parent.func.id in ("print", "len", "repr", "str")
        return parent.func is not use and not printed
    return source.enclosing(use, *FUNCTIONS, within=source.scope(use)) is not None or not isinstance(parent, ast.Expr)
