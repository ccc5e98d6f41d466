"""The class of the samples of a DataLoader, of this file or another one of the project, its methods and what its objects hold."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from perfaudit.expressions import regex
from perfaudit.static.source import FUNCTIONS, Function, Source
from perfaudit.static.understanding.answers import remember
from perfaudit.static.understanding.values import assigned_value, resolve

# What is read when it is asked for, in the text of a class or of what it is given.
READ_WHEN_ASKED = regex(
    r"h5py|memmap|mmap|lmdb|zarr|load_dataset|load_from_disk|netCDF|open_dataset|pyarrow|parquet|ffcv|decord"
    r"|ImageFolder|DatasetFolder|torchvision\.datasets|datasets\.[A-Z]|Reader\(|Dataset\("
)

Found = tuple[Source, ast.ClassDef]


def class_of_samples(source: Source, dataset: ast.expr) -> tuple[Found, ast.Call] | None:
    """The class of the data set, of this file or of another one of the project, and the call that builds it."""
    node = resolve(source, dataset) or dataset
    if not isinstance(node, ast.Call):
        return None
    if isinstance(node.func, ast.Name):
        for definition in source.bound_in(source.tree).get(node.func.id, []):
            if isinstance(definition, ast.ClassDef):
                return (source, definition), node
    dotted = source.qualified_name(node.func) or ""
    if source.neighbours is None or not dotted or dotted.partition(".")[0] == "torch":
        return None
    found = source.neighbours.definition_of(dotted)
    return ((found[0], found[1]), node) if found is not None and isinstance(found[1], ast.ClassDef) else None


def values_held(source: Source, definition: ast.ClassDef, name: str) -> Iterator[ast.expr]:
    """What is assigned to `self.name`; of `self.x, self.y = load()`, the right side."""
    for node in _attributes_set(source, definition).get(name, ()):
        statement = source.statement(node)
        if isinstance(statement, (ast.Assign, ast.AnnAssign)) and statement.value is not None:
            yield assigned_value(source, node) or statement.value


@remember  # asked for each name that a class reads
def _attributes_set(source: Source, definition: ast.ClassDef) -> dict[str, list[ast.Attribute]]:
    """The places in a class that assign an attribute, by its name."""
    found: dict[str, list[ast.Attribute]] = {}
    for node in ast.walk(definition):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            found.setdefault(node.attr, []).append(node)
    return found


def body_of(source: Source, definition: ast.ClassDef) -> str:
    """The text of a class without the line that names it and its bases."""
    return "\n".join(source.text_of(statement) for statement in definition.body)


def may_read_when_asked(source: Source, definition: ast.ClassDef) -> bool:
    """Whether the text of a class names what is read when it is asked for.

    An HDF5 file that `__init__` opens by `with` is closed behind it: what the object holds of it was read there.
    """
    body = body_of(source, definition)
    if "h5py" in body and (constructor := method_of(definition, "__init__")) is not None:
        text = whole = source.text_of(constructor)
        items = [item for node in ast.walk(constructor) if isinstance(node, ast.With) for item in node.items]
        for opened in (item.context_expr for item in items):
            if isinstance(opened, ast.Call) and source.qualified_name(opened.func) == "h5py.File":
                text = text.replace(source.text_of(opened), "", 1)
        body = body.replace(whole, text, 1)
    return READ_WHEN_ASKED.search(body) is not None


def method_of(definition: ast.ClassDef, name: str) -> Function | None:
    return next((item for item in definition.body if isinstance(item, FUNCTIONS) and item.name == name), None)


def function_named(source: Source, node: ast.expr) -> tuple[Source, ast.AST] | None:
    """The function that an expression names, here or in another file of the project; a lambda."""
    if isinstance(node, ast.Lambda):
        return source, node
    if isinstance(node, ast.Name) and len(bindings := source.lookup(node)) == 1 and isinstance(bindings[0], FUNCTIONS):
        return source, bindings[0]
    dotted = source.qualified_name(node) or ""
    if source.neighbours is None or not dotted or dotted.partition(".")[0] == "torch":
        return None
    found = source.neighbours.definition_of(dotted)
    return found if found is not None and isinstance(found[1], FUNCTIONS) else None
