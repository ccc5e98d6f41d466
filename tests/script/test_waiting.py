"""Whether the thread that trains stands still between two updates."""

from __future__ import annotations

import threading

import pytest

from perfaudit.script import waiting


def followed(monkeypatch: pytest.MonkeyPatch, spans: list[tuple[float, float]]) -> dict[str, float]:
    """What is said of updates that lie so many seconds apart, of which the thread ran so many."""
    clocks = [(0.0, 0.0)]
    for wall, ran in spans:
        clocks.append((clocks[-1][0] + wall, clocks[-1][1] + ran))
    reads = iter(clocks)
    seen = waiting.Waiting()
    monkeypatch.setattr(waiting.Waiting, "_read", lambda self: next(reads))
    for _ in range(waiting.FIRST - 1 + len(clocks)):
        seen.end_update()
    return seen.facts()


def test_the_share_in_which_it_stands_still(monkeypatch: pytest.MonkeyPatch) -> None:
    assert followed(monkeypatch, [(1.0, 0.25)] * 8)["blocked"] == pytest.approx(0.75)


def test_waiting_for_threads_that_wait_for_a_core_is_no_sleep(monkeypatch: pytest.MonkeyPatch) -> None:
    queued = iter([5.0, 11.0])
    monkeypatch.setattr(waiting, "_queued_but", lambda thread: next(queued))
    assert followed(monkeypatch, [(1.0, 0.25)] * 8)["blocked"] == 0.0


def test_an_evaluation_among_the_updates_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    assert followed(monkeypatch, [(1.0, 1.0)] * 8 + [(50.0, 0.0)])["blocked"] == 0.0


def test_before_there_are_updates_nothing_is_said() -> None:
    assert waiting.Waiting().facts() == {}


def test_the_thread_that_asks_at_the_end_is_not_the_one_that_trains() -> None:
    seen = waiting.Waiting()

    def train() -> None:
        for _ in range(waiting.FIRST + 4):
            sum(range(200_000))
            seen.end_update()

    thread = threading.Thread(target=train)
    thread.start()
    thread.join()
    assert seen.facts().get("blocked", 0.0) < 0.5
