"""Gathers the facts of the training that a child has built. Child only."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from perfaudit.machine.limits import physical_cores, usable_cores
from perfaudit.measure.facts import (
    Backward,
    CallSite,
    Device,
    Facts,
    HandedOn,
    Host,
    Loader,
    Model,
    Optimizer,
    Script,
    Trainer,
)
from perfaudit.target import freed_memory
from perfaudit.target.accelerator import Accelerator, accelerator_of
from perfaudit.target.blocks import repeated_blocks
from perfaudit.target.flags import flags
from perfaudit.target.overlay import digests
from perfaudit.target.provenance import Site, is_library
from perfaudit.target.real_paths import real_path
from perfaudit.target.working_folder import working_folder
from perfaudit.training.library_owners import Origin, plain_text


def facts_of(training: Any, strays: tuple[str, ...] = ()) -> Facts:  # Any: a Training that was built
    """Facts of a training that was built in this process."""
    site = training.optimizer_site if training.builds_own_optimizer else None
    return Facts(
        device=_device(accelerator_of(training.device), training),
        host=_host(),
        flags=flags(),
        loader=_loader(training),
        optimizer=_optimizer(
            training.optimizer,
            site,
            training.optimizer_origin(training.optimizer) if training.is_script else None,
        ),
        model=_model(
            training.model, training.compiled_sites, training.models if training.is_script else [training.model]
        ),
        non_blocking=training.non_blocking,
        has_ema=training.ema is not None,
        ema_site=_call_site(training.ema_site),
        step_autocast=_autocast_around(training.factories.get("step")),
        factories={role: getattr(f, "__qualname__", "") for role, f in training.factories.items()},
        factory_files={role: _file(f) for role, f in training.factories.items()},
        project_files=_project_files(),
        digests=digests(),
        strays=strays,
        trainer=_trainer(training.trainer),
        script=_script(training) if training.is_script else None,
    )


def _trainer(trainer: Any) -> Trainer | None:  # a training.trainers.Trainer
    if trainer is None:
        return None
    return Trainer(
        library=trainer.library,
        precision=trainer.precision,
        optimizer=trainer.optimizer,
        site=_call_site(trainer.site),
        refuses_bf16=trainer.refuses_bf16,
        options=trainer.options,
        option_prefix=trainer.option_prefix,
    )


def _script(training: Any) -> Script:
    return Script(
        models=tuple(tuple(names) for names in training.model_names),
        backward=tuple(
            Backward(site=site, forwards=tuple(sorted(lines.forwards)), others=tuple(sorted(lines.backwards)))
            for call, lines in training.backward_sites.items()
            if (site := _call_site(call)) is not None
        ),
        autocasts=tuple(sorted(training.autocasts)),
        autocasts_off=tuple(
            site
            for device, call in sorted(training.autocasts_off, key=str)
            if device == training.device.type and (site := _call_site(call)) is not None
        ),
        arguments=tuple(training.target.arguments or ()),
        optimizers=tuple(
            _optimizer(each, site, training.optimizer_origin(each)) for each, site in training.other_optimizers
        ),
    )


def _call_site(site: Site | None) -> CallSite | None:
    if site is None:
        return None
    call = site.calls[0]  # the one that passes its arguments on
    return CallSite(call.path, call.line, call.end_line, call.column, call.end_column)


def _device(accelerator: Accelerator, training: Any) -> Device:
    return Device(
        type=training.device.type,
        name=accelerator.name,
        driver=accelerator.driver,
        capability=accelerator.capability,
        room=_room(accelerator),
        phases_by_waiting=training.phases.needs_waits,
    )


def _host() -> Host:
    import torch

    return Host(
        torch=torch.__version__,
        threads=torch.get_num_threads(),
        cores=usable_cores(),
        physical_cores=physical_cores(),
        cxx=_cxx(),
        glibc=freed_memory.is_glibc(),
        keeps_memory=freed_memory.keeps_memory(),
        memory_variable=freed_memory.variable_set(),
    )


def _room(accelerator: Accelerator) -> int | None:
    """Bytes of the device that this training may have: what is free, and what it has taken of it so far."""
    free = accelerator.free_bytes()
    return None if free is None else free + (accelerator.reserved_bytes() or 0)


def _project_files() -> tuple[str, ...]:
    """Files of the modules loaded so far that lie below the folder of the command, relative to it; no library's."""
    here = os.path.realpath(working_folder()) + os.sep
    found = set()
    for module in list(sys.modules.values()):
        path = real_path(getattr(module, "__file__", None) or "")
        ours = path.endswith(".py") and path.startswith(here) and not is_library(path)
        if ours and Path(path).is_file():  # torch.ops says that it is in "_ops.py"
            found.add(os.path.relpath(path, here))
    return tuple(sorted(found))


def _loader(training: Any) -> Loader:
    import torch

    loader = training.loader
    if loader is None:  # a script that makes its batches itself
        return Loader(
            num_workers=0, pin_memory=False, prefetch_factor=None, persistent_workers=False, batch_size=None,
            iterable=True, epoch_batches=None, dataset_length=None, site=None, is_there=False,
        )  # fmt: skip
    return Loader(
        num_workers=loader.num_workers,
        pin_memory=bool(loader.pin_memory),
        prefetch_factor=loader.prefetch_factor,
        persistent_workers=bool(getattr(loader, "persistent_workers", False)),
        batch_size=loader.batch_size,
        iterable=isinstance(loader.dataset, torch.utils.data.IterableDataset),
        epoch_batches=training.epoch_batches,
        dataset_length=_length(loader.dataset),
        site=_call_site(training.loader_site),
        prefix=training.loader_prefix,
        owner=training.loader_owner,
        library_line=training.loader_library[0],
        called_at=_call_site(training.loader_library[1]),
        batch_sampler=_batch_sampler(loader),
    )


def _batch_sampler(loader: Any) -> str:
    """The class of what makes the batches of a loader without a batch size, "" for none."""
    sampler = loader.batch_sampler if loader.batch_size is None else None
    return type(sampler).__name__ if sampler is not None else ""


def _autocast_around(step: Any) -> str:
    """The type that the step factory runs its matmuls in by a decorator ("bfloat16"), "" without one."""
    import torch

    cells = [cell.cell_contents for cell in getattr(step, "__closure__", None) or () if is_filled(cell)]
    autocasts = [value for value in cells if isinstance(value, torch.autocast) and value._enabled]
    return str(autocasts[0].fast_dtype).removeprefix("torch.") if autocasts else ""


def is_filled(cell: Any) -> bool:
    """Whether a cell of a closure has been assigned."""
    try:
        cell.cell_contents  # noqa: B018  # the only way to ask
    except ValueError:
        return False
    return True


def _optimizer(optimizer: Any, site: Site | None, origin: Origin | None = None) -> Optimizer:
    first = optimizer.param_groups[0] if optimizer.param_groups else {}
    return Optimizer(
        name=type(optimizer).__name__,
        module=type(optimizer).__module__,
        fused=first.get("fused"),
        foreach=first.get("foreach"),
        takes=tuple(name for name in ("fused", "foreach") if name in first),
        fused_devices=_fused_devices(),
        site=_call_site(site),
        library_line=origin.place if origin is not None else "",
        handed_on=_handed_on(origin) if origin is not None else None,
        options={
            name: text
            for name, value in getattr(optimizer, "defaults", {}).items()  # of updates by hand there are none
            if name not in ("fused", "foreach") and (text := plain_text(value)) is not None
        },
    )


def _handed_on(origin: Origin) -> HandedOn | None:
    owner = origin.owner
    site = _call_site(owner.site) if owner is not None else None
    if owner is None or site is None:
        return None
    return HandedOn(
        owner=owner.name,
        site=site,
        path=owner.path,
        prefix=owner.prefix,
        kept=origin.kept or {},
        is_given=origin.is_given,
    )


def _fused_devices() -> tuple[str, ...]:
    """Devices on which this torch has fused optimizers; those of torch 2.4 where it does not say."""
    from torch.utils import _foreach_utils

    devices = getattr(_foreach_utils, "_get_fused_kernels_supported_devices", lambda: ["cuda", "cpu"])
    return tuple(devices())


def _model(model: Any, compiled_sites: Mapping[str, Site], called: Sequence[Any] = ()) -> Model:
    """Numbers of layers by kind, of parameters, and whether it is compiled or in the channels-last layout.

    called: the modules that it consists of, where a script trains several.
    """
    import torch

    convolutions = [m for m in model.modules() if isinstance(m, torch.nn.modules.conv._ConvNd)]
    # The weights whose strides tell the layout: with one input channel or 1 x 1 kernels both layouts are the same.
    kernels = [m.weight for m in convolutions if m.weight.dim() == 4 and max(m.kernel_size) > 1 < m.weight.shape[1]]
    parameters = list(model.parameters())
    return Model(
        parameters=sum(p.numel() for p in parameters),
        dtypes=tuple(sorted({str(p.dtype).removeprefix("torch.") for p in parameters})),
        convolutions=len(convolutions),
        planes=sum(1 for m in convolutions if isinstance(m, (torch.nn.Conv2d, torch.nn.ConvTranspose2d))),
        kernels=len(kernels),
        channels_last=bool(kernels) and all(k.is_contiguous(memory_format=torch.channels_last) for k in kernels),
        compiled=any(map(_is_compiled, called or [model])),
        compiled_sites={name: found for name, site in compiled_sites.items() if (found := _call_site(site))},
        dropouts=sum(1 for m in model.modules() if drops_values(m)),
        repeated=repeated_blocks(model),
        recomputes=any(getattr(m, "gradient_checkpointing", False) is True for m in model.modules()),
    )


def _is_compiled(model: Any) -> bool:
    return type(model).__name__ == "OptimizedModule" or getattr(model, "_compiled_call_impl", None) is not None


def drops_values(module: Any) -> bool:
    """Whether a module drops values at random: some attribute that says so ("p" of nn.Dropout, "drop_prob") is a share."""
    import torch

    named = vars(module).items()
    shares = [value for name, value in named if "drop" in name.lower() and isinstance(value, float)]
    if isinstance(module, torch.nn.modules.dropout._DropoutNd):
        shares.append(module.p)
    return any(share > 0 for share in shares)


def _cxx() -> str | None:
    """The C++ compiler that torch.compile would use for the CPU, None without one."""
    usual = "clang++" if sys.platform == "darwin" else "cl" if sys.platform == "win32" else "g++"
    return shutil.which(os.environ.get("CXX") or usual)


def _file(factory: Any) -> str | None:
    code = getattr(getattr(factory, "__wrapped__", factory), "__code__", None)
    return code.co_filename if code is not None else None


def _length(dataset: Any) -> int | None:
    try:
        return len(dataset)
    except TypeError:  # an iterable dataset without a length
        return None
