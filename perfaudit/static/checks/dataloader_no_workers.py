"""PA101: a DataLoader that loads every batch in the training process."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from perfaudit.findings import Edit
from perfaudit.static import edit
from perfaudit.static.registry import Proposal, Seen, check
from perfaudit.static.source import Source
from perfaudit.static.values import ABSENT, UNKNOWN, Argument, argument, constant, local_class

NUM_WORKERS = 5  # position of the parameter in DataLoader.__init__ of every torch since 1.0
START_WITH = 2  # workers; enough to overlap loading with the step, cheap where it does not pay; `tune` finds the number


@check("PA101", call="torch.utils.data.DataLoader")
def dataloader_no_workers(source: Source, call: ast.Call) -> Iterator[Seen]:
    workers = argument(source, call, "num_workers", NUM_WORKERS)
    if workers is not ABSENT and (workers is UNKNOWN or constant(source, workers) != 0):
        return
    batch_size = argument(source, call, "batch_size", 1)
    if batch_size is UNKNOWN or constant(source, batch_size) is None:  # batch_size=None: the dataset yields batches
        return
    dataset = argument(source, call, "dataset", 0)
    if isinstance(dataset, ast.expr) and _repeats_samples(source, dataset):
        return
    how = "without `num_workers`" if workers is ABSENT else "with `num_workers=0`"
    yield Seen(
        call,
        f"`{source.brief(call.func)}` {how} loads every batch in the training process, while the device waits",
        Proposal(
            f"load with {START_WITH} workers (`perfaudit tune --dataloader` finds the number)",
            _start_workers(source, call, workers),
        ),
    )


def _start_workers(source: Source, call: ast.Call, workers: Argument) -> tuple[Edit, ...] | None:
    """The call with workers; None where the 0 stands elsewhere (behind `**kw`, in a variable), which other calls may share."""
    if workers is ABSENT:
        return edit.add_keyword(source, call, "num_workers", str(START_WITH))
    if isinstance(workers, ast.Constant) and source.parent(workers) in (call, edit.keyword(call, "num_workers")):
        return edit.replace(source, workers, str(START_WITH))
    return None


def _repeats_samples(source: Source, dataset: ast.expr) -> bool:
    """Whether every worker would yield all samples: an iterable dataset of this file that does not ask which worker it is."""
    definition = local_class(source, dataset)
    if definition is None:
        return False
    bases = {source.qualified(base) for base in definition.bases}
    if "torch.utils.data.IterableDataset" not in bases:
        return False
    asks = "torch.utils.data.get_worker_info"
    return not any(
        source.qualified(n) == asks for n in ast.walk(definition) if isinstance(n, (ast.Name, ast.Attribute))
    )
