"""`perfaudit rules` and `perfaudit explain`."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import OWN_RULE, Done

from perfaudit.knobs import settled_by
from perfaudit.render import catalogue
from perfaudit.render.words import option_of_knob
from perfaudit.rules import Rule, all_rules

Run = Callable[..., Done]


def options_of_tune() -> set[str]:
    from typer.main import get_command

    from perfaudit.cli.app import application

    tune: Any = get_command(application()).commands["tune"]  # type: ignore[attr-defined]  # a group of typer
    return {option for parameter in tune.params for option in parameter.opts}


def test_rules(perfaudit: Run) -> None:
    done = perfaudit("rules")
    lines = done.out.splitlines()
    assert (done.code, done.err) == (0, "")
    assert [line.split()[:2] for line in lines[:-1]] == [[rule.id, rule.name] for rule in all_rules().values()]
    assert lines[-1] == f"{len(all_rules())} rules; `perfaudit explain PA101` shows one whole"
    assert "\x1b" not in done.out


def test_rules_as_json(perfaudit: Run) -> None:
    listed = json.loads(perfaudit("rules", "--format", "json").out)
    assert [rule["id"] for rule in listed] == list(all_rules())
    keys = {"id", "name", "title", "area", "severity", "tier", "fix", "changes", "settled_by", "reading"}
    assert all(set(rule) == keys for rule in listed)
    by_id = {rule["id"]: rule for rule in listed}
    reading: dict[str, object] = {"read": 3, "right": 0, "arguable": 3, "wrong": 0, "mended": 0, "together": 1}
    reading["where"] = "benchmarks/scan_quality.md#by-rule"
    assert (by_id["PA207"]["tier"], by_id["PA207"]["reading"]) == ("preview", reading)
    assert (by_id["PA502"]["tier"], by_id["PA502"]["reading"]) == ("stable", None)


@pytest.mark.parametrize("command", [["rules"], ["explain", "PA501"]])
def test_no_folder_puts_its_text_under_an_id_of_ours(
    perfaudit: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: list[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "PA501-no-such-thing.toml").write_text(OWN_RULE.replace("XY001", "PA501"))
    (tmp_path / "pyproject.toml").write_text('[tool.perfaudit]\nrules = ["own"]\n')
    done = perfaudit(*command)
    assert (done.code, done.out) == (2, "")
    assert "PA501-no-such-thing.toml: id 'PA501' is taken by PA501-anomaly-detection-enabled.toml" in done.err


def test_rules_of_a_folder_that_is_missing(perfaudit: Run) -> None:
    done = perfaudit("rules", "--rules", "/nonexistent")
    assert (done.code, done.err) == (2, "perfaudit: /nonexistent: cannot be read: no such folder\n")


@pytest.mark.parametrize("rule", all_rules().values(), ids=lambda rule: rule.id)
def test_explain(perfaudit: Run, rule: Rule) -> None:
    done = perfaudit("explain", rule.id)
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith(f"{rule.id} {rule.name}\n{rule.title}\n")
    assert all(source in done.out for source in rule.sources)
    of_code = rule.found_in == "code"
    assert ("\nReported\n" in done.out) == ("\nSilent\n" in done.out) == of_code
    assert (f"# perfaudit: ignore[{rule.id}] reason\n" in done.out) == of_code
    assert ("perfaudit trace FILE_OR_FOLDER" in done.out) == (not of_code)
    assert "\x1b" not in done.out
    assert perfaudit("explain", rule.name).out == perfaudit("explain", rule.id.lower()).out == done.out


@pytest.mark.parametrize("rule", all_rules().values(), ids=lambda rule: rule.id)
def test_no_measurement_is_promised_without_a_patch(perfaudit: Run, rule: Rule) -> None:
    (said,) = [line for line in perfaudit("explain", rule.id).out.splitlines() if line.startswith("measured ")]
    row = next(
        line for line in catalogue.render([rule], settled_by()).splitlines() if line.startswith(f"| [{rule.id}]")
    )
    patched = any(example.fixed is not None for example in rule.examples)
    assert (
        ("scan FILE --measure" in said)
        == ("scan --measure" in row)
        == (patched and not rule.several_processes and not rule.read_at_start)
    )
    assert ("torchrun … -m perfaudit run FILE" in said) == ("`torchrun … run`" in row) == rule.several_processes
    assert ("by `perfaudit run FILE`" in said) == ("| `run` |" in row) == rule.read_at_start
    assert ("no, for it has no patch" in said) == (not patched)
    assert ("perfaudit tune FILE --" in said) == ("`tune --" in row) == (rule.id in settled_by())


def test_an_option_that_is_named_exists() -> None:
    assert {option_of_knob(name) for name in settled_by().values()} <= options_of_tune()


def test_json_names_the_knob_that_settles_a_rule(perfaudit: Run) -> None:
    listed = json.loads(perfaudit("rules", "--format", "json").out)
    assert {rule["id"]: rule["settled_by"] for rule in listed if rule["settled_by"]} == settled_by()
    for id_, knob in (("PA402", "optimizer"), ("PA701", "")):
        assert json.loads(perfaudit("explain", id_, "--format", "json").out)["settled_by"] == knob


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nonsense"], "perfaudit: no rule is called 'nonsense'; `perfaudit rules` lists them\n"),
        (["PA10l"], "perfaudit: no rule is called 'PA10l'; did you mean "),
        (["pa10"], "perfaudit: no rule is called 'pa10'; did you mean PA101 or PA102 or PA103?"),
        (["dataloader"], "perfaudit: no rule is called 'dataloader'; did you mean dataloader-no-workers or "),
        (
            ["dataloader-no-worker"],
            "perfaudit: no rule is called 'dataloader-no-worker'; did you mean dataloader-no-workers",
        ),
        ([""], "perfaudit: no rule is called ''; `perfaudit rules` lists them\n"),
        ([], "Usage: "),
        (["PA101", "PA102"], "Usage: "),
    ],
)
def test_explain_what_is_no_rule(perfaudit: Run, arguments: list[str], message: str) -> None:
    done = perfaudit("explain", *arguments)
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith(message)


@pytest.mark.parametrize("arguments", [["--help"], ["-h"], ["scan", "--help"], ["rules", "-h"], ["explain", "--help"]])
def test_help(perfaudit: Run, arguments: list[str]) -> None:
    done = perfaudit(*arguments)
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith("Usage: ")


@pytest.mark.parametrize("arguments", [["--version"], ["-V"]])
def test_version(perfaudit: Run, arguments: list[str]) -> None:
    from perfaudit import __version__

    assert perfaudit(*arguments).out == f"perfaudit {__version__}\n"


@pytest.mark.parametrize("arguments", [[], ["frobnicate"], ["rules", "PA101"], ["--frobnicate"]])
def test_wrong_use(perfaudit: Run, arguments: list[str]) -> None:
    done = perfaudit(*arguments)
    assert done.code == 2
    assert done.err.startswith("Usage: ")


def test_a_rule_as_markdown(perfaudit: Run) -> None:
    done = perfaudit("explain", "PA204", "--format", "markdown")
    assert (done.code, done.out) == (0, catalogue.render_one(all_rules()["PA204"], "fusion"))
    assert "| measured by | `scan --measure`, `tune --fusion` |" in done.out
