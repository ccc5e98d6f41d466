"""Which of Lightning's hooks return a loader: `train_dataloader`, which builds it or hands out what the object keeps."""

from __future__ import annotations

import ast

from perfaudit.expressions import regex
from perfaudit.static.source import FUNCTIONS, Source
from perfaudit.static.understanding.names import dotted_name

_HOOK = regex(r"(train|val|test|predict)_dataloader$")


def hooks_around(source: Source, call: ast.Call) -> set[str]:
    """The names of the hooks of a class that build a loader, or that return it where another method has kept it in `self`."""
    method = source.enclosing(call, *FUNCTIONS)
    owner = source.parent(method) if isinstance(method, FUNCTIONS) else None
    if not isinstance(method, FUNCTIONS) or not isinstance(owner, ast.ClassDef):
        return set()
    if _HOOK.match(method.name):
        return {method.name}
    parent = source.parent(call)
    if not isinstance(parent, ast.Assign):
        return set()
    kept = {name for target in parent.targets if (name := dotted_name(target)).startswith("self.")}
    hooks = [each for each in owner.body if isinstance(each, FUNCTIONS) and _HOOK.match(each.name)]
    return {hook.name for hook in hooks if kept & _attributes_returned(hook)} if kept else set()


def _attributes_returned(hook: ast.AST) -> set[str]:
    """`self.train_loader` of `return self.train_loader`, also in a list or a dict."""
    returned = [node.value for node in ast.walk(hook) if isinstance(node, ast.Return) and node.value is not None]
    return {dotted_name(node) for value in returned for node in ast.walk(value) if isinstance(node, ast.Attribute)}
