"""How a program trains on several devices: where DistributedDataParallel wraps the model, what shares the data out."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from perfaudit.static.context import NO_GRAD, backward_calls, is_test, last_name
from perfaudit.static.source import FUNCTIONS, Source

DDP = "torch.nn.parallel.DistributedDataParallel"

# Names of functions that wrap a model by themselves: `smart_DDP(model)`, `convert_to_ddp(model)`.
_WRAPS = re.compile(r"DistributedDataParallel|(^|_)(DDP|ddp)(_|$)|^FSDP$|FullyShardedDataParallel|^fully_shard$")

_MAKES_OPTIMIZER = re.compile(r"\boptim\.[A-Z]|\btorch\.optim\b")
_NO_TRAINING = re.compile(
    r"(^|_)(test|tests|eval|evaluate|evaluation|val|valid|validate|validation|verify|infer|inference|predict|demo|sample"
    r"|generate|fid|benchmark)(_|$|\d)"
)


def ddp_calls(source: Source) -> list[ast.Call]:
    """Calls of torch's DistributedDataParallel, in document order."""
    if "DistributedDataParallel" not in source.text:
        return []
    return source.calls(DDP)


def wraps_otherwise(source: Source) -> bool:
    """Whether the file calls something, of torch or not, that runs one process per device by its name."""
    return any(_WRAPS.search(last_name(call.func)) or _stands_for_ddp(source, call) for call in source.nodes(ast.Call))


def _stands_for_ddp(source: Source, call: ast.Call) -> bool:
    return bool(_WRAPS.search((source.qualified(call.func) or "").rpartition(".")[2]))


def only_evaluates(source: Source, call: ast.Call) -> bool:
    """Whether the model is wrapped to be looked at, in a test or to predict, as far as this file tells."""
    around = [a for a in source.ancestors(call) if isinstance(a, FUNCTIONS)]
    if is_test(source, call):
        return True
    backward = backward_calls(source)
    if any(_NO_TRAINING.search(function.name.lower()) for function in around):
        return not any(ancestor in around for step in backward for ancestor in source.ancestors(step))
    if backward:
        return False
    stem = source.path.rpartition("/")[2].removesuffix(".py").lower()
    is_script = source.enclosing(call, ast.ClassDef) is None and not _NO_TRAINING.search(stem)
    if "train" in stem or (is_script and _MAKES_OPTIMIZER.search(source.text)):  # the loop lies in another file
        return False
    folder = source.path.split("/")[-2:-1]
    if (
        _NO_TRAINING.search(stem)
        or folder in (["inference"], ["evaluation"])
        or (any(name in NO_GRAD for name in _called(source)) and not source.calls(".train"))
    ):
        return True
    main = next((n for n in source.tree.body if isinstance(n, ast.If) and "__main__" in source.text_of(n.test)), None)
    return main is not None and any(ancestor is main for ancestor in source.ancestors(call))  # tries out the model


def _called(source: Source) -> Iterator[str]:
    """What the file uses that turns gradients off, by its documented name."""
    for node in (*source.nodes(ast.Attribute), *source.nodes(ast.Name)):
        if last_name(node) in ("no_grad", "inference_mode"):
            yield source.qualified(node) or ""
