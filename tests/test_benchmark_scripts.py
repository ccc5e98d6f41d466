"""The marks that a benchmark puts into scripts by other people, and the rows that it makes of them."""

from __future__ import annotations

import builtins
import re
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parent.parent / "benchmarks"
if not BENCHMARKS.exists():
    pytest.skip("the benchmarks are not in this distribution", allow_module_level=True)
sys.path.insert(0, str(BENCHMARKS))

import marked_phases as marks  # noqa: E402  # it stands in that folder
from script_programs import PROGRAMS  # noqa: E402

SCRIPT = b"""
def train(loader):
    for x in loader:
        y = model(x)
        update(y)
        if y > 2:
            return y
said.append(train([1, 2, 3]))
"""


def test_marks_time_statements_and_change_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    now, said = [0.0], list[int]()
    monkeypatch.setattr(marks.time, "perf_counter", lambda: now[0])
    clock = marks.Clock(100)
    phases = {
        "data_wait": re.compile("for .* in loader"),
        "forward": re.compile("= model"),
        "optimizer": re.compile("^update"),
    }
    table = {name: marks.Mark(clock, name) for name in phases} | {"step": marks.EndOfStep(clock)}
    monkeypatch.setattr(builtins, marks.NAME, table, raising=False)

    def take(seconds: float, value: int) -> int:
        now[0] += seconds
        return value

    code = marks.marked_code(SCRIPT, "train.py", phases, re.compile("^update"))
    exec(code, {"model": lambda x: take(2.0, x), "update": lambda y: take(1.0, y), "said": said})
    assert said == [3]
    assert [step["phases"] for step in clock.steps] == [
        {"other": 0.0, "data_wait": 0.0, "forward": 2.0, "optimizer": 1.0}
    ] * 3


@pytest.mark.parametrize("name", PROGRAMS)
def test_each_program_is_marked_by_expressions(name: str) -> None:
    wanted = PROGRAMS[name].marks()
    assert all(re.compile(pattern) for pattern in (wanted["step"], *wanted["phases"].values()))
