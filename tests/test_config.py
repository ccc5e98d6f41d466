"""`[tool.perfaudit]`, which rules are on, and suppression comments."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from perfaudit.config import Config, find_config, is_suppressed, read_config, selected, suppressions
from perfaudit.errors import ConfigError
from perfaudit.findings import Finding, Location
from perfaudit.rules import Rule, all_rules

Project = Callable[..., Path]
RULES: dict[str, Rule] = {id_: all_rules()[id_] for id_ in ("PA101", "PA102", "PA201", "PA501")}


def test_read_config(project: Project) -> None:
    path = project(
        **{
            "pyproject.toml": """
            [tool.perfaudit]
            select = ["PA1"]
            ignore = ["PA102"]
            exclude = ["old/"]
            [tool.perfaudit.target]
            file = "train.py"
            model = "make"
            """
        }
    )
    path = path / "pyproject.toml"
    expected = Config(path, ("PA1",), ("PA102",), ("old/",), {"file": "train.py", "model": "make"})
    assert read_config(path) == expected


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("x = ", "not valid TOML: Invalid value (at end of document)"),
        ("tool = 3", "'tool' must be a table, it is 3"),
        ("tool.perfaudit = 'on'", "'perfaudit' must be a table, it is 'on'"),
        (
            "[tool.perfaudit]\nselects = []",
            "[tool.perfaudit] has no key 'selects' (it has: exclude, ignore, select, target)",
        ),
        ("[tool.perfaudit]\nselect = 'PA1'", "[tool.perfaudit] select must be a list of texts, it is 'PA1'"),
        ("[tool.perfaudit]\nignore = [1]", "[tool.perfaudit] ignore must be a list of texts, it is [1]"),
        ("[tool.perfaudit]\nexclude = {}", "[tool.perfaudit] exclude must be a list of texts, it is {}"),
        ("[tool.perfaudit]\nexclude = ['a', '!']", "[tool.perfaudit] exclude: '!' is no pattern of .gitignore"),
        ("[tool.perfaudit]\ntarget = 'train.py'", "[tool.perfaudit.target] must be a table, it is 'train.py'"),
        (
            "[tool.perfaudit.target]\nmodels = 'make'",
            "[tool.perfaudit.target] models = 'make': keys are file, model, dataloader, optimizer, step, ema, values texts",
        ),
        (
            "[tool.perfaudit.target]\nmodel = 1",
            "[tool.perfaudit.target] model = 1: keys are file, model, dataloader, optimizer, step, ema, values texts",
        ),
    ],
)
def test_errors_name_file_and_key(project: Project, text: str, problem: str) -> None:
    path = project(**{"pyproject.toml": text}) / "pyproject.toml"
    with pytest.raises(ConfigError) as caught:
        read_config(path)
    assert str(caught.value) == f"{path}: {problem}"


def test_a_file_that_is_no_text(project: Project) -> None:
    path = project() / "pyproject.toml"
    path.write_bytes(b"\xff")
    with pytest.raises(ConfigError, match=r"pyproject\.toml: not UTF-8 \(byte 0\)$"):
        read_config(path)
    with pytest.raises(ConfigError, match=r"other\.toml: cannot be read: no such file or directory$"):
        read_config(path.with_name("other.toml"))


def test_the_nearest_file_counts(project: Project) -> None:
    folder = project(
        **{"pyproject.toml": "[tool.perfaudit]\nselect = ['PA1']", "a/b/c.py": "", "a/pyproject.toml": "[project]"}
    )
    assert find_config(folder).select == ("PA1",)
    assert find_config(folder / "a" / "b") == Config(folder / "a" / "pyproject.toml")


@pytest.mark.parametrize(
    ("select", "ignore", "config", "on"),
    [
        ([], [], Config(), "PA101 PA102 PA201 PA501"),
        (["PA1"], [], Config(), "PA101 PA102"),
        (["pa101", "conv-bias-before-norm"], [], Config(), "PA101 PA201"),
        (["Conv-Bias-Before-Norm"], [], Config(), "PA201"),
        ([], ["PA1"], Config(), "PA201 PA501"),
        (["PA1"], ["PA102"], Config(), "PA101"),
        ([], [], Config(select=("PA1",), ignore=("PA101",)), "PA102"),
        (["PA2"], [], Config(select=("PA1",)), "PA201"),
        (["PA2", "PA1"], ["PA101"], Config(ignore=("PA102",)), "PA201"),
    ],
)
def test_selected(select: list[str], ignore: list[str], config: Config, on: str) -> None:
    assert selected(RULES, select, ignore, config) == set(on.split())


@pytest.mark.parametrize(
    ("select", "ignore", "config", "message"),
    [
        (["PA9"], [], Config(), "--select: no rule is called 'PA9'; `perfaudit rules` lists them"),
        (["conv"], [], Config(), "--select: no rule is called 'conv'; `perfaudit rules` lists them"),
        ([], [""], Config(), "--ignore: no rule is called ''; `perfaudit rules` lists them"),
        (
            [],
            [],
            Config(Path("p.toml"), ignore=("X",)),
            "p.toml: [tool.perfaudit] ignore: no rule is called 'X'; `perfaudit rules` lists them",
        ),
        (
            ["PA1"],
            ["PA10"],
            Config(),
            "no rule is left: everything that is selected is ignored too (see --select, --ignore, pyproject.toml)",
        ),
    ],
)
def test_selections_that_are_wrong(select: list[str], ignore: list[str], config: Config, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        selected(RULES, select, ignore, config)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("text", "silenced"),
    [
        ("x = 1  # perfaudit: ignore[PA101]", {1: {"PA101"}}),
        ("x = 1  # perfaudit: ignore[pa101, PA2 ,] why", {1: {"PA101", "PA2"}}),
        ("x = 1  #perfaudit:ignore", {1: set()}),
        ("x = 1  # type: ignore # perfaudit: ignore: why", {1: set()}),
        ("# perfaudit: ignore[A]\r\n\r\n# perfaudit: ignore[B]\r\n", {1: {"A"}, 3: {"B"}}),
        ("x = '# perfaudit: ignore'", {}),
        ('"""\n# perfaudit: ignore\n"""', {}),
        ("x = 1  # perfaudit: ignores", {}),
        ("x = 1  # perfaudit: ignore-next", {}),
        ("x = 1  # perfaudit: ignore[PA101", {}),
        ("x = 1  # perfaudit: ignore [PA101", {}),
        ("x = (1,  # perfaudit: ignore\n", {1: set()}),  # what could be read counts
        ("x = 1  # ignore[PA101]", {}),
        ("", {}),
    ],
)
def test_suppressions(text: str, silenced: dict[int, set[str]]) -> None:
    assert suppressions(text) == silenced


@pytest.mark.parametrize(
    ("by_line", "lines", "is_silent"),
    [
        ({3: {"PA101"}}, [3], True),
        ({3: {"DATALOADER-NO-WORKERS"}}, [3], True),
        ({3: set()}, [3], True),
        ({5: {"PA101"}}, [3, 5], True),
        ({3: {"PA102"}}, [3], False),
        ({4: {"PA101"}}, [3, 5], False),
        ({3: {"PA102"}, 5: {"PA101"}}, [3, 5], True),
        ({}, [3], False),
    ],
)
def test_is_suppressed(by_line: dict[int, set[str]], lines: list[int], is_silent: bool) -> None:
    finding = Finding("PA101", "dataloader-no-workers", "warning", "slow", Location("a.py", 3, 1, 5, 2))
    silenced = {line: frozenset(names) for line, names in by_line.items()}
    assert is_suppressed(finding, silenced, lines) is is_silent
