"""Options of the command line that turn the GPU off, and what is on unless they are given."""

from __future__ import annotations

import ast

from perfaudit.expressions import regex
from perfaudit.static.source import Source
from perfaudit.static.understanding.names import last_name
from perfaudit.static.understanding.values import argument, constant

_NO_GPU = regex(r"^(no|disable|without)_?(cuda|gpu)s?$|^(use_)?cpu(_only)?$")


def is_off_by_option_only(source: Source, node: ast.expr) -> bool:
    """Whether a flag is the opposite of an option that turns the GPU off and is not given by default: `not args.no_cuda`."""
    if not isinstance(node, ast.UnaryOp) or not isinstance(node.op, ast.Not):
        return False
    name = last_name(node.operand)
    if not isinstance(node.operand, ast.Attribute) or not _NO_GPU.search(name):
        return False
    flags = {f"--{name}", f"--{name.replace('_', '-')}"}
    declared = [c for c in source.calls(".add_argument") if any(constant(source, a) in flags for a in c.args)]
    stores = [n for n in source.nodes(ast.Attribute) if n.attr == name and isinstance(n.ctx, ast.Store)]
    if stores or _is_set_by_default(source, name):
        return False
    return bool(declared) and all(_is_switch(source, call) for call in declared)


def _is_set_by_default(source: Source, name: str) -> bool:
    """Whether `parser.set_defaults(no_cuda=True)` names an option, or may: `parser.set_defaults(**settings)`."""
    return any(keyword.arg in (name, None) for call in source.calls(".set_defaults") for keyword in call.keywords)


def _is_switch(source: Source, call: ast.Call) -> bool:
    """Whether an option is False unless it is given."""
    action, given = argument(source, call, "action"), argument(source, call, "default")
    is_left_out = not isinstance(given, ast.expr) or constant(source, given) is False
    return isinstance(action, ast.expr) and constant(source, action) == "store_true" and is_left_out
