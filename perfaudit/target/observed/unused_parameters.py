"""Parameters that are trained but get no gradient. Child only."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from perfaudit.target.observed.same_state import same_model_state, without_compilation
from perfaudit.target.provenance import Site, span

Json = dict[str, Any]


def unused_parameters(
    model: Any, losses: Iterable[Callable[[], Any]], sites: Mapping[str, Site] | None = None
) -> list[Json]:
    """Parameters that require a gradient and get none from any of these losses: name, elements, and what built their module.

    losses: each makes one forward pass and returns its loss tensor; several batches, as a branch may be taken by chance.
    sites: where modules were built, by qualified name. Gradients are afterwards what they were.
    """
    used: set[int] = set()
    with same_model_state(model), without_compilation(model):
        for loss in losses:
            loss().backward()
            used |= {id(p) for p in model.parameters() if p.grad is not None}
    return [
        {"name": name, "elements": parameter.numel(), "site": span((sites or {}).get(name.rpartition(".")[0]))}
        for name, parameter in model.named_parameters()
        if parameter.requires_grad and id(parameter) not in used
    ]
