"""PA401: gradients filled with zeros instead of dropped before the next backward pass."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from perfaudit.findings import Edit
from perfaudit.static import edit
from perfaudit.static.context import runs_every_step
from perfaudit.static.registry import Proposal, Seen, check
from perfaudit.static.source import LOOPS, Source
from perfaudit.static.values import argument

# Code that keeps pointers to the gradients, or works on them behind `.grad`.
_KEEPS_GRADIENTS = re.compile(
    r"gradient_as_bucket_view|static_graph|cuda\.graph\b|CUDAGraph|make_graphed_callables|_foreach_|\._grad\b|share_memory|horovod"
)
_SWITCHES_PARAMETERS = re.compile(r"requires_grad|find_unused_parameters|freeze")


@check("PA401", call=".zero_grad")
def zero_grad_not_none(source: Source, call: ast.Call) -> Iterator[Seen]:
    to_none = argument(source, call, "set_to_none", 0)
    if not (isinstance(to_none, ast.Constant) and to_none.value is False):
        return
    if "zero_grad" in {function.name for function in source.nodes(ast.FunctionDef)}:  # its own default may be False
        return
    if _uses_gradients(source):
        return
    changes = ("algorithm",) if _may_miss_a_gradient(source) else ()
    yield Seen(
        call,
        f"`{source.brief(call)}` fills every gradient with zeros, and `backward` reads the zeros to add to them",
        Proposal(
            "drop the gradients (the default since torch 2.0)"
            + ("; a parameter without a gradient in a step is then left out of its update" if changes else ""),
            _without_argument(source, call),
            "unsafe" if changes else "safe",
            changes,
        ),
        hot=runs_every_step(source, call),
    )


@check("PA401", call=".zero_")
def gradients_zeroed_one_by_one(source: Source, call: ast.Call) -> Iterator[Seen]:
    gradient = _without_data(call.func.value) if isinstance(call.func, ast.Attribute) else None
    if not (isinstance(gradient, ast.Attribute) and gradient.attr == "grad" and isinstance(gradient.value, ast.Name)):
        return
    loop = source.enclosing(call, ast.For)
    if loop is None or not isinstance(loop.target, ast.Name) or loop.target.id != gradient.value.id:
        return
    if not any(isinstance(n, ast.Attribute) and n.attr == "parameters" for n in ast.walk(loop.iter)):
        return
    if not runs_every_step(source, loop) or _uses_gradients(source):
        return
    yield Seen(
        call,
        f"`{source.brief(call)}` fills the gradients with zeros one parameter at a time, on every step",
        Proposal("call `zero_grad()` of the model or the optimizer, which drops them"),
        hot=True,
    )


def _without_argument(source: Source, call: ast.Call) -> tuple[Edit, ...] | None:
    if call.keywords:
        return edit.remove_keyword(source, call, "set_to_none")
    inside = source.text[source.span(call.func).end : source.span(call).end]
    return (Edit(source.span(call.args[0]), ""),) if inside == "(False)" else None


def _without_data(node: ast.expr) -> ast.expr:
    return node.value if isinstance(node, ast.Attribute) and node.attr == "data" else node


def _uses_gradients(source: Source) -> bool:
    """Whether the file does more with `.grad` than to test it for None and zero it: adds to it, reads it, keeps it."""
    if _KEEPS_GRADIENTS.search(source.text):
        return True
    gradients = [a for a in source.nodes(ast.Attribute) if a.attr == "grad" and source.qualified(a) is None]
    return not all(_is_tested_or_dropped(source, gradient) for gradient in gradients)


def _is_tested_or_dropped(source: Source, gradient: ast.Attribute) -> bool:
    parent = source.parent(gradient)
    if isinstance(parent, ast.Attribute) and parent.attr == "data":
        parent = source.parent(parent)
    if isinstance(parent, ast.Attribute):
        return parent.attr in ("zero_", "detach_", "requires_grad_")
    if isinstance(parent, ast.Compare):
        return isinstance(parent.ops[0], (ast.Is, ast.IsNot))
    if isinstance(parent, ast.Assign):
        return isinstance(parent.value, ast.Constant) and parent.value.value is None
    return isinstance(parent, (ast.If, ast.BoolOp))


def _may_miss_a_gradient(source: Source) -> bool:
    """Whether a parameter may sit out a step: zeros then still decay it and move it by its momentum, None does not.

    False only where the file shows its model, and nothing in it depends on the step.
    """
    forwards = [function for function in source.nodes(ast.FunctionDef) if function.name == "forward"]
    backwards = source.calls(".backward")
    if len(backwards) != 1 or not (forwards or source.calls("torch.nn.Sequential")):
        return True
    if _SWITCHES_PARAMETERS.search(source.text):
        return True
    loop = source.enclosing(backwards[0], *LOOPS)
    if source.enclosing(backwards[0], ast.If, within=loop) is not None:
        return True
    branches = [
        n for f in forwards for n in ast.walk(f) if isinstance(n, (ast.If, ast.IfExp, ast.Match, ast.Try, ast.While))
    ]
    return not all(isinstance(branch, (ast.If, ast.IfExp)) and _is_fixed(branch.test) for branch in branches)


def _is_fixed(test: ast.expr) -> bool:
    """Whether a condition in `forward` is the same on every step: `self.shortcut is not None`."""
    if not (isinstance(test, ast.Compare) and len(test.ops) == 1 and isinstance(test.ops[0], (ast.Is, ast.IsNot))):
        return False
    return (
        isinstance(test.left, ast.Attribute) and isinstance(test.left.value, ast.Name) and test.left.value.id == "self"
    )
