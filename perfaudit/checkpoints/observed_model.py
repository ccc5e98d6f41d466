"""What the target's model is now, and what it was with the biases it had: keys, folds, groups of its optimizer. Child only."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from perfaudit.checkpoints.fold import Expected, Fold, Refused
from perfaudit.checkpoints.optimizer_state import Layout
from perfaudit.target.load import faults_named
from perfaudit.target.observed.adjacency import pairs
from perfaudit.training.factory_training import FactoryTraining

Module = Any  # torch.nn.Module, which is imported inside functions


def unwrap(model: Module) -> Module:
    """The model inside what `torch.compile`, DataParallel and DistributedDataParallel put around it."""
    from torch import nn
    from torch._dynamo.eval_frame import OptimizedModule

    while isinstance(model, (nn.DataParallel, nn.parallel.DistributedDataParallel, OptimizedModule)):
        model = model._orig_mod if isinstance(model, OptimizedModule) else model.module
    return model


def observe_model(training: FactoryTraining) -> Expected:
    """The model's keys, and the biases that can go: of layers without one whose output goes to one norm and nothing else.

    Runs one forward pass of the training. A layer that was seen otherwise is in `unfoldable`, with the reason.
    """
    import torch

    model = unwrap(training.model)
    batch = training.fixed_batch()
    with faults_named(f"{training.target.file}: one forward pass failed"):
        observed = pairs(model, lambda: training.loss(batch))
    names = _all_names(model)
    folds, unfoldable = [], {}
    for name, layer in model.named_modules():
        if "bias" not in layer._parameters or layer.bias is not None or not _width(layer):
            continue
        biases = tuple(f"{each}.bias".lstrip(".") for each in names[id(layer)])
        why = _why_not(name, layer, observed)
        if why:
            unfoldable.update(dict.fromkeys(biases, why))
            continue
        norm = next(pair["norm"] for pair in observed if pair["layer"] == name)
        folds.append(_fold(model, name, norm, biases, names))
    state = model.state_dict()
    shapes = {key: tuple(v.shape) if isinstance(v, torch.Tensor) else None for key, v in state.items()}
    parameters = {key for key, _ in model.named_parameters(remove_duplicate=False)}
    return Expected(shapes, frozenset(set(shapes) - parameters), tuple(folds), unfoldable)


def _fold(model: Module, layer: str, norm: str, biases: tuple[str, ...], names: dict[int, list[str]]) -> Fold:
    behind = model.get_submodule(norm)
    means: tuple[str, ...] = ()
    if getattr(behind, "running_mean", None) is not None:
        means = tuple(f"{each}.running_mean" for each in names[id(behind)])
    width = _width(model.get_submodule(layer))
    return Fold(layer, norm, type(behind).__name__, width, biases, means)


def _why_not(name: str, layer: Module, observed: list[dict[str, Any]]) -> str:
    """Why the bias that a layer had cannot go into a norm, "" if it can."""
    found = [pair for pair in observed if pair["layer"] == name]
    norms = sorted({pair["norm"] for pair in found})
    has_no = f"but {name} has no bias now"
    if not found:
        return f"{has_no} and no norm was seen that takes its output directly; migrate with the source that removed only biases"
    if len(norms) > 1 or any(pair["consumers"] != 1 for pair in found):
        return f"{has_no} and its output goes to more than the norm {norms[0]}, where it is missed"
    others = sorted({pair["layer"] for pair in observed if pair["norm"] == norms[0]} - {name})
    if others:
        return (
            f"{has_no} and its norm {norms[0]} takes the output of {others[0]} too, so one running mean stands for both"
        )
    if not hasattr(layer, "kernel_size") and found[0]["norm_kind"] not in ("BatchNorm1d", "SyncBatchNorm"):
        return f"{has_no} and its norm {norms[0]} ({found[0]['norm_kind']}) is over another dimension"
    return ""


def _all_names(model: Module) -> dict[int, list[str]]:
    names: dict[int, list[str]] = {}
    for name, module in model.named_modules(remove_duplicate=False):
        names.setdefault(id(module), []).append(name)
    return names


def _width(layer: Module) -> int:
    """The number of values a layer's bias has, 0 for what is neither a convolution nor a linear layer."""
    return int(getattr(layer, "out_channels", 0) or getattr(layer, "out_features", 0))


@contextlib.contextmanager
def biases_given_back(model: Module, folds: tuple[Fold, ...]) -> Iterator[None]:
    """The model as it was: these layers have biases (zeros) again, at the place among the parameters they had."""
    import torch

    try:
        for fold in folds:
            layer = model.get_submodule(fold.layer)
            like = next(layer.parameters(recurse=False), None)
            like = next(layer.parameters()) if like is None else like  # a parametrized weight is a level below
            zeros = torch.zeros(fold.width, dtype=like.dtype, device=like.device)
            layer.bias = torch.nn.Parameter(zeros, requires_grad=like.requires_grad)
        yield
    finally:
        for fold in folds:
            model.get_submodule(fold.layer).bias = None


def old_layouts(training: FactoryTraining, folds: tuple[Fold, ...]) -> tuple[list[Layout], dict[str, tuple[int, ...]]]:
    """What the optimizer of the old model may have held, and the shapes of the old model's parameters by name.

    Where the target has an optimizer factory that is the one layout, else all parameters, or those that are trained.
    Raises Refused when the factory treats the two models differently.
    """
    model = unwrap(training.model)
    now = _layout(training, training.optimizer) if training.builds_own_optimizer else None
    with biases_given_back(model, folds):
        named = list(model.named_parameters())
        shapes = {name: tuple(parameter.shape) for name, parameter in named}
        if now is None:
            source = "model.parameters()"
            every = Layout((tuple(name for name, _ in named),), source)
            return [every, Layout((tuple(name for name, p in named if p.requires_grad),), source)], shapes
        layout = _layout(training, _built_again(training))
    removed = {key for fold in folds for key in fold.biases}
    without = tuple(tuple(name for name in group if name not in removed) for group in layout.groups)
    if without != now.groups:
        raise Refused(
            f"{layout.source} groups the parameters in another way when layers have biases, so entries of the old optimizer "
            "state have no certain place in the new one; leave the optimizer out of the file"
        )
    return [layout], shapes


def _built_again(training: FactoryTraining) -> Any:
    with faults_named(f"{training.target.file}: the optimizer factory failed on the model with its biases"):
        return training.factories["optimizer"](training.model)


def _layout(training: FactoryTraining, optimizer: Any) -> Layout:
    names = {id(parameter): name for name, parameter in unwrap(training.model).named_parameters()}
    source = f"{getattr(training.factories['optimizer'], '__name__', 'the optimizer factory')}()"
    groups = [[names.get(id(parameter)) for parameter in group["params"]] for group in optimizer.param_groups]
    if any(name is None for group in groups for name in group):
        raise Refused(f"{source} has parameters that are not the model's, so the optimizer state cannot be read")
    return Layout(tuple(tuple(str(name) for name in group) for group in groups), source)
