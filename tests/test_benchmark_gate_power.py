"""benchmarks/gate_power.py: intervals, the table, and judging anew. Nothing is timed."""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

BENCHMARKS = Path(__file__).parent.parent / "benchmarks"
if not BENCHMARKS.exists():
    pytest.skip("the benchmarks are not in this distribution", allow_module_level=True)
sys.path.insert(0, str(BENCHMARKS))

import gate_power  # noqa: E402  # it stands in that folder
from gate_power import from_json, to_json  # noqa: E402

from perfaudit.gate.records import OneTraining, Pair, Quad, TargetRecord, TimedBlock  # noqa: E402


@pytest.mark.parametrize(
    ("hits", "of", "low", "high"),
    [
        (0, 120, 0.0, 0.0303),  # 1 - 0.025 ** (1 / 120)
        (1, 120, 0.0002, 0.0456),
        (5, 10, 0.1871, 0.8129),  # Clopper & Pearson's own chart
        (10, 10, 0.6915, 1.0),
    ],
)
def test_exact_intervals_of_a_share(hits: int, of: int, low: float, high: float) -> None:
    assert gate_power.clopper_pearson(hits, of) == (pytest.approx(low, abs=5e-5), pytest.approx(high, abs=5e-5))


def measured(
    kind: str, verdict: str, stored: bool, rival: bool | None, ratios: list[float], **more: Any
) -> dict[str, Any]:
    """A run of four quads in each of as many pairs as there are ratios."""

    def quad(ratio: float) -> Quad:
        base = TimedBlock("base", 10, 0.01, 0.01, 0.0, 0.1, 0.1, 0.0)
        head = TimedBlock("head", 10, 0.01 * ratio, 0.01 * ratio, 0.0, 0.1, 0.1, 0.0)
        return Quad((base, head, head, base))

    pairs = [Pair("base", 0, 1.0, [quad(ratio + 0.0005 * i) for i in range(4)]) for ratio in ratios]
    return {
        "kind": kind, "target": "char_gpt", "verdict": verdict, "seconds": 60.0, "ratio": ratios[0], "smallest": 0.03,
        "pairs": len(ratios), "load": 2.0, "injected": {"share": 0.1} if kind == "slow10" else {},
        "stored": {"red": stored, "seconds": 8.0},
        "pytest_benchmark": {} if rival is None else {"red": rival, "seconds": 9.0},
        "record": to_json(TargetRecord("train.py", pairs=pairs)), **more,
    }  # fmt: skip


def test_the_table_counts_calls_of_each_method() -> None:
    runs = [
        measured("aa", "pass", True, False, [1.0] * 4),
        measured("aa", "inconclusive", False, None, [1.0] * 4),
        measured("slow10", "regressed", True, True, [1.1] * 4),
    ]
    table = gate_power.table(runs)
    none, all_ = "0 of 2 (0.0 %, 0.0 to 84.2)", "1 of 1 (100.0 %, 2.5 to 100.0)"
    assert f"| char_gpt | perfaudit gate | {none} | – | {all_} | 60 |" in table
    assert f"| char_gpt | stored mean, > 5 % | 1 of 2 (50.0 %, 1.3 to 98.7) | – | {all_} | 8 |" in table
    assert f"| char_gpt | pytest-benchmark, mean:5% | 0 of 1 (0.0 %, 0.0 to 97.5) | – | {all_} | 9 |" in table
    details = gate_power.details(runs)
    assert (
        "| char_gpt | aa | 2 | 10 ms | 1 inconclusive, 1 pass | none | 1.000 1.000 1.000 | 4.0 | 3.0 % | 2.0 |"
        in details
    )
    assert "| char_gpt | slow10 | 1 | 10 ms | 1 regressed | 10.0 % | 1.100 | 4.0 | 3.0 % | 2.0 |" in details


@pytest.mark.parametrize(
    ("ratios", "both", "student", "quads"),
    [
        ([1.1] * 4, "regressed", "regressed", "regressed"),
        ([1.0] * 4, "pass", "pass", "pass"),
        ([1.02, 1.02, 1.02, 1.30], "inconclusive", "inconclusive", "regressed"),  # pairs differ more than quads tell
        ([1.1] * 3, "regressed", "regressed", "regressed"),  # the budget ended before the first look
    ],
)
def test_other_rules_judge_the_same_blocks(ratios: list[float], both: str, student: str, quads: str) -> None:
    run = measured("aa", "", False, None, ratios)
    found = [gate_power.rejudged(run, gate_power.RULES[name]) for name in ("both", "student", "quads")]
    assert found == [both, student, quads]
    assert gate_power.rejudged(run, gate_power.RULES["both"], "cpu") == "pass"  # both sides computed as long


def test_runs_that_crashed_are_told_and_count_for_nothing() -> None:
    runs = [measured("aa", "pass", False, None, [1.0] * 4)]
    lost = gate_power.crashed("aa", "char_gpt", 1, 1, "Traceback\nMemoryError\n")
    assert (lost["verdict"], lost["said"]) == ("crashed", "Traceback\nMemoryError")
    both = [gate_power.judged_anew(run, gate_power.RULES["both"], "wall") for run in [*runs, lost]]
    told = gate_power.told(both)
    assert "shrunk, on one core each with OMP_NUM_THREADS=1. 1 of 2 runs crashed" in told
    assert gate_power.table(runs) in told
    assert "No run crashed." in gate_power.told(runs)


def test_the_machine_is_the_one_that_measured() -> None:
    runs = [measured("aa", "pass", False, None, [1.0] * 4, machine=machine) for machine in ("Linux a", "Linux b")]
    assert gate_power.told([*runs, measured("aa", "pass", False, None, [1.0] * 4)]).startswith(
        "Linux a / Linux b / a machine that the record does not name. "
    )
    assert "cores, Python 3." in gate_power.machine()
    assert "torch " in gate_power.machine()


def test_a_rival_that_ends_with_another_error_is_no_miss() -> None:
    runs = [measured("slow10", "regressed", True, False, [1.1] * 4) for _ in range(3)]
    runs[0]["pytest_benchmark"]["codes"] = [0, 1]  # of the comparison there is no word
    runs[1]["pytest_benchmark"]["codes"] = [0, 0]
    runs[2]["pytest_benchmark"] |= {"codes": [0, 1], "red": True}
    assert [gate_power.red(run, "pytest_benchmark") for run in runs] == [None, False, True]
    assert "pytest-benchmark ended 1 times with another error" in gate_power.told(runs)


def test_a_run_that_crashes_is_a_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "records.jsonl"
    monkeypatch.setattr(gate_power.sys, "executable", "/bin/false")
    arguments = argparse.Namespace(
        out=out, tools=None, rival_every=0, way="one", runs=2, kind=["aa"], target=["char_gpt"], budget=1.0
    )
    gate_power.run_all(arguments)
    assert [(run["verdict"], run["number"], run["code"]) for run in gate_power.read([out])] == [
        ("crashed", 0, 1),
        ("crashed", 1, 1),
    ]


def test_shares_are_medians_with_their_interval_by_ranks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 400 values, the ranks 20 below and above the middle; a product costs 0.25 % of a step."""
    asked = []

    def shares(folder: Path, target: str, extra: int, steps: int) -> list[float]:
        asked.append((extra, steps))
        return [0.0025 * extra + 0.0001 * (i - steps // 2) for i in range(steps)]

    monkeypatch.setattr(gate_power, "shares_of_steps", shares)
    assert gate_power.calibrated(tmp_path, "char_gpt", 0.05) == 20
    assert asked == [(40, 60), (20, 60)]
    assert gate_power.confirmed(tmp_path, "char_gpt", 20) == {"extra": 20, "share": 0.05, "low": 0.048, "high": 0.052}


@pytest.mark.parametrize("target", list(gate_power.SHRUNK))
def test_a_slowdown_is_one_number_and_works_in_the_step(target: str) -> None:
    plain, slowed = gate_power.program(target, 0).splitlines(), gate_power.program(target, 7).splitlines()
    changed = [(a, b) for a, b in zip(plain, slowed, strict=True) if a != b]
    assert len(changed) == 1
    assert changed[0][1].startswith("    for _ in range(7):")
    namespace: dict[str, Any] = {"__name__": "train"}
    exec(compile("\n".join(slowed), "train.py", "exec"), namespace)
    model, batch = namespace["build_model"](), next(iter(namespace["build_dataloader"]()))
    calls: list[str] = []
    import torch

    class Count(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            calls.append(getattr(function, "__name__", ""))
            return function(*args, **(kwargs or {}))

    with Count():
        loss = namespace["training_step"](model, batch)
    assert loss.requires_grad
    product = {"digits_cnn": "conv2d", "char_gpt": "linear"}[target]
    calls_plain = calls.count(product) - 7
    exec(compile("\n".join(plain), "train.py", "exec"), namespace)
    calls.clear()
    with Count():
        namespace["training_step"](model, batch)
    assert calls.count(product) == calls_plain


def test_the_committed_tables_are_those_of_the_committed_records() -> None:
    runs = gate_power.read([BENCHMARKS / f"gate_power_{part}.jsonl.xz" for part in ("aa", "slow")])
    assert (BENCHMARKS / "gate_power.md").read_text().endswith(gate_power.told(runs) + "\n")
    page = (BENCHMARKS.parent / "docs" / "results.md").read_text()
    for method in gate_power.METHODS:
        for kind in gate_power.KINDS:
            calls = [call for run in runs if run["kind"] == kind and (call := gate_power.red(run, method)) is not None]
            low, high = gate_power.clopper_pearson(sum(calls), len(calls))
            interval = f"({100 * low:.1f} to {100 * high:.1f} %)".replace("(0.0 ", "(0 ").replace("100.0", "100")
            assert f"| {sum(calls)} of {len(calls)} {interval} |" in page


def test_a_record_in_json() -> None:
    seen = TimedBlock("base", 10, 0.123456789, 0.246913578, 0.0, 3.70370367, 2.46913578, 0.0, 8.0, 24.0)
    record = TargetRecord(
        "t.py",
        "main",
        "mean",
        "short",
        [Pair("head", 7, 1.23456, [Quad((seen,))], 2.5)],
        {"head": "it died"},
        True,
        0.5,
        True,
        9,
    )
    data = to_json(record)
    row = ["base", 10, 0.123457, 0.246914, 0.0, 3.7037, 2.46914, 0.0, 8.0, 24.0]
    assert data == {
        "target": "t.py",
        "reference": "main",
        "typical": "mean",
        "length": "short",
        "pairs": [{"first": "head", "seed": 7, "opening": 1.235, "quads": [[row]], "quad_seconds": 2.5}],
        "failures": {"head": "it died"},
        "settled": True,
        "load": 0.5,
        "interrupted": True,
        "seed": 9,
        "one": None,
        "why": "",
    }
    rounded = TimedBlock("base", 10, *row[2:])  # type: ignore[arg-type]  # numbers
    assert from_json(data) == replace(record, pairs=[Pair("head", 7, 1.235, [Quad((rounded,))], 2.5)])
    assert to_json(from_json(data)) == data


def test_a_record_of_one_training_in_json() -> None:
    seen = TargetRecord("t.py", one=OneTraining([0.01] * 9, [0.1] * 9, [0.0] * 9, 1.25), why="swapped")
    assert from_json(to_json(seen)) == seen


@pytest.mark.parametrize("data", [{}, {"pairs": [{}]}, {"pairs": [], "target": "t", "other": 1}])
def test_other_data_is_refused(data: dict[str, object]) -> None:
    with pytest.raises((KeyError, TypeError)):
        from_json(data)
