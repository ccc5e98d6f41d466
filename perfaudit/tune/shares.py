"""How time is shared out among knobs, by what the profile of the step says they could gain, and memory among processes."""

from __future__ import annotations

from perfaudit.knobs import Survey, knob
from perfaudit.measure.generations import least_seconds
from perfaudit.measure.ledger import Ledger
from perfaudit.measure.stats import LOOKS
from perfaudit.tune.profile import Profile

# Of what is free. Libraries' scratch memory, which is not counted, took up to 33 % more on small models.
MEMORY_SHARE = 0.8


def weight(survey: Survey, name: str, skips_idle: bool) -> float:
    """How much of the time a knob should get: what it could gain, at least a tenth, and nothing where it cannot matter."""
    module = knob(name)
    if module.why_not(survey):
        return 0.0
    share = module.share(survey)
    return 0.0 if skips_idle and share < module.min_gain else max(0.1, min(1.0, share))


def in_order(survey: Survey, knobs: list[str], skips_idle: bool) -> list[str]:
    """Knobs by what they could gain at most; those that cannot matter here first, for they take no time."""
    weights = {name: weight(survey, name, skips_idle) for name in knobs}
    return sorted(knobs, key=lambda name: (weights[name] > 0, -weights[name]))


def seconds_for(profile: Profile, name: str, waiting: list[str], left: float, skips_idle: bool) -> float:
    """Seconds for a knob, of those that are left for it and the ones that wait behind it.

    A short time decides the first few knobs rather than none of many.
    """
    weights = [weight(profile.survey, each, skips_idle) for each in (name, *waiting)]
    fair = left * weights[0] / (sum(weights) or 1.0)
    return max(fair, min(left, 2 * seconds_to_decide(profile)) if fair else 0.0)


def seconds_to_decide(profile: Profile) -> float:
    """What two variants take to the first look at the data, in rounds of the shortest blocks."""
    step = profile.calibration.seconds_per_step if profile.calibration is not None else 0.0
    ledger = Ledger(seconds_to_open=profile.seconds_to_open, seconds_per_step=step)
    return LOOKS[0].generations * 2 * least_seconds(ledger)
