"""Models that record nothing: their parameters are frozen, or `forward` leaves gradients out."""

from __future__ import annotations

import ast
import functools
import re

from perfaudit.expressions import regex
from perfaudit.static.checks.eval_without_no_grad.eval_mode import model_name
from perfaudit.static.checks.eval_without_no_grad.surroundings import DIFFERENTIATES
from perfaudit.static.source import FUNCTIONS, Function, Source
from perfaudit.static.source.syntax import walk
from perfaudit.static.understanding.backward import updates_weights
from perfaudit.static.understanding.members import is_own
from perfaudit.static.understanding.names import dotted_name, last_name
from perfaudit.static.understanding.no_grad import NO_GRAD, SET_GRAD
from perfaudit.static.understanding.values import argument, assigned_value, enclosing_function, is_false, resolve

_OF_NORMS = regex(r"[._]?(bn|(batch_?|layer_?)?norm|bias)\d*[._]?", re.IGNORECASE)


@functools.lru_cache(maxsize=4)
def _frozen_modules(source: Source) -> frozenset[str] | None:
    """The modules whose parameters the file freezes, as they are written; None where it is not clear whose it sets."""
    found = set()
    for node in source.nodes(ast.Attribute):
        if node.attr == "requires_grad" and isinstance(node.ctx, ast.Store):
            value = assigned_value(source, node)
            is_asked = isinstance(value, ast.Constant) and value.value is True
            if is_asked and (_is_parameter(source, node.value) or _is_attacked(source, node.value)):
                continue  # trained again, or the input of an attack: it freezes nothing
            if _is_read_from_file(source, node.value) or _is_of_norms(source, node):
                continue
            if value is None or not is_false(source, value):
                return None
            found |= _models_of(source, _whose(source, node.value), node.value)
    for call in source.calls(".requires_grad_"):
        if not isinstance(call.func, ast.Attribute) or not is_false(source, argument(source, call, "requires_grad", 0)):
            return None
        found.add(_whose(source, call.func.value))
    return None if "" in found else frozenset(found)


def _whose(source: Source, node: ast.expr) -> str:
    """The module of a parameter, `net.stem` of `p` in `for p in net.stem.parameters()`; else what is written; "" if neither."""
    loop = source.enclosing(node, ast.For)
    if not isinstance(loop, ast.For) or not isinstance(node, ast.Name):
        return dotted_name(node)
    if not any(isinstance(n, ast.Name) and n.id == node.id for n in walk(loop.target)):
        return dotted_name(node)
    listed = loop.iter.func if isinstance(loop.iter, ast.Call) else None
    if not isinstance(listed, ast.Attribute) or listed.attr not in ("parameters", "named_parameters"):
        return ""
    if isinstance(listed.value, ast.Subscript) and (whole := dotted_name(listed.value.value)):
        return f"{whole}.[]"  # a layer, `net.layers[i]`
    return dotted_name(listed.value)


def _models_of(source: Source, module: str, node: ast.AST) -> set[str]:
    """A module, and the models that a loop around a place gives that name: of `for net in (a, b)` both of these."""
    loop = source.enclosing(node, ast.For)
    while loop is not None:
        if any(isinstance(part, ast.Name) and part.id == module for part in walk(loop.target)):
            return {module, *_models_in(loop.iter)}
        loop = source.enclosing(loop, ast.For)
    return {module}


def _models_in(over: ast.expr) -> set[str]:
    """The models that a loop goes through: those of `(a, b)`, and "nets.[]" of `nets`, `nets.values()`, `enumerate(nets)`."""
    if isinstance(over, (ast.Tuple, ast.List)):
        return {name for element in over.elts if (name := model_name(element))}
    if isinstance(over, ast.Call) and isinstance(over.func, ast.Name):
        return {name for given in over.args for name in _models_in(given)}
    if isinstance(over, ast.Call) and isinstance(over.func, ast.Attribute) and over.func.attr in ("values", "items"):
        over = over.func.value
    name = dotted_name(over)
    return {f"{name}.[]"} if name else set()


def _is_parameter(source: Source, node: ast.expr) -> bool:
    """Whether a name is a parameter of a module, in a loop over them."""
    return isinstance(node, ast.Name) and bool(_whose(source, node)) and _whose(source, node) != node.id


def _is_attacked(source: Source, node: ast.expr) -> bool:
    """Whether a name is bound in a function, which runs a backward pass itself and neither gives back nor keeps what it names."""
    function = enclosing_function(source, node)
    if function is None or not isinstance(node, ast.Name):
        return False
    inside = [*walk(function)]
    same = [part for part in inside if isinstance(part, ast.Name) and part.id == node.id]
    is_local = any(isinstance(part.ctx, ast.Store) for part in same)
    runs_backward = any(isinstance(part, ast.Call) and last_name(part.func) == "backward" for part in inside)
    return (
        is_local
        and runs_backward
        and not any(isinstance(part.ctx, ast.Load) and _is_kept(source, part) for part in same)
    )


def _is_kept(source: Source, name: ast.Name) -> bool:
    """Whether what a name stands for is given back or put somewhere as it is: `return x`, `self.x = x`, `found.append(x)`."""
    place: ast.AST | None = source.parent(name)
    while isinstance(place, (ast.Tuple, ast.List, ast.Dict, ast.Starred, ast.keyword)):
        place = source.parent(place)
    is_given = isinstance(place, ast.Call) and last_name(place.func) in ("append", "add", "update", "insert", "extend")
    return is_given or isinstance(place, (ast.Return, ast.Yield, ast.YieldFrom, ast.Assign))


def _is_of_norms(source: Source, node: ast.AST) -> bool:
    """Whether a statement freezes parameters of normalization, or biases, by their names: `if "bn" in name`."""
    statement = source.statement(node)
    choice = source.parent(statement)
    if not isinstance(choice, ast.If) or not any(item is statement for item in choice.body):
        return False
    match choice.test:
        case ast.Compare(left=ast.Constant(value=str() as part), ops=[ast.In()]):
            return _OF_NORMS.fullmatch(part) is not None
    return False


def _is_read_from_file(source: Source, node: ast.expr) -> bool:
    """Whether a name is a tensor that torch makes of what it reads, in a program that reads files of a later torch."""
    made = resolve(source, node)
    return isinstance(made, ast.Call) and (source.qualified_name(made.func) or "").startswith("torch._utils.")


def may_be_frozen(source: Source, model: str) -> bool:
    """Whether all parameters of a model may be frozen: it, or what holds it; a part of it leaves the others.

    A model that a list or dict keeps may be any of those that the file freezes under another name.
    """
    frozen = _frozen_modules(source)
    if frozen is None:
        return not _is_trained(source, model)
    if frozen and "[" in model:
        return True
    last = model.rpartition(".")[2]
    if any(m == model or model.startswith(f"{m}.") or m.rpartition(".")[2] == last for m in frozen):
        return True
    return bool(frozen) and _is_one_of(source, model, frozen)


def _is_one_of(source: Source, model: str, frozen: frozenset[str]) -> bool:
    """Whether a model is given its name from a list or dict of those: `net = nets[0]`, `for net in nets`."""
    loops = (loop for loop in source.nodes(ast.For) if _models_in(loop.iter) & frozen)
    taken = (
        statement
        for statement in source.nodes(ast.Assign)
        if isinstance(statement.value, ast.Subscript) and f"{dotted_name(statement.value.value)}.[]" in frozen
    )
    targets = [*(loop.target for loop in loops), *(target for statement in taken for target in statement.targets)]
    return any(model_name(part) == model for target in targets for part in walk(target))


def _is_trained(source: Source, model: str) -> bool:
    """Whether an optimizer of torch's gets all parameters of a model, or of the object that keeps it, and steps."""
    if not any(map(updates_weights, source.calls(".step"))):
        return False
    owners = {model, "self"} if model.startswith("self.") else {model}
    return any(
        isinstance(call.func, ast.Attribute)
        and dotted_name(call.func.value) in owners
        and isinstance(outer := source.parent(call), ast.Call)
        and (source.qualified_name(outer.func) or "").startswith("torch.optim.")
        for call in source.calls(".parameters")
    )


def records_nothing(source: Source, definition: ast.ClassDef) -> bool:
    """Whether a class of models freezes all its parameters when it is built, or may leave gradients out where it is run."""
    for method in (item for item in definition.body if isinstance(item, FUNCTIONS)):
        if method.name.startswith("forward") and _leaves_gradients_out(source, method):
            return True
        for loop in (node for node in walk(method) if isinstance(node, ast.For) and method.name == "__init__"):
            if dotted_name(loop.iter.func if isinstance(loop.iter, ast.Call) else loop.iter) != "self.parameters":
                continue
            for store in (n for n in walk(loop) if isinstance(n, ast.Attribute) and n.attr == "requires_grad"):
                value = assigned_value(source, store)
                if value is not None and (is_false(source, value) or _is_false_by_default(method, value)):
                    return True
    return False


def differentiates(source: Source, definition: ast.ClassDef) -> bool:
    """Whether a class of models differentiates where it is run, as one that adapts to a few samples before it answers.

    A method that trains, beside `forward`, is no part of a run.
    """
    methods = {item.name: item for item in definition.body if isinstance(item, FUNCTIONS)}
    starts = [method for name, method in methods.items() if name.startswith("forward") or name == "__call__"]
    reached = [method for start in starts for method in methods_run(start, methods)]
    parts: list[ast.AST] = [*reached] or [definition]
    calls = [node for part in parts for node in walk(part) if isinstance(node, ast.Call)]
    return any(
        last_name(call.func) == "backward" or (source.qualified_name(call.func) or "").startswith(DIFFERENTIATES)
        for call in calls
    )


def methods_run(method: Function, methods: dict[str, Function]) -> list[Function]:
    """A method and those of its class that it runs on `self`, also by calling `self` itself."""
    pending, found = [method], [method]
    while pending:
        for call in (node for node in walk(pending.pop()) if isinstance(node, ast.Call)):
            name = "forward" if dotted_name(call.func) == "self" else last_name(call.func) if is_own(call.func) else ""
            called = methods.get(name)
            if called is not None and not any(called is known for known in found):
                pending.append(called)
                found.append(called)
    return found


def _leaves_gradients_out(source: Source, method: Function) -> bool:
    nodes = (node for node in walk(method) if isinstance(node, (ast.Name, ast.Attribute)))
    return any(source.qualified_name(node) in NO_GRAD | SET_GRAD for node in nodes)


def _is_false_by_default(method: Function, value: ast.expr) -> bool:
    names = [argument.arg for argument in method.args.args]
    if not isinstance(value, ast.Name) or value.id not in names:
        return False
    place = names.index(value.id) - len(names) + len(method.args.defaults)
    default = method.args.defaults[place] if place >= 0 else None
    return isinstance(default, ast.Constant) and default.value is False
