"""Sizes of layers that leave tensor cores a ragged edge, as they are when the model runs. Child only."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from typing import Any

from perfaudit.target.observed.same_state import same_model_state, without_compilation
from perfaudit.target.provenance import Site, span

# The same as of the rule unaligned-dimension (PA206), which reads them in the text and has the sources.
VOCABULARY = 1000  # entries
VOCABULARY_STEP = 64
WIDTH = 512  # features or channels
WIDTH_STEP = 8

Json = dict[str, Any]
Module = Any  # torch.nn.Module, which is imported inside functions


def unaligned_layers(model: Module, run: Callable[[], object], sites: Mapping[str, Site] | None = None) -> list[Json]:
    """Layers that ran and whose size misses the step: the output layer of a vocabulary, and hidden widths.

    run: one forward pass of the training. A width counts only where a layer that runs later takes it in; then nothing but
    the author's choice gave it, which classes and features of the data are not. `wanted` is the step, in elements.
    """
    ran = _in_order(model, run)
    names = {id(module): name for name, module in model.named_modules()}
    return [
        {
            "module": names[id(module)],
            "kind": type(module).__name__,
            "dimension": dimension,
            "size": size,
            "wanted": step,
            "site": span((sites or {}).get(names[id(module)])),
        }
        for module, dimension, size, step in _unaligned_dimensions(ran)
    ]


def _unaligned_dimensions(ran: list[Module]) -> Iterator[tuple[Module, str, int, int]]:
    """Module, name of the dimension, its size and the step it misses."""
    from torch import nn

    vocabularies = {module.num_embeddings for module in ran if isinstance(module, nn.Embedding)}
    for position, module in enumerate(ran):
        dimension, size = _output_dimension(module)
        if isinstance(module, nn.Linear) and size in vocabularies and size >= VOCABULARY:
            if size % VOCABULARY_STEP:
                yield module, dimension, size, VOCABULARY_STEP
        elif size >= WIDTH and size % WIDTH_STEP:
            hidden = any(_input_size(later) == size for later in ran[position + 1 :])
            if hidden or isinstance(module, nn.RNNBase):
                yield module, dimension, size, WIDTH_STEP


def _output_dimension(module: Module) -> tuple[str, int]:
    """The dimension of what a layer makes, and its size; 0 for what is no layer with a matrix product."""
    from torch import nn

    if isinstance(module, nn.Linear):
        return "out_features", module.out_features
    if isinstance(module, nn.modules.conv._ConvNd) and module.groups == 1:
        return "out_channels", module.out_channels
    if isinstance(module, nn.RNNBase):
        return "hidden_size", module.hidden_size
    if isinstance(module, nn.Embedding):
        return "embedding_dim", module.embedding_dim
    return "", 0


def _input_size(module: Module) -> int:
    """The size of what a layer with a matrix product takes in, 0 for another module."""
    from torch import nn

    if isinstance(module, nn.Linear):
        return int(module.in_features)
    if isinstance(module, nn.modules.conv._ConvNd):
        return int(module.in_channels)
    return int(module.input_size) if isinstance(module, nn.RNNBase) else 0


def _in_order(model: Module, run: Callable[[], object]) -> list[Module]:
    """The modules that a run calls, in the order of their first call."""
    called: dict[int, Module] = {}

    def note(module: Module, _: object) -> None:
        called.setdefault(id(module), module)

    with ExitStack() as hooks, same_model_state(model), without_compilation(model):
        for module in model.modules():
            hooks.callback(module.register_forward_pre_hook(note).remove)
        run()
    known = {id(module) for module in model.modules()}  # DataParallel calls replicas
    return [module for key, module in called.items() if key in known]
