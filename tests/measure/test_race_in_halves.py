"""A race in which half of the candidates are in place at a time: what runs, who leaves, and what ends it."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import Any

import pytest

from perfaudit.measure.entrants import (
    BASE,
    CONTROL,
    DECIDED,
    FAR_FROM_IT_QUADS,
    FAR_SLOWER,
    FUTILE,
    FUTILE_QUADS,
    TWIN_CONTROL,
    Entrant,
    Terms,
)
from perfaudit.measure.pace import Pace
from perfaudit.measure.quads import PAIR_LOOKS, USUAL_LOOK
from perfaudit.measure.race import Race, Turn

Ratio = Callable[[frozenset[str]], float]


def race_of(*keys: str, **terms: Any) -> Race:
    return Race([*keys], Terms(0.01, 3, **terms), slots=[*([key] for key in keys), [CONTROL]])


def run(race: Race, noise: float = 0.0, most: int = 4000, seed: int = 1, **factors: float) -> list[Turn]:
    """Drive a race in which each of these makes a step so many times as long."""

    def ratio(keys: frozenset[str]) -> float:
        return math.prod(factors.get(key, 1.0) for key in keys)

    return drive(race, ratio, noise, most, seed)


def drive(race: Race, ratio: Ratio, noise: float = 0.0, most: int = 4000, seed: int = 1) -> list[Turn]:
    """Drive a race in which a step with these in place takes so long."""
    rng, turns, made = random.Random(seed), race.turns(), list[Turn]()
    try:
        turn = next(turns)
        while len(made) < most:
            made.append(turn)
            turn = turns.send(turn.steps * ratio(in_place(race, turn)) * math.exp(rng.gauss(0.0, noise)))
    except StopIteration:
        pass
    return made


def in_place(race: Race, turn: Turn) -> frozenset[str]:
    return race.together.get(turn.key, frozenset({turn.key}) - {BASE})


def test_every_timed_step_has_one_half_in_place_and_the_next_the_other() -> None:
    race = race_of("a", "b", "c")
    made = [turn for turn in run(race, a=0.8, b=0.9) if turn.is_timed]
    for first, second in zip(made[::2], made[1::2], strict=True):
        halves = in_place(race, first), in_place(race, second)
        assert halves[0] | halves[1] == {"a", "b", "c", CONTROL} and not halves[0] & halves[1]
    assert any(turn.key == BASE for turn in made)  # steps of the user's own code are timed, too


def test_all_are_decided_after_the_steps_of_a_single_look() -> None:
    """Three times four rows, and nothing and everything, are 30 steps; eight quads of each and of the control would be 96."""
    race = race_of("a", "b", "c")
    made = run(race, a=0.8, b=0.9, c=1.2)
    assert len([turn for turn in made if turn.is_timed]) == 3 * 2 * 5
    assert {key: race.entrants[key].left for key in "abc"} == dict.fromkeys("abc", DECIDED)
    ratios = {key: found.ratio for key, each in race.entrants.items() if (found := each.interval)}
    assert ratios == pytest.approx({"a": 0.8, "b": 0.9, "c": 1.2, CONTROL: 1.0})


def test_one_that_was_shown_to_pay_stays_in_place_beside_the_others_and_one_that_looks_slower_leaves() -> None:
    race = race_of("fast", "same", "slow")
    made = run(race, noise=0.05, most=140, seed=0, fast=0.7, slow=1.3)
    assert race.entrants["fast"].left == DECIDED and race.entrants["slow"].left in (DECIDED, FUTILE)
    late = [in_place(race, turn) for turn in made[-20:]]
    assert any("fast" in each for each in late) and not any("slow" in each for each in late)
    assert len(race.entrants["fast"].log_ratios) > len(race.entrants["slow"].log_ratios)
    found = race.entrants["fast"].interval
    assert found is not None and found.quads > PAIR_LOOKS[0].generations  # it is known better than when it was decided


def test_intervals_hold_what_is_true() -> None:
    """Each misses in one of twenty races at most."""
    truth = {"a": 0.8, "b": 0.95, "c": 1.0, "d": 1.05}
    missed, paid = 0, 0
    for seed in range(30):
        race = race_of(*truth)
        drive(race, lambda keys: math.prod(truth.get(key, 1.0) for key in keys), 0.06, 400, seed)
        race.end()
        for key, ratio in truth.items():
            found = race.entrants[key].interval
            missed += found is not None and not found.low <= ratio <= found.high
        paid += race.entrants["a"].left == DECIDED
    assert missed <= 6
    assert paid == 30


def test_where_a_step_with_several_fails_they_are_raced_one_at_a_time_and_keep_what_was_seen() -> None:
    race = race_of("a", "b")
    turns, made = race.turns(), []
    turn = next(turns)
    rng = random.Random(2)
    for number in range(400):
        made.append(turn)
        pairs = [key for key in (*"ab", CONTROL) if len(race.entrants[key].log_ratios) >= 8]
        if number > 20 and len(pairs) == 3 and turn.key in race.together and len(made) < 60:
            race.break_up()
            before = {key: [*race.entrants[key].log_ratios] for key in race.entrants}
            took = 0.0
            broke_up = number
        else:
            took = math.exp(rng.gauss(0.0, 0.1))
        try:
            turn = turns.send(took)
        except StopIteration:
            break
    after = made[broke_up + 1 :]
    assert after and not any(turn.key in race.together for turn in after)
    assert {turn.key for turn in after} <= {BASE, CONTROL, "a", "b"}
    for key, values in before.items():
        assert race.entrants[key].log_ratios[: len(values)] == values


def test_a_pair_of_which_a_step_raised_does_not_count() -> None:
    race = race_of("a")
    turns, lost = race.turns(), 0
    turn, number = next(turns), 0
    while True:
        number += 1
        took = math.nan if turn.is_timed and number % 9 == 0 else 0.9 if "a" in in_place(race, turn) else 1.0
        lost += math.isnan(took)
        try:
            turn = turns.send(took)
        except StopIteration:
            break
    assert lost
    assert race.entrants["a"].log_ratios == pytest.approx([math.log(0.9)] * len(race.entrants["a"].log_ratios))


def test_another_loader_has_quads_and_the_patches_pairs_of_your_own_loader() -> None:
    """Beside another loader a patch gains another share of the step than the user's."""
    paces = {"loader": Pace(block=6, skipped=1, warm_up=4)}
    race = Race(["a", "b", "loader"], Terms(0.01, 3), paces=paces, slots=[["a"], ["b"], [CONTROL]])

    def ratio(keys: frozenset[str]) -> float:
        return (1.0 - 0.3 * ("a" in keys) - 0.1 * ("b" in keys)) * (0.9 if "loader" in keys else 1.0)

    made = drive(race, ratio)
    assert {in_place(race, turn) for turn in made if "loader" in in_place(race, turn)} == {frozenset({"loader"})}
    assert race.entrants["loader"].log_ratios == pytest.approx([math.log(0.9)] * USUAL_LOOK)
    assert race.in_halves == {"a", "b", CONTROL}
    found = race.entrants["a"].interval
    assert found is not None and 0.6 < found.ratio < 0.7 + 1e-9  # 0.7 of a step alone, and 0.67 of one with b


def test_pairs_wait_for_another_loader_that_looks_faster_until_its_usual_look() -> None:
    """A quad of it takes 15 steps: with pairs in between, a minute would decide neither."""
    paces = {"loader": Pace(block=6, skipped=1, warm_up=4)}
    race = Race(["a", "loader"], Terms(0.01, 3), paces=paces, slots=[["a"], [CONTROL]])
    # The other one is on the edge of what it must gain, so that it stays open.
    made = drive(race, lambda keys: 0.8 if "loader" in keys else 0.99 if "a" in keys else 1.0, noise=0.01, most=400)
    at_quads: dict[int, int] = {}  # pairs by how many quads the loader had
    blocks = 0
    for turn in made:
        blocks += turn.key == "loader" and turn.is_timed
        at_quads[blocks // 2] = at_quads.get(blocks // 2, 0) + turn.in_pair
    in_wait = [at_quads.get(quads, 0) for quads in range(FUTILE_QUADS[0] + 1, USUAL_LOOK)]  # a round is in random order
    assert not any(in_wait)
    assert sum(at_quads.values()) > at_quads[USUAL_LOOK] > 0


@pytest.mark.parametrize(("speed", "quads"), [(0.8, USUAL_LOOK), (1.0, FUTILE_QUADS[0]), (1.5, FAR_FROM_IT_QUADS)])
def test_the_first_quads_of_one_that_goes_first_come_before_all_pairs(speed: float, quads: int) -> None:
    """A loader that most of the step waits for: pairs go on where it no longer looks as if it gained anything."""
    paces = {"loader": Pace(block=4, skipped=1, warm_up=4)}
    race = Race(["a", "loader"], Terms(0.01, 3, firsts=frozenset({"loader"})), paces=paces, slots=[["a"], [CONTROL]])
    made = drive(race, lambda keys: speed if "loader" in keys else 1.0, noise=0.01, most=400)
    first = next(at for at, turn in enumerate(made) if turn.in_pair)
    assert sum(turn.key == "loader" and turn.is_timed for turn in made[:first]) == 2 * quads
    assert race.entrants["loader"].left == (DECIDED if speed < 1 else FUTILE)
    assert race.entrants["a"].left


def test_twins_and_their_control_wait_for_one_that_goes_first() -> None:
    controls, paces = [CONTROL, TWIN_CONTROL], {"loader": Pace(block=4, skipped=1, warm_up=4)}
    terms, slots = Terms(0.01, 3, firsts=frozenset({"loader"})), [["a"], [CONTROL]]
    race = Race(["a", "loader", "twin"], terms, paces=paces, slots=slots, controls=controls)
    made = run(race, noise=0.01, a=0.8, loader=0.7, twin=0.8)
    last = max(number for number, turn in enumerate(made) if turn.key == "loader")
    assert not any(turn.key in ("twin", TWIN_CONTROL) and turn.is_timed for turn in made[:last])
    assert {key: race.entrants[key].left for key in ("a", "loader", "twin")} == dict.fromkeys(
        ("a", "loader", "twin"), DECIDED
    )


def test_what_the_first_looks_showed_by_chance_is_open_again() -> None:
    """A gain of the first 12 pairs, of which all later ones show nothing: the last look tells, not the one that showed most."""
    race, made = race_of("a", "b"), [0]

    def ratio(half: frozenset[str]) -> float:
        made[0] += 1
        own = 0.75 if "a" in half and made[0] < 30 else 1.0
        return own * (0.97 if "b" in half else 1.0)  # which is not decided for long

    seen = []
    turns = race.turns()
    turn = next(turns)
    for _ in range(150):
        turn = turns.send(turn.steps * ratio(in_place(race, turn)) * math.exp(random.Random(made[0]).gauss(0.0, 0.06)))
        seen.append(race.entrants["a"].left)
    assert DECIDED in seen
    interval = race.entrants["a"].interval
    assert interval is not None and interval.high > 0.99 and race.entrants["a"].left != DECIDED


def test_a_setting_that_was_shown_to_pay_leaves_its_turns_to_one_that_looks_faster() -> None:
    """The slower one scatters less, so it is decided first. Without that each has half of the pairs, and neither more than 30."""
    race = Race(["foreach", "fused", "b"], Terms(0.01, 3), slots=[["foreach", "fused"], ["b"], [CONTROL]])
    rng = random.Random(4)

    def ratio(keys: frozenset[str]) -> float:
        own = 0.9 if "foreach" in keys else 0.85 * math.exp(rng.gauss(0.0, 0.25)) if "fused" in keys else 1.0
        return own * (0.97 if "b" in keys else 1.0)

    drive(race, ratio, 0.03, 120, seed=4)
    race.end()
    foreach, fused = race.entrants["foreach"], race.entrants["fused"]
    assert (foreach.left, fused.left) == (DECIDED, DECIDED)
    assert len(fused.log_ratios) > 1.5 * len(foreach.log_ratios)


def test_twins_have_a_control_in_quads_as_long_as_one_of_them_is_open() -> None:
    controls = [CONTROL, TWIN_CONTROL]
    race = Race(["a", "near", "twin"], Terms(0.01, 3), slots=[["a"], ["near"], [CONTROL]], controls=controls)
    made = run(race, noise=0.005, a=0.8, near=0.99, twin=0.7)
    assert race.in_halves == {"a", "near", CONTROL}
    assert {key: race.entrants[key].left for key in ("a", "twin")} == {"a": DECIDED, "twin": DECIDED}
    for control in controls:
        found = race.entrants[control].interval
        assert found is not None and found.low < 1 < found.high
    assert len(race.entrants[TWIN_CONTROL].log_ratios) == len(race.entrants["twin"].log_ratios) < 40
    last = max(number for number, turn in enumerate(made) if turn.key in ("twin", TWIN_CONTROL))
    assert sum(turn.in_pair for turn in made[last:]) > 40


def test_one_that_is_far_slower_leaves_before_it_is_raced_with_others() -> None:
    race = race_of("a", "far")
    made = run(race, a=0.8, far=FAR_SLOWER + 1)
    assert race.entrants["far"].left.startswith("5 times as slow")
    assert not any("far" in in_place(race, turn) for turn in made if turn.is_timed and turn.key in race.together)


def test_what_another_process_has_seen_stays_and_is_added_to() -> None:
    """Also where it ended before there were pairs enough to tell anything: of them all effects are found."""
    before = race_of("a", "b")
    run(before, noise=0.1, most=26, a=0.8)
    before._field.update_from_pairs()
    pairs = [*before.pairs_seen]
    assert len(pairs) == 10 and before.entrants["a"].log_ratios
    race = race_of("a", "b", former=[*before.entrants.values()], pairs=pairs[:5])
    assert not race.entrants["a"].log_ratios or len(race.entrants["a"].log_ratios) == 10
    run(race, a=0.8)
    assert race.entrants["a"].left == DECIDED
    assert race.pairs_seen[:5] == pairs[:5]
    assert len(race.entrants["a"].log_ratios) == len(race.pairs_seen) > 5


def test_another_process_goes_on_where_the_first_one_ended_before_a_pair() -> None:
    """A script that ends by itself after a few steps, say."""
    race = race_of("a", former=[Entrant("a"), Entrant(CONTROL)])
    run(race, a=0.8)
    assert race.entrants["a"].left == DECIDED


def test_a_race_that_ends_early_is_judged_by_the_pairs_that_there_were() -> None:
    race = race_of("a", "b")
    run(race, noise=0.02, most=40, a=0.85)
    race.end()
    found, other = race.entrants["a"].interval, race.entrants["b"].interval
    assert found is not None and found.high < 0.95
    assert other is not None and other.quads == len(race.entrants["b"].log_ratios) > PAIR_LOOKS[1].generations
