"""Calls of what libraries make, which can run no code but the library's own."""

from __future__ import annotations

import ast
import re
import sys

from perfaudit.expressions import regex
from perfaudit.static.source import FUNCTIONS, Source
from perfaudit.static.source.syntax import walk
from perfaudit.static.understanding.names import dotted_name, last_name
from perfaudit.static.understanding.opaque import is_library, made_of
from perfaudit.static.understanding.values import resolve

MODEL = regex(r"model|net(work)?$|encoder|decoder|backbone", re.IGNORECASE)
_WITH_PLAIN_OBJECTS = {  # modules of Python's whose objects run nothing of others; `functools`, `pickle` and the like are none
    *(
        "collections",
        "csv",
        "datetime",
        "decimal",
        "fractions",
        "glob",
        "io",
        "itertools",
        "json",
        "logging",
        "math",
        "os",
    ),
    *("pathlib", "random", "re", "shutil", "statistics", "string", "tempfile", "textwrap", "time", "zipfile"),
}
_OF_TORCH = regex(
    r"torch\.([a-z]\w*|(cuda\.)?\w*Tensor|Generator|cuda\.(Event|Stream)|autograd\.Variable"
    r"|(linalg|fft|nn\.functional|special)\.\w+)"
)
_BESIDE_MODELS = regex(r"torch(audio|metrics|\.utils\.tensorboard)\.|torchvision\.(transforms|io|utils)\.")
# By its name, a function that gives back an object of somebody else, or runs a function of somebody else.
_GIVES_BACK = regex(r"(^|[._])loads?(_|$)|import|copy|compile|wrap|partial|vectorize|pyfunc|pickle|(^|\.)[vp]?map$")
_RUN_IN_TURN = {"Compose", "RandomApply", "RandomChoice", "RandomOrder", "Lambda"}
_FOLLOW = 4  # transforms in transforms


def is_of_library(source: Source, call: ast.Call, models: set[str]) -> bool:
    """Whether a call is of what a library in sight makes, which has no model: `Image.open(path).convert("RGB")`.

    Also under a name that nothing else is bound to: `image = Image.open(path)`, then `image.rotate(90)`. Neither the call nor
    any before it in the chain is handed a model or a function. models: the names of those that are known.
    """
    if not _is_handed_values(source, call, models):
        return False
    if not isinstance(call.func, ast.Attribute):  # the object itself is called: a transform
        made = made_of(source, call.func) if isinstance(call.func, ast.Name) else [call.func]
        own = source.lookup(call.func) if isinstance(call.func, ast.Name) else made
        return len(made) == len(own) > 0 and all(_is_plain_object(source, value, models) for value in made)
    if _is_made_by_library(source, call.func, models):
        return True
    root: ast.AST = call.func
    while isinstance(root, ast.Attribute) or (isinstance(root, ast.Call) and isinstance(root.func, ast.Attribute)):
        if isinstance(root, ast.Call) and not _is_handed_values(source, root, models):
            return False
        root = root.func if isinstance(root, ast.Call) else root.value
    if not isinstance(root, ast.Name):
        return False
    made = made_of(source, root)
    return len(made) == len(source.lookup(root)) > 0 and all(_is_made_by_library(source, one, models) for one in made)


def _is_made_by_library(source: Source, value: ast.AST, models: set[str]) -> bool:
    """Whether a value is what a library's function gives, or a method of that."""
    while isinstance(value, (ast.Attribute, ast.Call)):
        if isinstance(value, ast.Attribute):
            value = value.value
            continue
        if is_library(source, value.func):
            return _is_plain_object(source, value, models)
        if not _is_handed_values(source, value, models):
            return False
        value = value.func
        if not isinstance(value, ast.Attribute):  # what a method gives is called: it may be anybody's
            return _is_plain_object(source, value, models)
    return False


def _is_plain_object(source: Source, call: ast.expr | None, models: set[str], depth: int = _FOLLOW) -> bool:
    """Whether a function of a library makes an object of the library's own, and none of somebody else is in it."""
    if not isinstance(call, ast.Call) or not is_library(source, call.func):
        return False
    name = source.qualified_name(call.func) or ""
    top, _, rest = name.partition(".")
    if _GIVES_BACK.search(rest) or not _is_handed_values(source, call, models):
        return False
    if name.startswith("torch"):
        if not (_OF_TORCH.fullmatch(name) or _BESIDE_MODELS.match(name)):
            return False
    elif top in sys.stdlib_module_names and top not in _WITH_PLAIN_OBJECTS:
        return False
    if name.rpartition(".")[2] not in _RUN_IN_TURN:
        return True
    return bool(call.args) and _are_transforms(source, call.args[0], models, depth)


def _are_transforms(source: Source, node: ast.expr, models: set[str], depth: int) -> bool:
    """Whether an expression is a list of nothing but transforms of a library's."""
    listed = resolve(source, node)
    if not isinstance(listed, (ast.List, ast.Tuple)) or not depth:
        return False
    own = [resolve(source, element) for element in listed.elts]
    return all(_is_plain_object(source, one, models, depth - 1) for one in own)


def _is_handed_values(source: Source, call: ast.Call, models: set[str]) -> bool:
    """Whether no argument of a call is a model, by its name, or a function or class that nobody sees run."""
    given = [*call.args, *(keyword.value for keyword in call.keywords)]
    if any(MODEL.search(last_name(each)) for each in given if not isinstance(each, ast.Call)):
        return False
    for node in (node for each in given for node in walk(each)):
        if isinstance(node, ast.Lambda):
            return False
        parent = source.parent(node)
        if not isinstance(node, (ast.Name, ast.Attribute)) or (isinstance(parent, ast.Call) and parent.func is node):
            continue
        is_part = isinstance(parent, ast.Attribute)  # of a module or of settings: `config.path`
        if dotted_name(node) in models - {""} and not is_part:
            return False
        if isinstance(node, ast.Name) and not is_part and _is_code(source, node):
            return False
    return True


def _is_code(source: Source, name: ast.Name) -> bool:
    """Whether a name is that of a function or class of the program."""
    if any(isinstance(binding, (*FUNCTIONS, ast.ClassDef)) for binding in source.lookup(name)):
        return True
    return name.id in source.aliases and not is_library(source, name)
