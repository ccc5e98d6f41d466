"""Every block of code on the pages: what is printed is what is shown, and the rest is what its language and its program take."""

from __future__ import annotations

import ast
import functools
import inspect
import json
import re
import shlex
import shutil
import subprocess
import sys
import textwrap
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import typer.main
import yaml
from conftest import Done

import perfaudit as package
from perfaudit.cli.app import application
from perfaudit.config import read_config

ROOT = Path(__file__).parents[2]
if not (ROOT / "benchmarks").exists():
    pytest.skip("the benchmarks are not in this distribution", allow_module_level=True)
sys.path.insert(0, str(ROOT / "tests"))

import page_figures  # noqa: E402  # it lies there

Run = Callable[..., Done]

LANGUAGES = {"console", "sh", "python", "toml", "yaml", "json", "vim", "text", "{toctree}"}


@dataclass(frozen=True)
class Block:
    page: str
    line: int
    language: str
    text: str
    record: str  # the program that wrote the block, "" where people did

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


FENCE = re.compile(r"^```(?P<language>[^\n]*)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
WRITTEN = re.compile(r"<!-- written by (\S+?\.py)[^\n]*-->\n.*?<!-- until here", re.DOTALL)


def blocks(page: str, text: str) -> list[Block]:
    written = [(match.span(), match[1]) for match in WRITTEN.finditer(text)]
    return [
        Block(
            page,
            text.count("\n", 0, match.start()) + 1,
            match["language"].strip(),
            match["text"],
            next((name for (start, end), name in written if start < match.start() < end), ""),
        )
        for match in FENCE.finditer(text)
    ]


BLOCKS = [block for page, text in page_figures.pages().items() for block in blocks(page, text)]
UNWRITTEN = [block for block in BLOCKS if not block.record]
SHOWN = [
    block
    for block in BLOCKS
    if block.language == "console"
    and not block.record
    and block.text.startswith("$ perfaudit ")  # others are of other programs
]


def matches(printed: str, shown: str) -> bool:
    """Whether a text is what was printed; `…` on a line of its own stands for some lines, within a line for some characters."""
    lines = [line.rstrip() for line in shown.strip().splitlines()]
    pattern = "".join(
        r"(?:[^\n]*\n)*?" if line == "…" else re.escape(line).replace("…", r"[^\n]*") + r"\n" for line in lines
    )
    return bool(re.fullmatch(pattern, "".join(f"{line.rstrip()}\n" for line in printed.strip().splitlines())))


@pytest.mark.parametrize(
    ("printed", "shown", "same"),
    [
        ("a\nb\n", "a\nb", True),
        ("a\nb\n", "a", False),
        ("a\nb\nc\n", "a\n…", True),
        ("a\nb\nc\n", "…\nc", True),
        ("a\nb\nc\n", "a\n…\nd", False),
        ("at 3b7f: red", "at …: red", True),
        ("at 3b7f: red", "at …: green", False),
    ],
)
def test_what_matches(printed: str, shown: str, same: bool) -> None:
    assert matches(printed, shown) == same


@pytest.fixture
def clone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What a reader of the tutorial has: the samples in a repository, the patch of `tune` committed, and its mistake made."""
    shutil.copytree(ROOT / "sample_models", tmp_path / "sample_models", ignore=shutil.ignore_patterns("__pycache__"))
    script = tmp_path / "sample_models" / "denoise_patches.py"
    text = script.read_text()
    script.write_text(text.replace("set_detect_anomaly(True)", "set_detect_anomaly(False)"))
    for words in (["init", "--quiet"], ["add", "--all"], ["commit", "--quiet", "--message", "patched"]):
        subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=a@example.org", *words], cwd=tmp_path, check=True)
    script.write_text(text)
    monkeypatch.chdir(tmp_path)
    return tmp_path


# What is shown of commands that take minutes, and the file where the same command has left it.
RECORDED = {"$ perfaudit trace dlrm_kineto.tar.gz": "benchmarks/trace_demonstration.txt"}


@pytest.mark.parametrize("block", SHOWN, ids=str)
def test_what_is_shown_is_printed(block: Block, perfaudit: Run, clone: Path) -> None:
    command, _, shown = block.text.partition("\n")
    if (record := RECORDED.get(command)) is not None:
        assert matches((ROOT / record).read_text(encoding="utf-8"), shown)
        return
    if command in ELSEWHERE:
        assert unknown_lines(shown) == []
        return
    done = perfaudit(*command.removeprefix("$ perfaudit ").split())
    errors = [line for line in done.err.splitlines(keepends=True) if not line.startswith("[")]
    assert matches("".join([done.out, *errors]), shown), "".join([done.out, *errors])
    assert done.code == 1


@pytest.mark.parametrize("page", sorted(page_figures.pages()))
def test_every_block_has_a_language(page: str) -> None:
    """Code that is indented has none, and nothing looks at it."""
    text = page_figures.pages()[page]
    assert {block.language for block in blocks(page, text)} <= LANGUAGES
    if page != "README.md":  # where two commands are to look plain
        assert not re.search(r"\n\n {4,}\S", FENCE.sub("", text))


# Texts that are no command's output, or whose output is tested as it is printed, line by line, by another test.
def _lines(text: str) -> Iterator[str]:
    """Lines of printed text, comparable: any number is 0, any white space one blank."""
    for line in text.splitlines():
        yield " ".join(re.sub(r"\d+(?:[.,]\d+)*", "0", line).split())


@functools.cache
def printed_somewhere() -> frozenset[str]:
    """Lines of all output that is committed: what tests compare with, and what records of commands hold."""
    files = [*(ROOT / "tests").rglob("*.txt"), *(ROOT / "tests").rglob("*.md"), *(ROOT / "tests").rglob("test_*.py")]
    demonstrated = json.loads((ROOT / "benchmarks" / "demonstration.json").read_text(encoding="utf-8"))["report"]
    scripts = json.loads((ROOT / "benchmarks" / "script_demonstration.json").read_text(encoding="utf-8"))["printed"]
    texts = [path.read_text(encoding="utf-8") for path in files if path != Path(__file__)]
    ranks = json.loads((ROOT / "benchmarks" / "rank_demonstration.json").read_text(encoding="utf-8")).values()
    texts += ["\n".join(lines) for lines in (demonstrated, *(one["lines"] for one in (*scripts, *ranks)))]
    texts += ["\n".join(one["said"]) for one in ranks]  # on stderr
    return frozenset(line for text in texts for line in _lines(text))


def unknown_lines(shown: str) -> list[str]:
    """The lines that no output has which is committed."""
    known = printed_somewhere()
    return [line for line in _lines(shown) if line not in known and line != "…"]


# Lines of output that is nowhere committed: the first word, and words of it that stand in the program as they are.
SAID = {
    "control:": ("control: identical code, put in place as a patch is",),
    "[": ("looked no faster", " still racing"),
    "precision": (" would pay", " of the step, screened)", " and is not allowed: `"),
    "not": ("not taken, and why", "would take ", "of the step (screened); "),
    "against": (", in fresh processes, ",),
    "old.pt:": (
        " values",
        "folded in ",
        " parameters left out (",
        "checked on one batch in ",
        ": loads strictly; outputs lie within ",
        " of the old ones, ",
        ": written",
    ),
    ">": (" a step",),  # an assertion of pytest's with a line of the plugin's
}


@functools.cache
def program_text() -> str:
    return "\n".join(path.read_text(encoding="utf-8") for path in sorted((ROOT / "perfaudit").rglob("*.py")))


ELSEWHERE = {"$ perfaudit history --metric step_time"}
DRAWINGS = {"docs/architecture.md"}  # of what follows what; no output


@pytest.mark.parametrize("block", [block for block in UNWRITTEN if block.language == "text"], ids=str)
def test_output_is_as_some_test_has_it(block: Block) -> None:
    if block.page in DRAWINGS:
        return
    words = SAID.get(block.text.split()[0], ())
    assert all(piece in block.text and piece in program_text() for piece in words)
    assert words or unknown_lines(block.text) == []


def test_a_line_that_nothing_prints_is_found() -> None:
    assert unknown_lines("a line that nothing prints, 3 times") == ["a line that nothing prints, 0 times"]


def commands(script: str) -> list[list[str]]:
    """The commands of a shell script, one a line, without what their output goes to."""
    found = []
    for line in script.replace("\\\n", " ").splitlines():
        words = shlex.split(line, comments=True)
        end = next((at for at, word in enumerate(words) if word in ("|", "<", ">", ">>", "&&")), len(words))
        found += [words[:end]] if words else []
    return found


@functools.cache
def _group() -> Any:  # click's, which typer may bundle
    return typer.main.get_command(application())


def parse(words: list[str]) -> None:
    """Read a command line as perfaudit does, without running it. Raises what it would complain with."""
    command, name, context = _group(), "perfaudit", None
    while hasattr(command, "commands"):
        context = command.make_context(name, words, parent=context)
        name, command, words = command.resolve_command(context, [*context._protected_args, *context.args])
    command.make_context(name, words, parent=context)


def complaint(words: list[str]) -> str:
    """What is wrong with a command of a page, "" for nothing."""
    program, *arguments = words
    if program in LAUNCHERS and "perfaudit" in arguments:  # what starts the ranks, and then the command of each
        return complaint(arguments[arguments.index("perfaudit") :])
    if program == "perfaudit" and arguments[0] in ("--install-completion", "--show-completion"):
        return "" if any(arguments[0] in parameter.opts for parameter in _group().params) else "no such option"
    if program == "perfaudit":
        try:
            parse(arguments)
        except Exception as error:  # click's, which cannot be imported from where every typer has it
            return str(error) or type(error).__name__
        return ""
    if program == "make":
        targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
        return "" if set(arguments) <= targets else "no such target"
    if program == "python" and arguments[0].endswith(".py"):
        options = {word for word in arguments if word.startswith("--")}
        program_text = (ROOT / arguments[0]).read_text() if (ROOT / arguments[0]).is_file() else ""
        return (
            ""
            if program_text and all(f'"{option}"' in program_text or "main(" in program_text for option in options)
            else "no such program"
        )
    if program == "pytest":
        options = {word for word in arguments if word.startswith("--perfaudit")}
        plugin = (ROOT / "perfaudit" / "pytest_plugin" / "__init__.py").read_text()
        return "" if all(f'"{option}"' in plugin for option in options) else "no such option"
    return "" if program in OTHERS else "a program that this test does not know"


LAUNCHERS = {"torchrun", "accelerate", "mpirun", "srun"}
OTHERS = {
    "perfaudit",
    "git",
    "sed",
    "cat",
    "source",
    "pip",
    "pipx",
    "uvx",
    "uv",
    "docker",
    "eval",
    "cd",
    "pre-commit",
    "python",
    "claude",
    "torchrun",
}


@pytest.mark.parametrize("block", [block for block in UNWRITTEN if block.language == "sh"], ids=str)
def test_every_command_is_understood(block: Block) -> None:
    assert [(words, said) for words in commands(block.text) if (said := complaint(words))] == []


# Of what pages have typed, this runs: it only reads, needs no torch, and takes a moment. `scan -` reads what somebody types,
# `--measure` trains, `--rules` takes rules that are the reader's own, `rules trust` writes into the reader's settings.
READS = ("scan", "explain", "rules", "apply", "doctor")
LEFT_OUT = ({"-"}, {"--measure"}, {"--rules"}, {"trust"})


def is_cheap(words: list[str]) -> bool:
    if words[0] != "perfaudit" or words[1] not in READS or any(left <= set(words) for left in LEFT_OUT):
        return False
    return words[1] != "doctor" or "--no-bandwidth" in words


CHEAP = [
    (block, words) for block in UNWRITTEN if block.language == "sh" for words in commands(block.text) if is_cheap(words)
]


@pytest.fixture
def project(clone: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the files that pages name and no others; torch says nothing of itself, which would take seconds."""
    (clone / "src").mkdir()
    for path in (clone / "sample_models").rglob("*.py"):
        if path.name != "denoise_patches.py":
            path.unlink()
    for copy in ("train.py", "model.py", "data_parallel.py", "src/train.py"):
        shutil.copy(clone / "sample_models" / "denoise_patches.py", clone / copy)
    monkeypatch.setattr("perfaudit.machine.place.Place.torch", {})
    return clone


def test_what_only_reads_runs_as_it_is_typed(project: Path, perfaudit: Run) -> None:
    """Blocks one after the other, as somebody does who follows the pages. 1: something was found."""
    assert {words[1] for _, words in CHEAP} >= {"scan", "explain", "apply", "doctor"}
    as_it_was = {path: path.read_bytes() for path in project.rglob("*.py")}
    for block, words in CHEAP:
        if words[1] == "apply":  # of a report that somebody has saved before
            perfaudit("scan", "train.py", "--format", "json", "--output", words[2])
        done = perfaudit(*words[1:])
        assert done.code in (0, 1), f"{block}: {shlex.join(words)}: {done.err}"
        assert "Traceback" not in done.err, f"{block}: {shlex.join(words)}"
        for option in ("--html", "--output", "--baseline"):
            if option in words:
                assert (project / words[words.index(option) + 1]).stat().st_size > 0
        for path, text in as_it_was.items():
            path.write_bytes(text)


def test_functions_that_only_read_run_as_they_are_typed(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The statements of docs/python.md from a call of `scan`, `fix` or `doctor` to the next call."""
    from perfaudit.machine import checks

    look_at = checks.look_at
    monkeypatch.setattr(checks, "look_at", lambda place: look_at(replace(place, has_bandwidth=False)))
    (block,) = [block for block in BLOCKS if block.page == "docs/python.md" and "perfaudit.fix(" in block.text]
    names: dict[str, object] = {}
    ran, runs = [], True
    for statement in ast.parse(block.text).body:
        called = re.match(r"report = perfaudit\.(\w+)", ast.unparse(statement))
        if called:
            runs = called[1] in ("scan", "fix", "doctor")
            ran += [called[1]] if runs else []
        if runs:
            exec(ast.unparse(statement), names)
    assert ran == ["scan", "fix", "doctor"]
    printed = capsys.readouterr().out.splitlines()
    assert printed[0].startswith("train.py:")
    assert "PA" in printed[0]
    assert printed[-1].startswith("[")


@pytest.mark.parametrize("page", sorted(page_figures.pages()))
def test_commands_within_a_sentence_are_understood(page: str) -> None:
    text = FENCE.sub("", page_figures.pages()[page])
    found = [shlex.split(" ".join(code.split())) for code in re.findall(r"`(perfaudit [a-z][^`]*)`", text)]
    known = [words for words in found if len(words) > 2 and not {"…", "..."} & set(words)]  # two words name a command
    assert [(words, said) for words in known if (said := complaint(_with_values(words)))] == []


def _with_values(words: list[str]) -> list[str]:
    """A command as it is typed, where a page has a word in capitals for a value."""
    return [{"DIR": ".", "ID": "PA101", "NAME": "json"}.get(word, word) for word in words]


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("perfaudit scan . --format sarif", ""),
        ("perfaudit scan . --format serif", "'serif' is none of"),
        ("perfaudit tune train.py --all -- --epochs 1", ""),
        ("perfaudit tune train.py --everything", "No such option"),
        ("perfaudit gate init train.py --ci github", ""),
        ("perfaudit gait", "No such command"),
        ("make docs", ""),
        ("make dogs", "no such target"),
        ("python benchmarks/scan_speed.py", ""),
        ("python benchmarks/no_such.py", "no such program"),
        ("pytest --perfaudit-against main", ""),
        ("pytest --perfaudit-again main", "no such option"),
        ("perfaudyt scan", "a program that this test does not know"),
    ],
)
def test_what_is_wrong_with_a_command(command: str, said: str) -> None:
    found = complaint(command.split())
    assert found.startswith(said) if said else found == ""


@pytest.mark.parametrize("block", [block for block in UNWRITTEN if block.language == "python"], ids=str)
def test_python_is_python_and_calls_what_there_is(block: Block) -> None:
    tree = ast.parse(textwrap.dedent(block.text))
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and ast.unparse(node.func.value) == "perfaudit"
        ):
            signature = inspect.signature(getattr(package, node.func.attr))
            signature.bind(*node.args, **{keyword.arg: keyword.value for keyword in node.keywords if keyword.arg})
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("perfaudit.callbacks."):
            text = ROOT.joinpath(*(node.module or "").split(".")).with_suffix(".py").read_text()
            assert all(
                f"class {alias.name}(" in text for alias in node.names
            )  # imported, it needs its trainer's library
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("perfaudit"):
            module = __import__(node.module or "", fromlist=[alias.name for alias in node.names])
            assert all(hasattr(module, alias.name) for alias in node.names)


@pytest.mark.parametrize("block", [block for block in UNWRITTEN if block.language == "toml"], ids=str)
def test_settings_are_read(block: Block, tmp_path: Path) -> None:
    read = tomllib.loads(block.text)
    if "tool" in read:
        (tmp_path / "pyproject.toml").write_text(block.text)
        read_config(tmp_path / "pyproject.toml")


@pytest.mark.parametrize("block", [block for block in UNWRITTEN if block.language == "yaml"], ids=str)
def test_steps_of_pipelines_are_understood(block: Block) -> None:
    def lines_of(value: object) -> Iterator[str]:
        if isinstance(value, dict):
            for key, each in value.items():
                yield from [each] if key == "run" else lines_of(each)
        elif isinstance(value, list):
            for each in value:
                yield from (
                    [each] if isinstance(each, str) and each.startswith(("pip ", "perfaudit ")) else lines_of(each)
                )

    scripts = list(lines_of(yaml.safe_load(block.text)))
    assert [(words, said) for text in scripts for words in commands(text) if (said := complaint(words))] == []


def test_the_task_of_the_editor_finds_what_is_printed(perfaudit: Run, clone: Path) -> None:
    """A task for VS Code, whose pattern must take each line of the format that it asks for."""
    (block,) = [block for block in BLOCKS if block.language == "json" and '"tasks"' in block.text]
    (task,) = json.loads(block.text)["tasks"]
    (words,) = commands(task["command"])
    assert complaint(words) == ""
    done = perfaudit(*words[1:])
    pattern = task["problemMatcher"]["pattern"]
    lines = [
        line for line in done.out.splitlines() if not line.startswith("perfaudit: ")
    ]  # how many hints are left out
    assert len(lines) > 5
    for line in lines:
        match = re.fullmatch(pattern["regexp"], line)
        assert match, line
        assert (clone / match[pattern["file"]]).is_file()
        assert re.fullmatch(r"PA\d{3}", match[pattern["code"]])


def test_the_settings_of_agents_start_what_there_is() -> None:
    found = [json.loads(block.text) for block in BLOCKS if block.page == "docs/mcp.md" and block.language == "json"]
    servers = [server for settings in found for server in next(iter(settings.values())).values()]
    assert [complaint([server["command"], *server["args"]]) for server in servers] == ["", ""]


def test_the_settings_of_vim_call_what_there_is() -> None:
    (block,) = [block for block in BLOCKS if block.language == "vim"]
    made = re.search(r"^setlocal makeprg=(.*)$", block.text, re.MULTILINE)
    assert made
    assert complaint(made[1].replace("\\ ", " ").split()) == ""
