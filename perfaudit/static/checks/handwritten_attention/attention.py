"""Attention that is written out: products of queries and keys, followed to the softmax and to the product with the values.

A function is read from top to bottom. Names hold what is known of their value: scores of a product of queries and keys,
weights after the softmax, or an operand. Whatever is done to scores or weights that is not part of attention makes
them wanted elsewhere, and such a product is never given back.
"""

from __future__ import annotations

import ast

from perfaudit.static.checks.handwritten_attention.attention_fallbacks import is_wanted_so
from perfaudit.static.checks.handwritten_attention.attention_reader import Reader
from perfaudit.static.checks.handwritten_attention.attention_values import Chain, want
from perfaudit.static.source import FUNCTIONS, Function, Source
from perfaudit.static.understanding.answers import remember
from perfaudit.static.understanding.names import last_name


@remember
def written_out(source: Source) -> tuple[Chain, ...]:
    """Every attention of a file that is written out and whose scores and weights serve nothing else."""
    done: dict[int, Chain] = {}
    for function in _candidates(source):
        reader = Reader(source, (function,))
        reader.block(function.body)
        for value in reader.returned:
            want(value)
        for chain in reader.chains:
            if chain.outputs and not chain.wanted and _one_way(source, chain):
                done.setdefault(id(chain.product), chain)
    found: dict[int, Chain] = {}
    for chain in sorted(done.values(), key=lambda chain: (chain.product.lineno, chain.product.col_offset)):
        if not is_wanted_so(source, chain.function):
            found.setdefault(id(chain.outputs[0][0]), chain)  # scores of two branches, or two that are added: one
    return tuple(found.values())


def _candidates(source: Source) -> list[Function]:
    """Functions that hold a softmax, and those of the file that call one of them."""
    lines = {number for number, line in enumerate(source.lines, start=1) if "oftmax" in line}
    names = {"softmax"} | {
        node.attr
        for node in source.nodes(ast.Attribute)
        if node.ctx.__class__ is ast.Store and not lines.isdisjoint(_lines_of(source.statement(node)))
    }
    calls = source.nodes(ast.Call)
    inner: dict[int, Function] = {}
    for call in calls:
        called = call.func.func if isinstance(call.func, ast.Call) else call.func
        name = last_name(called)
        if (name in names or "oftmax" in name) and (around := source.enclosing(call, *FUNCTIONS)) is not None:
            inner[id(around)] = around  # type: ignore[assignment]  # FUNCTIONS are what was asked for
    found = dict(inner)
    called_names = {function.name for function in inner.values()} - {"forward", "__init__", "__call__"}
    for call in calls if called_names else ():
        if last_name(call.func) in called_names and (around := source.enclosing(call, *FUNCTIONS)) is not None:
            found.setdefault(id(around), around)  # type: ignore[arg-type]
    return [function for function in found.values() if function.name != "__init__"]


def _lines_of(statement: ast.stmt) -> range:
    return range(statement.lineno, (statement.end_lineno or statement.lineno) + 1)


def _one_way(source: Source, chain: Chain) -> bool:
    """Whether at most one product with values is made in any run: two of them stand in branches of one `if`."""
    nodes = list({id(node): node for node, _ in chain.outputs}.values())
    return len(nodes) == 1 or all(
        _exclusive(source, first, second) for i, first in enumerate(nodes) for second in nodes[i + 1 :]
    )


def _exclusive(source: Source, first: ast.AST, second: ast.AST) -> bool:
    around = {id(ancestor): child for ancestor, child in source.way_out(first)}
    for ancestor, child in source.way_out(second):
        if id(ancestor) in around:
            other = around[id(ancestor)]
            if not isinstance(ancestor, (ast.If, ast.IfExp)):
                return False
            body = ancestor.body if isinstance(ancestor.body, list) else [ancestor.body]
            return any(n is child for n in body) is not any(n is other for n in body)
    return False
