"""The command line with every typer that pyproject.toml allows: help, options, groups and exit codes, in new environments.

    python benchmarks/typer_versions.py                    makes environments in a temporary folder; five minutes, needs an index
    python benchmarks/typer_versions.py typer==0.16.0 "typer==0.20.0 click<8.2"

torch is not needed: nothing is measured. Prints a table, and leaves with 1 where a version does not do what is expected.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parent.parent
# The oldest that is allowed, with an old click and the newest, some on the way, and the newest that the index has. Older ones are
# not allowed, because they take any click: with 8.2, the help of every command was a traceback under 0.15.0 (18 of 38 calls did
# what is expected); with 8.5, an argument that was missing was not noticed under 0.16.1.
VERSIONS = (
    "typer==0.20.0 click==8.1.8",
    "typer==0.20.*",
    "typer==0.24.*",
    "typer==0.28.*",
    "typer",
)
COMMANDS = ("scan", "tune", "apply", "history", "migrate-checkpoint", "rules", "explain", "gate")
BELOW = ("rules list", "rules trust", "rules untrust", "rules trusted", "gate init", "gate update")
ANOMALY = "import torch\ntorch.autograd.set_detect_anomaly(True)\n"
# Arguments, the exit code, and what is printed.
CALLS = (
    ("--version", 0, r"perfaudit \d"),
    ("-V", 0, r"perfaudit \d"),
    ("--help", 0, r"migrate-checkpoint .*\n(.*\n)*.*explain"),
    ("nonsense", 2, "No such command"),
    ("scan a.py --format concise --select PA5,PA1 --ignore PA101 --severity warning", 1, r"a\.py:2:1: PA501"),
    ("scan a.py -j 2 --no-cache --exit-zero --allow rounding,rng --diff", 0, "set_detect_anomaly"),
    ("scan a.py --select PA501 --select PA101 --format json --output out.json", 1, ""),
    ("scan --format nonsense", 2, "'nonsense' is none of"),
    ("scan --severity nonsense", 2, "nonsense"),
    ("scan -j -1", 2, "-1|greater than or equal to 0"),
    ("scan --no-such-option", 2, "No such option"),
    ("scan nowhere.py", 2, "does not exist"),
    ("rules", 0, r"\d+ rules; `perfaudit explain"),
    ("rules --format json", 0, '"id": "PA501"'),
    ("rules trust", 2, "nothing would run"),
    ("rules trusted", 0, "no rules are trusted"),
    ("explain PA501", 0, "anomaly"),
    ("explain", 2, "Missing argument"),
    ("explain PA9", 2, "no rule is called"),
    ("gate --layers findings --against HEAD", 2, "not in a git repository"),
    ("gate a.py --layers findings", 2, "nothing to compare with"),
    ("gate update", 2, "name the reason"),
    ("gate init --help", 0, "--ci"),
    ("tune --cudnn nowhere.py", 2, "perfaudit"),
    *((f"{command} --help", 0, "Usage: .*" + command.split()[0]) for command in (*COMMANDS, *BELOW)),
)


def main() -> None:
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for number, wanted in enumerate(sys.argv[1:] or VERSIONS):
            python = _environment(Path(folder, str(number)), wanted.split())
            rows.append((*_installed(python), *_outcome(python, Path(folder))))
    print("| typer | click | calls as expected | others |")
    print("|---|---|---|---|")
    for typer, click, passed, failures in rows:
        print(f"| {typer} | {click} | {passed} of {len(CALLS)} | {'; '.join(failures)} |")
    sys.exit(any(failures for *_, failures in rows))


def _environment(folder: Path, wanted: list[str]) -> Path:
    """The interpreter of a new environment with perfaudit's dependencies, a typer and perhaps a click among them."""
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    python = folder / "bin" / "python"
    needs = ["rich>=13", "pathspec>=0.12", *wanted]
    subprocess.run([python, "-m", "pip", "install", "-q", "--disable-pip-version-check", *needs], check=True)
    return python


def _installed(python: Path) -> tuple[str, str]:
    code = (
        "from importlib.metadata import version, PackageNotFoundError as E\n"
        "for name in ('typer', 'click'):\n"
        "    try: print(version(name))\n"
        "    except E: print('its own')\n"
    )
    typer, click = subprocess.run([python, "-c", code], check=True, capture_output=True, text=True).stdout.split("\n")[
        :2
    ]
    return typer, click


def _outcome(python: Path, folder: Path) -> tuple[int, list[str]]:
    """How many calls did what is expected, and those that did not, with their exit codes."""
    place = folder / "place"
    place.mkdir(exist_ok=True)
    (place / "a.py").write_text(ANOMALY)
    environment = {"PYTHONPATH": str(ROOT), "HOME": str(folder), "PATH": "/usr/bin:/bin", "COLUMNS": "100"}
    failures = []
    for arguments, code, expected in CALLS:
        command = [python, "-P", "-m", "perfaudit", *arguments.split()]
        done = subprocess.run(command, cwd=place, env=environment, capture_output=True, text=True, check=False)
        said = done.stdout + done.stderr
        if done.returncode != code or not re.search(expected, said) or "Traceback" in said:
            failures.append(f"`{arguments}`: exit {done.returncode}, {said.strip().splitlines()[-1:]}")
    return len(CALLS) - len(failures), failures


if __name__ == "__main__":
    main()
