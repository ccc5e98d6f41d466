"""Building the training that a child holds."""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from perfaudit.errors import TargetError
from perfaudit.machine.limits import free_memory
from perfaudit.measure import layout
from perfaudit.measure.attribute_names import find_named
from perfaudit.measure.facts import to_json
from perfaudit.measure.gather_facts import facts_of
from perfaudit.measure.holder import Holder, refusal
from perfaudit.measure.imported_libraries import ImportsNoted
from perfaudit.script.kept_away import keep_files_away
from perfaudit.script.redirected_writes import RedirectedWrites
from perfaudit.script.trackers import overrule_arguments, quiet_environment
from perfaudit.target import overlay as patched
from perfaudit.target import relocate
from perfaudit.target.names import Target
from perfaudit.training.factory_training import FactoryTraining
from perfaudit.training.switches import load_with_switches

if TYPE_CHECKING:
    from perfaudit.training.script_training import ScriptTraining

Reply = dict[str, Any]  # JSON
GRADIENTS_SHARE = 0.25  # of the free memory of the host, for a copy of a script's first gradients


def build(
    holder: Holder,
    target: Reply,
    overlay: dict[str, str],
    knob: str,
    settings: Reply,
    device: str,
    seed: int = 0,
    fixed_batch: bool = False,
    relocated: list[str] | None = None,
    in_place: bool = False,
    scattered: bool = False,
    loops: dict[str, list[Any]] | None = None,
    start: Reply | None = None,
) -> Reply:
    """Build the training as the target's factories say, with patched texts and the settings of one knob (module:attribute).

    Replies with device, versions, length of an epoch, switches, and where loader and optimizer were built.
    relocated: a folder, and the copy of it from which everything is to be imported instead. in_place: from the folder
    all the same, after doing what it takes to import it from the copy. scattered: see `measure.layout`.
    loops: by path, the text as it is and a list of patched ones, whose patches a script's own loop is to take, see
    `training.multiplexed_file`. start: what is done with the parameters that a script begins with, see `script_start.Start`.
    """
    holder.doing = f"building {target['file']}"
    if relocated is not None:
        relocate.take_the_place(relocated[0], relocated[0] if in_place else relocated[1])
    if scattered:
        holder.padding = layout.layout_padding()
    # As `python file.py` has it: the file's folder first.
    patched.install(overlay)
    if loops:
        load_with_switches({path: (before, versions) for path, (before, versions) in loops.items()})
    applied = find_named(knob) if knob else None
    setup = applied.setup(settings) if applied else None
    loader, optimizer = (setup.loader_overrides, setup.optimizer_overrides) if setup else ({}, {})
    what = Target.from_json(target)
    with setup.while_built() if setup else contextlib.nullcontext():
        if what.is_script:
            holder.scratch = target["scratch"]
            holder.training = run_script(
                holder, what, target["scratch"], target["shared"], loader, seed, optimizer, start or {}
            )
        else:
            holder.training = FactoryTraining(what, device, loader, seed, optimizer)
            holder.on_fixed_batch = fixed_batch
    if applied and setup:
        holder.doing = f"applying {applied.name} {settings}"
        holder.in_force.enter_context(setup.applied(holder.training))
        holder.on_fixed_batch = setup.fixed_batch and not what.is_script
    holder.doing = f"{target['file']}: one training step"
    holder.built = True
    holder.relocated = relocated
    return to_json(facts_of(holder.training, tuple(strays(holder)["strays"])))


def run_script(
    holder: Holder, target: Target, scratch: str, shared: str, loader: Reply, seed: int, optimizer: Reply, start: Reply
) -> ScriptTraining:
    """The training of a script, whose files go to a folder of its own in `scratch`; "" for its files as they are.

    shared: the folder in which others find what is written there.
    """
    before, is_redirected, own_scratch = dict(os.environ), False, ""
    if scratch:
        own = Path(own_scratch := tempfile.mkdtemp(dir=scratch))
        try:
            is_redirected = isinstance(keep_files_away(own, target.file, shared=[Path(shared)]), RedirectedWrites)
        except OSError as why:
            raise TargetError(
                f"nothing was run: what {target.file} writes cannot be kept away from your files here ({why}); "
                "--in-place runs it all the same"
            ) from why
        os.environ.update(quiet_environment(own))
        overrule_arguments(own, partial(_refuse_call, holder, target))
        # What is compiled is kept where the next process finds it: what is written elsewhere goes with this one.
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(Path(shared, "compiled"))
    if not is_redirected:  # a library that is there before would hold functions that it is to find replaced
        holder.imports = ImportsNoted(before)
    from perfaudit.script.in_started import tell_first_update_in_started
    from perfaudit.training.script_start import Start
    from perfaudit.training.script_training import ScriptTraining, cannot_be_left

    pipe, line = holder.replies, refusal(cannot_be_left(target, "process"))
    trains_here = tell_first_update_in_started(line, pipe, own_scratch) if pipe >= 0 else lambda: None
    most = GRADIENTS_SHARE * free_memory()
    return ScriptTraining(target, loader, seed, optimizer, most, holder.refuse, trains_here, Start(**start))


def _refuse_call(holder: Holder, target: Target, why: str) -> NoReturn:
    """Say why the script cannot go on, and wait to be ended."""
    holder.refuse(f"{target}: {why}")
    while True:
        time.sleep(1)


def libraries_so_far(holder: Holder) -> Reply:
    """Which libraries a script has imported so far, see `ImportsNoted.end`; {} of anything else."""
    return holder.imports.end() if holder.imports is not None else {}


def strays(holder: Holder) -> Reply:
    """Under "strays", files that were imported so far from the folder that a copy takes the place of: see `build`."""
    return {"strays": relocate.strays(*holder.relocated) if holder.relocated is not None else []}


def trace(holder: Holder, target: Reply, files: list[str], device: str) -> Reply:
    """Lines of the given files that run when the training is built and makes two steps, by path as given.

    With them, seconds of one more step that is not traced.
    """
    wanted = {os.path.realpath(path): path for path in files}
    lines: dict[str, set[int]] = {path: set() for path in files}
    by_name: dict[str, str | None] = {}

    def note(frame: Any, event: str, argument: object) -> Any:
        name = frame.f_code.co_filename
        if name not in by_name:
            by_name[name] = wanted.get(os.path.realpath(name))
        path = by_name[name]
        if path is None:
            return None
        lines[path].add(frame.f_lineno)
        return note

    sys.settrace(note)
    try:
        facts = build(holder, target, {}, "", {}, device)
        for _ in range(2):
            holder.training.whole_step(holder.on_fixed_batch)
    finally:
        sys.settrace(None)
    started = time.perf_counter()
    holder.training.whole_step(holder.on_fixed_batch)
    holder.training.synchronize()
    seconds = time.perf_counter() - started
    return {
        "facts": facts,
        "seconds_per_step": seconds,
        "lines": {path: sorted(found) for path, found in lines.items()},
    }
