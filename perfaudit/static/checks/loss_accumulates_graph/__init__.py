"""PA603: a sum of losses that keeps the graph of every step."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from perfaudit.expressions import regex
from perfaudit.findings import Edit, Span
from perfaudit.static.checks.loss_accumulates_graph.additions import addition, loss_terms, put_into_list
from perfaudit.static.checks.loss_accumulates_graph.parts import parts_beside
from perfaudit.static.registry import Proposal, Seen, check
from perfaudit.static.source import Function, Loop, Source
from perfaudit.static.source.syntax import walk
from perfaudit.static.understanding.each_time import runs_in_any_case
from perfaudit.static.understanding.elsewhere import Elsewhere, function_run
from perfaudit.static.understanding.losses import backpropagated_names, key
from perfaudit.static.understanding.members import is_own
from perfaudit.static.understanding.names import dotted_name, last_name
from perfaudit.static.understanding.no_grad import in_no_grad
from perfaudit.static.understanding.step_loops import StepLoop, step_loops
from perfaudit.static.understanding.values import enclosing_function

BEGINS_AGAIN = regex(r"reset|clear|zero|restart|init")


@check("PA603", ast.Module)
def loss_accumulates_graph(source: Source, module: ast.Module) -> Iterator[Seen]:
    if not source.imports_torch:
        return
    for step in step_loops(source):
        if _uses_graphs_again(step):
            continue
        returned = _returned_losses(source, step)
        losses = backpropagated_names(source, step.loop) | returned
        yield from _handed_over(source, step, losses, returned)
        parts = parts_beside(source, step, losses)
        for statement in walk(step.loop):
            target, added = addition(statement)
            is_listed = target is None
            if is_listed:
                target, added = put_into_list(source, statement)
            if (
                target is None
                or added is None
                or enclosing_function(source, target) is not enclosing_function(source, step.loop)
            ):
                continue
            terms = _tensors(source, loss_terms(added, losses), step.loop, returned)
            beside = () if terms else [*loss_terms(added, parts)]
            if not (terms or beside) or key(target) in losses or in_no_grad(source, target):
                continue
            # Imported here: most loops add up no losses.
            from perfaudit.static.checks.loss_accumulates_graph.readers import (
                is_always_differentiated,
                is_only_read,
                restarts_each_step,
            )

            if restarts_each_step(source, step, target) or not is_only_read(source, target, is_listed):
                continue
            is_container = is_listed or isinstance(target, ast.Subscript)
            if is_container and not is_always_differentiated(source, step, statement):
                continue
            ends = [source.span(term).end for term in terms]
            advice = "keep the detached loss" if is_listed else "add up the detached loss"
            edits = tuple(Edit(Span(end, end), ".detach()") for end in ends)
            yield Seen(
                statement,
                _message(source, step, statement, target, is_listed),
                Proposal(advice, () if is_container else edits),
                hot=True,
            )


def _handed_over(
    source: Source, step: StepLoop, losses: set[str] | frozenset[str], returned: set[str]
) -> Iterator[Seen]:
    """Calls in the loop that hand the loss to a method which adds it to a sum, here or in another file: `meter.update(loss)`."""
    for call in (node for part in step.loop.body for node in walk(part) if isinstance(node, ast.Call)):
        terms = {id(argument): [*loss_terms(argument, losses)] for argument in call.args}
        given = [argument for argument in call.args if terms[id(argument)]]
        if not given or not isinstance(call.func, ast.Attribute) or in_no_grad(source, call):
            continue
        if enclosing_function(source, call) is not enclosing_function(source, step.loop):
            continue
        handed = [term for one in given for term in terms[id(one)]]
        if _tensors(source, handed, step.loop, returned) != handed:
            continue
        here = function_run(source, call)
        if here is None or here.owner is None or _begins_again(step, call.func.value):
            continue
        names = {name for name, argument in here.named_arguments if any(argument is term for term in given)}
        statement = next((s for s in _statements(here.function) if _adds_to_self(here, s, names)), None)
        if statement is not None:
            place = f"`{here.source.brief(statement)}` in `{here.function.name}`"
            where = (
                f", {here.source.path.rpartition('/')[2]} line {statement.lineno}" if here.source is not source else ""
            )
            yield Seen(
                call,
                f"`{source.brief(call)}` ties the graphs of all steps together, so none of them is freed: {place}{where}",
                Proposal(f"pass `{_without_graph(source, given[0])}`"),
                hot=True,
            )


def _tensors(
    source: Source, terms: Iterable[ast.expr], root: Loop | Function, returned: set[str] | None = None
) -> list[ast.expr]:
    """Those terms that are provably tensors, as `is_tensor` has it."""
    if not (given := [*terms]):
        return []
    from perfaudit.static.checks.loss_accumulates_graph.tensors import is_tensor  # as above

    return [term for term in given if is_tensor(source, term, root, returned)]


def _without_graph(source: Source, given: ast.expr) -> str:
    text = source.brief(given)
    return f"({text}).detach()" if isinstance(given, ast.BinOp) else f"{text}.detach()"


def _statements(function: Function) -> Iterator[ast.stmt]:
    return (node for node in walk(function) if isinstance(node, ast.stmt))


def _begins_again(step: StepLoop, receiver: ast.expr) -> bool:
    """Whether the loop makes the object that holds the sum, or calls what sets it to zero; a name that is not plain may."""
    name = dotted_name(receiver)
    if not name:
        return True
    for node in walk(step.loop):
        if (
            isinstance(node, (ast.Name, ast.Attribute))
            and isinstance(node.ctx, ast.Store)
            and dotted_name(node) == name
        ):
            return True
        if isinstance(node, ast.Attribute) and dotted_name(node.value) == name and BEGINS_AGAIN.search(node.attr):
            return True
    return False


def _adds_to_self(here: Elsewhere, statement: ast.AST, names: set[str]) -> bool:
    """Whether a statement that surely runs adds a parameter, as it was given, to something `self` keeps."""
    target, added = addition(statement)
    if target is None:
        target = added = _mean_that_runs(statement)
    if target is None or added is None or not is_own(target) or in_no_grad(here.source, target):
        return False
    value = statement.value if added is target and isinstance(statement, ast.Assign) else added
    if not any(isinstance(term, ast.Name) for term in loss_terms(value, names)):
        return False
    bound = {n.id for n in walk(here.function) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    return not names & bound and runs_in_any_case(here.source, statement, here.function)


def _mean_that_runs(statement: ast.AST) -> ast.expr | None:
    """`self.mean` of `self.mean = (self.mean * self.n + x) / (self.n + 1)`, which holds on to what it was."""
    if not isinstance(statement, ast.Assign) or len(statement.targets) != 1 or not is_own(statement.targets[0]):
        return None
    target = statement.targets[0]
    leaves: list[ast.expr] = [statement.value]
    while any(isinstance(leaf, ast.BinOp) for leaf in leaves):
        leaves = [s for leaf in leaves for s in ((leaf.left, leaf.right) if isinstance(leaf, ast.BinOp) else (leaf,))]
    is_arithmetic = isinstance(statement.value, ast.BinOp)
    return target if is_arithmetic and any(dotted_name(leaf) == dotted_name(target) for leaf in leaves) else None


def _message(source: Source, step: StepLoop, statement: ast.AST, target: ast.expr, is_listed: bool) -> str:
    """What the sum or list does, and how long: to the end, or until the loop sets it anew every so many steps."""
    does = "keeps the graphs of all steps" if is_listed else "ties the graphs of all steps together"
    text = f"`{source.brief(statement)}` {does}"
    from perfaudit.static.checks.loss_accumulates_graph.readers import starts  # as above

    if any(True for _ in starts(source, step, target)):
        return f"{text} until `{key(target)}` starts again, and frees none of them before"
    return f"{text}, so none of them is freed"


def _uses_graphs_again(step: StepLoop) -> bool:
    """Whether a backward pass of a loop, or of what it calls, keeps its graph for another one."""
    keeps = ("retain_graph", "create_graph")
    return any(
        isinstance(node, ast.keyword) and node.arg in keeps
        for part in (step.loop, *step.helpers)
        for node in walk(part)
    )


def _returned_losses(source: Source, step: StepLoop) -> set[str]:
    """Names that get, in the loop, the loss which a function of this file has called `backward` on and returns."""
    found: set[str] = set()
    for node in walk(step.loop):
        if not (
            isinstance(node, ast.Assign) and isinstance(node.value, ast.Call) and isinstance(node.targets[0], ast.Name)
        ):
            continue
        for helper in step.helpers:
            if helper.name == last_name(node.value.func) and _returns_its_loss(source, helper):
                found.add(node.targets[0].id)
    return found


def _returns_its_loss(source: Source, function: Function) -> bool:
    returns = [n for n in walk(function) if isinstance(n, ast.Return) and enclosing_function(source, n) is function]
    losses = backpropagated_names(source, function)
    reads = {"item", "detach", "data"}
    rebound = [n for n in walk(function) if isinstance(n, ast.Call) and last_name(n.func) in reads]
    return (
        bool(returns)
        and not rebound
        and all(
            n.value is not None and key(n.value) in losses and _tensors(source, [n.value], function) for n in returns
        )
    )
