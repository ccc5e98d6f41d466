"""Questions that processes of their own answer, each asked once: in this run, and in those that resume it."""

from __future__ import annotations

import hashlib
import json
import math
import tempfile
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from perfaudit.knobs._rounded_first_step import rounded_variant
from perfaudit.machine.limits import free_memory
from perfaudit.measure.child import ChildFailed
from perfaudit.measure.child_subject import HANGING
from perfaudit.measure.exchange import exchange_folder
from perfaudit.measure.ledger import Variant
from perfaudit.tune.profile import Profile
from perfaudit.tune.recording import Record
from perfaudit.tune.tolerance import Curve, Reference, Sensitivity, curve_of, losses_command, steps_to_compare
from perfaudit.tune.workshop import Children, Json

DRAWS_OF_GRADIENTS = 2  # of roundings; each starts a script
DOUBLES = 3.0  # times the peak of a step: all of it in doubles, and the parameters as they were
DOUBLES_SHARE = 0.5  # of the free memory, for one such step: the variants of a race are there too
DOUBLES_SLOWER, DOUBLES_LEAST = 64.0, 20.0  # times the step, on cards with one unit for doubles in 64; seconds at least


@dataclass(slots=True)
class Questions:
    """What the workshop replies, or what the record has of earlier runs. timeout: seconds that a step may take."""

    workshop: Children
    record: Record
    timeout: float = 120.0
    _reference: Reference | None = None
    _peaks: dict[str, int] = field(default_factory=dict)

    def ask(self, key: str, variant: Variant, *commands: Json) -> list[Json]:
        """What the workshop replies, or what it replied to the same question in an earlier run. Raises ChildFailed."""
        known = self.record.earlier_answer(key)
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

    def peak_of(self, variant: Variant) -> int:
        """What a step takes of a memory budget, in a process of its own: one that was looked into is not timed.

        Asked once of a text and the setting applied to it; tensors alone where no more is known. Raises ChildFailed.
        """
        key = _memory_key(variant)
        if key not in self._peaks:
            self._peaks[key] = _bytes_of(self.ask(key, variant, {"do": "memory"})[1])
        return self._peaks[key]

    def keep_peak(self, variant: Variant, memory: Json) -> int:
        """The same as a process has told it that was asked for something else."""
        key = _memory_key(variant)
        if key not in self._peaks:
            self.record.note("answer", key, {"replies": [{}, memory]})
            self._peaks[key] = _bytes_of(memory)
        return self._peaks[key]

    def known_peak(self, variant: Variant) -> int | None:
        """The same where it was asked before, in this run or in one that it resumes; None elsewhere."""
        key = _memory_key(variant)
        if key not in self._peaks and (known := self.record.earlier_answer(key)) is not None and "replies" in known:
            self._peaks[key] = _bytes_of(known["replies"][1])
        return self._peaks.get(key)

    def reference(self, profile: Profile) -> Reference:
        """How the user's own code, without any patch, trains: what the losses of patched code are compared with.

        profile: of the first call; it says how many steps are compared, and how long they may take.
        """
        if self._reference is None:
            per_step = profile.calibrated_seconds_per_step
            steps = steps_to_compare(per_step)
            timeout = self.timeout + HANGING * steps * per_step
            losses, doubles = partial(self._own_losses, timeout), partial(self._in_doubles, profile)
            is_script = profile.survey.facts.is_script
            if is_script:
                losses = partial(self._losses_of_script, timeout)
            tells_memory = is_told_beside(profile)
            self._reference = Reference(
                losses, self.peak_of, steps, timeout, doubles, is_script, tells_memory, self.keep_peak
            )
        return self._reference

    def _own_losses(self, timeout: float, command: Json) -> Curve | None:
        """The losses of the unpatched code in a process of its own; None where it fails."""
        key = f"losses {json.dumps(command, sort_keys=True)}"
        try:
            return curve_of(self.ask(key, Variant("again", "", {}), {**command, "timeout": timeout})[1])
        except ChildFailed:
            return None

    def _losses_of_script(self, timeout: float, command: Json) -> Curve | None:
        """The same of a script, whose first step is not made again: what moves its gradients is seen in processes of their own.

        None for nudged parameters, which that step has already used, and for another seed of the model.
        """
        if "build_seed" in command:  # a script draws from the seed that it sets itself
            return None
        if command["do"] != "sensitivity":
            return self._own_losses(timeout, command)
        kind = str(command.get("rounded", ""))
        if not kind:
            return None
        key = f"rounded gradients {kind}"
        known = self.record.earlier_answer(key)
        gap = str(known["replies"][0]["gap"]) if known is not None else self._rounded_gap(kind, timeout)
        if known is None:
            self.record.note("answer", key, {"replies": [{"gap": gap}]})
        return Curve((), sensitivity=Sensitivity(0.0, None, float.fromhex(gap))) if gap else None

    def _rounded_gap(self, kind: str, timeout: float) -> str:
        """The largest gap of some draws that rounding to a type makes of the first gradients; "" where that fails."""
        gaps: list[str] = []
        with tempfile.TemporaryDirectory(prefix="perfaudit-", dir=exchange_folder()) as folder:
            file = str(Path(folder, "gradients.pt"))
            plain, more = Variant("again", "", {}), {"timeout": timeout}
            try:
                self.workshop.ask(plain, losses_command(0, save_gradients=file) | more)
                for draw in range(DRAWS_OF_GRADIENTS):
                    asked = losses_command(0, load_gradients=file) | more
                    gaps.append(self.workshop.ask(rounded_variant(kind, draw), asked)[1]["gradients"].get("gap", "inf"))
            except ChildFailed:
                return ""
        largest = max(gaps, key=float.fromhex)
        return largest if math.isfinite(float.fromhex(largest)) else ""

    def _in_doubles(self, profile: Profile, variant: Variant, command: Json) -> Json | None:
        """What a process of its own with this variant replies; None where it fails."""
        key = f"{json.dumps(command, sort_keys=True)} {variant.key} {digest_of_texts(variant.overlay)}"
        free = (profile.survey.facts.device.room or free_memory()) * DOUBLES_SHARE
        try:
            peak = DOUBLES * self.peak_of(Variant("again", "", {}))
            if free and peak > free:
                need = f"{peak / 2**30:.1f} GiB, more than {100 * DOUBLES_SHARE:.0f} % of what is free"
                return {"why": f"the step would take {need}"}
            timeout = max(DOUBLES_LEAST, DOUBLES_SLOWER * command["steps"] * profile.seconds_per_step)
            return self.ask(key, variant, {**command, "timeout": timeout})[1]
        except ChildFailed:
            return None


def is_told_beside(profile: Profile) -> bool:
    """Whether a process that was asked for other things can be asked for the peak of a step.

    Live tensors are counted on the CPU, whatever there was before. What an allocator has reserved is the most since its process
    began, so another process tells it; of a script, whose start takes long, it is taken as that.
    """
    facts = profile.survey.facts
    return facts.is_script or facts.device.type == "cpu"


def _memory_key(variant: Variant) -> str:
    applied = variant.key if variant.applied else ""
    return f"memory {applied} {digest_of_texts(variant.overlay)}"


def _bytes_of(memory: Json) -> int:
    return int(memory.get("taken_bytes") or memory["peak_bytes"])


def digest_of_texts(overlay: dict[str, str]) -> str:
    """What tells these patched texts from others, for keys of the records; "" for the user's own code."""
    return hashlib.sha256(json.dumps([overlay], sort_keys=True).encode()).hexdigest()[:16] if overlay else ""
