"""PA109: a DataLoader with workers that is built anew in every epoch, though nothing of it changes from epoch to epoch."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from perfaudit.expressions import regex
from perfaudit.static.registry import Proposal, Seen, check
from perfaudit.static.source import FUNCTIONS, LOOPS, Loop, Source
from perfaudit.static.understanding.demonstrations import is_test
from perfaudit.static.understanding.each_time import runs_each_time
from perfaudit.static.understanding.epochs import counts_epochs
from perfaudit.static.understanding.loader_workers import NUM_WORKERS, has_workers
from perfaudit.static.understanding.loaders import LOADER
from perfaudit.static.understanding.names import last_name
from perfaudit.static.understanding.step_loops import is_over_written_values, step_loops
from perfaudit.static.understanding.values import ABSENT, UNKNOWN, Argument, argument, assigned_value, constant

# Each turn of such a loop is a training or a data set of its own.
_TRAININGS = regex(r"fold|task|client|user|seed|trial|stage|round|run|domain|split|model|config", re.IGNORECASE)
# What may be built of a data set without changing it.
_READS = {"len", "RandomSampler", "SequentialSampler", "DistributedSampler", "BatchSampler", "print", "DataLoader"}
_MAX_NAMES = 20  # followed from the arguments of one loader


@check("PA109", call=LOADER)
def loader_built_every_epoch(source: Source, call: ast.Call) -> Iterator[Seen]:
    epochs = _epochs_around(source, call)
    if epochs is None or is_test(source, call) or not has_workers(source, call):
        return
    if not runs_each_time(source, call, epochs) or not _is_the_same_each_time(source, call, epochs):
        return
    workers = argument(source, call, "num_workers", NUM_WORKERS)
    shown = f"`num_workers={source.brief(workers)}`" if isinstance(workers, ast.expr) else "its workers"
    kept = argument(source, call, "persistent_workers")
    in_vain = kept is not ABSENT and constant(source, kept) is True
    cost = "`persistent_workers` keeps nothing" if in_vain else "`persistent_workers` could keep nothing"
    yield Seen(
        call,
        f"`{source.brief(call.func)}` with {shown} is built anew on every epoch: its workers are started again each time, "
        f"and {cost}",
        Proposal("build it once, before the loop over the epochs, with `persistent_workers=True`"),
    )


def _epochs_around(source: Source, call: ast.Call) -> Loop | None:
    """The loop over the epochs around a loader: the innermost one around it, in which another loop makes the steps."""
    loop = source.enclosing(call, *LOOPS, within=source.enclosing(call, *FUNCTIONS, ast.Lambda))
    if not isinstance(loop, (ast.For, ast.AsyncFor)) or is_over_written_values(loop):
        return None
    if _TRAININGS.search(source.text_of(loop.target)):
        return None
    makes_epochs = any(source.enclosing(step.loop, *LOOPS) is loop for step in step_loops(source))
    return loop if (makes_epochs or counts_epochs(loop)) and _last(loop) > 1 else None


def _last(loop: ast.For | ast.AsyncFor) -> float:
    """How many turns `range(20)` makes; infinity where the text does not say."""
    match loop.iter:
        case ast.Call(func=ast.Name(id="range"), args=[ast.Constant(value=int() as last)]):
            return last
    return float("inf")


def _is_the_same_each_time(source: Source, call: ast.Call, epochs: Loop) -> bool:
    """Whether nothing that the loader is built from is set, changed or handed over inside the loop over the epochs."""
    inside = {id(node) for node in ast.walk(epochs)}
    known = {"self"}
    following: list[ast.expr] = [call]
    while following and len(known) < _MAX_NAMES:
        nodes = list(ast.walk(following.pop()))
        if any(isinstance(n, ast.Call) and n is not call and not _is_plain(source, n) for n in nodes):
            return False
        if any(_is_own_that_changes(source, n, inside) for n in nodes if isinstance(n, ast.Attribute)):
            return False
        for name in (n for n in nodes if isinstance(n, ast.Name) and n.id not in known):
            known.add(name.id)
            made = _made_inside(source, name, inside)
            if made is UNKNOWN or _is_changed(source, name.id, inside):
                return False
            following += [made] if isinstance(made, ast.expr) else []
    return not following


def _is_plain(source: Source, made: ast.Call) -> bool:
    """Whether a call in the arguments gives the same on every epoch: a sampler of torch's, a number."""
    name = source.qualified_name(made.func) or ""
    return name.startswith("torch.utils.data.") or last_name(made.func) in ("len", "min", "max", "int", "cpu_count")


def _made_inside(source: Source, name: ast.Name, inside: set[int]) -> Argument:
    """What the loop makes a name by its one assignment, ABSENT where it leaves the name alone, else UNKNOWN."""
    bindings = source.lookup(name)
    if not any(id(binding) in inside for binding in bindings):
        return ABSENT
    made = assigned_value(source, bindings[0]) if len(bindings) == 1 else None
    return UNKNOWN if made is None else made


def _is_own_that_changes(source: Source, node: ast.Attribute, inside: set[int]) -> bool:
    """Whether `self.train_set` is bound anywhere but where its object is built, or changed inside the loop."""
    if not isinstance(node.value, ast.Name) or node.value.id != "self":
        return False
    for other in (a for a in source.nodes(ast.Attribute) if a.attr == node.attr):
        around = source.enclosing(other, *FUNCTIONS)
        is_set_later = not isinstance(around, FUNCTIONS) or around.name != "__init__"
        if not isinstance(other.ctx, ast.Load) and is_set_later:
            return True
        if isinstance(other.ctx, ast.Load) and id(other) in inside and _may_change(source, other):
            return True
    return False


def _is_changed(source: Source, name: str, inside: set[int]) -> bool:
    """Whether the loop may change what a name stands for: a method, a field, an element, a call that takes it."""
    uses = [node for node in source.nodes(ast.Name) if node.id == name and id(node) in inside]
    return any(_may_change(source, use) for use in uses if isinstance(use.ctx, ast.Load))


def _may_change(source: Source, use: ast.expr) -> bool:
    """Whether one use of a thing may change it."""
    parent = source.parent(use)
    if isinstance(
        parent, ast.Attribute
    ):  # `options.workers` is read; `dataset.shuffle()` and `dataset.epoch = 3` are not
        above = source.parent(parent)
        is_called = isinstance(above, ast.Call) and above.func is parent
        return not isinstance(parent.ctx, ast.Load) or (is_called and source.qualified_name(parent) is None)
    if isinstance(parent, ast.Subscript):
        return not isinstance(parent.ctx, ast.Load)
    if isinstance(parent, (ast.Call, ast.keyword, ast.Starred)):
        owner = parent if isinstance(parent, ast.Call) else source.parent(parent)
        is_argument = isinstance(owner, ast.Call) and owner.func is not use
        return is_argument and isinstance(owner, ast.Call) and last_name(owner.func) not in _READS
    return False
