"""PA211: a convolutional model in mixed precision, moved to the GPU in the layout tensor cores do not read."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from perfaudit.expressions import regex
from perfaudit.findings import Edit, Span
from perfaudit.static import edit
from perfaudit.static.registry import Proposal, Seen, check
from perfaudit.static.source import Source
from perfaudit.static.understanding.devices import moves_to_device
from perfaudit.static.understanding.entry import is_whole, script_loops
from perfaudit.static.understanding.model_parts import has_large_convolutions, parts_of, whole_models
from perfaudit.static.understanding.models import is_visible
from perfaudit.static.understanding.values import assigned_value

CONVOLUTIONS = ("torch.nn.Conv2d", "torch.nn.ConvTranspose2d")
AUTOCASTS = ("torch.autocast", "torch.amp.autocast", "torch.cuda.amp.autocast")
TITLE = "keep the model's convolutions in channels-last layout"
_OTHER_LAYOUTS = regex(
    r"memory_format|channels_last|Conv(Transpose)?3d|ipex|\.stride\(|as_strided|is_contiguous|data_ptr"
)
_NEEDS_CONTIGUOUS = regex(r"\.view\(|\.view_as\(|\.(unflatten|unfold)\(|einops|jit\.|onnx|compile|DataParallel")
# Functions of torch that flatten weights or gradients by `view`, which raises where they are channels-last.
_FLATTENS = regex(r"parameters_to_vector|vector_to_parameters|orthogonal|LBFGS")
_KNOWN_GOOD = regex(
    r"torchvision\.models\.((resnet|efficientnet|mobilenetv[23]|convnext|regnet)\.)?"
    r"(resnet\d+|resnext\d+\w+|wide_resnet\w+|efficientnet_\w+|mobilenet_v\w+|convnext_\w+|regnet_\w+)$"
)


@check("PA211", ast.Module)
def channels_last_missing(source: Source, module: ast.Module) -> Iterator[Seen]:
    loops = script_loops(source)
    if not loops or not any(source.calls(name) for name in AUTOCASTS) or source.says(_OTHER_LAYOUTS):
        return
    if not has_large_convolutions(source):
        return
    for name in ("to", "cuda"):
        for call in source.calls(f".{name}"):
            built = _model(source, call)
            if built is not None and moves_to_device(source, call):
                edits = _edits(source, call) if _takes_any_layout(source, built) else None
                shown = source.brief(call)
                yield Seen(
                    call,
                    f"`{shown}` keeps its convolutions in NCHW, which tensor cores take only through conversions",
                    Proposal(TITLE + ": `.to(memory_format=torch.channels_last)`", edits),
                )
                return


def _model(source: Source, move: ast.Call) -> ast.Call | None:
    """The call that builds the convolutional model which this one moves; None where it moves something else."""
    if not isinstance(move.func, ast.Attribute):
        return None
    receiver = move.func.value
    built: ast.expr | None = receiver
    if isinstance(receiver, ast.Name):
        values = [assigned_value(source, binding) for binding in source.lookup(receiver)]
        others = [value for value in values if value is not None and not _returns_itself(value, receiver.id)]
        built = others[0] if len(others) == 1 and None not in values else None
    if not isinstance(built, ast.Call):
        return None
    if any(built is call for call in whole_models(source)):
        return built
    if source.qualified_name(built.func) == "torch.nn.Sequential":
        return built if _has_convolution(source, built) else None
    bindings = source.lookup(built.func) if isinstance(built.func, ast.Name) else []
    if len(bindings) != 1 or not isinstance(bindings[0], ast.ClassDef):
        return None
    return built if any(_has_convolution(source, part) for part in parts_of(source, bindings[0])) else None


def _returns_itself(value: ast.expr, name: str) -> bool:
    """Whether a value is the model again: `model.to(device)`, `model.cuda()`, `DDP(model)`."""
    return any(isinstance(node, ast.Name) and node.id == name for node in ast.walk(value))


def _has_convolution(source: Source, root: ast.AST) -> bool:
    return any(
        any(ancestor is root for ancestor in source.ancestors(c)) for name in CONVOLUTIONS for c in source.calls(name)
    )


def _takes_any_layout(source: Source, built: ast.Call) -> bool:
    """Whether every layer is known, and nothing in the program asks for tensors in the default layout."""
    if not is_whole(source) or _NEEDS_CONTIGUOUS.search(source.text):
        return False
    if any(_FLATTENS.search(name) for name in (source.text, *source.aliases.values())):
        return False
    if _KNOWN_GOOD.match(source.qualified_name(built.func) or ""):
        return True
    return is_visible(source, built)


def _edits(source: Source, call: ast.Call) -> edit.Edits | None:
    name, imported = edit.name_for(source, "torch.channels_last")
    if isinstance(call.func, ast.Attribute) and call.func.attr == "to":
        return edit.together(edit.add_keyword(source, call, "memory_format", name), imported)
    end = source.span(call).end
    return edit.together((Edit(Span(end, end), f".to(memory_format={name})"),), imported)
