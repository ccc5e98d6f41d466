"""What a program imports of perfaudit: functions that return reports, also once the packages of their names are imported."""

from __future__ import annotations

import importlib
import inspect
import pydoc
import subprocess
import sys
from pathlib import Path

import pytest
from made_traces import Host, step_of_training

import perfaudit
from perfaudit.errors import UserError
from perfaudit.report import Report
from perfaudit.script.observe import Seen


def made_trace(path: Path) -> str:
    host = Host()
    for _ in range(4):
        with host.step():
            host.next_batch(12_000, workers=False)
            step_of_training(host)
            host.catch_up()
    return str(host.write(path))


def test_traces_are_read(tmp_path: Path) -> None:
    path = made_trace(tmp_path / "a.json")
    for _ in range(2):  # the first call has imported `perfaudit.trace`
        report = perfaudit.trace([path])
        assert [finding.rule for finding in report.findings] == ["PA101"]
    assert report.traces is not None
    assert perfaudit.trace([path], window=(2, 3)).traces.ranks[0].steps == 2  # type: ignore[union-attr]  # it was read
    with pytest.raises(UserError, match="no such file"):
        perfaudit.trace([str(tmp_path / "b.json")])


def test_the_machine_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("perfaudit.machine.checks.look_at", lambda place: [place.has_bandwidth])
    assert perfaudit.doctor(bandwidth=False).machine == (False,)


@pytest.mark.parametrize("name", sorted(perfaudit.FUNCTIONS))
def test_a_function_is_called_whether_or_not_its_package_was_imported(name: str) -> None:
    program = (
        f"import perfaudit\nperfaudit.FUNCTIONS[{name!r}] = lambda *args, **kwargs: (args, kwargs)\n"
        f"import perfaudit.{name}\nassert perfaudit.{name}(1, b=2) == ((1,), {{'b': 2}})\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


@pytest.mark.parametrize("name", ["tune", "gate", "trace"])
def test_help_has_the_arguments_of_a_function_once_its_package_is_imported(name: str) -> None:
    importlib.import_module(f"perfaudit.{name}")
    package = getattr(perfaudit, name)
    function = perfaudit.FUNCTIONS[name]
    assert package is not function
    assert inspect.signature(package) == inspect.signature(function)
    shown = pydoc.plain(pydoc.render_doc(package))
    assert f"{name}(" in shown
    assert (function.__doc__ or "").splitlines()[0] in shown
    assert all(f"{argument}: " in shown for argument in inspect.signature(function).parameters)


def test_importing_perfaudit_imports_nothing_else() -> None:
    program = "import sys, perfaudit\nassert not [name for name in sys.modules if name.startswith('perfaudit.')]"
    subprocess.run([sys.executable, "-c", program], check=True)


SLOW = "import torch\n\ntorch.autograd.set_detect_anomaly(True)\n"


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    path = Path("train.py")
    path.write_text(SLOW)
    return path


def test_one_path_is_one_and_not_its_characters(script: Path) -> None:
    for paths in ("train.py", script, [script], ["train.py"]):
        assert [finding.rule for finding in perfaudit.scan(paths).findings] == ["PA501"]


def test_settings_of_the_project_count(script: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("pyproject.toml").write_text('[tool.perfaudit]\nignore = ["PA501"]\n')
    assert perfaudit.scan(script).findings == ()
    assert perfaudit.fix(script).notes == ("nothing to fix",)
    assert script.read_text() == SLOW
    assert capsys.readouterr() == ("", "")


def test_fixes_are_written_and_what_is_left_is_reported(script: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report = perfaudit.fix("train.py")
    assert script.read_text() == SLOW.replace("True", "False")
    assert (report.findings, report.notes) == ((), ("train.py: 1 fixed",))
    assert perfaudit.fix("train.py").notes == ("nothing to fix",)
    assert capsys.readouterr() == ("", "")
    with pytest.raises(UserError, match="--allow speed: no fix changes that; fixes change rounding"):
        perfaudit.fix("train.py", allow=["speed"])


@pytest.mark.parametrize(
    ("asked", "limits"), [({}, (0, 20.0)), ({"steps": 5}, (5, 0.0)), ({"steps": 5, "seconds": 3.0}, (5, 3.0))]
)
def test_a_script_is_run(
    script: Path, monkeypatch: pytest.MonkeyPatch, asked: dict[str, int], limits: tuple[int, float]
) -> None:
    seen = []

    def observe(request: object, *_: object) -> Seen:
        seen.append(request)
        found = Seen(0.0)
        found.ended = "finished"
        return found

    monkeypatch.setattr("perfaudit.script.observe.observe", observe)
    report = perfaudit.run(script, ["--epochs", "1"], in_place=True, **asked)
    assert (seen[0].script.arguments, seen[0].steps, seen[0].seconds) == (("--epochs", "1"), *limits)
    assert report.run is not None
    assert (report.command, report.target, report.run.counted) == ("run", "train.py --epochs 1", 0)
    assert report.run.message == "Seen: no batch of a DataLoader and no backward pass."
    with pytest.raises(UserError, match=r"no\.py: no such file"):
        perfaudit.run("no.py")


@pytest.mark.parametrize(
    ("asked", "knobs", "allow"),
    [
        ({}, None, {"rounding"}),
        ({"allow": ["safe"]}, None, set()),
        ({"knobs": ["memory-format"]}, ["memory_format"], None),
        ({"knobs": ["ema"], "allow": ["rng"]}, ["ema"], {"rng"}),
    ],
)
def test_a_script_is_tuned(
    script: Path,
    monkeypatch: pytest.MonkeyPatch,
    asked: dict[str, list[str]],
    knobs: list[str] | None,
    allow: set[str] | None,
) -> None:
    from perfaudit.knobs import all_knobs

    seen = []

    def search(*args: object, **kwargs: object) -> Report:
        seen.append((args, kwargs))
        return Report("tune")

    monkeypatch.setattr(importlib.import_module("perfaudit.tune.report"), "tune", search)
    assert perfaudit.tune(script, budget=9.0, arguments=["-e", "1"], **asked).command == "tune"
    ((target, wanted, budget), options) = seen[0]
    assert (str(target), wanted, budget) == ("train.py -e 1", knobs or list(all_knobs()), 9.0)
    assert options == {"skips_idle": knobs is None, "allow": allow, "in_place": False}
    with pytest.raises(UserError, match="no knob is called turbo; they are allocator, anomaly, "):
        perfaudit.tune(script, ["turbo"])


def test_a_change_is_gated(script: Path, capsys: pytest.CaptureFixture[str]) -> None:
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@b"]
    script.write_text(SLOW.replace("True", "False"))
    for words in (["init", "--quiet"], ["add", "train.py"], ["commit", "--quiet", "--message", "a"]):
        subprocess.run([*git, *words], check=True)
    assert perfaudit.gate("train.py", "HEAD", layers=["findings"]).gate.verdict == "pass"  # type: ignore[union-attr]  # it is one
    script.write_text(SLOW)
    report = perfaudit.gate("train.py", "HEAD", layers=["findings"])
    assert report.gate is not None
    assert (report.gate.verdict, report.gate.fails) == ("regressed", True)
    assert [finding.rule for finding in report.findings] == ["PA501"]
    commit = report.gate.commit or ""
    named = perfaudit.gate("train.py", commit, layers=["findings"]).gate
    assert (len(commit), named and named.against) == (40, commit[:12])  # said once, as CI names it by its hash
    assert not Path(".perfaudit/gate.sqlite").exists()
    assert capsys.readouterr() == ("", "")
    with pytest.raises(UserError, match="--tolerate must be below --max-regression"):
        perfaudit.gate("train.py", "HEAD", max_regression=0.001)


def test_a_scan_of_nothing_says_so(script: Path) -> None:
    Path("empty").mkdir()
    assert perfaudit.scan("empty").notes == ("no Python files in empty",)
    assert perfaudit.scan([]).notes == ("no Python files in nothing",)
    assert perfaudit.scan(script).notes == ()


def test_a_report_shows_its_result_in_one_line(script: Path) -> None:
    assert repr(perfaudit.scan(script)) == "<Report of perfaudit scan: 1 finding in 1 file: 1 error>"
