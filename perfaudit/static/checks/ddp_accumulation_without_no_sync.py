"""PA703: accumulated gradients that DistributedDataParallel sums in every backward pass."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from perfaudit.expressions import regex
from perfaudit.static.registry import Proposal, Seen, check
from perfaudit.static.source import FUNCTIONS, LOOPS, Loop, Source
from perfaudit.static.understanding.backward import backward_calls
from perfaudit.static.understanding.distributed import ddp_calls
from perfaudit.static.understanding.losses import backward_operand
from perfaudit.static.understanding.names import dotted_name, is_like_an_optimizer, last_name
from perfaudit.static.understanding.rarely import rare_when, runs_rarely
from perfaudit.static.understanding.step_loops import step_loops

# `torch.accelerator` is torch's own name of a GPU, and decides nothing.
_SYNCED_BY_HAND = regex(
    r"no_sync|require_backward_grad_sync|set_requires_gradient_sync|(?<!torch\.)(?<!current_)accelerat|deepspeed", re.I
)
_PARTS = regex(r"accum|micro|chunk|split|mini_?batch", re.IGNORECASE)  # of one batch
ADVICE = "run forward and backward of all passes but the last before a step under `with model.no_sync():`"

REST = "the last pass before the step of line {} as well, or each rank steps with its own gradients there"


@check("PA703", ast.Module)
def ddp_accumulation_without_no_sync(source: Source, _: ast.Module) -> Iterator[Seen]:
    if not ddp_calls(source) or source.says(_SYNCED_BY_HAND):
        return
    for step in step_loops(source):
        inside = [call for call in backward_calls(source) if _stands_in(source, call, step.loop)]
        backward = [call for call in inside if not _is_synced_by_helper(source, call)]
        rare = [call for call, _ in _before_a_rare_step(source, step.loop, backward)]
        rest = _step_for_the_rest(source, step.loop) if rare else None
        for call in (*rare, *_in_parts(source, step.loop, backward)):
            loss = source.brief(backward_operand(source, call), 30)
            advice = f"{ADVICE}; {REST.format(rest.lineno)}" if rest is not None else ADVICE
            yield Seen(
                call,
                f"gradients of `{loss}` are summed over all processes in every backward pass, also where no step "
                "follows",
                Proposal(advice),
                hot=True,
            )


def passes_before_a_rare_step(source: Source, also_synced: bool = False) -> list[tuple[ast.Call, ast.If]]:
    """Backward passes of a model that is wrapped, here or in another file, where an optimizer steps in some of them only.

    Each with the condition of that; passes under an `if` of their own are among them. also_synced: those as well in whose file
    the program may decide itself when gradients are summed.
    """
    if source.says(_SYNCED_BY_HAND) and not also_synced:
        return []
    found: list[tuple[ast.Call, ast.If]] = []
    for step in step_loops(source):
        inside = [call for call in backward_calls(source) if _stands_in(source, call, step.loop)]
        passes = [call for call in inside if also_synced or not _is_synced_by_helper(source, call)]
        found += _before_a_rare_step(source, step.loop, passes, (ast.Expr, ast.With, ast.If))
    return found


def passes_and_steps(source: Source) -> Iterator[tuple[Loop, list[ast.Call], list[ast.Call]]]:
    """Each training loop with its backward passes and the steps of optimizers in it; nothing of a file that decides itself when
    gradients are summed.
    """
    for step in () if source.says(_SYNCED_BY_HAND) else step_loops(source):
        passes = [call for call in backward_calls(source) if _stands_in(source, call, step.loop)]
        yield (
            step.loop,
            [call for call in passes if not _is_synced_by_helper(source, call)],
            [call for call in source.calls(".step") if _is_optimizer(call) and _stands_in(source, call, step.loop)],
        )


def word_of_sync(source: Source) -> str:
    """The word by which a file says that it decides itself when gradients are summed; "" where it has none."""
    found = _SYNCED_BY_HAND.search(source.code)
    return found[0] if found else ""


def _is_synced_by_helper(source: Source, call: ast.Call) -> bool:
    """Whether a backward pass stands under a `with` of the project's own that may enter `no_sync`.

    It gets the wrapped model (`with ddp_sync(ddp, is_last):`), or its text in another file says `no_sync`.
    """
    contexts = [item.context_expr for a in source.ancestors(call) if isinstance(a, ast.With) for item in a.items]
    return any(
        _gets_wrapped_model(source, context) or _switches_elsewhere(source, context)
        for context in contexts
        if isinstance(context, ast.Call) and not (source.qualified_name(context.func) or "").startswith("torch.")
    )


def _gets_wrapped_model(source: Source, context: ast.Call) -> bool:
    places = [parent for wrap in ddp_calls(source) if isinstance(parent := source.parent(wrap), ast.Assign)]
    wrapped = {dotted_name(target) for place in places for target in place.targets} - {""}
    return any(dotted_name(given) in wrapped for given in (*context.args, *(k.value for k in context.keywords)))


def _switches_elsewhere(source: Source, context: ast.Call) -> bool:
    name = source.qualified_name(context.func)
    if name is None or source.neighbours is None:
        return False
    found = source.neighbours.definition_of(name)
    return found is not None and bool(_SYNCED_BY_HAND.search(found[0].text_of(found[1])))


def _before_a_rare_step(
    source: Source, loop: Loop, backward: list[ast.Call], kinds: tuple[type[ast.stmt], ...] = (ast.Expr, ast.With)
) -> Iterator[tuple[ast.Call, ast.If]]:
    """Backward passes in front of `if (i + 1) % n == 0: optimizer.step()`, in the same block, in statements of these kinds."""
    steps = [call for call in source.calls(".step") if _is_optimizer(call) and _stands_in(source, call, loop)]
    for step in steps:
        condition = _period(source, step, loop)
        if condition is None:
            continue
        if any(
            _stands_beside(source, other, condition) for other in steps
        ):  # each pass is followed by a step of some kind
            continue
        block = source.block(condition)
        if any(_element(source, other, block) not in (None, condition) for other in steps):  # others step each time
            continue
        for call in backward:
            element = _element(source, call, block)
            if isinstance(element, kinds) and element.lineno < condition.lineno:
                yield call, condition


def _stands_beside(source: Source, step: ast.Call, condition: ast.If) -> bool:
    """Whether an optimizer steps where the condition does not hold: `if i % 5: critic.step() else: generator.step()`."""
    return any(ancestor is each for ancestor in source.ancestors(step) for each in condition.orelse)


def _step_for_the_rest(source: Source, loop: Loop) -> ast.Call | None:
    """The step behind a loop, for passes that are too few for one inside it."""
    function = source.enclosing(loop, *FUNCTIONS)
    behind = [
        call
        for call in source.calls(".step")
        if _is_optimizer(call)
        and call.lineno > (loop.end_lineno or loop.lineno)
        and source.enclosing(call, *FUNCTIONS) is function
    ]
    return min(behind, key=lambda call: call.lineno, default=None)


def _in_parts(source: Source, loop: Loop, backward: list[ast.Call]) -> Iterator[ast.Call]:
    """The one backward pass of a loop over the parts of a batch, inside the loop that steps."""
    inner = source.enclosing(backward[0], *LOOPS) if len(backward) == 1 else loop
    if inner is not loop and _PARTS.search(_header(source, inner)) and not runs_rarely(source, backward[0], loop):
        yield backward[0]


def _element(source: Source, node: ast.AST, block: list[ast.stmt]) -> ast.stmt | None:
    """The statement of a block in which a node stands."""
    around = {id(ancestor) for ancestor in source.ancestors(node)}
    return next((statement for statement in block if id(statement) in around), None)


def _stands_in(source: Source, call: ast.Call, loop: Loop) -> bool:
    if not any(ancestor is loop for ancestor in source.ancestors(call)):
        return False
    return source.enclosing(call, *FUNCTIONS) is source.enclosing(loop, *FUNCTIONS)


def _header(source: Source, loop: ast.AST | None) -> str:
    if isinstance(loop, ast.While):
        return source.text_of(loop.test)
    return f"{source.text_of(loop.target)} {source.text_of(loop.iter)}" if isinstance(loop, ast.For) else ""


def _is_optimizer(call: ast.Call) -> bool:
    owner = last_name(call.func.value) if isinstance(call.func, ast.Attribute) else ""
    return is_like_an_optimizer(owner) and "sched" not in owner.lower()


def _period(source: Source, step: ast.Call, loop: Loop) -> ast.If | None:
    """The condition `(i + 1) % n == 0` under which an optimizer steps, inside the loop."""
    child: ast.AST = step
    for ancestor in source.ancestors(step):
        if ancestor is loop:
            return None
        if isinstance(ancestor, ast.If) and any(child is statement for statement in ancestor.body):
            counts = any(isinstance(n, ast.BinOp) and isinstance(n.op, ast.Mod) for n in ast.walk(ancestor.test))
            if counts and rare_when(ancestor.test) is True:
                return ancestor
        child = ancestor
    return None
