"""Functions of other files that make the host wait where this one calls them on every step."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator

from perfaudit.records import NamedTuple
from perfaudit.static.checks.host_sync_in_training_loop.host_world import goes_into_host_world
from perfaudit.static.checks.host_sync_in_training_loop.said_of_places import advice, more_places, place_text
from perfaudit.static.checks.host_sync_in_training_loop.syncs import belongs_elsewhere, syncs_in
from perfaudit.static.registry import Joined, Proposal, Seen
from perfaudit.static.source import LOOPS, Source
from perfaudit.static.source.syntax import walk
from perfaudit.static.understanding.elsewhere import Elsewhere, called_each_step, called_from
from perfaudit.static.understanding.kinds import Kind
from perfaudit.static.understanding.losses import backpropagated_names, key, losses_returned
from perfaudit.static.understanding.names import last_name
from perfaudit.static.understanding.taint import Region


class _Wait(NamedTuple):
    """A place in a function of another file that makes the host wait."""

    there: Elsewhere
    place: ast.expr


def syncs_in_other_files(
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
            if id(call) in told or belongs_elsewhere(source, call, region.code.root, others):
                continue
            if goes_into_host_world(source, call, region.code):
                continue
            waits = list(_waits_elsewhere(source, there, region))
            if waits:
                found.setdefault(id(there.function), (waits, []))[1].append(call)
    for waits, calls in found.values():
        yield _seen_elsewhere(source, waits, calls)


def _waits_elsewhere(source: Source, there: Elsewhere, region: Region) -> Iterator[_Wait]:
    """What waits in a function of another file, then in those that it calls, if the call is one of the loop itself."""
    # Imported here: most scripts call no function of another file on each step.
    from perfaudit.static.checks.host_sync_in_training_loop.values_elsewhere import values_elsewhere

    inside = values_elsewhere(there, region.kind, _losses_given_back(source, there, region))
    yield from _waits_in(there, inside, region.kind)
    if region.code.caller is None:
        for further in called_from(source, there):
            yield from _waits_in(further, values_elsewhere(further, inside.kind), inside.kind)


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


def _waits_in(there: Elsewhere, inside: Region, kind_of: Callable[[ast.expr], Kind]) -> Iterator[_Wait]:
    """What waits in a function of another file for what a call hands it, of whose arguments these are the kinds."""
    from perfaudit.static.checks.host_sync_in_training_loop.conditions_elsewhere import runs_for_call  # as above

    for place in syncs_in(there.source, inside, set(), runs_for_call(there, inside, kind_of)):
        yield _Wait(there, place)


def _seen_elsewhere(source: Source, waits: list[_Wait], calls: list[ast.Call]) -> Seen:
    there, place = waits[0]
    file = there.source.path
    often = ", once for each turn of a loop" if there.source.enclosing(place, *LOOPS, within=there.function) else ""
    more = more_places(waits, "there")
    message = (
        f"`{source.brief(calls[0])}` makes the host wait for the device on every step{often}: "
        f"`{place_text(there.source, place)}` in `{there.function.name}`, {file} line {place.lineno}{there.way}{more}"
    )
    what_to_do = advice(there.source, place)
    if often and any(last_name(node) in ("grad", "parameters") for node in walk(there.function)):
        what_to_do = (
            "add up tensors, or take all at once (`torch.nn.utils.get_total_norm`); read one value where it is shown"
        )
    what_to_do = f"in {file}: {what_to_do}"
    both = Joined(
        "PA603",
        f"{message}; what it adds up keeps the graphs of all steps",
        Proposal(f"{what_to_do}; pass the loss detached (`.detach()`)"),
    )
    return Seen(calls[0], message, Proposal(what_to_do), tuple(calls), joined=both, hot=True)
