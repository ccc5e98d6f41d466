"""What becomes of a sum of losses: where it starts again, and whether its readers take a number of it."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from perfaudit.expressions import regex
from perfaudit.static.checks.loss_accumulates_graph.additions import addition
from perfaudit.static.checks.loss_accumulates_graph.tensors import branch
from perfaudit.static.source import FUNCTIONS, Source
from perfaudit.static.source.syntax import walk
from perfaudit.static.understanding.backward import backward_calls, updates_weights
from perfaudit.static.understanding.losses import backward_operand, key, summands
from perfaudit.static.understanding.names import dotted_name, last_name
from perfaudit.static.understanding.rarely import runs_rarely
from perfaudit.static.understanding.step_loops import StepLoop

GRAPH_FREE = regex(r"(item|tolist|detach|data|numpy|shape|device|dtype)$")  # attributes behind which no graph is
READER = regex(
    r"(print|float|int|str|round|format|len|isinstance|isnan|isfinite|append|write|log|info|debug|warning|"
    r"add_scalars?|set_postfix|set_description|update|all_reduce|reduce|"
    r"log_(value|scalar|metric|stat|loss|info|dict|epoch|step|train|result)\w*)$"
)
PASSES_ON = regex(r"(min|max|exp|sqrt)$")  # what comes out has the graph of what goes in
EMPTIES = {"clear", "pop", "popitem", "update", "setdefault", "zero_", "fill_", "copy_", "detach_"}  # frees graphs
SCHEDULER = regex(r"sched")  # is told a loss, and may lower the rate where it no longer falls
GATHERS = {"torch.stack", "torch.cat", "torch.mean", "torch.sum", "torch.tensor", "torch.as_tensor"}
MAX_ALIASES = 3  # names followed from the sum to its readers


def restarts_each_step(source: Source, step: StepLoop, target: ast.expr) -> bool:
    """Whether the loop itself sets the sum anew on most steps, so that it never spans two of them.

    Or with each update of the weights: it spans the few batches whose gradients are added up.
    """
    return any(
        not runs_rarely(source, node, step.loop) or _is_beside_update(source, node)
        for node in starts(source, step, target)
    )


def _is_beside_update(source: Source, node: ast.AST) -> bool:
    """Whether the block that a node stands in updates the weights: `if n % accumulate == 0: optimizer.step(); total = 0`."""
    parts = (part for statement in source.block(source.statement(node)) for part in walk(statement))
    calls = (part for part in parts if isinstance(part, ast.Call) and last_name(part.func) == "step")
    return any(map(updates_weights, calls))


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

    A list that numpy gets holds no tensors with a graph, and one of which items are deleted or set holds few.
    """
    for use in _uses(source, target):
        parent = source.parent(use)
        if isinstance(parent, ast.Attribute) and (
            parent.attr not in ("append", "extend") if is_listed else parent.attr in EMPTIES
        ):
            return False
        if isinstance(parent, ast.Subscript) and not isinstance(parent.ctx, ast.Load):
            is_by_name = isinstance(parent.slice, ast.Constant) and not isinstance(parent.ctx, ast.Del)
            if is_listed or not is_by_name:
                return False
        calls = (a for a in source.ancestors(use) if isinstance(a, ast.Call))
        if is_listed and any(
            (source.qualified_name(call.func) or "").startswith(("numpy.", "matplotlib.")) for call in calls
        ):
            return False
    roots = {key(leaf) for call in backward_calls(source) for leaf in summands(source, backward_operand(source, call))}
    return _reads_are_harmless(source, target, roots, MAX_ALIASES)


def is_always_differentiated(source: Source, step: StepLoop, statement: ast.AST) -> bool:
    """Whether each backward pass of the loop runs wherever a statement does: else what is kept may be differentiated later."""
    around = {id(ancestor): branch(ancestor, child) for ancestor, child in source.way_out(statement)}
    for call in backward_calls(source):
        path = [*source.way_out(call)]
        inside = next((n for n, (ancestor, _) in enumerate(path) if ancestor is step.loop), 0)
        for ancestor, child in path[:inside]:
            is_choice = isinstance(ancestor, (ast.If, ast.Try, ast.Match, ast.IfExp, ast.For, ast.While))
            if is_choice and around.get(id(ancestor)) != branch(ancestor, child):
                return False
    return True


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
        if isinstance(child, ast.stmt):
            return False
        if isinstance(ancestor, ast.Attribute) and GRAPH_FREE.match(ancestor.attr):
            return True
        if isinstance(ancestor, ast.Attribute) and ancestor.attr == "backward":
            return False
        if isinstance(ancestor, ast.Call) and ancestor.func is not child:
            name, path = last_name(ancestor.func), source.qualified_name(ancestor.func) or ""
            is_sum = isinstance(ancestor.func, ast.Name) and name == "sum"
            if path not in GATHERS and not is_sum and not (PASSES_ON.match(name) and not path.startswith("math.")):
                is_told = isinstance(ancestor.func, ast.Attribute) and SCHEDULER.search(
                    dotted_name(ancestor.func.value)
                )
                return bool(READER.match(name) or is_told) or path.startswith(("math.", "wandb.", "numpy."))
        if isinstance(ancestor, (*FUNCTIONS, ast.Lambda, ast.ClassDef, ast.Yield, ast.YieldFrom, ast.NamedExpr)):
            return False
        if isinstance(ancestor, (ast.JoinedStr, ast.Return, ast.Assert, ast.Expr)):
            return True
        if isinstance(ancestor, (ast.If, ast.While)):
            return child is ancestor.test
        if isinstance(ancestor, (ast.For, ast.AsyncFor, ast.comprehension)) and child is ancestor.iter:
            return _aliases_are_harmless(source, [ancestor.target], roots, depth)
        if isinstance(ancestor, (ast.Assign, ast.AnnAssign, ast.AugAssign)):
            targets = ancestor.targets if isinstance(ancestor, ast.Assign) else [ancestor.target]
            if any(child is target for target in targets):
                return True
            aliases = [t for t in targets if dotted_name(t) != dotted_name(use) and not _is_result(t)]
            return _aliases_are_harmless(source, aliases, roots, depth)
        child = ancestor
    return False


def _aliases_are_harmless(source: Source, targets: list[ast.expr], roots: set[str], depth: int) -> bool:
    """Whether that is so for all names that get the sum or its items."""
    names = [part for t in targets for part in (t.elts if isinstance(t, (ast.Tuple, ast.List)) else (t,))]
    return all(dotted_name(name) and _reads_are_harmless(source, name, roots, depth - 1) for name in names)


def _is_result(target: ast.expr) -> bool:
    """`best["loss"]`, where results are kept by name: the losses of the sum have been differentiated by then."""
    is_by_name = isinstance(target, ast.Subscript) and isinstance(target.slice, ast.Constant)
    return is_by_name and isinstance(target, ast.Subscript) and isinstance(target.slice.value, str)  # type: ignore[attr-defined]  # a constant
