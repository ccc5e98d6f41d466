"""How long a scan takes against only parsing the same files: `python benchmarks/scan_torch.py [FOLDER]`.

FOLDER is the installed torch package unless another is named. Scan and parse run in turn, five times each, each in a
process of its own; processor and wall seconds are printed as minimum, median and maximum, and the ratio pair by pair.
Results of the last committed run: scan_torch.json.
"""

from __future__ import annotations

import importlib.util
import json
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path

ROUNDS = 5
PARSE = """
import ast, sys, warnings
from pathlib import Path
import gc
gc.disable()  # as the scan does
warnings.simplefilter("ignore")
count = 0
for path in sorted(Path(sys.argv[1]).rglob("*.py")):
    try:
        ast.parse(path.read_bytes())
        count += 1
    except (SyntaxError, ValueError, RecursionError, OSError):
        pass
print(count)
"""


def timed(command: list[str]) -> tuple[float, float, str, int]:
    """Wall seconds, processor seconds, what it printed and the exit code of one command."""
    before, wall = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    wall, after = time.perf_counter() - wall, resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return wall, cpu, done.stdout, done.returncode


def main() -> None:
    spec = importlib.util.find_spec("torch")
    folder = sys.argv[1] if len(sys.argv) > 1 else str(Path(spec.origin or "").parent) if spec else "."
    scan = [sys.executable, "-m", "perfaudit", "scan", folder, "--format", "json", "--exit-zero"]
    parse = [sys.executable, "-c", PARSE, folder]
    rows: dict[str, list[tuple[float, float]]] = {"scan": [], "parse": []}
    files = findings = skipped = parsed = 0
    for _ in range(ROUNDS):
        wall, cpu, out, code = timed(scan)
        assert code == 0, f"the scan left with {code}"
        report = json.loads(out)
        files, findings, skipped = report["files"], len(report["findings"]), len(report["skipped"])
        rows["scan"].append((wall, cpu))
        wall, cpu, out, _ = timed(parse)
        parsed = int(out)
        rows["parse"].append((wall, cpu))
    print(f"{folder}: {files} files scanned, {findings} findings, {skipped} not audited; {parsed} files parsed")
    result: dict[str, object] = {"files": files, "findings": findings, "not_audited": skipped, "parsed": parsed}
    for name, pairs in rows.items():
        for index, clock in ((1, "processor"), (0, "wall")):
            values = [pair[index] for pair in pairs]
            print(
                f"{name:>6} {clock:>9} s: min {min(values):.2f}, median {statistics.median(values):.2f}, max {max(values):.2f}"
            )
            result[f"{name}_{clock}_s"] = [round(value, 3) for value in values]
    ratios = [a[1] / b[1] for a, b in zip(rows["scan"], rows["parse"], strict=True)]
    print(f"scan / parse, processor seconds: {statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})")
    result["ratio"] = [round(ratio, 3) for ratio in ratios]
    if spec is not None and len(sys.argv) == 1:
        from importlib.metadata import version

        result["torch"], result["python"] = version("torch"), sys.version.split()[0]
        Path(__file__).with_suffix(".json").write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
