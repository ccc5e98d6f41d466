"""A project with a history, gated commit by commit as its CI would; `benchmarks/gate_demonstration.py` times it, too."""

from __future__ import annotations

import importlib.util
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import Done
from served_nursery import PERFAUDIT

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "gate_demonstration.py"


def _script() -> Any:  # a module that is no part of the package
    spec = importlib.util.spec_from_file_location("gate_demonstration", SCRIPT)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.mark.slow
def test_each_commit_is_judged_as_it_deserves(
    tmp_path: Path, perfaudit: Callable[..., Done], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In this process, which may have torch at hand; the next test gates in a process of its own, as the demonstration does."""
    script = _script()
    innocent, sync, _ = script.repository(tmp_path)[1:]
    monkeypatch.chdir(tmp_path)

    def gated(commit: str) -> Any:  # a report as JSON
        script._git(tmp_path, "checkout", "--quiet", commit)
        asked = ("train.py", "--against", "HEAD~1", "--layers", "findings,counters", "--format", "json", "--no-history")
        done = perfaudit("gate", *asked)
        return {**json.loads(done.out), "rc": done.code}

    report = gated(innocent)
    assert (script.verdicts(report), report["rc"]) == ({"findings": "pass", "counters": "pass"}, 0)

    report = gated(sync)
    assert (script.verdicts(report), report["rc"]) == ({"findings": "regressed", "counters": "regressed"}, 1)
    line = 1 + (tmp_path / "train.py").read_text().splitlines().index("    if loss.item() > 1e6:")
    assert [(f["rule"], f["line"]) for f in report["findings"]] == [("PA601", line)]
    changes = {change["counter"]: change for change in report["gate"]["counters"][0]["changes"]}
    assert changes["host_syncs"]["after"] - changes["host_syncs"]["before"] == 1
    assert [(p["path"], p["line"], p["count"], p["what"]) for p in changes["host_syncs"]["places"]] == [
        ("train.py", line, 1, "item")
    ]


@pytest.mark.slow
def test_four_times_the_work_does_not_pass_by_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Real pairs of processes; `benchmarks/gate_demonstration.py` shows on a calm machine that a tenth more is called."""
    script = _script()
    monkeypatch.setattr(script, "PERFAUDIT", PERFAUDIT)  # with children from the nursery that tests share
    script.repository(tmp_path)
    # Short steps make many quads in little time.
    text = (tmp_path / "train.py").read_text().replace("WIDTH = 384", "WIDTH = 48")
    for depth in (11, 44):
        (tmp_path / "train.py").write_text(text.replace("DEPTH = 11", f"DEPTH = {depth}"))
        script._git(tmp_path, "commit", "--all", "--quiet", "--message", f"narrow, {depth} layers")
    report = script.gated(tmp_path, "main", "time", 14)
    (time,) = report["gate"]["times"]
    if (
        time["pairs"] < 4
    ):  # on a loaded machine four pairs do not fit into the budget; two or three that agree tell it, too
        assert script.verdicts(report) in ({"time": "inconclusive"}, {"time": "regressed"})
        assert time["pairs"] > 1 or script.verdicts(report) == {"time": "inconclusive"}
        assert time["pairs"] == 0 or time["ratio"] > 1.5
    else:
        assert (script.verdicts(report), report["rc"]) == ({"time": "regressed"}, 1)
        assert time["low"] > 1.01
