"""The history of the gates: what is kept, what forms a series, and files that are damaged, newer, or not to be written."""

from __future__ import annotations

import fcntl
import json
import os
import sqlite3
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from perfaudit.errors import UserError
from perfaudit.files import folder as own_folder
from perfaudit.gate import store
from perfaudit.gate.comparable import cpu_model
from perfaudit.gate.drift import drift_direction, drifts, largest
from perfaudit.gate.series import Gates, gates, metrics, series, targets
from perfaudit.measurements import Environment
from perfaudit.verdicts import CountersVerdict, FindingsVerdict, Gate, TimeVerdict

NOON = 1_795_262_400.0  # 2026-11-21 12:00:00 UTC
HERE = Environment("cpu", "3.11.4", "Linux x86_64", 2, 8 << 30, torch="2.13.0", threads=2, commit="x", load=0.3)
TIME = TimeVerdict("train.py", "pass", "", 1.02, 1.01, 1.03, 4, 32, 0.040, 0.0408, smallest=0.021)
COMMITS = [f"{letter}" * 12 for letter in "abcdefgh"]


def gate(time: TimeVerdict | None = TIME, commit: str = "a" * 40, **other: object) -> Gate:
    made = Gate(f"main ({commit[:12]})", "ref", "pass", commit, times=(time,) if time else (), seconds=61.5)
    return replace(made, **other)  # type: ignore[arg-type]  # names are checked at run time


def append(folder: Path, made: Gate, head: str = "b" * 12, environment: Environment = HERE, at: float = NOON) -> str:
    return store.append(folder, made, head, environment, now=lambda: at)


def file(folder: Path) -> Path:
    return folder / ".perfaudit" / "gate.sqlite"


def test_everything_a_gate_came_to(tmp_path: Path) -> None:
    counted = CountersVerdict(
        "train.py", "regressed", counters={"host_syncs": 3, "peak_bytes": 1 << 40, "flops": 2**70}
    )
    made = gate(findings=FindingsVerdict("regressed", new=1, known=4, accepted=2), counters=(counted,))
    assert append(tmp_path, made) == ""
    assert (tmp_path / ".perfaudit" / ".gitignore").read_text() == "*\n"
    times = ["ratio", "drift", "reference_step_time", "smallest_slowdown", "step_time"]
    assert metrics(tmp_path) == [*times, "flops", "host_syncs", "peak_bytes", "findings", "new_findings"]
    assert targets(tmp_path) == ["train.py"]
    assert gates(tmp_path) == Gates(1, "2026-11-21T12:00:00Z", "pass")
    (one,) = series(tmp_path, "ratio")
    (point,) = one.points
    assert (one.target, one.layer, one.is_exact) == ("train.py", "time", False)
    assert (point.at, point.head, point.reference) == ("2026-11-21T12:00:00Z", "b" * 12, "a" * 40)
    assert (point.value, point.low, point.high, point.n, point.verdict) == (1.02, 1.01, 1.03, 32, "pass")
    known = {"step_time": 0.0408, "reference_step_time": 0.040, "smallest_slowdown": 0.021, "host_syncs": 3}
    known |= {"peak_bytes": 1 << 40, "flops": float(2**70), "findings": 7, "new_findings": 1}
    for metric, value in known.items():
        (point,) = series(tmp_path, metric)[0].points
        assert (point.value, point.low) == (value, None)
    assert series(tmp_path, "host_syncs")[0].points[0].verdict == "regressed"
    assert series(tmp_path, "findings")[0].target == ""


@pytest.mark.parametrize(
    ("time", "kept"),
    [
        (replace(TIME, ratio=None, seconds_before=None, seconds_after=None, smallest=None), []),
        (replace(TIME, advice=True), ["step_time"]),  # the other time is of another day
        (replace(TIME, low=0.0, high=float("inf")), ["ratio", "reference_step_time", "smallest_slowdown", "step_time"]),
        (replace(TIME, low=0.5, high=float("inf")), ["ratio", "reference_step_time", "smallest_slowdown", "step_time"]),
        (replace(TIME, ratio=float("nan"), seconds_after=float("inf"), smallest=None), ["reference_step_time"]),
    ],
)
def test_what_is_not_known_is_not_kept(tmp_path: Path, time: TimeVerdict, kept: list[str]) -> None:
    assert append(tmp_path, gate(time)) == ""
    assert [metric for metric in metrics(tmp_path) if metric != "drift"] == kept
    for one in series(tmp_path, "ratio"):
        assert (one.points[0].low, one.points[0].high) == (None, None)
    assert gates(tmp_path).count == 1


def test_a_layer_without_a_verdict(tmp_path: Path) -> None:
    append(tmp_path, gate(None, findings=FindingsVerdict("not_judged", "not asked for")))
    assert (metrics(tmp_path), gates(tmp_path).count) == ([], 1)


def test_what_is_accepted_is_there_before_and_after(tmp_path: Path) -> None:
    for verdict in (FindingsVerdict("accepted", accepted=3, known=4), FindingsVerdict("pass", known=7)):
        append(tmp_path, gate(None, findings=verdict))
    (one,) = series(tmp_path, "findings")
    assert [point.value for point in one.points] == [7, 7]  # the next, innocent gate is not where it grew


def test_nothing_there(tmp_path: Path) -> None:
    assert series(tmp_path, "ratio") == metrics(tmp_path) == targets(tmp_path) == []
    assert gates(tmp_path) == Gates(0, "", "")
    assert not file(tmp_path).exists()  # looking leaves nothing behind
    file(tmp_path).parent.mkdir()
    file(tmp_path).touch()
    assert metrics(tmp_path) == []


def test_other_machines_form_other_series(tmp_path: Path) -> None:
    counted = (CountersVerdict("train.py", "pass", counters={"operators": 400}),)
    found = FindingsVerdict("pass", known=2)
    faster = replace(HERE, cores=16, load=9.0, memory_bytes=1, commit="y")
    newer = replace(HERE, torch="2.14.0")
    busy = replace(HERE, load=7.0, memory_bytes=7, commit="z", python="3.11.9")
    for environment in (HERE, faster, newer, busy):
        append(tmp_path, gate(counters=counted, findings=found), environment=environment)
    # Load and memory are not the machine.
    assert [len(one.points) for one in series(tmp_path, "step_time")] == [2, 1, 1]
    assert [one.environment["torch"] for one in series(tmp_path, "step_time")] == ["2.13.0", "2.14.0", "2.13.0"]
    assert [len(one.points) for one in series(tmp_path, "operators")] == [3, 1]  # cores do not change what is done
    assert [len(one.points) for one in series(tmp_path, "findings")] == [4]


def test_a_step_that_is_timed_alone_is_no_point_beside_steps_timed_in_turns(tmp_path: Path) -> None:
    counted = (CountersVerdict("train.py", "pass", counters={"operators": 400}),)
    for kind in ("ref", "baseline", "ref"):
        time = replace(TIME, advice=kind == "baseline")
        append(tmp_path, gate(time, counters=counted, findings=FindingsVerdict("pass"), kind=kind))
    assert [(one.kind, len(one.points)) for one in series(tmp_path, "step_time")] == [("ref", 2), ("baseline", 1)]
    for metric in ("operators", "findings"):
        assert [(one.kind, len(one.points)) for one in series(tmp_path, metric)] == [("", 3)]


def test_targets_form_other_series(tmp_path: Path) -> None:
    two = gate(times=(TIME, replace(TIME, target="eval.py")))
    append(tmp_path, two)
    assert sorted(one.target for one in series(tmp_path, "ratio")) == ["eval.py", "train.py"]
    assert [one.target for one in series(tmp_path, "ratio", "eval.py")] == ["eval.py"]
    assert series(tmp_path, "ratio", "other.py") == []


def chain(folder: Path, ratios: list[float], half: float = 0.01, start: int = 0) -> None:
    """Gates whose reference is the code of the gate before."""
    for i, ratio in enumerate(ratios, start=start):
        time = replace(TIME, ratio=ratio, low=ratio / (1 + half), high=ratio * (1 + half))
        append(folder, gate(time, commit=COMMITS[i] + "0" * 28), COMMITS[i + 1])


def test_a_drift_is_the_product_of_the_ratios(tmp_path: Path) -> None:
    chain(tmp_path, [1.01, 1.02, 0.99, 1.03])
    ratios = series(tmp_path, "ratio")
    (drift,) = drifts(ratios)
    assert [p.value for p in drift.points] == pytest.approx(
        [1.01, 1.01 * 1.02, 1.01 * 1.02 * 0.99, 1.01 * 1.02 * 0.99 * 1.03]
    )
    last = drift.points[-1]
    assert last.n == 4
    assert last.low is not None
    assert last.high is not None
    assert last.value / last.low == pytest.approx(1.01**2)  # four equal halves: twice one of them
    assert last.high / last.value == pytest.approx(1.01**2)
    assert drift_direction(drift) == "slower"
    assert largest(drift, ratios).head == COMMITS[4]


def test_what_did_most_for_a_drift(tmp_path: Path) -> None:
    chain(tmp_path, [1.04, 0.94, 0.95, 0.96])
    ratios = series(tmp_path, "ratio")
    (drift,) = drifts(ratios)
    assert drift_direction(drift) == "faster"
    assert largest(drift, ratios).value == 0.94


@pytest.mark.parametrize(("ratio", "said"), [(1.0, ""), (1.006, ""), (1.02, "slower"), (0.97, "faster"), (0.996, "")])
def test_what_a_drift_is_called(tmp_path: Path, ratio: float, said: str) -> None:
    chain(tmp_path, [ratio] * 4)
    assert drift_direction(drifts(series(tmp_path, "ratio"))[0]) == said


def test_a_chain_ends_where_nobody_measured_on(tmp_path: Path) -> None:
    chain(tmp_path, [1.01, 1.02])
    chain(tmp_path, [1.05, 1.06], start=4)
    dirty = replace(TIME, ratio=2.0, low=1.9, high=2.1)
    append(tmp_path, gate(dirty, commit=COMMITS[6] + "0" * 28), COMMITS[7] + "+")
    append(tmp_path, gate(TIME, commit=COMMITS[7] + "0" * 28), "i" * 12)  # of the commit, not of the changed files
    values = [[p.value for p in one.points] for one in drifts(series(tmp_path, "ratio"))]
    assert values == [
        [1.02],
        [pytest.approx(1.05), pytest.approx(1.05 * 1.06), pytest.approx(1.05 * 1.06 * 2.0)],
        [pytest.approx(1.01), pytest.approx(1.01 * 1.02)],
    ]


def test_a_chain_branches(tmp_path: Path) -> None:
    chain(tmp_path, [1.02])
    for head, ratio in (("x" * 12, 1.5), ("y" * 12, 1.1)):  # two branches left the same commit
        time = replace(TIME, ratio=ratio, low=ratio / 1.01, high=ratio * 1.01)
        append(tmp_path, gate(time, commit=COMMITS[1] + "0" * 28), head)
    (drift,) = drifts(series(tmp_path, "ratio"))
    assert [p.value for p in drift.points] == pytest.approx([1.02, 1.53, 1.122])


def test_of_two_gates_of_a_commit_the_more_precise_counts(tmp_path: Path) -> None:
    chain(tmp_path, [1.10], half=0.05)
    chain(tmp_path, [1.02], half=0.01)
    chain(tmp_path, [1.30], half=0.20)
    chain(tmp_path, [1.00], start=1)
    (drift,) = drifts(series(tmp_path, "ratio"))
    assert drift.points[-1].value == pytest.approx(1.02)


def test_no_interval_no_link(tmp_path: Path) -> None:
    append(tmp_path, gate(replace(TIME, low=0.0, high=float("inf"))))
    append(tmp_path, gate(TIME, commit=""))  # against a file
    assert drifts(series(tmp_path, "ratio")) == []


def test_identical_code_drifts_nowhere(tmp_path: Path) -> None:
    for _ in range(3):
        append(tmp_path, gate(replace(TIME, ratio=1.001, low=0.99, high=1.01), commit="a" * 40), "a" * 12)
    (drift,) = drifts(series(tmp_path, "ratio"))
    assert [p.value for p in drift.points] == pytest.approx([1.001] * 3)


@pytest.mark.parametrize("content", [b"no database at all", os.urandom(4096), b"SQLite format 3\0" + bytes(4080)])
def test_a_damaged_history_is_moved_aside(tmp_path: Path, content: bytes) -> None:
    file(tmp_path).parent.mkdir()
    file(tmp_path).write_bytes(content)
    with pytest.raises(UserError, match=r"gate\.sqlite: cannot be read: .*the next gate moves it aside"):
        metrics(tmp_path)
    note = append(tmp_path, gate())
    aside = file(tmp_path).with_name("gate.sqlite.damaged-20261121-120000-0")
    assert note == f"{file(tmp_path)} was damaged: moved to {aside.name}, and a new history begun"
    assert aside.read_bytes() == content
    assert gates(tmp_path).count == 1
    assert append(tmp_path, gate()) == ""
    file(tmp_path).write_bytes(content)
    append(tmp_path, gate())  # in the same second: neither is lost
    assert len(list(file(tmp_path).parent.glob("gate.sqlite.damaged-*"))) == 2


def test_damage_inside(tmp_path: Path) -> None:
    for _ in range(200):
        append(tmp_path, gate(counters=(CountersVerdict("t", "pass", counters={f"c{i}": i for i in range(9)}),)))
    data = bytearray(file(tmp_path).read_bytes())
    data[4096:] = os.urandom(len(data) - 4096)
    file(tmp_path).write_bytes(data)
    assert "was damaged: moved to" in append(tmp_path, gate())
    assert gates(tmp_path).count == 1


def test_a_newer_history_stays_as_it_is(tmp_path: Path) -> None:
    append(tmp_path, gate())
    with sqlite3.connect(file(tmp_path)) as connection:
        connection.execute("PRAGMA user_version = 9")
    connection.close()
    before = file(tmp_path).read_bytes()
    words = f"{file(tmp_path)}: it was written by a newer perfaudit (version 9 of its tables, this one knows 1); update this"
    assert append(tmp_path, gate()).startswith(f"the history was not written: {words}")
    with pytest.raises(UserError, match="cannot be read: it was written by a newer perfaudit"):
        metrics(tmp_path)
    assert file(tmp_path).read_bytes() == before


def test_somebody_elses_database(tmp_path: Path) -> None:
    file(tmp_path).parent.mkdir()
    with sqlite3.connect(file(tmp_path)) as connection:
        connection.execute("CREATE TABLE runs (id)")
    connection.close()
    assert append(tmp_path, gate()).endswith("it is a database, and not one of perfaudit")
    with pytest.raises(UserError, match="not one of perfaudit"):
        gates(tmp_path)


def test_an_older_history_is_brought_up_to_date(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    append(tmp_path, gate())
    monkeypatch.setattr(store, "_STEPS", (*store._STEPS, "ALTER TABLE runs ADD COLUMN branch TEXT; SELECT 1"))
    assert gates(tmp_path).count == 1  # reading changes nothing
    assert append(tmp_path, gate()) == ""
    with sqlite3.connect(file(tmp_path)) as connection:
        assert connection.execute("PRAGMA user_version").fetchone() == (2,)
        assert connection.execute("SELECT branch FROM runs").fetchall() == [(None,), (None,)]
    connection.close()
    assert gates(tmp_path).count == 2


def test_a_step_that_fails_leaves_the_history_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    append(tmp_path, gate())
    steps = store._STEPS
    monkeypatch.setattr(store, "_STEPS", (*steps, "ALTER TABLE runs ADD COLUMN branch TEXT; CREATE nonsense"))
    assert "the history was not written" in append(tmp_path, gate())
    monkeypatch.setattr(store, "_STEPS", steps)
    assert gates(tmp_path).count == 1


def test_two_gates_at_once(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; sys.path.insert(0, sys.argv[2])\n"
        "from test_store import append, gate\n"
        "for _ in range(20):\n"
        "    assert append(Path(sys.argv[1]), gate()) == ''\n"
    )
    arguments = [sys.executable, "-c", code, str(tmp_path), str(Path(__file__).parent)]
    running = [subprocess.Popen(arguments) for _ in range(3)]
    assert [process.wait(120) for process in running] == [0, 0, 0]
    assert gates(tmp_path).count == 60
    assert len(series(tmp_path, "ratio")[0].points) == 60


def test_another_gate_that_never_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    append(tmp_path, gate())
    monkeypatch.setattr(own_folder, "LOCK_SECONDS", -1.0)
    with (tmp_path / ".perfaudit" / "gate.lock").open() as holder:
        fcntl.flock(holder, fcntl.LOCK_EX)
        said = append(tmp_path, gate())
    assert said == f"the history was not written: {file(tmp_path)}: another process holds gate.lock"
    assert gates(tmp_path).count == 1  # reading goes on meanwhile


@pytest.mark.parametrize("where", ["a file", "a link to nowhere", "a folder"])
def test_where_nothing_can_be_written(tmp_path: Path, where: str) -> None:
    if where == "a file":
        (tmp_path / ".perfaudit").write_text("")
    elif where == "a link to nowhere":
        (tmp_path / ".perfaudit").symlink_to("/proc/nowhere/at/all")
    else:
        file(tmp_path).mkdir(parents=True)
    assert append(tmp_path, gate()).startswith(f"the history was not written: {file(tmp_path)}: ")


@pytest.mark.skipif(os.geteuid() == 0, reason="root writes everywhere")
def test_a_read_only_folder(tmp_path: Path) -> None:
    append(tmp_path, gate())
    file(tmp_path).chmod(0o444)
    file(tmp_path).parent.chmod(0o555)
    try:
        assert append(tmp_path, gate()).startswith(f"the history was not written: {file(tmp_path)}: ")
        assert gates(tmp_path).count == 1
    finally:
        file(tmp_path).parent.chmod(0o755)


def test_a_read_only_database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    append(tmp_path, gate())

    def read_only(path: Path, **options: object) -> sqlite3.Connection:
        return sqlite3.Connection(f"{Path(path).as_uri()}?mode=ro", uri=True, isolation_level=None)

    monkeypatch.setattr(store.sqlite3, "connect", read_only)
    note = append(tmp_path, gate())
    assert note == f"the history was not written: {file(tmp_path)}: attempt to write a readonly database"


def test_names_that_are_no_utf8(tmp_path: Path) -> None:
    odd = "tr\udce4in.py"
    assert append(tmp_path, gate(replace(TIME, target=odd))) == ""
    assert targets(tmp_path) == ["tr\\udce4in.py"]


def test_a_folder_with_an_odd_name(tmp_path: Path) -> None:
    folder = tmp_path / "a?mode=rw&b#c%20 d"
    folder.mkdir()
    assert append(folder, gate()) == ""
    assert gates(folder).count == 1


@pytest.mark.parametrize("environment", ["", "[]", "{", '{"torch": [1]}', '"x"'])
def test_an_environment_that_somebody_edited(tmp_path: Path, environment: str) -> None:
    append(tmp_path, gate())
    with sqlite3.connect(file(tmp_path)) as connection:
        connection.execute("UPDATE runs SET environment = ?", (environment,))
        connection.execute("UPDATE measured SET value = 'x', low = 'y' WHERE metric = 'ratio'")
        connection.execute("UPDATE measured SET low = 'y' WHERE metric = 'step_time'")
    connection.close()
    assert series(tmp_path, "ratio") == []
    assert series(tmp_path, "step_time")[0].points[0].low is None


def test_the_order_in_which_an_environment_is_written_is_no_other_machine(tmp_path: Path) -> None:
    append(tmp_path, gate())
    append(tmp_path, gate())
    with sqlite3.connect(file(tmp_path)) as connection:
        (text,) = connection.execute("SELECT environment FROM runs WHERE id = 2").fetchone()
        assert text == json.dumps(json.loads(text), sort_keys=True)
        turned = json.dumps(dict(reversed(json.loads(text).items())))
        assert turned != text
        connection.execute("UPDATE runs SET environment = ? WHERE id = 2", (turned,))
    connection.close()
    (one,) = series(tmp_path, "step_time")
    assert len(one.points) == 2
    assert (one.environment["cpu"], one.environment["python"]) == (cpu_model(), "3.11")


@pytest.mark.parametrize(
    ("other", "numbers"),
    [
        ({"device": "NVIDIA H200"}, [1, 1]),
        ({"platform": "Darwin arm64"}, [1, 1]),
        ({"torch": "2.14.0"}, [1, 1]),
        ({"threads": 1, "cores": 64, "python": "3.12.1", "driver": "570"}, [2]),
    ],
)
def test_what_decides_which_operators_run(tmp_path: Path, other: dict[str, object], numbers: list[int]) -> None:
    counted = (CountersVerdict("train.py", "pass", counters={"operators": 400}),)
    for environment in (HERE, replace(HERE, **other)):  # type: ignore[arg-type]  # names are checked at run time
        append(tmp_path, gate(counters=counted), environment=environment)
    found = series(tmp_path, "operators")
    assert [len(one.points) for one in found] == numbers
    assert all(one.environment.keys() == {"device", "platform", "torch"} for one in found)


def test_an_environment_that_lacks_something_is_another_one(tmp_path: Path) -> None:
    counted = (CountersVerdict("train.py", "pass", counters={"operators": 400}),)
    for text in ('{"torch": "2.13.0"}', "[", "[1]"):
        append(tmp_path, gate(counters=counted, findings=FindingsVerdict("pass")))
        with sqlite3.connect(file(tmp_path)) as connection:
            connection.execute("UPDATE runs SET environment = ? WHERE id = (SELECT max(id) FROM runs)", (text,))
        connection.close()
    assert [(one.environment, len(one.points)) for one in series(tmp_path, "operators")] == [
        ({}, 2),
        ({"torch": "2.13.0"}, 1),
    ]
    (found,) = series(tmp_path, "findings")
    assert (found.environment, len(found.points)) == ({}, 3)


@pytest.mark.parametrize(("low", "high"), [(0.98, 1.00), (1.03, 1.05)])
def test_a_ratio_outside_its_interval_is_a_link_all_the_same(tmp_path: Path, low: float, high: float) -> None:
    """Bounds are those of the tightest looks, the ratio is of all quads: the interval is widened to hold it."""
    append(tmp_path, gate(replace(TIME, ratio=1.02, low=low, high=high), commit=COMMITS[0] + "0" * 28), COMMITS[1])
    (drift,) = drifts(series(tmp_path, "ratio"))
    (point,) = drift.points
    assert (point.value, point.low, point.high) == pytest.approx((1.02, min(low, 1.02), max(high, 1.02)))
