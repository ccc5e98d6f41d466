"""Readings of what a scan reports, as pages: `python benchmarks/scan_reading.py --write`.

`scan_reading.json` has the labels of four readers, `scan_reading_fifth.json` those of two more. They wrote no rule and saw
none of each other's work. `scan_reading_sixth.json` has those of one reader who mended the rules afterwards. The repositories
of each had been in no earlier reading, rule or test.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent
LABELS = ("right", "arguable", "wrong")


@dataclass(frozen=True)
class Reading:
    """One reading: its number as a word, who read, the two who read the same repositories, if any did, and what is special."""

    number: str
    readers: str
    records: Path
    twice: tuple[str, str] | None = None
    note: str = ""

    @property
    def page(self) -> Path:
        return self.records.with_suffix(".md")


READINGS = (
    Reading(
        "fourth",
        "Four readers, who\nwrote no rule,",
        ROOT / "scan_reading.json",
        ("first, owners a to l", "second, owners a to l"),
    ),
    Reading("fifth", "Two readers, who\nwrote no rule,", ROOT / "scan_reading_fifth.json"),
    Reading(
        "sixth",
        "One reader, who\nhas mended rules before and after,",
        ROOT / "scan_reading_sixth.json",
        note="A finding with several places counts once. All that these repositories show by default was read, but for half of\n"
        "D-X-Y/AutoDL-Projects, whose search programs repeat each other: 24 of its 49. What is missed was not searched for.\n"
        "The right ones that are shown no more are of PA203 and PA604, which this reading made `preview`.",
    ),
)


def page(reading: Reading, records: dict[str, Any]) -> str:
    left_out = reading.twice[0] if reading.twice else ""
    labels = [label for label in records["labels"] if label["reader"] != left_out]
    repositories = [one for one in records["repositories"] if one["reader"] != left_out]
    numbers = Counter(label["label"] for label in labels)
    return "\n".join(
        [
            f"# A {reading.number} reading, of what a scan reports on code that nobody had looked at",
            "",
            "Printed by `python benchmarks/scan_reading.py --write` from the labels in "
            f"`{reading.records.name}`. {reading.readers} "
            "chose public repositories that no earlier reading, rule or test had used, scanned them with",
            f"perfaudit at {records['perfaudit']} at its default severity, and labelled findings in their source. Labels are",
            "those of `scan_quality.md`: right, arguable (true, but it hardly matters there, or the advice fits badly), wrong",
            "(not true, of no use, or the patch breaks something).",
            "",
            f"**{len(labels)} findings in {len(repositories)} repositories "
            f"({sum(one['files'] for one in repositories):,} files): {share(numbers, 'right')} right,",
            f"{share(numbers, 'arguable')} arguable, {share(numbers, 'wrong')} wrong.** The aim was 85 % right and at most 3 % "
            f"wrong: it is {'reached' if reaches_aim(numbers) else 'missed'}. What was mended",
            "afterwards is in the changelog; these repositories say nothing about the state after that.",
            "",
            *([reading.note, ""] if reading.note else []),
            *agreement(records["labels"], reading.twice),
            *after_mending(records),
            "## By reader",
            "",
            "| reader | repositories | findings read | right | arguable | wrong |",
            "|---|---:|---:|---:|---:|---:|",
            *by_reader(records),
            "",
            *which_counts(reading.twice),
            "## By rule",
            "",
            "| rule | read | right | arguable | wrong |",
            "|---|---:|---:|---:|---:|",
            *by_rule(labels),
            "",
            *missed([one for one in records["recall"] if one["reader"] != left_out]),
            "## Every wrong report",
            "",
            *places(labels, "wrong"),
            "",
            "## Every arguable report",
            "",
            *places(labels, "arguable"),
            "",
            *every_miss(records),
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


def after_mending(records: dict[str, Any]) -> list[str]:
    """How many of the labelled findings, and of the true cases, are still reported; [] where nobody looked again."""
    again = records.get("again")
    if again is None:
        return []
    shown = Counter((one["label"], bool(one["again"])) for one in records["labels"])
    kept = ", ".join(
        f"{shown[label, True]} of the {shown[label, True] + shown[label, False]} {label} ones" for label in LABELS
    )
    cases = records["cases"]
    before, now = (sum(bool(one[key]) for one in cases) for key in ("found", "again"))
    listed = f", and {now} of the\n{len(cases)} true cases that the readers list, before {before}" if cases else ""
    return [
        f"Scanned again at {again}, after what they taught was mended, these repositories show {kept}{listed}.",
        "That is how far the mends reach, and no measure of other code.",
        "",
    ]


def reaches_aim(numbers: Counter[str]) -> bool:
    read = sum(numbers.values())
    return numbers["right"] >= 0.85 * read and numbers["wrong"] <= 0.03 * read


def missed(recall: list[dict[str, Any]]) -> list[str]:
    """How much of what is true is reported, of the rules for which somebody searched; [] where nobody did."""
    if not recall:
        return []
    return [
        "## What is missed",
        "",
        "True cases were searched for by hand, so that these are lower bounds of what is missed.",
        "",
        "| rule | true cases | of those reported | |",
        "|---|---:|---:|---:|",
        *by_recall(recall),
        "",
    ]


def every_miss(records: dict[str, Any]) -> list[str]:
    """The true cases that were not reported, where the reading lists its cases one by one."""
    unseen = [{**one, "label": "missed"} for one in records.get("cases", []) if not one["found"]]
    return ["## Every miss", "", *places(unseen, "missed"), ""] if unseen else []


def which_counts(twice: tuple[str, str] | None) -> list[str]:
    if twice is None:
        return []
    name = twice[1].partition(",")[0]
    return [f"Below, of the two who read the same repositories, the {name} is counted: the stricter one.", ""]


def share(numbers: Counter[str], label: str) -> str:
    return f"{100 * numbers[label] / sum(numbers.values()):.0f} %"


def agreement(labels: list[dict[str, Any]], twice: tuple[str, str] | None) -> list[str]:
    """What two readers of the same repositories said of the findings that both have read."""
    if twice is None:
        return []
    first, second = (
        {
            (one["repository"], one["path"], one["line"], one["rule"]): one["label"]
            for one in labels
            if one["reader"] == reader
        }
        for reader in twice
    )
    both = first.keys() & second.keys()
    same = sum(first[place] == second[place] for place in both)
    return [
        f"Two readers had the same repositories: of {len(both)} findings that both name by the same line, they label {same} "
        f"alike ({100 * same / len(both):.0f} %).",
        "",
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
    parser.add_argument("--write", action="store_true", help="write the pages")
    is_written = parser.parse_args().write
    for reading in READINGS:
        text = page(reading, json.loads(reading.records.read_text(encoding="utf-8")))
        print(text, end="")
        if is_written:
            reading.page.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
