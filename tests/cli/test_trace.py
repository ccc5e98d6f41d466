"""`perfaudit trace` as it is typed: reports, exit codes, what is said of files that are none, and that nothing heavy is
imported.
"""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import Done
from made_traces import Host, Job, step_of_training

Run = Callable[..., Done]


def trace(path: Path, milliseconds: float = 12.0, steps: int = 4, rank: int | None = None) -> Path:
    host = Host(rank=rank, world_size=2)
    for _ in range(steps):
        with host.step(), host.frame("/home/me/project/train.py(9): main"):
            host.next_batch(1000 * milliseconds, workers=False)
            step_of_training(host)
            host.catch_up()
    return host.write(path)


def in_json(done: Done) -> dict[str, Any]:
    report: dict[str, Any] = json.loads(done.out)
    return report


def test_a_report(perfaudit: Run, tmp_path: Path) -> None:
    done = perfaudit("trace", str(trace(tmp_path / "a.json")))
    assert (done.code, done.err) == (1, "")
    lines = done.out.splitlines()
    assert lines[0].startswith(
        "36.41 ms a step; the device computes for 67 % of the time and is idle for 33 %, waiting for data;"
    )
    assert "  1  at most 33 %  PA101 dataloader-no-workers" in done.out
    assert "do not add up" in done.out
    assert max(len(line) for line in lines if not line.startswith("  ")) <= 100


def test_json(perfaudit: Run, tmp_path: Path) -> None:
    report = in_json(perfaudit("trace", str(trace(tmp_path / "a.json", rank=0)), "--format", "json"))
    assert report["command"] == "trace"
    (rank,) = report["trace"]["ranks"]
    assert {
        "file",
        "rank",
        "device",
        "window_seconds",
        "steps",
        "shares",
        "communication_overlap",
        "tensor_core_share",
        "notes",
    } <= rank.keys()
    assert (rank["rank"], rank["device"], rank["device_name"], rank["steps"]) == (
        0,
        "cuda:0",
        "NVIDIA A100-SXM4-40GB",
        4,
    )
    assert list(rank["shares"]) == [
        "compute",
        "communication_exposed",
        "memory_exposed",
        "idle_data",
        "idle_sync",
        "idle_allocation",
        "idle_launch",
        "idle_other",
    ]
    assert sum(rank["shares"].values()) == pytest.approx(1)
    (finding,) = report["findings"]
    assert finding["rule"] == "PA101"
    assert (finding["saving"]["basis"], finding["saving"]["low"]) == ("profiled", 0.0)
    assert finding["saving"]["high"] == pytest.approx(rank["shares"]["idle_data"])
    assert (finding["path"], finding["line"]) == ("/home/me/project/train.py", 9)
    assert report["trace"]["stragglers"] == []


def test_nothing_worth_doing_is_an_answer(perfaudit: Run, tmp_path: Path) -> None:
    done = perfaudit("trace", str(trace(tmp_path / "a.json", milliseconds=0)))
    assert done.code == 0
    assert "nothing worth doing was found" in done.out


def test_what_can_be_read_is_read(perfaudit: Run, tmp_path: Path) -> None:
    trace(tmp_path / "a.json")
    (tmp_path / "b.json").write_text("{}")
    (tmp_path / "c.json.gz").write_bytes(b"\x1f\x8bx")
    done = perfaudit("trace", str(tmp_path), "--format", "json")
    report = in_json(done)
    assert done.code == 1
    assert len(report["trace"]["ranks"]) == 1
    assert {Path(item["path"]).name for item in report["skipped"]} == {"b.json", "c.json.gz"}


def cut_off(path: Path) -> Path:
    """A trace that ends in the middle of its work, which stands behind the host's events as Kineto writes it."""
    events = json.loads(trace(path).read_text())["traceEvents"]
    text = json.dumps({"traceEvents": sorted(events, key=lambda event: event.get("cat") == "kernel")})
    begin = text.index('"cat": "kernel"')
    path.write_text(text[: (begin + len(text)) // 2])
    return path


def test_of_a_trace_that_is_cut_off_nothing_is_concluded(perfaudit: Run, tmp_path: Path) -> None:
    cut = cut_off(tmp_path / "cut.json")
    done = perfaudit("trace", str(cut))
    assert done.code == 3
    said = " ".join(done.out.split())
    assert "of what is there of the file, which ends in the middle, and what could be saved is not known" in said
    assert "note: The file ends before all work of its steps" in said
    report = in_json(perfaudit("trace", str(cut), "--format", "json"))
    assert {"truncated", "cut-work"} <= {*report["trace"]["ranks"][0]["notes"]}
    assert report["findings"] == []
    # Beside a whole one it is a note, and no part of the verdict.
    whole = perfaudit("trace", str(cut), str(trace(tmp_path / "whole.json")), "--ranks")
    assert whole.code == 1
    assert whole.out.startswith("36.41 ms a step; the device computes for 67 % of the time")
    assert "ends before all work of its steps" in " ".join(whole.out.split())


def test_a_comparison_with_what_cannot_be_read_is_none(perfaudit: Run, tmp_path: Path) -> None:
    (tmp_path / "none.json").write_text("{}")
    done = perfaudit("trace", "--compare", str(trace(tmp_path / "a.json")), str(tmp_path / "none.json"))
    assert done.code == 3
    assert "Nothing is compared, because" in done.out
    for pair in (("cut.json", "a.json"), ("a.json", "cut.json")):
        cut_off(tmp_path / "cut.json")
        done = perfaudit("trace", "--compare", *(str(tmp_path / name) for name in pair))
        assert done.code == 3
        assert "cut.json ends in the middle of its work" in " ".join(done.out.split())
        assert done.out.startswith("36.41 ms a step; the device computes for 67 %")


def test_a_window_that_reaches_beyond_the_trace_is_said(perfaudit: Run, tmp_path: Path) -> None:
    path = str(trace(tmp_path / "a.json"))
    done = perfaudit("trace", path, "--window", "2:90")
    assert done.code == 1
    assert done.err == "perfaudit: --window 2:90: these traces have only steps 1 to 4\n"
    assert perfaudit("trace", path, "--window", "2:3").err == ""


def test_nothing_that_can_be_read(perfaudit: Run, tmp_path: Path) -> None:
    (tmp_path / "b.json").write_text("0123456789")
    done = perfaudit("trace", str(tmp_path / "b.json"))
    assert done.code == 3
    assert "no trace: neither a JSON object nor a list" in " ".join(done.out.split())
    assert perfaudit("trace", str(tmp_path / "b.json"), "--format", "json").code == 3


def test_a_path_that_is_not_there_costs_the_others_nothing(
    perfaudit: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    trace(tmp_path / "a.json")
    done = perfaudit("trace", "a.json", "gone.json", "--export", "perfetto")
    assert done.code == 1
    assert "  1  at most 33 %  PA101" in done.out
    assert "not read: gone.json: no such file or folder" in done.out
    assert (tmp_path / "perfaudit.step.json").is_file()
    compared = perfaudit("trace", "--compare", "gone.json", "a.json")
    assert compared.code == 3
    assert "because gone.json could not be read" in " ".join(compared.out.split())
    assert perfaudit("trace", "gone.json", "gone too.json").code == 2


def test_what_may_not_be_read_is_named_and_costs_the_others_nothing(
    perfaudit: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Root may read everything, so that the system's answers are made up."""
    monkeypatch.chdir(tmp_path)
    for folder in ("open", "open/closed"):
        (tmp_path / folder).mkdir()
    trace(tmp_path / "open" / "a.json")
    trace(tmp_path / "open" / "closed" / "b.json")
    trace(tmp_path / "c.json")
    opened, scanned = Path.open, os.scandir

    def refused(path: Any) -> bool:
        return Path(path).name in ("c.json", "closed")

    def no_open(path: Path, *arguments: Any, **options: Any) -> Any:
        if refused(path):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        return opened(path, *arguments, **options)

    def no_scan(path: Any) -> Any:
        if refused(path):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        return scanned(path)

    monkeypatch.setattr(Path, "open", no_open)
    monkeypatch.setattr(os, "scandir", no_scan)
    monkeypatch.setattr(os, "access", lambda path, *_, **__: not refused(path))
    done = perfaudit("trace", "open", "c.json", "--jobs", "1")
    assert done.code == 1
    assert "not read: c.json: permission denied" in done.out
    assert "not read: open/closed: permission denied" in done.out
    assert perfaudit("trace", "c.json", "--jobs", "1").code == 3


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["gone.json"], "gone.json: no such file or folder"),
        (["empty"], "no traces there"),
        (["a.json", "--window", "x"], "--window x: give the first and the last step"),
        (["a.json", "--window", ""], "--window : give the first and the last step"),
        (["a.json", "--window", "4:2"], "--window 4:2: give the first and the last step"),
        (["a.json", "--rank", "7"], "--rank 7: no such rank; there are 0"),
        (["--compare", "a.json", "b.json", "--rank", "1"], "--rank 1: no such rank in b.json; there are 2"),
        (["a.json", "--compare"], "--compare takes two paths"),
    ],
)
def test_wrong_use(
    perfaudit: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    trace(tmp_path / "a.json", rank=1 if "b.json" in arguments else 0)
    trace(tmp_path / "b.json", rank=2)
    (tmp_path / "empty").mkdir()
    done = perfaudit("trace", *arguments)
    assert (done.code, done.out) == (2, "")
    assert message in done.err


def test_two_traces_of_one_rank_are_compared(perfaudit: Run, tmp_path: Path) -> None:
    before, after = trace(tmp_path / "before.json"), trace(tmp_path / "after.json", milliseconds=0)
    report = in_json(perfaudit("trace", str(before), str(after), "--format", "json"))
    change = report["trace"]["compared"]
    assert change["seconds_per_step_after"] < change["seconds_per_step_before"]
    assert change["findings"] == [{"rule": "PA101", "before": pytest.approx(0.329, abs=0.01), "after": None}]
    text = perfaudit("trace", str(before), str(after)).out
    assert "36.41 ms -> 24.41" in text
    assert "PA101        33 % -> no finding" in text


def test_two_ranks_are_one_job(perfaudit: Run, tmp_path: Path) -> None:
    for rank in (0, 1):
        trace(tmp_path / f"r{rank}.json", rank=rank)
    names = [str(tmp_path / f"r{rank}.json") for rank in (0, 1)]
    assert len(in_json(perfaudit("trace", *names, "--format", "json"))["trace"]["ranks"]) == 2
    assert in_json(perfaudit("trace", *names, "--compare", "--format", "json"))["trace"]["compared"] is not None


def test_one_rank_and_some_steps(perfaudit: Run, tmp_path: Path) -> None:
    for rank in (0, 1):
        trace(tmp_path / f"r{rank}.json", rank=rank)
    report = in_json(perfaudit("trace", str(tmp_path), "--rank", "1", "--window", "2:3", "--format", "json"))
    assert [(rank["rank"], rank["steps"]) for rank in report["trace"]["ranks"]] == [(1, 2)]


def test_a_straggler_is_told(perfaudit: Run, tmp_path: Path) -> None:
    job = Job.of(3)
    for _ in range(4):
        for host in job.ranks:
            host.steps += 1
        starts = [host.now for host in job.ranks]
        for rank, host in enumerate(job.ranks):
            step_of_training(host, layers=5, microseconds=800 if rank == 2 else 400)
        job.all_reduce()
        job.all_reduce()
        for start, host in zip(starts, job.ranks, strict=True):
            host.event("user_annotation", f"ProfilerStep#{host.steps}", start, host.now)
            host.catch_up()
    done = perfaudit("trace", str(job.write(tmp_path)), "--format", "json")
    (straggler,) = in_json(done)["trace"]["stragglers"]
    assert (straggler["rank"], straggler["last"], straggler["of"]) == (2, 4, 8)
    assert "rank 2 comes last to 4 of 8 collectives" in perfaudit("trace", str(tmp_path)).out


def test_findings_are_joined_with_those_of_the_scanner(perfaudit: Run, tmp_path: Path) -> None:
    code = tmp_path / "project"
    code.mkdir()
    (code / "train.py").write_text(
        "import torch\nfrom torch.utils.data import DataLoader\nfrom data import Pictures\n\n"
        "def main(model, optimizer):\n"
        "    loader = DataLoader(Pictures(), batch_size=64)\n"
        "    for x, y in loader:\n        loss = model(x.cuda(), y.cuda())\n        loss.backward()\n        optimizer.step()\n"
    )
    (code / "data.py").write_text(
        "from PIL import Image\n\nclass Pictures:\n    def __len__(self):\n        return 9\n"
        "    def __getitem__(self, i):\n        return Image.open(str(i)).load(), i\n"
    )
    done = perfaudit("trace", str(trace(tmp_path / "a.json")), "--source", str(code), "--format", "json")
    (finding,) = in_json(done)["findings"]
    assert finding["path"].endswith("project/train.py")
    assert finding["line"] == 6
    assert "In this function the scanner finds: " in finding["note"]
    assert "num_workers" in finding["fix"]["diff"]
    shown = perfaudit("trace", str(tmp_path / "a.json"), "--source", str(code)).out
    assert "\n     fix (" in shown  # once


def test_a_step_is_exported(perfaudit: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    done = perfaudit("trace", str(trace(tmp_path / "a.json")), "--export", "perfetto")
    assert "perfaudit.step.json: step 1 of a.json; ui.perfetto.dev" in done.err
    events = json.loads((tmp_path / "perfaudit.step.json").read_text())["traceEvents"]
    whole = json.loads((tmp_path / "a.json").read_text())["traceEvents"]
    kernels = [sum(event.get("cat") == "kernel" for event in several) for several in (events, whole)]
    assert kernels[0] * 4 == kernels[1]  # one step of four
    assert "idle: waiting for data" in {event["name"] for event in events if event.get("cat") == "idle"}
    arrows = [(event["ph"], event["id"]) for event in events if event.get("cat") == "ac2g"]
    assert len(arrows) == 2 * kernels[0] == len(set(arrows))
    reports = [in_json(perfaudit("trace", name, "--format", "json")) for name in ("a.json", "perfaudit.step.json")]
    assert reports[0]["findings"][0]["rule"] == reports[1]["findings"][0]["rule"]


def test_names_from_a_trace_command_no_terminal(perfaudit: Run, tmp_path: Path) -> None:
    host = Host()
    for _ in range(4):
        with host.step(), host.annotation("\x1b[31mred\x1b]0;title\x07"):
            step_of_training(host)
            host.item()
            host.python(3_000)
    done = perfaudit("trace", str(host.write(tmp_path / "a.json")), "--verbose")
    assert "\x1b" not in done.out and "\x07" not in done.out
    assert "PA601" in done.out


@pytest.mark.parametrize(("is_device", "rules"), [(True, ["PA101"]), (False, [])])
def test_a_run_reads_the_trace_of_its_profile(tmp_path: Path, is_device: bool, rules: list[str]) -> None:
    from perfaudit.cli.run import _findings_of_trace

    made = json.loads(trace(tmp_path / "a.json").read_text())
    if not is_device:
        made["traceEvents"] = [event for event in made["traceEvents"] if event["cat"] in ("cpu_op", "user_annotation")]
    with (tmp_path / "b.json").open("w+b") as file:
        assert _findings_of_trace(file) == ()  # none was written
        file.write(json.dumps(made).encode())
        file.flush()
        found = _findings_of_trace(file)
    assert [finding.rule for finding in found] == rules
    assert all(finding.note.startswith("observed in the profile") for finding in found)


def test_nothing_heavy_is_imported_and_nothing_is_run(tmp_path: Path) -> None:
    path = trace(tmp_path / "a.json")
    code = (
        f"import sys; sys.argv = ['perfaudit', 'trace', {str(path)!r}, '--exit-zero']\n"
        "from perfaudit.cli import main\n"
        "try: main()\n"
        "except SystemExit as leave: assert not leave.code, leave.code\n"
        "print([m for m in ('torch', 'pandas', 'numpy', 'rich', 'json5') if m in sys.modules])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_a_window_without_steps_is_wrong_use(perfaudit: Run, tmp_path: Path) -> None:
    for rank in range(3):
        trace(tmp_path / f"rank{rank}.json", rank=rank)
    done = perfaudit("trace", str(tmp_path), "--window", "7:9")
    assert done.code == 2
    assert done.err.strip() == "perfaudit: --window 7:9: no such steps; these traces have 1 to 4"


def test_a_finding_in_another_function_is_only_named(perfaudit: Run, tmp_path: Path) -> None:
    """The trace shows line 9, in `main`; the scanner finds a loader in another function of the same file."""
    code = tmp_path / "project"
    code.mkdir()
    (code / "train.py").write_text(
        "import torch\nfrom torch.utils.data import DataLoader\nfrom data import Pictures\n\n"
        "def loaders():\n    return DataLoader(Pictures(), batch_size=64), DataLoader(Pictures(), batch_size=8)\n\n"
        "def main(model, optimizer):\n    for x, y in loaders()[0]:\n"
        "        loss = model(x.cuda(), y.cuda())\n        loss.backward()\n        optimizer.step()\n"
    )
    (code / "data.py").write_text(
        "from PIL import Image\n\nclass Pictures:\n    def __len__(self):\n        return 9\n"
        "    def __getitem__(self, i):\n        return Image.open(str(i)).load(), i\n"
    )
    done = perfaudit("trace", str(trace(tmp_path / "a.json")), "--source", str(code), "--format", "json")
    (finding,) = in_json(done)["findings"]
    assert "In the code the scanner finds, for causes of this kind: " in finding["note"]
    assert (finding["line"], finding.get("fix")) == (9, None)
