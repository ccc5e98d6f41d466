"""PA407: a norm of all gradients that is computed one parameter at a time, on every step."""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Callable, Iterator

from perfaudit.static.registry import Proposal, Seen, check
from perfaudit.static.source import FUNCTIONS, LOOPS, Function, Source
from perfaudit.static.understanding.context import (
    backward_calls,
    callers,
    is_test,
    last_name,
    runs_rarely,
    step_code,
    step_loops,
    takes_few_long_steps,
)
from perfaudit.static.understanding.devices import uses_accelerator
from perfaudit.static.understanding.host_models import trains_on_host

FOLLOW = 3  # calls followed outwards from the norm to the training loop
_NORMS = {"torch.norm", "torch.linalg.norm", "torch.linalg.vector_norm"}
_SAME_GRADIENT = {"detach", "float", "clone", "view", "flatten", "reshape", "to", "double", "contiguous"}
# What needs sums of its own: gradients of which this process holds a part; and what already takes lists.
_OTHERWISE = re.compile(
    r"all_reduce|DTensor|to_local|model_parallel|shard|sparse|_foreach_|get_total_norm|multi_tensor"
)
_HOOKS = {"on_after_backward", "on_before_optimizer_step", "on_before_zero_grad", "optimizer_step"}  # of Lightning


@check("PA407", ast.For)
def summed_in_a_loop(source: Source, loop: ast.For) -> Iterator[Seen]:
    """`for p in parameters: total += p.grad.norm().item() ** 2`"""
    parameter = _parameter_of(loop)
    if not parameter or "grad" not in source.text_of(loop):
        return
    norm = next((found for part in _statements(loop.body) if (found := _summed(source, loop, part, parameter))), None)
    if norm is None or not _runs_every_step(source, loop):
        return
    waits = any(
        isinstance(n, ast.Call) and (last_name(n.func) == "item" or source.qualified(n.func) == "float")
        for n in ast.walk(loop)
    )
    yield _seen(source, loop, norm, waits)


@check("PA407", ast.ListComp, ast.GeneratorExp)
def stacked_from_a_list(source: Source, made: ast.ListComp | ast.GeneratorExp) -> Iterator[Seen]:
    """`torch.norm(torch.stack([p.grad.norm() for p in parameters]))`, and `sum(... for p in parameters)`"""
    target = made.generators[0].target
    parameter = target.id if isinstance(target, ast.Name) else ""
    call = source.parent(made)
    if not parameter or len(made.generators) != 1 or not isinstance(call, ast.Call) or call.args[:1] != [made]:
        return
    if source.qualified(call.func) not in ("torch.stack", "torch.tensor") and not _is_builtin(source, call, "sum"):
        return
    norm = _norm_in(source, made.elt, parameter, {})
    if norm is None or not _runs_every_step(source, made):
        return
    waits = any(isinstance(n, ast.Call) and last_name(n.func) == "item" for n in ast.walk(made.elt))
    yield _seen(source, made, norm, waits)


def _seen(source: Source, node: ast.AST, norm: ast.expr, waits: bool) -> Seen:
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


def _parameter_of(loop: ast.For) -> str:
    """The name that a loop gives each parameter: `p` of `for p in ...` and of `for name, p in m.named_parameters()`."""
    target = loop.target
    if isinstance(target, ast.Tuple) and len(target.elts) == 2:
        target = target.elts[1]
    return target.id if isinstance(target, ast.Name) else ""


def _statements(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """The statements of a loop, those under conditions included, those of loops inside it left out."""
    for statement in body:
        if isinstance(statement, (ast.If, ast.With)):
            yield from _statements([*statement.body, *getattr(statement, "orelse", [])])
        elif not isinstance(statement, (*LOOPS, *FUNCTIONS)):
            yield statement


def _summed(source: Source, loop: ast.For, statement: ast.stmt, parameter: str) -> ast.expr | None:
    """The norm of one gradient that a statement adds to a total, if it is used for nothing else."""
    if isinstance(statement, ast.AugAssign) and isinstance(statement.op, ast.Add):
        target, added = statement.target, statement.value
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
        for part in _statements(loop.body)
        if isinstance(part, ast.Assign) and isinstance(part.targets[0], ast.Name)
    }
    norm = _norm_in(source, added, parameter, named)
    if norm is None:
        return None
    for name in [n.id for n in ast.walk(added) if isinstance(n, ast.Name) and n.id in named and n.id != target.id]:
        reads = [n for n in ast.walk(loop) if isinstance(n, ast.Name) and n.id == name and isinstance(n.ctx, ast.Load)]
        if any(not _feeds(source, read, statement, named, target.id) for read in reads):
            return None  # each norm is shown or compared by itself
    return norm


def _feeds(source: Source, read: ast.Name, statement: ast.stmt, named: dict[str, ast.expr], total: str) -> bool:
    """Whether a read is for the total: in the statement that adds to it, or in one that names a part of what is added."""
    place = source.statement(read)
    if place is statement:
        return True
    own = isinstance(place, ast.Assign) and isinstance(place.targets[0], ast.Name)
    return isinstance(place, ast.Assign) and own and place.targets[0].id in named and place.targets[0].id != total  # type: ignore[attr-defined]  # `own` says so


def _norm_in(source: Source, node: ast.expr, parameter: str, named: dict[str, ast.expr]) -> ast.expr | None:
    """The norm, or the sum of squares, of `parameter.grad` inside an expression, names of the loop followed."""
    for part in ast.walk(node):
        if isinstance(part, ast.Call) and _is_norm(source, part, parameter, named):
            return part
        if isinstance(part, ast.Name) and part.id in named and isinstance(part.ctx, ast.Load):
            further = {name: value for name, value in named.items() if name != part.id}
            if (found := _norm_in(source, named[part.id], parameter, further)) is not None:
                return found
    return None


def _is_norm(source: Source, call: ast.Call, parameter: str, named: dict[str, ast.expr]) -> bool:
    def is_gradient(node: ast.expr) -> bool:
        return _is_gradient(node, parameter, named)

    if source.qualified(call.func) in _NORMS:
        return bool(call.args) and is_gradient(call.args[0])
    if source.qualified(call.func) == "torch.sum":
        return bool(call.args) and _is_square(call.args[0], is_gradient)
    if not isinstance(call.func, ast.Attribute) or (call.args and call.func.attr == "sum"):
        return False
    if call.func.attr == "sum":
        return _is_square(call.func.value, is_gradient)
    return call.func.attr == "norm" and is_gradient(call.func.value)


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


def _is_gradient(node: ast.expr, parameter: str, named: dict[str, ast.expr]) -> bool:
    """Whether an expression is all of `parameter.grad`, whatever type it is computed in."""
    while True:
        if isinstance(node, ast.Name) and node.id in named:
            node, named = named[node.id], {name: value for name, value in named.items() if name != node.id}
        elif isinstance(node, ast.Attribute) and node.attr == "data":
            node = node.value
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _SAME_GRADIENT:
            node = node.func.value
        else:
            break
    is_grad = isinstance(node, ast.Attribute) and node.attr == "grad"
    return is_grad and isinstance(node.value, ast.Name) and node.value.id == parameter  # type: ignore[attr-defined]  # `is_grad` says so


def _is_builtin(source: Source, call: ast.Call, name: str) -> bool:
    return isinstance(call.func, ast.Name) and call.func.id == name and not source.lookup(call.func)


# ---- on every step -------------------------------------------------------------------------------------------------


def _runs_every_step(source: Source, node: ast.AST) -> bool:
    """Whether the norm is computed on every training step, as far as this file and those that import it tell."""
    around = source.enclosing(node, *FUNCTIONS)
    if is_test(source, node) or _OTHERWISE.search(source.text_of(around or node)) or not _on_accelerator(source):
        return False
    steps = [s for s in step_loops(source) if not takes_few_long_steps(source, s) and not trains_on_host(source, s)]
    roots = [part.root for step in steps for part in step_code(source, step)]
    places: list[tuple[ast.AST, ast.AST | None]] = [(node, around)]
    for _ in range(FOLLOW):
        further: list[tuple[ast.AST, ast.AST | None]] = []
        for place, function in places:
            root = next((r for r in roots if any(a is r for a in source.ancestors(place))), None)
            if root is not None:
                if not runs_rarely(source, place, root):
                    return True
                continue
            if not isinstance(function, FUNCTIONS) or runs_rarely(source, place, function):
                continue
            if any(source.enclosing(call, *FUNCTIONS) is function for call in backward_calls(source)):
                return True  # a function that makes one step, which another file may call
            calls = callers(source, function)
            if function.name in _HOOKS or (not calls and _is_called_elsewhere(source, function)):
                return True
            further += [(call, source.enclosing(call, *FUNCTIONS)) for call in calls]
        places = further
    return False


def _on_accelerator(source: Source) -> bool:
    """Whether the training uses an accelerator: on the CPU nothing is waited for, and lists are worked off one by one."""
    if uses_accelerator(source):
        return True
    return source.neighbours is not None and source.neighbours.is_imported_by_a_marked_file("accelerator")


def _is_called_elsewhere(source: Source, function: Function) -> bool:
    """Whether a file that imports this one calls the function each time it gets there."""
    return source.neighbours is not None and bool(source.neighbours.some_importer(_calls_each_time(function.name)))


@functools.lru_cache(maxsize=64)  # one function object for a name, so that each importer is asked once
def _calls_each_time(name: str) -> Callable[[Source], bool]:
    def fact(source: Source) -> bool:
        return any(
            not runs_rarely(source, call, source.scope(call)) and source.enclosing(call, *FUNCTIONS, *LOOPS) is not None
            for call in source.calls_named(re.compile(rf"^{re.escape(name)}$"))
        )

    return fact
