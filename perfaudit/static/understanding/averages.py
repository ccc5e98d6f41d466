"""What a tensor becomes, as a sum of products of what it was before; and whether that is an average of two.

`e.mul_(d).add_(p, alpha=1 - d)`, `d * e + (1 - d) * p` and `e.lerp_(p, 1 - d)` are one polynomial.
"""

from __future__ import annotations

import ast
import math

from perfaudit.expressions import regex
from perfaudit.static.source import FUNCTIONS, Function, Source
from perfaudit.static.understanding.answers import remember
from perfaudit.static.understanding.calls_by_name import calls_by_last_name
from perfaudit.static.understanding.names import last_name
from perfaudit.static.understanding.values import assigned_value

# A sum of products: coefficients by the operands that are multiplied, as text, in order.
Polynomial = dict[tuple[str, ...], float]

METHODS = {"mul", "add", "sub", "lerp", "copy"}
SAME_VALUE = {"detach", "clone", "to", "float", "half", "cpu", "cuda", "type_as", "contiguous", "requires_grad"}
_DECAY = regex(r"decay|momentum|beta|tau|alpha|rate")
_MIXED = regex(
    r"\.(half|bfloat16|double)\(|(\.to\(|\.type\(|dtype=)[^)]*(float16|half|double|float64)|\.to\([^)]*dtype|torch_dtype"
    r"|FSDP|FullyShardedDataParallel|fully_shard|DTensor|deepspeed"
)
_AUTOCAST = regex(r".*autocast.*")  # names a dtype, but leaves the parameters as they are
_DEPTH = 2  # of functions that are read in place of their call


class Values:
    """Polynomials of expressions, given what the names in them are already known to be.

    known: by the text of a tensor (without `.data` and the like), what it is by now. operands: by the same text, the
    expression as it was written. inlined: whether a function of the file was read in place of its call.
    """

    def __init__(self, source: Source, depth: int = _DEPTH) -> None:
        self.source = source
        self.depth = depth
        self.known: dict[str, Polynomial] = {}
        self.operands: dict[str, ast.expr] = {}
        self.inlined = False

    def key(self, node: ast.expr) -> str:
        key = ast.unparse(same_value(node))
        self.operands.setdefault(key, node)
        return key

    def of(self, node: ast.expr) -> Polynomial | None:
        """The polynomial of an expression, None where it is something else."""
        if isinstance(node, ast.Constant):
            return {(): float(node.value)} if isinstance(node.value, (int, float)) and abs(node.value) < 1e9 else None
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            return product(self.of(node.operand), {(): -1.0})
        if isinstance(node, ast.BinOp):
            return _operation(node.op, self.of(node.left), self.of(node.right))
        if isinstance(node, ast.Call) and (method := self._method(node)) is not None:
            return method
        operand = same_value(node)
        if operand is not node and isinstance(operand, (ast.BinOp, ast.Call)):
            return self.of(operand)
        if isinstance(operand, ast.Call):
            if not operand.args and _DECAY.search(last_name(operand.func)):  # `self.get_decay()`
                return {(self.key(operand),): 1.0}
            return self._returned_polynomial(operand)
        if not isinstance(operand, (ast.Name, ast.Attribute, ast.Subscript)):
            return None
        key = self.key(node)
        if key in self.known:
            return self.known[key]
        if isinstance(operand, ast.Name) and (value := _arithmetic_of_constants(self.source, operand)) is not None:
            return self.of(value)
        return {(key,): 1.0}

    def _method(self, call: ast.Call) -> Polynomial | None:
        """What `mul_`, `add_`, `sub_`, `lerp_`, `copy_`, or the same without `_`, leave."""
        if not isinstance(call.func, ast.Attribute) or call.func.attr.rstrip("_") not in METHODS:
            return None
        name, arguments = call.func.attr.rstrip("_"), [self.of(a) for a in call.args]
        if self.source.qualified_name(call.func) is None:
            arguments.insert(0, self.of(call.func.value))
        keywords = [k for k in call.keywords if k.arg != "out"]
        alpha = next((self.of(k.value) for k in keywords if k.arg in ("alpha", "weight")), None)
        if name == "copy" and len(arguments) == 2:
            return arguments[1]
        if name == "lerp" and len(arguments) + (alpha is not None) == 3:
            old, new, weight = [*arguments, alpha][:3]
            return total(old, product(weight, difference(new, old)))
        if name == "mul" and len(arguments) == 2:
            return product(*arguments)
        if name in ("add", "sub") and len(arguments) in (2, 3):
            if len(arguments) == 3:  # add_(alpha, other), as it was before torch 1.5
                alpha = arguments.pop(1)
            added = product(alpha, arguments[1]) if alpha is not None or keywords else arguments[1]
            return total(arguments[0], added) if name == "add" else difference(arguments[0], added)
        return None

    def _returned_polynomial(self, call: ast.Call) -> Polynomial | None:
        """What a function of this file returns at its end, in terms of what it is given."""
        if not self.depth or call.keywords or any(isinstance(a, ast.Starred) for a in call.args):
            return None
        functions = [*_lambdas_passed(self.source, call.func), _only_definition(self.source, call)]
        values = [self._value_of(function, call) for function in functions if function is not None]
        return next((v for v in values if v is not None and len(v) > 1), None)  # one that mixes, not one that copies

    def _value_of(self, function: Function | ast.Lambda, call: ast.Call) -> Polynomial | None:
        names = [a.arg for a in (*function.args.posonlyargs, *function.args.args)]
        names = names[1:] if isinstance(self.source.parent(function), ast.ClassDef) else names
        given = [self.of(argument) for argument in call.args]
        inner = Values(self.source, self.depth - 1)
        inner.known = {name: value for name, value in zip(names, given, strict=False) if value is not None}
        if not len(names) == len(given) == len(inner.known):
            return None
        value = inner.of(function.body) if isinstance(function, ast.Lambda) else inner.at_end(function)
        if value is not None:
            self.inlined = True
            self.operands = inner.operands | self.operands
        return value

    def at_end(self, function: Function) -> Polynomial | None:
        """What the last statement of a function returns; assignments before it are followed, branches are not."""
        for statement in function.body[:-1]:
            if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
                value, name = self.of(statement.value), statement.targets[0].id
                self.known[name] = value if value is not None else {(f"?{name}",): 1.0}  # unknown, and no other one
        last = function.body[-1]
        return self.of(last.value) if isinstance(last, ast.Return) and last.value is not None else None


def _lambdas_passed(source: Source, name: ast.expr) -> list[ast.Lambda]:
    """The lambdas that calls in this file pass for a parameter: `update(model, update_fn=lambda e, m: ...)`."""
    bindings = source.lookup(name) if isinstance(name, ast.Name) else []
    function = source.scope(bindings[0]) if len(bindings) == 1 and isinstance(bindings[0], ast.arg) else None
    if not isinstance(function, FUNCTIONS) or not isinstance(bindings[0], ast.arg):
        return []
    calls = calls_by_last_name(source).get(function.name, ())
    given = [k.value for call in calls for k in call.keywords if k.arg == bindings[0].arg]
    return [value for value in (*given, *(a for call in calls for a in call.args)) if isinstance(value, ast.Lambda)]


def _only_definition(source: Source, call: ast.Call) -> Function | None:
    """The one function or method of the file that has the name of what is called."""
    name = last_name(call.func)
    if isinstance(call.func, ast.Attribute) and source.qualified_name(call.func) is not None:
        return None
    found = [d for d in source.definitions if d.name == name]
    return found[0] if len(found) == 1 and isinstance(found[0], FUNCTIONS) else None


@remember  # asked for each average
def may_mix_types(source: Source) -> bool:
    """Whether weights and their average may differ in dtype, or be no plain tensors: lists of them may not go together."""
    return bool(_MIXED.search(_AUTOCAST.sub("", source.code)))


def same_value(node: ast.expr) -> ast.expr:
    """The tensor without `.data`, `.detach()`, `.to(...)` and the like."""
    while True:
        if isinstance(node, ast.Attribute) and node.attr == "data":
            node = node.value
        elif (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr.rstrip("_") in SAME_VALUE
        ):
            node = node.func.value
        else:
            return node


def _arithmetic_of_constants(source: Source, name: ast.Name) -> ast.expr | None:
    """What `rest = 1 - decay` stands for, if neither name is bound again, nor an attribute in the same function."""
    bindings = source.lookup(name)
    value = assigned_value(source, bindings[0]) if len(bindings) == 1 else None
    if not isinstance(value, ast.BinOp) or any(isinstance(n, (ast.Call, ast.Subscript)) for n in ast.walk(value)):
        return None
    read = {n.attr for n in ast.walk(value) if isinstance(n, ast.Attribute)}
    if read and not _are_kept(source.scope(bindings[0]), read):
        return None
    names = [n for n in ast.walk(value) if isinstance(n, ast.Name) and not isinstance(source.parent(n), ast.Attribute)]
    return value if all(len(source.lookup(n)) == 1 for n in names) else None


def _are_kept(function: ast.AST, attributes: set[str]) -> bool:
    """Whether a function gives none of these attributes another value."""
    if not isinstance(function, FUNCTIONS):
        return False
    touched = (node for node in ast.walk(function) if isinstance(node, ast.Attribute) and node.attr in attributes)
    return not any(isinstance(node.ctx, ast.Store) for node in touched)


def mixture(value: Polynomial, average: str) -> tuple[str, str, tuple[str, ...]] | None:
    """The other operand, the text of its weight, and the operands in the weight, if the two weights make up 1."""
    terms = {operands: factor for operands, factor in value.items() if not math.isclose(factor, 0, abs_tol=1e-12)}
    new = {o for operands in terms for o in operands if average not in operands}
    others = sorted({o for operands in terms for o in operands} - {average})
    if len(terms) == 2 and len(others) == 1 and set(terms) == {(average,), (others[0],)}:
        decay, weight = terms[(average,)], terms[(others[0],)]
        if not (0 < decay < 1 and math.isclose(decay + weight, 1)):
            return None
        texts = sorted([f"{weight:.12g}", f"1 - {decay:.12g}"], key=len)
        return others[0], texts[0], ()
    for p, w in [(p, w) for p in new for w in others if p != w]:
        if _agree(terms, {(average,): 1, _key_of(average, w): -1, _key_of(p, w): 1}):
            return p, w, (w,)
        if _agree(terms, {_key_of(average, w): 1, (p,): 1, _key_of(p, w): -1}):
            return p, f"1 - {w}", (w,)
    return None


def _key_of(*operands: str) -> tuple[str, ...]:
    return tuple(sorted(operands))


def _agree(terms: Polynomial, expected: Polynomial) -> bool:
    return set(terms) == set(expected) and all(math.isclose(terms[key], factor) for key, factor in expected.items())


def _operation(operator: ast.operator, left: Polynomial | None, right: Polynomial | None) -> Polynomial | None:
    if isinstance(operator, ast.Add):
        return total(left, right)
    if isinstance(operator, ast.Sub):
        return difference(left, right)
    if isinstance(operator, ast.Mult):
        return product(left, right)
    if isinstance(operator, ast.Div) and right is not None and set(right) == {()} and right[()]:
        return product(left, {(): 1 / right[()]})
    return None


def total(left: Polynomial | None, right: Polynomial | None) -> Polynomial | None:
    if left is None or right is None:
        return None
    return {key: left.get(key, 0.0) + right.get(key, 0.0) for key in {**left, **right}}


def difference(left: Polynomial | None, right: Polynomial | None) -> Polynomial | None:
    return total(left, product(right, {(): -1.0}))


def product(left: Polynomial | None, right: Polynomial | None) -> Polynomial | None:
    if left is None or right is None or len(left) * len(right) > 20:  # an average has three terms
        return None
    result: Polynomial = {}
    for a, factor in left.items():
        for b, other in right.items():
            key = _key_of(*a, *b)
            result[key] = result.get(key, 0.0) + factor * other
    return result
