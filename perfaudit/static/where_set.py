"""Where a number that a call is given is set: as a literal there, a constant, a field's default, or the default of an argument.

What the text does not settle is None.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass

from perfaudit.static.source import FUNCTIONS, LOOPS, Source

_MOST = 6  # names followed from one to the next


@dataclass(frozen=True, slots=True)
class WhereSet:
    """The literal that is the number, None for an argument without a default.

    options: names under which the command line gives another one, () for none.
    """

    literal: ast.Constant | None
    options: tuple[str, ...] = ()


def where_set(source: Source, value: ast.expr) -> WhereSet | None:
    """Where the number that an expression stands for is set in this file."""
    for _ in range(_MOST):
        if isinstance(value, ast.Constant):
            return WhereSet(value) if type(value.value) is int else None
        if isinstance(value, ast.Attribute):
            return _of_argument(source, value.attr) or _of_field(source, value.attr)
        following = _given(source, value) if isinstance(value, ast.Name) else None
        if following is None:
            return None
        value = following
    return None


def given_as(options: Sequence[str], arguments: Sequence[str]) -> str:
    """Under which of its names an argument stands on a command line, "" where it does not."""
    for argument in arguments:
        word = argument.partition("=")[0]
        for option in options:
            is_short = len(option) == 2 and argument.startswith(option)  # `-b64`
            is_prefix = len(word) > 3 and word.startswith("--") and option.startswith(word)  # argparse takes beginnings
            if word == option or is_short or is_prefix:
                return option
    return ""


def _given(source: Source, name: ast.Name) -> ast.expr | None:
    """What the only binding of a name gives it: an assignment, or the only call of the function whose parameter it is."""
    bound = source.lookup(name)
    if len(bound) != 1:
        return None
    parent = source.parent(bound[0])
    if isinstance(bound[0], ast.arg):
        return _of_parameter(source, bound[0])
    is_plain = isinstance(parent, ast.Assign) and len(parent.targets) == 1 and parent.targets[0] is bound[0]
    if isinstance(parent, (ast.Assign, ast.AnnAssign)) and (is_plain or isinstance(parent, ast.AnnAssign)):
        return parent.value if source.enclosing(parent, *LOOPS) is None else None
    return None


def _of_parameter(source: Source, parameter: ast.arg) -> ast.expr | None:
    function = source.scope(parameter)
    if not isinstance(function, FUNCTIONS) or parameter in (function.args.vararg, function.args.kwarg):
        return None
    calls = [
        call for call in source.nodes(ast.Call) if isinstance(call.func, ast.Name) and call.func.id == function.name
    ]
    if len(calls) != 1 or any(keyword.arg is None for keyword in calls[0].keywords):
        return None
    named = [keyword.value for keyword in calls[0].keywords if keyword.arg == parameter.arg]
    if named:
        return named[0]
    positional = [*function.args.posonlyargs, *function.args.args]
    at = next((n for n, each in enumerate(positional) if each is parameter), -1)
    if any(isinstance(value, ast.Starred) for value in calls[0].args):
        return None
    if 0 <= at < len(calls[0].args):
        return calls[0].args[at]
    defaults = dict(zip(map(id, reversed(positional)), reversed(function.args.defaults), strict=False))
    alone = zip(map(id, function.args.kwonlyargs), function.args.kw_defaults, strict=True)
    return {**defaults, **dict(alone)}.get(id(parameter))


def _of_argument(source: Source, attribute: str) -> WhereSet | None:
    """The default of the only argument of the command line that is kept under this name (`parser.add_argument`)."""
    found = []
    for call in source.calls(".add_argument"):
        words = [word.value for word in call.args if isinstance(word, ast.Constant) and isinstance(word.value, str)]
        options = tuple(word for word in words if word.startswith("-"))
        named = {keyword.arg: keyword.value for keyword in call.keywords if keyword.arg is not None}
        kept = named.get("dest")
        long = next((word for word in options if word.startswith("--")), options[0] if options else "")
        name = kept.value if isinstance(kept, ast.Constant) else long.lstrip("-").replace("-", "_")
        if name == attribute:
            found.append((options, named.get("default")))
    if len(found) != 1:
        return None
    options, default = found[0]
    is_number = isinstance(default, ast.Constant) and type(default.value) is int
    return WhereSet(default if is_number and isinstance(default, ast.Constant) else None, options)


def _of_field(source: Source, attribute: str) -> WhereSet | None:
    """The value that the only class with an attribute of this name gives it (`batch_size: int = 64`)."""
    found = []
    for definition in source.nodes(ast.ClassDef):
        for statement in definition.body:
            if isinstance(statement, ast.AnnAssign):
                target: ast.expr | None = statement.target
            else:
                is_plain = isinstance(statement, ast.Assign) and len(statement.targets) == 1
                target = statement.targets[0] if is_plain and isinstance(statement, ast.Assign) else None
            if isinstance(target, ast.Name) and target.id == attribute:
                assert isinstance(statement, (ast.Assign, ast.AnnAssign))
                found.append(statement.value)
    literal = found[0] if len(found) == 1 else None
    is_number = isinstance(literal, ast.Constant) and type(literal.value) is int
    return WhereSet(literal) if is_number and isinstance(literal, ast.Constant) else None
