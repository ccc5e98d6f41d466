"""Parts of a loss that a call gives beside it."""

from __future__ import annotations

import ast

from perfaudit.static.checks.loss_accumulates_graph.tensors import binds, bound_value, is_number
from perfaudit.static.source import Loop, Source
from perfaudit.static.understanding.elsewhere import Elsewhere, function_run
from perfaudit.static.understanding.losses import key, summands
from perfaudit.static.understanding.no_grad import in_no_grad
from perfaudit.static.understanding.step_loops import StepLoop


def parts_beside(source: Source, step: StepLoop, losses: set[str] | frozenset[str]) -> frozenset[str]:
    """Names that get, beside the loss, a part of it from the same call: of `loss, fit, penalty = model.loss(x)`."""
    found: set[str] = set()
    for node in ast.walk(step.loop):
        if not (isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Tuple)):
            continue
        names = [key(element) for element in node.targets[0].elts]
        place = next((n for n, name in enumerate(names) if name in losses), None)
        if not isinstance(node.value, ast.Call) or place is None or "" in names:
            continue
        there = function_run(source, node.value)
        if there is not None:
            parts = _parts_returned(there, place, len(names))
            found |= {name for n, name in enumerate(names) if n in parts and _is_bound_once(step.loop, name)}
    return frozenset(found - losses)


def _is_bound_once(root: Loop, name: str) -> bool:
    return sum(binds(node, name) for node in ast.walk(root)) == 1


def _parts_returned(there: Elsewhere, place: int, size: int) -> set[int]:
    """Which of the values that a function returns are summands of the one at a place, and tensors as far as it shows."""
    returned = [node.value for node in ast.walk(there.function) if isinstance(node, ast.Return)]
    if not returned or not all(isinstance(value, ast.Tuple) and len(value.elts) == size for value in returned):
        return set()
    found = set(range(size)) - {place}
    for elements, value in ((value.elts, value) for value in returned if isinstance(value, ast.Tuple)):
        wholes = [elements[place], *_values_of(there, elements[place])]
        added = {key(term) for whole in wholes if whole is not None for term in summands(there.source, whole)}
        for n in [*found]:
            made = _values_of(there, elements[n])
            is_made = bool(made) and not any(v is None or is_number(there.source, v) for v in made)
            if key(elements[n]) not in added or not is_made or in_no_grad(there.source, value):
                found.discard(n)
    return found


def _values_of(there: Elsewhere, node: ast.expr) -> list[ast.expr | None]:
    """What the assignments of a function give a name in it; None for what is no plain assignment."""
    name = key(node)
    return [bound_value(there.source, n) for n in ast.walk(there.function) if name and binds(n, name)]
