"""`pytest --perfaudit` and `perf_step`, in suites of their own; the gate is played by a script where it is not the subject."""

from __future__ import annotations

import dataclasses
import importlib
import json
import subprocess
import sys
import threading
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import Done
from served_nursery import PERFAUDIT, USE

import perfaudit.cli.app  # noqa: F401  # here, as the next one
from perfaudit.gate import counting as gate_counting  # here: pytester forgets what is imported while it runs
from perfaudit.gate.target_counters import Counted, Spot
from perfaudit.measure.child import ChildFailed
from perfaudit.pytest_plugin import gate_run, items, steps
from perfaudit.pytest_plugin.gate_run import Ran, gate_command, once, report_of
from perfaudit.pytest_plugin.verdict_json import gate_of
from perfaudit.verdicts import CounterChange, CountersVerdict, FindingsVerdict, Gate, Place, TimeVerdict

pytest_plugins = ["pytester"]

ROOT = Path(__file__).parent.parent
PLUGIN = ("-p", "perfaudit.pytest_plugin")  # and no other one that happens to be installed
PROJECT = '[tool.perfaudit.gate]\ntargets = ["train.py"]\n'
TRAIN = "def build_model(): ...\ndef build_dataloader(): ...\n"

GREW = CounterChange("host_syncs", 0, 14, {"item": 14}, (Place("train.py", 88, 14, "item"),))
FINDING = {"rule": "PA601", "path": "train.py", "cell": None, "line": 88, "column": 9, "message": "`loss.item()` waits"}


def gate(verdict: str = "pass", **parts: Any) -> Gate:
    """A gate that has judged findings and counters; `parts` replace what it says."""
    counted = CountersVerdict("train.py", "pass", counters={"host_syncs": 0, "operators": 600})
    fields: dict[str, Any] = {"findings": FindingsVerdict("pass"), "counters": (counted,), **parts}
    return Gate("origin/main (1f2e3d4c5b6a)", "ref", verdict, **fields)  # type: ignore[arg-type]  # a text for a literal


def counters(verdict: str, **parts: Any) -> Gate:
    return gate(verdict, counters=(CountersVerdict(**{"target": "train.py", "verdict": verdict, **parts}),))


NEW = counters("not_judged", reason="a new target").counters  # by which the whole of a gate passes


def timed(verdict: str, **parts: Any) -> Gate:
    return gate(verdict, times=(TimeVerdict("train.py", verdict, **parts),))  # type: ignore[arg-type]


@pytest.fixture(autouse=True)
def no_other_plugins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")


class Suite:
    """A project with tests, in which a script plays the gate: it notes how it was called and prints what it is told to."""

    def __init__(self, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
        self.pytester = pytester
        pytester.makefile(".toml", pyproject=PROJECT)
        pytester.makefile(".py", train=TRAIN, test_own="def test_own(): pass")
        real = gate_command

        def played(*arguments: Any) -> list[str]:
            (self.folder / "calls.txt").open("a").write(" ".join(real(*arguments)[5:]) + "\n")
            return [sys.executable, "-c", "import sys; exec(sys.argv[1])", (self.folder / "gate.txt").read_text()]

        for module in (items, steps):
            monkeypatch.setattr(module, "gate_command", played)
        monkeypatch.setenv("COLUMNS", "200")
        monkeypatch.delenv("CI", raising=False)
        self.says(gate())

    @property
    def folder(self) -> Path:
        return self.pytester.path

    @property
    def calls(self) -> list[str]:
        calls = self.folder / "calls.txt"
        return calls.read_text().splitlines() if calls.exists() else []

    def says(self, judged: Gate, code: int = 0, findings: tuple[dict[str, Any], ...] = ()) -> None:
        report = {"gate": dataclasses.asdict(judged), "findings": findings}
        text = json.dumps(report).replace("Infinity", "null")
        self.does(f"print({text!r}); sys.exit({code})")

    def does(self, script: str) -> None:
        (self.folder / "gate.txt").write_text(script)

    def run(self, *arguments: str) -> pytest.RunResult:
        return self.pytester.runpytest_inprocess(*PLUGIN, "-p", "no:cacheprovider", *arguments)


@pytest.fixture
def suite(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Suite:
    return Suite(pytester, monkeypatch)


def lines(result: pytest.RunResult) -> str:
    return result.stdout.str()


def test_without_the_option_nothing_is_added(suite: Suite) -> None:
    result = suite.run("--perfaudit-against", "main")
    result.assert_outcomes(passed=1)
    assert "perfaudit: " not in lines(result)
    assert suite.calls == []


def test_the_gate_runs_once_for_all_its_tests(suite: Suite) -> None:
    result = suite.run("--perfaudit", "-v")
    result.assert_outcomes(passed=3)
    result.stdout.fnmatch_lines(
        [
            "perfaudit: findings, counters of train.py, compared with nothing yet",
            "test_own.py::test_own PASSED*",
            "perfaudit::findings PASSED*",
            "perfaudit::counters*train.py* PASSED*",
        ]
    )
    assert suite.calls == ["--layers findings,counters --format json -- train.py"]


@pytest.mark.parametrize(
    ("options", "call"),
    [
        (["--perfaudit-against", "origin/main"], "--layers findings,counters --format json --against origin/main -- train.py"),
        (["--perfaudit-baseline", "b.json"], "--layers findings,counters --format json --baseline {folder}/b.json -- train.py"),
        (["-k", "findings"], "--layers findings --format json --"),
        (["--perfaudit-layers", "findings"], "--layers findings --format json --"),
        (["--perfaudit-layers", "time, counters"], "--layers counters,time --format json -- train.py"),
    ],
)  # fmt: skip
def test_what_the_gate_is_asked(suite: Suite, options: list[str], call: str) -> None:
    suite.run("--perfaudit", *options)
    assert suite.calls == [call.format(folder=suite.folder)]


def test_the_project_file_names_the_reference_and_a_baseline_is_found_beside_it(suite: Suite) -> None:
    (suite.folder / "perfaudit-gate.json").write_text("{}")
    suite.run("--perfaudit")
    (suite.folder / "pyproject.toml").write_text(PROJECT + 'against = "origin/main"\n')
    suite.run("--perfaudit")
    assert [call.partition("json ")[2] for call in suite.calls] == [
        "--baseline perfaudit-gate.json -- train.py",
        "--against origin/main -- train.py",
    ]


def test_a_counter_that_grew_fails_with_the_line(suite: Suite) -> None:
    suite.says(counters("regressed", changes=(GREW,), set_aside={"peak_live_bytes": "two runs differ"}), code=1)
    result = suite.run("--perfaudit")
    result.assert_outcomes(passed=2, failed=1)
    result.stdout.fnmatch_lines(
        [
            "*14 more host syncs per step at train.py:88, train.py against origin/main (1f2e3d4c5b6a)",
            "COUNTERS train.py: regressed*",
            "  host syncs*0 → 14*14 more",
            "    at train.py:88  item, 14 more",
            "  set aside: peak*: two runs differ",
            "FAILED perfaudit::counters*train.py* - *14 more host syncs per step at train.py:88*",
        ]
    )
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert "Traceback" not in lines(result)
    assert "items.py" not in lines(result)


def test_a_new_finding_fails_with_its_place(suite: Suite) -> None:
    suite.says(gate("regressed", findings=FindingsVerdict("regressed", new=1)), 1, (FINDING,))
    result = suite.run("--perfaudit")
    result.assert_outcomes(passed=2, failed=1)
    result.stdout.fnmatch_lines(["*1 new finding against origin/main*", "  train.py:88:9 PA601 `loss.item()` waits"])


@pytest.mark.parametrize(
    ("judged", "outcomes", "words"),
    [
        (counters("accepted", changes=(dataclasses.replace(GREW, accepted="logging"),)), {"passed": 3}, ""),
        (counters("improved"), {"passed": 3}, ""),
        (gate(counters=NEW), {"passed": 2, "skipped": 1}, "a new target"),
        (counters("failed", reason="does not import"), {"passed": 2, "errors": 1}, "does not import"),
        (
            gate("not_judged", findings=FindingsVerdict("not_judged"), counters=counters("not_judged").counters),
            {"passed": 1, "errors": 2},
            "the gate judged nothing: counters of train.py not judged",
        ),
        (gate(counters=()), {"passed": 2, "errors": 1}, "the gate says nothing of counters of train.py"),
        (gate(findings=None), {"passed": 2, "errors": 1}, "the gate says nothing of findings of the project"),
    ],
)
def test_each_verdict_has_its_outcome(suite: Suite, judged: Gate, outcomes: dict[str, int], words: str) -> None:
    suite.says(judged)
    result = suite.run("--perfaudit", "-rsE")
    result.assert_outcomes(**outcomes)
    assert words in lines(result)


@pytest.mark.parametrize(
    ("judged", "setting", "outcome"),
    [
        (timed("pass", ratio=1.01, low=0.99, high=1.03), "pass", "passed"),
        (timed("regressed", ratio=1.1, low=1.08, high=1.12), "pass", "failed"),
        (timed("regressed", ratio=1.1, advice=True), "pass", "skipped"),
        (timed("inconclusive", smallest=0.08), "pass", "skipped"),
        (timed("inconclusive", smallest=0.08), "fail", "failed"),
        (timed("failed", reason="no pair finished"), "pass", "errors"),
    ],
)
def test_times_are_judged_where_they_are_asked_for(suite: Suite, judged: Gate, setting: str, outcome: str) -> None:
    (suite.folder / "pyproject.toml").write_text(PROJECT + f'inconclusive = "{setting}"\n')
    suite.says(judged)
    expected = {"passed": 1} | {outcome: 2 if outcome == "passed" else 1}
    suite.run("--perfaudit", "--perfaudit-layers", "time").assert_outcomes(**expected)


@pytest.mark.parametrize(
    ("script", "words"),
    [
        (
            "sys.exit('[    0 s] checking out\\nperfaudit: no such reference: origin/main')",
            "ended with code 1: no such reference: origin/main",
        ),
        ("print('no such file', file=sys.stderr); sys.exit(2)", "the gate ended with code 2: no such file"),
        ("pass", "the gate gave no report and ended with code 0: it said nothing"),
        ("print('{}')", "the gate's report has no verdict"),
        ("print('{\"gate\": {}}')", "the gate's report cannot be read: KeyError"),
        ("import os; os.kill(os.getpid(), 9)", "the gate ended with code -9"),
    ],
)
def test_a_gate_that_could_not_measure_is_an_error(suite: Suite, script: str, words: str) -> None:
    suite.does(script)
    result = suite.run("--perfaudit")
    result.assert_outcomes(passed=1, errors=2)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert words in lines(result)


@pytest.mark.parametrize(
    ("options", "project", "words"),
    [
        (["--perfaudit-layers", "speed"], PROJECT, "'speed' is no layer of the gate"),
        (["--perfaudit-layers", ","], PROJECT, "--perfaudit-layers names no layer"),
        (["--perfaudit-against", "a", "--perfaudit-baseline", "b"], PROJECT, "choose one"),
        ([], "[tool.perfaudit.gate]\ntarget = 1\n", "has no key 'target'"),
        ([], '[tool.perfaudit.gate]\ntargets = ["gone.py"]\n', "gone.py: no such file"),
    ],
)
def test_wrong_use_is_said_at_once(suite: Suite, options: list[str], project: str, words: str) -> None:
    (suite.folder / "pyproject.toml").write_text(project)
    result = suite.run("--perfaudit", *options)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert words in result.stderr.str()
    assert suite.calls == []


def test_the_one_file_with_factories_is_the_target_where_none_is_named(suite: Suite) -> None:
    (suite.folder / "pyproject.toml").write_text("[tool.pytest.ini_options]\n")
    suite.run("--perfaudit").assert_outcomes(passed=3)
    (suite.folder / "train.py").unlink()
    assert "Set `targets` in [tool.perfaudit.gate]" in suite.run("--perfaudit").stderr.str()
    suite.run("--perfaudit", "--perfaudit-layers", "findings").assert_outcomes(passed=2)


def test_scripts_are_targets_by_their_names(suite: Suite, counting: list[tuple[Any, ...]]) -> None:
    suite.pytester.makefile(".toml", pyproject='[tool.perfaudit.targets]\nsmall = "run.py -n 1"\n')
    suite.pytester.makepyfile(
        run="import torch",
        test_own="""
        def test_lean(perf_step):
            assert perf_step("small").host_syncs == perf_step("run.py -n 1").host_syncs == 2
            assert perf_step("run.py -n 2").operators
        def test_no_counter_grew(perf_step):
            perf_step("small").against_baseline()
    """,
    )
    suite.says(counters("pass", target="small"))
    suite.run("--perfaudit", "--perfaudit-layers", "counters").assert_outcomes(passed=3)
    assert [call[:1] for call in counting] == [("run.py",)] * 2  # with each arguments once
    assert len(suite.calls) == 2
    assert all(call.endswith("-- small") for call in suite.calls)


def test_it_gates_the_project_from_wherever_pytest_is_started(suite: Suite, monkeypatch: pytest.MonkeyPatch) -> None:
    (suite.folder / "sub").mkdir()
    monkeypatch.chdir(suite.folder / "sub")
    suite.does("import os; print(os.getcwd(), file=sys.stderr)")
    assert f"ended with code 0: {suite.folder}" in lines(suite.run("--perfaudit", ".."))


def test_the_project_is_the_nearest_one_where_pytest_has_its_root_above(
    suite: Suite, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One file configures pytest for all of a repository, a package below has a gate of its own."""
    inner = suite.pytester.mkdir("package")
    (inner / "pyproject.toml").write_text('[tool.perfaudit.gate]\ntargets = ["net.py"]\n')
    (inner / "net.py").write_text(TRAIN)
    (suite.folder / "pyproject.toml").write_text(PROJECT + "\n[tool.pytest.ini_options]\n")
    suite.does("import os; print(os.getcwd(), file=sys.stderr)")
    assert f"ended with code 0: {suite.folder}\n" in lines(suite.run("--perfaudit")) + "\n"
    monkeypatch.chdir(inner)
    result = suite.run("--perfaudit")
    assert "rootdir: " + str(suite.folder) in lines(result)
    assert f"ended with code 0: {inner}" in lines(result)


def test_collecting_runs_no_gate(suite: Suite) -> None:
    result = suite.run("--perfaudit", "--collect-only", "-q")
    assert "perfaudit::counters[train.py]" in lines(result)
    assert suite.calls == []


def test_times_are_refused_beside_other_workers(suite: Suite) -> None:
    suite.pytester.makeconftest(
        "def pytest_addoption(parser): parser.addoption('--dist', default='load')"  # as pytest-xdist has it
    )
    result = suite.run("--perfaudit", "--perfaudit-layers", "time", "-p", "no:xdist")
    assert "run it without -n" in result.stderr.str()
    suite.run("--perfaudit", "-p", "no:xdist").assert_outcomes(passed=3)


def test_the_first_of_several_workers_runs_the_gate(tmp_path: Path) -> None:
    made, both = [], threading.Barrier(2)

    def make() -> Ran:
        made.append(1)
        return Ran(1, "out", "err")

    def work(seen: list[Ran]) -> None:
        both.wait()
        seen.append(once(tmp_path, make))

    seen: list[Ran] = []
    workers = [threading.Thread(target=work, args=(seen,)) for _ in range(2)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert (len(made), seen) == (1, [Ran(1, "out", "err")] * 2)


def test_workers_of_xdist_share_one_gate(suite: Suite) -> None:
    pytest.importorskip("xdist")
    suite.pytester.makeconftest(
        f"from perfaudit.pytest_plugin import items\n"
        f"from pathlib import Path\n"
        f"def played(*arguments):\n"
        f"    Path({str(suite.folder / 'calls.txt')!r}).open('a').write('called\\n')\n"
        f"    return [{sys.executable!r}, '-c', 'import sys;' + Path({str(suite.folder / 'gate.txt')!r}).read_text()]\n"
        f"items.gate_command = played\n"
    )
    result = suite.pytester.runpytest_subprocess(*PLUGIN, "-p", "xdist", "-n", "2", "--perfaudit")
    result.assert_outcomes(passed=3)
    assert suite.calls == ["called"]


def test_what_ends_the_test_ends_the_gate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ended: list[int | None] = []
    monkeypatch.setattr(gate_run, "_PATIENCE", (0.0, 60.0))

    class Interrupted(subprocess.Popen[str]):
        def communicate(self, *arguments: Any, **options: Any) -> tuple[str, str]:
            if not ended:
                ended.append(None)
                assert self.stdout is not None
                self.stdout.readline()  # its handler stands
                raise KeyboardInterrupt
            done = super().communicate(*arguments, **options)
            ended.append(self.returncode)
            return done

    monkeypatch.setattr(gate_run.subprocess, "Popen", Interrupted)
    script = "import signal, sys; signal.signal(signal.SIGTERM, lambda *_: sys.exit(7)); print(1, flush=True); signal.pause()"
    with pytest.raises(KeyboardInterrupt):
        gate_run.run_gate([sys.executable, "-c", script], tmp_path)
    assert ended[-1] == 7  # told to end, and left by itself


def test_a_report_comes_back_as_it_was() -> None:
    judged = gate(
        "regressed",
        counters=(CountersVerdict("train.py", "regressed", "", {"host_syncs": 14}, (GREW,), {"flops": "differ"}),),
        times=(TimeVerdict("train.py", "inconclusive"),),
        notes=("the worktree is dirty",),
    )
    data = json.loads(json.dumps(dataclasses.asdict(judged)).replace("Infinity", "null"))
    data["added_by_a_newer_version"] = 1
    assert gate_of({"gate": data}) == judged


def test_the_report_of_the_command_is_read(tmp_path: Path) -> None:
    from perfaudit.report import Report, to_json

    report = to_json(Report("gate", gate=gate("regressed")))
    assert gate_of(report_of(Ran(1, json.dumps(report), ""))) == gate("regressed")


def test_the_plugin_imports_nothing_until_it_is_used() -> None:
    code = (
        "import sys, perfaudit.pytest_plugin\n"
        "print([m for m in sys.modules if m.startswith(('perfaudit', 'torch', 'numpy', 'pandas', 'rich', 'typer'))])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "['perfaudit', 'perfaudit.pytest_plugin']"


def test_a_suite_that_does_not_use_it_pays_nothing(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        "import sys\n"
        "def test_own():\n"
        "    assert [m for m in sys.modules if m.startswith('perfaudit')] == ['perfaudit', 'perfaudit.pytest_plugin']\n"
        "    assert 'torch' not in sys.modules\n"
        "    assert not (1 == 2)\n"
    )
    pytester.runpytest_subprocess(*PLUGIN).assert_outcomes(passed=1)
    pytester.makepyfile("def test_own(): pass")
    pytester.runpytest_subprocess("-p", "no:perfaudit").assert_outcomes(passed=1)


def test_the_entry_point_is_this_plugin() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["entry-points"]["pytest11"] == {"perfaudit": "perfaudit.pytest_plugin"}
    assert importlib.import_module("perfaudit.pytest_plugin").perf_step is not None


def test_the_fixture_says_what_it_is(pytester: pytest.Pytester) -> None:
    result = pytester.runpytest_inprocess(*PLUGIN, "--fixtures")
    result.stdout.fnmatch_lines(["perf_step*", "    perfaudit: what one training step of a target does, counted:*"])


def counted(**parts: Any) -> Any:
    """What `gate.counting.count` gives."""
    fields = {
        "values": {"host_syncs": 2, "operators": 600},
        "places": {"host_syncs": [Spot("train.py", 41, "loss.item()", "item", 2)]},
        "set_aside": {"peak_live_bytes": "100 and 104 in two runs"},
        "absent": {"graph_breaks": "the training compiles nothing"},
    }
    return Counted(**(fields | parts))


@pytest.fixture
def counting(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """`count` played: the calls, with the folder it stood in."""
    calls: list[tuple[Any, ...]] = []

    def count(target: Any, checkout: Any, **options: Any) -> Any:
        calls.append((target.file, checkout, Path.cwd(), options["device"]))
        return counted()

    monkeypatch.setattr(gate_counting, "count", count)
    return calls


def test_a_step_is_counted_once_a_session_in_the_projects_folder(suite: Suite, counting: list[tuple[Any, ...]]) -> None:
    suite.pytester.makepyfile(
        test_own="""
        def test_lean(perf_step, tmp_path, monkeypatch):
            monkeypatch.chdir(tmp_path)
            step = perf_step("train.py")
            assert repr(step) == "<step of train.py>"
            assert (step.host_syncs, step.operators) == (2, 600)
            assert repr(step) == "<step of train.py: host_syncs 2, operators 600>"
        def test_again(perf_step):
            assert perf_step("train").operators <= 700
            assert perf_step("train.py").counters == {"host_syncs": 2, "operators": 600}
            assert sorted(perf_step("train.py").set_aside) == ["graph_breaks", "peak_live_bytes"]
        def test_there(perf_step):
            assert perf_step("train.py", device="cuda").operators
    """
    )
    suite.run().assert_outcomes(passed=3)
    assert counting == [("train.py", None, suite.folder, device) for device in ("auto", "cuda")]
    assert suite.calls == []


def test_a_failed_assertion_shows_the_lines(suite: Suite, counting: list[tuple[Any, ...]]) -> None:
    suite.pytester.makepyfile(test_own='def test_lean(perf_step):\n    assert perf_step("train.py").host_syncs == 0')
    result = suite.run()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["E *assert 2 == 0", "E *train.py:41  item, 2 a step"])


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("host_sync", "train.py has no counter 'host_sync'; it has: host_syncs, operators"),
        ("peak_live_bytes", "peak_live_bytes of train.py has no number: 100 and 104 in two runs"),
        ("graph_breaks", "graph_breaks of train.py has no number: the training compiles nothing"),
        ("recompilations", "recompilations of train.py has no number: nothing in it is compiled"),
        ("kernels_launched", "kernels_launched of train.py has no number: it ran on cpu"),
        ("dataset_samples", "dataset_samples of train.py has no number: its dataset has no length"),
    ],
)
def test_a_counter_that_is_not_there_is_no_zero(
    suite: Suite, counting: list[tuple[Any, ...]], name: str, words: str
) -> None:
    suite.pytester.makepyfile(test_own=f'def test_lean(perf_step):\n    assert perf_step("train.py").{name} == 0')
    result = suite.run()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines([f"E *AttributeError: {words}"])
    assert "steps.py" not in lines(result)  # none of our own code is shown


def test_a_step_that_cannot_be_counted_fails_each_test(suite: Suite, monkeypatch: pytest.MonkeyPatch) -> None:
    def count(*_: Any, **__: Any) -> Any:
        raise ChildFailed("target", "NameError: name 'nn' is not defined")

    monkeypatch.setattr(gate_counting, "count", count)
    suite.pytester.makepyfile(
        test_own="""
        def test_lean(perf_step):
            assert perf_step("train.py").host_syncs == 0
        def test_gone(perf_step):
            perf_step("gone.py")
    """
    )
    result = suite.run()
    result.assert_outcomes(failed=2)
    result.stdout.fnmatch_lines(
        [
            "E *StepNotMeasured: no step of train.py could be counted: NameError: name 'nn' is not defined",
            "E *StepNotMeasured: gone.py: no such file",
        ]
    )
    assert "steps.py" not in lines(result)


def test_a_step_is_judged_against_a_baseline_and_a_reference(suite: Suite) -> None:
    suite.pytester.makepyfile(
        test_own="""
        def test_baseline(perf_step):
            perf_step("train.py").against_baseline()
            perf_step("train.py").against_baseline()
        def test_reference(perf_step):
            perf_step("train.py", timeout=9).against("origin/main", layers=("counters", "findings"))
    """
    )
    suite.run().assert_outcomes(passed=2)
    assert suite.calls == [
        "--layers counters --format json --baseline perfaudit-gate.json --device auto --timeout 120s -- train.py",
        "--layers findings,counters --format json --against origin/main --device auto --timeout 9s -- train.py",
    ]


@pytest.mark.parametrize(("layers", "words"), [("()", "name a layer"), ("'speed'", "'speed' is no layer of the gate*")])
def test_no_layer_is_no_pass(suite: Suite, layers: str, words: str) -> None:
    suite.pytester.makepyfile(
        test_own=f'def test_lean(perf_step):\n    perf_step("train.py").against("main", layers={layers})'
    )
    suite.run().stdout.fnmatch_lines([f"E *ValueError: {words}*"])
    assert suite.calls == []


@pytest.mark.parametrize(
    ("judged", "outcome", "words"),
    [
        (counters("regressed", changes=(GREW,)), "failed", "E *AssertionError: 14 more host syncs per step at train.py:88*"),
        (counters("failed", reason="it died"), "failed", "E *StepNotMeasured: counters of train.py could not be measured*"),
        (gate(counters=()), "failed", "E *StepNotMeasured: the gate says nothing of counters of train.py*"),
        (gate("not_judged", findings=None, counters=counters("not_judged", reason="torch 2 then, 3 now").counters),
         "failed", "E *StepNotMeasured: the gate judged nothing: counters of train.py not judged*torch 2 then, 3 now*"),
        (gate(counters=NEW), "skipped", "SKIPPED*counters of train.py not judged*"),
    ],
)  # fmt: skip
def test_what_the_gate_says_of_a_step(suite: Suite, judged: Gate, outcome: str, words: str) -> None:
    suite.says(judged)
    suite.pytester.makepyfile(test_own='def test_lean(perf_step):\n    perf_step("train.py").against("main")')
    result = suite.run("-rs")
    result.assert_outcomes(**{outcome: 1})
    result.stdout.fnmatch_lines([words])
    assert 'perf_step("train.py").against("main")' in lines(result) or outcome == "skipped"


TRAINING = """
import torch

def build_model():
    return torch.nn.Linear(4, 2)

def build_dataloader():
    data = torch.utils.data.TensorDataset(torch.randn(32, 4), torch.randint(2, (32,)))
    return torch.utils.data.DataLoader(data, 8)

def training_step(model, batch):
    loss = torch.nn.functional.cross_entropy(model(batch[0]), batch[1])
    return loss
"""


@pytest.mark.slow
def test_a_real_step_is_held(pytester: pytest.Pytester, perfaudit: Callable[..., Done]) -> None:
    pytester.makefile(".toml", pyproject=PROJECT)
    pytester.makepyfile(
        train=TRAINING,
        test_own="""
        import sys
        def test_lean(perf_step):
            step = perf_step("train.py")
            assert step.operators > 10
            assert "torch" not in sys.modules
            assert step.host_syncs == 0
    """,
    )
    pytester.makeconftest(
        f"{USE}"  # for the steps that its own process counts
        "from perfaudit.pytest_plugin import items, steps\n"
        "command = items.gate_command\n"
        f"python, *rest = {PERFAUDIT!r}\n"
        'items.gate_command = steps.gate_command = lambda *given: [python, "-P", *rest, *command(*given)[4:]]\n'
    )
    assert perfaudit("gate", "init", "train.py", "--ci", "none", "--device", "cpu").code == 0
    pytester.runpytest_subprocess(*PLUGIN, "--perfaudit", "-k", "perfaudit").assert_outcomes(passed=2, deselected=1)

    (pytester.path / "train.py").write_text(
        TRAINING.replace("    return loss", "    print(loss.item())\n    return loss")
    )
    result = pytester.runpytest_subprocess(*PLUGIN, "--perfaudit")
    result.assert_outcomes(failed=2, passed=1)
    result.stdout.fnmatch_lines(["E *assert 1 == 0", "E *train.py:13  item, 1 a step", "    at train.py:13  item*"])
