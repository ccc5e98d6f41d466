"""What `perfaudit trace` says of traces by other people: `python benchmarks/trace_quality.py FOLDER --write`.

FOLDER holds the files of `trace_quality.toml`, wherever they lie in it: they are known by their digest. The expectations were
written by looking at the events (names of kernels, calls and marks, and when they are), not by running this program. Traces are
fetched, never committed. `--hta PYTHON` names an interpreter that has HolisticTraceAnalysis, whose idle share stands beside ours.
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
    idle: float | None  # share of the window, of all ranks
    idle_of_hta: float | None
    is_comparable: (
        bool  # the window is the same for both: HTA leaves out the last step, and does not begin with the first
    )

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


def outcomes(folder: Path, expected: list[dict[str, Any]], hta: str) -> Iterator[Outcome | dict[str, Any]]:
    """An outcome for each trace that is there, the expectation itself for one that is not."""
    by_digest = {
        digest(path): path for path in sorted(folder.rglob("*")) if path.is_file() and ".json" in path.name + ".json"
    }
    for wanted in expected:
        path = by_digest.get(wanted["sha256"])
        yield wanted if path is None else outcome(path, wanted, idle_of_hta(path, hta) if hta else None)


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()[:16]


HTA = """
import sys
from hta.trace_analysis import TraceAnalysis
row = TraceAnalysis(trace_files={0: sys.argv[1]}, trace_dir="").get_temporal_breakdown(visualize=False).iloc[0]
print("IDLE", row["idle_time_pctg"] / 100)
"""


def idle_of_hta(path: Path, python: str) -> float | None:
    """The share of idle time that HTA's temporal breakdown tells of one file; None where it fails, or for an archive."""
    done = subprocess.run([python, "-c", HTA, str(path)], capture_output=True, text=True, check=False)
    lines = [line for line in done.stdout.splitlines() if line.startswith("IDLE ")]
    return float(lines[0].removeprefix("IDLE ")) if lines else None


def outcome(path: Path, wanted: dict[str, Any], of_hta: float | None) -> Outcome:
    """What the command says, and the share that most of the time that is no computing has, over all ranks."""
    command = [sys.executable, "-m", "perfaudit", "trace", str(path), "--format", "json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    report = json.loads(done.stdout)
    if report["trace"] is None:
        return Outcome(wanted, "not read", 1.0, (), (), None, None, False)
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
        sum(share for name, share in mean.items() if name.startswith("idle_")),
        of_hta,
        all("no-steps" in one["notes"] and "unseen-work" not in one["notes"] for one in ranks),
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
        *against_hta(done),
        "",
        "| trace | repository and file | most of the time that is no computing | said | must not be said | why | idle, % | HTA |",
        "|---|---|---|---|---|---|---:|---:|",
    ]
    for one in done:
        wanted = one.expected
        wrong = f" **{'; '.join(one.problems)}**" if one.problems else ""
        said = ", ".join(one.rules) or "nothing worth doing"
        late = f", late: rank {', '.join(map(str, one.stragglers))}" if one.stragglers else ""
        lines.append(
            f"| {wanted['kind']} | {wanted['repository']} at {wanted['commit'][:10]}, `{wanted['path']}` | {one.largest} "
            f"{100 * one.share:.0f} % | {said}{late}{wrong} | {', '.join(wanted['must_not'])} | {wanted['why']} | "
            f"{percent(one.idle)} | {percent(one.idle_of_hta)} |"
        )
    missing = [one for one in results if not isinstance(one, Outcome)]
    lines += [f"\nNot in the folder: {one['repository']}, `{one['path']}`." for one in missing]
    return "\n".join(lines) + "\n"


def percent(share: float | None) -> str:
    return "" if share is None else f"{100 * share:.1f}"


def against_hta(done: list[Outcome]) -> list[str]:
    """What the idle shares of the two programs say of each other."""
    both = [one for one in done if one.idle is not None and one.idle_of_hta is not None]
    if not both:
        return []
    apart = [100 * abs((one.idle or 0.0) - (one.idle_of_hta or 0.0)) for one in both if one.is_comparable]
    near = sum(difference <= 0.1 for difference in apart)
    return [
        "",
        f"HolisticTraceAnalysis reads {len(both)} of them. Of {len(apart)} without marked steps it looks at the same window:",
        f"its idle share differs by at most 0.1 points on {near} of these, and by {max(apart, default=0.0):.1f} at most.",
        "It counts whole microseconds. Where steps are marked it leaves out the last one and what comes before the first",
        "kernel: its shares are of another window.",
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--write", action="store_true", help="write the page")
    parser.add_argument("--hta", default="", metavar="PYTHON", help="an interpreter that has HolisticTraceAnalysis")
    options = parser.parse_args()
    results = list(outcomes(options.folder, tomllib.loads(EXPECTED.read_text())["trace"], options.hta))
    text = page(results)
    print(text, end="")
    if options.write:
        PAGE.write_text(text)
    return int(any(isinstance(one, Outcome) and one.problems for one in results))


if __name__ == "__main__":
    sys.exit(main())
