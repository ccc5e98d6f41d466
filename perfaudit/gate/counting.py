"""Counters of one target, taken in two processes and kept where both agree."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from perfaudit.gate.checkout import Checkout
from perfaudit.gate.target_counters import Counted, Spot
from perfaudit.machine.limits import usable_cores
from perfaudit.measure.child import Child
from perfaudit.measure.counted_script import ENOUGH_SECONDS
from perfaudit.measure.environment import may_have_accelerator
from perfaudit.measure.facts import from_json
from perfaudit.measure.lab import build_command
from perfaudit.measure.ledger import Variant
from perfaudit.measure.scratch import target_json
from perfaudit.target.fresh_start import must_start_afresh
from perfaudit.target.names import Target
from perfaudit.target.relocate import refuse

Reply = dict[str, Any]  # JSON


def count(
    target: Target,
    checkout: Checkout | None,
    device: str,
    timeout: float,
    twice: bool = True,
    enough: float = ENOUGH_SECONDS,
) -> Counted:
    """Counters of one step of a target, in two processes at a time with other hash seeds and the same random seed.

    checkout: whose code runs, that of the working directory without it; the target's file is relative to either. timeout:
    seconds that building the training may take, and counting. twice: False for one process, which cannot tell what another one
    would not agree on. enough: seconds in each process after which few steps of a script will do. `Counted.facts` is what the
    first one built.
    Raises ChildFailed for a training that does not build or run, TargetError for one that is not the code it should be.
    """
    folder, relocated = (checkout.folder, checkout.roots) if checkout else (None, None)
    beside = [checkout.root] if checkout else []

    def build(child: Child) -> Reply:
        what, variant = target_json(target, child, beside), Variant("as it is", "", {})
        return build_command(what, variant, device, relocated=relocated)

    # Forks of processes that have torch imported, unless the user's file sets variables before that import or is a script.
    fresh = target.is_script or must_start_afresh(str(Path(folder or "", target.file)))
    seeds = hash_seeds(fresh)[: 2 if twice else 1]
    observed = _ask_processes(build, {"do": "count", "enough": enough}, folder, timeout, fresh, seeds)
    if any(reply["as_run"] for reply in observed):
        ran = _ask_processes(build, {"do": "count", "as_run": True}, folder, timeout, fresh, seeds)
        observed = [_join(*replies) for replies in zip(observed, ran, strict=True)]
    return merge_answers(observed[0], observed[-1])


def _ask_processes(
    build: Callable[[Child], Reply],
    question: Reply,
    folder: Path | None,
    timeout: float,
    fresh: bool,
    seeds: Sequence[str | None],
) -> list[Reply]:
    """The answers of processes with the training built, one for each hash seed.

    Side by side where there are two cores and no accelerator, which two copies might not fit into.

    Each answer has the facts of its training beside it, as "facts".
    """
    together = usable_cores() >= 2 and not may_have_accelerator()  # nothing is timed, so one copy at a time will do
    waves = [seeds] if together else [[seed] for seed in seeds]
    replies = []
    for wave in waves:
        with contextlib.ExitStack() as stack:
            children = []
            for seed in wave:
                with _hash_seed(seed):
                    children.append(stack.enter_context(Child(fresh=fresh, folder=folder)))
                children[-1].send(build(children[-1]))
            built = []
            for child in children:
                built.append(from_json(child.receive(timeout)))
                refuse(built[-1].strays)
                child.send(question)
            for child, facts in zip(children, built, strict=True):
                replies.append({**child.receive(timeout), "facts": facts})
                refuse(child.ask({"do": "strays"}, timeout)["strays"])  # what a step imports
    return replies


def hash_seeds(fresh: bool) -> tuple[str | None, str]:
    """Of both processes: an order that comes out of a set of texts is then not the same in both.

    The first one, where it is a fork, hashes as this process does (None), since other work forks from the same process.
    """
    ours = os.environ.get("PYTHONHASHSEED")
    return "1" if fresh else None, "3" if ours == "2" else "2"


@contextlib.contextmanager
def _hash_seed(seed: str | None) -> Iterator[None]:
    """Processes started inside hash texts by this seed, None for that of this process."""
    if seed is None:
        yield
        return
    before = os.environ.get("PYTHONHASHSEED")
    os.environ["PYTHONHASHSEED"] = seed
    try:
        yield
    finally:
        if before is None:
            del os.environ["PYTHONHASHSEED"]
        else:
            os.environ["PYTHONHASHSEED"] = before


def _join(observed: Reply, ran: Reply) -> Reply:
    parts = ("values", "by_name", "places", "unsteady", "absent")
    return {**observed, **{part: {**observed[part], **ran[part]} for part in parts}}


def merge_answers(one: Reply, other: Reply) -> Counted:
    """Two answers about the same code as one: counters that differ between them, or within them, are set aside."""
    values: dict[str, int] = {}
    aside: dict[str, str] = {}
    absent: dict[str, str] = {**other["absent"], **one["absent"]}
    for name in sorted({*one["values"], *other["values"]}):
        if words := _difference(name, one, other):
            aside[name] = words
        else:
            values[name] = one["values"][name]
    turns = frozenset(name for name in aside if _take_turns(name, one, other))
    known = values.keys() | turns
    by_name = {name: parts for name, parts in one["by_name"].items() if name in known}
    places = {name: [Spot(*spot) for spot in spots] for name, spots in one["places"].items() if name in known}
    absent = {name: words for name, words in absent.items() if name not in values and name not in aside}
    return Counted(
        values,
        by_name,
        places,
        aside,
        absent,
        one["device"],
        one["torch"],
        one["dtype"],
        least={name: min(seen) for name in aside if (seen := _values_in_steps(name, one, other))},
        most={name: max(seen) for name in aside if (seen := _values_in_steps(name, one, other))},
        turns=turns,
        facts=one.get("facts"),
    )


def _take_turns(name: str, one: Reply, other: Reply) -> bool:
    """Whether both processes saw a counter take turns between the same two values: what is done once does not come back."""
    steps, others = one["steps"].get(name, []), other["steps"].get(name, [])
    seen = min(len(steps), len(others))  # of a script not always as many
    if seen < 4 or steps[:seen] != others[:seen] or one["by_name"].get(name) != other["by_name"].get(name):
        return False
    return all(len(set(part)) == 1 for values in (steps, others) for part in (values[::2], values[1::2]))


def _values_in_steps(name: str, one: Reply, other: Reply) -> list[int]:
    """The values of a counter in all steps of both processes; [] where one has none."""
    if name not in one["values"] or name not in other["values"]:
        return []
    return [value for reply in (one, other) for value in reply["steps"].get(name, [reply["values"][name]])]


def _difference(name: str, one: Reply, other: Reply) -> str:
    """In what two answers differ about a counter, in words; "" where they agree."""
    for first, second in ((one, other), (other, one)):
        if name not in first["values"]:
            why = first["absent"].get(name, "")
            return f"{second['values'][name]:,} in one run, not counted in another{f' ({why})' if why else ''}"
    before, after = one["values"][name], other["values"][name]
    if before != after:
        return f"{before:,} and {after:,} in two runs"
    for reply in (one, other):
        if name in reply["unsteady"]:
            return str(reply["unsteady"][name])
    parts, others = one["by_name"].get(name, {}), other["by_name"].get(name, {})
    for part in sorted({*parts, *others}):
        if parts.get(part, 0) != others.get(part, 0):
            return f"{parts.get(part, 0):,} and {others.get(part, 0):,} of {part} in two runs"
    return ""
