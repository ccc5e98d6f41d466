"""Whether an evaluation reads so much that workers pay although nothing is trained: a whole set of files, on a GPU."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from perfaudit.expressions import regex
from perfaudit.static.checks.dataloader_no_workers.loader_uses import gives_few_batches, is_script_that_evaluates
from perfaudit.static.checks.dataloader_no_workers.samples import class_of_samples, method_of
from perfaudit.static.source import FUNCTIONS, Function, Loop, Source
from perfaudit.static.understanding.devices import moves_to_device, names_accelerator, names_cpu, uses_cuda
from perfaudit.static.understanding.loaders import passes
from perfaudit.static.understanding.names import dotted_name
from perfaudit.static.understanding.reaching import reaching
from perfaudit.static.understanding.values import ABSENT, argument, assigned_value, constant, resolve

_FOLDERS = {f"torchvision.datasets.{name}" for name in ("ImageFolder", "DatasetFolder")}
# What opens a file for each sample, by the end of its name. An index that is read once in `__init__` is no sample.
_READS = regex(
    r"(?:^|\.)(?:\w*Image\.open|imread|read_image|decode_(?:image|jpeg|png)|(?:np|numpy|torch|torchaudio|librosa|nib|nibabel)\.load"
    r"|(?:sf|soundfile)\.read|VideoReader|VideoCapture|dcmread|ReadImage|pil_loader|default_loader)$"
)
# What a turn of a loop does for each picture that it draws or writes takes longer than reading one.
_DRAWS = regex(r"\bplt\.|imshow|savefig|imwrite|save_image|\.save\(|\bcam\b|grad_?cam|visuali[sz]e")
_RUNS_ITS_BODY = (ast.With, ast.AsyncWith, ast.For, ast.AsyncFor, ast.While, ast.Try)
_GIVES = (ast.Return, ast.Yield, ast.YieldFrom)
_MAY_NOT_RUN = (*FUNCTIONS, ast.Lambda, ast.ClassDef, ast.IfExp, ast.BoolOp)


def is_evaluation(source: Source) -> bool:
    """Whether a file evaluates and trains nothing, by what it does or by who runs it."""
    if is_script_that_evaluates(source):
        return True
    return source.neighbours is not None and source.neighbours.answer("only evaluates")


def is_long_evaluation(source: Source, call: ast.Call) -> bool:
    """Whether loops over a loader read a file for each sample, several a batch, on a GPU, and draw nothing.

    All of that as this file shows it: the loops, what moves a batch or the model to the GPU, and that it is no `Subset` of a few.
    """
    batch_size, dataset = argument(source, call, "batch_size", 1), argument(source, call, "dataset", 0)
    if batch_size is ABSENT or constant(source, batch_size) == 1 or not isinstance(dataset, ast.expr):
        return False
    if not uses_cuda(source) or gives_few_batches(source, call):
        return False
    own = [item.loop for item in passes(source) if any(loader is call for loader in item.loaders)]
    if not own or any(_DRAWS.search(source.text_of(loop)) for loop in own):
        return False
    return all(_runs_on_gpu(source, loop) for loop in own) and _reads_files(source, dataset)


def _runs_on_gpu(source: Source, loop: Loop) -> bool:
    """Whether a loop, or the function around it, moves something to a GPU: a batch, or the model."""
    around = source.enclosing(loop, *FUNCTIONS) or source.tree
    return any(
        moves_to_device(source, call) and not _moves_to_host(source, call) and source.scope(call) is source.scope(loop)
        for call in ast.walk(around)
        if isinstance(call, ast.Call)
    )


def _moves_to_host(source: Source, call: ast.Call) -> bool:
    """Whether a `.to(...)` names no device that may be a GPU."""
    given = [*call.args, *(keyword.value for keyword in call.keywords if keyword.arg == "device")]
    is_cuda = isinstance(call.func, ast.Attribute) and call.func.attr == "cuda"
    return not is_cuda and not any(names_accelerator(source, one) and not names_cpu(source, one) for one in given)


def _reads_files(source: Source, dataset: ast.expr) -> bool:
    """Whether the class of a data set is in sight, and opens a file in what makes a sample."""
    made = _value_of(source, dataset)
    if isinstance(made, ast.Call) and _is_large_part(source, made):
        made = _value_of(source, made.args[0])
    if not isinstance(made, ast.Call):
        return False
    if source.qualified_name(made.func) in _FOLDERS:
        return True
    found = class_of_samples(source, made)
    if found is None:
        return False
    definition = found[0][1]
    methods = (method_of(definition, name) for name in ("__getitem__", "__iter__"))
    known: dict[Function, bool] = {}
    return any(method is not None and _reads(definition, method, known) for method in methods)


def _value_of(source: Source, node: ast.expr) -> ast.expr | None:
    """What an expression is, also by a name that is bound again elsewhere: `photos = Photos()`, later `for photos in loader`."""
    if (value := resolve(source, node)) is not None or not isinstance(node, ast.Name):
        return value
    bound = reaching(source, node)
    return assigned_value(source, bound[0]) if len(bound) == 1 else None


def _is_large_part(source: Source, made: ast.Call) -> bool:
    """Whether a part of a data set is as large as the set itself says: `Subset(photos, range(len(photos)))`."""
    if not (source.qualified_name(made.func) or "").startswith("torch.utils.data.") or len(made.args) != 2:
        return False
    whole, taken = made.args
    if isinstance(taken, ast.Call) and dotted_name(taken.func) == "list" and len(taken.args) == 1:
        taken = taken.args[0]
    if not isinstance(taken, ast.Call) or dotted_name(taken.func) != "range":
        return False
    bounds = [node for bound in taken.args for node in ast.walk(bound)]
    names = {node.id for node in bounds if isinstance(node, ast.Name)} - {"len"}
    numbers = [node.value for node in bounds if isinstance(node, ast.Constant)]
    return isinstance(whole, ast.Name) and names == {whole.id} and not any(numbers)


def _reads(definition: ast.ClassDef, method: Function, known: dict[Function, bool]) -> bool:
    """Whether a method opens a file whenever it is called, itself or by methods of its class.

    known: the answers, False for those that are being asked about.
    """
    if method not in known:
        known[method] = False
        is_plain = not method.decorator_list  # `lru_cache` keeps what was read
        known[method] = is_plain and _read_surely(definition, method.body, known)
    return known[method]


def _read_surely(definition: ast.ClassDef, statements: Iterable[ast.stmt], known: dict[Function, bool]) -> bool:
    """Whether a file is opened whichever way is taken through some statements."""
    for statement in statements:
        if any(_call_reads(definition, call, known) for call in _calls_made(statement)):
            return True
        if isinstance(statement, ast.If):
            ways = [statement.body, statement.orelse]
            if all(_read_surely(definition, way, known) or _raises(way) for way in ways) and not all(
                map(_raises, ways)
            ):
                return True
        elif isinstance(statement, _RUNS_ITS_BODY) and _read_surely(definition, statement.body, known):
            return True
        if not isinstance(statement, _MAY_NOT_RUN) and any(isinstance(node, _GIVES) for node in ast.walk(statement)):
            return False
    return False


def _raises(statements: list[ast.stmt]) -> bool:
    return bool(statements) and isinstance(statements[-1], ast.Raise)


def _calls_made(statement: ast.stmt) -> Iterator[ast.Call]:
    """The calls in a statement that are surely made where it runs, but for those in the statements in it."""
    pending: list[ast.AST] = [statement] if not isinstance(statement, _MAY_NOT_RUN) else []
    for node in pending:
        if isinstance(node, ast.Call):
            yield node
        pending += [
            child
            for child in ast.iter_child_nodes(node)
            if not isinstance(child, (ast.stmt, ast.ExceptHandler, *_MAY_NOT_RUN))
        ]


def _call_reads(definition: ast.ClassDef, call: ast.Call, known: dict[Function, bool]) -> bool:
    name = dotted_name(call.func)
    if _READS.search(name):
        return True
    method = method_of(definition, name.removeprefix("self.")) if name.startswith("self.") else None
    return method is not None and _reads(definition, method, known)
