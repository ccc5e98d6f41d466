"""The patch that makes a script with DataParallel one with DistributedDataParallel, which `torchrun` starts once per GPU."""

from __future__ import annotations

import ast

from perfaudit.static import edit
from perfaudit.static.checks.data_parallel.layers import has_batch_norm, refuse_layers
from perfaudit.static.checks.data_parallel.program import Program, Refused, guard_of, read_program
from perfaudit.static.checks.data_parallel.saves import saves
from perfaudit.static.checks.data_parallel.surroundings import downloads, first_devices, refuse_surroundings
from perfaudit.static.checks.data_parallel.training import refuse_training, type_checks
from perfaudit.static.edit import Edits
from perfaudit.static.process_settings import behind_imports
from perfaudit.static.source import Source
from perfaudit.static.understanding.distributed import DDP
from perfaudit.static.understanding.values import Known, argument

# Arguments of DataLoader that mean the same for a share of the samples.
_KEPT = {
    "dataset",
    "batch_size",
    "shuffle",
    "num_workers",
    "pin_memory",
    "drop_last",
    "persistent_workers",
    "prefetch_factor",
}


def launcher(source: Source) -> str:
    """The line that starts the patched script."""
    more = " ..." if source.mentions("argparse") or source.mentions("argv") else ""
    return f"torchrun --nproc-per-node=gpu {source.path}{more}"


def title(source: Source) -> str:
    """What the patch does, and what changes besides speed."""
    norm = "; batch norm sees a process' share, as it saw a GPU's" if has_batch_norm(source) else ""
    return (
        f"run one process per GPU, started by `{launcher(source)}`: each trains on its share of every batch, evaluates all, and "
        f"prints the figures of its share{norm}"
    )


def patch(source: Source, call: ast.Call) -> Edits:
    """The edits of the script. Raises Refused with the reason where it may train, save or decide something else afterwards."""
    program = read_program(source, call)
    refuse_surroundings(program)
    refuse_layers(program)
    refuse_training(program)
    edits = edit.together(
        _constants(source),
        _join_edits(program),
        *(_downloaded_once(source, statement) for statement in downloads(program)),
        _leave_edits(program),
        _wrap_edits(program),
        _shared_loader(program),
        _told_epoch(program),
        *(edit.wrap_block(source, [statement], "if RANK == 0:") for statement in saves(source)),
        *(edit.replace(source, item, '"cuda"') for item in first_devices(source)),
        *(edit.replace(source, item, edit.name_for(source, DDP)[0]) for item in type_checks(program)),
    )
    if edits is None:
        raise Refused("the script is laid out in a way that leaves no room for the patch")
    try:
        ast.parse(edit.apply(source.text, edits))
    except (ValueError, SyntaxError) as error:
        raise Refused("its places lie inside each other") from error
    return tuple(dict.fromkeys(edits))


def _lines(source: Source, indent: str, *lines: str) -> str:
    """Several lines as one text, all but the first one indented."""
    return f"{source.newline}{indent}".join(lines)


def _constants(source: Source) -> Edits | None:
    """What torchrun tells a process about itself, at the top of the file."""
    imported = () if _has(source, "os") else edit.insert_import(source, "import os")
    lines = (
        "",
        "# What torchrun tells each process; without it there is one.",
        'RANK = int(os.environ.get("RANK", "0"))',
        'LOCAL_RANK = int(os.environ.get("LOCAL_RANK", "0"))',
        'WORLD_SIZE = int(os.environ.get("WORLD_SIZE", "1"))',
    )
    return edit.together(imported, behind_imports(source, source.newline.join(lines), ["os"] if not imported else []))


def _has(source: Source, module: str) -> bool:
    return (
        source.aliases.get(module) == module and module in source.module_imports and module not in source.assigned_names
    )


def _join_edits(program: Program) -> Edits | None:
    """The process takes its GPU and joins the others before anything else runs."""
    source, start = program.source, program.start
    torch, imported = _torch(source)
    indent, unit = source.indent_of(start), edit.indent_unit(source)
    gpu = f"{torch}.cuda.is_available()"
    text = _lines(
        source,
        indent,
        f"if {gpu}:",
        f"{unit}{torch}.cuda.set_device(LOCAL_RANK)",
        f"{torch}.distributed.init_process_group(",
        f'{unit}"nccl" if {gpu} else "gloo",',
        f"{unit}store=None if WORLD_SIZE > 1 else {torch}.distributed.HashStore(),",
        f"{unit}rank=RANK,",
        f"{unit}world_size=WORLD_SIZE,",
        ")",
    )
    return edit.together(imported, edit.insert_before(source, start, text))


def _downloaded_once(source: Source, statement: ast.stmt) -> Edits | None:
    """The first process of a machine runs a statement before its others do, so that these find the data there."""
    torch, imported = _torch(source)
    indent, wait = source.indent_of(statement), f"{edit.indent_unit(source)}{torch}.distributed.barrier()"
    return edit.together(
        imported,
        edit.insert_before(
            source, statement, _lines(source, indent, "if LOCAL_RANK > 0:  # the data are there then", wait)
        ),
        edit.insert_after(source, statement, _lines(source, indent, "if LOCAL_RANK == 0:", wait)),
    )


def _leave_edits(program: Program) -> Edits | None:
    """The last statement of the run, behind which a process leaves the others."""
    source = program.source
    guard = guard_of(source)
    last = (guard.body if guard is not None else source.tree.body)[-1]
    torch, _ = _torch(source)
    return edit.insert_after(source, last, f"{torch}.distributed.destroy_process_group()")


def _torch(source: Source) -> tuple[str, Edits]:
    """How to write `torch`, with the import it takes."""
    name, imported = edit.name_for(source, "torch.distributed")
    return name.removesuffix(".distributed"), imported


def _wrap_edits(program: Program) -> Edits | None:
    source, call = program.source, program.wrapping
    name, imported = edit.name_for(source, DDP)
    torch, more = _torch(source)
    model, indent, unit = call.args[0], source.indent_of(source.statement(call)), edit.indent_unit(source)
    gpu = f"{torch}.cuda.is_available()"
    if edit.has_comment(source, source.span(call)):
        return None
    text = _lines(
        source,
        indent,
        f"{name}(",
        f'{unit}{source.text_of(model)}.to("cuda" if {gpu} else "cpu"),',
        f"{unit}device_ids=[LOCAL_RANK] if {gpu} else None,",
        ")",
    )
    test: Edits | None = ()
    if program.test is not None:  # as before where Python starts it: `.module`, and the names in checkpoints
        test = edit.replace(source, program.test, f"WORLD_SIZE > 1 or {source.text_of(program.test)}")
    return edit.together(imported, more, edit.replace(source, call, text), test)


def _shared_loader(program: Program) -> Edits | None:
    """Each process loads its share of the samples, in batches that together are as large as before."""
    source, call = program.source, program.loader
    if (
        any(k.arg not in _KEPT for k in call.keywords)
        or len(call.args) > 2
        or any(isinstance(a, ast.Starred) for a in call.args)
    ):
        raise Refused("the loader takes more than samples, the size of a batch, the order and workers")
    data, size = argument(source, call, "dataset", 0), argument(source, call, "batch_size", 1)
    if not isinstance(data, ast.Name) or not isinstance(size, (ast.Constant, ast.Name, ast.Attribute)):
        raise Refused("the samples of the loader, or the size of its batches, have no name")
    if isinstance(size, ast.Constant) and not (isinstance(size.value, int) and size.value > 0):
        raise Refused("the loader does not make batches")
    drop, is_shuffled = _is_switched_on(source, call, "drop_last"), _is_switched_on(source, call, "shuffle")
    more = ("" if is_shuffled else ", shuffle=False") + (", drop_last=True" if drop else "")
    sampler, imported = edit.name_for(source, "torch.utils.data.DistributedSampler")
    order = f"sampler={sampler}({data.id}, num_replicas=WORLD_SIZE, rank=RANK{more})"
    shuffle, number = edit.keyword(call, "shuffle"), source.text_of(size)
    statement = source.statement(call)
    unit = edit.indent_unit(source)
    told = number if isinstance(size, ast.Constant) else f"{{{number}}}"
    check = _lines(
        source,
        source.indent_of(statement),
        f"if {number} % WORLD_SIZE:",
        f'{unit}raise ValueError(f"a batch of {told} cannot be shared out among {{WORLD_SIZE}} processes")',
    )
    return edit.together(
        imported,
        edit.insert_before(source, statement, check),
        edit.replace(source, size, f"{number} // WORLD_SIZE"),
        edit.replace(source, shuffle, order) if shuffle is not None else edit.add_argument(source, call, order),
    )


def _is_switched_on(source: Source, call: ast.Call, name: str) -> bool:
    """Whether a switch of the loader is on. Raises Refused where that is not written there."""
    value = argument(source, call, name, None)
    if isinstance(value, Known):
        return False
    if not isinstance(value, ast.Constant) or not isinstance(value.value, bool):
        raise Refused(f"`{name}` of the loader is not written there")
    return value.value


def _told_epoch(program: Program) -> Edits | None:
    """The sampler shuffles anew in each epoch."""
    loop, source = program.epochs, program.source
    assert isinstance(loop.target, ast.Name)  # as `read_program` says
    return edit.insert_before(source, loop.body[0], f"{program.loader_text}.sampler.set_epoch({loop.target.id})")
