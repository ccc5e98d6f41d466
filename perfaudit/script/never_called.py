"""Findings in functions that no step was seen to call, and at calls that have built nothing. Pure but for reading files."""

from __future__ import annotations

import ast
import contextlib
import os
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from perfaudit.findings import Finding

Lines = tuple[str, int, int]  # file, first and last line
OF_LOADERS = ("PA101", "PA102", "PA103")
Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
COMPILED = ("jit", "compile", "script")  # in decorators: calls of what these make are not told


def lines_never_called(findings: Sequence[Finding], called: Mapping[str, Sequence[Sequence[Any]]]) -> list[Lines]:
    """File, line and line of findings whose function is not among those that were called.

    called: first lines and names, by file. A file that is not there was not looked at. Of nested functions the innermost one
    counts, and a lambda and what a decorator may have compiled are left out.
    """
    return _lines(findings, called, False)


def lines_called(findings: Sequence[Finding], called: Mapping[str, Sequence[Sequence[Any]]]) -> list[Lines]:
    """The same of findings whose function is among them."""
    return _lines(findings, called, True)


def _lines(findings: Sequence[Finding], called: Mapping[str, Sequence[Sequence[Any]]], is_called: bool) -> list[Lines]:
    of_file: dict[str, set[int]] = {}
    for finding in findings:
        if finding.location is not None:
            of_file.setdefault(os.path.realpath(finding.location.path), set()).add(finding.location.line)
    names = {os.path.realpath(file): {tuple(each) for each in some} for file, some in called.items()}
    return [
        (file, line, line)
        for file in of_file.keys() & names.keys()
        for line in sorted(_in_functions(_functions(file), of_file[file], names[file], is_called))
    ]


def loaders_never_built(findings: Sequence[Finding], built: Sequence[Lines]) -> list[Lines]:
    """File, line and line of findings at calls of `DataLoader` that are not among those that have built one.

    built: the calls that have; [] where that is not known. What builds a loader in another way, as a class of the user's does,
    is left out.
    """
    places = [each.location for each in findings if each.rule in OF_LOADERS and each.location is not None]
    known = [(os.path.realpath(file), first, last) for file, first, last in built]
    found = []
    for file in dict.fromkeys(os.path.realpath(place.path) for place in places) if known else ():
        lines = {node.lineno for node in _nodes(file) if isinstance(node, ast.Call) and _is_of_torch(node.func)}
        for place in places:
            is_built = any(file == other and first <= place.line <= last for other, first, last in known)
            if os.path.realpath(place.path) == file and place.line in lines and not is_built:
                found.append((file, place.line, place.line))
    return found


def is_where_optimizer_is_built(finding: Finding) -> bool:
    """Whether its line calls the class of an optimizer, and not a library that builds one."""
    return finding.rule == "PA402" and "with `optim=" not in finding.message


def optimizers_never_used(findings: Sequence[Finding], used: Sequence[Lines]) -> list[Lines]:
    """File, line and line of findings at calls of optimizers that are not among those whose optimizers were seen to update.

    used: these; [] where that is not known.
    """
    known = [(os.path.realpath(file), first, last) for file, first, last in used]
    places = [each.location for each in findings if is_where_optimizer_is_built(each) and each.location is not None]
    others = [(os.path.realpath(place.path), place.line) for place in places if known]
    return [
        (file, line, line)
        for file, line in dict.fromkeys(others)
        if not any(file == other and first <= line <= last for other, first, last in known)
    ]


def _is_of_torch(called: ast.expr) -> bool:
    return ast.unparse(called).rpartition(".")[2] == "DataLoader"


def _functions(file: str) -> list[Function]:
    """Those of a file, outer ones first."""
    return [node for node in _nodes(file) if isinstance(node, Function)]


def _nodes(file: str) -> list[ast.AST]:
    """Those of a file; [] where it has changed since it was read."""
    with contextlib.suppress(OSError, SyntaxError, ValueError, RecursionError):
        return list(ast.walk(ast.parse(Path(file).read_bytes())))
    return []


def _in_functions(
    functions: Sequence[Function], lines: set[int], called: Collection[tuple[Any, ...]], is_called: bool
) -> set[int]:
    """Those of the lines whose function is among those that were called, or is not."""
    found = set()
    for line in lines:
        around = [each for each in functions if each.lineno <= line <= (each.end_lineno or each.lineno)]
        innermost = around[-1] if around else None
        if innermost is None or isinstance(innermost, ast.Lambda):
            continue
        # The interpreter's first line of a function is that of a decorator where there is one.
        first = min([innermost.lineno, *(each.lineno for each in innermost.decorator_list)])
        is_compiled = any(word in ast.unparse(each) for each in innermost.decorator_list for word in COMPILED)
        if not is_compiled and ((first, innermost.name) in called) == is_called:
            found.add(line)
    return found
