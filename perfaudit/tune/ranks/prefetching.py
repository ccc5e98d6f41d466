"""FSDP2: parameters of the layers that come next are gathered ahead, while one computes.

Which layers come next is known where a loop shards the layers of a list one after the other: their order in it is that in which
nearly all models run them. Another order would cost time and memory, and change no result: what was gathered for nothing is
thrown away at the end of the backward pass.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from perfaudit.measurements import Settings
from perfaudit.static import edit
from perfaudit.static.source import Source
from perfaudit.tune.ranks.patches import PatchRefused, RankPatch, SeenRanks, patch
from perfaudit.tune.ranks.resharding import FULLY_SHARD

FORWARD, BACKWARD = "forward_prefetch", "backward_prefetch"
DEFAULTS: Settings = {FORWARD: 0, BACKWARD: 1}  # layers that torch gathers ahead by itself, the first one in time only
# One layer, earlier than torch would; and two, in both passes.
SETTINGS: tuple[Settings, ...] = ({FORWARD: 1}, {FORWARD: 2, BACKWARD: 2})
_SETS_IT = ("set_modules_to_forward_prefetch", "set_modules_to_backward_prefetch")
_NUMBERS = ("number", "position", "place")  # names for the number of a layer, of which one is free


def candidates(sources: Sequence[Source], ranks: SeenRanks) -> Iterator[RankPatch]:
    """Patches that gather one layer ahead and two. Raises PatchRefused where the program says that itself."""
    if not any(source.calls(name) for source in sources for name in FULLY_SHARD):
        return
    if any(source.mentions(name) for source in sources for name in _SETS_IT):
        raise PatchRefused("prefetching is left as it is: the program says itself which layers are gathered ahead")
    loops = [
        (source, loop, layer)
        for source in sources
        for loop in source.nodes(ast.For)
        if (layer := _sharded_layer(source, loop))
    ]
    if len(loops) != 1:
        why = "several loops shard layers" if loops else "no loop shards the layers of a list one after the other"
        raise PatchRefused(f"prefetching is not tried: {why}, so that the text does not say which layer comes next")
    source, loop, layer = loops[0]
    bound = source.bound_in(source.scope(loop))
    if (number := next((name for name in _NUMBERS if name not in bound), None)) is None:
        raise PatchRefused(
            f"prefetching is not tried: {source.path}:{loop.lineno} has no name left for the number of a layer"
        )
    layers = source.text_of(_layers(loop))
    for settings in SETTINGS:
        lines = [f"for {number}, {layer} in enumerate({layers}):"]
        ahead, behind = settings[FORWARD], settings.get(BACKWARD)
        lines.append(f"{layer}.{_SETS_IT[0]}(list({layers})[{number} + 1 : {number} + {int(ahead) + 1}])")  # type: ignore[call-overload]  # a number
        if behind is not None:
            lines.append(f"{layer}.{_SETS_IT[1]}(list({layers})[max(0, {number} - {behind}) : {number}][::-1])")
        indent = source.indent_of(loop)
        text = f"{source.newline}{indent}    ".join(lines)
        yield patch(source, loop, settings, DEFAULTS, _words(settings), (), edit.insert_after(source, loop, text))


def _words(settings: Settings) -> str:
    if BACKWARD in settings:
        return (
            f"gather the parameters of {settings[FORWARD]} layers ahead, in both passes: more memory, and less waiting"
        )
    return "gather the parameters of the next layer before the one before it computes"


def _sharded_layer(source: Source, loop: ast.For) -> str:
    """The name of the layer in a loop that shards each of them; "" for other loops."""
    target = loop.target
    if isinstance(target, ast.Tuple) and _is_enumerated(loop) and len(target.elts) == 2:
        target = target.elts[1]
    if not isinstance(target, ast.Name) or loop.orelse or not _is_plain(_layers(loop)):
        return ""
    calls = {id(call) for name in FULLY_SHARD for call in source.calls(name)}
    for statement in loop.body:
        call = statement.value if isinstance(statement, ast.Expr) else None
        if isinstance(call, ast.Call) and id(call) in calls and call.args:
            first = call.args[0]
            if isinstance(first, ast.Name) and first.id == target.id and not _is_bound_in(loop, target.id):
                return target.id
    return ""


def _is_bound_in(loop: ast.For, name: str) -> bool:
    """Whether the body gives the name of the layer to something else, or leaves layers out."""
    return any(
        isinstance(node, (ast.Break, ast.Continue))
        or (isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Store))
        for statement in loop.body
        for node in ast.walk(statement)
    )


def _is_enumerated(loop: ast.For) -> bool:
    call = loop.iter
    return (
        isinstance(call, ast.Call)
        and isinstance(call.func, ast.Name)
        and call.func.id == "enumerate"
        and len(call.args) == 1
    )


def _layers(loop: ast.For) -> ast.expr:
    """What a loop goes through, without `enumerate`."""
    return loop.iter.args[0] if isinstance(loop.iter, ast.Call) and _is_enumerated(loop) else loop.iter


def _is_plain(node: ast.expr) -> bool:
    """Whether it gives the same layers each time: a name with attributes, and the values of one."""
    if isinstance(node, ast.Call):
        is_values = (
            isinstance(node.func, ast.Attribute) and node.func.attr == "values" and not (node.args or node.keywords)
        )
        return is_values and isinstance(node.func, ast.Attribute) and _is_plain(node.func.value)
    while isinstance(node, ast.Attribute):
        node = node.value
    return isinstance(node, ast.Name)
