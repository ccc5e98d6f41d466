"""`[tool.perfaudit]`, which rules are on, and suppression comments."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from perfaudit.config import Config, apply_config, find_config, named_target, read_config, selected_rules, start_of
from perfaudit.errors import ConfigError
from perfaudit.findings import Finding, Location, Severity
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
            rules = ["perf_rules"]
            tests = true
            [tool.perfaudit.per-file-ignores]
            "scripts/*.py" = ["PA6"]
            [tool.perfaudit.severity]
            PA2 = "error"
            [tool.perfaudit.target]
            file = "train.py"
            model = "make"
            [tool.perfaudit.targets]
            small = "train.py --epochs 1"
            """
        }
    )
    path = path / "pyproject.toml"
    expected = Config(
        path,
        select=("PA1",),
        ignore=("PA102",),
        exclude=("old/",),
        rule_folders=("perf_rules",),
        per_file_ignores=(("scripts/*.py", ("PA6",)),),
        severity=(("PA2", "error"),),
        tests=True,
        target={"file": "train.py", "model": "make"},
        targets={"small": "train.py --epochs 1"},
    )
    assert read_config(path) == expected


def test_a_target_by_its_name(project: Project) -> None:
    here = project(**{"pyproject.toml": '[tool.perfaudit.targets]\nsmall = "train.py -n 1"\n', "sub/x.py": ""})
    config = find_config(here)
    assert named_target(config, "small", here) == "train.py -n 1"
    assert named_target(config, "large", here) is None
    with pytest.raises(ConfigError, match="is relative to its folder: run the command there"):
        named_target(config, "small", here / "sub")
    (here / "small").touch()
    with pytest.raises(ConfigError, match=r"lies here too: write \./small for what lies here"):
        named_target(config, "small", here)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("x = ", ["not valid TOML: Invalid value (at end of document)"]),
        ("tool = 3", ["tool must be a table ([tool])", "3"]),
        ("tool.perfaudit = 'on'", ["tool.perfaudit must be a table ([tool.perfaudit])", "'on'"]),
        (
            "[tool.perfaudit]\nselects = []",
            ["tool.perfaudit has no key 'selects'", "exclude, gate, ignore, per-file-ignores"],
        ),
        ("[tool.perfaudit]\nselect = 'PA1'", ["tool.perfaudit.select", "'PA1'"]),
        ("[tool.perfaudit]\nignore = [1]", ["tool.perfaudit.ignore[0]", "1"]),
        ("[tool.perfaudit]\nexclude = {}", ["tool.perfaudit.exclude", "{}"]),
        ("[tool.perfaudit]\nexclude = ['a', '!']", ["tool.perfaudit.exclude", "'!'", ".gitignore"]),
        ("[tool.perfaudit]\nrules = 'mine'", ["tool.perfaudit.rules", "'mine'"]),
        ("[tool.perfaudit]\ntests = 1", ["tool.perfaudit.tests", "true or false", "1"]),
        (
            "[tool.perfaudit]\nseverity = 1",
            ["tool.perfaudit.severity must be a table ([tool.perfaudit.severity])", "1"],
        ),
        (
            "[tool.perfaudit.severity]\nPA1 = 'bad'",
            ["tool.perfaudit.severity.PA1", "error, warning, info, hint", "'bad'"],
        ),
        ("[tool.perfaudit]\ntarget = 'x'", ["tool.perfaudit.target must be a table ([tool.perfaudit.target])", "'x'"]),
        ("[tool.perfaudit.per-file-ignores]\n'a.py' = 'PA1'", ["tool.perfaudit.per-file-ignores['a.py']", "'PA1'"]),
        ("[tool.perfaudit.per-file-ignores]\n'!' = []", ["tool.perfaudit.per-file-ignores", "'!'", ".gitignore"]),
        (
            "[tool.perfaudit.target]\nmodels = 'make'",
            ["tool.perfaudit.target", "'models'", "dataloader, ema, file, model"],
        ),
        (
            "[tool.perfaudit.targets]\n'train.py' = 'train.py'",
            ["tool.perfaudit.targets['train.py']", "of a Python file"],
        ),
        ("[tool.perfaudit.targets]\nsmall = '-m'", ["tool.perfaudit.targets.small", "as after `python`"]),
        ('[tool.perfaudit.targets]\nsmall = "train.py \'a"', ["tool.perfaudit.targets.small", "no closing quotation"]),
        ("[tool.perfaudit.targets]\nsmall = 1", ["tool.perfaudit.targets.small", "a string", "1"]),
        ("[tool.perfaudit.target]\nmodel = 1", ["tool.perfaudit.target.model", "a string", "1"]),
    ],
)
def test_errors_name_file_and_key(project: Project, text: str, names: list[str]) -> None:
    path = project(**{"pyproject.toml": text}) / "pyproject.toml"
    with pytest.raises(ConfigError) as caught:
        read_config(path)
    said = re.sub(r"\.toml:\d+: ", ".toml: ", str(caught.value))  # which line: tests/cli/test_bad_input.py
    assert said.startswith(f"{path}: {names[0]}")
    assert [name for name in names if name not in said] == []


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
    # A project file that does not speak of perfaudit is passed.
    assert find_config(folder / "a" / "b").select == ("PA1",)
    nearer = folder / "a" / "pyproject.toml"
    nearer.write_text("x = ")  # nor does one that is no TOML
    assert find_config(folder / "a" / "b").select == ("PA1",)
    for text in ("[tool.perfaudit]", '[tool."perf\\u0061udit"]'):
        nearer.write_text(text)
        assert find_config(folder / "a" / "b") == Config(nearer)


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
    assert selected_rules(RULES, select, ignore, config) == set(on.split())


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
        selected_rules(RULES, select, ignore, config)
    assert str(caught.value) == message


def finding(rule: str = "PA101", path: str = "train.py") -> Finding:
    return Finding(rule, all_rules()[rule].name, "warning", "slow", Location(path, 3, 1, 5, 2))


@pytest.mark.parametrize(
    ("pattern", "names", "path", "is_reported"),
    [
        ("*.py", ["PA101"], "train.py", False),
        ("train.py", ["PA1"], "a/train.py", False),
        ("/train.py", ["PA1"], "a/train.py", True),
        ("scripts/", ["dataloader-no-workers"], "scripts/a/b.py", False),
        ("*.py", ["PA2"], "train.py", True),
        ("*.py", ["PA1"], "../other/train.py", True),
    ],
)
def test_per_file_ignores(
    project: Project, pattern: str, names: list[str], path: str, is_reported: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = project()
    monkeypatch.chdir(folder)
    config = Config(folder / "pyproject.toml", per_file_ignores=((pattern, tuple(names)),))
    assert bool(apply_config([finding(path=path)], config, RULES)) is is_reported


@pytest.mark.parametrize(
    ("severity", "level"),
    [
        ((), "warning"),
        ((("PA101", "error"),), "error"),
        ((("PA1", "info"), ("PA101", "error")), "error"),
        ((("PA101", "error"), ("PA1", "info")), "error"),  # whatever the order in the file
        ((("dataloader-no-workers", "info"),), "info"),
        ((("PA2", "error"),), "warning"),
    ],
)
def test_severity(severity: tuple[tuple[str, Severity], ...], level: str) -> None:
    (left,) = apply_config([finding()], Config(Path("p.toml"), severity=severity), RULES)
    assert left.severity == level


def test_names_in_tables_must_mean_a_rule() -> None:
    with pytest.raises(ConfigError, match=r"tool\.perfaudit\.severity\]: no rule is called 'PA9X'"):
        apply_config([], Config(Path("p.toml"), severity=(("PA9X", "info"),)), RULES)
    with pytest.raises(ConfigError, match=r"per-file-ignores\] a\.py: no rule is called 'no-such'"):
        apply_config([], Config(Path("p.toml"), per_file_ignores=(("a.py", ("no-such",)),)), RULES)


def test_folders_of_rules_lie_beside_the_project_file(project: Project) -> None:
    folder = project(**{"perf_rules/a.toml": ""})
    config = Config(folder / "pyproject.toml", rule_folders=("perf_rules", "perf_rules"))
    assert config.own_rule_folders() == (folder / "perf_rules",)
    with pytest.raises(ConfigError, match="rules: no such folder"):
        Config(folder / "pyproject.toml", rule_folders=("none",)).own_rule_folders()


def test_where_configuration_is_looked_for(project: Project) -> None:
    folder = project(**{"a/x.py": "", "a/b/y.py": "", "a/pyproject.toml": ""})
    assert start_of([str(folder / "a/x.py"), str(folder / "a/b")]) == folder / "a"
    assert start_of([str(folder / "a/b/y.py")]) == folder / "a/b"
