"""Evaluations that read each of their batches back: there the host waits anyway."""

from __future__ import annotations

import ast

from perfaudit.expressions import regex
from perfaudit.static.checks.transfer_blocks_host.batch_parts import Part
from perfaudit.static.source import FUNCTIONS, Source
from perfaudit.static.understanding.evaluation import EVALUATION_NAME
from perfaudit.static.understanding.names import last_name
from perfaudit.static.understanding.no_grad import in_no_grad
from perfaudit.static.understanding.step_loops import step_loops
from perfaudit.static.understanding.values import assigned_value

_JUDGES = regex(r"(^|_)(errors?|metrics?|accuracy)$")  # what gives numbers, as a rule
_READS = regex(r"^(item|cpu|numpy|tolist)$|(^|_)to_(np|numpy|list)$")


def waits_anyway(source: Source, part: Part) -> bool:
    """Whether an evaluation reads each of its batches back: the host waits there, and the copy hides almost nothing."""
    if not isinstance(part.taken, (ast.For, ast.AsyncFor)) or not evaluates(source, part.taken):
        return False
    calls = [node for node in ast.walk(part.taken) if isinstance(node, ast.Call)]
    return (
        any(isinstance(call.func, ast.Attribute) and _READS.search(call.func.attr) for call in calls)
        or any(_JUDGES.search(last_name(call.func)) for call in calls)
        or _takes_by_mask(source, part.taken)
    )


def _takes_by_mask(source: Source, loop: ast.For | ast.AsyncFor) -> bool:
    """Whether a loop takes what a comparison holds for, `target[target != ignored]`: the host asks how much that is."""
    inside = {id(node) for node in ast.walk(loop)}
    for node in ast.walk(loop):
        if not isinstance(node, ast.Subscript) or not isinstance(node.ctx, ast.Load):
            continue
        places = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        for place in places:
            bindings = source.lookup(place) if isinstance(place, ast.Name) else []
            values = [assigned_value(source, binding) for binding in bindings if id(binding) in inside]
            if any(_is_mask(value) for value in (place, *values)):
                return True
    return False


def _is_mask(value: ast.expr | None) -> bool:
    """`x != y`, `(x > 0) & (x < 9)`"""
    if isinstance(value, ast.BinOp) and isinstance(value.op, (ast.BitAnd, ast.BitOr)):
        return _is_mask(value.left) and _is_mask(value.right)
    return isinstance(value, ast.Compare) and not any(isinstance(op, (ast.In, ast.NotIn, ast.Is)) for op in value.ops)


def evaluates(source: Source, loop: ast.For | ast.AsyncFor) -> bool:
    """Whether a loop runs without gradients, as it or its forward does, or in a function that evaluates by its name.

    Or in one that puts a model into eval mode before.
    """
    function = source.enclosing(loop, *FUNCTIONS)
    is_named = isinstance(function, FUNCTIONS) and bool(EVALUATION_NAME.search(function.name.lower()))
    calls = [node for node in ast.walk(function) if isinstance(node, ast.Call)] if function is not None else []
    before = [(c.lineno, last_name(c.func)) for c in calls if c.lineno < loop.lineno and not (c.args or c.keywords)]
    is_named = is_named or max((item for item in before if item[1] in ("eval", "train")), default=(0, ""))[1] == "eval"
    trains = any(step.loop is loop for step in step_loops(source))
    forwards = (item for statement in loop.body if isinstance(statement, ast.With) for item in statement.body)
    is_free = in_no_grad(source, loop) or any(in_no_grad(source, item) for item in forwards)
    return not trains and (is_named or is_free)
