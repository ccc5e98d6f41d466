"""The commands that `benchmarks/rank_demonstration.py` runs: each has its record, and stands on docs/distributed.md."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
if not (ROOT / "benchmarks").exists():
    pytest.skip("the benchmarks are not in this distribution", allow_module_level=True)
sys.path.insert(0, str(ROOT / "benchmarks"))

import rank_demonstration as demonstration  # noqa: E402  # found there


def test_what_is_run_has_a_record_and_stands_on_the_page() -> None:
    page = (ROOT / "docs" / "distributed.md").read_text()
    kept = json.loads(demonstration.RECORD.read_text())
    assert kept.keys() == demonstration.COMMANDS.keys()
    for name, words in demonstration.COMMANDS.items():
        assert kept[name]["command"] in page
        assert kept[name]["command"].endswith(words)
        assert (demonstration.HERE / "rank_programs" / words.split()[1]).exists()
