"""PA101: a DataLoader that loads every batch in the training process."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from perfaudit.expressions import regex
from perfaudit.static import edit
from perfaudit.static.checks.dataloader_no_workers.device_samples import is_on_device, may_be_on_device
from perfaudit.static.checks.dataloader_no_workers.how_built import (
    is_made_anew,
    is_made_by_eval,
    is_of_base_nobody_builds,
    repeats_constructor,
)
from perfaudit.static.checks.dataloader_no_workers.in_memory import collates_by_default, is_in_memory
from perfaudit.static.checks.dataloader_no_workers.loader_uses import (
    gives_few_batches,
    is_asked_for_batches,
    only_looks_at_batches,
    says_why_not,
    serves_evaluation_only,
    takes_one_batch,
)
from perfaudit.static.checks.dataloader_no_workers.sample_work import (
    collates_on_device,
    has_one_sample,
    is_part_of_dataset,
    makes_samples_on_device,
    only_arranges,
    searches_in_loops,
)
from perfaudit.static.checks.dataloader_no_workers.samples import Found, function_named
from perfaudit.static.checks.dataloader_no_workers.worker_copies import (
    draws_from_own_generator,
    is_iterable,
    keeps_file_open,
    shards_itself,
    writes_to_itself,
)
from perfaudit.static.registry import Joined, Proposal, Seen, check
from perfaudit.static.source import FUNCTIONS, LOOPS, Source
from perfaudit.static.understanding.called_functions import callers
from perfaudit.static.understanding.defaults import Default, default_in_sight, leaves_out
from perfaudit.static.understanding.demonstrations import is_test
from perfaudit.static.understanding.devices import changes_default_device
from perfaudit.static.understanding.entry import ARGUMENTS_OF_TRAINER, runs_unguarded
from perfaudit.static.understanding.evaluation import EVALUATION_NAME
from perfaudit.static.understanding.loaders import PIN_MEMORY, passes, pin_memory
from perfaudit.static.understanding.names import last_name
from perfaudit.static.understanding.step_loops import step_loops
from perfaudit.static.understanding.values import ABSENT, UNKNOWN, Argument, argument, assigned_value, constant

LOADER = "torch.utils.data.DataLoader"
NUM_WORKERS = 5  # position of the parameter in DataLoader.__init__ of every torch since 1.0
COLLATE = 6  # likewise
START_WITH = 2  # workers; enough to overlap loading with the step, cheap where it does not pay; `tune` finds the number
PINNED = f"load with {START_WITH} workers and pin their batches"
SAMPLERS = (  # of neighbours in a graph, on the CPU
    *(
        f"torch_geometric.loader.{name}"
        for name in ("NeighborLoader", "LinkNeighborLoader", "HGTLoader", "NeighborSampler", "ShaDowKHopSampler")
    ),
    *(f"dgl.dataloading.{name}" for name in ("DataLoader", "NodeDataLoader", "EdgeDataLoader")),
)
_WORKS = regex(r"token(?!_type)|open\(|load|read|image|resize|decode|encode|augment|transform", re.IGNORECASE)
_CHANGES = regex(r"replay|buffer\.sample|\bagent\b|\benv\b", re.IGNORECASE)  # samples of reinforcement learning


@check("PA101", call=LOADER)
def dataloader_no_workers(source: Source, call: ast.Call) -> Iterator[Seen]:
    workers = argument(source, call, "num_workers", NUM_WORKERS)
    unless: Default | None = None
    is_configured = workers is UNKNOWN
    if is_configured and leaves_out(source, call, "num_workers"):
        workers, is_configured = ABSENT, False
    elif is_configured:
        # Imported here: most calls say how many.
        from perfaudit.static.understanding.configured_values import configured_argument, is_left_out

        if is_left_out(source, call, "num_workers"):
            workers = ABSENT
        else:
            unless = configured_argument(source, call, "num_workers")
    if workers is UNKNOWN and (unless is None or unless.value != 0 or unless.value is False):
        return
    if isinstance(workers, ast.expr) and (value := constant(source, workers)) != 0:
        unless = default_in_sight(source, workers) if value is UNKNOWN else None
        if unless is None or unless.value != 0 or unless.value is False:
            return
    batch_size = argument(source, call, "batch_size", 1)
    is_unsure = batch_size is UNKNOWN and not is_configured  # a configuration that is unpacked has a size as well
    if is_unsure or constant(source, batch_size) is None:  # batch_size=None: the dataset yields batches
        return
    if takes_one_batch(source, call):
        return
    dataset = argument(source, call, "dataset", 0)
    collate = argument(source, call, "collate_fn", COLLATE)
    is_ready = isinstance(dataset, ast.expr) and is_in_memory(source, dataset)
    if is_ready and collates_by_default(source, collate):
        return
    if _imports_jax(source) or not is_asked_for_batches(source, call) or only_looks_at_batches(source, call):
        return
    if (
        isinstance(dataset, ast.expr)
        and (stream := is_iterable(source, dataset))
        and _CHANGES.search(stream[0].text_of(stream[1]))
    ):
        return
    if is_on_device(source, call) or collates_on_device(source, call):  # a forked worker cannot use the device
        return
    if makes_samples_on_device(source, call):
        return
    if is_of_base_nobody_builds(source, call) or repeats_constructor(source, call):
        return
    if says_why_not(source, call, workers) or is_part_of_dataset(source, call) or has_one_sample(source, call):
        return
    # Imported here: most loaders have workers, or need none.
    from perfaudit.static.checks.dataloader_no_workers.long_evaluations import is_evaluation, is_long_evaluation

    is_long = is_long_evaluation(source, call) and is_evaluation(source)
    what = (
        "reads the files of every batch in the evaluating process"
        if is_long
        else "loads every batch in the training process"
    )
    message = f"`{source.brief(call.func)}` {_how(source, workers, unless)} {what}, while the device waits"
    fix = _proposal(source, call, workers, unless, dataset)
    serves_evaluation = serves_evaluation_only(source, call) or _serves_one_evaluation(source, call)
    is_shown = gives_few_batches(source, call) or (serves_evaluation and not is_long)
    is_shown = is_shown or is_made_by_eval(source, dataset) or is_made_anew(source, call, dataset)
    is_shown = is_shown or _makes_tensors_on_gpu(source)
    is_hint = is_shown or (is_ready and _only_joins(source, collate)) or only_arranges(source, call)
    joined = _with_pinning(source, call, message, fix)
    yield Seen(call, message, fix, joined=joined, severity="hint" if is_hint else "info" if is_long else None)


def _makes_tensors_on_gpu(source: Source) -> bool:
    """Whether tensors lie on the GPU unless somebody says otherwise, by `set_default_tensor_type("torch.cuda.FloatTensor")`."""
    given = [a for call in source.calls("torch.set_default_tensor_type") for a in call.args]
    return any("torch.cuda." in (source.qualified_name(a) or str(constant(source, a))) for a in given)


def _serves_one_evaluation(source: Source, call: ast.Call) -> bool:
    """Whether a function that evaluates, and that nothing calls in a loop, builds the loader for its own single pass."""
    function = source.enclosing(call, *FUNCTIONS)
    if not isinstance(function, FUNCTIONS) or not EVALUATION_NAME.search(function.name):
        return False
    around = [source.enclosing(item.loop, *FUNCTIONS) for item in passes(source) if call in item.loaders]
    calls = callers(source, function)
    return (
        bool(around and calls)
        and all(owner is function for owner in around)
        and not any(source.enclosing(step.loop, *FUNCTIONS) is function for step in step_loops(source))
        and not any(source.enclosing(place, *LOOPS) for place in calls)
    )


def _only_joins(source: Source, collate: Argument) -> bool:
    """Whether a collate function of the project reads, decodes and tokenises nothing: it joins what lies in memory."""
    found = function_named(source, collate) if isinstance(collate, (ast.Name, ast.Attribute)) else None
    return found is not None and not (_WORKS.search(found[0].text_of(found[1])) or searches_in_loops(*found))


def _with_pinning(source: Source, call: ast.Call, message: str, fix: Proposal | None) -> Joined:
    """The one finding of a loader that neither has workers nor pins, which are two lines of one change.

    The patch pins where the call itself says or leaves out whether it does, and only with workers: without them the
    training process pins, which costs what it saves.
    """
    pinned = argument(source, call, "pin_memory", PIN_MEMORY)
    how = "with `pin_memory` off" if pinned is UNKNOWN else "without `pin_memory`"
    if isinstance(pinned, ast.expr):
        is_written = constant(source, pinned) is False
        how = "with `pin_memory=False`" if is_written else f"with `pin_memory={source.brief(pinned)}`, which is False,"
    message = f"{message}; {how} it is copied to the GPU from pageable memory"
    if fix is None or not fix.edits:
        return Joined("PA102", message, fix and Proposal(f"{fix.title}; then pin their batches as well"))
    if (both := edit.together(fix.edits, pin_memory(source, call))) is None:
        return Joined("PA102", message, fix)
    return Joined("PA102", message, Proposal(f"{PINNED} (`perfaudit tune --dataloader` finds the number)", both))


@check("PA101", call=ARGUMENTS_OF_TRAINER)
def trainer_without_workers(source: Source, call: ast.Call) -> Iterator[Seen]:
    """Hugging Face's Trainer, where samples are made as they are asked for: decoded, cropped, resampled."""
    workers = argument(source, call, "dataloader_num_workers")
    if workers is not ABSENT and constant(source, workers) != 0:
        return
    made = [*source.calls(".set_transform"), *source.calls(".with_transform")]
    if not made or not source.calls(".train") or is_test(source, call):
        return
    message = (
        f"`{source.brief(call.func)}` without `dataloader_num_workers`: the training process itself makes every sample, by "
        f"`{source.brief(made[0])}`, while the device waits"
    )
    advice = f"load with workers: `dataloader_num_workers={START_WITH}`, then measure more"
    in_float32 = Joined(
        "PA304",
        f"{message}; without `bf16` or `fp16` the Trainer computes in float32, off most of the tensor cores",
        Proposal(f"{advice}; and give `bf16=True` (GPUs from Ampere on; before, `fp16=True`)"),
    )
    yield Seen(call, message, Proposal(advice), joined=in_float32)


@check("PA101", call=SAMPLERS)
def graph_sampler_without_workers(source: Source, call: ast.Call) -> Iterator[Seen]:
    """Loaders of PyG and DGL that sample neighbours for every batch, where that is not done on the GPU."""
    workers = argument(source, call, "num_workers")
    if workers is UNKNOWN or (workers is not ABSENT and constant(source, workers) != 0) or is_test(source, call):
        return
    is_dgl = (source.qualified_name(call.func) or "").startswith("dgl.")
    if is_dgl and any(argument(source, call, name) is not ABSENT for name in ("use_uva", "device")):
        return  # it may sample on the GPU, which workers cannot
    if is_on_device(source, call):
        return
    or_gpu = "or on the GPU, `use_uva=True`" if is_dgl else "and keep graph and features in host memory"
    yield Seen(
        call,
        f"`{source.brief(call.func)}` {_how(source, workers, None)} samples neighbours in the training process, while the "
        "device waits",
        Proposal(f"sample with workers, `num_workers={START_WITH}, persistent_workers=True`, {or_gpu}"),
    )


def _how(source: Source, workers: Argument, unless: Default | None) -> str:
    if not isinstance(workers, ast.expr):
        return f"with `num_workers` {unless.words}" if unless is not None else "without `num_workers`"
    if unless is None and not isinstance(workers, ast.Name):
        return "with `num_workers=0`"
    if unless is None:
        return f"with `num_workers={source.brief(workers)}`, which is 0,"
    return f"with `num_workers={source.brief(workers)}`, which is {unless.words},"


def _proposal(
    source: Source, call: ast.Call, workers: Argument, unless: Default | None, dataset: Argument
) -> Proposal | None:
    if isinstance(dataset, ast.expr):
        if (stream := is_iterable(source, dataset)) is not None:
            return Proposal(_about_stream(stream))
        if written := writes_to_itself(source, dataset):
            return Proposal(
                f"load with {START_WITH} workers, if `{written}` is only for the worker: each writes to its own copy, which "
                "the training process never sees"
            )
        if generator := draws_from_own_generator(source, dataset):
            return Proposal(
                f"seed `{generator}` by worker and epoch in `worker_init_fn`, then load with {START_WITH} workers: as it is, "
                "each would begin every epoch with a copy of it, and draw the same numbers again"
            )
        if keeps_file_open(source, dataset):
            return Proposal(
                "open the file of the dataset on first use, in the worker that reads it; then load with workers"
            )
    if changes_default_device(source) or may_be_on_device(source, call):
        return Proposal(
            f"load with {START_WITH} workers, if no sample is made on the GPU: a forked worker cannot use it"
        )
    if script := _unguarded_script(source):
        return Proposal(
            f'put what {script} runs under `if __name__ == "__main__":`, then load with {START_WITH} workers: where they '
            "are spawned (Windows, macOS, Linux from Python 3.14 on) each one runs the script again"
        )
    if source.neighbours is not None and (
        script := source.neighbours.some_importer(_restarts_each_step, _takes_of_new_pass)
    ):
        return Proposal(
            f"keep one pass over the loader for many steps, then load with workers: `{script.rpartition('/')[2]}` takes each "
            "batch of a new pass, which would start them anew"
        )
    if source.neighbours is not None and (script := source.neighbours.some_importer(_imports_jax, _names_jax)):
        return Proposal(
            f'load with {START_WITH} workers and `multiprocessing_context="spawn"`: `{script.rpartition("/")[2]}` uses JAX, '
            "whose threads a forked worker may wait for for ever"
        )
    there = f", set in {unless.place}" if unless is not None and unless.place else ""
    title = f"load with {START_WITH} workers{there} (`perfaudit tune --dataloader` finds the number)"
    edits = _start_workers(source, call, workers, unless)
    where = "where workers are spawned (Windows, macOS, Linux from Python 3.14 on) it cannot be sent to them"
    # Imported here: most loaders that are looked at have nothing to tell.
    from perfaudit.static.checks.dataloader_no_workers.sent_to_workers import of_notebook, unpicklable

    if (kept := unpicklable(source, call)) is None:
        if name := of_notebook(source, call):
            return Proposal(
                f"move `{name}` to a file that the notebook imports, then load with {START_WITH} workers: {where}"
            )
        return Proposal(title, edits)
    from perfaudit.static.hoist import hoist  # most samples can be sent

    if (
        kept.function is not None
        and (moved := hoist(source, kept.function, kept.name)) is not None
        and edits is not None
    ):
        return Proposal(f"{title}, with {kept.words} moved to the module: {where}", edit.together(moved, edits))
    return Proposal(f"move {kept.words} to the module, then load with {START_WITH} workers: {where}")


def _about_stream(stream: Found) -> str:
    """What to do where samples come from one stream: no patch, for how many workers share it decides what is seen."""
    name = stream[1].name
    if shards_itself(stream):
        return (
            f"load with workers, if which samples come, and in which order, may depend on how many there are: `{name}` or a "
            "part of it shares its samples out among them"
        )
    return (
        f"let `{name}` share out its samples by `get_worker_info()`, then load with workers: "
        "as it is, every worker would yield every sample"
    )


def _takes_of_new_pass(text: str) -> bool:
    return "next(iter(" in text


def _restarts_each_step(source: Source) -> bool:
    """Whether a file takes batches of `next(iter(loader))` in a training loop: each begins a new pass."""
    return any(
        isinstance(call, ast.Call)
        and isinstance(call.func, ast.Name)
        and call.func.id == "next"
        and call.args
        and isinstance(begun := call.args[0], ast.Call)
        and last_name(begun.func) == "iter"
        for step in step_loops(source)
        for call in ast.walk(step.loop)
    )


def _names_jax(text: str) -> bool:
    return "jax" in text


def _imports_jax(source: Source) -> bool:
    """Whether a file uses JAX, whose threads a forked worker may wait for for ever."""
    return any(name.partition(".")[0] == "jax" for name in source.aliases.values())


def _unguarded_script(source: Source) -> str:
    """A script without a main guard that this file is or runs in, as words for a message; "" if none is in sight."""
    if runs_unguarded(source):
        return "this file"
    script = source.neighbours.some_importer(runs_unguarded) if source.neighbours is not None else ""
    return f"`{script.rpartition('/')[2]}`" if script else ""


def _start_workers(source: Source, call: ast.Call, workers: Argument, unless: Default | None) -> edit.Edits | None:
    """The call with workers, or another default where only loaders read it.

    None where the 0 stands elsewhere (behind `**kw`, in a variable), which other code may share, and where callers may give it.
    """
    if not isinstance(workers, ast.expr) and argument(source, call, "num_workers", NUM_WORKERS) is UNKNOWN:
        return None
    if workers is ABSENT:
        return edit.add_keyword(source, call, "num_workers", str(START_WITH))
    if unless is not None:
        is_theirs = (
            unless.node is not None and unless.uses and all(_is_number_of_workers(source, u) for u in unless.uses)
        )
        return edit.replace(source, unless.node, str(START_WITH)) if is_theirs and unless.node is not None else None
    if isinstance(workers, ast.Name):
        written, uses = _literal_and_reads(source, workers)
        is_theirs = written is not None and all(_is_number_of_workers(source, use) for use in uses)
        return edit.replace(source, written, str(START_WITH)) if is_theirs and written is not None else None
    if isinstance(workers, ast.Constant) and source.parent(workers) in (call, edit.keyword(call, "num_workers")):
        return edit.replace(source, workers, str(START_WITH))
    return None


def _literal_and_reads(source: Source, name: ast.Name) -> tuple[ast.expr | None, list[ast.Name]]:
    """The literal that a variable is once assigned, and every read of the variable."""
    bindings = source.lookup(name)
    value = assigned_value(source, bindings[0]) if len(bindings) == 1 else None
    literal = value if isinstance(value, ast.Constant) and isinstance(source.parent(value), ast.Assign) else None
    return literal, source.uses_of(bindings[0], name.id) if bindings else []


def _is_number_of_workers(source: Source, use: ast.expr) -> bool:
    """Whether an expression is what a DataLoader gets as `num_workers`, also as `int(...)`."""
    parent = source.parent(use)
    if isinstance(parent, ast.Call) and isinstance(parent.func, ast.Name) and parent.func.id == "int":
        parent = source.parent(parent)
    call = source.parent(parent) if isinstance(parent, ast.keyword) and parent.arg == "num_workers" else None
    return isinstance(call, ast.Call) and source.qualified_name(call.func) == LOADER
