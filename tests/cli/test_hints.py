"""Hints: findings that are true and hardly worth a change are left out, counted, and reported where somebody asks."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import Done

pytestmark = pytest.mark.usefixtures("in_this_process")

Run = Callable[..., Done]
Project = Callable[..., Path]

HINT = "import torch\nx = torch.zeros(3).cuda()\n"  # PA105 in code that runs once
HOT = """import torch


def noise(x):
    return torch.zeros(len(x)).cuda()


def train(loader, model, optimizer):
    for x in loader:
        model(x, noise(x)).backward()
        optimizer.step()
"""


def severities(done: Done) -> list[str]:
    return [finding["severity"] for finding in json.loads(done.out)["findings"]]


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        ((), []),
        (("--severity", "info"), []),
        (("--severity", "hint"), ["hint"]),
        (("--select", "PA1"), []),
        (("--select", "PA105"), ["hint"]),
        (("--select", "tensor-built-on-host"), ["hint"]),
        (("--select", "PA105", "--severity", "info"), []),
        (("--severity", "error"), []),
    ],
)
def test_a_hint_is_reported_where_it_is_asked_for(
    project: Project, perfaudit: Run, arguments: tuple[str, ...], shown: list[str]
) -> None:
    project(**{"a.py": HINT})
    done = perfaudit("scan", "a.py", "--format", "json", *arguments)
    assert severities(done) == shown
    assert json.loads(done.out)["hints_left_out"] == 1 - len(shown)
    assert done.code == bool(shown)


def test_settings_that_name_its_rule_show_it_and_no_severity_moves_it_up(project: Project, perfaudit: Run) -> None:
    folder = project(**{"a.py": HINT, "pyproject.toml": '[tool.perfaudit.severity]\nPA105 = "error"\n'})
    assert severities(perfaudit("scan", "a.py", "--format", "json")) == []
    (folder / "pyproject.toml").write_text(
        '[tool.perfaudit]\nselect = ["PA105"]\n[tool.perfaudit.severity]\nPA1 = "error"\n'
    )
    assert severities(perfaudit("scan", "a.py", "--format", "json")) == ["hint"]


def test_the_report_counts_what_it_leaves_out(project: Project, perfaudit: Run) -> None:
    project(**{"a.py": HINT})
    done = perfaudit("scan", "a.py")
    assert done.out == "nothing found in 1 file\n1 hint left out (--severity hint shows them)\n"


def test_a_helper_that_the_step_calls_is_no_hint(project: Project, perfaudit: Run) -> None:
    project(**{"a.py": HOT})
    done = perfaudit("scan", "a.py", "--format", "json")
    assert severities(done) == ["warning"]
    assert "on every step" in json.loads(done.out)["findings"][0]["message"]


def test_only_what_is_reported_is_fixed(project: Project, perfaudit: Run) -> None:
    folder = project(**{"a.py": HINT})
    perfaudit("scan", "a.py", "--fix")
    assert (folder / "a.py").read_text() == HINT
    perfaudit("scan", "a.py", "--fix", "--select", "PA105")
    assert (folder / "a.py").read_text() == 'import torch\nx = torch.zeros(3, device="cuda")\n'


def test_a_baseline_knows_hints_where_they_were_asked_for(project: Project, perfaudit: Run) -> None:
    """The same statement may stand in a loop one day; then it is new, unless somebody accepted it."""
    project(**{"a.py": HINT})
    known = ("--baseline", "known.json")
    assert "0 findings accepted" in perfaudit("scan", "a.py", *known, "--update-baseline").err
    assert severities(perfaudit("scan", "a.py", *known, "--format", "json", "--severity", "hint")) == ["hint"]
    assert "1 finding accepted" in perfaudit("scan", "a.py", *known, "--update-baseline", "--severity", "hint").err
    done = perfaudit("scan", "a.py", *known, "--format", "json")
    assert json.loads(done.out)["baseline"] == {"known": 1, "gone": 0}
