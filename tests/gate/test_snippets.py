"""What goes into CI: texts to paste, the action, the include, the hook; each is run here as far as that goes."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from perfaudit.errors import UserError
from perfaudit.gate.settings import BASELINE, GateSettings
from perfaudit.gate.snippets import Typed, snippet

ROOT = Path(__file__).parent.parent.parent
KINDS = ("github", "gitlab", "pre-commit", "plain")
ODD = GateSettings(targets=("my models/a #1.py", "$(touch x).py", "it's.py:main"), layers=("findings", "counters"))
TYPED = Typed(("src", "my tools"), ("model=make #1",), "cpu", "5m")


def read_yaml(text: str) -> Any:  # Any: nested YAML
    """The content of a text in the part of YAML that is used here; anything else, and what is doubtful, is refused."""
    lines = text.splitlines()
    assert "\t" not in text

    def indent(line: str) -> int:
        return len(line) - len(line.lstrip(" "))

    def skip(at: int) -> int:
        while at < len(lines) and (not lines[at].strip() or lines[at].lstrip().startswith("#")):
            at += 1
        return at

    def scalar(words: str) -> Any:
        quoted = re.fullmatch(r'"([^"\\]*)"(?: +#.*)?', words)
        if quoted:
            return quoted[1]
        words = re.sub(r" +#.*$", "", words)
        if words.startswith("[") and words.endswith("]"):
            return [scalar(part) for part in words[1:-1].split(", ")]
        assert not re.search(r"^[\[\]{}&*!|>'\"%@`,?:-]|: |:$| #", words), words
        return {"true": True, "false": False}.get(words, int(words) if words.isdigit() else words)

    def value(at: int, words: str, outer: int) -> tuple[Any, int]:
        if words == "|":
            end = at
            while end < len(lines) and (not lines[end].strip() or indent(lines[end]) > outer):
                end += 1
            block = lines[at:end]
            inner = indent(block[0])
            return "\n".join(line[inner:] for line in block).rstrip("\n") + "\n", end
        if words:
            return scalar(words), at
        return node(at, outer)

    def node(at: int, outer: int) -> tuple[Any, int]:
        at = skip(at)
        here = indent(lines[at])
        assert here > outer or (here == outer and lines[at].lstrip().startswith("- "))
        found: Any = [] if lines[at].lstrip().startswith("- ") else {}
        while (at := skip(at)) < len(lines) and indent(lines[at]) == here:
            line = lines[at][here:]
            if isinstance(found, list):
                if not line.startswith("- "):
                    break
                if re.match(r"- [\w-]+:( |$)", line):  # an object: its first key stands behind the dash
                    lines[at] = " " * (here + 2) + line[2:]
                    item, at = node(at, here)
                else:
                    item, at = value(at + 1, line[2:], here)
                found.append(item)
            else:
                match = re.fullmatch(r"([\w-]+):(?: (.*))?", line)
                assert match and match[1] not in found, line
                words = match[2] or ""
                found[match[1]], at = value(at + 1, "" if words.startswith("#") else words, here)
        assert at >= len(lines) or indent(lines[at]) < here or isinstance(found, list), lines[at]
        return found, at

    content, end = node(0, -1)
    assert skip(end) == len(lines)
    return content


def texts() -> dict[str, str]:
    files = ("action.yml", "ci/perfaudit-gate.gitlab-ci.yml", ".pre-commit-hooks.yaml")
    found = {name: (ROOT / name).read_text(encoding="utf-8") for name in files}
    for name, settings in {"plain": GateSettings(("train.py",)), "odd": ODD, "none": GateSettings()}.items():
        for ci in KINDS[:3]:
            found[f"{ci} {name}"] = snippet(ci, settings, Path(BASELINE), ROOT)
            found[f"{ci} {name}, with options"] = snippet(ci, settings, Path("ci/known gate.json"), ROOT, TYPED)
    return found


def scripts(content: Any) -> list[str]:
    """Every script of a YAML text: values of `run` and items of `script` and `before_script`."""
    found: list[str] = []
    for key, part in content.items() if isinstance(content, dict) else enumerate(content):
        if key == "run":
            found.append(part)
        elif key in ("script", "before_script"):
            found += part
        elif isinstance(part, (dict, list)):
            found += scripts(part)
    return found


def commands(text: str) -> list[list[str]]:
    """The command lines of a shell's text that call perfaudit."""
    split = [shlex.split(line, comments=True) for line in text.splitlines()]
    return [words for words in split if words[:2] == ["perfaudit", "gate"]]


@pytest.mark.parametrize("name", texts())
def test_it_is_yaml(name: str) -> None:
    assert read_yaml(texts()[name])


@pytest.mark.parametrize("name", texts())
def test_a_full_reader_of_yaml_sees_the_same(name: str) -> None:
    # It is not among what development installs; the reader above takes less than all of YAML.
    yaml = pytest.importorskip("yaml")
    loaded = yaml.load(texts()[name], Loader=yaml.BaseLoader)  # no types: "on" is a word

    def words(content: Any) -> Any:
        if isinstance(content, dict):
            return {key: words(value) for key, value in content.items()}
        if isinstance(content, list):
            return [words(value) for value in content]
        return str(content).lower() if isinstance(content, bool) else str(content)

    assert words(read_yaml(texts()[name])) == loaded


def test_the_reader_refuses_what_it_does_not_know() -> None:
    for text in (
        "a: b: c\n",
        "a: 'b'\n",
        "a: &x b\n",
        "a: >\n  b\n",
        "a: 1\na: 2\n",
        "a:\n  b: 1\n c: 2\n",
        "a: {b: 1}\n",
    ):
        with pytest.raises(AssertionError):
            read_yaml(text)


@pytest.mark.parametrize("name", texts())
def test_its_scripts_are_bash(name: str) -> None:
    found = scripts(read_yaml(texts()[name]))
    assert bool(found) == (not name.startswith((".pre-commit", "pre-commit")))
    for script in found:
        subprocess.run(["bash", "-n"], input=script, text=True, check=True)
        assert "${{" not in script  # what is put into a script's text is run with it


def gate_options() -> set[str]:
    """The options that `perfaudit gate` takes, asked from the command itself."""
    from typer.main import get_command

    from perfaudit.cli.app import application

    gate: Any = get_command(application()).commands["gate"]  # type: ignore[attr-defined]  # a group of typer
    check = getattr(gate, "commands", {}).get("check", gate)
    return {name for parameter in check.params for name in (*parameter.opts, *parameter.secondary_opts)}


def test_every_option_is_one_that_the_command_has() -> None:
    said = "\n".join(
        [*texts().values(), *(snippet("plain", s, Path(BASELINE)) for s in (GateSettings(("a.py",)), ODD))]
    )
    ours = re.sub(r"\b(git|pip|mktemp|read|printf) .*|: perfaudit scan .*|-m pip .*", "", said)
    used = set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", ours))
    assert {"--against", "--layers", "--format", "--report", "--baseline", "--max-regression"} <= used
    assert used <= gate_options()


def test_every_format_is_one_there_is() -> None:
    from perfaudit.render import all_formats

    used = re.findall(r"--(?:format|report) \"?(\w+)", "\n".join(texts().values()))
    assert set(used) >= {"github", "markdown", "json", "junit"}
    assert set(used) <= set(all_formats())


@pytest.mark.parametrize("ci", ["github", "gitlab", "plain"])
def test_targets_and_layers_stand_in_the_command_as_they_are(ci: str) -> None:
    text = snippet(ci, ODD, Path(BASELINE))
    shell = text if ci == "plain" else "\n".join(scripts(read_yaml(text)))
    first = commands(shell)[0]
    assert first[2:5] == list(ODD.targets)
    assert first[first.index("--layers") + 1] == "findings,counters"
    assert "--against" in first


@pytest.mark.parametrize(
    ("settings", "layers"),
    [
        (GateSettings(("train.py",)), None),  # all of them
        (GateSettings(("train.py",), layers=("findings", "counters", "time")), None),
        (GateSettings(("train.py",), layers=("counters",)), "counters"),
        (GateSettings(), "findings"),  # nothing to run
    ],
)
def test_layers_are_named_where_not_all_are_meant(settings: GateSettings, layers: str | None) -> None:
    command = commands("\n".join(scripts(read_yaml(snippet("github", settings, Path(BASELINE), ROOT)))))[0]
    assert (command[command.index("--layers") + 1] if "--layers" in command else None) == layers


WHOLE = {
    "github": """\
# .github/workflows/perfaudit.yml
name: perfaudit
on: [pull_request]
permissions:
  contents: read
jobs:
  gate:
    runs-on: ubuntu-latest
    timeout-minutes: 30
    steps:
      - uses: actions/checkout@v4
        with:
          fetch-depth: 0  # the gate checks the base out beside the change
      - uses: actions/setup-python@v5
        with:
          python-version: "3.12"
          cache: pip
          cache-dependency-path: requirements.txt
      # Without a GPU, install torch's CPU build first, a fraction of the size: pytorch.org, Get Started, Platform CPU,
      # prints the line. Name its version: counters are stored for one version of torch, and compared within it only.
      - name: install
        run: |
          pip install torch perfaudit -r requirements.txt
      - name: gate
        run: |
          perfaudit gate train.py --against HEAD^1 --format github --report markdown="$RUNNER_TEMP/gate.md"
      - name: summary
        if: always()
        run: |
          test ! -e "$RUNNER_TEMP/gate.md" || cat "$RUNNER_TEMP/gate.md" >> "$GITHUB_STEP_SUMMARY"
""",
    "gitlab": """\
# .gitlab-ci.yml
perfaudit-gate:
  image: python:3.12
  rules:
    - if: $CI_PIPELINE_SOURCE == "merge_request_event"
  variables:
    GIT_DEPTH: "0"  # the gate checks the base out beside the change
    PIP_CACHE_DIR: $CI_PROJECT_DIR/.cache/pip
  cache:
    key: perfaudit-pip
    paths: [.cache/pip]
  # Without a GPU, install torch's CPU build first, a fraction of the size: pytorch.org, Get Started, Platform CPU,
  # prints the line. Name its version: counters are stored for one version of torch, and compared within it only.
  script:
    - |
      pip install torch perfaudit -r requirements.txt
    - |
      perfaudit gate train.py --against BASE --report junit=perfaudit-junit.xml
  artifacts:
    when: always
    reports:
      junit: perfaudit-junit.xml
""".replace(" BASE ", ' "${CI_MERGE_REQUEST_TARGET_BRANCH_SHA:-$CI_MERGE_REQUEST_DIFF_BASE_SHA}" '),
    "pre-commit": """\
# .pre-commit-config.yaml
repos:
  - repo: https://…  # where perfaudit's repository is
    rev: …
    hooks:
      - id: perfaudit-gate  # new findings since the last commit; runs nothing of your code
""",
    "plain": """\
# against the commit at which this branch left the main one; every layer runs in this one call
perfaudit gate train.py --against origin/main
# without git, findings and counters only: against what the file says
perfaudit gate train.py --baseline perfaudit-gate.json
""",
}


@pytest.mark.parametrize("ci", KINDS)
def test_the_whole_of_a_snippet(ci: str, tmp_path: Path) -> None:
    (tmp_path / "requirements.txt").touch()
    assert snippet(ci, GateSettings(("train.py",)), Path(BASELINE), tmp_path) == WHOLE[ci]


def test_the_plain_command() -> None:
    settings = GateSettings(("train.py",), against="upstream/dev", layers=("findings",))
    assert commands(snippet("plain", settings, Path("ci/known.json"))) == [
        ["perfaudit", "gate", "train.py", "--against", "upstream/dev", "--layers", "findings"],
        ["perfaudit", "gate", "train.py", "--baseline", "ci/known.json"],
    ]


@pytest.mark.parametrize("ci", ["github", "gitlab", "plain"])
def test_what_was_typed_stands_in_the_command(ci: str) -> None:
    text = snippet(ci, GateSettings(("train.py",)), Path(BASELINE), ROOT, TYPED)
    shell = text if ci == "plain" else "\n".join(scripts(read_yaml(text)))
    for words in commands(shell):
        at = words.index("--path")
        assert words[at : at + 10] == [
            "--path", "src", "--path", "my tools", "--factory", "model=make #1", "--device", "cpu", "--timeout", "5m",
        ]  # fmt: skip
    assert "tool.perfaudit" not in text


def test_the_hook_gets_the_paths_only() -> None:
    text = snippet("pre-commit", GateSettings(("train.py",)), Path(BASELINE), ROOT, TYPED)
    assert read_yaml(text)["repos"][0]["hooks"][0]["args"] == ["--path", "src", "--path", "my tools"]


@pytest.mark.parametrize("ci", KINDS)
def test_another_file_is_named_in_the_settings(ci: str) -> None:
    """The gate reads what is accepted in the file that the settings name, and takes no --baseline beside --against."""
    named = '#     [tool.perfaudit.gate]\n#     baseline = "ci/known.json"\n'
    assert named in snippet(ci, GateSettings(("train.py",)), Path("ci/known.json"), ROOT)
    settings = GateSettings(("train.py",), baseline="ci/known.json")
    assert "tool.perfaudit" not in snippet(ci, settings, Path("ci/known.json"), ROOT)


def test_the_settings_are_relative_to_the_folder_of_their_file(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("[tool.perfaudit]\n")
    (tmp_path / "small").mkdir()
    text = snippet("plain", GateSettings(("train.py",)), Path("known.json"), tmp_path / "small")
    assert '#     baseline = "small/known.json"\n' in text


UNPACKED = "pip install torch perfaudit  # and what your training needs besides"


@pytest.mark.parametrize(
    ("file", "text", "install", "cache"),
    [
        ("requirements.txt", "", "pip install torch perfaudit -r requirements.txt", "requirements.txt"),
        ("pyproject.toml", '[project]\nname = "a"', "pip install torch perfaudit -e .", "pyproject.toml"),
        ("pyproject.toml", "[build-system]\nrequires = []", "pip install torch perfaudit -e .", "pyproject.toml"),
        ("setup.py", "", "pip install torch perfaudit -e .", "setup.py"),
        ("pyproject.toml", "[tool.perfaudit.gate]", UNPACKED, None),  # "Multiple top-level modules discovered"
        ("pyproject.toml", "[project", UNPACKED, None),
        ("README.md", "", UNPACKED, None),
    ],
)
def test_what_the_project_needs_is_installed(
    file: str, text: str, install: str, cache: str | None, tmp_path: Path
) -> None:
    (tmp_path / file).write_text(text)
    text = snippet("github", GateSettings(("train.py",)), Path(BASELINE), tmp_path)
    steps = read_yaml(text)["jobs"]["gate"]["steps"]
    assert [step["run"] for step in steps if step.get("name") == "install"] == [install + "\n"]
    assert steps[1]["with"].get("cache-dependency-path") == cache
    assert ("cache" in steps[1]["with"]) == (cache is not None)  # a cache without such a file is an error there
    assert steps[0]["with"] == {"fetch-depth": 0}


def test_where_nothing_is_run_torch_is_not_installed(tmp_path: Path) -> None:
    for ci in ("github", "gitlab"):
        assert "torch" not in snippet(ci, GateSettings(), Path(BASELINE), tmp_path)


def test_another_ci_is_refused() -> None:
    with pytest.raises(UserError, match=r"^--ci jenkins: there are snippets for github, gitlab, pre-commit, plain"):
        snippet("jenkins", GateSettings(), Path(BASELINE))


def test_the_hook_runs_the_first_layer_only() -> None:
    hooks = {hook["id"]: hook for hook in read_yaml((ROOT / ".pre-commit-hooks.yaml").read_text())}
    gate = hooks["perfaudit-gate"]
    assert gate["entry"].split() == ["perfaudit", "gate", "--layers", "findings", "--against", "HEAD", "--no-history"]
    assert (gate["pass_filenames"], gate["language"]) == (False, "python")
    assert [
        hook["id"] for hook in read_yaml(snippet("pre-commit", GateSettings(), Path(BASELINE)))["repos"][0]["hooks"]
    ] == ["perfaudit-gate"]


# The action, in an environment as GitHub makes it: a stub stands for the interpreter, and writes down how it was called.

STUB = """#!/bin/sh
printf '%s\\n' "$@" > "$CALLED"
echo "::error file=train.py,line=3::slower"
for word in "$@"; do
  case "$word" in
    markdown=*) echo "# the page" > "${word#markdown=}" ;;
    json=*) echo '{}' > "${word#json=}" ;;
  esac
done
exit ${CODE:-0}
"""


def git(folder: Path, *words: str) -> str:
    identity = [
        "-c",
        "user.name=a",
        "-c",
        "user.email=a@b",
        "-c",
        "init.defaultBranch=main",
        "-c",
        "commit.gpgsign=false",
    ]
    done = subprocess.run(["git", *identity, *words], cwd=folder, capture_output=True, text=True, check=True)
    return done.stdout.strip()


class Runner:
    """One job of GitHub Actions, in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.work = folder, folder / "work"
        self.origin = folder / "origin"
        for place in (self.origin, folder / "bin", folder / "temp"):
            place.mkdir()
        (folder / "bin" / "python").write_text(STUB)
        (folder / "bin" / "python").chmod(0o755)
        git(self.origin, "init", "-q", "-b", "main")
        git(self.origin, "config", "uploadpack.allowAnySHA1InWant", "true")  # as GitHub has it
        self.first = self.commit(self.origin, "first")
        self.summary, self.outputs = folder / "summary.md", folder / "outputs"

    @staticmethod
    def commit(folder: Path, message: str) -> str:
        git(folder, "commit", "-q", "--allow-empty", "-m", message)
        return git(folder, "rev-parse", "HEAD")

    def clone(self, *words: str) -> None:
        git(self.folder, "clone", "-q", *words, self.origin.as_uri(), "work")

    def run(self, inputs: dict[str, str], event: dict[str, str], code: int = 0) -> tuple[int, list[str], str]:
        """The exit code of the action's script, how perfaudit was called (nothing where it was not), and the log."""
        action = read_yaml((ROOT / "action.yml").read_text(encoding="utf-8"))
        (step,) = (step for step in action["runs"]["steps"] if step.get("id") == "gate")
        assert set(inputs) <= set(action["inputs"])
        values = {f"inputs.{name}": inputs.get(name, spec["default"]) for name, spec in action["inputs"].items()}
        values |= {f"github.event.{name}": value for name, value in event.items()}

        def filled(expression: str) -> str:
            names = expression.removeprefix("${{").removesuffix("}}").split("||")
            return next((found for name in names if (found := values.get(name.strip(), ""))), "")

        called = self.folder / "called"
        called.unlink(missing_ok=True)
        environment = {name: filled(text) for name, text in step["env"].items()}
        environment |= {
            "PATH": f"{self.folder / 'bin'}:{os.environ['PATH']}", "HOME": str(self.folder), "CALLED": str(called),
            "CODE": str(code), "RUNNER_TEMP": str(self.folder / "temp"), "GITHUB_STEP_SUMMARY": str(self.summary),
            "GITHUB_OUTPUT": str(self.outputs),
        }  # fmt: skip
        script = self.folder / "script.sh"
        script.write_text(step["run"])
        done = subprocess.run(  # as GitHub runs `shell: bash`
            ["bash", "--noprofile", "--norc", "-e", "-o", "pipefail", str(script)],
            cwd=self.work, env=environment, capture_output=True, text=True,
        )  # fmt: skip
        return done.returncode, called.read_text().splitlines() if called.exists() else [], done.stdout + done.stderr

    def against(self, **event: str) -> str:
        _, words, log = self.run({}, {name.replace("__", "."): value for name, value in event.items()})
        assert "--against" in words, log
        return words[words.index("--against") + 1]


@pytest.fixture
def runner(tmp_path: Path) -> Runner:
    return Runner(tmp_path)


def test_one_run_gives_annotations_summary_and_report(runner: Runner) -> None:
    base, _ = runner.first, runner.commit(runner.origin, "second")
    runner.clone()
    runner.summary.write_text("what an earlier step said\n")
    inputs = {"targets": "train.py\neval.py", "layers": "findings, counters", "max-regression": "3%", "budget": "60s",
              "inconclusive": "fail", "args": "--device cpu"}  # fmt: skip
    code, words, log = runner.run(inputs, {"before": base})
    assert code == 0
    folder = words[words.index("--format") + 3].removeprefix("markdown=").removesuffix("/gate.md")
    assert words == [
        "-P", "-m", "perfaudit", "gate", "--layers", "findings,counters", "--against", base, "--max-regression", "3%",
        "--budget", "60s", "--inconclusive", "fail", "--format", "github", "--report", f"markdown={folder}/gate.md",
        "--report", f"json={folder}/gate.json", "--device", "cpu", "train.py", "eval.py",
    ]  # fmt: skip
    assert "::error file=train.py,line=3::slower" in log
    assert runner.summary.read_text() == "what an earlier step said\n# the page\n"
    assert runner.outputs.read_text().splitlines() == ["exit-code=0", f"report={folder}/gate.json"]
    assert json.loads(Path(folder, "gate.json").read_text()) == {}


@pytest.mark.parametrize("code", [1, 2, 3, 130])
def test_a_gate_that_does_not_pass_fails_the_step_and_shows_its_page(code: int, runner: Runner) -> None:
    runner.clone()
    assert runner.run({"against": "origin/main"}, {}, code)[0] == code
    assert runner.summary.read_text() == "# the page\n"
    assert f"exit-code={code}\n" in runner.outputs.read_text()


def test_inputs_are_words_and_never_commands(runner: Runner) -> None:
    runner.clone()
    evil = '$(touch owned) `touch owned` "; touch owned; # * ~'
    _, words, _ = runner.run({"targets": evil, "args": evil, "against": evil, "layers": evil, "budget": evil}, {})
    assert words[words.index("--against") + 1] == evil
    assert words[words.index("--budget") + 1] == evil
    assert words[-len(evil.split()) :] == evil.split()
    assert not list(runner.folder.rglob("owned"))


def test_a_baseline_file_needs_no_reference(runner: Runner) -> None:
    runner.clone()
    _, words, _ = runner.run({"baseline": "known gate.json"}, {"before": runner.first})
    assert words[4:6] == ["--baseline", "known gate.json"]
    assert "--against" not in words


def test_of_a_pull_request_the_base_is_the_one_that_was_merged_with(runner: Runner) -> None:
    git(runner.origin, "switch", "-q", "-c", "change")
    head = runner.commit(runner.origin, "change")
    git(runner.origin, "switch", "-q", "main")
    newer = runner.commit(runner.origin, "somebody else's, after the event")
    git(runner.origin, "merge", "-q", "--no-ff", "-m", "merge", "change")
    runner.clone()
    assert runner.against(pull_request__base__sha=runner.first, pull_request__head__sha=head) == newer
    git(runner.work, "checkout", "-q", head)  # the change itself, checked out by hand
    assert runner.against(pull_request__base__sha=runner.first, pull_request__head__sha=head) == runner.first


def test_what_a_shallow_checkout_lacks_is_fetched(runner: Runner) -> None:
    base, head = runner.first, runner.commit(runner.origin, "second")
    runner.clone("--depth=1")
    assert runner.against(pull_request__base__sha=base, pull_request__head__sha=head) == base
    assert git(runner.work, "cat-file", "-t", base) == "commit"


def test_after_a_push_the_reference_is_the_state_before(runner: Runner) -> None:
    runner.commit(runner.origin, "second")
    runner.commit(runner.origin, "third")
    runner.clone()
    assert runner.against(before=runner.first, repository__default_branch="main") == runner.first


def test_a_merge_queue_has_a_base_too(runner: Runner) -> None:
    runner.commit(runner.origin, "second")
    runner.clone()
    assert runner.against(merge_group__base_sha=runner.first) == runner.first


@pytest.mark.parametrize("before", ["0" * 40, "", "1234567812345678123456781234567812345678"])
def test_of_a_new_branch_and_after_a_forced_push_it_is_the_main_one(before: str, runner: Runner) -> None:
    runner.clone()
    git(runner.work, "switch", "-q", "-c", "change")
    runner.commit(runner.work, "change")
    assert runner.against(before=before, repository__default_branch="main") == "origin/main"


def test_by_hand_on_the_main_branch_it_is_the_commit_before(runner: Runner) -> None:
    runner.commit(runner.origin, "second")
    runner.clone()
    assert runner.against(repository__default_branch="main") == runner.first


def test_without_anything_to_compare_with_it_is_no_pass(runner: Runner) -> None:
    runner.clone()
    code, words, log = runner.run({}, {"before": "0" * 40, "repository.default_branch": "main"})
    assert (code, words) == (2, [])
    assert "::error::perfaudit gate: there is no commit to compare with" in log
    assert "exit-code=2\n" in runner.outputs.read_text()


def test_a_checkout_of_the_reference_itself_is_said(runner: Runner) -> None:
    runner.clone()  # pull_request_target, without a checkout of the change
    _, _, log = runner.run({}, {"pull_request.base.sha": runner.first, "pull_request.head.sha": "1" * 40})
    assert "::warning::perfaudit gate: the checkout is the reference itself" in log


@pytest.mark.parametrize(
    ("pipeline", "against"),
    [
        ({"CI_MERGE_REQUEST_DIFF_BASE_SHA": "1f2e3d"}, "1f2e3d"),
        # of merged results: HEAD is the merge with the target branch as it is now, and the diff base an older commit of it
        ({"CI_MERGE_REQUEST_DIFF_BASE_SHA": "1f2e3d", "CI_MERGE_REQUEST_TARGET_BRANCH_SHA": "4c5b6a"}, "4c5b6a"),
        ({"CI_MERGE_REQUEST_DIFF_BASE_SHA": "1f2e3d", "CI_MERGE_REQUEST_TARGET_BRANCH_SHA": ""}, "1f2e3d"),
    ],
)
def test_in_gitlab_a_change_is_compared_with_what_it_is_merged_with(
    pipeline: dict[str, str], against: str, runner: Runner
) -> None:
    runner.clone()
    job = read_yaml((ROOT / "ci" / "perfaudit-gate.gitlab-ci.yml").read_text())["perfaudit-gate"]
    included = {name: value for name, value in job["variables"].items() if name.startswith("PERFAUDIT_")}
    printed = read_yaml(snippet("gitlab", GateSettings(("train.py",)), Path(BASELINE), ROOT))["perfaudit-gate"]
    called = runner.folder / "called"
    (runner.folder / "bin" / "perfaudit").write_text(STUB)
    (runner.folder / "bin" / "perfaudit").chmod(0o755)
    base = {"CALLED": str(called), "PATH": f"{runner.folder / 'bin'}:{os.environ['PATH']}", **pipeline}
    for script, variables in (("\n".join(job["script"]), included), (printed["script"][-1], {})):
        subprocess.run(["sh", "-e"], input=script, text=True, cwd=runner.work, env=variables | base, check=True)
        words = called.read_text().split()
        assert words[words.index("--against") + 1] == against
        called.unlink()


def test_the_gitlab_job_calls_what_its_variables_say(runner: Runner) -> None:
    runner.clone()
    job = read_yaml((ROOT / "ci" / "perfaudit-gate.gitlab-ci.yml").read_text())["perfaudit-gate"]
    variables = {name: value for name, value in job["variables"].items() if name.startswith("PERFAUDIT_")}
    called = runner.folder / "called"
    environment = {
        **variables, "PERFAUDIT_TARGETS": "train.py *.py", "PERFAUDIT_LAYERS": "findings", "CALLED": str(called),
        "CI_MERGE_REQUEST_DIFF_BASE_SHA": "1f2e3d", "PATH": f"{runner.folder / 'bin'}:{os.environ['PATH']}", "CODE": "1",
    }  # fmt: skip
    for shell in ("bash", "sh"):
        done = subprocess.run(
            [shell, "-e"], input="\n".join(job["script"]), text=True, cwd=runner.work, env=environment
        )
        assert done.returncode == 1
        assert called.read_text().split() == [
            "-P", "-m", "perfaudit", "gate", "--against", "1f2e3d", "--layers", "findings",
            "--report", "junit=perfaudit-junit.xml", "train.py", "*.py",
        ]  # fmt: skip


def test_the_interpreter_finds_perfaudit_and_not_the_folder_it_stands_in(tmp_path: Path) -> None:
    (tmp_path / "perfaudit.py").write_text("raise SystemExit('code of the checkout was run')")
    (tmp_path / "typer.py").write_text("raise SystemExit('code of the checkout was run')")
    call = [sys.executable, "-P", "-m", "perfaudit", "--version"]
    done = subprocess.run(call, cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_installing_takes_the_version_that_is_asked_for(runner: Runner) -> None:
    runner.clone()
    action = read_yaml((ROOT / "action.yml").read_text(encoding="utf-8"))
    script = action["runs"]["steps"][0]["run"]
    called = runner.folder / "called"
    for version, words in {"0.3.1": "perfaudit==0.3.1", "": "/the/action"}.items():
        environment = {
            "PERFAUDIT_PYTHON": "python", "PERFAUDIT_VERSION": version, "GITHUB_ACTION_PATH": "/the/action",
            "CALLED": str(called), "PATH": f"{runner.folder / 'bin'}:{os.environ['PATH']}",
        }  # fmt: skip
        subprocess.run(["bash", "-e"], input=script, text=True, env=environment, check=True, capture_output=True)
        assert called.read_text().split() == ["-P", "-m", "pip", "install", "--quiet", words]
    called.unlink()
    subprocess.run(
        ["bash", "-e"], input=script, text=True, env={**environment, "PERFAUDIT_VERSION": "none"}, check=True
    )
    assert not called.exists()
