"""Models that a list or dict keeps: whether all that is put into it is in sight, and of which classes it is."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterator, Sequence

from perfaudit.static.source import FUNCTIONS, Source
from perfaudit.static.source.syntax import walk
from perfaudit.static.understanding.called_functions import called_function, callers
from perfaudit.static.understanding.elsewhere import class_of
from perfaudit.static.understanding.losses import arguments_of
from perfaudit.static.understanding.names import dotted_name, last_name
from perfaudit.static.understanding.opaque import is_library, is_opaque, made_of
from perfaudit.static.understanding.values import assigned_value

_CALLS = 3  # functions through which a list is followed, to those that hand it over and that get it
_ADDS = {"append", "insert", "extend", "update", "setdefault"}
_LEAVES_AS_IT_IS = {"values", "items", "keys", "get", "eval", "train", "to", "cuda", "parameters", "state_dict"}


def list_of(model: ast.AST) -> ast.expr | None:
    """The list or dict that keeps a model: `nets` of `nets[0].module` and of `nets["a"][0]`; None of any other expression."""
    found: ast.expr | None = None
    while isinstance(model, (ast.Subscript, ast.Attribute)):
        if isinstance(model, ast.Subscript):
            found = model.value
        model = model.value
    return found


def may_be_made_elsewhere(source: Source, model: ast.expr) -> bool:
    """Whether a list or dict keeps a model that code of another file may make: by something that is, or may be, put into it."""
    held = list_of(model) or _list_gone_through(source, model)
    return held is not None and _may_hold_other(source, held, _CALLS)


def _list_gone_through(source: Source, model: ast.expr) -> ast.expr | None:
    """`nets` where a model is `net` of `for net in nets` or of `for net in nets.values()`."""
    bound = source.lookup(model) if isinstance(model, ast.Name) else []
    loop = source.parent(bound[0]) if len(bound) == 1 else None
    if not isinstance(loop, ast.For) or loop.target is not bound[0]:
        return None
    through = loop.iter
    if isinstance(through, ast.Call) and isinstance(through.func, ast.Attribute) and through.func.attr == "values":
        through = through.func.value
    return through if dotted_name(through) else None


def classes_kept(source: Source, model: ast.expr) -> Iterator[tuple[Source, ast.ClassDef]]:
    """The classes, of this file or others, that what is put into the list or dict of a model is seen to be of."""
    held = list_of(model)
    for value in _put_into(source, held) if held is not None else ():
        for part in _elements(value):
            found = class_of(source, part)
            if found is not None and isinstance(found[1], ast.ClassDef):
                yield found[0], found[1]


def _may_hold_other(source: Source, held: ast.expr, calls: int) -> bool:
    if not dotted_name(held):
        return True
    bound, uses = _mentions(source, held)
    given = [binding for binding in bound if isinstance(binding, ast.arg)]
    values = [assigned_value(source, binding) for binding in bound if not isinstance(binding, ast.arg)]
    if not bound or None in values or any(_may_grow(source, use, calls) for use in uses):
        return True
    others = [value for value in values if value is not None and dotted_name(value)]  # other names of the same list
    if any(not calls or _may_hold_other(source, other, calls - 1) for other in others):
        return True
    made = (call for value in _put_into(source, held) for call in _calls_behind(source, value))
    return any(_is_foreign(source, call) for call in made) or any(
        _may_hold_other_when_called(source, parameter, calls) for parameter in given
    )


def _mentions(source: Source, held: ast.expr) -> tuple[Sequence[ast.AST], Sequence[ast.expr]]:
    """What binds a list or dict, and where it is read."""
    if isinstance(held, ast.Name):
        bound = source.lookup(held)
        return bound, [use for binding in bound[:1] for use in source.uses_of(binding, held.id)]
    name = dotted_name(held)
    own = [node for node in source.nodes(ast.Attribute) if node.attr == name.rpartition(".")[2]]
    bound = [node for node in own if not isinstance(node.ctx, ast.Load) and dotted_name(node) == name]
    return bound, [node for node in own if isinstance(node.ctx, ast.Load)]  # also of the object under another name


def _may_hold_other_when_called(source: Source, parameter: ast.arg, calls: int) -> bool:
    """Whether a call in this file hands such a list to a function; of a constructor the calls are not looked for."""
    function = source.enclosing(parameter, *FUNCTIONS)
    if not isinstance(function, FUNCTIONS) or function.name == "__init__":
        return True
    handed = (dict(arguments_of(call, function)).get(parameter.arg) for call in callers(source, function))
    for value in (value for value in handed if value is not None):
        if dotted_name(value):
            if not calls or _may_hold_other(source, value, calls - 1):
                return True
        elif any(_is_foreign(source, call) for call in _calls_behind(source, value)):
            return True
    return False


def _may_grow(source: Source, use: ast.expr, calls: int) -> bool:
    """Whether a list or dict may get another element where it is used, beside by `nets[key] = net`; unclear uses may do so."""
    parent = source.parent(use)
    match parent:
        case ast.Subscript() if parent.value is use:
            around = source.parent(parent)
            is_unclear = isinstance(parent.ctx, ast.Store) and assigned_value(source, parent) is None
            is_put_in = isinstance(around, ast.Subscript) and not isinstance(around.ctx, ast.Load)
            is_put_in = is_put_in or (isinstance(around, ast.Attribute) and around.attr in _ADDS)
            return is_unclear or is_put_in  # to a list in it
        case ast.Attribute():
            return parent.attr not in _LEAVES_AS_IT_IS
        case ast.For() | ast.comprehension() | ast.Compare() | ast.BoolOp() | ast.UnaryOp() | ast.If() | ast.Starred():
            return False
        case ast.Call() | ast.keyword():
            call = parent if isinstance(parent, ast.Call) else source.parent(parent)
            return not isinstance(call, ast.Call) or _may_be_grown_by(source, call, use, calls)
    return True


def _may_be_grown_by(source: Source, call: ast.Call, use: ast.expr, calls: int) -> bool:
    """Whether what a call runs may put something into a list that it is handed."""
    function = called_function(source, call)
    if function is None:
        func = call.func
        if not isinstance(func, ast.Name) or source.lookup(func) or func.id in source.aliases:
            return True
        return not hasattr(builtins, func.id)
    names = {name for name, value in arguments_of(call, function) if value is use}
    if not names or not calls:
        return True
    reads = (node for node in walk(function) if isinstance(node, ast.Name) and node.id in names)
    return any(not isinstance(n.ctx, ast.Load) or _may_grow(source, n, calls - 1) for n in reads)


def _put_into(source: Source, held: ast.expr) -> list[ast.expr]:
    """What a list or dict is made of, and what is put into it by its name anywhere in the file."""
    name = dotted_name(held)
    stores = (n for n in source.nodes(ast.Subscript) if isinstance(n.ctx, ast.Store) and dotted_name(n.value) == name)
    put = [value for store in stores if (value := assigned_value(source, store)) is not None]
    adds = (call for method in _ADDS for call in source.calls(f".{method}"))
    added = [c for c in adds if isinstance(c.func, ast.Attribute) and dotted_name(c.func.value) == name]
    return [
        *put,
        *made_of(source, held),
        *(value for c in added for value in (*c.args, *(k.value for k in c.keywords))),
    ]


def _elements(value: ast.expr) -> list[ast.expr]:
    """The models in what is put into a list: the value itself, or those of `[a, b]`, `{"a": a}`, `ModuleList([a, b])`."""
    match value:
        case ast.List() | ast.Tuple():
            return [part for element in value.elts for part in _elements(element)]
        case ast.Dict():
            return [part for element in value.values for part in _elements(element)]
        case ast.ListComp():
            return [value.elt]
        case ast.DictComp():
            return [value.value]
        case ast.Call() if last_name(value.func) in ("list", "dict", "ModuleList", "ModuleDict"):
            given = [*value.args, *(keyword.value for keyword in value.keywords)]
            return [part for element in given for part in _elements(element)]
    return [value]


def _calls_behind(source: Source, value: ast.expr) -> Iterator[ast.Call]:
    """The calls in a value, in what its names are made of, and in functions of this file that it calls."""
    named = (node for node in walk(value) if isinstance(node, (ast.Name, ast.Attribute)))
    for part in (value, *(made for node in named for made in made_of(source, node))):
        for call in (node for node in walk(part) if isinstance(node, ast.Call)):
            yield call
            if (function := called_function(source, call)) is not None:
                yield from (node for node in walk(function) if isinstance(node, ast.Call))


def _is_foreign(source: Source, call: ast.Call) -> bool:
    return is_opaque(source, call) and not is_library(source, call.func)
