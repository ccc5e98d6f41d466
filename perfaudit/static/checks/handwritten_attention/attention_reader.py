"""Reads a function from top to bottom and follows products of queries and keys to the products with the values."""

from __future__ import annotations

import ast
from dataclasses import replace

from perfaudit.static.checks.handwritten_attention.asked_weights import (
    asks_for_weights,
    stands_where_asked,
    taken_back_unless_asked,
)
from perfaudit.static.checks.handwritten_attention.attention_changes import is_zero
from perfaudit.static.checks.handwritten_attention.attention_products import read_product
from perfaudit.static.checks.handwritten_attention.attention_steps import arithmetic, operand_at_index
from perfaudit.static.checks.handwritten_attention.attention_values import (
    PLAIN,
    Chain,
    Operand,
    Peak,
    Scores,
    Value,
    Weights,
    exchange_axes,
    join_values,
    piece,
    want,
)
from perfaudit.static.checks.handwritten_attention.call_results import read_call
from perfaudit.static.source import Function, Source
from perfaudit.static.understanding.names import dotted_name

_ASKED = {"shape", "dtype", "device", "ndim", "is_cuda", "requires_grad"}  # read of a tensor without its values


class Reader:
    """Reads the statements of one function in order; `names` holds what is known of each name's value."""

    def __init__(self, source: Source, stack: tuple[Function, ...]) -> None:
        self.source = source
        self.stack = stack
        self.names: dict[str, Value] = {}
        self.chains: list[Chain] = []
        self.returned: list[Value] = []

    def fresh(self, *called: Function) -> Reader:
        """A reader that knows no names yet, of what runs here or inside a function that is called here."""
        return Reader(self.source, (*self.stack, *called))

    def block(self, body: list[ast.stmt]) -> None:
        for statement in body:
            self.statement(statement)

    def statement(self, node: ast.stmt) -> None:
        match node:
            case ast.Assign():
                if not self.bound_one_by_one(node):
                    value = self.value(node.value)
                    for target in node.targets:
                        self.bind(target, value, node.value)
            case ast.AnnAssign() if node.value is not None:
                self.bind(node.target, self.value(node.value), node.value)
            case ast.AugAssign():
                left, right = self.value(node.target), self.value(node.value)
                self.bind(node.target, arithmetic(type(node.op), left, right, node.value), node.value)
            case ast.Return():
                if isinstance(node.value, ast.Tuple) and stands_where_asked(self.source, node):
                    self.give_if_asked(node.value)
                elif isinstance(node.value, ast.Tuple) and len(self.stack) == 1:
                    self.give_beside(node.value)
                elif node.value is not None:
                    self.returned.append(self.value(node.value))
            case ast.If():
                self.value(node.test)
                if (name := taken_back_unless_asked(self.source, node)) and isinstance(self.names.get(name), Weights):
                    self.give_if_asked(ast.parse(name, mode="eval").body)
                    self.names[name] = PLAIN
                else:
                    self.branches([node.body, node.orelse])
            case ast.For() | ast.AsyncFor():
                self.value(node.iter)
                self.bind(node.target, PLAIN, node.iter)
                self.branches([[*node.body, *node.orelse], []])
            case ast.While():
                self.value(node.test)
                self.branches([[*node.body, *node.orelse], []])
            case ast.With() | ast.AsyncWith():
                for item in node.items:
                    self.value(item.context_expr)
                    if item.optional_vars is not None:
                        self.bind(item.optional_vars, PLAIN, item.context_expr)
                self.block(node.body)
            case ast.Try() | ast.TryStar():
                self.branches([[*node.body, *node.orelse], *([*h.body] for h in node.handlers)])
                self.block(node.finalbody)
            case ast.Match():
                want(self.value(node.subject))
                self.branches([*(case.body for case in node.cases), []])
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                self.close_over(node)
            case ast.Delete():
                pass
            case _:
                for child in ast.iter_child_nodes(node):
                    if isinstance(child, ast.expr):
                        value = self.value(child)
                        if not isinstance(node, ast.Expr):
                            want(value)

    def give_if_asked(self, node: ast.expr) -> None:
        """Reads what a function gives only to who asks for the weights."""
        for part in node.elts if isinstance(node, ast.Tuple) else [node]:
            value = self.value(part)
            if isinstance(value, Weights):
                for chain in value.chains:
                    chain.is_asked_for = True
            else:
                want(value)

    def give_beside(self, node: ast.Tuple) -> None:
        """Reads what a function returns, with the place of the weights: what calls it may drop them."""
        for place, part in enumerate(node.elts):
            value = self.value(part)
            if isinstance(value, Weights) and not any(isinstance(item, ast.Starred) for item in node.elts):
                for chain in value.chains:
                    chain.returned_at.add((place, len(node.elts)))
            else:
                want(value)

    def branches(self, blocks: list[list[ast.stmt]]) -> None:
        before, after = dict(self.names), []
        for block in blocks:
            self.names = dict(before)
            self.block(block)
            if not (block and isinstance(block[-1], (ast.Continue, ast.Break, ast.Return, ast.Raise))):
                after.append(self.names)
        self.names = after[0] if after else before
        for other in after[1:]:
            merged: dict[str, Value] = {}
            for name in self.names.keys() | other.keys():
                known = [names[name] for names in (self.names, other) if name in names]  # one at least
                merged[name] = join_values(*known) if len(known) == 2 else known[0]
            self.names = merged

    def close_over(self, node: ast.AST) -> None:
        for name in ast.walk(node):
            if isinstance(name, ast.Name) and isinstance(name.ctx, ast.Load):
                want(self.names.get(name.id))

    def bound_one_by_one(self, node: ast.Assign) -> bool:
        """Binds `q, k, v = x[0], x[1], x[2]`; False for any other assignment."""
        target, value = node.targets[0], node.value
        if len(node.targets) > 1 or not isinstance(target, ast.Tuple) or not isinstance(value, ast.Tuple):
            return False
        if len(target.elts) != len(value.elts) or any(isinstance(e, ast.Starred) for e in (*target.elts, *value.elts)):
            return False
        for element, item in zip(target.elts, [self.value(e) for e in value.elts], strict=True):
            want(item)
            self.bind(element, replace(item, is_own=False) if isinstance(item, Operand) else PLAIN, value)
        return True

    def bind(self, target: ast.expr, value: Value, node: ast.expr) -> None:
        if isinstance(target, ast.Name):
            self.names[target.id] = value
        elif isinstance(target, (ast.Tuple, ast.List)):
            want(value)
            part = piece(value) if isinstance(value, Operand) else PLAIN
            for element in target.elts:
                if isinstance(element, ast.Starred):
                    self.bind(element.value, PLAIN, node)
                else:
                    self.bind(element, part, node)
        elif isinstance(target, ast.Subscript):
            base = self.names.get(target.value.id) if isinstance(target.value, ast.Name) else None
            self.value(target.slice)
            want(value)
            if isinstance(base, Scores) and isinstance(target.value, ast.Name) and not is_zero(self.source, node):
                self.names[target.value.id] = replace(base, is_masked=True)  # scores[mask] = -inf
            elif base is not None:
                want(base)
        else:
            want(value)

    def value(self, node: ast.expr) -> Value:
        match node:
            case ast.Name():
                return self.names.get(node.id, PLAIN)
            case ast.Constant():
                return PLAIN
            case ast.Attribute():
                return self.attribute(node)
            case ast.Call():
                return read_call(self, node)
            case ast.BinOp():
                left, right = self.value(node.left), self.value(node.right)
                if isinstance(node.op, ast.MatMult):
                    return read_product(self, node, node.left, node.right, left, right)
                return arithmetic(type(node.op), left, right, node.right, node.left)
            case ast.IfExp():
                want(self.value(node.test))
                if asks_for_weights(self.source, node.test):
                    self.give_if_asked(node.body)
                    want(self.value(node.orelse))
                    return PLAIN
                return join_values(self.value(node.body), self.value(node.orelse))
            case ast.NamedExpr():
                value = self.value(node.value)
                self.bind(node.target, value, node.value)
                return value
            case ast.Subscript():
                base = self.value(node.value)
                self.value(node.slice)
                if isinstance(base, Peak):
                    return base
                want(base)
                return operand_at_index(self.source, base, node.slice) if isinstance(base, Operand) else PLAIN
            case ast.Compare() if all(isinstance(op, (ast.Is, ast.IsNot)) for op in node.ops):
                self.value(node.left)
                return PLAIN
            case ast.Lambda():
                self.close_over(node)
                return PLAIN
        for child in ast.walk(node) if _opens_scope(node) else ():
            if isinstance(child, ast.Name):
                want(self.names.get(child.id))
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.expr) and not _opens_scope(node):
                want(self.value(child))
        return self.each(node.elt) if isinstance(node, (ast.GeneratorExp, ast.ListComp)) else PLAIN

    def each(self, made: ast.expr) -> Operand:
        """What a generator or `map` makes of every item, of which nothing is known."""
        value = self.fresh().value(made)
        return Operand(rank=value.rank, features=value.features, is_many=True) if isinstance(value, Operand) else PLAIN

    def attribute(self, node: ast.Attribute) -> Value:
        base = self.value(node.value)
        if isinstance(base, Operand):
            if node.attr in ("T", "H"):
                return replace(base, turned=True, features=None)
            if node.attr in ("mT", "mH"):
                return exchange_axes(base, -1, -2)
            own = dotted_name(node).startswith("self.") or base.is_own
            return Operand(is_own=own)
        if node.attr in _ASKED:
            return PLAIN
        if isinstance(base, Weights) and node.attr in ("T", "mT"):
            return replace(base, is_turned=not base.is_turned)
        if isinstance(base, Peak) and node.attr == "values":
            return base
        want(base)
        return PLAIN


def _opens_scope(node: ast.AST) -> bool:
    return isinstance(node, (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp))
