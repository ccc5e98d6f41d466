"""`perfaudit history`: runs, trials and comparisons as they are read in a terminal and by programs."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from conftest import Done
from html_pages import EVIL, check_page, readable

Run = Callable[..., Done]
Project = Callable[..., Path]
Json = dict[str, Any]  # Any: nested JSON

BEGAN = 1_795_292_103.0  # 2026-11-21 20:15:03 UTC
SETTINGS = {"pin_memory": False, "prefetch_factor": None, "persistent_workers": False}
START = {
    "schema": "perfaudit.run/1",
    "command": "tune",
    "target": "sample_models/photo_resnet.py",
    "knobs": ["dataloader"],
    "environment": {"device": "cpu", "torch": "2.13.0", "cores": 2},
}


@pytest.fixture(autouse=True)
def utc() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TZ", "UTC")
        time.tzset()
        yield
    time.tzset()


def trial(workers: int, median: float | None = 0.0274, **other: object) -> Json:
    spread = (None, None) if median is None else (median * 0.98, median * 1.03)
    return {
        "kind": "trial",
        "knob": "dataloader",
        "settings": {"num_workers": workers, **SETTINGS},
        "status": "ok" if median else "failed",
        "metric": "seconds_per_step",
        "median": median,
        "low": spread[0],
        "high": spread[1],
        "n": 24 if median else 0,
        "peak_memory_bytes": 734003200 if median else None,
        **other,
    }


def compared(workers: int, ratio: float, low: float, high: float, verdict: str) -> Json:
    return {
        "kind": "comparison",
        "knob": "dataloader",
        "baseline": {"num_workers": 0, **SETTINGS},
        "candidate": {"num_workers": workers, **SETTINGS},
        "ratio": ratio,
        "low": low,
        "high": high,
        "verdict": verdict,
        "n": 12,
        "clock": "wall",
    }


def winner(low: float, high: float, knob: str = "dataloader", keeps: bool = False) -> Json:
    saving = {"basis": "measured", "low": low, "high": high, "seconds_per_step": 0.003}
    words = "2 workers are faster" if not keeps else "keep what you have"
    return {"kind": "winner", "knob": knob, "settings": {}, "words": words, "keeps_current": keeps, "saving": saving}


REPORT = {"schema": "perfaudit.report/1", "command": "tune", "trials": [], "comparisons": []}
FULL = [
    trial(0),
    trial(1, 0.0261),
    trial(2, 0.0237),
    trial(4, None, reason="a loader worker died: bus error, /dev/shm is full"),
    compared(1, 0.9526, 0.91, 1.012, "undecided"),
    compared(2, 0.865, 0.8502, 0.8795, "faster"),
    winner(0.1205, 0.1498),
    {"kind": "end", "status": "finished", "report": REPORT},
]


def journal(folder: Path, name: str, *records: Json, began: float = BEGAN, **start: object) -> str:
    """Write a journal by hand, each line ten seconds after the one before; its id."""
    path = folder / ".perfaudit" / "runs" / f"{name}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [{"kind": "start", **START, **start}, *records]
    timed = [{"at": began + 10 * number, **line} for number, line in enumerate(lines)]
    path.write_text("".join(json.dumps(line) + "\n" for line in timed))
    return name


LIST_TEXT = """\
 run                   command               knobs         trials  status        took  best saving
 ──────────────────────────────────────────────────────────────────────────────────────────────────
 20261122-100000-e5f6  tune train.py         ema                1  interrupted    30s
 20261122-090000-c3d4  tune train.py         dataloader,        1  unfinished     10s
                                             batch_size
                                             and 3 more
 20261121-201503-a1b2  tune photo_resnet.py  dataloader         3  finished     1m20s  dataloader
                                                                                       12 to 15 %
"""


RUN_TEXT = """\
20261121-201503-a1b2  tune sample_models/photo_resnet.py
began 2026-11-21 20:15:03, finished after 1m20s, device cpu, torch 2.13.0, cores 2

dataloader
 settings       status  ms/step      quartiles   n  peak memory
 ──────────────────────────────────────────────────────────────
 num_workers=0  ok        27.40  26.85 … 28.22  24    700.0 MiB
 num_workers=1  ok        26.10  25.58 … 26.88  24    700.0 MiB
 num_workers=2  ok        23.70  23.23 … 24.41  24    700.0 MiB
 num_workers=4  failed                           0
  all with pin_memory=False, persistent_workers=False
  num_workers=4: a loader worker died: bus error, /dev/shm is full

dataloader, time against num_workers=0
 candidate      ratio        interval  verdict     n  clock
 ──────────────────────────────────────────────────────────
 num_workers=1  0.953  [0.910, 1.012]  undecided  12  wall
 num_workers=2  0.865  [0.850, 0.879]  faster     12  wall

→ dataloader: 2 workers are faster
"""


def test_nothing_was_measured_here(project: Project, perfaudit: Run) -> None:
    folder = project()
    done = perfaudit("history")
    assert (done.code, done.out) == (3, "")
    assert (
        done.err == f"perfaudit: nothing was measured below {folder} so far; `perfaudit tune` writes its runs there\n"
    )
    assert perfaudit("history", "2026").code == 2


def several(folder: Path) -> None:
    journal(folder, "20261121-201503-a1b2", *FULL)
    knobs = ["dataloader", "batch_size", "cudnn", "ema", "precision"]
    journal(folder, "20261122-090000-c3d4", trial(0), began=BEGAN + 46000, knobs=knobs, target="train.py")
    ended = {"kind": "end", "status": "interrupted", "report": None}
    kept = winner(-0.02, 0.01, keeps=True)
    journal(folder, "20261122-100000-e5f6", trial(0), kept, ended, knobs=["ema"], target="a/long/path/to/train.py")


def test_the_list_as_it_is_read(project: Project, perfaudit: Run) -> None:
    several(project())
    done = perfaudit("history")
    assert (done.code, done.err) == (0, "")
    assert done.out == LIST_TEXT
    assert max(map(len, done.out.splitlines())) <= 100


def test_a_narrow_terminal_gets_fewer_columns(project: Project) -> None:
    folder = project()
    several(folder)
    done = subprocess.run(
        [sys.executable, "-m", "perfaudit", "history"],
        cwd=folder,
        env={**os.environ, "COLUMNS": "80"},
        capture_output=True,
        text=True,
        check=True,
    )
    lines = [line.strip() for line in done.stdout.splitlines()]
    assert lines[0].split() == ["run", "command", "trials", "status", "best", "saving"]
    assert lines[-2:] == ["20261121-201503-a1b2  tune photo_resnet.py       3  finished     dataloader 12", "to 15 %"]


def test_a_very_narrow_terminal_gets_lines_for_each_run_and_whole_ids(
    project: Project, perfaudit: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    several(project())
    monkeypatch.setattr("perfaudit.cli.history.text_width", lambda: 40)
    lines = perfaudit("history").out.splitlines()
    assert lines[-4:] == [
        "20261121-201503-a1b2",
        "  tune photo_resnet.py",
        "  finished, 3 trials",
        "  dataloader 12 to 15 %",
    ]
    assert max(map(len, lines)) <= 40


def test_the_list_for_programs(project: Project, perfaudit: Run) -> None:
    several(project())
    frame = pd.read_csv(io.StringIO(perfaudit("history", "--format", "csv").out))
    assert frame["id"].tolist() == ["20261122-100000-e5f6", "20261122-090000-c3d4", "20261121-201503-a1b2"]
    assert frame.iloc[2].to_dict() == {
        "id": "20261121-201503-a1b2",
        "began": "2026-11-21 20:15:03",
        "command": "tune",
        "target": "sample_models/photo_resnet.py",
        "knobs": "dataloader",
        "trials": 3,
        "status": "finished",
        "seconds": 80.0,
        "best_saving": "dataloader 12 to 15 %",
    }
    rows = json.loads(perfaudit("history", "--format", "json").out)
    assert rows["schema"] == "perfaudit.history/1"
    assert [(row["status"], row["best_saving"]) for row in rows["runs"]] == [
        ("interrupted", ""),
        ("unfinished", ""),
        ("finished", "dataloader 12 to 15 %"),
    ]


@pytest.mark.parametrize(("limit", "shown"), [("1", 1), ("2", 2), ("3", 3), ("0", 3)])
def test_limit(project: Project, perfaudit: Run, limit: str, shown: int) -> None:
    several(project())
    done = perfaudit("history", "--limit", limit, "--format", "csv")
    assert len(done.out.splitlines()) == 1 + shown
    assert done.err == (f"{3 - shown} older not shown; --limit 0 shows all\n" if shown < 3 else "")


def test_one_run_as_it_is_read(project: Project, perfaudit: Run) -> None:
    several(project())
    done = perfaudit("history", "20261121")
    assert (done.code, done.err) == (0, "")
    assert done.out == RUN_TEXT
    assert max(map(len, done.out.splitlines())) <= 100


def test_one_run_for_programs(project: Project, perfaudit: Run) -> None:
    several(project())
    trials = pd.read_csv(io.StringIO(perfaudit("history", "20261121", "--format", "csv").out))
    columns = "knob settings status metric median low high n peak_memory_bytes reason"
    assert list(trials.columns) == columns.split()
    assert trials["median"].tolist()[:3] == [0.0274, 0.0261, 0.0237]
    assert trials["status"].tolist() == ["ok", "ok", "ok", "failed"]
    text = perfaudit("history", "20261121", "--format", "csv", "--table", "comparisons").out
    assert pd.read_csv(io.StringIO(text))["ratio"].tolist() == [0.9526, 0.865]
    assert json.loads(perfaudit("history", "20261121", "--format", "json").out) == REPORT
    cut_off = json.loads(perfaudit("history", "20261122-09", "--format", "json").out)
    assert (cut_off["schema"], cut_off["run"], cut_off["status"]) == (
        "perfaudit.run/1",
        "20261122-090000-c3d4",
        "unfinished",
    )
    assert [t["median"] for t in cut_off["trials"]] == [0.0274]


def test_a_session_that_was_resumed_counts_nothing_twice(project: Project, perfaudit: Run) -> None:
    resumed = {"kind": "resumed", "at": BEGAN + 90_000}
    later = [{**line, "at": BEGAN + 90_000 + 10 * n} for n, line in enumerate(FULL, start=1)]
    name = journal(project(), "20261121-201503-a1b2", trial(0, 0.03), trial(1, 0.05), resumed, *later)
    row = json.loads(perfaudit("history", "--format", "json").out)["runs"][0]
    assert (row["trials"], row["seconds"], row["status"]) == (3, 20.0 + 80.0, "finished")
    trials = pd.read_csv(io.StringIO(perfaudit("history", name, "--format", "csv").out))
    assert trials["median"].tolist()[:3] == [0.0274, 0.0261, 0.0237]


@pytest.mark.parametrize(("basis", "best"), [("measured", "PA201 3 to 6 %"), ("screened", "PA201 3 to 6 % (screened)")])
def test_a_priced_scan_shows_what_it_found(project: Project, perfaudit: Run, basis: str, best: str) -> None:
    measured = {"rule": "PA201", "saving": {"basis": basis, "low": 0.03, "high": 0.06}}
    read = {"rule": "PA101", "saving": {"basis": "documented", "low": 0.5, "high": 0.9}}
    report = {**REPORT, "command": "scan", "findings": [read, measured]}
    journal(project(), "20261121-201503-a1b2", {"kind": "end", "status": "finished", "report": report}, command="scan")
    row = json.loads(perfaudit("history", "--format", "json").out)["runs"][0]
    assert row["best_saving"] == best


def test_a_climb_shows_what_all_of_it_saves(project: Project, perfaudit: Run) -> None:
    ladder = {"ratio": 0.66, "low": 0.57, "high": 0.78, "files": [{"path": "train.py"}]}
    for name, files, best in (("a1b2", ladder["files"], "ladder 22 to 43 %"), ("c3d4", [], "dataloader 12 to 15 %")):
        report = {**REPORT, "ladder": {**ladder, "files": files}}
        end = {"kind": "end", "status": "finished", "report": report}
        journal(project(), f"20261121-201503-{name}", *FULL[:-1], end)
        rows = json.loads(perfaudit("history", "--format", "json").out)["runs"]
        assert next(row["best_saving"] for row in rows if row["id"].endswith(name)) == best


def screened(knob: str, ratio: float | None, high: float | None, quads: int) -> Json:
    interval = {
        "low": high and ratio and ratio - 0.02,
        "high": high,
        "verdict": "faster" if high and high < 1 else "undecided",
    }
    fixed = {"baseline": {"patch": "none"}, "candidate": {"update": "fused"}, "clock": "wall", "basis": "screened"}
    return {"knob": knob, "ratio": ratio, "n": quads, **interval, **fixed}


CLIMB_TEXT = """\
20261121-201503-a1b2  tune sample_models/photo_resnet.py
began 2026-11-21 20:15:03, finished after 10s, device cpu, torch 2.13.0, cores 2

raced in one training, time against your code as it is
 candidate               ratio        interval  verdict    timed
 ───────────────────────────────────────────────────────────────
 optimizer update=fused  0.900  [0.880, 0.920]  faster        40
 cudnn update=fused              [no interval]  undecided      2
"""


def test_a_climb_shows_what_was_screened(project: Project, perfaudit: Run) -> None:
    ladder = {"ratio": 0.9, "low": 0.88, "high": 0.92, "files": [{"path": "train.py"}], "basis": "screened"}
    rows = [screened("cudnn", None, None, 2), screened("optimizer", 0.9, 0.92, 40)]
    report = {**REPORT, "ladder": ladder, "comparisons": rows}
    journal(project(), "20261121-201503-a1b2", {"kind": "end", "status": "finished", "report": report})
    assert perfaudit("history", "20261121").out == CLIMB_TEXT
    (row,) = json.loads(perfaudit("history", "--format", "json").out)["runs"]
    assert row["best_saving"] == "ladder 8 to 12 % (screened)"
    text = perfaudit("history", "20261121", "--format", "csv", "--table", "comparisons").out
    assert pd.read_csv(io.StringIO(text))["basis"].tolist() == ["screened", "screened"]
    assert "no interval yet (2 comparisons, screened)" in perfaudit("history", "20261121", "--format", "html").out


def test_a_run_of_which_nothing_was_finished(project: Project, perfaudit: Run) -> None:
    journal(project(), "20261121-201503-a1b2")
    assert perfaudit("history", "20261121").out.endswith("\nno trial was finished\n")


def test_damaged_runs_are_listed_and_said(project: Project, perfaudit: Run) -> None:
    folder = project()
    runs = folder / ".perfaudit" / "runs"
    runs.mkdir(parents=True)
    (runs / "20260101-000000-aaaa.jsonl").write_text('{"kind": "start", "schema": "perfaudit.run/9"}\n')
    done = perfaudit("history")
    assert done.code == 3
    assert "20260101-000000-aaaa" in done.out
    assert "made by another version of perfaudit (perfaudit.run/9)" in done.err
    several(folder)
    done = perfaudit("history", "--format", "csv")
    assert done.code == 0
    assert pd.read_csv(io.StringIO(done.out))["status"].tolist()[-1] == "damaged"
    done = perfaudit("history", "20260101")
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith(f"perfaudit: {runs / '20260101-000000-aaaa.jsonl'}:1: made by another version")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("1999",), "no run '1999' below"),
        (("20261122",), "2 runs begin with 20261122: 20261122-100000-e5f6, 20261122-090000-c3d4"),
        (("nothing.jsonl",), "nothing.jsonl: no such file"),
        (("--format", "sarif"), "'sarif' is none of text, csv, json, html"),
        (("--table", "winners"), "'winners' is none of trials, comparisons"),
        (("--limit", "-1"), "-1"),
        (("--output", "no/such/folder.csv"), "no such folder"),
    ],
)
def test_wrong_use(project: Project, perfaudit: Run, arguments: tuple[str, ...], said: str) -> None:
    several(project())
    done = perfaudit("history", *arguments)
    assert (done.code, done.out) == (2, "")
    assert said in done.err


def test_output_goes_to_a_file(project: Project, perfaudit: Run) -> None:
    folder = project()
    several(folder)
    shown = perfaudit("history", "20261121").out
    done = perfaudit("history", "20261121", "--output", "run.txt")
    assert (done.code, done.out, (folder / "run.txt").read_text()) == (0, "", shown)


def test_runs_as_pages(project: Project, perfaudit: Run) -> None:
    folder = project()
    several(folder)
    done = perfaudit("history", "--html", "runs.html")
    assert done.out == LIST_TEXT
    listed = (folder / "runs.html").read_text()
    assert perfaudit("history", "--format", "html").out == listed
    said = readable(listed).splitlines()
    assert said[:2] == ["perfaudit history", "3 runs"]
    assert "dataloader 12 to 15 %" in said
    page = check_page(listed)
    assert json.loads(page.texts["script"][0]) == json.loads(perfaudit("history", "--format", "json").out)

    done = perfaudit("history", "20261121", "--html", "run.html")
    assert done.out == RUN_TEXT
    shown = (folder / "run.html").read_text()
    page, said = check_page(shown), readable(shown).splitlines()
    assert said[:2] == [
        "perfaudit history: 20261121-201503-a1b2, tune sample_models/photo_resnet.py",
        "2 workers are faster: saves 12.0 to 15.0 % of the step (measured)",
    ]
    assert "0.865 [0.850, 0.879] faster (12 rounds, measured)" in said
    assert "Time of a step by workers of the loader: medians with quartiles." in said
    assert json.loads(page.texts["script"][0]) == json.loads(perfaudit("history", "20261121", "--format", "json").out)


def test_nothing_of_a_journal_is_markup(project: Project, perfaudit: Run) -> None:
    lines = [
        trial(0, settings={EVIL: EVIL}, knob=EVIL),
        trial(1, None, reason=EVIL),
        {**winner(0.1, 0.2), "words": EVIL},
    ]
    name = journal(project(), "20261121-201503-a1b2", *lines, target=EVIL, knobs=[EVIL], environment={EVIL: EVIL})
    for arguments in ((), (name,)):
        text = perfaudit("history", *arguments, "--format", "html").out
        check_page(text)
        assert "<img" not in text


def test_without_pandas_json_is_left(project: Project, perfaudit: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    several(project())
    monkeypatch.setitem(sys.modules, "pandas", None)
    for arguments in ((), ("--format", "csv"), ("20261121",)):
        done = perfaudit("history", *arguments)
        assert (done.code, done.out) == (2, "")
        assert "pip install 'perfaudit[torch]', or use --format json" in done.err
    assert perfaudit("history", "--format", "json").code == 0
    assert perfaudit("history", "20261121", "--format", "json").code == 0


NUMBERS = (None, "x", True, float("inf"), float("nan"), -1, 10**400, [], {"a": 1})


@pytest.mark.parametrize("strange", NUMBERS, ids=repr)
@pytest.mark.parametrize("format_", ["text", "csv", "json", "html"])
def test_a_file_that_holds_anything(project: Project, perfaudit: Run, strange: object, format_: str) -> None:
    keys = ("at", "knob", "settings", "status", "metric", "median", "low", "high", "n", "peak_memory_bytes", "reason")
    odd: list[Json] = [{**trial(0), key: strange} for key in keys]
    odd += [{**compared(1, 0.9, 0.8, 0.95, "faster"), key: strange} for key in ("candidate", "ratio", "low", "high")]
    odd += [{**winner(0.1, 0.2), key: strange} for key in ("knob", "words", "saving", "keeps_current")]
    odd += [winner(0.1, 0.2) | {"saving": {"low": strange, "high": strange}}]
    odd += [{"kind": "end", "status": strange, "report": strange}]
    fields = dict.fromkeys(("command", "target", "knobs", "environment", "files", "options"), strange)
    name = journal(project(), "20261121-201503-a1b2", *odd, **fields)
    for arguments in ((), (name,)):
        done = perfaudit("history", *arguments, "--format", format_)
        assert (done.code, done.err) == (0, "")
        if format_ == "html":
            check_page(done.out)
        if format_ == "json":
            json.loads(done.out, parse_constant=lambda constant: pytest.fail(f"{constant} is no JSON"))


def test_control_characters_do_not_reach_the_terminal(project: Project, perfaudit: Run) -> None:
    evil = "\x1b]0;owned\x07\nline"
    lines = [
        trial(0, settings={evil: evil}, knob=evil),
        trial(1, None, reason=evil),
        {**winner(0.1, 0.2), "words": evil},
    ]
    name = journal(project(), "20261121-201503-a1b2", *lines, target=evil, knobs=[evil], environment={evil: evil})
    for arguments in ((), (name,)):
        done = perfaudit("history", *arguments)
        assert done.code == 0
        assert "\x1b" not in done.out
        assert "\x07" not in done.out


def test_nothing_of_the_user_is_imported_nor_torch(project: Project) -> None:
    folder = project(**{"train.py": "raise SystemExit('run')"})
    several(folder)
    code = (
        "import sys; sys.argv = ['perfaudit', 'history', '20261121']\n"
        "from perfaudit.cli import main\n"
        "try: main()\n"
        "except SystemExit as leave: assert not leave.code, leave.code\n"
        "print([m for m in ('torch', 'train') if m in sys.modules])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"
