"""PA701: one Python process that drives all GPUs."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator

from perfaudit.static.registry import Proposal, Seen, check, hint_if
from perfaudit.static.source import FUNCTIONS, Source
from perfaudit.static.understanding.calls_by_name import calls_in_sight
from perfaudit.static.understanding.defaults import default, written_default
from perfaudit.static.understanding.distributed import (
    derived_calls,
    only_evaluates,
    wraps_for_processes,
    wraps_otherwise,
)
from perfaudit.static.understanding.handed_in import handed_in
from perfaudit.static.understanding.losses import arguments_of
from perfaudit.static.understanding.names import dotted_name, last_name
from perfaudit.static.understanding.values import argument, constant, resolve

# Of these a call at the top of a file sets something: a filter, a seed, a path.
_SETTING = {*sys.stdlib_module_names, "torch", "numpy", "matplotlib", "cv2"}


@check(
    "PA701",
    call=(
        "torch.nn.DataParallel",
        "torch.nn.parallel.DataParallel",
        "torch.nn.parallel.data_parallel",
        "torch.nn.parallel.data_parallel.data_parallel",
    ),
)
def data_parallel(source: Source, call: ast.Call) -> Iterator[Seen]:
    yield from _check_call(source, call)


@check("PA701", ast.Module)
def derived_data_parallel(source: Source, module: ast.Module) -> Iterator[Seen]:
    if "DataParallel" in source.text or source.neighbours is not None:
        for call in derived_calls(source):
            yield from _check_call(source, call)


def _check_call(source: Source, call: ast.Call) -> Iterator[Seen]:
    from perfaudit.static.checks.data_parallel.program import Refused  # most files have no such call
    from perfaudit.static.checks.data_parallel.ranks import launcher, patch, title

    if only_evaluates(source, call) or _runs_without_cuda(source, call):
        return
    is_function = (source.qualified_name(call.func) or "").endswith(".data_parallel")
    devices = argument(source, call, "device_ids", 2 if is_function else 1)
    devices = (resolve(source, devices) or devices) if isinstance(devices, ast.expr) else devices
    if isinstance(devices, (ast.List, ast.Tuple)) and len(devices.elts) <= 1:  # one device: called as it is
        return
    if isinstance(devices, ast.Attribute) and _is_taken_of_wrapped(source, call, devices):
        return
    is_one = isinstance(devices, ast.expr) and _is_one_by_default(source, devices)
    is_one = is_one or _is_wrapped_before(source, call) or _is_left_out(source, call)
    model = source.brief(call.args[0], 30) if call.args else "model"
    message = f"`{source.brief(call)}` copies `{model}` to every GPU on each step, all driven by one Python process"
    if wraps_otherwise(source):
        advice = "start one process per GPU (`torchrun --nproc-per-node=gpu`), for which this file has a branch already"
        flag = _flag_that_is_off(source, call)
        advice = f"set `{flag}`, and {advice}" if flag else advice
        is_other = not flag and wraps_otherwise(source, source.scope(call))
        yield Seen(call, message, Proposal(advice), severity=hint_if(is_one or is_other))
        return
    try:
        yield Seen(call, message, Proposal(title(source), patch(source, call)), severity=hint_if(is_one))
    except Refused as why:
        yield Seen(
            call,
            message,
            Proposal(
                f"run one process per GPU ({_launch_words(source, launcher(source))}) and wrap with "
                f"`torch.nn.parallel.DistributedDataParallel({model}, device_ids=[local_rank])`; no patch: {why}"
            ),
            severity=hint_if(is_one),
        )


def _launch_words(source: Source, command: str) -> str:
    """How to start the processes: by the command, or by the script that imports this file where it runs nothing itself."""
    is_imported = source.neighbours is not None and source.neighbours.is_imported()
    if not is_imported or any(_runs_something(source, statement) for statement in source.tree.body):
        return f"`{command}`"
    return "`torchrun --nproc-per-node=gpu`, with the script that imports this file"


def _runs_something(source: Source, statement: ast.stmt) -> bool:
    """Whether a statement at the top of a file does more than import, define, assign, or set, as `warnings.simplefilter()`.

    What calls a function of the file may do anything: `sys.exit(main())`.
    """
    if not isinstance(statement, (*FUNCTIONS, ast.ClassDef)):
        names = (
            call.func.id
            for call in ast.walk(statement)
            if isinstance(call, ast.Call) and isinstance(call.func, ast.Name)
        )
        if any(isinstance(each, FUNCTIONS) for name in names for each in source.bound_in(source.tree).get(name, ())):
            return True
    if isinstance(statement, ast.Expr):
        called = source.qualified_name(statement.value.func) if isinstance(statement.value, ast.Call) else None
        sets = (called or "").partition(".")[0] in _SETTING
        return not isinstance(statement.value, ast.Constant) and not sets
    plain = (ast.Import, ast.ImportFrom, *FUNCTIONS, ast.ClassDef, ast.Assign, ast.AnnAssign)
    return not isinstance(statement, plain)


def _flag_that_is_off(source: Source, call: ast.Call) -> str:
    """The flag that would have the file wrap otherwise, but is False in the text: `distributed = False`; "" if none is."""
    for ancestor, child in source.way_out(call):
        if isinstance(ancestor, ast.If) and isinstance(ancestor.test, ast.Name):
            is_else = any(item is child for item in ancestor.orelse)
            inside = (node for statement in ancestor.body for node in ast.walk(statement))
            if is_else and constant(source, ancestor.test) is False and any(_is_wrap(source, node) for node in inside):
                return ancestor.test.id
    return ""


def _is_wrap(source: Source, node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and wraps_for_processes(source, node)


def _is_taken_of_wrapped(source: Source, call: ast.Call, devices: ast.Attribute) -> bool:
    """Whether a call wraps again what was wrapped before, on the same devices: `if isinstance(net, DataParallel)` is around."""
    owner = dotted_name(devices.value)
    return (
        devices.attr == "device_ids"
        and owner != ""
        and any(
            isinstance(ancestor, ast.If)
            and any(item is child for item in ancestor.body)
            and _asks_for_wrapped(ancestor.test, owner)
            for ancestor, child in source.way_out(call)
        )
    )


def _asks_for_wrapped(test: ast.expr, owner: str) -> bool:
    """`isinstance(net, DataParallel)`, or with a tuple of such classes, for the name of the model."""
    match test:
        case ast.Call(func=ast.Name(id="isinstance"), args=[asked, kind]):
            kinds = kind.elts if isinstance(kind, ast.Tuple) else [kind]
            return dotted_name(asked) == owner and all(last_name(one).endswith("DataParallel") for one in kinds)
    return False


def _is_one_by_default(source: Source, devices: ast.expr) -> bool:
    """Whether the devices are one unless somebody says otherwise: the model is then called as it is.

    A parameter with the default `gpu_ids=[0]`; `range(args.num_gpu)` of an option that is 1, also one that another file hands in.
    """
    if isinstance(devices, ast.Call) and last_name(devices.func) == "range" and len(devices.args) == 1:
        count = devices.args[0]
        given = [default(there, value) for there, value in handed_in(source, count)] or [default(source, count)]
        return all(option is not None and option.value == 1 for option in given)
    written = written_default(source, devices)
    return isinstance(written, (ast.List, ast.Tuple)) and len(written.elts) == 1


def _is_wrapped_before(source: Source, call: ast.Call) -> bool:
    """Whether a function wraps a model that it is given only if nobody did: `if not isinstance(model, DataParallel)`."""
    around = source.parent(source.statement(call))
    match around:
        case ast.If(
            test=ast.UnaryOp(op=ast.Not(), operand=ast.Call(func=ast.Name(id="isinstance"), args=[asked, kind]))
        ):
            wrapped = call.args[0] if call.args else None
            given = source.lookup(asked) if isinstance(asked, ast.Name) else []
            is_same = isinstance(wrapped, ast.Name) and isinstance(asked, ast.Name) and wrapped.id == asked.id
            return is_same and last_name(kind) == "DataParallel" and any(isinstance(one, ast.arg) for one in given)
    return False


def _is_left_out(source: Source, call: ast.Call) -> bool:
    """Whether the call stands under a flag that a parameter has as False by default, `def loss(net, x, parallel=False)`, and
    that no call in sight sets.
    """
    child: ast.AST = call
    for ancestor in source.ancestors(call):
        if isinstance(ancestor, ast.If) and isinstance(ancestor.test, ast.Name):
            written = written_default(source, ancestor.test)
            is_off = isinstance(written, ast.Constant) and written.value is False
            if is_off and any(item is child for item in ancestor.body) and not _is_set(source, ancestor.test):
                return True
        child = ancestor
    return False


def _is_set(source: Source, flag: ast.Name) -> bool:
    """Whether a call of the function around, in this file or one that imports it, gives a flag anything but False."""
    function = source.enclosing(flag, *FUNCTIONS)
    if not isinstance(function, FUNCTIONS):
        return False
    for there, call in calls_in_sight(source, function.name):
        given = dict(arguments_of(call, function)).get(flag.id)
        if given is not None and constant(there, given) is not False:
            option = default(there, given)
            if option is None or option.value is not False:
                return True
    return False


def _runs_without_cuda(source: Source, call: ast.Call) -> bool:
    """Whether the call stands in the branch of a program for machines without CUDA, where it does nothing."""
    child: ast.AST = call
    for ancestor in source.ancestors(call):
        if isinstance(ancestor, ast.If) and isinstance(ancestor.test, ast.Call):
            is_else = any(item is child for item in ancestor.orelse)
            if is_else and source.qualified_name(ancestor.test.func) == "torch.cuda.is_available":
                return True
        child = ancestor
    return False
