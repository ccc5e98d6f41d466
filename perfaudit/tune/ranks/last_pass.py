"""Whether the condition under which an optimizer steps says the same in front of the pass as it says behind it.

What an attribute or an item holds may be changed by any call between the two. Those of options are taken to stay, and those that
nothing but a constructor sets.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterator, Mapping, Sequence

from perfaudit.expressions import regex
from perfaudit.static.source import FUNCTIONS, Source
from perfaudit.static.understanding.names import last_name

_OPTIONS = regex(
    r"^(args?|arguments|opts|options|params|cfg|conf|config|configuration|hparams|hyper_?parameters|settings|flags)$"
)
_OPTIMIZER_TOO = "opt"  # what a name stands for that optimizers have as often as options
_PARSERS = regex(r"^(parse_args|parse_known_args|parse_opts?|get_opts?|Namespace)$")


def why_known_late(sources: Sequence[Source], test: ast.expr, between: Sequence[ast.stmt]) -> str:
    """Why the condition may say something else before `between` has run, as what the condition does; "" where it does not."""
    nodes = list(ast.walk(test))
    if any(isinstance(node, (ast.Call, ast.Await, ast.NamedExpr)) and not _is_len(node) for node in nodes):
        return "calls something, or sets a name"
    names = {node.id for node in nodes if isinstance(node, ast.Name)}
    inside = [node for statement in between for node in ast.walk(statement)]
    if names & {root for node in inside if (root := _name_set(node))} or names & _set_by_functions(sources):
        return "is known behind the pass only"
    owned = {id(node.value) for node in nodes if isinstance(node, (ast.Attribute, ast.Subscript))}
    plain = {node.id for node in nodes if isinstance(node, ast.Name) and id(node) not in owned} - {"len"}
    if plain & {
        _root(node.func) for node in inside if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
    }:
        return "has a name of which a method is called in the pass"
    measured = {_root(node.args[0]) for node in nodes if isinstance(node, ast.Call) and node.args}
    if measured & {node.id for node in inside if isinstance(node, ast.Name)} - {"self"}:
        return "has the length of something that the pass uses"
    for node in nodes:
        if isinstance(node, (ast.Attribute, ast.Subscript)) and not _stays(sources, node):
            return f"has `{ast.unparse(node)}`, which a call in the pass may change"
    return ""


def as_before(test: ast.expr, between: Sequence[ast.stmt]) -> tuple[ast.expr, list[ast.stmt]]:
    """A condition as it reads in front of these statements: where one of them is `step += 1`, and nothing else in them sets that
    name, with `step + 1`. And the statements without it.
    """
    counts = {
        each.target.id: each
        for each in between
        if isinstance(each, ast.AugAssign)
        and isinstance(each.op, ast.Add)
        and isinstance(each.target, ast.Name)
        and isinstance(each.value, ast.Constant)
        and type(each.value.value) is int
    }
    stores = [
        node.id
        for statement in between
        for node in ast.walk(statement)
        if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load)
    ]
    counts = {name: each for name, each in counts.items() if stores.count(name) == 1}
    return _Counted(counts).visit(copy.deepcopy(test)), [each for each in between if each not in counts.values()]


class _Counted(ast.NodeTransformer):
    """Puts `step + 1` for `step`, of names that are counted up."""

    def __init__(self, counts: Mapping[str, ast.AugAssign]) -> None:
        self._counts = counts

    def visit_Name(self, node: ast.Name) -> ast.expr:
        counted = self._counts.get(node.id)
        return node if counted is None else ast.BinOp(ast.Name(node.id, ast.Load()), ast.Add(), counted.value)


def _stays(sources: Sequence[Source], node: ast.expr) -> bool:
    """Whether an attribute or an item is one of options, or of an object whose constructor alone sets it."""
    if isinstance(node, ast.Name):
        return True
    if not isinstance(node, (ast.Attribute, ast.Subscript)) or any("setattr(" in source.text for source in sources):
        return False
    is_option = _is_named_as_options(sources, last_name(node.value).lower().lstrip("_"))
    if isinstance(node, ast.Subscript):
        root = _root(node)
        return is_option and not any(_root(each) == root for each in _stores(sources, ast.Subscript))
    kept, elsewhere = _stores_of(sources, node.attr)
    is_own = isinstance(node.value, ast.Name) and node.value.id == "self" and kept
    return (is_option or is_own) and not elsewhere and _stays(sources, node.value)


def _is_named_as_options(sources: Sequence[Source], name: str) -> bool:
    """Whether options have this name; `opt` only where nothing but a parser of arguments, or other options, gives it."""
    if name != _OPTIMIZER_TOO:
        return bool(_OPTIONS.search(name))
    values = [
        node.value
        for source in sources
        for node in source.nodes(ast.Assign)
        for target in node.targets
        for name_set in (target.elts if isinstance(target, ast.Tuple) else [target])
        if last_name(name_set).lstrip("_") == _OPTIMIZER_TOO
    ]
    parsed = [value for value in values if isinstance(value, ast.Call) and _PARSERS.search(last_name(value.func))]
    others = (last_name(value).lstrip("_") for value in values if value not in parsed)
    return bool(parsed) and all(other == _OPTIMIZER_TOO or _OPTIONS.search(other) for other in others)


def _stores_of(sources: Sequence[Source], name: str) -> tuple[bool, bool]:
    """Whether a constructor sets an attribute of this name, and whether anything else does."""
    found = [
        any(isinstance(each, FUNCTIONS) and each.name == "__init__" for each in source.ancestors(node))
        for source in sources
        for node in source.nodes(ast.Attribute)
        if node.attr == name and not isinstance(node.ctx, ast.Load)
    ]
    return any(found), not all(found)


def _stores(sources: Sequence[Source], kind: type[ast.Subscript]) -> Iterator[ast.Subscript]:
    return (node for source in sources for node in source.nodes(kind) if not isinstance(node.ctx, ast.Load))


def _set_by_functions(sources: Sequence[Source]) -> set[str]:
    """Names that a function sets outside of itself."""
    found: set[str] = set()
    for source in sources:
        found.update(*(node.names for node in source.nodes(ast.Global)))
        found.update(*(node.names for node in source.nodes(ast.Nonlocal)))
    return found


def _name_set(node: ast.AST) -> str:
    """The name that is set, or of which an attribute or an item is; "" for none."""
    is_store = isinstance(node, (ast.Name, ast.Attribute, ast.Subscript)) and not isinstance(node.ctx, ast.Load)
    return _root(node) if is_store else ""


def _root(node: ast.AST) -> str:
    """The first name of a chain of attributes and items; "" where it begins with anything else."""
    while isinstance(node, (ast.Attribute, ast.Subscript)):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


def _is_len(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "len"
