"""Whether an evaluation reads so much that workers pay although nothing is trained: a whole set of files, on a GPU."""

from __future__ import annotations

import ast

from perfaudit.expressions import regex
from perfaudit.static.checks.dataloader_no_workers.loader_uses import is_script_that_evaluates
from perfaudit.static.checks.dataloader_no_workers.samples import class_of_samples, method_of
from perfaudit.static.source import Function, Source
from perfaudit.static.understanding.devices import uses_cuda
from perfaudit.static.understanding.loaders import passes
from perfaudit.static.understanding.names import last_name
from perfaudit.static.understanding.values import ABSENT, Argument, argument, assigned_value, constant

FOLLOW = 4  # names and parts of parts of a data set; real code needs two
_FOLDERS = {f"torchvision.datasets.{name}" for name in ("ImageFolder", "DatasetFolder")}
_PARTS = {f"torch.utils.data.{name}" for name in ("Subset", "random_split", "ConcatDataset")}
# What opens a file for each sample. An index that is read once in `__init__` is no sample.
_READS = regex(
    r"Image\.open\(|imread\(|read_image\(|decode_(?:image|jpeg|png)|(?:np|numpy)\.load\(|torch\.load\(|torchaudio\.load\(|librosa\.load\("
    r"|(?:sf|soundfile)\.read\(|VideoReader\(|VideoCapture\(|(?:nib|nibabel)\.load\(|dcmread\(|ReadImage\(|pil_loader\(|default_loader\("
)
# What a turn of a loop does for each picture that it draws or writes takes longer than reading one.
_DRAWS = regex(r"\bplt\.|imshow|savefig|imwrite|save_image|\.save\(|\bcam\b|grad_?cam|visuali[sz]e")


def is_evaluation(source: Source) -> bool:
    """Whether a file evaluates and trains nothing, by what it does or by who runs it."""
    if is_script_that_evaluates(source):
        return True
    return source.neighbours is not None and source.neighbours.answer("only evaluates")


def is_long_evaluation(source: Source, call: ast.Call) -> bool:
    """Whether the loops over a loader read a file for each sample, several a batch, for a model on a GPU, and draw nothing."""
    batch_size = argument(source, call, "batch_size", 1)
    if batch_size is ABSENT or constant(source, batch_size) == 1 or not uses_cuda(source):
        return False
    own = [item.loop for item in passes(source) if any(loader is call for loader in item.loaders)]
    if any(_DRAWS.search(source.text_of(loop)) for loop in own) or (not own and _takes_first(source)):
        return False
    return _reads_files(source, argument(source, call, "dataset", 0), FOLLOW)


def _takes_first(source: Source) -> bool:
    """Whether the file takes a batch by `next(iter(loader))`."""
    return any(
        isinstance(inner, ast.Call) and last_name(call.func) == "next" and last_name(inner.func) == "iter"
        for call in source.nodes(ast.Call)
        for inner in call.args[:1]
    )


def _reads_files(source: Source, dataset: Argument, depth: int) -> bool:
    """Whether the class of a data set is in sight, and opens a file in what makes a sample."""
    if isinstance(dataset, ast.Name) and depth:
        values = [assigned_value(source, binding) for binding in source.lookup(dataset)]
        return any(_reads_files(source, value, depth - 1) for value in values if isinstance(value, ast.Call))
    if not isinstance(dataset, ast.Call) or not depth:
        return False
    name = source.qualified_name(dataset.func) or ""
    if name in _FOLDERS:
        return True
    if name in _PARTS:
        return bool(dataset.args) and _reads_files(source, dataset.args[0], depth - 1)
    found = class_of_samples(source, dataset)
    if found is None:
        return False
    inside, definition = found[0]
    return any(_READS.search(inside.text_of(method)) for method in _make_a_sample(definition))


def _make_a_sample(definition: ast.ClassDef) -> list[Function]:
    """The method that makes a sample, and the methods of the class that it calls."""
    found: list[Function] = []
    names = ["__getitem__", "__iter__"]
    for name in names:
        method = method_of(definition, name)
        if method is not None and method not in found:
            found.append(method)
            names += [
                node.attr for node in ast.walk(method) if isinstance(node, ast.Attribute) and node.attr not in names
            ]
    return found
