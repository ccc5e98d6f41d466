"""PA104: a copy of a pinned batch to the GPU for which the host waits."""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator, Sequence

from perfaudit.expressions import regex
from perfaudit.static import edit
from perfaudit.static.checks.transfer_blocks_host.copies_elsewhere import HandedOn, copies_elsewhere
from perfaudit.static.checks.transfer_blocks_host.evaluations import evaluates, waits_anyway
from perfaudit.static.checks.transfer_blocks_host.fed_batches import fed_batches
from perfaudit.static.checks.transfer_blocks_host.host_writes import host_may_write
from perfaudit.static.checks.transfer_blocks_host.loaders_elsewhere import loaders_elsewhere
from perfaudit.static.checks.transfer_blocks_host.option_of_gpu import is_off_by_option_only
from perfaudit.static.project.loader_marks import (
    ASKED_TO_PIN,
    PINNED_BY_PARAMETER,
    PINNING_OFF,
    PINNING_ON,
    SURELY_PAGEABLE,
)
from perfaudit.static.registry import Proposal, Seen, check
from perfaudit.static.source import FUNCTIONS, LOOPS, Function, Source
from perfaudit.static.understanding.batch_parts import (
    Part,
    batch_part,
    holds_tensors,
    is_made_on_host,
    unseen_takes,
    without_variable,
)
from perfaudit.static.understanding.devices import asks_for_gpu, device_text, names_accelerator, uses_cuda
from perfaudit.static.understanding.elsewhere import method_meant
from perfaudit.static.understanding.evaluation import only_evaluates
from perfaudit.static.understanding.how_often import runs_every_step
from perfaudit.static.understanding.loaders import LOADER, passes, perhaps_passes, unseen_passes
from perfaudit.static.understanding.names import last_name
from perfaudit.static.understanding.values import (
    ABSENT,
    Argument,
    argument,
    assigned_value,
    constant,
    dict_items,
    is_true,
    resolve,
)

BATCH_SIZE, COLLATE, PIN_MEMORY = 1, 6, 7  # positions in DataLoader.__init__ of every torch since 1.0
# A cast on the GPU gives these values, too.
SAME_EVERYWHERE = {"torch.float", "torch.float32", "torch.long", "torch.int64"}
_PIN_SETTING = regex(r"pin_mem(ory)?")
_MAC = regex(r"(?<![a-zA-Z])mps(?![a-zA-Z])")  # not of "ramps"
STREAMS = ("torch.cuda.Stream", "torch.cuda.stream", "torch.cuda.default_stream", "torch.Stream")


@check("PA104", ast.Module)
def transfer_blocks_host(source: Source, _: ast.Module) -> Iterator[Seen]:
    own = source.calls(LOADER)
    pins_here = any(_pins_tensors(source, call) for call in own)
    pins_elsewhere = _is_handed_pinned(source, own) or _is_pinned_by_setting(source, own)
    may_be_made_pinned = bool(perhaps_passes(source)) and _program_says(source, "pinned loaders")
    fed = list(fed_batches(source, _goes_to_device, _pins_tensors))
    if not (pins_here or pins_elsewhere or may_be_made_pinned or fed):
        return
    places: dict[int, list[tuple[ast.Call, Part]]] = {}
    for call in sorted([*source.calls(".to"), *source.calls(".cuda")], key=lambda c: source.span(c).end):
        part = _blocking_copy(source, call)
        if part is not None and (pins_here if part.loaders else pins_elsewhere or _is_pinned_where_made(source, part)):
            places.setdefault(id(part.taken), []).append((call, part))
    handed: dict[int, list[HandedOn]] = {}
    for item in copies_elsewhere(source, _goes_to_device):
        part = item.part
        is_seen = pins_here and _is_of_pinned(source, part)
        if is_seen if part.loaders else pins_elsewhere or _is_pinned_where_made(source, part):
            handed.setdefault(id(part.taken), []).append(item)
    if not (places or handed or fed) or not uses_cuda(source) or _has_doubtful_copies(source):
        return
    yield from fed
    is_hint = only_evaluates(source)
    for found in places.values():
        yield _seen_copies(source, [call for call, _ in found], found[0][1], is_hint)
    for items in handed.values():
        yield _seen_elsewhere(source, items)


def _is_of_pinned(source: Source, part: Part) -> bool:
    return all(_pins_tensors(source, loader, part) for loader in part.loaders)


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
    is_in_sight = bool(part.loaders) or _is_pinned_where_made(source, part)
    return "the batch is pinned" if is_in_sight else "the loaders of this program pin their batches"


def _seen_copies(source: Source, calls: list[ast.Call], part: Part, is_hint: bool) -> Seen:
    """What is reported of the copies of one batch."""
    first = calls[0]
    also = f" and {len(calls) - 1} more" if len(calls) > 1 else ""
    title = "copy with `non_blocking=True`"
    is_helper = any(_is_in_function_of_its_own(source, call, part) for call in calls)
    if part.loaders and is_helper:
        title, edits = f"{title}, if nobody writes into the batch behind it", None
    elif _imports_transformers(source) and any(isinstance(_copied_tensor(source, call), ast.Name) for call in calls):
        title, edits = f"{title}, where what is copied are tensors", None
    elif not part.loaders and not _is_surely_pinned(source, first, part):
        title, edits = f"{title}, where the batches are pinned", None
    elif part.loaders or not _program_says(source, "collating loaders"):
        edits = edit.together(*(edit.add_keyword(source, call, "non_blocking", "True") for call in calls))
    else:
        title, edits = f"{title}, where what is collated are tensors", None
    return Seen(
        first,
        f"`{source.brief(first)}`{also}: {_who_pins(source, part)}, yet the host waits until it is copied",
        Proposal(title, edits),
        tuple(calls[1:]),
        hot=runs_every_step(source, first),
        hint=is_hint
        or _is_taken_once(source, first, part)
        or waits_anyway(source, part)
        or _is_waited_for(source, calls[-1])
        or (is_helper and isinstance(part.taken, ast.For) and evaluates(source, part.taken)),
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
    """Whether a module takes one batch at its top level, outside of any loop: a picture, with nothing to copy beside."""
    places = (call, part.taken)
    return source.scope(call) is source.tree and not any(
        isinstance(place, LOOPS) or source.enclosing(place, *LOOPS) for place in places
    )


def _is_pinned_where_made(source: Source, part: Part) -> bool:
    """Whether a loop runs over loaders that other files make, and all of them pin what torch's own function collates."""
    if part.loaders or not _program_says(source, "pinned loaders"):
        return False
    own = [one for one in perhaps_passes(source) if one.loop is part.taken]
    made = loaders_elsewhere(source, own[0].over) if len(own) == 1 else []
    return bool(made) and all(
        _pins_tensors(there, call)
        and ((collate := argument(there, call, "collate_fn", COLLATE)) is ABSENT or _collates_as_usual(there, collate))
        for there, call in made
    )


def _is_handed_pinned(source: Source, own: Sequence[ast.Call]) -> bool:
    """Whether a training loop runs over what other files hand in, and every loader of the program pins."""
    if not (unseen_passes(source) or unseen_takes(source)) or not all(_pins_tensors(source, call) for call in own):
        return False
    if _program_says(source, PINNED_BY_PARAMETER) and _program_says(source, PINNING_OFF):
        return False
    return _program_says(source, "pinned loaders") and not _program_says(source, "pageable loaders")


def _is_pinned_by_setting(source: Source, own: Sequence[ast.Call]) -> bool:
    """Whether every loader of the program pins by itself or as a setting has it, which is True wherever it is written."""
    if not perhaps_passes(source) or any(_is_pageable(source, call) for call in own):
        return False
    if _program_says(source, SURELY_PAGEABLE) or _program_says(source, PINNING_OFF):
        return False
    if not _program_says(source, ASKED_TO_PIN):
        return False
    return _program_says(source, PINNING_ON) or (not own and _program_says(source, "pinned loaders"))


def _is_pageable(source: Source, call: ast.Call) -> bool:
    pinned = argument(source, call, "pin_memory", PIN_MEMORY)
    return pinned is ABSENT or (isinstance(pinned, ast.expr) and constant(source, pinned) is False)


def _is_surely_pinned(source: Source, copy: ast.Call, part: Part) -> bool:
    """Whether what is copied is a batch that another file hands in, of a program whose loaders pin in any case."""
    if _is_handed_pinned(source, source.calls(LOADER)):
        is_sure = any(one.loop is part.taken for one in unseen_passes(source))
    else:
        is_sure = _is_pinned_where_made(source, part)
    return is_sure and any(around is part.taken for around in source.ancestors(copy))


def _program_says(source: Source, mark: str) -> bool:
    return source.neighbours is not None and source.neighbours.program_carries(mark)


def _pins_tensors(source: Source, call: ast.Call, part: Part | None = None) -> bool:
    """Whether a loader surely pins on a machine with a GPU, and this part of its batches has no `.to` of its own.

    Without a part, whether it yields tensors at all.
    """
    pinned = argument(source, call, "pin_memory", PIN_MEMORY)
    if isinstance(pinned, ast.expr):
        asks = _asks_for_gpu(source, pinned) or _is_switched_on(source, pinned) or is_off_by_option_only(source, pinned)
        if not (is_true(source, pinned) or asks or _is_on_by_setting(source, pinned)):
            return False
    elif pinned is ABSENT or not _is_pinned_by_key(source, call):
        return False
    collate = argument(source, call, "collate_fn", COLLATE)
    if collate is not ABSENT and not _collates_as_usual(source, collate):
        tensors = _tensors_returned(source, collate) if isinstance(collate, ast.expr) else []
        if not any(tensors) or (part is not None and not _is_one_of(source, part, tensors)):
            return False
    batch_size = argument(source, call, "batch_size", BATCH_SIZE)
    return constant(source, batch_size) is not None


def _is_on_by_setting(source: Source, node: ast.expr) -> bool:
    """Whether a setting says it, `config.PIN_MEM`, that the program writes as True wherever it writes one."""
    is_setting = isinstance(node, ast.Attribute) and _PIN_SETTING.fullmatch(last_name(node).lower()) is not None
    return is_setting and _program_says(source, PINNING_ON) and not _program_says(source, PINNING_OFF)


def _is_switched_on(source: Source, node: ast.expr) -> bool:
    """Whether a flag is False at first and set to True where there is a GPU: `if torch.cuda.is_available(): args.pin = True`."""
    if isinstance(node, ast.Attribute):
        stores: list[ast.AST] = [a for a in source.nodes(ast.Attribute) if a.attr == node.attr and _is_stored(a)]
    else:
        stores = list(source.lookup(node)) if isinstance(node, ast.Name) else []
    on = [store for store in stores if _is_set_to(source, store, value=True)]
    off = [store for store in stores if _is_set_to(source, store, value=False)]
    if not on or len(on) + len(off) < len(stores) or any(source.enclosing(store, ast.If) for store in off):
        return False
    last = max(source.span(store).end for store in off) if off else 0
    return all(source.span(store).start > last and _is_under_gpu_test(source, store) for store in on)


def _is_stored(node: ast.Attribute) -> bool:
    return isinstance(node.ctx, ast.Store)


def _is_set_to(source: Source, store: ast.AST, *, value: bool) -> bool:
    written = assigned_value(source, store)
    return isinstance(written, ast.Constant) and written.value is value


def _is_under_gpu_test(source: Source, node: ast.AST) -> bool:
    around = source.enclosing(node, ast.If)
    if not isinstance(around, ast.If) or not any(source.statement(node) is item for item in around.body):
        return False
    joined = isinstance(around.test, ast.BoolOp) and isinstance(around.test.op, ast.And)
    tests = around.test.values if joined and isinstance(around.test, ast.BoolOp) else [around.test]
    return any(asks_for_gpu(source, test) for test in tests)


def _collates_as_usual(source: Source, collate: Argument) -> bool:
    """Whether a collate function is torch's own one, or returns in any case what that makes of the samples it has padded."""
    if not isinstance(collate, ast.expr):
        return False
    if _is_default_collate(source, collate):
        return True
    there, function = _function_meant(source, collate)
    if function is None:
        return False
    returned = [n.value for n in ast.walk(function) if isinstance(n, ast.Return) and there.scope(n) is function]
    return bool(returned) and all(isinstance(v, ast.Call) and _is_default_collate(there, v.func) for v in returned)


def _is_default_collate(source: Source, node: ast.expr) -> bool:
    name = source.qualified_name(node) or ""
    return name.startswith("torch.utils.data.") and name.endswith(".default_collate")


def _function_meant(source: Source, collate: ast.expr) -> tuple[Source, Function | None]:
    """The function of the project that an expression stands for, and its file."""
    found: list[ast.AST] = list(source.lookup(collate)) if isinstance(collate, ast.Name) else []
    there = source
    if not found and source.neighbours is not None and (dotted := source.qualified_name(collate)):
        defined = source.neighbours.definition_of(dotted)
        there, found = (defined[0], [defined[1]]) if defined is not None else (source, [])
    if not found and isinstance(collate, ast.Attribute) and (method := method_meant(source, collate)) is not None:
        there, found = method[0], [method[1]]
    only = found[0] if len(found) == 1 else None
    return there, only if isinstance(only, FUNCTIONS) else None


def _tensors_returned(source: Source, collate: ast.expr) -> list[bool]:
    """Which elements of the tuple that a collate function of the project returns are tensors that it makes itself."""
    there, function = _function_meant(source, collate)
    if function is None:
        return []
    returned = [n.value for n in ast.walk(function) if isinstance(n, ast.Return) and there.scope(n) is function]
    tuples = [value.elts for value in returned if isinstance(value, ast.Tuple)]
    if not tuples or len(tuples) < len(returned) or len({len(elements) for elements in tuples}) > 1:
        return []
    return [
        all(is_made_on_host(there, element) or holds_tensors(there, element) for element in elements)
        for elements in zip(*tuples, strict=True)
    ]


def _is_one_of(source: Source, part: Part, tensors: list[bool]) -> bool:
    """Whether a part of a batch is one of its elements that are tensors, as the loop takes it apart."""
    if all(tensors):
        return True
    own = [one.batch for one in passes(source) if one.loop is part.taken]
    elements = own[0].elts if len(own) == 1 and isinstance(own[0], (ast.Tuple, ast.List)) else []
    if len(elements) != len(tensors):
        return False
    named = [
        is_tensor for element, is_tensor in zip(elements, tensors, strict=True) if last_name(element) in part.names
    ]
    return bool(named) and all(named)


def _is_pinned_by_key(source: Source, call: ast.Call) -> bool:
    """Whether a dict that the call unpacks has the key where there is a GPU, and the file gives it no value but True."""
    dicts = [dict_items(source, keyword.value) for keyword in call.keywords if keyword.arg is None]
    if not any(items is not None and "pin_memory" in items for items in dicts):
        return False
    values = [k.value for k in source.nodes(ast.keyword) if k.arg == "pin_memory"]
    for node in source.nodes(ast.Dict):
        values += [v for k, v in zip(node.keys, node.values, strict=True) if _is_key(k)]
    for target in source.nodes(ast.Subscript):
        if isinstance(target.ctx, ast.Store) and _is_key(target.slice):
            value = assigned_value(source, target)
            if value is None:
                return False
            values.append(value)
    return all(is_true(source, value) or _asks_for_gpu(source, value) for value in values)


def _is_key(node: ast.expr | None) -> bool:
    return isinstance(node, ast.Constant) and node.value == "pin_memory"


def _asks_for_gpu(source: Source, node: ast.expr) -> bool:
    """`torch.cuda.is_available()`, or `device.type == "cuda"`, also through a name."""
    value = resolve(source, node)
    if isinstance(value, ast.Call):
        return source.qualified_name(value.func) == "torch.cuda.is_available"
    if not isinstance(value, ast.Compare) or len(value.ops) != 1 or not isinstance(value.ops[0], ast.Eq):
        return False
    return device_text(value.comparators[0]) == "cuda"


def _blocking_copy(source: Source, call: ast.Call) -> Part | None:
    """The part of a pinned batch that a call copies to an accelerator while the host waits; None for any other call."""
    if not isinstance(call.func, ast.Attribute) or not _goes_to_device(source, call):
        return None
    part = batch_part(source, call.func.value)
    if part is None or not _is_of_pinned(source, part):
        return None
    copied = without_variable(source, call.func.value)
    if _may_be_encoding(source, copied):
        return None
    is_whole = not part.loaders and not _is_picked_out(source, copied) and not _is_taken_apart(source, part)
    if is_whole and _program_says(source, "collating loaders"):
        return None
    goes = functools.partial(_goes_to_device, source)
    if not any(around is part.taken for around in source.ancestors(call)) and _is_in_function_of_its_own(
        source, call, part
    ):
        return part  # a helper that is handed the batch: advice
    return None if host_may_write(source, call, part, goes) else part


def _is_in_function_of_its_own(source: Source, call: ast.Call, part: Part) -> bool:
    return source.enclosing(call, *FUNCTIONS) is not source.enclosing(part.taken, *FUNCTIONS)


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
    uses = [n for n in source.nodes(ast.Name) if n.id == receiver.id and _may_be_one(source, receiver, n)]
    return any(_is_mapping_use(source, use) for use in uses)


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


def _has_doubtful_copies(source: Source) -> bool:
    """Whether copies may be read too early: from another stream, or on a Mac, where asynchronous copies lose data."""
    if any(source.calls(name) for name in STREAMS):
        return True
    if "cuda" not in source.text and (not _program_says(source, "cuda") or _program_says(source, "mac")):
        return True
    return _MAC.search(source.text) is not None or "torch.accelerator" in source.text
