"""PA104: a copy of a pinned batch to the GPU for which the host waits."""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator
from typing import TYPE_CHECKING

from perfaudit.expressions import regex
from perfaudit.static import edit
from perfaudit.static.checks.transfer_blocks_host.fed_batches import fed_batches
from perfaudit.static.checks.transfer_blocks_host.pinned_loaders import (
    is_handed_pinned,
    is_of_pinned,
    is_pinned_by_setting,
    is_pinned_where_made,
    is_surely_pinned,
    pins_tensors,
    program_says,
)
from perfaudit.static.project.loader_marks import ASKED_TO_PIN
from perfaudit.static.registry import Proposal, Seen, check, hint_if
from perfaudit.static.source import FUNCTIONS, LOOPS, Source
from perfaudit.static.understanding.answers import remember
from perfaudit.static.understanding.devices import names_accelerator, uses_cuda
from perfaudit.static.understanding.evaluation import only_evaluates
from perfaudit.static.understanding.how_often import runs_every_step
from perfaudit.static.understanding.loaders import LOADER, perhaps_passes
from perfaudit.static.understanding.raises_today import raises_today
from perfaudit.static.understanding.same_memory import without_variable
from perfaudit.static.understanding.values import resolve

if TYPE_CHECKING:
    from perfaudit.static.checks.transfer_blocks_host.batch_parts import Part
    from perfaudit.static.checks.transfer_blocks_host.copies_elsewhere import HandedOn

# A cast on the GPU gives these values, too.
SAME_EVERYWHERE = {"torch.float", "torch.float32", "torch.long", "torch.int64"}
_MAC = regex(r"(?<![a-zA-Z])mps(?![a-zA-Z])")  # not of "ramps"
STREAMS = ("torch.cuda.Stream", "torch.cuda.stream", "torch.cuda.default_stream", "torch.Stream")


@check("PA104", ast.Module)
def transfer_blocks_host(source: Source, _: ast.Module) -> Iterator[Seen]:
    own = source.calls(LOADER)
    pins_here = any(pins_tensors(source, call) for call in own)
    pins_elsewhere = is_handed_pinned(source, own) or is_pinned_by_setting(source, own)
    may_be_made_pinned = bool(perhaps_passes(source)) and program_says(source, ASKED_TO_PIN)
    fed = list(fed_batches(source, _goes_to_device, pins_tensors))
    if not (pins_here or pins_elsewhere or may_be_made_pinned or fed):
        return
    # Imported here: most files have no pinned batch.
    from perfaudit.static.checks.transfer_blocks_host.copies_elsewhere import copies_elsewhere

    places: dict[int, list[tuple[ast.Call, Part]]] = {}
    for call in sorted([*source.calls(".to"), *source.calls(".cuda")], key=lambda c: source.span(c).end):
        part = _blocking_copy(source, call)
        if part is not None and (pins_here if part.loaders else pins_elsewhere or is_pinned_where_made(source, part)):
            places.setdefault(id(part.taken), []).append((call, part))
    handed: dict[int, list[HandedOn]] = {}
    for item in copies_elsewhere(source, _goes_to_device):
        part = item.part
        is_seen = pins_here and is_of_pinned(source, part)
        if is_seen if part.loaders else pins_elsewhere or is_pinned_where_made(source, part):
            handed.setdefault(id(part.taken), []).append(item)
    if not (places or handed or fed) or not uses_cuda(source) or _is_read_early(source):
        return
    is_hint = only_evaluates(source)
    for found in places.values():
        is_unreached = raises_today(source, found[0][0])  # where it runs, the argument may be `async`
        yield _seen_copies(source, [call for call, _ in found], found[0][1], is_hint or is_unreached)
    if _may_be_mac(source):
        return
    yield from fed
    for items in handed.values():
        yield _seen_elsewhere(source, items)


def _seen_elsewhere(source: Source, items: list[HandedOn]) -> Seen:
    """What is reported of a loop that hands its batches to functions of another file, which copy them."""
    first = items[0]
    there, also = first.there, f" and {len(items) - 1} more" if len(items) > 1 else ""
    where = f"`{there.function.name}`, {there.source.path} line {first.copy.lineno}{also}"
    return Seen(
        first.call,
        f"`{there.source.brief(first.copy)}` in {where}: {_who_pins(source, first.part)}, yet the host waits until it is copied",
        Proposal("copy with `non_blocking=True` there, if nobody writes into the batch behind it"),
        tuple(item.call for item in items[1:]),
        hot=runs_every_step(source, first.call),
    )


def _who_pins(source: Source, part: Part) -> str:
    is_in_sight = bool(part.loaders) or is_pinned_where_made(source, part)
    return "the batch is pinned" if is_in_sight else "the loaders of this program pin their batches"


def _seen_copies(source: Source, calls: list[ast.Call], part: Part, is_hint: bool) -> Seen:
    """What is reported of the copies of one batch."""
    first = calls[0]
    also = f" and {len(calls) - 1} more" if len(calls) > 1 else ""
    # Imported here: most files have no such copy.
    from perfaudit.static.checks.transfer_blocks_host.evaluations import evaluates, waits_anyway

    title = "copy with `non_blocking=True`"
    is_helper = any(_is_in_function_of_its_own(source, call, part) for call in calls)
    if _may_be_mac(source):
        title, edits = f"{title} where the device is CUDA: on a Mac, asynchronous copies have lost data", None
    elif part.loaders and is_helper:
        title, edits = f"{title}, if nobody writes into the batch behind it", None
    elif _imports_transformers(source) and any(isinstance(_copied_tensor(source, call), ast.Name) for call in calls):
        title, edits = f"{title}, where what is copied are tensors", None
    elif not part.loaders and not is_surely_pinned(source, first, part):
        title, edits = f"{title}, where the batches are pinned", None
    elif part.loaders or not program_says(source, "collating loaders"):
        edits = edit.together(*(edit.add_keyword(source, call, "non_blocking", "True") for call in calls))
    else:
        title, edits = f"{title}, where what is collated are tensors", None
    return Seen(
        first,
        f"`{source.brief(first)}`{also}: {_who_pins(source, part)}, yet the host waits until it is copied",
        Proposal(title, edits),
        tuple(calls[1:]),
        hot=runs_every_step(source, first),
        severity=hint_if(
            is_hint
            or _is_taken_once(source, first, part)
            or waits_anyway(source, part)
            or _is_waited_for(source, calls[-1])
            or (is_helper and isinstance(part.taken, ast.For) and evaluates(source, part.taken))
        ),
    )


def _is_waited_for(source: Source, copy: ast.Call) -> bool:
    """Whether the program waits for the device right behind a copy, to take the time: nothing runs beside it."""
    own = source.statement(copy)
    behind = [item for item in source.block(own) if source.span(item).start > source.span(own).end][:1]
    return any(
        isinstance(item, ast.Expr)
        and isinstance(item.value, ast.Call)
        and source.qualified_name(item.value.func) == "torch.cuda.synchronize"
        for item in behind
    )


def _is_taken_once(source: Source, call: ast.Call, part: Part) -> bool:
    """Whether a module takes one batch at its top level, outside of any loop: a picture, with nothing to copy beside.

    Or a loop takes one, because its body ends with a `return` or a `break`.
    """
    places = (call, part.taken)
    ends = part.taken.body[-1] if isinstance(part.taken, ast.For) else None
    if isinstance(ends, (ast.Return, ast.Break)) and not any(isinstance(n, ast.Continue) for n in ast.walk(part.taken)):
        return True
    return source.scope(call) is source.tree and not any(
        isinstance(place, LOOPS) or source.enclosing(place, *LOOPS) for place in places
    )


def _blocking_copy(source: Source, call: ast.Call) -> Part | None:
    """The part of a pinned batch that a call copies to an accelerator while the host waits; None for any other call."""
    if not isinstance(call.func, ast.Attribute) or not _goes_to_device(source, call):
        return None
    from perfaudit.static.checks.transfer_blocks_host.batch_parts import batch_part  # as above

    part = batch_part(source, call.func.value)
    copied = without_variable(source, call.func.value)
    if part is None or not is_of_pinned(source, part, _key_taken(source, copied)):
        return None
    if _may_be_encoding(source, copied):
        return None
    is_whole = not part.loaders and not _is_picked_out(source, copied) and not _is_taken_apart(source, part)
    if is_whole and program_says(source, "collating loaders"):
        return None
    goes = functools.partial(_goes_to_device, source)
    if not any(around is part.taken for around in source.ancestors(call)) and _is_in_function_of_its_own(
        source, call, part
    ):
        return part  # a helper that is handed the batch: advice
    if _is_handed_out(source, call):
        return part  # advice, too
    # Imported here: most files copy no pinned batch.
    from perfaudit.static.checks.transfer_blocks_host.host_writes import host_may_write

    return None if host_may_write(source, call, part, goes) else part


def _key_taken(source: Source, node: ast.expr) -> str:
    """The key under which what is copied stands in its batch: of `batch["image"]`, also through a name; "" if not known."""
    value = resolve(source, node)
    if not isinstance(value, ast.Subscript) or not isinstance(value.slice, ast.Constant):
        return ""
    from perfaudit.static.checks.transfer_blocks_host.batch_parts import batch_part  # as above

    whole = batch_part(source, value.value)
    is_whole = whole is not None and len(whole.names) == 1 and isinstance(value.value, ast.Name)
    return value.slice.value if is_whole and isinstance(value.slice.value, str) else ""


def _is_in_function_of_its_own(source: Source, call: ast.Call, part: Part) -> bool:
    return source.enclosing(call, *FUNCTIONS) is not source.enclosing(part.taken, *FUNCTIONS)


def _is_handed_out(source: Source, call: ast.Call) -> bool:
    """Whether a copy stands in the `return` of a `__next__`, which hands a batch that it took to the steps of others."""
    function = source.enclosing(call, *FUNCTIONS)
    return (
        isinstance(function, FUNCTIONS)
        and function.name == "__next__"
        and isinstance(source.statement(call), ast.Return)
    )


def _is_picked_out(source: Source, node: ast.expr) -> bool:
    """Whether a name is one part of a batch that was taken apart, `x` of `x, y = batch`: a tensor, as good as always."""
    bindings = source.lookup(node) if isinstance(node, ast.Name) else []
    return any(isinstance(source.parent(binding), (ast.Tuple, ast.List, ast.comprehension)) for binding in bindings)


def _is_taken_apart(source: Source, part: Part) -> bool:
    """Whether the loop takes each batch apart: `for x, y in loader`."""
    own = [one for one in perhaps_passes(source) if one.loop is part.taken]
    return any(isinstance(one.batch, (ast.Tuple, ast.List)) for one in own)


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
    if len(targets) != 1 or any(source.qualified_name(dtype) not in SAME_EVERYWHERE for dtype in dtypes):
        return False
    return names_accelerator(source, targets[0])


def _is_starred(node: ast.expr) -> bool:
    return isinstance(node, ast.Starred)


def _may_be_encoding(source: Source, receiver: ast.expr) -> bool:
    """Whether the receiver may be a mapping with a `.to` of its own, such as a tokenizer's BatchEncoding."""
    if not isinstance(receiver, ast.Name):
        return False
    if _imports_transformers(source) and not _is_picked_out(source, receiver):
        return True
    uses = _mapping_uses(source).get(receiver.id, ())
    return any(_may_be_one(source, receiver, use) for use in uses)


@remember
def _mapping_uses(source: Source) -> dict[str, list[ast.Name]]:
    """Where a name is used as a mapping, by name."""
    table: dict[str, list[ast.Name]] = {}
    for name in source.nodes(ast.Name):
        if _is_mapping_use(source, name):
            table.setdefault(name.id, []).append(name)
    return table


def _imports_transformers(source: Source) -> bool:
    return any(target.partition(".")[0] == "transformers" for target in source.aliases.values())


def _copied_tensor(source: Source, call: ast.Call) -> ast.expr | None:
    return without_variable(source, call.func.value) if isinstance(call.func, ast.Attribute) else None


def _may_be_one(source: Source, receiver: ast.Name, use: ast.Name) -> bool:
    """Whether two names of one spelling may mean one object: not what another function binds to something of its own."""
    if source.scope(use) in (source.scope(receiver), source.tree):
        return True
    return any(isinstance(binding, ast.arg) or source.scope(binding) is source.tree for binding in source.lookup(use))


def _is_mapping_use(source: Source, use: ast.Name) -> bool:
    parent = source.parent(use)
    if isinstance(parent, ast.Subscript) and parent.value is use:
        return isinstance(parent.slice, ast.Constant) and isinstance(parent.slice.value, str)
    return isinstance(parent, ast.keyword) and parent.arg is None


def _is_read_early(source: Source) -> bool:
    """Whether copies may be read too early, from another stream, or nothing says that the device is CUDA's."""
    if any(source.calls(name) for name in STREAMS):
        return True
    if "cuda" in source.text or program_says(source, "cuda") or "torch.accelerator" in source.text:
        return False
    return not _is_cuda_by_settings(source)


def _is_cuda_by_settings(source: Source) -> bool:
    """Whether settings files name the device, `"device": "cuda:0"`, and all of them CUDA's."""
    named = (source.neighbours.settings("device") if source.neighbours is not None else None) or ()
    return bool(named) and all(str(found.setting.value).startswith("cuda") for found in named)


@remember
def _may_be_mac(source: Source) -> bool:
    """Whether the program may run on a Mac, too, where asynchronous copies lose data."""
    if "cuda" not in source.text and program_says(source, "mac"):
        return True
    return _MAC.search(source.text) is not None or "torch.accelerator" in source.text
