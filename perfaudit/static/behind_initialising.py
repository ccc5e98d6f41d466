"""Where a named thing has its first values: behind `net.apply(init)`, `net.load_state_dict(...)` and loops of `nn.init`.

A statement that may draw or load values counts, whether or not it does: a line that comes a little late is as good.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from perfaudit.static.source import FUNCTIONS, Source

# Methods that change no value, and functions that do not either.
_READ = frozenset({
    "parameters", "named_parameters", "modules", "named_modules", "children", "named_children", "buffers", "named_buffers",
    "state_dict", "zero_grad", "register_forward_hook", "register_forward_pre_hook", "register_full_backward_hook",
})  # fmt: skip
_TELL = frozenset({"print", "info", "debug", "warning", "log", "summary", "add_graph", "watch", "len"})
_HANDED_ON = ("parameters", "named_parameters")
_COUNTS = frozenset({"sum", "len", "print"})
_DRAWS = ("init", "reset", "apply", "weight")  # in the name of what gives parameters other values


def last_initialising(source: Source, place: ast.stmt, name: str, before_line: int | None) -> ast.stmt:
    """The last statement of the block behind this one that may give the named thing its first values; `place` without one.

    name: "model" or "self.model". before_line: behind which nothing is looked at. Behind the statement that hands its parameters
    on, as to an optimizer, only what is called an initialiser counts: what is loaded there is loaded into it as it lies.
    """
    found, is_handed_on = place, False
    for statement in _behind(source, place):
        if before_line is not None and (statement.end_lineno or statement.lineno) >= before_line:
            break
        if _initialises(statement, name, draws_only=is_handed_on):
            found = statement
        is_handed_on = is_handed_on or _hands_on(statement, name)
    return found


def _behind(source: Source, place: ast.stmt) -> list[ast.stmt]:
    block = source.block(place)
    at = next(n for n, statement in enumerate(block) if statement is place)
    return list(block[at + 1 :])


def _initialises(statement: ast.stmt, name: str, draws_only: bool) -> bool:
    if isinstance(statement, (*FUNCTIONS, ast.ClassDef)):
        return False
    if isinstance(statement, (ast.For, ast.AsyncFor)) and _mentions(statement.iter, name):
        return not draws_only or _draws(statement)
    if isinstance(statement, (ast.Assign, ast.AugAssign, ast.AnnAssign)):
        targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
        return not draws_only and any(_is_part(target, name) for target in targets)
    if isinstance(statement, ast.Expr):
        return isinstance(statement.value, ast.Call) and _changes(statement.value, name, draws_only)
    return any(_initialises(each, name, draws_only) for each in _inside(statement))


def _inside(statement: ast.stmt) -> Iterator[ast.stmt]:
    """The statements of its blocks."""
    for child in ast.iter_child_nodes(statement):
        if isinstance(child, ast.stmt):
            yield child
        elif isinstance(child, (ast.ExceptHandler, ast.match_case)):
            yield from child.body


def _changes(call: ast.Call, name: str, draws_only: bool) -> bool:
    """Whether a call by itself may change the thing: a method of it or of a part, or a function that is given it."""
    word = _word(call.func)
    if draws_only and not any(each in word.lower() for each in _DRAWS):
        return False
    if isinstance(call.func, ast.Attribute) and _mentions(call.func.value, name):
        return word not in _READ
    given = [*call.args, *(keyword.value for keyword in call.keywords)]
    return word not in _TELL and any(_mentions(each, name) for each in given)


def _draws(statement: ast.stmt) -> bool:
    calls = (node for node in ast.walk(statement) if isinstance(node, ast.Call))
    return any(any(each in _word(call.func).lower() for each in _DRAWS) for call in calls)


def _hands_on(statement: ast.stmt, name: str) -> bool:
    """Whether a statement keeps what it makes of the thing's parameters: an optimizer, a list of groups."""
    if not isinstance(statement, (ast.Assign, ast.AnnAssign)) or statement.value is None:
        return False
    calls = [node for node in ast.walk(statement.value) if isinstance(node, ast.Call)]
    if any(_word(call.func) in _COUNTS for call in calls):
        return False
    return any(_word(call.func) in _HANDED_ON and _mentions(call.func, name) for call in calls)


def _word(function: ast.expr) -> str:
    """The last word of what is called: "apply" of `net.body.apply`."""
    if isinstance(function, ast.Attribute):
        return function.attr
    return function.id if isinstance(function, ast.Name) else ""


def _is_part(target: ast.expr, name: str) -> bool:
    """Whether something of the thing is assigned: `net.fc`, `net.layers[3]`; not the name itself."""
    if isinstance(target, (ast.Tuple, ast.List)):
        return any(_is_part(each, name) for each in target.elts)
    return isinstance(target, (ast.Attribute, ast.Subscript)) and _mentions(target.value, name)


def _mentions(node: ast.expr, name: str) -> bool:
    return any(isinstance(each, (ast.Name, ast.Attribute)) and ast.unparse(each) == name for each in ast.walk(node))
