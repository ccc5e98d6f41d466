"""Where a number that a call is given is set: as a literal there, a constant, a field's default, the default of an argument, or
an entry of a dict.

It may be in another file than the call, where only one place of all files could be meant. What the text does not settle is None.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from pathlib import PurePosixPath

from perfaudit.records import record
from perfaudit.static.source import FUNCTIONS, LOOPS, Function, Source

_MOST = 6  # names followed from one to the next


@record(frozen=True, slots=True)
class WhereSet:
    """The literal that is the number, None for an argument without a default, and the file that has it.

    options: names under which the command line gives another one, () for none.
    """

    literal: ast.Constant | None
    source: Source
    options: tuple[str, ...] = ()


def where_set(source: Source, value: ast.expr, others: Sequence[Source] = ()) -> WhereSet | None:
    """Where the number that an expression stands for is set, in this file or one of the others of the program."""
    for _ in range(_MOST):
        if isinstance(value, ast.Constant):
            return WhereSet(value, source) if type(value.value) is int else None
        if isinstance(value, ast.Attribute):
            own = _of_argument(source, value.attr) or _of_field(source, value.attr)
            return own or _only(_of_name(each, value.attr) for each in others)
        if isinstance(value, ast.Subscript):
            return _of_key(value.slice, [source, *others])
        if not isinstance(value, ast.Name):
            return None
        if imported := _imported_name(source, value):
            return _only(_of_constant(each, imported) for each in others)
        following = _bound_value(source, value, others)
        if following is None:
            return None
        source, value = following
    return None


def _only(found: Iterator[WhereSet | None]) -> WhereSet | None:
    places = [place for place in found if place is not None]
    return places[0] if len(places) == 1 else None


def _of_name(source: Source, name: str) -> WhereSet | None:
    return _of_argument(source, name) or _of_field(source, name) or _of_constant(source, name)


def _imported_name(source: Source, name: ast.Name) -> str:
    """What a name is called where it is imported from, "" where no import binds it."""
    target = source.aliases.get(name.id, "")
    is_import = all(isinstance(node, (ast.alias, ast.Import, ast.ImportFrom)) for node in source.lookup(name))
    return target.rpartition(".")[2] if is_import and "." in target else ""


def _of_constant(source: Source, name: str) -> WhereSet | None:
    """The number that the only binding of a name at the top of a file gives it."""
    bound = source.bound_in(source.tree).get(name, [])
    parent = source.parent(bound[0]) if len(bound) == 1 else None
    is_plain = isinstance(parent, ast.Assign) and parent.targets == bound
    value = parent.value if isinstance(parent, ast.Assign) and is_plain else None
    if isinstance(parent, ast.AnnAssign):
        value = parent.value
    is_number = isinstance(value, ast.Constant) and type(value.value) is int
    return WhereSet(value, source) if is_number and isinstance(value, ast.Constant) else None


def _of_key(key: ast.expr, sources: Sequence[Source]) -> WhereSet | None:
    """The number of the only entry with this key of a dict that is written in one of these files and not set otherwise."""
    if not isinstance(key, ast.Constant) or not isinstance(key.value, str):
        return None
    found: list[WhereSet | None] = []
    for source in sources:
        for table in source.nodes(ast.Dict):
            for name, value in zip(table.keys, table.values, strict=True):
                if isinstance(name, ast.Constant) and name.value == key.value:
                    found.append(WhereSet(value, source) if isinstance(value, ast.Constant) else None)
        for call in source.nodes(ast.Call):
            if isinstance(call.func, ast.Name) and call.func.id == "dict":
                given = [keyword.value for keyword in call.keywords if keyword.arg == key.value]
                found += [WhereSet(value, source) if isinstance(value, ast.Constant) else None for value in given]
        for place in source.nodes(ast.Subscript):
            is_same = isinstance(place.slice, ast.Constant) and place.slice.value == key.value
            if is_same and not isinstance(place.ctx, ast.Load):
                return None
    only = found[0] if len(found) == 1 else None
    is_number = only is not None and only.literal is not None and type(only.literal.value) is int
    return only if is_number else None


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


def _bound_value(source: Source, name: ast.Name, others: Sequence[Source]) -> tuple[Source, ast.expr] | None:
    """What the only binding of a name gives it: an assignment, or the only call of the function whose parameter it is."""
    bound = source.lookup(name)
    if len(bound) != 1:
        return None
    parent = source.parent(bound[0])
    if isinstance(bound[0], ast.arg):
        return _of_parameter(source, bound[0], others)
    is_plain = isinstance(parent, ast.Assign) and len(parent.targets) == 1 and parent.targets[0] is bound[0]
    if isinstance(parent, (ast.Assign, ast.AnnAssign)) and (is_plain or isinstance(parent, ast.AnnAssign)):
        return (source, parent.value) if parent.value is not None and source.enclosing(parent, *LOOPS) is None else None
    return None


def _of_parameter(source: Source, parameter: ast.arg, others: Sequence[Source]) -> tuple[Source, ast.expr] | None:
    function = source.scope(parameter)
    if not isinstance(function, FUNCTIONS) or parameter in (function.args.vararg, function.args.kwarg):
        return None
    calls = [
        (each, call)
        for each in (source, *others)
        for call in each.nodes(ast.Call)
        if _calls(each, call, source, function)
    ]
    if len(calls) != 1 or any(keyword.arg is None for keyword in calls[0][1].keywords):
        return None
    caller, call = calls[0]
    named = [keyword.value for keyword in call.keywords if keyword.arg == parameter.arg]
    if named:
        return caller, named[0]
    positional = [*function.args.posonlyargs, *function.args.args]
    if isinstance(calls[0][1].func, ast.Attribute) and _is_method(source, function):
        positional = positional[1:]
    at = next((n for n, each in enumerate(positional) if each is parameter), -1)
    if any(isinstance(value, ast.Starred) for value in call.args):
        return None
    if 0 <= at < len(call.args):
        return caller, call.args[at]
    defaults = dict(zip(map(id, reversed(positional)), reversed(function.args.defaults), strict=False))
    alone = zip(map(id, function.args.kwonlyargs), function.args.kw_defaults, strict=True)
    default = {**defaults, **dict(alone)}.get(id(parameter))
    return (source, default) if default is not None else None


def _calls(caller: Source, call: ast.Call, source: Source, function: Function) -> bool:
    """Whether a call is of this function of a file: by its name, as that of the file's module, or of `self` for a method."""
    func = call.func
    if isinstance(func, ast.Name):
        return func.id == function.name
    if not isinstance(func, ast.Attribute) or func.attr != function.name:
        return False
    if _is_method(source, function):
        return isinstance(func.value, ast.Name) and func.value.id == "self"
    return (caller.qualified_name(func.value) or "").rpartition(".")[2] == PurePosixPath(source.path).stem


def _is_method(source: Source, function: Function) -> bool:
    return isinstance(source.parent(function), ast.ClassDef)


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
    return WhereSet(default if is_number and isinstance(default, ast.Constant) else None, source, options)


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
    return WhereSet(literal, source) if is_number and isinstance(literal, ast.Constant) else None
