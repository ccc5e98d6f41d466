"""What each worker of a DataLoader would have a copy of: a stream of samples, what a data set writes, draws from, keeps open."""

from __future__ import annotations

import ast

from perfaudit.expressions import regex
from perfaudit.static.checks.dataloader_no_workers.samples import Found, class_of_samples, method_of
from perfaudit.static.source import FUNCTIONS, Source
from perfaudit.static.source.syntax import walk
from perfaudit.static.understanding.called_functions import assigned_once
from perfaudit.static.understanding.names import dotted_name, last_name
from perfaudit.static.understanding.values import assigned_value, local_class

_BASES = 6  # classes followed from a dataset to IterableDataset
_CHANGES_LISTS = {"append", "extend", "insert", "add", "update", "pop", "popleft", "remove", "clear", "setdefault"}
_GENERATOR = regex(r"\.(_?rng|_?random(_?(state|generator))?|.*_rng|rng_.*|.*random_state)$")
_DRAWS = {  # methods of `random.Random`, `numpy.random.Generator` and `RandomState`
    *("random", "randint", "randrange", "uniform", "choice", "choices", "sample", "shuffle", "gauss", "normal"),
    *("integers", "permutation", "rand", "randn", "random_sample", "standard_normal", "beta", "binomial", "poisson"),
}
_FILES = {  # what may not be read by several processes that inherited it open
    *("h5py.File", "lmdb.open", "lmdb.Environment", "zipfile.ZipFile", "tarfile.open", "sqlite3.connect", "open"),
    *("tables.open_file", "netCDF4.Dataset", "cv2.VideoCapture", "gzip.open", "bz2.open", "lzma.open"),
}


def is_iterable(source: Source, dataset: ast.expr) -> Found | None:
    """The class of the dataset where it is an IterableDataset, of this file or another one of the project, and its file."""
    definition = local_class(source, dataset)
    elsewhere = class_of_samples(source, dataset) if definition is None else None
    found = (source, definition) if definition is not None else elsewhere and elsewhere[0]
    return found if found is not None and _is_stream(*found) else None


def _is_stream(source: Source, definition: ast.ClassDef, depth: int = _BASES) -> bool:
    """Whether a class is derived from IterableDataset, directly or through classes of its file."""
    for base in definition.bases if depth else ():
        if source.qualified_name(base) == "torch.utils.data.IterableDataset":
            return True
        above = source.lookup(base) if isinstance(base, ast.Name) else []
        if len(above) == 1 and isinstance(above[0], ast.ClassDef) and _is_stream(source, above[0], depth - 1):
            return True
    return False


def shards_itself(found: Found) -> bool:
    """Whether an iterable dataset asks which worker it is, or another one of its file does, of which it may consist.

    Else every worker yields every sample.
    """
    source, _ = found
    return bool(source.calls("torch.utils.data.get_worker_info"))


def writes_to_itself(source: Source, dataset: ast.expr) -> str:
    """What a dataset, a class of this file, changes of itself when a sample is taken ("self.count"); "" if nothing.

    A worker changes its own copy. What is written under a condition on the same thing is no state: a file that is opened
    on first use, a sample that is kept.
    """
    definition = local_class(source, dataset)
    items = [s for s in definition.body if isinstance(s, FUNCTIONS) and s.name == "__getitem__"] if definition else []
    for node in (n for item in items for n in walk(item)):
        written: ast.AST | None = None
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            written = node
        elif isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store):
            written = node.value
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _CHANGES_LISTS:
            written = node.func.value
        name = dotted_name(written) if isinstance(written, ast.Attribute) else ""
        if not name.startswith("self."):
            continue
        tests = [a.test for a in source.ancestors(node) if isinstance(a, ast.If)]
        if not any(last_name(n) == last_name(written) for t in tests for n in walk(t)):  # type: ignore[arg-type]
            return name
    return ""


def draws_from_own_generator(source: Source, dataset: ast.expr) -> str:
    """The random generator that a dataset keeps and draws from when a sample is taken ("self.rng"); "" if it has none.

    Workers begin each epoch with a copy of it as the training process has it, which draws nothing any more: every epoch
    and every worker would see the same numbers. torch, and Python's `random` itself, are seeded anew in each worker.
    """
    definition = local_class(source, dataset)
    for item in definition.body if definition else ():
        if not isinstance(item, FUNCTIONS) or item.name != "__getitem__":
            continue
        for node in walk(item):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                name = dotted_name(node.func.value)
                if name.startswith("self.") and _GENERATOR.search(name) and node.func.attr in _DRAWS:
                    return name
    return ""


def keeps_file_open(source: Source, dataset: ast.expr) -> bool:
    """Whether the dataset, a class of the project, opens in `__init__` a file that workers would share."""
    found = class_of_samples(source, dataset)
    definition = local_class(source, dataset)
    inside, definition = (source, definition) if definition is not None or found is None else found[0]
    init = method_of(definition, "__init__") if definition is not None else None
    for node in walk(init) if init else ():
        if not isinstance(node, ast.Attribute) or not isinstance(node.ctx, ast.Store):
            continue
        value = assigned_value(inside, node)
        if value is not None and (_opens(inside, value) or _is_of_open_file(inside, value)):
            return True
    return False


def _opens(source: Source, value: ast.expr) -> bool:
    return isinstance(value, ast.Call) and (source.qualified_name(value.func) or last_name(value.func)) in _FILES


def _is_of_open_file(source: Source, value: ast.expr) -> bool:
    """What HDF5 reads when it is asked for: `file["x"]` and `file.get("x")` of a `file = h5py.File(path)`."""
    if isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) and value.func.attr == "get":
        held, key = value.func.value, value.args[0] if value.args else None
    elif isinstance(value, ast.Subscript):
        held, key = value.value, value.slice
    else:
        return False
    opened = assigned_once(source, held) if isinstance(held, ast.Name) else held
    is_file = isinstance(opened, ast.Call) and source.qualified_name(opened.func) == "h5py.File"
    return is_file and isinstance(key, ast.Constant) and isinstance(key.value, str)
