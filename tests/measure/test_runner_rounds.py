"""Order, rounds and time of interleaved measuring: whole schedules of a lab whose clock tells exactly what was spent."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import replace

import pytest
from fake_clock import FakeClock
from test_runner import FakeLab, FakeSubject, Kept, SmallLab, variants

from perfaudit.measure.child_subject import ChildSubject
from perfaudit.measure.clock import Deadline
from perfaudit.measure.generations import affordable, least_seconds, measure
from perfaudit.measure.ledger import Block, Generation, Ledger, Variant, cpu
from perfaudit.measure.runner import TrialFailed
from perfaudit.measure.stats import verdict


def orders(lab: FakeLab, keys: int) -> list[list[str]]:
    """What ran in each round, after the first blocks, which calibrate."""
    after = lab.order[keys:]
    return [after[i : i + 2 * keys] for i in range(0, len(after), 2 * keys)]


def drawn(seed: int, stage: str, keys: str, rounds: int = 3) -> list[list[str]]:
    """The first generation's orders, as the seed, the stage and the generation draw them."""
    draw, found = random.Random(f"{seed} {stage} 0"), []
    for _ in range(rounds):
        order = list(keys)
        draw.shuffle(order)
        found.append([*order, *reversed(order)])
    return found


@pytest.mark.parametrize(("seed", "stage"), [(1, "race"), (2, "race"), (1, "first look")])
def test_orders_are_drawn_from_seed_and_stage_and_mirrored(clock: FakeClock, seed: int, stage: str) -> None:
    lab = FakeLab(clock, dict.fromkeys("abcd", 0.01))
    measure(lab, variants(*"abcd"), Ledger(), Deadline(1000, clock), seed, stage, generations=1)
    assert orders(lab, 4) == drawn(seed, stage, "abcd")


def test_left_alone_it_is_twelve_generations_of_three_rounds_of_a_third_of_a_second(clock: FakeClock) -> None:
    lab, ledger = FakeLab(clock, {"a": 0.01, "b": 0.02}), Ledger()
    told: list[tuple[str, float]] = []
    ledger.on_block = lambda key, seconds: told.append((key, seconds))
    a, b = variants("a", "b")
    measure(lab, [a, b], ledger, Deadline(1e6, clock), seed=1)
    assert [(g.stage, len(g.rounds)) for g in ledger.generations] == [("race", 3)] * 12
    assert {block.steps for block in ledger.blocks("a")} == {35}
    assert {block.steps for block in ledger.blocks("b")} == {18}  # 17.5, to the even one
    assert len(told) == 12 * 3 * 4
    assert {(key, round(seconds, 6)) for key, seconds in told} == {("a", 0.01), ("b", 0.02)}


def test_blocks_have_two_thousand_steps_at_most(clock: FakeClock) -> None:
    ledger = Ledger()
    (a,) = variants("a")
    measure(FakeLab(clock, {"a": 1e-5}), [a], ledger, Deadline(1000, clock), 1, generations=1)
    assert {block.steps for block in ledger.blocks("a")} == {2000}


def test_a_generation_that_was_not_finished_in_its_share_has_fewer_rounds(clock: FakeClock) -> None:
    """A step takes 0.1 s, so a round of the shortest blocks takes 2 × 3 × 0.1 s a variant, and calibrating 0.3 s."""
    for budget, rounds in ((0.9, 1), (1.8, 2), (2.6, 4)):
        clock.seconds = 0.0
        ledger = Ledger()
        (a,) = variants("a")
        lab = FakeLab(clock, {"a": 0.1})
        measure(lab, [a], ledger, Deadline(budget, clock), 1, generations=1, rounds=9, block_seconds=0.2)
        assert (budget, len(ledger.generations[0].rounds)) == (budget, rounds)


@pytest.mark.parametrize(("late", "rounds"), [(0.0, 3), (0.0625, 1)])
def test_a_round_is_begun_with_time_for_half_of_it(clock: FakeClock, late: float, rounds: int) -> None:
    """Calibrating takes 0.375 s and a round 0.75 s; before the third of three rounds exactly half a round is left."""
    ledger = Ledger(on_block=lambda key, seconds: clock.sleep(late))
    (a,) = variants("a")
    budget = 2.25 if not late else 1.5
    measure(
        FakeLab(clock, {"a": 0.125}),
        [a],
        ledger,
        Deadline(budget, clock),
        1,
        generations=1,
        rounds=9,
        block_seconds=0.25,
    )
    assert len(ledger.generations[0].rounds) == rounds


def test_the_time_left_is_shared_out_among_the_generations_to_the_next_look(clock: FakeClock) -> None:
    """24 s for four generations to the first look: 6 s each, and of these blocks for 6 s with all three rounds."""
    ledger = Ledger()
    a, b = variants("a", "b")
    measure(FakeLab(clock, {"a": 0.1, "b": 0.1}), [a, b], ledger, Deadline(24, clock), 1, block_seconds=5.0)
    first = ledger.generations[0]
    steps = {block.steps for pairs in first.rounds for pair in pairs.values() for block in pair}
    assert (steps, len(first.rounds)) == ({14}, 1)
    two = Ledger()
    clock.seconds = 0.0
    measure(
        FakeLab(clock, {"a": 0.1, "b": 0.1}), [a, b], two, Deadline(24, clock), 1, block_seconds=5.0, generations=2
    )  # fmt: skip
    assert {block.steps for block in two.generations[0].rounds[0]["a"]} == {29}  # no look after two: 12 s each


@pytest.mark.parametrize(
    ("opening", "step", "seconds", "generations", "variants_"),
    [(1.0, 0.0, 10.0, 2, 5), (1.0, 1.0, 40.0, 2, 2), (0.0, 0.0, 1.0, 1, 1 << 30), (0.5, 0.5, 5.0, 1, 1)],
)
def test_how_many_variants_a_time_is_enough_for(
    opening: float, step: float, seconds: float, generations: int, variants_: int
) -> None:
    ledger = Ledger(seconds_to_open=opening, seconds_per_step=step)
    assert least_seconds(ledger) == opening + 9 * step  # calibration and two blocks of two steps, each with one untimed
    assert affordable(ledger, seconds, generations) == variants_


class Dying(FakeLab):
    """`b` dies in the second of its blocks of a round."""

    def open(self, chosen: Sequence[Variant]) -> dict[str, ChildSubject | TrialFailed]:
        self.fails_at_block = {"b": 2}
        return super().open(chosen)


def test_a_round_that_a_variant_did_not_finish_does_not_count_for_it(clock: FakeClock) -> None:
    lab, ledger = Dying(clock, {"a": 0.01, "b": 0.01}), Ledger()
    measure(lab, variants("a", "b"), ledger, Deadline(1000, clock), seed=1, generations=1)
    assert [set(r) for r in ledger.generations[0].rounds] == [{"a"}] * 3
    assert sorted(lab.closed) == ["a", "b"]


def test_a_variant_that_dies_while_it_is_calibrated_does_not_end_the_others(clock: FakeClock) -> None:
    lab, ledger = FakeLab(clock, {"a": 0.01, "b": 0.01, "c": 0.01}), Ledger()
    lab.fails_at_block["b"] = 0
    measure(lab, variants("a", "b", "c"), ledger, Deadline(1000, clock), seed=1, generations=1)
    assert [set(r) for r in ledger.generations[0].rounds] == [{"a", "c"}] * 3
    assert ledger.failures == {"b": "out of memory"}


class Sampled(FakeLab):
    """Batches of `samples[key]`, so that the time of a sample differs from that of a step."""

    samples: dict[str, int]

    def open(self, chosen: Sequence[Variant]) -> dict[str, ChildSubject | TrialFailed]:
        lab = self

        class Subject_(FakeSubject):
            def block(self, steps: int, untimed: int = 1) -> Block:
                return replace(super().block(steps), samples=lab.samples[self.key] * steps)

        return {v.key: Subject_(self, v.key) for v in chosen}


@pytest.mark.parametrize(
    ("speeds", "samples", "left"),
    [
        ((0.1, 0.4), (8, 8), False),  # four times is not far
        ((0.1, 0.41), (8, 8), True),
        ((0.1, 0.8), (8, 16), False),  # by the sample
        ((0.1, 0.81), (8, 16), True),
        ((0.1, 0.41), (0, 0), True),  # nobody knows how many
        ((0.3, 0.1), (8, 0), True),  # a block without samples counts as one with a single sample
    ],
)
def test_four_times_as_slow_by_the_sample_is_far(
    clock: FakeClock, speeds: tuple[float, float], samples: tuple[int, int], left: bool
) -> None:
    lab, ledger = Sampled(clock, dict(zip("ab", speeds, strict=True))), Ledger()
    lab.samples = dict(zip("ab", samples, strict=True))
    a, b = variants("a", "b")
    measure(lab, [a, replace(b, least_steps=2)], ledger, Deadline(1000, clock), seed=1, generations=1)
    assert bool(ledger.failures) is left


def test_a_resumed_run_knows_what_the_earlier_one_knew(clock: FakeClock) -> None:
    a, b, c = variants("a", "b", "c")
    lab, memo, whole = FakeLab(clock, {"a": 0.01, "b": 0.01, "c": 0.01}, opening=0.5), Kept(), Ledger()
    lab.fails_to_open["b"] = "no data"
    measure(lab, [a, b, c], whole, Deadline(1000, clock), 1, generations=2, memo=memo)
    whole.checked["c"] = "losses agree"
    assert whole.state() == {
        "failures": {"b": "no data"}, "checked": {"c": "losses agree"}, "seconds_to_open": pytest.approx(0.5)
    }  # fmt: skip
    again, fresh = Ledger(), FakeLab(clock, {"a": 0.01, "b": 0.01, "c": 0.01})
    measure(fresh, [a, b, c], again, Deadline(1000, clock), 1, generations=2, memo=memo)
    assert (again.failures, again.seconds_to_open, fresh.order) == ({"b": "no data"}, whole.seconds_to_open, [])
    again.take(whole.state())
    assert again.checked == {"c": "losses agree"}
    again.take({})
    assert again.seconds_to_open == whole.seconds_to_open


def test_a_block_in_numbers() -> None:
    block = Block(2, 4.0, 1.0, 8, restart_per_step=0.5, phases={"forward": 1.0, "backward": 2.0})
    assert (block.seconds_per_step, block.cpu_per_step) == (2.5, 0.5)
    assert block.phases_per_step(("forward", "backward", "optimizer")) == 1.5
    assert Block(1, 1.0, 0.0, 1).cpu_per_step == 1e-9
    assert cpu((Block(1, 1.0, 1.0, 1), Block(1, 1.0, 4.0, 1))) == pytest.approx(2.0)
    plain = Block(1, 1.0, 1.0, 1)
    assert (plain.restart_per_step, plain.queued, plain.phases, plain.finite) == (0.0, 0.0, {}, True)


def test_what_is_new_is_empty() -> None:
    one, other = Ledger(), Ledger()
    one.generations.append(Generation("race"))
    one.failures["a"] = one.checked["a"] = "x"
    one.given_up.add("a")
    assert (other.generations, other.failures, other.checked, other.given_up) == ([], {}, {}, set())
    assert (other.seconds_to_open, other.seconds_per_step, other.samples_per_step("a")) == (0.0, 0.0, 1.0)
    variant = Variant("a", "knob", {})
    assert (variant.overlay, variant.applied, variant.fixed_batch, variant.least_steps) == ({}, "", False, 2)


@pytest.mark.parametrize("side_by_side", [True, False])
def test_what_workers_have_ready_is_used_up_before_each_block(clock: FakeClock, *, side_by_side: bool) -> None:
    """And a training that ends after 60 steps has room for these, too."""
    lab, ledger = FakeLab(clock, {"a": 0.01, "b": 0.01}), Ledger(apart="" if side_by_side else "no memory")
    lab.ends_after = 60
    a, b = variants("a", "b")
    measure(lab, [a, replace(b, untimed=5)], ledger, Deadline(1000, clock), seed=1, generations=3)
    assert lab.untimed == {"a": {1}, "b": {5}}
    assert [len(generation.rounds) for generation in ledger.generations][-1] == 3


def test_blocks_of_different_length_are_compared_by_the_sample(clock: FakeClock) -> None:
    """b may not be measured in fewer than nine steps; five times as slow by the sample is far all the same."""
    lab, ledger = FakeLab(clock, {"a": 0.1, "b": 0.5}), Ledger()
    a, b = variants("a", "b")
    measure(lab, [a, replace(b, least_steps=9)], ledger, Deadline(1000, clock), seed=1, generations=1)
    assert ledger.failures == {"b": "not measured further: 5 times as slow in its first steps"}


def test_later_generations_share_what_is_left_to_the_look_before_them(clock: FakeClock) -> None:
    """12 s before the fourth of four generations are for it alone: a third of a second is what its blocks want."""
    ledger, memo = Ledger(), Kept()
    a, b = variants("a", "b")
    lab = FakeLab(clock, {"a": 0.01, "b": 0.01})
    measure(lab, [a, b], ledger, Deadline(1000, clock), 1, generations=3, memo=memo)
    ledger = Ledger()
    measure(lab, [a, b], ledger, Deadline(5, clock), 1, generations=4, memo=memo)
    assert {block.steps for block in ledger.generations[3].rounds[0]["a"]} == {35}
    assert len(ledger.generations[3].rounds) == 3


def test_an_interval_that_begins_at_one_decides_nothing() -> None:
    assert verdict(1.0, 1.2) == "undecided"
    assert verdict(math.nextafter(1.0, 2.0), 1.2) == "slower"


def test_one_after_the_other_is_told_whole(clock: FakeClock) -> None:
    """4 s for two variants, of which opening takes one each: a second for four blocks, so blocks of a quarter of one."""
    lab, ledger, memo = SmallLab(clock, {"a": 0.01, "b": 0.02}, opening=1.0), Ledger(), Kept()
    told: list[tuple[str, float]] = []

    def on_block(key: str, seconds: float) -> None:
        told.append((key, round(seconds, 3)))
        lab.speeds["a"] += 0.001  # so that each block of it is another one

    ledger.on_block = on_block
    measure(lab, variants("a", "b"), ledger, Deadline(4, clock), seed=1, rounds=2, memo=memo)
    (generation,) = ledger.generations
    seen = [{k: [(b.steps, round(b.wall, 3)) for b in pair] for k, pair in r.items()} for r in generation.rounds]
    assert seen == [
        {"a": [(25, 0.25), (25, 0.275)], "b": [(12, 0.24), (12, 0.24)]},
        {"a": [(25, 0.3), (25, 0.325)], "b": [(12, 0.24), (12, 0.24)]},
    ]
    assert told == [("a", 0.01), ("a", 0.011), ("a", 0.012), ("a", 0.013), *[("b", 0.02)] * 4]
    assert (ledger.seconds_to_open, ledger.seconds_per_step) == pytest.approx((1.0, 0.02))
    state = {"failures": {}, "checked": {}, "seconds_to_open": pytest.approx(1.0), "apart": "two copies do not fit"}
    assert memo.generations == [(generation, state)]


def test_one_after_the_other_blocks_are_no_longer_and_no_shorter_than_elsewhere(clock: FakeClock) -> None:
    """2000 steps at most, as many as a variant needs at least, and a third of a second where there is time for it."""
    lab, ledger = SmallLab(clock, {"a": 1e-5, "b": 0.5, "c": 0.05}), Ledger()
    a, b, c = variants("a", "b", "c")
    measure(lab, [a, replace(b, least_steps=9), c], ledger, Deadline(1000, clock), seed=1, generations=1)
    assert [{x.steps for x in ledger.blocks(key)} for key in "abc"] == [{2000}, {9}, {7}]


def test_one_after_the_other_the_last_second_is_used(clock: FakeClock) -> None:
    lab, ledger = SmallLab(clock, {"a": 0.01, "b": 0.01}), Ledger()
    measure(lab, variants("a", "b"), ledger, Deadline(0.5, clock), seed=1, generations=1, rounds=1)
    assert [set(r) for r in ledger.generations[0].rounds] == [{"a", "b"}]


def test_one_after_the_other_what_fails_does_not_end_the_others(clock: FakeClock) -> None:
    lab, ledger = SmallLab(clock, dict.fromkeys("abcd", 0.01)), Ledger()
    lab.fails_to_open["b"] = "does not build"
    lab.fails_at_block["c"] = 0
    measure(lab, variants(*"abcd"), ledger, Deadline(1000, clock), seed=1, generations=1)
    assert ledger.failures == {"b": "does not build", "c": "out of memory"}
    assert [set(r) for r in ledger.generations[0].rounds] == [{"a", "d"}] * 3


@pytest.mark.parametrize("failing", ["a", "abc"])
def test_one_after_the_other_ends_without_the_base(clock: FakeClock, failing: str) -> None:
    """What the failures were is kept for a resumed run; rounds without the base compare nothing."""
    lab, ledger, memo = SmallLab(clock, dict.fromkeys("abc", 0.01)), Ledger(), Kept()
    lab.fails_to_open = dict.fromkeys(failing, "no data")
    measure(lab, variants(*"abc"), ledger, Deadline(1000, clock), seed=1, memo=memo)
    assert ledger.generations == []
    assert [(len(g.rounds), state["failures"]) for g, state in memo.generations] == [
        (0, dict.fromkeys(failing, "no data"))
    ]
