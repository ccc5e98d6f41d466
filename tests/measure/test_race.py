"""A race in one training: who runs in which step, when a candidate leaves, what comes of failures and of the end of time."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest

from perfaudit.measure.entrants import (
    BASE,
    BEATEN,
    CONTROL,
    DECIDED,
    FAILED,
    FUTILE,
    FUTILE_QUADS,
    NEAR,
    UNDECIDED,
    Entrant,
    Terms,
)
from perfaudit.measure.pace import PLAIN, Pace
from perfaudit.measure.preparation import DIVERGES, words_of_a_step
from perfaudit.measure.quads import (
    BATCHES,
    FEWEST,
    LOOKS,
    PAIR_LOOKS,
    USUAL_LOOK,
    Interval,
    interval_of_quads,
    is_look,
)
from perfaudit.measure.race import Race, Turn
from perfaudit.measure.stats import Look

Seconds = Callable[[Turn, int], float]


def race_of(
    candidates: list[str],
    least: float | None,
    seed: int,
    pace: Pace = PLAIN,
    paces: Mapping[str, Pace] | None = None,
    **terms: Any,
) -> Race:
    keys = (terms.get("base", BASE), CONTROL, *candidates)
    return Race(candidates, Terms(least, seed, **terms), {**dict.fromkeys(keys, pace), **(paces or {})})


def run(race: Race, seconds: Seconds, most: int = 100_000) -> list[Turn]:
    """Drive a race as a training would; the turns that it asked for."""
    turns = race.turns()
    made: list[Turn] = []
    try:
        turn = next(turns)
        while len(made) < most:
            made.append(turn)
            turn = turns.send(seconds(turn, len(made)))
    except StopIteration:
        pass
    return made


def speeds(noise: float = 0.0, drift: float = 0.0, **factors: float) -> Seconds:
    rng = random.Random(3)

    def seconds(turn: Turn, at: int) -> float:
        return factors.get(turn.key, 1.0) * math.exp(rng.gauss(0, noise)) * (1 + drift * at)

    return seconds


def test_quads_share_the_bases_blocks_between_them() -> None:
    """Base, candidate, candidate, base: the only order, for the last block of a quad is the first of the next."""
    race = race_of(["a", "b"], least=0.01, seed=1, pace=Pace(warm_up=0))
    made = run(race, speeds(a=0.8, b=0.7))
    keys = [turn.key for turn in made]
    assert all(turn.is_timed for turn in made)
    assert keys[0] == BASE
    quads = [tuple(keys[at : at + 3]) for at in range(1, len(keys), 3)]
    assert all(first == second != BASE and third == BASE for first, second, third in quads)
    found = {key: len(entrant.log_ratios) for key, entrant in race.entrants.items()}
    assert Counter(first for first, _, _ in quads) == found == dict.fromkeys(("a", "b", "control"), USUAL_LOOK)
    assert keys.count(BASE) == sum(found.values()) + 1


def test_candidates_take_turns_in_random_order() -> None:
    race = race_of(["a", "b"], least=0.01, seed=1, pace=Pace(warm_up=0))
    keys = [turn.key for turn in run(race, speeds(a=0.8, b=0.7))]
    rounds = [tuple(keys[at : at + 9 : 3]) for at in range(1, len(keys), 9)]
    assert all(set(order) == {"a", "b", "control"} for order in rounds)
    assert len(set(rounds)) > 2


@pytest.mark.parametrize(("speed", "quads"), [(0.6, LOOKS[0].generations), (0.7, USUAL_LOOK)])
def test_only_what_gains_much_is_told_at_the_first_look(speed: float, quads: int) -> None:
    race = race_of(["a"], least=0.01, seed=1, pace=Pace(warm_up=0))
    run(race, speeds(noise=0.005, a=speed))
    assert (race.entrants["a"].left, len(race.entrants["a"].log_ratios)) == (DECIDED, quads)
    control = race.entrants["control"].interval
    assert control is not None and control.low < 1 < control.high


def test_a_quad_compares_with_the_blocks_beside_it() -> None:
    """The base takes 1, 2, 3, … seconds, every candidate 10: each ratio tells between which of its blocks a quad lies."""
    race = race_of(["a"], least=0.01, seed=1, pace=Pace(warm_up=0))
    bases = 0

    def seconds(turn: Turn, at: int) -> float:
        nonlocal bases
        bases += turn.key == BASE
        return float(bases) if turn.key == BASE else 10.0

    run(race, seconds, most=1 + 3 * 6)
    ratios = [value for entrant in race.entrants.values() for value in entrant.log_ratios]
    assert sorted(ratios, reverse=True) == pytest.approx([math.log(20 / (at + at + 1)) for at in range(1, 7)])
    assert race.entrants["a"].seconds == [10.0] * 3


def test_blocks_warm_up_and_skipped_steps() -> None:
    race = race_of(["a"], least=0.01, seed=1, pace=Pace(block=3, skipped=1, warm_up=2))
    made = run(race, speeds(), most=13)
    assert made[:6] == [Turn(key, steps, False) for key in (BASE, "a", "control") for steps in (2, 1)]
    assert [(turn.steps, turn.is_timed) for turn in made[6:]] == [
        (1, False), (3, True), (1, False), (3, True), (3, True), (1, False), (3, True),
    ]  # fmt: skip
    assert len({turn.key for turn in made[6:8]}) == len({turn.key for turn in made[8:11]}) == 1


def test_a_candidate_that_is_decided_leaves_and_its_time_goes_to_the_others() -> None:
    race = race_of(["fast", "same"], least=0.01, seed=3)
    made = run(race, speeds(noise=0.1, fast=0.5, same=0.96))
    assert race.entrants["fast"].left == DECIDED
    found = race.entrants["fast"].interval
    assert found is not None
    assert found.low < 0.5 < found.high
    assert found.quads == LOOKS[0].generations
    counted = Counter(turn.key for turn in made if turn.is_timed)
    assert counted["same"] > 3 * counted["fast"]
    assert counted["control"] == counted["same"]


def test_a_control_is_raced_alone_only_where_whoever_asks_decides() -> None:
    assert not run(race_of([], least=0.01, seed=1, pace=Pace(warm_up=0)), speeds())
    alone = race_of([], least=None, seed=1, pace=Pace(warm_up=0))
    assert len(run(alone, speeds(), most=31)) == 31
    assert len(alone.entrants["control"].log_ratios) == 10


def test_a_drift_that_is_steady_cancels() -> None:
    race = race_of(["same"], least=0.01, seed=1)
    run(race, speeds(drift=0.001))
    assert all(abs(value) < 1e-3 for value in race.entrants["same"].log_ratios)


def test_what_is_never_decided_ends_with_the_last_look() -> None:
    race = race_of(["near"], least=0.01, seed=5)
    run(race, speeds(noise=0.2, near=0.99))
    assert race.entrants["near"].left == UNDECIDED
    assert len(race.entrants["near"].log_ratios) == LOOKS[-1].generations
    assert len(race.entrants["control"].log_ratios) == LOOKS[-1].generations


def test_short_steps_are_raced_until_a_small_effect_is_shown() -> None:
    """Steps scatter by 15 %, and 128 quads know the ratio to 5 %: a gain of 4 % takes some hundreds."""
    race = race_of(["a"], least=0.01, seed=5)
    run(race, speeds(noise=0.15, a=0.96))
    found = race.entrants["a"]
    assert (found.left, found.interval is not None and found.interval.high <= 0.99) == (DECIDED, True)
    assert 128 < len(found.log_ratios) <= LOOKS[-1].generations


def test_a_candidate_that_fails_leaves_with_its_reason_and_its_quad_does_not_count() -> None:
    race = race_of(["bad", "same"], least=0.01, seed=1)
    seen = Counter[str]()

    def seconds(turn: Turn, at: int) -> float:
        seen[turn.key] += 1
        if turn.key == "bad" and seen["bad"] == 8:
            race.fail("bad", "the step raised ValueError")
        return 0.9 if turn.key == "same" else 1.0

    made = run(race, seconds)
    assert seen["bad"] == 8
    bad = race.entrants["bad"]
    assert (bad.left, bad.interval, len(bad.log_ratios)) == ("the step raised ValueError", None, 2)
    assert Counter(turn.key for turn in made)["same"] > 16


@pytest.mark.parametrize("at_block", [1, 2])
def test_a_failure_in_a_quad_breaks_the_chain(at_block: int) -> None:
    """Before the failure a step takes 1 s, afterwards 2: the quad behind it begins with a block of its own."""
    race = race_of(["bad", "good"], least=0.01, seed=1, pace=Pace(warm_up=0))
    seen = Counter[str]()

    def seconds(turn: Turn, at: int) -> float:
        seen[turn.key] += 1
        if turn.key == "bad" and seen["bad"] == 4 + at_block:
            race.fail("bad", "raised")
            return 0.0
        return (2.0 if race.entrants["bad"].left else 1.0) * (0.9 if turn.key == "good" else 1.0)

    made = run(race, seconds)
    assert race.entrants["good"].log_ratios == pytest.approx([math.log(0.9)] * USUAL_LOOK)
    assert race.entrants["control"].log_ratios == pytest.approx([0.0] * USUAL_LOOK)
    assert len(race.entrants["bad"].log_ratios) == 2
    last = max(at for at, turn in enumerate(made) if turn.key == "bad")
    assert made[last + 1] == Turn(BASE, 1, True)
    counted = sum(len(entrant.log_ratios) for entrant in race.entrants.values())
    assert seen[BASE] == counted + 2  # one that began the chain, one behind the failure


def test_nothing_is_said_of_the_ratio_of_a_candidate_that_fails_behind_a_look() -> None:
    race = race_of(["a"], least=0.01, seed=1)
    for name in race.entrants:
        race.entrants[name].interval = Interval(0.9, 0.8, 1.0, 8)
    race.fail("a", "raised")
    assert (race.entrants["a"].interval, race.entrants["a"].left) == (None, "raised")
    race.end()
    assert race.entrants["a"].interval is None


def test_why_a_candidate_failed_begins_so_that_a_failure_is_known() -> None:
    assert all(words.startswith(FAILED) for words in (DIVERGES, words_of_a_step(ValueError("no"))))


def test_a_candidate_that_fails_in_a_step_that_does_not_count_is_run_no_further() -> None:
    race = race_of(["bad"], least=0.01, seed=1, pace=Pace(skipped=1, warm_up=0))

    def seconds(turn: Turn, at: int) -> float:
        if turn.key == "bad":
            race.fail("bad", "raised")
        return 1.0

    made = run(race, seconds)
    assert [turn for turn in made if turn.key == "bad"] == [Turn("bad", 1, False)]
    assert race.entrants["bad"].log_ratios == []


def test_a_candidate_that_fails_while_it_warms_up_is_never_raced() -> None:
    race = race_of(["bad"], least=0.01, seed=1, pace=Pace(warm_up=3))

    def seconds(turn: Turn, at: int) -> float:
        if turn.key == "bad":
            race.fail("bad", "raised")
        return 1.0

    made = run(race, seconds)
    assert Counter(turn.key for turn in made) == {BASE: 2, "bad": 1, "control": 2}


@pytest.mark.parametrize(("slow", "left"), [(3.9, FUTILE), (4.1, "4 times as slow in its first steps")])
def test_a_candidate_that_is_far_slower_is_not_raced(slow: float, left: str) -> None:
    race = race_of(["slow", "same"], least=0.01, seed=1)
    made = run(race, speeds(slow=slow, same=0.9, control=5.0))
    assert race.entrants["slow"].left == left
    assert race.entrants["same"].left == DECIDED
    assert any(turn.is_timed for turn in made if turn.key == "slow") == (slow < 4)
    assert race.entrants["control"].log_ratios  # the control never leaves


def test_one_slow_step_is_a_hiccup() -> None:
    race = race_of(["same"], least=0.01, seed=1)
    seen = Counter[str]()

    def seconds(turn: Turn, at: int) -> float:
        seen[turn.key] += 1
        return 100.0 if turn.key == "same" and seen["same"] == 2 else 1.0

    run(race, seconds, most=60)
    assert race.entrants["same"].log_ratios


def test_a_long_step_beside_a_short_one_of_the_base_is_not_far_slower() -> None:
    """Of four steps that take turns one is short: the base's first one. The first ones of the candidate are long."""
    keys = (BASE, CONTROL, "same")
    race = Race(["same"], Terms(0.01, 1), dict.fromkeys(keys, Pace(4)), period=4)
    made = 0

    def seconds(turn: Turn, at: int) -> float:
        nonlocal made
        first, made = made, made + turn.steps
        return sum(1.0 if step % 4 == 1 else 6.0 for step in range(first, made))

    run(race, seconds, most=60)
    assert race.entrants["same"].left == FUTILE


def by_quad(ratios: dict[str, list[float]]) -> Seconds:
    """The base takes a second, a candidate in its n-th quad what its n-th ratio says, and its last one from then on."""
    blocks = Counter[str]()

    def seconds(turn: Turn, at: int) -> float:
        if turn.key not in ratios:
            return 1.0
        blocks[turn.key] += 1
        known = ratios[turn.key]
        return known[min((blocks[turn.key] - 1) // 2, len(known) - 1)]

    return seconds


@pytest.mark.parametrize(
    ("ratios", "left", "quads"),
    [
        ([1.0], FUTILE, 4),
        ([0.995], FUTILE, 4),  # faster, by less than what it must gain
        ([0.985], DECIDED, 8),
        ([1.2, 0.9, 1.2, 0.9, 0.9], DECIDED, 16),  # middle 1.04, give or take 0.08: it may be able to
        ([1.05, 1.05, 1.05, 0.9, 0.9], FUTILE, 4),
        ([1.2, 1.2, 0.9], FUTILE, 2),  # far from it
        ([1.05, 0.97, 1.05, 0.97, 1.01], FUTILE, 8),  # open after four, no longer after eight
        ([1.0, 0.9, 1.0, 0.9, 0.9, 0.9, 0.9, 0.9, 1.5], DECIDED, 32),  # slower later on: by its interval alone
    ],
)
def test_a_candidate_that_looks_unable_leaves_early(ratios: list[float], left: str, quads: int) -> None:
    race = race_of(["a"], least=0.01, seed=1, pace=Pace(warm_up=0))
    run(race, by_quad({"a": ratios}))
    assert (race.entrants["a"].left, len(race.entrants["a"].log_ratios)) == (left, quads)
    assert (race.entrants["a"].interval is None) == (left == FUTILE and quads < USUAL_LOOK)


def test_a_candidate_is_not_given_up_while_the_others_scatter() -> None:
    """Its four quads lie close together at no gain, as they can by chance where the control scatters by a fifth."""
    race = race_of(["a"], least=0.01, seed=1, pace=Pace(warm_up=0))
    run(race, by_quad({"a": [1.0, 1.0, 1.0, 1.0, 0.8], "control": [0.8, 1.25] * 20}), most=60)
    assert race.entrants["a"].left != FUTILE
    assert len(race.entrants["a"].log_ratios) > 4


@pytest.mark.parametrize(("leasts", "quads"), [({}, 16), ({"b": 0.5}, 16), ({"a": 0.03}, 32)])
def test_a_candidate_that_must_gain_more_is_raced_until_that_is_told(leasts: dict[str, float], quads: int) -> None:
    """0.95, by turns 0.92 and 0.98: surely 1 % faster after 16 quads, and surely 3 % later."""
    race = race_of(["a"], least=0.01, seed=1, pace=Pace(warm_up=0), leasts=leasts)
    run(race, by_quad({"a": [0.92, 0.98, 0.92, 0.98, 0.92, 0.98, 0.92, 0.98] * 20}))
    found = race.entrants["a"]
    assert found.interval is not None
    assert (found.left, len(found.log_ratios)) == (DECIDED, quads), found.interval
    assert 1 - found.interval.high >= leasts.get("a", 0.01)


def test_a_race_that_goes_on_in_another_process_makes_no_look_twice() -> None:
    """Two quads are wanting to the second look; who had left stays away, and keeps what was known."""
    near = Entrant("near", [-0.03, 0.01] * 7, [1.0] * 14)
    gone = Entrant("gone", [-0.5] * 8, [0.6] * 8, DECIDED)
    control = Entrant("control", [0.0, 0.001] * 7)
    race = race_of(["near", "gone"], 0.01, 1, Pace(warm_up=2), former=[near, gone, control])
    known = race.entrants["near"].interval
    assert known == interval_of_quads(near.log_ratios) and known is not None and known.quads == 8
    turns = run(race, speeds(near=0.97, noise=0.01), 40)
    assert "gone" not in {turn.key for turn in turns}
    beside = [near.log_ratios[:14], control.log_ratios[:14]]
    assert race.entrants["gone"].interval == interval_of_quads([-0.5] * 8, others=beside)
    assert race.entrants["near"].log_ratios[:14] == [-0.03, 0.01] * 7
    assert race.entrants["near"].interval == interval_of_quads(race.entrants["near"].log_ratios[:16])
    assert race.entrants["control"].interval is not None and race.entrants["control"].interval.quads == 16


@pytest.mark.parametrize("seconds", [0.01, 1.0, 100.0])
def test_the_first_round_of_a_race_that_goes_on_does_not_depend_on_the_unit_of_its_seconds(seconds: float) -> None:
    """`new` has no quads: until the base was timed, nothing is known of how its steps compare with those of `known`."""
    known = Entrant("known", [-0.1, 0.1] * 8, [seconds] * 16)
    race = race_of(["known", "new"], None, 1, Pace(1, warm_up=0), former=[known])
    run(race, lambda turn, at: seconds, 10)  # the base's first block, and a quad of each of the others
    assert [len(race.entrants[key].log_ratios) for key in ("known", "new", CONTROL)] == [17, 1, 1]


@pytest.mark.parametrize(("step", "quads"), [(1.0, 2), (0.1, 1)])
def test_one_whose_steps_are_long_has_no_more_quads_for_making_fewer(step: float, quads: int) -> None:
    """A loader that waits no more makes eight steps of its quad in the time of the control's four."""
    race = race_of(["a"], None, 1, Pace(1, warm_up=0), paces={"a": Pace(4, warm_up=0)})
    run(race, lambda turn, at: turn.steps * (step if turn.key == "a" else 1.0), 120)
    made = {key: len(entrant.log_ratios) for key, entrant in race.entrants.items()}
    assert made["a"] > 8
    assert abs(made["control"] - quads * made["a"]) <= 2


def test_the_control_has_as_many_quads_as_one_that_has_two_in_a_round() -> None:
    """Beside a slow loader a fast one makes two in the time of one. The control's own quads are too long for that."""
    race = race_of(["fast", "slow"], None, 1, Pace(1, warm_up=0))
    run(race, lambda turn, at: turn.steps * {"fast": 0.2, "slow": 1.2}.get(turn.key, 1.0), 90)
    made = {key: len(entrant.log_ratios) for key, entrant in race.entrants.items()}
    assert made["fast"] > 1.5 * made["slow"]
    assert abs(made["control"] - made["fast"]) <= 2


def test_the_control_never_leaves() -> None:
    race = race_of(["near"], least=0.01, seed=5)
    run(race, speeds(noise=0.2, near=0.95, control=1.3))
    assert race.entrants["control"].left == ""
    assert len(race.entrants["control"].log_ratios) == len(race.entrants["near"].log_ratios) > 8


def test_a_candidate_with_a_pace_of_its_own() -> None:
    """Steps of a block count evenly, so that a base whose steps are slow need not make as many of them, and shares its blocks."""
    paces = {"long": Pace(5, skipped=2, warm_up=4)}
    race = race_of(["long"], least=0.01, seed=1, pace=Pace(1, warm_up=0), paces=paces)
    made = run(race, lambda turn, at: turn.steps * (0.5 if turn.key == "long" else 1.0))
    assert race.entrants["long"].log_ratios == pytest.approx([math.log(0.5)] * LOOKS[0].generations)
    assert race.entrants["long"].seconds == pytest.approx([0.5] * LOOKS[0].generations)
    # Its quad takes seven seconds, that of the control three, of which a round has two: what fits must divide the looks.
    assert race.entrants["control"].log_ratios == pytest.approx([0.0] * 2 * LOOKS[0].generations)
    mine = [(turn.steps, turn.is_timed) for turn in made if turn.key == "long"]
    assert mine == [(2, False), (5, True), (5, True)] * LOOKS[0].generations
    for at, turn in enumerate(made):
        if turn.key == "long" and not turn.is_timed:
            assert made[at - 1] == made[at + 3] == Turn(BASE, 1, True)


def test_short_quads_are_run_several_times_beside_long_ones() -> None:
    """A loader's quad takes 15 steps and others three, so they have two in a round until they are decided."""
    paces = {"loader": Pace(6, skipped=2, warm_up=4)}
    race = race_of(["loader", "patch"], least=0.01, seed=1, pace=Pace(1, warm_up=0), paces=paces)
    made = run(race, speeds(loader=0.9, patch=0.8, noise=0.01))
    blocks = [turn.key for turn in made if turn.is_timed and turn.key != BASE]
    until = Counter(blocks[: len(blocks) - blocks[::-1].index("patch")])
    assert until["patch"] // 2 == USUAL_LOOK
    assert USUAL_LOOK - 2 <= until["control"] // 2 <= USUAL_LOOK  # its turn in the last round may come later
    assert until["loader"] // 2 <= USUAL_LOOK // 2
    assert {name: race.entrants[name].left for name in ("loader", "patch")} == dict.fromkeys(
        ("loader", "patch"), DECIDED
    )
    assert is_look(len(race.entrants["patch"].log_ratios)) and is_look(len(race.entrants["loader"].log_ratios))


def test_no_quad_is_run_beyond_a_look() -> None:
    """Seven quads of another process, and two would fit into a round: the eighth alone is run, and looked at."""
    paces = {"loader": Pace(6, skipped=2, warm_up=0)}
    former = [Entrant("patch", [-0.2, -0.21, -0.19, -0.2, -0.21, -0.19, -0.2]), Entrant("loader", [0.0, 0.01] * 3)]
    race = race_of(["loader", "patch"], 0.01, 1, Pace(warm_up=0), paces, former=former)
    run(race, speeds(loader=1.0, patch=0.8, noise=0.01), most=400)
    assert (race.entrants["patch"].left, len(race.entrants["patch"].log_ratios)) == (DECIDED, 8)


def test_those_that_look_faster_are_raced_before_the_others() -> None:
    """Behind four quads of each; the others go on where those are decided, and the control is there all the time."""
    race = race_of(["fast", "unclear"], least=0.01, seed=2, pace=Pace(warm_up=0))
    ratios = {"fast": [0.84, 0.86, 0.85, 0.85], "unclear": [1.1, 0.9, 1.1, 0.9, 0.9]}
    firsts = [turn.key for turn in run(race, by_quad(ratios)) if turn.is_timed][1::3]
    assert Counter(firsts[: 4 * 3]) == dict.fromkeys(("fast", "unclear", "control"), 4)
    assert Counter(firsts[12:20]) == {"fast": 4, "control": 4}
    assert race.entrants["fast"].left == DECIDED
    assert Counter(firsts[20:26]) == {"unclear": 3, "control": 3}


def test_where_nobody_looks_faster_all_go_on() -> None:
    race = race_of(["a", "b"], least=0.01, seed=2, pace=Pace(warm_up=0))
    made = run(race, by_quad({"a": [1.2, 0.9, 0.9, 1.05, 0.97], "b": [0.9, 1.2, 1.05, 0.9, 0.97]}), most=1 + 9 * 8)
    firsts = [turn.key for turn in made if turn.is_timed][1::3]
    assert Counter(firsts) == {"a": 8, "b": 8, "control": 8}


def test_of_rivals_only_the_fastest_is_raced_to_the_end() -> None:
    race = race_of(["slow", "second", "first"], least=0.03, seed=4, rivals=True)
    made = run(race, speeds(noise=0.02, slow=0.6, second=0.3, first=0.25))
    left = {key: entrant.left for key, entrant in race.entrants.items()}
    assert left == {"slow": BEATEN, "second": BEATEN, "first": DECIDED, "control": ""}
    quads = {key: len(entrant.log_ratios) for key, entrant in race.entrants.items()}
    assert quads["slow"] == quads["second"] == FUTILE_QUADS[0]
    assert quads["first"] == USUAL_LOOK
    counted = Counter(turn.key for turn in made if turn.is_timed)
    assert counted["first"] == 2 * counted["slow"]


def test_of_settings_of_one_thing_the_slower_one_leaves_and_others_stay() -> None:
    """Both gain, and one of them much less: it would not be taken. Settings of another thing do not count."""
    things = {"two workers": "loader", "fewer threads": "loader", "copies": "transfer"}
    race = race_of([*things], least=0.01, seed=4, things=things)
    fast = {"two workers": 0.9, "fewer threads": 0.75, "copies": 0.9}
    run(race, lambda turn, at: turn.steps * fast.get(turn.key, 1.0) * random.Random(at).uniform(0.97, 1.03))
    left = {key: (entrant.left, len(entrant.log_ratios)) for key, entrant in race.entrants.items() if key != CONTROL}
    assert left == {
        "two workers": (BEATEN, FUTILE_QUADS[0]),
        "fewer threads": (DECIDED, USUAL_LOOK),
        "copies": (DECIDED, USUAL_LOOK),
    }


@pytest.mark.parametrize("why", [FUTILE, FAILED, UNDECIDED])
def test_one_that_has_left_beats_no_other_setting(why: str) -> None:
    """What is not taken is in nobody's way."""
    former = [Entrant("fast", [-0.4, -0.41, -0.39, -0.4], left=why)]
    race = race_of(["slow", "fast"], 0.01, 4, former=former, things={"slow": "loader", "fast": "loader"})
    run(race, speeds(noise=0.01, slow=0.8))
    assert race.entrants["slow"].left == DECIDED


def test_rivals_that_are_close_are_raced_until_both_are_known_well() -> None:
    race = race_of(["a", "b"], least=0.03, seed=4, rivals=True)
    run(race, speeds(noise=0.05, a=0.3, b=0.3))
    assert {race.entrants[key].left for key in ("a", "b")} <= {DECIDED, BEATEN}
    known = [entrant for key in ("a", "b") if (entrant := race.entrants[key]).left == DECIDED]
    assert known
    widest = max(entrant.interval.high / entrant.interval.low for entrant in known if entrant.interval is not None)
    assert widest <= NEAR
    assert max(len(entrant.log_ratios) for entrant in known) > USUAL_LOOK


def test_a_rival_that_gains_too_little_leaves_as_others_do() -> None:
    race = race_of(["a", "b"], least=0.03, seed=4, rivals=True)
    run(race, speeds(noise=0.01, a=1.0, b=1.2))
    assert {race.entrants[key].left for key in ("a", "b")} <= {FUTILE, BEATEN}


def test_what_is_left_out_is_raced_against_all_together() -> None:
    """Where all patches are the base, the training as it is takes part, and ratios are of the base over the others.

    Who is slower stays for its figure.
    """
    race = race_of([BASE, "without a", "without b"], least=0.01, seed=1, base="all")
    made = run(race, speeds(noise=0.01, base=5.0, **{"without a": 1.3, "without b": 0.97}))
    assert made[0] == Turn("all", 1, True)  # all of it ran in a race before
    timed = [turn.key for turn in made if turn.is_timed]
    assert timed[0] == timed[3] == timed[6] == "all"
    assert "all" not in race.entrants
    found = {key: entrant.interval for key, entrant in race.entrants.items()}
    for key, true in ((BASE, 5.0), ("without a", 1.3), ("without b", 0.97)):
        interval = found[key]
        assert interval is not None
        assert interval.low < 1 / true < interval.high < 1.1 / true
        assert race.entrants[key].left == DECIDED


@pytest.mark.parametrize(("quads", "has_interval"), [(FEWEST - 1, False), (FEWEST, True), (8, True), (13, True)])
def test_the_end_of_time_judges_what_there_is(quads: int, has_interval: bool) -> None:
    race = race_of(["near"], least=0.01, seed=1, pace=Pace(warm_up=0))
    run(race, speeds(noise=0.05, near=0.97), most=1 + 2 * 3 * quads)
    race.end()
    for key in ("near", "control"):
        found = race.entrants[key].interval
        assert len(race.entrants[key].log_ratios) == quads
        assert (found is not None) == has_interval
        if found is not None:
            assert found.quads == quads


def test_the_same_seed_makes_the_same_turns() -> None:
    made = [run(race_of(["a", "b"], 0.01, seed), speeds(noise=0.1), 200) for seed in (1, 1, 2)]
    assert made[0] == made[1]
    assert made[0] != made[2]


# ---- intervals -------------------------------------------------------------------------------------------------------


def test_no_interval_before_the_first_look() -> None:
    first = LOOKS[0].generations
    assert interval_of_quads([0.0] * (first - 1)) is None
    assert interval_of_quads([0.0] * (FEWEST - 1), ended=True) is None
    assert interval_of_quads([0.0] * FEWEST, ended=True) == Interval(1.0, 1.0, 1.0, FEWEST)
    assert is_look(first)
    assert not is_look(first + 1)


def test_between_looks_the_interval_is_that_of_the_last() -> None:
    values = [0.01 * (at % 5) for at in range(31)]
    assert interval_of_quads(values) == interval_of_quads(values[:16])


@pytest.mark.parametrize("factor", [0.25, 1.0, 10.0])
def test_where_whoever_asks_decides_nobody_leaves(factor: float) -> None:
    """Neither one that is far slower, nor one that gains or cannot, nor after the last look."""
    race = race_of(["a"], least=None, seed=1)
    run(race, speeds(noise=0.01, a=factor), most=9600)
    assert [entrant.left for entrant in race.entrants.values()] == ["", ""]
    assert len(race.entrants["a"].log_ratios) > LOOKS[-1].generations
    race.fail("a", "a step raises")
    assert race.entrants["a"].left == "a step raises"


def test_an_interval_on_paper() -> None:
    """Eight quads of log ratios -3.5 to 3.5 hundredths: -2.5 to 2.5 are kept, and the squares of the winsorized add up to 30.

    So the standard error is the root of 30 / (6 · 5), 1 hundredth, and t of 5 at 0.005 is 4.773.
    """
    found = interval_of_quads([(at - 3.5) / 100 for at in range(8)])
    assert found is not None
    assert found.ratio == pytest.approx(1.0)
    assert math.log(found.high) == pytest.approx(4.7733 * 0.01, rel=1e-4)
    assert found.low == pytest.approx(1 / found.high)


def test_an_interval_with_others_on_paper() -> None:
    """Its own standard error is 1 hundredth; that of others with half of its scatter is too far from alike.

    With 0.8 of its scatter they count for 4 degrees of freedom, its own for 5: the variance is
    (4 · 0.64 + 5) / 9 squared hundredths, and t of 9 at 0.005 is 3.690.
    """
    mine = [(at - 3.5) / 100 for at in range(8)]
    half, near = ([value * by for value in mine] for by in (0.5, 0.8))
    assert interval_of_quads(mine, others=[half, half]) == interval_of_quads(mine)
    found = interval_of_quads(mine, others=[near, near])
    assert found is not None and found.ratio == pytest.approx(1.0)
    assert math.log(found.high) == pytest.approx(3.6897 * 0.01 * math.sqrt((4 * 0.64 + 5) / 9), rel=1e-4)


def test_of_others_those_count_that_were_raced_as_long() -> None:
    mine = [(at - 3.5) / 100 for at in range(8)]
    alone = interval_of_quads(mine)
    assert interval_of_quads(mine, others=[[0.01, -0.01] * 3]) == alone
    beside = interval_of_quads(mine, others=[mine[:7]])  # of which the last quad of the round is wanting
    assert alone is not None and beside is not None and beside.high < alone.high
    assert interval_of_quads(mine, others=[[*mine, 5.0, -5.0]]) == interval_of_quads(mine, others=[mine])


def test_quads_that_lie_close_together_by_chance_are_not_believed() -> None:
    mine, noisy = [0.0, 0.0, 1e-6, -1e-6] * 2, [(at - 3.5) / 10 for at in range(8)]
    alone, beside = interval_of_quads(mine), interval_of_quads(mine, others=[noisy])
    assert alone is not None and beside is not None
    assert beside.high - beside.low > 1000 * (alone.high - alone.low)


@pytest.mark.parametrize("times", [0.5, 1.0, 1.4, 2.0, 3.0])
def test_identical_code_beside_others_that_scatter_differently(times: float) -> None:
    """In 1500 races of 16 quads one scatters so many times as much as the three beside it; 1 % is told, 2 % are borne."""
    rng = random.Random(5)
    wrong = 0
    for _ in range(1500):
        mine, *others = ([rng.gauss(0, 0.03 * by) for _ in range(16)] for by in (times, 1.0, 1.0, 1.0))
        seen = [interval_of_quads(mine[:quads], others=others) for quads in (8, 16)]
        wrong += any(found is not None and (found.high < 1 or found.low > 1) for found in seen)
    assert wrong <= 30


def test_one_hiccup_in_a_batch_moves_nothing() -> None:
    quiet = [0.001 * (-1) ** at for at in range(64)]
    hit = [*quiet[:20], 3.0, *quiet[21:]]
    a, b = interval_of_quads(quiet), interval_of_quads(hit)
    assert a is not None and b is not None
    assert b.high - b.low < 1.5 * (a.high - a.low) + 0.003


@pytest.mark.parametrize("quads", [8, 13, 16, 40])
def test_what_others_did_to_a_few_steps_is_left_out(quads: int) -> None:
    """One quad in ten took three times as long: the interval is hardly wider for it."""
    quiet = [0.01 * (-1) ** (at // 2) for at in range(quads)]
    hit = [1.1 if at % 10 == 3 else value for at, value in enumerate(quiet)]
    a, b = interval_of_quads(quiet, ended=True), interval_of_quads(hit, ended=True)
    assert a is not None and b is not None
    assert b.high / b.low < (a.high / a.low) ** 2
    assert b.low < 1 < b.high


def test_no_quad_is_left_out_for_its_number() -> None:
    values = [0.0] * 8 + [-0.2, -0.21] * 3
    found = interval_of_quads(values, ended=True)
    assert found is not None and found.quads == 14
    assert math.log(found.ratio) == pytest.approx(-0.2 * 5 / 12 - 0.01 * 2 / 12, abs=0.002)


@pytest.mark.parametrize("looks", [LOOKS, PAIR_LOOKS])
def test_all_looks_together_spend_the_error(looks: Sequence[Look]) -> None:
    assert sum(look.alpha for look in looks) == pytest.approx(0.05)
    assert all(look.generations % BATCHES == 0 for look in looks if look.generations > BATCHES)


@pytest.mark.parametrize("together", [0.0, 0.5])
def test_identical_code_is_seldom_called_different(together: float) -> None:
    """Neighbours that resemble each other, and hiccups: in 400 races of 64 quads, at no look more often than told."""
    rng = random.Random(11)
    wrong = 0
    for _ in range(400):
        mood, values = 0.0, []
        for _ in range(64):
            mood = together * mood + math.sqrt(1 - together**2) * rng.gauss(0, 0.03)
            hiccup = rng.choice([-0.4, 0.4]) if rng.random() < 0.03 else 0.0
            values.append(mood + rng.gauss(0, 0.05) + hiccup)
        seen = [interval_of_quads(values[: look.generations]) for look in LOOKS if look.generations <= 64]
        wrong += any(found is not None and (found.high < 1 or found.low > 1) for found in seen)
    assert wrong <= 24


@pytest.mark.parametrize("quads", [FEWEST, 11])
def test_identical_code_is_seldom_called_different_where_time_ends_the_race(quads: int) -> None:
    """Blocks that resemble the one before, in 300 races of which the end is judged: as often as simulated, not more."""
    rng = random.Random(7)
    mood, wrong = 0.0, 0

    def seconds(turn: Turn, at: int) -> float:
        nonlocal mood
        mood = 0.6 * mood + 0.8 * rng.gauss(0, 0.05)
        return math.exp(mood + rng.gauss(0, 0.03))

    for seed in range(300):
        race = race_of([], None, seed, Pace(warm_up=0))
        run(race, seconds, most=1 + 3 * quads)
        race.end()
        found = race.entrants["control"].interval
        assert found is not None
        wrong += not found.low <= 1 <= found.high
    assert 3 <= wrong <= 24
