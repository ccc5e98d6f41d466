"""Whether every step trains every layer of a model, which DistributedDataParallel relies on."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from perfaudit.expressions import regex
from perfaudit.static.checks.data_parallel.program import Program, Refused, without_moves
from perfaudit.static.source import FUNCTIONS, Source
from perfaudit.static.understanding.answers import remember
from perfaudit.static.understanding.model_parts import is_module_class, parts_of
from perfaudit.static.understanding.names import dotted_name, last_name
from perfaudit.static.understanding.values import assigned_value

# Without those that return losses of their own in training, or leave layers out at random.
_TORCHVISION = regex(
    r"^torchvision\.models\.(?!quantization|detection|segmentation|video|optical_flow)(\w+\.)?(alexnet|vgg\w*|(wide_)?resnet\w*|resnext\w*|squeezenet\w*|densenet\w*|mobilenet\w*"
    r"|shufflenet\w*|mnasnet\w*|regnet\w*)$"
)
_STOPS_GRADIENTS = {"detach", "no_grad", "inference_mode", "stop_gradient", "requires_grad_", "item"}


def refuse_layers(program: Program) -> None:
    """Raises Refused where the layers are not in sight, or a step may leave one out."""
    source = program.source
    built = _model_call(source, program)
    if built is None:
        raise Refused("the file does not show how the model is built")
    name = source.qualified_name(built.func) or ""
    if name == "torch.nn.Sequential":
        held = [call for call in ast.walk(built) if isinstance(call, ast.Call) and call is not built]
        if not all(_is_layer(source, call) for call in held) or any(not isinstance(a, ast.Call) for a in built.args):
            raise Refused("the file does not show all layers of the model")
        definitions = [d for call in held if (d := _class_of(source, call)) is not None]
    elif _TORCHVISION.search(name):
        return
    elif (definition := _class_of(source, built)) is not None:
        definitions = [definition]
    else:
        raise Refused("the file does not show the layers of the model")
    for definition in {id(part): part for d in definitions for part in parts_of(source, d)}.values():
        _refuse_class(source, definition)


@remember  # asked for each model that is wrapped
def has_batch_norm(source: Source) -> bool:
    """Whether the model may have batch norm, whose statistics are those of a process' share."""
    built = (source.qualified_name(call.func) or "" for call in source.nodes(ast.Call))
    return source.mentions("BatchNorm") or any(_TORCHVISION.search(name) for name in built)


def _model_call(source: Source, program: Program) -> ast.Call | None:
    """The call that builds the model, also behind a function of the file that returns it at once."""
    node: ast.expr | None = without_moves(program.wrapping.args[0])
    for _ in range(4):
        if isinstance(node, ast.Name):
            values = [assigned_value(source, binding) for binding in source.lookup(node)]
            inner = [without_moves(value) for value in values if value is not None]
            own = [v for v in inner if v is not program.wrapping and not (isinstance(v, ast.Name) and v.id == node.id)]
            node = own[0] if len(own) == 1 else None
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            bound = source.lookup(node.func)
            if len(bound) != 1 or not isinstance(bound[0], ast.FunctionDef):
                return node
            body = [s for s in bound[0].body if not (isinstance(s, ast.Expr) and isinstance(s.value, ast.Constant))]
            returned = body[0].value if len(body) == 1 and isinstance(body[0], ast.Return) else None
            node = without_moves(returned) if returned is not None else None
        else:
            break
    return node if isinstance(node, ast.Call) else None


def _class_of(source: Source, call: ast.Call) -> ast.ClassDef | None:
    if not isinstance(call.func, ast.Name) or not is_module_class(source, call.func):
        return None
    found = source.lookup(call.func)[0]
    return found if isinstance(found, ast.ClassDef) else None


def _is_layer(source: Source, call: ast.Call) -> bool:
    return (source.qualified_name(call.func) or "").startswith("torch.nn.") or _class_of(source, call) is not None


def _refuse_class(source: Source, definition: ast.ClassDef) -> None:
    if [source.qualified_name(base) for base in definition.bases] != ["torch.nn.Module"] or definition.keywords:
        raise Refused(f"`{definition.name}` derives from more than `torch.nn.Module`")
    methods = [item for item in definition.body if isinstance(item, FUNCTIONS)]
    running = [method for method in methods if method.name != "__init__"]
    read = {
        n.attr for m in running for n in ast.walk(m) if isinstance(n, ast.Attribute) and isinstance(n.ctx, ast.Load)
    }
    for node in (n for method in methods for n in ast.walk(method)):
        in_init = all(node is not inner for method in running for inner in ast.walk(method))
        if isinstance(node, ast.Attribute) and dotted_name(node.value) == "self" and not isinstance(node.ctx, ast.Load):
            if not in_init:
                raise Refused(f"`{definition.name}` changes itself as it runs: `self.{node.attr}`")
            value = assigned_value(source, node)
            if node.attr not in read and isinstance(value, ast.Call) and _may_hold_weights(source, value):
                raise Refused(f"`{definition.name}` has a layer that it does not run: `self.{node.attr}`")
    if any(isinstance(n, ast.Call) and last_name(n.func) in ("setattr", "add_module") for n in ast.walk(definition)):
        raise Refused(f"`{definition.name}` names its layers as it is built")
    for node in (n for method in running for n in ast.walk(method)):
        if isinstance(node, (ast.If, ast.IfExp)) and not _is_about_layer(node):
            raise Refused(f"`{definition.name}` runs layers under a condition: `{source.brief(node.test, 40)}`")
        if isinstance(node, (ast.While, ast.Try, ast.Break, ast.Continue)):
            raise Refused(f"`{definition.name}` may leave layers out")
        if isinstance(node, ast.Attribute) and node.attr in _STOPS_GRADIENTS:
            raise Refused(f"`{definition.name}` runs parts without gradients: `{source.brief(node, 40)}`")


def _may_hold_weights(source: Source, call: ast.Call) -> bool:
    """Whether a call may make something with parameters; those of Python and functions of torch do not."""
    name = source.qualified_name(call.func) or ""
    if name.startswith("torch.nn."):
        return True
    if isinstance(call.func, ast.Name) and not source.lookup(call.func):
        return False
    return not name.startswith(("torch.", "math.", "numpy."))


def _is_about_layer(node: ast.If | ast.IfExp) -> bool:
    """Whether no layer is left out under a condition: none is run there, or the one that the condition asks for.

    `if self.shortcut is not None: x = self.shortcut(x)`. A branch that ends the pass leaves out what comes behind it.
    """
    if isinstance(node, ast.If) and any(isinstance(inner, ast.Return) for inner in ast.walk(node)):
        return False
    branches = [*node.body, *node.orelse] if isinstance(node, ast.If) else [node.body, node.orelse]
    runs = {name for branch in branches for name in _own_layers(branch)}
    asked = {n.attr for n in ast.walk(node.test) if isinstance(n, ast.Attribute) and dotted_name(n.value) == "self"}
    called = [last_name(n.func) for n in ast.walk(node.test) if isinstance(n, ast.Call)]
    return not runs or (runs <= asked and set(called) <= {"len", "isinstance", "hasattr"})


def _own_layers(node: ast.AST) -> Iterator[str]:
    """What a statement runs of the module itself: "shortcut" of `self.shortcut(x)`, "" of what is taken from a list."""
    for call in (n for n in ast.walk(node) if isinstance(n, ast.Call)):
        name = dotted_name(call.func)
        if name.startswith("self."):
            yield name.split(".")[1]
        elif isinstance(call.func, ast.Subscript):
            yield ""
