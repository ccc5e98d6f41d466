"""An optimizer whose states are spread over the ranks: each updates its part of the parameters, and sends it to the others."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from perfaudit.expressions import regex
from perfaudit.static import edit
from perfaudit.static.source import Source
from perfaudit.static.understanding.losses import arguments_of
from perfaudit.static.understanding.names import last_name
from perfaudit.tune.ranks.ddp_call import the_call
from perfaudit.tune.ranks.options import is_of_options
from perfaudit.tune.ranks.patches import PatchRefused, RankPatch, SeenRanks, patch
from perfaudit.tune.ranks.project_functions import function_run, parameters_of

SHARDED = "ZeroRedundancyOptimizer"
_OPTIMIZER = regex(r"^torch\.optim\.(Adam|AdamW|SGD|NAdam|RAdam|RMSprop|Adagrad|Adamax|Adadelta)$")
_NAMES = regex(r"^[A-Z][A-Za-z]+$")
_HARMLESS = {"step", "zero_grad", "param_groups"}  # of an optimizer: all that needs no state of other ranks
# What only sets numbers of `param_groups`, which each step hands on.
_MAKES_SCHEDULE = regex(r"^torch\.optim\.lr_scheduler\.|^transformers\.(\w+\.)*get_(\w+_)?schedule(r|_with_\w+)?$")
_SCALED = {"step", "unscale_"}  # methods of a GradScaler that get it


def candidates(sources: Sequence[Source], ranks: SeenRanks) -> Iterator[RankPatch]:
    """A patch that shares the state of the optimizer out (ZeRO). Raises PatchRefused where it cannot be written."""
    try:
        the_call(sources)
    except PatchRefused:
        return  # that is said by `ddp_call`
    calls = [
        (source, call)
        for source in sources
        for call in source.calls_named(_NAMES)
        if _OPTIMIZER.search(source.qualified_name(call.func) or "")
    ]
    if len(calls) != 1:
        if calls:
            raise PatchRefused(f"{SHARDED} is not tried: the program makes {len(calls)} optimizers")
        return
    source, call = calls[0]
    if len(call.args) != 1 or isinstance(call.args[0], ast.Starred) or any(each.arg is None for each in call.keywords):
        raise PatchRefused(
            f"{SHARDED} is not tried: {source.path}:{call.lineno} gives more than the parameters by position"
        )
    if place := _other_use(sources, source, call):
        raise PatchRefused(
            f"{SHARDED} is not tried: {place} reads the optimizer's state, or hands the optimizer on, and state_dict() of "
            f"{SHARDED} raises where no rank has called consolidate_state_dict()"
        )
    edits = edit.together(
        edit.insert_import(source, f"from torch.distributed.optim import {SHARDED}"),
        edit.replace(source, call.func, SHARDED),
        edit.add_keyword(source, call, "optimizer_class", source.text_of(call.func)),
    )
    words = "spread the optimizer's states over the ranks; before a checkpoint, consolidate_state_dict() brings them together"
    yield patch(
        source, call, {"optimizer": SHARDED}, {"optimizer": source.text_of(call.func)}, words, ("checkpoint",), edits
    )


def _other_use(sources: Sequence[Source], source: Source, call: ast.Call) -> str:
    """Where the optimizer is used for anything but steps, as file:line: its state is of one rank; "" for nowhere."""
    assigned = source.parent(call)
    target = assigned.targets[0] if isinstance(assigned, ast.Assign) and len(assigned.targets) == 1 else None
    if not isinstance(target, (ast.Name, ast.Attribute)):
        return f"{source.path}:{call.lineno}"
    names, known = {last_name(target)}, set[str]()
    while names - known:  # the parameters of functions that get it are names of it as well
        known |= names
        for each in sources:
            nodes: list[ast.Name | ast.Attribute] = [*each.nodes(ast.Name), *each.nodes(ast.Attribute)]
            for node in nodes:
                if last_name(node) not in known or not isinstance(node.ctx, ast.Load) or _only_steps(each, node):
                    continue
                if not (parameter := _parameter(sources, each, node)):
                    return f"{each.path}:{node.lineno}"
                names.add(parameter)
    owner = source.enclosing(call, ast.ClassDef) if isinstance(target, ast.Attribute) else None
    return next(
        (f"{each.path}:{node.lineno}" for each in sources for node in _uses_of_all(sources, each, owner)),
        "",
    )


def _uses_of_all(sources: Sequence[Source], source: Source, owner: ast.ClassDef | None) -> Iterator[ast.expr]:
    """Where all names of a file, or all of the object with the optimizer, are had: `globals()`, `vars(self)`, `save(self)`.

    owner: the class of that object, None where the optimizer is no attribute. Attributes of options are others.
    """
    for node in source.nodes(ast.Call):
        name = node.func.id if isinstance(node.func, ast.Name) else ""
        if name in ("globals", "locals") or (name == "vars" and not node.args):
            if not _picks_a_class(source, node):
                yield node
        elif name == "vars" and owner is not None and not is_of_options(sources, node.args[0]):
            yield node
    if owner is None:
        return
    for attribute in source.nodes(ast.Attribute):
        is_other = last_name(attribute.value) == "self" and source.enclosing(attribute, ast.ClassDef) is not owner
        if attribute.attr == "__dict__" and not is_other and not is_of_options(sources, attribute.value):
            yield attribute
    objects = {
        last_name(target)
        for each in sources
        for node in each.nodes(ast.Assign)
        if isinstance(node.value, ast.Call) and last_name(node.value.func) == owner.name
        for target in node.targets
    } - {""}
    for loaded in source.nodes(ast.Name):
        is_own = loaded.id == "self" and source.enclosing(loaded, ast.ClassDef) is owner
        if (is_own or loaded.id in objects) and _hands_on(source.parent(loaded)):
            yield loaded


def _hands_on(parent: ast.AST | None) -> bool:
    """Whether what stands right below this is handed to somebody."""
    if isinstance(parent, ast.Call):
        return last_name(parent.func) not in ("super", "isinstance", "hasattr", "print")
    return isinstance(parent, (ast.keyword, ast.Dict))


def _picks_a_class(source: Source, names: ast.Call) -> bool:
    """Whether all names are had to call one of them, or to ask for one: `globals()[args.model](...)`, `"x" in globals()`."""
    item = source.parent(names)
    called = source.parent(item) if isinstance(item, ast.Subscript) else None
    return isinstance(item, ast.Compare) or (isinstance(called, ast.Call) and called.func is item)


def _only_steps(source: Source, node: ast.expr) -> bool:
    parent = source.parent(node)
    if isinstance(parent, ast.Attribute):
        return parent.attr in _HARMLESS
    if isinstance(parent, ast.keyword):
        parent = source.parent(parent)
    if not isinstance(parent, ast.Call):
        return False
    if _MAKES_SCHEDULE.search(source.qualified_name(parent.func) or ""):
        return True
    owner = last_name(parent.func.value).lower() if isinstance(parent.func, ast.Attribute) else ""
    return "scaler" in owner and last_name(parent.func) in _SCALED


def _parameter(sources: Sequence[Source], source: Source, node: ast.expr) -> str:
    """The parameter of a function of the project that gets this argument; "" for other uses."""
    parent = source.parent(node)
    call = source.parent(parent) if isinstance(parent, ast.keyword) else parent
    if not isinstance(call, ast.Call):
        return ""
    run = function_run(sources, source, call)
    if run is None:
        return ""
    named = parameters_of(run[1])
    return next((name for name, value in arguments_of(call, run[1]) if value is node and name in named), "")
