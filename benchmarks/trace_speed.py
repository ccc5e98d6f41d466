"""How long `perfaudit trace` takes and how much memory, beside HolisticTraceAnalysis: `python benchmarks/trace_speed.py --write`.

The traces are made: a training whose kernels, calls, operators and flows have the fields that Kineto writes, repeated
step by step until a file is as large as asked for. `--hta PYTHON` names an interpreter that has HolisticTraceAnalysis; without
it, its rows are left out. Each command is a process of its own; its processor time and peak memory are those that the system
counted. Where two tools are compared, their runs take turns.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "simulated"))

from made_traces import GEMM, RELU, Host  # noqa: E402  # found there

PAGE = ROOT / "benchmarks" / "trace_speed.md"
RECORDS = ROOT / "benchmarks" / "trace_speed.json"
MIB = 1 << 20
HTA = """
import sys
from hta.trace_analysis import TraceAnalysis
analysis = TraceAnalysis(trace_files={int(n): f for n, f in (item.split("=", 1) for item in sys.argv[1:])}, trace_dir="")
analysis.get_temporal_breakdown(visualize=False)
analysis.get_idle_time_breakdown(ranks=[0], visualize=False)
"""


@dataclass(frozen=True)
class Row:
    """One command over some files: medians of the runs; fastest, slowest: wall seconds of single ones."""

    what: str
    tool: str
    files: int
    megabytes: float
    wall_seconds: float
    cpu_seconds: float
    peak_mib: float
    runs: int
    fastest: float
    slowest: float


def step(host: Host) -> None:
    """A step with what traces of trainings hold: operators in operators, kernels, a copy, a read of the loss."""
    host.next_batch(200)
    host.copy(300, "HtoD (Pinned -> Device)")
    for layer in range(120):
        with host.annotation(f"layer {layer % 12}"), host.operator("aten::linear"):
            host.kernel(GEMM, 90, "aten::addmm", **ARGUMENTS)
        host.kernel(RELU, 12, "aten::relu", **ARGUMENTS)
    with host.annotation("Optimizer.step#AdamW.step"):
        host.kernel("multi_tensor_apply_kernel<FusedAdamMathFunctor>", 300, "aten::_fused_adamw_", **ARGUMENTS)
    host.item()


ARGUMENTS: dict[str, Any] = {
    "queued": 0, "context": 1, "registers per thread": 90, "shared memory": 0, "blocks per SM": 2.5, "warps per SM": 20.0,
    "grid": [128, 2, 1], "block": [128, 1, 1], "est. achieved occupancy %": 31,
}  # fmt: skip


def make(path: Path, size: int, rank: int = 0, ranks: int = 1) -> Path:
    """A trace of at least so many bytes, written step by step."""
    host = Host(rank=rank, world_size=ranks)
    head = {key: value for key, value in host.trace().items() if key != "traceEvents"}
    with path.open("w") as file:
        file.write(json.dumps(head)[:-1] + ',\n"traceEvents": [\n')
        while file.tell() < size:
            with host.step():
                step(host)
            write_events(file, host)
        file.write('{"ph": "M", "name": "end"}\n]}\n')
    return path


def as_rank(first: Path, rank: int) -> Path:
    """The same trace as that of another rank."""
    text = first.read_bytes()
    path = first.with_name(f"rank{rank}.json")
    path.write_bytes(text.replace(b'"rank": 0', b'"rank": %d' % rank, 1))
    return path


def write_events(file: IO[str], host: Host) -> None:
    """Those of one step, with the flows from calls to kernels that Kineto draws, as Kineto lays them out."""
    for event in host.events:
        file.write("  {\n    " + json.dumps(event)[1:-1] + "\n  },\n")
        correlation = event["args"].get("correlation")
        if correlation is not None:
            flow = {
                "ph": "f" if event["cat"] == "kernel" else "s",
                "id": correlation,
                "pid": event["pid"],
                "tid": event["tid"],
            }
            flow |= {"ts": event["ts"], "cat": "ac2g", "name": "ac2g", "bp": "e"}
            file.write("  " + json.dumps(flow) + ",\n")
    host.events.clear()


def measure(what: str, commands: dict[str, list[str]], files: list[Path], runs: int) -> list[Row]:
    """The medians of some runs of each command, in turns; raises where one fails otherwise than by finding something."""
    used: dict[str, list[tuple[float, float, float]]] = {tool: [] for tool in commands}
    for _ in range(runs):
        for tool, command in commands.items():
            used[tool].append(run(tool, command))
    size = round(sum(file.stat().st_size for file in files) / MIB, 1)
    return [
        Row(
            what,
            tool,
            len(files),
            size,
            *(round(statistics.median(column), 2) for column in zip(*used[tool], strict=True)),
            runs,
            round(min(wall for wall, *_ in used[tool]), 2),
            round(max(wall for wall, *_ in used[tool]), 2),
        )
        for tool in commands
    ]


def run(tool: str, command: list[str]) -> tuple[float, float, float]:
    """Wall seconds, processor seconds and peak MiB of one run."""
    with tempfile.TemporaryFile() as errors:
        begin = time.perf_counter()
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=errors)
        _, status, used = os.wait4(process.pid, 0)
        wall = time.perf_counter() - begin
        if os.waitstatus_to_exitcode(status) not in (0, 1):
            errors.seek(0)
            raise SystemExit(f"{tool} failed: {errors.read().decode()[-2000:]}")
    return wall, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024


def rows_of(folder: Path, hta: str, runs: int, large: int) -> list[Row]:
    """All rows of the page."""
    one = [make(folder / "one.json", 35 * MIB)]
    (folder / "eight").mkdir()
    eight = [make(folder / "eight" / "rank0.json", 35 * MIB, 0, 8)]
    eight += [as_rank(eight[0], rank) for rank in range(1, 8)]
    rows = []
    for what, files, path in (("one trace", one, folder / "one.json"), ("eight ranks", eight, folder / "eight")):
        commands = {"perfaudit": perfaudit(path)}
        if hta:
            commands["HTA"] = [hta, "-c", HTA, *(f"{rank}={file}" for rank, file in enumerate(files))]
        rows += measure(what, commands, files, runs)
    for file in eight:
        file.unlink()
    huge = [make(folder / "huge.json", large * MIB)]
    return rows + measure("one large trace", {"perfaudit": perfaudit(huge[0])}, huge, 1)


def perfaudit(path: Path) -> list[str]:
    return [sys.executable, "-m", "perfaudit", "trace", str(path), "--format", "json"]


def page(rows: list[Row], load: tuple[float, float], versions: str) -> str:
    lines = [
        "# How fast traces are read",
        "",
        f"Printed by `python benchmarks/trace_speed.py --write`, on {os.cpu_count()} cores ({processor()}), load {load[0]:.1f} "
        f"before and {load[1]:.1f} after; {versions}.",
        "",
        "Each row is the median of its runs, with the fastest and the slowest in brackets; the runs of two tools take turns.",
        "Memory is the peak of the process, of several the largest child's. HTA computes its temporal breakdown and the idle",
        "time of one rank, which is part of what `perfaudit trace` does.",
        "",
        "| traces | tool | files | MiB | wall, s | CPU, s | peak, MiB | runs |",
        "|---|---|---:|---:|---:|---:|---:|---:|",
    ]
    lines += [
        f"| {row.what} | {row.tool} | {row.files} | {row.megabytes:,.0f} | {row.wall_seconds:.2f} "
        f"[{row.fastest:.2f}, {row.slowest:.2f}] | {row.cpu_seconds:.2f} | {row.peak_mib:.0f} | {row.runs} |"
        for row in rows
    ]
    return "\n".join(lines) + "\n"


def processor() -> str:
    """What the system calls its processor."""
    told = Path("/proc/cpuinfo").read_text() if Path("/proc/cpuinfo").exists() else ""
    names = [line.partition(":")[2].strip() for line in told.splitlines() if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def versions_of(hta: str) -> str:
    """Python's, and HTA's with its Python where there is one."""
    found = f"Python {platform.python_version()}"
    if hta:
        asks = "import importlib.metadata as m, platform as p; print(m.version('HolisticTraceAnalysis'), p.python_version())"
        told = subprocess.run([hta, "-c", asks], capture_output=True, text=True, check=True).stdout.split()
        found += f", HTA {told[0]} on Python {told[1]}"
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hta", default="", metavar="PYTHON", help="an interpreter that has HolisticTraceAnalysis")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--large", type=int, default=2048, help="MiB of the large trace")
    parser.add_argument("--write", action="store_true", help="write the page and the records")
    options = parser.parse_args()
    before = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as folder:
        rows = rows_of(Path(folder), options.hta, options.runs, options.large)
    text = page(rows, (before, os.getloadavg()[0]), versions_of(options.hta))
    print(text, end="")
    if options.write:
        PAGE.write_text(text)
        RECORDS.write_text(json.dumps([asdict(row) for row in rows], indent=1) + "\n")


if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    main()
