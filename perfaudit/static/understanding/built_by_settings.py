"""Whether settings files build a class, and give its constructor what they like: hydra's `_target_: data.Images` and its like."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from perfaudit.expressions import regex
from perfaudit.static.source import Function, Source

if TYPE_CHECKING:
    from perfaudit.static.project.settings_text import Section

OF_LOADERS = regex(r"worker|thread|pin_mem|WORKER|THREAD|PIN_MEM")  # names of which marks tell what else sets them


def is_given_by_settings(source: Source, constructor: Function, name: str) -> bool:
    """Whether a parameter of loaders is one of a class that settings files of the project build."""
    if constructor.name != "__init__" or source.neighbours is None or not OF_LOADERS.search(name):
        return False
    owner = class_of(source, constructor)
    return bool(owner and sections_building(source, owner))


def sections_building(source: Source, class_name: str) -> list[Section]:
    """The sections of settings files with the arguments of a class of the project, by its last name."""
    sections = source.neighbours.sections_for(class_name) if source.neighbours is not None else None
    return [section for section, _ in sections or () if _is_of_project(source, section.class_made)]


def _is_of_project(source: Source, dotted: str) -> bool:
    """Whether the module before the name of a class is one of the project's; also where none is named, or one filled in later."""
    module = dotted.rpartition(".")[0]
    return not module or "${" in module or (source.neighbours is not None and source.neighbours.holds_module(module))


def class_of(source: Source, constructor: Function) -> str:
    """The name of the class around a method, "" where there is none."""
    owner = source.parent(constructor)
    return owner.name if isinstance(owner, ast.ClassDef) else ""
