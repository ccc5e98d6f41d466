"""Batches from one epoch to the next, and what beginning one takes beside its first batch."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from perfaudit.target import loading
from perfaudit.target.loading import Empty, Loading


class Clock:
    """Seconds that pass only where somebody works."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        monkeypatch.setattr(loading.time, "perf_counter", lambda: self.now)


class Loader:
    """Three batches an epoch; an epoch begins with `start` seconds, and each batch takes `load`."""

    def __init__(self, clock: Clock, start: float, load: float, batches: int = 3) -> None:
        self.clock, self.start, self.load, self.batches = clock, start, load, batches

    def __len__(self) -> int:
        return self.batches

    def __iter__(self) -> Iterator[int]:
        self.clock.now += self.start
        for number in range(self.batches):
            self.clock.now += self.load
            yield number


@pytest.mark.parametrize(("start", "load"), [(0.0, 8.0), (2.0, 8.0), (5.0, 0.0)])
def test_the_first_batch_of_an_epoch_is_no_restart_as_far_as_it_takes_what_others_take(
    start: float, load: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else every step that begins an epoch is timed without its loading: a third of a step in one of sixteen."""
    clock = Clock(monkeypatch)
    batches = Loading(Loader(clock, start, load))
    assert [batches.next_batch() for _ in range(7)] == [0, 1, 2, 0, 1, 2, 0]
    assert batches.restart_seconds == pytest.approx([start + load, start, start])
    assert batches.restart_per_step() == pytest.approx(start / 3)


def test_while_only_the_first_epoch_is_known_its_start_counts_without_its_batch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    batches = Loading(Loader(Clock(monkeypatch), 6.0, 8.0))
    batches.next_batch()
    assert batches.restart_per_step() == pytest.approx((6.0 + 8.0) / 3)  # nothing tells them apart yet
    batches.next_batch()
    assert batches.restart_per_step() == pytest.approx(6.0 / 3)


def test_epochs_of_one_batch_are_all_restart(monkeypatch: pytest.MonkeyPatch) -> None:
    batches = Loading(Loader(Clock(monkeypatch), 1.0, 8.0, batches=1))
    assert [batches.next_batch() for _ in range(3)] == [0, 0, 0]
    assert (batches.restart_seconds, batches.restart_per_step()) == ([9.0] * 3, 9.0)


def test_a_loader_without_a_batch_is_empty(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(Empty):
        Loading(Loader(Clock(monkeypatch), 1.0, 8.0, batches=0)).next_batch()
