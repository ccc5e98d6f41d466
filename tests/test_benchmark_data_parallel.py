"""What the patch of DataParallel is worth on two ranks: its page is that of its records, and ratios are of one round."""

from __future__ import annotations

import math
import sys
from pathlib import Path

import pytest

from perfaudit.measure.stats import ratio_interval

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "benchmarks"))

import data_parallel_ranks as benchmark  # noqa: E402  # lies outside the package
from records import read  # noqa: E402


def test_the_page_is_that_of_the_records() -> None:
    assert benchmark.PAGE.read_text(encoding="utf-8") == benchmark.page(read(benchmark.RECORDS))


def test_the_documentation_tells_what_is_on_record() -> None:
    told = (ROOT / "docs" / "distributed.md").read_text(encoding="utf-8")
    for candidate, base in list(benchmark.PAIRS.values())[::2]:
        ratios = benchmark.ratios_of(read(benchmark.RECORDS), candidate, base)
        middle, low, high = ratio_interval([[ratio] for ratio in ratios])
        assert f"{middle:.2f} [{low:.2f}, {high:.2f}]" in told


def test_its_program_gets_the_patch() -> None:
    text = benchmark.patch_program()
    compile(text, benchmark.PROGRAM.name, "exec")
    assert "DistributedSampler" in text
    assert f'"--batch-size", type=int, default={benchmark.BATCH}' in text


def test_ratios_are_of_samples_a_second_in_rounds_that_have_both() -> None:
    records = [
        {"round": number, "way": way, "step": step}
        for number, way, step in ((0, "a", 2.0), (0, "b", 1.0), (1, "b", 1.0), (2, "a", 3.0), (2, "b", 6.0))
    ]
    assert [math.exp(ratio) for ratio in benchmark.ratios_of(records, "b", "a")] == pytest.approx([2.0, 0.5])
