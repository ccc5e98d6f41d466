"""Rules written in Python run where the user said so, as they were when the user said so, and nowhere else."""

from __future__ import annotations

import importlib.util
import io
import json
import os
import py_compile
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from conftest import OWN_RULE, Done

from perfaudit.config import Config
from perfaudit.errors import RuleFileError
from perfaudit.static import registry, rule_folder
from perfaudit.static.plan import options_of
from perfaudit.static.rule_folder import read_rule_folder
from perfaudit.static.scan import scan
from perfaudit.static.trusted_rules import TRUSTED, VARIABLE, set_trust, trust
from perfaudit.user_folder import config_folder

pytestmark = pytest.mark.usefixtures("in_this_process")

Project = Callable[..., Path]
Run = Callable[..., Done]
SETTINGS = '[tool.perfaudit]\nrules = ["mine"]\n'
CHECK = """from perfaudit.static.registry import check


@check("XY001", call="torch.ours")
def ours(source, call):
    yield call, {text}, None
"""
RUNS = f"import pathlib\npathlib.Path('ran').touch()\n{CHECK}"
BOTH = "import torch\ntorch.ours()\ntorch.autograd.set_detect_anomaly(True)\n"
NOTEBOOK = json.dumps(
    {
        "cells": [{"cell_type": "code", "metadata": {}, "outputs": [], "execution_count": None, "source": BOTH}],
        "metadata": {},
        "nbformat": 4,
        "nbformat_minor": 5,
    }
)


@pytest.fixture
def own(project: Project, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project whose settings name a folder of rules that leave a file `ran` behind, in the working directory."""
    monkeypatch.setattr(registry, "_CHECKS", list(registry.all_checks()))  # as it was, after the test
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path_factory.mktemp("config")))
    return project(
        **{
            "pyproject.toml": SETTINGS,
            "mine/XY001-no-such-thing.toml": OWN_RULE,
            "mine/no_such_thing.py": RUNS.format(text="'ours'"),
            "a.py": BOTH,
            "a.ipynb": NOTEBOOK,
        }
    )


def found(done: Done) -> list[str]:
    """The rules in a report of one line a finding."""
    return sorted(line.split()[1] for line in done.out.splitlines() if ": " in line)


def scanned(perfaudit: Run, *arguments: str) -> Done:
    return perfaudit("scan", "a.py", "--format", "concise", "--no-cache", *arguments)


# ---- where nobody said so --------------------------------------------------------------------------------------------

LEFT_OUT = (
    "perfaudit: rules of mine/ are not run: they are Python that would run, and nobody here has trusted it; read them, "
    "then: perfaudit rules trust . (or for one scan: --rules mine)\n"
)


@pytest.mark.parametrize(
    "arguments",
    [
        ["scan"],
        ["scan", "a.py"],
        ["scan", "a.ipynb"],
        ["scan", "-", "--stdin-filename", "a.py"],
        ["scan", "--force-exclude", "a.py"],  # the hook for pre-commit
        ["scan", ".", "--jobs", "2"],
        ["scan", "a.py", "--diff"],
        ["scan", "a.py", "--fix"],
    ],
)
def test_nothing_runs_that_nobody_trusts(
    own: Path, perfaudit: Run, monkeypatch: pytest.MonkeyPatch, arguments: list[str]
) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(BOTH.encode())))
    done = perfaudit(*arguments, "--no-cache")
    assert (done.err.startswith(LEFT_OUT), (own / "ran").exists()) == (True, False)
    assert "XY001" not in done.out
    assert done.code == ("--fix" not in arguments)  # PA501 is found; or was


def test_the_report_says_what_was_left_out(own: Path, perfaudit: Run) -> None:
    report = json.loads(perfaudit("scan", "a.py", "--format", "json").out)
    assert [item["rule"] for item in report["findings"]] == ["PA501"]
    (left,) = report["rules_left_out"]
    assert left == {"folder": "mine", "reason": "they are Python that would run, and nobody here has trusted it"}


@pytest.mark.parametrize(
    ("settings", "rules"),
    [
        ('select = ["PA501", "XY001"]\n', ["PA501"]),
        ('ignore = ["no-such-thing", "XY"]\n', ["PA501"]),
        ('[tool.perfaudit.severity]\nXY001 = "error"\n', ["PA501"]),
        ('[tool.perfaudit.per-file-ignores]\n"b.py" = ["XY001"]\n"a.py" = ["XY"]\n', ["PA501"]),
        ('[tool.perfaudit.per-file-ignores]\n"a.py" = ["PA501", "XY001"]\n', []),
    ],
)
def test_settings_that_name_rules_that_are_left_out(own: Path, perfaudit: Run, settings: str, rules: list[str]) -> None:
    (own / "pyproject.toml").write_text(SETTINGS + settings)
    done = scanned(perfaudit)
    assert (found(done), done.err) == (rules, LEFT_OUT)


def test_settings_that_leave_no_other_rule(own: Path, perfaudit: Run) -> None:
    (own / "pyproject.toml").write_text(SETTINGS + 'select = ["XY"]\n')
    done = scanned(perfaudit)
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith(LEFT_OUT)
    assert "no rule is left: it leaves on only rules that are not run" in done.err
    assert found(scanned(perfaudit, "--select", "PA5")) == ["PA501"]  # what is typed counts instead
    done = scanned(perfaudit, "--rules", "mine")
    assert (found(done), done.err) == (["XY001"], "")


def test_of_what_nobody_trusts_nothing_is_opened(own: Path, perfaudit: Run) -> None:
    (own / "mine" / "XY001-no-such-thing.toml").unlink()
    os.mkfifo(own / "mine" / "XY001-no-such-thing.toml")  # opening it would wait for ever
    (own / "pyproject.toml").write_text(SETTINGS + 'ignore = ["XY001"]\n')
    done = scanned(perfaudit)
    assert (found(done), done.err) == (["PA501"], LEFT_OUT)


def test_a_name_is_no_command(own: Path, perfaudit: Run) -> None:
    """The line is there to be copied into a shell, and the project chose the name in it."""
    name = "$(touch bad)\u001b[2J"
    (own / "mine").rename(own / name)
    (own / "pyproject.toml").write_text(f"[tool.perfaudit]\nrules = [{json.dumps(name)}]\n")
    done = scanned(perfaudit)
    assert "--rules '$(touch bad)␛[2J'" in done.err
    assert "\u001b" not in done.err


# ---- where the user said so ------------------------------------------------------------------------------------------


def test_a_folder_that_is_named_is_run(own: Path, perfaudit: Run) -> None:
    done = scanned(perfaudit, "--rules", "mine")
    assert (found(done), done.err, (own / "ran").exists()) == (["PA501", "XY001"], "", True)
    assert scanned(perfaudit, "--rules", "none").err == "perfaudit: none: cannot be read: no such file or directory\n"
    assert found(scanned(perfaudit, "--rules", "mine", "--isolated")) == ["PA501", "XY001"]
    (own / "pyproject.toml").unlink()
    assert "XY001  no-such-thing" in perfaudit("rules", "--rules", "mine").out
    assert perfaudit("explain", "XY001", "--rules", "mine").code == 0


def test_trusted_until_a_file_changes(own: Path, perfaudit: Run) -> None:
    done = perfaudit("rules", "trust")
    digest = read_rule_folder(own / "mine").digest
    assert done.out.splitlines() == [
        f"{own}/mine: 1 Python file, 1 other file",
        f"  digest {digest}",
        f"  {own}/mine/no_such_thing.py",
        "trusted: these files run in scans from now on, until one of them changes; perfaudit rules untrust . takes it back",
    ]
    assert perfaudit("rules", "trusted").out == f"{own}/mine: as it was trusted\n"
    done = scanned(perfaudit)
    assert (found(done), done.err) == (["PA501", "XY001"], "")
    (own / "ran").unlink()
    for change, name in (
        (lambda: (own / "mine" / "words.txt").write_text("a"), "words.txt"),  # which a rule may read
        (lambda: (own / "mine" / "no_such_thing.py").write_text("open('bad', 'w')"), "no_such_thing.py and 1 more"),
        (lambda: (own / "mine" / "words.txt").unlink(), "no_such_thing.py"),
    ):
        change()
        done = scanned(perfaudit)
        assert (found(done), (own / "ran").exists(), (own / "bad").exists()) == (["PA501"], False, False)
        said = f"perfaudit: rules of mine/ are not run: {name} changed since they were trusted; read them, then: "
        assert done.err == f"{said}perfaudit rules trust . (or for one scan: --rules mine)\n"
    assert "no_such_thing.py changed" in perfaudit("rules", "trusted").out
    (own / "mine" / "no_such_thing.py").write_text(CHECK.format(text="'new'"))
    assert perfaudit("rules", "trust", ".").code == 0
    assert "XY001 new" in scanned(perfaudit).out


def test_what_is_trusted_in_one_place_is_not_in_another(own: Path, perfaudit: Run) -> None:
    perfaudit("rules", "trust")
    own.joinpath("mine").rename(own / "mine2")
    (own / "pyproject.toml").write_text('[tool.perfaudit]\nrules = ["mine2"]\n')
    assert found(scanned(perfaudit)) == ["PA501"]
    (own / "mine").symlink_to("mine2")  # another way to a place is the same place
    (own / "pyproject.toml").write_text(SETTINGS)
    assert found(scanned(perfaudit)) == ["PA501"]


def test_untrust(own: Path, perfaudit: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    perfaudit("rules", "trust")
    assert perfaudit("rules", "untrust").out == f"no longer trusted: {own}/mine\n"
    assert found(scanned(perfaudit)) == ["PA501"]
    assert perfaudit("rules", "untrust").code == 2
    assert perfaudit("rules", "trusted").out == "no rules are trusted\n"
    perfaudit("rules", "trust")
    monkeypatch.chdir(own.parent)
    own.rename(own.parent / "gone")
    assert perfaudit("rules", "untrust", str(own)).code == 0


def test_a_project_elsewhere_that_is_trusted(own: Path, perfaudit: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where one stands does not matter: it was said of that project."""
    other = own / "elsewhere"
    other.mkdir()
    monkeypatch.chdir(other)
    done = perfaudit("scan", str(own / "a.py"), "--format", "concise", "--no-cache")
    assert "perfaudit rules trust .. (or for one scan: --rules ../mine)" in done.err
    assert perfaudit("rules", "trust", "..").code == 0
    done = perfaudit("scan", str(own / "a.py"), "--format", "concise", "--no-cache")
    assert (found(done), done.err) == (["PA501", "XY001"], "")


def test_a_digest_in_the_environment(own: Path, perfaudit: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    printed = perfaudit("rules", "trust", "--print").out
    assert found(scanned(perfaudit)) == ["PA501"]  # printing is not trusting
    variable, _, digest = printed.splitlines()[-1].removeprefix("in CI: ").partition("=")
    assert variable == VARIABLE
    for wrong in ("1", "*", "true", str(own), f"{own}/mine", digest[:-1], digest[:12], f"{digest}0"):
        monkeypatch.setenv(VARIABLE, wrong)
        assert found(scanned(perfaudit)) == ["PA501"], wrong
    monkeypatch.setenv(VARIABLE, f"{'0' * 64} {digest}")
    assert found(scanned(perfaudit)) == ["PA501", "XY001"]
    (own / "mine" / "no_such_thing.py").write_text(CHECK.format(text="'new'"))
    assert found(scanned(perfaudit)) == ["PA501"]


@pytest.mark.parametrize(
    "content", ["{", "[]", '{"schema": "x", "folders": {}}', '{"schema": 1, "folders": {"a": 3}}', "\x80"]
)
def test_a_list_that_is_damaged_trusts_nothing(own: Path, perfaudit: Run, content: str) -> None:
    perfaudit("rules", "trust")
    with config_folder() as folder:
        folder.write(TRUSTED, content.encode("latin-1"), 0o600)
    done = scanned(perfaudit)
    assert (found(done), (own / "ran").exists()) == (["PA501"], False)
    assert "is damaged" in done.err
    assert "nothing is trusted" in done.err
    assert perfaudit("rules", "trusted").code == 2
    assert perfaudit("rules", "trust").code == 0
    assert found(scanned(perfaudit)) == ["PA501", "XY001"]


def test_a_list_that_others_can_write_to_trusts_nothing(own: Path, perfaudit: Run) -> None:
    perfaudit("rules", "trust")
    with config_folder() as folder:
        (folder.path / TRUSTED).chmod(0o666)
    done = scanned(perfaudit)
    assert (found(done), "is open to other users" in done.err) == (["PA501"], True)


def test_nothing_to_trust(own: Path, perfaudit: Run) -> None:
    (own / "pyproject.toml").write_text("[tool.perfaudit]\n")
    assert "nothing would run" in perfaudit("rules", "trust").err
    assert "no such folder" in perfaudit("rules", "trust", "nowhere").err


# ---- the bytes that were read are those that run ---------------------------------------------------------------------


def test_the_bytes_that_were_read_are_run(own: Path) -> None:
    folder = read_rule_folder(own / "mine")
    (own / "mine" / "no_such_thing.py").write_text("raise SystemExit('the other text')")
    (own / "mine" / "XY001-no-such-thing.toml").unlink()
    for processes in (1, 2):
        options = replace(options_of(Config(), ["XY001"], folders=(folder,)), processes=processes)
        (own / "b.py").write_text(BOTH)
        report = scan(["a.py", "b.py"], options)
        assert [finding.message for finding in report.findings] == ["ours", "ours"]


def test_byte_code_beside_a_rule_is_not_run(own: Path, perfaudit: Run) -> None:
    """Byte code that says not to compare it with its source, and byte code without any."""
    bad = own / "bad.py"
    bad.write_text("import pathlib\npathlib.Path('bad').touch()\n")
    mode = py_compile.PycInvalidationMode.UNCHECKED_HASH
    py_compile.compile(str(bad), importlib.util.cache_from_source("mine/no_such_thing.py"), invalidation_mode=mode)
    py_compile.compile(str(bad), importlib.util.cache_from_source("mine/helper.py"), invalidation_mode=mode)
    py_compile.compile(str(bad), "mine/other.pyc", invalidation_mode=mode)
    (own / "mine" / "helper.py").write_text("WORD = 'helped'\n")
    text = "from .helper import WORD\n" + CHECK.format(text="WORD")
    (own / "mine" / "no_such_thing.py").write_text(text)
    assert "XY001 helped" in scanned(perfaudit, "--rules", "mine").out
    (own / "mine" / "no_such_thing.py").write_text("from . import other\n" + text)
    done = scanned(perfaudit, "--rules", "mine")
    assert (done.code, (own / "bad").exists()) == (2, False)


def test_files_of_the_folder_are_served_as_they_were_read(own: Path) -> None:
    (own / "mine" / "inside").mkdir()
    (own / "mine" / "inside" / "deep.py").write_text("from ..words import WORD\n")
    (own / "mine" / "words.py").write_text("WORD = 'read'\n")
    (own / "mine" / "words.txt").write_text("text")
    text = "import pkgutil\nfrom .inside import deep\nMORE = pkgutil.get_data(__package__, 'words.txt').decode()\n"
    (own / "mine" / "no_such_thing.py").write_text(text + CHECK.format(text="deep.WORD + MORE + __file__"))
    folder = read_rule_folder(own / "mine")
    for name in ("words.py", "words.txt", "inside/deep.py"):
        (own / "mine" / name).write_text("raise SystemExit\n")
    report = scan(["a.py"], options_of(Config(), ["XY001"], folders=(folder,)))
    assert [f.message for f in report.findings] == [f"readtext{own}/mine/no_such_thing.py"]


OUTSIDE = "is neither installed nor in the folder of the rule"


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("import outside_helper", OUTSIDE),
        ("from outside_helper import x", OUTSIDE),
        ("import importlib; importlib.import_module('outside_helper')", OUTSIDE),
        ("import outside_package.part", OUTSIDE),
        ("import sys; sys.path.insert(0, 'deeper'); import deep_helper", OUTSIDE),
        ("from .. import outside_helper", "cannot import name 'outside_helper' from 'perfaudit_user_rules'"),
        ("from ..outside_helper import x", "a rule imports nothing from above its own folder"),
    ],
)
def test_a_rule_imports_nothing_of_the_project(
    own: Path, perfaudit: Run, monkeypatch: pytest.MonkeyPatch, line: str, message: str
) -> None:
    for file in ("outside_helper.py", "outside_package/part.py", "deeper/deep_helper.py"):
        (own / file).parent.mkdir(exist_ok=True)
        (own / file).write_text("import pathlib\npathlib.Path('bad').touch()\n")
    monkeypatch.syspath_prepend(str(own))
    (own / "mine" / "no_such_thing.py").write_text(f"{line}\n{CHECK.format(text=repr('ours'))}")
    done = scanned(perfaudit, "--rules", "mine")
    assert (own / "bad").exists() is False
    assert (done.code, message in done.err, "XY001" in done.out) == (2, True, False)
    (own / "mine" / "no_such_thing.py").write_text(
        CHECK.format(text="later()") + f"\ndef later():\n    {line}\n    return ''\n"
    )
    done = scanned(perfaudit, "--rules", "mine", "--format", "json")  # while the check runs
    assert (own / "bad").exists() is False
    assert message in done.out
    assert importlib.util.find_spec("outside_helper") is not None  # for everybody else it is there


def test_what_python_has_is_not_taken_from_the_project(own: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`python -m perfaudit` has the working directory first on the path."""
    (own / "wave.py").write_text("import pathlib\npathlib.Path('bad').touch()\n")
    (own / "mine" / "no_such_thing.py").write_text("import wave\n" + CHECK.format(text="''"))
    monkeypatch.syspath_prepend(str(own))
    monkeypatch.delitem(sys.modules, "wave", raising=False)
    with pytest.raises(RuleFileError, match=OUTSIDE):
        options_of(Config(), folders=(read_rule_folder(own / "mine"),))
    assert not (own / "bad").exists()


# ---- folders of something else ---------------------------------------------------------------------------------------


def test_a_folder_of_rules_holds_files(own: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patching:
        patching.setattr(rule_folder, "MAX_FILES", 2)
        assert len(read_rule_folder(own / "mine").files) == 2
        (own / "mine" / "more").write_text("")
        with pytest.raises(RuleFileError, match="more than 2 files"):
            read_rule_folder(own / "mine")
        patching.setattr(rule_folder, "MAX_FILES", 10)
        patching.setattr(rule_folder, "MAX_BYTES", 10)
        with pytest.raises(RuleFileError, match="more than 10 files"):
            read_rule_folder(own / "mine")
    before = read_rule_folder(own / "mine").digest
    for left_out in (".hidden", "__pycache__/a.pyc", ".git/HEAD"):
        (own / "mine" / left_out).parent.mkdir(exist_ok=True)
        (own / "mine" / left_out).write_text("x")
    assert read_rule_folder(own / "mine").digest == before
    (own / "mine" / "link.py").symlink_to("../a.py")
    with pytest.raises(RuleFileError, match=r"link\.py: is a link"):
        read_rule_folder(own / "mine")
    (own / "mine" / "link.py").unlink()
    os.mkfifo(own / "mine" / "pipe.py")
    with pytest.raises(RuleFileError, match=r"pipe\.py: is no regular file"):
        read_rule_folder(own / "mine")


def test_names_and_contents_cannot_be_confused(own: Path) -> None:
    digests = set()
    for name, text in (("ab", "c"), ("a", "bc"), ("a", "b"), ("b", "a")):
        folder = own / "rules" / name
        folder.parent.mkdir(exist_ok=True)
        folder.write_text(text)
        digests.add(read_rule_folder(own / "rules").digest)
        folder.unlink()
    assert len(digests) == 4


def test_what_a_user_trusts_is_theirs_alone(own: Path) -> None:
    set_trust([read_rule_folder(own / "mine")])
    with config_folder() as folder:
        assert (folder.path / TRUSTED).stat().st_mode & 0o777 == 0o600
    assert list(trust().folders) == [str(own / "mine")]


def test_a_rule_may_be_a_folder_with_modules_of_its_own(own: Path, perfaudit: Run) -> None:
    folder = own / "mine" / "no_such_thing"
    folder.mkdir()
    (own / "mine" / "no_such_thing.py").rename(folder / "__init__.py")
    (folder / "__init__.py").write_text("from .words import WORD\n" + CHECK.format(text="WORD"))
    (folder / "words.py").write_text("WORD = 'from the file beside it'\n")
    assert "from the file beside it" in scanned(perfaudit, "--rules", "mine").out


@pytest.mark.parametrize(("text", "says"), [("1 / 0\n", "cannot be imported"), ("WORD = 1\n", "registers no check")])
def test_a_rule_that_is_a_folder_is_named_by_its_file(own: Path, perfaudit: Run, text: str, says: str) -> None:
    folder = own / "mine" / "no_such_thing"
    folder.mkdir()
    (own / "mine" / "no_such_thing.py").unlink()
    (folder / "__init__.py").write_text(text)
    done = scanned(perfaudit, "--rules", "mine")
    assert done.code == 2
    assert f"{folder / '__init__.py'}: {says}" in done.err.replace("it registers", "registers")
