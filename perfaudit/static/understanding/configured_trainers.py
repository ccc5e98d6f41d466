"""Trainers of Lightning that get their device from settings files, `accelerator: gpu`, `gpus: 1`, and loaders that feed them."""

from __future__ import annotations

import ast

from perfaudit.expressions import regex
from perfaudit.static.project.settings_files import Found
from perfaudit.static.project.settings_text import UNREAD
from perfaudit.static.source import FUNCTIONS, Source
from perfaudit.static.understanding.built_by_settings import chosen_of_group, group_of, stem_of
from perfaudit.static.understanding.names import last_name

_HOOK = regex(r"(train|val|test|predict)_dataloader$")
_ON_GPU = ("gpu", "cuda", "auto")
_NO_GPUS = (0, None, False, "0", "", UNREAD)


def is_fed_to_configured_trainer(source: Source, call: ast.Call) -> bool:
    """Whether a loader is one that Lightning's trainer asks for or that its file hands to one, which settings put on a GPU.

    Of hydra's files for the trainer those count that a list of defaults chooses.
    """
    function = source.enclosing(call, *FUNCTIONS)
    is_hook = isinstance(function, FUNCTIONS) and bool(_HOOK.match(function.name))
    is_beside = any(last_name(each.func) == "Trainer" for each in source.nodes(ast.Call))
    return (is_hook or is_beside) and is_put_on_gpu(source)


def is_put_on_gpu(source: Source) -> bool:
    """Whether the settings files of a project put its trainer on a GPU, or where there is one."""
    if source.neighbours is None:
        return False
    told = source.neighbours.settings("accelerator") or []
    counted = source.neighbours.settings("gpus") or []
    built = source.neighbours.sections_for("Trainer") or []
    groups = {folder for _, file in built if (folder := group_of(file))}
    chosen = {folder: stems for folder in groups if (stems := chosen_of_group(source, folder))}
    if chosen:
        told = [each for each in told if stem_of(each.file) in chosen.get(group_of(each.file), ())]
        counted = [each for each in counted if stem_of(each.file) in chosen.get(group_of(each.file), ())]
        return any(_says_gpu(each) for each in told) or any(_counts_gpus(each) for each in counted)
    said = [_says_gpu(each) for each in told] or [_counts_gpus(each) for each in counted]
    return bool(said) and all(said)


def _says_gpu(found: Found) -> bool:
    return found.setting.value in _ON_GPU


def _counts_gpus(found: Found) -> bool:
    return found.setting.value not in _NO_GPUS
