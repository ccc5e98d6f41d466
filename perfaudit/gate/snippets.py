"""What `perfaudit gate init` prints for CI: a text to paste, with the project's own targets, layers and files in it."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

from perfaudit.errors import UserError
from perfaudit.gate.settings import BASELINE, GateSettings
from perfaudit.verdicts import LAYERS

MAIN = "origin/main"  # the branch that changes go into, where the project names none


def snippet(ci: str, settings: GateSettings, baseline: Path, folder: Path | None = None) -> str:
    """The text for one of github, gitlab, pre-commit and plain, ending with a line break. Raises UserError for another.

    baseline: the file that was written. folder: the project, which says how its requirements are installed (default: the
    working directory).
    """
    if ci not in _TEXTS:
        raise UserError(f"--ci {ci}: there are snippets for {', '.join(_TEXTS)}, and none prints nothing")
    return _TEXTS[ci](settings, baseline, folder or Path.cwd())


def gate_command(settings: GateSettings, against: str, further: Sequence[str] = ()) -> str:
    """The command line for a shell. against: a git reference, quoted already where it is a variable of the shell."""
    words = ["perfaudit", "gate", *(shlex.quote(target) for target in settings.targets)]
    words += ["--against", against]
    if layers := _layers(settings):
        words += ["--layers", ",".join(layers)]
    return " ".join([*words, *further])


def _layers(settings: GateSettings) -> tuple[str, ...]:
    """The layers to be named: none where all are meant."""
    if not settings.targets and not settings.layers:
        return ("findings",)  # nothing to run
    return () if set(settings.layers) == set(LAYERS) else settings.layers


def _plain(settings: GateSettings, baseline: Path, folder: Path) -> str:
    from_file = " ".join(["perfaudit gate", *map(shlex.quote, settings.targets), "--baseline", _file(baseline)])
    return (
        "# against the commit at which this branch left the main one; every layer runs in this one call\n"
        f"{gate_command(settings, shlex.quote(settings.against or MAIN))}\n"
        "# without git, findings and counters only: against what the file says\n"
        f"{from_file}\n"
    )


def _github(settings: GateSettings, baseline: Path, folder: Path) -> str:
    # In a pull request the checkout is the merge of the base and the change: its first parent is the exact base.
    gate = gate_command(settings, "HEAD^1", ("--format github", '--report markdown="$RUNNER_TEMP/gate.md"'))
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


def _gitlab(settings: GateSettings, baseline: Path, folder: Path) -> str:
    reports = ("--report junit=perfaudit-junit.xml", "--report gitlab=perfaudit-quality.json")
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
        *_shell("", gate_command(settings, '"$CI_MERGE_REQUEST_DIFF_BASE_SHA"', reports), 4),
        "  artifacts:",
        "    when: always",
        "    reports:",
        "      junit: perfaudit-junit.xml",
        "      codequality: perfaudit-quality.json",
    ]
    return "\n".join(lines) + "\n"


def _shell(key: str, command: str, indent: int) -> list[str]:
    """A line of shell as the value of a key, or as an item of a list: a block, in which no sign has a meaning in YAML."""
    return [f"{' ' * indent}{f'{key}:' if key else '-'} |", f"{' ' * indent}  {command}"]


def _pre_commit(settings: GateSettings, baseline: Path, folder: Path) -> str:
    return (
        "# .pre-commit-config.yaml\n"
        "repos:\n"
        "  - repo: https://…  # where perfaudit's repository is\n"
        "    rev: …\n"
        "    hooks:\n"
        "      - id: perfaudit-gate  # new findings since the last commit; runs nothing of your code\n"
    )


def _install(settings: GateSettings, requirements: str) -> str:
    """A line of shell that installs perfaudit, and what the training needs where a layer runs it."""
    if _layers(settings) == ("findings",):
        return "pip install perfaudit"
    needs = {"requirements.txt": " -r requirements.txt", "pyproject.toml": " -e ."}
    return f"pip install torch perfaudit{needs.get(requirements, '  # and what your training needs besides')}"


def _advice(settings: GateSettings) -> list[str]:
    if _layers(settings) == ("findings",):
        return []
    return [
        "# Without a GPU, install torch's CPU build first, a fraction of the size: pytorch.org, Get Started, Platform CPU,",
        "# prints the line. Name its version: counters are stored for one version of torch, and compared within it only.",
    ]


def _requirements(folder: Path) -> str:
    """The file that says what the project needs, "" without one. A cache of actions/setup-python fails without one."""
    return next((name for name in ("requirements.txt", "pyproject.toml") if (folder / name).is_file()), "")


def _file(baseline: Path) -> str:
    return shlex.quote(baseline.as_posix() or BASELINE)


_TEXTS = {"github": _github, "gitlab": _gitlab, "pre-commit": _pre_commit, "plain": _plain}
