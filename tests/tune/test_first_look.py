"""Settings of a knob raced in one training before the best one is raced in fresh processes: who is looked at, chosen, told."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fake_clock import FakeClock
from surveys import survey_of
from test_search import STEP, Kept, Shop, Sizes, search  # noqa: F401  # a fixture

from perfaudit.knobs import Prediction, all_knobs, knob
from perfaudit.measure.child import ChildFailed
from perfaudit.measure.child_subject import ChildSubject
from perfaudit.measure.clock import Deadline
from perfaudit.measure.entrants import CONTROL, FUTILE
from perfaudit.measure.ledger import Block, Generation, Pair, Variant
from perfaudit.measure.runner import TrialFailed
from perfaudit.measurements import Comparison
from perfaudit.report import Report
from perfaudit.tune.bout import Bout, variant_of
from perfaudit.tune.first_look import can_choose, is_clear, is_raced_in_place
from perfaudit.tune.outcome import TOO_SHORT, UNDECIDED, winner_of
from perfaudit.tune.race_results import Raced, Seen
from perfaudit.tune.race_so_far import Lineup
from perfaudit.tune.screening import Screen

Search = Callable[..., Report]


class InPlace(Shop):
    """A workshop with a training that may end with a size in place."""

    dies_with: int | None = None

    def crashes(self, on: dict[str, int]) -> None:
        if on["size"] == self.dies_with:
            raise ChildFailed("crash", "the process ended")


def told(report: Report) -> dict[int, Comparison]:
    return {int(str(c.candidate["size"])): c for c in report.comparisons}


def loader(sizes: list[int], **more: Any) -> Sizes:
    return Sizes("sizes", sizes, way="loader", min_gain=0.03, fixed_batch=False, **more)


def test_all_are_looked_at_in_one_training_and_the_best_alone_in_fresh_processes(
    search: Search,  # noqa: F811
    clock: FakeClock,
) -> None:
    shop = InPlace(clock, {0: 1.0, 1: 0.5, 2: 0.3, 3: 0.4, 4: 1.2})
    report = search(shop, loader([1, 2, 3, 4]))
    (winner,) = report.winners
    assert shop.looked == [[1, 2, 3, 4]]
    assert shop.opened == [[0, 2]] * 3  # no copies side by side before it
    assert (winner.settings, winner.keeps_current) == ({"size": 2}, False)
    assert winner.saving is not None
    assert (winner.saving.basis, winner.saving.low) == ("measured", pytest.approx(0.7))
    compared = told(report)
    assert {size: (c.basis, c.verdict, c.given_up) for size, c in compared.items()} == {
        2: ("measured", "faster", False),
        1: ("screened", "undecided", True), 3: ("screened", "undecided", True), 4: ("screened", "undecided", True),
    }  # fmt: skip
    assert {size: (round(c.ratio, 6), c.way) for size, c in compared.items() if c.basis == "screened"} == {
        1: (0.5, "loader"), 3: (0.4, "loader"), 4: (1.2, "loader"),
    }  # fmt: skip
    rows = {int(str(trial.settings["size"])): (trial.status, trial.n) for trial in report.trials}
    assert {size: rows[size] for size in (1, 3, 4)} == {1: ("ok", 4), 3: ("ok", 4), 4: ("ok", 2)}  # far from it
    assert rows[0] == rows[2] == ("ok", 6)  # three generations of a round
    medians = {int(str(trial.settings["size"])): trial.median for trial in report.trials}
    assert medians == pytest.approx({0: STEP, 1: 0.5 * STEP, 2: 0.3 * STEP, 3: 0.4 * STEP, 4: 1.2 * STEP})
    control = report.calibration
    assert control is not None
    assert (control.ratio, control.low) == (pytest.approx(1.0), pytest.approx(1.0))


def test_of_equally_fast_settings_the_smallest_is_raced(search: Search, clock: FakeClock) -> None:  # noqa: F811
    shop = InPlace(clock, {0: 1.0, 1: 0.305, 2: 0.3, 3: 0.6})
    assert search(shop, loader([3, 2, 1])).winners[0].settings == {"size": 1}
    assert shop.opened == [[0, 1]] * 3


def test_where_nothing_looks_as_if_it_gained_enough_nothing_is_raced(search: Search, clock: FakeClock) -> None:  # noqa: F811
    shop = InPlace(clock, {0: 1.0, 1: 0.99, 2: 1.3})
    report = search(shop, loader([1, 2]))
    assert shop.opened == []
    assert report.winners[0].keeps_current
    assert (
        report.winners[0].words
        == "keep what you have: size=1 looked no faster, size=2 looked 30 % slower and was not measured further"
    )
    assert not report.notes


@pytest.mark.parametrize(("gain", "generations", "blocks"), [(0.5, 3, 2), (0.9, 4, 6)])
def test_what_is_clear_is_shown_again_in_a_short_race(
    search: Search,  # noqa: F811
    clock: FakeClock,
    gain: float,
    generations: int,
    blocks: int,
) -> None:
    shop = InPlace(clock, {0: 1.0, 1: gain})
    report = search(shop, loader([1]))
    assert (report.comparisons[0].basis, report.comparisons[0].verdict) == ("measured", "faster")
    assert len(shop.opened) == generations
    assert report.trials[0].n == blocks * generations


@pytest.mark.parametrize(("seconds", "generations", "blocks"), [(0.5, 3, 2), (0.9, 4, 6)])
def test_what_is_predicted_is_raced_in_fresh_processes_without_a_look(
    search: Search,  # noqa: F811
    clock: FakeClock,
    monkeypatch: pytest.MonkeyPatch,
    seconds: float,
    generations: int,
    blocks: int,
) -> None:
    monkeypatch.setattr(
        Sizes, "prediction", lambda self, bench, found: Prediction(found[1], seconds * STEP, STEP), raising=False
    )
    shop = InPlace(clock, {0: 1.0, 1: 0.7, 2: seconds, 3: 0.6})
    report = search(shop, loader([1, 2, 3]))
    assert (shop.looked, shop.opened) == ([], [[0, 2]] * generations)
    (comparison,) = report.comparisons
    assert (comparison.basis, comparison.verdict) == ("measured", "faster")
    assert [(trial.settings["size"], trial.n) for trial in report.trials] == [
        (0, blocks * generations), (2, blocks * generations),
    ]  # fmt: skip
    assert report.winners[0].settings == {"size": 2}


class Failing(InPlace):
    """A workshop in whose fresh processes a size fails."""

    fails_with: int | None = None

    def open(self, variants: Sequence[Variant]) -> dict[str, ChildSubject | TrialFailed]:
        failed = {v.key: TrialFailed("it ended") for v in variants if v.settings.get("size") == self.fails_with}
        return {**super().open(variants), **failed}


@pytest.mark.parametrize(("seconds", "fails_with"), [(1.1, None), (0.5, 2)])
def test_where_the_predicted_setting_fails_or_is_not_faster_the_others_are_raced(
    search: Search,  # noqa: F811
    clock: FakeClock,
    monkeypatch: pytest.MonkeyPatch,
    seconds: float,
    fails_with: int | None,
) -> None:
    monkeypatch.setattr(
        Sizes, "prediction", lambda self, bench, found: Prediction(found[1], 0.5 * STEP, STEP), raising=False
    )
    shop = Failing(clock, {0: 1.0, 1: 0.7, 2: seconds, 3: 0.6})
    shop.fails_with = fails_with
    report = search(shop, loader([1, 2, 3]))
    assert shop.looked == [[1, 3]]
    assert sorted(shop.opened[-1]) == [0, 3]
    assert report.winners[0].settings == {"size": 3}
    assert told(report)[3].basis == "measured"
    assert report.calibration is not None
    rows = {int(str(trial.settings["size"])): trial.status for trial in report.trials}
    assert rows == {0: "ok", 1: "ok", 2: "failed" if fails_with else "ok", 3: "ok"}
    assert (2 in told(report)) == (fails_with is None)
    assert fails_with or (told(report)[2].basis, told(report)[2].given_up) == ("measured", True)


def test_where_nothing_but_the_predicted_setting_could_be_raced_its_race_decides(
    search: Search,  # noqa: F811
    clock: FakeClock,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        Sizes, "prediction", lambda self, bench, found: Prediction(found[0], 0.5 * STEP, STEP), raising=False
    )
    shop = InPlace(clock, {0: 1.0, 1: 1.1})
    report = search(shop, loader([1]))
    assert (shop.looked, told(report)[1].given_up) == ([], True)
    assert report.winners[0].words == "keep what you have: size=1 looked 10 % slower and was not measured further"


def test_where_time_ends_with_the_predicted_setting_no_other_is_raced(
    search: Search,  # noqa: F811
    clock: FakeClock,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        Sizes, "prediction", lambda self, bench, found: Prediction(found[1], 0.5 * STEP, STEP), raising=False
    )
    shop = Failing(clock, {0: 1.0, 1: 0.7, 2: 0.9, 3: 0.6})
    shop.opening = 2.0
    report = search(shop, loader([1, 2, 3]), budget=12.0)
    assert shop.looked == []
    assert report.winners[0].keeps_current


def test_what_stands_in_no_training_that_runs_is_raced_beside_the_best(search: Search, clock: FakeClock) -> None:  # noqa: F811
    shop = InPlace(clock, {0: 1.0, 1: 0.5, 2: 0.4})
    shop.refused = (2,)
    assert search(shop, loader([1, 2])).winners[0].settings == {"size": 2}
    assert sorted(shop.opened[0]) == [0, 1, 2]


def test_where_none_stands_in_it_they_are_looked_at_in_fresh_processes(search: Search, clock: FakeClock) -> None:  # noqa: F811
    shop = InPlace(clock, {0: 1.0, 1: 0.5, 2: 0.4, 3: 0.6, 4: 0.7})
    shop.refused = (1, 2, 3, 4)
    report = search(shop, loader([1, 2, 3, 4]))
    assert report.winners[0].settings == {"size": 2}
    assert shop.opened[0] == [0, 1, 2, 3, 4]
    assert {c.basis for c in report.comparisons} == {"measured"}


def test_a_training_that_ends_with_a_setting_in_place_is_built_again_without_it(
    search: Search,  # noqa: F811
    clock: FakeClock,
) -> None:
    shop = InPlace(clock, {0: 1.0, 1: 0.5, 2: 0.4})
    shop.dies_with = 2
    report = search(shop, loader([1, 2]))
    assert shop.looked == [[1, 2], [1]]
    assert told(report)[1].basis == "measured"


@pytest.mark.parametrize("dies_at", [30, 60])
def test_an_interrupted_look_tells_what_was_raced(search: Search, clock: FakeClock, dies_at: int) -> None:  # noqa: F811
    shop = InPlace(clock, {0: 1.0, 1: 0.9, 2: 0.89}, dies_at=dies_at)
    report = search(shop, loader([1, 2]))
    assert report.interrupted
    assert report.winners[0].keeps_current
    assert report.winners[0].words == "keep what you have: interrupted before anything was decided"


def test_a_budget_that_ends_with_the_look_tells_what_looks_faster(search: Search, clock: FakeClock) -> None:  # noqa: F811
    shop = InPlace(clock, {0: 1.0, 1: 0.5})
    shop.opening = 2.0
    report = search(shop, loader([1]), budget=10.0)
    assert [c.basis for c in report.comparisons] == ["screened"]
    assert report.winners[0].keeps_current
    assert report.winners[0].words == (
        "keep what you have: size=1 looks faster (0.500 [0.500, 0.500], screened); the budget ended before it was raced in fresh "
        "processes: give it longer with --budget"
    )
    assert report.notes == ()  # that says it


def test_a_budget_that_ends_with_the_race_just_begun_tells_what_looks_faster() -> None:
    bout = transfer_bout()
    (other,) = bout.finalists = [each for each in bout.variants.values() if each is not bout.base]
    bout.look = Raced({other.key: Seen(8, "", (0.872, 0.801, 0.949))}, log_ratios={other.key: [-0.137] * 8})
    block = Block(10, 1.0, 1.0, 80)
    one_round = {bout.base.key: (block, block), other.key: (block, block)}
    bout.ledger.generations.append(Generation("transfer race", [one_round]))
    assert winner_of(bout).words == (
        f"{KEEP}: pin_memory=True looks faster (0.872 [0.801, 0.949], screened); the budget ended before its race in fresh "
        "processes had an interval: give it longer with --budget"
    )


KEEP = "keep what you have"


@pytest.mark.parametrize(
    ("seen", "words"),
    [
        (
            Seen(64, "decided", (0.998, 0.993, 1.003)),
            "keep what you have: nothing else was shown to gain 1 % or more; effects under 0.5 % could not have been seen",
        ),
        (Seen(8, "", (0.998, 0.993, 1.003)),
         "keep what you have: nothing else was shown to gain 1 % or more; effects under 0.5 % could not have been seen"),
        (Seen(8, "", (0.97, 0.95, 1.01)), UNDECIDED),  # it would be raced in fresh processes
        (
            Seen(8, "", (0.872, 0.801, 0.949)),  # as the table says, too
            f"{KEEP}: pin_memory=True looks faster (0.872 [0.801, 0.949], screened); the budget ended before it was raced in "
            "fresh processes: give it longer with --budget",
        ),
        (Seen(2, "", None), UNDECIDED),
        (Seen(0, "22 times as slow in its first steps"), f"{KEEP}: pin_memory=True: 22 times as slow in its first steps"),
        (Seen(2, "with it, a step raises E"), f"{KEEP}: pin_memory=True: with it, a step raises E"),
    ],
)  # fmt: skip
def test_the_budget_is_too_small_only_where_more_time_would_tell_more(seen: Seen, words: str) -> None:
    bout = transfer_bout()
    (key,) = bout.variants.keys() - {bout.base.key}
    bout.look = Raced({key: seen, CONTROL: Seen(8, "", (1.0, 0.99, 1.01))}, log_ratios={key: [-0.002] * seen.quads})
    assert winner_of(bout).words == words


@pytest.mark.parametrize(
    ("seen", "ends", "words"),
    [
        (Seen(2, "", None), 3, TOO_SHORT),
        (Seen(2, "", None), 2, UNDECIDED),  # a longer race may decide it as well
        # It would be raced in fresh processes, for which time is wanting.
        (Seen(8, "", (0.97, 0.95, 1.01)), 3, UNDECIDED),
        (
            Seen(8, "", (0.95, 0.93, 0.97)), 3,
            f"{KEEP}: pin_memory=True looks faster (0.950 [0.930, 0.970], screened); the budget ended before it was raced in "
            "fresh processes: give it longer with --budget",
        ),
    ],
)  # fmt: skip
def test_a_training_that_ended_again_and_again_is_too_short(seen: Seen, ends: int, words: str) -> None:
    bout = transfer_bout()
    (key,) = bout.variants.keys() - {bout.base.key}
    entrants = {key: seen, CONTROL: Seen(8, "", (1.0, 0.99, 1.01))}
    ended = {"own_end": "the script ended after 90 updates of its optimizers", "own_ends": ends, "updates_to_end": 90}
    bout.look = Raced(entrants, log_ratios={key: [-0.002] * seen.quads}, **ended)  # type: ignore[arg-type]
    assert winner_of(bout).words == words


@pytest.mark.parametrize(("generations", "is_over"), [(4, False), (11, False), (12, True)])
def test_a_race_that_had_its_last_look_is_said_to_be_over(generations: int, is_over: bool) -> None:
    bout = transfer_bout()
    (other,) = (variant for variant in bout.variants.values() if variant is not bout.base)
    bout.finalists = [other]

    def pair(seconds: float) -> Pair:
        block = Block(10, 10 * seconds, 10 * seconds, 80)
        return block, block

    for number in range(generations):
        rounds = [{bout.base.key: pair(0.1), other.key: pair(0.101 if number % 2 else 0.097)}]
        bout.ledger.generations.append(Generation("transfer race", rounds))
    words = winner_of(bout).words
    assert words.startswith("keep what you have: nothing else was shown to gain 1 % or more; effects under ")
    assert words.endswith("seen; this race made all its rounds, so a longer budget shows no more") is is_over


def test_where_every_other_setting_failed_the_reasons_are_told() -> None:
    bout = transfer_bout()
    (other,) = (variant for variant in bout.variants.values() if variant is not bout.base)
    bout.ledger.failures[other.key] = "not measured further: 7 times as slow in its first steps\n  more of it"
    said = f"{KEEP}: pin_memory=True: not measured further: 7 times as slow in its first steps"
    assert winner_of(bout).words == said


def transfer_bout() -> Bout:
    """A search of which only the settings are known: yours and another one."""
    survey = survey_of()
    base = variant_of("transfer", {"pin_memory": False, "non_blocking": False})
    other = variant_of("transfer", {"pin_memory": True, "non_blocking": False})
    return Bout("transfer", survey, base, variants={each.key: each for each in (base, other)})


def test_a_resumed_search_asks_for_no_race_that_was_decided(search: Search, clock: FakeClock) -> None:  # noqa: F811
    from perfaudit.tune.recording import begin

    speeds = {0: 1.0, 1: 0.5, 2: 0.3}
    whole = InPlace(clock, speeds)
    search(whole, loader([1, 2]))
    killed = search(InPlace(clock, speeds, dies_at=whole.blocks - 4), loader([1, 2]), begin=begin(Path(), False))
    assert killed.interrupted
    again = InPlace(clock, speeds)
    resumed = search(again, loader([1, 2]), begin=begin(Path(), True))
    assert again.looked == []
    assert resumed.winners[0].settings == {"size": 2}
    assert told(resumed)[1].basis == "screened"


def test_knobs_whose_settings_are_raced_in_one_training() -> None:
    """Others have a reference, a piece of the step that is timed by itself, or need a training that is built with the setting."""
    found = {name for name in all_knobs() if is_raced_in_place(knob(name))}
    assert found == {"batch_size", "dataloader", "memory_format", "precision", "threads", "transfer"}


@pytest.mark.parametrize(
    ("quads", "chooses"),
    [
        ({"2 workers": [-0.7, -0.71, -0.7], "1 worker": [-0.4, -0.41, -0.4]}, True),
        ({"2 workers": [-0.7, -0.71], "1 worker": [-0.4, -0.41, -0.4]}, False),  # one has too few
        ({"2 workers": [-0.7, -0.71, -0.7], "1 worker": [-0.4, -1.2, -0.3]}, False),  # which may be faster
        (
            {"2 workers": [-2.3, -2.32, -2.37], "3 workers": [-2.35, -2.28, -2.3]},
            True,
        ),  # whichever it is, little is lost
        ({"2 workers": [-2.3, -2.7, -1.9], "3 workers": [-2.4, -2.8, -2.0]}, False),  # as near, and much may be lost
        ({"2 workers": [-0.1, -0.11, -0.1]}, False),  # an interval is wanted for so little
        ({}, False),
    ],
)
def test_a_look_at_large_gains_ends_when_it_can_choose(quads: dict[str, list[float]], chooses: bool) -> None:
    raced = Raced({key: Seen(len(logs), "") for key, logs in quads.items()}, log_ratios=quads)
    raced.entrants[CONTROL] = Seen(3, "")
    assert can_choose(raced) is chooses


UNEVEN = {"2 workers": [-1.1, -2.0, -1.5], "3 workers": [-1.9, -1.0, -1.4]}  # beside steps that wait for uneven data


@pytest.mark.parametrize(
    ("seconds", "chooses"),
    [
        ({"2 workers": (0.020, 0.021, 0.020), "3 workers": (0.016, 0.016, 0.017)}, True),
        (
            {"2 workers": (0.020, 0.021, 0.020), "3 workers": (0.016, 0.027, 0.017)},
            False,
        ),  # which is faster is not known
        ({"2 workers": (0.020, 0.050, 0.010), "3 workers": (0.016, 0.056, 0.009)}, False),
        ({"2 workers": (0.020,), "3 workers": (0.016, 0.016, 0.017)}, False),  # one was raced for less long
        ({}, False),
    ],
)
def test_rivals_are_told_apart_by_their_own_steps_where_those_of_the_users_code_are_uneven(
    seconds: dict[str, tuple[float, ...]], chooses: bool
) -> None:
    raced = Raced({key: Seen(3, "", None, seconds.get(key, ())) for key in UNEVEN}, log_ratios=UNEVEN)
    assert can_choose(raced) is chooses


@pytest.mark.parametrize(
    ("logs", "seconds", "base", "chooses"),
    [
        (
            [-1.5, 0.1, -1.4],
            (0.020, 0.021, 0.020),
            0.075,
            True,
        ),  # a short step of the user's code lay beside the second
        ([-1.5, 0.1, -1.4], (0.020, 0.021, 0.020), 0.024, False),
        ([-1.5, 0.1, -1.4], (0.020, 0.080, 0.010), 0.075, False),  # its own steps are as uneven
        ([-1.5, 0.1, -1.4], (), 0.075, False),
        ([-1.5, 0.1, -1.4], (0.020, 0.021, 0.020), None, False),
        ([-0.5, -0.5, -0.5], (0.020, 0.080, 0.010), 0.012, True),
    ],
)
def test_a_large_gain_is_seen_beside_uneven_steps_of_the_users_code(
    logs: list[float], seconds: tuple[float, ...], base: float | None, chooses: bool
) -> None:
    raced = Raced({"2 workers": Seen(3, "", None, seconds)}, log_ratios={"2 workers": logs})
    raced.base = {"steps": 4, "wall": 4 * base, "counted": 4 * base} if base else {}
    assert can_choose(raced) is chooses
    look = Bout("sizes", survey_of(), variant_of("threads", {"threads": 1}), look=raced)
    assert is_clear(look, replace(look.base, key="2 workers")) is chooses
    raced.entrants["2 workers"] = Seen(3, "", (0.5, 0.2, 0.9), seconds)  # an interval that is too wide to show it
    assert is_clear(look, replace(look.base, key="2 workers")) is chooses
    raced.entrants["2 workers"] = Seen(3, "", (0.5, 0.4, 0.85), seconds)
    assert is_clear(look, replace(look.base, key="2 workers"))


def test_of_rivals_beside_uneven_steps_the_fastest_is_raced(
    search: Search,  # noqa: F811
    clock: FakeClock,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def race(self: Screen, label: str, lineup: Lineup, deadline: Deadline, raced: Raced, **more: Any) -> None:
        own = ((0.020, 0.021, 0.020), (0.016, 0.016, 0.017))
        for key, logs, seconds in zip(lineup.names, UNEVEN.values(), own, strict=True):
            raced.entrants[key], raced.log_ratios[key] = Seen(3, "", None, seconds), logs

    monkeypatch.setattr(Screen, "race", race)
    shop = InPlace(clock, {0: 1.0, 1: 0.25, 2: 0.20})
    search(shop, loader([1, 2]))
    assert shop.opened == [[0, 2]] * 3


def test_a_setting_that_left_is_not_waited_for() -> None:
    raced = Raced({"2 workers": Seen(3, ""), "1 worker": Seen(1, FUTILE)})
    raced.log_ratios = {"2 workers": [-0.7, -0.71, -0.7], "1 worker": [0.3]}
    assert can_choose(raced)
