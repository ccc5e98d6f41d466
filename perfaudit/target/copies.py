"""Whether the user's own loop waits for its copies of batches to the device, as its text says.

The loop that is measured is ours and copies the batches itself; it copies them as the user's does.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

# Where `non_blocking` stands without its name, in Tensor.to(device, dtype, non_blocking) and Tensor.cuda(device, non_blocking).
_POSITION = {"to": 2, "cuda": 1}
_DEVICE = re.compile(r"device|cuda|gpu|rank|^dev$", re.IGNORECASE)  # in the name of what a batch is copied to


def copies_without_waiting(text: str, step: str = "") -> bool | None:
    """Whether every copy of the training step or loop in a file has `non_blocking=True`; None for a text without copies.

    The loop is what calls `backward()`, the step a function of the given name. Where neither copies anything, the calls
    in the file that name `non_blocking` decide, as those in a function that the loop calls.
    """
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):
        return None
    places = [node for node in ast.walk(tree) if _is_loop(node) or _is_step(node, step)]
    inside = [waits for place in places for waits in _copies(place)]
    if inside:
        return not any(inside)
    named = [waits for call in ast.walk(tree) if (waits := _is_blocking_copy(call)) is not None]
    return not any(named) if named else None


def _is_loop(node: ast.AST) -> bool:
    return isinstance(node, (ast.For, ast.AsyncFor, ast.While)) and any(
        isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr == "backward"
        for call in ast.walk(node)
    )


def _is_step(node: ast.AST, name: str) -> bool:
    return bool(name) and isinstance(node, ast.FunctionDef) and node.name == name


def _copies(place: ast.AST) -> Iterator[bool]:
    """For each copy of a batch inside a loop or a step, whether the host waits for it."""
    batch = _names_of_batch(place)
    for call in ast.walk(place):
        waits = _is_blocking_copy(call)
        if waits is not None:
            yield waits
        elif isinstance(call, ast.Call) and _root(call.func) in batch and _goes_to_device(call):
            yield True


def _is_blocking_copy(call: ast.AST) -> bool | None:
    """Whether the host waits for a copy that says so, by `non_blocking` or in its place; None for any other node."""
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute) or call.func.attr not in _POSITION:
        return None
    said = [keyword.value for keyword in call.keywords if keyword.arg == "non_blocking"]
    said += call.args[_POSITION[call.func.attr] :][:1]
    if not said:
        return None
    return not (isinstance(said[0], ast.Constant) and said[0].value is True)


def _goes_to_device(call: ast.Call) -> bool:
    """Whether a call is `.cuda()` or `.to(...)` of what is surely a device; `.to(torch.float16)` and `.to(other)` are not."""
    if not isinstance(call.func, ast.Attribute):
        return False
    if call.func.attr == "cuda":
        return True
    targets = [*call.args[:1], *(keyword.value for keyword in call.keywords if keyword.arg == "device")]
    if call.func.attr != "to" or not targets:
        return False
    target = targets[0]
    if isinstance(target, ast.Constant):
        return isinstance(target.value, int) or (isinstance(target.value, str) and target.value != "cpu")
    if isinstance(target, ast.Call):
        target = target.func  # torch.device("cuda"), get_device()
    name = target.attr if isinstance(target, ast.Attribute) else target.id if isinstance(target, ast.Name) else ""
    return bool(_DEVICE.search(name))


def _names_of_batch(place: ast.AST) -> set[str]:
    """What loops inside are over and comprehensions run through, the arguments of a step but its first, the model; and what is
    taken out of these."""
    names: set[str] = set()
    for node in ast.walk(place):
        if isinstance(node, (ast.For, ast.AsyncFor, ast.comprehension)):
            names |= _stored_names(node.target)
        elif isinstance(node, ast.FunctionDef) and node is place:
            names |= {argument.arg for argument in node.args.args[1:]}
        elif isinstance(node, ast.Assign) and isinstance(node.value, ast.Call) and _root(node.value.func) == "next":
            names |= {name for target in node.targets for name in _stored_names(target)}
    while True:
        taken = {
            name
            for node in ast.walk(place)
            if isinstance(node, ast.Assign) and _root(node.value) in names
            for target in node.targets
            for name in _stored_names(target)
        }
        if taken <= names:
            return names
        names |= taken


def _stored_names(target: ast.AST) -> set[str]:
    return {n.id for n in ast.walk(target) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}


def _root(node: ast.AST) -> str:
    """The name that an expression begins with, "x" of `x["image"].float()`; "" where it begins with another call."""
    while True:
        if isinstance(node, (ast.Attribute, ast.Subscript, ast.Starred)):
            node = node.value
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            node = node.func
        else:
            return node.id if isinstance(node, ast.Name) else ""
