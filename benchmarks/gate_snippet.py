"""Runs what `perfaudit gate init` prints for CI as a runner would: a new environment, a clean clone, nothing else set.

    python benchmarks/gate_snippet.py [--write]

Makes the repository of gate_demonstration.py, with `perfaudit-gate.json` and both snippets as the command writes them. Each
later commit then becomes a branch, as a pull request has it, and is cloned into an empty folder with the merge of it
checked out; the steps of the GitHub snippet that are commands run in `bash`, and the script of the GitLab snippet in `sh`,
with the variables that these services set. perfaudit is installed from a wheel of this checkout, everything else as pip
finds it (PIP_INDEX_URL and its like count, and constraints.txt). Prints a Markdown table; exits with 1 where an exit code is
not the expected one.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import gate_demonstration
import yaml

from perfaudit.measure.environment import host

ROOT = Path(__file__).parent.parent
EXPECTED = (0, 1)  # exit codes of the gate: an innocent change, a sync in the step
PASSED_ON = (
    "PIP_INDEX_URL",
    "PIP_EXTRA_INDEX_URL",
    "PIP_FIND_LINKS",
    "PIP_CONFIG_FILE",
    "PIP_NO_INDEX",
    "SSL_CERT_FILE",
)


@dataclass(frozen=True, slots=True)
class Ran:
    """One pipeline of a service: exit codes of its commands, and what it wrote."""

    service: str
    change: str
    codes: tuple[int, ...]
    seconds: float
    wrote: str


def wheel(folder: Path) -> None:
    """A wheel of this checkout in `folder`."""
    build = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--wheel-dir", str(folder), str(ROOT)]
    subprocess.run(build, check=True)


def project(folder: Path) -> list[str]:
    """The repository with baseline and snippets in its first commit; the commits to be judged, on the first one."""
    gate_demonstration.repository(folder)
    git = gate_demonstration._git
    changes = git(folder, "rev-list", "--reverse", "HEAD").split()
    git(folder, "checkout", "--quiet", "-B", "main", changes[0])
    init = [sys.executable, "-m", "perfaudit", "gate", "init", "train.py"]
    for ci, place in (("github", ".github/workflows/perfaudit.yml"), ("gitlab", ".gitlab-ci.yml")):
        said = subprocess.run(
            [*init, "--force", "--ci", ci], cwd=folder, check=True, capture_output=True, text=True
        ).stdout
        (folder / place).parent.mkdir(parents=True, exist_ok=True)
        (folder / place).write_text(said[said.index("# .git") :])
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--message", "perfaudit gate")
    for number, change in enumerate(changes[1 : 1 + len(EXPECTED)]):
        git(folder, "checkout", "--quiet", "-b", f"change-{number}", "main")
        git(folder, "checkout", "--quiet", change, "--", "train.py")
        git(folder, "commit", "--quiet", "--message", f"change {number}")
    return [f"change-{number}" for number in range(len(EXPECTED))]


def cloned(folder: Path, branch: str, place: Path) -> None:
    """A clone with the merge of a branch into main checked out, as `actions/checkout` leaves it."""
    git = gate_demonstration._git
    git(place.parent, "clone", "--quiet", str(folder), str(place))
    git(place, "checkout", "--quiet", "--detach", "origin/main")
    git(place, "merge", "--quiet", "--no-ff", "--message", "merge", f"origin/{branch}")


def environment(scratch: Path, wheels: Path) -> dict[str, str]:
    """What a runner sets: a new virtual environment first on PATH, a home of its own, and nothing of ours but pip's sources."""
    venv = scratch / "environment"
    subprocess.run([sys.executable, "-m", "venv", str(venv)], check=True)
    ours = {name: os.environ[name] for name in PASSED_ON if name in os.environ}
    links = " ".join(filter(None, [ours.get("PIP_FIND_LINKS"), wheels.as_uri()]))
    home = scratch / "home"
    home.mkdir()
    return {
        **ours,
        "PATH": f"{venv / 'bin'}:/usr/local/bin:/usr/bin:/bin",
        "HOME": str(home),
        "PIP_FIND_LINKS": links,
        "PIP_CONSTRAINT": str(ROOT / "constraints.txt"),
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
    }


def github(clone: Path, variables: dict[str, str]) -> tuple[tuple[int, ...], str]:
    """Exit codes of the commands of the workflow, and the summary of the job."""
    (clone.parent / "temporary").mkdir()
    summary = clone.parent / "summary.md"
    variables = {**variables, "RUNNER_TEMP": str(clone.parent / "temporary"), "GITHUB_STEP_SUMMARY": str(summary)}
    workflow = yaml.safe_load((clone / ".github/workflows/perfaudit.yml").read_text())
    codes: list[int] = []
    for step in workflow["jobs"]["gate"]["steps"]:
        if "run" in step and (not any(codes) or step.get("if") == "always()"):
            codes.append(run(["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]], clone, variables))
    return tuple(codes), summary.read_text() if summary.exists() else ""


def gitlab(clone: Path, variables: dict[str, str]) -> tuple[tuple[int, ...], str]:
    """Exit codes of the lines of the script, and the JUnit report."""
    base = gate_demonstration._git(clone, "merge-base", "HEAD^1", "HEAD^2")
    job = yaml.safe_load((clone / ".gitlab-ci.yml").read_text())["perfaudit-gate"]
    variables = {
        **variables,
        **{k: str(v) for k, v in job["variables"].items()},
        "CI_MERGE_REQUEST_DIFF_BASE_SHA": base,
    }
    codes: list[int] = []
    for line in job["script"]:
        if not any(codes):
            codes.append(run(["sh", "-ec", line], clone, variables))
    report = clone / "perfaudit-junit.xml"
    return tuple(codes), report.read_text() if report.exists() else ""


def run(command: Sequence[str], folder: Path, variables: dict[str, str]) -> int:
    """The exit code of a command; what it prints goes to standard error, as it comes."""
    return subprocess.run(command, cwd=folder, env=variables, stdout=sys.stderr).returncode


def pipelines() -> list[Ran]:
    """All changes through both services, each in a clone of its own; the environment is made anew for each service."""
    ran = []
    with tempfile.TemporaryDirectory(prefix="gate_snippet_") as name:
        scratch = Path(name)
        (scratch / "wheels").mkdir()
        (scratch / "project").mkdir()
        wheel(scratch / "wheels")
        branches = project(scratch / "project")
        for service, steps in (("github", github), ("gitlab", gitlab)):
            (scratch / service).mkdir()
            variables = environment(scratch / service, scratch / "wheels")
            for branch in branches:
                place = scratch / service / branch / "clone"
                place.parent.mkdir()
                cloned(scratch / "project", branch, place)
                began = time.monotonic()
                codes, wrote = steps(place, variables)
                ran.append(Ran(service, branch, codes, time.monotonic() - began, wrote))
    return ran


def table(ran: Sequence[Ran]) -> str:
    """What came of each pipeline, as Markdown."""
    lines = ["| snippet | change | exit codes of its commands | seconds | report |", "|---|---|---|---|---|"]
    titles = [commit.title for commit in gate_demonstration.COMMITS]
    for one in ran:
        title = titles[int(one.change.rpartition("-")[2])]
        codes = ", ".join(map(str, one.codes))
        report = f"{len(one.wrote.splitlines())} lines" if one.wrote else "none"
        lines.append(f"| {one.service} | {title} | {codes} | {one.seconds:.0f} | {report} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--write", action="store_true", help="write gate_snippet.md beside this file")
    asked = parser.parse_args()
    ran = pipelines()
    text = table(ran)
    print(text)
    if asked.write:
        head = "# The snippets of `perfaudit gate init` in clean clones\n\n    python benchmarks/gate_snippet.py --write\n\n"
        machine = host()
        said = (
            "Not on the services themselves: their commands, with the variables they set. Seconds are of the whole job; the\n"
            "first of each service installs torch and perfaudit. An exit code of 1 is the sync that the second change adds.\n"
            f"On {machine.cores} cores, {machine.platform}, Python {machine.python}.\n\n"
        )
        (Path(__file__).parent / "gate_snippet.md").write_text(f"{head}{said}{text}\n")
    wrong = [one for one in ran if max(one.codes) != EXPECTED[int(one.change.rpartition("-")[2])] or not one.wrote]
    if wrong:
        sys.exit("not as expected: " + json.dumps([(one.service, one.change, one.codes) for one in wrong]))


if __name__ == "__main__":
    main()
