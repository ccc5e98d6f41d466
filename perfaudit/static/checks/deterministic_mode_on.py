"""PA302: a program that allows only deterministic kernels, or keeps cuDNN out."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from perfaudit.expressions import regex
from perfaudit.static.registry import Proposal, Seen, check
from perfaudit.static.source import FUNCTIONS, Source
from perfaudit.static.understanding.demonstrations import is_main_guard, is_test
from perfaudit.static.understanding.devices import asks_for_gpu, uses_cuda
from perfaudit.static.understanding.entry import imported_files_say
from perfaudit.static.understanding.evaluation import only_evaluates
from perfaudit.static.understanding.model_parts import has_large_convolutions
from perfaudit.static.understanding.step_loops import step_loops
from perfaudit.static.understanding.values import argument, constant

FLAGS = {
    "torch.backends.cudnn.deterministic": (
        True,
        "lets cuDNN use deterministic convolutions only, also where another algorithm is faster",
    ),
    "torch.backends.cudnn.enabled": (
        False,
        "keeps convolutions, batch norm and recurrent layers from the kernels of cuDNN",
    ),
}
ALL_KERNELS = "torch.use_deterministic_algorithms"
_MEANT = regex(r"determin|reproduc|^__enter__$|^setUp")  # names of functions and files that are there for it
_CONVOLUTION = regex(
    r"conv(\d|_|$|s$|olution|net|transpose)|torchvision\.models|timm|resnet|vgg|cnn|backbone", re.IGNORECASE
)
TITLE = "keep it where runs must be equal bit for bit; elsewhere leave it out (seeds stay)"


@check("PA302", ast.Module)
def deterministic_flag_on(source: Source, module: ast.Module) -> Iterator[Seen]:
    if any(f".{name.rpartition('.')[2]}" in source.text for name in FLAGS):  # most files are passed by
        for statement in source.nodes(ast.Assign):
            yield from _flag_set(source, statement)


def _flag_set(source: Source, statement: ast.Assign) -> Iterator[Seen]:
    if len(statement.targets) != 1 or not isinstance(statement.targets[0], ast.Attribute):
        return
    name = (
        source.qualified_name(statement.targets[0])
        if statement.targets[0].attr in ("deterministic", "enabled")
        else None
    )
    if name not in FLAGS or not isinstance(statement.value, ast.Constant):
        return
    costly, cost = FLAGS[name]
    if statement.value.value is not costly or _is_choice(source, statement):
        return
    if _trains_on_cpu(source) or (name.endswith("deterministic") and _has_no_convolution(source)):
        return
    is_choosing = name.endswith("deterministic")
    is_small = is_choosing and bool(step_loops(source)) and not _has_wide_convolution(source)
    is_hint = is_small or _is_script_without_training(source)
    message = f"`{source.brief(statement)}` {cost}"
    yield Seen(statement, message, Proposal(TITLE), severity="hint" if is_hint else None if is_choosing else "warning")


@check("PA302", call=ALL_KERNELS)
def deterministic_algorithms_on(source: Source, call: ast.Call) -> Iterator[Seen]:
    if constant(source, argument(source, call, "mode", 0)) is not True or _is_choice(source, call):
        return
    cost = "replaces atomic additions by slower kernels, and raises or warns where an operation has none"
    yield Seen(call, f"`{source.brief(call)}` {cost}", Proposal(TITLE))


def _is_choice(source: Source, node: ast.AST) -> bool:
    """Whether a condition decides, or a test or a `with` block wants it for a while."""
    if is_test(source, node) or "/tests/" in f"/{source.path}" or _MEANT.search(source.path):
        return True
    for ancestor in source.ancestors(node):
        if isinstance(ancestor, (ast.With, ast.AsyncWith, ast.Try)):
            return True
        if isinstance(ancestor, ast.If) and not is_main_guard(ancestor) and not asks_for_gpu(source, ancestor.test):
            return True
        if isinstance(ancestor, FUNCTIONS) and _MEANT.search(ancestor.name):
            return True
    return False


def _trains_on_cpu(source: Source) -> bool:
    """Whether this file trains, and neither it nor its program says anything of a GPU: cuDNN then runs nothing."""
    if not step_loops(source) or uses_cuda(source):
        return False
    return source.neighbours is None or not source.neighbours.program_carries("accelerator")


def _is_script_without_training(source: Source) -> bool:
    """Whether the file is a script that only evaluates, with all that it imports."""
    return (
        only_evaluates(source)
        and any(is_main_guard(s) for s in source.tree.body)
        and not imported_files_say(source, "steps")
    )


def _has_wide_convolution(source: Source) -> bool:
    """Whether a convolution is known to be wide, so that another algorithm would show in the time of a step."""
    return has_large_convolutions(source) or imported_files_say(source, "wide convolutions")


def _has_no_convolution(source: Source) -> bool:
    """Whether the file trains a model that it builds itself without a convolution."""
    if not step_loops(source) or not source.calls("torch.nn.Linear"):
        return False
    names = {name.id for name in source.nodes(ast.Name)} | {node.attr for node in source.nodes(ast.Attribute)}
    return not any(_CONVOLUTION.search(name) for name in names | set(source.aliases.values()))
