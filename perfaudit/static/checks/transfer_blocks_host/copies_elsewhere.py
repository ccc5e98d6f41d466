"""Copies to a device in functions of other files that a training loop hands its batches to."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator

from perfaudit.records import NamedTuple
from perfaudit.static.checks.transfer_blocks_host.batch_parts import Part, batch_part
from perfaudit.static.source import FUNCTIONS, Function, Source
from perfaudit.static.understanding.elsewhere import Elsewhere, called_elsewhere
from perfaudit.static.understanding.same_memory import viewed_tensor, without_variable
from perfaudit.static.understanding.step_loops import step_loops
from perfaudit.static.understanding.values import assigned_value

_FOLLOW = 4  # names followed from a copy to the parameter
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


class HandedOn(NamedTuple):
    """A call in a training loop that hands a batch to a function of another file, and the copy that this one makes of it."""

    call: ast.Call
    part: Part
    there: Elsewhere
    copy: ast.Call


def copies_elsewhere(source: Source, goes: Callable[[Source, ast.Call], bool]) -> Iterator[HandedOn]:
    """Every call of a training loop whose function, of another file, copies what it is handed of the batch.

    goes: whether a call is a copy to an accelerator for which the host waits.
    """
    seen: set[int] = set()  # calls of loops in loops
    for step in step_loops(source):
        for call in (
            node for statement in step.loop.body for node in ast.walk(statement) if isinstance(node, ast.Call)
        ):
            if id(call) in seen:
                continue
            seen.add(id(call))
            handed = [value for value in (*call.args, *(k.value for k in call.keywords)) if isinstance(value, ast.Name)]
            parts = {id(value): part for value in handed if (part := batch_part(source, value)) is not None}
            there = called_elsewhere(source, call) if parts else None
            for name, value in there.named_arguments if there is not None else ():
                if id(value) not in parts or there is None:
                    continue
                copies = copies_of(there.source, there.function, name, goes)
                if copies:
                    yield HandedOn(call, parts[id(value)], there, copies[0])
                    break


def copies_of(
    source: Source, function: Function, parameter: str, goes: Callable[[Source, ast.Call], bool]
) -> list[ast.Call]:
    """The copies that a function makes of what it is handed by one of its parameters."""
    return [
        call
        for call in ast.walk(function)
        if isinstance(call, ast.Call)
        and isinstance(call.func, ast.Attribute)
        and goes(source, call)
        and _comes_from(source, call.func.value, function, parameter)
    ]


def _comes_from(source: Source, node: ast.expr, function: Function, parameter: str, depth: int = _FOLLOW) -> bool:
    """Whether an expression is a parameter of a function, or taken out of it as it is."""
    node = without_variable(source, node)
    while isinstance(node, ast.Subscript) or (isinstance(node, ast.Call) and viewed_tensor(source, node) is not None):
        viewed = node.value if isinstance(node, ast.Subscript) else viewed_tensor(source, node)
        node = without_variable(source, viewed) if viewed is not None else node
    if not isinstance(node, ast.Name) or not depth:
        return False
    over = _iterable_around(source, node)
    if over is not None:
        return _comes_from(source, over, function, parameter, depth - 1)
    bindings = source.lookup(node)
    first = min(bindings, key=lambda b: source.span(b).start) if bindings else None
    if isinstance(first, ast.arg):
        return first.arg == parameter and source.enclosing(first, *FUNCTIONS, ast.Lambda) is function
    value = assigned_value(source, first) if len(bindings) == 1 and first is not None else None
    return value is not None and _comes_from(source, value, function, parameter, depth - 1)


def _iterable_around(source: Source, name: ast.Name) -> ast.expr | None:
    """What a loop or a comprehension around a name goes through that binds it; of `d.items()` and `d.values()` the `d`."""
    for ancestor in source.ancestors(name):
        if isinstance(ancestor, _COMPREHENSIONS):
            turns = [(turn.target, turn.iter) for turn in ancestor.generators]
        elif isinstance(ancestor, ast.For):
            turns = [(ancestor.target, ancestor.iter)]
        else:
            if isinstance(ancestor, FUNCTIONS):
                return None
            continue
        for target, over in turns:
            if any(isinstance(n, ast.Name) and n.id == name.id for n in ast.walk(target)):
                match over:
                    case ast.Call(func=ast.Attribute(value=owner, attr="items" | "values"), args=[]):
                        return owner
                    case _:
                        return over
    return None
