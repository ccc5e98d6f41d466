"""Attention that is written out: products of queries and keys, followed to the softmax and to the product with the values.

A function is read from top to bottom. Names hold what is known of their value: scores of a product of queries and keys,
weights after the softmax, or an operand. Whatever is done to scores or weights that is not part of attention makes
them wanted elsewhere, and such a product is never given back.
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass, field, replace
from functools import lru_cache

from perfaudit.static.context import called_function, dotted_name, last_name
from perfaudit.static.source import FUNCTIONS, Function, Source
from perfaudit.static.values import Known, argument, assigned_value, constant, resolve

FUSED = re.compile(
    r"scaled_dot_product_attention|flash_?attn|flash_?attention|memory_efficient_attention|flex_attention|xformers"
    r"|sage_?attn|sdpa|use_flash|\bself\.flash",
    re.IGNORECASE,
)
_REFERENCE = re.compile(r"(^|_)(ref|reference|naive|expected|test|eager|mock)(_|$)", re.IGNORECASE)
_QUERY = re.compile(r"(^|_)(x?q|qs?|query|queries|quer|theta|proj_query)(_|\d|$)", re.IGNORECASE)
_KEY = re.compile(r"(^|_)(x?k|ks?|key|keys|kt|phi|proj_key)(_|\d|$)", re.IGNORECASE)
_VALUE = re.compile(r"(^|_)(x?v|vs?|value|values)(_|\d|$)", re.IGNORECASE)
_ASKED = {"shape", "dtype", "device", "ndim", "is_cuda", "requires_grad"}  # read of a tensor without its values
_ASKING = {"size", "dim", "new_zeros", "new_ones", "new_full", "new_tensor", "new_empty", "stride", "element_size"}
_LIKE = {f"torch.{name}_like" for name in ("zeros", "ones", "full", "empty")}
_SAME = {"float", "to", "type", "type_as", "half", "bfloat16", "contiguous", "clone", "double"}
_ARITHMETIC = {"add": ast.Add, "mul": ast.Mult, "div": ast.Div, "sub": ast.Sub, "multiply": ast.Mult}
_TURNS = {"transpose", "permute", "swapaxes", "swapdims", "t", "adjoint", "movedim"}
_RESHAPES = {"view", "reshape"}
_RANKS = {"bmm": 3, "mm": 2}
_PRODUCTS = {"matmul", "bmm", "mm"}
_MULTIPLIER = re.compile(r"mask|adj|gate|decay|dist", re.IGNORECASE)  # no factor of a scale
_DROPOUT = re.compile(r"drop", re.IGNORECASE)
_DROPOUTS = {f"torch.nn.{name}" for name in ("Dropout", "Dropout1d", "Dropout2d", "Dropout3d", "AlphaDropout")}
_PASSES = _DROPOUTS | {"torch.nn.Identity"}
_SOFTMAX = {"torch.softmax", "torch.nn.functional.softmax", "torch.special.softmax"}
_FUNCTIONS = "torch.", "torch.nn.functional."
_MAX_DEPTH = 3  # calls that are followed


@dataclass(slots=True, eq=False)
class Chain:
    """One product of queries and keys, and what becomes of it.

    `outputs` are the products with the values, each with the values; several stand in branches of one `if`.
    """

    product: ast.expr
    query: ast.expr
    key: ast.expr
    function: Function
    softmax: ast.expr | None = None
    outputs: list[tuple[ast.expr, ast.expr]] = field(default_factory=list)  # the product with the values, the values
    is_masked: bool = False
    has_dropout: bool = False
    wanted: bool = False  # the scores or weights serve something else too


@dataclass(frozen=True, slots=True)
class Operand:
    """Something that may be multiplied: whether its last step turned it, its rank if known, whether it is `self.x`."""

    turned: bool = False
    rank: int | None = None
    is_own: bool = False


@dataclass(frozen=True, slots=True)
class Scores:
    """Products of queries and keys; `axis` is the place of the keys, counted from the end."""

    chains: frozenset[Chain]
    axis: int = -1
    rank: int | None = None
    is_masked: bool = False


@dataclass(frozen=True, slots=True)
class Weights:
    """Scores after the softmax over the keys; `is_turned` when keys and queries have changed places."""

    chains: frozenset[Chain]
    axis: int = -1
    rank: int | None = None
    is_masked: bool = False
    is_turned: bool = False


@dataclass(frozen=True, slots=True)
class Peak:
    """The largest score of each row, for subtracting it."""

    chains: frozenset[Chain]


Unit = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
_UNITS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
Value = Operand | Scores | Weights | Peak
_PLAIN = Operand()


@lru_cache(maxsize=2)
def written_out(source: Source) -> tuple[Chain, ...]:
    """Every attention of a file that is written out and whose scores and weights serve nothing else."""
    if "oftmax" not in source.text or not source.imports_torch:
        return ()
    done: dict[int, Chain] = {}
    for function in _candidates(source):
        reader = _Reader(source, (function,))
        reader.block(function.body)
        for value in reader.returned:
            _want(value)
        for chain in reader.chains:
            if chain.outputs and not chain.wanted and _one_way(source, chain):
                done.setdefault(id(chain.product), chain)
    found: dict[int, Chain] = {}
    for chain in sorted(done.values(), key=lambda chain: (chain.product.lineno, chain.product.col_offset)):
        if not _is_wanted_so(source, chain.function):
            found.setdefault(id(chain.outputs[0][0]), chain)  # scores of two branches, or two that are added: one
    return tuple(found.values())


def _candidates(source: Source) -> list[Function]:
    """Functions that hold a softmax, and those of the file that call one of them."""
    names = {"softmax"} | {
        node.attr
        for node in source.nodes(ast.Attribute)
        if isinstance(node.ctx, ast.Store) and "oftmax" in source.text_of(source.statement(node))
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
    for call in calls:
        if last_name(call.func) in called_names and (around := source.enclosing(call, *FUNCTIONS)) is not None:
            found.setdefault(id(around), around)  # type: ignore[arg-type]
    return list(found.values())


def _one_way(source: Source, chain: Chain) -> bool:
    """Whether at most one product with values is made in any run: two of them stand in branches of one `if`."""
    nodes = list({id(node): node for node, _ in chain.outputs}.values())
    return len(nodes) == 1 or all(
        _exclusive(source, first, second) for i, first in enumerate(nodes) for second in nodes[i + 1 :]
    )


def _exclusive(source: Source, first: ast.AST, second: ast.AST) -> bool:
    around = {id(a): child for child, a in _steps_out(source, first)}
    for child, ancestor in _steps_out(source, second):
        if id(ancestor) in around:
            other = around[id(ancestor)]
            if not isinstance(ancestor, (ast.If, ast.IfExp)):
                return False
            body = ancestor.body if isinstance(ancestor.body, list) else [ancestor.body]
            return any(n is child for n in body) is not any(n is other for n in body)
    return False


def _steps_out(source: Source, node: ast.AST) -> list[tuple[ast.AST, ast.AST]]:
    steps, child = [], node
    for ancestor in source.ancestors(node):
        steps.append((child, ancestor))
        child = ancestor
    return steps


# ---- written out on purpose ----------------------------------------------------------------------------------------


def _is_wanted_so(source: Source, function: Function) -> bool:
    """Whether the formula is a reference, has its own backward, or stands beside the fused form as its fallback."""
    unit: ast.AST = function
    for ancestor in (function, *source.ancestors(function)):
        if isinstance(ancestor, (*FUNCTIONS, ast.ClassDef)):
            if _REFERENCE.search(ancestor.name):
                return True
            if isinstance(ancestor, ast.ClassDef) and any(last_name(b) == "Function" for b in ancestor.bases):
                return True
            unit = ancestor
    return bool(FUSED.search(source.text)) and isinstance(unit, _UNITS) and _is_beside_fused(source, unit)


def _is_beside_fused(source: Source, unit: Unit) -> bool:
    """Whether a top-level function or class uses a fused attention, or something else chooses between it and one."""
    if FUSED.search(_code(source, unit)):
        return True
    name = re.compile(rf"\b{re.escape(unit.name)}\b")
    statements = [s for s in _top_level(source.tree.body) if not isinstance(s, (ast.Import, ast.ImportFrom))]
    codes = {id(s): _code(source, s) for s in statements}
    fused = [s for s in statements if isinstance(s, _UNITS) and FUSED.search(codes[id(s)])]
    either = re.compile("|".join([FUSED.pattern, *(rf"\b{re.escape(s.name)}\b" for s in fused)]), re.IGNORECASE)
    for statement in statements:
        code = codes[id(statement)]
        if statement is unit or not name.search(code) or not either.search(code):
            continue
        if not isinstance(statement, _UNITS) or any(s is statement for s in fused) or re.search(r"\bif\b|\{", code):
            return True
    return False


def _code(source: Source, statement: ast.stmt) -> str:
    """The text of a statement without comments and docstrings, where a fused form may be spoken of."""
    text = source.text_of(statement)
    text = re.sub(r'"""(?:.|\n)*?"""|' + r"'''(?:.|\n)*?'''", "", text)
    return re.sub(r"#[^\r\n]*", "", text)


def _top_level(body: list[ast.stmt]) -> list[ast.stmt]:
    """The statements of a module, those under a top-level `if` or `try` too."""
    found: list[ast.stmt] = []
    for statement in body:
        found.append(statement)
        if isinstance(statement, (ast.If, ast.Try)):
            handlers = [s for h in getattr(statement, "handlers", ()) for s in h.body]
            found += _top_level([*statement.body, *statement.orelse, *handlers])
    return found


# ---- reading a function --------------------------------------------------------------------------------------------


def _chains(value: Value | None) -> frozenset[Chain]:
    return frozenset() if value is None or isinstance(value, Operand) else value.chains


def _want(*values: Value | None) -> None:
    """Note that scores or weights serve something else."""
    for value in values:
        for chain in _chains(value):
            chain.wanted = True


class _Reader:
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
                value = self.value(node.value)
                for target in node.targets:
                    self.bind(target, value, node.value)
            case ast.AnnAssign() if node.value is not None:
                self.bind(node.target, self.value(node.value), node.value)
            case ast.AugAssign():
                left, right = self.value(node.target), self.value(node.value)
                self.bind(node.target, self.arithmetic(type(node.op), left, right, node.value), node.value)
            case ast.Return():
                if node.value is not None:
                    self.returned.append(self.value(node.value))
            case ast.If():
                self.value(node.test)
                self.branches([node.body, node.orelse])
            case ast.For() | ast.AsyncFor():
                self.value(node.iter)
                self.bind(node.target, _PLAIN, node.iter)
                self.branches([[*node.body, *node.orelse], []])
            case ast.While():
                self.value(node.test)
                self.branches([[*node.body, *node.orelse], []])
            case ast.With() | ast.AsyncWith():
                for item in node.items:
                    self.value(item.context_expr)
                self.block(node.body)
            case ast.Try():
                self.branches([[*node.body, *node.orelse], *([*h.body] for h in node.handlers)])
                self.block(node.finalbody)
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                self.close_over(node)
            case ast.Delete():
                pass
            case _:
                for child in ast.iter_child_nodes(node):
                    if isinstance(child, ast.expr):
                        value = self.value(child)
                        if not isinstance(node, ast.Expr):
                            _want(value)

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
                merged[name] = _joined(first, second) if first is not None and second is not None else first or second  # type: ignore[assignment]  # one of them is there
            self.names = merged

    def close_over(self, node: ast.AST) -> None:
        for name in ast.walk(node):
            if isinstance(name, ast.Name) and isinstance(name.ctx, ast.Load):
                _want(self.names.get(name.id))

    def bind(self, target: ast.expr, value: Value, node: ast.expr) -> None:
        if isinstance(target, ast.Name):
            self.names[target.id] = value
        elif isinstance(target, (ast.Tuple, ast.List)):
            _want(value)
            for element in target.elts:
                self.bind(element.value if isinstance(element, ast.Starred) else element, _PLAIN, node)
        elif isinstance(target, ast.Subscript):
            base = self.names.get(target.value.id) if isinstance(target.value, ast.Name) else None
            self.value(target.slice)
            _want(value)
            if isinstance(base, Scores) and isinstance(target.value, ast.Name) and not _is_zero(self.source, node):
                self.names[target.value.id] = replace(base, is_masked=True)  # scores[mask] = -inf
            elif base is not None:
                _want(base)
        else:
            _want(value)

    # Expressions

    def value(self, node: ast.expr) -> Value:
        match node:
            case ast.Name():
                return self.names.get(node.id, _PLAIN)
            case ast.Constant():
                return _PLAIN
            case ast.Attribute():
                return self.attribute(node)
            case ast.Call():
                return self.call(node)
            case ast.BinOp():
                left, right = self.value(node.left), self.value(node.right)
                if isinstance(node.op, ast.MatMult):
                    return self.product(node, node.left, node.right, left, right)
                return self.arithmetic(type(node.op), left, right, node.right, node.left)
            case ast.IfExp():
                _want(self.value(node.test))
                return _joined(self.value(node.body), self.value(node.orelse))
            case ast.NamedExpr():
                value = self.value(node.value)
                self.bind(node.target, value, node.value)
                return value
            case ast.Subscript():
                base = self.value(node.value)
                self.value(node.slice)
                if isinstance(base, Peak):
                    return base
                _want(base)
                return _PLAIN
            case ast.Compare() if all(isinstance(op, (ast.Is, ast.IsNot)) for op in node.ops):
                self.value(node.left)
                return _PLAIN
            case ast.Lambda():
                self.close_over(node)
                return _PLAIN
        for child in ast.walk(node) if _opens_scope(node) else ():
            if isinstance(child, ast.Name):
                _want(self.names.get(child.id))
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.expr) and not _opens_scope(node):
                _want(self.value(child))
        return _PLAIN

    def attribute(self, node: ast.Attribute) -> Value:
        base = self.value(node.value)
        if isinstance(base, Operand):
            if node.attr in ("T", "mT", "H", "mH"):
                return replace(base, turned=True)
            own = dotted_name(node).startswith("self.") or base.is_own
            return Operand(is_own=own)
        if node.attr in _ASKED:
            return _PLAIN
        if isinstance(base, Weights) and node.attr in ("T", "mT"):
            return replace(base, is_turned=not base.is_turned)
        if isinstance(base, Peak) and node.attr == "values":
            return base
        _want(base)
        return _PLAIN

    def arithmetic(
        self, op: type, left: Value, right: Value, right_node: ast.expr, left_node: ast.expr | None = None
    ) -> Value:
        """Scores stay scores under a scale, a mask or bias that is added, and the subtraction of their peak."""
        if isinstance(left, Scores) and isinstance(right, Peak) and op is ast.Sub:
            return left
        if isinstance(left, Scores) and isinstance(right, Scores) and op is ast.Add:
            return replace(left, chains=left.chains | right.chains, is_masked=left.is_masked or right.is_masked)
        other, other_node = (right, right_node) if isinstance(left, Scores) else (left, left_node)
        scores = left if isinstance(left, Scores) else right
        if isinstance(scores, Scores) and isinstance(other, Operand):
            turned_over = scores is right and op in (ast.Sub, ast.Div)
            multiplies_mask = op in (ast.Mult, ast.Div) and other_node is not None and self.is_mask(other_node)
            if op in (ast.Add, ast.Sub, ast.Mult, ast.Div) and not turned_over and not multiplies_mask:
                return replace(scores, is_masked=scores.is_masked or op in (ast.Add, ast.Sub))
        _want(left, right)
        return _PLAIN

    def is_mask(self, node: ast.expr) -> bool:
        return any(_MULTIPLIER.search(last_name(part)) for part in ast.walk(node))

    # Products

    def product(self, node: ast.expr, left_node: ast.expr, right_node: ast.expr, left: Value, right: Value) -> Value:
        """`left @ right`: scores of queries and keys, or the weighted sum of values, which ends a chain."""
        if isinstance(left, Weights):
            return self.finish(left, node, right_node, right, left.axis == -1 and not left.is_turned)
        if isinstance(right, Weights):
            return self.finish(right, node, left_node, left, right.axis == -1 and right.is_turned)
        _want(left, right)
        first = left if isinstance(left, Operand) else _PLAIN
        second = right if isinstance(right, Operand) else _PLAIN
        if second.is_own or (first.is_own and not second.turned):
            return _PLAIN
        left_name, right_name = _name_inside(left_node), _name_inside(right_node)
        if _VALUE.search(right_name) or (_KEY.search(left_name) and not _KEY.search(right_name)):
            return _PLAIN  # keys and values: linear attention
        named = _QUERY.search(left_name) and _KEY.search(right_name)
        if not (first.turned or second.turned or named):
            return _PLAIN
        operator = last_name(node.func) if isinstance(node, ast.Call) else ""
        return self.begin(node, left_node, right_node, -1, _RANKS.get(operator) or first.rank or second.rank)

    def begin(self, node: ast.expr, query: ast.expr, key: ast.expr, axis: int, rank: int | None) -> Scores:
        chain = Chain(node, query, key, self.stack[-1])
        self.chains.append(chain)
        return Scores(frozenset([chain]), axis, rank)

    def finish(self, weights: Weights, node: ast.expr, values_node: ast.expr, values: Value, fits: bool) -> Value:
        if not fits or not isinstance(values, Operand) or values.is_own:
            _want(weights, values)
            return _PLAIN
        for chain in weights.chains:
            chain.outputs.append((node, values_node))
            chain.is_masked |= weights.is_masked
        return _PLAIN

    def einsum(self, node: ast.Call) -> Value:
        texts = [a for a in node.args if isinstance(a, ast.Constant) and isinstance(a.value, str)]
        operands = [a for a in node.args if a not in texts]
        if len(operands) == 1 and isinstance(operands[0], (ast.List, ast.Tuple)):
            operands = operands[0].elts
        values = [self.value(a) for a in operands]
        equation = _equation(texts[0].value) if len(texts) == 1 and len(operands) == 2 else None  # type: ignore[arg-type]  # a text
        if equation is None:
            _want(*values)
            return _PLAIN
        inputs, out = equation
        for (value, other), (letters, others) in zip(
            [(values[0], values[1]), (values[1], values[0])], [inputs, inputs[::-1]], strict=True
        ):
            if isinstance(value, Weights):
                other_node = operands[1] if value is values[0] else operands[0]
                axis = (-2 if value.axis == -1 else 0) if value.is_turned else value.axis
                fits = axis != 0 and _sums_over(letters, others, out, axis)
                return self.finish(value, node, other_node, other, fits)
        _want(*values)
        if any(isinstance(v, Operand) and v.is_own for v in values[1:]):
            return _PLAIN
        query = _score_axes(inputs, out)
        if query is None:
            return Operand(rank=len(out))
        first, second, axis = query
        return self.begin(node, operands[first], operands[second], axis, None if "..." in out else len(out))

    # Calls

    def call(self, node: ast.Call) -> Value:
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
            _want(self.value(node.func))
        for item in [*node.args, *(k.value for k in node.keywords)]:
            _want(self.value(item.value if isinstance(item, ast.Starred) else item))
        return _PLAIN

    def passed(self, node: ast.expr) -> Value:
        """Weights after a dropout are weights; scores dropped out are no attention that the library has."""
        value = self.value(node)
        if isinstance(value, (Weights, Operand)):
            for chain in _chains(value):
                chain.has_dropout = True
            return value
        _want(value)
        return _PLAIN

    def imported(self, node: ast.Call, name: str) -> Value:
        short = name.rpartition(".")[2]
        if name in ("torch.einsum", "torch.functional.einsum", "einops.einsum", "opt_einsum.contract"):
            return self.einsum(node)
        if name == "einops.rearrange":
            return self.rearranged(node)
        if not name.startswith(_FUNCTIONS) or not node.args:
            return self.unknown(node)
        if name in _LIKE:
            return _PLAIN
        if name in _SOFTMAX:
            return self.softmax(node.args[:1], self.dim_of(node, 1), node)
        if short in _PRODUCTS and len(node.args) == 2:
            values = self.value(node.args[0]), self.value(node.args[1])
            return self.product(node, node.args[0], node.args[1], *values)
        if short == "baddbmm" and len(node.args) == 3:
            _want(self.value(node.args[0]))
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
            return self.arithmetic(_ARITHMETIC[short], first, second, node.args[1], node.args[0])
        if isinstance(first, Operand):
            for item in [*node.args[1:], *(k.value for k in node.keywords)]:
                _want(self.value(item))
            keeps = short in ("normalize", "relu", "elu")
            turned = short in _TURNS
            return Operand(turned, first.rank if keeps or turned else None, first.is_own and (keeps or turned))
        return self.changed(node, short, first, node.args[1:])

    def method(self, node: ast.Call, func: ast.Attribute) -> Value:
        base = self.value(func.value)
        short = func.attr
        if short in _PRODUCTS and len(node.args) == 1:
            return self.product(node, func.value, node.args[0], base, self.value(node.args[0]))
        if short.rstrip("_") in _ARITHMETIC and len(node.args) == 1:
            op = _ARITHMETIC[short.rstrip("_")]
            return self.kept(node, func, self.arithmetic(op, base, self.value(node.args[0]), node.args[0]))
        if isinstance(base, Operand):
            for item in [*node.args, *(k.value for k in node.keywords)]:
                _want(self.value(item.value if isinstance(item, ast.Starred) else item))
            return self.shaped(node, short, base)
        return self.kept(node, func, self.changed(node, short, base, node.args))

    def kept(self, node: ast.Call, func: ast.Attribute, value: Value) -> Value:
        """A method that works in place changes the name it is called on."""
        if func.attr.endswith("_") and isinstance(func.value, ast.Name):
            self.names[func.value.id] = value
        return value

    def shaped(self, node: ast.Call, short: str, base: Operand) -> Operand:
        """What a method of an operand gives."""
        if short in _TURNS:
            rank = len(node.args) if short == "permute" and len(node.args) > 1 else 2 if short == "t" else base.rank
            return Operand(True, rank, base.is_own)
        if short in _RESHAPES:
            plain = len(node.args) > 1 and not any(isinstance(a, ast.Starred) for a in node.args)
            return Operand(base.turned, len(node.args) if plain else None)
        if short in _SAME or short == "detach":
            return base
        if short in ("expand", "repeat", "flatten", "squeeze", "unsqueeze", "reshape_as", "view_as"):
            return Operand(base.turned)
        return _PLAIN

    def changed(self, node: ast.Call, short: str, base: Value, arguments: list[ast.expr]) -> Value:
        """Scores, weights or peaks after a function or method of torch; anything unknown serves something else."""
        others = [self.value(a.value if isinstance(a, ast.Starred) else a) for a in arguments]
        others += [self.value(k.value) for k in node.keywords]
        bare = short.rstrip("_")
        if bare in _ASKING or (short in ("expand_as", "view_as") and isinstance(base, Peak)):
            return base if isinstance(base, Peak) else _PLAIN
        if isinstance(base, Peak):
            return base if short in ("detach", "unsqueeze", "clone") else self.lost(base, *others)
        if bare in _SAME:
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
            if bare in _TURNS:
                return self.turned(base, bare, arguments)
        if isinstance(base, (Scores, Weights)):
            if bare in _RESHAPES:
                return self.reshaped(base, arguments) or self.lost(base, *others)
            if bare in ("unsqueeze", "squeeze") and [constant(self.source, a) for a in arguments] in ([0], [1]):
                return replace(base, rank=None)
        return self.lost(base, *others)

    def lost(self, *values: Value) -> Value:
        _want(*values)
        return _PLAIN

    def reshaped(self, base: Scores | Weights, sizes: list[ast.expr]) -> Value | None:
        """Leading axes split or joined; None where the axis of the keys may be touched."""
        if len(sizes) < 2 or base.axis != -1 or constant(self.source, sizes[-1]) in (-1, 1):
            return None
        starred = any(isinstance(size, ast.Starred) for size in sizes)
        return replace(base, rank=None if starred else len(sizes))

    def turned(self, base: Weights, short: str, arguments: list[ast.expr]) -> Value:
        """Weights with the last two axes exchanged."""
        listed = arguments[0].elts if len(arguments) == 1 and isinstance(arguments[0], (ast.Tuple, ast.List)) else None
        axes = [constant(self.source, a) for a in listed or arguments]
        n = len(axes)
        if short == "permute":
            is_swap = n >= 2 and axes == [*range(n - 2), n - 1, n - 2]
        else:
            from_end = {-1, -2} if base.rank is None else {-1, -2, base.rank - 1, base.rank - 2}
            guessed = base.rank is None and axes in ([1, 2], [2, 1])  # of three axes, as for `bmm`
            is_swap = short == "t" or guessed or (n == 2 and axes[0] != axes[1] and set(axes) <= from_end)
        return replace(base, is_turned=not base.is_turned) if is_swap else self.lost(base)

    def where(self, node: ast.Call) -> Value:
        """`torch.where(mask, scores, low)`, either way round."""
        _want(self.value(node.args[0]))
        first, second = self.value(node.args[1]), self.value(node.args[2])
        scores, other = (first, node.args[2]) if isinstance(first, Scores) else (second, node.args[1])
        if isinstance(scores, Scores) and not _is_zero(self.source, other):
            _want(second if scores is first else first)
            return replace(scores, is_masked=True)
        return self.lost(first, second)

    def softmax(self, given: list[ast.expr], dim: object, node: ast.expr, value: Value | None = None) -> Value:
        if value is None:
            value = self.value(given[0]) if given else _PLAIN
        if not isinstance(value, Scores):
            return self.lost(value)
        is_last = isinstance(dim, int) and (
            dim == value.axis if dim < 0 else value.rank is not None and dim - value.rank == value.axis
        )
        if not is_last:
            return self.lost(value)
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
        value = self.value(node.args[0]) if node.args else _PLAIN
        pattern = constant(self.source, node.args[1]) if len(node.args) > 1 else None
        if not isinstance(pattern, str) or "->" not in pattern:
            return self.lost(value)
        before, after = (re.findall(r"\([^)]*\)|[^\s()]+", side) for side in pattern.split("->", 1))
        if isinstance(value, Weights) and len(before) > 1 and after == [*before[:-2], before[-1], before[-2]]:
            return replace(value, is_turned=not value.is_turned)
        if not isinstance(value, Operand):
            return self.lost(value)
        turned = bool(before and after) and _letters(before[-1])[-1:] != _letters(after[-1])[-1:]
        return Operand(turned, None if "..." in after else len(after), False)

    def module(self, node: ast.Call, attribute: str) -> Value:
        """`self.name(x)`: a softmax or a dropout, where the class builds one under that name."""
        made = built_as(self.source, node, attribute)
        names = {self.source.qualified(m.func) for m in made}
        if names == {"torch.nn.Softmax"} and len(node.args) == 1:
            dims = {self.dim_of(m, 0) for m in made}
            return self.softmax(node.args, dims.pop() if len(dims) == 1 else None, node)
        is_dropout = bool(names) and names <= _PASSES
        if len(node.args) == 1 and (is_dropout or (_DROPOUT.search(attribute) and not names & {"torch.nn.Sequential"})):
            return self.passed(node.args[0])
        return self.unknown(node)

    def follow(self, function: Function, node: ast.Call) -> Value:
        """What a function of this file returns for these arguments."""
        values: list[tuple[ast.expr, Value]] = []
        for item in [*node.args, *(k.value for k in node.keywords)]:
            inner = item.value if isinstance(item, ast.Starred) else item
            values.append((item, self.value(inner)))
        given = any(_chains(value) for _, value in values)
        if (
            any(f is function for f in self.stack)
            or len(self.stack) > _MAX_DEPTH
            or not _may_matter(self.source, function, given)
        ):
            return self.lost(*(v for _, v in values))
        if any(isinstance(item, ast.Starred) for item in node.args):
            return self.lost(*(v for _, v in values))
        reader = _Reader(self.source, (*self.stack, function))
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
        _want(*(v for n, v in values if id(n) not in taken))
        reader.block(function.body)
        self.chains += reader.chains
        if not reader.returned:
            return _PLAIN
        result = reader.returned[0]
        for other in reader.returned[1:]:
            result = _joined(result, other)
        return result


def _may_matter(source: Source, function: Function, given: bool) -> bool:
    """Whether following a call may tell something: it gets scores, or makes products itself; generators are not read."""
    nodes = list(ast.walk(function))
    if any(isinstance(n, (ast.Yield, ast.YieldFrom)) for n in nodes):
        return False
    if given:
        return True
    names = {last_name(n.func) for n in nodes if isinstance(n, ast.Call)}
    names = {name for name in names if name} | {"@" for n in nodes if isinstance(n, ast.MatMult)}
    return bool(names & (_PRODUCTS | {"einsum", "baddbmm", "@", "transpose", "permute"}))


def _is_static(function: Function) -> bool:
    return any(last_name(d) == "staticmethod" for d in function.decorator_list)


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


@lru_cache(maxsize=2)
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


def _joined(first: Value, second: Value) -> Value:
    """What a name is after two branches."""
    if isinstance(first, Operand) and isinstance(second, Operand):
        rank = first.rank if first.rank == second.rank else None
        return Operand(first.turned and second.turned, rank, first.is_own or second.is_own)
    if isinstance(first, Scores) and isinstance(second, Scores) and first.axis == second.axis:
        rank = first.rank if first.rank == second.rank else None
        return Scores(first.chains | second.chains, first.axis, rank, first.is_masked or second.is_masked)
    if isinstance(first, Weights) and isinstance(second, Weights):
        masked = first.is_masked or second.is_masked
        if first.is_turned == second.is_turned and first.axis == second.axis:
            return Weights(first.chains | second.chains, first.axis, None, masked, first.is_turned)
    _want(first, second)
    return _PLAIN


def _equation(text: str) -> tuple[list[list[str]], list[str]] | None:
    """The axes of both inputs and of the output; None where it has no output or not two inputs."""
    if "->" not in text:
        return None
    left, _, right = text.partition("->")
    inputs = left.split(",")
    if len(inputs) != 2:
        return None
    return [_axes(side) for side in inputs], _axes(right)


def _axes(text: str) -> list[str]:
    """The axes of one operand: letters, or words parted by spaces as einops writes them."""
    words = text.replace("...", " ... ").split()
    if any(len(word) > 1 and word != "..." for word in words) and len([w for w in words if w != "..."]) > 1:
        return words
    return [letter for word in words for letter in ([word] if word == "..." else list(word))]


def _letters(axis: str) -> list[str]:
    return re.findall(r"[^\s()]+", axis)


def _score_axes(inputs: list[list[str]], out: list[str]) -> tuple[int, int, int] | None:
    """Which input are the queries, which the keys, and the axis of the keys counted from the end.

    Both share what is summed over, and each brings axes of its own; the keys bring one.
    """
    first, second = set(inputs[0]), set(inputs[1])
    if not (first & second) - set(out) or (first ^ second) - set(out):
        return None
    only = [[a for a in out if a in first - second], [a for a in out if a in second - first]]
    if not (only[0] and only[1]) or min(len(only[0]), len(only[1])) != 1:
        return None
    swapped = len(only[1]) != 1 or (len(only[0]) == 1 and out.index(only[0][0]) > out.index(only[1][0]))
    query, key = (1, 0) if swapped else (0, 1)
    return query, key, out.index(only[key][0]) - len(out)


def _sums_over(letters: list[str], others: list[str], out: list[str], axis: int) -> bool:
    """Whether an equation sums weights over the axis of the keys, and over nothing else of them."""
    if len(letters) < -axis:
        return False
    key = letters[axis]
    return key in others and key not in out and all(a in out for a in letters if a != key)


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
