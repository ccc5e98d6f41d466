"""What the project file and the command line set for the gate."""

from __future__ import annotations

from pathlib import Path

import pytest

from perfaudit.config import read_config
from perfaudit.errors import UserError
from perfaudit.gate.settings import GateSettings, baseline_in, layers_of, settings_of
from perfaudit.quantities import percent, share_of


def settings(tmp_path: Path, text: str) -> GateSettings:
    path = tmp_path / "pyproject.toml"
    path.write_text(f"[tool.perfaudit.gate]\n{text}\n")
    return settings_of(read_config(path))


def test_every_key_is_read(tmp_path: Path) -> None:
    found = settings(
        tmp_path,
        'targets = ["train.py"]\npaths = ["src"]\nagainst = "origin/main"\nbaseline = "gate.json"\n'
        'layers = ["counters", "findings"]\n'
        'max-regression = "7.5%"\ntolerate = "2 %"\nbudget = "3m"\ninconclusive = "fail"\nlink = ["data"]\n'
        "in-place = true\n"
        'counters = {operators = "1%"}',
    )
    assert found == GateSettings(
        ("train.py",), ("src",), "origin/main", "gate.json", ("findings", "counters"), 0.075, 0.02, 180.0, "fail",
        ("data",), {"operators": 0.01}, True,
    )  # fmt: skip


def test_nothing_set_is_the_default(tmp_path: Path) -> None:
    found = settings(tmp_path, "")
    assert found == GateSettings()
    assert (found.paths, found.layers, found.max_regression, found.tolerate) == ((".",), (), 0.05, 0.01)
    assert (found.budget, found.inconclusive) == (120.0, "pass")


def test_what_could_not_be_told_passes_or_fails(tmp_path: Path) -> None:
    assert [settings(tmp_path, f'inconclusive = "{word}"').inconclusive for word in ("pass", "fail")] == [
        "pass",
        "fail",
    ]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('target = ["train.py"]', "has no key 'target' (it has: against, baseline"),
        (
            'targets = "train.py"',
            "tool.perfaudit.gate.targets must be a list of strings, such as ['train.py'], it is 'train.py'",
        ),
        ('layers = ["speed"]', "layers: 'speed' is no layer of the gate; there are findings, counters, time"),
        ("max-regression = 0.05", "tool.perfaudit.gate.max-regression must be a string, it is 0.05"),
        ('max-regression = "5"', "max-regression: '5' is no percentage; write e.g. 5%"),
        (
            'tolerate = "5%"',
            "a slowdown of 5.0% never fails and one of 5.0% must be excluded for a pass: --tolerate must be",
        ),
        ('tolerate = "6%"', "--tolerate must be below --max-regression"),
        ('budget = "soon"', "budget: 'soon' is no duration"),
        ('inconclusive = "warn"', "inconclusive: 'warn' is neither pass nor fail"),
        ("in-place = 1", "tool.perfaudit.gate.in-place must be true or false, it is 1"),
        ("counters = 3", "tool.perfaudit.gate.counters must be a table ([tool.perfaudit.gate.counters]), it is 3"),
        ('counters = {operators = "lots"}', "counters: 'lots' is no percentage"),
        ('counters = {operator = "1%"}', "tool.perfaudit.gate.counters has no key 'operator' (it has: "),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(UserError) as error:
        settings(tmp_path, text)
    assert words in str(error.value)


def test_layers_come_in_their_order() -> None:
    assert layers_of(("time", "findings")) == ("findings", "time")


def test_the_usual_baseline_is_found(tmp_path: Path) -> None:
    assert baseline_in(tmp_path) == ""
    (tmp_path / "perfaudit-gate.json").touch()
    assert baseline_in(tmp_path) == "perfaudit-gate.json"


@pytest.mark.parametrize(("text", "share"), [("5%", 0.05), (" 0.5 % ", 0.005), ("100%", 1.0)])
def test_shares(text: str, share: float) -> None:
    assert share_of(text) == share


@pytest.mark.parametrize(
    ("share", "text"), [(0.05, "5 %"), (0.225, "22.5 %"), (0.0004, "0 %"), (1.0, "100 %"), (12.5, "1250 %")]
)
def test_shares_as_text(share: float, text: str) -> None:
    assert percent(share) == text


@pytest.mark.parametrize("text", ["5", "0.05", "-5%", "five%", ""])
def test_what_is_no_share(text: str) -> None:
    with pytest.raises(UserError, match="no percentage"):
        share_of(text)
