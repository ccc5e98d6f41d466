"""The demonstration of docs/results.md: a sample model audited and measured.

    python benchmarks/demonstration.py [--write]

Does what `perfaudit scan sample_models/digits_cnn.py --measure` does (about 2 minutes) and prints the page's block. With
--write it also writes the record (benchmarks/demonstration.json) and the page between its two marks. Run it on a machine
that does nothing else.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import textwrap
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from perfaudit import scan

ROOT = Path(__file__).resolve().parent.parent
RECORD = ROOT / "benchmarks" / "demonstration.json"
PAGE = "docs/results.md"
SAMPLE = "sample_models/digits_cnn.py"
COMMAND = f"perfaudit scan {SAMPLE} --measure"
BUDGET = 300.0  # seconds, as the command has it by default
BEGIN, END = "<!-- written by benchmarks/demonstration.py -->\n", "<!-- until here -->\n"

TIMED = ("measured", "screened")  # bases of what this run has timed
RACES = ("patches in one running training", "patched source against")  # how the tables of patches begin

WIDTH = 130  # characters of the page's lines

Json = dict[str, Any]


def measured_record() -> Json:
    """The record of one run: its conditions, what each patch saved, and the report as a person reads it."""
    from perfaudit.cli.measuring import live
    from perfaudit.measure.folder import measuring
    from perfaudit.render.text import render
    from perfaudit.target.names import choose_target
    from perfaudit.tune.price import price

    os.chdir(ROOT)
    before, began = os.getloadavg()[0], time.monotonic()
    report = scan([SAMPLE])
    with measuring(ROOT), live(BUDGET) as watch:
        report = price(choose_target([SAMPLE], ROOT, {}), report, BUDGET, "auto", watch)
    seen = report.environment
    assert seen is not None
    rounds = {str(comparison.candidate.get("patch")): comparison.n for comparison in report.comparisons}
    savings = {
        finding.rule: {
            "low": finding.saving.low,
            "high": finding.saving.high,
            "clock": finding.saving.clock,
            "rounds": rounds.get(finding.rule),
        }
        for finding in report.findings
        if finding.saving is not None and finding.saving.basis in TIMED
    }
    return {
        "command": COMMAND,
        "device": f"{seen.cores}-core {platform.machine()} CPU" if seen.device == "cpu" else seen.device,
        "versions": f"torch {seen.torch.partition('+')[0]}",
        "load": [round(before, 1), round(os.getloadavg()[0], 1)],
        "seconds": round(time.monotonic() - began),
        "savings": savings,
        "report": render(report).splitlines(),
    }


def shown_lines(report: Iterable[str]) -> list[str]:
    """The part of the report that the page shows: what a step consists of, the races of the patches, and what pays."""
    lines = list(report)
    ends = [
        number
        for number, line in enumerate(lines)
        if line.startswith(("NOT MEASURED", "MEASURED: no saving", "TIMED: no saving"))
    ]
    pays = [
        number for number, line in enumerate(lines) if line.startswith(("MEASURED: these pay", "SCREENED: these pay"))
    ]
    if not pays:
        raise SystemExit("nothing was shown to pay here, so there is nothing to show: run it on a calmer machine")
    step = next(number for number, line in enumerate(lines) if line.startswith("a step takes"))
    races = next(number for number, line in enumerate(lines) if line.startswith(RACES))
    return [*lines[step : lines.index("", step) + 1], *lines[races : ends[0] if ends else len(lines)]]


def conditions(record: Json) -> str:
    """Device, versions and what else the machine did, in words."""
    load = "load {} before and {} after".format(*record["load"]) if record["load"] else "its load was not recorded"
    took = f", {record['seconds']} s" if record["seconds"] else ""
    return f"{record['device']} without GPU ({record['versions']}, {load}{took})"


def block(record: Json) -> str:
    """The page's block: under which conditions what was printed."""
    shown = "\n".join(line.rstrip() for line in shown_lines(record["report"]))
    said = f"`make demo` runs `{record['command']}`. Part of what it printed on a {conditions(record)}; your numbers will differ:"
    if words := record.get("older_words"):  # said of a record whose report would have other words today
        said = f"{said.removesuffix(':')}. {words}"
    return f"{BEGIN}\n{textwrap.fill(said, WIDTH)}\n\n```console\n$ {record['command']}\n…\n\n{shown.rstrip()}\n```\n\n{END}"


def write(record: Json) -> None:
    """Put a record where its figures stand."""
    keep(record, RECORD)
    put_in(ROOT / PAGE, block(record))


def keep(record: Json, path: Path) -> None:
    """Write a record to its file."""
    path.write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def put_in(page: Path, block: str) -> None:
    """Put a block in the place of the page's that begins and ends as it does."""
    begin, *_, end = block.splitlines(keepends=True)
    before, _, rest = page.read_text(encoding="utf-8").partition(begin)
    page.write_text(before + block + rest.partition(end)[2], encoding="utf-8")


def main(
    description: str | None, measure: Callable[[], Json], block: Callable[[Json], str], write: Callable[[Json], None]
) -> None:
    """What `python benchmarks/NAME.py [--write]` does: measure, print the page's block, and write both where asked to."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="write the record, and what is made of it")
    options = parser.parse_args()
    record = measure()
    print(block(record))
    if options.write:
        write(record)


if __name__ == "__main__":
    main(__doc__, measured_record, block, write)
