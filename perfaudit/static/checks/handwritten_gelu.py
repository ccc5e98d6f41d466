"""PA204: the formula of GELU, written out in single operators."""

from __future__ import annotations

import ast
import math
from collections.abc import Iterator

from perfaudit.static import edit
from perfaudit.static.checks.handwritten_activation.formulas import is_wanted_written_out, may_hold_integers
from perfaudit.static.registry import Proposal, Seen, check
from perfaudit.static.source import FUNCTIONS, Source
from perfaudit.static.source.syntax import walk
from perfaudit.static.understanding.how_often import runs_every_step
from perfaudit.static.understanding.values import assigned_value, constant

# A polynomial: coefficients by (power of x, power of the tanh or erf).
Polynomial = dict[tuple[int, int], float]

TOLERANCE = 1e-3  # relative; people write 0.7978845608, 0.79788, 0.798; another activation is further away than that
EXACT = 1e-6  # relative; a constant further away than this gives other values, not another rounding
GELU: Polynomial = {(1, 0): 0.5, (1, 1): 0.5}
INNER: dict[str, Polynomial] = {
    "tanh": {(1, 0): math.sqrt(2 / math.pi), (3, 0): math.sqrt(2 / math.pi) * 0.044715},
    "erf": {(1, 0): math.sqrt(0.5)},
}
CURVES = {f"torch.{name}": name for name in INNER} | {"torch.nn.functional.tanh": "tanh", "torch.special.erf": "erf"}
NUMBERS = {"math.pi": math.pi, "numpy.pi": math.pi, "torch.pi": math.pi}
ROOTS = {"math.sqrt", "numpy.sqrt", "torch.sqrt"}
OTHER_TENSORS = {"tensorflow", "jax", "mxnet", "paddle", "mindspore", "tinygrad", "cupy", "mlx", "sympy"}
ARITHMETIC = (ast.Add, ast.Sub, ast.Mult, ast.Div, ast.Pow)
MAX_POWER = 9  # this and the next are what no sensible formula reaches
LARGEST = 1e9


@check("PA204", call=(*CURVES, ".tanh", ".erf"))
def handwritten_gelu(source: Source, call: ast.Call) -> Iterator[Seen]:
    kind = _curve(source, call)
    if kind is None or is_wanted_written_out(source, call):
        return
    for node, statements in _around(source, call):
        formula = _Formula(source, call)
        polynomial = formula.polynomial(node)
        if not _equal(polynomial, GELU) or formula.x is None or may_hold_integers(source, formula.x):
            continue
        is_exact = formula.is_exact and _equal(polynomial, GELU, EXACT)
        x = source.text_of(formula.x)
        function, imported = edit.name_for(source, "torch.nn.functional.gelu")
        approximate = ', approximate="tanh"' if kind == "tanh" else ""
        deleted = [edit.delete_statement(source, statement) for statement in statements]
        yield Seen(
            node,
            f"GELU of `{source.brief(formula.x)}` is written out: each of its operators reads and writes the whole "
            "tensor, and most keep one for backward",
            Proposal(
                f"compute it in one operator, `{function}`" + ("" if is_exact else "; its constants differ from these"),
                edit.together(edit.replace(source, node, f"{function}({x}{approximate})"), imported, *deleted)
                if is_exact and len(x.splitlines()) == 1
                else None,
            ),
            hot=runs_every_step(source, call),
        )
        return


def _curve(source: Source, call: ast.Call) -> str | None:
    """Which of the two curves the call computes of a tensor, if one."""
    name = source.qualified_name(call.func)
    if name is not None:
        return CURVES.get(name) if len(call.args) == 1 and not call.keywords else None
    is_method = isinstance(call.func, ast.Attribute) and call.func.attr in INNER and not (call.args or call.keywords)
    if not is_method or not source.imports_torch:
        return None
    if any(target.partition(".")[0] in OTHER_TENSORS for target in source.aliases.values()):
        return None
    return call.func.attr if isinstance(call.func, ast.Attribute) else None


def _argument(source: Source, call: ast.Call) -> ast.expr:
    """What the tanh or erf is taken of: the argument, or the object of the method."""
    is_method = source.qualified_name(call.func) is None and isinstance(call.func, ast.Attribute)
    return call.func.value if is_method and isinstance(call.func, ast.Attribute) else call.args[0]


def _around(source: Source, call: ast.Call) -> Iterator[tuple[ast.expr, list[ast.stmt]]]:
    """The expressions around the call, from the inside, with the statements that hold parts of the formula.

    Follows a part that is given a name into the one place that reads it, where that is in the next statement.
    """
    node: ast.expr = call
    while True:
        parent = source.parent(node)
        if isinstance(parent, ast.BinOp) and isinstance(parent.op, ARITHMETIC):
            node = parent
        elif isinstance(parent, ast.Assign) and (use := _only_use(source, parent)) is not None:
            node = use
        else:
            return
        yield node, _named_parts(source, node)


def _only_use(source: Source, assignment: ast.Assign) -> ast.Name | None:
    """The one read of the name that is assigned, if it is in the next statement and nothing else binds the name."""
    target = assignment.targets[0]
    if len(assignment.targets) != 1 or not isinstance(target, ast.Name) or source.enclosing(target, *FUNCTIONS) is None:
        return None
    uses, block = source.uses_of(target, target.id), source.block(assignment)
    place = next(i for i, statement in enumerate(block) if statement is assignment)
    if len(uses) != 1 or len(source.lookup(uses[0])) != 1 or place + 1 == len(block):
        return None
    following = block[place + 1]
    is_simple = isinstance(following, (ast.Assign, ast.Return, ast.Expr, ast.AnnAssign))
    return uses[0] if is_simple and source.statement(uses[0]) is following else None


def _named_parts(source: Source, node: ast.expr) -> list[ast.stmt]:
    """The assignments, next before the expression's statement, that hold parts of the formula under a name."""
    found: list[ast.stmt] = []
    open_: list[ast.AST] = [node]
    while open_:
        for name in walk(open_.pop()):
            if isinstance(name, ast.Name) and (assignment := _assignment_of_part(source, name)) is not None:
                found.append(assignment)
                open_.append(assignment.value)
    return found


def _assignment_of_part(source: Source, name: ast.Name) -> ast.Assign | None:
    """The assignment before the name's statement that gives it to this one use."""
    bindings = source.lookup(name) if isinstance(name.ctx, ast.Load) else []
    assignment = source.parent(bindings[0]) if len(bindings) == 1 else None
    return assignment if isinstance(assignment, ast.Assign) and _only_use(source, assignment) is name else None


class _Formula:
    """Reads an expression as a polynomial in one operand, `x`, and the curve of it; both are found on the way."""

    def __init__(self, source: Source, curve: ast.Call) -> None:
        self.source = source
        self.curve = curve
        self.x: ast.expr | None = None
        self.is_exact = True  # so far

    def polynomial(self, node: ast.expr) -> Polynomial | None:
        """None for everything that is not one: other operands, other functions, powers that are no small integer."""
        number = _number(self.source, node)
        if number is not None:
            return {(0, 0): number}
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            return _product(self.polynomial(node.operand), {(0, 0): -1.0})
        if isinstance(node, ast.BinOp):
            return self._operation(node)
        if isinstance(node, ast.Call):
            return self._call(node)
        if isinstance(node, ast.Name) and (assignment := _assignment_of_part(self.source, node)) is not None:
            return self.polynomial(assignment.value)
        if not _is_plain(node):
            return None
        if self.x is None:
            self.x = node
        return {(1, 0): 1.0} if ast.dump(node) == ast.dump(self.x) else None

    def _operation(self, node: ast.BinOp) -> Polynomial | None:
        left, right = self.polynomial(node.left), self.polynomial(node.right)
        if left is None or right is None:
            return None
        if isinstance(node.op, ast.Add):
            return _sum(left, right)
        if isinstance(node.op, ast.Sub):
            return _sum(left, _product(right, {(0, 0): -1.0}))
        if isinstance(node.op, ast.Mult):
            return _product(left, right)
        if isinstance(node.op, ast.Div) and set(right) == {(0, 0)} and right[0, 0]:
            return _product(left, {(0, 0): 1 / right[0, 0]})
        return _power(left, right) if isinstance(node.op, ast.Pow) else None

    def _call(self, call: ast.Call) -> Polynomial | None:
        if call is self.curve:
            kind = _curve(self.source, call)
            inner = self.polynomial(_argument(self.source, call))
            if kind is None or not _equal(inner, INNER[kind]):
                return None
            self.is_exact = _equal(inner, INNER[kind], EXACT)
            return {(0, 1): 1.0}
        name = self.source.qualified_name(call.func)
        arguments = list(call.args)
        if name is None and isinstance(call.func, ast.Attribute):
            name, arguments = f"torch.{call.func.attr}", [call.func.value, *arguments]
        if name == "torch.pow" and len(arguments) == 2 and not call.keywords:
            return _power(self.polynomial(arguments[0]), self.polynomial(arguments[1]))
        if name == "torch.square" and len(arguments) == 1 and not call.keywords:
            return _power(self.polynomial(arguments[0]), {(0, 0): 2.0})
        return None


def _number(source: Source, node: ast.expr, depth: int = 4) -> float | None:
    """The value of a constant expression: literals, names of them, arithmetic, pi, roots, a tensor of one number.

    Names are followed `depth` times: `n = n * 2` would never end.
    """
    value = constant(source, node)
    if isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < LARGEST:
        return float(value)
    if isinstance(node, ast.Name):
        bindings = source.lookup(node)
        inner = assigned_value(source, bindings[0]) if len(bindings) == 1 else None
        return _number(source, inner, depth - 1) if depth and isinstance(inner, (ast.BinOp, ast.Call)) else None
    if isinstance(node, ast.Attribute):
        return NUMBERS.get(source.qualified_name(node) or "")
    if isinstance(node, ast.BinOp) and isinstance(node.op, ARITHMETIC):
        left = _number(source, node.left, depth)
        right = None if left is None else _number(source, node.right, depth)
        return _arithmetic(node.op, left, right) if left is not None and right is not None else None
    if isinstance(node, ast.Call) and len(node.args) == 1 and not node.keywords:
        name, inside = source.qualified_name(node.func), _number(source, node.args[0], depth)
        if inside is None:
            return None
        if name in ROOTS:
            return math.sqrt(inside) if inside >= 0 else None
        return inside if name == "torch.tensor" else None
    return None


def _arithmetic(operator: ast.operator, left: float, right: float) -> float | None:
    polynomial = {ast.Add: left + right, ast.Sub: left - right, ast.Mult: left * right}.get(type(operator))
    if polynomial is not None:
        return polynomial
    if isinstance(operator, ast.Div):
        return left / right if right else None
    return left**right if 0 < left < LARGEST and abs(right) <= MAX_POWER else None


def _is_plain(node: ast.expr) -> bool:
    """A name, attribute or element, which is the same each time it is read."""
    if not isinstance(node, (ast.Name, ast.Attribute, ast.Subscript)):
        return False
    return not any(isinstance(part, (ast.Call, ast.NamedExpr, ast.Await, ast.Yield)) for part in walk(node))


def _sum(left: Polynomial | None, right: Polynomial | None) -> Polynomial | None:
    if left is None or right is None:
        return None
    return {power: left.get(power, 0.0) + right.get(power, 0.0) for power in {**left, **right}}


def _product(left: Polynomial | None, right: Polynomial | None) -> Polynomial | None:
    if left is None or right is None:
        return None
    result: Polynomial = {}
    for (a, b), value in left.items():
        for (c, d), other in right.items():
            result[a + c, b + d] = result.get((a + c, b + d), 0.0) + value * other
    return result if all(sum(power) <= MAX_POWER for power in result) else None


def _power(base: Polynomial | None, exponent: Polynomial | None) -> Polynomial | None:
    if base is None or exponent is None or set(exponent) != {(0, 0)}:
        return None
    times = exponent[0, 0]
    if not times.is_integer() or not 1 <= times <= MAX_POWER:
        return None
    result: Polynomial | None = base
    for _ in range(int(times) - 1):
        result = _product(result, base)
    return result


def _equal(polynomial: Polynomial | None, expected: Polynomial, tolerance: float = TOLERANCE) -> bool:
    """Whether all coefficients agree to the tolerance, and no other is there."""
    if polynomial is None:
        return False
    powers = {power for power, value in polynomial.items() if value}
    return powers == set(expected) and all(
        math.isclose(polynomial[power], value, rel_tol=tolerance) for power, value in expected.items()
    )
