"""The first steps of the user's code as it is: it is built once, and the phases of a few steps are timed."""

from __future__ import annotations

import math
from dataclasses import replace

from perfaudit.errors import NothingMeasured
from perfaudit.knobs import Survey
from perfaudit.measure.child import ChildFailed
from perfaudit.measure.clock import Deadline
from perfaudit.measure.environment import host_of
from perfaudit.measure.facts import Facts, from_json
from perfaudit.measure.judge import QUEUED
from perfaudit.measure.ledger import Variant
from perfaudit.measure.watch import Watch
from perfaudit.measurements import DOES_NOT_LEARN
from perfaudit.target.names import Target
from perfaudit.tune.profile import Profile
from perfaudit.tune.session import Session
from perfaudit.tune.tolerance import FEWEST_STEPS, curve_of, losses_command
from perfaudit.tune.workshop import Children, Json, as_user_error, error_of_own_code

STARTS_LEFT = 2.0  # for which there is time, where libraries are imported for them; else none would be left for a race
SLOW_START = 5.0  # seconds, from which on the import of libraries is told
PROFILING_STEPS = 4  # for the shares of its phases; what comes of it is no claim
PROFILING_SHARE = 0.05  # of the budget
STEPS_TO_COMPARE = 28  # two variants, each with 5 steps of warm-up, 3 to see how long they take, and a round of 6
ONE_THREAD_STEPS = 2  # to see whether a step waits for anything but cores
ONE_THREAD_SECONDS = 1.0  # a step may take; longer ones are not made for that
MOST_ASLEEP = 0.1  # of these steps, which is more than reading the clocks and the interpreter's own locks take
LOSSES_LOOKED_AT = 50  # steps, to say from which one on the losses are NaN
LOOKING_SECONDS = 2.0  # for these steps, at most


def build(target: Target, workshop: Children, watch: Watch, timeout: float, deadline: Deadline) -> Profile:
    """What is known of the user's training when it was built once, as it is, and made a step.

    deadline: of all that is measured. Libraries are imported for the next processes where it leaves time for that.

    Raises TargetError, or NothingMeasured once it trains, when that fails.
    """
    workshop.wait_for_torch()
    watch.stage(f"loading {target.file}")
    began = deadline.seconds_left()
    try:
        facts, block = workshop.ask(Variant("survey", "", {}), {"do": "block", "steps": 1})
    except ChildFailed as failure:
        raise as_user_error(target, failure, timeout) from failure
    left = deadline.seconds_left()
    opened = began - left
    if left >= STARTS_LEFT * opened:  # importing them takes a part of that
        if target.is_script and opened >= SLOW_START:
            watch.stage("importing its libraries, for the processes that follow")
        opened = max(0.0, opened - workshop.preload_libraries())
    wall = block.get("wall", 0.0)
    queued = block.get("queued", 0.0) / max(wall, 1e-9)
    return replace(first_profile(from_json(facts), wall), seconds_to_open=opened, queued=queued)


def first_profile(facts: Facts, seconds_per_step: float) -> Profile:
    """What a child said of the training that it built."""
    return Profile(Survey(facts), host_of(facts), seconds_per_step)


def needs_time(target: Target, profile: Profile, budget: float, left: float) -> None:
    """Raise NothingMeasured where the seconds `left` of the budget do not suffice to compare two variants once."""
    step = profile.seconds_per_step
    least = STEPS_TO_COMPARE * step
    if not left:
        why = "was over when it was loaded"
    elif least > left:
        why = f"is too small: a step takes {step:.1f} s, and comparing two settings {least:.0f} s"
    else:
        return
    raise NothingMeasured(f"{target}: the budget of {budget:.0f} s {why}; give it longer with --budget{_busy(profile)}")


def _busy(profile: Profile) -> str:
    """A sentence that others used the cores while the first step was made; "" where they did not."""
    if profile.queued < QUEUED:
        return ""
    share = f"{100 * profile.queued:.0f} % of the time of that step, all threads together"
    return (
        f". Other programs use the cores: threads waited for them for {share}; on a calm machine it may need far less"
    )


def time_phases(session: Session, profile: Profile, budget: float, tells_waiting: bool = True) -> Profile:
    """The profile with the phases of a few steps, for what knobs could gain at most; as few as budget seconds allow.

    tells_waiting: and whether steps wait for anything but cores, for races in which that can be left out.

    Raises NothingMeasured where the code cannot make them.
    """
    began = session.clock.now()
    steps = max(1, min(PROFILING_STEPS, int(PROFILING_SHARE * budget / max(profile.seconds_per_step, 1e-6))))
    commands: list[Json] = [{"do": "block", "steps": steps}]
    if tells_waiting and profile.seconds_per_step <= ONE_THREAD_SECONDS:
        commands.append({"do": "asleep", "steps": ONE_THREAD_STEPS})
    try:
        _, block, *more = session.questions.ask("profile", Variant("profile", "", {}), *commands)
    except ChildFailed as failure:
        raise error_of_own_code(session.target, failure) from failure
    per_step, device = block["wall"] / block["steps"], profile.survey.facts.device
    notes = list(profile.notes)
    if device.phases_by_waiting:
        notes.append(
            f"torch cannot read the clock of {device.type}, so the host waits after each part of a step to time it: "
            "the parts together take longer than a step"
        )
    if not block.get("finite", True):
        notes.append(_not_learning(session, per_step))
    phases = {name: seconds / block["steps"] for name, seconds in block.get("phases", {}).items()}
    return replace(
        profile,
        survey=replace(profile.survey, profile=phases, page_faults=_page_faults(block)),
        seconds_per_step=per_step,
        queued=block.get("queued", 0.0) / max(block["wall"], 1e-9),
        only_computes=_is_awake(more),
        seconds_to_open=profile.seconds_to_open or session.clock.now() - began,
        notes=tuple(notes),
    )


def _page_faults(block: Json) -> float | None:
    """Of a step of a block; None where it does not tell."""
    faults = block.get("each", {}).get("page_faults")
    return None if faults is None else faults / block["steps"]


def _is_awake(replies: list[Json]) -> bool:
    """Whether a reply to "asleep" says that steps wait for nothing but cores."""
    share = replies[0].get("share") if replies else None
    return share is not None and share <= MOST_ASLEEP


def _not_learning(session: Session, seconds_per_step: float) -> str:
    """That the losses are no numbers, and from which step on; asked only where they were seen to be none."""
    steps = max(FEWEST_STEPS, min(LOSSES_LOOKED_AT, int(LOOKING_SECONDS / max(seconds_per_step, 1e-6))))
    try:
        reply = session.questions.ask("losses", Variant("losses", "", {}), losses_command(steps))[1]
        losses = curve_of(reply).losses
    except ChildFailed:
        losses = ()
    step, loss = next(
        ((number, loss) for number, loss in enumerate(losses, start=1) if not math.isfinite(loss)), (0, math.nan)
    )
    since = f" from step {step}" if step > 1 else " from the first step" if step else ""
    what = "NaN" if math.isnan(loss) else "infinite"
    return f"the losses are {what}{since}: {DOES_NOT_LEARN}"
