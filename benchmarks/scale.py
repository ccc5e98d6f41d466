"""What many machines are worth, from what was measured on one: `python benchmarks/scale.py` prints `docs/scale.md`.

    --measure climb     first time the parts of a climb here, into scale.json: `perfaudit tune sample_models/digits_cnn.py --all`
    --measure ranks     first read made traces of 8, 32 and 128 ranks here, into scale.json
    --write             put it into docs/scale.md

Gates: the pairs of processes of 120 gates of identical code, with the seconds that each took, lie in gate_power_aa.jsonl.xz. A
target of the organisation is one of these, drawn with a seed. The scheduler is the real one (`measure.elsewhere`); its nodes
are simulated, and take as long as the record says.

Climbs: the journal of a run says when each generation of its last race ended. All before that race, its first generation and
what follows it stay on one machine; the other generations go out, as far as the next look.

Traces: processor seconds of a rank are those of trace_speed.json. Memory of the process that joins the ranks grows with them,
by the slope between the runs with the fewest and the most ranks in scale.json.
"""

from __future__ import annotations

import argparse
import heapq
import json
import lzma
import math
import os
import platform
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]

from perfaudit.gate.decision import LOOKS as GATE_LOOKS  # noqa: E402  # found there
from perfaudit.measure.elsewhere import Work, run_on  # noqa: E402
from perfaudit.measure.stats import LOOKS  # noqa: E402

BENCHMARKS = ROOT / "benchmarks"
RECORDS = BENCHMARKS / "scale.json"
PAGE = ROOT / "docs" / "scale.md"
NODES = (1, 8, 64)
TARGETS = 1000
RANKS = 1024
SEED = 21
SAMPLE = "digits_cnn.py"
BUDGET = 180  # seconds of the climb that is timed

Json = dict[str, Any]


@dataclass
class SimulatedNodes:
    """Nodes whose work takes as many seconds as it returns; `now` is their clock."""

    width: int
    now: float = 0.0
    _sent: int = 0
    _out: list[tuple[float, int, float]] = field(default_factory=list)

    words: str = "simulated"

    @property
    def free(self) -> int:
        return self.width - len(self._out)

    def send(self, work: Work) -> int:
        self._sent += 1
        seconds = work()
        heapq.heappush(self._out, (self.now + seconds, self._sent, seconds))
        return self._sent

    def next(self) -> tuple[int, float]:
        self.now, number, seconds = heapq.heappop(self._out)
        return number, seconds

    def share(self, folder: str) -> None: ...

    def close(self) -> None: ...


@dataclass
class RecordedSeries:
    """Sets that were measured once, each with the seconds that it took; nothing goes out beyond the next of the looks."""

    seconds: Sequence[float]
    looks: Sequence[int]
    stage: str = ""
    done: int = 0

    def is_open(self) -> bool:
        return self.done < len(self.seconds)

    def has_time(self) -> bool:
        return True

    def measure(self) -> None:
        raise AssertionError("always given away")

    def work(self, ahead: int) -> Work | None:
        number = self.done + ahead
        look = next((look for look in self.looks if look > self.done), len(self.seconds))
        return partial(float, self.seconds[number]) if number < min(look, len(self.seconds)) else None

    def take(self, found: float) -> None:
        self.done += 1

    def recall(self, piece: object, state: Json) -> None: ...

    def set_to_keep(self) -> None: ...


def spread(every: Sequence[Sequence[float]], looks: Sequence[int], nodes: int) -> float:
    """Seconds until all series are done on so many nodes."""
    there = SimulatedNodes(nodes)
    run_on(there, [RecordedSeries(seconds, looks) for seconds in every])
    return there.now


def gates() -> list[list[float]]:
    """Seconds of the pairs of each recorded gate: opening, and its blocks."""
    found = []
    with lzma.open(BENCHMARKS / "gate_power_aa.jsonl.xz", "rt") as lines:
        for line in lines:
            pairs = json.loads(line)["record"]["pairs"]
            found.append([pair["opening"] + sum(_wall(b) for quad in pair["quads"] for b in quad) for pair in pairs])
    return found


def _wall(block: Sequence[Any]) -> float:
    """Seconds of a block, the sixth of its fields (`gate.records.TimedBlock`)."""
    return float(block[5])


def gate_lines() -> list[str]:
    recorded, draw = gates(), random.Random(SEED)
    looks = [look.generations for look in GATE_LOOKS]
    organisation = draw.choices(recorded, k=TARGETS)
    lines = [
        f"## A gate of {TARGETS:,} targets",
        "",
        f"Time layer only, of identical code: {len(recorded)} gates on record, {statistics.median(map(len, recorded)):.0f} pairs "
        f"and {statistics.median(map(sum, recorded)):.0f} s of pairs each in the median, on a node of one core.",
        "",
        "| nodes | until all are decided | node hours |",
        "|---:|---:|---:|",
    ]
    hours = sum(map(sum, organisation)) / 3600
    lines += [f"| {nodes} | {_duration(spread(organisation, looks, nodes))} | {hours:.1f} |" for nodes in NODES]
    shares = []
    for _ in range(200):
        four = draw.choices(recorded, k=4)
        shares.append(spread(four, looks, 2) / spread(four, looks, 1))
    shares.sort()
    return [
        *lines,
        "",
        f"Four targets on two nodes take {statistics.median(shares):.0%} of what they take on one "
        f"({shares[5]:.0%} to {shares[-6]:.0%} in 95 of 100 draws): pairs of one target go out together up to the next look. "
        "That is simulated; measured on two nodes with a core each, in [two_nodes](../benchmarks/two_nodes.md).",
        "",
    ]


def climb_lines(records: Json) -> list[str]:
    climb = records.get("climb")
    if climb is None:
        return []
    generations, whole = climb["generations"], climb["seconds"]
    looks = [look.generations for look in LOOKS]
    before = whole - sum(generations)
    lines = [
        "## A tune of all knobs",
        "",
        f"`{climb['command']}` took {whole:.0f} s here ({climb['machine']}, load {climb['load']:.1f}). It searched "
        f"{climb['knobs']} knobs, and {len(generations)} generations of fresh processes raced the patched source.",
        "",
        "| nodes | until the end | of one node's time | node seconds in use |",
        "|---:|---:|---:|---:|",
    ]
    for nodes in NODES:
        first_look = RecordedSeries(generations, looks)
        first_look.done = 1  # measured where the checks are
        there = SimulatedNodes(nodes)
        run_on(there, [first_look])
        end = before + generations[0] + there.now
        lines.append(f"| {nodes} | {end:.0f} s | {end / whole:.0%} | {whole:.0f} |")
    return [
        *lines,
        "",
        "The candidates of a climb share one training, because that is what tells a percent in seconds. So most of a climb does "
        "not go out, and beyond the generations that lead to the next look more nodes have nothing to do.",
        "",
    ]


def rank_lines(records: Json) -> list[str]:
    runs = records.get("ranks")
    speed = {
        row["what"]: row
        for row in json.loads((BENCHMARKS / "trace_speed.json").read_text())
        if row["tool"] == "perfaudit"
    }
    eight = speed["eight ranks"]
    cpu = eight["cpu_seconds"] / eight["files"]
    size = eight["megabytes"] / eight["files"]
    lines = [f"## Traces of {RANKS:,} ranks", ""]
    if runs:
        lines += [
            f"Made traces of {runs[0]['megabytes']:.1f} MiB each, read here ({runs[0]['machine']}, load {runs[0]['load']:.1f}):",
            "",
            "| ranks | wall, s | CPU, s | peak of the largest process, MiB |",
            "|---:|---:|---:|---:|",
            *(f"| {r['ranks']} | {r['wall']:.1f} | {r['cpu']:.1f} | {r['peak']:.0f} |" for r in runs),
            "",
        ]
        few, many = runs[0], runs[-1]
        slope = (many["peak"] - few["peak"]) / (many["ranks"] - few["ranks"])
        peak = few["peak"] + slope * (RANKS - few["ranks"])
        lines += [
            f"Simulated up: {slope:.2f} MiB a rank, so {peak / 1024:.2f} GiB for {RANKS:,} ranks. That is of traces of "
            f"{runs[0]['megabytes']:.1f} MiB. How it grows with their size was not measured, so for larger traces, as those of "
            "the next table, it is a lower bound.",
            "",
        ]
    lines += [
        f"A rank's trace of {size:.0f} MiB takes {cpu:.2f} s of a core, and {eight['peak_mib']:.0f} MiB in the process that "
        f"reads it (benchmarks/trace_speed.md). {RANKS:,} of them:",
        "",
        "| cores | time to read | memory of the readers |",
        "|---:|---:|---:|",
    ]
    for cores in (2, 16, 128):
        waves = math.ceil(RANKS / cores)
        lines.append(f"| {cores} | {_duration(waves * cpu)} | {cores * eight['peak_mib'] / 1024:.1f} GiB |")
    return [*lines, ""]


def _duration(seconds: float) -> str:
    if seconds >= 5400:
        return f"{seconds / 3600:.1f} h"
    return f"{seconds / 60:.0f} min" if seconds >= 120 else f"{seconds:.0f} s"


def machine() -> str:
    return f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}"


def measure_climb() -> Json:
    """The parts of one climb of a sample, from its journal."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        shutil.copy(ROOT / "sample_models" / SAMPLE, folder)
        typed = ["tune", SAMPLE, "--all", "--budget", f"{BUDGET}s", "--format", "json", "-o", "report.json"]
        done = subprocess.run(
            [sys.executable, "-m", "perfaudit", *typed], cwd=folder, env={**os.environ, "PYTHONPATH": str(ROOT)}
        )
        if done.returncode not in (0, 1):
            raise SystemExit(f"perfaudit tune left with {done.returncode}")
        (journal,) = (folder / ".perfaudit" / "runs").glob("*.jsonl")
        lines = [json.loads(line) for line in journal.read_text().splitlines()]
    ends = [line["at"] for line in lines if line["kind"] == "generation" and line["key"].startswith("final")]
    if not ends:
        raise SystemExit(f"the climb came to no last race in {BUDGET} s: measure on a machine with less to do")
    # The first one begins behind what was kept before it; the checks of the patch are in it.
    before = max(line["at"] for line in lines if line["at"] < ends[0] and line["kind"] != "generation")
    starts = [before, *ends[:-1]]
    return {
        "command": f"perfaudit {' '.join(typed[:5])}",
        "machine": machine(),
        "load": os.getloadavg()[0],
        "seconds": lines[-1]["at"] - lines[0]["at"],
        "generations": [round(end - start, 2) for start, end in zip(starts, ends, strict=True)],
        "knobs": len(lines[0]["knobs"]),
    }


def measure_ranks() -> list[Json]:
    """Reading the traces of so many ranks, small ones: what grows with ranks is not what grows with their size."""
    from trace_speed import MIB, as_rank, make, perfaudit, run

    rows = []
    for ranks in (8, 32, 128):
        with tempfile.TemporaryDirectory() as name:
            first = make(Path(name) / "rank0.json", 2 * MIB, 0, ranks)
            for rank in range(1, ranks):
                as_rank(first, rank)
            size = first.stat().st_size / MIB
            load = os.getloadavg()[0]
            wall, cpu, peak = run("perfaudit", perfaudit(Path(name)))
        rows.append(
            {
                "ranks": ranks,
                "megabytes": size,
                "wall": wall,
                "cpu": cpu,
                "peak": peak,
                "load": load,
                "machine": machine(),
            }
        )
    return rows


def tables(records: Json) -> str:
    head = [
        "# What many machines are worth",
        "",
        "Printed by `python benchmarks/scale.py` from records of runs on one machine. Nothing on this page was measured on",
        "several machines: the scheduler of `--on ray` ([distributed.md](distributed.md)) is run with nodes that take as long as",
        "the records say. Starting a cluster, waiting for its nodes and reading files over a network come on top.",
        "",
    ]
    return "\n".join([*head, *climb_lines(records), *rank_lines(records), *gate_lines()]).rstrip() + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--measure", nargs="*", choices=("climb", "ranks"), default=())
    parser.add_argument("--write", action="store_true")
    given = parser.parse_args()
    records: Json = json.loads(RECORDS.read_text()) if RECORDS.exists() else {}
    if "climb" in given.measure:
        records["climb"] = measure_climb()
    if "ranks" in given.measure:
        records["ranks"] = measure_ranks()
    if given.measure:
        RECORDS.write_text(json.dumps(records, indent=1) + "\n")
    text = tables(records)
    print(text, end="")
    if given.write:
        PAGE.write_text(text)


if __name__ == "__main__":
    main()
