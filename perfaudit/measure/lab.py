"""A lab of child processes: each variant in a process of its own, all but the one that is measured standing still."""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from perfaudit.machine.limits import usable_cores
from perfaudit.measure.child import Child, ChildFailed
from perfaudit.measure.child_subject import ChildSubject, trial_failure
from perfaudit.measure.environment import may_have_accelerator
from perfaudit.measure.facts import Facts, from_json
from perfaudit.measure.ledger import Variant
from perfaudit.measure.nursery import START_SECONDS
from perfaudit.measure.runner import ENDS_EARLY, TooLarge, TrialEnded, TrialFailed
from perfaudit.measure.side_by_side import why_not_beside

StartOf = Callable[[Variant], "dict[str, Any] | None"]


def no_start(variant: Variant) -> None:
    """Nothing is done with the parameters that a variant begins with."""


def _tell_nobody(variant: Variant) -> None:
    """A variant is opened, and nobody wants to know."""


@dataclass(slots=True)
class ChildLab:
    """Opens variants of one target in children. `facts` keeps what each variant's child said when it was built.

    check: called with a child that has just been built, its variant and facts; raising TrialFailed refuses the variant.
    timeout: seconds that building the training, and each step, may take. fresh: see `Child`.
    target_of: the target as a child is told it, where each is told something of its own. start_of: what is done with the
    parameters that a script begins with (see `training.script_start`); where something is, the first variant is built before the
    others, which may begin with its parameters. own_ends: errors by which a script ends, and that are its own. seconds_checking:
    what all checks have taken so far. known: seconds of a step, by key, as they were seen before; of these no steps are made to
    find them out, unless batches of the loader lie ready and are to be used up.
    """

    target: dict[str, Any]  # JSON: file and names
    device: str
    seed: int = 0
    timeout: float = START_SECONDS
    fresh: bool = False
    facts: dict[str, Facts] = field(default_factory=dict)
    check: Callable[[Any, Variant, Facts], None] | None = None  # Any: a Child, or one that answers once
    on_open: Callable[[Variant], None] = _tell_nobody
    start_of: StartOf = no_start
    target_of: Callable[[Child], dict[str, Any]] | None = None
    ran: dict[str, str] = field(default_factory=dict)  # SHA-256 of the files that ran unpatched, by path
    own_ends: set[str] = field(default_factory=set)
    seconds_checking: float = 0.0
    known: Mapping[str, float] = field(default_factory=dict)
    _as_it_is: ChildSubject | None = None  # of the script, unpatched

    def here(self) -> ChildLab:
        """The same lab for a node. Variants are not checked there, nor do they begin with given parameters."""
        lab = ChildLab(self.target, self.device, self.seed, self.timeout, self.fresh)
        lab.ran, lab.target_of = dict(self.ran), self.target_of
        return lab

    def open(self, variants: Sequence[Variant]) -> dict[str, ChildSubject | TrialFailed]:
        """All variants built and warm, as many starting at once as there are cores.

        Where there may be an accelerator, the first one is built alone. Once some are there, they are asked what is free for
        the others, and for a process of the check. Raises TooLarge where that is too little.
        """
        opened: dict[str, ChildSubject | TrialFailed] = {}
        pending = list(variants)
        children: list[Child] = []
        try:
            while pending:
                alone = not children and (may_have_accelerator() or self.start_of(variants[0]) is not None)
                wave = [pending.pop(0) for _ in range(1 if alone else min(len(pending), usable_cores()))]
                started = []
                for variant in wave:
                    child = Child(self.fresh)
                    children.append(child)
                    self.on_open(variant)
                    # That a child is gone already is told when its reply is read.
                    with contextlib.suppress(ChildFailed):
                        child.send(self._build_command(variant, child))
                    started.append((variant, child))
                built = [(v, self._take_built(v, child, alone=len(variants) == 1)) for v, child in started]
                for variant, item in built:
                    # Workers start and load their first batches while others make their first steps: these tell how long blocks
                    # are to be, and no result rests on them.
                    if isinstance(item, ChildSubject) and item.device == "cpu" and variant.untimed > 1:
                        item.begin(1, 1)
                for variant, item in built:
                    opened[variant.key] = self._warm(variant, item) if isinstance(item, ChildSubject) else item
                if isinstance(opened[variants[0].key], TrialFailed):  # nothing to compare with
                    for child in children:
                        child.close()
                    return {key: item for key, item in opened.items() if isinstance(item, TrialFailed)}
                self._make_sure_of_room(len(pending), opened[variants[0].key])
        except BaseException:
            for child in children:
                child.close()
            raise
        return opened

    def _build_command(self, variant: Variant, child: Child) -> dict[str, Any]:
        target = self.target if self.target_of is None else self.target_of(child)
        return build_command(target, variant, self.device, self.seed, start=self.start_of(variant))

    def examine(self, variant: Variant) -> str:
        """Build a variant in a child that ends then, and check it; why it is refused, "" if it is not. Nothing is timed."""
        with Child(self.fresh) as child:
            try:
                self.on_open(variant)
                reply = child.ask(self._build_command(variant, child), self.timeout)
                facts = from_json(reply)
                self._same_source(variant, facts.digests)
                if self.check is not None:
                    self.check(_Leaving(child), variant, facts)
            except ChildFailed as failure:
                return self._words_of_end(variant, failure) or str(failure)
            except TrialFailed as failure:
                return str(failure)
        return ""

    def _make_sure_of_room(self, more: int, first: ChildSubject | TrialFailed) -> None:
        """Raise TooLarge where so many more do not fit beside what is there, as the first one is told by the driver."""
        if not more or not isinstance(first, ChildSubject):
            return
        room, device = first.room(), first.device
        if why := why_not_beside(more + (self.check is not None and device != "cpu"), room, device):
            raise TooLarge(why)

    def _take_built(self, variant: Variant, child: Child, alone: bool = False) -> ChildSubject | TrialFailed:
        """A variant that a child was told to build, once it is there and was checked."""
        try:
            facts = from_json(child.receive(self.timeout))
            self.facts[variant.key] = facts
            self._same_source(variant, facts.digests)
            if self.check is not None:
                asked, began = _Leaving(child) if alone else child, time.monotonic()
                self.check(asked, variant, facts)
                self.seconds_checking += time.monotonic() - began
                if isinstance(asked, _Leaving) and asked.has_left:
                    child = Child(self.fresh)
                    child.ask(self._build_command(variant, child), self.timeout)
            subject = ChildSubject(child, self.timeout, facts.device.type, variant.counts_tokens)
            if facts.is_script:
                self._as_it_is = subject if not (variant.overlay or variant.applied) else self._as_it_is
                subject.is_own_end = partial(self._is_own_end, subject)
            child.pause()
            return subject
        except (ChildFailed, TrialFailed) as failure:
            return self._failure(variant, child, failure)

    def _warm(self, variant: Variant, subject: ChildSubject) -> ChildSubject | TrialFailed:
        """The same past the optimizer's first step, and past what its workers have ready, if no block uses that up by itself."""
        loader = self.facts[variant.key].loader
        is_used_up = variant.fixed_batch or variant.untimed > 1
        ahead = 0 if is_used_up else loader.num_workers * (loader.prefetch_factor or 0)
        try:
            subject.block(1)
            known = self.known.get(variant.key) if not ahead else None
            subject.seconds_per_step = known or subject.block(2 + min(ahead, 64)).seconds_per_step
            return subject
        except TrialFailed as failure:
            return self._failure(variant, subject.child, failure)

    def _failure(self, variant: Variant, child: Child, failure: Exception) -> TrialFailed:
        """Why a variant is not there; its child is closed."""
        child.close()
        if isinstance(failure, TrialEnded):
            return TrialEnded(f"{ENDS_EARLY}{failure}")
        if isinstance(failure, ChildFailed):
            words = self._words_of_end(variant, failure)
            return TrialFailed(words) if words else trial_failure(failure)
        return failure if isinstance(failure, TrialFailed) else TrialFailed(str(failure))

    def _is_own_end(self, subject: ChildSubject, error: str, steps: int) -> bool:
        """Whether a script ends with this error by itself, behind this subject's blocks and up to so many steps more.

        The script as it is says so, which makes as many steps where it is another subject.
        """
        error = _without_lines(error)
        if any(_without_lines(known) in error for known in self.own_ends):
            return True
        other = self._as_it_is
        if other is not subject:
            if other is None:
                return False
            ahead = subject.made + steps - other.made
            try:
                other.child.ask({"do": "block", "steps": 1, "untimed": max(0, ahead)}, self.timeout)
                other.child.pause()
                return False
            except ChildFailed as failure:
                if failure.kind != "step" or _without_lines(str(failure)) != error:
                    return False
        self.own_ends.add(error)
        return True

    def _words_of_end(self, variant: Variant, failure: ChildFailed) -> str:
        """That a script ends with this error while it is checked, and without a patch too; "" where that is not known."""
        if failure.kind != "step" or self.check is None:
            return ""
        is_own = not (variant.overlay or variant.applied)
        if is_own:
            self.own_ends.add(str(failure))
        said = _without_lines(str(failure))
        if not is_own and not any(_without_lines(known) in said for known in self.own_ends):
            return ""
        return f"your code ends so without a patch, too, before it is compared: {failure}"

    def _same_source(self, variant: Variant, ran: Mapping[str, str]) -> None:
        """Raise TrialFailed where what ran is not the text to be measured. ran: SHA-256 of the files that ran, by real path."""
        patched = {os.path.realpath(path): path for path in variant.overlay}
        for real, path in patched.items():
            if ran and real not in ran:
                raise TrialFailed(f"{path} is not imported as a module, so its patch is not what ran")
        for real, digest in ran.items():
            if real not in patched and self.ran.setdefault(real, digest) != digest:
                raise TrialFailed(f"{os.path.relpath(real)} changed while it was measured")


def _without_lines(error: str) -> str:
    """An error as it is told, without the number of its line, which a patch may have moved."""
    return re.sub(r":\d+( in [^()]+\))", r"\1", error)


class _Leaving:
    """A child that answers once and leaves: what it is compared with then has the memory to itself."""

    def __init__(self, child: Child) -> None:
        self._child = child
        self.has_left = False

    def ask(self, command: dict[str, Any], timeout: float) -> dict[str, Any]:
        if self.has_left:
            raise ChildFailed("ended", "the process has left")
        self.has_left = True
        try:
            return self._child.ask(command, timeout)
        finally:
            self._child.close()


def build_command(
    target: dict[str, Any],
    variant: Variant,
    device: str,
    seed: int = 0,
    relocated: Sequence[str] | None = None,
    in_place: bool = False,
    scattered: bool = False,
    loops: dict[str, Any] | None = None,
    start: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """The command that builds a variant in a child. relocated, in_place, scattered, loops, start: see `verbs.building`."""
    return {
        "do": "build",
        "target": target,
        "overlay": variant.overlay,
        "knob": variant.applied,
        "settings": variant.settings,
        "device": device,
        "seed": seed,
        "fixed_batch": variant.fixed_batch,
        "relocated": None if relocated is None else list(relocated),
        "in_place": in_place,
        "scattered": scattered,
        **({"loops": loops} if loops else {}),
        **({"start": start} if start else {}),
    }
