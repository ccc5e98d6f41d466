"""Reads code in order: what names stand for from one statement to the next, and what functions return.

Branches are joined, loops are read once. What is not clear stays UNKNOWN.
"""

from __future__ import annotations

import ast

from perfaudit.static.source import Function, Source
from perfaudit.static.source.syntax import walk
from perfaudit.static.understanding.expression_kinds import ExpressionReader
from perfaudit.static.understanding.kinds import Kind, Value, all_joined, arithmetic, join_values
from perfaudit.static.understanding.loss_seeds import loss_seeds
from perfaudit.static.understanding.losses import arguments_of, key, losses_returned
from perfaudit.static.understanding.names import dotted_name

_MAX_DEPTH = 3  # calls followed from the loop, for what they return; findings look two deep
_MAX_FOLLOWED = 500  # calls followed in all for one loop; thirty functions that call each other make 25,000 of them


class CodeReader(ExpressionReader):
    """Reads statements; one for the loop, one for each call that is followed."""

    def __init__(
        self,
        source: Source,
        kinds: dict[int, Kind],
        seeds: dict[str, Kind],
        stack: tuple[Function, ...] = (),
        followed: list[Function] | None = None,
    ) -> None:
        super().__init__(source, kinds, seeds)
        self.stack = stack
        self.followed = [] if followed is None else followed  # by this reader and those it began
        self.returned: list[Value] = []
        self.gives_loss: dict[int, tuple[int, int] | None] = {}  # calls that return a loss, and where in a tuple

    def block(self, statements: list[ast.stmt]) -> None:
        for statement in statements:
            self.statement(statement)

    def statement(self, node: ast.stmt) -> None:
        match node:
            case ast.Assign():
                self.note_losses(node)
                value = self.value(node.value)
                for target in node.targets:
                    self.bind(target, self.beside_loss(target, node.value, value))
            case ast.AnnAssign():
                if node.value is not None:
                    self.bind(node.target, self.value(node.value))
            case ast.AugAssign():
                self.bind(node.target, arithmetic(self.value(node.target), self.value(node.value)))
            case ast.Return():
                self.returned.append(self.value(node.value) if node.value else Kind.HOST)
            case ast.If():
                self.conditions(node)
            case ast.For() | ast.AsyncFor():
                self.bind(node.target, self.elements(node.iter))
                self.block(node.body)
                self.block(node.orelse)
            case ast.While():
                self.value(node.test)
                self.block(node.body)
                self.block(node.orelse)
            case ast.With() | ast.AsyncWith():
                for item in node.items:
                    self.value(item.context_expr)
                    if item.optional_vars is not None:
                        self.bind(item.optional_vars, Kind.UNKNOWN)
                self.block(node.body)
            case ast.Try() | ast.TryStar():
                self.block(node.body)
                before = dict(self.names)
                for handler in node.handlers:
                    self.block(handler.body)
                    self.names = dict(before)
                self.block(node.orelse)
                self.block(node.finalbody)
            case ast.Match():
                self.value(node.subject)
                self.branches([case.body for case in node.cases] + [[]])
            case ast.Delete():
                for target in node.targets:
                    self.names.pop(key(target), None)
            case ast.Expr() | ast.Assert() | ast.Raise():
                for child in ast.iter_child_nodes(node):
                    if isinstance(child, ast.expr):
                        self.value(child)
            case _:  # definitions are read where they are called
                pass

    def conditions(self, node: ast.If) -> None:
        """One condition after the other: a chain of hundreds of `elif` is as many levels of the tree, too many to go into."""
        after: list[dict[str, Value] | None] = []
        while True:
            self.value(node.test)
            before = self.names
            after.append(self.branch(node.body, before))
            self.names = dict(before)
            if len(node.orelse) != 1 or not isinstance(node.orelse[0], ast.If):
                break
            node = node.orelse[0]
        self.names = self.join([after.pop(), self.branch(node.orelse, before)], before)
        for other in reversed(after):
            self.names = self.join([other, self.names], before)

    def branches(self, blocks: list[list[ast.stmt]]) -> None:
        before = self.names
        self.names = self.join([self.branch(block, before) for block in blocks], before)

    def branch(self, block: list[ast.stmt], before: dict[str, Value]) -> dict[str, Value] | None:
        """What the names are behind a block; None where it is left otherwise than at its end."""
        self.names = dict(before)
        self.block(block)
        leaves = bool(block) and isinstance(block[-1], (ast.Continue, ast.Break, ast.Return, ast.Raise))
        return None if leaves else self.names

    def join(self, after: list[dict[str, Value] | None], before: dict[str, Value]) -> dict[str, Value]:
        """What the names are behind branches; what they were before where none of these comes to its end."""
        joined: dict[str, Value] | None = None
        for names in after:
            if joined is None or names is None:
                joined = joined if names is None else names
                continue
            every = joined.keys() | names.keys()
            joined = {n: join_values(joined.get(n, Kind.UNKNOWN), names.get(n, Kind.UNKNOWN)) for n in every}
        return before if joined is None else joined

    def note_losses(self, node: ast.Assign) -> None:
        """Note where the call of `loss, parts = losses_of(batch)` returns what the backward pass starts from."""
        target = node.targets[0]
        elements = target.elts if isinstance(target, (ast.Tuple, ast.List)) else [target]
        places = [n for n, element in enumerate(elements) if self.seeds.get(key(element)) is Kind.TENSOR]
        if isinstance(node.value, ast.Call) and len(places) == 1:
            self.gives_loss[id(node.value)] = None if elements == [target] else (places[0], len(elements))

    def beside_loss(self, target: ast.expr, made_by: ast.expr, value: Value) -> Value:
        """What a call returns of which nothing is known but that it gives the loss: `loss, accuracy = model(batch)`."""
        if value is not Kind.UNKNOWN or not isinstance(made_by, ast.Call) or not isinstance(target, ast.Tuple):
            return value
        has_loss = any(self.seeds.get(key(element)) is Kind.TENSOR for element in target.elts)
        return Kind.MAYBE if has_loss else value

    def follow(self, function: Function, call: ast.Call, given: Kind) -> Value:
        """What a function of this file returns for these arguments; notes the kinds inside it on the way."""
        unread = Kind.MAYBE if given >= Kind.MAYBE else Kind.UNKNOWN
        if any(known is function for known in self.stack) or len(self.stack) >= _MAX_DEPTH:
            return unread
        is_generator = any(isinstance(n, (ast.Yield, ast.YieldFrom)) for n in walk(function))
        if is_generator or len(self.followed) >= _MAX_FOLLOWED:
            return unread
        self.followed.append(function)
        is_loss, place = id(call) in self.gives_loss, self.gives_loss.get(id(call))
        seeds = loss_seeds(self.source, function, losses_returned(self.source, function, place) if is_loss else ())
        shared = {name: kind for name, kind in self.seeds.items() if name.startswith("self.")}
        reader = CodeReader(self.source, self.kinds, shared | seeds, (*self.stack, function), self.followed)
        of_self = isinstance(call.func, ast.Attribute) and dotted_name(call.func.value) == "self"
        if of_self:
            reader.names.update({n: v for n, v in self.names.items() if n.startswith("self.")})
        reader.names.update({name: self.value(argument) for name, argument in arguments_of(call, function)})
        reader.block(function.body)
        if of_self:  # what a method has set on `self` is seen by the caller
            self.names.update({n: v for n, v in reader.names.items() if n.startswith("self.")})
        if _is_abstract(function):
            return unread
        return all_joined(reader.returned) if reader.returned else Kind.HOST


def _is_abstract(function: Function) -> bool:
    """Whether a function leaves its work to subclasses: it only raises, or has nothing but a docstring."""
    body = [statement for statement in function.body if not _is_documentation(statement)]
    return not body or isinstance(body[0], (ast.Raise, ast.Pass))


def _is_documentation(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
