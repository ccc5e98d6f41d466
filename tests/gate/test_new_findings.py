"""Layer 1: what is new is called, what moved is not, and what could not be read is never fine."""

from __future__ import annotations

import importlib.util
import os
import py_compile
from dataclasses import replace
from pathlib import Path

import pytest
from conftest import OWN_RULE
from git_repository import Repository, settled

from perfaudit.config import Config, find_config
from perfaudit.errors import ConfigError, RuleFileError, UserError
from perfaudit.findings import Finding
from perfaudit.gate.gitref import checked_out
from perfaudit.gate.new_findings import Judged, against_known, against_ref
from perfaudit.report import Report
from perfaudit.static import registry
from perfaudit.static.baseline import as_known
from perfaudit.static.plan import options_of
from perfaudit.static.rule_folder import read_rule_folder
from perfaudit.static.scan import scan
from perfaudit.static.trusted_rules import VARIABLE, set_trust
from perfaudit.verdicts import FindingsVerdict

pytestmark = pytest.mark.usefixtures("in_this_process")

ANOMALY = "import torch\ntorch.autograd.set_detect_anomaly(True)\n"
LOOP = """import torch

model = torch.nn.Linear(4, 1).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)


def train(loader):
    total = 0.0
    for x, y in loader:
        loss = (model(x.cuda()) - y.cuda()).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return total


if __name__ == "__main__":
    train([])
"""
WITH_ITEM = LOOP.replace("        optimizer.step()\n", "        optimizer.step()\n        total += loss.item()\n")


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Repository:
    settled(monkeypatch, tmp_path / "temporary")
    made = Repository(tmp_path / "project")
    monkeypatch.chdir(made.folder)
    return made


def judged(ref: str = "HEAD", *paths: str, working: Path | None = None, **changes: object) -> Judged:
    here = working or Path.cwd()
    with checked_out(ref, here) as reference:
        found = against_ref(replace(reference, **changes), paths or ["."], find_config(here))  # type: ignore[arg-type]
        assert Path.cwd() == here
        return found


def places(found: tuple[Finding, ...]) -> list[tuple[str, str, int]]:
    return [(f.rule, f.location.path, f.location.line) for f in found if f.location]


def numbers(verdict: FindingsVerdict) -> tuple[str, int, int, int]:
    return verdict.verdict, verdict.new, verdict.known, verdict.gone


def test_an_item_in_the_loop_is_called_with_its_line(repository: Repository) -> None:
    repository.commit(**{"train.py": LOOP})
    verdict, new, report = judged()
    assert (verdict.verdict, verdict.new, new) == ("pass", 0, ())
    known = verdict.known
    repository.write(**{"train.py": WITH_ITEM})
    verdict, new, report = judged()
    assert numbers(verdict) == ("regressed", 1, known, 0)
    assert places(new) == [("PA601", "train.py", 14)]
    assert (report.command, report.findings, report.files) == ("gate", new, 1)
    repository.commit()
    repository.write(**{"train.py": LOOP})
    assert numbers(judged()[0]) == ("pass", 0, known, 1)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({"a.py": ANOMALY}, {"a.py": "# moved\n\n" + ANOMALY.replace("(True)", "( True )")}),
        ({"a.py": ANOMALY}, {"lib/b.py": ANOMALY}),  # renamed, into another folder
        ({"a.py": ANOMALY, "b.py": "import torch\n"}, {"a.py": "import torch\n", "b.py": ANOMALY}),  # a statement moved
        ({"a.py": ANOMALY}, {"a.py": ANOMALY, "b.py": "import torch\n"}),
        ({"a.py": ANOMALY + ANOMALY}, {"a.py": ANOMALY + ANOMALY}),
    ],
)
def test_what_moved_is_not_new(repository: Repository, before: dict[str, str], after: dict[str, str]) -> None:
    repository.commit(**before)
    for name in before:
        Path(name).unlink()
    repository.write(**after)
    verdict, new, _ = judged()
    assert new == ()
    assert numbers(verdict) == ("pass", 0, len(before["a.py"].splitlines()) // 2, 0)


HINT = "import torch\nx = torch.zeros(3).cuda()\n"
IN_A_LOOP = """import torch

for batch in loader:
    x = torch.zeros(3).cuda()
    model(batch, x).backward()
"""


def test_a_hint_is_not_new_until_it_is_in_the_loop(repository: Repository) -> None:
    repository.commit(**{"a.py": "import torch\n"})
    repository.write(**{"a.py": HINT})
    assert numbers(judged()[0]) == ("pass", 0, 0, 0)
    repository.commit()
    repository.write(**{"a.py": IN_A_LOOP})
    assert [finding.rule for finding in judged()[1]] == ["PA105"]


def test_a_finding_of_a_preview_rule_is_not_new(repository: Repository) -> None:
    repository.commit(**{"a.py": "import torch\n"})
    repository.write(**{"a.py": "import torch\nx = y\nwhile more():\n    x = torch.cat([x, y])\n"})  # PA207
    assert numbers(judged()[0]) == ("pass", 0, 0, 0)


LOADER = "import torch\nloader = torch.utils.data.DataLoader(dataset, batch_size=%s, shuffle=True)\n"


def test_a_statement_that_was_edited_is_not_new(repository: Repository) -> None:
    repository.commit(**{"a.py": LOADER % 32, "b.py": WITH_ITEM})
    known = judged()[0].known
    repository.write(**{"a.py": LOADER % 64, "b.py": WITH_ITEM.replace("total += loss", "total += 2 * loss")})
    assert numbers(judged()[0]) == ("pass", 0, known, 0)
    repository.write(**{"b.py": WITH_ITEM.replace("total += loss.item()", "print(loss.mean().item())")})  # another one
    assert numbers(judged()[0]) == ("regressed", 1, known - 1, 1)
    repository.write(**{"a.py": LOADER % 64 + LOADER % 64, "b.py": WITH_ITEM})
    assert {path for _, path, _ in places(judged()[1])} == {"a.py"}


LOADER = """import torch
from torch.utils.data import DataLoader

loader = DataLoader(%s)
for batch in loader:
    model(batch.cuda(non_blocking=True)).backward()
"""


@pytest.mark.parametrize(
    ("before", "after", "new"),
    [
        ("ds, 64", "ds, 64, pin_memory=True", []),
        ("ds, 64", "ds, 64, num_workers=4", []),
        ("ds, 64", "ds, 32", []),
        ("ds, 64, num_workers=4", "ds, 64", ["PA101"]),
        ("ds, 64, num_workers=4, pin_memory=True", "ds, 64", ["PA101"]),
    ],
)
def test_a_loader_that_got_half_of_its_fix_is_not_new(
    repository: Repository, before: str, after: str, new: list[str]
) -> None:
    """Two rules speak as one where both apply to a loader; the gate compares rule by rule."""
    repository.commit(**{"train.py": LOADER % before})
    repository.write(**{"train.py": LOADER % after})
    _, seen, _ = judged()
    assert [finding.rule for finding in seen] == new


def test_a_file_that_moved_and_gained_one(repository: Repository) -> None:
    repository.commit(**{"a.py": ANOMALY})
    Path("a.py").unlink()
    repository.write(**{"b.py": ANOMALY + "torch.autograd.set_detect_anomaly(mode=True)\n"})
    verdict, new, _ = judged()
    assert numbers(verdict) == ("regressed", 1, 1, 0)
    assert places(new) == [("PA501", "b.py", 3)]


def test_a_copy_is_no_move(repository: Repository) -> None:
    repository.commit(**{"a.py": ANOMALY})
    repository.write(**{"b.py": ANOMALY})
    assert places(judged()[1]) == [("PA501", "b.py", 2)]


def test_a_file_that_came_from_outside_the_paths(repository: Repository) -> None:
    repository.commit(**{"old/a.py": ANOMALY, "src/b.py": "import torch\n"})
    Path("old/a.py").rename("src/a.py")
    assert numbers(judged("HEAD", "src")[0]) == ("pass", 0, 1, 0)


def test_below_the_top_and_a_folder_that_is_new(repository: Repository, monkeypatch: pytest.MonkeyPatch) -> None:
    repository.commit(**{"sub/a.py": ANOMALY})
    repository.write(**{"later/c.py": ANOMALY})
    monkeypatch.chdir("sub")
    assert numbers(judged()[0]) == ("pass", 0, 1, 0)
    assert numbers(judged("HEAD", "a.py", "../sub", os.path.abspath("a.py"))[0]) == ("pass", 0, 1, 0)  # noqa: PTH100
    monkeypatch.chdir("../later")
    assert places(judged()[1]) == [("PA501", "c.py", 2)]
    with pytest.raises(UserError, match="/: outside the repository"):
        judged("HEAD", "/")
    with pytest.raises(UserError, match=r"none\.py: does not exist"):
        judged("HEAD", "none.py")


def test_the_configuration_of_the_code_as_it_is_holds_for_both(repository: Repository) -> None:
    repository.commit(**{"a.py": "import torch\n", "legacy/b.py": "import torch\n"})
    repository.write(**{"a.py": ANOMALY, "legacy/b.py": ANOMALY})
    assert len(judged()[1]) == 2
    repository.write(**{"pyproject.toml": '[tool.perfaudit]\nexclude = ["/legacy"]\n'})
    assert places(judged()[1]) == [("PA501", "a.py", 2)]
    repository.write(**{"pyproject.toml": '[tool.perfaudit.per-file-ignores]\n"a.py" = ["PA501"]\n'})
    assert places(judged()[1]) == [("PA501", "legacy/b.py", 2)]
    repository.write(**{"pyproject.toml": '[tool.perfaudit]\nignore = ["PA501"]\n'})
    assert numbers(judged()[0]) == ("pass", 0, 0, 0)


def test_excluded_and_ignored_before_as_now(repository: Repository) -> None:
    settings = '[tool.perfaudit]\nexclude = ["/legacy"]\n[tool.perfaudit.per-file-ignores]\n"a.py" = ["PA501"]\n'
    repository.commit(**{"a.py": ANOMALY, "legacy/b.py": ANOMALY, "pyproject.toml": settings})
    assert numbers(judged()[0]) == ("pass", 0, 0, 0)


def test_a_comment_silences_and_taking_it_away_speaks(repository: Repository) -> None:
    silenced = ANOMALY.replace("(True)", "(True)  # perfaudit: ignore[PA501] a test of anomalies")
    repository.commit(**{"a.py": "import torch\n"})
    repository.write(**{"a.py": silenced})
    assert numbers(judged()[0]) == ("pass", 0, 0, 0)
    repository.commit()
    repository.write(**{"a.py": ANOMALY})
    assert places(judged()[1]) == [("PA501", "a.py", 2)]


def test_a_file_that_no_longer_parses_is_no_pass(repository: Repository) -> None:
    repository.commit(**{"a.py": ANOMALY, "b.py": "import torch\n", "template.py": "import torch {{ name }}\n"})
    verdict, _, report = judged()
    assert (verdict.verdict, verdict.known, verdict.lost) == ("pass", 1, "")  # as it was before
    assert verdict.reason.startswith("not audited: template.py (")
    repository.write(**{"a.py": "import torch\ndef (:\n"})
    verdict, new, report = judged()
    assert (verdict.verdict, verdict.gone, new) == ("failed", 0, ())  # what it held is not gone
    assert verdict.reason.startswith("could be audited before: a.py (")
    assert [skipped.path for skipped in report.skipped] == ["a.py", "template.py"]
    assert verdict.lost == verdict.reason
    repository.write(**{"b.py": ANOMALY})
    worse = judged()[0]
    assert (worse.verdict, worse.new, worse.lost) == ("regressed", 1, verdict.lost)  # not forgotten over the other


def test_a_file_that_parses_again_is_not_all_new(repository: Repository) -> None:
    repository.commit(**{"a.py": "def (:\n" + ANOMALY})
    repository.write(**{"a.py": ANOMALY})
    verdict, new, report = judged()
    assert (verdict.verdict, new, report.notes) == ("inconclusive", (), ())
    assert verdict.reason.startswith("a.py: 1 finding is not judged: the reference's could not be audited (")
    repository.write(**{"b.py": ANOMALY})
    verdict, new, report = judged()
    assert (verdict.verdict, len(new), len(report.notes)) == ("regressed", 1, 1)


def test_a_submodule_that_the_reference_lacks_is_not_all_new(repository: Repository) -> None:
    repository.commit(**{"a.py": "import torch\n"})
    repository.write(**{"lib/x.py": ANOMALY})
    verdict, new, report = judged(missing=("lib",))
    assert (verdict.verdict, new, report.notes) == ("inconclusive", (), ())
    assert verdict.reason == "lib/x.py: 1 finding is not judged: the reference's submodule is not here"


def test_nothing_to_scan(repository: Repository) -> None:
    repository.commit(README="")
    verdict, new, _ = judged()
    assert (verdict.verdict, verdict.reason, new) == ("not_judged", "no Python files in .", ())
    repository.write(**{"a.py": "def (:\n"})
    assert judged("HEAD", "a.py")[0].verdict == "failed"  # there is one, and nothing is known of it


def test_a_notebook(repository: Repository) -> None:
    cell = '{"cell_type": "code", "execution_count": null, "metadata": {}, "outputs": [], "source": [%s]}'
    lines = '"import torch\\n", "torch.autograd.set_detect_anomaly(%s)"'
    book = '{"cells": [' + cell % lines + '], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}'
    repository.commit(**{"a.ipynb": book % "False"})
    repository.write(**{"a.ipynb": book % "True"})
    found = judged()[1]
    assert [(f.rule, f.location.cell, f.location.line) for f in found if f.location] == [("PA501", 1, 2)]


def test_against_a_file(repository: Repository) -> None:
    repository.write(**{"a.py": ANOMALY, "b.py": ANOMALY})
    config = Config()
    known = as_known(scanned().findings)
    assert numbers(against_known(known, ["."], config)[0]) == ("pass", 0, 2, 0)
    verdict, new, _ = against_known(known[:1], ["."], config)  # edited by hand: one is missing
    assert (numbers(verdict), places(new)) == (("regressed", 1, 1, 0), [("PA501", "b.py", 2)])
    assert numbers(against_known(known, ["a.py"], config)[0]) == ("pass", 0, 1, 0)  # b.py was not looked at
    Path("a.py").rename("c.py")
    assert numbers(against_known(known, ["."], config)[0]) == ("pass", 0, 2, 0)
    repository.write(**{"b.py": "import torch\ndef (:\n"})
    assert numbers(against_known(known, ["."], config)[0])[:2] == ("failed", 0)
    repository.write(**{"b.py": "import torch\n"})
    assert numbers(against_known(known, ["."], config)[0]) == ("pass", 0, 1, 1)


# ---- rules of the project's own --------------------------------------------------------------------------------------

SETTINGS = '[tool.perfaudit]\nrules = ["mine"]\n'
CHECK = """import pathlib
from perfaudit.static.registry import check
with pathlib.Path({ran!r}).open("a") as ran:
    ran.write({text!r})


@check("XY001", call="torch.ours")
def ours(source, call):
    yield call, "ours", None
"""
OURS = "import torch\ntorch.ours()\n"


@pytest.fixture
def ran(repository: Repository, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file into which the rules write that they were run; the project has rules of its own."""
    monkeypatch.setattr(registry, "_CHECKS", list(registry.all_checks()))  # as it was, after the test
    file = repository.folder.parent / "ran"
    file.write_text("")
    repository.commit(
        **{
            "pyproject.toml": SETTINGS,
            "mine/XY001-no-such-thing.toml": OWN_RULE,
            "mine/no_such_thing.py": CHECK.format(ran=str(file), text="old;"),
            "a.py": "import torch\n",
        }
    )
    set_trust([read_rule_folder(repository.folder / "mine")])
    return file


def test_rules_that_the_reference_holds_are_run(repository: Repository, ran: Path) -> None:
    repository.write(**{"a.py": OURS})
    verdict, new, report = judged()
    assert (places(new), verdict.verdict, report.notes) == ([("XY001", "a.py", 2)], "regressed", ())
    assert ran.read_text() == "old;"


NOT_RUN = "rules of mine/ are not run: this change adds or edits them"


@pytest.mark.parametrize(
    "change",
    [
        {"mine/no_such_thing.py": "import pathlib\npathlib.Path('bad').write_text('')\n"},
        {"mine/helper.py": "x = 1\n"},
        {"mine/XY001-no-such-thing.toml": OWN_RULE.replace("warning", "error")},
    ],
)
def test_rules_that_the_change_edits_are_not_run(repository: Repository, ran: Path, change: dict[str, str]) -> None:
    repository.write(**{"a.py": OURS + "torch.autograd.set_detect_anomaly(True)\n", **change})
    _, new, report = judged()
    assert (places(new), report.notes) == ([("PA501", "a.py", 3)], (NOT_RUN,))
    assert (ran.read_text(), Path("bad").exists()) == ("", False)


def test_byte_code_that_the_change_brings_is_not_run(repository: Repository, ran: Path) -> None:
    """Byte code that says not to compare it with its source; that is run from the folder of the reference alone."""
    bad = repository.folder.parent / "bad.py"
    bad.write_text("import pathlib\npathlib.Path('bad').write_text('')\n")
    cached = importlib.util.cache_from_source("mine/no_such_thing.py")
    py_compile.compile(str(bad), cached, invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH)
    repository.write(**{"a.py": OURS})
    assert places(judged()[1]) == [("XY001", "a.py", 2)]
    assert (ran.read_text(), Path("bad").exists()) == ("old;", False)


def test_rules_that_the_change_adds_are_not_run(repository: Repository, ran: Path) -> None:
    repository.commit(**{"pyproject.toml": "[tool.perfaudit]\n", "a.py": OURS})  # a folder that nobody names
    repository.write(**{"pyproject.toml": SETTINGS})
    _, new, report = judged()
    assert (new, report.notes, ran.read_text()) == ((), (NOT_RUN,), "")


def test_rules_that_nobody_trusts_are_not_run(repository: Repository, ran: Path) -> None:
    """The reference of a hostile clone is hostile too, and holds its rules alike."""
    mine = repository.folder / "mine"
    set_trust(remove=[str(mine)])
    repository.write(**{"a.py": OURS})
    _, new, report = judged()
    assert (new, ran.read_text()) == ((), "")
    (note,) = report.notes
    assert note == (
        "rules of mine/ are not run: they are Python that would run, and nobody here has trusted it; read them, then: "
        "perfaudit rules trust ."
    )
    assert [item.folder for item in report.rules_left_out] == ["mine"]


def test_a_digest_that_is_trusted_does_not_stand_for_the_reference(
    repository: Repository, ran: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A change may bring the digest with its rules, where the digest is kept in the repository too."""
    repository.write(**{"a.py": OURS, "mine/more.py": ""})
    monkeypatch.setenv(VARIABLE, read_rule_folder(repository.folder / "mine").digest)
    _, new, report = judged()
    assert (new, report.notes, ran.read_text()) == ((), (NOT_RUN,), "")


@pytest.mark.parametrize(
    "helped",
    [
        "import helper\n",
        "import sys, pathlib\nsys.path.insert(0, str(pathlib.Path(__file__).parents[1]))\nimport helper\n",
        "import importlib\nhelper = importlib.import_module('helper')\n",
        "from .. import helper\n",
    ],
)
def test_what_a_rule_would_import_from_the_change(
    repository: Repository, ran: Path, monkeypatch: pytest.MonkeyPatch, helped: str
) -> None:
    """The folder is as the reference has it, and the change edits a file beside it that the rule imports."""
    monkeypatch.syspath_prepend(str(repository.folder))  # as `python -m perfaudit` has it
    text = (repository.folder / "mine" / "no_such_thing.py").read_text()
    repository.commit(**{"mine/no_such_thing.py": helped + text, "helper.py": "x = 1\n"})
    set_trust([read_rule_folder(repository.folder / "mine")])
    repository.write(**{"helper.py": "import pathlib\npathlib.Path('bad').touch()\n"})
    with pytest.raises(RuleFileError, match=r"cannot be imported: (ImportError|ModuleNotFoundError): "):
        judged()
    assert (ran.read_text(), Path("bad").exists()) == ("", False)


def test_what_a_rule_reads_beside_itself_is_the_references(repository: Repository, ran: Path) -> None:
    check = "import pathlib\nWORD = (pathlib.Path(__file__).parents[1] / 'word.txt').read_text()\n"
    text = (repository.folder / "mine" / "no_such_thing.py").read_text().replace('"ours"', "WORD")
    repository.commit(**{"mine/no_such_thing.py": check + text, "word.txt": "as it was"})
    set_trust([read_rule_folder(repository.folder / "mine")])
    repository.write(**{"word.txt": "as the change has it", "a.py": OURS})
    assert [finding.message for finding in judged()[1]] == ["as it was"]


def test_a_link_that_leads_from_the_reference_to_the_change(repository: Repository, ran: Path) -> None:
    """Both folders hold the same, because they are the same folder: that of the change."""
    repository.git("mv", "mine", "really")
    (repository.folder / "mine").symlink_to(repository.folder / "really")
    repository.commit()
    set_trust([read_rule_folder(repository.folder / "mine")])
    repository.write(**{"a.py": OURS})
    _, new, report = judged()
    assert (new, report.notes, ran.read_text()) == ((), (NOT_RUN,), "")


def test_a_file_says_nothing_of_rules(repository: Repository, ran: Path) -> None:
    repository.write(**{"a.py": OURS})
    verdict, new, report = against_known((), ["."], find_config(Path.cwd()))
    assert (verdict.verdict, new, ran.read_text()) == ("pass", (), "")
    assert report.notes[0].startswith("rules of mine/ are not run: a file does not tell whether")


@pytest.mark.parametrize(
    ("settings", "verdict"),
    [
        ('select = ["XY"]\n', "not_judged"),
        ('select = ["PA501", "XY001"]\n', "regressed"),
        ('select = ["PA501", "XY001"]\nignore = ["PA5"]\n', "not_judged"),
        ('ignore = ["no-such-thing"]\n', "regressed"),
        ('[tool.perfaudit.severity]\nXY001 = "error"\nPA501 = "info"\n', "regressed"),
        ('[tool.perfaudit.per-file-ignores]\n"b.py" = ["XY001", "PA501"]\n"a.py" = ["XY"]\n', "regressed"),
        ('[tool.perfaudit.per-file-ignores]\n"a.py" = ["XY001", "PA501"]\n', "pass"),
    ],
)
def test_settings_that_name_rules_that_are_not_run(
    repository: Repository, ran: Path, settings: str, verdict: str
) -> None:
    repository.write(**{"pyproject.toml": SETTINGS + settings, "a.py": ANOMALY, "mine/more.py": ""})
    assert judged()[0].verdict == verdict
    said, _, _ = against_known((), ["a.py"], find_config(Path.cwd()))
    assert said.verdict == verdict
    assert (said.verdict == "not_judged") == said.reason.startswith("no rule is left: rules of mine/ are not run")


def test_a_name_that_no_rule_has_is_still_wrong(repository: Repository, ran: Path) -> None:
    repository.write(**{"pyproject.toml": SETTINGS + 'select = ["ZZ1"]\n', "mine/more.py": ""})
    with pytest.raises(ConfigError, match="no rule is called 'ZZ1'"):
        judged()


def scanned() -> Report:
    return scan(["."], options_of(Config()))
