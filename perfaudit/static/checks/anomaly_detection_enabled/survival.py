"""Whether a program may live from an error that its training step raises: it is caught, here or where nobody can see."""

from __future__ import annotations

import ast
import builtins
import re
from collections.abc import Iterator

from perfaudit.expressions import regex
from perfaudit.static.source import Function, Source
from perfaudit.static.understanding.backward import backward_calls
from perfaudit.static.understanding.called_functions import called_function, callers
from perfaudit.static.understanding.opaque import is_familiar
from perfaudit.static.understanding.values import enclosing_function

_SWALLOWS = regex(
    r"suppress|ignor|skip|catch|raises|guard|handl|tolerat|retry|retries|protect|safe|recover", re.IGNORECASE
)
_NO_TRAINING = regex(
    r"^_*(load|save|read|write|open|close|download|remove|make|mkdir|parse|get|import|log|init)(_|$)|_(init|dir|log)$"
)


def catches_step(source: Source) -> bool:
    """Whether a backward pass itself stands in a `try`, or a `suppress`, that catches a RuntimeError."""
    passes = {id(call) for call in backward_calls(source)}
    return any(id(node) in passes for guarded in _guarded_blocks(source) for node in guarded)


def may_survive_error(source: Source) -> bool:
    """Whether a RuntimeError of the training step may be caught somewhere, as far as can be told.

    True as well where the step of this file is called by code that is not in it, and where a call here may be to a step that
    is in another file.
    """
    training = _training(source)
    if not backward_calls(source):
        return any(_may_train(source, call, training) for call in source.nodes(ast.Call))
    for function in training.values():
        if any(_SWALLOWS.search(ast.unparse(decorator)) for decorator in function.decorator_list):
            return True
        is_called = source.neighbours is not None and source.neighbours.is_called_by_importers(function.name)
        if is_called or not _is_called_plainly(source, function):
            return True
    return any(_may_train(source, node, training) for guarded in _guarded_blocks(source) for node in guarded)


def catches_calls(source: Source) -> bool:
    """Whether any call that may train stands in a `try`, or a `suppress`, that catches a RuntimeError."""
    return any(_may_train(source, node, {}) for guarded in _guarded_blocks(source) for node in guarded)


def _training(source: Source) -> dict[int, Function]:
    """The functions of the file that reach a backward pass, by id."""
    found: dict[int, Function] = {}
    pending = [function for call in backward_calls(source) if (function := enclosing_function(source, call))]
    while pending:
        function = pending.pop()
        if id(function) in found:
            continue
        found[id(function)] = function
        pending += [f for call in callers(source, function) if (f := enclosing_function(source, call))]
        if outer := enclosing_function(source, function):  # a closure that the function around hands on
            pending.append(outer)
    return found


def _is_called_plainly(source: Source, function: Function) -> bool:
    """Whether a function of this file is called, and is nowhere handed on: `run(step)`, `safely(step)(x)`."""
    calls = callers(source, function)
    called = {id(call.func) for call in calls}
    uses = source.uses_of(function, function.name)
    optimizers = {id(argument) for call in source.calls(".step") for argument in call.args}  # `optimizer.step(closure)`
    handed_on = [use for use in uses if id(use) not in called and id(use) not in optimizers]
    return bool(calls) and not handed_on


def _guarded_blocks(source: Source) -> Iterator[list[ast.AST]]:
    """The nodes of each block from which a RuntimeError does not get out as it is."""
    tries: list[ast.stmt] = [*source.nodes(ast.Try), *source.nodes(ast.TryStar)]
    for statement in tries:
        handlers: list[ast.ExceptHandler] = getattr(statement, "handlers", [])
        if any(_catches(source, handler.type) for handler in handlers) or _leaves_in_finally(statement):
            yield [node for part in getattr(statement, "body", []) for node in ast.walk(part)]
    blocks: list[ast.With | ast.AsyncWith] = [*source.nodes(ast.With), *source.nodes(ast.AsyncWith)]
    for block in blocks:
        if any(_swallows(item.context_expr) for item in block.items):
            yield [node for part in block.body for node in ast.walk(part)]


def _catches(source: Source, kind: ast.expr | None) -> bool:
    """Whether a handler of this type may catch a RuntimeError; only builtins are known not to."""
    if kind is None:
        return True
    if isinstance(kind, ast.Tuple):
        return any(_catches(source, element) for element in kind.elts)
    if (source.qualified_name(kind) or "").endswith(
        ("OutOfMemoryError", "queue.Empty", "subprocess.CalledProcessError")
    ):
        return False
    known = getattr(builtins, kind.id, None) if isinstance(kind, ast.Name) and not source.lookup(kind) else None
    return not (isinstance(known, type) and issubclass(known, BaseException) and not issubclass(RuntimeError, known))


def _leaves_in_finally(statement: ast.AST) -> bool:
    nodes = (node for part in getattr(statement, "finalbody", []) for node in ast.walk(part))
    return any(isinstance(node, (ast.Return, ast.Break, ast.Continue)) for node in nodes)


def _swallows(context: ast.expr) -> bool:
    return bool(_SWALLOWS.search(ast.unparse(context.func if isinstance(context, ast.Call) else context)))


def _may_train(source: Source, node: ast.AST, training: dict[int, Function]) -> bool:
    """Whether a node runs a backward pass, or a function that does, or one that nobody can see."""
    if not isinstance(node, ast.Call):
        return False
    if any(node is call for call in backward_calls(source)):
        return True
    function = called_function(source, node)
    if function is not None:
        return id(function) in training
    name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
    if name[:1].isupper() or name.startswith("__") or name == "super":  # an object is made, which trains nothing
        return False
    return not is_familiar(source, node) and not _NO_TRAINING.search(name)
