"""Trainers of Lightning that run a training on a GPU, with all their arguments in sight."""

from __future__ import annotations

import ast

from perfaudit.static.source import Source
from perfaudit.static.understanding.demonstrations import is_test
from perfaudit.static.understanding.devices import is_trainer_for_gpu
from perfaudit.static.understanding.names import last_name

TRAINERS = (
    *("lightning.Trainer", "lightning.pytorch.Trainer", "lightning.pytorch.trainer.Trainer"),
    *("pytorch_lightning.Trainer", "pytorch_lightning.trainer.Trainer"),
)
_EVALUATES = {"test", "validate", "predict"}
_TRIES_OUT = {"fast_dev_run", "overfit_batches", "barebones"}


def trains_on_gpu(source: Source, call: ast.Call) -> bool:
    """Whether a trainer fits a model on a GPU where there is one, and nothing is unpacked into its arguments.

    Not one that tries a model out on a few batches, nor one in a test.
    """
    given = {keyword.arg for keyword in call.keywords}
    if None in given or _TRIES_OUT & given or call.args or is_test(source, call):
        return False
    return _fits(source, call) and is_trainer_for_gpu(source, call)


def _fits(source: Source, call: ast.Call) -> bool:
    """Whether a trainer is asked to fit, as far as what stands behind it in its block tells; else whether any is in the file."""
    statement = source.statement(call)
    block = source.block(statement)
    behind = [item for item in block if item.lineno >= statement.lineno]
    asked = {last_name(node.func) for item in behind for node in ast.walk(item) if isinstance(node, ast.Call)}
    return "fit" in asked or (not asked & _EVALUATES and bool(source.calls(".fit")))
