"""The optimizer in the backward pass: its page is that of its records, which show the same training and no gain."""

from __future__ import annotations

import math
import sys
from pathlib import Path

from perfaudit.measure.stats import ratio_interval

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "benchmarks"))

import optimizer_in_backward as benchmark  # noqa: E402  # lies outside the package
from records import read  # noqa: E402


def test_the_page_is_that_of_the_records() -> None:
    assert benchmark.PAGE.read_text(encoding="utf-8") == benchmark.page(read(benchmark.RECORDS))


def test_what_the_documentation_says_of_it_is_on_record() -> None:
    records = read(benchmark.RECORDS)
    assert all(each["same"] for each in records)
    for kind in ("SGD", "AdamW, fused"):
        runs = [each for each in records if each["kind"] == kind]
        _, low, _ = ratio_interval([[math.log(b / a) for a, b in each["pairs"]] for each in runs])
        assert low > 1
