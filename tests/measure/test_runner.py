"""The scheduler, on subjects that take exactly as long as told."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from fake_clock import FakeClock

from perfaudit.measure import journal
from perfaudit.measure.child_subject import ChildSubject
from perfaudit.measure.clock import Deadline
from perfaudit.measure.generations import measure
from perfaudit.measure.judge import clock_for, comparison, hopeless_variants, saving, settled_variants, trial
from perfaudit.measure.ledger import Block, Generation, Ledger, Variant, from_json, to_json
from perfaudit.measure.runner import TooLarge, TrialEnded, TrialFailed


class FakeLab:
    """Steps of a variant take `speeds[key]` seconds; opening one takes `opening` seconds; some fail as told."""

    def __init__(self, clock: FakeClock, speeds: dict[str, float], opening: float = 0.0) -> None:
        self.clock, self.speeds, self.opening = clock, speeds, opening
        self.fails_to_open: dict[str, str] = {}
        self.fails_at_block: dict[str, int] = {}
        self.ends_after = 1 << 30  # steps of a process
        self.ends_sooner: dict[str, int] = {}  # of this variant
        self.order: list[str] = []
        self.untimed: dict[str, set[int]] = {}  # steps before blocks
        self.closed: list[str] = []
        self.seconds_checking = 0.0
        self.checking = 0.0  # seconds that the first generation takes longer to open, see `ChildLab`

    def open(self, variants: Sequence[Variant]) -> dict[str, ChildSubject | TrialFailed]:
        opened: dict[str, ChildSubject | TrialFailed] = {}
        self.clock.sleep(self.checking)
        self.seconds_checking, self.checking = self.seconds_checking + self.checking, 0.0
        for variant in variants:
            self.clock.sleep(self.opening)
            why = self.fails_to_open.get(variant.key)
            opened[variant.key] = TrialFailed(why) if why else FakeSubject(self, variant.key)
        return opened


class FakeSubject:
    def __init__(self, lab: FakeLab, key: str) -> None:
        self.lab, self.key, self.blocks, self.steps = lab, key, 0, 0

    def block(self, steps: int, untimed: int = 1) -> Block:
        if self.lab.fails_at_block.get(self.key) == self.blocks:
            raise TrialFailed("out of memory")
        self.lab.untimed.setdefault(self.key, set()).add(untimed)
        if self.steps + untimed + steps > self.lab.ends_sooner.get(self.key, self.lab.ends_after):
            raise TrialEnded("the script ended")
        self.steps += untimed + steps
        self.blocks += 1
        self.lab.order.append(self.key)
        wall = steps * self.lab.speeds[self.key]
        self.lab.clock.sleep(wall + untimed * self.lab.speeds[self.key])
        return Block(steps, wall, wall, samples=8 * steps)

    def close(self) -> None:
        self.lab.closed.append(self.key)


def variants(*keys: str) -> list[Variant]:
    return [Variant(key, "knob", {"name": key}) for key in keys]


def test_a_faster_variant_is_found_with_its_ratio(clock: FakeClock) -> None:
    lab, ledger = FakeLab(clock, {"a": 0.010, "b": 0.008}), Ledger()
    a, b = variants("a", "b")
    measure(lab, [a, b], ledger, Deadline(1000, clock), seed=1)
    compared = comparison(ledger, a, b)
    assert compared is not None
    assert (compared.ratio, compared.low, compared.high) == pytest.approx((0.8, 0.8, 0.8))
    assert (compared.verdict, compared.n) == ("faster", 36)
    assert saving(ledger, a, compared).seconds_per_step == pytest.approx(0.002)


def test_every_round_runs_each_variant_twice_in_mirrored_order(clock: FakeClock) -> None:
    lab = FakeLab(clock, {"a": 0.01, "b": 0.01, "c": 0.01})
    measure(lab, variants("a", "b", "c"), Ledger(), Deadline(1000, clock), seed=1, generations=1, rounds=4)
    rounds = [lab.order[3 + 6 * i : 9 + 6 * i] for i in range(4)]  # the first three blocks calibrate
    assert all(r == r[::-1] and set(r) == {"a", "b", "c"} for r in rounds)
    assert len({tuple(r) for r in rounds}) > 1  # the order is drawn anew


def test_no_block_is_shorter_than_a_variant_allows(clock: FakeClock) -> None:
    """Nor when it is calibrated, nor when the budget is too small for it: the rounds get fewer instead."""
    lab, ledger = FakeLab(clock, {"a": 0.5, "b": 0.5}), Ledger()
    a, b = variants("a", "b")
    measure(lab, [a, replace(b, least_steps=9)], ledger, Deadline(8, clock), seed=1, generations=1)
    assert {block.steps for block in ledger.blocks("a")} == {2}
    assert {block.steps for block in ledger.blocks("b")} == {9}
    assert len(ledger.generations[0].rounds) == 1


def test_drift_of_the_machine_cancels(clock: FakeClock) -> None:
    lab, ledger = FakeLab(clock, {"a": 0.01, "b": 0.01}), Ledger()
    slower = 1.0

    def drift(key: str, seconds: float) -> None:
        nonlocal slower
        slower *= 1.02
        lab.speeds = {"a": 0.01 * slower, "b": 0.01 * slower}

    ledger.on_block = drift
    a, b = variants("a", "b")
    measure(lab, [a, b], ledger, Deadline(1000, clock), seed=1, generations=2, rounds=8)
    compared = comparison(ledger, a, b)
    assert compared is not None
    assert compared.ratio == pytest.approx(1.0)


def test_a_variant_that_does_not_open_is_a_result_and_the_others_go_on(clock: FakeClock) -> None:
    lab, ledger = FakeLab(clock, {"a": 0.01, "b": 0.01, "c": 0.02}), Ledger()
    lab.fails_to_open["b"] = "build_dataloader() failed"
    a, b, c = variants("a", "b", "c")
    measure(lab, [a, b, c], ledger, Deadline(1000, clock), seed=1)
    assert trial(ledger, b).status == "failed"
    assert trial(ledger, b).reason == "build_dataloader() failed"
    compared = comparison(ledger, a, c)
    assert compared is not None and compared.verdict == "slower"


def test_what_is_many_times_slower_is_left_after_two_short_blocks(clock: FakeClock) -> None:
    lab, ledger = FakeLab(clock, {"a": 0.1, "b": 0.7, "c": 0.3}), Ledger()
    measure(lab, variants("a", "b", "c"), ledger, Deadline(1000, clock), seed=1, generations=2)
    assert ledger.failures == {"b": "not measured further: 7 times as slow in its first steps"}
    assert (lab.order.count("b"), lab.closed.count("b")) == (2, 1)
    assert ledger.blocks("b") == []
    assert len(ledger.blocks("c")) == len(ledger.blocks("a"))


@pytest.mark.parametrize("is_told", [False, True])
def test_what_is_slow_since_others_took_the_cores_is_not_left(clock: FakeClock, is_told: bool) -> None:
    """The base's first block ran alone, and everything is seven times as slow since.

    is_told: it is known how long each block waited for cores, and it was only b's that did.
    """

    class Busy(FakeSubject):
        def block(self, steps: int, untimed: int = 1) -> Block:
            block = super().block(steps, untimed)
            if len(lab.order) == 1 or (is_told and self.key == "a"):
                return block
            return replace(block, wall=7 * block.wall, own=block.wall if is_told else None)

    class BusyLab(FakeLab):
        def open(self, variants: Sequence[Variant]) -> dict[str, ChildSubject | TrialFailed]:
            return {variant.key: Busy(self, variant.key) for variant in variants}

    lab, ledger = BusyLab(clock, {"a": 0.1, "b": 0.1}), Ledger()
    measure(lab, variants("a", "b"), ledger, Deadline(1000, clock), seed=1, generations=1)
    assert ledger.failures == {} and ledger.blocks("b")


def test_one_slow_block_is_a_hiccup(clock: FakeClock) -> None:
    lab, ledger = FakeLab(clock, {"a": 0.1, "b": 0.7}), Ledger()
    seen = lab.order

    class Hiccup(dict[str, float]):
        def __getitem__(self, key: str) -> float:
            return 0.7 if key == "b" and seen.count("b") <= 1 else 0.1

    lab.speeds = Hiccup()
    measure(lab, variants("a", "b"), ledger, Deadline(1000, clock), seed=1, generations=1)
    assert ledger.failures == {}
    assert len(ledger.blocks("b")) == len(ledger.blocks("a")) > 0


def test_a_variant_that_dies_on_the_way_keeps_what_it_gave(clock: FakeClock) -> None:
    lab, ledger = FakeLab(clock, {"a": 0.01, "b": 0.01}), Ledger()
    lab.fails_at_block["b"] = 3
    a, b = variants("a", "b")
    measure(lab, [a, b], ledger, Deadline(1000, clock), seed=1)
    assert (trial(ledger, b).n, trial(ledger, b).reason) == (2, "out of memory")
    assert trial(ledger, b).status == "ok"
    assert lab.closed.count("a") == 1  # alone it is not opened again


def test_the_deadline_ends_between_rounds_and_no_verdict_is_invented(clock: FakeClock) -> None:
    lab, ledger = FakeLab(clock, {"a": 0.1, "b": 0.05}, opening=2.0), Ledger()
    a, b = variants("a", "b")
    measure(lab, [a, b], ledger, Deadline(8, clock), seed=1)
    compared = comparison(ledger, a, b)
    assert compared is not None
    assert len(ledger.generations) == 1  # a second would not be open before the end
    assert (compared.verdict, compared.high) == ("undecided", float("inf"))
    assert trial(ledger, a).n == trial(ledger, b).n


def test_nothing_is_measured_after_the_deadline(clock: FakeClock) -> None:
    lab, ledger = FakeLab(clock, {"a": 0.1}), Ledger()
    (a,) = variants("a")
    measure(lab, [a], ledger, Deadline(0, clock), seed=1)
    assert trial(ledger, a).status == "not_measured"


def block(per_step: float, samples: int = 8, cpu: float | None = None, queued: float = 0.0, **phases: float) -> Block:
    """Ten steps of so many seconds each."""
    computing = per_step if cpu is None else cpu
    return Block(
        10, 10 * per_step, 10 * computing, 10 * samples, 0.0, 10 * queued, {k: 10 * v for k, v in phases.items()}
    )


def generations(*pairs: tuple[Block, Block], n: int = 4) -> list[Generation]:
    """n generations of three rounds, in each of which `a` and `b` ran these blocks twice."""
    return [Generation("race", [{"a": (a, a), "b": (b, b)} for a, b in pairs * 3]) for _ in range(n)]


def test_larger_batches_are_compared_by_the_sample() -> None:
    ledger = Ledger(generations((block(0.010, 8), block(0.016, 16))))
    a, b = variants("a", "b")
    compared = comparison(ledger, a, b)
    assert compared is not None
    assert compared.ratio == pytest.approx(0.8)
    assert trial(ledger, b, metric="samples_per_second").median == pytest.approx(1000)


def test_batches_that_hold_more_or_less_are_compared_by_the_token() -> None:
    """A block whose batches hold twice as much takes twice as long, and that tells nothing of the variant."""
    a, b = variants("a", "b")
    held = [
        (replace(block(0.010 * n), tokens=100 * n), replace(block(0.008 * m), tokens=100 * m))
        for n, m in ((1, 3), (2, 1))
    ]
    compared = comparison(Ledger(generations(*held), by_tokens=True), a, b)
    assert compared is not None
    assert (compared.ratio, compared.low, compared.high) == pytest.approx((0.8, 0.8, 0.8))
    assert compared.per == "token"
    assert comparison(Ledger(generations(*held)), a, b).per == "step"  # type: ignore[union-attr]


def test_as_many_samples_a_step_count_where_a_block_does_not_tell_its_tokens() -> None:
    """Samples are not looked at: of batches with the time first, they would be those of the longest."""
    a, b = variants("a", "b")
    held = (replace(block(0.010, 70), tokens=100), block(0.008, 90))
    compared = comparison(Ledger(generations(held), by_tokens=True), a, b)
    assert compared is not None
    assert (compared.ratio, compared.per) == (pytest.approx(0.8), "step")


def test_the_piece_that_changes_is_compared_inside_the_step() -> None:
    """Steps differ by chance, the piece is known: 10 ms step, of which 2 ms become 1 ms, is a ratio of 0.9."""
    ledger = Ledger(generations((block(0.010, average=0.002), block(0.013, average=0.001))))
    a, b = variants("a", "b")
    compared = comparison(ledger, a, b, phases=("average",))
    assert compared is not None
    assert (compared.ratio, compared.verdict, compared.of) == (pytest.approx(0.9), "faster", "average")
    whole = comparison(ledger, a, b)
    assert whole is not None
    assert (whole.ratio, whole.verdict, whole.of) == (pytest.approx(1.3), "slower", "step")


def test_what_is_settled_is_measured_no_more(clock: FakeClock) -> None:
    """b is clearly faster and c clearly slower at the first look; both leave, and without them the race is over."""
    lab, ledger = FakeLab(clock, {"a": 0.010, "b": 0.008, "c": 0.012}), Ledger()
    a, b, c = variants("a", "b", "c")

    def settled(ledger: Ledger) -> set[str]:
        return settled_variants(ledger, a, [b, c], 0.01, "race")

    measure(lab, [a, b, c], ledger, Deadline(1000, clock), seed=1, settled=settled)
    assert len(ledger.generations) == 4


def test_what_is_open_is_measured_on_without_what_is_settled(clock: FakeClock) -> None:
    """c swings around the base between generations, so that no early look can tell; b is clear at the first."""
    lab, ledger = FakeLab(clock, {"a": 0.010, "b": 0.008, "c": 0.010}), Ledger()
    a, b, c = variants("a", "b", "c")
    opened = lab.open

    def swinging(chosen: Sequence[Variant]) -> dict[str, ChildSubject | TrialFailed]:
        lab.speeds["c"] = 0.0115 if len(ledger.generations) % 2 else 0.0085
        return opened(chosen)

    lab.open = swinging  # type: ignore[method-assign]
    measure(
        lab, [a, b, c], ledger, Deadline(1000, clock), seed=1,
        settled=lambda ledger: settled_variants(ledger, a, [b, c], 0.01, "race"),
    )  # fmt: skip
    assert ledger.generations_with("a", "b", "race") == 4
    assert ledger.generations_with("a", "c", "race") == 12


def test_a_small_budget_makes_shorter_blocks_not_fewer_generations(clock: FakeClock) -> None:
    """12 s allow four openings of one second for two variants, so one second is left for each generation's blocks."""
    lab, ledger = FakeLab(clock, {"a": 0.01, "b": 0.01}, opening=1.0), Ledger()
    measure(lab, variants("a", "b"), ledger, Deadline(12, clock), seed=1)
    assert len(ledger.generations) >= 4
    assert clock.now() <= 12.1  # the last round may end behind it


def test_a_generation_that_could_not_be_opened_in_time_is_not_begun(clock: FakeClock) -> None:
    lab, ledger = FakeLab(clock, {"a": 0.01, "b": 0.01}, opening=3.0), Ledger(seconds_to_open=3.0)
    measure(lab, variants("a", "b"), ledger, Deadline(5, clock), seed=1)
    assert (ledger.generations, clock.now()) == ([], 0.0)


@pytest.mark.parametrize(("apart", "generations"), [("", 4), ("they do not fit", 2)])
def test_what_a_patch_was_checked_for_is_not_expected_of_later_generations(
    clock: FakeClock, apart: str, generations: int
) -> None:
    """The check took 12 of 22 s; the rest is enough for more generations, whose openings take two seconds."""
    lab, ledger = FakeLab(clock, {"a": 0.01, "b": 0.01}, opening=1.0), Ledger(apart=apart)
    lab.checking = 12.0
    measure(lab, variants("a", "b"), ledger, Deadline(22, clock), seed=1)
    assert ledger.seconds_to_open == pytest.approx(1.0)
    assert len(ledger.generations) == generations  # one after the other they have longer blocks


class Kept(journal.Kept):
    def __init__(self) -> None:
        self.generations: list[tuple[Generation, dict[str, Any]]] = []

    def earlier_sets(self, stage: str) -> list[tuple[Generation, dict[str, Any]]]:
        return [(from_json(to_json(g)), f) for g, f in self.generations if g.stage == stage]

    def keep_set(self, stage: str, generation: Generation, state: dict[str, Any]) -> None:
        self.generations.append((generation, dict(state)))


def test_what_an_earlier_run_measured_is_not_measured_again(clock: FakeClock) -> None:
    a, b = variants("a", "b")
    whole, memo = Ledger(), Kept()
    measure(FakeLab(clock, {"a": 0.01, "b": 0.02}), [a, b], whole, Deadline(1000, clock), 1, generations=4, memo=memo)
    del memo.generations[2:]  # as if it had been killed after two
    resumed, lab = Ledger(), FakeLab(clock, {"a": 0.01, "b": 0.02})
    measure(lab, [a, b], resumed, Deadline(1000, clock), 1, generations=4, memo=memo)
    assert resumed.generations == whole.generations
    assert lab.closed == ["a", "b", "a", "b"]


def test_a_generation_that_is_interrupted_while_it_opens_is_none(clock: FakeClock) -> None:
    lab, memo, open_ = FakeLab(clock, {"a": 0.01, "b": 0.01, "c": 0.01}), Kept(), FakeLab.open
    lab.fails_to_open["b"] = "no data"

    def interrupted(chosen: Sequence[Variant]) -> dict[str, ChildSubject | TrialFailed]:
        if memo.generations:
            raise KeyboardInterrupt
        return open_(lab, chosen)

    lab.open = interrupted  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        measure(lab, variants("a", "b", "c"), Ledger(), Deadline(1000, clock), 1, memo=memo)
    assert [len(generation.rounds) for generation, _ in memo.generations] == [3]


def test_a_generation_that_is_interrupted_in_its_first_round_is_none(clock: FakeClock) -> None:
    lab, memo, ledger = FakeLab(clock, {"a": 0.01, "b": 0.01, "c": 0.01}), Kept(), Ledger()
    lab.fails_to_open["b"] = "no data"

    def interrupt(*_: object) -> None:
        if memo.generations:
            raise KeyboardInterrupt

    ledger.on_block = interrupt
    with pytest.raises(KeyboardInterrupt):
        measure(lab, variants("a", "b", "c"), ledger, Deadline(1000, clock), 1, memo=memo)
    assert [len(generation.rounds) for generation, _ in memo.generations] == [3]


def test_without_the_base_no_further_process_is_opened(clock: FakeClock) -> None:
    lab, ledger = FakeLab(clock, {"a": 0.01, "b": 0.01, "c": 0.01}), Ledger()
    lab.fails_at_block["a"] = 3
    measure(lab, variants("a", "b", "c"), ledger, Deadline(1000, clock), seed=1)
    assert (ledger.failures, sorted(lab.closed)) == ({"a": "out of memory"}, ["a", "b", "c"])


@pytest.mark.parametrize(
    ("wall", "cpu", "queued", "alone", "clock"),
    [
        (0.038, 0.003, 0.000, True, "wall"),  # it waits for a disk: processor time says nothing about the step
        (0.038, 0.003, 0.008, True, "wall"),  # it waits for a disk on a busy machine
        (0.038, 0.020, 0.018, True, "cpu"),  # it computes, and others hold the cores
        (0.038, 0.020, 0.018, False, "wall"),  # loader workers compute elsewhere
        (0.038, 0.037, 0.001, True, "wall"),  # it computes undisturbed
    ],
)
def test_processor_time_counts_only_where_it_is_what_the_step_takes(
    wall: float, cpu: float, queued: float, alone: bool, clock: str
) -> None:
    ledger = Ledger(generations((block(wall, cpu=cpu, queued=queued), block(wall))))
    assert clock_for(ledger, variants("a")[0], alone) == clock


def test_the_clock_is_chosen_once() -> None:
    """Decided beside an undisturbed base, it stays, whatever happens later: a change of mind would be a second chance."""
    ledger = Ledger(generations((block(0.038, cpu=0.037, queued=0.001), block(0.03)), n=4))
    a, _ = variants("a", "b")
    assert clock_for(ledger, a, True) == "wall"
    ledger.generations += generations((block(0.038, cpu=0.020, queued=0.018), block(0.03)), n=8)
    assert clock_for(ledger, a, True) == "wall"


def test_without_the_base_the_rest_is_not_measured(clock: FakeClock) -> None:
    lab, ledger = FakeLab(clock, {"a": 0.01, "b": 0.01}), Ledger()
    lab.fails_to_open["a"] = "no data"
    measure(lab, variants("a", "b"), ledger, Deadline(1000, clock), seed=1)
    assert (ledger.failures, lab.order, lab.closed) == ({"a": "no data"}, [], ["b"])


def test_what_looks_clearly_slower_is_given_up_and_never_called_faster(clock: FakeClock) -> None:
    lab, ledger = FakeLab(clock, {"a": 0.010, "b": 0.008, "c": 0.011}), Ledger()
    a, b, c = variants("a", "b", "c")

    def settled(ledger: Ledger) -> set[str]:
        ledger.given_up |= hopeless_variants(ledger, a, [b, c], "race")
        return ledger.given_up | settled_variants(ledger, a, [b, c], 0.01, "race")

    measure(lab, [a, b, c], ledger, Deadline(1000, clock), seed=1, settled=settled)
    assert ledger.given_up == {"c"}
    compared = comparison(ledger, a, c)
    assert compared is not None
    assert (compared.given_up, compared.verdict, compared.high) == (True, "undecided", float("inf"))
    assert ledger.generations_with("a", "c", "race") == 2
    assert ledger.generations_with("a", "b", "race") == 4


def test_one_generation_is_no_reason_to_give_up() -> None:
    ledger = Ledger(generations((block(0.010), block(0.020)), n=1))
    a, b = variants("a", "b")
    assert hopeless_variants(ledger, a, [b], "race") == set()
    ledger.generations *= 2
    assert hopeless_variants(ledger, a, [b], "race") == {"b"}


def test_after_the_first_planned_look_only_looks_decide() -> None:
    ledger = Ledger(generations((block(0.010), block(0.020)), n=5))
    a, b = variants("a", "b")
    assert hopeless_variants(ledger, a, [b], "race") == set()


class SmallLab(FakeLab):
    """A device that holds one training."""

    def __init__(self, clock: FakeClock, speeds: dict[str, float], opening: float = 0.0) -> None:
        super().__init__(clock, speeds, opening)
        self.opened: list[str] = []
        self.asked = 0

    def open(self, variants: Sequence[Variant]) -> dict[str, ChildSubject | TrialFailed]:
        if len(variants) > 1:
            self.asked += 1
            raise TooLarge("two copies do not fit")
        assert len(self.opened) == len(self.closed)  # nothing else is there
        found = super().open(variants)
        self.opened += [key for key, item in found.items() if not isinstance(item, TrialFailed)]
        return found


def test_what_does_not_fit_side_by_side_is_measured_one_after_the_other(clock: FakeClock) -> None:
    lab, ledger = SmallLab(clock, {"a": 0.010, "b": 0.008}), Ledger()
    a, b = variants("a", "b")
    measure(lab, [a, b], ledger, Deadline(1000, clock), seed=1)
    assert (ledger.apart, lab.asked) == ("two copies do not fit", 1)
    assert lab.opened[:6] == ["a", "b", "b", "a", "a", "b"]  # in the reverse order every second time
    assert sorted(lab.opened) == sorted(lab.closed)
    compared = comparison(ledger, a, b)
    assert compared is not None and compared.verdict == "faster"
    assert compared.ratio == pytest.approx(0.8)
    resumed = Ledger()
    resumed.take(ledger.state())
    assert resumed.apart == "two copies do not fit"


def test_one_after_the_other_a_failure_leaves_and_the_others_go_on(clock: FakeClock) -> None:
    lab, ledger = SmallLab(clock, {"a": 0.010, "b": 0.008, "c": 0.010}), Ledger()
    lab.fails_to_open["b"] = "does not build"
    lab.fails_at_block["c"] = 3
    measure(lab, variants("a", "b", "c"), ledger, Deadline(1000, clock), seed=1)
    assert ledger.failures == {"b": "does not build", "c": "out of memory"}
    assert [set(r) for r in ledger.generations[0].rounds] == [{"a"}] * 3
    assert sorted(lab.opened) == sorted(lab.closed)


def test_one_after_the_other_a_generation_that_time_cuts_counts_for_nothing(clock: FakeClock) -> None:
    lab, ledger = SmallLab(clock, {"a": 0.010, "b": 0.010}, opening=60.0), Ledger()
    measure(lab, variants("a", "b"), ledger, Deadline(50, clock), seed=1)
    assert (lab.opened, ledger.generations) == (["a"], [])


def test_a_training_that_ends_within_a_generation_is_raced_in_shorter_blocks(clock: FakeClock) -> None:
    lab, ledger = FakeLab(clock, {"a": 0.010, "b": 0.008}), Ledger()
    lab.ends_after = 80  # a block of 0.35 s has 36 steps and more
    measure(lab, variants("a", "b"), ledger, Deadline(60, clock), seed=1)
    assert not ledger.failures
    rounds = [len(generation.rounds) for generation in ledger.generations]
    assert rounds[0] < 3  # it ends unseen in the first
    assert set(rounds[1:]) == {3}
    found = comparison(ledger, *variants("a", "b"))
    assert found is not None and found.ratio == pytest.approx(0.8)
    assert max(block.steps for block in ledger.generations[1].rounds[0]["a"]) <= (80 - 3) // 6 - 1


def test_a_training_that_is_too_short_for_a_round_says_so_and_ends_the_race(clock: FakeClock) -> None:
    lab, ledger = FakeLab(clock, {"a": 0.010, "b": 0.008}), Ledger()
    lab.ends_after = 8  # a round of the shortest blocks has six, behind the three that time them
    measure(lab, variants("a", "b"), ledger, Deadline(60, clock), seed=1)
    assert len(ledger.generations) == 2
    assert ledger.failures["a"] == "its training ends after 6 steps of a race, too few for one"
    assert sorted(lab.closed) == ["a", "a", "b", "b"]


def test_one_after_the_other_a_training_that_ends_is_raced_in_shorter_blocks(clock: FakeClock) -> None:
    lab, ledger = SmallLab(clock, {"a": 0.010, "b": 0.008}), Ledger()
    lab.ends_after = 80
    measure(lab, variants("a", "b"), ledger, Deadline(60, clock), seed=1)
    assert (ledger.failures, lab.opened[:4]) == ({}, ["a", "b", "a", "a"])
    assert {len(generation.rounds) for generation in ledger.generations} == {3}
    assert all(set(pairs) == {"a", "b"} for generation in ledger.generations for pairs in generation.rounds)
    assert max(block.steps for block in ledger.blocks("a")) <= (80 - 3) // 6 - 1


@pytest.mark.parametrize(
    ("ends_after", "rounds"),
    [(8, None), (9, 1)],  # the shortest blocks: three steps that time them, and six for a round
)
def test_one_after_the_other_a_training_that_is_too_short_says_so(
    clock: FakeClock, ends_after: int, rounds: int | None
) -> None:
    lab, ledger = SmallLab(clock, {"a": 0.010, "b": 0.008}), Ledger()
    lab.ends_after = ends_after
    measure(lab, variants("a", "b"), ledger, Deadline(60, clock), seed=1)
    assert {len(generation.rounds) for generation in ledger.generations} == ({rounds} if rounds else set())
    assert ledger.failures.get("a", "") == (
        "" if rounds else "its training ends after 6 steps of a race, too few for one"
    )
    assert sorted(lab.opened) == sorted(lab.closed)


def test_blocks_are_as_short_as_the_shortest_training_asks_for(clock: FakeClock) -> None:
    """One with larger batches ends sooner; by then it is known how far the others come."""
    lab, ledger = SmallLab(clock, {"a": 0.010, "b": 0.010}), Ledger()
    lab.ends_after, lab.ends_sooner = 120, {"b": 30}
    measure(lab, variants("a", "b"), ledger, Deadline(60, clock), seed=1)
    assert not ledger.failures
    assert [len(generation.rounds) for generation in ledger.generations] == [3] * 10
    assert max(block.steps for block in ledger.generations[-1].rounds[0]["b"]) <= (30 - 3) // 6 - 1


def test_where_it_ends_is_known_to_a_run_that_goes_on() -> None:
    ledger, later = Ledger(steps_to_end=40), Ledger()
    later.take(ledger.state())
    assert later.steps_to_end == 40
