"""PA103: worker processes that are started anew for every epoch."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator

from perfaudit.expressions import regex
from perfaudit.static.old_torch import needs_old_torch
from perfaudit.static.registry import Proposal, Seen, check, hint_if
from perfaudit.static.source import FUNCTIONS, LOOPS, Function, Source
from perfaudit.static.understanding.backward import backward_calls
from perfaudit.static.understanding.called_functions import callers
from perfaudit.static.understanding.demonstrations import is_shown_only
from perfaudit.static.understanding.elsewhere import class_meant
from perfaudit.static.understanding.loader_workers import KEPT, NUM_WORKERS, is_positive, keep_workers
from perfaudit.static.understanding.loaders import LOADER, Pass, loaders, passes, seen_by_caller
from perfaudit.static.understanding.names import dotted_name, last_name
from perfaudit.static.understanding.step_loops import step_loops
from perfaudit.static.understanding.values import ABSENT, UNKNOWN, argument, constant

FOLLOW = 3  # calls followed outwards from the loop over the loader to the loop over epochs
_ASKED_ONCE = ("train_dataloader", "val_dataloader")  # not `test_dataloader`: a test is one run
_LIGHTNING = ("LightningModule", "LightningDataModule")
_ALL_PAIRS = ("itertools.permutations", "itertools.combinations", "itertools.product")
_SETS = regex(r"^(set_|update|shuffle|resample|reset|on_|next_|build|generate|sample)|epoch")


@check("PA103", call=LOADER)
def dataloader_workers_not_persistent(source: Source, call: ast.Call) -> Iterator[Seen]:
    workers = argument(source, call, "num_workers", NUM_WORKERS)
    if not isinstance(workers, ast.expr) or not is_positive(source, workers):
        return
    persistent = argument(source, call, "persistent_workers")
    if persistent is not ABSENT and (persistent is UNKNOWN or constant(source, persistent) is not False):
        return
    over = [] if _is_added_to_others(source, call) else [item for item in passes(source) if call in item.loaders]
    is_run_again = any(_runs_again(source, item, call) for item in over) or _is_kept_by_lightning(source, call)
    if not is_run_again or dataset_changes(source, call) or needs_old_torch(source):
        return
    yield Seen(
        call,
        f"`{source.brief(call.func)}` with `num_workers={source.brief(workers)}` starts its workers anew for every epoch",
        Proposal(KEPT, keep_workers(source, call, workers)),
        severity=hint_if(
            _is_shown(source, call)
            or _goes_through_pairs(source, call)
            or (bool(over) and not any(_trains(source, item) for item in over))
        ),
    )


def _goes_through_pairs(source: Source, call: ast.Call) -> bool:
    """Whether an epoch goes through all pairs of what the data set is built from: so long that its end does not count."""
    dataset = argument(source, call, "dataset", 0)
    found = class_meant(source, dataset) if isinstance(dataset, ast.expr) else None
    if found is None:
        return False
    inside, definition = found
    for made in (node for node in ast.walk(definition) if isinstance(node, ast.Call)):
        given = {name.id for part in made.args for name in ast.walk(part) if isinstance(name, ast.Name)}
        if inside.qualified_name(made.func) in _ALL_PAIRS and given & _parameters_of_constructor(inside, made):
            return True
    return False


def _parameters_of_constructor(source: Source, node: ast.AST) -> set[str]:
    """The parameters of the constructor around a node but `self`."""
    function = source.enclosing(node, *FUNCTIONS)
    if not isinstance(function, FUNCTIONS) or function.name != "__init__":
        return set()
    return {a.arg for a in (*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs)} - {"self"}


def _is_shown(source: Source, call: ast.Call) -> bool:
    """Whether a module that others import only tries itself out with the loader."""
    is_imported = source.neighbours is None or source.neighbours.is_imported()
    return is_imported and is_shown_only(source, call)


def _is_added_to_others(source: Source, call: ast.Call) -> bool:
    """Whether the loader is put under one key of a dict: a loop over others of that dict may never come to it."""
    parent = source.parent(call)
    return isinstance(parent, ast.Assign) and any(isinstance(target, ast.Subscript) for target in parent.targets)


def _trains(source: Source, item: Pass) -> bool:
    """Whether a loop over a loader is one of training steps, or may be: in a file that shows no backward pass at all."""
    inside = (loop for step in step_loops(source) for loop in (step.loop, *source.ancestors(step.loop)))
    return not backward_calls(source) or any(loop is item.loop for loop in inside)


def _is_kept_by_lightning(source: Source, call: ast.Call) -> bool:
    """Whether a method of a LightningModule or LightningDataModule returns it: asked once, and run over in every epoch.

    Not where a trainer may ask for it anew.
    """
    method = source.enclosing(call, *FUNCTIONS)
    owner = source.parent(method) if method is not None else None
    if not isinstance(method, FUNCTIONS) or method.name not in _ASKED_ONCE or not isinstance(owner, ast.ClassDef):
        return False
    if not any(last_name(base) in _LIGHTNING for base in owner.bases) or "reload_dataloaders" in source.text:
        return False
    parent = source.parent(call)
    if isinstance(parent, ast.Assign) and len(parent.targets) == 1 and isinstance(parent.targets[0], ast.Name):
        uses = source.uses_of(parent.targets[0], parent.targets[0].id)
        return any(isinstance(source.parent(use), ast.Return) for use in uses)
    return isinstance(parent, ast.Return)


def _runs_again(source: Source, item: Pass, built: ast.Call) -> bool:
    """Whether a loop runs over the loader once per iteration of a loop further out, in which the loader is not built."""
    around_built = {id(ancestor) for ancestor in source.ancestors(built)}
    places: list[tuple[ast.AST, ast.expr]] = [(item.loop, item.over)]
    for _ in range(FOLLOW):
        further: list[tuple[ast.AST, ast.expr]] = []
        for place, over in places:
            names = {n.id for n in ast.walk(over) if isinstance(n, ast.Name)}
            for ancestor in source.ancestors(place):
                if isinstance(ancestor, LOOPS) and id(ancestor) not in around_built and not _chooses(ancestor, names):
                    return True
                if isinstance(ancestor, FUNCTIONS):
                    if id(ancestor) not in around_built:
                        further += _calls_with(source, ancestor, over, built)
                    break
        places = further
    return False


def _calls_with(
    source: Source, function: Function, over: ast.expr, built: ast.Call
) -> Iterator[tuple[ast.AST, ast.expr]]:
    """The calls of a function in which it runs over this very loader, each with what it passes."""
    for call in callers(source, function):
        passed = seen_by_caller(source, over, function, call)
        if passed is not None and (passed is over or built in (loaders(source, passed) or ())):
            yield call, passed


def _chooses(loop: ast.AST, names: set[str]) -> bool:
    """Whether each iteration of a loop takes another loader: `for phase in ("train", "val")`."""
    return isinstance(loop, (ast.For, ast.AsyncFor)) and any(
        n.id in names for n in ast.walk(loop.target) if isinstance(n, ast.Name)
    )


def dataset_changes(source: Source, call: ast.Call, others: Collection[str] = ()) -> bool:
    """Whether the program changes the dataset between epochs, which workers that live on would not see.

    others: names that may be the dataset's, too.
    """
    dataset = argument(source, call, "dataset", 0)
    names = {"dataset", last_name(dataset)} if isinstance(dataset, ast.expr) else {"dataset"}
    names |= {*others}
    for node in source.nodes(ast.Attribute):
        owner = last_name(node.value)
        if owner not in names - {""} or dotted_name(node) == "":
            continue
        if isinstance(node.ctx, ast.Store):
            return True
        parent = source.parent(node)
        is_called = isinstance(parent, ast.Call) and parent.func is node
        if is_called and (_SETS.search(node.attr) or source.enclosing(node, *LOOPS) is not None):
            return True
    return False
