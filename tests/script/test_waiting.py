"""Whether the thread that trains stands still between two updates."""

from __future__ import annotations

import threading

import pytest

from perfaudit.script import waiting

NEVER = -1.0  # seconds that the thread ran in updates at whose ends nobody looked


def followed(
    monkeypatch: pytest.MonkeyPatch, spans: list[tuple[float, ...]], early: int = waiting.FIRST
) -> dict[str, float]:
    """What is said of looks that lie so many seconds apart, of which the thread ran so many, and others waited for a core.

    Between two looks, of which the first ran NEVER, are updates that are not looked at. early: looks at the first instant.
    """
    clocks = [(0.0, 0.0, 0.0, 0.0)] * early
    for wall, ran, *queued in spans:
        clock, has_run, has_queued, own = clocks[-1]
        clocks.append((clock + wall, has_run + max(0.0, ran), has_queued + sum(queued), own + 0.125 * wall))
    reads = iter(clocks)
    seen = waiting.Waiting()
    monkeypatch.setattr(waiting.Waiting, "_read", lambda self: next(reads))
    for _ in range(early):
        seen.end_update()
    for _, ran, *_ in spans:
        seen.end_update(is_next=ran != NEVER)
    return seen.facts()


def test_the_share_in_which_it_stands_still(monkeypatch: pytest.MonkeyPatch) -> None:
    assert followed(monkeypatch, [(1.0, 0.25)] * 8)["blocked"] == pytest.approx(0.75)


def test_the_first_updates_count_only_where_there_are_no_later_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    slow = [(40.0, 10.0, 50.0)]
    assert followed(monkeypatch, slow, early=1)["queued"] == pytest.approx(1.375)  # of a script with two long steps
    assert followed(monkeypatch, [*slow, *slow, (1.0, 1.0)], early=1)["queued"] == pytest.approx(0.125)


def test_waiting_for_threads_that_wait_for_a_core_is_no_sleep(monkeypatch: pytest.MonkeyPatch) -> None:
    assert followed(monkeypatch, [(1.0, 0.25, 0.5)] * 8)["blocked"] == pytest.approx(0.25)
    assert followed(monkeypatch, [(1.0, 0.25, 4.0)] * 2 + [(1.0, 0.25)] * 2)["blocked"] == pytest.approx(0.375)


def test_what_all_threads_wait_for_a_core(monkeypatch: pytest.MonkeyPatch) -> None:
    found = followed(monkeypatch, [(1.0, 0.25, 0.5)] * 4 + [(1.0, 0.25, 2.5)] * 4)
    assert found["queued"] == pytest.approx(0.125 + 1.5)


def test_what_threads_wait_between_two_looks_leaves_a_sleep_a_sleep(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = [(0.01, 0.002, 0.0), (0.05, NEVER, 0.1)] * 8
    assert followed(monkeypatch, looks)["blocked"] == pytest.approx(0.8)


def test_time_on_a_core_is_not_counted_in_the_ticks_of_the_system(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting.os, "pread", lambda *_: b"4000000000 2000000000 7")
    monkeypatch.setattr(waiting.time, "thread_time", lambda: 5.0)
    seen = waiting.Waiting()
    for _ in range(waiting.FIRST):
        seen.end_update()
    assert (clocks := seen._read()) is not None and clocks[1] == 7.0


def test_a_look_reads_what_the_other_threads_waited(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    monkeypatch.setattr(waiting, "queued_seconds", lambda but: asked.append(but) or 0.0)
    seen = waiting.Waiting()
    for _ in range(2):
        seen.end_update()
    assert asked == [threading.get_native_id()] * 2


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
