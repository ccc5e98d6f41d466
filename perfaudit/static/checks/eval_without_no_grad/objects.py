"""Objects that evaluate a model they keep: whether they may train as well, and whether they are models themselves."""

from __future__ import annotations

import ast

from perfaudit.expressions import regex
from perfaudit.static.checks.eval_without_no_grad.bases import derives_from
from perfaudit.static.checks.eval_without_no_grad.wanted_gradients import needs_gradients
from perfaudit.static.project.neighbours import Neighbours
from perfaudit.static.source import FUNCTIONS, Function, Source
from perfaudit.static.source.syntax import walk
from perfaudit.static.understanding.called_functions import called_function
from perfaudit.static.understanding.members import is_own
from perfaudit.static.understanding.names import dotted_name, last_name
from perfaudit.static.understanding.opaque import is_opaque, judges

_TRAINS = regex(r"backward|optim")


def may_train(source: Source, owner: ast.ClassDef, method: Function, model: str) -> bool:
    """Whether a class speaks of an optimizer or a backward pass, or one of its methods runs what may train.

    That is a method of the object which is not in sight, as one of a base class in another file; a function of this file that
    speaks of gradients, however many calls away; and where the object runs something beside the model, as a student, any
    function that is not in sight.
    """
    classes = _with_bases(source, owner)
    nodes = [node for definition in classes for node in walk(definition)]
    named = (node for node in nodes if isinstance(node, (ast.Name, ast.Attribute, ast.FunctionDef, ast.arg)))
    if any(_TRAINS.search(_name(node).lower()) for node in named):
        return True
    known = {item.name for definition in classes for item in definition.body if isinstance(item, FUNCTIONS)}
    kept = {n.attr for n in nodes if isinstance(n, ast.Attribute) and is_own(n) and isinstance(n.ctx, ast.Store)}
    pending, met = [method], {id(method)}
    runs_another = calls_unseen = False
    while pending:
        function = pending.pop()
        if needs_gradients(source, function, model):
            return True
        for call in (node for node in walk(function) if isinstance(node, ast.Call)):
            if isinstance(call.func, ast.Attribute):
                is_of_base = isinstance(call.func.value, ast.Call) and last_name(call.func.value.func) == "super"
                if is_of_base or (is_own(call.func) and call.func.attr not in known | kept):
                    return True
            if is_own(call.func) and last_name(call.func) in kept:
                runs_another = runs_another or (dotted_name(call.func) != model and not judges(call))
            else:
                calls_unseen = calls_unseen or (not _is_on_object(call.func) and is_opaque(source, call))
            further = called_function(source, call)
            if further is not None and id(further) not in met:
                met.add(id(further))
                pending.append(further)
    return runs_another and calls_unseen


def _is_on_object(func: ast.expr) -> bool:
    """Whether a call is of something that `self` keeps, `self.model.decode`."""
    return dotted_name(func).startswith("self.")


def is_module(source: Source, definition: ast.ClassDef, neighbours: Neighbours | None) -> bool:
    """Whether a class derives from a module of torch's or Lightning's, by its bases here and in other files of the project."""
    return derives_from(source, definition, neighbours, _is_module_of_library)


def _is_module_of_library(source: Source, base: ast.expr) -> bool:
    return (source.qualified_name(base) or "").startswith("torch.nn.") or last_name(base) == "LightningModule"


def _with_bases(source: Source, definition: ast.ClassDef) -> list[ast.ClassDef]:
    """A class and those of this file that it derives from."""
    found = [definition]
    for item in found:
        for base in item.bases:
            above = source.lookup(base) if isinstance(base, ast.Name) else []
            found += [d for d in above if isinstance(d, ast.ClassDef) and not any(d is other for other in found)]
    return found


def _name(node: ast.Name | ast.Attribute | ast.FunctionDef | ast.arg) -> str:
    if isinstance(node, ast.arg):
        return node.arg
    return node.name if isinstance(node, ast.FunctionDef) else last_name(node)
