"""What a patch changes of a Python file, function by function: code that can take the place of other code, or why it cannot.

Reads two texts, runs nothing. A patch can be swapped into a running process where it changes bodies of functions and adds
imports, because nothing else that a file does on import is done again. See `perfaudit.training.code_variant`.
"""

from __future__ import annotations

import ast
import types
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

_Function = ast.FunctionDef | ast.AsyncFunctionDef
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_IMPORTS = (ast.Import, ast.ImportFrom)
Import = ast.Import | ast.ImportFrom


class NotSwappable(Exception):
    """Why a patch cannot be put into a running process. The message is a result that a report shows."""


@dataclass(frozen=True, slots=True)
class FunctionChange:
    """A function that a patch changes: its qualified name, the code that its file gives it, the code that the patch gives it."""

    name: str
    before: types.CodeType
    after: types.CodeType


@dataclass(frozen=True, slots=True)
class CodeChange:
    """What a patch changes of one file. functions: outer ones before those that they define. imports: statements it adds."""

    path: str
    functions: tuple[FunctionChange, ...]
    imports: tuple[Import, ...] = ()

    def with_own_code(self) -> CodeChange:
        """The same functions, each with a copy of its own code: what swapping costs without changing anything."""
        return CodeChange(
            self.path, tuple(FunctionChange(f.name, f.before, f.before.replace()) for f in self.functions)
        )


def code_change(path: str, before: str, after: str) -> CodeChange:
    """What the text `after` changes of the text `before`, both of the file at `path`.

    Raises NotSwappable where it changes more than bodies of functions and imports that are added.
    """
    return change_of_trees(path, parse_source(before, path), parse_source(after, path))


def change_of_trees(path: str, old: ast.Module, new: ast.Module) -> CodeChange:
    """The same of two trees, whose nodes have the lines that their code is to have."""
    changed: list[tuple[_Function, _Function]] = []
    imports, rest = added_imports(old, new)
    _compare_bodies(old.body, rest, changed)
    codes_before, codes_after = _codes(path, old), _codes(path, new)
    functions: list[FunctionChange] = []
    for function, patched in changed:
        functions += _pairs(codes_before[_start(function)], codes_after[_start(patched)])
    return CodeChange(path, tuple(functions), imports)


def parse_source(text: str, path: str) -> ast.Module:
    """The tree of a file. Raises NotSwappable."""
    try:
        return ast.parse(text, path)
    except (SyntaxError, ValueError) as error:
        raise NotSwappable(f"{path} does not parse: {error}") from error


def added_imports(old: ast.Module, new: ast.Module) -> tuple[tuple[Import, ...], list[ast.stmt]]:
    """The imports that a patch adds at the top level, and the other statements there. Raises NotSwappable for `__future__`."""
    kept = {ast.dump(statement) for statement in old.body if isinstance(statement, _IMPORTS)}
    added: list[Import] = []
    rest: list[ast.stmt] = []
    for statement in new.body:
        if not isinstance(statement, _IMPORTS) or ast.dump(statement) in kept:
            rest.append(statement)
            continue
        if isinstance(statement, ast.ImportFrom) and statement.module == "__future__":
            raise NotSwappable("the patch adds an import from __future__, which changes how the whole file compiles")
        added.append(statement)
    return tuple(added), rest


def _compare_bodies(
    old: Sequence[ast.stmt], new: Sequence[ast.stmt], changed: list[tuple[_Function, _Function]]
) -> None:
    """Put functions with other bodies into `changed`. Raises NotSwappable for any other difference."""
    for before, after in zip(old, new, strict=False):
        if isinstance(before, _FUNCTIONS) and type(before) is type(after):
            _compare_functions(before, after, changed)
        elif isinstance(before, ast.ClassDef) and isinstance(after, ast.ClassDef):
            if _head(before) != _head(after):
                raise NotSwappable(f"the patch changes how the class {before.name} is made, which was done on import")
            _compare_bodies(before.body, after.body, changed)
        elif ast.dump(before) != ast.dump(after):
            raise NotSwappable(f"the patch changes line {before.lineno}, which ran on import")
    if len(old) != len(new):
        longer, what = (old, "removes") if len(old) > len(new) else (new, "adds")
        raise NotSwappable(f"the patch {what} line {longer[min(len(old), len(new))].lineno}, which runs on import")


def _compare_functions(before: _Function, after: _Function, changed: list[tuple[_Function, _Function]]) -> None:
    if before.name != after.name or _dumps(before.decorator_list) != _dumps(after.decorator_list):
        raise NotSwappable(f"the patch changes the decorators or the name of {before.name}, which were seen on import")
    if ast.dump(before.args) != ast.dump(after.args):
        raise NotSwappable(
            f"the patch changes the parameters of {before.name}, whose default values were computed on import"
        )
    if _dumps(before.body) != _dumps(after.body):
        changed.append((before, after))


def _head(statement: ast.ClassDef) -> list[str]:
    return [statement.name, *_dumps([*statement.bases, *statement.keywords, *statement.decorator_list])]


def _dumps(nodes: Sequence[ast.AST]) -> list[str]:
    return [ast.dump(node) for node in nodes]


def _start(function: _Function) -> tuple[str, int]:
    """The name and the first line that the code of a function has: that of its first decorator."""
    return function.name, min([function.lineno, *(decorator.lineno for decorator in function.decorator_list)])


def _codes(path: str, tree: ast.Module) -> dict[tuple[str, int], types.CodeType]:
    """The code of every function that is defined at the top level or in classes, by name and first line."""
    found: dict[tuple[str, int], types.CodeType] = {}

    def collect(code: types.CodeType) -> None:
        for constant in code.co_consts:
            if isinstance(constant, types.CodeType):
                found[(constant.co_name, constant.co_firstlineno)] = constant
                if not constant.co_flags & _OPTIMIZED:  # the body of a class
                    collect(constant)

    collect(compile(tree, path, "exec", dont_inherit=True))
    return found


_OPTIMIZED = 1  # inspect.CO_OPTIMIZED: what functions have, and the bodies of classes and modules lack


def _pairs(before: types.CodeType, after: types.CodeType) -> Iterator[FunctionChange]:
    """The change of a function, then those of the functions that it defines and that both texts have.

    A function that it defines is matched by its name and its number among those of that name.
    Raises NotSwappable where the code cannot take the place of the other: it reads other variables of the functions around it.
    """
    name = before.co_qualname
    if before.co_freevars != after.co_freevars:
        raise NotSwappable(
            f"with the patch, {name} uses other variables of the code around it, or calls super() where it did not"
        )
    yield FunctionChange(name, before, after)
    inner = _inner_code(after)
    for key, code in _inner_code(before).items():
        if key in inner and code.co_freevars == inner[key].co_freevars:
            yield from _pairs(code, inner[key])
        else:
            yield FunctionChange(code.co_qualname, code, _GONE)


def _removed_function() -> None:
    """Stands for a function that the patched text has no longer: there is no code to swap in."""


_GONE = _removed_function.__code__


def is_gone(change: FunctionChange) -> bool:
    """Whether the patched text no longer has this function: one that is in use cannot be swapped."""
    return change.after is _GONE


def _inner_code(code: types.CodeType) -> dict[tuple[str, int], types.CodeType]:
    """The code of functions that a function defines, by name and number among those of that name."""
    found: dict[tuple[str, int], types.CodeType] = {}
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            number = sum(name == constant.co_name for name, _ in found)
            found[(constant.co_name, number)] = constant
    return found
