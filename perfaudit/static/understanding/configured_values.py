"""What a setting of loaders is by the configuration of a program: `cfg.data.num_workers`, which its YAML sets to 0.

What settings files say, and what code gives the nodes of a configuration, holds where all of it says the same. A file that an
option of the command line names by default counts alone. A command line that declares the setting, and code that gives it another
value, leave it unknown. docs/scan.md lists the conditions.
"""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Set
from typing import TYPE_CHECKING

from perfaudit.expressions import regex
from perfaudit.static.project.given_in_code import OFF, ON, SOME, gives, gives_elsewhere
from perfaudit.static.project.loader_marks import declares, sets
from perfaudit.static.project.settings_text import SUFFIXES, UNREAD
from perfaudit.static.source import Function, Source
from perfaudit.static.understanding.built_by_settings import (
    OF_LOADERS,
    READERS,
    class_of,
    may_be_chosen,
    sections_building,
)
from perfaudit.static.understanding.calls_by_name import calls_in_sight
from perfaudit.static.understanding.defaults import Default, default_expression
from perfaudit.static.understanding.members import attributes
from perfaudit.static.understanding.names import dotted_name, last_name
from perfaudit.static.understanding.values import ABSENT, UNKNOWN, argument, assigned_value, constant, resolve

if TYPE_CHECKING:
    from perfaudit.static.project.settings_files import Found

# Options that name the configuration of a training, and what the configuration of something else is called.
_CONFIGURATION, _OTHERWISE = regex(r"(?i)conf|cfg|yaml|opt|param|setting"), regex(r"(?i)test|eval|val|infer|demo|pred")
UNLESS = "another configuration says otherwise"
UNLESS_GIVEN = "a configuration says otherwise"
_SETTINGS = regex(
    r"(^|_)(args?|opts?|options?|hparams|hps|hyp|cfgs?|conf|configs?|configuration|params|parameters|flags|settings?|yaml)$",
    re.IGNORECASE,
)
# Nodes that are made empty and filled line by line.
_NODES = ("CN", "CfgNode", "ConfigNode", "edict", "EasyDict", "ConfigDict", "AttrDict")
# What brings settings of its own.
_FRAMEWORKS = frozenset({"detectron2", "mmcv", "mmengine", "fvcore", "maskrcnn_benchmark", "configparser"})
_READS = ("load", "safe_load", "full_load", "load_config", "load_yaml", "read_yaml", "get_config", "create")


def configured_value(source: Source, node: ast.expr) -> Default | None:
    """What an expression is that takes a setting of loaders from a configuration; None where that cannot be told."""
    keys = keys_taken(source, node)
    found = _by_keys(source, keys)
    if not isinstance(node, ast.Call) or len(node.args) < 2:
        return found
    value = constant(source, node.args[1])  # of `cfg.get("workers", 1)`, where a file may lack it
    if found is None and value is not UNKNOWN and keys and _is_set_nowhere(source, keys[-1]):
        return Default(value, UNLESS_GIVEN) if _has_others_in_files(source, node, keys) else None
    return found if found is not None and found.value == value else None


def _is_set_nowhere(source: Source, name: str) -> bool:
    """Whether neither files nor code of a project that reads settings files give a setting of loaders a value."""
    if source.neighbours is None or not OF_LOADERS.search(name) or not is_configured_by_files(source):
        return False
    return source.neighbours.settings(name) == [] and not _is_given(source, name, (OFF, ON, SOME))


def _has_others_in_files(source: Source, node: ast.Call, keys: tuple[str, ...]) -> bool:
    """Whether settings files have what a file takes from the same part of a configuration: `cfg["folder"]` beside `cfg.get(...)`.

    Else the configuration of the program is out of sight.
    """
    own, others = (
        _base_and_key(node),
        (*source.nodes(ast.Subscript), *source.nodes(ast.Attribute), *source.nodes(ast.Call)),
    )
    beside = {
        taken[1]
        for other in others
        if own and (taken := _base_and_key(other)) and source.text_of(taken[0]) == source.text_of(own[0])
    }
    return source.neighbours is not None and any(
        leads_to((*keys[:-1], key), found)
        for key in sorted(beside - {keys[-1]})
        for found in source.neighbours.settings(key) or ()
    )


def configured_argument(source: Source, call: ast.Call, name: str) -> Default | None:
    """What a call is given under a name by the part of a configuration that it unpacks: `DataLoader(images, **cfg.loader)`."""
    keys = _keys_unpacked(source, call)
    return _by_keys(source, (*keys, name)) if keys else None


def is_left_out(source: Source, call: ast.Call, name: str) -> bool:
    """Whether a call unpacks a part of a configuration that is in sight, and no settings file and no code sets such a name."""
    keys = _keys_unpacked(source, call)
    if not keys or source.neighbours is None:
        return False
    parts = source.neighbours.settings(keys[-1]) or ()
    is_in_sight = any(found.setting.value is UNREAD and leads_to(keys, found) for found in parts)
    return is_in_sight and _is_set_nowhere(source, name)


def _keys_unpacked(source: Source, call: ast.Call) -> tuple[str, ...]:
    """The keys of the part of a configuration that a call unpacks, also by a name that is only unpacked; () where none is."""
    unpacked = [keyword.value for keyword in call.keywords if keyword.arg is None]
    if len(unpacked) != 1:
        return ()
    part = unpacked[0]
    if isinstance(part, ast.Name):
        bindings = source.lookup(part)
        value = assigned_value(source, bindings[0]) if len(bindings) == 1 else None
        uses = [source.parent(use) for use in source.uses_of(bindings[0], part.id)] if bindings else []
        if value is None or not all(isinstance(use, ast.keyword) and use.arg is None for use in uses):
            return ()
        part = value
    return keys_taken(source, part)


def _by_keys(source: Source, keys: tuple[str, ...]) -> Default | None:
    """The value of the setting to which these keys lead."""
    if not keys or source.neighbours is None or not OF_LOADERS.search(keys[-1]):
        return None
    in_files = source.neighbours.settings(keys[-1])
    in_code = _nodes_set(source, keys)
    if in_files is None or in_code is None:
        return None
    fitting = [found for found in in_files if not found.setting.keys or leads_to(keys, found)]
    named = _named_in(source, fitting)
    if fitting and not (is_configured_by_files(source) and (named or not source.neighbours.lacks_beside(fitting))):
        return None
    said = [(found.setting.value, found.place) for found in named or fitting]
    return _unless_given(source, keys[-1], _common_value(said if named else [*said, *in_code]))


def is_configured_by_files(source: Source, more: Set[str] = frozenset()) -> bool:
    """Whether the project reads settings files, and none of hydra's moves sections, and no framework adds settings of its own.

    more: frameworks of which it is known that they add none.
    """
    assert source.neighbours is not None
    reads = source.neighbours.project_imports
    return reads(READERS | more) and not reads(_FRAMEWORKS - more) and not source.neighbours.settings_move()


def _unless_given(source: Source, name: str, found: Default | None, *, is_passed: bool = False) -> Default | None:
    """A value, if no Python code of the project gives the setting another one, and no command line declares it.

    is_passed: files pass it to all that they build, so that what a constructor has for it by default gives nothing, nor what an
    evaluation passes to a loader of its own.
    """
    if found is None:
        return None
    others = (ON, SOME) if not found.value else (OFF, SOME)
    return None if _is_given(source, name, others, is_passed=is_passed) else found


def _is_given(source: Source, name: str, kinds: tuple[str, ...], *, is_passed: bool = False) -> bool:
    assert source.neighbours is not None
    marks = [*(gives(name, kind) for kind in kinds), declares(name)]
    marks += [gives_elsewhere(name, kind) for kind in kinds if not is_passed]
    return any(source.neighbours.project_carries(mark) for mark in marks)


def given_by_settings(
    source: Source, constructor: Function, parameter: ast.arg, asker: Source | None = None
) -> Default | None:
    """What a parameter is of a class that settings files build (`_target_: data.Images`); None where that cannot be told.

    Calls of the class leave it out, as one does by which a module tries itself out, or pass the same. asker: the file that sees
    the project, where the class lies in one that is seen alone.
    """
    asker = asker or source
    owner = class_of(source, constructor)
    if asker.neighbours is None or not owner or not OF_LOADERS.search(parameter.arg):
        return None
    sections = asker.neighbours.sections_for(owner) or []
    in_files = asker.neighbours.settings(parameter.arg)
    building = sections_building(asker, owner)
    if not building or in_files is None or not all(section.is_whole for section in building):
        return None
    if not any(may_be_chosen(asker, file) for _, file in sections) or asker.neighbours.settings_move():
        return None
    passed = [(there, argument(there, call, parameter.arg)) for there, call in calls_in_sight(asker, owner)]
    is_everywhere = all(any(each.keys[-1] == parameter.arg for each in section.settings) for section in building)
    # What else hydra merges into a section of the class names no class, or this one; another class's is inherited at most.
    classes = [each.made.rpartition(".")[2] for each in in_files]
    pairs = list(zip(in_files, classes, strict=True))
    of_class = [each for each, made in pairs if made == owner]
    others = [each for each, made in pairs if not made or (made != owner and not is_everywhere)]
    found = [(each.setting.value, each.place) for each in (*of_class, *others)]
    if not is_everywhere:
        written = default_expression(constructor, parameter)
        value = constant(source, written) if written is not None else UNKNOWN
        if value is UNKNOWN:
            return None
        found.append((value, _place(source, parameter.lineno)))
    common = _common_value(found)
    if common is None or any(v is not ABSENT and constant(there, v) != common.value for there, v in passed):
        return None
    return _unless_given(asker, parameter.arg, common, is_passed=is_everywhere)


def _place(source: Source, line: int) -> str:
    """File and line of code, for messages; of a notebook, where cells are counted, the file alone."""
    shown = source.reported_as.replace("`", "")
    return shown if shown.endswith(".ipynb") else f"{shown}:{line}"


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


def keys_taken(source: Source, node: ast.expr, depth: int = 3) -> tuple[str, ...]:
    """The keys by which an expression is taken from a configuration, as far as they are in sight; () where it is none."""
    parts: list[str] = []
    while (taken := _base_and_key(node)) is not None:
        node, key = taken
        parts.insert(0, key)
    if not isinstance(node, ast.Name) or not parts:
        return ()
    bindings = source.lookup(node)
    value = assigned_value(source, bindings[0]) if len(bindings) == 1 else None
    if value is not None and depth and (before := keys_taken(source, value, depth - 1)):
        return (*before, *parts)
    made = [assigned_value(source, binding) for binding in bindings]
    parsed = (each for each in made if isinstance(each, ast.Call) and last_name(each.func).startswith("parse"))
    if any(parsed):  # of a command line, which may be declared out of sight
        return ()
    names = [node.id, *parts]
    whole = names[: 2 if node.id == "self" else 1]
    first = next((at for at, name in enumerate(whole) if _SETTINGS.search(name) and at < len(names) - 1), None)
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


def _named_in(source: Source, found: list[Found]) -> list[Found]:
    """Those settings of the one file that an option is by default: `add_argument("--config", default="configs/train.yaml")`.

    Empty where the text names several files, or one in any other way: it may be one that is written, or for an evaluation.
    """
    named = [
        node for node in source.nodes(ast.Constant) if isinstance(node.value, str) and node.value.endswith(SUFFIXES)
    ]
    parent = source.parent(named[0]) if len(named) == 1 else None
    option = source.parent(parent) if isinstance(parent, ast.keyword) and parent.arg == "default" else None
    if not isinstance(option, ast.Call) or last_name(option.func) not in ("add_argument", "option"):
        return []
    names = [word.value for word in option.args if isinstance(word, ast.Constant) and isinstance(word.value, str)]
    if not any(_CONFIGURATION.search(name) for name in names) or any(_OTHERWISE.search(name) for name in names):
        return []
    path = os.path.normpath(str(named[0].value))
    taken = {each.file for each in found if f"/{each.file}".endswith(f"/{path}")}
    return [each for each in found if each.file in taken] if len(taken) == 1 else []


def leads_to(keys: tuple[str, ...], found: Found) -> bool:
    """Whether the last of all keys that lead to a setting are these; first come the folders of its file, as hydra's groups."""
    return _fits(keys, (*found.file.split("/")[:-1], *found.setting.keys))


def _fits(keys: tuple[str, ...], path: tuple[str, ...]) -> bool:
    return path[-len(keys) :] == keys


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
            found.append((written, _place(there, store.lineno)))
    return found


def _is_node(source: Source, store: ast.Attribute) -> bool:
    """Whether an attribute is of a node that the file makes empty, set under no condition."""
    root: ast.expr = store
    while isinstance(root, ast.Attribute):
        root = root.value
    made = resolve(source, root)
    is_made = isinstance(made, ast.Call) and last_name(made.func) in _NODES
    return is_made and source.enclosing(store, ast.If, ast.For, ast.While, ast.Try) is None
