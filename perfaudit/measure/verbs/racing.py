"""Racing candidates in the training that a child holds."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from perfaudit.measure.agreement import ALONE, OverGloo
from perfaudit.measure.attribute_names import find_named
from perfaudit.measure.entrants import BASE, CONTROL, Entrant, Terms
from perfaudit.measure.halves import Pair
from perfaudit.measure.holder import Holder
from perfaudit.measure.memory import refuse_without_room
from perfaudit.measure.preparation import Candidate
from perfaudit.measure.screening_start import prepare_screening
from perfaudit.measure.twins import Twin, Twins
from perfaudit.training.code_change import NotSwappable
from perfaudit.training.loader_variant import LoaderVariant, LoaderVariants
from perfaudit.training.setting_variant import SettingVariant
from perfaudit.training.twin import build_twin

Reply = dict[str, Any]  # JSON


def screen(
    holder: Holder,
    entrants: list[Reply],
    least: float | None,
    seed: int,
    base: str = "",
    marker: str = "",
    rivals: bool = False,
    so_far: Mapping[str, Reply] | None = None,
    controls: Mapping[str, Reply] | None = None,
    may_count_own: bool = False,
    of_ranks: bool = False,
    is_apart: bool = False,
    pairs: Sequence[Pair] = (),
    period: int = 1,
) -> Reply:
    """Be ready to race candidates in this very training: see `measure.screening`. Under "refused", those that cannot.

    entrants: see `_candidate`; beside that "least", which only this one must gain, and "is_first" (see `Terms.firsts`). least:
    the share of the step to be gained, see `Terms`. base: the key of that with which the others are compared, "" for the
    training as it is. marker: a file that always has the key of what is in place, for those who find this process dead. rivals:
    see `Terms`. so_far: by key, what another process has told of an entrant, in whose race this one goes on; controls: of its
    controls, by way. may_count_own: see `prepare_screening`. of_ranks: the training has several ranks, each of which is asked the
    same at the same boundary. is_apart: no two of them are in place at the same time. pairs: of blocks that another process has
    made. period: see `prepare_screening`.
    """
    holder.doing = "screening candidates"
    training = holder.training

    def build(texts: Mapping[str, str]) -> Twin:
        if training.is_script:
            raise NotSwappable("a script is not run a second time in one process")
        refuse_without_room(training.device)
        return build_twin(training, texts)

    if holder.twins is None:
        holder.twins = Twins(build, training.loader_workers) if training.is_script else Twins(build)
        if training.is_script:
            training.around_own_epochs = holder.twins.first_goes_on
    candidates = [_candidate(holder, item) for item in entrants]
    leasts = {item["key"]: item["least"] for item in entrants if item.get("least") is not None}
    firsts = frozenset(item["key"] for item in entrants if item.get("is_first"))
    things = {item["key"]: item["slot"] for item in entrants if item.get("slot")}
    former = [_former(key, told) for key, told in (so_far or {}).items()]
    known = {way: _former(CONTROL, told) for way, told in (controls or {}).items()}
    terms = Terms(least, seed, base or BASE, rivals, leasts, former, pairs, is_apart, firsts, things, known)
    if of_ranks and holder.agreement is None:
        holder.agreement = OverGloo()
    mark = _marks_in(marker) if marker else lambda key: None
    holder.screening = prepare_screening(
        training,
        candidates,
        terms,
        holder.twins,
        not training.accelerator.is_host,
        mark,
        may_count_own,
        holder.agreement or ALONE,
        period,
    )
    return {"refused": holder.screening.prepared.refused, "ways": holder.screening.prepared.ways}


def race(holder: Holder, seconds: float, last: float = 0.0) -> Reply:
    """Go on with the race for so long, and say how it stands: see `measure.screening.Screening.state`."""
    assert holder.screening is not None, "nothing was screened"
    return holder.screening.run(seconds, last)


def _former(key: str, told: Reply) -> Entrant:
    """An entrant as another process has left it."""
    return Entrant(key, list(told["log_ratios"]), list(told["seconds"]), told["left"])


def _candidate(holder: Holder, item: Reply) -> Candidate:
    """An entrant as it was asked for.

    It has "key", "code" (by path, the text as imported and as patched), "settings" (pairs of a knob as module:attribute and one
    of its settings), "loader" (such a pair, whose setting another loader has), "whole" (patched text by path, for a twin), "way",
    and "slot" (what it is a setting of, see `Candidate`).
    """
    settings = [_in_place(holder, *pair) for pair in item.get("settings", ())]
    loader = _other_loader(holder, *item["loader"]) if item.get("loader") else None
    way, slot = item.get("way", "in place"), item.get("slot", "")
    return Candidate(item["key"], item.get("code", {}), settings, loader, item.get("whole", {}), way, slot)


def _in_place(holder: Holder, knob: str, settings: Reply) -> SettingVariant:
    """A setting of a knob, named as module:attribute, as a variant."""
    found, training = find_named(knob), holder.training
    return SettingVariant(lambda: found.in_place(training, settings), found.tried_within)


def _other_loader(holder: Holder, knob: str, settings: Reply) -> LoaderVariant:
    """The loader that a setting of a knob, named as module:attribute, asks for, as a variant."""
    holder.loaders = holder.loaders or LoaderVariants(holder.training)
    return holder.loaders.of(find_named(knob).setup(settings).loader_overrides)


def _marks_in(path: str) -> Callable[[str], None]:
    """A function that leaves a line of text in a file, whatever becomes of this process."""

    def mark(text: str) -> None:
        file = os.open(path, os.O_WRONLY)
        try:
            os.pwrite(file, text.encode() + b"\n", 0)
        finally:
            os.close(file)

    return mark
