"""How fast a scan is: `python benchmarks/scan_speed.py [FOLDER...] [--torchfix PROGRAM] [--rounds N] [--write]`.

Runs, in turn and round after round, each in a process of its own with the same files:
  ast.parse            a bare loop over the files, which is the least that reading Python costs
  perfaudit cold       no cache
  perfaudit warm       with the cache of an earlier scan
  ruff                 `ruff check --isolated --no-cache --select E,F`, as the floor of what is possible
  torchfix             all its rules; left out where the program is missing, and on folders it needs over TORCHFIX_LIMIT_S for
and prints processor seconds, wall seconds, files per second and peak memory of the main process (medians, with the range
of the processor seconds), then three single numbers: a scan of one file, `--version`, and the ratios that were promised.
FOLDER: the installed torch package unless others are named. --write puts everything into scan_speed.json beside this file.

`python benchmarks/scan_speed.py FOLDER... --growth` prints scan_speed.md instead: for each folder the ratios of a scan in one
process to a bare parse, and for the largest one how they grow with the number of files: 500, 2,000 and 4,000, copies of the
folder beside one another where it has fewer.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

TORCHFIX_LIMIT_S = 20.0
# As installed packages run: with compiled modules, which this variable would keep from being written.
ENVIRONMENT = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
PARSE = """
import ast, os, sys, warnings
warnings.simplefilter("ignore")
count = 0
for folder, _, names in os.walk(sys.argv[1]):
    for name in names:
        if name.endswith(".py"):
            try:
                with open(os.path.join(folder, name), "rb") as file:
                    ast.parse(file.read())
                count += 1
            except (SyntaxError, ValueError, RecursionError, OSError):
                pass
print(count)
"""


@dataclass(frozen=True)
class Run:
    """What one command took."""

    cpu_s: float
    wall_s: float
    peak_mb: float
    out: str
    code: int


def run(command: list[str], limit_s: float | None = None) -> Run | None:
    """One command with its resources; None when it ran past its limit. Processor seconds include its own children."""
    with tempfile.TemporaryFile("w+") as out:
        start = time.perf_counter()
        process = subprocess.Popen(command, stdout=out, stderr=subprocess.DEVNULL, env=ENVIRONMENT)
        peak = 0.0
        while not (ended := os.wait4(process.pid, os.WNOHANG))[0]:
            peak = max(peak, _peak_mb(process.pid))
            if limit_s and time.perf_counter() - start > limit_s:
                process.kill()
                os.wait4(process.pid, 0)
                return None
            time.sleep(0.01)
        _, status, used = ended
        wall = time.perf_counter() - start
        process.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0)
        return Run(used.ru_utime + used.ru_stime, wall, peak, out.read(), process.returncode)


def _peak_mb(pid: int) -> float:
    """Peak memory of that very process so far; the usage that `wait4` gives counts its children too."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0.0
    line = next((line for line in status.splitlines() if line.startswith("VmHWM:")), "VmHWM: 0 kB")
    return int(line.split()[1]) / 1024


def tools(folder: Path, torchfix: str | None) -> dict[str, list[str]]:
    scan = [sys.executable, "-m", "perfaudit", "scan", str(folder), "--format", "json", "--exit-zero", "--isolated"]
    found = {
        "ast.parse": [sys.executable, "-c", PARSE, str(folder)],
        "perfaudit cold": [*scan, "--no-cache"],
        "perfaudit cold, 1 process": [*scan, "--no-cache", "-j", "1"],
        "perfaudit warm": scan,
    }
    if ruff := shutil.which("ruff") or shutil.which("ruff", path=str(Path(sys.executable).parent)):
        found["ruff"] = [
            ruff,
            "check",
            "--isolated",
            "--no-cache",
            "--select",
            "E,F",
            "--quiet",
            "--exit-zero",
            str(folder),
        ]
    if torchfix:
        found["torchfix"] = [torchfix, "--select", "ALL", str(folder)]
    return found


def compare(folder: Path, rounds: int, torchfix: str | None) -> dict[str, object]:
    """A copy of the folder's Python files under every tool."""
    with tempfile.TemporaryDirectory() as temporary:
        copy = Path(temporary) / "pyproject" / folder.name.removeprefix(".")
        shutil.copytree(folder, copy, ignore=_only_python, symlinks=True)
        (copy.parent / "pyproject.toml").write_text("")
        files = sum(1 for _ in copy.rglob("*.py"))
        lines = sum(path.read_bytes().count(b"\n") for path in copy.rglob("*.py"))
        print(f"\n{folder.name}: {files} files, {lines:,} lines")
        commands = tools(copy, torchfix)
        seen: dict[str, list[Run]] = {name: [] for name in commands}
        run(commands["perfaudit warm"])  # fills the cache
        findings = 0
        for number in range(rounds):
            for name, command in commands.items():
                if name == "torchfix" and number > 0:
                    continue  # once is enough for what takes minutes
                done = run(command, TORCHFIX_LIMIT_S if name == "torchfix" else None)
                if done is not None:
                    assert name == "torchfix" or done.code == 0, f"{name} left with {done.code}: {done.out[-500:]}"
                    seen[name].append(done)
                    findings = len(json.loads(done.out)["findings"]) if name == "perfaudit cold" else findings
    rows = {name: _row(runs, files) for name, runs in seen.items() if runs}
    print(f"  {'':28}{'cpu s':>8}{'(range)':>16}{'wall s':>8}{'files/s':>9}{'MB':>6}")
    for name, row in rows.items():
        low, high = row["cpu_s_range"]  # type: ignore[misc]  # a pair
        spread = f"({low:.2f}-{high:.2f})"
        print(
            f"  {name:28}{row['cpu_s']:>8.2f}{spread:>16}{row['wall_s']:>8.2f}{row['files_per_s']:>9.0f}{row['peak_mb']:>6.0f}"
        )
    if torchfix and "torchfix" not in rows:
        print(f"  torchfix                     more than {TORCHFIX_LIMIT_S:.0f} s, stopped")
    ratios = {
        name: statistics.median(a.cpu_s / b.cpu_s for a, b in zip(seen[name], seen["ast.parse"], strict=True))
        for name in ("perfaudit cold", "perfaudit cold, 1 process", "perfaudit warm")
    }
    for name, ratio in ratios.items():
        print(f"  {name} / ast.parse: {ratio:.2f} (median of {rounds} pairs, processor seconds)")
    return {
        "folder": folder.name,
        "files": files,
        "lines": lines,
        "findings": findings,
        "tools": rows,
        "ratio_to_ast_parse": {name: round(ratio, 3) for name, ratio in ratios.items()},
        "torchfix_stopped_after_s": TORCHFIX_LIMIT_S if torchfix and "torchfix" not in rows else None,
    }


def growth(folder: Path, sizes: tuple[int, ...], rounds: int) -> list[dict[str, object]]:
    """The folder's first so many files, in order of path, under a bare parse and a cold scan in one process.

    Where the folder has fewer, a second copy of it follows beside the first.
    """
    files = sorted(path.relative_to(folder) for path in folder.rglob("*.py"))
    rows = []
    for size in sizes:
        with tempfile.TemporaryDirectory() as temporary:
            top = Path(temporary) / "pyproject"
            for number in range(size):
                copy, place = divmod(number, len(files))
                target = top / (f"copy{copy}" if copy else "first") / folder.name / files[place]
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(folder / files[place], target)
            (top / "pyproject.toml").write_text("")
            parse, scans = [], []
            for _ in range(rounds):
                for runs, command in (
                    (parse, [sys.executable, "-c", PARSE, str(top)]),
                    (scans, tools(top, None)["perfaudit cold, 1 process"]),
                ):
                    done = run(command)
                    assert done is not None and done.code == 0, command
                    runs.append(done.cpu_s)
            ratio = statistics.median(scan / bare for scan, bare in zip(scans, parse, strict=True))
            rows.append(
                {
                    "files": size,
                    "parse_s": statistics.median(parse),
                    "scan_s": statistics.median(scans),
                    "ratio": ratio,
                }
            )
    return rows


def print_growth(folders: list[Path], rounds: int) -> None:
    """The tables of scan_speed.md."""
    print("# How fast model-heavy code is scanned\n")
    print(
        f"Printed by `python benchmarks/scan_speed.py FOLDER... --growth --rounds {rounds}`: processor seconds of a cold scan"
    )
    print(f"in one process, of a bare `ast.parse` of the same files, and their ratio (medians of {rounds}).")
    machine = f"Python {platform.python_version()}, {os.cpu_count()} cores"
    print(f"{machine} shared with other work, which moves the seconds more than the ratios.\n")
    counts = [(folder, sum(1 for _ in folder.rglob("*.py"))) for folder in folders]
    print("| package as installed | files | `ast.parse` | scan | ratio |")
    print("|---|---:|---:|---:|---:|")
    for folder, count in counts:
        _print_row(folder.name, growth(folder, (count,), rounds)[0])
    largest = max(counts, key=lambda item: item[1])[0]
    print(f"\nGrowth with the number of files, of {largest.name} and, beyond its own files, a second copy of it:\n")
    print("| files | `ast.parse` | scan | ratio | scan per file |")
    print("|---:|---:|---:|---:|---:|")
    for row in growth(largest, (500, 2000, 4000), rounds):
        each = f"{row['scan_s'] / row['files'] * 1000:.1f} ms"  # type: ignore[operator]  # numbers
        print(
            f"| {row['files']:,} | {row['parse_s']:.1f} s | {row['scan_s']:.1f} s | {row['ratio']:.2f} | {each} |",
            flush=True,
        )


def _print_row(name: str, row: dict[str, object]) -> None:
    print(
        f"| {name} | {row['files']:,} | {row['parse_s']:.1f} s | {row['scan_s']:.1f} s | {row['ratio']:.2f} |",
        flush=True,
    )


def _only_python(folder: str, names: list[str]) -> list[str]:
    return [name for name in names if not name.endswith(".py") and not (Path(folder) / name).is_dir()]


def _row(runs: list[Run], files: int) -> dict[str, object]:
    cpu = sorted(one.cpu_s for one in runs)
    wall = statistics.median(one.wall_s for one in runs)
    return {
        "cpu_s": round(statistics.median(cpu), 3),
        "cpu_s_range": [round(cpu[0], 3), round(cpu[-1], 3)],
        "wall_s": round(wall, 3),
        "files_per_s": round(files / wall, 1),
        "peak_mb": round(max(one.peak_mb for one in runs), 1),
        "runs": len(runs),
    }


def small(rounds: int) -> dict[str, object]:
    """Processor milliseconds of what is typed all day: a scan of one file without cache, and `--version`."""
    sample = Path(__file__).parent.parent / "sample_models" / "digits_cnn.py"
    commands = {
        "scan of one file": ["scan", str(sample), "--exit-zero", "--no-cache"],
        "--version": ["--version"],
    }
    result: dict[str, object] = {}
    for name, arguments in commands.items():
        runs = [done for _ in range(rounds * 3) if (done := run([sys.executable, "-m", "perfaudit", *arguments]))]
        cpu = sorted(one.cpu_s * 1000 for one in runs)
        print(
            f"{name}: {statistics.median(cpu):.0f} ms of processor time ({cpu[0]:.0f}-{cpu[-1]:.0f}, {len(cpu)} runs)"
        )
        result[name] = {"cpu_ms": round(statistics.median(cpu), 1), "range": [round(cpu[0], 1), round(cpu[-1], 1)]}
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="*", type=Path)
    parser.add_argument(
        "--torchfix", default=shutil.which("torchfix"), help="the torchfix program, e.g. of another environment"
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--growth", action="store_true")
    options = parser.parse_args()
    folders = options.folders
    if options.growth:
        print_growth([folder.resolve() for folder in folders], options.rounds)
        return
    if not folders:
        spec = importlib.util.find_spec("torch")
        folders = [Path(spec.origin).parent] if spec and spec.origin else []
    before = os.getloadavg()[0]
    print(f"Python {platform.python_version()}, {os.cpu_count()} cores, load {before:.1f}")
    result = {
        "python": platform.python_version(),
        "cores": os.cpu_count(),
        "small": small(options.rounds),
        "folders": [compare(folder.resolve(), options.rounds, options.torchfix) for folder in folders],
        "load": [round(before, 1), round(os.getloadavg()[0], 1)],
    }
    if options.write:
        Path(__file__).with_suffix(".json").write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
