"""What would use gradients that `no_sync` leaves unsummed: reasons not to put the passes of an accumulation under it."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from perfaudit.expressions import regex
from perfaudit.static.source import Source
from perfaudit.static.understanding.distributed import ddp_calls
from perfaudit.static.understanding.names import dotted_name, last_name

_STEPS_NO_WEIGHTS = regex(r"sched|prof|warm_?up|^lr_")  # names of what has a `step` besides optimizers
_OPTIMIZER = regex(r"opt|scaler|adam|sgd|solver")
_READS_GRADIENTS = regex(r"\.grad\b|clip_grad|unscale_")
_PARAMETERS = {"parameters", "named_parameters", "modules", "named_modules", "children", "named_children"}
_LOOKS = {"print", "len", "isinstance", "id", "type"}
_HOOKS = ("register_post_accumulate_grad_hook", "register_comm_hook")  # that see gradients of each pass


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


def use_of_gradients(sources: Sequence[Source], source: Source, condition: ast.If, model: str) -> str:
    """What may look at gradients, or change them, in each pass and not under the condition alone; "" for nothing.

    Gradients of earlier passes are there in the whole block, so that what stands in front of the pass counts as well.
    """
    block = [each for each in source.block(condition) if each is not condition]
    if any(_READS_GRADIENTS.search(source.text_of(each)) for each in block):
        return f"gradients are looked at behind each pass of {source.path}:{block[0].lineno}"
    for hook in _HOOKS:
        if place := next((f"{each.path}" for each in sources if each.mentions(hook)), ""):
            return f"{place} says {hook}, which sees the gradients of each pass"
    names = _holders(sources, model, _optimizers(condition))
    own = {
        function.name
        for each in sources
        for function in each.nodes(ast.FunctionDef)
        if _READS_GRADIENTS.search(each.text_of(function))
    }
    for node in (node for statement in block for node in ast.walk(statement)):
        given: list[ast.expr] = []
        if isinstance(node, ast.Call) and last_name(node.func) not in _LOOKS:
            given = [*node.args, *(keyword.value for keyword in node.keywords)]
            if last_name(node.func) in own:
                return f"`{source.brief(node.func)}` of {source.path}:{node.lineno} looks at gradients in each pass"
        elif isinstance(node, ast.For):
            given = [node.iter]
        if any(_holds(each, names) for each in given):
            what = source.brief(node.func if isinstance(node, ast.Call) else given[0], 40)
            return f"`{what}` of {source.path}:{given[0].lineno} gets the model or the optimizer in each pass"
    return ""


def _optimizers(condition: ast.If) -> set[str]:
    """Names of what steps under the condition, and of what is stepped by a scaler."""
    found = set()
    for node in ast.walk(condition):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "step":
            found |= {last_name(node.func.value), *map(last_name, node.args)}
    return found - {""}


def _holders(sources: Sequence[Source], model: str, optimizers: set[str]) -> set[str]:
    """Names by which the model, its parameters or an optimizer is had: `params = list(model.parameters())`."""
    wrapped = {last_name(given) for source in sources for call in ddp_calls(source) for given in call.args[:1]}
    names = {model, *optimizers, *wrapped} - {""}
    assigned = [node for source in sources for node in source.nodes(ast.Assign)]
    while True:
        more = {
            last_name(target)
            for node in assigned
            if _holds(node.value, names)
            for target in node.targets
            if isinstance(target, (ast.Name, ast.Attribute))
        }
        if more <= names:
            return names
        names |= more


def _holds(node: ast.AST, names: set[str]) -> bool:
    """Whether an expression has one of these names, or anything of it: not as what is called, as `model(x)` is what it gives."""
    if isinstance(node, (ast.Name, ast.Attribute)) and (parts := dotted_name(node)):
        return not names.isdisjoint(parts.split("."))
    children = ast.iter_child_nodes(node)
    if isinstance(node, ast.Call):
        children = iter([*node.args, *node.keywords])
        method = node.func if isinstance(node.func, ast.Attribute) else None
        if method is not None and (method.attr in _PARAMETERS or not dotted_name(method.value)):
            return _holds(method.value, names) or any(_holds(child, names) for child in children)
    return any(_holds(child, names) for child in children)
