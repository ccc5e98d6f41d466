"""PA706: several processes that each load all the data."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from perfaudit.expressions import regex
from perfaudit.static.registry import Proposal, Seen, check
from perfaudit.static.source import Source
from perfaudit.static.understanding.distributed import ddp_calls
from perfaudit.static.understanding.values import ABSENT, argument, enclosing_function, is_true, local_class, resolve

# The data is shared out by something else: a launcher, a sampler in this file, a part of the dataset per process.
_SHARED_OUT = regex(
    r"Sampler|sampler|accelerat|lightning|fabric|deepspeed|horovod|\.shard\(|split_dataset|world_size\s*[\])]|\brank::"
    r"|partition|Subset"
)
_OTHER_DATA = regex(r"val|test|eval|calib|demo|fake|dummy|synthetic|random", re.IGNORECASE)


@check("PA706", call="torch.utils.data.DataLoader")
def sampler_missing(source: Source, call: ast.Call) -> Iterator[Seen]:
    if not ddp_calls(source) or not is_true(source, argument(source, call, "shuffle", 2)):
        return
    if any(argument(source, call, name, at) is not ABSENT for name, at in (("sampler", 3), ("batch_sampler", 4))):
        return
    dataset = argument(source, call, "dataset", 0)
    if not isinstance(dataset, ast.expr) or _knows_its_rank(source, dataset):
        return
    if _SHARED_OUT.search(_code(source)) or _OTHER_DATA.search(_around(source, call)):
        return
    if not source.calls(".backward"):
        return
    yield Seen(
        call,
        f"every process goes over all of `{source.brief(dataset, 30)}` in each epoch: nothing shares the samples out "
        "among the processes of `DistributedDataParallel`",
        Proposal(
            f"`sampler=DistributedSampler({source.brief(dataset, 30)})` in place of `shuffle=True`, and "
            "`loader.sampler.set_epoch(epoch)` before each epoch"
        ),
    )


def _code(source: Source) -> str:
    """The text without comments that stand on lines of their own."""
    return "\n".join(line for line in source.lines if not line.lstrip().startswith("#"))


def _around(source: Source, call: ast.Call) -> str:
    """What the loader is called, what it loads, and the function it stands in."""
    statement = source.statement(call)
    target = source.text_of(statement.targets[0]) if isinstance(statement, ast.Assign) else ""
    function = enclosing_function(source, call)
    dataset = call.args[0] if call.args else next((k.value for k in call.keywords if k.arg == "dataset"), None)
    made = resolve(source, dataset) if dataset is not None else None
    texts = [source.text_of(node) for node in (dataset, made) if node is not None]
    return " ".join([target, function.name if function else "", *texts])


def _knows_its_rank(source: Source, dataset: ast.expr) -> bool:
    """Whether the dataset is made for one process, or is no visible map of samples."""
    made = resolve(source, dataset) or dataset
    if re.search(r"rank|world|part|shard", source.text_of(made)):
        return True
    definition = local_class(source, dataset)
    return definition is not None and bool(re.search(r"rank|world", source.text_of(definition)))
