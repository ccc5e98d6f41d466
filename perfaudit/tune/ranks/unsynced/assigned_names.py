"""What a program assigns, each value with the names that have it from then on.

Names of attributes begin with a point: ".model" of `self.model`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from perfaudit.expressions import regex
from perfaudit.static.source import Source
from perfaudit.static.understanding.names import dotted_name, last_name
from perfaudit.tune.ranks.options import OPTIONS

# The last of `kept.append(model)`.
ASSIGNS = (ast.Assign, ast.AnnAssign, ast.AugAssign, ast.NamedExpr, ast.Expr)
_LISTS = (ast.List, ast.Tuple, ast.Name, ast.Call, ast.ListComp, ast.GeneratorExp)  # what a list grows by
# Methods that keep nothing of what they get.
_KEEPS_NOTHING = regex(
    r"^(info|debug|warn\w*|error|log|log_\w+|print\w*|write\w*|watch|save\w*|load\w*|restore\w*|resume\w*|train|fit|evaluate|eval"
    r"|validate|test|step|add_(graph|scalars?|text|images?|histogram|param_group)|broadcast\w*|zero_\w+)$"
)


def assignments(source: Source, nodes: Iterable[ast.AST]) -> Iterator[tuple[ast.expr, set[str]]]:
    """What is assigned, each with the last names of all that it is assigned to.

    So is what an object gets in a call that is a statement: it may keep it (`kept.append(model)`, `clip.attach(model)`).
    """
    for node in nodes:
        if isinstance(node, ast.Assign):
            for target in node.targets:
                for value, names in _pairs(target, node.value):
                    yield value, names
                    # `clip.model = model`: not only the attribute has it. Options do nothing with what they have.
                    if isinstance(target, ast.Attribute) and not OPTIONS.search(last_name(target.value)):
                        yield value, last_names(target.value) - {"self"}
        elif isinstance(node, (ast.AnnAssign, ast.NamedExpr, ast.AugAssign)) and node.value is not None:
            if not isinstance(node, ast.AugAssign) or isinstance(node.value, _LISTS):
                yield node.value, last_names(node.target)
        elif isinstance(node, ast.Expr) and isinstance(call := node.value, ast.Call):
            if dotted_name(call.func) == "setattr" and len(call.args) == 3:
                yield call.args[2], last_names(call.args[0]) - {"self"}
            if (
                isinstance(call.func, ast.Attribute)
                and not _KEEPS_NOTHING.search(call.func.attr)
                and source.qualified_name(call.func) is None  # of a library: see `holder_uses`
            ):
                kept_by = last_names(call.func.value) - {"self"}
                yield from ((each, kept_by) for each in (*call.args, *(k.value for k in call.keywords)))
        elif isinstance(node, ast.With):
            for item in node.items:
                if item.optional_vars is not None:
                    yield item.context_expr, last_names(item.optional_vars)


def _pairs(target: ast.expr, value: ast.expr) -> Iterator[tuple[ast.expr, set[str]]]:
    """Of `a, b = x, y` each with its own."""
    parts = [each.elts for each in (target, value) if isinstance(each, (ast.Tuple, ast.List))]
    is_starred = any(isinstance(each, ast.Starred) for some in parts for each in some)
    if len(parts) == 2 and len(parts[0]) == len(parts[1]) and not is_starred:
        for one, other in zip(*parts, strict=True):
            yield from _pairs(one, other)
    else:
        yield value, last_names(target)


def sets_attribute(node: ast.AST) -> bool:
    return any(isinstance(each, ast.Attribute) and isinstance(each.ctx, ast.Store) for each in ast.walk(node))


def last_names(target: ast.expr) -> set[str]:
    if isinstance(target, (ast.Tuple, ast.List)):
        return set[str]().union(*map(last_names, target.elts))
    target = target.value if isinstance(target, ast.Starred) else target
    if isinstance(target, ast.Subscript):
        return last_names(target.value)
    if isinstance(target, ast.Attribute):
        return {f".{target.attr}"}
    return {target.id} if isinstance(target, ast.Name) else set()


def is_name(target: ast.expr) -> bool:
    if isinstance(target, (ast.Tuple, ast.List)):
        return all(map(is_name, target.elts))
    return isinstance(target, ast.Name)
