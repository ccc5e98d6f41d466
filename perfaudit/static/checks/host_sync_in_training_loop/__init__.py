"""PA601: the host waits for the device on every training step."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from perfaudit.static.checks.host_sync_in_training_loop.accelerators import is_alone_on_host, is_on_accelerator
from perfaudit.static.checks.host_sync_in_training_loop.device_reads import READS
from perfaudit.static.checks.host_sync_in_training_loop.device_sums import sums_on_device
from perfaudit.static.checks.host_sync_in_training_loop.lightning_steps import STEP, lightning_steps
from perfaudit.static.checks.host_sync_in_training_loop.said_of_places import advice, more_places, place_text
from perfaudit.static.checks.host_sync_in_training_loop.syncs import Runs, syncs_in
from perfaudit.static.checks.host_sync_in_training_loop.syncs_elsewhere import syncs_in_other_files
from perfaudit.static.checks.host_sync_in_training_loop.whole_steps import WholeStep, whole_steps
from perfaudit.static.registry import Proposal, Seen, check
from perfaudit.static.source import FUNCTIONS, Source
from perfaudit.static.understanding.backward import backward_calls
from perfaudit.static.understanding.demonstrations import is_test
from perfaudit.static.understanding.each_time import runs_each_time, runs_in_any_case
from perfaudit.static.understanding.epochs import takes_few_long_steps
from perfaudit.static.understanding.host_models import trains_on_host
from perfaudit.static.understanding.raises_today import raises_today
from perfaudit.static.understanding.step_code import code_of_step, evaluates
from perfaudit.static.understanding.step_loops import StepLoop, is_over_written_values, step_loops
from perfaudit.static.understanding.taint import Region, device_values
from perfaudit.static.understanding.updates import updates_anything
from perfaudit.static.understanding.values import enclosing_function


@check("PA601", ast.Module)
def host_sync_in_training_loop(source: Source, module: ast.Module) -> Iterator[Seen]:
    for seen in _seen_in(source):  # a program that raises waits for nothing
        yield seen._replace(severity="hint") if raises_today(source, seen.node) else seen


def _seen_in(source: Source) -> Iterator[Seen]:
    steps = step_loops(source)
    is_of_lightning = STEP in source.text
    if not (steps or backward_calls(source) or is_of_lightning or _may_be_run_by_base(source)):
        return
    if not _is_of_torch(source) or not is_on_accelerator(source):
        return
    for part in whole_steps(source):
        yield from _in_whole_step(source, part, runs_each_time)
    if is_of_lightning:  # what a step calls may do so for validation as well, told by what it is given
        for part in lightning_steps(source):
            yield from _in_whole_step(source, part, runs_in_any_case)
    for step in steps:
        if takes_few_long_steps(source, step) or is_over_written_values(step.loop):
            continue
        if is_alone_on_host(source, step) or is_test(source, step.loop):
            continue
        if not updates_anything(step) or trains_on_host(source, step):
            continue
        others = {id(other.loop) for other in steps if other is not step}
        regions = device_values(source, step)
        regions = tuple(region for region in regions if not evaluates(step, region.code.root))
        places = [place for region in regions for place in syncs_in(source, region, others)]
        yield from syncs_in_other_files(source, regions, others, places)
        if not places:
            continue
        by_themselves = [place for place in places if _runs_by_itself(source, regions, place)]
        patch = sums_on_device(source, step, regions, by_themselves) if by_themselves else None
        fix = patch or Proposal(advice(source, places[0]))
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


def _in_whole_step(source: Source, step: WholeStep, runs: Runs) -> Iterator[Seen]:
    """What waits in a function that makes a whole step, or a part of one, for a loop in another file.

    runs: whether a place in a function that the step calls does run then.
    """
    # Imported here: most training loops have their steps in their own file.
    from perfaudit.static.checks.host_sync_in_training_loop.values_elsewhere import values_elsewhere

    root = step.function
    kinds = values_elsewhere(step.at(source), step.kind_of_given, step.given_back).kinds
    regions = tuple(Region(code, kinds) for code in code_of_step(source, root))
    places = [
        place
        for region in regions
        for place in syncs_in(source, region, set(), runs_each_time if region.code.root is root else runs)
    ]
    places = list({id(place): place for place in places}.values())
    yield from syncs_in_other_files(source, regions, set(), places)
    if not places:
        return
    inside = enclosing_function(source, places[0])
    where = f" in `{inside.name}`" if inside is not None and inside is not root else ""
    waits = f"`{place_text(source, places[0])}`{where} makes the host wait for the device on every step"
    message = f"{waits} {_made_by(step)}{more_places(places, 'there')}"
    yield Seen(places[0], message, Proposal(advice(source, places[0], step.gets_batch)), tuple(places), hot=True)


def _made_by(step: WholeStep) -> str:
    """Which step it is that waits, for messages."""
    name = step.function.name
    if step.gets_batch:
        return f"that Lightning's trainer makes by `{name}`"
    if step.run_by:
        return f"of which `{name}` is a part: {step.run_by} calls it"
    return f"that `{name}` makes for the loop of another file"


def _message(source: Source, step: StepLoop, regions: tuple[Region, ...], places: list[ast.expr]) -> str:
    function = enclosing_function(source, places[0])
    where = f" in `{function.name}`" if function and function is not enclosing_function(source, step.loop) else ""
    caller = next((r.code.caller for r in regions if r.code.root is function), None)
    if where and caller is not None and isinstance(caller.root, FUNCTIONS):
        where += f", which `{caller.root.name}` calls,"
    others = more_places(places, "in this loop")
    return f"`{place_text(source, places[0])}`{where} makes the host wait for the device on every step{others}"
