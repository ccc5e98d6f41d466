"""What a model is made of, as far as the text says: models of libraries, large products and convolutions, classes of modules."""

from __future__ import annotations

import ast

from perfaudit.expressions import regex
from perfaudit.static.project.convolution_marks import marks_of_lent_convolutions
from perfaudit.static.source import Source
from perfaudit.static.understanding.defaults import default
from perfaudit.static.understanding.entry import imported_packages
from perfaudit.static.understanding.names import dotted_name, last_name
from perfaudit.static.understanding.values import UNKNOWN, Argument, argument, constant

CONVOLUTIONS = tuple(f"torch.nn.{name}{n}d" for name in ("Conv", "ConvTranspose") for n in (2, 3))
ALL_CONVOLUTIONS = (*CONVOLUTIONS, "torch.nn.Conv1d", "torch.nn.ConvTranspose1d")
ATTENTION = (
    "torch.nn.functional.scaled_dot_product_attention",
    "torch.nn.MultiheadAttention",
    "torch.nn.TransformerEncoderLayer",
    "torch.nn.TransformerDecoderLayer",
)
# Limits by judgement, not measured: what is narrower is taken for too small to gain. A timing of both forms would settle them.
WIDE_LINEAR = 2048  # features in and out, where each sample is one vector
WIDE_ATTENTION = 512  # features, where each sample is a sequence of vectors
WIDE_CONVOLUTION = 256  # channels
FEW_CHANNELS = 128  # with no more in any layer, as for MNIST, the choice of an algorithm saves little
WHOLE_MODELS = regex(
    r"torchvision\.models\.([a-z0-9]+\.)?"
    r"(get_model|vgg|resnet|resnext|wide_resnet|densenet|efficientnet|convnext|regnet|inception|googlenet|vit|swin)_?\w*$"
)
_BUILT = ("from_pretrained", "from_config")  # methods that build a model of a library


def whole_models(source: Source) -> list[ast.Call]:
    """Calls that build a model of torchvision: `resnet50()`, `models.get_model(name)`, `models.__dict__[name]()`."""
    if "torchvision" not in imported_packages(source):
        return []
    found = []
    for call in source.nodes(ast.Call):
        func = call.func
        if isinstance(func, ast.Subscript):
            if source.qualified_name(func.value) == "torchvision.models.__dict__":
                found.append(call)
        elif WHOLE_MODELS.match(source.qualified_name(func) or ""):
            found.append(call)
    return found


def _hands_on_whole_model(source: Source) -> bool:
    """Whether a model of torchvision is named as an argument, for another one that builds it: `Net(models.resnet50)`.

    Or its name is imported for an option that picks it: `eval(args.backbone)`.
    """
    if "torchvision" not in imported_packages(source):
        return False
    has_names = any(WHOLE_MODELS.match(full) for full in source.aliases.values())
    for call in source.nodes(ast.Call):
        if has_names and isinstance(call.func, ast.Name) and call.func.id == "eval" and call.args:
            return True
        for given in (*call.args, *(keyword.value for keyword in call.keywords)):
            if isinstance(given, ast.Subscript) and source.qualified_name(given.value) == "torchvision.models.__dict__":
                return True
            if isinstance(given, (ast.Attribute, ast.Name)) and WHOLE_MODELS.match(source.qualified_name(given) or ""):
                return True
    return False


def lends_convolutions(source: Source, wide: bool = False) -> bool:
    """Whether the file builds a model that convolves of another library: `smp.Unet("resnet34")`; wide: whether one is wide."""
    mark = "wide convolutions" if wide else "convolutions"
    return mark in marks_of_lent_convolutions(source.text.encode("utf-8", "replace"))


def builds_of_library(source: Source, call: ast.Call) -> bool:
    """Whether a call builds a model of timm or of transformers: not a tokenizer, nor a configuration."""
    if source.qualified_name(call.func) in ("timm.create_model", "torch.hub.load"):
        return True
    if not isinstance(call.func, ast.Attribute) or call.func.attr not in _BUILT:
        return False
    name = last_name(call.func.value)
    return "Model" in name or "For" in name or name.startswith("UNet")


def has_transformer_of_library(source: Source) -> bool:
    """Whether the file builds a model of transformers: `BertModel.from_pretrained(name)`, or derives one from it.

    They are 768 wide or wider.
    """
    if "transformers" not in imported_packages(source):
        return False
    if any(last_name(base).endswith("PreTrainedModel") for made in source.nodes(ast.ClassDef) for base in made.bases):
        return True
    return any(builds_of_library(source, call) for method in _BUILT for call in source.calls(f".{method}"))


def has_large_matmuls(source: Source) -> bool:
    """Whether the file builds attention of a known width, or a linear layer, that keeps a GPU busy."""
    if source.calls("torch.nn.Transformer"):  # 512 wide unless it says otherwise
        return True
    if any(
        c.args and _at_least(source, c.args[0], WIDE_ATTENTION) for name in ATTENTION[1:] for c in source.calls(name)
    ):
        return True
    limit = WIDE_ATTENTION if source.calls(ATTENTION[0]) else WIDE_LINEAR
    linear = source.calls("torch.nn.Linear")
    return any(len(c.args) > 1 and all(_at_least(source, a, limit) for a in c.args[:2]) for c in linear)


def has_large_convolutions(source: Source) -> bool:
    """Whether the file builds a convolution with many channels, or a model of torchvision, or hands on what builds one."""
    if whole_models(source) or _hands_on_whole_model(source):
        return True
    convolutions = [call for name in CONVOLUTIONS for call in source.calls(name)]
    if not convolutions:
        return False
    # For example `Block(64, 256)` inside a model.
    blocks = [
        call
        for call in source.nodes(ast.Call)
        if isinstance(call.func, ast.Name)
        and is_module_class(source, call.func)
        and source.enclosing(call, ast.ClassDef) is not None
        and any(source.lookup(call.func)[0] is around for c in convolutions for around in source.ancestors(c))
    ]
    return any(_at_least(source, a, WIDE_CONVOLUTION) for call in (*convolutions, *blocks) for a in call.args[:2])


def has_wide_convolutions_1d(source: Source) -> bool:
    """Whether the file builds a convolution along one axis, of a sequence or of points, with many channels."""
    calls = [call for name in ("torch.nn.Conv1d", "torch.nn.ConvTranspose1d") for call in source.calls(name)]
    return any(_at_least(source, a, WIDE_ATTENTION) for call in calls for a in call.args[:2])


def has_small_convolutions_only(source: Source) -> bool:
    """Whether the file builds its convolutions itself, writes the channels of all, and none is wide."""
    calls = [call for name in ALL_CONVOLUTIONS for call in source.calls(name)]
    if not calls or whole_models(source):
        return False
    channels = [
        argument(source, call, name, n) for call in calls for n, name in enumerate(("in_channels", "out_channels"))
    ]
    known = [_value_or_default(source, node) for node in channels]
    return all(isinstance(value, int) and value <= FEW_CHANNELS for value in known)


def _value_or_default(source: Source, node: Argument) -> object:
    """What an argument is worth, of an option its default."""
    value = constant(source, node)
    return value if value is not UNKNOWN or (option := default(source, node)) is None else option.value


def module_classes(source: Source) -> list[ast.ClassDef]:
    """The classes of this file that derive from `torch.nn.Module`, as far as the file shows."""
    return [definition for definition in source.nodes(ast.ClassDef) if _is_module(source, definition)]


def is_module_class(source: Source, name: ast.Name) -> bool:
    """Whether a name is a class of this file that derives from `torch.nn.Module`."""
    bindings = source.lookup(name)
    return len(bindings) == 1 and isinstance(bindings[0], ast.ClassDef) and _is_module(source, bindings[0])


def _is_module(source: Source, definition: ast.ClassDef, depth: int = 4) -> bool:
    for base in definition.bases:
        if (source.qualified_name(base) or "").startswith("torch.nn."):
            return True
        bindings = source.lookup(base) if isinstance(base, ast.Name) and depth else []
        if any(isinstance(b, ast.ClassDef) and _is_module(source, b, depth - 1) for b in bindings):
            return True
    return False


def parts_of(source: Source, definition: ast.ClassDef) -> list[ast.ClassDef]:
    """A module class and the classes of this file that it builds its layers from, each once."""
    found = [definition]
    for item in found:
        for node in ast.walk(item):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and is_module_class(source, node):
                inner = source.lookup(node)[0]
                if isinstance(inner, ast.ClassDef) and not any(known is inner for known in found):
                    found.append(inner)
    return found


def own_layer(node: ast.AST) -> str:
    """`conv` of `self.conv`; "" for anything else."""
    return node.attr if isinstance(node, ast.Attribute) and dotted_name(node.value) == "self" else ""


def _at_least(source: Source, node: Argument, limit: int) -> bool:
    value = constant(source, node)
    return isinstance(value, (int, float)) and value >= limit
