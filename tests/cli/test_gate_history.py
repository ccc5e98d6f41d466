"""`perfaudit history --metric`: tables, sparklines and changes of level as they are read in a terminal and by programs."""

from __future__ import annotations

import csv
import io
import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from conftest import Done
from html_pages import check_page, readable

from perfaudit.gate import store
from perfaudit.measurements import Environment
from perfaudit.verdicts import CountersVerdict, FindingsVerdict, Gate, TimeVerdict

Run = Callable[..., Done]
Project = Callable[..., Path]

NOON = 1_795_262_400.0  # 2026-11-21 12:00:00 UTC
HERE = Environment("cpu", "3.11.4", "Linux x86_64", 2, 8 << 30, torch="2.13.0", threads=2)
TIMES = [41.2, 41.0, 41.3, 41.1, 41.2, 41.3, 43.9, 44.1, 43.8, 43.9, 44.0, 44.2]


@pytest.fixture(autouse=True)
def somewhere(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """In UTC, on a processor whose name is known."""
    monkeypatch.setattr(store, "cpu_model", lambda: "Example CPU")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TZ", "UTC")
        time.tzset()
        yield
    time.tzset()


def commit(number: int) -> str:
    return f"{0x1F2E3D4C5B60 + number:012x}"


def gates(folder: Path, times_ms: list[float], target: str = "train.py", **machine: object) -> None:
    """One gate a day, each against the commit of the gate before."""
    before = times_ms[0]
    for day, now in enumerate(times_ms):
        ratio = now / before
        timed = TimeVerdict(
            target, "pass", "", ratio, ratio - 0.01, ratio + 0.01, 4, 32, before / 1e3, now / 1e3, smallest=0.021
        )
        syncs = {"host_syncs": 2 if day < 3 else 16, "peak_bytes": 734003200}
        counted = CountersVerdict(target, "pass", counters=syncs)
        reference = commit(day - 1) + "0" * 28
        gate = Gate("main", "ref", "pass", reference, False, FindingsVerdict("pass", known=3), (counted,), (timed,))
        at = NOON + 86400 * day
        note = store.append(folder, gate, commit(day), replace(HERE, **machine), lambda at=at: at)  # type: ignore[misc, arg-type]
        assert note == ""
        before = now


STEP_TEXT = """\
step_time of train.py: seconds per step of the code as it is
12 gates, 2026-11-21 12:00 to 2026-12-02 12:00, on cpu, Example CPU, 2 cores, 2 threads, torch
2.13.0, Python 3.11, Linux x86_64
lowest 41.00 ms, highest 44.20 ms, last 44.20 ms

  ▁▁▁▁▁▁██▇███

 when                     commit    step_time   verdict
 ──────────────────────────────────────────────────────
 2026-12-02 12:00   1f2e3d4c5b6b     44.20 ms      pass
 2026-12-01 12:00   1f2e3d4c5b6a     44.00 ms      pass
 2026-11-30 12:00   1f2e3d4c5b69     43.90 ms      pass
 2026-11-29 12:00   1f2e3d4c5b68     43.80 ms      pass
 2026-11-28 12:00   1f2e3d4c5b67     44.10 ms      pass
 2026-11-27 12:00   1f2e3d4c5b66   ▲ 43.90 ms      pass
 2026-11-26 12:00   1f2e3d4c5b65     41.30 ms      pass

▲ 2026-11-27 1f2e3d4c5b66: 41.20 ms → 43.95 ms, +6.7 %, p 0.002
times of different hours differ with the machine's state too:
`perfaudit gate train.py --against 1f2e3d4c5b65` measures both side by side
"""

DRIFT_TEXT = """\
drift of train.py: step time over that of the first commit, as the product of the ratios
12 gates, 2026-11-21 12:00 to 2026-12-02 12:00, on cpu, Example CPU, 2 cores, 2 threads, torch
2.13.0, Python 3.11, Linux x86_64
lowest 0.995, highest 1.073, last 1.073

  ▁▁▁▁▁▁██▇███

 when                     commit   drift         interval   verdict
 ──────────────────────────────────────────────────────────────────
 2026-12-02 12:00   1f2e3d4c5b6b   1.073   [1.036, 1.110]      pass
 2026-12-01 12:00   1f2e3d4c5b6a   1.068   [1.033, 1.104]      pass

▲ slower since 2026-11-21: 1.073 [1.036, 1.110] over 12 gates; most of one gate: 1.063 in
1f2e3d4c5b66
each gate adds its error; `perfaudit gate train.py --against 1f2e3d4c5b5f` measures both side by
side
"""

SYNCS_TEXT = """\
host_syncs of train.py: of one training step
12 gates, 2026-11-21 12:00 to 2026-12-02 12:00, on cpu, torch 2.13.0, Linux x86_64
lowest 2, highest 16, last 16

  ▁▁▁█████████

 when                     commit   host_syncs   verdict
 ──────────────────────────────────────────────────────
 2026-12-02 12:00   1f2e3d4c5b6b           16      pass

▲ 2026-11-24 1f2e3d4c5b63: 2 → 16, +14
"""


@pytest.mark.parametrize(
    ("metric", "limit", "text"),
    [("step_time", 7, STEP_TEXT), ("drift", 2, DRIFT_TEXT), ("host_syncs", 1, SYNCS_TEXT)],
)
def test_a_metric_as_it_is_read(project: Project, perfaudit: Run, metric: str, limit: int, text: str) -> None:
    gates(project(), TIMES)
    done = perfaudit("history", "--metric", metric, "--limit", str(limit))
    assert (done.code, done.err) == (0, f"{12 - limit} older not in the table; --limit 0 shows all\n")
    assert done.out == text


@pytest.mark.parametrize(
    ("metric", "said"),
    [
        ("step_time", "too few gates to look for changes of level: it takes 4 before and 4 after"),
        ("drift", "1.000 [0.978, 1.022] over 5 gates: no drift beyond 1 % can be told"),
        ("peak_bytes", "lowest 700.0 MiB, highest 700.0 MiB, last 700.0 MiB"),
        ("findings", "the same in all of them"),
        ("smallest_slowdown", "lowest 2.1 %, highest 2.1 %, last 2.1 %"),
        ("ratio", "1.007   [0.997, 1.017]      pass"),
    ],
)
def test_what_is_said_of_a_metric(project: Project, perfaudit: Run, metric: str, said: str) -> None:
    gates(project(), TIMES[:5])
    done = perfaudit("history", "--metric", metric)
    assert (done.code, done.err) == (0, "")
    assert said in done.out
    assert "▲" not in done.out.replace("▲ 16", "")


def test_on_a_narrow_terminal_no_word_is_broken(
    project: Project, perfaudit: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    gates(project(), TIMES[:2])
    monkeypatch.setattr("perfaudit.cli.gate_history_text.text_width", lambda: 40)
    lines = perfaudit("history", "--metric", "step_time").out.splitlines()
    rows = [line.split() for line in lines if line.startswith(" 2026-11-")]
    assert rows == [["2026-11-22", "41.00", "ms", "pass"], ["2026-11-21", "41.20", "ms", "pass"]]
    assert max(map(len, lines)) <= 40


def test_a_long_history_fits_and_says_that_nothing_changed(project: Project, perfaudit: Run) -> None:
    chance = random.Random(1)
    gates(project(), [chance.gauss(41, 0.3) for _ in range(150)])
    done = perfaudit("history", "--metric", "step_time")
    lines = done.out.splitlines()
    assert lines[-1] == "no change of level (E-divisive means, p ≤ 0.01, at least 4 gates on each side)"
    assert max(map(len, lines)) <= 100
    assert next(len(line) for line in lines if "█" in line) == 2 + 96
    assert done.err == "130 older not in the table; --limit 0 shows all\n"
    assert perfaudit("history", "--metric", "step_time", "--limit", "0").out.count(" pass\n") == 150


def test_other_machines_and_targets_are_told_apart(project: Project, perfaudit: Run) -> None:
    folder = project()
    gates(folder, TIMES[:2], cores=1, torch="2.12.1")
    gates(folder, TIMES[:1], target="eval.py")
    gates(folder, TIMES)
    out = perfaudit("history", "--metric", "step_time").out
    assert out.index("step_time of train.py") < out.index("step_time of eval.py")
    assert "not compared: 2 gates until 2026-11-22, on 1 core, torch 2.12.1: median 41.10 ms\n" in out
    alone = perfaudit("history", "--metric", "step_time", "--target", "eval.py").out
    assert alone.startswith("step_time of eval.py")
    assert "train.py" not in alone


def test_times_taken_in_another_way_are_told_apart(project: Project, perfaudit: Run) -> None:
    folder = project()
    gates(folder, TIMES)
    alone = TimeVerdict("train.py", "not_judged", seconds_after=0.05, advice=True)
    for day in range(12, 20):
        at = NOON + 86400 * day
        gate = Gate("perfaudit-gate.json", "baseline", "pass", times=(alone,))
        assert store.append(folder, gate, commit(day), HERE, lambda at=at: at) == ""  # type: ignore[misc]
    out = perfaudit("history", "--metric", "step_time").out
    assert out.count("▲") == 0
    assert "torch 2.13.0, Python 3.11, Linux x86_64, timed alone" in " ".join(out.split())
    said = "not compared: 12 gates until 2026-12-02, timed in turns with the reference: median 42.55 ms\n"
    assert out.endswith(said)
    data = json.loads(perfaudit("history", "--metric", "step_time", "--format", "json").out)
    assert [series["kind"] for series in data["series"]] == ["baseline", "ref"]
    rows = list(csv.DictReader(io.StringIO(perfaudit("history", "--metric", "step_time", "--format", "csv").out)))
    assert [row["kind"] for row in rows] == ["baseline"] * 8 + ["ref"] * 12


def test_without_git_no_command_is_named(project: Project, perfaudit: Run) -> None:
    folder = project()
    for day, ms in enumerate(TIMES):
        at = NOON + 86400 * day
        gate = Gate("gate.json", "baseline", "pass", times=(TimeVerdict("train.py", "pass", seconds_after=ms / 1e3),))
        assert store.append(folder, gate, "", HERE, lambda at=at: at) == ""  # type: ignore[misc]
    out = perfaudit("history", "--metric", "step_time").out
    assert out.endswith(
        "▲ 2026-11-27 ?: 41.20 ms → 43.95 ms, +6.7 %, p 0.002\n"
        + ("times of different hours differ with the machine's state too\n")
    )


def test_for_programs(project: Project, perfaudit: Run) -> None:
    gates(project(), TIMES)
    data = json.loads(perfaudit("history", "--metric", "step_time", "--format", "json").out)
    assert (data["schema"], data["metric"]) == ("perfaudit.gate-history/1", "step_time")
    (series,) = data["series"]
    assert series["environment"]["cpu"] == "Example CPU"
    assert [point["value"] for point in series["points"]] == [ms / 1e3 for ms in TIMES]
    (change,) = series["changes"]
    assert (change["at"], change["commit"], change["p"]) == ("2026-11-27T12:00:00Z", commit(6), 0.002)
    rows = list(csv.DictReader(io.StringIO(perfaudit("history", "--metric", "step_time", "--format", "csv").out)))
    assert [row["value"] for row in rows] == [str(ms / 1e3) for ms in TIMES]
    assert [row["change_p"] for row in rows if row["change_from"]] == ["0.002"]
    drift = json.loads(perfaudit("history", "--metric", "drift", "--format", "json").out)["series"][0]
    assert drift["drift"] == "slower"
    assert drift["points"][-1]["value"] == pytest.approx(TIMES[-1] / TIMES[0])


def test_the_list_of_runs_says_that_there_are_gates(project: Project, perfaudit: Run) -> None:
    gates(project(), TIMES[:3])
    done = perfaudit("history")
    said = "3 gates run here, the last 2026-11-23 12:00: pass; `perfaudit history --metric step_time` shows them\n"
    assert (done.code, done.out, done.err) == (0, "no run of `perfaudit tune` here\n", said)
    data = json.loads(perfaudit("history", "--format", "json").out)
    assert data["runs"] == []
    assert data["gates"] == {"count": 3, "at": "2026-11-23T12:00:00Z", "verdict": "pass", "metric": "step_time"}


def test_the_list_of_runs_names_a_metric_that_the_gates_have(project: Project, perfaudit: Run) -> None:
    found = FindingsVerdict("pass", known=3)
    gate = Gate("main", "ref", "pass", commit(1) + "0" * 28, False, found)
    assert store.append(project(), gate, commit(2), HERE, lambda: NOON) == ""
    assert "`perfaudit history --metric findings` shows them" in perfaudit("history").err
    assert perfaudit("history", "--metric", "findings").code == 0


def test_gates_that_cannot_be_read_hide_no_run(project: Project, perfaudit: Run) -> None:
    folder = project()
    (folder / ".perfaudit" / "runs").mkdir(parents=True)
    (folder / ".perfaudit" / "gate.sqlite").write_text("nonsense")
    start = {"kind": "start", "at": NOON, "schema": "perfaudit.run/1", "command": "tune", "target": "train.py"}
    (folder / ".perfaudit" / "runs" / "20261121-120000-a1b2.jsonl").write_text(json.dumps(start) + "\n")
    done = perfaudit("history")
    assert (done.code, "20261121-120000-a1b2" in done.out) == (0, True)
    assert "gate.sqlite: cannot be read: file is not a database" in done.err
    done = perfaudit("history", "--metric", "ratio")
    assert (done.code, done.out) == (2, "")


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (
            ("--metric", "steptime"),
            2,
            "no gate here noted a metric 'steptime' (did you mean step_time?); they have: ratio, dri",
        ),
        (
            ("--metric", ""),
            2,
            "they have: ratio, drift, reference_step_time, smallest_slowdown, step_time, host_syncs, ",
        ),
        (("--metric", "ratio", "--target", "nope"), 2, "no gate here noted a target 'nope'; they have: train.py"),
        (("--metric", "findings", "--target", "train.py"), 3, "no gate of train.py noted findings"),
        (("--metric", "ratio", "20261121"), 2, "--metric is of the gates, 20261121 is a run"),
        (("--target", "train.py"), 2, "--target goes with --metric"),
        (("--metric", "ratio", "--format", "sarif"), 2, "'sarif' is none of text, csv, json, html"),
    ],
)
def test_wrong_use(project: Project, perfaudit: Run, arguments: tuple[str, ...], code: int, said: str) -> None:
    gates(project(), TIMES[:2])
    done = perfaudit("history", *arguments)
    assert (done.code, done.out) == (code, "")
    assert said in done.err


def test_a_metric_as_a_page(project: Project, perfaudit: Run) -> None:
    folder = project()
    gates(folder, TIMES)
    done = perfaudit("history", "--metric", "step_time", "--html", "steps.html", "--limit", "7")
    assert done.out == STEP_TEXT
    text = (folder / "steps.html").read_text()
    page, said = check_page(text), readable(text).splitlines()
    assert said[:3] == [
        "perfaudit history: step_time",
        "train.py: last 44.20 ms, 1 change of level",
        "step_time: seconds per step of the code as it is",
    ]
    assert "▲ 2026-11-27 1f2e3d4c5b66: 41.20 ms → 43.95 ms, +6.7 %, p 0.002" in said
    assert text.count('class="sign plain"') == 11
    assert text.count('class="sign control"') == 1  # the first gate of the new level
    assert ">+6.7 %</text>" in text
    assert json.loads(page.texts["script"][0]) == json.loads(
        perfaudit("history", "--metric", "step_time", "--format", "json").out
    )


@pytest.mark.parametrize(
    ("metric", "said"),
    [("host_syncs", "train.py: last 16, 1 change of level"), ("peak_bytes", "train.py: last 700.0 MiB, no change of level"),
     ("drift", "train.py: ▲ slower since 2026-11-21"), ("findings", "findings: last 3, no change of level")],
)  # fmt: skip
def test_the_verdict_of_a_page(project: Project, perfaudit: Run, metric: str, said: str) -> None:
    gates(project(), TIMES)
    text = perfaudit("history", "--metric", metric, "--format", "html").out
    check_page(text)
    assert readable(text).splitlines()[1].startswith(said)


def test_a_long_history_has_a_page_of_its_size(project: Project, perfaudit: Run) -> None:
    gates(project(), [41.0] * 420)
    text = perfaudit("history", "--metric", "step_time", "--format", "html").out
    assert len(text.encode()) < 1_000_000
    assert "The newest 300 of 420." in text


def test_no_gate_was_run_here(project: Project, perfaudit: Run) -> None:
    folder = project()
    done = perfaudit("history", "--metric", "step_time")
    said = f"perfaudit: no gate was run in {folder} so far; `perfaudit gate` notes what it measures there\n"
    assert (done.code, done.out, done.err) == (3, "", said)
    assert not (folder / ".perfaudit").exists()


def test_no_chain_yet(project: Project, perfaudit: Run) -> None:
    timed = TimeVerdict("train.py", "inconclusive", "", 1.01, seconds_before=0.04, seconds_after=0.041)
    store.append(project(), Gate("main", "ref", "inconclusive", "a" * 40, times=(timed,)), commit(0), HERE)
    done = perfaudit("history", "--metric", "drift")
    assert (done.code, done.out) == (3, "")
    assert "had an interval so far" in done.err


def test_a_terminal_that_is_not_utf8(project: Project) -> None:
    folder = project()
    gates(folder, TIMES)
    done = subprocess.run(
        [sys.executable, "-m", "perfaudit", "history", "--metric", "step_time"],
        cwd=folder,
        env={**os.environ, "PYTHONIOENCODING": "ascii", "COLUMNS": "100"},
        capture_output=True,
        check=True,
    )
    text = done.stdout.decode("ascii")
    assert "\n  ______@@#@@@\n" in text
    assert "\n^ 2026-11-27 1f2e3d4c5b66: 41.20 ms -> 43.95 ms, +6.7 %, p 0.002\n" in text
    assert "?" not in text


def test_the_file_keeps_its_signs(project: Project, perfaudit: Run) -> None:
    folder = project()
    gates(folder, TIMES)
    done = perfaudit("history", "--metric", "step_time", "--limit", "7", "--output", "history.txt")
    assert (done.code, done.out, (folder / "history.txt").read_text()) == (0, "", STEP_TEXT)


def test_control_characters_do_not_reach_the_terminal(project: Project, perfaudit: Run) -> None:
    evil = "\x1b]0;owned\x07\nline"
    timed = TimeVerdict(evil, "pass", "", 1.01, 1.0, 1.02, seconds_before=0.04, seconds_after=0.041)
    counted = CountersVerdict(evil, "pass", counters={evil: 3})
    gate = Gate(evil, "ref", "pass", evil, counters=(counted,), times=(timed,))
    store.append(project(), gate, evil, replace(HERE, torch=evil))
    for metric in ("ratio", "step_time", "drift", evil):
        done = perfaudit("history", "--metric", metric)
        assert done.code == 0
        assert "\x1b" not in done.out
        assert "\x07" not in done.out
    assert "\x1b" not in perfaudit("history", "--metric", "nope").err


def test_a_history_imports_neither_torch_nor_pandas(project: Project) -> None:
    folder = project()
    gates(folder, TIMES)
    code = (
        "import sys; sys.argv = ['perfaudit', 'history', '--metric', 'drift']\n"
        "from perfaudit.cli import main\n"
        "try: main()\n"
        "except SystemExit as leave: assert not leave.code, leave.code\n"
        "print([m for m in ('torch', 'pandas', 'numpy') if m in sys.modules])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"
