"""What the backward pass says of names before the code around it is read: these are tensors on the device, those may be."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from perfaudit.static.source import Function, Loop, Source
from perfaudit.static.source.syntax import walk
from perfaudit.static.understanding.kinds import Kind
from perfaudit.static.understanding.losses import key, loss_names
from perfaudit.static.understanding.names import last_name


def loss_seeds(source: Source, root: Loop | Function, given_back: Iterable[ast.expr] = ()) -> dict[str, Kind]:
    """What the backward pass says of names, less the inputs of the loss that come from the loader and are moved here."""
    moved = {name for node in walk(root) for name in _names_moved(node)}
    return {
        name: Kind.TENSOR if sure else Kind.MAYBE
        for name, sure in loss_names(source, root, given_back).items()
        if sure or name not in moved
    }


def _names_moved(node: ast.AST) -> Iterator[str]:
    """`x` of `x = x.to(device)`, `x` and `y` of `x, y = x.cuda(), t.tensor(y).to(device)`."""
    if not isinstance(node, ast.Assign):
        return
    for target in node.targets:
        pairs = [(target, node.value)]
        if isinstance(target, (ast.Tuple, ast.List)) and isinstance(node.value, (ast.Tuple, ast.List)):
            pairs = list(zip(target.elts, node.value.elts, strict=False))
        for name, value in pairs:
            if isinstance(value, ast.Call) and last_name(value.func) in ("to", "cuda"):
                yield key(name)
