"""PA601: the host waits for the device on every training step."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable, Iterator

from perfaudit.expressions import regex
from perfaudit.records import NamedTuple
from perfaudit.static import edit
from perfaudit.static.checks.host_sync_in_training_loop.branches import in_each_branch
from perfaudit.static.checks.host_sync_in_training_loop.device_sums import sums_on_device
from perfaudit.static.checks.host_sync_in_training_loop.lightning_steps import STEP, lightning_steps
from perfaudit.static.checks.host_sync_in_training_loop.shown_devices import shows_devices_only
from perfaudit.static.checks.host_sync_in_training_loop.whole_steps import WholeStep, whole_steps
from perfaudit.static.registry import Joined, Proposal, Seen, check
from perfaudit.static.source import FUNCTIONS, LOOPS, Function, Loop, Source
from perfaudit.static.source.syntax import walk
from perfaudit.static.understanding.backward import backward_calls
from perfaudit.static.understanding.demonstrations import is_main_guard, is_test
from perfaudit.static.understanding.device_calls import is_text
from perfaudit.static.understanding.devices import device_text, has_trainer_that_takes_gpu, names_cpu, uses_accelerator
from perfaudit.static.understanding.each_time import runs_each_time, runs_in_any_case
from perfaudit.static.understanding.elsewhere import Elsewhere, called_each_step, called_from
from perfaudit.static.understanding.epochs import takes_few_long_steps
from perfaudit.static.understanding.host_models import trains_on_host
from perfaudit.static.understanding.kinds import Kind
from perfaudit.static.understanding.losses import backpropagated_names, key, losses_returned
from perfaudit.static.understanding.names import dotted_name, last_name
from perfaudit.static.understanding.no_grad import in_no_grad
from perfaudit.static.understanding.raises_today import raises_today
from perfaudit.static.understanding.step_code import StepCode, code_of_step, evaluates
from perfaudit.static.understanding.step_loops import StepLoop, is_over_written_values, step_loops
from perfaudit.static.understanding.taint import Region, device_values, values_elsewhere
from perfaudit.static.understanding.updates import updates_anything
from perfaudit.static.understanding.values import enclosing_function

READS = {"item", "tolist", "cpu"}  # `.numpy()` alone raises on a device tensor, so it is not one
CASTS = {"float", "int", "bool", "str", "repr", "print"}
HOST_WORLD = regex(r"(^|_)step(_async|_wait)?$|priorit")  # an environment, a replay buffer: they live on the host
NO_WORLD = regex(r"opt|sched|scaler|prof|track|meter|stop|engine|model", re.IGNORECASE)
Runs = Callable[[Source, ast.AST, Loop | Function], bool]
_TENSORS = {"Tensor", "Variable", "Parameter"}
LOG_LEVELS = {"info", "warning", "error", "critical"}


@check("PA601", ast.Module)
def host_sync_in_training_loop(source: Source, module: ast.Module) -> Iterator[Seen]:
    for seen in _seen_in(source):  # a program that raises waits for nothing
        yield seen._replace(severity="hint") if raises_today(source, seen.node) else seen


def _seen_in(source: Source) -> Iterator[Seen]:
    steps = step_loops(source)
    is_of_lightning = STEP in source.text
    if not (steps or backward_calls(source) or is_of_lightning or _may_be_run_by_base(source)):
        return
    if not _is_of_torch(source) or not _on_accelerator(source):
        return
    yield from _in_whole_steps(source, whole_steps(source), runs_each_time)
    if is_of_lightning:  # what a step calls may do so for validation as well, told by what it is given
        yield from _in_whole_steps(source, lightning_steps(source), runs_in_any_case)
    for step in steps:
        if takes_few_long_steps(source, step) or is_over_written_values(step.loop):
            continue
        if _is_alone_on_host(source, step) or is_test(source, step.loop):
            continue
        if not updates_anything(step) or trains_on_host(source, step):
            continue
        others = {id(other.loop) for other in steps if other is not step}
        regions = device_values(source, step)
        regions = tuple(region for region in regions if not evaluates(step, region.code.root))
        places = [place for region in regions for place in _syncs(source, region, others)]
        yield from _in_other_files(source, regions, others, places)
        if not places:
            continue
        by_themselves = [place for place in places if _runs_by_itself(source, regions, place)]
        patch = sums_on_device(source, step, regions, by_themselves) if by_themselves else None
        fix = patch or Proposal(_advice(source, places[0]))
        yield Seen(places[0], _message(source, step, regions, places), fix, tuple(places), hot=True)


def _runs_by_itself(source: Source, regions: tuple[Region, ...], place: ast.expr) -> bool:
    """Whether a place runs each time, and not only it or its like in the other branch of a condition."""
    return any(runs_each_time(source, place, region.code.root) for region in regions)


def _is_of_torch(source: Source) -> bool:
    """Whether a file imports torch, or is imported by one that names it: a trainer that is handed its model and loss."""
    is_named = source.neighbours is not None and source.neighbours.is_imported_by_a_marked_file("torch")
    return source.imports_torch or is_named


def _may_be_run_by_base(source: Source) -> bool:
    """Whether something is read in a file that derives a class of an imported one, whose loop may call its methods."""
    if source.neighbours is None or not any(source.calls(f".{name}") for name in READS):
        return False
    bases = (base for definition in source.nodes(ast.ClassDef) for base in definition.bases[:1])
    return any(not (source.qualified_name(base) or "torch").startswith("torch") for base in bases)


def _in_whole_steps(source: Source, steps: Iterable[WholeStep], runs: Runs) -> Iterator[Seen]:
    """What waits in a function that makes a whole step, or a part of one, for a loop in another file.

    runs: whether a place in a function that the step calls does run then.
    """
    for step in steps:
        root = step.function
        kinds = values_elsewhere(step.at(source), step.kind_of_given, step.given_back).kinds
        regions = tuple(Region(code, kinds) for code in code_of_step(source, root))
        places = [
            place
            for region in regions
            for place in _syncs(source, region, set(), runs_each_time if region.code.root is root else runs)
        ]
        places = list({id(place): place for place in places}.values())
        yield from _in_other_files(source, regions, set(), places)
        if not places:
            continue
        inside = enclosing_function(source, places[0])
        where = f" in `{inside.name}`" if inside is not None and inside is not root else ""
        more = f"; {len(places) - 1} more such place{'s' if len(places) > 2 else ''} there" if len(places) > 1 else ""
        waits = f"`{_text(source, places[0])}`{where} makes the host wait for the device on every step"
        message = f"{waits} {_made_by(step)}{more}"
        yield Seen(places[0], message, Proposal(_advice(source, places[0], step.gets_batch)), tuple(places), hot=True)


def _made_by(step: WholeStep) -> str:
    """Which step it is that waits, for messages."""
    name = step.function.name
    if step.gets_batch:
        return f"that Lightning's trainer makes by `{name}`"
    if step.run_by:
        return f"of which `{name}` is a part: {step.run_by} calls it"
    return f"that `{name}` makes for the loop of another file"


class _Wait(NamedTuple):
    """A place in a function of another file that makes the host wait."""

    there: Elsewhere
    place: ast.expr


def _in_other_files(
    source: Source, regions: tuple[Region, ...], others: set[int], places_here: list[ast.expr]
) -> Iterator[Seen]:
    """Calls of functions in other files that make the host wait, each function once.

    places_here: what is told of this file; of `to_cpu(loss).item()` the call is not told again.
    """
    told = {id(node) for place in places_here for node in walk(place)}
    found: dict[int, tuple[list[_Wait], list[ast.Call]]] = {}
    for region in regions:
        for there in called_each_step(source, region.code.root) if region.code.is_near else ():
            call = there.call
            if id(call) in told or _belongs_elsewhere(source, call, region.code.root, others):
                continue
            if any(_enters_host_world(source, node) for node in _holders(source, call, region.code)):
                continue
            waits = list(_waits_elsewhere(source, there, region))
            if waits:
                found.setdefault(id(there.function), (waits, []))[1].append(call)
    for waits, calls in found.values():
        yield _seen_elsewhere(source, waits, calls)


def _waits_elsewhere(source: Source, there: Elsewhere, region: Region) -> Iterator[_Wait]:
    """What waits in a function of another file, then in those that it calls, if the call is one of the loop itself."""
    inside = values_elsewhere(there, region.kind, _losses_given_back(source, there, region))
    yield from _waits_in(there, inside, _hands_tensor(there, region.kind))
    if region.code.caller is None:
        for further in called_from(source, there):
            yield from _waits_in(further, values_elsewhere(further, inside.kind), _hands_tensor(further, inside.kind))


def _losses_given_back(source: Source, there: Elsewhere, region: Region) -> list[ast.expr]:
    """What a function of another file returns in the place of the loss: `loss, parts = losses_of(batch)`, `loss.backward()`."""
    statement = source.statement(there.call)
    if not isinstance(statement, ast.Assign) or statement.value is not there.call or len(statement.targets) != 1:
        return []
    target, losses = statement.targets[0], backpropagated_names(source, region.code.root)
    elements = target.elts if isinstance(target, (ast.Tuple, ast.List)) else [target]
    places = [n for n, element in enumerate(elements) if key(element) in losses]
    if len(places) != 1:
        return []
    place = None if elements == [target] else (places[0], len(elements))
    return losses_returned(there.source, there.function, place)


def _waits_in(there: Elsewhere, inside: Region, gets_tensor: bool) -> Iterator[_Wait]:
    """gets_tensor: whether what the function is handed is a tensor on the device, where it asks for that first."""

    def outcome(test: ast.expr) -> bool | None:
        if _asks_for_infinity(there, test):
            return False
        if not gets_tensor:
            return None
        asked, is_of_tensors = _asked_for_kind(there.source, test)
        return is_of_tensors if asked is not None and inside.kind(asked) >= Kind.MAYBE else None

    def runs(source: Source, place: ast.AST, root: Loop | Function) -> bool:
        return runs_in_any_case(source, place, root, outcome)

    for place in _syncs(there.source, inside, set(), runs):
        yield _Wait(there, place)


def _asks_for_infinity(there: Elsewhere, test: ast.expr) -> bool:
    """`norm_type == inf` where the call leaves that parameter at the number that it is by default."""
    match test:
        case ast.Compare(
            left=ast.Name(id=name), ops=[ast.Eq()], comparators=[ast.Name(id="inf") | ast.Attribute(attr="inf")]
        ):
            arguments = there.function.args
            named = [a.arg for a in (*arguments.posonlyargs, *arguments.args)]
            defaults = dict(zip(named[len(named) - len(arguments.defaults) :], arguments.defaults, strict=False))
            is_number = isinstance(default := defaults.get(name), ast.Constant) and isinstance(
                default.value, (int, float)
            )
            return is_number and name not in dict(there.named_arguments)
    return False


def _hands_tensor(there: Elsewhere, kind_of: Callable[[ast.expr], Kind]) -> bool:
    """Whether a call passes a tensor on the device: one for sure, or what is made of such and named as a loss."""
    given = [*there.call.args, *(keyword.value for keyword in there.call.keywords)]
    return any(
        kind_of(value) is Kind.TENSOR or (kind_of(value) is Kind.MAYBE and "loss" in last_name(value).lower())
        for value in given
    )


def _asked_for_kind(source: Source, test: ast.expr) -> tuple[ast.expr | None, bool]:
    """`x` of `isinstance(x, torch.Tensor)`, `type(x) == torch.Tensor` and `torch.is_tensor(x)`, with the answer for a tensor.

    Of `isinstance(x, (int, float))` the answer is False for one, and so it is of `x is None`.
    """
    match test:
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            asked, answer = _asked_for_kind(source, operand)
            return asked, not answer
        case ast.Compare(left=asked, ops=[ast.Is() | ast.IsNot() as op], comparators=[ast.Constant(value=None)]):
            return asked, isinstance(op, ast.IsNot)
        case ast.Compare(
            left=ast.Call(func=ast.Name(id="type"), args=[asked]), ops=[ast.Eq() | ast.Is()], comparators=[kind]
        ):
            return asked, source.qualified_name(kind) == "torch.Tensor"
        case ast.Call(func=ast.Name(id="isinstance"), args=[asked, kinds]):
            named = kinds.elts if isinstance(kinds, ast.Tuple) else [kinds]
            known = [source.qualified_name(kind) or last_name(kind) for kind in named]
            return asked if all(known) else None, any(kind.rpartition(".")[2] in _TENSORS for kind in known)
        case ast.Call(args=[asked]) if source.qualified_name(test.func) == "torch.is_tensor":
            return asked, True
    return None, False


def _seen_elsewhere(source: Source, waits: list[_Wait], calls: list[ast.Call]) -> Seen:
    there, place = waits[0]
    file = there.source.path
    often = ", once for each turn of a loop" if there.source.enclosing(place, *LOOPS, within=there.function) else ""
    more = f"; {len(waits) - 1} more such place{'s' if len(waits) > 2 else ''} there" if len(waits) > 1 else ""
    message = (
        f"`{source.brief(calls[0])}` makes the host wait for the device on every step{often}: "
        f"`{_text(there.source, place)}` in `{there.function.name}`, {file} line {place.lineno}{there.way}{more}"
    )
    advice = _advice(there.source, place)
    if often and any(last_name(node) in ("grad", "parameters") for node in walk(there.function)):
        advice = (
            "add up tensors, or take all at once (`torch.nn.utils.get_total_norm`); read one value where it is shown"
        )
    advice = f"in {file}: {advice}"
    both = Joined(
        "PA603",
        f"{message}; what it adds up keeps the graphs of all steps",
        Proposal(f"{advice}; pass the loss detached (`.detach()`)"),
    )
    return Seen(calls[0], message, Proposal(advice), tuple(calls), joined=both, hot=True)


def _on_accelerator(source: Source) -> bool:
    """Whether the program uses one: by this file, or, where it names no device at all, one that imports it or that it imports."""
    is_named = uses_accelerator(source)
    if has_trainer_that_takes_gpu(source) or (is_named and not shows_devices_only(source)):
        return True
    if source.neighbours is None or (not is_named and _is_on_host_by_name(source)):
        return False
    marks = ("accelerator", "accelerator if there is one")
    if any(source.neighbours.is_imported_by_a_marked_file(mark) for mark in marks):
        return True
    if STEP in source.text and source.neighbours.some_importer(has_trainer_that_takes_gpu, calling=("Trainer",)):
        return True
    return source.neighbours.imports_carry("accelerator")


def _is_on_host_by_name(source: Source) -> bool:
    """Whether a file that uses no accelerator names a device, and moves nothing to one that another file gives."""
    named = {device_text(constant) for constant in source.nodes(ast.Constant)} - {""}
    return bool(named) and not (named == {"cpu"} and _moves_elsewhere(source))


def _moves_elsewhere(source: Source) -> bool:
    """Whether something is moved to a device that another file gives, `x.to(options["device"])`, and not only to the host."""
    targets = [call.args[0] for call in source.calls(".to") if call.args]
    named = [target.slice if isinstance(target, ast.Subscript) else target for target in targets]
    return any(
        "device" in (str(name.value) if isinstance(name, ast.Constant) else last_name(name))
        and not names_cpu(source, target)
        for name, target in zip(named, targets, strict=True)
    )


def _is_alone_on_host(source: Source, step: StepLoop) -> bool:
    """Whether the loop is under the main guard of a file that uses no accelerator, nor imports what does: what imports the
    file does not run it.
    """
    if not any(is_main_guard(a) for a in source.ancestors(step.loop)) or uses_accelerator(source):
        return False
    return source.neighbours is None or not source.neighbours.imports_carry("accelerator")


def _message(source: Source, step: StepLoop, regions: tuple[Region, ...], places: list[ast.expr]) -> str:
    function = enclosing_function(source, places[0])
    where = f" in `{function.name}`" if function and function is not enclosing_function(source, step.loop) else ""
    caller = next((r.code.caller for r in regions if r.code.root is function), None)
    if where and caller is not None and isinstance(caller.root, FUNCTIONS):
        where += f", which `{caller.root.name}` calls,"
    more = len(places) - 1
    others = f"; {more} more such place{'s' if more > 1 else ''} in this loop" if more else ""
    return f"`{_text(source, places[0])}`{where} makes the host wait for the device on every step{others}"


def _text(source: Source, place: ast.AST) -> str:
    """The text of a place. Inside an f-string positions are not reliable before Python 3.12: from the tree, then."""
    in_text = any(isinstance(ancestor, ast.JoinedStr) for ancestor in source.ancestors(place))
    text = ast.unparse(place) if in_text else source.brief(place)
    return text if len(text) <= 60 else f"{text[:59]}…"


# ---- places --------------------------------------------------------------------------------------------------------


def _syncs(
    source: Source,
    region: Region,
    other_loops: set[int],
    runs: Runs = runs_each_time,
) -> Iterator[ast.expr]:
    """What reads a device tensor in this region on every step, in document order. runs: whether a place does run then."""
    root = region.code.root
    found = [place for node in walk(root) for place in _reads(source, region, node)]
    unique = {id(place): place for place in found}.values()
    in_each = in_each_branch(source, root, unique) if runs is runs_each_time else frozenset()
    for place in sorted(unique, key=lambda node: (node.lineno, node.col_offset)):
        is_run = id(place) in in_each or runs(source, place, root)
        if not is_run or _belongs_elsewhere(source, place, root, other_loops):
            continue
        if not any(_enters_host_world(source, node) for node in _holders(source, place, region.code)):
            yield place


def _holders(source: Source, place: ast.expr, code: StepCode, depth: int = 3) -> Iterator[ast.expr]:
    """The expressions that hold what was read: the place, reads of the name it is assigned to, calls that return it."""
    yield place
    statement = source.statement(place)
    if isinstance(statement, ast.Return):
        for call in code.calls if depth else ():
            yield from _holders(source, call, code.caller or code, depth - 1)
    elif isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
        for use in source.uses_of(statement.targets[0], statement.targets[0].id) if depth else ():
            yield from _holders(source, use, code, depth - 1)


def _enters_host_world(source: Source, node: ast.expr) -> bool:
    """Whether a value goes into `env.step(action)` or a replay buffer's priorities, which cannot do without it."""
    child: ast.AST = node
    for ancestor in source.ancestors(node):
        if isinstance(ancestor, ast.stmt):
            return False
        if isinstance(ancestor, ast.Call) and child is not ancestor.func and isinstance(ancestor.func, ast.Attribute):
            receiver = last_name(ancestor.func.value)
            if HOST_WORLD.search(ancestor.func.attr) and not NO_WORLD.search(receiver):
                return True
        child = ancestor
    return False


def _belongs_elsewhere(source: Source, place: ast.AST, root: Loop | Function, other_loops: set[int]) -> bool:
    """Whether the place is in a step loop of its own inside this one, or in a loop that evaluates without gradients."""
    for ancestor in source.ancestors(place):
        if ancestor is root:
            return False
        if id(ancestor) in other_loops or (isinstance(ancestor, LOOPS) and in_no_grad(source, place)):
            return True
    return True


def _reads(source: Source, region: Region, node: ast.AST) -> Iterator[ast.expr]:
    """The expressions by which this one node brings the value of a device tensor to the host."""
    match node:
        case ast.Call():
            if _call_reads(source, region, node):
                yield node
        case ast.JoinedStr():
            values = [part.value for part in node.values if isinstance(part, ast.FormattedValue)]
            if _any_tensor(region, values):
                yield node
        case ast.BinOp(op=ast.Mod()) if is_text(node.left):
            values = node.right.elts if isinstance(node.right, ast.Tuple) else [node.right]
            if _any_tensor(region, [v.value if isinstance(v, ast.Starred) else v for v in values]):
                yield node
        case ast.If() | ast.While() | ast.IfExp() | ast.Assert():
            yield from _truths(region, node.test)
        case ast.BoolOp():
            for value in node.values[:-1]:
                yield from _truths(region, value)
        case ast.UnaryOp(op=ast.Not()):
            yield from _truths(region, node.operand)


def _truths(region: Region, test: ast.expr) -> Iterator[ast.expr]:
    """The tensors whose truth a condition asks for."""
    if isinstance(test, ast.BoolOp):
        for value in test.values:
            yield from _truths(region, value)
    elif isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        yield from _truths(region, test.operand)
    elif region.kind(test) is Kind.TENSOR:
        yield test


def _any_tensor(region: Region, nodes: list[ast.expr]) -> bool:
    return any(region.kind(node) is Kind.TENSOR for node in nodes)


def _in_dicts(nodes: list[ast.expr]) -> list[ast.expr]:
    """The values of dicts written there: those of `{"loss": loss}` and `dict(loss=loss)`."""
    values = [value for node in nodes if isinstance(node, ast.Dict) for value in node.values]
    calls = [node for node in nodes if isinstance(node, ast.Call) and last_name(node.func) == "dict"]
    return values + [keyword.value for call in calls for keyword in call.keywords]


def _call_reads(source: Source, region: Region, call: ast.Call) -> bool:
    arguments = [*call.args, *(keyword.value for keyword in call.keywords)]
    if isinstance(call.func, ast.Name):
        if source.lookup(call.func) or call.func.id in source.aliases:
            return (source.qualified_name(call.func) or "").startswith("math.") and _any_tensor(region, arguments)
        if call.func.id in ("min", "max"):
            return len(call.args) > 1 and _any_tensor(region, arguments)
        return call.func.id in CASTS and _any_tensor(region, call.args)
    if not isinstance(call.func, ast.Attribute):
        return False
    name, receiver = call.func.attr, call.func.value
    if region.kind(receiver) >= Kind.MAYBE:
        return (
            (name in READS and not call.args) or (name == "to" and _copies_to_host(source, call)) or _forces_numpy(call)
        )
    match name:
        case "format":
            return isinstance(receiver, ast.Constant) and _any_tensor(region, arguments)
        case "set_postfix" | "add_scalar" | "add_scalars":
            return _any_tensor(region, [*arguments, *_in_dicts(arguments)])
    if name in LOG_LEVELS and "log" in last_name(receiver).lower():
        return _any_tensor(region, arguments)
    qualified = source.qualified_name(call.func) or ""
    if qualified == "wandb.log":  # writes tensors as numbers, in this thread
        return _any_tensor(region, _in_dicts(arguments))
    return qualified.startswith("math.") and _any_tensor(region, arguments)


def _copies_to_host(source: Source, call: ast.Call) -> bool:
    if any(keyword.arg == "non_blocking" for keyword in call.keywords):
        return False
    targets = [*call.args, *(keyword.value for keyword in call.keywords if keyword.arg == "device")]
    return any(names_cpu(source, target) for target in targets)


def _forces_numpy(call: ast.Call) -> bool:
    force = edit.keyword(call, "force") if last_name(call.func) == "numpy" else None
    return force is not None and isinstance(force.value, ast.Constant) and force.value.value is True


# ---- advice --------------------------------------------------------------------------------------------------------


def _advice(source: Source, place: ast.expr, is_of_lightning: bool = False) -> str:
    """What to do about the first place, for what cannot be patched without knowing the use of the value.

    is_of_lightning: whether the place is in a step of Lightning's, so that `self.log` is Lightning's too.
    """
    parent = source.parent(place)
    statement = source.statement(place)
    if is_of_lightning and isinstance(parent, ast.Call) and dotted_name(parent.func) == "self.log":
        return "give `self.log` the tensor: Lightning reads it only where it is shown"
    if isinstance(parent, ast.Call) and last_name(parent.func) == "append":
        return "append the detached tensor, and read the values once after the loop: `torch.stack(losses).tolist()`"
    if isinstance(statement, ast.Return):
        return "return the detached tensor, and read it where it is shown"
    if isinstance(statement, (ast.If, ast.While, ast.Assert)):
        return "test it every so many steps, or stay on the device with `torch.where`"
    if isinstance(statement, ast.AugAssign) or (
        isinstance(statement, ast.Assign) and isinstance(statement.value, ast.BinOp)
    ):
        return "add up the detached tensor, and read the sum only where it is shown"
    if isinstance(statement, ast.Expr):
        return "show it every so many steps (`if step % 100 == 0`); until then keep the detached tensor"
    return "keep the detached tensor, and read it only on the steps that show it"
