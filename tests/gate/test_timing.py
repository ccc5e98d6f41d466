"""Pairs of processes that take exactly as long as told: who runs when, how long, and when it ends."""

from __future__ import annotations

import itertools
import types
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fake_clock import FakeClock
from surveys import facts

from perfaudit.gate import timing
from perfaudit.gate.checkout import Checkout
from perfaudit.gate.decision import judged_together, time_verdict
from perfaudit.gate.one_lab import ChildOneLab
from perfaudit.gate.pair_lab import _warm_up
from perfaudit.gate.pair_plan import (
    FEWEST_STEPS,
    SHORTEST,
    Plan,
    drawn_seed,
    first_side_and_order,
    plan_pair,
    shorten_plan,
)
from perfaudit.gate.records import (
    ORDERS,
    Blocks,
    Pair,
    Quad,
    Side,
    TargetRecord,
    TimedBlock,
    Typical,
    pair_from_json,
    pair_to_json,
)
from perfaudit.gate.timing import _Pace, time_pairs, time_targets
from perfaudit.measure import journal
from perfaudit.measure.child import Child
from perfaudit.measure.clock import Deadline
from perfaudit.measure.nursery import START_SECONDS
from perfaudit.measure.runner import TrialEnded, TrialFailed
from perfaudit.measure.step_times import step_seconds
from perfaudit.measure.watch import Watch
from perfaudit.target.names import Target, parse


class FakeLab:
    """Steps of a side take `speeds[number][side]` seconds, opening a pair takes `opening`; some fail as told."""

    def __init__(
        self, clock: FakeClock, *speeds: tuple[float, float], opening: float = 0.0, blocks: Blocks = "short"
    ) -> None:
        self.clock, self.opening, self.blocks = clock, opening, blocks
        self.samples: dict[Side, float] = {"base": 32, "head": 32}
        self.speeds: list[dict[Side, float]] = [{"base": base, "head": head} for base, head in speeds]
        self.fails_to_open: dict[tuple[int, Side], str] = {}
        self.fails_at_block: tuple[Side, int] | None = None
        self.ends_after: int | None = None  # steps of each side
        self.interrupt_at: int | None = None
        self.order: list[tuple[int, Side]] = []
        self.steps: list[int] = []
        self.opened: list[tuple[int, Side, int]] = []
        self.left: list[float] = []
        self.alive = 0

    def open(self, number: int, first: Side, seed: int, seconds: float) -> dict[Side, FakeSubject | TrialFailed]:
        self.left.append(seconds)
        self.clock.sleep(self.opening)
        self.opened.append((number, first, seed))
        sides: list[Side] = ["base", "head"]
        found: dict[Side, FakeSubject | TrialFailed] = {}
        for side in sides:
            why = self.fails_to_open.get((number, side))
            found[side] = TrialFailed(why) if why else FakeSubject(self, number, side)
        return found

    def typical(self, number: int) -> Typical:
        return "median"

    def length(self, number: int) -> Blocks:
        return self.blocks


class FakeSubject:
    def __init__(self, lab: FakeLab, number: int, side: Side) -> None:
        self.lab, self.number, self.side, self.seconds_per_step = lab, number, side, lab.speeds[number][side]
        self.made = 0
        lab.alive += 1

    def block(self, steps: int, untimed: int = 1) -> TimedBlock:
        lab, side = self.lab, self.side
        if lab.interrupt_at == len(lab.order):
            raise KeyboardInterrupt
        if lab.fails_at_block == (side, lab.order.count((self.number, side))):
            raise TrialFailed("out of memory")
        self.made += steps + untimed
        if lab.ends_after is not None and self.made > lab.ends_after:
            raise TrialEnded("the script ended")
        lab.order.append((self.number, side))
        lab.steps.append(steps)
        seconds = lab.speeds[self.number][side]
        lab.clock.sleep((steps + untimed) * seconds)
        total, samples = steps * seconds, lab.samples[side]
        return TimedBlock(side, steps, seconds, seconds, 0.0, total, total, 0.0, samples, samples)

    def close(self) -> None:
        self.lab.alive -= 1


class Kept(journal.Kept):
    def __init__(self) -> None:
        self.pairs: list[tuple[dict[str, Any], dict[str, Any]]] = []

    def earlier_sets(self, stage: str) -> list[tuple[Pair, dict[str, Any]]]:
        return [(pair_from_json(pair), state) for pair, state in self.pairs]

    def keep_set(self, stage: str, piece: Pair, state: dict[str, Any]) -> None:
        self.pairs.append((pair_to_json(piece), state))


def run(lab: FakeLab, budget: float = 120.0, **options: Any) -> list[TargetRecord]:
    records = [TargetRecord(f"{number}.py") for number in range(len(lab.speeds))]
    time_pairs(lab, records, Deadline(budget, lab.clock), **options)
    return records


def test_a_slower_head_is_found_with_its_ratio_at_the_first_look(clock: FakeClock) -> None:
    lab = FakeLab(clock, (0.010, 0.011))
    (record,) = run(lab)
    assert (record.settled, len(record.pairs), lab.alive) == (True, 4, 0)
    found = time_verdict(record)
    assert (found.verdict, found.ratio) == ("regressed", pytest.approx(1.1))
    assert (found.seconds_before, found.seconds_after) == pytest.approx((0.010, 0.011))
    assert clock.now() < 4 * 7


def test_a_training_that_ends_is_timed_until_then(clock: FakeClock) -> None:
    lab = FakeLab(clock, (0.005, 0.0055))
    lab.ends_after = 50
    (record,) = run(lab)
    assert (time_verdict(record).verdict, record.failures, lab.alive) == ("regressed", {}, 0)
    first, *others = ([len(quad.blocks) for quad in pair.quads] for pair in record.pairs)
    assert first == [24]  # what was planned did not fit: the rounds that did are one quad
    assert all(quads == [4, 4, 4, 4] for quads in others)  # planned for the steps there are
    assert record.steps_to_end == 48
    record.settled, record.pairs[1:] = False, []
    assert time_verdict(record, ended=True).reason.endswith("it ends 48 steps after its warm-up: let it train longer")


def test_a_training_that_ends_before_a_quad_is_a_failure(clock: FakeClock) -> None:
    lab = FakeLab(clock, (0.005, 0.005))
    lab.ends_after = 3
    (record,) = run(lab)
    assert (time_verdict(record).verdict, len(record.pairs)) == ("failed", 1)


@pytest.mark.parametrize(
    ("steps", "plan"),
    [
        (1000, Plan(4, 20, 4, 0)),
        (100, Plan(4, 3, 4, 0)),
        (20, Plan(4, 1, 2, 0)),
        (5, Plan(2, 1, 1, 0)),
        (1, Plan(1, 1, 1, 0)),
    ],
)
def test_a_plan_for_so_many_steps(steps: int, plan: Plan) -> None:
    assert shorten_plan(Plan(4, 20, 4, 0), steps) == plan


def test_identical_code_passes_at_the_first_look(clock: FakeClock) -> None:
    (record,) = run(FakeLab(clock, (0.010, 0.010)))
    assert (time_verdict(record).verdict, len(record.pairs)) == ("pass", 4)


def test_quads_take_turns_so_that_each_side_follows_itself_equally_often(clock: FakeClock) -> None:
    for blocks in ("short", "long"):
        (record,) = run(FakeLab(clock, (0.010, 0.010), blocks=blocks))  # type: ignore[arg-type]
        for pair in record.pairs:
            sides = [block.side for quad in pair.quads for block in quad.blocks]
            assert len(pair.quads) % 2 == 0
            rounds = [sides[i : i + 4] for i in range(0, len(sides), 4)]
            for four, following in itertools.pairwise(rounds):
                assert four[0] == four[3] != four[1] == four[2]
                assert following[0] != four[0]
            after_itself = [a for a, b in itertools.pairwise(sides) if a == b]
            assert after_itself.count("base") - after_itself.count("head") in {-1, 0, 1}
        starts = [pair.quads[0].blocks[0].side for pair in record.pairs]
        assert (starts.count("base"), starts.count("head")) == (2, 2)


@pytest.mark.parametrize("number", range(4))
def test_order_is_balanced_at_every_look_by_design(number: int) -> None:
    """Which side is opened first, and with which the first block begins: each half of the pairs, and all four together alike."""
    for seed in range(20):
        order = [first_side_and_order(seed, number, pair) for pair in range(16)]
        for look in (4, 8, 16):
            assert sorted(order[:look]) == sorted([(s, o) for s in ("base", "head") for o in (0, 1)] * (look // 4))


def test_order_differs_from_gate_to_gate_and_from_target_to_target() -> None:
    firsts = {(seed, number): first_side_and_order(seed, number, 0) for seed in range(20) for number in range(3)}
    assert len({firsts[seed, 1] for seed in range(20)}) == 4
    assert any(firsts[seed, 0] != firsts[seed, 1] for seed in range(20))


def test_the_seed_of_a_gate_is_drawn_and_kept(clock: FakeClock) -> None:
    (record,) = run(FakeLab(clock, (0.010, 0.010)))
    assert record.seed == record.pairs[0].seed
    assert run(FakeLab(clock, (0.010, 0.010)), seed=5)[0].seed == 5
    drawn = {drawn_seed() for _ in range(20)}
    assert len(drawn) > 10
    assert all(0 <= seed < 2**24 for seed in drawn)


def test_every_pair_has_a_seed_of_its_own_for_both_sides(clock: FakeClock) -> None:
    lab = FakeLab(clock, (0.010, 0.010))
    run(lab, seed=7)
    assert [seed for _, _, seed in lab.opened] == [7, 8, 9, 10]


@pytest.mark.parametrize(
    ("seconds_per_step", "seconds", "length", "plan"),
    [
        (0.010, 60.0, "short", Plan(4, 17, 2, 0)),  # three seconds a side, however large the budget
        (0.010, 3.0, "short", Plan(4, 8, 2, 0)),  # fewer rounds rather than fewer quads
        (0.010, 0.2, "short", Plan(2, 1, 2, 0)),
        (0.010, 0.0, "short", Plan(2, 1, 2, 0)),
        (0.150, 6.0, "short", Plan(4, 2, 1, 0)),
        (2.000, 6.0, "short", Plan(2, 1, 1, 0)),  # takes 16 s
        (1e-6, 60.0, "short", Plan(4, 20, 2000, 0)),
        (0.010, 60.0, "long", Plan(4, 1, 35, 1)),
        (0.010, 3.0, "long", Plan(4, 1, 17, 1)),  # shorter blocks rather than fewer quads
        (0.010, 0.5, "long", Plan(2, 1, 5, 1)),
        (0.010, 0.0, "long", Plan(2, 1, FEWEST_STEPS, 1)),
        (2.000, 6.0, "long", Plan(2, 1, FEWEST_STEPS, 1)),  # takes 64 s
        (0.150, 6.0, "long", Plan(2, 1, 3, 1)),
        (1e-6, 60.0, "long", Plan(4, 1, 2000, 1)),
    ],
)
def test_what_a_pair_is_made_of(seconds_per_step: float, seconds: float, length: Blocks, plan: Plan) -> None:
    assert plan_pair(seconds_per_step, seconds, length) == plan


def test_the_budget_is_shared_out_over_sixteen_pairs(clock: FakeClock) -> None:
    """40 s and one second to open a pair leave 1.5 s for its steps; a head that swings by 8 % is not settled before."""
    lab = FakeLab(clock, (0.010, 0.010), opening=1.0)
    opened = lab.open

    def swinging(number: int, first: Side, seed: int, seconds: float) -> dict[Side, FakeSubject | TrialFailed]:
        lab.speeds[0]["head"] = 0.0108 if seed % 2 else 0.0096
        return opened(number, first, seed, seconds)

    lab.open = swinging  # type: ignore[method-assign]
    (record,) = run(lab, budget=40.0)
    assert len(record.pairs) == 16
    assert clock.now() == pytest.approx(40.0, abs=2.0)
    assert max(lab.steps[16:]) < 35
    assert not record.settled


def test_slow_steps_make_fewer_pairs_and_the_verdict_says_so(clock: FakeClock) -> None:
    lab = FakeLab(clock, (1.0, 1.0), opening=4.0, blocks="long")
    (record,) = run(lab, budget=120.0)
    assert set(lab.steps) == {FEWEST_STEPS}
    assert clock.now() <= 120.0
    found = time_verdict(record, ended=True)
    assert found.verdict == "inconclusive"
    assert found.reason.endswith("are too few for an interval (a step takes 1 s): raise --budget")


def test_the_end_of_the_budget_comes_between_quads(clock: FakeClock) -> None:
    lab = FakeLab(clock, (0.5, 0.5), opening=1.0)
    (record,) = run(lab, budget=30.0)
    assert all(len(quad.blocks) == 4 for pair in record.pairs for quad in pair.quads)
    assert record.blocks("base") and len(record.blocks("base")) == len(record.blocks("head"))
    assert lab.alive == 0


def test_nothing_is_begun_that_cannot_come_to_a_quad(clock: FakeClock) -> None:
    lab = FakeLab(clock, (0.5, 0.5), opening=5.0, blocks="long")
    run(lab, budget=30.0)
    assert (len(lab.opened), clock.now()) == (1, 21.0)  # another one would come to its first quad after 13 s
    assert run(FakeLab(clock, (0.5, 0.5)), budget=0.0)[0].pairs == []


def test_pairs_of_an_earlier_run_are_not_measured_again(clock: FakeClock) -> None:
    """As if it had been cut off in its third pair: order, seeds and blocks are those of a gate that was not."""
    whole, memo = FakeLab(clock, (0.010, 0.011)), Kept()
    (record,) = run(whole, seed=7, memo=memo)
    del memo.pairs[2:]
    lab = FakeLab(clock, (0.010, 0.011))
    (again,) = run(lab, seed=7, memo=memo)
    assert (again.settled, len(again.pairs), time_verdict(again).verdict) == (True, 4, "regressed")
    assert lab.opened == whole.opened[2:]
    assert list(map(pair_to_json, again.pairs)) == list(map(pair_to_json, record.pairs))
    del memo.pairs[1:]
    broken = FakeLab(clock, (0.010, 0.011))
    broken.fails_to_open[0, "head"] = "no data"
    (failed,) = run(broken, seed=7, memo=memo)
    (recalled,) = run(FakeLab(clock, (0.010, 0.011)), seed=7, memo=memo)
    assert failed.failures == recalled.failures == {"head": "no data (in process pair 2, after it had run)"}


def test_what_failed_before_a_pair_was_finished_is_tried_again(clock: FakeClock) -> None:
    broken, memo = FakeLab(clock, (0.010, 0.011)), Kept()
    broken.fails_to_open[0, "head"] = "no data"
    (failed,) = run(broken, seed=7, memo=memo)
    (again,) = run(FakeLab(clock, (0.010, 0.011)), seed=7, memo=memo)
    assert (failed.failures, again.failures) == ({"head": "no data"}, {})
    assert time_verdict(again).verdict == "regressed"


def test_targets_take_turns(clock: FakeClock) -> None:
    """The budget is enough for four pairs of each, of short blocks, and both can be judged: neither waits for the other."""
    lab = FakeLab(clock, (0.3, 0.3), (0.01, 0.01), opening=2.0, blocks="long")
    records = run(lab, budget=60.0)
    assert [number for number, _, _ in lab.opened[:6]] == [0, 1, 0, 1, 0, 1]
    assert [len(record.pairs) for record in records] == [4, 4]
    assert [found.verdict for found in judged_together(records)] == ["pass", "pass"]


def test_a_look_that_opening_alone_would_eat_up_is_not_aimed_for(clock: FakeClock) -> None:
    """16 pairs take 64 s to open and 8 take 32, so 60 s go to four pairs, whose blocks are as long as they should be."""
    lab = FakeLab(clock, (0.010, 0.010), opening=4.0, blocks="long")
    (record,) = run(lab, budget=60.0)
    assert (record.settled, len(record.pairs)) == (True, 4)
    assert set(lab.steps[16:]) == {35}


def opened(pairs: int, opening: float, **changes: Any) -> TargetRecord:
    """A target of which so many pairs were opened, in so many seconds each."""
    return TargetRecord("t.py", pairs=[Pair("base", n, opening) for n in range(pairs)], **changes)


@pytest.mark.parametrize(
    ("left", "records", "seconds"),
    [
        (30.0, [opened(1, 1.0)], 1.0),  # fifteen pairs to come, and half of the time for opening them
        (29.9, [opened(1, 1.0)], 22.9 / 7),  # a little less: seven
        (30.0, [opened(1, 1.0), opened(1, 9.0, settled=True), opened(1, 9.0, failures={"head": "why"})], 1.0),
        (60.0, [opened(1, 1.0), opened(1, 1.0)], 1.0),
        (5.9, [opened(1, 1.0)], 2.9 / 3),  # less than half for steps, but the first look has to be reached
        (2.0, [opened(1, 1.0)], 0.0),  # opening alone takes more
        (16.0, [opened(0, 0.0)], 1.0),
        (20.0, [opened(5, 4.0)], 6.0),  # the first look is past, and half of the time is enough for two pairs
        (15.0, [opened(5, 4.0)], 11.0),  # for one
        (7.0, [opened(5, 4.0)], 3.0),  # for not even one
        (28.0, [opened(5, 4.0), opened(5, 3.0)], 3.5),
    ],
)
def test_how_many_seconds_a_pair_may_take(
    clock: FakeClock, left: float, records: list[TargetRecord], seconds: float
) -> None:
    assert _Pace(Deadline(left, clock)).seconds(records) == pytest.approx(seconds)


def test_a_pair_is_not_begun_that_would_end_with_the_deadline(clock: FakeClock) -> None:
    pace = _Pace(Deadline(10.0, clock))
    quad = Quad(tuple(TimedBlock(side, 2, 0.1, 0.1, 0.0, 0.2, 0.2, 0.0) for side in ORDERS[0]))
    shortest = SHORTEST["long"].quad_seconds(0.1)
    for opening, wanted in ((10.0 - shortest, False), (10.0 - shortest - 0.001, True)):
        record = TargetRecord("t.py", pairs=[Pair("base", 1, opening, [quad])])
        assert pace.allows(record) == wanted
        assert not pace.allows(replace(record, settled=True))
        assert not pace.allows(replace(record, pairs=record.pairs * 16))
    no_quad = TargetRecord("t.py", pairs=[Pair("base", 1, 4.0, [], 6.0)])  # a quad that did not fit
    assert not pace.allows(no_quad)
    assert pace.allows(replace(no_quad, pairs=[Pair("base", 1, 4.0, [], 5.9)]))


def test_targets_are_measured_by_a_lab_for_their_folder(clock: FakeClock, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[Any, ...]] = []

    def no_lab(*settings: Any) -> None:
        asked.append(settings)
        raise KeyboardInterrupt

    monkeypatch.setattr(timing, "PairLab", no_lab)
    targets, base = [Target("a.py"), Target("b.py")], Checkout(Path("/before"), Path("/now"), Path("/now"))
    records = [TargetRecord("a.py", settled=True)]
    with pytest.raises(KeyboardInterrupt):
        time_targets(targets, base, records, 60.0, reference="main", clock=clock)
    assert asked == [(targets, base, "auto", START_SECONDS, {}, {})]
    assert [(r.target, r.reference, r.interrupted) for r in records] == [("a.py", "", False), ("b.py", "main", True)]
    facts: dict[Any, Any] = {}
    with pytest.raises(KeyboardInterrupt):
        time_targets(targets, base, [], 60.0, device="cpu", timeout=9.0, facts=facts, former={"a.py": "c.py"})
    made, lab = list[tuple[Any, ...]](), object()
    monkeypatch.setattr(timing, "PairLab", lambda *_: lab)
    monkeypatch.setattr(timing, "time_pairs", lambda *given: made.append(given))
    together = list[tuple[Any, ...]]()
    monkeypatch.setattr(timing, "time_in_one_training", lambda *given: together.append(given))
    watch = Watch()
    time_targets(targets, base, records, 60.0, 0.07, 0.02, seed=3, watch=watch, clock=clock, in_one=False)
    assert (together, made.pop()[1]) == ([], records)
    time_targets(targets, base, records, 60.0, 0.07, 0.02, seed=3, watch=watch, clock=clock)
    (((first, raced, left, settles, *others),)) = together
    assert others.pop().path is None
    assert settles.keywords == {"limit": 0.07, "tolerated": 0.02, "family": 2}
    assert (first, raced, left, others) == (ChildOneLab(lab), records, made[0][2], [watch])  # type: ignore[arg-type]
    assert [record.seed for record in records] == [3, 3]
    (((one, of, deadline, *rest),)) = made
    assert rest.pop() is None  # this machine measures
    assert rest.pop().earlier_sets("a.py") == []
    assert (one, of, deadline.seconds_left(), rest) == (lab, records, 60.0, [0.07, 0.02, 3, watch])
    assert asked[1][2:] == ("cpu", 9.0, {}, {"a.py": "c.py"}) and asked[1][4] is facts


def test_where_opening_takes_most_of_the_budget_the_rest_goes_into_steps(clock: FakeClock) -> None:
    """Four pairs take 24 s of 36 to open; 3 s are left for the steps of each but the first, which knew nothing of that."""
    lab = FakeLab(clock, (0.020, 0.020), opening=6.0)
    (record,) = run(lab, budget=36.0)
    assert len(record.pairs) == 4
    rounds = [sum(len(quad.blocks) for quad in pair.quads) // 4 for pair in record.pairs]
    assert min(rounds[1:]) >= 25
    assert clock.now() <= 36.0


def test_after_the_first_look_half_of_the_time_goes_into_steps(clock: FakeClock) -> None:
    """Four pairs were not enough, and opening four more takes most of what is left: fewer, with longer sides."""
    lab = FakeLab(clock, (0.020, 0.020), opening=6.0)
    opened = lab.open

    def swinging(number: int, first: Side, seed: int, seconds: float) -> dict[Side, FakeSubject | TrialFailed]:
        lab.speeds[0]["head"] = 0.022 if seed % 2 else 0.019
        return opened(number, first, seed, seconds)

    lab.open = swinging  # type: ignore[method-assign]
    (record,) = run(lab, budget=64.0)
    assert 4 < len(record.pairs) < 8
    assert all(sum(len(quad.blocks) for quad in pair.quads) > 4 * 20 for pair in record.pairs[4:-1])
    assert clock.now() <= 64.0


def test_a_settled_target_leaves_its_time_to_the_others(clock: FakeClock) -> None:
    lab = FakeLab(clock, (0.010, 0.015), (0.010, 0.010))
    opened = lab.open

    def swinging(number: int, first: Side, seed: int, seconds: float) -> dict[Side, FakeSubject | TrialFailed]:
        lab.speeds[1]["head"] = 0.0106 if seed % 2 else 0.0098
        return opened(number, first, seed, seconds)

    lab.open = swinging  # type: ignore[method-assign]
    clear, open_ = run(lab, budget=150.0)
    assert (len(clear.pairs), clear.settled) == (4, True)
    assert len(open_.pairs) > 4
    assert judged_together([clear, open_])[0].verdict == "regressed"


@pytest.mark.parametrize("side", ["base", "head"])
def test_a_side_that_does_not_open_ends_its_target_only(clock: FakeClock, side: Side) -> None:
    lab = FakeLab(clock, (0.01, 0.01), (0.01, 0.01))
    lab.fails_to_open[0, side] = "train.py defines no build_model"
    broken, fine = run(lab)
    assert broken.failures == {side: "train.py defines no build_model"}
    assert (time_verdict(broken).verdict, time_verdict(fine).verdict) == ("failed", "pass")
    assert lab.alive == 0


def test_a_step_that_crashes_on_one_side_only_says_where(clock: FakeClock) -> None:
    lab = FakeLab(clock, (0.01, 0.01), blocks="long")
    lab.fails_at_block = ("head", 13)
    (record,) = run(lab)
    assert record.failures == {"head": "out of memory (in process pair 2, after it had run)"}
    assert time_verdict(record).reason == "your code does not run: out of memory (in process pair 2, after it had run)"
    assert (lab.alive, len(record.pairs)) == (0, 2)


def test_an_interruption_loses_no_quad_and_no_process(clock: FakeClock) -> None:
    lab = FakeLab(clock, (0.01, 0.01), blocks="long")
    lab.interrupt_at = 4 * 4 + 6
    record = TargetRecord("train.py")
    with pytest.raises(KeyboardInterrupt):
        time_pairs(lab, [record], Deadline(120, clock))
    assert [len(pair.quads) for pair in record.pairs] == [4, 1]
    assert lab.alive == 0
    assert time_verdict(record, ended=True).verdict == "inconclusive"


def test_a_quad_that_would_outlast_the_budget_is_not_begun(clock: FakeClock) -> None:
    """Four blocks of four steps of 3 s: 48 s, of which 40 are left. Nobody could say more than that, and what to do."""
    lab = FakeLab(clock, (3.0, 3.0), opening=4.0, blocks="long")
    (record,) = run(lab, budget=44.0)
    assert (lab.order, len(lab.opened), clock.now()) == ([], 1, 4.0)  # nor is another pair opened for it
    found = time_verdict(record, ended=True)
    assert (found.verdict, found.ratio, found.smallest) == ("inconclusive", None, None)
    assert found.reason == (
        "nothing was measured: once both versions had started, the budget had no room for the shortest comparison (48 s); "
        "raise --budget"
    )


def test_the_slower_side_counts_for_what_fits(clock: FakeClock) -> None:
    lab = FakeLab(clock, (0.5, 4.0), opening=1.0)
    (record,) = run(lab, budget=12.0)
    assert [len(pair.quads) for pair in record.pairs] == [1]
    assert clock.now() <= 12.0


def test_a_target_that_got_no_turn_was_not_reached(clock: FakeClock) -> None:
    lab = FakeLab(clock, (0.5, 0.5), (0.5, 0.5), opening=20.0)
    _, late = run(lab, budget=20.0)
    found = time_verdict(late, ended=True)
    assert (found.verdict, found.reason) == (
        "inconclusive",
        "not reached: the budget ended before its turn; raise --budget",
    )


def test_an_interrupted_gate_is_not_told_to_raise_its_budget(clock: FakeClock) -> None:
    lab = FakeLab(clock, (0.01, 0.01), (0.01, 0.01), blocks="long")
    lab.interrupt_at = 6  # in the second quad of the first pair
    records = [TargetRecord("a.py"), TargetRecord("b.py")]
    with pytest.raises(KeyboardInterrupt):
        time_pairs(lab, records, Deadline(120, clock))
    assert [verdict.reason for verdict in judged_together(records)] == [
        "interrupted: 1 comparison in 1 pair of processes is too few for an interval",
        "not reached: interrupted before its turn",
    ]


def test_a_gate_that_is_interrupted_while_its_first_pair_opens_says_that_its_turn_had_come(
    clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    lab, records = FakeLab(clock, (0.01, 0.01), (0.01, 0.01)), [TargetRecord("a.py"), TargetRecord("b.py")]
    monkeypatch.setattr(lab, "open", interrupted)
    with pytest.raises(KeyboardInterrupt):
        time_pairs(lab, records, Deadline(120, clock))
    assert [verdict.reason for verdict in judged_together(records)] == [
        "interrupted before anything was measured",
        "not reached: interrupted before its turn",
    ]


def test_those_who_watch_are_told_which_version_was_timed(clock: FakeClock) -> None:
    told: set[str] = set()

    class Names(Watch):
        def block(self, name: str, seconds_per_step: float) -> None:
            told.add(name)

    time_pairs(FakeLab(clock, (0.01, 0.01)), [TargetRecord("a.py")], Deadline(30, clock), watch=Names())
    assert told == {"a.py, reference", "a.py, head"}


def test_the_lab_is_told_how_long_a_warm_up_may_be(clock: FakeClock) -> None:
    lab = FakeLab(clock, (0.010, 0.010), opening=1.0)
    run(lab, budget=40.0)
    assert lab.left[0] == 40.0
    assert 40.0 - 6.0 < lab.left[1] < 40.0 - 1.0


def test_a_smaller_batch_is_judged_by_its_samples(clock: FakeClock) -> None:
    """A step of 32 samples takes a seventh of one of 256: it is slower by a sample."""
    lab = FakeLab(clock, (0.070, 0.010))
    lab.samples = {"base": 256, "head": 32}
    (record,) = run(lab)
    found = time_verdict(record)
    assert (found.verdict, found.ratio) == ("regressed", pytest.approx(8 / 7))
    assert (found.seconds_before, found.seconds_after) == pytest.approx((0.070, 0.010))
    assert found.reason == "per sample: a step has 32 samples now, 256 before"


class FakeSubjectOfLoader:
    """Steps take a second each on the clock of the blocks."""

    def __init__(self) -> None:
        self.asked: list[int] = []
        self.seconds_per_step = 0.0

    def block(self, steps: int, untimed: int = 1) -> TimedBlock:
        self.asked.append(steps)
        return TimedBlock("base", steps, 1.0, 1.0, 0.0, float(steps), float(steps), 0.0)


@pytest.mark.parametrize(
    ("workers", "prefetch", "seconds", "asked"),
    [
        (0, None, 100.0, [1, 2]),
        (4, 2, 100.0, [1, 8, 2]),
        (16, 8, 1000.0, [1, *[8] * 8, 2]),  # 64 batches ahead at most
        (16, 8, 20.0, [1, 8, 8, 8]),  # cut off
        (4, 2, 0.0, [1, 8]),
    ],
)
def test_warming_up(workers: int, prefetch: int | None, seconds: float, asked: list[int]) -> None:
    subject = FakeSubjectOfLoader()
    _warm_up(subject, facts(loader={"num_workers": workers, "prefetch_factor": prefetch}).loader, seconds)  # type: ignore[arg-type]
    assert (subject.asked, subject.seconds_per_step) == (asked, 1.0)


class FakeTraining:
    """Steps on a device whose clock is that of its events; the epoch restarts before every third step."""

    def __init__(self, device: str, clock: FakeClock, every: int = 3) -> None:
        self.device = types.SimpleNamespace(type=device)
        self.clock, self.every, self.made, self.waits = clock, every, 0, 0
        self.restart_seconds: list[float] = []

    def whole_step(self, fixed: bool) -> int:
        if self.made % self.every == 0:
            self.restart_seconds.append(0.5)
            self.clock.sleep(0.5)
        self.made += 1
        self.clock.sleep(0.010 * self.made)
        return self.made  # a batch; so many samples are in it

    def synchronize(self) -> None:
        self.waits += 1


def test_steps_on_the_cpu_are_timed_without_restarts(clock: FakeClock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.perf_counter", clock.now)
    seconds, samples, with_restarts = step_seconds(FakeTraining("cpu", clock), 4, int)
    assert (seconds, samples, with_restarts) == (pytest.approx([0.01, 0.02, 0.03, 0.04]), [1, 2, 3, 4], False)


@pytest.mark.parametrize(
    ("every", "seconds", "samples", "with_restarts"),
    [(3, [0.02, 0.03], [2, 3], False), (1, [0.51, 0.52, 0.53, 0.54], [1, 2, 3, 4], True)],
)
def test_steps_on_cuda_are_timed_by_events_and_one_wait(
    clock: FakeClock,
    monkeypatch: pytest.MonkeyPatch,
    every: int,
    seconds: list[float],
    samples: list[int],
    with_restarts: bool,
) -> None:
    class Event:
        def __init__(self, enable_timing: bool) -> None:
            assert enable_timing

        def record(self, stream: object) -> None:
            self.at = clock.now()

        def elapsed_time(self, other: Event) -> float:  # milliseconds
            return 1e3 * (other.at - self.at)

    cuda = types.SimpleNamespace(Event=Event, current_stream=lambda device: device)
    monkeypatch.setitem(__import__("sys").modules, "torch", types.SimpleNamespace(cuda=cuda))
    training = FakeTraining("cuda", clock, every)
    assert step_seconds(training, 4, int) == (pytest.approx(seconds), samples, with_restarts)
    assert training.waits == 1


TRAIN = """
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def build_model():
    return nn.Linear(8, 2)


def build_dataloader():
    return DataLoader(TensorDataset(torch.randn(64, 8), torch.randint(0, 2, (64,))), batch_size=8)
"""


@pytest.mark.slow
def test_real_processes_of_two_folders(project: Any) -> None:
    """The reference crashes in its seventh step, the code as it is does not; both are built from their own folder."""
    crash = "\n\nmade = []\n\n\ndef training_step(model, batch):\n    made.append(1)\n    if len(made) > {}:\n"
    crash += "        raise ValueError('seventh')\n    return nn.functional.cross_entropy(model(batch[0]), batch[1])\n"
    folder: Path = project(**{"train.py": TRAIN + crash.format(10**9), "base/train.py": TRAIN + crash.format(6)})
    records: list[TargetRecord] = []
    base = Checkout(folder / "base", folder, folder)
    time_targets([parse("train.py")], base, records, budget=60.0, device="cpu", reference="main")
    (record,) = records
    assert set(record.failures) == {"base"}
    assert time_verdict(record).reason.startswith(
        "the reference main does not run: train.py: one training step: ValueError: seventh"
    )


def asked_for_five_steps(device: str) -> dict[str, Any]:
    build = {"do": "build", "target": {"file": "train.py", "names": {}}, "overlay": {}, "knob": "", "settings": {}}
    with Child() as child:
        child.ask({**build, "device": device}, 120)
        return child.ask({"do": "block", "steps": 5}, 120)


@pytest.mark.slow
def test_a_block_answers_with_each_step(project: Any) -> None:
    project(**{"train.py": TRAIN})
    reply = asked_for_five_steps("cpu")
    each = reply["each"]
    assert (each["samples"], reply["samples"], each["with_restarts"]) == ([8] * 5, 40, False)
    assert len(each["seconds"]) == reply["steps"] == 5
    assert 0 < sum(each["seconds"]) <= reply["wall"]


@pytest.mark.gpu
def test_steps_on_a_cuda_device_are_spans_between_events(project: Any) -> None:
    """One epoch has eight steps and one was made before: none of these five restarts it."""
    project(**{"train.py": TRAIN})
    reply = asked_for_five_steps("cuda")
    seconds = reply["each"]["seconds"]
    assert len(seconds) == 5
    assert all(one > 0 for one in seconds)
    assert sum(seconds) <= 1.05 * reply["wall"]
