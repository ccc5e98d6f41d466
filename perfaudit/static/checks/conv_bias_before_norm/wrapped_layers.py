"""Classes of the project's own around one convolution: they build it with a bias that their parameter asks for, and return it.

`ConvNorm(80, 512)` with `self.conv = nn.Conv1d(…, bias=bias)` and `return self.conv(x)` is a convolution to whoever reads what
stands behind it. What a class does to its input is its own business; what it does to the output would be in between.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping

from perfaudit.records import NamedTuple
from perfaudit.static.source import FUNCTIONS, Function, Source
from perfaudit.static.understanding.members import is_own
from perfaudit.static.understanding.values import argument


class Wrapper(NamedTuple):
    """A class around one layer: the file that defines it, its constructor, the kind of layer, the parameter for its bias."""

    source: Source
    constructor: Function
    kind: str
    bias: str


def wrapper_built(source: Source, call: ast.Call, positions: Mapping[str, int]) -> Wrapper | None:
    """The class that a call builds where it is one around a layer, defined in this file or in one that it imports."""
    found = _definition(source, call.func)
    if found is None or not isinstance(definition := found[1], ast.ClassDef):
        return None
    owner = found[0]
    if [owner.qualified_name(base) for base in definition.bases] != ["torch.nn.Module"] or definition.decorator_list:
        return None
    methods = {item.name: item for item in definition.body if isinstance(item, FUNCTIONS)}
    if set(methods) != {"__init__", "forward"} or definition.keywords:
        return None
    layers = [(name, layer) for name, layer in _layers(methods["__init__"]) if _kind(owner, layer) in positions]
    if len(layers) != 1:
        return None
    name, layer = layers[0]
    kind = _kind(owner, layer)
    bias = argument(owner, layer, "bias", positions[kind])
    if not isinstance(bias, ast.Name) or not _returns(owner, methods["forward"], name):
        return None
    if _touches_bias(owner, definition, methods["__init__"], bias.id):
        return None
    return Wrapper(owner, methods["__init__"], kind, bias.id)


def _definition(source: Source, node: ast.expr) -> tuple[Source, ast.AST] | None:
    """The file and the definition of what a name stands for, here or in a neighbour."""
    if isinstance(node, ast.Name) and (bindings := source.lookup(node)):
        return (source, bindings[0]) if len(bindings) == 1 else None
    dotted = source.qualified_name(node)
    if dotted is None or source.neighbours is None or dotted.startswith("torch."):
        return None
    return source.neighbours.definition_of(dotted)


def _kind(source: Source, layer: ast.Call) -> str:
    return source.qualified_name(layer.func) or ""


def _layers(constructor: Function) -> list[tuple[str, ast.Call]]:
    """What a constructor builds by calls and keeps as attributes, with the name of each."""
    found = []
    for node in ast.walk(constructor):
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
            found += [(t.attr, node.value) for t in node.targets if isinstance(t, ast.Attribute) and is_own(t)]
    return found


def _touches_bias(source: Source, definition: ast.ClassDef, constructor: Function, bias: str) -> bool:
    """Whether the class reads or sets the bias of a layer where there may be none, or may: it goes through its parameters.

    bias: the parameter that asks for it; what the constructor does `if bias:` is done to a bias that is there.
    """
    through = {"parameters", "named_parameters", "state_dict", "modules", "children", "apply"}
    for node in ast.walk(definition):
        if isinstance(node, ast.Attribute) and node.attr in through:
            return True
        if (
            isinstance(node, ast.Attribute)
            and node.attr == "bias"
            and not _is_where_asked(source, node, constructor, bias)
        ):
            return True
    return False


def _is_where_asked(source: Source, read: ast.Attribute, constructor: Function, bias: str) -> bool:
    """Whether a bias is read in a constructor, in the test or body of `if bias:` or `if self.conv.bias is not None:`."""
    if not any(around is constructor for around in source.ancestors(read)):
        return False
    return any(
        isinstance(around, ast.If) and _asks_for(around.test, bias) and (child is around.test or child in around.body)
        for around, child in source.way_out(read)
    )


def _asks_for(test: ast.expr, bias: str) -> bool:
    """Whether a condition asks whether there is a bias: by the parameter, or `is not None`."""
    if isinstance(test, ast.Name):
        return test.id == bias
    if not isinstance(test, ast.Compare) or len(test.ops) != 1 or not isinstance(test.ops[0], ast.IsNot):
        return False
    return isinstance(test.left, ast.Attribute) and test.left.attr == "bias"


def _returns(source: Source, forward: Function, name: str) -> bool:
    """Whether `forward` returns what the layer of this name gives, and nothing stands between the two."""
    returns = [n for n in ast.walk(forward) if isinstance(n, ast.Return) and source.scope(n) is forward]
    if len(returns) != 1 or returns[0] is not forward.body[-1] or returns[0].value is None:
        return False
    value = returns[0].value
    if isinstance(value, ast.Name) and len(forward.body) > 1:
        before = forward.body[-2]
        is_it = isinstance(before, ast.Assign) and len(before.targets) == 1
        target = before.targets[0] if is_it else None  # type: ignore[attr-defined]  # an assignment
        if not isinstance(target, ast.Name) or target.id != value.id:
            return False
        value = before.value  # type: ignore[attr-defined]  # an assignment
    return (
        isinstance(value, ast.Call)
        and isinstance(value.func, ast.Attribute)
        and value.func.attr == name
        and is_own(value.func)
    )
