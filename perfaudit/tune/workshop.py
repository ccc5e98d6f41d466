"""Where variants are built and asked: child processes of the user's target. Tests put another one in its place."""

from __future__ import annotations

import atexit
import contextlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from perfaudit.errors import AT_BREAKPOINT, NothingMeasured, TargetError, UserError
from perfaudit.machine.limits import free_memory
from perfaudit.measure.child import Asked, Child, ChildFailed
from perfaudit.measure.engine import ChildEngine
from perfaudit.measure.environment import may_have_accelerator
from perfaudit.measure.facts import Facts
from perfaudit.measure.lab import ChildLab, StartOf, build_command, no_start
from perfaudit.measure.ledger import Variant
from perfaudit.measure.loop_patches import LoopPatches, Patched
from perfaudit.measure.nursery import forget_libraries, nursery
from perfaudit.measure.scratch import target_json
from perfaudit.measure.watch import Watch
from perfaudit.target.fresh_start import must_start_afresh
from perfaudit.target.names import Target, imported_modules
from perfaudit.tune.short_names import variant_name
from perfaudit.tune.too_short import longer_words

Json = dict[str, Any]  # Any: nested JSON
# Of the memory that was free before there was a child: a training that leaves less does not wait beside others.
ROOM = 0.6
AS_IT_IS = ("block", "asleep", "ask")  # commands that leave a training fit for a race
TOO_FEW = "before one comparison was finished"
Check = Callable[[Child, Variant, Facts], None]


@dataclass(slots=True)
class Children:
    """The workshop of a target on this machine. timeout: seconds that building the training, and each step, may take."""

    target: Target
    device: str
    watch: Watch
    timeout: float
    fresh: bool = False  # see `measure.child.Child`
    of_ranks: bool = False  # what `new_child` gives is one on each rank of the training
    # The training as it is, in a child that was asked already, and its facts.
    _waiting: tuple[Asked, Json] | None = None
    _free: int = 0  # bytes, before the first child was started
    _ends_with_us: bool = False  # the child that waits, where this process ends before it is closed
    _loops: LoopPatches = field(default_factory=LoopPatches)  # of a script, which is started with them
    _imports_by_itself: str = (
        ""  # why libraries of a script were not imported once for all processes, where it was tried
    )

    def __post_init__(self) -> None:
        """Have the libraries that the target imports ready for all children, unless they must be started afresh."""
        self.fresh = must_start_afresh(self.target.file)
        if not self.fresh and nursery() is not None:
            self.watch.stage("importing torch")
        self._preload()

    def _preload(self) -> None:
        parent = None if self.fresh else nursery()
        if parent is not None:
            parent.preload(imported_modules(self.target.file))

    def new_child(self) -> Asked:
        """A process for the target."""
        return Child(self.fresh)

    def wait_for_torch(self) -> None:
        """Wait until children can be forked, so that the start of the first one is none of torch's import."""
        parent = None if self.fresh else nursery()
        if parent is not None:
            parent.wait()

    def preload_libraries(self) -> float:
        """Have the next children begin with the libraries that the one which waits has imported; seconds that this took.

        0 where they begin without.
        """
        if self._waiting is None or self.of_ranks:
            return 0.0
        seconds = self._preload_as(self._waiting[0])
        self._waiting[0].pause()
        return seconds

    def _preload_as(self, child: Asked) -> float:
        parent = None if self.fresh or not self.target.is_script or self._imports_by_itself else nursery()
        if parent is None:
            return 0.0
        began = time.monotonic()
        with contextlib.suppress(ChildFailed):  # it is told when it is asked for something else
            noted = child.ask({"do": "imported"}, self.timeout)
            if not noted.get("libraries"):
                return 0.0
            self._imports_by_itself = parent.preload_as(noted)
            if not self._imports_by_itself:
                return time.monotonic() - began
            self.watch.note(f"each process imports the libraries by itself: beforehand, {self._imports_by_itself}")
            self._preload()  # in the nursery that takes the place of this one
        return 0.0

    def lab(
        self, check: Check | None = None, start_of: StartOf = no_start, known: Mapping[str, float] | None = None
    ) -> ChildLab:
        """A lab whose variants pass `check` when they are built; it raises TrialFailed for one that does not.

        known: seconds of a step, by key, as far as they were seen before.
        """
        self.close()
        lab = ChildLab(self.target.to_json(), self.device, timeout=self.timeout, fresh=self.fresh, check=check)
        lab.target_of = partial(target_json, self.target)
        lab.start_of, lab.known = start_of, known or {}
        lab.on_open = lambda variant: self.watch.opening(variant_name(variant.settings))
        return lab

    def ask(self, variant: Variant, *commands: Json) -> list[Json]:
        """Build a variant in a process of its own and give these commands: the facts, then each reply. Raises ChildFailed."""
        is_plain = not (variant.overlay or variant.applied) and all(each["do"] in AS_IT_IS for each in commands)
        if is_plain and (self.target.is_script or not may_have_accelerator()):
            return self._ask_waiting(variant, commands)
        with self.new_child() as child:
            facts = child.ask(build_command(target_json(self.target, child), variant, self.device, 0), self.timeout)
            return [facts, *self._replies(child, commands)]

    def _ask_waiting(self, variant: Variant, commands: Sequence[Json]) -> list[Json]:
        """The same of a child that waits with the training as it is, and is raced in later, as long as that goes on.

        A script takes long to start. Another training waits where that leaves room for all who are asked besides.
        """
        try:
            if self._waiting is None:
                self._free = self._free or free_memory()
                child = self.new_child()
                self._waiting = child, {}
                command = self._build_command(variant, child)
                if not self._ends_with_us:
                    self._ends_with_us = True
                    atexit.register(self.close)  # before its folder is deleted
                self._waiting = child, child.ask(command, self.timeout)
            child, facts = self._waiting
            replies = [facts, *self._replies(child, commands)]
            has_room = self.target.is_script or free_memory() > ROOM * self._free
            if not has_room or child.ask({"do": "has_ended"}, self.timeout)["has_ended"]:
                self.close()  # a step of another batch size has raised, say
            else:
                child.pause()
        except BaseException:
            self.close()
            raise
        return replies

    def expect(self, patches: Sequence[Patched], both: Callable[[int, int], Patched | None]) -> None:
        """Have the script ready for these patches: one that waits without them is started again where it is wanted."""
        if self.target.is_script and self._loops.add(patches, both):
            self.close()

    def close(self) -> None:
        """End the child that waits, if there is one."""
        if self._waiting is not None:
            self._waiting[0].close()
        self._waiting = None

    def _replies(self, child: Asked, commands: Sequence[Json]) -> list[Json]:
        replies = []
        for command in commands:
            said = {name: value for name, value in command.items() if name != "timeout"}
            try:
                replies += [child.ask(said, command.get("timeout", self.timeout))]
            except ChildFailed as failure:
                if failure.kind != "timeout" or command["do"] != "block":
                    raise
                why = f"a training step hangs, or needs longer than --timeout {self.timeout:.0f}s: {failure}"
                raise ChildFailed("step", f"{self.target.file}: {why}") from failure
        return replies

    def trace(self, files: list[str]) -> Json:
        """Under "facts" the facts, and under "lines" the lines of these files that run when it is built and makes two steps."""
        with self.new_child() as child:
            target = target_json(self.target, child)
            command = {"do": "trace", "target": target, "files": files, "device": self.device}
            reply = child.ask(command, self.timeout)
            self._preload_as(child)
            return reply

    def engine(self) -> ChildEngine:
        """The user's training as it is, ready to race candidates in. Raises ChildFailed."""
        if self._waiting is not None:
            (child, _), self._waiting = self._waiting, None
            return ChildEngine(child, self.timeout, self.of_ranks)
        child = self.new_child()
        try:
            own = Variant("screening", "", {})
            child.ask(self._build_command(own, child), self.timeout)
        except BaseException:
            child.close()
            raise
        return ChildEngine(child, self.timeout, self.of_ranks)

    def _build_command(self, variant: Variant, child: Asked) -> Json:
        """The command that builds the training in which patches are raced, for this child."""
        return build_command(target_json(self.target, child), variant, self.device, 0, loops=self._loops.texts)


@contextlib.contextmanager
def workshop_for(
    given: Children | None, target: Target, device: str, watch: Watch, timeout: float
) -> Iterator[Children]:
    """The workshop that was given, or one of children that is made and ends with the context."""
    if given is not None:
        yield given
        return
    try:
        with contextlib.closing(Children(target, device, watch, timeout)) as children:
            yield children
    finally:
        forget_libraries()  # another target may have modules of these names


def as_user_error(target: Target, failure: ChildFailed, timeout: float) -> UserError:
    """The fault of a child as the message a user reads: TargetError while it loads, NothingMeasured once it trains.

    A script that hangs, or ends without a fault, before its first step has loaded: NothingMeasured, as `perfaudit run` has it.
    """
    if failure.kind in ("step", "ended", "no step"):
        return _error_of_training(target, failure)
    if failure.kind == "timeout":
        kind = NothingMeasured if target.is_script else TargetError
        return kind(f"{target.file}: {failure}; give it longer with --timeout (now {timeout:.0f} s)")
    if failure.kind == "crash":
        when = "before or in the first steps of the script" if target.is_script else "while it was loaded"
        return TargetError(f"{target.file}: {when}, {failure}")
    if failure.kind == "oom":
        return NothingMeasured(f"{target.file}: one training step does not fit into memory: {failure}")
    return TargetError(str(failure))


def _error_of_training(target: Target, failure: ChildFailed) -> NothingMeasured:
    if failure.kind == "ended" and target.is_script and AT_BREAKPOINT not in str(failure):
        longer = f"to have patches raced, {longer_words(target)}"
        return NothingMeasured(f"{failure}, {TOO_FEW}; {longer}. `perfaudit run` reads the steps that it has")
    return NothingMeasured(str(failure))


def error_of_own_code(target: Target, failure: ChildFailed) -> NothingMeasured:
    """The error that says that the code as it is could not be measured; of a script that has ended, that of `as_user_error`."""
    if failure.kind == "ended" and target.is_script:
        return _error_of_training(target, failure)
    return NothingMeasured(f"{target}: your code as it is could not be measured: {failure}")
