"""A lab of child processes for two versions of a target: the one that is measured runs, the other stands still."""

from __future__ import annotations

import contextlib
import math
import os
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from perfaudit.errors import TargetError
from perfaudit.gate.checkout import Checkout
from perfaudit.gate.records import Blocks, Side, TargetRecord, TimedBlock, Typical
from perfaudit.machine.limits import usable_cores
from perfaudit.measure.child import Child, ChildFailed
from perfaudit.measure.child_subject import TimedChild
from perfaudit.measure.environment import may_have_accelerator
from perfaudit.measure.facts import Facts, Loader, from_json
from perfaudit.measure.lab import build_command
from perfaudit.measure.ledger import Variant
from perfaudit.measure.nursery import START_SECONDS, nursery
from perfaudit.measure.runner import TrialEnded, TrialFailed
from perfaudit.measure.scratch import target_json
from perfaudit.measure.side_by_side import why_not_beside
from perfaudit.target.fresh_start import must_start_afresh
from perfaudit.target.names import Target, imported_modules
from perfaudit.target.relocate import refuse

OTHER: dict[Side, Side] = {"base": "head", "head": "base"}
MOST_AHEAD = 64  # steps of the warm-up that use up what a loader's workers have ready
CHUNK = 8  # steps of the warm-up, after which the time that is left is asked for


Built = tuple[dict[tuple[int, Side], Facts], dict[tuple[Side, str], str]]  # `PairLab.facts` and `PairLab.ran`


@dataclass(slots=True)
class PairLab:
    """Opens both sides of targets in children. facts: what each side's child said when it was last built.

    base: whose code the base runs, None for that of the working directory; files of targets are relative to either.
    timeout: seconds that building the training, and each step, may take.
    """

    targets: Sequence[Target]
    base: Checkout | None
    device: str = "auto"
    timeout: float = START_SECONDS
    facts: dict[tuple[int, Side], Facts] = field(default_factory=dict)  # by the target's number
    former: Mapping[str, str] = field(default_factory=dict)
    ran: dict[tuple[Side, str], str] = field(default_factory=dict)  # SHA-256 of the files that ran, by real path
    fresh: list[bool] = field(default_factory=list)  # for each target: see `measure.child.Child`

    def __post_init__(self) -> None:
        """Have the libraries that the targets import ready for all children, unless they set variables before that."""
        for target in self.targets:
            files = [target.file, str(Path(self._base_folder() or "", self._file_there(target)))]
            self.fresh.append(any(must_start_afresh(file) for file in files))
            parent = None if self.fresh[-1] else nursery()
            if parent is not None:
                parent.preload([module for file in files for module in imported_modules(file)])
                Child().close()  # waits until torch is imported, which is no part of opening a pair

    def open(
        self, number: int, first: Side, seed: int, seconds: float = math.inf
    ) -> dict[Side, SideSubject | TrialFailed]:
        """Both sides built and warm; at the same time where there are two cores.

        seconds: after which warming up what a loader's workers have ready is cut off, both sides together. The rest of
        opening takes as long as it takes, up to the timeout of each side.
        """
        order = [first, OTHER[first]]
        together = usable_cores() > 1 and not may_have_accelerator()
        waves = [order] if together else [[side] for side in order]
        children: dict[Side, Child] = {}
        opened: dict[Side, SideSubject | TrialFailed] = {}
        try:
            for wave in waves:
                if opened and (why := self._no_room(opened[first], number)):
                    children[first].close()
                    return {first: TrialFailed(why)}
                for side in wave:
                    children[side] = self._start(number, side, seed)
                for side in wave:
                    opened[side] = self._ready(number, side, children[side], seconds / 2)
        except BaseException:
            for child in children.values():
                child.close()
            raise
        return opened

    def alone(self, number: int, side: Side, seed: int, seconds: float = math.inf) -> SideSubject | TrialFailed:
        """One side built and warm; seconds: see `open`."""
        return self._ready(number, side, self._start(number, side, seed), seconds)

    def _start(self, number: int, side: Side, seed: int) -> Child:
        """A child that begins to build a side."""
        child = Child(self.fresh[number], self._base_folder() if side == "base" else None)
        with contextlib.suppress(ChildFailed):  # one that is gone is told when its reply is read
            child.send(self._build(self.targets[number], side, seed, child))
        return child

    def _no_room(self, there: SideSubject | TrialFailed, number: int) -> str:
        """Why the other side cannot be built beside the one that is there, "" where it can or where nothing is known.

        Both must run in turn, so that a drift of the machine hits both; one side after the other would not be a pair.
        """
        if isinstance(there, TrialFailed) or not why_not_beside(1, room := there.room(), self._device(number)):
            return ""
        taken, free = room["taken"], room["free"]
        return (
            "not timed: both versions must run side by side, and two copies of this training do not fit into its memory "
            f"(one has taken {taken / 2**30:.1f} GiB, {free / 2**30:.1f} GiB are free beside it)"
        )

    def here(self) -> Callable[[], PairLab]:
        """What makes the same lab on a node."""
        asked = tuple(self.targets), self.base, self.device, self.timeout
        return partial(PairLab, *asked, {}, dict(self.former), dict(self.ran))

    def facts_and_digests(self) -> Built:
        """What was built, for the lab that this one stands for."""
        return dict(self.facts), dict(self.ran)

    def take(self, built: Built, record: TargetRecord) -> None:
        """Know what the lab of a node has built. Where it ran another text, the record has failed."""
        facts, ran = built
        self.facts.update(facts)
        for (side, path), digest in ran.items():
            if self.ran.setdefault((side, path), digest) != digest:
                record.failures[side] = (
                    f"{os.path.relpath(path)} is not the same on all nodes, or changed while it was measured"
                )

    def typical(self, number: int) -> Typical:
        """The median of a block's steps, or their mean where workers load: see `records.TargetRecord`."""
        loaders = [facts.loader for (of, _), facts in self.facts.items() if of == number]
        return "mean" if any(loader.num_workers for loader in loaders) else "median"

    def length(self, number: int) -> Blocks:
        """Short where one step is like the next: workers deliver several batches at a time, a device runs behind the host."""
        return "short" if self._device(number) == "cpu" and self.typical(number) == "median" else "long"

    def _device(self, number: int) -> str:
        """The type of the device of a target's sides, both where they differ."""
        return " and ".join(sorted({facts.device.type for (of, _), facts in self.facts.items() if of == number}))

    def _build(self, target: Target, side: Side, seed: int, child: Child | None = None) -> dict[str, Any]:
        run = replace(target, file=self._file_there(target)) if side == "base" else target
        beside = [self.base.root] if self.base else []
        what, plain = target_json(run, child, beside), Variant("plain", "", {})
        roots = self.base.roots if self.base else None
        return build_command(what, plain, self.device, seed, roots, in_place=side == "head", scattered=True)

    def _file_there(self, target: Target) -> str:
        return self.former.get(target.label, target.file)

    def _base_folder(self) -> Path | None:
        return self.base.folder if self.base else None

    def _ready(self, number: int, side: Side, child: Child, seconds: float) -> SideSubject | TrialFailed:
        try:
            facts = from_json(child.receive(self.timeout))
            self.facts[number, side] = facts
            self._is_what_it_says(side, facts)
            subject = SideSubject(child, self.timeout, side)
            _warm_up(subject, facts.loader, seconds)
            strays = child.ask({"do": "strays"}, self.timeout)["strays"]  # both sides are asked: see `relocate.strays`
            if side == "base":
                refuse(strays)  # for what a step imports
            child.pause()
            return subject
        except TrialEnded as failure:
            child.close()
            return TrialFailed(f"{failure}, before a step could be timed; let it train longer")
        except (ChildFailed, TargetError) as failure:
            child.close()
            return TrialFailed(str(failure))
        except TrialFailed as failure:
            child.close()
            return failure

    def _is_what_it_says(self, side: Side, facts: Facts) -> None:
        """Raise TargetError where what runs is not this side's code, TrialFailed where it is not that of the pair before."""
        if side == "base":
            refuse(facts.strays)
        for real, digest in facts.digests.items():
            if self.ran.setdefault((side, real), digest) != digest:
                raise TrialFailed(f"{os.path.relpath(real)} changed while it was measured")


def _warm_up(subject: SideSubject, loader: Loader, seconds: float) -> None:
    """Step past the optimizer's first step, and past what the loader's workers have ready, for about so many seconds."""
    subject.block(1)
    ahead = min(MOST_AHEAD, loader.num_workers * (loader.prefetch_factor or 0))
    spent, to_come = 0.0, 2 + ahead
    while to_come > 0 and spent <= seconds:
        block = subject.block(min(to_come, CHUNK))
        subject.seconds_per_step = block.seconds("median")
        spent, to_come = spent + block.wall, to_come - CHUNK


class SideSubject(TimedChild):
    """One side of a pair, in a child."""

    def __init__(self, child: Child, timeout: float, side: Side) -> None:
        super().__init__(child, timeout)
        self.side = side

    def block(self, steps: int, untimed: int = 1) -> TimedBlock:
        block, each = self.time_steps(steps, untimed)
        seconds, samples = each["seconds"], each["samples"]
        restart = 0.0 if each["with_restarts"] else block.restart_per_step
        typical = len(seconds), statistics.median(seconds), statistics.fmean(seconds), restart
        per_step = statistics.median(samples), statistics.fmean(samples)
        return TimedBlock(self.side, *typical, block.wall, block.cpu, block.queued, *per_step)
