"""Whether the samples of a DataLoader are made on a device, which no forked worker can use, as far as its file shows."""

from __future__ import annotations

import ast

from perfaudit.expressions import regex
from perfaudit.static.checks.dataloader_no_workers.made_of import COLLATE, reachable_nodes
from perfaudit.static.source import Source
from perfaudit.static.understanding.devices import device_text, moves_to_device
from perfaudit.static.understanding.values import argument

_OF_TENSORS = {"size", "shape", "dim", "dtype", "numel"}
_OF_CUDA = regex(r"torch\.cuda\.(?:sparse\.)?[A-Z]\w*Tensor")  # classes of tensors, called to make one


def is_on_device(source: Source, call: ast.Call) -> bool:
    """Whether the dataset or the collate function, as far as this file shows them, moves tensors to a device.

    Pinning such a tensor raises, and so does making one in a worker process that was forked.
    """
    return any(makes_device_tensor(source, node) for node in reachable_nodes(source, call))


def may_be_on_device(source: Source, call: ast.Call) -> bool:
    """Whether the dataset or the collate function comes from another file of the project that uses an accelerator."""
    if source.neighbours is None:
        return False
    called: list[ast.AST | None] = [node.func for node in reachable_nodes(source, call) if isinstance(node, ast.Call)]
    collate = argument(source, call, "collate_fn", COLLATE)
    called.append(collate if isinstance(collate, ast.expr) else None)
    found = (source.qualified_name(node) for node in called)
    names = {name for name in found if name and "." in name and name[:6] != "torch."}
    modules = {name.rpartition(".")[0] or "." for name in names}
    return source.neighbours.imports_a_marked_file("accelerator", sorted(modules | names))


def makes_device_tensor(source: Source, node: ast.AST) -> bool:
    """Whether a node moves a tensor to a device or makes it there: `x.cuda()`, `torch.cuda.FloatTensor(x)`, `device=device`."""
    if isinstance(node, ast.Call) and _OF_CUDA.fullmatch(source.qualified_name(node.func) or ""):
        return True
    if isinstance(node, ast.Call) and moves_to_device(source, node):
        targets = [*node.args, *(keyword.value for keyword in node.keywords)]
        return not targets or not all(_is_of_sample(source, target) for target in targets)
    if not isinstance(node, ast.keyword) or node.arg != "device" or _is_of_sample(source, node.value):
        return False
    return device_text(node.value) != "cpu"


def _is_of_sample(source: Source, node: ast.expr) -> bool:
    """Whether an expression is the device of a tensor that a function is given, `x.device`: where samples lie, on the host."""
    owner = node.value if isinstance(node, ast.Attribute) and node.attr == "device" else None
    bindings = source.lookup(owner) if isinstance(owner, ast.Name) else []
    if not isinstance(owner, ast.Name) or len(bindings) != 1 or not isinstance(bindings[0], ast.arg):
        return False
    parents = [source.parent(use) for use in source.uses_of(bindings[0], owner.id)]
    return any(isinstance(parent, ast.Attribute) and parent.attr in _OF_TENSORS for parent in parents)
