"""PA401: gradients filled with zeros instead of dropped before the next backward pass."""

from __future__ import annotations

import ast
import builtins
import re
from collections.abc import Iterator

from perfaudit.expressions import regex
from perfaudit.findings import Edit
from perfaudit.static import edit
from perfaudit.static.registry import Proposal, Seen, check
from perfaudit.static.source import FUNCTIONS, LOOPS, Function, Source
from perfaudit.static.understanding.how_often import runs_every_step
from perfaudit.static.understanding.losses import backward_operand
from perfaudit.static.understanding.models import is_visible
from perfaudit.static.understanding.names import dotted_name, last_name
from perfaudit.static.understanding.step_loops import step_loops
from perfaudit.static.understanding.values import argument, enclosing_function

# Code that keeps pointers to the gradients, or works on them behind `.grad`.
_KEEPS_GRADIENTS = regex(
    r"gradient_as_bucket_view|static_graph|cuda\.graph\b|CUDAGraph|make_graphed_callables|_foreach_|\._grad\b|share_memory|horovod"
)
_SWITCHES_PARAMETERS = regex(r"requires_grad|find_unused_parameters|freeze")
_IN_PLACE = regex(r"[a-z]_$|^(append|extend|insert|update|setdefault|pop|remove|clear)$")
_CRITERION = regex(r"crit|loss|objective", re.IGNORECASE)
_OF_TENSORS = regex(r"mean|sum|to|view|reshape|flatten|squeeze|unsqueeze|log|exp|float|detach|size")


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
    gradients = [a for a in source.nodes(ast.Attribute) if a.attr == "grad" and source.qualified_name(a) is None]
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

    False only where the file shows its model, and nothing in it, nor in how its loss is made, depends on the step.
    """
    backwards = source.calls(".backward")
    if len(backwards) != 1 or _SWITCHES_PARAMETERS.search(source.text):
        return True
    loop = source.enclosing(backwards[0], *LOOPS)
    if source.enclosing(backwards[0], ast.If, within=loop) is not None:
        return True
    roots = _roots(source, backwards[0])
    names, parts = _what_makes_the_loss(source, roots, backwards[0])
    if any(_makes_it_now_and_then(source, node, names, backwards[0]) for root in roots for node in ast.walk(root)):
        return True
    nodes = [node for part in parts for node in ast.walk(part)]
    if any(isinstance(node, (ast.IfExp, ast.BoolOp)) or _leaves_out(node) for node in nodes):
        return True
    called = [node for node in nodes if isinstance(node, ast.Call)]
    functions = _functions_for_loss(source, called)
    called += [node for f in functions if f.name != "forward" for node in ast.walk(f) if isinstance(node, ast.Call)]
    models = [call.func for call in called if _may_be_model(source, call)]
    if not models or not all(is_visible(source, model) for model in models):
        return True
    return any(_branches(node) for function in functions for node in ast.walk(function))


def _roots(source: Source, backward: ast.Call) -> list[ast.AST]:
    """The code of a step: the function or loop around `backward`, and the loops that call the function."""
    function = source.enclosing(backward, *FUNCTIONS)
    loop = source.enclosing(backward, *LOOPS, within=function)
    roots: list[ast.AST] = [loop or function or source.tree]
    roots += [step.loop for step in step_loops(source) if step.loop is not loop]
    return roots


def _what_makes_the_loss(source: Source, roots: list[ast.AST], backward: ast.Call) -> tuple[set[str], list[ast.expr]]:
    """Names that go into the loss in the step, and the expressions they are made of."""
    values: dict[str, list[ast.expr]] = {}
    for node in [n for root in roots for n in ast.walk(root)]:
        if isinstance(node, (ast.Assign, ast.AugAssign, ast.AnnAssign, ast.NamedExpr)) and node.value is not None:
            for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                for name in _names(target):
                    values.setdefault(name, []).append(node.value)
    helper = enclosing_function(source, backward)
    pending: list[ast.expr] = [backward_operand(source, backward)]
    if helper is not None and len(roots) > 1:  # what the loop passes to the function that calls `backward`
        calls = [n for root in roots[1:] for n in ast.walk(root) if isinstance(n, ast.Call)]
        for call in calls:
            if last_name(call.func) == helper.name:
                pending += [*call.args, *(k.value for k in call.keywords)]
    names: set[str] = set()
    parts: list[ast.expr] = []
    while pending:
        part = pending.pop()
        parts.append(part)
        for name in _names(part) - names:
            names.add(name)
            pending += values.get(name, [])
    return names, parts


def _names(node: ast.AST) -> set[str]:
    return {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}


def _makes_it_now_and_then(source: Source, node: ast.AST, names: set[str], backward: ast.Call) -> bool:
    """Whether a branch, or a loop within the step, changes a name that goes into the loss."""
    if not isinstance(node, (ast.If, ast.Match, ast.Try, ast.While, ast.For, ast.AsyncFor)):
        return False
    if isinstance(node, (*LOOPS, ast.Try)) and any(
        ancestor is node or ancestor in getattr(node, "body", []) for ancestor in source.ancestors(backward)
    ):
        return isinstance(node, ast.Try)
    if isinstance(node, LOOPS) and any(node is step.loop for step in step_loops(source)):
        return False
    return any(_changed_names(inner) & names for inner in ast.walk(node))


def _changed_names(node: ast.AST) -> set[str]:
    """Names that a node binds, writes an item or an attribute of, or changes in place."""
    if isinstance(node, (ast.Name, ast.Attribute, ast.Subscript)) and isinstance(node.ctx, ast.Store):
        while isinstance(node, (ast.Attribute, ast.Subscript)):
            node = node.value
        return {node.id} if isinstance(node, ast.Name) else set()
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and _IN_PLACE.search(node.func.attr):
        return _names(node.func.value)
    return set()


def _leaves_out(node: ast.AST) -> bool:
    return isinstance(node, ast.comprehension) and bool(node.ifs)


def _functions_for_loss(source: Source, called: list[ast.Call]) -> list[Function]:
    """Functions of this file that may run for the loss, by their names: `forward`, what it calls, what makes the loss."""
    by_name: dict[str, list[Function]] = {}
    functions: list[Function] = [*source.nodes(ast.FunctionDef), *source.nodes(ast.AsyncFunctionDef)]
    for function in functions:
        by_name.setdefault(function.name, []).append(function)
    pending = ["forward", *(last_name(call.func) for call in called)]
    found: dict[str, list[Function]] = {}
    while pending:
        name = pending.pop()
        if name in found or name not in by_name:
            continue
        found[name] = by_name[name]
        nodes = [node for function in by_name[name] for node in ast.walk(function)]
        pending += [last_name(node.func) for node in nodes if isinstance(node, ast.Call)]
    return [function for functions in found.values() for function in functions]


def _may_be_model(source: Source, call: ast.Call) -> bool:
    """Whether a call may run layers: not torch's own function, a function of this file, a criterion or a builtin."""
    name = source.qualified_name(call.func)
    if name is not None:
        return not name.startswith("torch.")
    if isinstance(call.func, ast.Attribute):
        own = dotted_name(call.func).startswith("self.") and not _OF_TENSORS.fullmatch(call.func.attr)
        defined = any(f.name == call.func.attr for f in source.nodes(ast.FunctionDef))
        return (own and not defined) or (defined and call.func.attr == "forward")
    if not isinstance(call.func, ast.Name):
        return True
    if _CRITERION.search(call.func.id) or hasattr(builtins, call.func.id):
        return False
    return not any(isinstance(binding, FUNCTIONS) for binding in source.lookup(call.func))


def _branches(node: ast.AST) -> bool:
    if isinstance(node, (ast.If, ast.IfExp)):
        return not _is_fixed(node.test)
    return isinstance(node, (ast.Match, ast.Try, ast.While))


def _is_fixed(test: ast.expr) -> bool:
    """Whether a condition in `forward` is the same on every step: `self.shortcut is not None`."""
    if not (isinstance(test, ast.Compare) and len(test.ops) == 1 and isinstance(test.ops[0], (ast.Is, ast.IsNot))):
        return False
    return (
        isinstance(test.left, ast.Attribute) and isinstance(test.left.value, ast.Name) and test.left.value.id == "self"
    )
