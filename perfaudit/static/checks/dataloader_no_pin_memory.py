"""PA102: a DataLoader whose batches go to the accelerator from pageable memory."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from perfaudit.static import edit
from perfaudit.static.context import changes_default_device, device_text, moves_to_device, uses_cuda
from perfaudit.static.registry import Proposal, Seen, check
from perfaudit.static.source import FUNCTIONS, LOOPS, Source
from perfaudit.static.values import ABSENT, UNKNOWN, Argument, argument, constant

NUM_WORKERS, COLLATE, PIN_MEMORY = 5, 6, 7  # positions in DataLoader.__init__ of every torch since 1.0
FOLLOW = 6  # names followed from the call to the tensors of the dataset; real code needs two or three


@check("PA102", call="torch.utils.data.DataLoader")
def dataloader_no_pin_memory(source: Source, call: ast.Call) -> Iterator[Seen]:
    pinned = argument(source, call, "pin_memory", PIN_MEMORY)
    if pinned is not ABSENT and (pinned is UNKNOWN or constant(source, pinned) is not False):
        return
    if not uses_cuda(source) or not _moves_batches(source):
        return
    if changes_default_device(source) or _on_device_already(source, call):
        return
    how = "without `pin_memory`" if pinned is ABSENT else "with `pin_memory=False`"
    message = f"`{source.brief(call.func)}` {how}: its batches are copied to the GPU from pageable memory"
    if _pins_in_training_process(source, call):
        yield Seen(
            call,
            message,
            Proposal("load with workers and pin: without workers the training process pins, which costs time itself"),
        )
        return
    yield Seen(call, message, Proposal("pin the memory of the batches", _edits(source, call, pinned)))


def _edits(source: Source, call: ast.Call, pinned: Argument) -> edit.Edits | None:
    """`pin_memory=True` in the call; None where the False is somebody else's as well, in a dict or a variable."""
    if not isinstance(pinned, ast.expr):
        return edit.add_keyword(source, call, "pin_memory", "True")
    written_here = isinstance(pinned, ast.Constant) and any(ancestor is call for ancestor in source.ancestors(pinned))
    return edit.replace(source, pinned, "True") if written_here else None


def _pins_in_training_process(source: Source, call: ast.Call) -> bool:
    """Whether there provably is no worker, and so no thread that pins beside the training step."""
    workers = argument(source, call, "num_workers", NUM_WORKERS)
    return workers is ABSENT or constant(source, workers) == 0


def _moves_batches(source: Source) -> bool:
    """Whether something is moved to a device inside a loop or a comprehension, as batches are."""
    inside = (*LOOPS, ast.ListComp, ast.DictComp, ast.GeneratorExp)
    moves = [call for name in (".to", ".cuda") for call in source.calls(name) if moves_to_device(source, call)]
    return any(source.enclosing(call, *inside) is not None for call in moves)


def _on_device_already(source: Source, call: ast.Call) -> bool:
    """Whether the dataset or the collate function, as far as this file shows them, moves tensors to a device.

    Pinning such a tensor raises.
    """
    reached: list[ast.AST] = [
        node
        for node in (argument(source, call, "dataset", 0), argument(source, call, "collate_fn", COLLATE))
        if isinstance(node, ast.expr)
    ]
    for _ in range(FOLLOW):
        if any(_makes_device_tensor(source, node) for root in reached for node in ast.walk(root)):
            return True
        seen = {id(root) for root in reached}
        reached += [d for root in reached for n in ast.walk(root) for d in _definitions(source, n) if id(d) not in seen]
    return False


def _makes_device_tensor(source: Source, node: ast.AST) -> bool:
    if isinstance(node, ast.Call) and moves_to_device(source, node):
        return True
    return isinstance(node, ast.keyword) and node.arg == "device" and device_text(node.value) != "cpu"


def _definitions(source: Source, node: ast.AST) -> list[ast.AST]:
    """What a name or an attribute stands for in this file: the values assigned to it, its function or class."""
    if isinstance(node, ast.Name):
        bindings = source.lookup(node)
    elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
        bindings = [a for a in source.nodes(ast.Attribute) if a.attr == node.attr and isinstance(a.ctx, ast.Store)]
    else:
        return []
    found: list[ast.AST] = []
    for binding in bindings:
        statement = source.statement(binding) if not isinstance(binding, ast.arg) else None
        if isinstance(binding, (*FUNCTIONS, ast.ClassDef)):
            found.append(binding)
        elif isinstance(statement, (ast.Assign, ast.AnnAssign, ast.AugAssign)) and statement.value is not None:
            found.append(statement.value)
    return found
