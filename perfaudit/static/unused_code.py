"""Functions and classes that nothing in the project runs, as far as its texts tell."""

from __future__ import annotations

import ast
import functools

from perfaudit.expressions import regex
from perfaudit.static.source import FUNCTIONS, Function, Source
from perfaudit.static.uses import Question

Definition = Function | ast.ClassDef

_WORD = regex(r"[A-Za-z_]\w*")
_ASKS_BY_TEXT = regex(r"\bgetattr\(|\battrgetter\(|__all__")
MAX_TEXT = 200  # characters of a text that may be a name, or hold some
# What somebody runs whom no file names: people, test runners, perfaudit itself (`perfaudit.target.names`), trainers.
_STARTED = regex(
    r"main$|test|forward|(train|val|valid|test|predict)(_dataloader|ing_step|idation_step|_step)$|configure_|on_|compute_loss$"
    r"|(build|make|get|create)_(model|network|net|dataloader|loader|data_loader|optimizer|ema)s?$"
)
# Decorators that leave it to others who calls the function.
_INERT = {
    "no_grad",
    "inference_mode",
    "enable_grad",
    "staticmethod",
    "classmethod",
    "script",
    "compile",
    "lru_cache",
    "cache",
}
# Bases that call no methods of a class but those that `_STARTED` and the list of names below know.
_PLAIN_BASES = {"object", "Module", "Dataset", "ABC", "Function"}
_OF_MODULES = {
    "extra_repr",
    "reset_parameters",
    "train",
    "eval",
    "apply",
    "to",
    "state_dict",
    "load_state_dict",
    "backward",
}


def unused_around(source: Source, node: ast.AST) -> str:
    """The name of a function or class around a node, or of the node itself, that nothing runs; "" where there is none.

    Asked of files of a scan that holds the whole project, see `Uses.shows_all_uses`.
    """
    neighbours = source.neighbours
    around = [a for a in (node, *source.ancestors(node)) if isinstance(a, (*FUNCTIONS, ast.ClassDef))]
    if not around or neighbours is None or not neighbours.answer("shows all uses"):
        return ""
    return next((a.name for a in reversed(around) if _is_unused(source, a, frozenset())), "")


def _is_unused(source: Source, definition: Definition, asked: frozenset[int]) -> bool:
    """Whether nothing names a definition of a module or a method but itself, and what is unused too.

    asked: definitions that are taken for unused, because the question began with them.
    """
    if id(definition) in asked:
        return True
    name = definition.name
    owner = source.parent(definition)
    is_method = isinstance(owner, ast.ClassDef)
    if name.startswith("__") or _STARTED.match(name) or not all(map(_is_inert, definition.decorator_list)):
        return False
    if isinstance(owner, ast.ClassDef):
        if name in _OF_MODULES or not all(_last_name(base) in _PLAIN_BASES for base in owner.bases) or owner.keywords:
            return False
    elif source.scope(definition) is not source.tree:
        return False
    asked |= {id(definition)}
    uses = (
        _attributes_by_name(source).get(name, [])
        if is_method
        else [*source.uses_of(definition, name), *_texts_by_word(source).get(name, [])]
    )
    for use in uses:
        users = [a for a in source.ancestors(use) if isinstance(a, (*FUNCTIONS, ast.ClassDef))]
        if not any(user is definition or _is_unused(source, user, asked) for user in users):
            return False
    question: Question = "method may be named" if is_method else "may be named"
    return source.neighbours is not None and not source.neighbours.answer(question, name)


def _is_inert(decorator: ast.expr) -> bool:
    return _last_name(decorator.func if isinstance(decorator, ast.Call) else decorator) in _INERT


def _last_name(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


@functools.lru_cache(maxsize=4)  # asked for every finding of a file
def _attributes_by_name(source: Source) -> dict[str, list[ast.AST]]:
    """The attributes of a file by their last name, and the texts that may be a name."""
    table: dict[str, list[ast.AST]] = {}
    for attribute in source.nodes(ast.Attribute):
        table.setdefault(attribute.attr, []).append(attribute)
    for name, texts in _texts_by_word(source).items():
        table.setdefault(name, []).extend(texts)
    return table


@functools.lru_cache(maxsize=4)
def _texts_by_word(source: Source) -> dict[str, list[ast.AST]]:
    """Texts by the words in them, where something asks for names by texts; none of the others is a name."""
    table: dict[str, list[ast.AST]] = {}
    if not _ASKS_BY_TEXT.search(source.text):
        return table
    for text in source.nodes(ast.Constant):
        if (
            isinstance(text.value, str)
            and len(text.value) <= MAX_TEXT
            and not isinstance(source.parent(text), ast.Expr)
        ):
            for word in set(_WORD.findall(text.value)):
                table.setdefault(word, []).append(text)
    return table
