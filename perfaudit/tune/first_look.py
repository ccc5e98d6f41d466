"""A first look at the settings of a knob: raced in one training, in turn with the user's code. It chooses, and judges nothing."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path

from perfaudit.knobs import Knob, knob
from perfaudit.measure.child import ChildFailed
from perfaudit.measure.clock import Deadline
from perfaudit.measure.entrants import CONTROL, FUTILE
from perfaudit.measure.ledger import Variant
from perfaudit.measurements import Settings
from perfaudit.static.source import read_text
from perfaudit.tune.bout import Bout, key_of, patch_for
from perfaudit.tune.profile import Profile
from perfaudit.tune.race_results import Raced
from perfaudit.tune.race_so_far import Lineup
from perfaudit.tune.screening import Screen, calibration_of
from perfaudit.tune.session import Session
from perfaudit.tune.short_names import short_settings
from perfaudit.tune.workshop import Json

AS_GOOD = 1.03  # time per sample against the best; a smaller setting this close is taken instead
CLEARLY = 0.85  # of the user's time, at most, by the look's interval: then a short race in fresh processes shows it too
# A look ends before its first interval where one setting is faster in every quad, and what choosing now is expected to lose, by
# the scatter of so many quads each, is at most this share of the time.
CHOOSING_QUADS, CHOOSING_LOSS = 3, 0.02
LOOK_STEPS = 30  # of the user's code, for each that is raced: time enough for about eight quads
LOOK_SECONDS = 5.0  # at least, for starting workers


def is_raced_in_place(module: Knob) -> bool:
    """Whether settings of a knob can be compared in one training: whole steps, with the user's code as it is as the base."""
    in_place = module.way == "loader" or (module.way == "setting" and not module.base_is_applied)
    return in_place and not module.phases and module.reference is None


def look(
    session: Session, profile: Profile, bout: Bout, tried: Sequence[Variant], deadline: Deadline
) -> list[Variant] | None:
    """Race these settings; what is to be raced as patched source after that, None where none could be raced here.

    That is the smallest setting that looks as good as the best one, if one looks as if it gained what it must, and what could be
    put into no training that runs. deadline: of the time that it may take at most; where all is seen before, it ends. The look is
    in the bout, with a note on why it ended early.
    """
    raced, module = Raced(), knob(bout.name)
    bout.look = raced
    entrants = [_entrant(session, bout, variant) for variant in tried]
    names = {
        variant.key: short_settings(variant.settings, [other.settings for other in tried if other is not variant])
        for variant in tried
    }
    seconds = max(LOOK_SECONDS, LOOK_STEPS * (len(tried) + 1) * profile.seconds_per_step)
    deadline = session.deadline(min(seconds, deadline.seconds_left()))
    with Screen(session) as screen:
        try:
            lineup = Lineup(entrants, names, least=module.min_gain, rivals=True)
            screen.race(bout.name, lineup, deadline, raced, enough=lambda: can_choose(raced))
        except ChildFailed as failure:
            raced.notes.append(f"{bout.name}: the training in which settings are raced ended early: {failure}")
    bout.calibration = calibration_of(raced, profile)
    if not any(seen.quads for seen in raced.entrants.values()):
        return None
    logs = _logs_of_rivals(raced, [key for key in bout.variants if _is_promising(raced, key, module.min_gain)])
    times = {key: math.exp(statistics.median(values)) for key, values in logs.items()}
    best = smallest_as_good(times, lambda key: module.size(bout.variants[key].settings))
    others = [variant for key, variant in bout.variants.items() if key in raced.refused]
    return ([bout.variants[best]] if best is not None else []) + others


def smallest_as_good(times: Mapping[str, float], size: Callable[[str], int]) -> str | None:
    """The key of the smallest that takes about as little time as the best one; None for none. times: by key, in any unit."""
    close = [key for key, time in times.items() if time <= min(times.values()) * AS_GOOD]
    return min(close, key=size) if len(close) > 1 else next(iter(close), None)


def is_clear(bout: Bout, variant: Variant) -> bool:
    """Whether the look, or a prediction, has shown so large a gain that less measuring is enough to show it again."""
    if bout.prediction is not None:
        return bout.prediction.seconds <= CLEARLY * bout.prediction.seconds_now
    if bout.look is None:
        return False
    found = bout.look.interval(variant.key)
    return (found is not None and found[2] <= CLEARLY) or _is_always_faster(bout.look, variant.key)


def can_choose(raced: Raced) -> bool:
    """Whether more quads would hardly change which setting is taken: it is only chosen here, and judged in fresh processes."""
    still = [key for key, seen in raced.entrants.items() if key != CONTROL and not seen.left]
    if not still or any(len(raced.log_ratios[key]) < CHOOSING_QUADS for key in still):
        return False
    logs = _logs_of_rivals(raced, still)
    best = min(still, key=lambda key: statistics.median(logs[key]))
    return _is_always_faster(raced, best) and all(
        _loss_expected(logs[best], logs[other]) <= CHOOSING_LOSS for other in still if other != best
    )


def _logs_of_rivals(raced: Raced, keys: Collection[str]) -> dict[str, list[float]]:
    """Logarithms of the time of a step with each of these, in each of its quads, to tell the fastest.

    They are those of ratios to the steps of the user's code beside it, in which a change of the machine cancels, or of the time
    itself where that scatters less: steps that wait for uneven data are uneven, and of the rivals their own scatter says nothing.
    Times of rivals tell nothing where one has left: the machine may have been another one since.
    """
    ratios = {key: raced.log_ratios[key] for key in keys}
    own = {key: [math.log(seconds) for seconds in raced.entrants[key].seconds] for key in keys}
    counts = [len(logs) for logs in (*own.values(), *ratios.values())]
    if not counts or min(counts) < 2 or max(counts) - min(counts) > 1:
        return ratios
    return min(ratios, own, key=lambda logs: sum(map(statistics.variance, logs.values())))


def _loss_expected(mine: Sequence[float], other: Sequence[float]) -> float:
    """The mean share of the time that is lost by taking one setting where the other may be faster.

    That is the mean of max(0, d) for a difference d of logarithms that is normal, with the mean and the standard error of what
    was seen: error * density(z) + mean * probability(z), z = mean / error (the loss of Raiffa & Schlaifer, 1961, chapter 5).
    """
    mean = statistics.fmean(mine) - statistics.fmean(other)
    error = math.sqrt(sum(statistics.variance(logs) / len(logs) for logs in (mine, other)))
    if not error:
        return max(0.0, mean)
    z, normal = mean / error, statistics.NormalDist()
    return error * normal.pdf(z) + mean * normal.cdf(z)


def _is_always_faster(raced: Raced, key: str) -> bool:
    """Whether a setting was clearly faster in each of its quads: than the user's steps beside it, or than all of these.

    Than all of them where its own steps scatter less: of steps that wait for uneven data, the two beside a quad may be short.
    """
    logs, base = raced.log_ratios.get(key, []), raced.seconds_per_step
    if len(logs) < CHOOSING_QUADS:
        return False
    own = [math.log(seconds / base) for seconds in raced.entrants[key].seconds] if base else []
    told = min((logs, own), key=statistics.variance) if len(own) == len(logs) else logs
    return max(told) <= math.log(CLEARLY)


def known_seconds(bout: Bout) -> dict[str, float]:
    """Seconds per step by key, as the look has shown them, or as they are predicted; {} without either."""
    if (predicted := bout.prediction) is not None:
        return {bout.base.key: predicted.seconds_now, key_of(bout.name, predicted.settings): predicted.seconds}
    entrants = bout.look.entrants if bout.look is not None else {}
    seen = {**{key: entrants.get(key) for key in bout.variants}, bout.base.key: entrants.get(CONTROL)}
    return {key: statistics.median(item.seconds) for key, item in seen.items() if item is not None and item.seconds}


def pair_of(name: str, settings: Settings) -> list[object]:
    """A setting as the child takes it: the knob as module:attribute, and the setting."""
    return [knob(name).found_at, settings]


def _entrant(session: Session, bout: Bout, variant: Variant) -> Json:
    module, patched = knob(bout.name), patch_for(session, bout, variant)
    pair, text = pair_of(module.name, variant.settings), patched[0].overlay if patched is not None else {}
    if text and module.way_on(bout.survey, variant.settings) == "code":
        code = {path: [read_text(Path(path))[0], after] for path, after in text.items()}
        return {"key": variant.key, "code": code, "settings": [], "whole": text, "way": "in place"}
    entrant = {"key": variant.key, "code": {}, "settings": [pair], "whole": text, "way": "in place"}
    return entrant | ({"loader": pair} if module.way == "loader" else {})


def _is_promising(raced: Raced, key: str, least: float) -> bool:
    """Whether a setting may gain what it must, as far as it was raced.

    One that was beaten by another may still be as good as that for all practical purposes, and smaller.
    """
    seen, logs = raced.entrants.get(key), raced.log_ratios.get(key, [])
    if seen is None or not logs or seen.left == FUTILE:
        return False
    return seen.interval is None or 1 - seen.interval[1] >= least
