"""What a gate against itself says as a whole, its measuring played."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from perfaudit.config import Config
from perfaudit.gate import self_test as module
from perfaudit.gate.records import ORDERS, Pair, Quad, Side, TargetRecord, TimedBlock
from perfaudit.gate.request import Request
from perfaudit.gate.settings import GateSettings
from perfaudit.measure.watch import Watch
from perfaudit.target.names import Target
from perfaudit.verdicts import Gate


def quad(log_ratio: float, number: int) -> Quad:
    seconds: dict[Side, float] = {"base": 0.01, "head": 0.01 * math.exp(log_ratio)}
    return Quad(
        tuple(
            TimedBlock(side, 10, seconds[side], seconds[side], 0.0, 10 * seconds[side], 8 * seconds[side], 0.0)
            for side in ORDERS[number % 2]
        )
    )


def judged_of(monkeypatch: pytest.MonkeyPatch, measure: Callable[[TargetRecord], None]) -> Gate:
    def time_targets(targets: Any, folder: Any, records: list[TargetRecord], *_: Any, **__: Any) -> None:
        measure(records[0])

    monkeypatch.setattr(module, "time_targets", time_targets)
    request = Request((Target("train.py"),), GateSettings(layers=("time",)), Config())
    judged = module.self_test(request, 1, Watch()).gate
    assert judged is not None
    return judged


def lean(log_ratio: float) -> Callable[[TargetRecord], None]:
    def measure(record: TargetRecord) -> None:
        for pair in range(4):
            quads = [quad(log_ratio + 0.001 * (number - 1.5) + 0.0005 * (pair % 2), number) for number in range(8)]
            record.pairs.append(Pair("base", 0, quads=quads))

    return measure


def fail(record: TargetRecord) -> None:
    record.failures["head"] = "out of memory"


def nothing(record: TargetRecord) -> None:
    record.pairs.append(Pair("base", 0))


def interrupt(record: TargetRecord) -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("measure", "verdict", "fails"),
    [
        (lean(0.0), "pass", False),
        (lean(0.2), "inconclusive", False),  # a false alarm: nothing regressed
        (fail, "failed", True),
        (nothing, "failed", True),
        (interrupt, "failed", True),
    ],
)
def test_a_false_alarm_is_no_regression(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    measure: Callable[[TargetRecord], None],
    verdict: str,
    fails: bool,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("")
    judged = judged_of(monkeypatch, measure)
    assert (judged.verdict, judged.fails) == (verdict, fails)
    if verdict == "inconclusive":
        assert judged.self_tests["train.py"].false_alarms == 1
