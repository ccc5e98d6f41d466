"""Whether a program trains on an accelerator: by one file of it, or by those that this runs together with."""

from __future__ import annotations

import ast

from perfaudit.static.checks.host_sync_in_training_loop.lightning_steps import STEP
from perfaudit.static.checks.host_sync_in_training_loop.shown_devices import shows_devices_only
from perfaudit.static.source import Source
from perfaudit.static.understanding.demonstrations import is_main_guard
from perfaudit.static.understanding.devices import device_text, has_trainer_that_takes_gpu, names_cpu, uses_accelerator
from perfaudit.static.understanding.names import last_name
from perfaudit.static.understanding.step_loops import StepLoop


def is_on_accelerator(source: Source) -> bool:
    """Whether the program uses one: by this file, or, where it names no device at all, one that imports it or that it imports."""
    is_named = uses_accelerator(source)
    if has_trainer_that_takes_gpu(source) or (is_named and not shows_devices_only(source)):
        return True
    if source.neighbours is None or (not is_named and _is_on_host_by_name(source)):
        return False
    marks = ("accelerator", "accelerator if there is one")
    if any(source.neighbours.is_imported_by_a_marked_file(mark) for mark in marks):
        return True
    if STEP in source.text and source.neighbours.some_importer(has_trainer_that_takes_gpu, calling=("Trainer",)):
        return True
    return source.neighbours.imports_carry("accelerator")


def is_alone_on_host(source: Source, step: StepLoop) -> bool:
    """Whether the loop is under the main guard of a file that uses no accelerator, nor imports what does: what imports the
    file does not run it.
    """
    if not any(is_main_guard(a) for a in source.ancestors(step.loop)) or uses_accelerator(source):
        return False
    return source.neighbours is None or not source.neighbours.imports_carry("accelerator")


def _is_on_host_by_name(source: Source) -> bool:
    """Whether a file that uses no accelerator names a device, and moves nothing to one that another file gives."""
    named = {device_text(constant) for constant in source.nodes(ast.Constant)} - {""}
    return bool(named) and not (named == {"cpu"} and _moves_elsewhere(source))


def _moves_elsewhere(source: Source) -> bool:
    """Whether something is moved to a device that another file gives, `x.to(options["device"])`, and not only to the host."""
    targets = [call.args[0] for call in source.calls(".to") if call.args]
    named = [target.slice if isinstance(target, ast.Subscript) else target for target in targets]
    return any(
        "device" in (str(name.value) if isinstance(name, ast.Constant) else last_name(name))
        and not names_cpu(source, target)
        for name, target in zip(named, targets, strict=True)
    )
