"""What programs read as JSON holds no `NaN` and no `Infinity`, which only Python reads."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from perfaudit.cli import gate_history, history
from perfaudit.gate import committed_json

NUMBERS = pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])


@NUMBERS
def test_runs(number: float) -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        history._as_json({"low": number})


@NUMBERS
def test_the_history_of_a_metric(number: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gate_history, "_shown_series", lambda folder, metric, target: [number])
    monkeypatch.setattr(gate_history, "_json", lambda shown: {"value": shown})
    with pytest.raises(ValueError, match="not JSON compliant"):
        gate_history.show("step_time", None, "json", tmp_path / "history.json", 10)
    assert not (tmp_path / "history.json").exists()


@NUMBERS
def test_a_committed_file(number: float) -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        committed_json.json_text({"seconds": number})
