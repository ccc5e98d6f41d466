"""Two ranks with one thing wrong: the page is that of the records, and what it is worth is told of runs of one round."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "benchmarks"))

import ranks as benchmark  # noqa: E402  # lies outside the package
from records import read  # noqa: E402

from perfaudit.tune.ranks import race  # noqa: E402
from perfaudit.tune.ranks.race import MAY_BE, NORM_MAY_BE  # noqa: E402


def test_the_page_is_that_of_the_records() -> None:
    assert benchmark.PAGE.read_text(encoding="utf-8") == benchmark.page(read(benchmark.RECORDS))


def test_the_page_of_sources_has_the_same_table() -> None:
    rows = benchmark.worth(read(benchmark.RECORDS))
    page = (ROOT / "benchmarks" / "sources_cpu.md").read_text(encoding="utf-8")
    assert "\n".join(rows) in page


def test_the_page_of_norms_has_the_limits_of_the_code_between_a_right_patch_and_a_wrong_one() -> None:
    page = (ROOT / "benchmarks" / "rank_norms.md").read_text(encoding="utf-8")
    rows = {cells[1]: [float(cell) for cell in cells[2:4]] for cells in table_of(page)}
    limit = rows["limit"]
    assert limit == [MAY_BE["rounding"], NORM_MAY_BE["rounding"]]
    right, wrong = (rows[f"`no_sync` but for the {which}"] for which in ("last pass", "first pass, which is wrong"))
    assert all(low < middle < high for low, middle, high in zip(right, limit, wrong, strict=True))
    comment = "by 9e-4 in ten steps of a program under `no_sync`, whose losses move by 4e-5"
    assert comment in Path(race.__file__).read_text(encoding="utf-8")
    assert [f"{each:.0e}" for each in reversed(right)] == ["9e-04", "4e-05"]


def table_of(page: str) -> list[list[str]]:
    """The rows of a page's one table, without its head."""
    lines = [line for line in page.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.split("|")] for line in lines[1:]]


def test_only_runs_of_the_same_round_are_compared() -> None:
    """One on an idle machine and one on a busy one differ by what the machine did."""

    def record(training: str, number: int, step: float, load: float = 1.0) -> dict[str, Any]:
        return {"training": training, "judged": benchmark.JUDGED, "round": number, "mean_step": step, "load": load}

    records = [record("balanced", n, 0.05) for n in (0, 1, 2)] + [record("unoverlapped", n, 0.1) for n in (1, 2, 9)]
    records += [{"training": "unoverlapped", "judged": benchmark.JUDGED, "round": 0, "step": 9.0, "load": 1.0}]
    records += [record("balanced", 3, 0.05, load=9.0), record("unoverlapped", 3, 9.0)]
    (row,) = benchmark.worth(records)[2:]
    assert "| 0.500 [0.500, 0.500] | 2 | faster |" in row


def test_each_training_has_its_program_which_knows_it_by_name() -> None:
    for training, program in benchmark.PROGRAM_OF.items():
        text = (benchmark.PROGRAMS / program).read_text(encoding="utf-8")
        assert training in benchmark.TRAININGS
        assert f'"{training}"' in text or program == "accumulating_ranks.py"
