"""What would use gradients that `no_sync` leaves unsummed: reasons not to put the passes of an accumulation under it."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from perfaudit.expressions import regex
from perfaudit.static.source import Source
from perfaudit.static.understanding.names import last_name

_STEPS_NO_WEIGHTS = regex(r"sched|prof|warm_?up|^lr_")  # names of what has a `step` besides optimizers
_OPTIMIZER = regex(r"opt|scaler|adam|sgd|solver")


def step_elsewhere(sources: Sequence[Source], condition: ast.If) -> str:
    """Where an optimizer steps besides the condition that tells the last pass, as file:line; "" for nowhere.

    Such a step may follow passes whose gradients no rank has sent: `if len(loader) % 4: optimizer.step()` behind a loop.
    """
    inside = {id(node) for node in ast.walk(condition)}
    for source in sources:
        for node in source.nodes(ast.Attribute):
            if node.attr != "step" or id(node) in inside or not isinstance(node.ctx, ast.Load):
                continue
            owner, parent = last_name(node.value).lower(), source.parent(node)
            is_called = isinstance(parent, ast.Call) and parent.func is node
            if (is_called and not _STEPS_NO_WEIGHTS.search(owner)) or (not is_called and _OPTIMIZER.search(owner)):
                return f"{source.path}:{node.lineno}"
    return ""
