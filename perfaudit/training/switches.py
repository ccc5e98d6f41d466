"""Switches of files that were loaded with all versions of what patches change, and patches put in place by them. Child only.

See `multiplexed`. The list of switches is a builtin, because the user's modules look names up there; theirs stay as they are.
"""

from __future__ import annotations

import ast
import builtins
import contextlib
import ctypes
import os
import sys
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from perfaudit.target import overlay
from perfaudit.target.frame_names import names_in
from perfaudit.target.working_folder import full_path
from perfaudit.training.code_change import CodeChange, NotSwappable
from perfaudit.training.code_variant import imported_by, refuse_compiled, stacks
from perfaudit.training.edited_places import Edited
from perfaudit.training.mixed_steps import NumericNames, function_key, numbers_to_put_back, scope_and_loops
from perfaudit.training.multiplexed_file import (
    AS_IT_IS,
    SWITCHES,
    Multiplexed,
    SwitchSetting,
    multiplex_files,
)
from perfaudit.training.stepping_functions import FUNCTIONS, LOOPS

Texts = Mapping[str, tuple[str, Sequence[str]]]  # by path: as it is, and as patches have it

_files: dict[str, Multiplexed] = {}  # by real path
_values: list[object] = []


def load_with_switches(texts: Texts) -> None:
    """From now on these files are loaded with all versions of what their patches change; for a process that has not yet."""
    setattr(builtins, SWITCHES, _values)
    files = multiplex_files({full_path(path): each for path, each in texts.items()})
    for file in files:
        real = os.path.realpath(file.path)
        _files[real] = file
        overlay.compile_with(real, _compiler(file))
    _values[:] = [AS_IT_IS] * sum(len(file.regions) for file in files)


def file_with_switches(path: str) -> Multiplexed | None:
    """A file that was loaded with switches; None for any other."""
    return _files.get(os.path.realpath(path))


def _compiler(file: Multiplexed) -> Callable[[bytes], types.CodeType | None]:
    def code_with_switches(data: bytes) -> types.CodeType | None:
        """The code with switches; None where the file is not the one that the patches are of."""
        with contextlib.suppress(SyntaxError, ValueError):
            if ast.dump(ast.parse(data), include_attributes=True) == ast.dump(file.tree, include_attributes=True):
                return file.code()
        _files.pop(os.path.realpath(file.path), None)
        return None

    return code_with_switches


@dataclass(slots=True)
class SwitchVariant:
    """A patch of a file that was loaded with switches: the version of each of its regions, and the imports that it adds.

    numbers: names that are made numbers again behind it.
    """

    turns: Sequence[SwitchSetting]
    names: Sequence[tuple[dict[str, Any], dict[str, Any]]] = ()  # globals, and what they lack
    numbers: Sequence[NumericNames] = ()
    _path: str = ""
    _was_entered: bool = field(default=False, init=False)

    def enter(self) -> None:
        """Turn the switches: what runs from now on are the versions of the patch."""
        self._was_entered = True
        for namespace, new in self.names:
            namespace.update(new)
        for turn in self.turns:
            _values[turn.region.number] = turn.version

    def leave(self) -> None:
        """Turn them back."""
        for turn in self.turns:
            _values[turn.region.number] = AS_IT_IS
        for namespace, new in self.names:
            for name in new:
                namespace.pop(name, None)
        if self._was_entered and self.numbers:
            for numbers in self.numbers:
                _put_back(numbers)
        self._was_entered = False

    def parts_not_run(self, work: Callable[[], object]) -> list[str]:
        """The lines that it changes, where `work` comes to none of them while it is entered."""
        seen = {turn.region.number: _Noting(turn.version) for turn in self.turns}
        for number, noting in seen.items():
            _values[number] = noting
        try:
            work()
        finally:
            for turn in self.turns:
                _values[turn.region.number] = turn.version
        if any(noting.count for noting in seen.values()):
            return []
        lines = sorted({turn.region.lines[0] for turn in self.turns})
        return [f"line{'s' * (len(lines) > 1)} {' and '.join(map(str, lines))} of {self._path}"]


class _Noting:
    """A switch that counts how often its version was looked up and run."""

    def __init__(self, version: int) -> None:
        self.version, self.count = version, 0

    def __eq__(self, other: object) -> bool:
        is_it = other == self.version
        self.count += is_it
        return is_it

    __hash__ = object.__hash__


def switch_variant(file: Multiplexed, edited: Edited, others: Sequence[types.ModuleType] = ()) -> SwitchVariant:
    """The variant that turns the switches of the places of a patch. Raises NotSwappable with the reason."""
    places, _ = file.split(edited)
    turns = file.turns(places)
    _refuse_what_is_over(file, turns)
    _refuse_what_may_be_compiled(file, turns)
    numbers = numbers_to_put_back(file, places)
    apart = {id(vars(module)) for module in others}
    change = CodeChange(file.path, (), edited.imports)
    names = [(globals_, new) for globals_ in _globals_of(file) if id(globals_) not in apart
             and (new := imported_by(change, globals_))]  # fmt: skip
    return SwitchVariant(turns, names, numbers, file.path_to_show)


def copies(turns: Sequence[SwitchSetting]) -> SwitchVariant:
    """The variant in which these regions run a copy of the statements as they are: what switching costs."""
    regions = {turn.region.number: turn.region for turn in turns}
    return SwitchVariant([SwitchSetting(region, region.control) for region in regions.values()])


def _globals_of(file: Multiplexed) -> Iterator[dict[str, Any]]:
    real = os.path.realpath(file.path)
    for module in list(sys.modules.values()):
        name = vars(module).get("__file__") if isinstance(module, types.ModuleType) else None
        if isinstance(name, str) and os.path.realpath(name) == real:
            yield vars(module)


# ---- what has run already --------------------------------------------------------------------------------------------


def _refuse_what_is_over(file: Multiplexed, turns: Sequence[SwitchSetting]) -> None:
    """Raise NotSwappable for statements before the loop that is running: they have run as they are, and may not run again."""
    real = os.path.realpath(file.path)
    for frame in _frames(real):
        for turn in turns:
            scope, around = scope_and_loops(file, turn.region.way)
            if not _is_of(frame, function_key(scope)):
                continue
            running = _loops_at(scope, frame.f_lineno)
            first = turn.region.lines[0]
            if running and any(loop is running[-1] for loop in around):
                continue
            is_before = turn.region.lines[1] < (running[-1].lineno if running else frame.f_lineno)
            if is_before and (running or not _is_called_in_a_loop(frame)):
                raise NotSwappable(
                    f"line {first} of {file.path_to_show}, which the patch changes, ran before the steps began"
                )


def _refuse_what_may_be_compiled(file: Multiplexed, turns: Sequence[SwitchSetting]) -> None:
    """Raise NotSwappable for a function that torch.compile may have taken into a graph: one that no frame of Python runs now.

    Each switch that is turned would be compiled anew there.
    """
    running = [frame for frame in _frames(os.path.realpath(file.path)) if SWITCHES in frame.f_code.co_names]
    for turn in turns:
        scope, _ = scope_and_loops(file, turn.region.way)
        if not any(_is_of(frame, function_key(scope)) for frame in running):
            refuse_compiled()


def _frames(real: str) -> Iterator[types.FrameType]:
    """The frames of a file that are alive."""
    return (frame for frame in stacks() if os.path.realpath(frame.f_code.co_filename) == real)


def _is_of(frame: types.FrameType, function: tuple[str, int] | None) -> bool:
    code = frame.f_code
    return code.co_name == "<module>" if function is None else (code.co_name, code.co_firstlineno) == function


def _loops_at(scope: ast.AST, line: int) -> list[ast.stmt]:
    """The loops of a scope around a line, outer ones first."""
    found: list[ast.stmt] = []
    waiting = list(ast.iter_child_nodes(scope))
    while waiting:
        node = waiting.pop()
        if isinstance(node, FUNCTIONS) or (not hasattr(node, "lineno") and not isinstance(node, ast.match_case)):
            continue
        if isinstance(node, (ast.stmt, ast.expr)) and not node.lineno <= line <= (node.end_lineno or 0):
            continue
        if isinstance(node, LOOPS):
            found.append(node)
        waiting += ast.iter_child_nodes(node)
    return sorted(found, key=lambda loop: (loop.lineno, -(loop.end_lineno or 0), loop.col_offset))


def _is_called_in_a_loop(frame: types.FrameType) -> bool:
    """Whether a function that is running will be called again: by a loop further out, or by a library."""
    at = frame.f_back
    while at is not None and "perfaudit" not in at.f_globals.get("__name__", "").partition(".")[0]:
        name = at.f_code.co_filename
        if name.startswith("<frozen"):
            break
        file = file_with_switches(name)
        if file is None or _loops_at(_scope_of(file, at), at.f_lineno):
            return True
        at = at.f_back
    return False


def _scope_of(file: Multiplexed, frame: types.FrameType) -> ast.AST:
    functions = (node for node in ast.walk(file.tree) if isinstance(node, FUNCTIONS))
    return next((node for node in functions if _is_of(frame, function_key(node))), file.tree)


# ---- numbers again ---------------------------------------------------------------------------------------------------


def _put_back(numbers: NumericNames) -> None:
    """Give these names the numbers of the tensors that they have, in every frame of the scope that is alive."""
    for frame in _frames(os.path.realpath(numbers.path)):
        if _is_of(frame, numbers.function):
            _make_numbers(frame, numbers.names)


def _make_numbers(frame: types.FrameType, names: frozenset[str]) -> None:
    import torch

    with names_in(frame) as values:
        found = {name: values[name] for name in names if isinstance(values.get(name), torch.Tensor)}
        new = {
            name: tensor.item() for name, tensor in found.items() if tensor.numel() == 1 and not tensor.requires_grad
        }
        values.update(new)
        if new and values is not frame.f_globals and sys.version_info < (3, 13):
            ctypes.pythonapi.PyFrame_LocalsToFast(ctypes.py_object(frame), ctypes.c_int(0))
