"""Steps as a trace: what lies where."""

from __future__ import annotations

import pytest

from perfaudit.script.export import chrome_trace
from perfaudit.script.first_update import without_setup
from perfaudit.script.scalars import scalars
from perfaudit.script.spans import PHASES


def update(optimizer: int, seconds: float, samples: int = 4, **phases: float) -> dict[str, object]:
    spent = [phases.get(name, 0.0) for name in PHASES]
    return {"optimizer": optimizer, "seconds": seconds, "batches": 1, "samples": samples, "phases": spent}


def test_steps_and_their_phases_lie_one_behind_the_other() -> None:
    trace = chrome_trace([update(0, 0.5, forward=0.2, data_wait=0.1), update(0, 0.25, backward=0.25)], "train.py")
    found = [(each["tid"], each["name"], each["ts"], each["dur"]) for each in trace["traceEvents"] if each["ph"] == "X"]
    assert found == [
        (1, "step 1", 0.0, 500_000.0),
        (1, "step 2", 500_000.0, 250_000.0),
        (2, "waiting for data", 0.0, 100_000.0),
        (2, "forward pass and loss", 100_000.0, 200_000.0),
        (2, "backward pass", 500_000.0, 250_000.0),
    ]
    assert trace["otherData"] == {"script": "train.py"}


def test_a_step_of_several_updates_is_one_event() -> None:
    trace = chrome_trace([update(number % 2, 1.0) for number in range(6)], "gan.py")
    steps = [each for each in trace["traceEvents"] if each["ph"] == "X" and each["tid"] == 1]
    assert [(each["ts"], each["dur"], each["args"]["samples"]) for each in steps] == [
        (0.0, 2e6, 8), (2e6, 2e6, 8), (4e6, 2e6, 8),
    ]  # fmt: skip


def test_a_run_without_updates_is_an_empty_trace() -> None:
    assert [each["ph"] for each in chrome_trace([], "x.py")["traceEvents"]] == ["M", "M"]


SET_UP = [update(0, 6.5, data_wait=0.5, forward=0.1, backward=0.1, other=5.8), update(0, 0.25, backward=0.25)]
FACTS = {
    "loader_at": 105.9,
    "first_batch_at": 106.2,
    "first_update_at": 106.7,
}  # 0.2 s of waiting lie behind the first batch


def test_the_setup_is_no_part_of_the_first_step() -> None:
    updates = without_setup(SET_UP, FACTS)
    found = [each for each in chrome_trace(updates, "train.py", 6.2)["traceEvents"] if each["ph"] == "X"]
    assert [(each["name"], each["ts"], each["dur"]) for each in found if each["tid"] == 1] == [
        ("setup", 0.0, 6.2e6), ("step 1", 6.2e6, 0.5e6), ("step 2", 6.7e6, 0.25e6),
    ]  # fmt: skip
    first = {each["name"]: each["dur"] for each in found if each["tid"] == 2 and each["ts"] < 6.7e6}
    assert first == {
        "waiting for data": 0.2e6, "forward pass and loss": 0.1e6, "backward pass": 0.1e6, "other": pytest.approx(0.1e6),
    }  # fmt: skip
    told = [(tag, value) for tag, value, step, _ in scalars(updates, ["SGD"]) if step == 1]
    assert told == [("step/seconds", pytest.approx(0.5)), ("step/seconds waiting for data", pytest.approx(0.2))]


def test_without_times_of_the_setup_the_records_are_as_they_were() -> None:
    assert without_setup(SET_UP, {}) == SET_UP
    assert without_setup([], FACTS) == []
