"""Copies in a method that the loops of other files hand their batches: `model.feed_data(batch)`, `model.set_input(batch)`."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from perfaudit.static.registry import Proposal, Seen
from perfaudit.static.source import FUNCTIONS, LOOPS, Function, Source
from perfaudit.static.source.syntax import lies_in
from perfaudit.static.understanding.calls_by_name import calls_in_importers
from perfaudit.static.understanding.evaluation import EVALUATION_NAME

if TYPE_CHECKING:
    from perfaudit.static.checks.transfer_blocks_host.batch_parts import Part

    Goes = Callable[[Source, ast.Call], bool]
    Pins = Callable[[Source, ast.Call, Part | None], bool]

# What any object may have, of which the name says nothing.
_COMMON = {"forward", "step", "update", "train", "fit", "run", "add", "append", "get", "put", "write", "log", "to"}


def fed_batches(source: Source, goes: Goes, pins: Pins) -> Iterator[Seen]:
    """The methods of classes that train whose copies are of pinned batches, wherever a file that imports this one calls them.

    goes: whether a call is a copy to an accelerator for which the host waits. pins: whether a loader surely pins.
    """
    if source.neighbours is None or not source.calls(".backward"):
        return
    for method in source.definitions:
        owner = source.parent(method)
        if not isinstance(method, FUNCTIONS) or not isinstance(owner, ast.ClassDef) or not _is_fed(source, method):
            continue
        if not any(lies_in(call, owner) for call in source.calls(".backward")):
            continue
        from perfaudit.static.checks.transfer_blocks_host.copies_elsewhere import copies_of  # few classes are fed

        copies = copies_of(source, method, method.args.args[1].arg, goes)
        if copies and _is_handed_pinned(source, method, pins):
            yield _finding(source, method, copies)


def _is_fed(source: Source, method: Function) -> bool:
    """Whether a method takes one thing, has a name of its own, and is not called in its own file."""
    names, least = method.args.args, len(method.args.args) - len(method.args.defaults)
    is_named = not method.name.startswith("__") and method.name not in _COMMON
    return is_named and len(names) > 1 and least <= 2 and not source.calls(f".{method.name}")


def _is_handed_pinned(source: Source, method: Function, pins: Pins) -> bool:
    """Whether all that call a method in another file hand it a batch of a loop, and the loaders of all of them pin."""
    found = calls_in_importers(source, method.name)
    calls = [(there, call) for there, call in found if isinstance(call.func, ast.Attribute)]
    trains = any(not _evaluates(there, call) for there, call in calls)
    return trains and all(_hands_pinned(there, call, pins) for there, call in calls)


def _hands_pinned(there: Source, call: ast.Call, pins: Pins) -> bool:
    from perfaudit.static.checks.transfer_blocks_host.batch_parts import batch_part  # as above

    part = batch_part(there, call.args[0]) if call.args else None
    return (
        part is not None
        and bool(part.loaders)
        and isinstance(part.taken, LOOPS)
        and all(pins(there, loader, part) for loader in part.loaders)
    )


def _evaluates(there: Source, call: ast.Call) -> bool:
    function = there.enclosing(call, *FUNCTIONS)
    return isinstance(function, FUNCTIONS) and bool(EVALUATION_NAME.search(function.name.lower()))


def _finding(source: Source, method: Function, copies: list[ast.Call]) -> Seen:
    also = f" and {len(copies) - 1} more" if len(copies) > 1 else ""
    return Seen(
        copies[0],
        f"`{source.brief(copies[0])}`{also}: the batches that `{method.name}` is handed are pinned, "
        "yet the host waits until they are copied",
        Proposal("copy with `non_blocking=True`, if nobody writes into the batch behind it"),
        tuple(copies[1:]),
        hot=True,
    )
