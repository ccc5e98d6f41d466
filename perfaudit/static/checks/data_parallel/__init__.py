"""PA701: one Python process that drives all GPUs."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from perfaudit.static.checks.data_parallel.program import Refused
from perfaudit.static.checks.data_parallel.ranks import launcher, patch, title
from perfaudit.static.registry import Proposal, Seen, check
from perfaudit.static.source import Source
from perfaudit.static.understanding.defaults import written_default
from perfaudit.static.understanding.distributed import derived_calls, only_evaluates, wraps_otherwise
from perfaudit.static.understanding.values import argument, resolve


@check(
    "PA701",
    call=(
        "torch.nn.DataParallel",
        "torch.nn.parallel.DataParallel",
        "torch.nn.parallel.data_parallel",
        "torch.nn.parallel.data_parallel.data_parallel",
    ),
)
def data_parallel(source: Source, call: ast.Call) -> Iterator[Seen]:
    yield from _check_call(source, call)


@check("PA701", ast.Module)
def derived_data_parallel(source: Source, module: ast.Module) -> Iterator[Seen]:
    if "DataParallel" in source.text or source.neighbours is not None:
        for call in derived_calls(source):
            yield from _check_call(source, call)


def _check_call(source: Source, call: ast.Call) -> Iterator[Seen]:
    if only_evaluates(source, call) or _runs_without_cuda(source, call):
        return
    is_function = (source.qualified_name(call.func) or "").endswith(".data_parallel")
    devices = argument(source, call, "device_ids", 2 if is_function else 1)
    devices = (resolve(source, devices) or devices) if isinstance(devices, ast.expr) else devices
    if isinstance(devices, (ast.List, ast.Tuple)) and len(devices.elts) <= 1:  # one device: called as it is
        return
    is_one = isinstance(devices, ast.expr) and _is_one_by_default(source, devices)
    model = source.brief(call.args[0], 30) if call.args else "model"
    message = f"`{source.brief(call)}` copies `{model}` to every GPU on each step, all driven by one Python process"
    if wraps_otherwise(source):
        advice = "start one process per GPU (`torchrun --nproc-per-node=gpu`), for which this file has a branch already"
        yield Seen(call, message, Proposal(advice), hint=is_one or wraps_otherwise(source, source.scope(call)))
        return
    try:
        yield Seen(call, message, Proposal(title(source), patch(source, call)), hint=is_one)
    except Refused as why:
        yield Seen(
            call,
            message,
            Proposal(
                f"run one process per GPU (`{launcher(source)}`) and wrap with "
                f"`torch.nn.parallel.DistributedDataParallel({model}, device_ids=[local_rank])`; no patch: {why}"
            ),
            hint=is_one,
        )


def _is_one_by_default(source: Source, devices: ast.expr) -> bool:
    """Whether the devices are a parameter with one device as its default, `gpu_ids=[0]`: the model is then called as it is."""
    written = written_default(source, devices)
    return isinstance(written, (ast.List, ast.Tuple)) and len(written.elts) == 1


def _runs_without_cuda(source: Source, call: ast.Call) -> bool:
    """Whether the call stands in the branch of a program for machines without CUDA, where it does nothing."""
    child: ast.AST = call
    for ancestor in source.ancestors(call):
        if isinstance(ancestor, ast.If) and isinstance(ancestor.test, ast.Call):
            is_else = any(item is child for item in ancestor.orelse)
            if is_else and source.qualified_name(ancestor.test.func) == "torch.cuda.is_available":
                return True
        child = ancestor
    return False
