"""Seconds of a step of one target by itself, for a file: advice, never a verdict."""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import partial

from perfaudit.errors import NothingMeasured
from perfaudit.gate.comparable import Seconds
from perfaudit.measure.child_subject import ChildSubject
from perfaudit.measure.facts import Facts
from perfaudit.measure.generations import FEWEST_STEPS
from perfaudit.measure.lab import ChildLab
from perfaudit.measure.ledger import Variant
from perfaudit.measure.runner import BLOCK_SECONDS, TrialEnded, TrialFailed
from perfaudit.measure.scratch import target_json
from perfaudit.measure.stats import quartiles
from perfaudit.measure.watch import Watch
from perfaudit.target.fresh_start import must_start_afresh
from perfaudit.target.names import Target

PROCESSES = 3  # two of identical code differ by up to 2.2 times what one tells
BLOCKS = 4  # of each process
LONGEST = 60.0  # seconds; then no further process is begun: a stored time is advice, and a busy machine starts slowly


class TooShort(NothingMeasured):
    """A training that comes to its end, without a fault, before a block of its steps is timed."""


def step_time(target: Target, device: str, timeout: float, watch: Watch) -> tuple[Seconds, Facts]:
    """How long a step takes now, and the facts of the training that was built. watch: told which process begins.

    Raises NothingMeasured for a target that does not build or run, of which TooShort says that it only ends too soon.
    """
    lab = ChildLab(target.to_json(), device, timeout=timeout, fresh=must_start_afresh(target.file))
    lab.target_of = partial(target_json, target)
    variant = Variant("now", "", {})
    seconds: list[float] = []
    started = time.monotonic()
    for number in range(1, PROCESSES + 1):
        if seconds and time.monotonic() - started > LONGEST:
            break
        watch.stage(f"timing {target.label}, process {number} of {PROCESSES}")
        opened = lab.open([variant])[variant.key]
        if isinstance(opened, TrialEnded) and target.is_script:  # while it was warmed up
            continue
        if isinstance(opened, TrialFailed):
            raise NothingMeasured(str(opened))
        try:
            seconds.extend(_blocks(opened))
        except TrialEnded:  # a short script; what was timed counts
            pass
        except TrialFailed as failure:
            raise NothingMeasured(str(failure)) from failure
        finally:
            opened.close()
    if not seconds:
        raise TooShort(f"{target.label} ends before a block of its steps is timed")
    return Seconds(*quartiles(seconds), len(seconds)), lab.facts[variant.key]


def _blocks(subject: ChildSubject) -> Iterator[float]:
    first = subject.block(FEWEST_STEPS).seconds_per_step
    steps = max(FEWEST_STEPS, min(2000, round(BLOCK_SECONDS / max(first, 1e-6))))
    for _ in range(BLOCKS):
        yield subject.block(steps).seconds_per_step
