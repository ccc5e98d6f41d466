"""The `training_step` of Lightning's modules: its trainer calls it with each batch, and differentiates what it returns."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from perfaudit.static.checks.eval_without_no_grad.bases import derives_from
from perfaudit.static.checks.host_sync_in_training_loop.whole_steps import WholeStep
from perfaudit.static.source import FUNCTIONS, Function, Source
from perfaudit.static.understanding.answers import remember
from perfaudit.static.understanding.demonstrations import is_test
from perfaudit.static.understanding.losses import losses_returned
from perfaudit.static.understanding.names import last_name

STEP = "training_step"


def lightning_steps(source: Source) -> Iterator[WholeStep]:
    """The training steps of a file's modules of Lightning's, with what each of them returns as its loss."""
    for function in (d for d in source.definitions if isinstance(d, FUNCTIONS) and d.name == STEP):
        owner = source.parent(function)
        if not isinstance(owner, ast.ClassDef) or is_test(source, function):
            continue
        if derives_from(source, owner, source.neighbours, _is_of_lightning):
            losses = tuple(_losses(source, function))
            yield WholeStep(function, given_back=losses, gets_batch=True, has_arrays=_collates_arrays(source))


def _is_of_lightning(_: Source, base: ast.expr) -> bool:
    return last_name(base) == "LightningModule"


@remember
def _collates_arrays(source: Source) -> bool:
    """Whether a function of the file that puts batches together, for a loader of the file, makes arrays of NumPy."""
    keywords = (keyword for call in source.nodes(ast.Call) for keyword in call.keywords)
    names = {last_name(keyword.value) for keyword in keywords if keyword.arg == "collate_fn"}
    functions = (d for d in source.definitions if isinstance(d, FUNCTIONS) and d.name in names)
    return any(
        (source.qualified_name(node.func) or "").startswith("numpy.")
        for function in functions
        for node in ast.walk(function)
        if isinstance(node, ast.Call)
    )


def _losses(source: Source, function: Function) -> Iterator[ast.expr]:
    """What a step returns as its loss: of `return {"loss": loss, "accuracy": accuracy}` the first."""
    for value in losses_returned(source, function, None):
        if not isinstance(value, ast.Dict):
            yield value
            continue
        for name, item in zip(value.keys, value.values, strict=True):
            if isinstance(name, ast.Constant) and name.value == "loss":
                yield item
