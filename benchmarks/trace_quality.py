"""What `perfaudit trace` says of traces by other people: `python benchmarks/trace_quality.py FOLDER --write`.

FOLDER holds the files of `trace_quality.toml`, wherever they lie in it: they are known by their digest. The expectations were
written by looking at the events (names of kernels, calls and marks, and when they are), not by running this program. Traces are
fetched, never committed.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
EXPECTED = ROOT / "benchmarks" / "trace_quality.toml"
PAGE = ROOT / "benchmarks" / "trace_quality.md"


@dataclass(frozen=True)
class Outcome:
    """One trace: what was said, and what of the expectations does not hold."""

    expected: dict[str, Any]
    largest: str
    share: float
    rules: tuple[str, ...]
    stragglers: tuple[int, ...]

    @property
    def problems(self) -> list[str]:
        wanted = self.expected
        found = [f"{rule} is not said" for rule in wanted["must"] if rule not in self.rules]
        found += [f"{rule} is said" for rule in wanted["must_not"] if rule in self.rules]
        if wanted["largest"] != self.largest:
            found.append(f"most is {self.largest}, not {wanted['largest']}")
        if tuple(wanted.get("stragglers", ())) != self.stragglers:
            found.append(f"stragglers {list(self.stragglers)}, not {wanted.get('stragglers', [])}")
        return found


def outcomes(folder: Path, expected: list[dict[str, Any]]) -> Iterator[Outcome | dict[str, Any]]:
    """An outcome for each trace that is there, the expectation itself for one that is not."""
    by_digest = {
        digest(path): path for path in sorted(folder.rglob("*")) if path.is_file() and ".json" in path.name + ".json"
    }
    for wanted in expected:
        path = by_digest.get(wanted["sha256"])
        yield wanted if path is None else outcome(path, wanted)


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()[:16]


def outcome(path: Path, wanted: dict[str, Any]) -> Outcome:
    """What the command says, and the share that most of the time that is no computing has, over all ranks."""
    command = [sys.executable, "-m", "perfaudit", "trace", str(path), "--format", "json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    report = json.loads(done.stdout)
    ranks = report["trace"]["ranks"]
    mean = {name: sum(rank["shares"][name] for rank in ranks) / len(ranks) for name in ranks[0]["shares"]}
    lost = {name: share for name, share in mean.items() if name != "compute"}
    largest = max(lost, key=lambda name: lost[name])
    if lost[largest] < 0.005:
        largest = "compute"
    return Outcome(
        wanted,
        largest,
        mean[largest],
        tuple(finding["rule"] for finding in report["findings"]),
        tuple(one["rank"] for one in report["trace"]["stragglers"]),
    )


def page(results: list[Outcome | dict[str, Any]]) -> str:
    done = [one for one in results if isinstance(one, Outcome)]
    right = sum(not one.problems for one in done)
    lines = [
        "# What is said of traces by other people",
        "",
        "Printed by `python benchmarks/trace_quality.py FOLDER --write`. What must be said of each trace, and what "
        "must not, was written by",
        "looking at its events. Some thresholds were set while looking at these traces, so that the table shows that nothing got",
        "worse, and not how right the command is on traces that nobody has looked at.",
        "",
        f"{right} of {len(done)} traces are as expected.",
        "",
        "| trace | repository and file | most of the time that is no computing | said | must not be said | why |",
        "|---|---|---|---|---|---|",
    ]
    for one in done:
        wanted = one.expected
        wrong = f" **{'; '.join(one.problems)}**" if one.problems else ""
        said = ", ".join(one.rules) or "nothing worth doing"
        late = f", late: rank {', '.join(map(str, one.stragglers))}" if one.stragglers else ""
        lines.append(
            f"| {wanted['kind']} | {wanted['repository']} at {wanted['commit'][:10]}, `{wanted['path']}` | {one.largest} "
            f"{100 * one.share:.0f} % | {said}{late}{wrong} | {', '.join(wanted['must_not'])} | {wanted['why']} |"
        )
    missing = [one for one in results if not isinstance(one, Outcome)]
    lines += [f"\nNot in the folder: {one['repository']}, `{one['path']}`." for one in missing]
    return "\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--write", action="store_true", help="write the page")
    options = parser.parse_args()
    results = list(outcomes(options.folder, tomllib.loads(EXPECTED.read_text())["trace"]))
    text = page(results)
    print(text, end="")
    if options.write:
        PAGE.write_text(text)
    return int(any(isinstance(one, Outcome) and one.problems for one in results))


if __name__ == "__main__":
    sys.exit(main())
