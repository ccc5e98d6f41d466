"""Whether a file only shows which device there is, and moves nothing there."""

from __future__ import annotations

import ast

from perfaudit.static.project.frameworks import running_frameworks
from perfaudit.static.source import Source
from perfaudit.static.understanding.devices import (
    calls_what_needs_gpu,
    changes_default_device,
    device_text,
    moves_to_device,
    names_accelerator,
    names_cpu,
)
from perfaudit.static.understanding.host_classes import names_device
from perfaudit.static.understanding.names import last_name


def shows_devices_only(source: Source) -> bool:
    """Whether a file names an accelerator and moves nothing there, as far as its text goes: it prints whether there is one.

    What a framework runs, and what names a device for code that is not in sight, may be moved by that.
    """
    if running_frameworks(source.aliases.values()) or calls_what_needs_gpu(source) or changes_default_device(source):
        return False
    calls = source.nodes(ast.Call)
    if any(moves_to_device(source, call) or names_device(call) or _loads_to_device(source, call) for call in calls):
        return False
    if any(
        (source.qualified_name(node) or "").startswith("torch.cuda.")
        for node in source.nodes(ast.Attribute)
        if node.attr.endswith("Tensor")
    ):
        return False
    named = (c for c in source.nodes(ast.Constant) if device_text(c) not in ("", "cpu") or c.value == "nccl")
    given = (a for call in calls for a in call.args if isinstance(a, ast.Name) and names_accelerator(source, a))
    return all(_is_shown_only(source, constant) for constant in named) and all(
        _is_shown(source, name) for name in given
    )


def _loads_to_device(source: Source, call: ast.Call) -> bool:
    return any(k.arg == "map_location" and not names_cpu(source, k.value) for k in call.keywords)


def _is_shown_only(source: Source, constant: ast.Constant) -> bool:
    """Whether the name of a device is kept under a name of which the file shows nothing but the text."""
    statement = source.statement(constant)
    if not isinstance(statement, ast.Assign) or len(statement.targets) != 1:
        return False
    target = statement.targets[0]
    between = [a for a in source.ancestors(constant) if isinstance(a, ast.expr) and source.statement(a) is statement]
    plain = all(isinstance(a, ast.IfExp) or _is_device(source, a) for a in between)
    return (
        plain
        and isinstance(target, ast.Name)
        and all(_is_shown(source, use) for use in source.uses_of(target, target.id))
    )


def _is_device(source: Source, node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and source.qualified_name(node.func) == "torch.device"


def _is_shown(source: Source, use: ast.AST) -> bool:
    parent = source.parent(use)
    is_printed = isinstance(parent, ast.Call) and last_name(parent.func) in (
        "print",
        "str",
        "display",
        "info",
        "format",
    )
    return is_printed or isinstance(parent, (ast.FormattedValue, ast.Expr))
