"""PA705: batch norm over the few samples that one of several processes sees."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from perfaudit.expressions import regex
from perfaudit.static.registry import Proposal, Seen, check
from perfaudit.static.source import Source
from perfaudit.static.understanding.distributed import ddp_calls
from perfaudit.static.understanding.values import argument, constant

SMALL = 16  # samples per process; below about that the error of batch norm grows fast (Wu & He, 2018, figure 1)
_HANDLED = regex(r"sync_?b|sync_batch|Frozen|freeze_bn|bn_freeze|GroupNorm|accelerat|lightning", re.IGNORECASE)
_NO_TRAINING = regex(r"val|test|eval|calib", re.IGNORECASE)


@check("PA705", call=tuple(f"torch.nn.BatchNorm{n}d" for n in (2, 3)))
def batchnorm_not_synchronised(source: Source, call: ast.Call) -> Iterator[Seen]:
    if not ddp_calls(source) or source.says(_HANDLED):
        return
    first = min((c for n in (2, 3) for c in source.calls(f"torch.nn.BatchNorm{n}d")), key=lambda c: c.lineno)
    if call is not first:  # one finding for the model
        return
    samples = _samples_per_process(source)
    if samples is None or samples >= SMALL:
        return
    yield Seen(
        call,
        f"`{source.brief(call)}` takes mean and variance of the {samples} samples of one process: noisy, and another "
        "in every process",
        Proposal("`model = torch.nn.SyncBatchNorm.convert_sync_batchnorm(model)` before DistributedDataParallel"),
    )


def _samples_per_process(source: Source) -> int | None:
    """The batch size that every loader of training data in the file is given as a number; None if it varies or is none."""
    sizes = set()
    for loader in source.calls("torch.utils.data.DataLoader"):
        if _NO_TRAINING.search(source.text_of(source.statement(loader)).partition("\n")[0]):
            continue
        sizes.add(constant(source, argument(source, loader, "batch_size", 1)))
    size = next(iter(sizes)) if len(sizes) == 1 else None
    return size if isinstance(size, int) and size > 0 else None
