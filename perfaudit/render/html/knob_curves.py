"""Trials of a knob whose settings are numbers, as curves: workers and batch sizes, with the knee, and memory beside them."""

from __future__ import annotations

from collections.abc import Sequence

from perfaudit.measurements import Comparison, Trial, Winner
from perfaudit.render.html.charts import axis_from_zero, unit_of_bytes
from perfaudit.render.html.curves import Curves, Line, Point, curves
from perfaudit.render.html.markup import Markup, element, together
from perfaudit.render.run import milliseconds
from perfaudit.render.tables import settings_words

NUMBERS = {"num_workers": "workers of the loader", "batch_size": "samples of a batch"}  # settings that make a curve
MOST_LINES = 4
LEAST_PLACES = 2
HEADROOM = 0.16  # of the highest value, for what is said of places


def knob_curves(trials: Sequence[Trial], winners: Sequence[Winner], raced: Sequence[Comparison]) -> Markup:
    """The curves of one knob; nothing where its settings are no numbers, or too few were measured."""
    key = next((name for name in NUMBERS if any(isinstance(t.settings.get(name), int) for t in trials)), "")
    measured = [t for t in trials if t.status == "ok" and t.median is not None and isinstance(t.settings.get(key), int)]
    places = sorted(
        {_number(t, key) for t in trials if isinstance(t.settings.get(key), int) and (t.median or t.peak_memory_bytes)}
    )
    if not key or len({_number(t, key) for t in measured}) < LEAST_PLACES:
        return Markup()
    marks = _marks(key, places, winners, raced)
    inner = together(_times(measured, key, places, marks), _memory(trials, key, places, marks))
    return element("div", inner, class_="pair")


def _number(trial: Trial, key: str) -> int:
    value = trial.settings[key]
    assert isinstance(value, int)
    return value


def _marks(key: str, places: list[int], winners: Sequence[Winner], raced: Sequence[Comparison]) -> dict[int, str]:
    """Where the user's setting and the recommended one stand."""
    now = raced[0].baseline.get(key) if raced else None
    marks = {places.index(now): f"now: {now}"} if now in places and isinstance(now, int) else {}
    for winner in winners:
        best = winner.settings.get(key)
        if isinstance(best, int) and best in places and not winner.keeps_current:
            knee = "knee" if key == "batch_size" else "best"
            marks[places.index(best)] = f"{knee}: {best}"
    return marks


def _times(measured: Sequence[Trial], key: str, places: list[int], marks: dict[int, str]) -> Markup:
    """Throughput, or the time of a step, with quartiles; a line for each of the other settings."""
    per_second = measured[0].metric == "samples_per_second"
    names = _telling_apart(measured, key)
    grouped: dict[str, list[Point]] = {}
    for trial in sorted(measured, key=lambda t: _number(t, key)):
        assert trial.median is not None
        point = Point(places.index(_number(trial, key)), trial.median, trial.low, trial.high)
        grouped.setdefault(settings_words(trial.settings, names), []).append(point)
    groups = sorted(grouped.items(), key=lambda item: -len(item[1]))[:MOST_LINES]
    lines = [Line(name, tuple(points), number) for number, (name, points) in enumerate(groups)]
    most = max(end for _, points in groups for point in points for end in (point.value, point.high or 0.0))
    axis = axis_from_zero(most, (lambda value: f"{value:,.4g}") if per_second else milliseconds, HEADROOM)
    what = "Samples per second" if per_second else "Time of a step"
    few = " A point of one block has no quartiles." if any(t.n == 1 for t in measured) else ""
    caption = f"{what} by {NUMBERS[key]}: medians with quartiles.{few}"
    drawn = Curves([str(place) for place in places], lines, axis, f"{what} by {NUMBERS[key]}; the table has the numbers", marks,
                   key)  # fmt: skip
    return curves(drawn, caption)


def _telling_apart(measured: Sequence[Trial], key: str) -> list[str]:
    """The other settings that are not the same in all trials; what a loader without workers does not have is left out."""
    names = dict.fromkeys(name for trial in measured for name in trial.settings)
    values = {name: {str(t.settings[name]) for t in measured if t.settings.get(name) is not None} for name in names}
    only_some = {name for name in names if any(name not in t.settings for t in measured)}
    others = [name for name in names if name not in (key, "persistent_workers")]
    return [name for name in others if len(values[name]) > 1 or name in only_some]


def _memory(trials: Sequence[Trial], key: str, places: list[int], marks: dict[int, str]) -> Markup:
    peaks: dict[int, int] = {}
    for trial in trials:
        if isinstance(trial.settings.get(key), int) and trial.peak_memory_bytes:
            place = places.index(_number(trial, key))
            peaks[place] = max(peaks.get(place, 0), trial.peak_memory_bytes)
    if len(peaks) < LEAST_PLACES:
        return Markup()
    unit, name = unit_of_bytes(max(peaks.values()))
    points = tuple(Point(place, peak / unit) for place, peak in sorted(peaks.items()))
    axis = axis_from_zero(max(point.value for point in points), lambda value: f"{value:,.4g} {name}", HEADROOM)
    label = f"Peak memory of a step by {NUMBERS[key]}; the table has the numbers"
    drawn = Curves([str(place) for place in places], [Line("peak memory", points, 1)], axis, label, marks, key)
    return curves(drawn, f"Peak memory of a step by {NUMBERS[key]}.")
