"""Where code stands in a training program: on an accelerator, in the training loop, in evaluation, seldom run."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass

from perfaudit.static.source import FUNCTIONS, LOOPS, Function, Loop, Source

_ACCELERATOR = re.compile(r"^(cuda|mps|xpu|npu|hpu)(:\d+)?$")
_DEVICE_NAME = re.compile(r"(^|_)(device|dev|accelerator|fabric|local_rank|rank|gpu)$")
NO_GRAD = {"torch.no_grad", "torch.inference_mode", "torch.autograd.no_grad", "torch.autograd.inference_mode"}


@dataclass(frozen=True, slots=True)
class StepLoop:
    """A loop that makes one training step per iteration: the innermost one that reaches `backward`.

    `helpers` are the functions of this file it reaches `backward` or the model through, one call deep.
    """

    loop: Loop
    helpers: tuple[Function, ...]


def uses_accelerator(source: Source) -> bool:
    """Whether the program, as far as this file shows, moves something to an accelerator."""
    if any(call.func.attr == "cuda" for call in source.calls(".cuda") if isinstance(call.func, ast.Attribute)):
        return True
    if any(isinstance(c.value, str) and _ACCELERATOR.match(c.value) for c in source.nodes(ast.Constant)):
        return True
    return any(_names_a_device(argument) for call in source.calls(".to") for argument in call.args)


def _names_a_device(node: ast.expr) -> bool:
    name = node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
    return bool(_DEVICE_NAME.search(name))


def in_no_grad(source: Source, node: ast.AST) -> bool:
    """Whether a `with torch.no_grad()` (or `inference_mode`) or a decorator of that kind is around the node."""
    for ancestor in source.ancestors(node):
        if isinstance(ancestor, (ast.With, ast.AsyncWith)):
            if any(_is_no_grad(source, item.context_expr) for item in ancestor.items):
                return True
        elif isinstance(ancestor, FUNCTIONS) and any(_is_no_grad(source, d) for d in ancestor.decorator_list):
            return True
    return False


def _is_no_grad(source: Source, node: ast.expr) -> bool:
    name = source.qualified(node.func if isinstance(node, ast.Call) else node)
    if name == "torch.set_grad_enabled" and isinstance(node, ast.Call) and node.args:
        return isinstance(node.args[0], ast.Constant) and node.args[0].value is False
    return name in NO_GRAD


def step_loops(source: Source) -> tuple[StepLoop, ...]:
    """The training loops of a file, in document order."""
    found: dict[int, tuple[Loop, list[Function]]] = {}
    with_backward = {id(source.enclosing(call, *FUNCTIONS)) for call in source.calls(".backward")}
    for call in source.calls(".backward"):
        loop = source.enclosing(call, *LOOPS, within=source.enclosing(call, *FUNCTIONS, ast.Lambda))
        if loop is not None:
            found.setdefault(id(loop), (loop, []))
    for call in source.nodes(ast.Call):
        helper = called_function(source, call)
        if helper is None or id(helper) not in with_backward or _has_step_loop(source, helper):
            continue
        loop = source.enclosing(call, *LOOPS, within=source.enclosing(call, *FUNCTIONS, ast.Lambda))
        if loop is not None:
            entry = found.setdefault(id(loop), (loop, []))
            if not any(known is helper for known in entry[1]):
                entry[1].append(helper)
    loops = [StepLoop(loop, tuple(helpers)) for loop, helpers in found.values()]
    return tuple(sorted(loops, key=lambda item: item.loop.lineno))


def _has_step_loop(source: Source, function: Function) -> bool:
    return any(
        source.enclosing(call, *LOOPS, within=function) is not None
        for call in source.calls(".backward")
        if source.enclosing(call, *FUNCTIONS) is function
    )


def called_function(source: Source, call: ast.Call) -> Function | None:
    """The function of this file that a call runs: a module-level function by name, or a method by `self.name`."""
    if isinstance(call.func, ast.Name):
        candidates = source.bound_in(source.tree).get(call.func.id, [])
    elif isinstance(call.func, ast.Attribute) and isinstance(call.func.value, ast.Name) and call.func.value.id == "self":
        definition = source.enclosing(call, ast.ClassDef)
        candidates = source.bound_in(definition).get(call.func.attr, []) if definition else []
    else:
        return None
    functions = [item for item in candidates if isinstance(item, FUNCTIONS)]
    return functions[0] if len(functions) == 1 == len(candidates) else None


def runs_rarely(source: Source, node: ast.AST, within: ast.AST) -> bool:
    """Whether a condition between the node and the loop makes it run on few iterations (`if step % 100 == 0`)."""
    for ancestor in source.ancestors(node):
        if ancestor is within:
            return False
        if isinstance(ancestor, (ast.If, ast.IfExp)) and node_tests_rarity(ancestor.test):
            return True
    return False


def node_tests_rarity(test: ast.expr) -> bool:
    """Whether a condition reads like "now and then": a remainder, or a name such as `debug` or `should_log`."""
    for part in ast.walk(test):
        if isinstance(part, ast.BinOp) and isinstance(part.op, ast.Mod):
            return True
        name = part.attr if isinstance(part, ast.Attribute) else part.id if isinstance(part, ast.Name) else ""
        if re.search(r"debug|verbose|log|print|profile|last|first", name.lower()):
            return True
    return False
