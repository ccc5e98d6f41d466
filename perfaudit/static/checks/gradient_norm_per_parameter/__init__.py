"""PA407: a norm of all gradients that is computed one parameter at a time, on every step."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator

from perfaudit.expressions import regex
from perfaudit.static.checks.gradient_norm_per_parameter.gradient_loops import (
    is_gradient,
    parameter_of,
    plain_statements,
    runs_in_every_step,
)
from perfaudit.static.registry import Proposal, Seen, check
from perfaudit.static.source import FUNCTIONS, Source
from perfaudit.static.source.syntax import walk
from perfaudit.static.understanding.demonstrations import is_test
from perfaudit.static.understanding.devices import uses_accelerator
from perfaudit.static.understanding.names import last_name

_NORMS = {"torch.norm", "torch.linalg.norm", "torch.linalg.vector_norm"}
# What needs sums of its own: gradients of which this process holds a part; and what already takes lists.
_OTHERWISE = regex(r"all_reduce|DTensor|to_local|model_parallel|shard|sparse|_foreach_|get_total_norm|multi_tensor")


@check("PA407", ast.For)
def summed_in_a_loop(source: Source, loop: ast.For) -> Iterator[Seen]:
    """`for p in parameters: total += p.grad.norm().item() ** 2`"""
    parameter = parameter_of(loop)
    if not parameter or not source.mentions("grad"):
        return
    norm = next(
        (found for part in plain_statements(loop.body) if (found := _summed_norm(source, loop, part, parameter))), None
    )
    if norm is None or not _is_worth_saying(source, loop):
        return
    waits = any(
        isinstance(n, ast.Call) and (last_name(n.func) == "item" or source.qualified_name(n.func) == "float")
        for n in walk(loop)
    )
    yield _seen_norm(source, loop, norm, waits)


@check("PA407", ast.ListComp, ast.GeneratorExp)
def stacked_from_a_list(source: Source, made: ast.ListComp | ast.GeneratorExp) -> Iterator[Seen]:
    """`torch.norm(torch.stack([p.grad.norm() for p in parameters]))`, and `sum(... for p in parameters)`"""
    target = made.generators[0].target
    parameter = target.id if isinstance(target, ast.Name) else ""
    call = source.parent(made)
    if (
        not source.mentions("grad")
        or not parameter
        or len(made.generators) != 1
        or not isinstance(call, ast.Call)
        or call.args[:1] != [made]
    ):
        return
    if source.qualified_name(call.func) not in ("torch.stack", "torch.tensor") and not _is_builtin(source, call, "sum"):
        return
    norm = _norm_in(source, made.elt, parameter, {})
    if norm is None or not _is_worth_saying(source, made):
        return
    waits = any(isinstance(n, ast.Call) and last_name(n.func) == "item" for n in walk(made.elt))
    yield _seen_norm(source, made, norm, waits)


def _seen_norm(source: Source, node: ast.AST, norm: ast.expr, waits: bool) -> Seen:
    cost = "and the host waits for the device at each of them" if waits else "with kernels for each of them"
    return Seen(
        node,
        f"the norm of all gradients is put together from `{source.brief(norm)}`, one parameter at a time, {cost}",
        Proposal(
            "take what `torch.nn.utils.clip_grad_norm_` returns where it is called anyway; else "
            "`torch.nn.utils.get_total_norm(gradients)` (torch 2.6), which takes a few kernels for all; "
            "read it with `.item()` once, on the steps that log it"
        ),
        hot=True,
    )


# ---- the norm ------------------------------------------------------------------------------------------------------


def _summed_norm(source: Source, loop: ast.For, statement: ast.stmt, parameter: str) -> ast.expr | None:
    """The norm of one gradient that a statement adds to a total, if it is used for nothing else."""
    if isinstance(statement, ast.AugAssign) and isinstance(statement.op, ast.Add):
        target: ast.expr = statement.target
        added = statement.value
    elif isinstance(statement, ast.Assign) and isinstance(statement.value, ast.BinOp):
        target, added = statement.targets[0], statement.value
        if not isinstance(statement.value.op, ast.Add) or ast.unparse(target) != ast.unparse(statement.value.left):
            return None
    else:
        return None
    if not isinstance(target, ast.Name):  # a total for each layer, or each name
        return None
    named = {
        part.targets[0].id: part.value
        for part in plain_statements(loop.body)
        if isinstance(part, ast.Assign) and isinstance(part.targets[0], ast.Name)
    }
    norm = _norm_in(source, added, parameter, named)
    if norm is None:
        return None
    for name in [n.id for n in walk(added) if isinstance(n, ast.Name) and n.id in named and n.id != target.id]:
        reads = [n for n in walk(loop) if isinstance(n, ast.Name) and n.id == name and isinstance(n.ctx, ast.Load)]
        if any(not _feeds(source, read, statement, named, target.id) for read in reads):
            return None  # each norm is shown or compared by itself
    return norm


def _feeds(source: Source, read: ast.Name, statement: ast.stmt, named: dict[str, ast.expr], total: str) -> bool:
    """Whether a read is for the total: in the statement that adds to it, or in one that names a part of what is added."""
    place = source.statement(read)
    target = place.targets[0] if isinstance(place, ast.Assign) else None
    return place is statement or (isinstance(target, ast.Name) and target.id in named and target.id != total)


def _norm_in(source: Source, node: ast.expr, parameter: str, named: dict[str, ast.expr]) -> ast.expr | None:
    """The norm, or the sum of squares, of `parameter.grad` inside an expression, names of the loop followed."""
    for part in walk(node):
        if isinstance(part, ast.Call) and _is_norm(source, part, parameter, named):
            return part
        if isinstance(part, ast.Name) and part.id in named and isinstance(part.ctx, ast.Load):
            further = {name: value for name, value in named.items() if name != part.id}
            if (found := _norm_in(source, named[part.id], parameter, further)) is not None:
                return found
    return None


def _is_norm(source: Source, call: ast.Call, parameter: str, named: dict[str, ast.expr]) -> bool:
    def is_its_gradient(node: ast.expr) -> bool:
        return is_gradient(node, parameter, named)

    if source.qualified_name(call.func) in _NORMS:
        return bool(call.args) and is_its_gradient(call.args[0])
    if source.qualified_name(call.func) == "torch.sum":
        return bool(call.args) and _is_square(call.args[0], is_its_gradient)
    if not isinstance(call.func, ast.Attribute) or (call.args and call.func.attr == "sum"):
        return False
    if call.func.attr == "sum":
        return _is_square(call.func.value, is_its_gradient)
    return call.func.attr == "norm" and is_its_gradient(call.func.value)


def _is_square(node: ast.expr, is_gradient: Callable[[ast.expr], bool]) -> bool:
    """Whether an expression is `g ** 2`, `g.pow(2)`, `g.square()` or `g * g` of a gradient."""
    match node:
        case ast.BinOp(left=left, op=ast.Pow(), right=ast.Constant(value=2)):
            return is_gradient(left)
        case ast.BinOp(left=left, op=ast.Mult(), right=right):
            return is_gradient(left) and ast.unparse(left) == ast.unparse(right)
        case ast.Call(func=ast.Attribute(value=value, attr="pow"), args=[ast.Constant(value=2)]):
            return is_gradient(value)
        case ast.Call(func=ast.Attribute(value=value, attr="square"), args=[]):
            return is_gradient(value)
    return False


def _is_builtin(source: Source, call: ast.Call, name: str) -> bool:
    return isinstance(call.func, ast.Name) and call.func.id == name and not source.lookup(call.func)


def _is_worth_saying(source: Source, node: ast.AST) -> bool:
    """Whether the norm is computed on every step, on an accelerator, of whole gradients that lists would serve."""
    around = source.enclosing(node, *FUNCTIONS)
    if is_test(source, node) or _OTHERWISE.search(source.text_of(around or node)) or not _on_accelerator(source):
        return False
    return runs_in_every_step(source, node)


def _on_accelerator(source: Source) -> bool:
    """Whether the training uses an accelerator: on the CPU nothing is waited for, and lists are worked off one by one."""
    if uses_accelerator(source):
        return True
    return source.neighbours is not None and source.neighbours.is_imported_by_a_marked_file("accelerator")
