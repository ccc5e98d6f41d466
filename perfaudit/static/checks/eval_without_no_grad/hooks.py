"""Forward hooks that keep what layers put out: somebody may differentiate it later."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from perfaudit.static.source import FUNCTIONS, Source
from perfaudit.static.source.syntax import walk
from perfaudit.static.understanding.answers import remember
from perfaudit.static.understanding.names import last_name

_REGISTERS = (
    *(".register_forward_hook", ".register_forward_pre_hook", ".register_module_forward_hook"),
    "torch.nn.modules.module.register_module_forward_hook",
)
_KEEPS = {"append", "extend", "insert", "add", "update", "setdefault", "put", "appendleft", "setattr"}
_READS = {"detach", "item", "tolist", "numpy", "data", "shape", "size", "dtype", "device"}  # none of them has a graph


@remember
def keeps_by_hook(source: Source) -> bool:
    """Whether a forward hook of a file keeps what it is given, with its graph; one that is out of sight may."""
    if "register_" not in source.text or "forward_" not in source.text:
        return False
    for call in (call for name in _REGISTERS for call in source.calls(name)):
        given = [*call.args, *(keyword.value for keyword in call.keywords)]
        hooks = [*_functions(source, given[0])] if given else []
        if not hooks or any(_keeps(hook) for hook in hooks):
            return True
    return False


def _functions(source: Source, hook: ast.expr) -> Iterator[ast.AST]:
    """The functions of a file that a hook may be: by its name, or by that of what makes it, `keep_as("layer1")`."""
    if isinstance(hook, ast.Lambda):
        yield hook
        return
    name = last_name(hook.func if isinstance(hook, ast.Call) else hook)
    yield from (function for function in source.nodes(*FUNCTIONS) if name and getattr(function, "name", "") == name)


def _keeps(hook: ast.AST) -> bool:
    """Whether something in a function puts what has a graph, as far as it shows, into an object, a list, or a name outside."""
    nodes = [*walk(hook)]
    outside = {name for node in nodes if isinstance(node, (ast.Global, ast.Nonlocal)) for name in node.names}
    for node in nodes:
        if isinstance(node, (ast.Assign, ast.AugAssign, ast.AnnAssign)) and node.value is not None:
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            places = [part for target in targets for part in walk(target) if isinstance(part, ast.expr)]
            is_kept = any(
                isinstance(part, (ast.Attribute, ast.Subscript)) or (isinstance(part, ast.Name) and part.id in outside)
                for part in places
            )
            if is_kept and _may_have_graph(node.value):
                return True
        if isinstance(node, ast.Call) and last_name(node.func) in _KEEPS:
            given = (*node.args, *(keyword.value for keyword in node.keywords))
            if any(_may_have_graph(value) for value in given):
                return True
    return False


def _may_have_graph(value: ast.expr) -> bool:
    parts = [*walk(value)]
    if not any(isinstance(part, ast.Name) for part in parts):
        return False
    return not any(isinstance(part, ast.Attribute) and part.attr in _READS for part in parts)
