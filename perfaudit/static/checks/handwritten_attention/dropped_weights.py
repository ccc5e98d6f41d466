"""Weights that an attention returns beside its result, where every call in sight drops them: `x, _ = self.attend(q, k, v)`."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from perfaudit.expressions import regex
from perfaudit.static.checks.handwritten_attention.attention_values import Chain
from perfaudit.static.source import FUNCTIONS, Function, Source
from perfaudit.static.understanding.called_functions import called_function
from perfaudit.static.understanding.calls_by_name import calls_in_importers, calls_in_sight
from perfaudit.static.understanding.members import is_own
from perfaudit.static.understanding.names import last_name
from perfaudit.static.understanding.values import constant

_RUNS = {"forward", "__call__"}  # what calling an object runs
_HOOKS = regex(r"\.register_(module_)?forward_hook\b")  # a hook sees what callers drop
_MAX_CALLS = 64  # of one name: with more, it says little

Place = tuple[int, int]  # where the weights stand in the tuple that is returned, and how long that is
Call = tuple[Source, ast.Call]  # with its file


def are_dropped(source: Source, chain: Chain) -> bool:
    """Whether nothing in sight reads the weights that the function of a chain returns, and something in sight calls it.

    Not in a part of a project, and not where a hook may see what layers return.
    """
    neighbours = source.neighbours
    if neighbours is not None and not neighbours.answer("lies in a whole project"):
        return False
    if _has_hooks(source) or (neighbours is not None and neighbours.some_file("hook", _has_hooks)):
        return False
    calls = _calls(source, chain.function)
    return bool(calls) and all(_drops(there, call, place) for there, call in calls for place in chain.returned_at)


def _has_hooks(source: Source) -> bool:
    return _HOOKS.search(source.text) is not None


def _calls(source: Source, function: Function) -> list[Call]:
    """Every call of a function or method in this file and in those that import it; none where one may be out of sight."""
    owner = source.parent(function)
    if isinstance(owner, ast.ClassDef) and function.name in _RUNS:
        return _calls_of_objects(source, owner)
    if not isinstance(owner, (ast.ClassDef, ast.Module)):
        return []
    known = calls_in_sight(source, function.name)
    is_method = isinstance(owner, ast.ClassDef)
    if len(known) > _MAX_CALLS or any(_names_more_than(there, function.name, known) for there in _files(source, known)):
        return []
    if is_method:
        return [(there, call) for there, call in known if isinstance(call.func, ast.Attribute)]
    return [(there, call) for there, call in known if there is not source or called_function(source, call) is function]


def _calls_of_objects(source: Source, owner: ast.ClassDef) -> list[Call]:
    """The calls of objects of a class that other classes keep under a name, `self.attend(q, k, v)`."""
    builders = calls_in_sight(source, owner.name)
    files = _files(source, builders)
    if len(builders) > _MAX_CALLS or any(_names_more_than(there, owner.name, builders) for there in files):
        return []
    found: list[Call] = []
    for there, made in builders:
        statement = there.parent(made)
        target = statement.targets[0] if isinstance(statement, ast.Assign) and len(statement.targets) == 1 else None
        keeper = there.enclosing(made, ast.ClassDef)
        if not isinstance(target, ast.Attribute) or not is_own(target) or keeper is None:
            return []
        uses = [node for node in there.nodes(ast.Attribute) if node.attr == target.attr and node is not target]
        own = [use for use in uses if not is_own(use) or there.enclosing(use, ast.ClassDef) is keeper]
        calls = [parent for use in own if isinstance(parent := there.parent(use), ast.Call) and parent.func is use]
        others = [use for use in own if isinstance(use.ctx, ast.Store) or not _is_called_or_asked(there, use)]
        if not calls or others:
            return []
        found += [(there, call) for call in calls]
        found += [each for each in calls_in_importers(source, target.attr) if _is_of_another_object(each[1])]
    return found


def _is_of_another_object(call: ast.Call) -> bool:
    """Whether a call asks another object for what it calls: `net.attend(q, k, v)`."""
    return isinstance(call.func, ast.Attribute) and not is_own(call.func)


def _is_called_or_asked(source: Source, use: ast.Attribute) -> bool:
    """Whether an object is called, or asked for what it keeps: `self.attend.scale`."""
    parent = source.parent(use)
    return isinstance(parent, ast.Attribute) or (isinstance(parent, ast.Call) and parent.func is use)


def _files(source: Source, calls: list[Call]) -> Iterator[Source]:
    """This file, and the others that have one of these calls, each once."""
    yield from {id(there): there for there in (source, *(there for there, _ in calls))}.values()


def _names_more_than(source: Source, name: str, calls: list[Call]) -> bool:
    """Whether a file names a function or class otherwise than to call it: as a base class, or to hand it on."""
    called = {id(call.func) for there, call in calls if there is source}
    read = [n for n in source.nodes(ast.Name) if n.id == name and isinstance(n.ctx, ast.Load)]
    asked = [n for n in source.nodes(ast.Attribute) if n.attr == name and isinstance(n.ctx, ast.Load)]
    return any(id(node) not in called for node in (*read, *asked))


def _drops(source: Source, call: ast.Call, place: Place) -> bool:
    """Whether a call keeps other things than the weights: `[0]`, or unpacks them into a name that nothing reads."""
    index, length = place
    parent = source.parent(call)
    if isinstance(parent, ast.Subscript):
        taken = constant(source, parent.slice)
        return isinstance(parent.ctx, ast.Load) and isinstance(taken, int) and taken % length != index
    if not isinstance(parent, ast.Assign) or len(parent.targets) != 1 or source.enclosing(call, *FUNCTIONS) is None:
        return False
    target = parent.targets[0]
    if not isinstance(target, (ast.Tuple, ast.List)) or len(target.elts) != length:
        return False
    weights = target.elts[index]
    if not isinstance(weights, ast.Name) or sum(last_name(item) == weights.id for item in target.elts) > 1:
        return False
    return not source.uses_of(weights, weights.id)
