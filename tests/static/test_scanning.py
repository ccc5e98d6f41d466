"""A scan of folders: tests left out, files that cannot matter, several processes, user rules."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from perfaudit import forked_work
from perfaudit.errors import RuleFileError
from perfaudit.rules import all_rules
from perfaudit.static import registry
from perfaudit.static import scan as scanning
from perfaudit.static.audit import Audited
from perfaudit.static.rule_folder import read_rule_folder
from perfaudit.static.scan import Options, scan, scan_bytes

Project = Callable[..., Path]
BAD = "import torch\nloader = torch.utils.data.DataLoader(dataset)\n"


def places(folder: Path, **options: object) -> list[str]:
    report = scan([str(folder)], Options(frozenset({"PA101"}), **options))  # type: ignore[arg-type]  # checked at run time
    return [finding.location.path for finding in report.findings if finding.location]


@pytest.mark.parametrize(
    ("name", "text", "is_test"),
    [
        ("train.py", BAD, False),
        ("test.py", BAD, False),  # evaluates the model
        ("test_net.py", BAD, False),  # so does this one, by its text
        ("test_net.py", "import pytest\n" + BAD, True),
        ("test_net.py", BAD + "def test_it(): ...\n", True),
        ("test_net.py", BAD + "async def test_it(): ...\n", True),
        ("test_net.py", BAD + "class TestNet:\n    def test_it(\n        self\n    ): ...\n", True),
        ("test_net.py", BAD + "def main():\n    def test_it(net): ...\n", False),  # which pytest would not run
        ("net_test.py", "from unittest import TestCase\n" + BAD, True),
        ("tests/helper.py", BAD, True),
        ("a/tests/b/helper.py", BAD, True),
        ("test/run.py", BAD, False),
        ("test/run.py", "import unittest\n" + BAD, True),
        ("conftest.py", "import pytest\n" + BAD, True),
        ("contests/run.py", BAD, False),
    ],
)
def test_test_files_are_read_on_request(project: Project, name: str, text: str, is_test: bool) -> None:
    folder = project(**{name: text})
    assert places(folder) == ([] if is_test else [name])
    assert places(folder, tests=True) == [name]
    assert scan([name], Options(frozenset({"PA101"}))).findings  # a named file is read
    assert scan([str(folder)]).tests_left_out == is_test


def test_a_folder_of_tests_that_is_named_is_read(project: Project) -> None:
    folder = project(**{"tests/helper.py": BAD})
    assert places(folder / "tests") == ["tests/helper.py"]


LOOP = """
    from net import build, device
    model, optimizer, loader = build()
    for x, y in loader:
        loss = model(x.cuda()).mean()
        loss.backward()
        optimizer.step()
        print(loss.item())
"""


def test_a_file_without_torch_is_read_for_what_it_imports(project: Project) -> None:
    folder = project(**{"train.py": LOOP, "net.py": "import torch\n"})
    assert [f.rule for f in scan([str(folder)], Options(frozenset({"PA601"}))).findings] == ["PA601"]
    (folder / "net.py").write_text("import math\n")
    assert scan([str(folder)], Options(frozenset({"PA601"}))).findings == ()


AVERAGE = """
    def update(average, model):
        for old, new in zip(average.parameters(), model.parameters()):
            old.data = 0.99 * old.data + 0.01 * new.data
"""


def test_a_file_without_torch_is_read_for_who_imports_it(project: Project) -> None:
    folder = project(**{"ema.py": AVERAGE, "train.py": "import torch\nfrom ema import update\nupdate(old, new)\n"})
    assert [f.rule for f in scan([str(folder)], Options(frozenset({"PA404"}))).findings] == ["PA404"]
    (folder / "train.py").write_text("import math\nfrom ema import update\nupdate(old, new)\n")
    assert scan([str(folder)], Options(frozenset({"PA404"}))).findings == ()


def test_children_find_of_every_rule_what_this_process_finds(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    found = [(rule.id, example.text) for rule in all_rules().values() for example in rule.examples if example.lines]
    examples = dict(reversed(found))  # the first of each rule
    folder = project(**{f"{rule}/train.py": text for rule, text in examples.items()})
    in_children = scan([str(folder)], Options(processes=2))
    monkeypatch.setattr(forked_work, "can_fork", lambda: False)
    assert scan([str(folder)]) == in_children
    assert len({finding.rule for finding in in_children.findings}) > len(examples) / 2


def test_several_processes_find_the_same(project: Project) -> None:
    folder = project(**{f"m{n}/train.py": BAD + f"x = {n}\n" for n in range(40)}, **{"bad.py": "import torch\nx = ("})
    alone = scan([str(folder)], Options(processes=1))
    assert scan([str(folder)], Options(processes=3)) == alone
    assert len([f for f in alone.findings if f.rule == "PA101"]) == 40


def test_a_process_that_dies_names_its_file(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = project(**{f"m{n}.py": BAD for n in range(6)})
    real = scanning.audit_file

    def dying(path: Path, *rest: object) -> Audited:
        if path.name == "m3.py":
            os._exit(9)
        return real(path, *rest)  # type: ignore[arg-type]  # handed on as they came

    monkeypatch.setattr(scanning, "audit_file", dying)  # the processes are forked, so they have it
    report = scan([str(folder)], Options(frozenset({"PA101"}), processes=2))
    assert [(item.path, "died" in item.reason) for item in report.skipped] == [("m3.py", True)]
    assert len(report.findings) == 5


def test_a_check_that_fails_costs_itself_only(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = project(**{"a.py": "import torch\n", "b.py": BAD + "torch.zeros(3)\n"})

    def broken(*_: object) -> list[registry.Seen]:
        raise AttributeError("no flag")

    registry.all_checks()
    item = registry.Check("PA105", broken, ("torch.zeros",), ())
    monkeypatch.setattr(registry, "_CHECKS", [*registry._CHECKS, item])
    report = scan([str(folder)])
    assert [item.path for item in report.skipped] == ["b.py"]
    assert report.skipped[0].reason.startswith("PA105 failed at line 3 (AttributeError: no flag): a bug of perfaudit")
    assert "PA101" in {finding.rule for finding in report.findings}


def test_bytes_that_are_no_file(project: Project) -> None:
    project(**{"data.py": "from torch.utils.data import DataLoader\nclass Loader(DataLoader): pass\n"})
    report, document = scan_bytes(b"import torch\nfrom data import Loader\nl = Loader(ds)\n", "new/../train.py")
    assert [f.location and f.location.path for f in report.findings if f.rule == "PA101"] == ["train.py"]
    assert document is not None
    report, document = scan_bytes(b"import torch\n\xff", "train.py")
    assert (document, [item.path for item in report.skipped]) == (None, ["train.py"])


RULE = """
    id = "XY001"
    name = "no-such-thing"
    title = "A thing of ours"
    area = "input"
    severity = "warning"
    fix = "none"
    why = "Because."
    sources = ["https://example.org"]
    [[example]]
    bad = "import torch\\ntorch.ours()"
    lines = [2]
    [[example]]
    good = "import torch"
"""
CHECK = """
    from perfaudit.static.registry import Seen, check
    @check("XY001", call="torch.ours")
    def no_such_thing(source, call):
        yield Seen(call, "`torch.ours` is slow")
"""


@pytest.fixture
def own_checks(monkeypatch: pytest.MonkeyPatch) -> None:
    """The registry as it was, after the test."""
    monkeypatch.setattr(registry, "_CHECKS", list(registry.all_checks()))
    registry.catalogue.cache_clear()


@pytest.mark.usefixtures("own_checks")
def test_rules_of_the_users_own(project: Project) -> None:
    folder = project(
        **{
            "mine/XY001-no-such-thing.toml": RULE,
            "mine/no_such_thing.py": CHECK,
            "src/a.py": "import torch\ntorch.ours()\n",
        }
    )
    report = scan([str(folder / "src")], Options(rule_folders=(read_rule_folder(folder / "mine"),)))
    assert [(f.rule, f.name, f.message) for f in report.findings] == [
        ("XY001", "no-such-thing", "`torch.ours` is slow")
    ]


@pytest.mark.usefixtures("own_checks")
@pytest.mark.parametrize(
    ("files", "problem"),
    [
        ({"XY001-no-such-thing.toml": RULE}, "its check is missing"),
        ({"XY001-no-such-thing.toml": RULE, "no_such_thing.py": "1/0"}, "ZeroDivisionError"),
        ({"XY001-no-such-thing.toml": RULE, "no_such_thing.py": "x = 1"}, "it registers no check for XY001"),
        ({"PA101-no-such-thing.toml": RULE.replace("XY001", "PA101")}, "id 'PA101' is taken by PA101-"),
        ({"XY001-no-such-thing.toml": RULE + "color = 3"}, r"XY001-no-such-thing\.toml:\d+: key"),
        ({}, "no rule files in"),
    ],
)
def test_rules_that_are_wrong(project: Project, files: dict[str, str], problem: str) -> None:
    folder = project(**{f"mine/{name}": text for name, text in files.items()}, **{"mine/x": "", "a.py": BAD})
    with pytest.raises(RuleFileError, match=problem):
        scan([str(folder)], Options(rule_folders=(read_rule_folder(folder / "mine"),)))
