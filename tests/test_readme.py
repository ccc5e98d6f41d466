"""What the README shows is what the commands print."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from perfaudit.rules import all_rules
from perfaudit.static import registry

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_report_of_a_scan(perfaudit: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    command = re.search(r"`perfaudit (scan sample_models/\S+ --select \S+)`:\n\n((?:    .*\n|\n)+)", README)
    assert command, "the README shows a scan of a sample model"
    monkeypatch.chdir(ROOT)
    done = perfaudit(*command[1].split(), "--no-cache")
    shown = "".join(line[4:] if line.strip() else "\n" for line in command[2].splitlines(keepends=True)).rstrip("\n")
    assert [line.rstrip() for line in done.out.splitlines()] == [line.rstrip() for line in shown.splitlines()]


def test_the_number_of_rules() -> None:
    areas = dict(re.findall(r"^\| (PA\d) [^|]*\| (\d+) \|", README, flags=re.MULTILINE))
    counted = {area: sum(id_.startswith(area) for id_ in all_rules()) for area in areas}
    assert {area: int(n) for area, n in areas.items()} == counted
    assert sum(counted.values()) == len(all_rules())
    assert f"{len(all_rules())} rules read code" in README


def test_names_of_rules_exist() -> None:
    table = README.partition("| area | rules | for example |")[2].partition("\n\n")[0]
    names = set(re.findall(r"`([a-z0-9-]+)`", table))
    assert names
    assert names <= {rule.name for rule in all_rules().values()}


def test_the_speed_is_that_of_the_benchmark() -> None:
    result = json.loads((ROOT / "benchmarks" / "scan_speed.json").read_text())
    row = max(result["folders"], key=lambda folder: folder["files"])
    for words in (
        f"{row['files']:,} files",
        f"{row['tools']['perfaudit cold, 1 process']['cpu_s']:.1f} s",
        f"{row['tools']['perfaudit warm']['cpu_s']:.1f} s",
        f"{row['tools']['ast.parse']['cpu_s']:.1f} s",
    ):
        assert words in README, words


def test_the_rule_in_the_documentation_works(
    perfaudit: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = (ROOT / "docs" / "scan.md").read_text(encoding="utf-8").partition("## Rules of your own")[2]
    blocks = re.findall(r"(?:^(?: {4}.*)?\n)+", page, flags=re.MULTILINE)
    code = ["".join(line[4:] or "\n" for line in b.splitlines(keepends=True)) for b in blocks if b.strip()]
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "XY001-no-such-thing.toml").write_text(code[0])
    (tmp_path / "mine" / "no_such_thing.py").write_text(code[1])
    (tmp_path / "pyproject.toml").write_text('[tool.perfaudit]\nrules = ["mine"]\n')
    (tmp_path / "a.py").write_text("import torch\ntorch.ours()\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(registry, "_CHECKS", list(registry.all_checks()))  # as it was, after the test
    done = perfaudit("scan", "a.py", "--format", "concise", "--no-cache")
    assert done.out == "a.py:2:1: XY001 `torch.ours` copies every tensor twice\n", done.err
