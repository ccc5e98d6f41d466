"""PA104: a copy of a pinned batch to the GPU for which the host waits."""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator

from perfaudit.static import edit
from perfaudit.static.checks.transfer_blocks_host.host_writes import host_may_write
from perfaudit.static.registry import Proposal, Seen, check
from perfaudit.static.source import Source
from perfaudit.static.understanding.context import runs_every_step
from perfaudit.static.understanding.devices import device_text, names_accelerator, uses_cuda
from perfaudit.static.understanding.loaders import LOADER, Part, batch_part
from perfaudit.static.understanding.values import ABSENT, argument, constant, is_true, resolve

BATCH_SIZE, COLLATE, PIN_MEMORY = 1, 6, 7  # positions in DataLoader.__init__ of every torch since 1.0
# A cast on the GPU gives these values, too.
SAME_EVERYWHERE = {"torch.float", "torch.float32", "torch.long", "torch.int64"}
STREAMS = ("torch.cuda.Stream", "torch.cuda.stream", "torch.cuda.default_stream", "torch.Stream")


@check("PA104", ast.Module)
def transfer_blocks_host(source: Source, _: ast.Module) -> Iterator[Seen]:
    if not any(_pins_tensors(source, call) for call in source.calls(LOADER)):
        return
    places: dict[int, list[ast.Call]] = {}
    for call in sorted([*source.calls(".to"), *source.calls(".cuda")], key=lambda c: source.span(c).end):
        part = _blocking_copy(source, call)
        if part is not None:
            places.setdefault(id(part.taken), []).append(call)
    if not places or not uses_cuda(source) or _has_doubtful_copies(source):
        return
    for calls in places.values():
        first = calls[0]
        also = f" and {len(calls) - 1} more" if len(calls) > 1 else ""
        yield Seen(
            first,
            f"`{source.brief(first)}`{also}: the batch is pinned, yet the host waits until it is copied",
            Proposal(
                "copy with `non_blocking=True`",
                edit.together(*(edit.add_keyword(source, call, "non_blocking", "True") for call in calls)),
            ),
            tuple(calls[1:]),
            hot=runs_every_step(source, first),
        )


def _pins_tensors(source: Source, call: ast.Call) -> bool:
    """Whether a loader surely pins on a machine with a GPU, and yields nothing with a `.to` of its own."""
    pinned = argument(source, call, "pin_memory", PIN_MEMORY)
    if not isinstance(pinned, ast.expr) or not (is_true(source, pinned) or _asks_for_gpu(source, pinned)):
        return False
    if argument(source, call, "collate_fn", COLLATE) is not ABSENT:
        return False
    batch_size = argument(source, call, "batch_size", BATCH_SIZE)
    return constant(source, batch_size) is not None


def _asks_for_gpu(source: Source, node: ast.expr) -> bool:
    """`torch.cuda.is_available()`, or `device.type == "cuda"`, also through a name."""
    value = resolve(source, node)
    if isinstance(value, ast.Call):
        return source.qualified(value.func) == "torch.cuda.is_available"
    if not isinstance(value, ast.Compare) or len(value.ops) != 1 or not isinstance(value.ops[0], ast.Eq):
        return False
    return device_text(value.comparators[0]) == "cuda"


def _blocking_copy(source: Source, call: ast.Call) -> Part | None:
    """The part of a pinned batch that a call copies to an accelerator while the host waits; None for any other call."""
    if not isinstance(call.func, ast.Attribute) or not _goes_to_device(source, call):
        return None
    part = batch_part(source, call.func.value)
    if part is None or not all(_pins_tensors(source, loader) for loader in part.loaders):
        return None
    if _may_be_encoding(source, call.func.value, part):
        return None
    goes = functools.partial(_goes_to_device, source)
    return None if host_may_write(source, call, part, goes) else part


def _goes_to_device(source: Source, call: ast.Call) -> bool:
    """Whether a call is `x.to(device)` or `x.cuda()`, and converts nothing that would come out otherwise on a GPU."""
    if not isinstance(call.func, ast.Attribute) or call.func.attr not in ("to", "cuda"):
        return False
    given = {k.arg: k.value for k in call.keywords}
    if call.func.attr == "cuda":
        return len(call.args) <= 1 and given.keys() <= {"device"} and not any(_is_starred(a) for a in call.args)
    if len(call.args) > 2 or not given.keys() <= {"device", "dtype", "copy", "memory_format"}:
        return False
    targets = [*call.args[:1], *(given[k] for k in ("device",) if k in given)]
    dtypes = [*call.args[1:], *(given[k] for k in ("dtype",) if k in given)]
    if len(targets) != 1 or any(source.qualified(dtype) not in SAME_EVERYWHERE for dtype in dtypes):
        return False
    return names_accelerator(source, targets[0])


def _is_starred(node: ast.expr) -> bool:
    return isinstance(node, ast.Starred)


def _may_be_encoding(source: Source, receiver: ast.expr, part: Part) -> bool:
    """Whether the receiver may be a mapping with a `.to` of its own, such as a tokenizer's BatchEncoding."""
    if not isinstance(receiver, ast.Name):
        return False
    if any(target.partition(".")[0] == "transformers" for target in source.aliases.values()):
        return True
    uses = [n for n in source.nodes(ast.Name) if n.id == receiver.id]
    return any(_is_mapping_use(source, use) for use in uses)


def _is_mapping_use(source: Source, use: ast.Name) -> bool:
    parent = source.parent(use)
    if isinstance(parent, ast.Subscript) and parent.value is use:
        return isinstance(parent.slice, ast.Constant) and isinstance(parent.slice.value, str)
    return isinstance(parent, ast.keyword) and parent.arg is None


def _has_doubtful_copies(source: Source) -> bool:
    """Whether copies may be read too early: from another stream, or on a Mac, where asynchronous copies lose data."""
    if any(source.calls(name) for name in STREAMS) or "cuda" not in source.text:
        return True
    return "mps" in source.text or "torch.accelerator" in source.text
