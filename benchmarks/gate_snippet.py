"""Runs what `perfaudit gate init` prints for CI as a runner would: a new environment, a clean clone, nothing else set.

    python benchmarks/gate_snippet.py [--only SERVICE...] [--write]

Makes the repository of gate_demonstration.py, with `perfaudit-gate.json` and both snippets as the command writes them. Each
later commit then becomes a branch, as a pull request has it, and is cloned into an empty folder with the merge of it
checked out; the steps of the GitHub snippet that are commands run in `bash`, and the script of the GitLab snippet in `sh`,
with the variables that these services set. So do the steps of `action.yml` in a clone of this checkout, and both hooks of
`.pre-commit-hooks.yaml`, which pre-commit installs from such a clone and runs in `git commit`. Elsewhere perfaudit is installed
from a wheel of this checkout, everything else as pip finds it (PIP_INDEX_URL and its like count, and constraints.txt). Prints a
Markdown table; exits with 1 where an exit code is not the expected one.
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


def action(clone: Path, variables: dict[str, str]) -> tuple[tuple[int, ...], str]:
    """Exit codes of the steps of the action, behind those of the workflow in its head, and the summary of the job."""
    here = clone.parent
    checkout = cloned_here(here)
    (here / "temporary").mkdir()
    summary, outputs = here / "summary.md", here / "outputs"
    event = {"github.event.pull_request.base.sha": gate_demonstration._git(clone, "rev-parse", "HEAD^1")}
    spec = yaml.safe_load((checkout / "action.yml").read_text())
    given = {"targets": "train.py", "layers": "findings,counters"}
    values = event | {f"inputs.{name}": given.get(name, each["default"]) for name, each in spec["inputs"].items()}
    variables = {
        **variables,
        "RUNNER_TEMP": str(here / "temporary"),
        "GITHUB_STEP_SUMMARY": str(summary),
        "GITHUB_OUTPUT": str(outputs),
        "GITHUB_ACTION_PATH": str(checkout),
    }
    codes = [run(["pip", "install", "--quiet", "torch"], clone, variables)]
    for step in spec["runs"]["steps"]:
        environment = variables | {name: _filled(text, values) for name, text in step["env"].items()}
        if not any(codes):
            codes.append(
                run(["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]], clone, environment)
            )
    assert outputs.read_text().splitlines()[0] == f"exit-code={codes[-1]}"
    return tuple(codes), summary.read_text() if summary.exists() else ""


def _filled(text: str, values: dict[str, str]) -> str:
    """An expression of a step's variables: the first of its alternatives that has a value."""
    names = text.removeprefix("${{").removesuffix("}}").split("||")
    return next((found for name in names if (found := values.get(name.strip(), ""))), "")


def cloned_here(folder: Path) -> Path:
    """A clone of this checkout, as it is committed."""
    gate_demonstration._git(folder, "clone", "--quiet", "--depth", "1", ROOT.as_uri(), "perfaudit")
    return folder / "perfaudit"


def pre_commit(clone: Path, variables: dict[str, str]) -> tuple[tuple[int, ...], str]:
    """Exit codes: of installing, of a commit of the change, and of one with a finding in it; and what was said."""
    git, checkout = gate_demonstration._git, cloned_here(clone.parent)
    hooks = [{"id": "perfaudit-scan", "args": ["--severity", "error"]}, {"id": "perfaudit-gate"}]
    source = {"repo": str(checkout), "rev": git(checkout, "rev-parse", "HEAD").strip(), "hooks": hooks}
    (clone / ".pre-commit-config.yaml").write_text(yaml.safe_dump({"repos": [source]}))
    codes = [run(["pip", "install", "--quiet", "pre-commit"], clone, variables)]
    git(clone, "checkout", "--quiet", "-B", "work", "HEAD^1")
    codes.append(run(["pre-commit", "install"], clone, variables))
    git(clone, "checkout", "--quiet", "HEAD@{1}", "--", "train.py")
    git(clone, "add", "--all")
    said = clone.parent / "said.txt"
    for message, added in (("the change", ""), ("a mistake", "\ntorch.autograd.set_detect_anomaly(True)\n")):
        with (clone / "train.py").open("a") as file:
            file.write(added)
        with said.open("a") as into:
            commit = [
                "git",
                "-c",
                "user.name=a",
                "-c",
                "user.email=a@example.org",
                "commit",
                "--all",
                "--message",
                message,
            ]
            codes.append(subprocess.run(commit, cwd=clone, env=variables, stdout=into, stderr=into).returncode)
    return tuple(codes), said.read_text()


SERVICES = {"github": github, "gitlab": gitlab, "action": action, "pre-commit": pre_commit}


def run(command: Sequence[str], folder: Path, variables: dict[str, str]) -> int:
    """The exit code of a command; what it prints goes to standard error, as it comes."""
    return subprocess.run(command, cwd=folder, env=variables, stdout=sys.stderr).returncode


def pipelines(services: Sequence[str]) -> list[Ran]:
    """All changes through these services, each in a clone of its own; the environment is made anew for each service."""
    ran = []
    with tempfile.TemporaryDirectory(prefix="gate_snippet_") as name:
        scratch = Path(name)
        (scratch / "wheels").mkdir()
        (scratch / "project").mkdir()
        wheel(scratch / "wheels")
        branches = project(scratch / "project")
        for service in services:
            steps = SERVICES[service]
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


def as_expected(one: Ran) -> bool:
    if one.service == "pre-commit":
        return one.codes[-2:] == (
            EXPECTED[int(one.change.rpartition("-")[2])],
            1,
        )  # the change, and a mistake behind it
    return max(one.codes) == EXPECTED[int(one.change.rpartition("-")[2])]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--write", action="store_true", help="write gate_snippet.md beside this file")
    parser.add_argument(
        "--only", nargs="+", choices=SERVICES, default=list(SERVICES), help="services; the rows of others are kept"
    )
    asked = parser.parse_args()
    ran = pipelines(asked.only)
    page = Path(__file__).parent / "gate_snippet.md"
    others = {*SERVICES} - {*asked.only}
    kept = [row for row in page.read_text().splitlines() if row.split(" | ")[0].strip("| ") in others]
    head, line, *rows = table(ran).splitlines()
    rows = sorted([*rows, *kept], key=lambda row: list(SERVICES).index(row.split()[1]))
    text = "\n".join([head, line, *rows])
    print(text)
    if asked.write:
        head = "# The snippets of `perfaudit gate init` in clean clones\n\n    python benchmarks/gate_snippet.py --write\n\n"
        machine = host()
        said = (
            "Not on the services themselves: their commands, with the variables they set. Seconds are of the whole job; the\n"
            "first of each service installs torch and perfaudit. An exit code of 1 is the sync that the second change adds; of\n"
            "pre-commit, whose last two codes are of two commits, also anomaly detection, switched on behind each change.\n"
            f"On {machine.cores} cores, {machine.platform}, Python {machine.python}.\n\n"
        )
        page.write_text(f"{head}{said}{text}\n")
    wrong = [one for one in ran if not one.wrote or not as_expected(one)]
    if wrong:
        sys.exit("not as expected: " + json.dumps([(one.service, one.change, one.codes) for one in wrong]))


if __name__ == "__main__":
    main()
