"""PA306: a model of repeated blocks, each a chain of small kernels, that runs uncompiled."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from perfaudit.expressions import regex
from perfaudit.static.old_torch import needs_old_torch
from perfaudit.static.registry import Proposal, Seen, check
from perfaudit.static.source import Source
from perfaudit.static.understanding.entry import script_loops
from perfaudit.static.understanding.model_parts import is_module_class, module_classes, own_layer, parts_of
from perfaudit.static.understanding.models import is_visible

# Operations in one forward pass of a block, by judgement: a pre-norm transformer block has about that many.
POINTWISE = 6
_DECIDED = regex(
    r"compile|torch\.jit|\bjit\b|CUDAGraph|cuda\.graph|make_graphed|dynamo|inductor|sparse|autograd\.Function|register_\w*hook"
    r"|nn\.(LSTM|GRU|RNN|Conv[123]d)|pack_padded|create_graph|einops|torch_geometric|\bdgl\b|Windows|win32"
)
_DYNAMIC = regex(r"\.(item|tolist|cpu|numpy|nonzero|unique|masked_select)\(|print\(|np\.|random\.|\bwhile\b")
_POINTWISE_LAYER = regex(
    r"torch\.nn\.(\w*Norm\w*|Dropout\w*|ReLU6?|LeakyReLU|PReLU|GELU|SiLU|Mish|ELU|SELU|Sigmoid|Tanh|Hardswish|Softplus)$"
)
_POINTWISE_FUNCTION = regex(
    r"torch\.(nn\.functional\.)?(\w*_norm|dropout\w*|relu6?|leaky_relu|gelu|silu|mish|elu|sigmoid|tanh|hardswish|softplus|softmax"
    r"|exp|log|sqrt|rsqrt|pow|where|clamp|square|abs|sin|cos)$"
)


@check("PA306", ast.Module)
def compile_missing(source: Source, module: ast.Module) -> Iterator[Seen]:
    if not script_loops(source) or source.says(_DECIDED):
        return
    blocks = [definition for definition in module_classes(source) if _is_repeated(source, definition)]
    counted = [(block, _pointwise_operations(source, block)) for block in blocks]
    block, count = max(counted, key=lambda item: item[1], default=(None, 0))
    if block is None or count < POINTWISE or needs_old_torch(source):
        return
    built = _model_with(source, block)
    if built is None or not is_visible(source, built):
        return
    if any(_DYNAMIC.search(source.text_of(f)) for part in _parts(source, built) for f in _forwards(part)):
        return
    yield Seen(
        built,
        f"`{source.brief(built)}` runs uncompiled: each `{block.name}` in it launches {count} small operations one by one",
        Proposal("compile it in place (`model.compile()` keeps the names in its state dict), with batches of one size"),
    )


def _is_repeated(source: Source, definition: ast.ClassDef) -> bool:
    """Whether a model builds the class several times: in a comprehension or a loop of an `__init__`."""
    for use in source.uses_of(definition, definition.name):
        call = source.parent(use)
        if not isinstance(call, ast.Call) or call.func is not use or source.enclosing(call, ast.ClassDef) is None:
            continue
        if source.enclosing(call, ast.ListComp, ast.GeneratorExp, ast.For) is not None:
            return True
    return False


def _pointwise_operations(source: Source, definition: ast.ClassDef) -> int:
    """How many kernels that do little work one forward pass of the class runs, of its own and of its parts."""
    total = 0
    for part in parts_of(source, definition):
        layers = _pointwise_layers(source, part)
        for function in _forwards(part):
            for node in ast.walk(function):
                if isinstance(node, ast.BinOp) and not isinstance(node.op, (ast.MatMult, ast.FloorDiv, ast.Mod)):
                    total += not _is_size(node)
                elif isinstance(node, ast.Call):
                    name = source.qualified_name(node.func) or ""
                    total += bool(_POINTWISE_FUNCTION.match(name)) or layers.get(own_layer(node.func), 0)
    return total


def _is_size(node: ast.BinOp) -> bool:
    """Whether arithmetic is on sizes: `c // 2`, `x.size(0) * h`, `t + 1`."""
    sides = (node.left, node.right)
    if any(
        isinstance(n, ast.Attribute) and n.attr in ("size", "shape", "dim") for side in sides for n in ast.walk(side)
    ):
        return True
    return all(
        isinstance(side, ast.Constant) or (isinstance(side, ast.Name) and len(side.id) == 1 and side.id != "x")
        for side in sides
    )


def _pointwise_layers(source: Source, definition: ast.ClassDef) -> dict[str, int]:
    """Layers of a class by name, with the number of pointwise layers in each: 2 for a Sequential with ReLU and Dropout."""
    found: dict[str, int] = {}
    for statement in ast.walk(definition):
        if isinstance(statement, ast.Assign) and (name := own_layer(statement.targets[0])):
            calls = [n for n in ast.walk(statement.value) if isinstance(n, ast.Call)]
            found[name] = sum(bool(_POINTWISE_LAYER.match(source.qualified_name(n.func) or "")) for n in calls)
    return found


def _forwards(definition: ast.ClassDef) -> list[ast.FunctionDef]:
    return [item for item in definition.body if isinstance(item, ast.FunctionDef) and item.name == "forward"]


def _parts(source: Source, built: ast.Call) -> list[ast.ClassDef]:
    definition = source.lookup(built.func)[0] if isinstance(built.func, ast.Name) else None
    return parts_of(source, definition) if isinstance(definition, ast.ClassDef) else []


def _model_with(source: Source, block: ast.ClassDef) -> ast.Call | None:
    """The one call outside classes that builds a model of which the block is a part."""
    found = []
    for call in source.nodes(ast.Call):
        if not isinstance(call.func, ast.Name) or not is_module_class(source, call.func):
            continue
        if source.enclosing(call, ast.ClassDef) is None and any(part is block for part in _parts(source, call)):
            found.append(call)
    return found[0] if len(found) == 1 else None
