"""Seconds of a step for a file: three processes, four blocks each, with a lab that takes as long as it is told."""

from __future__ import annotations

from typing import Any

import pytest

from perfaudit.errors import NothingMeasured
from perfaudit.gate import step_time as timed
from perfaudit.gate.comparable import Seconds
from perfaudit.measure.ledger import Block, Variant
from perfaudit.measure.runner import TrialEnded, TrialFailed
from perfaudit.measure.watch import Watch
from perfaudit.target.names import Target

TARGET = Target("t.py", {"model": "make"})


class Subject:
    """Blocks of steps that take so long each; the first is a look at how long they take. An error instead ends it."""

    def __init__(self, *seconds: float | TrialFailed) -> None:
        self.left, self.steps, self.is_closed = list(seconds), list[int](), False

    def block(self, steps: int, untimed: int = 1) -> Block:
        self.steps.append(steps)
        seconds = self.left.pop(0)
        if isinstance(seconds, TrialFailed):
            raise seconds
        return Block(steps, seconds * steps, seconds * steps, 8)

    def close(self) -> None:
        self.is_closed = True


class Lab:
    made: tuple[Any, ...] = ()

    def __init__(self, subjects: list[Subject | TrialFailed]) -> None:
        self.subjects, self.facts = list(subjects), {}

    def __call__(self, spec: dict[str, Any], device: str, timeout: float, fresh: bool) -> Lab:
        assert not fresh  # t.py sets no variables before it imports torch
        self.made = spec, device, timeout
        return self

    def open(self, variants: list[Variant]) -> dict[str, Subject | TrialFailed]:
        (variant,) = variants
        assert variant.settings == {}
        self.facts = {variant.key: "facts"}
        return {variant.key: self.subjects.pop(0)}


def lab(monkeypatch: pytest.MonkeyPatch, *subjects: Subject | TrialFailed) -> Lab:
    made = Lab(list(subjects))
    monkeypatch.setattr(timed, "ChildLab", made)
    return made


def test_quartiles_over_the_blocks_of_all_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    subjects = [Subject(0.1, *(0.010 * n for n in range(first, first + 4))) for first in (1, 5, 9)]
    made = lab(monkeypatch, *subjects)
    seconds, facts = timed.step_time(TARGET, "cpu", 60.0, Watch())
    assert seconds == Seconds(pytest.approx(0.065), pytest.approx(0.0375), pytest.approx(0.0925), 12)
    assert (facts, made.made) == ("facts", (TARGET.to_json(), "cpu", 60.0))
    assert all(subject.is_closed and not subject.left for subject in subjects) and not made.subjects


def test_a_script_that_ends_is_timed_by_what_it_had(monkeypatch: pytest.MonkeyPatch) -> None:
    lab(monkeypatch, *(Subject(0.1, 0.01, 0.02, TrialEnded("it ended")) for _ in range(3)))
    assert timed.step_time(TARGET, "cpu", 60.0, Watch())[0].n == 6
    lab(monkeypatch, *(Subject(TrialEnded("it ended")) for _ in range(3)))
    with pytest.raises(timed.TooShort, match=r"^t\.py ends before a block of its steps is timed$"):
        timed.step_time(TARGET, "cpu", 60.0, Watch())


def test_a_script_may_end_while_it_is_warmed_up(monkeypatch: pytest.MonkeyPatch) -> None:
    script, end = Target("t.py", {}, (), in_place=True), TrialEnded("it ended")
    lab(monkeypatch, end, Subject(0.1, 0.01, end), end)
    assert timed.step_time(script, "cpu", 60.0, Watch())[0].n == 1
    lab(monkeypatch, end, end, end)
    with pytest.raises(timed.TooShort):
        timed.step_time(script, "cpu", 60.0, Watch())
    lab(monkeypatch, end)
    with pytest.raises(NothingMeasured, match=r"^it ended$"):  # the loader of a factory is empty
        timed.step_time(TARGET, "cpu", 60.0, Watch())


class Slow(Watch):
    """A machine on which a process takes so many seconds to start, and what it says meanwhile."""

    def __init__(self, seconds: float) -> None:
        self.seconds, self.now, self.said = seconds, 0.0, list[str]()

    def monotonic(self) -> float:
        return self.now

    def stage(self, title: str) -> None:
        self.now += self.seconds
        self.said.append(title)


@pytest.mark.parametrize(("seconds", "processes"), [(1.0, 3), (29.0, 3), (31.0, 2), (61.0, 1), (900.0, 1)])
def test_on_a_busy_machine_fewer_processes_are_timed(
    monkeypatch: pytest.MonkeyPatch, seconds: float, processes: int
) -> None:
    slow = Slow(seconds)
    monkeypatch.setattr(timed, "time", slow)
    lab(monkeypatch, *(Subject(*[0.1] * 5) for _ in range(3)))
    assert timed.step_time(TARGET, "cpu", 60.0, slow)[0].n == 4 * processes
    assert slow.said == [f"timing t.py, process {number} of 3" for number in range(1, processes + 1)]


def test_a_busy_machine_is_no_reason_to_have_no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    script, end, slow = Target("t.py", {}, (), in_place=True), TrialEnded("it ended"), Slow(900.0)
    monkeypatch.setattr(timed, "time", slow)
    lab(monkeypatch, end, end, Subject(0.1, 0.01, end))
    assert timed.step_time(script, "cpu", 60.0, slow)[0].n == 1


@pytest.mark.parametrize(("seconds", "steps"), [(0.01, 35), (0.0999, 4), (1.0, 2), (0.00001, 2000), (0.0, 2000)])
def test_a_block_takes_a_third_of_a_second(monkeypatch: pytest.MonkeyPatch, seconds: float, steps: int) -> None:
    subjects = [Subject(*[seconds] * 5) for _ in range(3)]
    lab(monkeypatch, *subjects)
    timed.step_time(TARGET, "cpu", 60.0, Watch())
    assert subjects[0].steps == [2, steps, steps, steps, steps]


def test_a_target_that_does_not_build_or_run(monkeypatch: pytest.MonkeyPatch) -> None:
    lab(monkeypatch, TrialFailed("no module named torhc"))
    with pytest.raises(NothingMeasured, match=r"^no module named torhc$"):
        timed.step_time(TARGET, "cpu", 60.0, Watch())
    broken = Subject(0.1, 0.1, TrialFailed("out of memory"))
    lab(monkeypatch, broken)
    with pytest.raises(NothingMeasured, match=r"^out of memory$"):
        timed.step_time(TARGET, "cpu", 60.0, Watch())
    assert broken.is_closed
