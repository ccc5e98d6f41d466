"""PA404: an average of the weights that is updated parameter by parameter."""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass

from perfaudit.static import edit
from perfaudit.static.context import dotted_name, in_no_grad, runs_every_step, runs_rarely
from perfaudit.static.registry import Proposal, Seen, check
from perfaudit.static.source import FUNCTIONS, Source
from perfaudit.static.values import assigned_value, resolve

# A sum of products: coefficients by the operands that are multiplied, as text, in order.
Polynomial = dict[tuple[str, ...], float]

WALKS = {"parameters", "named_parameters", "state_dict", "buffers", "named_buffers"}
PARAMETER_LIST = re.compile(r"param", re.IGNORECASE)
IN_TRAINING = re.compile(
    r"ema|averag|moving|moment|teacher|target|shadow|update|slow|mean|polyak|soft|key|train|step", re.IGNORECASE
)
NO_WEIGHTS = re.compile(r"grad|exp_avg|square|momentum_buf|velocity")  # an optimizer's own averages
METHODS = {"mul", "add", "sub", "lerp", "copy"}
SAME_VALUE = {"detach", "clone", "to", "float", "half", "cpu", "cuda", "type_as", "contiguous"}
MIXED = re.compile(  # the two lists may differ in dtype, or hold no plain tensors
    r"\.(half|bfloat16|double)\(|(\.to\(|dtype=)[^)]*(float16|half|double|float64)|torch_dtype"
    r"|FSDP|FullyShardedDataParallel|fully_shard|DTensor|deepspeed"
)
AUTOCAST = re.compile(r".*autocast.*")  # names a dtype, but leaves the parameters as they are
ADVICE = (
    "average all parameters at once: `torch._foreach_lerp_(averages, parameters, 1 - decay)` on two lists of floating "
    "tensors, or on an accelerator `AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(decay))`"
)
LONGEST_LINE = 100


@dataclass(frozen=True, slots=True)
class Average:
    """An update in a loop: `average` becomes (1 - weight) · average + weight · `new`.

    whole_body: the loop does nothing else, and a number is the weight. rebinds: the average is a new tensor afterwards,
    not the old one changed.
    """

    average: ast.expr
    new: ast.expr
    weight: str
    whole_body: bool
    rebinds: bool


@check("PA404", ast.For)
def ema_per_parameter_loop(source: Source, loop: ast.For) -> Iterator[Seen]:
    if not source.imports_torch or not _walks_parameters(source, loop.iter):
        return
    average = _Body(source, loop).average()
    if average is None or not _belongs_to_training(source, loop) or _has_foreach_path(source, loop):
        return
    if runs_rarely(source, loop, source.tree):
        return
    yield Seen(
        loop,
        f"`{source.brief(average.average)}` follows `{source.brief(average.new)}` in a Python loop: every parameter "
        "takes kernels of its own, and most are shorter than their launch",
        _fix(source, loop, average) or Proposal(ADVICE),
        hot=runs_every_step(source, loop),
    )


def _walks_parameters(source: Source, iterable: ast.expr) -> bool:
    """Whether a loop goes over a module's parameters or state, or over two lists named as such."""
    for node in ast.walk(iterable):
        if isinstance(node, ast.Name):
            value = resolve(source, node)
            if value is not None and any(isinstance(n, ast.Attribute) and n.attr in WALKS for n in ast.walk(value)):
                return True
        if isinstance(node, ast.Attribute) and node.attr in WALKS:
            return True
    if isinstance(iterable, ast.Call) and isinstance(iterable.func, ast.Name) and iterable.func.id == "zip":
        return len(iterable.args) == 2 and all(PARAMETER_LIST.search(ast.unparse(a)) for a in iterable.args)
    return False


def _belongs_to_training(source: Source, loop: ast.For) -> bool:
    """Not a test, nor the one-off mixing of two checkpoints, as far as names tell."""
    around = [getattr(ancestor, "name", "") or "" for ancestor in source.ancestors(loop)]
    if any(name.startswith("test") for name in around):
        return False
    return bool(IN_TRAINING.search(" ".join([*around, source.text_of(loop)])))


def _has_foreach_path(source: Source, loop: ast.For) -> bool:
    """Whether the function does it with lists as well: then the loop is the fallback."""
    function = source.enclosing(loop, *FUNCTIONS) or source.tree
    names = (dotted_name(n) for n in ast.walk(function) if isinstance(n, (ast.Name, ast.Attribute)))
    return any("foreach" in name for name in names)


class _Body:
    """Follows the statements of a loop and keeps what each tensor has become, as a polynomial in what it was before."""

    def __init__(self, source: Source, loop: ast.For) -> None:
        self.source = source
        self.values: dict[str, Polynomial] = {}
        self.operands: dict[str, ast.expr] = {}
        self.written: dict[str, bool] = {}  # averages in question: whether they are rebound
        self.whole_body = not loop.orelse
        self.loop = loop
        nodes = [n for part in (loop.target, *loop.body) for n in ast.walk(part)]
        self.bound = {n.id for n in nodes if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}

    def average(self) -> Average | None:
        """The first average that a path through the body updates."""
        return self._run(self.loop.body)

    def _run(self, statements: list[ast.stmt]) -> Average | None:
        for statement in statements:
            if isinstance(statement, (ast.If, ast.With)):
                self.whole_body = False
                before = dict(self.values)
                for block in (statement.body, getattr(statement, "orelse", [])):
                    if (found := self._run(block)) is not None:
                        return found
                    self.values = dict(before)
            else:
                self._follow(statement)
        return next((found for key in self.written if (found := self._as_average(key)) is not None), None)

    def _follow(self, statement: ast.stmt) -> None:
        if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
            target, value = _changed_in_place(statement.value), self._value(statement.value)
            self._write(target, value, rebinds=False) if target is not None else self._ignore()
        elif isinstance(statement, ast.Assign) and len(statement.targets) == 1:
            self._write(statement.targets[0], self._value(statement.value), rebinds=True)
        elif isinstance(statement, ast.AugAssign):
            changed = ast.BinOp(statement.target, statement.op, statement.value)
            self._write(statement.target, self._value(changed), rebinds=False)
        else:
            self._ignore()

    def _ignore(self) -> None:
        self.whole_body = False

    def _write(self, target: ast.expr, value: Polynomial | None, rebinds: bool) -> None:
        key = self._key(target)
        if rebinds and isinstance(target, ast.Name):  # a name for a part, not an update of a tensor
            self._ignore()
        else:
            self.written[key] = rebinds or self.written.get(key, False)
            self.operands[key] = target  # as written, not as read: a leaf may be changed by its `.data` only
        self.values[key] = value if value is not None else {("?",): 1.0}

    def _key(self, node: ast.expr) -> str:
        operand = _same_value(node)
        key = ast.unparse(operand)
        self.operands.setdefault(key, node)
        return key

    def _value(self, node: ast.expr) -> Polynomial | None:
        if isinstance(node, ast.Constant):
            return {(): float(node.value)} if isinstance(node.value, (int, float)) and abs(node.value) < 1e9 else None
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            return _product(self._value(node.operand), {(): -1.0})
        if isinstance(node, ast.BinOp):
            return _operation(node.op, self._value(node.left), self._value(node.right))
        if isinstance(node, ast.Call) and (method := self._method(node)) is not None:
            return method
        operand = _same_value(node)
        if operand is not node and isinstance(operand, (ast.BinOp, ast.Call)):
            return self._value(operand)
        if not isinstance(operand, (ast.Name, ast.Attribute, ast.Subscript)):
            return None
        key = self._key(node)
        if key in self.values:
            return self.values[key]
        if isinstance(operand, ast.Name) and (value := _arithmetic_of_constants(self.source, operand)) is not None:
            return self._value(value)
        return {(key,): 1.0}

    def _method(self, call: ast.Call) -> Polynomial | None:
        """What `mul_`, `add_`, `sub_`, `lerp_`, `copy_`, or the same without `_`, leave."""
        if not isinstance(call.func, ast.Attribute) or call.func.attr.rstrip("_") not in METHODS:
            return None
        name, arguments = call.func.attr.rstrip("_"), [self._value(a) for a in call.args]
        if self.source.qualified(call.func) is None:
            arguments.insert(0, self._value(call.func.value))
        alpha = next((self._value(k.value) for k in call.keywords if k.arg in ("alpha", "weight")), None)
        if name == "copy" and len(arguments) == 2:
            return arguments[1]
        if name == "lerp" and len(arguments) + (alpha is not None) == 3:
            old, new, weight = [*arguments, alpha][:3]
            return _sum(old, _product(weight, _difference(new, old)))
        if name == "mul" and len(arguments) == 2:
            return _product(*arguments)
        if name in ("add", "sub") and len(arguments) in (2, 3):
            if len(arguments) == 3:  # add_(alpha, other), as it was before torch 1.5
                alpha = arguments.pop(1)
            added = _product(alpha, arguments[1]) if alpha is not None or call.keywords else arguments[1]
            return _sum(arguments[0], added) if name == "add" else _difference(arguments[0], added)
        return None

    def _as_average(self, key: str) -> Average | None:
        mixed = _mixture(self.values.get(key, {}), key)  # what another branch wrote is not in the values of this one
        if mixed is None:
            return None
        new, weight, names = mixed
        if NO_WEIGHTS.search(key) or NO_WEIGHTS.search(new) or not (self._varies(key) and self._varies(new)):
            return None
        if any(name in self.operands and self._varies(name) for name in names):
            return None
        is_number = all(ast.unparse(self.operands[name]) == name for name in names)  # `.data` and the like: a tensor
        whole_body = self.whole_body and is_number and len(self.written) == 1
        return Average(self.operands[key], self.operands[new], weight, whole_body, rebinds=self.written[key])

    def _varies(self, key: str) -> bool:
        """Whether an operand is another one in each round of the loop."""
        return any(isinstance(n, ast.Name) and n.id in self.bound for n in ast.walk(self.operands[key]))


def _changed_in_place(call: ast.Call) -> ast.expr | None:
    """`e.data` of `e.data.mul_(d).add_(p)`, None for a call that changes nothing in place."""
    receiver: ast.expr = call
    while (
        isinstance(receiver, ast.Call) and isinstance(receiver.func, ast.Attribute) and receiver.func.attr.endswith("_")
    ):
        receiver = receiver.func.value
    return None if receiver is call else receiver


def _same_value(node: ast.expr) -> ast.expr:
    """The tensor without `.data`, `.detach()`, `.to(...)` and the like."""
    while True:
        if isinstance(node, ast.Attribute) and node.attr == "data":
            node = node.value
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in SAME_VALUE:
            node = node.func.value
        else:
            return node


def _arithmetic_of_constants(source: Source, name: ast.Name) -> ast.expr | None:
    """What `rest = 1 - decay` stands for, if neither name is bound again; attributes may be, anywhere."""
    bindings = source.lookup(name)
    value = assigned_value(source, bindings[0]) if len(bindings) == 1 else None
    if not isinstance(value, ast.BinOp) or any(isinstance(n, (ast.Attribute, ast.Subscript)) for n in ast.walk(value)):
        return None
    names = [n for n in ast.walk(value) if isinstance(n, ast.Name)]
    return value if all(len(source.lookup(n)) == 1 for n in names) else None


def _mixture(value: Polynomial, average: str) -> tuple[str, str, tuple[str, ...]] | None:
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
        return _sum(left, right)
    if isinstance(operator, ast.Sub):
        return _difference(left, right)
    if isinstance(operator, ast.Mult):
        return _product(left, right)
    if isinstance(operator, ast.Div) and right is not None and set(right) == {()} and right[()]:
        return _product(left, {(): 1 / right[()]})
    return None


def _sum(left: Polynomial | None, right: Polynomial | None) -> Polynomial | None:
    if left is None or right is None:
        return None
    return {key: left.get(key, 0.0) + right.get(key, 0.0) for key in {**left, **right}}


def _difference(left: Polynomial | None, right: Polynomial | None) -> Polynomial | None:
    return _sum(left, _product(right, {(): -1.0}))


def _product(left: Polynomial | None, right: Polynomial | None) -> Polynomial | None:
    if left is None or right is None or len(left) * len(right) > 20:  # an average has three terms
        return None
    result: Polynomial = {}
    for a, factor in left.items():
        for b, other in right.items():
            key = _key_of(*a, *b)
            result[key] = result.get(key, 0.0) + factor * other
    return result


# ---- the fix -------------------------------------------------------------------------------------------------------


def _fix(source: Source, loop: ast.For, average: Average) -> Proposal | None:
    """One call over two lists in place of the loop; None if they may not be plain floating tensors of one dtype."""
    pairs = _parameters_of_two_modules(loop)
    old, new = _root(average.average), _root(average.new)
    if pairs is None or not average.whole_body or old is None or new is None or {old, new} != set(pairs):
        return None
    if MIXED.search(AUTOCAST.sub("", source.text)) or _may_be_tensor(source, average) or _read_elsewhere(source, loop):
        return None
    if isinstance(average.new, ast.Name) and not in_no_grad(source, loop):  # the average would get a graph
        return None
    lists = [_list(source, node, name, pairs[name]) for node, name in ((average.average, old), (average.new, new))]
    function, imported = edit.name_for(source, "torch._foreach_lerp_")
    arguments = [*lists, average.weight]
    text = f"{function}({', '.join(arguments)})"
    indent = source.indent_of(loop)
    if len(indent) + len(text) > LONGEST_LINE:
        step = "\t" if "\t" in indent else "    "
        lines = "".join(f"{source.newline}{indent}{step}{argument}," for argument in arguments)
        text = f"{function}({lines}{source.newline}{indent})"
    edits = edit.together(edit.replace(source, loop, text), imported)
    if edits is None:
        return None
    changes = ("rounding", "aliasing") if average.rebinds else None
    return Proposal("average all parameters in one call, with a few kernels in all", edits, changes=changes)


def _parameters_of_two_modules(loop: ast.For) -> dict[str, ast.Call] | None:
    """The two loop variables with what they go over, for `for a, b in zip(x.parameters(), y.parameters())`."""
    zipped, target = loop.iter, loop.target
    if not (isinstance(zipped, ast.Call) and isinstance(zipped.func, ast.Name) and zipped.func.id == "zip"):
        return None
    only_strict = all(k.arg == "strict" for k in zipped.keywords)  # lists of unequal length raise in the patch as well
    if not only_strict or len(zipped.args) != 2 or not isinstance(target, ast.Tuple) or len(target.elts) != 2:
        return None
    pairs: dict[str, ast.Call] = {}
    for name, call in zip(target.elts, zipped.args, strict=True):
        is_parameters = (
            isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr == "parameters"
        )
        if (
            not (isinstance(name, ast.Name) and isinstance(call, ast.Call) and is_parameters)
            or call.args
            or call.keywords
        ):
            return None
        pairs[name.id] = call
    return pairs if len(pairs) == 2 else None


def _root(node: ast.expr) -> str | None:
    """`p` of `p`, `p.data`, `p.detach()` and `p.data.detach()`; None for everything else."""
    while not isinstance(node, ast.Name):
        if isinstance(node, ast.Attribute) and node.attr == "data":
            node = node.value
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "detach":
            node = node.func.value
        else:
            return None
    return node.id


def _list(source: Source, node: ast.expr, name: str, iterable: ast.Call) -> str:
    over = source.text_of(iterable)
    return f"list({over})" if isinstance(node, ast.Name) else f"[{source.text_of(node)} for {name} in {over}]"


def _may_be_tensor(source: Source, average: Average) -> bool:
    """Whether the weight may be a tensor, which a list operation would have to read back from the device."""
    buffers = " ".join(ast.unparse(call.args[0]) for call in source.calls(".register_buffer") if call.args)
    words = set(re.findall(r"[A-Za-z_]\w*", average.weight)) - {"self"}
    if words & set(re.findall(r"\w+", buffers)):
        return True
    for assignment in source.nodes(ast.Assign):
        if words & {word for target in assignment.targets for word in re.findall(r"\w+", ast.unparse(target))}:
            calls = [source.qualified(n.func) or "" for n in ast.walk(assignment.value) if isinstance(n, ast.Call)]
            if any(name.startswith("torch.") for name in calls):
                return True
    return False


def _read_elsewhere(source: Source, loop: ast.For) -> bool:
    """Whether a loop variable is read outside the loop, other than where another loop binds it."""
    for target in [n for n in ast.walk(loop.target) if isinstance(n, ast.Name)]:
        for use in source.uses_of(target, target.id):
            if not any(a is loop or _binds(a, use.id) for a in source.ancestors(use)):
                return True
    return False


def _binds(node: ast.AST, name: str) -> bool:
    targets = [node.target] if isinstance(node, (ast.For, ast.comprehension)) else []
    targets += [generator.target for generator in getattr(node, "generators", [])]
    return any(isinstance(n, ast.Name) and n.id == name for target in targets for n in ast.walk(target))
