"""Reads a function from top to bottom and follows products of queries and keys to the products with the values."""

from __future__ import annotations

import ast
import re
from dataclasses import replace
from functools import lru_cache

from perfaudit.expressions import regex
from perfaudit.static.checks.handwritten_attention.attention_axes import (
    equation,
    letters,
    pattern_axes,
    score_axes,
    sums_over,
    width_in_pattern,
)
from perfaudit.static.checks.handwritten_attention.attention_steps import (
    RESHAPES,
    SAME,
    TURNS,
    arithmetic,
    finish,
    indexed,
    lost,
    reshaped,
    shaped,
    turned,
    turned_operand,
)
from perfaudit.static.checks.handwritten_attention.attention_values import (
    PLAIN,
    Chain,
    Operand,
    Peak,
    Scores,
    Value,
    Weights,
    chains,
    exchanged,
    joined,
    piece,
    want,
)
from perfaudit.static.source import Function, Source
from perfaudit.static.understanding.context import called_function, dotted_name, last_name
from perfaudit.static.understanding.members import built_as
from perfaudit.static.understanding.values import Known, argument, constant, resolve

_QUERY = regex(r"(^|_)(x?q|qs?|query|queries|quer|theta|proj_query)(_|\d|$)", re.IGNORECASE)
_KEY = regex(r"(^|_)(x?k|ks?|key|keys|kt|phi|proj_key)(_|\d|$)", re.IGNORECASE)
_VALUE = regex(r"(^|_)(x?v|vs?|value|values)(_|\d|$)", re.IGNORECASE)
_ASKED = {"shape", "dtype", "device", "ndim", "is_cuda", "requires_grad"}  # read of a tensor without its values
_ASKING = {"size", "dim", "new_zeros", "new_ones", "new_full", "new_tensor", "new_empty", "stride", "element_size"}
_LIKE = {f"torch.{name}_like" for name in ("zeros", "ones", "full", "empty")}
_ARITHMETIC = {"add": ast.Add, "mul": ast.Mult, "div": ast.Div, "sub": ast.Sub, "multiply": ast.Mult}
_RANKS = {"bmm": 3, "mm": 2}
_PRODUCTS = {"matmul", "bmm", "mm"}
_DROPOUT = regex(r"drop", re.IGNORECASE)
_DROPOUTS = {f"torch.nn.{name}" for name in ("Dropout", "Dropout1d", "Dropout2d", "Dropout3d", "AlphaDropout")}
_PASSES = _DROPOUTS | {"torch.nn.Identity"}
_SOFTMAX = {"torch.softmax", "torch.nn.functional.softmax", "torch.special.softmax"}
_FUNCTIONS = "torch.", "torch.nn.functional."
_MAX_DEPTH = 3  # calls that are followed


class Reader:
    """Reads the statements of one function in order; `names` holds what is known of each name's value."""

    def __init__(self, source: Source, stack: tuple[Function, ...]) -> None:
        self.source = source
        self.stack = stack
        self.names: dict[str, Value] = {}
        self.chains: list[Chain] = []
        self.returned: list[Value] = []

    # Statements

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
                if node.value is not None:
                    self.returned.append(self.value(node.value))
            case ast.If():
                self.value(node.test)
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
                first, second = self.names.get(name), other.get(name)
                merged[name] = joined(first, second) if first is not None and second is not None else first or second  # type: ignore[assignment]  # one of them is there
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
            if isinstance(base, Scores) and isinstance(target.value, ast.Name) and not _is_zero(self.source, node):
                self.names[target.value.id] = replace(base, is_masked=True)  # scores[mask] = -inf
            elif base is not None:
                want(base)
        else:
            want(value)

    # Expressions

    def value(self, node: ast.expr) -> Value:
        match node:
            case ast.Name():
                return self.names.get(node.id, PLAIN)
            case ast.Constant():
                return PLAIN
            case ast.Attribute():
                return self.attribute(node)
            case ast.Call():
                return self.call(node)
            case ast.BinOp():
                left, right = self.value(node.left), self.value(node.right)
                if isinstance(node.op, ast.MatMult):
                    return self.product(node, node.left, node.right, left, right)
                return arithmetic(type(node.op), left, right, node.right, node.left)
            case ast.IfExp():
                want(self.value(node.test))
                return joined(self.value(node.body), self.value(node.orelse))
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
                return indexed(self.source, base, node.slice) if isinstance(base, Operand) else PLAIN
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
        value = Reader(self.source, self.stack).value(made)
        return Operand(rank=value.rank, features=value.features, is_many=True) if isinstance(value, Operand) else PLAIN

    def attribute(self, node: ast.Attribute) -> Value:
        base = self.value(node.value)
        if isinstance(base, Operand):
            if node.attr in ("T", "H"):
                return replace(base, turned=True, features=None)
            if node.attr in ("mT", "mH"):
                return exchanged(base, -1, -2)
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

    # Products

    def product(self, node: ast.expr, left_node: ast.expr, right_node: ast.expr, left: Value, right: Value) -> Value:
        """`left @ right`: scores of queries and keys, or the weighted sum of values, which ends a chain."""
        if isinstance(left, Weights):
            return finish(left, node, right_node, right, left.axis == -1 and not left.is_turned)
        if isinstance(right, Weights):
            return finish(right, node, left_node, left, right.axis == -1 and right.is_turned)
        want(left, right)
        first = left if isinstance(left, Operand) else PLAIN
        second = right if isinstance(right, Operand) else PLAIN
        if second.is_own or (first.is_own and not second.turned):
            return PLAIN
        if first.features not in (None, -1) or second.features not in (None, -2):
            return PLAIN  # summed over the positions: attention over channels
        left_name, right_name = _name_inside(left_node), _name_inside(right_node)
        if _VALUE.search(right_name) or (_KEY.search(left_name) and not _KEY.search(right_name)):
            return PLAIN  # keys and values: linear attention
        named = _QUERY.search(left_name) and _KEY.search(right_name)
        if not (first.turned or second.turned or named):
            return PLAIN
        operator = last_name(node.func) if isinstance(node, ast.Call) else ""
        return self.begin(node, left_node, right_node, -1, _RANKS.get(operator) or first.rank or second.rank)

    def begin(self, node: ast.expr, query: ast.expr, key: ast.expr, axis: int, rank: int | None) -> Scores:
        chain = Chain(node, query, key, self.stack[-1], rank)
        self.chains.append(chain)
        return Scores(frozenset([chain]), axis, rank)

    def einsum(self, node: ast.Call) -> Value:
        texts = [a for a in node.args if isinstance(a, ast.Constant) and isinstance(a.value, str)]
        operands = [a for a in node.args if a not in texts]
        if len(operands) == 1 and isinstance(operands[0], (ast.List, ast.Tuple)):
            operands = operands[0].elts
        values = [self.value(a) for a in operands]
        found = equation(texts[0].value) if len(texts) == 1 and len(operands) == 2 else None  # type: ignore[arg-type]  # a text
        if found is None:
            want(*values)
            return PLAIN
        inputs, out = found
        for (value, other), (summed, others) in zip(
            [(values[0], values[1]), (values[1], values[0])], [inputs, inputs[::-1]], strict=True
        ):
            if isinstance(value, Weights):
                other_node = operands[1] if value is values[0] else operands[0]
                axis = (-2 if value.axis == -1 else 0) if value.is_turned else value.axis
                fits = axis != 0 and sums_over(summed, others, out, axis)
                return finish(value, node, other_node, other, fits)
        want(*values)
        if any(isinstance(v, Operand) and v.is_own for v in values[1:]):
            return PLAIN
        query = score_axes(inputs, out)
        if query is None:
            return Operand(rank=len(out))
        if any(_keeps_features(value, axes, out) for value, axes in zip(values, inputs, strict=True)):
            return Operand(rank=len(out))  # attention over channels
        first, second, axis = query
        return self.begin(node, operands[first], operands[second], axis, None if "..." in out else len(out))

    # Calls

    def call(self, node: ast.Call) -> Value:
        value = self.called(node)
        if value != PLAIN or not node.args:
            return value
        if isinstance(node.func, ast.Name) and node.func.id == "map" and len(node.args) == 2:
            return self.mapped(node.args[0], node.args[1])
        return self.normalised(node.func, node.args[0])

    def mapped(self, function: ast.expr, items: ast.expr) -> Value:
        if isinstance(function, ast.Lambda):
            return self.each(function.body)
        if not isinstance(items, (ast.Tuple, ast.List)) or not items.elts:
            return PLAIN
        found = {self.normalised(function, item) for item in items.elts}
        return replace(found.pop(), is_many=True) if len(found) == 1 else PLAIN

    def normalised(self, function: ast.expr, given: ast.expr) -> Operand:
        """A name after something that calls itself a norm, which leaves the axes where they are."""
        value = self.names.get(given.id) if isinstance(given, ast.Name) else None
        if not isinstance(value, Operand) or "norm" not in last_name(function).lower():
            return PLAIN
        return Operand(rank=value.rank, features=value.features)

    def called(self, node: ast.Call) -> Value:
        name = self.source.qualified(node.func)
        if name is not None:
            return self.imported(node, name)
        if isinstance(node.func, ast.Call) and self.source.qualified(node.func.func) == "torch.nn.Softmax":
            return self.softmax(node.args[:1], self.dim_of(node.func, 0), node)
        function = called_function(self.source, node)
        if function is not None:
            return self.follow(function, node)
        if isinstance(node.func, ast.Attribute):
            base = dotted_name(node.func)
            if base.startswith("self.") and base.count(".") == 1:
                return self.module(node, node.func.attr)
            return self.method(node, node.func)
        if isinstance(node.func, ast.Name):
            made = resolve(self.source, node.func)
            if isinstance(made, ast.Call) and self.source.qualified(made.func) == "torch.nn.Softmax":
                return self.softmax(node.args[:1], self.dim_of(made, 0), node)
            if _DROPOUT.search(node.func.id) and len(node.args) == 1:
                return self.passed(node.args[0])
        return self.unknown(node)

    def unknown(self, node: ast.Call) -> Value:
        """A call that nothing is known of; what goes in serves it."""
        if not isinstance(node.func, ast.Name):
            want(self.value(node.func))
        for item in [*node.args, *(k.value for k in node.keywords)]:
            want(self.value(item.value if isinstance(item, ast.Starred) else item))
        return PLAIN

    def passed(self, node: ast.expr) -> Value:
        """Weights after a dropout are weights; scores dropped out are no attention that the library has."""
        value = self.value(node)
        if isinstance(value, (Weights, Operand)):
            for chain in chains(value):
                chain.has_dropout = True
            return value
        want(value)
        return PLAIN

    def imported(self, node: ast.Call, name: str) -> Value:
        short = name.rpartition(".")[2]
        if name in ("torch.einsum", "torch.functional.einsum", "einops.einsum", "opt_einsum.contract"):
            return self.einsum(node)
        if name == "einops.rearrange":
            return self.rearranged(node)
        if not name.startswith(_FUNCTIONS) or not node.args:
            return self.unknown(node)
        if name in _LIKE:
            return PLAIN
        if name in _SOFTMAX:
            return self.softmax(node.args[:1], self.dim_of(node, 1), node)
        if short in _PRODUCTS and len(node.args) == 2:
            values = self.value(node.args[0]), self.value(node.args[1])
            return self.product(node, node.args[0], node.args[1], *values)
        if short == "baddbmm" and len(node.args) == 3:
            want(self.value(node.args[0]))
            values = self.value(node.args[1]), self.value(node.args[2])
            product = self.product(node, node.args[1], node.args[2], *values)
            return replace(product, rank=3) if isinstance(product, Scores) else product
        if short in ("dropout", "dropout_"):
            return self.passed(node.args[0])
        if short == "where" and len(node.args) == 3:
            return self.where(node)
        first = self.value(node.args[0])
        if short in _ARITHMETIC and len(node.args) == 2:
            second = self.value(node.args[1])
            return arithmetic(_ARITHMETIC[short], first, second, node.args[1], node.args[0])
        if isinstance(first, Operand):
            for item in [*node.args[1:], *(k.value for k in node.keywords)]:
                want(self.value(item))
            if short in TURNS:
                return turned_operand(self.source, first, short, node.args[1:])
            return replace(first, turned=False) if short in ("normalize", "relu", "elu") else PLAIN
        return self.changed(node, short, first, node.args[1:])

    def method(self, node: ast.Call, func: ast.Attribute) -> Value:
        base = self.value(func.value)
        short = func.attr
        if short in _PRODUCTS and len(node.args) == 1:
            return self.product(node, func.value, node.args[0], base, self.value(node.args[0]))
        if short.rstrip("_") in _ARITHMETIC and len(node.args) == 1:
            op = _ARITHMETIC[short.rstrip("_")]
            return self.kept(node, func, arithmetic(op, base, self.value(node.args[0]), node.args[0]))
        if isinstance(base, Operand):
            for item in [*node.args, *(k.value for k in node.keywords)]:
                want(self.value(item.value if isinstance(item, ast.Starred) else item))
            return shaped(self.source, node, short, base)
        return self.kept(node, func, self.changed(node, short, base, node.args))

    def kept(self, node: ast.Call, func: ast.Attribute, value: Value) -> Value:
        """A method that works in place changes the name it is called on."""
        if func.attr.endswith("_") and isinstance(func.value, ast.Name):
            self.names[func.value.id] = value
        return value

    def changed(self, node: ast.Call, short: str, base: Value, arguments: list[ast.expr]) -> Value:
        """Scores, weights or peaks after a function or method of torch; anything unknown serves something else."""
        others = [self.value(a.value if isinstance(a, ast.Starred) else a) for a in arguments]
        others += [self.value(k.value) for k in node.keywords]
        bare = short.rstrip("_")
        if bare in _ASKING or (short in ("expand_as", "view_as") and isinstance(base, Peak)):
            return base if isinstance(base, Peak) else PLAIN
        if isinstance(base, Peak):
            return base if short in ("detach", "unsqueeze", "clone") else lost(base, *others)
        if bare in SAME:
            return base
        if isinstance(base, Scores):
            if bare == "softmax":
                return self.softmax([], self.dim_of(node, 1 if arguments is not node.args else 0), node, base)
            if bare == "masked_fill" and len(arguments) == 2 and not _is_zero(self.source, arguments[1]):
                return replace(base, is_masked=True)
            if bare in ("amax", "max"):
                return Peak(base.chains)
        if isinstance(base, Weights):
            if bare == "masked_fill" and len(arguments) == 2 and base.is_masked and _is_zero(self.source, arguments[1]):
                return base
            if bare == "nan_to_num" and base.is_masked:
                return base
            if bare in TURNS:
                return turned(self.source, base, bare, arguments)
        if isinstance(base, (Scores, Weights)):
            if bare in RESHAPES:
                return reshaped(self.source, base, arguments) or lost(base, *others)
            if bare in ("unsqueeze", "squeeze") and [constant(self.source, a) for a in arguments] in ([0], [1]):
                return replace(base, rank=None)
        return lost(base, *others)

    def where(self, node: ast.Call) -> Value:
        """`torch.where(mask, scores, low)`, either way round."""
        want(self.value(node.args[0]))
        first, second = self.value(node.args[1]), self.value(node.args[2])
        scores, other = (first, node.args[2]) if isinstance(first, Scores) else (second, node.args[1])
        if isinstance(scores, Scores) and not _is_zero(self.source, other):
            want(second if scores is first else first)
            return replace(scores, is_masked=True)
        return lost(first, second)

    def softmax(self, given: list[ast.expr], dim: object, node: ast.expr, value: Value | None = None) -> Value:
        if value is None:
            value = self.value(given[0]) if given else PLAIN
        if not isinstance(value, Scores):
            return lost(value)
        is_last = isinstance(dim, int) and (
            dim == value.axis if dim < 0 else value.rank is not None and dim - value.rank == value.axis
        )
        if not is_last:
            return lost(value)
        for chain in value.chains:
            chain.softmax = node
        return Weights(value.chains, value.axis, value.rank, value.is_masked)

    def dim_of(self, call: ast.Call, position: int) -> object:
        given = argument(self.source, call, "dim", position)
        if isinstance(given, Known):
            given = argument(self.source, call, "axis")
        return None if isinstance(given, Known) else constant(self.source, given)

    def rearranged(self, node: ast.Call) -> Value:
        """einops: what comes out is turned where the last axis of the pattern is another one than before."""
        value = self.value(node.args[0]) if node.args else PLAIN
        pattern = constant(self.source, node.args[1]) if len(node.args) > 1 else None
        if not isinstance(pattern, str) or "->" not in pattern:
            return lost(value)
        before, after = pattern_axes(pattern)
        if isinstance(value, Weights) and len(before) > 1 and after == [*before[:-2], before[-1], before[-2]]:
            return replace(value, is_turned=not value.is_turned)
        if not isinstance(value, Operand):
            return lost(value)
        is_turned = bool(before and after) and letters(before[-1])[-1:] != letters(after[-1])[-1:]
        rank = None if "..." in after else len(after)
        return Operand(is_turned, rank, features=width_in_pattern(before, after), is_many=value.is_many)

    def module(self, node: ast.Call, attribute: str) -> Value:
        """`self.name(x)`: a softmax or a dropout, where the class builds one under that name."""
        rows = [self.layers(made) for made in built_as(self.source, node, attribute)]
        first = {self.source.qualified(row[0].func) for row in rows}
        rest = {self.source.qualified(layer.func) for row in rows for layer in row[1:]}
        if len(node.args) != 1:
            return self.unknown(node)
        if first == {"torch.nn.Softmax"} and rest <= _PASSES:
            dims = {self.dim_of(row[0], 0) for row in rows}
            value = self.softmax(node.args, dims.pop() if len(dims) == 1 else None, node)
            for chain in chains(value) if rest & _DROPOUTS else ():
                chain.has_dropout = True
            return value
        is_dropout = bool(first) and first | rest <= _PASSES
        if is_dropout or (_DROPOUT.search(attribute) and "torch.nn.Sequential" not in first | rest):
            return self.passed(node.args[0])
        return self.unknown(node)

    def layers(self, made: ast.Call) -> list[ast.Call]:
        """The layers of a Sequential that is written out, else the layer itself."""
        inner = [item for item in made.args if isinstance(item, ast.Call)]
        is_row = self.source.qualified(made.func) == "torch.nn.Sequential" and inner and len(inner) == len(made.args)
        return inner if is_row else [made]

    def follow(self, function: Function, node: ast.Call) -> Value:
        """What a function of this file returns for these arguments."""
        values: list[tuple[ast.expr, Value]] = []
        for item in [*node.args, *(k.value for k in node.keywords)]:
            inner = item.value if isinstance(item, ast.Starred) else item
            values.append((item, self.value(inner)))
        given = any(chains(value) for _, value in values)
        if (
            any(f is function for f in self.stack)
            or len(self.stack) > _MAX_DEPTH
            or not _may_matter(self.source, function, given)
        ):
            return lost(*(v for _, v in values))
        if any(isinstance(item, ast.Starred) for item in node.args):
            return lost(*(v for _, v in values))
        reader = Reader(self.source, (*self.stack, function))
        parameters = [a.arg for a in (*function.args.posonlyargs, *function.args.args)]
        if isinstance(node.func, ast.Attribute) and not _is_static(function):
            parameters = parameters[1:]
        by_node = {id(n): v for n, v in values}
        taken = set()
        for name, item in zip(parameters, node.args, strict=False):
            reader.names[name] = by_node[id(item)]
            taken.add(id(item))
        for keyword in node.keywords:
            if keyword.arg is not None:
                reader.names[keyword.arg] = by_node[id(keyword.value)]
                taken.add(id(keyword.value))
        want(*(v for n, v in values if id(n) not in taken))
        reader.block(function.body)
        self.chains += reader.chains
        if not reader.returned:
            return PLAIN
        result = reader.returned[0]
        for other in reader.returned[1:]:
            result = joined(result, other)
        return result


def _may_matter(source: Source, function: Function, given: bool) -> bool:
    """Whether following a call may tell something: it gets scores, or makes products itself; generators are not read."""
    known = _read_before(source)
    if function not in known:
        nodes = list(ast.walk(function))
        names = {last_name(n.func) for n in nodes if isinstance(n, ast.Call)}
        names |= {"@" for n in nodes if isinstance(n, ast.MatMult)}
        makes = not names.isdisjoint(_PRODUCTS | {"einsum", "baddbmm", "@", "transpose", "permute"})
        known[function] = any(isinstance(n, (ast.Yield, ast.YieldFrom)) for n in nodes), makes
    is_generator, makes_products = known[function]
    return not is_generator and (given or makes_products)


@lru_cache(maxsize=2)
def _read_before(source: Source) -> dict[Function, tuple[bool, bool]]:
    """Whether functions of a file are generators, and make products, of those that were asked about."""
    return {}


def _is_static(function: Function) -> bool:
    return any(last_name(d) == "staticmethod" for d in function.decorator_list)


def _keeps_features(value: Value, axes: list[str], out: list[str]) -> bool:
    """Whether an equation does not sum over the width of the heads."""
    place = value.features if isinstance(value, Operand) else None
    return place is not None and len(axes) >= -place and axes[place] in out


def _is_zero(source: Source, node: ast.expr) -> bool:
    return constant(source, node) == 0


def _opens_scope(node: ast.AST) -> bool:
    return isinstance(node, (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp))


def _name_inside(node: ast.expr) -> str:
    """The name at the root of an expression: "k" of `k.transpose(-2, -1)` and of `k`."""
    while True:
        if isinstance(node, ast.Call):
            node = node.func if isinstance(node.func, ast.Attribute) else node.args[0] if node.args else node.func
        elif isinstance(node, ast.Attribute) and not isinstance(node.value, ast.Name):
            node = node.value
        elif isinstance(node, ast.Attribute):
            return node.attr if dotted_name(node).startswith("self.") else last_name(node.value)
        elif isinstance(node, ast.Subscript):
            node = node.value
        else:
            return last_name(node)
