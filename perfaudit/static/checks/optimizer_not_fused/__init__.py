"""PA402: an optimizer that has a fused update and does not use it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from perfaudit.expressions import regex
from perfaudit.static import edit
from perfaudit.static.checks.optimizer_not_fused.model_size import has_large_model
from perfaudit.static.old_torch import needs_old_torch
from perfaudit.static.registry import Proposal, Seen, check, hint_if
from perfaudit.static.source import FUNCTIONS, Source
from perfaudit.static.understanding.answers import remember
from perfaudit.static.understanding.backward import backward_calls
from perfaudit.static.understanding.demonstrations import is_main_guard, is_test
from perfaudit.static.understanding.entry import ARGUMENTS_OF_TRAINER
from perfaudit.static.understanding.names import last_name
from perfaudit.static.understanding.values import (
    ABSENT,
    UNKNOWN,
    argument,
    assigned_value,
    constant,
    is_false,
    local_class,
    resolve,
)

FEW = 8  # tensors in a list written out; below it the update is a handful of kernels either way
FOREACH_OF_ADAGRAD = 6  # position; keyword-only in the others
COMPLEX = {"cfloat", "cdouble", "complex64", "complex128"}
_DTENSORS = regex(r"\bfully_shard\b|DTensor|parallelize_module|distribute_(tensor|module)")  # have fused Adam only
UNFUSED_OF_TRAINER = ("adamw_torch", "adamw_hf")
_LOADS_LITTLE = regex(
    r"\bpeft\b|\blora\b|xla|tpu", re.IGNORECASE
)  # few parameters are trained; no kernel for the device
NO_FUSED = {"torch_xla", "torch_directml", "higher"}  # devices without the kernel; differentiable optimizers

_MAY_TRAIN = regex(r"train|fit|run|main|epoch|learn", re.IGNORECASE)


@check("PA402", call=("torch.optim.Adam", "torch.optim.AdamW", "torch.optim.SGD", "torch.optim.Adagrad"))
def optimizer_not_fused(source: Source, call: ast.Call) -> Iterator[Seen]:
    name = source.qualified_name(call.func)
    is_adagrad = name == "torch.optim.Adagrad"
    places = {"fused": None, "foreach": FOREACH_OF_ADAGRAD if is_adagrad else None, "differentiable": None}
    if any(argument(source, call, option, place) is not ABSENT for option, place in places.items()):
        return
    if needs_old_torch(source):  # whose optimizers take no `fused`
        return
    if _updates_few_tensors(source, call) or _never_gets_gradients(source, call) or _has_unfused_parameters(source):
        return
    if _only_plots_a_schedule(source, call):
        return
    if name == "torch.optim.SGD" and _DTENSORS.search(source.text):
        return
    message = f"`{source.brief(call.func)}` without `fused` runs every operation of the update as kernels of its own"
    if is_adagrad:
        fix = Proposal("pass `fused=True` (on CPU from torch 2.4; on a GPU only where this torch has the kernel)")
    elif _belongs_to_lightning(source, call):
        fix = Proposal(
            "pass `fused=True`, unless Lightning clips gradients under mixed precision, which it refuses then"
        )
    else:
        fix = Proposal("update all parameters in a fused kernel", edit.add_keyword(source, call, "fused", "True"))
    yield Seen(call, message, fix, severity=hint_if(not has_large_model(source) or _freezes_layers(source)))


def _only_plots_a_schedule(source: Source, call: ast.Call) -> bool:
    """Whether a demonstration makes the optimizer to draw its learning rates: nothing in the file trains, or calls what may."""
    guard = next((a for a in source.ancestors(call) if is_main_guard(a)), None)
    if guard is None or backward_calls(source):
        return False
    names = [last_name(node.func) for node in ast.walk(guard) if isinstance(node, ast.Call)]
    return "plot" in names and not any(_MAY_TRAIN.search(name) for name in names)


def _freezes_layers(source: Source) -> bool:
    """Whether the file freezes parameters: how many the optimizer still updates, it does not show."""
    stores = [n for n in source.nodes(ast.Attribute) if n.attr == "requires_grad" and isinstance(n.ctx, ast.Store)]
    calls = [c for c in source.calls(".requires_grad_") if is_false(source, argument(source, c, "requires_grad", 0))]
    places = [*calls, *(n for n in stores if is_false(source, assigned_value(source, n) or UNKNOWN))]
    return not all(_is_an_option(source, place) for place in places)


def _is_an_option(source: Source, place: ast.AST) -> bool:
    """Whether a flag decides that it happens, as `if freeze:`."""
    around = [ancestor for ancestor in source.ancestors(place) if isinstance(ancestor, ast.If)]
    return any(isinstance(condition.test, (ast.Name, ast.Attribute)) for condition in around)


@check("PA402", call=ARGUMENTS_OF_TRAINER)
def trainer_not_fused(source: Source, call: ast.Call) -> Iterator[Seen]:
    """Hugging Face's Trainer with an AdamW that is not fused. Left out, it is the fused one from torch 2.8 on."""
    chosen = constant(source, argument(source, call, "optim"))
    if chosen not in UNFUSED_OF_TRAINER or is_test(source, call) or _LOADS_LITTLE.search(source.text):
        return
    if any(argument(source, call, name) is not ABSENT for name in ("deepspeed", "fsdp", "use_cpu", "no_cuda")):
        return
    yield Seen(
        call,
        f'`{source.brief(call.func)}` with `optim="{chosen}"` runs every operation of the update as kernels of its own',
        Proposal('give `optim="adamw_torch_fused"`, or leave `optim` out from torch 2.8 on'),
        severity=hint_if(not has_large_model(source)),
    )


def _updates_few_tensors(source: Source, call: ast.Call) -> bool:
    """Whether the parameters are a short list of tensors written out (a latent, an image), not those of a model."""
    parameters = argument(source, call, "params", 0)
    listed = resolve(source, parameters) if isinstance(parameters, ast.expr) else None
    if not isinstance(listed, (ast.List, ast.Tuple, ast.Set)) or len(listed.elts) > FEW:
        return False
    return not any(isinstance(item, (ast.Dict, ast.Call, ast.Starred)) for item in listed.elts)


def _never_gets_gradients(source: Source, call: ast.Call) -> bool:
    """Whether the model is built in the same function and does nothing there but list its parameters, as for a plot."""
    listed = argument(source, call, "params", 0)
    if not isinstance(listed, ast.Call) or not isinstance(listed.func, ast.Attribute):
        return False
    model, scope = listed.func.value, source.scope(call)
    if not isinstance(model, ast.Name) or not isinstance(scope, FUNCTIONS):
        return False
    bindings = source.lookup(model)
    built = assigned_value(source, bindings[0]) if len(bindings) == 1 else None
    if not isinstance(built, ast.Call) or source.scope(bindings[0]) is not scope:
        return False
    if (
        not (source.qualified_name(built.func) or "").startswith("torch.nn.")
        and local_class(source, built.func) is None
    ):
        return False
    return all(_lists_parameters(source, use) for use in source.uses_of(bindings[0], model.id))


def _lists_parameters(source: Source, use: ast.Name) -> bool:
    parent = source.parent(use)
    return isinstance(parent, ast.Attribute) and parent.attr == "parameters"


@remember  # the same for every optimizer of a file
def _has_unfused_parameters(source: Source) -> bool:
    """Whether the file shows what the fused update refuses: sparse gradients, complex parameters, another device."""
    if source.calls("torch.optim.SparseAdam"):
        return True
    if any(
        k.arg == "sparse" and not (isinstance(k.value, ast.Constant) and k.value.value is False)
        for k in source.nodes(ast.keyword)
    ):
        return True
    if any(attribute.attr in COMPLEX for attribute in source.nodes(ast.Attribute)):
        return True
    return any(name.partition(".")[0] in NO_FUSED for name in source.aliases.values())


def _belongs_to_lightning(source: Source, call: ast.Call) -> bool:
    return any(isinstance(a, FUNCTIONS) and a.name == "configure_optimizers" for a in source.ancestors(call))
