"""Move a function or a lambda out of the function that it is defined in, where it needs nothing of what is around it.

A worker process that is spawned gets functions by name, so only those of a module can be sent to it.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterator
from itertools import pairwise

from perfaudit.findings import Edit, Span
from perfaudit.static import edit
from perfaudit.static.edit import Edits
from perfaudit.static.source import FUNCTIONS, Function, Source

_BUILTIN = frozenset(dir(builtins))


def hoist(source: Source, node: Function | ast.Lambda, name: str) -> Edits | None:
    """The edits that define it in the module, before the statement around it; None where that may change what it does.

    name: of the new function where the node is a lambda, with the number of the lambda if the file has several, for two may be
    moved at once. None for a function of which the file has another by the same name, where it reads a variable of the
    function around it, or one that a module has only when it runs as a script, and where the layout does not allow it.
    """
    top = _statement_of_module(source, node)
    if node.args.defaults or any(node.args.kw_defaults) or _has_star(source):  # which may bring the same name
        return None
    if (
        top is None
        or edit.insert_before(source, top, "") is None
        or not all(_keeps_its_meaning(source, name, node) for name in _reads(node))
    ):
        return None
    if any(
        isinstance(inner, (ast.Global, ast.Nonlocal, ast.Yield, ast.YieldFrom, ast.Await)) for inner in ast.walk(node)
    ):
        return None
    at = source.offset(edit.first_line(top), 0)
    gap = source.newline * 3
    if isinstance(node, ast.Lambda):
        several = [each for each in ast.walk(source.tree) if isinstance(each, ast.Lambda)]
        first = name if len(several) == 1 else f"{name}_{1 + next(n for n, each in enumerate(several) if each is node)}"
        free = next(word for number in range(100) if _is_free(source, word := f"{first}{number or ''}"))
        text = _as_function(source, node, free)
        return (
            None if text is None else edit.together((Edit(Span(at, at), text + gap),), edit.replace(source, node, free))
        )
    named = [each for each in ast.walk(source.tree) if isinstance(each, FUNCTIONS) and each.name == node.name]
    taken = (
        source.bound_in(source.tree).get(node.name) or node.name in source.module_imports | _BUILTIN or len(named) > 1
    )
    text = None if taken or node.decorator_list else _dedented_text(source, node)
    removed = _removal(source, node)
    return None if text is None or removed is None else edit.together((Edit(Span(at, at), text + gap),), removed)


def _has_star(source: Source) -> bool:
    return any(alias.name == "*" for each in source.nodes(ast.ImportFrom) for alias in each.names)


def _statement_of_module(source: Source, node: ast.AST) -> ast.stmt | None:
    """The statement of the module around the node, unless it is a class: its methods see other names."""
    around = [node, *source.ancestors(node)]
    found = next((inner for inner, outer in pairwise(around) if outer is source.tree), None)
    if any(isinstance(each, ast.ClassDef) for each in around):
        return found if isinstance(found, ast.ClassDef) and not _reads_self(node) else None
    return found if isinstance(found, ast.stmt) else None


def _reads_self(node: ast.AST) -> bool:
    return any(isinstance(each, ast.Name) and each.id in ("self", "cls", "super") for each in ast.walk(node))


def _reads(node: Function | ast.Lambda) -> Iterator[ast.Name]:
    return (each for each in ast.walk(node) if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Load))


def _keeps_its_meaning(source: Source, name: ast.Name, node: ast.AST) -> bool:
    """Whether a name that the function reads is its own, or means the same in the module.

    There it is an import, a function, a class, a builtin, or a variable that is set at the top, not under a main guard.
    """
    bindings = source.lookup(name)
    if bindings and all(any(around is node for around in source.ancestors(binding)) for binding in bindings):
        comprehensions = [source.enclosing(binding, ast.comprehension) for binding in bindings]
        loops = [source.parent(each) for each in comprehensions if each is not None]
        around = list(source.ancestors(name))
        return len(loops) < len(bindings) or any(loop is each for loop in loops for each in around)
    if not bindings:
        return name.id in source.module_imports or (name.id in _BUILTIN and name.id not in source.aliases)
    return all(
        not isinstance(binding, ast.arg) and source.parent(source.statement(binding)) is source.tree
        for binding in bindings
    )


def _is_free(source: Source, name: str) -> bool:
    return name not in source.assigned_names and name not in source.aliases and not any(
        isinstance(node, (*FUNCTIONS, ast.ClassDef)) and node.name == name for node in ast.walk(source.tree)
    )  # fmt: skip


def _as_function(source: Source, node: ast.Lambda, name: str) -> str | None:
    """`def name(x):` with the lambda's body as what it returns; None where that is not one line."""
    arguments = ast.unparse(node.args)
    body = source.text_of(node.body)
    if "\n" in body or len(body) > 100:
        return None
    unit = "\t" if "\n\t" in source.text else "    "
    return f"def {name}({arguments}):{source.newline}{unit}return {body}"


def _dedented_text(source: Source, node: Function) -> str | None:
    """The text of the function without its indentation, a comment behind it included; None where a line of it begins inside
    a string.
    """
    if edit.lines_in_strings(source, source.span(node)):
        return None
    indent = source.indent_of(node)
    end = source.line_at(source.span(node).end).end
    lines = source.text[source.span(node).start : end].rstrip().splitlines()
    if any(line.strip() and not line.startswith(indent) for line in lines[1:]):
        return None
    return source.newline.join([lines[0], *(line[len(indent) :] if line.strip() else "" for line in lines[1:])])


def _removal(source: Source, node: Function) -> Edits | None:
    """Take out the lines of the function and the empty ones behind it; None where the block would be empty."""
    if len(source.block(node)) == 1 or not edit.has_own_lines(source, node):
        return None
    start, end = source.offset(edit.first_line(node), 0), source.line_at(source.span(node).end).end
    while (
        end < len(source.text)
        and not source.text[end : source.line_at(end).end].strip()
        and source.line_at(end).end > end
    ):
        end = source.line_at(end).end
    return (Edit(Span(start, end), ""),)
