"""PA208: the attention weights of a MultiheadAttention are computed, averaged over the heads, and dropped."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from perfaudit.static import edit
from perfaudit.static.registry import Proposal, Seen, check
from perfaudit.static.source import FUNCTIONS, Source
from perfaudit.static.understanding.how_often import runs_every_step
from perfaudit.static.understanding.members import built_as, own_values
from perfaudit.static.understanding.names import dotted_name
from perfaudit.static.understanding.values import ABSENT, UNKNOWN, argument, constant, is_true, resolve

MULTIHEAD = "torch.nn.MultiheadAttention"
NEED_WEIGHTS = 4  # position of the parameter in MultiheadAttention.forward
DROPOUT = 2  # and of the dropout in the constructor


@check("PA208", call=MULTIHEAD)
def attention_weights_unused(source: Source, made: ast.Call) -> Iterator[Seen]:
    if source.calls(".register_forward_hook") or source.calls("torch.nn.modules.module.register_module_forward_hook"):
        return  # a hook sees what is dropped here
    if _patches_forward(source):
        return
    for call in _calls_of(source, made):
        need = argument(source, call, "need_weights", NEED_WEIGHTS)
        if need is UNKNOWN or not (need is ABSENT or is_true(source, need)) or not _drops_weights(source, call):
            continue
        if isinstance(need, ast.expr):
            edits = edit.replace(source, need, "False")
        else:
            edits = edit.add_keyword(source, call, "need_weights", "False")
        dropout = argument(source, made, "dropout", DROPOUT)
        is_exact = dropout is ABSENT or constant(source, dropout) == 0
        yield Seen(
            call,
            f"`{source.brief(call.func)}` returns its attention weights and they are dropped: to return them it stores "
            "the score of every pair of positions instead of running the fused kernel",
            _advice(source)
            or Proposal("pass need_weights=False", edits, changes=("rounding",) if is_exact else ("rounding", "rng")),
            hot=runs_every_step(source, call),
        )


def _patches_forward(source: Source) -> bool:
    """Whether a file puts another function in the place of some `forward`, which may look at the weights."""
    return any(isinstance(n.ctx, ast.Store) and n.attr == "forward" for n in source.nodes(ast.Attribute))


def _hooks_forward(source: Source) -> bool:
    hooks = (".register_forward_hook", "torch.nn.modules.module.register_module_forward_hook")
    return any(source.calls(name) for name in hooks)


def _advice(source: Source) -> Proposal | None:
    """Advice where another file of the project may see the weights that are dropped here."""
    if source.neighbours is None:
        return None
    found = source.neighbours.some_file("hook", _hooks_forward)
    found = found or source.neighbours.some_file("forward", _patches_forward)
    name = found.rpartition("/")[2]
    return Proposal(f"pass need_weights=False, if what `{name}` hangs on layers needs no weights") if found else None


def _calls_of(source: Source, made: ast.Call) -> list[ast.Call]:
    """The calls that run the layer built here: `self.attn(...)` in its class, or of the name it is given."""
    parent = source.parent(made)
    target = parent.targets[0] if isinstance(parent, ast.Assign) and len(parent.targets) == 1 else None
    if isinstance(target, ast.Attribute) and dotted_name(target) == f"self.{target.attr}":
        definition = source.enclosing(made, ast.ClassDef)
        calls = [c for c in source.calls(f".{target.attr}") if dotted_name(c.func) == f"self.{target.attr}"]
        calls = [call for call in calls if source.enclosing(call, ast.ClassDef) is definition]
        builders = built_as(source, made, target.attr)
        is_first = bool(builders) and builders[0] is made
        kinds = [source.qualified_name(item.func) for item in builders]
        same = kinds == [MULTIHEAD] * len(own_values(source, made, target.attr))
        return calls if is_first and same else []
    if isinstance(target, ast.Name):
        named = [c for c in source.nodes(ast.Call) if isinstance(c.func, ast.Name) and c.func.id == target.id]
        return [call for call in named if resolve(source, call.func) is made]
    return []


def _drops_weights(source: Source, call: ast.Call) -> bool:
    """Whether only the first thing the call returns is used: `[0]`, or unpacked into a name that nothing reads."""
    parent = source.parent(call)
    if isinstance(parent, ast.Subscript):
        return isinstance(parent.ctx, ast.Load) and constant(source, parent.slice) == 0
    if not isinstance(parent, ast.Assign) or len(parent.targets) != 1:
        return False
    target = parent.targets[0]
    if not isinstance(target, ast.Tuple) or len(target.elts) != 2 or not isinstance(target.elts[1], ast.Name):
        return False
    weights = target.elts[1]
    if source.enclosing(call, *FUNCTIONS) is None or any(
        n.id == weights.id for n in target.elts[:1] if isinstance(n, ast.Name)
    ):
        return False
    return not source.uses_of(weights, weights.id)
