"""Whether the condition under which an optimizer steps says the same in front of the pass as it says behind it.

What an attribute or an item holds may be changed by any call between the two. Those of options are taken to stay, and those of
the loop's own object, where no code of the project that these calls may run sets them.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterator, Mapping, Sequence

from perfaudit.static.source import Source
from perfaudit.static.understanding.names import dotted_name, last_name
from perfaudit.tune.ranks.options import is_of_options
from perfaudit.tune.ranks.project_functions import with_bases
from perfaudit.tune.ranks.unsynced.reached_nodes import reached_nodes

_CHANGES = {"update", "pop", "popitem", "setdefault", "clear"}  # methods of a dict


def why_known_late(sources: Sequence[Source], source: Source, test: ast.expr, between: Sequence[ast.stmt]) -> str:
    """Why the condition may say something else before `between` has run, as what the condition does; "" where it does not."""
    nodes = list(ast.walk(test))
    if any(isinstance(node, (ast.Call, ast.Await, ast.NamedExpr)) and not _is_len(node) for node in nodes):
        return "calls something, or sets a name"
    names = {node.id for node in nodes if isinstance(node, ast.Name)}
    inside = [node for statement in between for node in ast.walk(statement)]
    reached = reached_nodes(sources, source, between)
    stated = {name for node in reached if isinstance(node, (ast.Global, ast.Nonlocal)) for name in node.names}
    if names & (
        stated | {node.id for node in inside if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load)}
    ):
        return "is known behind the pass only"
    owned = {id(node.value) for node in nodes if isinstance(node, (ast.Attribute, ast.Subscript))}
    plain = {node.id for node in nodes if isinstance(node, ast.Name) and id(node) not in owned} - {"len"}
    if plain & {root for node in inside if (root := _name_changed(node))}:
        return "is known behind the pass only"
    if plain & {
        _root(node.func) for node in inside if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
    }:
        return "has a name of which a method is called in the pass"
    measured = {_root(node.args[0]) for node in nodes if isinstance(node, ast.Call) and node.args}
    if measured & {node.id for node in inside if isinstance(node, ast.Name)} - {"self"}:
        return "has the length of something that the pass uses"
    own = source.enclosing(between[0], ast.ClassDef) if between else None
    for node in nodes:
        if isinstance(node, (ast.Attribute, ast.Subscript)) and not _stays(sources, node, reached, own):
            return f"has `{ast.unparse(node)}`, which a call in the pass may change"
    return ""


def as_before(test: ast.expr, between: Sequence[ast.stmt]) -> tuple[ast.expr, list[ast.stmt]]:
    """A condition as it reads in front of these statements: where one of them is `step += 1`, and nothing else in them sets that
    name, with `step + 1`. And the statements without it. `self.step += 1` is read so, too.
    """
    counts = {
        name: each
        for each in between
        if isinstance(each, ast.AugAssign)
        and isinstance(each.op, ast.Add)
        and (name := _counter(each.target))
        and isinstance(each.value, ast.Constant)
        and type(each.value.value) is int
    }
    stores = [
        last_name(node)
        for statement in between
        for node in ast.walk(statement)
        if isinstance(node, (ast.Name, ast.Attribute)) and not isinstance(node.ctx, ast.Load)
    ]
    counts = {name: each for name, each in counts.items() if stores.count(name.rpartition(".")[2]) == 1}
    return _Counted(counts).visit(copy.deepcopy(test)), [each for each in between if each not in counts.values()]


def _counter(target: ast.expr) -> str:
    """`step`, or `self.step`; "" for anything else."""
    name = dotted_name(target)
    return name if name.count(".") == name.startswith("self.") else ""


class _Counted(ast.NodeTransformer):
    """Puts `step + 1` for `step`, of names that are counted up."""

    def __init__(self, counts: Mapping[str, ast.AugAssign]) -> None:
        self._counts = counts

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return self._with_count(node)

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        return self._with_count(node)

    def _with_count(self, node: ast.Name | ast.Attribute) -> ast.expr:
        count = self._counts.get(dotted_name(node))
        return node if count is None else ast.BinOp(node, ast.Add(), count.value)


def _stays(sources: Sequence[Source], node: ast.expr, reached: Sequence[ast.AST], own: ast.ClassDef | None) -> bool:
    """Whether an attribute or an item is one of options, or one that the object sets itself, and nothing in the pass sets it.

    own: the class of the object, that of the loop.
    """
    if isinstance(node, ast.Name):
        return True
    if not isinstance(node, (ast.Attribute, ast.Subscript)):
        return False
    is_option = is_of_options(sources, node.value)
    if isinstance(node, ast.Subscript):
        return is_option and last_name(node.value) not in {_owner_changed(each) for each in reached}
    is_own = isinstance(node.value, ast.Name) and node.value.id == "self" and any(_sets(sources, node.attr))
    changed = [owner for each in reached if (owner := _owner_set(each, node.attr)) is not None]
    if any(not _is_of_another(sources, owner, own if is_own else None) for owner in changed):
        return False
    return (is_option or is_own) and _stays(sources, node.value, reached, own)


def _owner_set(node: ast.AST, attribute: str) -> ast.expr | None:
    """Of what a node sets an attribute of this name, or one that the text does not tell; None for nothing."""
    if isinstance(node, ast.Attribute) and _is_store(node) and node.attr == attribute:
        return node.value
    if isinstance(node, ast.Call) and last_name(node.func) in ("setattr", "exec"):
        return node.args[0] if node.args else node
    return None


def _is_of_another(sources: Sequence[Source], owner: ast.expr, own: ast.ClassDef | None) -> bool:
    """Whether a `self` is surely another object than one of the class `own`; without one, than options: a module of torch."""
    if not (isinstance(owner, ast.Name) and owner.id == "self"):
        return False
    its = next((found for each in sources if (found := each.enclosing(owner, ast.ClassDef)) is not None), None)
    if its is None:
        return False
    bases = with_bases(sources, its)
    if own is None:
        return any(name.endswith("Module") for name in bases)
    return own.name not in bases and its.name not in with_bases(sources, own)


def _sets(sources: Sequence[Source], name: str) -> Iterator[bool]:
    """Whether an attribute of this name is set, at each place where one stands."""
    for source in sources:
        yield from (_is_store(node) for node in source.nodes(ast.Attribute) if node.attr == name)


def _is_store(node: ast.Name | ast.Attribute | ast.Subscript) -> bool:
    return not isinstance(node.ctx, ast.Load)


def _owner_changed(node: ast.AST) -> str:
    """The last name of what gets an item, or is changed as a dict is; "" for nothing."""
    if isinstance(node, ast.Subscript):
        return last_name(node.value) if _is_store(node) else ""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _CHANGES:
        return last_name(node.func.value)
    return ""


def _name_changed(node: ast.AST) -> str:
    """The name of which an attribute or an item is set; "" for none."""
    return _root(node) if isinstance(node, (ast.Attribute, ast.Subscript)) and _is_store(node) else ""


def _root(node: ast.AST) -> str:
    """The first name of a chain of attributes and items; "" where it begins with anything else."""
    while isinstance(node, (ast.Attribute, ast.Subscript)):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


def _is_len(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "len"
