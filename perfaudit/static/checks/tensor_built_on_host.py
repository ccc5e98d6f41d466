"""PA105: a tensor that is built in host memory and then copied to the device."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from perfaudit.expressions import regex
from perfaudit.findings import Edit, Span
from perfaudit.static import edit
from perfaudit.static.registry import Proposal, Seen, check, hint_if
from perfaudit.static.source import FUNCTIONS, LOOPS, Source
from perfaudit.static.understanding.called_functions import assigned_once
from perfaudit.static.understanding.defaults import written_default
from perfaudit.static.understanding.devices import changes_default_device, names_accelerator
from perfaudit.static.understanding.evaluation import EVALUATION_NAME
from perfaudit.static.understanding.how_often import runs_often, runs_seldom
from perfaudit.static.understanding.names import dotted_name, last_name
from perfaudit.static.understanding.no_grad import in_no_grad
from perfaudit.static.understanding.rarely import is_rare_part
from perfaudit.static.understanding.same_memory import VARIABLE
from perfaudit.static.understanding.values import ABSENT, argument, assigned_value, constant, is_true, resolve

EXACT = {"torch.zeros", "torch.ones", "torch.full", "torch.empty", "torch.eye"}
RANDOM = {"torch.rand", "torch.randn", "torch.randint", "torch.randperm"}
COUNTED = {"torch.arange", "torch.linspace"}
_SAMPLES = regex(r"^_?((p|ddim|ddpm|get|draw|run)_)*(sampl(e|er|es|ing)|generate|infer(ence)?|synthesi[sz]e|beam)(_|$)")
_COLLATES = regex(r"[Cc]ollat(e|or|ion)")
_IN_TRAINING = regex(r"^(is_)?train(ing)?$")
# With `requires_grad` the copy is not a leaf, and the fix would make one.
# What follows may be done on the device as well: casts that are exact there, and the same memory in another shape.
_STAYS_ITS_OWN = {"long", "int", "bool", "float", "double", "half", "view", "reshape", "unsqueeze", "squeeze"}
KEEPS_HOST = ("out", "generator", "pin_memory", "requires_grad")
_CALLS_OUTWARDS = 4  # functions of this file that call one another
_FOLLOW = 2  # names followed from a collate function to what pads its samples


@check("PA105", call=(".to", ".cuda"))
def tensor_built_on_host(source: Source, call: ast.Call) -> Iterator[Seen]:
    moved = call.func.value if isinstance(call.func, ast.Attribute) else None
    built = _innermost(source, moved) if moved is not None else None
    name = source.qualified_name(built.func) if built is not None else None
    if moved is None or built is None or name is None or name not in EXACT | RANDOM | COUNTED:
        return
    device = _device(source, call)
    if device is None:
        return
    if any(argument(source, built, option) is not ABSENT for option in ("device", *KEEPS_HOST)):
        return
    if changes_default_device(source) or _has_no_element(source, built) or _joins_samples(source, call):
        return
    changes = _changes(source, built, name)
    is_cut = "rounding" in changes and _is_cut_to_integers(moved, built)  # 4.9999 of another device would be 4
    edits = _edits(source, call, moved, built, device) if device and not is_cut else None
    fix = Proposal("build it on the device", edits, "unsafe" if changes else "safe", changes)
    hot = not runs_seldom(source, call) and runs_often(source, call)
    often = ", on every step" if hot and not _is_in_rare_branch(source, call) else ""
    message = f"`{source.brief(built)}` is filled in host memory and then copied to the device{often}"
    # Samples for people to look at: no step of a training.
    is_shown = in_no_grad(source, call) and (not hot or _is_in_sampler(source, call))
    is_of_batch = _goes_where_given_tensor_is(source, call) or _is_of_penalty(source, call)
    is_of_step = hot or (is_of_batch and _is_called(source, call))
    is_hint = runs_seldom(source, call) or is_shown or not is_of_step
    is_hint = is_hint or (not hot and _is_in_evaluation(source, call))
    is_hint = is_hint or _is_in_branch_left_out(source, call) or (not hot and _is_in_sampler(source, call))
    yield Seen(call, message, fix, hot=hot, severity=hint_if(is_hint))


def _innermost(source: Source, moved: ast.expr) -> ast.Call | None:
    """The call that fills a tensor which is moved as it is, in `Variable(...)`, or cast and seen in another shape before that."""
    while isinstance(moved, ast.Call):
        if source.qualified_name(moved.func) == VARIABLE and len(moved.args) == 1 and not moved.keywords:
            moved = moved.args[0]
        elif (
            isinstance(moved.func, ast.Attribute)
            and moved.func.attr in _STAYS_ITS_OWN
            and not source.qualified_name(moved.func)
        ):
            moved = moved.func.value
        else:
            return moved
    return None


def _is_cut_to_integers(moved: ast.expr, built: ast.Call) -> bool:
    """Whether a cast to integers stands between a tensor that is filled and its move."""
    while isinstance(moved, ast.Call) and moved is not built:
        if isinstance(moved.func, ast.Attribute) and moved.func.attr in ("long", "int", "bool"):
            return True
        is_method = isinstance(moved.func, ast.Attribute) and moved.func.attr in _STAYS_ITS_OWN
        moved = moved.func.value if is_method and isinstance(moved.func, ast.Attribute) else moved.args[0]
    return False


def _is_of_penalty(source: Source, call: ast.Call) -> bool:
    """Whether the function around takes gradients of gradients, as a penalty of a GAN does: it is a part of a step."""
    function = source.enclosing(call, *FUNCTIONS)
    if not isinstance(function, FUNCTIONS):
        return False
    calls = (node for node in ast.walk(function) if isinstance(node, ast.Call) and last_name(node.func) == "grad")
    return any(
        keyword.arg == "create_graph" and is_true(source, keyword.value) for c in calls for keyword in c.keywords
    )


def _joins_samples(source: Source, call: ast.Call) -> bool:
    """Whether a loader's collate function is around, or a function that it names: its samples lie in host memory.

    Also a method of a class that is there to collate by its name, `PadCollate`, where the device is that of the samples.
    """
    owner = source.enclosing(call, ast.ClassDef)
    is_of_collating = isinstance(owner, ast.ClassDef) and _COLLATES.search(owner.name) is not None
    if is_of_collating and _goes_where_given_tensor_is(source, call):
        return True
    around = {id(a) for a in source.ancestors(call) if isinstance(a, (*FUNCTIONS, ast.Lambda))}
    if not around:
        return False
    edge: list[ast.AST] = [k.value for k in source.nodes(ast.keyword) if k.arg == "collate_fn"]
    for _ in range(_FOLLOW):
        named = [binding for part in edge for name in _names(part) for binding in source.lookup(name)]
        values = [assigned_value(source, binding) for binding in named if isinstance(binding, ast.Name)]
        edge += [binding for binding in named if isinstance(binding, FUNCTIONS)]
        edge += [value for value in values if isinstance(value, ast.Lambda)]
    return any(id(part) in around for part in edge)


def _names(part: ast.AST) -> list[ast.Name]:
    return [node for node in ast.walk(part) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)]


def _has_no_element(source: Source, built: ast.Call) -> bool:
    """Whether a length is 0, as in `torch.empty(0)`: there is nothing to fill, and nothing to copy."""
    if source.qualified_name(built.func) not in (
        "torch.empty",
        "torch.zeros",
        "torch.ones",
        "torch.rand",
        "torch.randn",
    ):
        return False
    sizes = [part for size in built.args for part in (size.elts if isinstance(size, (ast.Tuple, ast.List)) else [size])]
    return any(type(value := constant(source, size)) is int and value == 0 for size in sizes)


def _is_in_sampler(source: Source, call: ast.Call) -> bool:
    """Whether the function around draws samples, by its name."""
    function = source.enclosing(call, *FUNCTIONS)
    return isinstance(function, FUNCTIONS) and bool(_SAMPLES.search(function.name))


def _is_in_evaluation(source: Source, call: ast.Call) -> bool:
    """Whether the function around evaluates, by its name."""
    function = source.enclosing(call, *FUNCTIONS)
    return isinstance(function, FUNCTIONS) and bool(EVALUATION_NAME.search(function.name.lower()))


def _is_in_rare_branch(source: Source, call: ast.Call) -> bool:
    """Whether a condition on the way holds now and then: a count is nothing, a step is the tenth, a value is NaN."""
    child: ast.AST = call
    for ancestor in source.ancestors(call):
        if (
            isinstance(ancestor, ast.If)
            and any(item is child for item in ancestor.body)
            and _is_one_number(ancestor.test)
        ):
            return True
        if is_rare_part(source, ancestor, child):
            return True
        child = ancestor
    return False


def _is_in_branch_left_out(source: Source, call: ast.Call) -> bool:
    """Whether a condition on the way holds only in an evaluation, or only where the object is made otherwise than by default."""
    child: ast.AST = call
    for ancestor in source.ancestors(call):
        if isinstance(ancestor, ast.If) and child is not ancestor.test:
            is_then = any(item is child for item in ancestor.body)
            held = (
                True if _IN_TRAINING.search(last_name(ancestor.test)) else _default_of_attribute(source, ancestor.test)
            )
            if held is not None and held is not is_then:
                return True
        child = ancestor
    return False


def _default_of_attribute(source: Source, test: ast.expr) -> bool | None:
    """True or False, as the class sets `self.x` once, by itself or by the default of a parameter; None for all else."""
    owner = source.enclosing(test, ast.ClassDef)
    if not isinstance(test, ast.Attribute) or dotted_name(test.value) != "self" or owner is None:
        return None
    stores = [n for n in source.nodes(ast.Attribute) if n.attr == test.attr and isinstance(n.ctx, ast.Store)]
    value = assigned_value(source, stores[0]) if len(stores) == 1 else None
    written = written_default(source, value) if isinstance(value, ast.Name) else value
    return written.value if isinstance(written, ast.Constant) and isinstance(written.value, bool) else None


def _is_one_number(test: ast.expr) -> bool:
    match test:
        case ast.Compare(ops=[ast.Eq()], comparators=[ast.Constant(value=int(number))]):
            return type(number) is int
    return False


def _goes_where_given_tensor_is(source: Source, call: ast.Call) -> bool:
    """Whether the device is that of a tensor which the function is given, `x.device`: such a function works on batches."""
    targets = [*call.args, *(keyword.value for keyword in call.keywords if keyword.arg == "device")]
    named = [assigned_once(source, target) if isinstance(target, ast.Name) else target for target in targets]
    owners = [t.value for t in named if isinstance(t, ast.Attribute) and t.attr == "device"]
    return any(
        isinstance(owner, ast.Name) and owner.id != "self" and any(isinstance(b, ast.arg) for b in source.lookup(owner))
        for owner in owners
    )


def _is_called(source: Source, node: ast.AST) -> bool:
    """Whether the function around is used in a loop or in what runs often, in this file, or called by one that imports it.

    Directly, or by functions of this file that call it. What nothing in sight calls may never run.
    """
    places: list[ast.AST] = [node]
    known: set[str] = set()
    for _ in range(_CALLS_OUTWARDS):
        around = [f for place in places if isinstance(f := source.enclosing(place, *FUNCTIONS), FUNCTIONS)]
        names = {function.name for function in around} - known
        known |= names
        uses = [n for n in source.nodes(ast.Name, ast.Attribute) if last_name(n) in names and _is_read(n)]
        if any(source.enclosing(use, *LOOPS) is not None or runs_often(source, use) for use in uses):
            return True
        if source.neighbours is not None and any(map(source.neighbours.is_called_by_importers, names)):
            return True
        places = [*uses]
    return False


def _is_read(node: ast.AST) -> bool:
    return isinstance(node, (ast.Name, ast.Attribute)) and isinstance(node.ctx, ast.Load)


def _device(source: Source, call: ast.Call) -> str | None:
    """The text of the accelerator that `.to(...)` or `.cuda(...)` names and nothing else; None where that is not sure.

    "" where it is an accelerator but nothing that `device=` surely takes: `.cuda(gpu)` may get a number, or None for
    the current device, which `device=None` is not.
    """
    keywords = {k.arg: k.value for k in call.keywords if k.arg != "non_blocking"}
    targets = [*call.args, *keywords.values()]
    if len(targets) > 1 or not keywords.keys() <= {"device"}:
        return None
    if isinstance(call.func, ast.Attribute) and call.func.attr == "cuda":
        return _cuda_device(source, targets[0]) if targets else '"cuda"'
    if not targets or not names_accelerator(source, targets[0]):
        return None
    return source.text_of(targets[0])


def _cuda_device(source: Source, target: ast.expr) -> str | None:
    """What `device=` takes for the argument of `.cuda(...)`; "" where the text does not tell, None for no device."""
    if isinstance(target, ast.Constant):
        if isinstance(target.value, bool) or not isinstance(target.value, (int, str)):
            return None
        return source.text_of(target) if isinstance(target.value, str) else f'"cuda:{target.value}"'
    value = resolve(source, target)
    is_device = isinstance(value, ast.Call) and source.qualified_name(value.func) == "torch.device"
    return source.text_of(target) if is_device and not isinstance(target, ast.Call) else ""


def _changes(source: Source, built: ast.Call, name: str) -> tuple[str, ...]:
    """What else changes when the device fills the tensor: the random stream, or the last bit of computed values."""
    if name in RANDOM:
        return ("rng",)
    if name in EXACT:
        return ()
    return () if name == "torch.arange" and _counts_in_integers(source, built) else ("rounding",)


def _counts_in_integers(source: Source, built: ast.Call) -> bool:
    """Whether `arange` starts and steps by literal integers, so that every device gives the same values."""
    if any(isinstance(a, ast.Starred) for a in built.args) or any(
        k.arg in ("start", "end", "step") for k in built.keywords
    ):
        return False
    start_and_step = [*built.args[:1], *built.args[2:]] if len(built.args) > 1 else []
    return all(type(constant(source, node)) is int for node in start_and_step)


def _edits(source: Source, call: ast.Call, moved: ast.expr, built: ast.Call, device: str) -> tuple[Edit, ...] | None:
    """`device=` into the constructor and the move behind it out; None where a comment or a bracket stands between."""
    behind = Span(source.span(moved).end, source.span(call).end)
    text = source.text[behind.start : behind.end]
    if "#" in text or not text.lstrip("\\ \t\r\n").startswith("."):
        return None
    added = edit.add_keyword(source, built, "device", device)
    return None if added is None else (*added, Edit(behind, ""))
