"""The page of two nodes is that of its runs, and other pages have its figure."""

from __future__ import annotations

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "benchmarks"))

import two_nodes as benchmark  # noqa: E402

TARGETS = [{"target": name, "verdict": "regressed", "ratio": 1.5, "pairs": 4} for name in benchmark.NAMES]


def run(number: int, nodes: int, seconds: float) -> benchmark.Json:
    return {"round": number, "nodes": nodes, "seconds": seconds, "targets": TARGETS, "load": 1.0, "machine": "m"}


def test_the_page_is_that_of_its_runs() -> None:
    assert benchmark.PAGE.read_text(encoding="utf-8") == benchmark.page(benchmark.read(benchmark.RECORDS))


def test_only_rounds_with_both_are_compared() -> None:
    page = benchmark.page([run(0, 1, 100.0), run(0, 2, 50.0), run(1, 2, 60.0), run(1, 1, 120.0), run(2, 1, 9.0)])
    assert "| 1 | 100 | 50 | 0.50 | 16 | 16 | 1.0, 1.0 |" in page and "| 2 | 120 | 60 | 0.50 |" in page
    assert "| 3 |" not in page and "take 0.50 [0.50, 0.50] of the time of one" in page


def test_other_pages_have_its_figure() -> None:
    (figure,) = re.findall(r"0\.\d\d \[0\.\d\d, 0\.\d\d\]", benchmark.PAGE.read_text(encoding="utf-8"))
    assert f"they take {figure} of the time of one" in (ROOT / "docs" / "distributed.md").read_text(encoding="utf-8")
