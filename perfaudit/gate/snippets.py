"""What `perfaudit gate init` prints for CI: a text to paste, with the project's own targets, layers and files in it."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from perfaudit.config import find_config
from perfaudit.errors import UserError
from perfaudit.gate.settings import BASELINE, GateSettings
from perfaudit.reading import MAX_SETTINGS_BYTES, read_bytes, toml_of
from perfaudit.verdicts import LAYERS

MAIN = "origin/main"  # the branch that changes go into, where the project names none

# In a pipeline of merged results HEAD is the merge with the target branch as it is now, whose commit the first variable
# holds; it is empty in other pipelines of merge requests, where the second one is where the change left its target branch.
GITLAB_BASE = "${CI_MERGE_REQUEST_TARGET_BRANCH_SHA:-$CI_MERGE_REQUEST_DIFF_BASE_SHA}"


@dataclass(frozen=True, slots=True)
class Typed:
    """Options of `perfaudit gate init` that the command in CI needs again, because no file holds them."""

    paths: Sequence[str] = ()
    factories: Sequence[str] = ()  # ROLE=NAME
    device: str = "auto"  # this and the next as the command has them without the option
    timeout: str = "2m"
    in_place: bool = False

    def words(self) -> list[str]:
        """What was typed, word by word."""
        given = [("--path", path) for path in self.paths] + [("--factory", name) for name in self.factories]
        if self.device != "auto":
            given.append(("--device", self.device))
        if self.timeout != "2m":
            given.append(("--timeout", self.timeout))
        return [*(word for pair in given for word in pair), *(["--in-place"] if self.in_place else [])]


def snippet(
    ci: str, settings: GateSettings, baseline: Path, folder: Path | None = None, typed: Typed | None = None
) -> str:
    """The text for one of github, gitlab, pre-commit and plain, ending with a line break. Raises UserError for another.

    settings: with the targets that were found. baseline: the file that was written. folder: the project, which says how its
    requirements are installed (default: the working directory).
    """
    if ci not in _TEXTS:
        raise UserError(f"--ci {ci}: there are snippets for {', '.join(_TEXTS)}, and none prints nothing")
    folder = folder or Path.cwd()
    text = _TEXTS[ci](settings, baseline, folder, typed or Typed())
    return "".join(f"{line}\n" for line in _settings_to_add(settings, baseline, folder)) + text


def gate_command(settings: GateSettings, against: str, typed: Typed, further: Sequence[str] = ()) -> str:
    """The command line for a shell. against: a git reference, quoted already where it is a variable of the shell."""
    words = ["perfaudit", "gate", *map(shlex.quote, settings.targets), "--against", against]
    if layers := _layers(settings):
        words += ["--layers", ",".join(layers)]
    return " ".join([*words, *map(shlex.quote, typed.words()), *further])


def _settings_to_add(settings: GateSettings, baseline: Path, folder: Path) -> list[str]:
    """Comments with what the command cannot say: it takes `--against` or `--baseline`, and reads acceptances in a file."""
    if os.path.normpath(folder / baseline) == os.path.normpath(folder / (settings.baseline or BASELINE)):
        return []
    config = find_config(folder).path
    named = Path(os.path.relpath(folder / baseline, config.parent if config else folder)).as_posix()
    return [
        "# pyproject.toml, so that the gate knows what `perfaudit gate update` accepts there:",
        "#     [tool.perfaudit.gate]",
        f"#     baseline = {json.dumps(named)}",
    ]


def _layers(settings: GateSettings) -> tuple[str, ...]:
    """The layers to be named: none where all are meant."""
    if not settings.targets and not settings.layers:
        return ("findings",)  # nothing to run
    return () if set(settings.layers) == set(LAYERS) else settings.layers


def _plain(settings: GateSettings, baseline: Path, folder: Path, typed: Typed) -> str:
    words = [*settings.targets, "--baseline", baseline.as_posix(), *typed.words()]
    from_file = " ".join(["perfaudit gate", *map(shlex.quote, words)])
    return (
        "# against the commit at which this branch left the main one; every layer runs in this one call\n"
        f"{gate_command(settings, shlex.quote(settings.against or MAIN), typed)}\n"
        "# without git, findings and counters only: against what the file says\n"
        f"{from_file}\n"
    )


def _github(settings: GateSettings, baseline: Path, folder: Path, typed: Typed) -> str:
    # In a pull request the checkout is the merge of the base and the change: its first parent is the exact base.
    gate = gate_command(settings, "HEAD^1", typed, ("--format github", '--report markdown="$RUNNER_TEMP/gate.md"'))
    requirements = _requirements(folder)
    lines = [
        "# .github/workflows/perfaudit.yml",
        "name: perfaudit",
        "on: [pull_request]",
        "permissions:",
        "  contents: read",
        "jobs:",
        "  gate:",
        "    runs-on: ubuntu-latest",
        "    timeout-minutes: 30",
        "    steps:",
        "      - uses: actions/checkout@v4",
        "        with:",
        "          fetch-depth: 0  # the gate checks the base out beside the change",
        "      - uses: actions/setup-python@v5",
        "        with:",
        '          python-version: "3.12"',
        *(["          cache: pip", f"          cache-dependency-path: {requirements}"] if requirements else []),
        *(f"      {line}" for line in _advice(settings)),
        "      - name: install",
        *_shell("run", _install(settings, requirements), 8),
        "      - name: gate",
        *_shell("run", gate, 8),
        "      - name: summary",
        "        if: always()",
        *_shell("run", 'test ! -e "$RUNNER_TEMP/gate.md" || cat "$RUNNER_TEMP/gate.md" >> "$GITHUB_STEP_SUMMARY"', 8),
    ]
    return "\n".join(lines) + "\n"


def _gitlab(settings: GateSettings, baseline: Path, folder: Path, typed: Typed) -> str:
    gate = gate_command(settings, f'"{GITLAB_BASE}"', typed, ["--report junit=perfaudit-junit.xml"])
    lines = [
        "# .gitlab-ci.yml",
        "perfaudit-gate:",
        "  image: python:3.12",
        "  rules:",
        """    - if: $CI_PIPELINE_SOURCE == "merge_request_event\"""",
        "  variables:",
        """    GIT_DEPTH: "0"  # the gate checks the base out beside the change""",
        "    PIP_CACHE_DIR: $CI_PROJECT_DIR/.cache/pip",
        "  cache:",
        "    key: perfaudit-pip",
        "    paths: [.cache/pip]",
        *(f"  {line}" for line in _advice(settings)),
        "  script:",
        *_shell("", _install(settings, _requirements(folder)), 4),
        *_shell("", gate, 4),
        "  artifacts:",
        "    when: always",
        "    reports:",
        "      junit: perfaudit-junit.xml",
    ]
    return "\n".join(lines) + "\n"


def _shell(key: str, command: str, indent: int) -> list[str]:
    """A line of shell as the value of a key, or as an item of a list: a block, in which no sign has a meaning in YAML."""
    return [f"{' ' * indent}{f'{key}:' if key else '-'} |", f"{' ' * indent}  {command}"]


def _pre_commit(settings: GateSettings, baseline: Path, folder: Path, typed: Typed) -> str:
    paths = ", ".join(map(json.dumps, Typed(typed.paths).words()))  # the other options are of what is run
    arguments = f"        args: [{paths}]\n" if paths else ""
    return (
        "# .pre-commit-config.yaml\n"
        "repos:\n"
        "  - repo: https://…  # where perfaudit's repository is\n"
        "    rev: …\n"
        "    hooks:\n"
        "      - id: perfaudit-gate  # new findings since the last commit; runs nothing of your code\n"
        f"{arguments}"
    )


def _install(settings: GateSettings, requirements: str) -> str:
    """A line of shell that installs perfaudit, and what the training needs where a layer runs it."""
    if _layers(settings) == ("findings",):
        return "pip install perfaudit"
    needs = {"": "  # and what your training needs besides", "requirements.txt": " -r requirements.txt"}
    return f"pip install torch perfaudit{needs.get(requirements, ' -e .')}"


def _advice(settings: GateSettings) -> list[str]:
    if _layers(settings) == ("findings",):
        return []
    return [
        "# Without a GPU, install torch's CPU build first, a fraction of the size: pytorch.org, Get Started, Platform CPU,",
        "# prints the line. Name its version: counters are stored for one version of torch, and compared within it only.",
    ]


def _requirements(folder: Path) -> str:
    """The file that says what the project needs, "" without one. A cache of actions/setup-python fails without one."""
    if (folder / "requirements.txt").is_file():
        return "requirements.txt"
    if _is_package(folder / "pyproject.toml"):
        return "pyproject.toml"
    return "setup.py" if (folder / "setup.py").is_file() else ""


def _is_package(pyproject: Path) -> bool:
    """Whether pip can install what the file describes. Of settings of tools alone setuptools would make a package by guess."""
    try:
        tables = toml_of(read_bytes(pyproject, MAX_SETTINGS_BYTES).decode())
    except (OSError, ValueError):
        return False
    return not tables.keys().isdisjoint({"project", "build-system"})


_TEXTS = {"github": _github, "gitlab": _gitlab, "pre-commit": _pre_commit, "plain": _plain}
