"""PA804: a forward pass in the training step that records a graph of which the next call, `.detach()`, keeps nothing."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from perfaudit.expressions import regex
from perfaudit.static.registry import Proposal, Seen, check
from perfaudit.static.source import Source
from perfaudit.static.understanding.demonstrations import is_test
from perfaudit.static.understanding.devices import uses_accelerator
from perfaudit.static.understanding.each_time import runs_each_time
from perfaudit.static.understanding.names import dotted_name
from perfaudit.static.understanding.no_grad import in_no_grad
from perfaudit.static.understanding.step_code import evaluates, step_code
from perfaudit.static.understanding.step_loops import step_loops

# Without gradients of the parameters, nothing is recorded.
_TURNS_OFF = regex(r"\.requires_grad\s*=[^=]|requires_grad_\(|set_requires_grad|toggle_grad|freeze", re.IGNORECASE)
_OF_MODELS = {"parameters", "train", "eval", "load_state_dict", "state_dict", "named_parameters", "apply"}


@check("PA804", ast.Module)
def graph_dropped_at_once(source: Source, module: ast.Module) -> Iterator[Seen]:
    if not source.calls(".detach") or not step_loops(source):
        return
    if not uses_accelerator(source) or _TURNS_OFF.search(source.text):
        return
    for step in step_loops(source):
        for part in step_code(source, step):
            if evaluates(step, part.root):
                continue
            for call in (node for node in ast.walk(part.root) if isinstance(node, ast.Call)):
                made = _detached_call(call)
                if made is None or not _is_model(source, made.func) or in_no_grad(source, call):
                    continue
                if is_test(source, call) or not runs_each_time(source, call, part.root):
                    continue
                name = source.brief(made.func, 30)
                yield Seen(
                    call,
                    f"`{source.brief(call)}`{part.way} records the graph of `{name}` and drops it: until it is through, every "
                    "activation in it is kept for a backward pass that never comes",
                    Proposal(f"run it under `torch.no_grad()`: `with torch.no_grad():` before the call of `{name}`"),
                    hot=True,
                )


def _detached_call(call: ast.Call) -> ast.Call | None:
    """`model(x)` of `model(x).detach()`."""
    if call.args or not isinstance(call.func, ast.Attribute) or call.func.attr != "detach":
        return None
    return call.func.value if isinstance(call.func.value, ast.Call) else None


def _is_model(source: Source, called: ast.expr) -> bool:
    """Whether what is called is a model of the program: a name, or `self.netD`, whose parameters or mode it asks for."""
    name = dotted_name(called)
    if not name or source.qualified_name(called) is not None:
        return False
    return any(
        node.attr in _OF_MODELS and dotted_name(node.value) == name
        for node in source.nodes(ast.Attribute)
        if node.attr in _OF_MODELS
    )
