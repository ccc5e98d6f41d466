"""Devices that settings files name: of a trainer of Lightning's, `accelerator: gpu`, of loaders that feed it, of a program."""

from __future__ import annotations

import ast

from perfaudit.static.project.settings_files import Found
from perfaudit.static.project.settings_text import UNREAD
from perfaudit.static.source import Source
from perfaudit.static.understanding.built_by_settings import chosen_of_group, group_of, stem_of
from perfaudit.static.understanding.lightning_hooks import hooks_around
from perfaudit.static.understanding.names import last_name

_ON_GPU = ("gpu", "cuda", "auto")
_COUNTS, _DEVICES = ("n_gpu", "n_gpus", "num_gpus", "ngpu"), ("device", "accelerator")
_NO_GPUS = (0, None, False, "0", "", UNREAD)


def is_fed_to_configured_trainer(source: Source, call: ast.Call) -> bool:
    """Whether a loader is one that Lightning's trainer asks for or that its file hands to one, which settings put on a GPU.

    Of hydra's files for the trainer those count that a list of defaults chooses.
    """
    is_beside = any(last_name(each.func) == "Trainer" for each in source.nodes(ast.Call))
    return (is_beside or bool(hooks_around(source, call))) and is_put_on_gpu(source)


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


def is_kept_on_cpu(source: Source) -> bool:
    """Whether settings files name a device, or a number of GPUs, and all of them the CPU: `"n_gpu": 0`, `device: cpu`."""
    if source.neighbours is None:
        return False
    counted = [each for name in _COUNTS for each in source.neighbours.settings(name) or ()]
    told = [each for name in _DEVICES for each in source.neighbours.settings(name) or ()]
    says_none = all(each.setting.value in (0, "0") and each.setting.value is not False for each in counted)
    return bool(counted or told) and says_none and all(each.setting.value == "cpu" for each in told)


def _says_gpu(found: Found) -> bool:
    return found.setting.value in _ON_GPU


def _counts_gpus(found: Found) -> bool:
    return found.setting.value not in _NO_GPUS
