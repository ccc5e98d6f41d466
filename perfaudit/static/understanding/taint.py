"""Which expressions of a training loop are tensors on the device: followed from the loss and from what is moved there."""

from __future__ import annotations

import ast

from perfaudit.records import NamedTuple
from perfaudit.static.source import FUNCTIONS, Loop, Source
from perfaudit.static.source.syntax import walk
from perfaudit.static.understanding.code_reader import CodeReader
from perfaudit.static.understanding.kinds import Kind, Value, whole
from perfaudit.static.understanding.loss_seeds import loss_seeds
from perfaudit.static.understanding.losses import key
from perfaudit.static.understanding.step_code import StepCode, step_code
from perfaudit.static.understanding.step_loops import StepLoop


class Region(NamedTuple):
    """Code that runs on every step, and the kind of every expression in it that was reached."""

    code: StepCode
    kinds: dict[int, Kind]

    def kind(self, node: ast.AST) -> Kind:
        return self.kinds.get(id(node), Kind.UNKNOWN)


def device_values(source: Source, step: StepLoop) -> tuple[Region, ...]:
    """The loop and the functions it calls on every step, each with the kinds of its expressions."""
    kinds: dict[int, Kind] = {}
    seeds = loss_seeds(source, step.loop)
    for function in step.helpers:  # `self.loss` set in one method and read in another
        seeds |= {name: kind for name, kind in loss_seeds(source, function).items() if name.startswith("self.")}
    reader = CodeReader(source, kinds, seeds)
    reader.names = _before(source, step.loop)
    if isinstance(step.loop, ast.While):
        reader.value(step.loop.test)
    else:
        reader.bind(step.loop.target, reader.elements(step.loop.iter))
    reader.block(step.loop.body)
    return tuple(Region(code, kinds) for code in step_code(source, step))


def _before(source: Source, loop: Loop) -> dict[str, Value]:
    """What names are when the loop begins: read from the statements before it, and from `__init__` for `self`.

    Of names that the loop sets again only those are told that begin as tensors on the device.
    """
    reader = CodeReader(source, {}, {})
    function = source.enclosing(loop, *FUNCTIONS)
    owner = source.parent(function) if function is not None else None
    if isinstance(owner, ast.ClassDef):
        reader.names = device_attributes(source, owner)
    around: list[ast.stmt] = [loop]
    for ancestor in source.ancestors(loop):
        if isinstance(ancestor, (*FUNCTIONS, ast.ClassDef)):
            break
        if isinstance(ancestor, ast.stmt):
            around.append(ancestor)
    for statement in reversed(around):
        if isinstance(statement, (ast.For, ast.AsyncFor)) and statement is not loop:
            reader.bind(statement.target, reader.elements(statement.iter))
        for earlier in source.block(statement):
            if earlier is statement:
                break
            reader.statement(earlier)
    again = {key(node) for node in walk(loop) if isinstance(getattr(node, "ctx", None), ast.Store)}
    return {n: v for n, v in reader.names.items() if n not in again or whole(v) is Kind.TENSOR}


def device_attributes(source: Source, owner: ast.ClassDef) -> dict[str, Value]:
    """What `__init__` gives to `self` that lies, or may lie, on the device."""
    reader = CodeReader(source, {}, {})
    for maker in source.bound_in(owner).get("__init__", []):
        reader.block(maker.body if isinstance(maker, FUNCTIONS) else [])
    return {n: v for n, v in reader.names.items() if n.startswith("self.") and whole(v) >= Kind.MAYBE}
