"""Which average a loop over parameters updates, and with what."""

from __future__ import annotations

import ast

from perfaudit.expressions import regex
from perfaudit.records import NamedTuple
from perfaudit.static.checks.ema_per_parameter_loop.walks import WALKS
from perfaudit.static.source import FUNCTIONS, Source
from perfaudit.static.source.syntax import walk
from perfaudit.static.understanding.averages import SAME_VALUE, Polynomial, Values, mixture, same_value
from perfaudit.static.understanding.names import dotted_name

NO_WEIGHTS = regex(r"grad|exp_avg|square|momentum_buf|velocity")  # an optimizer's own averages


class Average(NamedTuple):
    """An update in a loop: `average` becomes (1 - weight) · average + weight · `new`.

    whole_body: the loop does nothing else, and a number is the weight. rebinds: the average is a new tensor afterwards,
    not the old one changed.
    """

    average: ast.expr
    new: ast.expr
    weight: str
    rates: tuple[ast.expr, ...]  # what stands in the weight besides literals
    whole_body: bool
    rebinds: bool


def updated_average(source: Source, loop: ast.For) -> Average | None:
    """The first average that a path through the body of a loop updates."""
    return _Body(source, loop).average()


def is_kept_beside(loop: ast.For, average: Average) -> bool:
    """Whether an average is kept in a mapping, of the very parameter that the loop is at."""
    return isinstance(average.average, ast.Subscript) and dotted_name(same_value(average.new)) == dotted_name(
        loop.target
    )


class _Body:
    """Follows the statements of a loop and keeps what each tensor has become, as a polynomial in what it was before."""

    def __init__(self, source: Source, loop: ast.For) -> None:
        self.source = source
        self.values = Values(source)
        self.written: dict[str, bool] = {}  # averages in question: whether they are rebound
        self.whole_body = not loop.orelse
        self.loop = loop
        nodes = [n for part in (loop.target, *loop.body) for n in walk(part)]
        self.bound = {n.id for n in nodes if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}

    def average(self) -> Average | None:
        """The first average that a path through the body updates."""
        return self._run(self.loop.body)

    def _run(self, statements: list[ast.stmt]) -> Average | None:
        for statement in statements:
            if isinstance(statement, (ast.If, ast.With)):
                self.whole_body = False
                before = dict(self.values.known)
                for block in (statement.body, getattr(statement, "orelse", [])):
                    if (found := self._run(block)) is not None:
                        return found
                    self.values.known = dict(before)
            else:
                self._follow(statement)
        return next((found for key in self.written if (found := self._as_average(key)) is not None), None)

    def _follow(self, statement: ast.stmt) -> None:
        if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
            target = _changed_in_place(statement.value)
            if target is None:
                self.whole_body = False
            else:
                self._write(target, self.values.of(statement.value), rebinds=False)
        elif isinstance(statement, ast.Assign) and len(statement.targets) == 1:
            for target, value in _pairs(statement.targets[0], statement.value):
                self._write(target, self.values.of(value), rebinds=True)
        elif isinstance(statement, ast.AugAssign):
            changed = ast.BinOp(statement.target, statement.op, statement.value)
            self._write(statement.target, self.values.of(changed), rebinds=False)
        else:
            self.whole_body = False

    def _write(self, target: ast.expr, value: Polynomial | None, rebinds: bool) -> None:
        key = self.values.key(target)
        if rebinds and isinstance(target, ast.Name):  # a name for a part, not an update of a tensor
            self.whole_body = False
        else:
            stands_for = list(self.values.known.get(key, {}).items())
            if len(stands_for) == 1 and len(stands_for[0][0]) == 1 and stands_for[0][1] == 1.0:
                key = stands_for[0][0][0]  # `average = self.state[name]`, and then `average.copy_(...)`
            self.written[key] = rebinds or self.written.get(key, False)
            self.values.operands[key] = target  # as written, not as read: a leaf may be changed by its `.data` only
        self.values.known[key] = value if value is not None else {(f"?{key}",): 1.0}  # unknown, and no other one

    def _as_average(self, key: str) -> Average | None:
        operands = self.values.operands
        # What another branch wrote is not in the values of this one.
        value = self.values.known.get(key, {})
        mixed, is_replaced = mixture(value, key), False
        if mixed is None and key in operands and _is_loaded_into_what_is_walked(self.source, self.loop, operands[key]):
            items = {n.id for n in walk(self.loop.target) if isinstance(n, ast.Name)}  # of the state that is replaced
            key = next((o for term in value for o in term if o in items), key)
            mixed = mixture(value, key)
            is_replaced = True
        if mixed is None:
            return None
        new, weight, names = mixed
        if NO_WEIGHTS.search(key) or NO_WEIGHTS.search(new) or not (self._varies(key) and self._varies(new)):
            return None
        if any(name in operands and self._varies(name) for name in names):
            return None
        weights = [operands[name] for name in names if name in operands]
        is_number = [ast.unparse(node) for node in weights] == [*names]  # not `d.data`, nor what a function computes
        is_number = is_number and not any(isinstance(node, ast.Call) for node in weights)  # nor called once for all
        whole_body = self.whole_body and is_number and len(self.written) == 1 and not self.values.inlined
        rebinds = is_replaced or self.written[key]
        return Average(operands[key], operands[new], weight, tuple(weights), whole_body and not is_replaced, rebinds)

    def _varies(self, key: str) -> bool:
        """Whether an operand is another one in each round of the loop."""
        operand = self.values.operands.get(key)
        return any(isinstance(n, ast.Name) and n.id in self.bound for n in walk(operand)) if operand else False


def _is_loaded_into_what_is_walked(source: Source, loop: ast.For, target: ast.expr) -> bool:
    """Whether new values go into a dict that the module whose state the loop walks is given: `teacher.load_state_dict(new)`."""
    new = dotted_name(target.value) if isinstance(target, ast.Subscript) else ""
    function = source.enclosing(loop, *FUNCTIONS)
    if not new or function is None or "load_state_dict" not in source.text:
        return False
    walked = {dotted_name(n.value) for n in walk(loop.iter) if isinstance(n, ast.Attribute) and n.attr in WALKS}
    return any(
        isinstance(call.func, ast.Attribute)
        and call.func.attr == "load_state_dict"
        and dotted_name(call.func.value) in walked - {""}
        and any(dotted_name(argument) == new for argument in call.args)
        and any(ancestor is function for ancestor in source.ancestors(call))
        for call in source.nodes(ast.Call)
    )


def _pairs(target: ast.expr, value: ast.expr) -> list[tuple[ast.expr, ast.expr]]:
    """The single assignments of `a, b = x, y`."""
    if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple) and len(target.elts) == len(value.elts):
        return list(zip(target.elts, value.elts, strict=True))
    return [(target, value)]


def _changed_in_place(call: ast.Call) -> ast.expr | None:
    """`e.data` of `e.data.mul_(d).add_(p)` and of `torch.add(a, b, out=e.data)`, None for a call that changes no value."""
    out = next((k.value for k in call.keywords if k.arg == "out"), None)
    if out is not None:
        return out
    receiver: ast.expr = call
    while (
        isinstance(receiver, ast.Call)
        and isinstance(receiver.func, ast.Attribute)
        and receiver.func.attr.endswith("_")
        and receiver.func.attr.rstrip("_") not in SAME_VALUE
    ):
        receiver = receiver.func.value
    return None if receiver is call else receiver
