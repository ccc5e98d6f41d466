"""The scheduler, on subjects that take exactly as long as told."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from conftest import FakeClock

from perfaudit.measure.clock import Deadline
from perfaudit.measure.runner import (
    Block,
    Ledger,
    Subject,
    TrialFailed,
    Variant,
    clock_for,
    comparison,
    measure,
    saving,
    trial,
)


class FakeLab:
    """Steps of a variant take `speeds[key]` seconds; opening one takes `opening` seconds; some fail as told."""

    def __init__(self, clock: FakeClock, speeds: dict[str, float], opening: float = 0.0) -> None:
        self.clock, self.speeds, self.opening = clock, speeds, opening
        self.fails_to_open: dict[str, str] = {}
        self.fails_at_block: dict[str, int] = {}
        self.order: list[str] = []
        self.closed: list[str] = []

    def open(self, variants: Sequence[Variant]) -> dict[str, Subject | TrialFailed]:
        opened: dict[str, Subject | TrialFailed] = {}
        for variant in variants:
            self.clock.sleep(self.opening)
            why = self.fails_to_open.get(variant.key)
            opened[variant.key] = TrialFailed(why) if why else FakeSubject(self, variant.key)
        return opened


class FakeSubject:
    def __init__(self, lab: FakeLab, key: str) -> None:
        self.lab, self.key, self.blocks = lab, key, 0

    def block(self, steps: int) -> Block:
        if self.lab.fails_at_block.get(self.key) == self.blocks:
            raise TrialFailed("out of memory")
        self.blocks += 1
        self.lab.order.append(self.key)
        wall = steps * self.lab.speeds[self.key]
        self.lab.clock.sleep(wall + self.lab.speeds[self.key])
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
    assert (compared.verdict, compared.n) == ("faster", 18)
    assert saving(ledger, a, compared).seconds_per_step == pytest.approx(0.002)


def test_every_round_runs_each_variant_twice_in_mirrored_order(clock: FakeClock) -> None:
    lab = FakeLab(clock, {"a": 0.01, "b": 0.01, "c": 0.01})
    measure(lab, variants("a", "b", "c"), Ledger(), Deadline(1000, clock), seed=1, generations=1, rounds=4)
    rounds = [lab.order[3 + 6 * i : 9 + 6 * i] for i in range(4)]  # the first three blocks calibrate
    assert all(r == r[::-1] and set(r) == {"a", "b", "c"} for r in rounds)
    assert len({tuple(r) for r in rounds}) > 1  # the order is drawn anew


def test_drift_of_the_machine_cancels(clock: FakeClock) -> None:
    lab, ledger = FakeLab(clock, {"a": 0.01, "b": 0.01}), Ledger()
    slower = 1.0

    def drift(key: str, seconds: float) -> None:
        nonlocal slower
        slower *= 1.02
        lab.speeds = {"a": 0.01 * slower, "b": 0.01 * slower}

    ledger.on_block = drift
    a, b = variants("a", "b")
    measure(lab, [a, b], ledger, Deadline(1000, clock), seed=1, generations=1, rounds=8)
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
    assert compared.n < 6
    assert (compared.verdict, compared.high) == ("undecided", float("inf"))
    assert trial(ledger, a).n == trial(ledger, b).n


def test_nothing_is_measured_after_the_deadline(clock: FakeClock) -> None:
    lab, ledger = FakeLab(clock, {"a": 0.1}), Ledger()
    (a,) = variants("a")
    measure(lab, [a], ledger, Deadline(0, clock), seed=1)
    assert trial(ledger, a).status == "not_measured"


def test_larger_batches_are_compared_by_the_sample(clock: FakeClock) -> None:
    lab, ledger = FakeLab(clock, {"a": 0.010, "b": 0.016}), Ledger()
    a, b = variants("a", "b")
    measure(lab, [a, b], ledger, Deadline(1000, clock), seed=1)
    ledger.samples_per_step = {"a": 8, "b": 16}
    compared = comparison(ledger, a, b)
    assert compared is not None
    assert compared.ratio == pytest.approx(0.8)
    shown = trial(ledger, b, metric="samples_per_second")
    assert shown.median == pytest.approx(1000)


def test_the_piece_that_changes_is_compared_inside_the_step() -> None:
    """Steps differ by chance, the piece is known: 10 ms step, of which 2 ms become 1 ms, is a ratio of 0.9."""
    ledger = Ledger()
    ledger.rounds = [[{"a": 0.010, "b": 0.013}] * 3 for _ in range(4)]
    ledger.pieces = [[{"a": 0.002, "b": 0.001}] * 3 for _ in range(4)]
    a, b = variants("a", "b")
    compared = comparison(ledger, a, b, of_piece=True)
    assert compared is not None
    assert (compared.ratio, compared.verdict) == (pytest.approx(0.9), "faster")


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
    ledger = Ledger(blocks={"a": [wall]}, cpu_blocks={"a": [cpu]}, queued_blocks={"a": [queued]})
    assert clock_for(ledger, variants("a")[0], alone) == clock


def test_without_the_base_the_rest_is_not_measured(clock: FakeClock) -> None:
    lab, ledger = FakeLab(clock, {"a": 0.01, "b": 0.01}), Ledger()
    lab.fails_to_open["a"] = "no data"
    measure(lab, variants("a", "b"), ledger, Deadline(1000, clock), seed=1)
    assert (ledger.failures, lab.order, lab.closed) == ({"a": "no data"}, [], ["b"])
