"""What statements of a patch leave for statements of the user's, where the two take turns in the middle of a loop.

A patch is right as a whole. In a race a step may find what a step of the other kind has left: a tensor where the user's code
keeps a number, a name that only the patch sets. The texts say whether that can be put right. Runs nothing.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from perfaudit.target.frame_names import OF_AN_ARGUMENT, SEES_ITS_NAMES
from perfaudit.training.code_change import NotSwappable
from perfaudit.training.edited_places import Place, nodes_on, statements_at
from perfaudit.training.multiplexed_file import Multiplexed
from perfaudit.training.stepping_functions import FUNCTIONS, LOOPS

# Methods of a tensor that give no tensor, or one on the host.
_READ_METHODS = frozenset({"item", "tolist", "cpu", "numpy"})
_READ_FUNCTIONS = frozenset({"float", "int", "bool"})
_COMPUTES = (ast.BinOp, ast.UnaryOp)
TURNS = "steps with the patch and without it take turns"

Scope = ast.FunctionDef | ast.AsyncFunctionDef | ast.Module


@dataclass(frozen=True, slots=True)
class NumericNames:
    """Names of a scope that hold numbers, and tensors where the patch is in place: they are made numbers again behind it.

    function: the name and first line of the scope's code, None for the top level of the file.
    """

    path: str
    function: tuple[str, int] | None
    names: frozenset[str]


@dataclass(frozen=True, slots=True)
class _Change:
    """A place with its line, its scope, what stands there and what the patch puts there."""

    line: int
    scope: Scope
    loop: ast.stmt | None  # the innermost around it, in its scope
    before: Sequence[ast.stmt]
    after: Sequence[ast.stmt]


def numbers_to_put_back(file: Multiplexed, places: Sequence[Place]) -> list[NumericNames]:
    """Which names are to be made numbers again whenever the places of this patch are switched off.

    Raises NotSwappable where a step of one kind could find something of the other that it cannot work with.
    """
    changes = [_change(file, place) for place in places]
    found = []
    for scope in {id(change.scope): change.scope for change in changes}.values():
        mine = [change for change in changes if change.scope is scope]
        tensors = {name: change for change in mine for name in _numbers_that_become_tensors(file.path_to_show, change)}
        _refuse_declared(file.path_to_show, scope, tensors)
        _refuse_seen(file.path_to_show, scope, tensors)
        for name, change in tensors.items():
            _refuse_readers(file.path_to_show, scope, mine, name, change)
        _refuse_names_of_one_side(file.path_to_show, scope, mine)
        if tensors:
            found.append(NumericNames(file.path, function_key(scope), frozenset(tensors)))
    return found


def function_key(scope: Scope) -> tuple[str, int] | None:
    """The name and the first line that the code of a function has; None for a module."""
    if isinstance(scope, ast.Module):
        return None
    return scope.name, min([scope.lineno, *(decorator.lineno for decorator in scope.decorator_list)])


def scope_and_loops(file: Multiplexed, way: Sequence[str | int]) -> tuple[Scope, list[ast.stmt]]:
    """The innermost function around a body, or the module, and the loops around it in there, outer ones first."""
    scope: Scope = file.tree
    loops: list[ast.stmt] = []
    for node in nodes_on(file.tree, way):
        if isinstance(node, FUNCTIONS):
            scope, loops = node, []
        elif isinstance(node, LOOPS):
            loops.append(node)
    return scope, loops


def _change(file: Multiplexed, place: Place) -> _Change:
    body = statements_at(file.tree, place.way)
    scope, loops = scope_and_loops(file, place.way)
    before = body[place.start : place.stop]
    line = before[0].lineno if before else place.after[0].lineno
    return _Change(line, scope, loops[-1] if loops else None, before, place.after)


# ---- numbers that become tensors -------------------------------------------------------------------------------------


def _numbers_that_become_tensors(path: str, change: _Change) -> Iterator[str]:
    """Names that are given what a tensor holds, where the patch gives them the tensor. Raises NotSwappable for anything else."""
    kept = {ast.dump(statement) for statement in _simple(change.after)}
    new = [s for s in _simple(change.after) if ast.dump(s) not in {ast.dump(old) for old in _simple(change.before)}]
    for statement in _simple(change.before):
        if ast.dump(statement) in kept or not _reads(statement) or not new:  # what is only taken out leaves nothing
            continue
        if sum(map(_reads, new)) >= _reads(statement):
            continue
        targets = _targets(statement)
        if not targets or not all(isinstance(target, ast.Name) for target in targets):
            raise NotSwappable(
                f"line {statement.lineno} of {path}: the patch leaves a tensor where your code keeps a number, and {TURNS}"
            )
        yield from (target.id for target in targets if isinstance(target, ast.Name))


def _simple(statements: Iterable[ast.stmt]) -> list[ast.stmt]:
    """Statements that hold no others, those in compound ones among them; of a compound one its head counts as one."""
    return [
        node for s in statements for node in ast.walk(s) if isinstance(node, ast.stmt) and not hasattr(node, "body")
    ]


def _reads(statement: ast.stmt) -> int:
    """How often a statement reads what a tensor holds."""
    calls = [node for node in ast.walk(statement) if isinstance(node, ast.Call)]
    return sum(
        (isinstance(call.func, ast.Attribute) and call.func.attr in _READ_METHODS)
        or (isinstance(call.func, ast.Name) and call.func.id in _READ_FUNCTIONS)
        for call in calls
    )


def _targets(statement: ast.stmt) -> list[ast.expr]:
    if isinstance(statement, ast.Assign):
        return statement.targets
    return [statement.target] if isinstance(statement, (ast.AugAssign, ast.AnnAssign)) else []


def _refuse_declared(path: str, scope: Scope, tensors: Iterable[str]) -> None:
    declared = {n for node in ast.walk(scope) if isinstance(node, (ast.Global, ast.Nonlocal)) for n in node.names}
    for name in tensors:
        if name in declared:
            raise NotSwappable(f"the patch makes {name} a tensor, which functions of {path} share, and {TURNS}")


def _refuse_seen(path: str, scope: Scope, tensors: Iterable[str]) -> None:
    """Refuse where a function may look at all of its names, which are then not touched: see `frame_names.names_in`."""
    if isinstance(scope, ast.Module) or not {*tensors}:
        return
    of_arguments = {
        id(node.func) for node in ast.walk(scope) if isinstance(node, ast.Call) and _looks_at_its_argument(node)
    }
    for node in ast.walk(scope):
        name = node.id if isinstance(node, ast.Name) and id(node) not in of_arguments else ""
        if isinstance(node, ast.Attribute) and (node.attr == "f_locals" or ast.unparse(node.value) == "builtins"):
            name = node.attr  # `model.eval()` is a method of something else
        if name in SEES_ITS_NAMES:
            what = f"line {getattr(node, 'lineno', scope.lineno)} of {path} may look at it by {name}"
            raise NotSwappable(f"the patch makes a number of {scope.name} a tensor, {what}, and {TURNS}")


def _looks_at_its_argument(call: ast.Call) -> bool:
    """Whether it is `vars(args)`, which looks at what it is given."""
    is_of_it = isinstance(call.func, ast.Name) and call.func.id in OF_AN_ARGUMENT
    return is_of_it and bool(call.args) and not isinstance(call.args[0], ast.Starred)


def _refuse_readers(path: str, scope: Scope, changes: Sequence[_Change], name: str, changed: _Change) -> None:
    """Refuse where the number is read while it may be a tensor, or the tensor where it may be a number still."""
    replaced = {id(node) for change in changes for s in change.before for node in ast.walk(s)}
    around: ast.AST = changed.loop or scope
    for node in ast.walk(around):
        if (
            isinstance(node, ast.Name)
            and node.id == name
            and isinstance(node.ctx, ast.Load)
            and id(node) not in replaced
        ):
            raise NotSwappable(f"the patch makes {name} a tensor, line {node.lineno} of {path} reads it, and {TURNS}")
    for change in changes:
        for statement in change.after:
            takes_both = {id(argument) for argument in _work_on_both(statement)}
            for node in ast.walk(statement):
                is_read = isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Load)
                if is_read and id(node) not in takes_both:
                    raise NotSwappable(
                        f"line {change.line} of {path}: the patch takes {name} for a tensor, and {TURNS}"
                    )


def _work_on_both(statement: ast.stmt) -> Iterator[ast.expr]:
    """Expressions that may be numbers as well as tensors where they stand."""
    for node in ast.walk(statement):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _READ_FUNCTIONS:
            yield from node.args
        elif isinstance(node, _COMPUTES):
            yield from (child for child in ast.iter_child_nodes(node) if isinstance(child, ast.expr))


# ---- names that one side lacks ---------------------------------------------------------------------------------------


def _refuse_names_of_one_side(path: str, scope: Scope, changes: Sequence[_Change]) -> None:
    """Refuse where one place reads what only another place of the same side has set: it may have run on the other side."""
    bound_before = _bound_names([scope])
    for change in changes:
        own = _bound_names(change.after)
        for other in changes:
            if other is change:
                continue
            for name in sorted(_bound_names(other.after) - bound_before - own):
                if name in _loaded_names(change.after):
                    raise NotSwappable(
                        f"line {change.line} of {path}: the patch reads {name}, which only it sets at line "
                        f"{other.line}, and {TURNS}"
                    )
        gone = _bound_names(change.before) - own
        mine = {id(node) for s in change.before for node in ast.walk(s)}
        for node in ast.walk(scope):
            if (
                isinstance(node, ast.Name)
                and isinstance(node.ctx, ast.Load)
                and node.id in gone
                and id(node) not in mine
            ):
                raise NotSwappable(
                    f"line {change.line} of {path}: the patch does not set {node.id}, line {node.lineno} reads it, and {TURNS}"
                )


def _bound_names(nodes: Iterable[ast.AST]) -> set[str]:
    found: set[str] = set()
    for root in nodes:
        for node in ast.walk(root):
            if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
                found.add(node.id)
            elif isinstance(node, ast.arg):
                found.add(node.arg)
            elif isinstance(node, ast.alias):
                found.add((node.asname or node.name).partition(".")[0])
            elif isinstance(node, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef, ast.ExceptHandler)):
                found.add(node.name or "")
    return found


def _loaded_names(nodes: Iterable[ast.AST]) -> set[str]:
    return {
        node.id
        for root in nodes
        for node in ast.walk(root)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)
    }
