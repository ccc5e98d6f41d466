"""What the commands of docs/distributed.md print: `python benchmarks/rank_demonstration.py [NAME ...]` runs and keeps them.

Each is started by torchrun on two ranks of gloo in a copy of benchmarks/rank_programs, but for a scan, which starts nothing; its
lines stay in rank_demonstration.json, beside the load before it. Without names, all are run. What is run under a name in
PATCHED is the program as the fixes of its rule leave it.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from gate_power import machine

from perfaudit.rules import all_rules
from perfaudit.static.fix import patch
from perfaudit.static.registry import run_checks
from perfaudit.static.source import Source

HERE = Path(__file__).resolve().parent
RECORD = HERE / "rank_demonstration.json"
COMMANDS = {
    "straggler": "run text_ranks.py --steps 60 -- straggler",
    "raise": "run failing_ranks.py --steps 60 -- raise",
    "hang": "run failing_ranks.py --steps 60 --timeout 60s -- hang",
    "sampler": "tune padded_ranks.py --budget 15m --sampler",
    "screened": "tune screened_ranks.py --budget 15m",
    "screened-raise": "tune screened_ranks.py --budget 6m -- raise",
    "scan": "scan data_parallel.py --select PA701",
    "patched": "run data_parallel.py --steps 60",
}
PATCHED = {"patched": "PA701"}
LAUNCHER = ["-m", "torch.distributed.run", "--nproc-per-node", "2", "--standalone"]


def run(name: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """The command of this name, in a copy of the programs."""
    programs = folder / "rank_programs"
    shutil.copytree(HERE / "rank_programs", programs, ignore=shutil.ignore_patterns("__pycache__"))
    words = COMMANDS[name].split()
    if name in PATCHED:
        apply_fixes(programs / words[1], PATCHED[name])
    launcher = [] if words[0] == "scan" else LAUNCHER
    command = [sys.executable, *launcher, "-m", "perfaudit", *words]
    return subprocess.run(command, cwd=programs, capture_output=True, text=True, check=False)


def apply_fixes(path: Path, rule: str) -> None:
    """Apply the fixes of a rule to a file."""
    source = Source(path.name, path.read_text(encoding="utf-8"))
    findings = run_checks(source, all_rules(), frozenset([rule]))
    path.write_text(patch(path.name, source.text, findings).after, encoding="utf-8")


def main() -> None:
    kept = json.loads(RECORD.read_text()) if RECORD.exists() else {}
    for name in sys.argv[1:] or COMMANDS:
        load = os.getloadavg()[0]
        with tempfile.TemporaryDirectory() as folder:
            done = run(name, Path(folder))
            lines = done.stdout.replace(f"{Path(folder) / 'rank_programs'}/", "").splitlines()
        launched = "" if COMMANDS[name].startswith("scan") else "torchrun --nproc-per-node 2 -m "
        kept[name] = {
            "command": f"{launched}perfaudit {COMMANDS[name]}",
            "code": done.returncode,
            "load": load,
            "machine": machine(),
            "lines": lines,
        }
        print("\n".join([f"$ {kept[name]['command']}", *lines]))
        RECORD.write_text(json.dumps(kept, indent=1) + "\n")


if __name__ == "__main__":
    main()
