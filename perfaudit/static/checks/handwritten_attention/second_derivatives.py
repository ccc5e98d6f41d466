"""Whether a program asks for derivatives of derivatives, which the fused operators of an attention do not have."""

from __future__ import annotations

import ast

from perfaudit.static.source import Source
from perfaudit.static.understanding.answers import remember

LIBRARIES = {"functorch", "higher", "learn2learn", "pyhessian", "torchopt"}  # they ask for them inside
_TRANSFORMS = {"hessian", "hvp", "vhp", "jvp", "jacobian", "jacrev", "jacfwd", "vmap", "linearize", "gradgradcheck"}
_MODULES = ("torch.autograd.", "torch.func.", "torch._functorch.", "torch.vmap")
_PLACES = {"torch.autograd.grad": 4, "torch.autograd.backward": 3}  # of create_graph, when passed by position


def place_of_second_derivatives(source: Source) -> str:
    """The name of a file of the scan that differentiates twice or forward; "" if there is none."""
    if differentiates_twice(source):
        return source.path.rpartition("/")[2]
    found = source.neighbours.some_file("second derivatives", differentiates_twice) if source.neighbours else ""
    return found.rpartition("/")[2]


@remember  # asked for each attention
def differentiates_twice(source: Source) -> bool:
    """Whether a file asks for a graph of the gradients, for another transform than `grad`, or leaves it to a library."""
    targets = set(source.aliases.values())
    if any(target.partition(".")[0] in LIBRARIES for target in targets):
        return True
    if any(_is_transform(target) for target in targets):
        return True
    if any(_is_transform(source.qualified_name(node) or "") for node in source.nodes(ast.Attribute)):
        return True
    return any(_keeps_graph(source, call) for call in source.nodes(ast.Call))


def _is_transform(name: str) -> bool:
    is_forward = name.startswith("torch.autograd.forward_ad")
    return is_forward or (name.startswith(_MODULES) and name.rpartition(".")[2] in _TRANSFORMS)


def _keeps_graph(source: Source, call: ast.Call) -> bool:
    """`create_graph=True`, or anything that may be."""
    given = [k.value for k in call.keywords if k.arg == "create_graph"]
    name = source.qualified_name(call.func)
    place = _PLACES.get(name or "")
    if name is None and isinstance(call.func, ast.Attribute) and call.func.attr == "backward":
        place = 2
    if place is not None:
        given += call.args[place : place + 1]
    return any(not isinstance(value, ast.Constant) or bool(value.value) for value in given)
