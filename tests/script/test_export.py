"""Steps as a trace: what lies where."""

from __future__ import annotations

from perfaudit.script.export import chrome_trace
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
