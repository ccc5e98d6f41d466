"""PA701: one Python process that drives all GPUs."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from perfaudit.static.context import in_no_grad
from perfaudit.static.registry import Proposal, Seen, check
from perfaudit.static.source import Source
from perfaudit.static.values import argument, resolve

_DISTRIBUTED = re.compile(r"DistributedDataParallel|(?<![A-Za-z])DDP\b")


@check("PA701", call=("torch.nn.DataParallel", "torch.nn.parallel.DataParallel", "torch.nn.parallel.data_parallel"))
def data_parallel(source: Source, call: ast.Call) -> Iterator[Seen]:
    if _DISTRIBUTED.search(source.text):  # there is another branch, and whoever runs this one chose to
        return
    if not source.calls(".backward") and any(in_no_grad(source, node) for node in source.nodes(ast.For)):  # evaluation
        return
    is_function = source.qualified(call.func) == "torch.nn.parallel.data_parallel"
    devices = argument(source, call, "device_ids", 2 if is_function else 1)
    devices = (resolve(source, devices) or devices) if isinstance(devices, ast.expr) else devices
    if isinstance(devices, ast.List) and len(devices.elts) <= 1:  # one device: the module is called as it is
        return
    model = source.brief(call.args[0], 30) if call.args else "model"
    yield Seen(
        call,
        f"`{source.brief(call)}` copies `{model}` to every GPU on each step, all driven by one Python process",
        Proposal(
            f"run one process per GPU (`torchrun --nproc_per_node=gpu`) and wrap with "
            f"`torch.nn.parallel.DistributedDataParallel({model}, device_ids=[local_rank])`"
        ),
    )
