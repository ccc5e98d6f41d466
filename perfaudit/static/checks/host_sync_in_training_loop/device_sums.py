"""The patch for sums over a training loop (`total += loss.item()`): kept on the device, read once behind the loop."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from perfaudit.findings import Edit, Span
from perfaudit.static import edit
from perfaudit.static.registry import Proposal
from perfaudit.static.source import FUNCTIONS, LOOPS, Loop, Source
from perfaudit.static.source.syntax import walk
from perfaudit.static.understanding.kinds import Kind
from perfaudit.static.understanding.losses import backpropagated_names, key
from perfaudit.static.understanding.names import last_name
from perfaudit.static.understanding.step_loops import StepLoop
from perfaudit.static.understanding.taint import Region
from perfaudit.static.understanding.values import constant, resolve

TIMERS = {"time", "perf_counter", "monotonic", "process_time"}


def sums_on_device(
    source: Source, step: StepLoop, regions: tuple[Region, ...], places: list[ast.expr]
) -> Proposal | None:
    """The patch for a loop whose every sync is `total += loss.item()`, where `total` is only read after the loop.

    The sum starts as the number it was, becomes a tensor with the first step, and a number again behind the loop. It is
    kept in float32 (`.float()` does nothing to a loss that is), since a long sum in half precision loses what is added.
    """
    loop = step.loop
    if loop.orelse or _is_timed(loop) or any(isinstance(a, (ast.Try, ast.TryStar)) for a in _around(source, loop)):
        return None
    losses = backpropagated_names(source, loop)
    numbers: dict[str, str] = {}
    edits: list[Edit] = []
    for place in places:
        total = _sum_over(source, place)
        if total is None or total.id in numbers or source.scope(place) is not source.scope(loop):
            return None
        if not _is_read_only_after(source, loop, total):
            return None
        start = _start(source, loop, total.id)
        tensor = _read_tensor(place)
        if start is None or tensor is None:
            return None
        number = _number(source, place, tensor, start)
        if number == "float" and not (
            regions[0].kind(tensor) is Kind.TENSOR
            and (isinstance(start, float) or key(tensor) in losses)
            and not _is_reduced(source, loop, tensor)
        ):
            return None
        if number is None:
            return None
        numbers[total.id] = number
        suffix = "" if number == "int" else ".float()" if _is_detached(tensor) else ".detach().float()"
        change = _read_taken_out(source, place, tensor, suffix)
        if change is None:
            return None
        edits.append(change)
    after = [edit.insert_after(source, loop, f"{name} = {number}({name})") for name, number in numbers.items()]
    names = " and ".join(f"`{name}`" for name in numbers)
    return Proposal(f"add up {names} on the device, and read it after the loop", edit.together(tuple(edits), *after))


def _is_timed(loop: Loop) -> bool:
    """Whether the loop takes the time: the sync that would go is what makes its numbers mean something."""
    return any(isinstance(node, ast.Call) and last_name(node.func) in TIMERS for node in walk(loop))


def _around(source: Source, node: ast.AST) -> Iterator[ast.AST]:
    """The ancestors inside the same function."""
    for ancestor in source.ancestors(node):
        if isinstance(ancestor, FUNCTIONS):
            return
        yield ancestor


def _sum_over(source: Source, place: ast.expr) -> ast.Name | None:
    """`total` of `total += x.item()` and of `total += x.item() * n` with a plain number n; None for anything else."""
    statement = source.parent(place)
    if isinstance(statement, ast.BinOp):
        scale = statement.right if statement.left is place else statement.left
        divided = isinstance(statement.op, ast.Div) and scale is statement.right
        if not (divided or isinstance(statement.op, ast.Mult)) or not _is_number(source, scale):
            return None
        statement = source.parent(statement)
    if not isinstance(statement, ast.AugAssign) or not isinstance(statement.op, ast.Add):
        return None
    return statement.target if isinstance(statement.target, ast.Name) else None


def _is_number(source: Source, node: ast.expr) -> bool:
    """Whether an expression is provably a plain number: a literal, `len(x)`, `x.size(0)`, `x.numel()`, `x.shape[0]`."""
    if isinstance(constant(source, node), (int, float)):
        return True
    value = resolve(source, node)
    if isinstance(value, ast.Subscript):
        return last_name(value.value) == "shape" and isinstance(value.slice, ast.Constant)
    if not isinstance(value, ast.Call):
        return False
    if isinstance(value.func, ast.Name):
        return value.func.id == "len" and not source.lookup(value.func)
    return (last_name(value.func), len(value.args)) in (("size", 1), ("numel", 0))


def _is_read_only_after(source: Source, loop: Loop, total: ast.Name) -> bool:
    """Whether nothing but the sum itself reads or sets the name inside the loop, and no other function knows it."""
    scope = source.scope(loop)
    declared = [name for node in source.nodes(ast.Global) for name in node.names]
    declared += [name for node in source.nodes(ast.Nonlocal) for name in node.names]
    if total.id in declared:
        return False
    bindings = source.bound_in(scope).get(total.id, [])
    inside = {id(node) for node in walk(loop)}
    if any(id(binding) in inside and binding is not total for binding in bindings):
        return False
    uses = source.uses_of(bindings[0], total.id) if bindings else []
    return all(id(use) not in inside and source.scope(use) is scope for use in uses)


def _start(source: Source, loop: Loop, name: str) -> int | float | None:
    """The number the name is set to before the loop, whichever way the loop is reached; None if that is not clear."""
    inner: ast.stmt = loop
    for ancestor in (*_around(source, loop), None):
        for earlier in reversed(source.before(inner)):
            if not _sets(earlier, name):
                continue
            return _literal(earlier, name)
        if isinstance(ancestor, LOOPS):  # what the rest of an outer loop sets reaches the loop on the next round
            others = [s for s in walk(ancestor) if isinstance(s, ast.stmt) and _binds(s, name)]
            inside = {id(node) for node in walk(loop)}
            if any(id(s) not in inside and _literal(s, name) is None for s in others):
                return None
        if isinstance(ancestor, ast.stmt):
            inner = ancestor
    return None


def _sets(statement: ast.stmt, name: str) -> bool:
    return any(isinstance(n, ast.Name) and n.id == name and not isinstance(n.ctx, ast.Load) for n in walk(statement))


def _binds(statement: ast.stmt, name: str) -> bool:
    """Whether the statement itself, not one inside it, sets the name."""
    targets = getattr(statement, "targets", None) or [getattr(statement, "target", None)]
    return any(isinstance(n, ast.Name) and n.id == name for target in targets if target for n in walk(target))


def _literal(statement: ast.stmt, name: str) -> int | float | None:
    """The number literal that a plain assignment gives the name, also in `total, n = 0.0, 0`."""
    if not isinstance(statement, ast.Assign):
        return None
    pairs = [(target, statement.value) for target in statement.targets]
    if isinstance(statement.value, ast.Tuple):
        for target in statement.targets:
            if isinstance(target, ast.Tuple) and len(target.elts) == len(statement.value.elts):
                pairs += zip(target.elts, statement.value.elts, strict=True)
    for target, value in pairs:
        if isinstance(target, ast.Name) and target.id == name and isinstance(value, ast.Constant):
            number = value.value
            return number if isinstance(number, (int, float)) and not isinstance(number, bool) else None
    return None


def _read_tensor(place: ast.expr) -> ast.expr | None:
    """`x` of `x.item()`, `float(x)` and `int(x)`; None for another way of reading it."""
    if not isinstance(place, ast.Call):
        return None
    if isinstance(place.func, ast.Attribute) and place.func.attr == "item":
        return place.func.value
    if isinstance(place.func, ast.Name) and place.func.id in ("float", "int") and len(place.args) == 1:
        is_chain = isinstance(place.args[0], (ast.Name, ast.Attribute, ast.Call))
        return place.args[0] if is_chain else None
    return None


def _number(source: Source, place: ast.expr, tensor: ast.expr, start: float) -> str | None:
    """What the sum is before and behind the loop: "int" for a count of matches, "float" for losses, None if unclear."""
    reader = place.func.id if isinstance(place, ast.Call) and isinstance(place.func, ast.Name) else "item"
    if isinstance(start, int) and reader in ("item", "int") and _counts(source, tensor):
        return None if isinstance(source.parent(place), ast.BinOp) else "int"
    return "float" if reader in ("item", "float") else None


def _is_reduced(source: Source, loop: Loop, tensor: ast.expr) -> bool:
    """Whether the loop gives the tensor's name to what a function makes of it, which may be a plain number."""
    for node in walk(loop):
        if not (isinstance(node, ast.Assign) and isinstance(node.value, ast.Call)) or source.qualified_name(
            node.value.func
        ):
            continue
        if key(tensor) in {key(target) for target in node.targets} & {key(argument) for argument in node.value.args}:
            return True
    return False


def _is_detached(tensor: ast.expr) -> bool:
    return isinstance(tensor, ast.Call) and last_name(tensor.func) == "detach"


def _read_taken_out(source: Source, place: ast.expr, tensor: ast.expr, suffix: str) -> Edit | None:
    """The edit that leaves the tensor with this suffix; None where a comment or a line break stands in between."""
    span = source.span(place)
    if isinstance(place, ast.Call) and isinstance(place.func, ast.Name):
        text = source.text_of(tensor)
        return None if "#" in source.text_of(place) else Edit(span, f"{text}{suffix}")
    read = re.search(r"\.item\(\)$", source.text_of(place))
    return Edit(Span(span.start + read.start(), span.end), suffix) if read else None


def _counts(source: Source, node: ast.expr) -> bool:
    """Whether an expression counts matches: `(a == b).sum()`, `a.eq(b).sum()`, `torch.sum(a == b)`."""
    if not isinstance(node, ast.Call) or node.keywords:
        return False
    if source.qualified_name(node.func) == "torch.sum":
        return len(node.args) == 1 and _is_comparison(node.args[0])
    if last_name(node.func) != "sum" or node.args or not isinstance(node.func, ast.Attribute):
        return False
    return _is_comparison(node.func.value)


def _is_comparison(node: ast.expr) -> bool:
    if isinstance(node, ast.Compare):
        return len(node.ops) == 1 and isinstance(node.ops[0], (ast.Eq, ast.NotEq, ast.Lt, ast.LtE, ast.Gt, ast.GtE))
    return isinstance(node, ast.Call) and last_name(node.func) in ("eq", "ne")
