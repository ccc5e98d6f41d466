"""What the README and `docs/` show is what the commands print, and what records say."""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import create_autospec

import pytest

ROOT = Path(__file__).parent.parent
if not (ROOT / "benchmarks").exists():
    pytest.skip("the benchmarks are not in this distribution", allow_module_level=True)

sys.path.insert(0, str(ROOT / "benchmarks"))

import calibration_pictures  # noqa: E402
import demonstration  # noqa: E402  # it stands in that folder
import page_figures as figures  # noqa: E402
import report_picture  # noqa: E402
import script_demonstration  # noqa: E402

from perfaudit.findings import CHANGES, Expected, Saving  # noqa: E402
from perfaudit.measure import folder  # noqa: E402
from perfaudit.measurements import Calibration, Comparison, Environment, Trial  # noqa: E402
from perfaudit.rank import sort_findings  # noqa: E402
from perfaudit.report import Report  # noqa: E402
from perfaudit.rules import all_rules  # noqa: E402
from perfaudit.static import registry  # noqa: E402
from perfaudit.target.names import Target  # noqa: E402

PAGES = figures.pages()


def test_the_report_of_a_scan(perfaudit: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    block = re.search(
        r"```console\n\$ perfaudit (scan sample_models/\S+ --select \S+)\n\n(.*?)```", PAGES["docs/scan.md"], re.DOTALL
    )
    assert block, "the page shows a scan of a sample model"
    monkeypatch.chdir(ROOT)
    done = perfaudit(*block[1].split(), "--no-cache")
    shown = block[2].rstrip("\n").splitlines()
    assert [line.rstrip() for line in done.out.splitlines()] == [line.rstrip() for line in shown]


def test_every_figure_is_that_of_its_source() -> None:
    assert figures.problems(PAGES) == []


def test_any_figure_that_is_changed_is_found() -> None:
    """One digit of every piece, another one: the source must be named, or else the test above holds nothing."""
    for words, source in figures.ties():
        pattern = re.compile(figures.pattern_of(words))
        where = [name for name, text in PAGES.items() if pattern.search(text)]
        assert where, words
        for digit in list(re.finditer(r"\d", words))[:40:3]:
            changed = dict(PAGES)
            for name in where:
                for match in reversed(list(pattern.finditer(PAGES[name]))):
                    another = _with_another_digit(match[0], words, digit)
                    changed[name] = changed[name][: match.start()] + another + changed[name][match.end() :]
            assert figures.broken_ties(changed, [(words, source)]) == [f"{source} says: {words}"], digit


def _with_another_digit(text: str, words: str, digit: re.Match[str]) -> str:
    """A piece as it stands on a page, the same digit of it another one."""
    count = len(re.findall(r"\d", words[: digit.start()]))
    at = [match.start() for match in re.finditer(r"\d", text)][count]
    return text[:at] + str((int(text[at]) + 1) % 10) + text[at + 1 :]


@pytest.mark.parametrize(
    ("page", "old", "new", "problem"),
    [
        ("docs/tune.md", "Nineteen knobs", "Sixteen knobs", "the code says: Nineteen knobs"),
        ("README.md", "## Install\n", "## Install\n\nIt is 3 times as fast.\n", "3 is tied to no record"),
        ("docs/results.md", "## How right", "It is three times as fast.\n\n## How right", "three is tied to no record"),
        ("README.md", "Apache-2.0", "Apache", "take it out of EXEMPT"),
    ],
)
def test_what_is_added_or_left_out_is_found(page: str, old: str, new: str, problem: str) -> None:
    assert old in PAGES[page]
    assert any(problem in found for found in figures.problems({**PAGES, page: PAGES[page].replace(old, new)}))


def test_the_readme_is_short() -> None:
    assert len(PAGES["README.md"].splitlines()) < 150


def test_each_change_that_a_patch_may_make_is_explained_with_the_option_that_allows_it() -> None:
    from perfaudit.cli import tune

    table = PAGES["docs/tune.md"].partition("## What a patch may change")[2].partition("\n## ")[0]
    helped = Path(tune.__file__).read_text().partition("patches of a climb may change:")[2].partition("default:")[0]
    for change in CHANGES:
        assert any(f"`{change}`" in line.split("|")[1] for line in table.splitlines() if line.startswith("|")), change
        assert change in helped


def test_the_readme_leads_to_every_page() -> None:
    links = set(re.findall(r"\]\((docs/[\w/-]+\.md)", PAGES["README.md"]))
    assert set(PAGES) - {"README.md", "docs/index.md"} <= links


def test_the_picture_is_that_of_its_record() -> None:
    assert report_picture.PICTURE.read_text(encoding="utf-8") == report_picture.picture(), (
        "run: python benchmarks/report_picture.py --write"
    )
    assert "http" not in report_picture.picture().replace("http://www.w3.org/2000/svg", "")


def test_pictures_of_measurements_are_those_of_their_records() -> None:
    for name, drawn in calibration_pictures.pictures().items():
        assert (calibration_pictures.PICTURES / name).read_text(encoding="utf-8") == drawn, (
            f"{name}: run: python benchmarks/calibration_pictures.py --write"
        )
        assert f"(pictures/{name})" in PAGES["docs/results.md"]


@pytest.mark.parametrize("page", sorted(PAGES))
def test_rules_that_are_named_exist(page: str) -> None:
    named = set(re.findall(r"PA\d{3}\b", PAGES[page])) - {"PA999"}  # a rule that is to be written
    assert named <= set(all_rules())


def test_names_of_rules_exist() -> None:
    table = PAGES["docs/scan.md"].partition("| area | rules | for example |")[2].partition("\n\n")[0]
    names = set(re.findall(r"`([a-z0-9-]+)`", table))
    assert names
    assert names <= {rule.name for rule in all_rules().values()}


def test_the_record_says_what_its_report_says() -> None:
    record = json.loads((ROOT / "benchmarks" / "demonstration.json").read_text(encoding="utf-8"))
    report = "\n".join(record["report"])
    for saving in record["savings"].values():
        if saving["low"] > 0 and saving["clock"] == "wall":
            assert f"saves {100 * saving['low']:.1f} to {100 * saving['high']:.1f} % of the step" in report


def test_what_the_demonstration_shows_of_a_report() -> None:
    lines = [
        "x on cpu",
        "",
        "a step takes 1 s",
        "noise: 1 %",
        "",
        "dataloader",
        "",
        "patched source against",
        "  PA501",
        "",
    ]
    pays = ["MEASURED: these pay here", "", "  1  a.py", ""]
    shown = demonstration.shown_lines([*lines, *pays, "NOT MEASURED: x", "", "  2  b.py"])
    assert shown == ["a step takes 1 s", "noise: 1 %", "", "patched source against", "  PA501", "", *pays]
    with pytest.raises(SystemExit, match="run it on a calmer machine"):
        demonstration.shown_lines([*lines, "NOT MEASURED: x"])


def test_a_record_is_made_of_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without measuring: what the command would have measured is made up."""
    from perfaudit.tune import price

    def measured(target: Target, report: Report, *rest: Any) -> Report:
        assert str(target) == demonstration.SAMPLE
        saving = Saving("measured", 0.61, 0.7, 0.1, expected=Expected("benchmarked", 0.37, 0.48))
        findings = tuple(f.with_(saving=saving) if f.rule == "PA501" else f for f in report.findings)
        compared = Comparison("patch", {"patch": "none"}, {"patch": "PA501"}, 0.35, 0.3, 0.39, "faster", 12)
        seen = Environment("cpu", "3.11.7", "Linux", 2, 1 << 33, "2.14.0+cpu")
        calm = Calibration(0.2, 1.0, 0.01, 1.0, 4, True, {"forward": 0.2})
        tried = (Trial("patch", {"patch": "PA501"}, "ok", n=12),)
        return report.with_(
            findings=sort_findings(findings), trials=tried, comparisons=(compared,), environment=seen, calibration=calm
        )

    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(price, "price", create_autospec(price.price, side_effect=measured))
    monkeypatch.setattr(folder, "measuring", lambda folder: contextlib.nullcontext())
    record = demonstration.measured_record()
    assert record["savings"] == {"PA501": {"low": 0.61, "high": 0.7, "clock": "wall", "rounds": 12}}
    assert (record["versions"], record["device"].split("-")[0]) == ("torch 2.14.0", "2")
    shown = "\n".join(demonstration.shown_lines(record["report"]))
    assert (
        "saves 61.0 to 70.0 % of the step, 100.00 ms a step (measured; more than the 37 to 48 % that our own run saved)"
        in " ".join(shown.split())
    )
    assert "PA402" not in shown


def test_a_new_record_is_written_everywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "docs").mkdir()
    shutil.copy(ROOT / demonstration.PAGE, tmp_path / "docs")
    record = json.loads(demonstration.RECORD.read_text(encoding="utf-8"))
    record["load"], record["seconds"], record["versions"] = [0.1, 0.9], 301, "torch 2.14.0"
    monkeypatch.setattr(demonstration, "ROOT", tmp_path)
    monkeypatch.setattr(demonstration, "RECORD", tmp_path / "record.json")
    demonstration.write(record)
    assert json.loads((tmp_path / "record.json").read_text(encoding="utf-8")) == record
    before, after = PAGES[demonstration.PAGE], (tmp_path / demonstration.PAGE).read_text(encoding="utf-8")
    assert "(torch 2.14.0, load 0.1 before and 0.9 after, 301 s)" in " ".join(after.split())
    assert after.partition(demonstration.BEGIN)[0] == before.partition(demonstration.BEGIN)[0]
    assert after.partition(demonstration.END)[2] == before.partition(demonstration.END)[2]


def test_a_new_record_of_the_script_is_written_into_the_tutorial(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "docs").mkdir()
    shutil.copy(ROOT / script_demonstration.PAGE, tmp_path / "docs")
    record = json.loads(script_demonstration.RECORD.read_text(encoding="utf-8"))
    record["versions"] = "torch 2.14.0"
    monkeypatch.setattr(script_demonstration, "ROOT", tmp_path)
    monkeypatch.setattr(script_demonstration, "RECORD", tmp_path / "record.json")
    monkeypatch.setattr(report_picture, "RECORD", tmp_path / "record.json")
    monkeypatch.setattr(report_picture, "PICTURE", tmp_path / "docs" / "pictures" / "tune.svg")
    script_demonstration.write(record)
    before, after = PAGES[script_demonstration.PAGE], (tmp_path / script_demonstration.PAGE).read_text(encoding="utf-8")
    assert after == before.replace("torch 2.13.0, ", "torch 2.14.0, ") != before
    assert report_picture.PICTURE.is_file()


def test_the_rule_in_the_documentation_works(
    perfaudit: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    section = PAGES["docs/scan.md"].partition("## Rules of your own")[2]
    code = re.findall(r"^```(?:toml|python)\n(.*?)^```$", section, flags=re.MULTILINE | re.DOTALL)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "XY001-no-such-thing.toml").write_text(code[0])
    (tmp_path / "mine" / "no_such_thing.py").write_text(code[1])
    (tmp_path / "pyproject.toml").write_text('[tool.perfaudit]\nrules = ["mine"]\n')
    (tmp_path / "a.py").write_text("import torch\ntorch.ours()\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(registry, "_CHECKS", list(registry.all_checks()))  # as it was, after the test
    assert perfaudit("rules", "trust").code == 0
    done = perfaudit("scan", "a.py", "--format", "concise", "--no-cache")
    assert done.out == "a.py:2:1: XY001 `torch.ours` copies every tensor twice\n", done.err
