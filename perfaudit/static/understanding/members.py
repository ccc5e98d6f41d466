"""What a class keeps under a name: every mention of an attribute, and whether it may be this class's."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from functools import lru_cache
from operator import itemgetter

from perfaudit.expressions import regex
from perfaudit.static.source import Source
from perfaudit.static.source.syntax import walk
from perfaudit.static.understanding.answers import remember
from perfaudit.static.understanding.families import derived_from, roots_of
from perfaudit.static.understanding.names import dotted_name, last_name
from perfaudit.static.understanding.values import assigned_value

_SETTINGS = regex(r"(^|_)(args?|cfg|conf|config|opts?|options|hparams?|hp|settings)$")  # their keys are no layers


def is_own(node: ast.AST) -> bool:
    """`self.something`."""
    return isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self"


@remember
def attributes(source: Source) -> dict[str, list[ast.Attribute]]:
    """Every attribute that is read or set in a file, by its name."""
    table: dict[str, list[ast.Attribute]] = {}
    for node in source.nodes(ast.Attribute):
        table.setdefault(node.attr, []).append(node)
    return table


def attributes_of(source: Source, name: str, definition: ast.ClassDef | None) -> Sequence[ast.Attribute]:
    """The mentions of an attribute that may belong to an object of this class, in document order.

    That is all but those of `self` in an unrelated class, and all where there is no class.
    """
    if definition is None:
        return attributes(source).get(name, ())
    return _owners(source).mentions(name, definition)


class _Owners:
    """The attributes of a file by what they may belong to: a class is not compared with each mention of a name, which takes
    time by the square of how many classes there are."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._anyones: dict[str, list[tuple[int, ast.Attribute]]] = {}  # with their place in the order of the file
        self._own: dict[str, dict[int, list[tuple[int, ast.Attribute]]]] = {}  # `self.name`, by the class around it
        for number, use in enumerate(source.nodes(ast.Attribute)):
            around = source.enclosing(use, ast.ClassDef) if is_own(use) else None
            if around is None:
                self._anyones.setdefault(use.attr, []).append((number, use))
            else:
                self._own.setdefault(use.attr, {}).setdefault(id(around), []).append((number, use))
        self._mentions: dict[tuple[str, frozenset[int]], list[ast.Attribute]] = {}

    def mentions(self, name: str, definition: ast.ClassDef) -> list[ast.Attribute]:
        roots = roots_of(self._source)
        key = name, roots[id(definition)]
        if key not in self._mentions:
            own = self._own.get(name, {})
            related = {one for root in key[1] for one in derived_from(self._source)[root]}
            found = [use for one in own.keys() & related for use in own[one]]
            self._mentions[key] = [use for _, use in sorted([*found, *self._anyones.get(name, ())], key=itemgetter(0))]
        return self._mentions[key]


@lru_cache(maxsize=2)
def _owners(source: Source) -> _Owners:
    return _Owners(source)


@remember
def texts(source: Source) -> frozenset[str]:
    """Every text that may name an attribute: `getattr(model, "conv1")`, the name of a layer to hook.

    Not the keys under which a container gets its layers, and not what a variable is compared with or defaults to,
    unless the file goes through layers by name.
    """
    goes_by_name = bool(source.calls(".named_modules") or source.calls(".named_children"))
    return frozenset(
        constant.value
        for constant in source.nodes(ast.Constant)
        if isinstance(constant.value, str) and (goes_by_name or not _is_other_text(source, constant))
    )


def _is_other_text(source: Source, constant: ast.Constant) -> bool:
    parent = source.parent(constant)
    if isinstance(parent, (ast.Compare, ast.arguments, ast.Expr)):
        return True
    if isinstance(parent, ast.Subscript):
        return isinstance(parent.ctx, ast.Store) or bool(_SETTINGS.search(last_name(parent.value).lower()))
    if isinstance(parent, ast.Tuple):  # ("conv1", nn.Conv2d(3, 8, 3))
        return len(parent.elts) == 2 and parent.elts[0] is constant and isinstance(parent.elts[1], ast.Call)
    if isinstance(parent, ast.Dict):
        return any(k is constant and isinstance(v, ast.Call) for k, v in zip(parent.keys, parent.values, strict=True))
    if isinstance(parent, ast.Call) and isinstance(parent.func, ast.Attribute):
        return parent.func.attr in ("add_module", "register_module")
    return False


@remember
def opens_itself(source: Source, definition: ast.ClassDef) -> bool:
    """Whether the class reaches its layers otherwise than by name: its children in a loop, or a computed name."""
    for node in walk(definition):
        is_open = isinstance(node, ast.Attribute) and node.attr in ("children", "named_children", "_modules")
        if isinstance(node, ast.Attribute) and is_open and is_own(node) and not _is_for_initialising(source, node):
            return True
        if isinstance(node, ast.Call) and source.text_of(node.func) in ("getattr", "setattr") and len(node.args) > 1:
            if isinstance(node.args[1], ast.Constant):
                continue
            return True
    return False


def _is_for_initialising(source: Source, modules: ast.Attribute) -> bool:
    """Whether `self._modules` is there to hand each layer to an initialiser of the file, `normal_init(self._modules[m])`."""
    loop = source.enclosing(modules, ast.For)
    if modules.attr != "_modules" or not isinstance(loop, ast.For):
        return False
    calls = [statement.value for statement in loop.body if isinstance(statement, ast.Expr)]
    names = {call.func.id for call in calls if isinstance(call, ast.Call) and isinstance(call.func, ast.Name)}
    is_plain = len(calls) == len(loop.body) and len(names) == 1 and "init" in next(iter(names)).lower()
    return is_plain and any(definition.name in names for definition in source.definitions)


def is_super(node: ast.expr) -> bool:
    """`super()`, in both forms."""
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "super"


def built_as(source: Source, node: ast.AST, attribute: str) -> list[ast.Call]:
    """The calls that build `self.attribute` in the class around a node; none where one of them cannot be read."""
    definition = source.enclosing(node, ast.ClassDef)
    if definition is None:
        return []
    made: list[ast.Call] = []
    for store in _stores(source).get((id(definition), attribute), ()):
        value = assigned_value(source, store)
        parts = [value.body, value.orelse] if isinstance(value, ast.IfExp) else [value]
        made += [part for part in parts if isinstance(part, ast.Call)]
    return made


@remember
def _stores(source: Source) -> dict[tuple[int, str], list[ast.Attribute]]:
    """Assignments to `self.name` by the class they stand in and the name."""
    table: dict[tuple[int, str], list[ast.Attribute]] = {}
    for node in source.nodes(ast.Attribute):
        if isinstance(node.ctx, ast.Store) and dotted_name(node.value) == "self":
            definition = source.enclosing(node, ast.ClassDef)
            table.setdefault((id(definition), node.attr), []).append(node)
    return table


def own_values(source: Source, node: ast.AST, attribute: str) -> list[ast.expr | None]:
    """What the class around a node assigns to `self.attribute`; None for what is no plain assignment."""
    definition = source.enclosing(node, ast.ClassDef)
    return [assigned_value(source, store) for store in _stores(source).get((id(definition), attribute), ())]


def stores_of(source: Source, node: ast.Attribute) -> list[ast.Attribute]:
    """Where an attribute is set that may be that of `self.attribute` in the class around it, or is deleted."""
    definition = source.enclosing(node, ast.ClassDef)
    return [use for use in attributes_of(source, node.attr, definition) if not isinstance(use.ctx, ast.Load)]
