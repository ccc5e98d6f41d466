"""Trainers of Lightning that run a training on a GPU, with all their arguments in sight."""

from __future__ import annotations

import ast

from perfaudit.static.source import Source
from perfaudit.static.understanding.demonstrations import is_test
from perfaudit.static.understanding.devices import takes_gpu
from perfaudit.static.understanding.names import last_name
from perfaudit.static.understanding.values import UNKNOWN, argument, constant

TRAINERS = (
    *("lightning.Trainer", "lightning.pytorch.Trainer", "lightning.pytorch.trainer.Trainer"),
    *("pytorch_lightning.Trainer", "pytorch_lightning.trainer.Trainer"),
)
BUILDS = ("hydra.utils.instantiate", "hydra.utils.call")  # what settings name
_EVALUATES = {"test", "validate", "predict"}
TRIES_OUT = {"overfit_batches", "barebones"}


def fits_on_gpu(source: Source, call: ast.Call) -> bool:
    """Whether a trainer fits a model on a GPU where there is one, and nothing is unpacked into its arguments.

    Not one that tries a model out on a few batches, nor one in a test.
    """
    given = {keyword.arg for keyword in call.keywords}
    if None in given or TRIES_OUT & given or call.args or is_test(source, call) or is_dry_run(source, call):
        return False
    return fits(source, call) and (takes_gpu(source, call) or _is_told_by_settings(source, call))


def is_told_cpu(source: Source, call: ast.Call) -> bool:
    """`Trainer(gpus=cfg.gpus)` where settings files keep the program on the CPU."""
    from perfaudit.static.understanding.configured_trainers import is_kept_on_cpu  # few trainers take a setting

    told = [argument(source, call, name) for name in ("gpus", "accelerator", "devices")]
    given = [each for each in told if isinstance(each, ast.expr)]
    is_written = any(isinstance(constant(source, each), (int, str)) for each in given)
    return bool(given) and not is_written and is_kept_on_cpu(source)


def is_dry_run(source: Source, call: ast.Call) -> bool:
    """Whether a trainer is told to run a few batches only; an option by which somebody may tell it so does not count."""
    told = argument(source, call, "fast_dev_run")
    value = constant(source, told) if isinstance(told, ast.expr) else False
    return bool(value) and value is not UNKNOWN


def _is_told_by_settings(source: Source, call: ast.Call) -> bool:
    """`Trainer(accelerator=cfg.trainer.accelerator)` where all settings files say a GPU, or whatever there is."""
    told = argument(source, call, "accelerator")
    if not isinstance(told, (ast.Attribute, ast.Subscript)):
        return False
    from perfaudit.static.understanding.configured_trainers import is_put_on_gpu  # few trainers take a setting

    return is_put_on_gpu(source)


def fits(source: Source, call: ast.Call) -> bool:
    """Whether a trainer is asked to fit, as far as what stands behind it in its block tells; else whether any is in the file.

    It is known by the name that it is bound to, elsewhere in the file by a trainer's: scalers fit, too.
    """
    statement = source.statement(call)
    targets = statement.targets if isinstance(statement, ast.Assign) else []
    targets = [statement.target] if isinstance(statement, ast.AnnAssign) else targets
    names = {last_name(target) for target in targets}
    behind = [item for item in source.block(statement) if item.lineno >= statement.lineno]
    calls = [node.func for item in behind for node in ast.walk(item) if isinstance(node, ast.Call)]
    methods = [func for func in calls if isinstance(func, ast.Attribute)]
    asked = {method.attr for method in methods if method.value is call or last_name(method.value) in names - {""}}
    if "fit" in asked or asked & _EVALUATES:
        return "fit" in asked
    fits = [use.func.value for use in source.calls(".fit") if isinstance(use.func, ast.Attribute)]
    owners = {last_name(owner.func if isinstance(owner, ast.Call) else owner) for owner in fits}
    return bool(owners & (names - {""})) or any("trainer" in owner.lower() for owner in owners)
