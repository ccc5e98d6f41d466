"""Whether settings files build a class of the project (`_target_: data.Images`), and which of these files hydra chooses."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from perfaudit.expressions import regex
from perfaudit.static.source import Function, Source
from perfaudit.static.understanding.answers import remember
from perfaudit.static.understanding.values import argument, constant

if TYPE_CHECKING:
    from perfaudit.static.project.settings_text import Section

OF_LOADERS = regex(r"worker|thread|pin_mem|WORKER|THREAD|PIN_MEM")  # names of which marks tell what else sets them
# What reads settings files.
READERS = frozenset(
    {"yaml", "ruamel", "omegaconf", "hydra", "yacs", "jsonargparse", "json", "toml", "tomllib", "tomli", "pyrallis"}
    | {"configargparse", "commentjson", "easydict", "munch"}
)
_EXAMPLE = regex(r"(?i)(^|_)example(_|$)")
_CHOICES = ("/{}", "override {}", "override /{}")  # in a list of defaults, where `data: images` stands, too


def reads_settings(source: Source) -> bool:
    """Whether some file of the project imports what reads settings files."""
    return source.neighbours is not None and source.neighbours.project_imports(READERS)


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


@remember
def classes_built(source: Source) -> tuple[str, ...]:
    """The classes that settings files name, `torchvision.models.resnet18`, where the file, or one it imports, builds such.

    Of hydra's files those count that may be chosen. What is filled in before the name of a module is left out.
    """
    if source.neighbours is None or not _builds_by_settings(source) or source.neighbours.settings_move():
        return ()
    named = source.neighbours.classes_of_settings()
    files = files_of_program(source, {file for _, file in named})
    chosen = {file for file in files if may_be_chosen(source, file)}
    return tuple(dict.fromkeys(name.rpartition("}.")[2] for name, file in named if file in chosen and "." in name))


def files_of_program(source: Source, files: set[str]) -> set[str]:
    """Those of some settings files that lie in the folder which the script names, `@hydra.main(config_path="conf/small")`.

    All of them where it names none, or none of them lies there.
    """
    named = [argument(source, call, "config_path", 0) for call in source.calls("hydra.main")]
    path = constant(source, named[0]) if len(named) == 1 else None
    parts = [part for part in path.split("/") if part not in ("", ".", "..")] if isinstance(path, str) else []
    own = {file for file in files if parts and f"/{'/'.join(parts)}/" in f"/{file}"}
    return own or files


def _builds_by_settings(source: Source) -> bool:
    # Imported here: only scripts ask for them.
    from perfaudit.static.project.program_marks import BUILDS_BY_SETTINGS, may_build_by_settings

    own = source.text.encode("utf-8", "replace")
    neighbours = source.neighbours
    return may_build_by_settings(own) or (neighbours is not None and neighbours.imports_carry(BUILDS_BY_SETTINGS))


def built_files_say(source: Source, mark: str) -> bool:
    """Whether a file that defines a class which settings files build, or one that it imports, says something."""
    built = classes_built(source)
    modules = dict.fromkeys(name.rpartition(".")[0] for name in built)
    return bool(modules) and source.neighbours is not None and source.neighbours.modules_carry(modules, mark)


def class_of(source: Source, constructor: Function) -> str:
    """The name of the class around a method, "" where there is none."""
    owner = source.parent(constructor)
    return owner.name if isinstance(owner, ast.ClassDef) else ""


def may_be_chosen(source: Source, file: str) -> bool:
    """Whether a settings file is one of hydra's that some list of defaults chooses of its group, or of no such group.

    A template's own data, which the lists of a project no longer name, is left over.
    """
    chosen = chosen_of_group(source, group_of(file))
    return not chosen or None in chosen or stem_of(file) in chosen


def chosen_of_group(source: Source, group: str) -> set[str | None]:
    """Which files of a folder lists of defaults choose (`- data: images.yaml`), without endings; None for one out of sight.

    The list of an example (`experiment/example.yaml` of a template) counts where no other list chooses.
    """
    if not group or source.neighbours is None:
        return set()
    keys = {group, *(each.format(group) for each in _CHOICES)}
    lists = [(value, file) for key, value, file in source.neighbours.choices_of_settings() if key in keys]
    of_programs = [each for each in lists if not _EXAMPLE.search(stem_of(each[1]))]
    chosen = [value for value, _ in of_programs or lists]
    return {stem_of(each) if isinstance(each, str) else None for each in chosen}


def group_of(file: str) -> str:
    """The name of the folder that a settings file is in, "" at the top: hydra's group."""
    return file.rpartition("/")[0].rpartition("/")[2]


def stem_of(file: str) -> str:
    """The last name of a path without the ending of YAML."""
    from perfaudit.static.project.settings_text import YAML  # most files ask for none of their settings

    name = file.rpartition("/")[2]
    return next((name.removesuffix(each) for each in YAML if name.endswith(each)), name)
