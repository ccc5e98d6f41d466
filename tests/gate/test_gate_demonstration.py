"""A project with a history, gated commit by commit as its CI would; `benchmarks/gate_demonstration.py` times it, too."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

import pytest

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "gate_demonstration.py"


def _script() -> Any:  # a module that is no part of the package
    spec = importlib.util.spec_from_file_location("gate_demonstration", SCRIPT)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.mark.slow
def test_each_commit_is_judged_as_it_deserves(tmp_path: Path) -> None:
    script = _script()
    innocent, sync, _ = script.repository(tmp_path)[1:]

    report = script.gated(tmp_path, innocent, "findings,counters", 60)
    assert (script.verdicts(report), report["rc"]) == ({"findings": "pass", "counters": "pass"}, 0)

    report = script.gated(tmp_path, sync, "findings,counters", 60)
    assert (script.verdicts(report), report["rc"]) == ({"findings": "regressed", "counters": "regressed"}, 1)
    line = 1 + (tmp_path / "train.py").read_text().splitlines().index("    if loss.item() > 1e6:")
    assert [(f["rule"], f["line"]) for f in report["findings"]] == [("PA601", line)]
    changes = {change["counter"]: change for change in report["gate"]["counters"][0]["changes"]}
    assert changes["host_syncs"]["after"] - changes["host_syncs"]["before"] == 1
    assert [(p["path"], p["line"], p["count"], p["what"]) for p in changes["host_syncs"]["places"]] == [
        ("train.py", line, 1, "item")
    ]


@pytest.mark.slow
def test_four_times_the_work_does_not_pass_by_time(tmp_path: Path) -> None:
    """Real pairs of processes; `benchmarks/gate_demonstration.py` shows on a calm machine that a tenth more is called."""
    script = _script()
    script.repository(tmp_path)
    text = (tmp_path / "train.py").read_text()
    (tmp_path / "train.py").write_text(text.replace("DEPTH = 11", "DEPTH = 44"))
    script._git(tmp_path, "commit", "--all", "--quiet", "--message", "much deeper")
    report = script.gated(tmp_path, "main", "time", 60)
    (time,) = report["gate"]["times"]
    if time["pairs"] < 4:  # on a loaded machine four pairs do not fit into the budget
        assert script.verdicts(report) == {"time": "inconclusive"}
        assert time["pairs"] == 0 or time["ratio"] > 1.5
    else:
        assert (script.verdicts(report), report["rc"]) == ({"time": "regressed"}, 1)
        assert time["low"] > 1.01
