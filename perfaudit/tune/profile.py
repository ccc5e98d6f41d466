"""What is known of the user's code before anything is raced against it. Each stage returns the next profile."""

from __future__ import annotations

from dataclasses import dataclass, replace

from perfaudit.knobs import Survey
from perfaudit.measurements import Calibration, Environment


@dataclass(frozen=True, slots=True)
class Profile:
    """What the first steps of the user's code have shown.

    seconds_per_step: of the second step ever made, and then of those whose phases were timed. queued: share of these steps that
    their threads waited for cores. only_computes: on the CPU in its own process, and waits for nothing but cores, see
    `measure.own_time`. seconds_to_open: one variant, with its warm-up. period: steps of a round, where such of different length
    take turns, see `measure.step_kinds`; 1 before a race has seen that. calibration: None before the user's code was raced
    against itself. notes: what the report is to say of it.
    """

    survey: Survey
    environment: Environment
    seconds_per_step: float = 0.0
    queued: float = 0.0
    only_computes: bool = False
    seconds_to_open: float = 0.0
    period: int = 1
    calibration: Calibration | None = None
    notes: tuple[str, ...] = ()

    def with_calibration(self, calibration: Calibration | None) -> Profile:
        """The same with this one, where none is known yet."""
        return replace(self, calibration=self.calibration or calibration)

    @property
    def calibrated_seconds_per_step(self) -> float:
        """Of the race against itself, the best figure there is; of the first steps before it."""
        return self.calibration.seconds_per_step if self.calibration is not None else self.seconds_per_step

    @property
    def computes_alone(self) -> bool:
        """On the CPU, in one thread, without loader workers: processor time is what a step takes on an idle machine."""
        facts = self.survey.facts
        return facts.device.type == "cpu" and not facts.loader.num_workers and facts.host.threads == 1
