"""Where gradients are off: `with torch.no_grad()`, its decorator, and what is like it."""

from __future__ import annotations

import ast

from perfaudit.static.source import FUNCTIONS, Source

NO_GRAD = {
    f"torch.{module}{name}"
    for module in ("", "autograd.", "autograd.grad_mode.")
    for name in ("no_grad", "inference_mode")
}
SET_GRAD = {"torch.set_grad_enabled", "torch.autograd.set_grad_enabled", "torch.autograd.grad_mode.set_grad_enabled"}


def in_no_grad(source: Source, node: ast.AST) -> bool:
    """Whether a `with torch.no_grad()` (or `inference_mode`) or a decorator of that kind is around the node."""
    for ancestor in source.ancestors(node):
        if isinstance(ancestor, (ast.With, ast.AsyncWith)):
            if any(turns_grad_off(source, item.context_expr) for item in ancestor.items):
                return True
        elif isinstance(ancestor, FUNCTIONS) and any(turns_grad_off(source, d) for d in ancestor.decorator_list):
            return True
    return False


def turns_grad_off(source: Source, node: ast.expr) -> bool:
    """Whether an expression is `torch.no_grad()`, `inference_mode()` or `set_grad_enabled(False)`, called or not."""
    name = source.qualified_name(node.func if isinstance(node, ast.Call) else node)
    if name in NO_GRAD:
        arguments = [*node.args, *(k.value for k in node.keywords)] if isinstance(node, ast.Call) else []
        return not any(isinstance(argument, ast.Constant) and argument.value is False for argument in arguments)
    if name in SET_GRAD and isinstance(node, ast.Call):
        mode = [*node.args, *(k.value for k in node.keywords if k.arg == "mode")]
        return bool(mode) and isinstance(mode[0], ast.Constant) and mode[0].value is False
    return False
