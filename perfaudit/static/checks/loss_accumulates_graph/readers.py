"""What becomes of a sum of losses: where it starts again, and whether its readers take a number of it."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from perfaudit.expressions import regex
from perfaudit.static.checks.loss_accumulates_graph.additions import addition
from perfaudit.static.source import FUNCTIONS, Source
from perfaudit.static.understanding.backward import backward_calls
from perfaudit.static.understanding.losses import backward_operand, key, summands
from perfaudit.static.understanding.names import dotted_name, last_name
from perfaudit.static.understanding.rarely import runs_rarely
from perfaudit.static.understanding.step_loops import StepLoop

GRAPH_FREE = regex(r"(item|tolist|detach|data|numpy|shape|device|dtype)$")  # attributes behind which no graph is
READER = regex(
    r"(print|float|int|str|round|format|len|isinstance|min|max|isnan|isfinite|exp|sqrt|append|write|log|info|debug|warning|"
    r"add_scalars?|set_postfix|set_description|update|all_reduce|reduce|log_metrics?|log_dict)$"
)
SCHEDULER = regex(r"sched")  # is told a loss, and may lower the rate where it no longer falls
GATHERS = {"torch.stack", "torch.cat", "torch.mean", "torch.sum", "torch.tensor", "torch.as_tensor"}
MAX_ALIASES = 3  # names followed from the sum to its readers


def restarts_each_step(source: Source, step: StepLoop, target: ast.expr) -> bool:
    """Whether the loop itself sets the sum anew on most steps, so that it never spans two of them."""
    return any(not runs_rarely(source, node, step.loop) for node in starts(source, step, target))


def starts(source: Source, step: StepLoop, target: ast.expr) -> Iterator[ast.AST]:
    """Where the loop sets the sum anew."""
    names = {key(target), dotted_name(_holder(target))}
    for node in ast.walk(step.loop):
        is_set = isinstance(node, (ast.Name, ast.Attribute, ast.Subscript)) and not isinstance(node.ctx, ast.Load)
        if not is_set or node is target or key(node) not in names:
            continue
        if addition(source.statement(node))[0] is None:
            yield node


def _holder(target: ast.expr) -> ast.expr:
    """The dict of `sums["loss"]`, else the sum itself."""
    return target.value if isinstance(target, ast.Subscript) else target


def is_only_read(source: Source, target: ast.expr, is_listed: bool) -> bool:
    """Whether the sum is a number to its readers: no backward pass starts from it, no unknown function gets it.

    A list that numpy gets holds no tensors with a graph, and one that is emptied holds few.
    """
    for use in _uses(source, target) if is_listed else ():
        parent = source.parent(use)
        if isinstance(parent, ast.Attribute) and parent.attr not in ("append", "extend"):
            return False
        calls = (a for a in source.ancestors(use) if isinstance(a, ast.Call))
        if any((source.qualified_name(call.func) or "").startswith(("numpy.", "matplotlib.")) for call in calls):
            return False
    roots = {key(leaf) for call in backward_calls(source) for leaf in summands(source, backward_operand(source, call))}
    return _reads_are_harmless(source, target, roots, MAX_ALIASES)


def _reads_are_harmless(source: Source, target: ast.expr, roots: set[str], depth: int) -> bool:
    if depth == 0 or key(target) in roots:
        return False
    return all(_is_harmless(source, use, roots, depth) for use in _uses(source, target))


def _uses(source: Source, target: ast.expr) -> list[ast.expr]:
    target = _holder(target)
    if isinstance(target, ast.Name):
        bindings = source.lookup(target)
        return [*source.uses_of(bindings[0], target.id)] if bindings else []
    loads = [node for node in source.nodes(ast.Attribute) if isinstance(node.ctx, ast.Load)]
    return [node for node in loads if last_name(node) == last_name(target)]


def _is_harmless(source: Source, use: ast.expr, roots: set[str], depth: int) -> bool:
    """Climbs from a read to what is done with it: a number is made of it, it is shown, stored under another name."""
    child: ast.AST = use
    for ancestor in source.ancestors(use):
        if isinstance(ancestor, ast.Attribute) and GRAPH_FREE.match(ancestor.attr):
            return True
        if isinstance(ancestor, ast.Attribute) and ancestor.attr == "backward":
            return False
        if isinstance(ancestor, ast.Call) and ancestor.func is not child:
            name, path = last_name(ancestor.func), source.qualified_name(ancestor.func) or ""
            if path not in GATHERS and not (isinstance(ancestor.func, ast.Name) and name == "sum"):
                is_told = isinstance(ancestor.func, ast.Attribute) and SCHEDULER.search(
                    dotted_name(ancestor.func.value)
                )
                return bool(READER.match(name) or is_told) or path.startswith(("math.", "wandb.", "numpy."))
        if isinstance(ancestor, (*FUNCTIONS, ast.Lambda, ast.ClassDef)):
            return False
        if isinstance(ancestor, (ast.JoinedStr, ast.Return, ast.AugAssign, ast.If, ast.While, ast.Assert, ast.Expr)):
            return True
        if isinstance(ancestor, (ast.Assign, ast.AnnAssign)):
            targets = ancestor.targets if isinstance(ancestor, ast.Assign) else [ancestor.target]
            aliases = [t for t in targets if dotted_name(t) != dotted_name(use) and not _is_result(t)]
            return all(dotted_name(t) and _reads_are_harmless(source, t, roots, depth - 1) for t in aliases)
        child = ancestor
    return False


def _is_result(target: ast.expr) -> bool:
    """`best["loss"]`, where results are kept by name: the losses of the sum have been differentiated by then."""
    is_by_name = isinstance(target, ast.Subscript) and isinstance(target.slice, ast.Constant)
    return is_by_name and isinstance(target, ast.Subscript) and isinstance(target.slice.value, str)  # type: ignore[attr-defined]  # a constant
