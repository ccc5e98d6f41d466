"""Whether a loop with a backward pass updates weights at all."""

from __future__ import annotations

import ast

from perfaudit.expressions import regex
from perfaudit.static.source.syntax import walk
from perfaudit.static.understanding.names import last_name
from perfaudit.static.understanding.step_loops import StepLoop

_UPDATE = regex(
    r"optim|sgd|adam|scaler|trainer|(^|_)update_?(param|weight|net|model|policy)|train_step",
    words="optim|sgd|adam|scaler|trainer|update|train_step",
)


def updates_anything(step: StepLoop) -> bool:
    """Whether anything updates weights: a loop that only looks for gradients, such as an attack, has no steps."""
    nodes = [node for root in (step.loop, *step.helpers) for node in walk(root)]
    if any(isinstance(node, ast.Call) and last_name(node.func) == "step" for node in nodes):
        return True
    beside = _optimizers_of_inputs(nodes)
    if any(_UPDATE.search(last_name(node).lower()) for node in nodes if id(node) not in beside):
        return True
    names = {last_name(node) for node in nodes}
    if "parameters" in names and names & {"grad", "main_grad"}:  # `for p in model.parameters(): p.data -= lr * p.grad`
        return True
    descents = [n.value for n in nodes if isinstance(n, ast.AugAssign) and isinstance(n.op, ast.Sub)]
    descents += [a for n in nodes if isinstance(n, ast.Call) and last_name(n.func) == "sub_" for a in n.args]
    return any("grad" in (found := {last_name(n) for n in walk(v)}) and "sign" not in found for v in descents)


def _optimizers_of_inputs(nodes: list[ast.AST]) -> set[int]:
    """What makes an optimizer of a few tensors and what names it: `opt = optim.SGD([x], lr=1e-3)`.

    Attacks on images use it for its `zero_grad` alone.
    """
    made = [
        node
        for node in nodes
        if isinstance(node, ast.Assign)
        and isinstance(node.value, ast.Call)
        and _UPDATE.search(last_name(node.value.func).lower())
        and node.value.args
        and isinstance(of := node.value.args[0], ast.List)
        and all(isinstance(tensor, ast.Name) for tensor in of.elts)
    ]
    names = {target.id for node in made for target in node.targets if isinstance(target, ast.Name)}
    found = {id(inner) for node in made for inner in walk(node)}
    return found | {id(node) for node in nodes if isinstance(node, (ast.Name, ast.Attribute)) and _owner(node) in names}


def _owner(node: ast.Name | ast.Attribute) -> str:
    """`opt` of `opt` and of `opt.zero_grad`."""
    owner = node.value if isinstance(node, ast.Attribute) else node
    return owner.id if isinstance(owner, ast.Name) else ""


def looks_for_gradients(step: StepLoop) -> bool:
    """Whether a loop updates nothing and reads a gradient, as an attack or the search for a bound does."""
    nodes = (node for root in (step.loop, *step.helpers) for node in walk(root))
    reads = any(isinstance(n, ast.Attribute) and n.attr == "grad" and isinstance(n.ctx, ast.Load) for n in nodes)
    return reads and not updates_anything(step)
