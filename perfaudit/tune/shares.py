"""How time is shared out among knobs, by what the profile of the step says they could gain, and memory among processes."""

from __future__ import annotations

from perfaudit.knobs import knob
from perfaudit.measure.ledger import Ledger
from perfaudit.measure.runner import least_seconds
from perfaudit.measure.stats import LOOKS
from perfaudit.tune.tuning import Tuning

MEMORY_SHARE = (
    0.8  # of what is free; libraries' scratch memory, which is not counted, took up to 33 % more on small models
)


def weight(tuning: Tuning, name: str) -> float:
    """How much of the time a knob should get: what it could gain, at least a tenth, and nothing where it cannot matter."""
    module = knob(name)
    if module.not_applicable(tuning.survey):
        return 0.0
    share = module.share(tuning.survey)
    return 0.0 if tuning.skips_idle and share < module.min_gain else max(0.1, min(1.0, share))


def in_order(tuning: Tuning, knobs: list[str]) -> list[str]:
    """Knobs by what they could gain at most; those that cannot matter here first, for they take no time."""
    return sorted(knobs, key=lambda name: (weight(tuning, name) > 0, -weight(tuning, name)))


def seconds_for(tuning: Tuning, name: str, waiting: list[str], left: float) -> float:
    """Seconds for a knob, of those that are left for it and the ones that wait behind it.

    A short time decides the first few knobs rather than none of many.
    """
    mine = weight(tuning, name)
    fair = left * mine / (sum(weight(tuning, n) for n in [name, *waiting]) or 1.0)
    return max(fair, min(left, 2 * seconds_to_decide(tuning)) if fair else 0.0)


def seconds_to_decide(tuning: Tuning) -> float:
    """What two variants take to the first look at the data, in rounds of the shortest blocks."""
    step = tuning.calibration.seconds_per_step if tuning.calibration is not None else 0.0
    ledger = Ledger(seconds_to_open=tuning.seconds_to_open, seconds_per_step=step)
    return LOOKS[0].generations * 2 * least_seconds(ledger)
