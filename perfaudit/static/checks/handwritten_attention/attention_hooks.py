"""Hooks on the layers of an attention, which see nothing any more once an operator does their work."""

from __future__ import annotations

import ast
from collections.abc import Callable
from functools import lru_cache

from perfaudit.expressions import regex
from perfaudit.static.source import Source
from perfaudit.static.understanding.members import is_own

_HOOKS = regex(r"\.register_(forward|forward_pre|backward|full_backward|full_backward_pre)_hook\b")
_LAYERS = {"torch.nn.Softmax", "torch.nn.Dropout"}
_MIN_PART = 4  # letters of "drop" in `if "drop" in name`


def place_of_hooks(source: Source, layers: frozenset[str]) -> str:
    """The name of a file of the scan in which a hook may hang on `self.<one of layers>`; "" if there is none."""
    for layer in sorted(layers):
        if may_hook(layer)(source):
            return source.path.rpartition("/")[2]
        if source.neighbours is not None and (found := source.neighbours.some_file("hook", may_hook(layer))):
            return found.rpartition("/")[2]
    return ""


@lru_cache(maxsize=64)  # one function per layer: what a file says to it is kept under the function
def may_hook(layer: str) -> Callable[[Source], bool]:
    """Whether a file registers hooks and speaks of such a layer: `m.attend`, "attend" as a name, `isinstance(m, nn.Softmax)`."""

    def holds(source: Source) -> bool:
        if not _HOOKS.search(source.text):
            return False
        return (
            any(node.attr == layer and _is_anothers(source, node) for node in source.nodes(ast.Attribute))
            or any(_may_name(text.value, layer) for text in source.nodes(ast.Constant) if isinstance(text.value, str))
            or any(_asks_for_class(source, call) for call in source.nodes(ast.Call))
        )

    return holds


def _is_anothers(source: Source, node: ast.Attribute) -> bool:
    """Whether an attribute is of another object than `self`, or a hook is registered on it."""
    parent = source.parent(node)
    return not is_own(node) or (isinstance(parent, ast.Attribute) and _HOOKS.match(f".{parent.attr}") is not None)


def _may_name(text: str, layer: str) -> bool:
    """Whether a text is the name of the layer, a path that ends in it, or a part of it to look for."""
    return text.rpartition(".")[2] == layer or (len(text) >= _MIN_PART and text in layer)


def _asks_for_class(source: Source, call: ast.Call) -> bool:
    if not (isinstance(call.func, ast.Name) and call.func.id == "isinstance" and len(call.args) == 2):
        return False
    return any(source.qualified_name(node) in _LAYERS for node in ast.walk(call.args[1]) if isinstance(node, ast.expr))
