"""Which norm a layer's output goes to, and whether anything else takes it too: hooks and tensor identity. Child only."""

from __future__ import annotations

import contextlib
import gc
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from perfaudit.target.observed.same_state import same_model_state, without_compilation
from perfaudit.target.provenance import Site, site_as_json

Json = dict[str, Any]
Module = Any  # torch.nn.Module, which is imported inside functions


@dataclass(slots=True)
class _Output:
    """One output of a layer and what took it. The tensor is kept, so that no other takes over its identity."""

    tensor: Any
    norms: list[Module] = field(default_factory=list)
    others: int = 0


def pairs(model: Module, run: Callable[[], object], sites: Mapping[str, Site] | None = None) -> list[Json]:
    """Layers whose output goes to a norm that subtracts what their bias adds, one dict per layer and norm.

    run: one forward pass of the training. Buffers, gradients and random streams are afterwards what they were.
    sites: where modules were built, by qualified name. `consumers` is 1 where every output of the layer went to such a
    norm and to nothing else: operators, a place that still holds it after the run, the model's own result and other uses
    of the bias count too. Layers are those of torch.nn with torch's own forward. Only module calls are paired; a view
    between layer and norm ends the search, as what happens on the way is not known.
    """
    names = {id(module): name for name, module in model.named_modules()}
    found: list[Json] = []
    for layer, outputs, bias_uses in _watch_run(model, run):
        name = names[id(layer)]
        norms = {id(norm): norm for output in outputs for norm in output.norms}.values()
        at_once = max((len(output.norms) for output in outputs), default=0)
        what = {
            "bias": layer.bias is not None,
            "consumers": at_once + bias_uses + sum(output.others for output in outputs),
            **site_as_json((sites or {}).get(name)),
        }
        found += (
            {
                "layer": name,
                "kind": kind_of_module(layer),
                "norm": names[id(norm)],
                "norm_kind": kind_of_module(norm),
                **what,
            }
            for norm in norms
        )
    return found


def _watch_run(model: Module, run: Callable[[], object]) -> list[tuple[Module, list[_Output], int]]:
    """Runs once; layers in the order of their first call, their outputs, and uses of their bias elsewhere."""
    layers = [module for module in model.modules() if is_layer(module)]
    watch = _Watch(layers)
    with same_model_state(model), watch.hooks_on(model), without_compilation(model), _operators(watch.operator):
        run()
    watch.count_kept()
    return [(layer, watch.by_layer[id(layer)], watch.bias_uses(layer)) for layer in watch.order]


class _Watch:
    """Outputs of layers and their uses, while hooks and the operator mode tell of them."""

    def __init__(self, layers: list[Module]) -> None:
        self.layers = layers
        self._known = {id(layer) for layer in layers}
        self._thread = threading.get_ident()  # the operator mode sees this thread only, hooks see all
        self.order: list[Module] = []
        self.by_layer: dict[int, list[_Output]] = {}
        self._outputs: dict[int, _Output] = {}  # by id of the tensor
        self._biases = {id(layer.bias): 0 for layer in layers if layer.bias is not None}
        self._inside = 0  # calls of layers and norms under way: what they do inside is theirs

    @contextlib.contextmanager
    def hooks_on(self, model: Module) -> Iterator[None]:
        """The hooks are in force. Ours come last before a call and first after it, so that the user's count as others."""
        with contextlib.ExitStack() as hooks:
            for module in model.modules():
                watched = id(module) in self._known
                if not watched and not is_norm(module):
                    continue
                before, after = (self._enter, self._note_output) if watched else (self._enter_norm, self._leave)
                for handle in (
                    module.register_forward_pre_hook(before, with_kwargs=True),
                    module.register_forward_hook(after, prepend=True, always_call=True),  # also of one that failed
                ):
                    hooks.callback(handle.remove)
            hooks.callback(model.register_forward_hook(self._note_result).remove)
            yield

    def _enter(self, layer: Module, _: object, __: object) -> None:
        self._inside += 1

    def _note_output(self, layer: Module, _: object, tensor: Any) -> None:
        self._inside -= 1
        if _in_backward() or id(layer) not in self._known:  # DataParallel calls replicas
            return
        if self._counts() and _has_channels(layer, tensor):
            output = self._outputs[id(tensor)] = _Output(tensor)
        else:
            output = _Output(None, others=1)  # what becomes of it is not followed
        if id(layer) not in self.by_layer:
            self.order.append(layer)
        self.by_layer.setdefault(id(layer), []).append(output)

    def _enter_norm(self, norm: Module, given: tuple[Any, ...], named: dict[str, Any]) -> None:
        output = self._outputs.get(id(given[0] if given else named.get("input")))
        if output is not None and self._counts():
            if _subtracts_channel_mean(norm):
                output.norms.append(norm)
            else:
                output.others += 1
        self._inside += 1

    def _leave(self, norm: Module, _: object, __: object) -> None:
        self._inside -= 1

    def _note_result(self, model: Module, _: object, result: object) -> None:
        from torch.utils._pytree import tree_leaves

        for value in tree_leaves(result):
            self._use(value)

    def operator(self, arguments: list[Any]) -> None:
        """One operator with these values among its arguments."""
        if not self._inside and self._counts():
            for value in {id(value): value for value in arguments}.values():
                self._use(value)

    def _counts(self) -> bool:
        return not _in_backward() and threading.get_ident() == self._thread

    def _use(self, value: object) -> None:
        if id(value) in self._outputs:
            self._outputs[id(value)].others += 1
        elif id(value) in self._biases:
            self._biases[id(value)] += 1

    def bias_uses(self, layer: Module) -> int:
        """Uses of a layer's bias outside layers, and layers that share it."""
        if layer.bias is None:
            return 0
        return self._biases[id(layer.bias)] + sum(other.bias is layer.bias for other in self.layers) - 1

    def count_kept(self) -> None:
        """Outputs that something still holds, an attribute or a list of the user's, have one use more."""
        ours = {id(output) for output in self._outputs.values()}
        for holder in gc.get_referrers(*[output.tensor for output in self._outputs.values()]):
            if id(holder) in ours:
                continue
            for value in gc.get_referents(holder):
                if id(value) in self._outputs:
                    self._outputs[id(value)].others += 1


def is_layer(module: Module) -> bool:
    """A convolution or linear layer that runs torch's own forward, with a plain bias or none and no hook on its output."""
    from torch import nn

    classes = (nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d, nn.Linear)
    own = _torch_class(module, classes)
    if own is None or "forward" in vars(module) or module._forward_hooks:
        return False
    if getattr(type(module), "_conv_forward", None) is not getattr(own, "_conv_forward", None):
        return False
    return "bias" in module._parameters


def is_norm(module: Module) -> bool:
    from torch import nn

    kinds = (nn.modules.batchnorm._NormBase, nn.GroupNorm, nn.LayerNorm)
    torchs = isinstance(module, kinds) and type(module).forward.__module__.startswith("torch.nn.")
    return torchs and "forward" not in vars(module)


def _torch_class(module: Module, classes: tuple[type, ...]) -> Any:
    """The one of these classes whose forward a module runs, None if it has its own."""
    return next((kind for kind in classes if isinstance(module, kind) and type(module).forward is kind.forward), None)  # type: ignore[attr-defined]  # all of them are modules


def kind_of_module(module: Module) -> str:
    """The class by its name in torch.nn, also for a subclass of it."""
    return next(kind.__name__ for kind in type(module).__mro__ if kind.__module__.startswith("torch.nn.modules"))


def _has_channels(layer: Module, tensor: Any) -> bool:
    """Whether an output is a batch whose second dimension is what the bias is added to."""
    dimensions = len(layer.kernel_size) + 2 if hasattr(layer, "kernel_size") else 2
    return getattr(tensor, "ndim", 0) == dimensions


def _subtracts_channel_mean(norm: Module) -> bool:
    """Whether the norm, as it is set now, subtracts from each channel its mean over the batch or the sample.

    With a momentum of 0 the running mean never learns of a bias, and evaluation needs it.
    """
    from torch import nn

    if isinstance(norm, nn.GroupNorm):
        return bool(norm.num_groups == norm.num_channels)
    if isinstance(norm, nn.LayerNorm):
        return False
    return bool(norm.running_mean is None or (norm.training and norm.momentum != 0))


def _in_backward() -> bool:
    """Whether autograd is at work: what it takes follows from the forward, and checkpointing runs the forward again."""
    import torch

    return bool(torch._C._current_graph_task_id() != -1)


def _operators(tell: Callable[[list[Any]], None]) -> Any:
    """A dispatch mode that tells the tensors each operator is given."""
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode
    from torch.utils._pytree import tree_leaves

    class Operators(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # torch's own
            tell([value for value in tree_leaves((args, kwargs)) if isinstance(value, torch.Tensor)])
            return func(*args, **(kwargs or {}))

    return Operators()  # type: ignore[no-untyped-call]  # torch's
