"""PA212: a recurrent cell that Python calls once per time step where the whole sequence is known."""

from __future__ import annotations

import ast
import itertools
from collections.abc import Iterator

from perfaudit.records import NamedTuple
from perfaudit.static.registry import Proposal, Seen, check
from perfaudit.static.source import Source
from perfaudit.static.understanding.demonstrations import is_shown_only, is_test
from perfaudit.static.understanding.how_often import runs_every_step
from perfaudit.static.understanding.names import last_name
from perfaudit.static.understanding.values import assigned_value

_LAYERS = {"torch.nn.LSTMCell": "nn.LSTM", "torch.nn.GRUCell": "nn.GRU", "torch.nn.RNNCell": "nn.RNN"}
_TAKES_APART = {"split", "chunk", "unbind"}


class _Turn(NamedTuple):
    """`h, c = self.cell(x_t, (h, c))`: the call, the layer that serves, the names of its state, its input."""

    call: ast.Call
    layer: str
    state: tuple[str, ...]
    given: ast.expr


@check("PA212", ast.For)
def recurrent_cell_in_loop(source: Source, loop: ast.For) -> Iterator[Seen]:
    if not _goes_through_time(loop) or not any(source.calls(name) for name in _LAYERS):
        return
    if not all(isinstance(statement, (ast.Assign, ast.AugAssign, ast.Expr)) for statement in loop.body):
        return
    turns = [turn for statement in loop.body if (turn := _turn(source, statement)) is not None]
    if not turns or not _is_a_stack(loop, turns) or is_test(source, loop) or is_shown_only(source, loop):
        return
    if not runs_every_step(source, loop):
        return
    layers = f", num_layers={len(turns)}" if len(turns) > 1 else ""
    yield Seen(
        loop,
        f"`{source.brief(turns[0].call)}` runs once per time step from Python, a few small kernels each time, though no "
        "input depends on an output",
        Proposal(
            f"`{turns[0].layer}(...{layers})` over the whole sequence, which cuDNN runs in few kernels, and what follows on "
            "all its outputs at once; checkpoints have the weights under other names (`weight_ih` is `weight_ih_l0`)"
        ),
        hot=True,
    )


def _goes_through_time(loop: ast.For) -> bool:
    """Whether a loop counts upwards, or runs over the parts of a tensor."""
    match loop.iter:
        case ast.Name():  # what a cell gets of it is a tensor
            return isinstance(loop.target, ast.Name)
        case ast.Call(func=ast.Name(id="range"), args=[_] | [ast.Constant(value=0), _]):
            return isinstance(loop.target, ast.Name)
        case ast.Call(func=ast.Name(id="enumerate"), args=[ast.Call(func=ast.Attribute(attr=name))]):
            return name in _TAKES_APART
        case ast.Call(func=ast.Attribute(attr=name)):
            return name in _TAKES_APART
    return False


def _turn(source: Source, statement: ast.stmt) -> _Turn | None:
    """The turn that a statement is, where the state that a cell gets is the one that it gives."""
    if (
        not isinstance(statement, ast.Assign)
        or len(statement.targets) != 1
        or not isinstance(statement.value, ast.Call)
    ):
        return None
    call = statement.value
    layer = _layer_for(source, call.func)
    if not layer or len(call.args) != 2 or call.keywords:
        return None
    state = _names(statement.targets[0])
    return _Turn(call, layer, state, call.args[0]) if state and state == _names(call.args[1]) else None


def _layer_for(source: Source, cell: ast.expr) -> str:
    """The layer that does for a whole sequence what a cell does for one step; "" where it is no cell of torch's."""
    if not isinstance(cell, ast.Attribute) or not isinstance(cell.value, ast.Name) or cell.value.id != "self":
        return ""
    stores = [a for a in source.nodes(ast.Attribute) if a.attr == cell.attr and isinstance(a.ctx, ast.Store)]
    around = source.enclosing(cell, ast.ClassDef)
    own = [store for store in stores if source.enclosing(store, ast.ClassDef) is around]
    made = assigned_value(source, own[0]) if len(own) == 1 else None
    return _LAYERS.get(source.qualified_name(made.func) or "", "") if isinstance(made, ast.Call) else ""


def _names(node: ast.expr) -> tuple[str, ...]:
    """`h`, or `h` and `c` of a pair; () for anything else."""
    parts = node.elts if isinstance(node, (ast.Tuple, ast.List)) else [node]
    return tuple(part.id for part in parts if isinstance(part, ast.Name)) if len(parts) < 3 else ()


def _is_a_stack(loop: ast.For, turns: list[_Turn]) -> bool:
    """Whether the first cell reads what is known before the loop, each further one the output of the one before it."""
    given = {n.id for n in ast.walk(loop.target) if isinstance(n, ast.Name)}
    states = {name for turn in turns for name in turn.state}
    bound = [n.id for s in loop.body for n in ast.walk(s) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)]
    if any(bound.count(name) != 1 for name in states) or len({turn.layer for turn in turns}) != 1:
        return False  # a state that is masked, or set anew
    from_input, from_state = _what_comes_of(loop, given, states)
    first = {n.id for n in ast.walk(turns[0].given) if isinstance(n, ast.Name)}
    if not first & (given | from_input) or first & (states | from_state):
        return False
    pairs = itertools.pairwise(turns)
    return all(isinstance(turn.given, ast.Name) and turn.given.id == before.state[0] for before, turn in pairs)


def _what_comes_of(loop: ast.For, given: set[str], states: set[str]) -> tuple[set[str], set[str]]:
    """The names that the loop makes of its own target, and those that it makes, or fills, from the state."""
    from_input: set[str] = set()
    from_state: set[str] = set()
    for _ in loop.body:  # until nothing is added: a name that is set below may be read above in the next turn
        for statement in loop.body:
            nodes = list(ast.walk(statement))
            read = {n.id for n in nodes if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)}
            made = {n.id for n in nodes if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)} - states
            made |= {n.value.id for n in nodes if _is_filled(n) and isinstance(n.value, ast.Name)}  # type: ignore[attr-defined]  # by the test before
            if read & (states | from_state):
                from_state |= made
            elif read & (given | from_input):
                from_input |= made
    return from_input, from_state


def _is_filled(node: ast.AST) -> bool:
    """Whether a node is the `outputs` of `outputs[t] = h` and of `outputs.append(h)`, with what makes it so around it."""
    if isinstance(node, ast.Subscript):
        return isinstance(node.ctx, ast.Store)
    return isinstance(node, ast.Attribute) and last_name(node) in ("append", "extend", "insert")
