"""A tuning of one target: what is known of it, the noise of the machine, and what was found so far."""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

from perfaudit.errors import NothingMeasured
from perfaudit.findings import Finding
from perfaudit.knobs import Survey, knob
from perfaudit.knobs._code import Code
from perfaudit.measure import environment
from perfaudit.measure.child import ChildFailed
from perfaudit.measure.clock import Clock, Deadline, WallClock
from perfaudit.measure.facts import Facts, from_json
from perfaudit.measure.lab import HANGING
from perfaudit.measure.ledger import Variant
from perfaudit.measure.watch import Watch
from perfaudit.measurements import (
    DOES_NOT_LEARN,
    Calibration,
    Environment,
    NotApplicable,
    computing,
)
from perfaudit.target.names import Target
from perfaudit.tune.bout import Bout
from perfaudit.tune.recording import Record
from perfaudit.tune.tolerance import FEWEST_STEPS, Curve, Reference, curve_of, losses_command, steps_to_compare
from perfaudit.tune.workshop import Json, Workshop, as_user_error

PROFILING_STEPS = 4  # for the shares of its phases; what comes of it is no claim
PROFILING_SHARE = 0.05  # of the budget
STEPS_TO_COMPARE = 28  # two variants, each with 5 steps of warm-up, 3 to see how long they take, and a round of 6
LOSSES_LOOKED_AT = 50  # steps, to say from which one on the losses are NaN
LOOKING_SECONDS = 2.0  # for these steps, at most
DOUBLES = 3.0  # times the peak of a step: all of it in doubles, and the parameters as they were
DOUBLES_SHARE = 0.5  # of the free memory, for one such step: the variants of a race are there too
DOUBLES_SLOWER, DOUBLES_LEAST = 64.0, 20.0  # times the step, on cards with one unit for doubles in 64; seconds at least


@dataclass(slots=True)
class Tuning:
    """What a tuning of one target has found so far."""

    target: Target
    workshop: Workshop
    watch: Watch
    clock: Clock = field(default_factory=WallClock)
    record: Record = field(default_factory=Record)
    timeout: float = 120.0
    memory_limit: int | None = None  # bytes that the peak of a step with a patch may have; None where nobody said
    skips_idle: bool = False  # knobs whose part of the step is too small to gain anything; those asked for are searched
    cores: int = field(default_factory=environment.usable_cores)
    known: Survey | None = None  # None before the training was built; see `survey`
    digests: dict[str, str] = field(default_factory=dict)  # SHA-256 of the project's files by path, when it began
    never_run: frozenset[str] = frozenset()  # fingerprints of findings whose lines the training does not run
    environment: Environment | None = None
    calibration: Calibration | None = None
    bouts: list[Bout] = field(default_factory=list)
    not_applicable: list[NotApplicable] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    seconds_to_open: float = 0.0  # one variant, with its warm-up
    queued: float = 0.0  # share of these steps that their threads waited for cores
    seconds_per_step: float = 0.0  # of the second step ever made, for a first idea
    _reference: Reference | None = None
    _memory: dict[str, Json] = field(default_factory=dict)  # replies to "memory"

    def deadline(self, seconds: float) -> Deadline:
        """A deadline on this tuning's clock."""
        return Deadline(seconds, self.clock)

    def ask(self, key: str, variant: Variant, *commands: Json) -> list[Json]:
        """What the workshop replies, or what it replied to the same question in an earlier run. Raises ChildFailed."""
        known = self.record.answered(key)
        if known is not None:
            if "failure" in known:
                raise ChildFailed(known["kind"], known["failure"])
            return list(known["replies"])
        try:
            replies = self.workshop.ask(variant, *commands)
        except ChildFailed as failure:
            if failure.kind != "timeout":  # with more time it may well be answered
                self.record.note("answer", key, {"kind": failure.kind, "failure": str(failure)})
            raise
        self.record.note("answer", key, {"replies": replies})
        return replies

    @property
    def survey(self) -> Survey:
        """What is known of the training, once it was built."""
        assert self.known is not None, "the training has not been built"
        return self.known

    def build(self) -> None:
        """Build the user's training once, as it is, and make a step. Raises TargetError when that fails."""
        if self.known is None:
            self.watch.stage(f"loading {self.target.file}")
            try:
                facts, block = self.workshop.ask(Variant("survey", "", {}), {"do": "block", "steps": 1})
            except ChildFailed as failure:
                raise as_user_error(self.target, failure, self.timeout) from failure
            self.begin(from_json(facts), block.get("wall", 0.0))

    def begin(self, facts: Facts, seconds_per_step: float) -> None:
        """Keep what a child said of the training that it built."""
        self.known, self.environment = Survey(facts), environment.host_of(facts)
        self.seconds_per_step = seconds_per_step

    def learn(self, findings: Iterable[Finding]) -> None:
        """Keep what a scan found, for knobs that have its fixes measured."""
        self.known = replace(self.survey, findings=tuple(findings))

    def needs_time(self, budget: float, left: float) -> None:
        """Raise NothingMeasured where the seconds `left` of the budget do not suffice to compare two variants once."""
        least = STEPS_TO_COMPARE * self.seconds_per_step
        if not left:
            why = "was over when it was loaded"
        elif least > left:
            why = f"is too small: a step takes {self.seconds_per_step:.1f} s, and comparing two settings {least:.0f} s"
        else:
            return
        raise NothingMeasured(f"{self.target}: the budget of {budget:.0f} s {why}; give it longer with --budget")

    def profile(self, budget: float) -> None:
        """Time the phases of a few steps, for what knobs could gain at most; as few as budget seconds allow."""
        steps = max(1, min(PROFILING_STEPS, int(PROFILING_SHARE * budget / max(self.seconds_per_step, 1e-6))))
        try:
            block = self.ask("profile", Variant("profile", "", {}), {"do": "block", "steps": steps})[1]
        except ChildFailed as failure:
            raise NothingMeasured(f"{self.target}: the code as it is could not be measured: {failure}") from failure
        self.seconds_per_step = block["wall"] / block["steps"]
        profile = {name: seconds / block["steps"] for name, seconds in block.get("phases", {}).items()}
        self.known = replace(self.survey, profile=profile)
        self.queued = block.get("queued", 0.0) / max(block["wall"], 1e-9)
        if self.survey.facts.device.phases_by_waiting:
            self.notes.append(
                f"{self.survey.facts.device.type} has no clock that torch can read: the parts of a step are those of steps "
                "after each part of which the host waited, and together they take longer than a step"
            )
        if not block.get("finite", True):
            self.notes.append(self._not_learning())

    def note_once(self, note: str) -> None:
        """Add a note to the report, where it is not there yet."""
        if note not in self.notes:
            self.notes.append(note)

    @property
    def not_learning(self) -> str:
        """The note that the losses of the user's own code are no numbers, "" where there is none."""
        return next((note for note in self.notes if note.endswith(DOES_NOT_LEARN)), "")

    def _not_learning(self) -> str:
        """That the losses are no numbers, and from which step on; asked only where they were seen to be none."""
        steps = max(FEWEST_STEPS, min(LOSSES_LOOKED_AT, int(LOOKING_SECONDS / max(self.seconds_per_step, 1e-6))))
        try:
            losses = curve_of(self.ask("losses", Variant("losses", "", {}), losses_command(steps))[1]).losses
        except ChildFailed:
            losses = ()
        step, loss = next(
            ((number, loss) for number, loss in enumerate(losses, start=1) if not math.isfinite(loss)), (0, math.nan)
        )
        since = f" from step {step}" if step > 1 else " from the first step" if step else ""
        what = "NaN" if math.isnan(loss) else "infinite"
        return f"the losses are {what}{since}: {DOES_NOT_LEARN}"

    def computes_alone(self) -> bool:
        """On the CPU, in one thread, without loader workers: processor time is what a step takes on an idle machine."""
        return self._in_one_process() and self.survey.facts.host.threads == 1

    def share_of(self, name: str) -> float:
        """The share of the step, as it is now, that a knob's settings are compared in: without loading, for most of them."""
        return computing(self.survey.profile) if knob(name).fixed_batch else 1.0

    def _in_one_process(self) -> bool:
        facts = self.survey.facts
        return facts.device.type == "cpu" and not facts.loader.num_workers

    def code(self) -> Code:
        """The user's source, for knobs to edit."""
        return Code(self.target.file, self.survey)

    @property
    def reference(self) -> Reference:
        """How the user's own code, without any patch, trains: what the losses of patched code are compared with."""
        if self._reference is None:
            per_step = self.calibration.seconds_per_step if self.calibration is not None else self.seconds_per_step
            steps = steps_to_compare(per_step)
            timeout = self.timeout + HANGING * steps * per_step
            self._reference = Reference(self._own_losses, self._peak_of, steps, timeout, self._asked_of)
        return self._reference

    def _own_losses(self, command: Json) -> Curve | None:
        """The losses of the unpatched code in a process of its own; None where it fails."""
        key = f"losses {json.dumps(command, sort_keys=True)}"
        timeout = self.reference.timeout
        try:
            return curve_of(self.ask(key, Variant("again", "", {}), {**command, "timeout": timeout})[1])
        except ChildFailed:
            return None

    def _asked_of(self, variant: Variant, command: Json) -> Json | None:
        """What a process of its own with this variant replies; None where it fails."""
        key = f"{json.dumps(command, sort_keys=True)} {variant.key} {digest_of_texts(variant.overlay)}"
        free = (self.survey.facts.device.room or environment.free_memory()) * DOUBLES_SHARE
        try:
            peak = DOUBLES * self._peak_of(Variant("again", "", {}))
            if free and peak > free:
                need = f"{peak / 2**30:.1f} GiB, more than {100 * DOUBLES_SHARE:.0f} % of what is free"
                return {"why": f"the step would take {need}"}
            timeout = max(DOUBLES_LEAST, DOUBLES_SLOWER * command["steps"] * self.seconds_per_step)
            return self.ask(key, variant, {**command, "timeout": timeout})[1]
        except ChildFailed:
            return None

    def _peak_of(self, variant: Variant) -> int:
        """What a step takes of a memory budget, in a process of its own: one that was looked into is not timed.

        Raises ChildFailed.
        """
        return taken_bytes(self.memory_of(variant))

    def memory_of(self, variant: Variant) -> Json:
        """The reply of a process of its own to "memory", asked once of a text and the setting applied to it.

        Raises ChildFailed.
        """
        applied = variant.key if variant.applied else ""
        key = f"memory {applied} {digest_of_texts(variant.overlay)}"
        if key not in self._memory:
            self._memory[key] = self.ask(key, variant, {"do": "memory"})[1]
        return self._memory[key]


def taken_bytes(memory: Json) -> int:
    """What counts against a memory budget, of the reply of a child to "memory": tensors alone where no more is known."""
    return int(memory.get("taken_bytes") or memory["peak_bytes"])


def digest_of_texts(*overlays: dict[str, str]) -> str:
    """What tells these patched texts from others, for keys of the records; "" for the user's own code."""
    if not any(overlays):
        return ""
    return hashlib.sha256(json.dumps(overlays, sort_keys=True).encode()).hexdigest()[:16]


def bout_of(tuning: Tuning, name: str) -> Bout | None:
    """The search of a knob, None where there was none."""
    return next((bout for bout in tuning.bouts if bout.name == name), None)


@contextlib.contextmanager
def interruptible(notes: list[str]) -> Iterator[list[bool]]:
    """Ctrl-C and TERM inside end the block early and are remembered in the list it gives: [True] if it happened."""
    import signal

    happened = [False]

    def stop(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    previous = signal.signal(signal.SIGTERM, stop)
    try:
        yield happened
    except KeyboardInterrupt:
        happened[0] = True
        notes.append("interrupted; what was measured until then is in this report")
    finally:
        signal.signal(signal.SIGTERM, previous)
