"""A model of DistributedDataParallel as other arguments would have wrapped it, put in place between two steps. Child only.

What the arguments say lives in the model's reducer and in a few attributes beside it. Torch makes another one for a second
wrapper of the same module, and the model gets that in the place of its own: no weight, no buffer and no gradient changes. Both
hear of each gradient; the one whose model has begun no pass ignores it, for a lock and a comparison a parameter
(`autograd_hook` in torch/csrc/distributed/c10d/reducer.cpp). All variants of a race bear that alike. A reducer that searches
for unused parameters does not ignore it: it notes which were used. So it is not exchanged.
"""

from __future__ import annotations

import contextlib
import inspect
import json
import warnings
from collections.abc import Iterator, Mapping
from typing import Any

from perfaudit.machine.limits import free_memory
from perfaudit.training.code_change import NotSwappable
from perfaudit.training.trained_models import all_modules

HOOK = "comm_hook"  # the one setting that is no argument: a hook of torch's own, by its name
ROOM = 0.1  # of the free memory of the host, which the buckets of one reducer may take
MIB = 1 << 20
# What arguments have made of a model; a version of torch has not all of it.
_PARTS = (
    "reducer",
    "logger",
    "find_unused_parameters",
    "gradient_as_bucket_view",
    "static_graph",
    "bucket_bytes_cap",
    "bucket_bytes_cap_list",
    "bucket_bytes_cap_default",
    "_bucket_config",
    "_has_rebuilt_buckets",
    "_comm_hooks",
    "_static_graph_delay_allreduce_enqueued",
)
_KEPT = ("gradient_as_bucket_view", "static_graph", "find_unused_parameters")  # arguments, by name as attributes
_KEPT_WHERE_THERE = ("skip_all_reduce_unused_params", "batched_grad_copy")

Parts = dict[str, Any]  # Any: torch's own, which have no common type


class WrappedOtherwise:
    """Named by a parent where a knob is: see `verbs.racing`. Each setting keeps its reducer, so that it warms up once."""

    def __init__(self) -> None:
        self._training: Any = None
        self._model: Any = None
        self._parts: dict[str, Parts] = {}

    @contextlib.contextmanager
    def in_place(self, training: Any, settings: Mapping[str, Any]) -> Iterator[None]:
        """Inside, the model is as if it had been wrapped with these settings. Raises NotSwappable where that cannot be."""
        if training is not self._training:
            self._training, self._model, self._parts = training, wrapped_model(training), {}
        key = json.dumps(settings, sort_keys=True)
        if key not in self._parts:
            self._parts[key] = _make_parts(self._model, settings)
        own = _exchange(self._model, self._parts[key])
        try:
            yield
        finally:
            self._parts[key] = _exchange(self._model, own)

    tried_within = contextlib.nullcontext  # its first step, see `Knob.tried_within`


WRAPPED_OTHERWISE = WrappedOtherwise()
FOUND_AT = f"{__name__}:WRAPPED_OTHERWISE"


def wrapped_model(training: Any) -> Any:
    """The model of DistributedDataParallel that a training updates. Raises NotSwappable for none, and where it must stay."""
    import torch

    kind = torch.nn.parallel.DistributedDataParallel
    updated = {
        id(parameter)
        for optimizer in training.optimizers
        for group in optimizer.param_groups
        for parameter in group["params"]
    }
    modules = all_modules()
    found = [
        each for each in modules if isinstance(each, kind) and any(id(one) in updated for one in each.parameters())
    ]
    if len(found) != 1:
        raise NotSwappable(f"steps update {len(found) or 'no'} models of DistributedDataParallel")
    model = found[0]
    if why := _why_not(model):
        raise NotSwappable(why)
    if any(getattr(each, "_orig_mod", None) is model for each in modules):
        raise NotSwappable("the wrapped model is compiled")
    return model


def _why_not(model: Any) -> str:
    """Why no other reducer can take the place of a model's; "" where one can."""
    import torch

    kind, told = torch.nn.parallel.DistributedDataParallel, model._get_ddp_logging_data()
    if type(model) is not kind:
        return f"{type(model).__name__} is a class of its own above DistributedDataParallel"
    if "init_sync" not in inspect.signature(kind.__init__).parameters:
        return "this version of torch sends parameters to all ranks whenever a model is wrapped"
    if model.find_unused_parameters and not model.static_graph:
        return "the model searches for unused parameters, and takes note of each gradient for that"
    if getattr(model, "_comm_hooks", None) or told.get(HOOK):
        return "the model has a communication hook of its own"
    if getattr(model, "mixed_precision", None) or getattr(model, "_use_python_reducer", False):
        return "the model computes in mixed precision of DistributedDataParallel, or with the reducer of the compiler"
    if getattr(model, "_delay_all_reduce_params", None) or getattr(model, "bucket_bytes_cap_list", None):
        return "the model says of single gradients or buckets how they are sent"
    if model._join_config.enable:
        return "ranks join with uneven batches"
    if sum(each.numel() * each.element_size() for each in model.parameters()) > ROOM * free_memory():
        return "memory does not hold the gradients a second time"
    return ""


def _make_parts(model: Any, settings: Mapping[str, Any]) -> Parts:
    """The parts of another wrapper of the same module. Ranks exchange nothing for it."""
    import torch
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks

    arguments = {name: getattr(model, name) for name in _KEPT}
    arguments |= {name: getattr(model, name) for name in _KEPT_WHERE_THERE if hasattr(model, name)}
    is_default = getattr(model, "bucket_bytes_cap_default", False)
    arguments["bucket_cap_mb"] = None if is_default else model.bucket_bytes_cap / MIB
    arguments |= {name: value for name, value in settings.items() if name != HOOK}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        other = torch.nn.parallel.DistributedDataParallel(
            model.module,
            model.device_ids,
            model.output_device,
            model.dim,
            init_sync=False,
            process_group=model.process_group,
            **arguments,
        )
    if _number_of_gradients(other) != _number_of_gradients(model):
        raise NotSwappable("some of its parameters were frozen, or freed, since the model was wrapped")
    if HOOK in settings:
        other.register_comm_hook(None, getattr(default_hooks, settings[HOOK]))
    return {name: value for name, value in vars(other).items() if name in _PARTS}


def _number_of_gradients(model: Any) -> Any:
    return model._get_ddp_logging_data().get("num_parameter_tensors")


def _exchange(model: Any, parts: Parts) -> Parts:
    """Give a model these parts, and say which it had."""
    held = vars(model)
    own = {name: held.pop(name) for name in _PARTS if name in held}
    held.update(parts)
    return own
