"""The fourth reading of what a scan reports, as a page: `python benchmarks/scan_reading.py --write`.

`scan_reading.json` has the labels of four readers, who wrote no rule and saw none of each other's work, on repositories
that nobody had looked at before. Two of them read the same repositories.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent
RECORDS = ROOT / "scan_reading.json"
PAGE = ROOT / "scan_reading.md"
LABELS = ("right", "arguable", "wrong")
TWICE = ("first, owners a to l", "second, owners a to l")


def page(records: dict[str, Any]) -> str:
    labels = [label for label in records["labels"] if label["reader"] != TWICE[0]]
    repositories = [one for one in records["repositories"] if one["reader"] != TWICE[0]]
    numbers = Counter(label["label"] for label in labels)
    return "\n".join(
        [
            "# A fourth reading, of what a scan reports on code that nobody had looked at",
            "",
            "Printed by `python benchmarks/scan_reading.py --write` from the labels in `scan_reading.json`. Four readers, who",
            "wrote no rule, chose public repositories that no earlier reading, rule or test had used, scanned them with",
            f"perfaudit at {records['perfaudit']} at its default severity, and labelled findings in their source. Labels are",
            "those of `scan_quality.md`: right, arguable (true, but it hardly matters there, or the advice fits badly), wrong",
            "(not true, of no use, or the patch breaks something).",
            "",
            f"**{len(labels)} findings in {len(repositories)} repositories "
            f"({sum(one['files'] for one in repositories):,} files): {share(numbers, 'right')} right,",
            f"{share(numbers, 'arguable')} arguable, {share(numbers, 'wrong')} wrong.** The aim was 85 % right and at most 3 % "
            "wrong: it is missed. What was mended",
            "afterwards is in the changelog; these repositories say nothing about the state after that.",
            "",
            *agreement(records["labels"]),
            "",
            "## By reader",
            "",
            "| reader | repositories | findings read | right | arguable | wrong |",
            "|---|---:|---:|---:|---:|---:|",
            *by_reader(records),
            "",
            f"Below, of the two who read the same repositories, the {TWICE[1].partition(',')[0]} is counted: the stricter one.",
            "",
            "## By rule",
            "",
            "| rule | read | right | arguable | wrong |",
            "|---|---:|---:|---:|---:|",
            *by_rule(labels),
            "",
            "## What is missed",
            "",
            "True cases were searched for by hand, so that these are lower bounds of what is missed.",
            "",
            "| rule | true cases | of those reported | |",
            "|---|---:|---:|---:|",
            *by_recall([one for one in records["recall"] if one["reader"] != TWICE[0]]),
            "",
            "## Every wrong report",
            "",
            *places(labels, "wrong"),
            "",
            "## Every arguable report",
            "",
            *places(labels, "arguable"),
            "",
            "## Repositories",
            "",
            "| reader | repository | commit | files | findings |",
            "|---|---|---|---:|---:|",
            *(
                f"| {one['reader']} | {one['repository']} | {one['commit']} | {one['files']} | {one['findings']} |"
                for one in repositories
            ),
            "",
        ]
    )


def share(numbers: Counter[str], label: str) -> str:
    return f"{100 * numbers[label] / sum(numbers.values()):.0f} %"


def agreement(labels: list[dict[str, Any]]) -> list[str]:
    """What two readers of the same repositories said of the findings that both have read."""
    first, second = (
        {
            (one["repository"], one["path"], one["line"], one["rule"]): one["label"]
            for one in labels
            if one["reader"] == reader
        }
        for reader in TWICE
    )
    both = first.keys() & second.keys()
    same = sum(first[place] == second[place] for place in both)
    return [
        f"Two readers had the same repositories: of {len(both)} findings that both name by the same line, they label {same} "
        f"alike ({100 * same / len(both):.0f} %)."
    ]


def by_reader(records: dict[str, Any]) -> list[str]:
    rows = []
    for reader in dict.fromkeys(one["reader"] for one in records["labels"]):
        numbers = Counter(one["label"] for one in records["labels"] if one["reader"] == reader)
        repositories = sum(one["reader"] == reader for one in records["repositories"])
        cells = " | ".join(f"{numbers[label]} ({share(numbers, label)})" for label in LABELS)
        rows.append(f"| {reader} | {repositories} | {sum(numbers.values())} | {cells} |")
    return rows


def by_rule(labels: list[dict[str, Any]]) -> list[str]:
    rows = []
    for rule in sorted({one["rule"] for one in labels}):
        numbers = Counter(one["label"] for one in labels if one["rule"] == rule)
        rows.append(f"| {rule} | {sum(numbers.values())} | {' | '.join(str(numbers[label]) for label in LABELS)} |")
    return rows


def by_recall(recall: list[dict[str, Any]]) -> list[str]:
    true, reported = Counter[str](), Counter[str]()
    for one in recall:
        true[one["rule"]] += one["true"]
        reported[one["rule"]] += one["reported"]
    return [
        f"| {rule} | {true[rule]} | {reported[rule]} | {f'{100 * reported[rule] / true[rule]:.0f} %' if true[rule] else '–'} |"
        for rule in sorted(true)
    ]


def places(labels: list[dict[str, Any]], label: str) -> list[str]:
    found = sorted((one for one in labels if one["label"] == label), key=lambda one: (one["rule"], one["repository"]))
    return [f"- {one['rule']} {one['repository']} {one['path']}:{one['line']}: {one['why']}" for one in found]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help="write the page")
    text = page(json.loads(RECORDS.read_text(encoding="utf-8")))
    print(text, end="")
    if parser.parse_args().write:
        PAGE.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
