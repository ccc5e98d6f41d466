"""Whether settings files build a class, and give its constructor what they like: hydra's `_target_: data.Images` and its like."""

from __future__ import annotations

import ast

from perfaudit.expressions import regex
from perfaudit.static.source import Function, Source

OF_LOADERS = regex(r"worker|thread|pin_mem|WORKER|THREAD|PIN_MEM")  # names of which marks tell what else sets them


def is_given_by_settings(source: Source, constructor: Function, name: str) -> bool:
    """Whether a parameter of loaders is one of a class that settings files of the project build."""
    if constructor.name != "__init__" or source.neighbours is None or not OF_LOADERS.search(name):
        return False
    owner = class_of(source, constructor)
    return bool(owner) and source.neighbours.sections_for(owner) != []


def class_of(source: Source, constructor: Function) -> str:
    """The name of the class around a method, "" where there is none."""
    owner = source.parent(constructor)
    return owner.name if isinstance(owner, ast.ClassDef) else ""
