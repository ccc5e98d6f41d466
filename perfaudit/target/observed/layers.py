"""Every layer and norm of a model: where it was built and whether a forward pass runs it. Child only."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

from perfaudit.target.observed.adjacency import is_layer, is_norm, kind_of_module
from perfaudit.target.observed.same_state import same_model_state, without_compilation
from perfaudit.target.provenance import Site, site_as_json, span

Json = dict[str, Any]


def layers(training: Any, run: Callable[[], object]) -> list[Json]:  # Any: training.factory_training.FactoryTraining
    """Convolutions, linear layers and norms of the model in its own order, with the site of each.

    Keys are layer (its name), kind, shape (of the weight), bias, ran (by `run`, one forward pass), alike (modules that the
    same call built outside of the model), site and stack. Layers that run code of the user's or have hooks never "ran": what
    becomes of their output cannot be told from outside.
    """
    elsewhere = Counter(str(span(site)) for site in training.other_module_sites)
    ran = _ran(training.model, run)
    found = []
    for name, module in training.model.named_modules():
        if not _is_of_interest(module):
            continue
        site: Site | None = training.module_sites.get(name)
        weight = getattr(module, "weight", None)
        found.append(
            {
                "layer": name,
                "kind": kind_of_module(module),
                "shape": list(weight.shape) if weight is not None else [],
                "bias": getattr(module, "bias", None) is not None,
                "ran": id(module) in ran and (is_layer(module) or is_norm(module)),
                "alike": elsewhere[str(span(site))],
                **site_as_json(site),
            }
        )
    return found


def _is_of_interest(module: Any) -> bool:
    import torch

    convolution = torch.nn.modules.conv._ConvNd
    return isinstance(module, (convolution, torch.nn.Linear)) or is_norm(module)


def _ran(model: Any, run: Callable[[], object]) -> set[int]:
    """Identities of the modules whose forward is called."""
    called: set[int] = set()

    def note(module: Any, _: object) -> None:
        called.add(id(module))

    with same_model_state(model), without_compilation(model), ExitStack() as hooks:
        for module in model.modules():
            hooks.callback(module.register_forward_pre_hook(note).remove)
        run()
    return called
