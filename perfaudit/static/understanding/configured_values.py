"""What a setting of loaders is by the configuration of a program: `cfg.data.num_workers`, which its YAML sets to 0.

What files of settings say, and what code gives the nodes of a configuration, holds where all of it says the same; where the file
names some of these files, these count alone. A command line that declares the setting, or code that sets it in any other way,
leaves it unknown.
"""

from __future__ import annotations

import ast
import os
import re
from typing import TYPE_CHECKING

from perfaudit.expressions import regex
from perfaudit.static.project.loader_marks import declares, sets, sets_key
from perfaudit.static.project.settings_text import SUFFIXES, UNREAD, YAML
from perfaudit.static.source import Function, Source
from perfaudit.static.understanding.built_by_settings import OF_LOADERS, class_of
from perfaudit.static.understanding.calls_by_name import calls_in_sight
from perfaudit.static.understanding.defaults import Default, default_expression, destination
from perfaudit.static.understanding.members import attributes
from perfaudit.static.understanding.names import dotted_name, last_name
from perfaudit.static.understanding.values import ABSENT, UNKNOWN, argument, assigned_value, constant, resolve

if TYPE_CHECKING:
    from perfaudit.static.project.settings_files import Found

UNLESS = "another configuration says otherwise"
_SETTINGS = regex(
    r"(^|_)(args?|opts?|options?|hparams|hps|hyp|cfgs?|conf|configs?|configuration|params|parameters|flags|settings?|yaml)$",
    re.IGNORECASE,
)
_NODES = (
    "CN",
    "CfgNode",
    "ConfigNode",
    "edict",
    "EasyDict",
    "ConfigDict",
    "AttrDict",
)  # made empty, filled line by line
_CHOICES = ("/{}", "override {}", "override /{}")  # in a list of defaults, where `data: images` stands, too
_READS = ("load", "safe_load", "full_load", "load_config", "load_yaml", "read_yaml", "get_config", "create")


def configured_value(source: Source, node: ast.expr) -> Default | None:
    """What an expression is that takes a setting of loaders from a configuration; None where that cannot be told."""
    found = _by_keys(source, _keys(source, node))
    if (
        isinstance(node, ast.Call) and len(node.args) > 1 and found is not None
    ):  # `cfg.get("workers", 1)`, for files without it
        return found if constant(source, node.args[1]) == found.value else None
    return found


def configured_argument(source: Source, call: ast.Call, name: str) -> Default | None:
    """What a call is given under a name by the part of a configuration that it unpacks: `DataLoader(images, **cfg.loader)`."""
    unpacked = [keyword.value for keyword in call.keywords if keyword.arg is None]
    keys = _keys(source, unpacked[0]) if len(unpacked) == 1 else ()
    return _by_keys(source, (*keys, name)) if keys else None


def is_left_out(source: Source, call: ast.Call, name: str) -> bool:
    """Whether a call unpacks a part of a configuration that is in sight, and no settings file and no code sets such a name."""
    unpacked = [keyword.value for keyword in call.keywords if keyword.arg is None]
    keys = _keys(source, unpacked[0]) if len(unpacked) == 1 else ()
    if not keys or source.neighbours is None or _may_be_said_elsewhere(source, name):
        return False
    parts = source.neighbours.settings(keys[-1]) or ()
    is_in_sight = any(found.setting.value is UNREAD and _fits(keys, _path(found)) for found in parts)
    return is_in_sight and source.neighbours.settings(name) == [] and _nodes_set(source, (*keys, name)) == []


def _by_keys(source: Source, keys: tuple[str, ...]) -> Default | None:
    """The value of the setting to which these keys lead."""
    if (
        not keys
        or source.neighbours is None
        or not OF_LOADERS.search(keys[-1])
        or _may_be_said_elsewhere(source, keys[-1])
    ):
        return None
    in_files = source.neighbours.settings(keys[-1])
    in_code = _nodes_set(source, keys)
    if in_files is None or in_code is None:
        return None
    fitting = [found for found in in_files if not found.setting.keys or _fits(keys, _path(found))]
    if named := _named_in(source, fitting):
        return _common_value([(found.setting.value, found.place) for found in named])
    return _common_value([*((found.setting.value, found.place) for found in fitting), *in_code])


def given_by_settings(source: Source, constructor: Function, parameter: ast.arg) -> Default | None:
    """What a parameter is of a class that settings files build (`_target_: data.Images`); None where that cannot be told.

    Calls of the class leave it out, as one does by which a module tries itself out.
    """
    owner = class_of(source, constructor)
    if source.neighbours is None or not owner or not OF_LOADERS.search(parameter.arg):
        return None
    sections = source.neighbours.sections_for(owner)
    in_files = source.neighbours.settings(parameter.arg)
    if not sections or in_files is None or not all(section.is_whole for section, _ in sections):
        return None
    if not any(_may_be_chosen(source, file) for _, file in sections):
        return None
    if any(argument(there, call, parameter.arg) is not ABSENT for there, call in calls_in_sight(source, owner)):
        return None
    is_everywhere = all(any(each.keys[-1] == parameter.arg for each in section.settings) for section, _ in sections)
    # What else hydra merges into a section of the class names no class, or this one; another class's is inherited at most.
    of_class = [each for each in in_files if each.made == owner]
    others = [each for each in in_files if not each.made or (each.made != owner and not is_everywhere)]
    found = [(each.setting.value, each.place) for each in (*of_class, *others)]
    if not is_everywhere:
        written = default_expression(constructor, parameter)
        value = constant(source, written) if written is not None else UNKNOWN
        if value is UNKNOWN:
            return None
        found.append((value, f"{source.path}:{parameter.lineno}"))
    return _common_value(found)


def _may_be_chosen(source: Source, file: str) -> bool:
    """Whether a settings file is one of hydra's that some list of defaults chooses of its group, or of no such group.

    A template's own data, which the lists of a project no longer name, is left over.
    """
    chosen = chosen_of_group(source, file.rpartition("/")[0].rpartition("/")[2])
    return not chosen or None in chosen or stem_of(file) in chosen


def chosen_of_group(source: Source, group: str) -> set[str | None]:
    """Which files of a folder lists of defaults choose (`- data: images.yaml`), without endings; None for one out of sight."""
    if not group or source.neighbours is None:
        return set()
    chosen = [
        found.setting.value
        for key in (group, *(each.format(group) for each in _CHOICES))
        for found in source.neighbours.settings(key) or ()
        if found.setting.keys[-2:] == ("defaults", key)
    ]
    return {stem_of(each) if isinstance(each, str) else None for each in chosen}


def stem_of(file: str) -> str:
    """The last name of a path without the ending of YAML."""
    name = file.rpartition("/")[2]
    return next((name.removesuffix(each) for each in YAML if name.endswith(each)), name)


def _common_value(found: list[tuple[object, str]]) -> Default | None:
    """The one value of all these places."""
    values = [value for value, _ in found]
    if (
        not values
        or UNREAD in values
        or any(value != values[0] or type(value) is not type(values[0]) for value in values)
    ):
        return None
    more = f" and {len(found) - 1} other place{'s' * (len(found) > 2)}" if len(found) > 1 else ""
    return Default(values[0], UNLESS, place=f"`{found[0][1]}`{more}")


def _keys(source: Source, node: ast.expr, depth: int = 3) -> tuple[str, ...]:
    """The keys by which an expression is taken from a configuration, as far as they are in sight; () where it is none."""
    parts: list[str] = []
    while (taken := _base_and_key(node)) is not None:
        node, key = taken
        parts.insert(0, key)
    if not isinstance(node, ast.Name) or not parts:
        return ()
    bindings = source.lookup(node)
    value = assigned_value(source, bindings[0]) if len(bindings) == 1 else None
    if value is not None and depth and (before := _keys(source, value, depth - 1)):
        return (*before, *parts)
    names = [node.id, *parts]
    first = next((at for at, name in enumerate(names[:-1]) if _SETTINGS.search(name)), None)
    if first is not None:
        return tuple(names[first + 1 :])
    return tuple(parts) if isinstance(value, ast.Call) and last_name(value.func) in _READS else ()


def _base_and_key(node: ast.expr) -> tuple[ast.expr, str] | None:
    """What a setting is taken from, and by which key: `cfg.data`, `cfg["data"]`, `cfg.get("data", {})`."""
    if isinstance(node, ast.Attribute):
        return node.value, node.attr
    key: ast.expr | None = None
    if isinstance(node, ast.Subscript):
        base, key = node.value, node.slice
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "get" and node.args:
        base, key = node.func.value, node.args[0]
    return (base, key.value) if isinstance(key, ast.Constant) and isinstance(key.value, str) else None


def _path(found: Found) -> tuple[str, ...]:
    """The keys that lead to a setting, before them the folders of its file: hydra's groups are such."""
    return (*found.file.split("/")[:-1], *found.setting.keys)


def _named_in(source: Source, found: list[Found]) -> list[Found]:
    """Those settings of files that the file names itself: `add_argument("--config", default="configs/train.yaml")`."""
    texts = {os.path.normpath(text) for node in source.nodes(ast.Constant) if (text := _file_named(node))}
    return [each for each in found if any(f"/{each.file}".endswith(f"/{text.lstrip('./')}") for text in texts)]


def _file_named(node: ast.Constant) -> str:
    return node.value if isinstance(node.value, str) and node.value.endswith(SUFFIXES) else ""


def _fits(keys: tuple[str, ...], path: tuple[str, ...]) -> bool:
    """Whether the last of all keys that lead to a setting are these."""
    return path[-len(keys) :] == keys


def _may_be_said_elsewhere(source: Source, name: str) -> bool:
    """Whether a command line declares a setting, or code gives it to a key."""
    assert source.neighbours is not None
    declared = any(destination(call) == name for call in source.calls(".add_argument"))
    return (
        declared
        or _writes_key(source, name)
        or any(source.neighbours.program_carries(mark) for mark in (declares(name), sets_key(name)))
    )


def _writes_key(source: Source, name: str) -> bool:
    """Whether the file gives a key of this name a value, in a dict or in an assignment."""
    by_key = [place.slice for place in source.nodes(ast.Subscript) if not isinstance(place.ctx, ast.Load)]
    in_dicts = [key for table in source.nodes(ast.Dict) for key in table.keys]
    return any(isinstance(key, ast.Constant) and key.value == name for key in (*by_key, *in_dicts))


def _nodes_set(source: Source, keys: tuple[str, ...]) -> list[tuple[object, str]] | None:
    """What code gives the node of a configuration (`_C.DATALOADER.NUM_WORKERS = 0`), and where; None where it cannot be told.

    Only such as are made empty in the same file and filled under no condition.
    """
    assert source.neighbours is not None
    found: list[tuple[object, str]] = []
    for there in (source, *source.neighbours.program_sources(sets(keys[-1]))):
        for store in attributes(there).get(keys[-1], ()):
            if isinstance(store.ctx, ast.Load) or (isinstance(store.value, ast.Name) and store.value.id == "self"):
                continue
            path = tuple(dotted_name(store).split("."))[1:]
            if path and len(path) >= len(keys) and not _fits(keys, path):
                continue
            value = assigned_value(there, store)
            written = constant(there, value) if value is not None and _fits(keys, path) else UNKNOWN
            if written is UNKNOWN or not _is_node(there, store):
                return None
            found.append((written, f"{there.path}:{store.lineno}"))
    return found


def _is_node(source: Source, store: ast.Attribute) -> bool:
    """Whether an attribute is of a node that the file makes empty, set under no condition."""
    root: ast.expr = store
    while isinstance(root, ast.Attribute):
        root = root.value
    made = resolve(source, root)
    is_made = isinstance(made, ast.Call) and last_name(made.func) in _NODES
    return is_made and source.enclosing(store, ast.If, ast.For, ast.While, ast.Try) is None
