"""PA110: numbers that never change and are copied from the host to the device in every step."""

from __future__ import annotations

import ast
import itertools
from collections.abc import Iterator

from perfaudit.expressions import regex
from perfaudit.static.registry import Proposal, Seen, check
from perfaudit.static.source import FUNCTIONS, Function, Loop, Source
from perfaudit.static.source.syntax import walk
from perfaudit.static.understanding.called_functions import called_function
from perfaudit.static.understanding.demonstrations import is_shown_only, is_test
from perfaudit.static.understanding.devices import changes_default_device, device_text, names_accelerator
from perfaudit.static.understanding.each_time import runs_each_time
from perfaudit.static.understanding.epochs import takes_few_long_steps
from perfaudit.static.understanding.how_often import STEP_METHODS
from perfaudit.static.understanding.model_parts import module_classes
from perfaudit.static.understanding.names import last_name
from perfaudit.static.understanding.no_grad import in_no_grad
from perfaudit.static.understanding.step_code import step_code
from perfaudit.static.understanding.step_loops import step_loops
from perfaudit.static.understanding.values import ABSENT, argument, assigned_value

_FROM_NUMBERS = {f"torch.{n}" for n in ("tensor", "as_tensor", "Tensor", "FloatTensor", "LongTensor", "DoubleTensor")}
_MAY_COPY = regex(r"^(to|cuda|(as_)?tensor|[A-Z]?[a-z]*Tensor)$")
_TAKES_DEVICE = {"torch.tensor", "torch.as_tensor"}
_ON_DEVICE = regex(r"^torch\.cuda\.\w+Tensor$", words="torch.cuda.")
_SHAPES = {"view", "reshape", "unsqueeze", "float", "long", "half", "double", "repeat", "expand", "type"}
_MAX_FOLLOWED = 4  # names, from the numbers to where they are written


@check("PA110", ast.Module)
def constant_copied_every_step(source: Source, module: ast.Module) -> Iterator[Seen]:
    if not source.imports_torch or changes_default_device(source):
        return
    copied = {
        id(call): made for call in source.calls_named(_MAY_COPY) if (made := _copied_tensor(source, call)) is not None
    }
    if not any(_is_constant(source, made.args[0]) for made in copied.values()):
        return
    told: set[int] = set()
    for root, way in _code_of_steps(source):
        for call in (node for part in root.body for node in walk(part) if isinstance(node, ast.Call)):
            made = copied.get(id(call))
            if made is None or id(call) in told or is_test(source, call) or in_no_grad(source, call):
                continue
            if _is_constant(source, made.args[0]) and _runs_in_step(source, call, root):
                told.add(id(call))
                yield _seen_copy(source, call, made, way)


def _runs_in_step(source: Source, call: ast.Call, root: Loop | Function) -> bool:
    """Whether a call runs on every step; not where an option leads elsewhere in most programs, in the part behind `else`."""
    child: ast.AST = call
    for ancestor in itertools.takewhile(lambda node: node is not root, source.ancestors(call)):
        if isinstance(ancestor, (ast.IfExp, ast.If)) and child is not ancestor.test:
            body = ancestor.body if isinstance(ancestor.body, list) else [ancestor.body]
            if not any(part is child for part in body):
                return False
        child = ancestor
    return runs_each_time(source, call, root)


def _seen_copy(source: Source, call: ast.Call, made: ast.Call, way: str) -> Seen:
    if isinstance(made.args[0], (ast.List, ast.Tuple, ast.Name, ast.Attribute)) and not _is_one_number(made.args[0]):
        cure = "make it once: a buffer of the module (`register_buffer`, which `.to(device)` moves), or a name before the loop"
    else:
        cure = "let the device fill it: `torch.full((), value, device=device)` copies nothing"
    return Seen(
        call,
        f"`{source.brief(call)}` copies the same numbers to the device on every step{way}, and on CUDA the host waits "
        "until everything before the copy is done",
        Proposal(cure),
        hot=True,
    )


def _code_of_steps(source: Source) -> Iterator[tuple[Loop | Function, str]]:
    """The training loops with what they call, and the `forward` of modules with the methods that it calls.

    Each with the way to it, for messages, where that is two calls long.
    """
    for step in step_loops(source):
        if not takes_few_long_steps(source, step):
            yield from ((part.root, part.way) for part in step_code(source, step))
    for definition in module_classes(source):
        for function in definition.body:
            if not isinstance(function, FUNCTIONS) or function.name not in STEP_METHODS:
                continue
            if is_shown_only(source, function):
                continue
            yield function, ""
            yield from ((called, "") for called in _called_each_time(source, function))


def _called_each_time(source: Source, function: Function) -> Iterator[Function]:
    calls = [node for part in function.body for node in walk(part) if isinstance(node, ast.Call)]
    for call in calls:
        called = called_function(source, call)
        if called is not None and called is not function and runs_each_time(source, call, function):
            yield called


# ---- what is copied ------------------------------------------------------------------------------------------------


def _copied_tensor(source: Source, call: ast.Call) -> ast.Call | None:
    """The call that makes a tensor of numbers in Python, where this call brings it to an accelerator and waits for that."""
    name = source.qualified_name(call.func) or ""
    if name in _TAKES_DEVICE and call.args:
        device = argument(source, call, "device")
        return call if isinstance(device, ast.expr) and names_accelerator(source, device) else None
    if _ON_DEVICE.match(name):
        return call if len(call.args) == 1 and isinstance(call.args[0], (ast.List, ast.Tuple)) else None
    made = call.func.value if isinstance(call.func, ast.Attribute) and call.func.attr in ("to", "cuda") else None
    while isinstance(made, ast.Call) and isinstance(made.func, ast.Attribute) and made.func.attr in _SHAPES:
        made = made.func.value
    if not isinstance(made, ast.Call) or source.qualified_name(made.func) not in _FROM_NUMBERS or len(made.args) != 1:
        return None
    if source.qualified_name(made.func) not in _TAKES_DEVICE and not isinstance(made.args[0], (ast.List, ast.Tuple)):
        return None  # `torch.Tensor(3)` is a size
    if argument(source, made, "device") is not ABSENT or any(k.arg in ("non_blocking", None) for k in call.keywords):
        return None
    return made if _goes_to_device(source, call) else None


def _goes_to_device(source: Source, call: ast.Call) -> bool:
    if last_name(call.func) == "cuda":
        return not any(device_text(target) == "cpu" for target in call.args)
    targets = [*call.args, *(k.value for k in call.keywords if k.arg == "device")]
    return any(names_accelerator(source, target) for target in targets)


def _is_one_number(node: ast.expr) -> bool:
    return isinstance(node, (ast.List, ast.Tuple)) and len(node.elts) == 1


def _is_constant(source: Source, node: ast.expr, depth: int = _MAX_FOLLOWED) -> bool:
    """Whether numbers are the same on every step: written there, at the top of the module, or once in `__init__`."""
    match node:
        case ast.Constant(value=value):
            return isinstance(value, (bool, int, float))
        case ast.List(elts=parts) | ast.Tuple(elts=parts):
            return bool(parts) and all(_is_constant(source, part, depth) for part in parts)
        case ast.UnaryOp(operand=operand):
            return _is_constant(source, operand, depth)
        case ast.BinOp(left=left, right=right):
            return _is_constant(source, left, depth) and _is_constant(source, right, depth)
        case ast.Name():
            return bool(depth) and _is_constant_name(source, node, depth)
        case ast.Attribute(value=ast.Name(id="self")):
            return bool(depth) and _is_constant_field(source, node, depth)
        case ast.Call(func=ast.Attribute() as function, args=[numbers]):
            is_array = source.qualified_name(function) in ("numpy.array", "numpy.asarray")
            return is_array and _is_constant(source, numbers, depth)
    return False


def _is_constant_name(source: Source, name: ast.Name, depth: int) -> bool:
    bindings = source.lookup(name)
    value = assigned_value(source, bindings[0]) if len(bindings) == 1 else None
    if value is None or not _is_constant(source, value, depth - 1):
        return False
    return not any(_writes_into(source, use) for use in source.uses_of(bindings[0], name.id))


def _is_constant_field(source: Source, field: ast.Attribute, depth: int) -> bool:
    """Whether `self.anchors` gets numbers in `__init__`, and nothing in the file sets or changes it later."""
    same = [node for node in source.nodes(ast.Attribute) if node.attr == field.attr]
    stores = [node for node in same if not isinstance(node.ctx, ast.Load)]
    around = source.enclosing(stores[0], *FUNCTIONS) if len(stores) == 1 else None
    if not isinstance(around, FUNCTIONS) or around.name != "__init__" or any(_writes_into(source, n) for n in same):
        return False
    if source.enclosing(around, ast.ClassDef) is not source.enclosing(field, ast.ClassDef):
        return False
    value = assigned_value(source, stores[0])
    return value is not None and _is_constant(source, value, depth - 1)


def _writes_into(source: Source, use: ast.expr) -> bool:
    """Whether one use of a list changes it: `anchors[0] = 1`, `anchors.append(1)`."""
    parent = source.parent(use)
    if isinstance(parent, ast.Subscript) and parent.value is use:
        return not isinstance(parent.ctx, ast.Load)
    return isinstance(parent, ast.Attribute) and parent.attr in ("append", "extend", "insert", "pop", "sort", "reverse")
