"""The commands that `benchmarks/rank_demonstration.py` runs: each has its record, which docs/distributed.md shows."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest

import perfaudit
from perfaudit.render import text

ROOT = Path(__file__).parent.parent
if not (ROOT / "benchmarks").exists():
    pytest.skip("the benchmarks are not in this distribution", allow_module_level=True)
sys.path.insert(0, str(ROOT / "benchmarks"))
sys.path.insert(0, str(ROOT / "tests" / "docs"))

import kept_report  # noqa: E402  # found there
import rank_demonstration as demonstration  # noqa: E402  # found there
from test_blocks import blocks, matches  # noqa: E402  # found there

PAGE = (ROOT / "docs" / "distributed.md").read_text(encoding="utf-8")
KEPT: dict[str, dict[str, Any]] = json.loads(demonstration.RECORD.read_text(encoding="utf-8"))
# Their reports were made from what was printed: printing them anew holds the words, and says nothing of the figures.
REBUILT = {"sampler", "screened", "screened-raise"}
SHOWN = [block for block in blocks("docs/distributed.md", PAGE) if block.language == "text"]


def printed(name: str) -> str:
    return "\n".join([*KEPT[name]["said"], *KEPT[name]["lines"]])


@pytest.mark.parametrize("name", demonstration.COMMANDS)
def test_what_is_run_has_a_record_and_stands_on_the_page(name: str) -> None:
    command = demonstration.COMMANDS[name]
    assert KEPT[name]["command"] == command
    assert command in PAGE
    program = next((word for word in command.split() if word.endswith(".py")), "")
    assert (demonstration.HERE / "rank_programs" / program).exists()
    assert any(matches(printed(name), f"…\n{block.text}…\n") for block in SHOWN)


def test_nothing_else_is_run_or_shown() -> None:
    assert KEPT.keys() == demonstration.COMMANDS.keys()
    for block in SHOWN:
        assert any(matches(printed(name), f"…\n{block.text}…\n") for name in KEPT), block


def test_the_page_has_the_load_that_each_record_has() -> None:
    shown = set()
    for block in re.finditer(r"```sh\n(.*?)```", PAGE, re.DOTALL):
        names = [name for line in block[1].splitlines() for name in KEPT if KEPT[name]["command"] == line]
        paragraph = PAGE[: block.start()].rstrip().rpartition("\n\n")[2]
        if names and (loads := re.findall(r"\(load (\d+)", paragraph)):
            assert [int(load) for load in loads] == [round(KEPT[name]["load"]) for name in names], names
            shown.update(names)
    assert KEPT.keys() - shown == {"scan", "raise", "hang"}  # they time nothing


def test_what_was_rebuilt_is_said_to_be_on_the_page() -> None:
    assert {name for name in KEPT if KEPT[name].get("is_rebuilt")} == REBUILT
    assert len(re.findall(r"report\s+behind\s+(?:it|them)\s+was\s+rebuilt", PAGE)) == len(REBUILT)


@pytest.mark.parametrize("name", demonstration.COMMANDS)
def test_the_code_prints_of_the_report_what_was_printed(name: str) -> None:
    """The report of that run, printed by the code as it is now: a changed sentence asks for a new record, and a new page."""
    report = kept_report.report_of(KEPT[name]["report"])
    assert [line.rstrip() for line in text.render(report).splitlines()] == [
        line.rstrip() for line in KEPT[name]["lines"]
    ]


def test_of_the_traces_is_printed_what_the_record_has(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(demonstration.HERE / "rank_programs")
    report = perfaudit.trace(["traces"])
    assert [line.rstrip() for line in text.render(report).splitlines()] == [
        line.rstrip() for line in KEPT["trace-ray"]["lines"]
    ]


def test_no_record_names_a_machine() -> None:
    assert demonstration.without_hosts({"ranks": [{"host": "me", "rank": 1}]}) == {"ranks": [{"host": "", "rank": 1}]}
    for name, kept in KEPT.items():
        assert kept["report"] == demonstration.without_hosts(kept["report"]), name


def test_a_sentence_that_the_code_does_not_print_is_found() -> None:
    (line,) = [line for line in KEPT["straggler"]["lines"] if re.match("Ranks wait for whichever", line)]
    shown = next(block.text for block in SHOWN if line in block.text)
    assert matches(printed("straggler"), f"…\n{shown}…\n")
    assert not matches(printed("straggler"), f"…\n{shown.replace('Ranks wait', 'Ranks stay')}…\n")
