"""What would use gradients that `no_sync` leaves unsummed: reasons not to put the passes of an accumulation under it."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence

from perfaudit.expressions import regex
from perfaudit.static.source import FUNCTIONS, LOOPS, Source
from perfaudit.static.understanding.backward import backward_calls
from perfaudit.static.understanding.names import dotted_name, is_like_an_optimizer, last_name
from perfaudit.tune.ranks.unsynced.accumulations import Accumulation
from perfaudit.tune.ranks.unsynced.holder_uses import Uses, ids_below, may_step

_READER = regex(r"^grad$|clip_grad|unscale_")  # last names of what reads gradients
# What sees gradients of each pass, or steps in it.
_HOOKS = ("register_post_accumulate_grad_hook", "register_comm_hook", "_apply_optimizer_in_backward")


def step_elsewhere(sources: Sequence[Source], found: Sequence[Accumulation]) -> str:
    """Where an optimizer steps besides those that follow the last pass, as file:line; "" for nowhere.

    Such a step may follow passes whose gradients no rank has sent: `if len(loader) % 4: optimizer.step()` behind a loop. One that
    follows a pass of its own does not.
    """
    inside = ids_below(statement for each in found for statement in each.steps)
    passes = [call for each in found for call in each.passes]
    for source in sources:
        for node in source.nodes(ast.Attribute):
            if node.attr != "step" or id(node) in inside or not isinstance(node.ctx, ast.Load):
                continue
            owner, parent = last_name(node.value).lower(), source.parent(node)
            called = parent if isinstance(parent, ast.Call) and parent.func is node else None
            if called is not None and _has_a_pass_of_its_own(source, called, passes):
                continue
            if is_like_an_optimizer(owner) or (called is not None and may_step(owner)):
                return f"{source.path}:{node.lineno}"
    return ""


def _has_a_pass_of_its_own(source: Source, step: ast.Call, left_out: Sequence[ast.Call]) -> bool:
    """Whether a step follows a pass of its own, and that an end of all gradients that were there: `optimizer.zero_grad()`."""
    optimizers = (
        {last_name(each) for each in (step.func.value, *step.args)} if isinstance(step.func, ast.Attribute) else set()
    )
    is_passed, child = False, source.statement(step)
    while True:
        for each in reversed(source.before(child)):
            nodes = list(ast.walk(each))
            if any(node is call for node in nodes for call in left_out):
                return False
            call = each.value if isinstance(each, ast.Expr) else None
            if not is_passed:
                is_passed = any(call is other for other in backward_calls(source))
            elif isinstance(call, ast.Call) and _owner_zeroed(call) in optimizers:
                return True
        around = source.parent(child)
        if not isinstance(around, (ast.If, ast.With)):
            return False
        child = around


def _owner_zeroed(call: ast.Call) -> str:
    """The last name of what a call sets all gradients of to nothing; "" for any other call."""
    if isinstance(call.func, ast.Attribute) and call.func.attr == "zero_grad":
        return last_name(call.func.value)
    return ""


def use_of_gradients(
    sources: Sequence[Source], source: Source, found: Accumulation, model: ast.expr, others: Sequence[Accumulation]
) -> str:
    """What may look at gradients, or change them, in each pass and not behind the last one alone; "" for nothing.

    Gradients of earlier passes are there in all of the loop, so that what stands in front of the pass counts as well; and those
    of the last passes of an epoch in the loops around it. others: accumulations in other functions, that are looked at as well.
    """
    for hook in _HOOKS:
        if place := next((f"{each.path}" for each in sources if each.mentions(hook)), ""):
            return f"{place} says {hook}, which sees the gradients of each pass"
    loops = [each for each in source.ancestors(found.passes[0]) if isinstance(each, LOOPS)]
    under = ids_below([*found.steps, *(call for call in found.passes if found.makes_steps)])
    if reader := next((each for loop in loops for each in _readers(loop.body, under)), None):
        return f"gradients are looked at in each pass, or behind the last one, by {source.path}:{reader.lineno}"
    program = Uses(sources, source, found.passes[0])
    if place := program.hook_that_reads():
        return f"the hook of {place} reads gradients in each pass"
    program.quiet = [call for each in (found, *others) if each.makes_steps for call in each.passes]
    trains = {
        scope.name for each in others if isinstance(scope := source.enclosing(each.passes[0], *FUNCTIONS), FUNCTIONS)
    }
    program.owners = frozenset(_owners(source, [model, *_owners_of_steps(found.steps)]))
    holders = program.holders(last_name(model), _optimizers(found.steps))
    inside = [node for statement in loops[0].body for node in ast.walk(statement) if id(node) not in under]
    if why := program.use_in(source, inside, holders):
        return why
    return program.optimizer_behind(source, loops[0], under, _optimizers(found.steps), trains=frozenset(trains))


def _readers(statements: Iterable[ast.stmt], left_out: set[int]) -> Iterator[ast.expr]:
    """Where gradients are read, or changed, by name: `.grad`, `getattr(p, "grad")`, `clip_grad_norm_`, `unscale_`."""
    for node in (node for statement in statements for node in ast.walk(statement) if id(node) not in left_out):
        if (isinstance(node, (ast.Name, ast.Attribute)) and _READER.search(last_name(node))) or (
            isinstance(node, ast.Constant) and node.value == "grad"
        ):
            yield node


def _optimizers(steps: Sequence[ast.stmt]) -> set[str]:
    """Names of what steps in these statements, and of what is stepped by a scaler."""
    return {last_name(each) for each in _owners_of_steps(steps)} - {""}


def _owners_of_steps(steps: Sequence[ast.stmt]) -> Iterator[ast.expr]:
    """What steps in these statements, and what is stepped by a scaler."""
    for node in (node for statement in steps for node in ast.walk(statement)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "step":
            yield from (node.func.value, *node.args)


def _owners(source: Source, nodes: Iterable[ast.expr]) -> Iterator[str]:
    """Names of objects of which these are attributes: `self` of `self.model`, `state` of `state.optimizer`; of no module."""
    for node in nodes:
        root, _, rest = dotted_name(node).partition(".")
        if rest and source.qualified_name(node) is None:
            yield root
