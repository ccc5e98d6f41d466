"""What a function of the same file returns for the values that a call hands over."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from perfaudit.static.checks.handwritten_attention.attention_products import PRODUCTS
from perfaudit.static.checks.handwritten_attention.attention_steps import give_up
from perfaudit.static.checks.handwritten_attention.attention_values import PLAIN, Value, chains, join_values, want
from perfaudit.static.source import Function, Source
from perfaudit.static.source.syntax import walk
from perfaudit.static.understanding.answers import remember
from perfaudit.static.understanding.names import last_name

if TYPE_CHECKING:
    from perfaudit.static.checks.handwritten_attention.attention_reader import Reader

_MAX_DEPTH = 3  # calls that are followed


def follow(reader: Reader, function: Function, node: ast.Call) -> Value:
    """What a function of this file returns for these arguments."""
    values: list[tuple[ast.expr, Value]] = []
    for item in [*node.args, *(k.value for k in node.keywords)]:
        inner = item.value if isinstance(item, ast.Starred) else item
        values.append((item, reader.value(inner)))
    given = any(chains(value) for _, value in values)
    if (
        any(f is function for f in reader.stack)
        or len(reader.stack) > _MAX_DEPTH
        or not _may_matter(reader.source, function, given)
    ):
        return give_up(*(v for _, v in values))
    if any(isinstance(item, ast.Starred) for item in node.args):
        return give_up(*(v for _, v in values))
    inside = reader.fresh(function)
    parameters = [a.arg for a in (*function.args.posonlyargs, *function.args.args)]
    if isinstance(node.func, ast.Attribute) and not _is_static(function):
        parameters = parameters[1:]
    by_node = {id(n): v for n, v in values}
    taken = set()
    for name, item in zip(parameters, node.args, strict=False):
        inside.names[name] = by_node[id(item)]
        taken.add(id(item))
    for keyword in node.keywords:
        if keyword.arg is not None:
            inside.names[keyword.arg] = by_node[id(keyword.value)]
            taken.add(id(keyword.value))
    want(*(v for n, v in values if id(n) not in taken))
    inside.block(function.body)
    reader.chains += inside.chains
    if not inside.returned:
        return PLAIN
    result = inside.returned[0]
    for other in inside.returned[1:]:
        result = join_values(result, other)
    return result


def _may_matter(source: Source, function: Function, given: bool) -> bool:
    """Whether following a call may tell something: it gets scores, or makes products itself; generators are not read."""
    known = _read_before(source)
    if function not in known:
        nodes = list(walk(function))
        names = {last_name(n.func) for n in nodes if isinstance(n, ast.Call)}
        names |= {"@" for n in nodes if isinstance(getattr(n, "op", None), ast.MatMult)}
        makes = not names.isdisjoint(PRODUCTS | {"einsum", "baddbmm", "@", "transpose", "permute"})
        known[function] = any(isinstance(n, (ast.Yield, ast.YieldFrom)) for n in nodes), makes
    is_generator, makes_products = known[function]
    return not is_generator and (given or makes_products)


@remember
def _read_before(source: Source) -> dict[Function, tuple[bool, bool]]:
    """Whether functions of a file are generators, and make products, of those that were asked about."""
    return {}


def _is_static(function: Function) -> bool:
    return any(last_name(d) == "staticmethod" for d in function.decorator_list)
