"""What in a program's text may change the graph from step to step, which `static_graph=True` forbids for the whole training.

The race sees the first steps only: what is frozen in the tenth epoch is not among them.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence

from perfaudit.expressions import regex
from perfaudit.static.checks.ddp_find_unused_parameters import PICKS_PARTS, freezes, freezes_later
from perfaudit.static.source import FUNCTIONS, Source
from perfaudit.static.understanding.distributed import only_evaluates
from perfaudit.static.understanding.names import last_name
from perfaudit.static.understanding.values import ABSENT, argument, constant

_TIME = regex(r"epoch|step|iter|warm_?up|stage|phase|random|\brand\b|skip|drop")  # in a condition
_RESULT = regex(r"loss|out|logit|pred|total|cost")  # names of what goes into the backward pass


def why_graph_may_change(sources: Sequence[Source], source: Source, wrapping: ast.Call) -> str:
    """Why the graph may not be the same in all steps, as far as the text tells; "" where nothing says so."""
    unused = argument(source, wrapping, "find_unused_parameters")
    if unused is not ABSENT and not (isinstance(unused, ast.expr) and constant(source, unused) is False):
        return "the call has a search for unused parameters"
    if only_evaluates(source, wrapping):
        return "the model is only looked at"
    if any(each.says(PICKS_PARTS) for each in sources):
        return "steps run other parts of the model"
    if freezes_later(source, wrapping) or any(freezes(each) for each in sources if each is not source):
        return "parameters are frozen or freed"
    for each in sources:
        if (line := _line_of_choice(each)) is not None:
            return f"the condition of {each.path}:{line} may change what is differentiated"
    return ""


def _line_of_choice(source: Source) -> int | None:
    """Where a condition of time or chance chooses what `forward` runs, or what a loss has."""
    nodes: list[ast.If | ast.IfExp] = [*source.nodes(ast.If), *source.nodes(ast.IfExp)]
    for node in nodes:
        if _TIME.search(source.text_of(node.test).lower()) and (
            _is_in_forward(source, node) or _makes_result(source, node)
        ):
            return node.lineno
    return None


def _is_in_forward(source: Source, node: ast.AST) -> bool:
    function = source.enclosing(node, *FUNCTIONS)
    return isinstance(function, FUNCTIONS) and "forward" in function.name


def _makes_result(source: Source, node: ast.If | ast.IfExp) -> bool:
    around = source.statement(node)
    stored = (each for each in ast.walk(around) if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store))
    return any(_RESULT.search(last_name(each).lower()) for each in stored)
