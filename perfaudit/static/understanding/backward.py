"""Where a file runs backward passes, by itself or in a function of another file, and where it updates weights."""

from __future__ import annotations

import ast
import functools
import re

from perfaudit.expressions import names_found, regex
from perfaudit.static.source import FUNCTIONS, LOOPS, Function, Source
from perfaudit.static.source.syntax import lies_in
from perfaudit.static.understanding.answers import remember
from perfaudit.static.understanding.members import attributes, is_own, own_values
from perfaudit.static.understanding.names import dotted_name, last_name

OPTIMIZER_NAME = regex(r"opt|scaler|solver|adam|sgd", re.IGNORECASE)
_LOSS = regex(r"loss", re.IGNORECASE)
_LOSS_SCALER = regex(r"(^|_)loss_scaler$", words="loss_scaler")
_UPDATES = regex(r"update|optimi[sz]e|(^|_)step|learn|backprop", words="update|optimi|step|learn|backprop")
_BACKWARD_IN_TEXT = regex(r"backward\s*\(|loss_scaler\s*\(", words="backward|loss_scaler")


@remember  # several rules ask for the same file
def backward_calls(source: Source) -> tuple[ast.Call, ...]:
    """Calls that run a backward pass: `x.backward()`, `accelerator.backward(x)`, `loss_scaler(x, optimizer)`.

    And those that hand the loss to a function of another file that does: `update(optimizer, model, loss)`.
    """
    scalers = [
        call
        for call in source.calls_named(_LOSS_SCALER)
        if len(call.args) > 1 and OPTIMIZER_NAME.search(last_name(call.args[1]))
    ]
    handing = [call for call, _ in losses_handed_over(source).values()]
    return (*source.calls(".backward"), *source.calls(".manual_backward"), *scalers, *handing)


def runs_backward(text: str) -> bool:
    """Whether the text of a file may have `backward_calls` of its own."""
    return _BACKWARD_IN_TEXT.search(text) is not None


@remember
def losses_handed_over(source: Source) -> dict[int, tuple[ast.Call, ast.expr]]:
    """Calls of functions of other files that run a backward pass on what they are given, with what that is; by the call's id.

    Calls that pass an optimizer, by its name, and methods of objects that update their own weights: `self.critic.update(loss)`.
    A function with a loop around its backward pass makes steps of its own.
    """
    found: dict[int, tuple[ast.Call, ast.expr]] = {}
    if source.neighbours is None or not _may_hand_over(source):
        return found
    takes_all = any(alias.name == "*" for statement in source.nodes(ast.ImportFrom) for alias in statement.names)
    roots = source.aliases.keys() | {"self"}
    for call in source.nodes(ast.Call):
        if not (call.args or call.keywords):
            continue
        if not (takes_all or _first_name(call.func) in roots):  # most calls; another file has not defined what they run
            continue
        values = [*call.args, *[keyword.value for keyword in call.keywords]]
        passes_optimizer = any(_names_optimizer(name) for value in values if (name := last_name(value)))
        if not passes_optimizer and not (_UPDATES.search(last_name(call.func)) and _passes_loss(values)):
            continue
        there = _defined_elsewhere(source, call.func) or _method_of_built(source, call.func)
        if there is not None and isinstance(there[1], FUNCTIONS):
            loss = _given_to_backward(there[0], there[1], call)
            if loss is not None and (passes_optimizer or _updates_itself(there[0], there[1])):
                found[id(call)] = (call, loss)
    return found


def _may_hand_over(source: Source) -> bool:
    """Whether a file has names such as those of optimizers, or of losses and updates: most files have none."""
    names = source.names_read | attributes(source).keys()
    if names_found(OPTIMIZER_NAME, names) - {"Optional"}:
        return True
    return bool(names_found(_LOSS, names) and names_found(_UPDATES, names))


def _passes_loss(values: list[ast.expr]) -> bool:
    return any(_LOSS.search(last_name(value)) for value in values)


def _updates_itself(there: Source, function: Function) -> bool:
    return any(updates_weights(call) and lies_in(call, function) for call in there.calls(".step"))


def _method_of_built(source: Source, func: ast.expr) -> tuple[Source, ast.AST] | None:
    """The method in another file that `self.critic.update` stands for, by the one call that builds `self.critic`."""
    if not isinstance(func, ast.Attribute) or source.neighbours is None:
        return None
    values = own_values(source, func.value, func.value.attr) if isinstance(func.value, ast.Attribute) else []
    built = values[0] if len(values) == 1 and is_own(func.value) else None
    while isinstance(built, ast.Call) and isinstance(built.func, ast.Attribute) and built.func.attr in ("to", "cuda"):
        built = built.func.value
    dotted = source.qualified_name(built.func) or "" if isinstance(built, ast.Call) else ""
    if dotted.partition(".")[0] in ("", "torch"):
        return None
    there = source.neighbours.definition_of(dotted)
    bound = there[0].bound_in(there[1]).get(func.attr, []) if there and isinstance(there[1], ast.ClassDef) else []
    return (there[0], bound[0]) if there is not None and len(bound) == 1 else None


def _first_name(node: ast.expr) -> str:
    """`optim` of `optim.steps.run`; "" of anything but a name with attributes."""
    while isinstance(node, ast.Attribute):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


@functools.lru_cache(maxsize=4096)  # a scan asks for a few names again and again
def _names_optimizer(name: str) -> bool:
    return OPTIMIZER_NAME.search(name) is not None


def _defined_elsewhere(source: Source, func: ast.expr) -> tuple[Source, ast.AST] | None:
    """What another file defines that a call runs: an imported function, or a method of `self` that a base class has there."""
    own = source.enclosing(func, ast.ClassDef)
    is_method = dotted_name(func) == f"self.{last_name(func)}"
    if is_method and (own is None or not own.bases or last_name(func) in source.bound_in(own)):
        return None
    dotted = source.qualified_name(own.bases[0] if is_method and own is not None else func) or ""
    if dotted.partition(".")[0] in ("", "torch") or source.neighbours is None:
        return None
    there = source.neighbours.definition_of(dotted)
    if there is None or not is_method:
        return there
    bound = there[0].bound_in(there[1]).get(last_name(func), []) if isinstance(there[1], ast.ClassDef) else []
    return (there[0], bound[0]) if len(bound) == 1 else None


def _given_to_backward(there: Source, function: Function, call: ast.Call) -> ast.expr | None:
    """What a call hands to the parameter of a function of another file on which that calls `backward`, in no loop."""
    names = [a.arg for a in (*function.args.posonlyargs, *function.args.args)]
    names = names[1:] if names[:1] == ["self"] else names
    for backward in there.calls(".backward"):
        if not lies_in(backward, function) or there.enclosing(backward, *LOOPS, within=function) is not None:
            continue
        name = last_name(backward.func.value) if isinstance(backward.func, ast.Attribute) else ""
        by_keyword = [keyword.value for keyword in call.keywords if keyword.arg == name]
        place = names.index(name) if name in names else len(call.args)
        if by_keyword or place < len(call.args):
            return by_keyword[0] if by_keyword else call.args[place]
    return None


def updates_weights(call: ast.Call) -> bool:
    """Whether `x.step()` is an optimizer's, by its name, or is handed one: `amp.step(model, optimizer)`; a scheduler's is not."""
    name = last_name(call.func.value) if isinstance(call.func, ast.Attribute) else ""
    is_named = OPTIMIZER_NAME.search(name) or any("optim" in last_name(value).lower() for value in call.args)
    return bool(is_named) and "sched" not in name.lower()
