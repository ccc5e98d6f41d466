"""The repeated blocks of a model, and recomputing their activations in the backward pass. Child only."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Repeated:
    """A container of blocks of one class: its name in the model, how many there are, and how many batch norms are in them."""

    name: str
    blocks: int
    batch_norms: int


def repeated_blocks(model: Any) -> Repeated | None:
    """The Sequential or ModuleList of blocks of one class that holds most parameters; None without one.

    Blocks are modules made of others: recomputing single layers would save next to nothing.
    """
    import torch

    kinds = (torch.nn.Sequential, torch.nn.ModuleList)
    found: list[tuple[int, str, Any]] = []
    for name, container in model.named_modules():
        blocks = list(container.children()) if isinstance(container, kinds) else []
        if len(blocks) > 1 and len({type(b) for b in blocks}) == 1 and all(any(b.children()) for b in blocks):
            found.append((sum(p.numel() for p in container.parameters()), name, blocks))
    if not found:
        return None
    _, name, blocks = max(found, key=lambda item: item[0])
    norms = torch.nn.modules.batchnorm._BatchNorm
    batch_norms = sum(1 for b in blocks for m in b.modules() if isinstance(m, norms))
    return Repeated(name, len(blocks), batch_norms)


@contextmanager
def checkpointing(model: Any) -> Iterator[None]:
    """Inside, each repeated block's forward runs under torch.utils.checkpoint; random streams are kept: dropout repeats."""
    from torch.utils.checkpoint import checkpoint

    found = repeated_blocks(model)
    blocks = list(dict.fromkeys(model.get_submodule(found.name).children())) if found else []
    own = [vars(block).get("forward") for block in blocks]  # somebody may have set it on the object already
    for block in blocks:
        block.forward = functools.partial(checkpoint, block.forward, use_reentrant=False)
    try:
        yield
    finally:
        for block, forward in zip(blocks, own, strict=True):
            if forward is None:
                del block.forward
            else:
                block.forward = forward
