"""How a program trains on several devices: where DistributedDataParallel wraps the model, what shares the data out."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from perfaudit.expressions import regex
from perfaudit.static.source import FUNCTIONS, Source
from perfaudit.static.understanding.answers import remember
from perfaudit.static.understanding.backward import backward_calls
from perfaudit.static.understanding.called_functions import assigned_once
from perfaudit.static.understanding.demonstrations import is_main_guard, is_test
from perfaudit.static.understanding.entry import imported_files_say
from perfaudit.static.understanding.names import last_name
from perfaudit.static.understanding.no_grad import NO_GRAD, in_no_grad

DDP = "torch.nn.parallel.DistributedDataParallel"

DATA_PARALLEL = frozenset({"torch.nn.DataParallel", "torch.nn.parallel.DataParallel"})
_CLASS_NAME = regex(r"^_?[A-Z]")

# Names of functions that wrap a model by themselves: `smart_DDP(model)`, `convert_to_ddp(model)`.
_WRAPS = regex(r"DistributedDataParallel|(^|_)(DDP|ddp)(_|$)|^FSDP$|FullyShardedDataParallel|^fully_shard$")

_LOOKS = {"eval", "to", "cuda", "module", "load_state_dict", "state_dict"}  # of a model that is not trained
_AVERAGE = regex(r"^EMA(?![a-z])|(^|_)ema(_|$)|MovingAverage")
_MAKES_OPTIMIZER = regex(r"\boptim\.[A-Z]|\btorch\.optim\b")
_NO_TRAINING = regex(
    r"(^|_)(test|tests|eval|evaluate|evaluation|val|valid|validate|validation|verify|infer|inference|predict|demo|sample"
    r"|generate(?!_(?:model|net|network|backbone|classifier)(?:_|$))|fid|benchmark)(_|$|\d)"
)


def derived_calls(source: Source) -> Iterator[ast.Call]:
    """Calls of classes of the project that derive from torch's DataParallel, whatever they change, in this file or another."""
    for call in source.calls_named(_CLASS_NAME):
        if isinstance(call.func, ast.Name) and (own := source.lookup(call.func)):
            if len(own) == 1 and isinstance(own[0], ast.ClassDef) and _derives(source, own[0]):
                yield call
        elif _derives_elsewhere(source, call.func):
            yield call


def _derives_elsewhere(source: Source, node: ast.expr) -> bool:
    name = source.qualified_name(node) or ""
    if source.neighbours is None or name.partition(".")[0] in ("", "torch"):
        return False
    return source.neighbours.derives_from(name, DATA_PARALLEL)


def _derives(source: Source, definition: ast.ClassDef, depth: int = 4) -> bool:
    if len(definition.bases) != 1 or not depth:
        return False
    base = definition.bases[0]
    if name := source.qualified_name(base):
        return name in DATA_PARALLEL or _derives_elsewhere(source, base)
    own = source.lookup(base) if isinstance(base, ast.Name) else []
    return len(own) == 1 and isinstance(own[0], ast.ClassDef) and _derives(source, own[0], depth - 1)


def ddp_calls(source: Source) -> list[ast.Call]:
    """Calls of torch's DistributedDataParallel, in document order."""
    if not source.mentions("DistributedDataParallel"):
        return []
    return source.calls(DDP)


@remember
def wraps_otherwise(source: Source, scope: ast.AST | None = None) -> bool:
    """Whether the file, or one function of it, calls something that runs one process per device by its name."""
    return any(
        wraps_for_processes(source, call)
        for call in source.nodes(ast.Call)
        if scope is None or source.scope(call) is scope
    )


def wraps_for_processes(source: Source, call: ast.Call) -> bool:
    """Whether a call wraps a model for one process per device, by its name or by what the name stands for."""
    return _WRAPS.search(last_name(call.func)) is not None or _stands_for_ddp(source, call)


def _stands_for_ddp(source: Source, call: ast.Call) -> bool:
    return bool(_WRAPS.search((source.qualified_name(call.func) or "").rpartition(".")[2]))


_TRAINS = regex(r"^(train|fit|learn|train_\w+|run_train\w*)$")
_STARTS_TRAINING = regex(r"train|fit|learn|optim|step|run|main|loop|epoch|start|engine|launch|spawn|solve|exec|import")


def only_evaluates(source: Source, call: ast.Call) -> bool:
    """Whether the model is wrapped to be looked at, in a test or to predict, as far as this file tells."""
    around = [a for a in source.ancestors(call) if isinstance(a, FUNCTIONS)]
    if is_test(source, call) or _is_only_looked_at(source, call) or _only_takes_weights(source, call):
        return True
    if in_no_grad(source, call) or _belongs_to_average(source, call):
        return True
    backward = backward_calls(source)
    if any(_NO_TRAINING.search(function.name.lower()) for function in around):
        return not any(ancestor in around for step in backward for ancestor in source.ancestors(step))
    if backward:
        return False
    stem = source.path.rpartition("/")[2].removesuffix(".py").lower().replace("-", "_")
    is_script = source.enclosing(call, ast.ClassDef) is None and not _NO_TRAINING.search(stem)
    is_own = source.scope(call) is source.tree and _is_own_script(source)
    if is_own and source.calls(".load_state_dict") and not _may_train(source):  # shows what a checkpoint gives
        return True
    if "train" in stem or (is_script and _MAKES_OPTIMIZER.search(source.text)):  # the loop lies in another file
        return False
    folder = source.path.split("/")[-2:-1]
    if (
        _NO_TRAINING.search(stem)
        or folder in (["inference"], ["evaluation"])
        or (any(name in NO_GRAD for name in _no_grad_names(source)) and not source.calls(".train"))
    ):
        return True
    main = next((n for n in source.tree.body if isinstance(n, ast.If) and "__main__" in source.text_of(n.test)), None)
    if main is None or not any(ancestor is main for ancestor in source.ancestors(call)):
        return False
    return not _is_handed_to_trainer(source, call) or not imported_files_say(source, "steps")  # it tries out the model


def _is_handed_to_trainer(source: Source, call: ast.Call) -> bool:
    """Whether an object is built of the wrapped model and told to train: `runner = Runner(net)`, `runner.train()`."""
    target = source.parent(call)
    while isinstance(target, (ast.Attribute, ast.Call)):  # `DataParallel(net).to(device)`
        target = source.parent(target)
    if not isinstance(target, ast.Assign) or not isinstance(target.targets[0], ast.Name):
        return False
    name = target.targets[0].id
    for trains in source.calls_named(_TRAINS):
        owner = trains.func.value if isinstance(trains.func, ast.Attribute) else None
        made = assigned_once(source, owner) if isinstance(owner, ast.Name) else None
        if isinstance(made, ast.Call) and any(isinstance(given, ast.Name) and given.id == name for given in made.args):
            return True
    return False


def _is_own_script(source: Source) -> bool:
    """Whether no other file of the scan imports this one, so that nobody else sees what it keeps in its names."""
    return source.neighbours is not None and not source.neighbours.is_imported()


def _may_train(source: Source) -> bool:
    """Whether a file calls anything by the name of a training, of an optimizer, or of what may start one."""
    return any(_STARTS_TRAINING.search(last_name(call.func).lower()) for call in source.nodes(ast.Call))


def _belongs_to_average(source: Source, call: ast.Call) -> bool:
    """Whether a class or function that keeps a moving average wraps a copy of the model, which is not trained."""
    return any(
        _AVERAGE.search(ancestor.name)
        for ancestor in source.ancestors(call)
        if isinstance(ancestor, (*FUNCTIONS, ast.ClassDef))
    )


def _is_only_looked_at(source: Source, call: ast.Call) -> bool:
    """Whether the variable that gets the wrapped model is run without gradients or handed to an evaluation, nothing else."""
    assigned = source.parent(call)
    target = assigned.targets[0] if isinstance(assigned, ast.Assign) and len(assigned.targets) == 1 else None
    if not isinstance(target, ast.Name):
        return False
    if source.scope(target) is source.tree and not _is_own_script(source):  # other files may use a global
        return False
    runs = 0
    for use in source.uses_of(target, target.id):
        if use.lineno < call.lineno or any(ancestor is assigned for ancestor in source.ancestors(use)):
            continue
        parent = source.parent(use)
        if isinstance(parent, ast.Attribute):
            if parent.attr not in _LOOKS:
                return False
        elif isinstance(parent, ast.Call):
            evaluates = in_no_grad(source, parent) if parent.func is use else _is_evaluation(source, parent)
            if not evaluates:
                return False
            runs += 1
        else:
            return False
    return runs > 0


def _only_takes_weights(source: Source, call: ast.Call) -> bool:
    """Whether a function wraps a model to load weights that were saved wrapped, and takes it out again: it runs no step."""
    assigned = source.parent(call)
    target = assigned.targets[0] if isinstance(assigned, ast.Assign) and len(assigned.targets) == 1 else None
    if not isinstance(target, ast.Name) or not isinstance(assigned, ast.Assign):
        return False
    is_global = source.scope(target) is source.tree and not any(is_main_guard(a) for a in source.ancestors(call))
    if is_global and not _is_own_script(source):  # other files may use it
        return False
    block = source.block(assigned)
    behind = block[next(n for n, item in enumerate(block) if item is assigned) + 1 :]
    taken_out = next((item.lineno for item in behind if _takes_out(item, target.id)), None)
    loads = False
    for use in source.uses_of(target, target.id):
        if use.lineno < call.lineno or any(ancestor is assigned for ancestor in source.ancestors(use)):
            continue
        if taken_out is not None and use.lineno > taken_out:  # the model itself
            continue
        parent = source.parent(use)
        if isinstance(parent, ast.Delete):
            continue
        if not isinstance(parent, ast.Attribute) or parent.attr not in ("load_state_dict", "module"):
            return False
        loads = loads or parent.attr == "load_state_dict"
    return loads


def _takes_out(statement: ast.stmt, name: str) -> bool:
    """`net = net.module`, `net = net.module.cuda()`."""
    if not isinstance(statement, ast.Assign) or not isinstance(target := statement.targets[0], ast.Name):
        return False
    is_same = target.id == name and len(statement.targets) == 1 and statement.lineno == statement.end_lineno
    return is_same and any(
        isinstance(node, ast.Attribute) and node.attr == "module" and last_name(node.value) == name
        for node in ast.walk(statement.value)
    )


def _is_evaluation(source: Source, call: ast.Call) -> bool:
    return bool(_NO_TRAINING.search(last_name(call.func).lower())) or in_no_grad(source, call)


@remember
def _no_grad_names(source: Source) -> frozenset[str]:
    """What the file uses that turns gradients off, by its documented name."""
    nodes = (*source.nodes(ast.Attribute), *source.nodes(ast.Name))
    return frozenset(source.qualified_name(n) or "" for n in nodes if last_name(n) in ("no_grad", "inference_mode"))
