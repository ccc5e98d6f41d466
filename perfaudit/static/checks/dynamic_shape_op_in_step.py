"""PA604: an operation on every step whose result has a size that only the device knows."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from perfaudit.expressions import regex
from perfaudit.records import NamedTuple
from perfaudit.static.registry import Proposal, Seen, check
from perfaudit.static.source import FUNCTIONS, Function, Loop, Source
from perfaudit.static.source.syntax import walk
from perfaudit.static.understanding.devices import uses_accelerator
from perfaudit.static.understanding.each_time import runs_each_time
from perfaudit.static.understanding.epochs import counts_epochs
from perfaudit.static.understanding.kinds import Kind
from perfaudit.static.understanding.model_parts import module_classes
from perfaudit.static.understanding.no_grad import in_no_grad
from perfaudit.static.understanding.step_code import step_code
from perfaudit.static.understanding.step_loops import step_loops
from perfaudit.static.understanding.taint import Region, device_values
from perfaudit.static.understanding.values import assigned_value, constant

FUNCTIONS_OF_TORCH = ("nonzero", "masked_select", "unique", "unique_consecutive", "argwhere")
METHODS = ("nonzero", "masked_select", "unique", "unique_consecutive", "argwhere")
BOOLEAN_METHODS = {
    "bool",
    "eq",
    "ne",
    "gt",
    "ge",
    "lt",
    "le",
    "isnan",
    "isinf",
    "isfinite",
    "logical_not",
    "logical_and",
    "logical_or",
}
BOOLEAN_FUNCTIONS = {f"torch.{name}" for name in BOOLEAN_METHODS - {"bool"}}
_HOST = regex(r"(cpu|numpy|item|tolist|size|dim|numel|shape|len|device|dtype|keys)$")
_NOT_TRAINED = regex(
    r"post_?process|matcher|nms|decod(e|ing)|detections?$|infer|predict|generat|sampl(e|ing)|eval|metric|accuracy|visual",
    re.IGNORECASE,
)
_MIXED_UP = (ast.List, ast.Dict, ast.ListComp, ast.DictComp, ast.Set)
DEPTH = 4  # names followed to what they are made from


class Place(NamedTuple):
    """An expression that makes the host wait, and the tensors of which at least one has to be on the device."""

    node: ast.expr
    tensors: tuple[ast.expr, ...]


@check("PA604", ast.Module)
def dynamic_shape_op_in_step(source: Source, module: ast.Module) -> Iterator[Seen]:
    if not source.imports_torch or not (step_loops(source) or module_classes(source)):
        return
    places = sorted(_places(source), key=lambda place: (place.node.lineno, place.node.col_offset))
    if not places:
        return
    on_device = uses_accelerator(source)
    if on_device:
        yield from _in_loops(source, places)
    if on_device or not step_loops(source):  # a file that trains on the CPU has no device to wait for
        yield from _in_forward(source, places)


def _in_loops(source: Source, places: list[Place]) -> Iterator[Seen]:
    for step in step_loops(source):
        roots = [code.root for code in step_code(source, step)]
        inside = [p for p in places if any(a is root for root in roots for a in source.ancestors(p.node))]
        if not inside or counts_epochs(step.loop) or not _updates_weights(source, roots):
            continue
        found: list[tuple[Place, str]] = []
        for region in device_values(source, step):
            waits = [p for p in inside if _waits(source, p, region) and _runs_in_training(source, p, region.code.root)]
            found += [(place, region.code.way) for place in waits]
        if found:
            yield _seen_wait(source, [place for place, _ in found], f"on every step{found[0][1]}")


def _updates_weights(source: Source, roots: list[Loop | Function]) -> bool:
    """Whether the loop trains: one that only looks for gradients, such as an attack, has no steps."""
    return any(any(a is root for root in roots for a in source.ancestors(call)) for call in source.calls(".step"))


def _waits(source: Source, place: Place, region: Region) -> bool:
    if not any(ancestor is region.code.root for ancestor in source.ancestors(place.node)):
        return False
    return any(region.kind(tensor) is Kind.TENSOR for tensor in place.tensors)


def _in_forward(source: Source, places: list[Place]) -> Iterator[Seen]:
    for definition in module_classes(source):
        if _NOT_TRAINED.search(definition.name):
            continue
        for function in definition.body:
            if not isinstance(function, FUNCTIONS) or function.name != "forward":
                continue
            found = [
                place
                for place in places
                if any(ancestor is function for ancestor in source.ancestors(place.node))
                and any(_is_tensor(source, tensor, function) for tensor in place.tensors)
                and not any(_is_on_host(source, tensor) for tensor in place.tensors)
                and _runs_in_training(source, place, function)
            ]
            if found:
                yield _seen_wait(source, found, f"in each forward pass of `{definition.name}`")


def _seen_wait(source: Source, found: list[Place], when: str) -> Seen:
    first, more = found[0].node, len(found) - 1
    others = f"; {more} more such place{'s' if more > 1 else ''}" if more else ""
    message = f"the size of `{source.brief(first)}` is known on the device only: the host waits for it {when}{others}"
    if isinstance(first, ast.Subscript) and isinstance(first.ctx, ast.Store):
        message = f"`{source.brief(first)} = …` looks up where the mask is true: the host waits for their number {when}{others}"
    return Seen(first, message, Proposal(_advice(first)), tuple(place.node for place in found), hot=True)


def _advice(node: ast.expr) -> str:
    if isinstance(node, ast.Call):
        name = node.func.attr if isinstance(node.func, ast.Attribute) else ""
        if name.startswith("unique"):
            return "compute it once before the loop, or on the host while it loads the batch"
        return "keep the full size and the mask: `torch.where(mask, x, 0)`, and divide sums by `mask.sum()`"
    if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store):
        return "keep the size: `x = torch.where(mask, value, x)`"
    return "keep the full size: `torch.where(mask, x, 0)`, and divide sums by `mask.sum()`; for a loss, `ignore_index`"


def _runs_in_training(source: Source, place: Place, root: Loop | Function) -> bool:
    if not runs_each_time(source, place.node, root) or in_no_grad(source, place.node):
        return False
    for ancestor in source.ancestors(place.node):
        if ancestor is root:
            return True
        if isinstance(ancestor, ast.If) and re.search(
            r"training|eval|infer|export|tracing", source.text_of(ancestor.test)
        ):
            return False
        if isinstance(ancestor, FUNCTIONS) and _NOT_TRAINED.search(ancestor.name):
            return False
    return True


# ---- candidates ----------------------------------------------------------------------------------------------------


def _places(source: Source) -> Iterator[Place]:
    """Calls and subscripts of this file that would have such a size on tensors."""
    for name in FUNCTIONS_OF_TORCH:
        for call in source.calls(f"torch.{name}"):
            if call.args and not any(k.arg == "size" for k in call.keywords):
                yield Place(call, (call.args[0],))
    for call in source.calls("torch.where"):
        if len(call.args) == 1 and not call.keywords:
            yield Place(call, (call.args[0],))
    for name in METHODS:
        for call in source.calls(f".{name}"):
            if isinstance(call.func, ast.Attribute) and source.qualified_name(call.func) is None:
                yield Place(call, (call.func.value,))
    for subscript in source.nodes(ast.Subscript):
        if isinstance(subscript.slice, (ast.Constant, ast.Slice)) or isinstance(subscript.ctx, ast.Del):
            continue
        parts = subscript.slice.elts if isinstance(subscript.slice, ast.Tuple) else [subscript.slice]
        masks = tuple(part for part in parts if _is_mask(source, part))
        if masks and not _is_annotation(source, subscript) and not _is_filled(source, subscript):
            yield Place(subscript, (subscript.value, *masks))


def _is_mask(source: Source, node: ast.expr, depth: int = DEPTH) -> bool:
    """Whether an index is, by the way it is made, a tensor of booleans, if it is a tensor."""
    match node:
        case ast.Compare():
            plain = all(isinstance(op, (ast.Lt, ast.LtE, ast.Gt, ast.GtE, ast.Eq, ast.NotEq)) for op in node.ops)
            return plain and len(node.ops) == 1
        case ast.UnaryOp(op=ast.Invert()):
            return _is_mask(source, node.operand, depth)
        case ast.BinOp(op=ast.BitAnd() | ast.BitOr() | ast.BitXor()):
            return _is_mask(source, node.left, depth) or _is_mask(source, node.right, depth)
        case ast.Call(func=ast.Attribute(attr=method) as function):
            if any(k.arg == "dtype" and source.qualified_name(k.value) == "torch.bool" for k in node.keywords):
                return True
            name = source.qualified_name(function)
            return name in BOOLEAN_FUNCTIONS if name else method in BOOLEAN_METHODS
        case ast.Name() if depth:
            bindings = source.lookup(node)
            values = [assigned_value(source, binding) for binding in bindings]
            made = [v for v in values if not (isinstance(v, ast.Constant) and v.value is None)]
            return bool(made) and all(v is not None and _is_mask(source, v, depth - 1) for v in made)
    return False


def _is_annotation(source: Source, node: ast.Subscript) -> bool:
    return isinstance(source.parent(node), (ast.arg, ast.AnnAssign)) and not isinstance(node.ctx, ast.Store)


def _is_filled(source: Source, node: ast.Subscript) -> bool:
    """Whether a number is written where the mask is true: that is `masked_fill_`, which does not wait.

    Only a tensor, as far as the text shows, is looked up place by place.
    """
    if not isinstance(node.ctx, ast.Store):
        return False
    parent = source.parent(node)
    if isinstance(parent, ast.AugAssign):  # reads the places first
        return False
    value = parent.value if isinstance(parent, ast.Assign) else None
    if value is None or isinstance(constant(source, value), (int, float)):
        return True
    while isinstance(value, ast.UnaryOp):
        value = value.operand
    return not _is_made_of_tensors(source, value)


def _is_made_of_tensors(source: Source, value: ast.expr) -> bool:
    for node in walk(value):
        if isinstance(node, ast.Subscript) and any(
            _is_mask(source, part) for part in (node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice])
        ):
            return True
        if isinstance(node, ast.Call):
            name = source.qualified_name(node.func) or ""
            if name.startswith("torch.") and not name.startswith(("torch.finfo", "torch.iinfo", "torch.tensor")):
                return True
    return False


# ---- tensors of `forward` ------------------------------------------------------------------------------------------


def _is_tensor(source: Source, node: ast.expr, function: Function, depth: int = DEPTH) -> bool:
    """Whether an expression in `forward` is recognisably a tensor of the model: from its input or one of its layers."""
    match node:
        case ast.Name():
            return depth > 0 and any(_binds_tensor(source, b, function, depth) for b in source.lookup(node))
        case ast.Subscript() | ast.Starred():
            return _is_tensor(source, node.value, function, depth)
        case ast.Attribute():
            return not _HOST.search(node.attr) and _is_tensor(source, node.value, function, depth)
        case ast.Call():
            name = source.qualified_name(node.func)
            if name:
                return name.startswith("torch.") and not name.startswith("torch.jit")
            if not isinstance(node.func, ast.Attribute) or _HOST.search(node.func.attr):
                return False
            is_layer = isinstance(node.func.value, ast.Name) and node.func.value.id == "self"
            return is_layer or _is_tensor(source, node.func.value, function, depth)
        case ast.BinOp():
            return _is_tensor(source, node.left, function, depth) or _is_tensor(source, node.right, function, depth)
        case ast.UnaryOp():
            return _is_tensor(source, node.operand, function, depth)
        case ast.Compare():
            return any(_is_tensor(source, n, function, depth) for n in (node.left, *node.comparators))
    return False


def _binds_tensor(source: Source, binding: ast.AST, function: Function, depth: int) -> bool:
    if isinstance(binding, ast.arg):
        if source.scope(binding) is not function or binding.arg == "self":
            return False
        annotation = source.text_of(binding.annotation) if binding.annotation else "Tensor"
        return "Tensor" in annotation and not re.search(r"[Ll]ist|[Dd]ict|[Tt]uple", annotation)
    value = assigned_value(source, binding)
    if value is None:
        parent = source.parent(binding)
        statement = source.parent(parent) if isinstance(parent, (ast.Tuple, ast.List)) else None
        value = statement.value if isinstance(statement, ast.Assign) else None
    return value is not None and _is_tensor(source, value, function, depth - 1)


def _is_on_host(source: Source, node: ast.expr, depth: int = DEPTH) -> bool:
    """Whether a list, NumPy, or a copy to the host has a part in an expression."""
    for part in walk(node):
        if isinstance(part, _MIXED_UP) or (isinstance(part, ast.Constant) and isinstance(part.value, str)):
            return True
        if isinstance(part, ast.Attribute) and part.attr in ("cpu", "numpy", "tolist"):
            return True
        if isinstance(part, (ast.Name, ast.Attribute)) and (source.qualified_name(part) or "").startswith("numpy"):
            return True
        if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Load) and depth:
            values = [assigned_value(source, binding) for binding in source.lookup(part)]
            if any(value is not None and _is_on_host(source, value, depth - 1) for value in values):
                return True
    return False
