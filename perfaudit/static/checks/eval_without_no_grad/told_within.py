"""Loops that run their models only in a function whose own loops are told: one place to mend is enough."""

from __future__ import annotations

import ast
from collections.abc import Mapping

from perfaudit.static.checks.eval_without_no_grad.eval_mode import model_name
from perfaudit.static.registry import Seen
from perfaudit.static.source import Function, Loop, Source
from perfaudit.static.source.syntax import walk
from perfaudit.static.understanding.answers import remember
from perfaudit.static.understanding.called_functions import called_function


def is_told_within(source: Source, seen: Seen, found: Mapping[int, Loop | Function], told: frozenset[int]) -> bool:
    """Whether a loop runs its models only by one call of a function of this file, all of whose loops are told themselves.

    found: the loops of which something is said, by their ids. told: the ids of those that do more than demonstrate.
    """
    call = seen.node
    function = called_function(source, call) if isinstance(call, ast.Call) else None
    loop = next((found[id(a)] for a in source.ancestors(call) if id(a) in found), None)
    if function is None or loop is None:
        return False
    inner = [node for item in function.body for node in walk(item) if _runs_model(source, node)]
    if not inner or any(node is not call and _runs_model(source, node) for node in walk(loop)):
        return False
    others = told - {id(loop)}
    return all(any(id(around) in others for around in source.ancestors(node)) for node in inner)


def _runs_model(source: Source, node: ast.AST) -> bool:
    """Whether a node is a call of a name that is asked to evaluate somewhere in the file."""
    return isinstance(node, ast.Call) and model_name(node.func) in _asked_to_evaluate(source)


@remember
def _asked_to_evaluate(source: Source) -> set[str]:
    asked = source.calls(".eval")
    return {model_name(call.func.value) for call in asked if isinstance(call.func, ast.Attribute)} - {""}
