"""Which class a call builds that picks it when it runs: `getattr(optim, name)(…)`, `{"adam": optim.Adam}[name](…)`, `kind(…)`.

What the text does not settle is left open: then a test says at that call whether one class was picked.
"""

from __future__ import annotations

import ast

from perfaudit.records import record
from perfaudit.static import edit
from perfaudit.static.edit import Edits
from perfaudit.static.source import Source

_PLAIN = (ast.Name, ast.Attribute, ast.Subscript, ast.Constant)  # what is read twice without doing anything twice


@record(frozen=True, slots=True)
class Picked:
    """What a call may build. classes: dotted names, None where there may be others. test: an expression that is true where the
    class asked about was picked; imports: what it takes.
    """

    classes: tuple[str, ...] | None
    test: str
    imports: Edits = ()


def picked_class(source: Source, call: ast.Call, dotted: str) -> Picked | None:
    """What picks the class of a call that has built `dotted`, as "torch.optim.Adam"; None where it is read otherwise."""
    module, _, name = dotted.rpartition(".")
    func = call.func
    if isinstance(func, ast.Call) or _table(func) is not None:
        return _by_name(source, func, module, name)
    if isinstance(func, ast.Subscript) and (table := _literal(source, func.value)) is not None:
        return _of_table(source, func, table, dotted, is_closed=isinstance(func.value, ast.Dict))
    if isinstance(func, (ast.Name, ast.Attribute)) and _is_plain(func) and _is_variable(source, func):
        written, imports = edit.name_for(source, dotted)
        return Picked(_classes(source, func), f"{ast.unparse(func)} is {written}", imports)
    return None


def _is_variable(source: Source, func: ast.expr) -> bool:
    """Whether a name, or an attribute, is given its value in this file, and not by an import or a definition."""
    if isinstance(func, ast.Name):
        bound = source.lookup(func)
        return bool(bound) and all(isinstance(node, (ast.arg, ast.Name)) for node in bound)
    stores = (node for node in source.nodes(ast.Attribute) if isinstance(node.ctx, ast.Store))
    return isinstance(func, ast.Attribute) and any(node.attr == func.attr for node in stores)


def _by_name(source: Source, func: ast.expr, module: str, name: str) -> Picked | None:
    """`getattr(optim, name)` and `optim.__dict__[name]`: any class of the module."""
    if isinstance(func, ast.Call):
        is_getattr = isinstance(func.func, ast.Name) and func.func.id == "getattr" and len(func.args) == 2
        owner, key = (func.args[0], func.args[1]) if is_getattr and not func.keywords else (None, None)
    else:
        owner = _table(func)
        key = func.slice if isinstance(func, ast.Subscript) else None
    if owner is None or key is None or not _is_plain(key) or source.qualified_name(owner) != module:
        return None
    if isinstance(key, ast.Constant):
        assert isinstance(key.value, str)  # it has built something
        return Picked((f"{module}.{key.value}",), "True")
    return Picked(None, f'{ast.unparse(key)} == "{name}"')


def _table(func: ast.expr) -> ast.expr | None:
    """What `optim.__dict__[…]` is a table of."""
    if isinstance(func, ast.Subscript) and isinstance(func.value, ast.Attribute) and func.value.attr == "__dict__":
        return func.value.value
    return None


def _literal(source: Source, value: ast.expr) -> ast.Dict | None:
    """The dict that is written there, or that the only binding of a name gives it."""
    if isinstance(value, ast.Name):
        bound = source.lookup(value)
        parent = source.parent(bound[0]) if len(bound) == 1 else None
        value = parent.value if isinstance(parent, ast.Assign) else value
    return value if isinstance(value, ast.Dict) else None


def _of_table(source: Source, func: ast.Subscript, table: ast.Dict, dotted: str, is_closed: bool) -> Picked | None:
    """is_closed: nothing can be added to the table, as it has no name."""
    named = [(key, source.qualified_name(value)) for key, value in zip(table.keys, table.values, strict=True)]
    keys = [key for key, name in named if name == dotted]
    if len(keys) != 1 or not isinstance(keys[0], ast.Constant) or not _is_plain(func.slice):
        return None
    classes = [name for _, name in named if name]
    every = tuple(dict.fromkeys(classes)) if is_closed and len(classes) == len(named) else None
    return Picked(every, f"{ast.unparse(func.slice)} == {_quote(keys[0])}")


def _classes(source: Source, func: ast.expr) -> tuple[str, ...] | None:
    """The classes that a name may stand for, where all that binds it gives it one; None where something else may."""
    bound = source.lookup(func) if isinstance(func, ast.Name) and not _is_declared(source, func.id) else []
    found: list[str] = []
    for node in bound:
        parent = source.parent(node)
        value = parent.value if isinstance(parent, ast.Assign) and node in parent.targets else None
        for choice in _choices(value) if value is not None else [None]:
            name = source.qualified_name(choice) if choice is not None else None
            if name is None:
                return None
            found.append(name)
    return tuple(dict.fromkeys(found)) or None


def _is_declared(source: Source, name: str) -> bool:
    """Whether an import or a definition, wherever it stands in the file, also gives this name a value."""
    aliases = [alias for each in source.nodes(ast.Import) for alias in each.names]
    aliases += [alias for each in source.nodes(ast.ImportFrom) for alias in each.names]
    named = {alias.asname or alias.name for alias in aliases}
    named.update(each.name for each in source.nodes(ast.FunctionDef))
    named.update(each.name for each in source.nodes(ast.AsyncFunctionDef))
    named.update(each.name for each in source.nodes(ast.ClassDef))
    return name in named


def _choices(value: ast.expr) -> list[ast.expr]:
    return [*_choices(value.body), *_choices(value.orelse)] if isinstance(value, ast.IfExp) else [value]


def _is_plain(node: ast.expr) -> bool:
    parts = [part for part in ast.walk(node) if isinstance(part, ast.expr)]
    return all(isinstance(part, _PLAIN) for part in parts)


def _quote(key: ast.Constant) -> str:
    text = str(key.value)
    is_plain = isinstance(key.value, str) and text.isprintable() and not set(text) & {'"', "\\"}
    return f'"{text}"' if is_plain else repr(key.value)
