"""PA102: a DataLoader whose batches go to the accelerator from pageable memory."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from perfaudit.expressions import regex
from perfaudit.static import edit
from perfaudit.static.checks.dataloader_no_pin_memory.nothing_to_pin import has_nothing_to_pin
from perfaudit.static.checks.dataloader_no_workers.device_samples import is_on_device, may_be_on_device
from perfaudit.static.checks.dataloader_no_workers.how_built import (
    is_made_anew,
    is_made_by_eval,
    is_of_base_nobody_builds,
    repeats_constructor,
)
from perfaudit.static.checks.dataloader_no_workers.in_memory import is_in_memory
from perfaudit.static.checks.dataloader_no_workers.loader_uses import (
    feeds_no_long_training,
    is_asked_for_batches,
    says_why_not,
    serves_evaluation_only,
    stays_on_host,
    takes_one_batch,
    takes_samples_in_order,
)
from perfaudit.static.checks.dataloader_no_workers.sample_work import (
    collates_on_device,
    is_part_of_dataset,
    makes_arrays_only,
    makes_samples_on_device,
    only_arranges,
)
from perfaudit.static.checks.transfer_blocks_host.host_tensors import is_made_on_host
from perfaudit.static.registry import Joined, Proposal, Seen, check, hint_if
from perfaudit.static.source import FUNCTIONS, LOOPS, Function, Source
from perfaudit.static.source.syntax import walk
from perfaudit.static.understanding.answers import remember
from perfaudit.static.understanding.backward import runs_backward
from perfaudit.static.understanding.called_functions import called_function, callers
from perfaudit.static.understanding.defaults import Default, default_in_sight, leaves_out
from perfaudit.static.understanding.devices import (
    changes_default_device,
    device_text,
    has_trainer_given_gpus,
    moves_to_device,
    uses_cuda,
)
from perfaudit.static.understanding.evaluation import only_evaluates
from perfaudit.static.understanding.loader_workers import KEPT, keep_workers
from perfaudit.static.understanding.loaders import (
    PIN_MEMORY,
    argument_for,
    passes,
    passes_side_by_side,
    pin_memory,
)
from perfaudit.static.understanding.names import last_name
from perfaudit.static.understanding.step_loops import step_loops
from perfaudit.static.understanding.values import ABSENT, UNKNOWN, Argument, argument, assigned_value, constant, resolve

COLLATE = 6  # position in DataLoader.__init__ of every torch since 1.0
NUM_WORKERS = 5  # position in DataLoader.__init__ of every torch since 1.0
FOLLOW = 6  # expressions from the call outwards; real code needs two or three

_INSIDE = (*LOOPS, ast.ListComp, ast.DictComp, ast.GeneratorExp)
_MOVES = regex(r"(^|_)(to|move|send|put|place)_(\w+_)?(device|cuda|gpu)$|^(to_)?cuda$")
_MODEL = regex(r"model|net$|^net|trainer|learner|generator|discriminator|encoder|gan$", re.IGNORECASE)
_ITERATES = {"iter", "enumerate", "tqdm", "trange", "cycle", "zip", "islice", "track", "progress_bar", "reversed"}
_ASKS = {"len", "next", "print", "isinstance", "type", "id", "repr", "str"}
_HOLDERS = (ast.Dict, ast.Tuple, ast.List, ast.IfExp, ast.DictComp, ast.ListComp, ast.NamedExpr, ast.Starred)


@check("PA102", call="torch.utils.data.DataLoader")
def dataloader_no_pin_memory(source: Source, call: ast.Call) -> Iterator[Seen]:
    pinned = argument(source, call, "pin_memory", PIN_MEMORY)
    unless = None
    if pinned is UNKNOWN and leaves_out(source, call, "pin_memory"):
        pinned = ABSENT
    elif pinned is UNKNOWN:
        # Imported here: most calls say whether.
        from perfaudit.static.understanding.configured_values import configured_argument, is_left_out

        if is_left_out(source, call, "pin_memory"):
            pinned = ABSENT
        else:
            unless = configured_argument(source, call, "pin_memory")
    if pinned is UNKNOWN and (unless is None or unless.value is not False):
        return
    if isinstance(pinned, ast.expr) and (value := constant(source, pinned)) is not False:
        unless = default_in_sight(source, pinned) if value is UNKNOWN else None
        if unless is None or unless.value is not False:
            return
    if not _goes_to_gpu(source, call) or changes_default_device(source) or is_on_device(source, call):
        return
    if not is_asked_for_batches(source, call) or stays_on_host(source, call) or _copies_new_tensors_only(source, call):
        return
    if _runs_on_tpu(source) or is_part_of_dataset(source, call) or has_nothing_to_pin(source, call):
        return
    if is_of_base_nobody_builds(source, call) or repeats_constructor(source, call):
        return
    if collates_on_device(source, call) or makes_samples_on_device(source, call):  # to pin what lies there raises
        return
    if (
        makes_arrays_only(source, call)
        or takes_one_batch(source, call)
        or _is_branch_without(source, call, argument(source, call, "num_workers", NUM_WORKERS))
    ):
        return
    how = _how(source, pinned, unless)
    message = f"`{source.brief(call.func)}` {how}: its batches are copied to the GPU from pageable memory"
    if _pins_in_training_process(source, call):
        dataset = argument(source, call, "dataset", 0)
        is_ready = isinstance(dataset, ast.expr) and is_in_memory(source, dataset)
        # No word of workers: who silences PA101 has decided about them, and where it speaks its words are for both.
        place = "keep the data on the GPU where they fit, else pin"
        advice = place if is_ready else "pin where a measurement shows that it pays"
        why = "without workers the training process pins, which costs time itself"
        workers = argument(source, call, "num_workers", NUM_WORKERS)
        is_hint = is_ready or says_why_not(source, call, workers) or only_arranges(source, call)
        is_hint = is_hint or is_made_by_eval(source, dataset) or is_made_anew(source, call, dataset)
        is_hint = is_hint or feeds_no_long_training(source, call)
        yield Seen(call, message, Proposal(f"{advice}: {why}"), severity=hint_if(is_hint))
        return
    is_single = takes_samples_in_order(source, call)
    if may_be_on_device(source, call) or _collates_out_of_sight(source, call):
        fix = Proposal("pin the memory of the batches, if no sample is made on the GPU")
        joined = _with_workers_kept(source, call, message, fix)
        yield Seen(call, message, fix, joined=joined, severity=hint_if(is_single and _only_evaluates(source)))
        return
    there = f", set in {unless.place}" if unless is not None and unless.place else ""
    fix = Proposal(f"pin the memory of the batches{there}", pin_memory(source, call))
    is_converted = (
        source.neighbours is not None
        and not _moves_batches(source)
        and bool(source.neighbours.some_importer(_converts_first, runs_backward))
    )
    # Imported here: most loaders whose batches are pageable have no workers.
    from perfaudit.static.checks.dataloader_no_workers.long_evaluations import is_evaluation, is_long_evaluation

    is_long = is_long_evaluation(source, call) and is_evaluation(source)
    is_small = is_single or (serves_evaluation_only(source, call) and not is_long)
    joined = _with_workers_kept(source, call, message, fix)
    is_hint = is_converted or is_small
    yield Seen(call, message, fix, joined=joined, severity="hint" if is_hint else "info" if is_long else None)


def _with_workers_kept(source: Source, call: ast.Call, message: str, fix: Proposal) -> Joined | None:
    """The one finding of a loader that neither pins nor keeps its workers between epochs, where PA103 speaks as well."""
    workers = argument(source, call, "num_workers", NUM_WORKERS)
    if not isinstance(workers, ast.expr):
        return None
    message = f"{message}, by workers that are started anew for every epoch"
    kept = keep_workers(source, call, workers)
    if not kept:
        return Joined("PA103", message, fix._replace(title=f"{fix.title}, and {KEPT} by hand"))
    if not fix.edits:
        return Joined("PA103", message, Proposal(f"{KEPT}; by hand, {fix.title}", kept, "unsafe", ("rng",)))
    both = Proposal(f"{fix.title}, and {KEPT}", edit.together(fix.edits, kept), "unsafe", ("rng",))
    return Joined("PA103", message, both)


def _collates_out_of_sight(source: Source, call: ast.Call) -> bool:
    """Whether a caller may say how samples are collated, and so where the batch lies: a parameter."""
    collate = argument(source, call, "collate_fn", COLLATE)
    bindings = source.lookup(collate) if isinstance(collate, ast.Name) else []
    return any(isinstance(binding, ast.arg) for binding in bindings)


def _runs_on_tpu(source: Source) -> bool:
    """Whether the file trains on a TPU alone, whose loader copies in its own way and pins nothing."""
    imports_xla = any(name.partition(".")[0] == "torch_xla" for name in source.aliases.values())
    return imports_xla and not source.mentions("cuda")


def _how(source: Source, pinned: Argument, unless: Default | None) -> str:
    if not isinstance(pinned, ast.expr):
        return f"with `pin_memory` {unless.words}" if unless is not None else "without `pin_memory`"
    if unless is None:
        return "with `pin_memory=False`"
    return f"with `pin_memory={source.brief(pinned)}`, which is {unless.words}"


def _pins_in_training_process(source: Source, call: ast.Call) -> bool:
    """Whether there is no worker, as far as the text says, and so no thread that pins beside the training step."""
    workers = argument(source, call, "num_workers", NUM_WORKERS)
    if workers is ABSENT:
        return True
    value = constant(source, workers)
    if value is UNKNOWN:
        if workers is UNKNOWN:
            from perfaudit.static.understanding.configured_values import configured_argument  # as above

            said = configured_argument(source, call, "num_workers")
        else:
            said = default_in_sight(source, workers)
        value = said.value if said is not None else value
    return value == 0


def _is_branch_without(source: Source, call: ast.Call, workers: Argument) -> bool:
    """Whether the call stands in the `else` of `if num_workers > 0`, of the very number that it is given."""
    if not isinstance(workers, ast.expr):
        return False
    child: ast.AST = call
    for ancestor in source.ancestors(call):
        if isinstance(ancestor, ast.If) and any(item is child for item in ancestor.orelse):
            match ancestor.test:
                case ast.Compare(left=left, ops=[ast.Gt()], comparators=[ast.Constant(value=0)]):
                    if ast.dump(left) == ast.dump(workers):
                        return True
        child = ancestor
    return False


# ---- where the batches go --------------------------------------------------------------------------------------------


def _goes_to_gpu(source: Source, call: ast.Call) -> bool:
    """Whether the batches are moved to a GPU: in a loop of this file, or by whom the loader is handed to.

    By the trainer or the function that gets it, where this file uses a GPU or a file of the same program does.
    """
    on_gpu = uses_cuda(source) or has_trainer_given_gpus(source)
    if on_gpu and (_moves_batches(source) or _feeds_model(source, call)):
        return True
    if not _is_handed_on(source, call) or _names_another_device(source):
        return False
    is_said_in_program = source.neighbours is not None and source.neighbours.program_carries("accelerator")
    if on_gpu or is_said_in_program:
        return True
    from perfaudit.static.understanding.configured_trainers import is_fed_to_configured_trainer  # few loaders have one

    return is_fed_to_configured_trainer(source, call)


def _feeds_model(source: Source, call: ast.Call) -> bool:
    """Whether a loop of this file gives the batches to a model, which on a GPU takes them there: `model.parse(batch)`."""
    for item in passes(source):
        if not any(loader is call for loader in item.loaders):
            continue
        batch = {node.id for node in ast.walk(item.batch) if isinstance(node, ast.Name)}
        for given in ast.walk(item.loop):
            if isinstance(given, ast.Call) and _is_of_model(given.func):
                arguments = [*given.args, *(keyword.value for keyword in given.keywords)]
                if any(isinstance(n, ast.Name) and n.id in batch for a in arguments for n in ast.walk(a)):
                    return True
    return False


def _is_of_model(node: ast.expr) -> bool:
    owner = last_name(node.value) if isinstance(node, ast.Attribute) else ""
    return bool(_MODEL.search(last_name(node)) or _MODEL.search(owner))


def _names_another_device(source: Source) -> bool:
    """Whether the file names devices that are no CPU, and no CUDA one among them."""
    named = {device_text(constant_) for constant_ in source.nodes(ast.Constant)} - {"", "cpu"}
    return bool(named) and "cuda" not in named


@remember  # asked for every loader of a file
def _moves_batches(source: Source) -> bool:
    """Whether something is moved to a device inside a loop or a comprehension, as batches are; or in what a loop calls.

    Not what the training process first made itself, as `images.type(torch.FloatTensor)`: that is in pageable memory again.
    """
    methods = [call for name in (".to", ".cuda", ".type") for call in source.calls(name) if _moves(source, call)]
    moved = [(call, call.func.value) for call in methods]  # type: ignore[attr-defined]  # a method
    moved += [(call, call.args[0]) for call in source.calls(".copy_") if call.args and _fills_on_device(source, call)]
    moves = [move for move, tensor in moved if not is_made_on_host(source, tensor)]
    if any(source.enclosing(move, *_INSIDE) is not None for move in moves):
        return True
    around = [function for move in moves if isinstance(function := source.enclosing(move, *FUNCTIONS), FUNCTIONS)]
    places = [call for function in around for call in callers(source, function)]
    judged = {id(call) for call in source.calls(".cuda")}
    places += [c for c in source.nodes(ast.Call) if _MOVES.search(last_name(c.func)) and id(c) not in judged]
    return any(source.enclosing(place, *LOOPS) is not None for place in places)


def _copies_new_tensors_only(source: Source, call: ast.Call) -> bool:
    """Whether the loops over a loader copy to the device, and only what the training process made in host memory.

    As `x.transpose(1, 0).contiguous().to(device)`, of which the memory is pageable whatever the loader pins.
    """
    known = (*passes(source), *passes_side_by_side(source))
    loops = {id(item.loop): item.loop for item in known if any(loader is call for loader in item.loaders)}
    if not loops:
        return False
    inside = [node for loop in loops.values() for node in walk(loop) if isinstance(node, ast.Call)]
    methods = [c for c in inside if isinstance(c.func, ast.Attribute) and c.func.attr in ("to", "cuda", "type")]
    copies = [c for c in methods if _moves(source, c)]
    helpers = [c for c in inside if c not in methods and _MOVES.search(last_name(c.func))]
    helpers += [c for c in inside if last_name(c.func) == "copy_" and c.args and _fills_on_device(source, c)]
    return (
        bool(copies)
        and not helpers
        and all(isinstance(c.func, ast.Attribute) and is_made_on_host(source, c.func.value) for c in copies)
    )


def _fills_on_device(source: Source, call: ast.Call) -> bool:
    """Whether a call copies into a variable that lies on the GPU: `x.data.resize_(y.size()).copy_(y)`, of an `x = x.cuda()`."""
    filled: ast.expr = call.func
    while isinstance(filled, (ast.Attribute, ast.Call)):
        filled = filled.func if isinstance(filled, ast.Call) else filled.value
    bindings = source.lookup(filled) if isinstance(filled, ast.Name) else []
    values = [assigned_value(source, binding) for binding in bindings]
    return any(isinstance(value, ast.Call) and _moves_away(source, value) for value in values)


def _moves_away(source: Source, call: ast.Call) -> bool:
    return isinstance(call.func, ast.Attribute) and call.func.attr in ("to", "cuda") and _moves(source, call)


def _only_evaluates(source: Source) -> bool:
    """Whether a file evaluates, and neither trains nor has another file train."""
    # Imported here: few loaders give single samples in order.
    from perfaudit.static.understanding.training_starts import starts_training

    return only_evaluates(source) and starts_training(source) is None


def _converts_first(source: Source) -> bool:
    """Whether a file trains, and converts or makes in host memory most of what its loops move to the device.

    `batch.float().to(device)` of samples in float64: what is copied is pageable memory, pinned batches or not. Of samples in
    float32 it is the batch itself; who writes it in most places expects that it converts.
    """
    if not step_loops(source):
        return False
    moves = [call for name in (".to", ".cuda", ".type") for call in source.calls(name) if _moves(source, call)]
    given = [
        move.func.value for move in moves if isinstance(move.func, ast.Attribute) and source.enclosing(move, *_INSIDE)
    ]
    converted = [node for node in given if is_made_on_host(source, node) or _is_conversion(node)]
    return 2 * len(converted) > len(given)


def _is_conversion(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and last_name(node.func) in ("float", "double", "half", "long", "type")


def _moves(source: Source, call: ast.Call) -> bool:
    if isinstance(call.func, ast.Attribute) and call.func.attr == "type":
        return any(_is_cuda_type(source, target) for target in call.args)
    return moves_to_device(source, call)


def _is_cuda_type(source: Source, node: ast.expr) -> bool:
    """Whether an expression is or may be a type of tensors on the GPU, as `torch.cuda.FloatTensor`."""
    value = resolve(source, node) or node
    parts = (value.body, value.orelse) if isinstance(value, ast.IfExp) else (value,)
    names = [source.qualified_name(part) or (part.value if isinstance(part, ast.Constant) else "") for part in parts]
    return any(isinstance(name, str) and name.startswith("torch.cuda.") and name.endswith("Tensor") for name in names)


def _is_handed_on(source: Source, node: ast.AST, depth: int = FOLLOW) -> bool:
    """Whether the loader leaves the function that makes it: returned, kept in an object, passed to somebody.

    Not one that is only iterated, counted or looked at where it is made, as loaders for statistics and pictures are.
    """
    parent = source.parent(node)
    if not depth or parent is None:
        return False
    if isinstance(parent, (ast.Return, ast.Yield, ast.YieldFrom)):
        return True
    if isinstance(parent, ast.keyword):
        return isinstance(source.parent(parent), ast.Call)
    if isinstance(parent, ast.Call) and parent.func is not node:
        name = last_name(parent.func)
        if name in _ITERATES:
            return _is_handed_on(source, parent, depth - 1)
        function = called_function(source, parent)
        return name not in _ASKS and (function is None or _hands_on_or_moves(source, function, parent, node, depth))
    if isinstance(parent, ast.Expr):  # `super().__init__(...)` of a class of loaders
        return isinstance(node, ast.Call) and last_name(node.func) == "__init__"
    if isinstance(parent, _HOLDERS):
        return _is_handed_on(source, parent, depth - 1)
    if not isinstance(parent, (ast.Assign, ast.AnnAssign)):
        return False
    targets = parent.targets if isinstance(parent, ast.Assign) else [parent.target]
    return any(_is_kept(source, target, depth) for target in targets)


def _hands_on_or_moves(source: Source, function: Function, call: ast.Call, node: ast.AST, depth: int) -> bool:
    """Whether a function of this file that is handed a loader may move its batches or hand it on: not one that only counts.

    A model may move what it is given itself.
    """
    for inner in (n for n in ast.walk(function) if isinstance(n, ast.Call)):
        if (
            _is_of_model(inner.func)
            or last_name(inner.func) == "backward"
            or (_is_move(inner) and _moves(source, inner))
        ):
            return True
    given = [p for p in function.args.args if argument_for(source, call, function, p) is node]
    uses = [use for parameter in given for use in source.uses_of(parameter, parameter.arg)]
    return not given or any(_is_handed_on(source, use, depth - 1) for use in uses)


def _is_move(call: ast.Call) -> bool:
    return isinstance(call.func, ast.Attribute) and call.func.attr in ("to", "cuda")


def _is_kept(source: Source, target: ast.expr, depth: int) -> bool:
    if isinstance(target, (ast.Attribute, ast.Subscript)):
        return True
    if isinstance(target, (ast.Tuple, ast.List)):
        return any(_is_kept(source, element, depth) for element in target.elts)
    if not isinstance(target, ast.Name):
        return False
    return any(_is_handed_on(source, use, depth - 1) for use in source.uses_of(target, target.id))
