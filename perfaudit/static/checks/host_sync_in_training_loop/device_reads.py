"""What brings the value of a device tensor to the host: `.item()`, `float(x)`, `if x:`, a text with it, a logger."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from perfaudit.static import edit
from perfaudit.static.source import Source
from perfaudit.static.understanding.device_calls import is_text
from perfaudit.static.understanding.devices import names_cpu
from perfaudit.static.understanding.kinds import Kind
from perfaudit.static.understanding.names import last_name
from perfaudit.static.understanding.taint import Region

READS = {"item", "tolist", "cpu"}  # `.numpy()` alone raises on a device tensor, so it is not one
_CASTS = {"float", "int", "bool", "str", "repr", "print"}
_LOG_LEVELS = {"info", "warning", "error", "critical"}


def reads_at(source: Source, region: Region, node: ast.AST) -> Iterator[ast.expr]:
    """The expressions by which this one node brings the value of a device tensor to the host."""
    match node:
        case ast.Call():
            if _call_reads(source, region, node):
                yield node
        case ast.JoinedStr():
            values = [part.value for part in node.values if isinstance(part, ast.FormattedValue)]
            if _any_tensor(region, values):
                yield node
        case ast.BinOp(op=ast.Mod()) if is_text(node.left):
            values = node.right.elts if isinstance(node.right, ast.Tuple) else [node.right]
            if _any_tensor(region, [v.value if isinstance(v, ast.Starred) else v for v in values]):
                yield node
        case ast.If() | ast.While() | ast.IfExp() | ast.Assert():
            yield from _truths(region, node.test)
        case ast.BoolOp():
            for value in node.values[:-1]:
                yield from _truths(region, value)
        case ast.UnaryOp(op=ast.Not()):
            yield from _truths(region, node.operand)


def _truths(region: Region, test: ast.expr) -> Iterator[ast.expr]:
    """The tensors whose truth a condition asks for."""
    if isinstance(test, ast.BoolOp):
        for value in test.values:
            yield from _truths(region, value)
    elif isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        yield from _truths(region, test.operand)
    elif region.kind(test) is Kind.TENSOR:
        yield test


def _any_tensor(region: Region, nodes: list[ast.expr]) -> bool:
    return any(region.kind(node) is Kind.TENSOR for node in nodes)


def _in_dicts(nodes: list[ast.expr]) -> list[ast.expr]:
    """The values of dicts written there: those of `{"loss": loss}` and `dict(loss=loss)`."""
    values = [value for node in nodes if isinstance(node, ast.Dict) for value in node.values]
    calls = [node for node in nodes if isinstance(node, ast.Call) and last_name(node.func) == "dict"]
    return values + [keyword.value for call in calls for keyword in call.keywords]


def _call_reads(source: Source, region: Region, call: ast.Call) -> bool:
    arguments = [*call.args, *(keyword.value for keyword in call.keywords)]
    if isinstance(call.func, ast.Name):
        if source.lookup(call.func) or call.func.id in source.aliases:
            return (source.qualified_name(call.func) or "").startswith("math.") and _any_tensor(region, arguments)
        if call.func.id in ("min", "max"):
            return len(call.args) > 1 and _any_tensor(region, arguments)
        return call.func.id in _CASTS and _any_tensor(region, call.args)
    if not isinstance(call.func, ast.Attribute):
        return False
    name, receiver = call.func.attr, call.func.value
    if region.kind(receiver) >= Kind.MAYBE:
        return (
            (name in READS and not call.args) or (name == "to" and _copies_to_host(source, call)) or _forces_numpy(call)
        )
    match name:
        case "format":
            return isinstance(receiver, ast.Constant) and _any_tensor(region, arguments)
        case "set_postfix" | "add_scalar" | "add_scalars":
            return _any_tensor(region, [*arguments, *_in_dicts(arguments)])
    if name in _LOG_LEVELS and "log" in last_name(receiver).lower():
        return _any_tensor(region, arguments)
    qualified = source.qualified_name(call.func) or ""
    if qualified == "wandb.log":  # writes tensors as numbers, in this thread
        return _any_tensor(region, _in_dicts(arguments))
    return qualified.startswith("math.") and _any_tensor(region, arguments)


def _copies_to_host(source: Source, call: ast.Call) -> bool:
    if any(keyword.arg == "non_blocking" for keyword in call.keywords):
        return False
    targets = [*call.args, *(keyword.value for keyword in call.keywords if keyword.arg == "device")]
    return any(names_cpu(source, target) for target in targets)


def _forces_numpy(call: ast.Call) -> bool:
    force = edit.keyword(call, "force") if last_name(call.func) == "numpy" else None
    return force is not None and isinstance(force.value, ast.Constant) and force.value.value is True
