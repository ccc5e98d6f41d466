"""Files as profilers and people leave them: compressed, in archives, old, damaged, huge; none of them is unpacked or run."""

from __future__ import annotations

import gzip
import io
import json
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from made_traces import GEMM, Host, step_of_training

from perfaudit.errors import UserError
from perfaudit.render import paint
from perfaudit.render.html.trace_bars import bars
from perfaudit.render.trace import trace_page
from perfaudit.render.trace_markdown import parts
from perfaudit.rules import rule_heads
from perfaudit.trace.analyse import analyse
from perfaudit.trace.job import rank_in_name
from perfaudit.trace.json_events import EventReader
from perfaudit.trace.read import read_trace
from perfaudit.trace.report import report_of
from perfaudit.trace.steps import steps_of
from perfaudit.trace.trace_files import NotReadable, TraceFile, find_traces
from perfaudit.traces import RankTrace

Json = dict[str, Any]


def made(steps: int = 4, rank: int | None = None) -> Json:
    host = Host(rank=rank, world_size=2)
    for _ in range(steps):
        with host.step():
            host.next_batch(12_000)
            step_of_training(host)
            host.catch_up()
    return host.trace()


def shares_of(path: Path) -> dict[str, float]:
    (device,) = analyse(TraceFile(str(path))).devices
    return {name: round(share, 4) for name, share in device.shares.items()}


def notes_of(path: Path) -> tuple[str, ...]:
    (device,) = analyse(TraceFile(str(path))).devices
    return device.notes


@pytest.fixture
def plain(tmp_path: Path) -> Path:
    path = tmp_path / "plain.json"
    path.write_text(json.dumps(made()))
    return path


def written(tmp_path: Path, trace: Json | str, name: str = "other.json") -> Path:
    path = tmp_path / name
    path.write_text(trace if isinstance(trace, str) else json.dumps(trace))
    return path


def test_the_same_compressed_and_in_archives(plain: Path, tmp_path: Path) -> None:
    text = plain.read_bytes()
    (tmp_path / "a.json.gz").write_bytes(gzip.compress(text))
    (tmp_path / "named_plain.json").write_bytes(gzip.compress(text))  # by its first bytes
    with zipfile.ZipFile(tmp_path / "b.zip", "w") as archive:
        archive.writestr("traces/r.json", text)
        archive.writestr("readme.txt", "no trace")
    with tarfile.open(tmp_path / "c.tar.gz", "w:gz") as tar:
        info = tarfile.TarInfo("r.json.gz")
        packed = gzip.compress(text)
        info.size = len(packed)
        tar.addfile(info, io.BytesIO(packed))
    files = find_traces([tmp_path])
    members = ["", "traces/r.json", "r.json.gz", "", ""]
    assert [file.member for file in files] == members
    first = analyse(files[0]).devices[0].shares
    assert all(analyse(file).devices[0].shares == first for file in files)


def test_a_list_without_a_head(plain: Path, tmp_path: Path) -> None:
    assert shares_of(written(tmp_path, json.dumps(made()["traceEvents"]))) == shares_of(plain)


def test_head_behind_the_events(plain: Path, tmp_path: Path) -> None:
    trace = made(rank=1)
    events = trace.pop("traceEvents")
    result = analyse(TraceFile(str(written(tmp_path, json.dumps({"traceEvents": events, **trace}, indent=1)))))
    assert (result.rank, result.world_size) == (1, 2)


def test_old_categories_and_texts_for_numbers(plain: Path, tmp_path: Path) -> None:
    old = {
        "kernel": "Kernel",
        "gpu_memcpy": "Memcpy",
        "cuda_runtime": "Runtime",
        "cpu_op": "Operator",
        "user_annotation": "Operator",
    }
    trace = made()
    for event in trace["traceEvents"]:
        event["cat"] = old[event["cat"]]
        event["ts"], event["dur"] = str(event["ts"]), f"{event['dur']:.3f}"
        event["args"] = {key: str(value) for key, value in event["args"].items()}
    path = written(tmp_path, trace)
    assert shares_of(path) == pytest.approx(shares_of(plain), abs=1e-3)
    assert "times-as-text" in notes_of(path)


@pytest.mark.parametrize("base", [0, 1_700_000_000_000_000])
def test_nanoseconds(base: int, plain: Path, tmp_path: Path) -> None:
    trace = made()
    for event in trace["traceEvents"]:
        event["ts"], event["dur"] = round(1000 * (event["ts"] + base)), round(1000 * event["dur"])
    path = written(tmp_path, trace)
    assert shares_of(path) == pytest.approx(shares_of(plain), abs=1e-3)
    assert "nanoseconds" in notes_of(path)
    assert "nanoseconds" not in notes_of(plain)


def test_text_that_is_no_utf8_and_numbers_that_are_no_json(plain: Path, tmp_path: Path) -> None:
    text = (
        plain.read_bytes()
        .replace(b"aten::mm", b"aten::m\xff\x01m", 3)
        .replace(b'"correlation": 9,', b'"correlation": 9, "x": NaN,', 1)
    )
    path = tmp_path / "bad.json"
    path.write_bytes(text)
    assert shares_of(path) == shares_of(plain)
    assert "damaged-text" in notes_of(path)


def without_time(event: Json) -> None:
    event["ts"] = None


def negative(event: Json) -> None:
    event["dur"] = -5


def without_end(event: Json) -> None:
    event["dur"] = float("inf")


def with_a_list(event: Json) -> None:
    event["args"] = ["what"]


@pytest.mark.parametrize("spoil", [without_time, negative, without_end, with_a_list])
def test_odd_events_are_left_out(spoil: Callable[[Json], None], plain: Path, tmp_path: Path) -> None:
    trace = made()
    extra = dict(next(event for event in trace["traceEvents"] if event["cat"] == "cpu_op"))
    spoil(extra)
    trace["traceEvents"] += [extra, "nonsense", None, 7]
    path = written(tmp_path, trace)
    assert shares_of(path) == pytest.approx(shares_of(plain), abs=1e-3)
    assert "odd-events" in notes_of(path)


@pytest.mark.parametrize(
    "spoil",
    [
        lambda event: event.update(dur=1e12),
        lambda event: event.update(ts=event["ts"] + 1e12),
        lambda event: event.update(ts=-9e9),
    ],
)
@pytest.mark.parametrize("category", ["kernel", "cpu_op", "user_annotation"])
@pytest.mark.parametrize("has_steps", [True, False])
def test_a_few_events_of_hours_cost_themselves_alone(
    has_steps: bool, category: str, spoil: Callable[[Json], None], tmp_path: Path
) -> None:
    trace = made(steps=12)
    if not has_steps:
        trace["traceEvents"] = [event for event in trace["traceEvents"] if not event["name"].startswith("ProfilerStep")]
    usual = shares_of(written(tmp_path, trace))
    event = next(event for event in reversed(trace["traceEvents"]) if event["cat"] == category)
    spoil(event)
    path = written(tmp_path, trace)
    assert "odd-events" in notes_of(path)
    assert shares_of(path) == pytest.approx(usual, abs=0.05)  # of 12 steps one may lose its mark, or its wait


def test_many_events_of_hours_are_a_long_recording(tmp_path: Path) -> None:
    trace = made()
    for event in trace["traceEvents"][-100:]:
        event["ts"] += 1e12
    path = written(tmp_path, trace)
    assert "odd-events" not in notes_of(path)


def test_ids_that_are_there_twice(plain: Path, tmp_path: Path) -> None:
    trace = made()
    later = [dict(event, ts=event["ts"] + 1e7) for event in trace["traceEvents"] if event["cat"] == "cuda_runtime"]
    path = written(tmp_path, {**trace, "traceEvents": [*trace["traceEvents"], *later]})
    assert shares_of(path) == pytest.approx(shares_of(plain), abs=1e-3)
    assert "overlapping-ids" in notes_of(path)


@pytest.mark.parametrize("place", [5, 100, -20])
def test_an_event_that_is_damaged_is_left_out(place: int, plain: Path, tmp_path: Path) -> None:
    """A quote that is not escaped once lost the whole file, after a time that grew with its square."""
    trace = made()
    broken = {"ph": "X", "cat": "cpu_op", "name": "BROKEN", "ts": 1, "dur": 1, "args": {}}
    trace["traceEvents"].insert(place, broken)
    path = written(tmp_path, json.dumps(trace).replace("BROKEN", 'a"b'))
    assert shares_of(path) == pytest.approx(shares_of(plain), abs=1e-3)
    assert "odd-events" in notes_of(path)
    assert read_trace(TraceFile(str(path))).events == read_trace(TraceFile(str(plain))).events


def test_large_ids(plain: Path, tmp_path: Path) -> None:
    trace = made()
    for event in trace["traceEvents"]:
        if "correlation" in event["args"]:
            event["args"]["correlation"] += 1 << 31
    path = written(tmp_path, trace)
    assert shares_of(path) == shares_of(plain)
    assert "filtered" not in notes_of(path)


@pytest.mark.parametrize("compress", [False, True])
@pytest.mark.parametrize("part", [0.5, 0.9])
def test_a_file_that_ends_in_the_middle(part: float, compress: bool, plain: Path, tmp_path: Path) -> None:
    text = plain.read_bytes()
    data = gzip.compress(text) if compress else text
    path = tmp_path / "cut.json"
    path.write_bytes(data[: int(part * len(data))])
    assert "truncated" in notes_of(path)
    whole = read_trace(TraceFile(str(plain))).events
    assert (part - 0.2) * whole < read_trace(TraceFile(str(path))).events < (part + 0.2) * whole


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"", "no trace: the file is empty"),
        (b"0123456789", "no trace: neither a JSON object nor a list"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0123\nsize 9\n", "no trace: a pointer of Git LFS"),
        (b'{"loss": [1, 2, 3]}', "no trace: JSON without traceEvents"),
        ('{"traceEvents": []}'.encode("utf-16"), "no trace: its text is UTF-16"),
        ('{"traceEvents": []}'.encode("utf-16-le"), "no trace: its text is UTF-16"),
        ('[{"ph": "X"}]'.encode("utf-16-be"), "no trace: its text is UTF-16"),
        (b'{"traceEvents": []}', "no trace: its list of events is empty"),
        (b'{"traceEve', "no trace: not JSON, or cut off before its first event"),
        (b'{"traceEvents": [{"ph": "X", "na', "no trace: cut off inside its first event"),
        (b"[" * 5_000, "no trace: cut off inside its first event"),
        (b"[" * 5_000 + b"]" * 5_000, "no trace: nothing in its list is an event"),
        (b'{"a": ' * 5_000 + b"1" + b"}" * 5_000, "no trace: its values are nested too deep"),
        (b"\x1f\x8b\x08garbage-garbage", "cannot be decompressed"),
        (b"\x28\xb5\x2f\xfd and so on", "compressed as zstd"),
        (b"PK\x03\x04 and so on", "a zip archive whose name does not end in .zip"),
        (b'{"traceEvents": [{"ph": "M", "name": "process_name"}]}', "no operators and no work of a device in it"),
    ],
)
def test_what_is_no_trace_is_told_in_a_sentence(content: bytes, problem: str, tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_bytes(content)
    assert analyse(TraceFile(str(path))).problem.startswith(problem)


def test_archives_that_are_damaged(tmp_path: Path) -> None:
    (tmp_path / "a.zip").write_bytes(b"PK\x03\x04 no zip")
    (tmp_path / "b.tar.gz").write_bytes(b"no tar")
    assert {analyse(file).problem for file in find_traces([tmp_path])} == {
        "an archive without traces in it, or damaged"
    }


def test_a_path_that_does_not_exist(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="gone"):
        find_traces([tmp_path / "gone"])


def test_a_link_that_leads_nowhere(tmp_path: Path) -> None:
    (tmp_path / "a.json").symlink_to(tmp_path / "a.json")
    with pytest.raises(UserError, match="a link that leads nowhere"):
        find_traces([tmp_path / "a.json"])


def test_no_more_is_read_of_an_event_without_an_end_than_an_event_may_take(
    plain: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("perfaudit.trace.json_events.PIECE", 1 << 10)
    monkeypatch.setattr("perfaudit.trace.json_events.MAX_EVENT", 1 << 13)
    stream = io.BytesIO(b'{"traceEvents": [{"ph": "X", "name": "' + b"a" * (1 << 20))
    with pytest.raises(NotReadable, match="no event ends in"):
        list(EventReader(stream).pieces())
    assert stream.tell() < 1 << 14


@pytest.mark.parametrize("size", [1, 7, 64])
def test_a_head_that_is_longer_than_a_piece(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("perfaudit.trace.json_events.PIECE", size)
    reader = EventReader(
        io.BytesIO(b'{"rank": 3, "x": "' + b"y" * 500 + b'", "traceEvents"  :  [{"ph": "X"}], "z": 1}')
    )
    assert sum(len(piece) for piece in reader.pieces()) == 1
    assert (reader.head["rank"], reader.head["z"]) == (3, 1)


def test_pieces_of_any_size_are_the_same_events(plain: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = plain.read_bytes()
    whole = [event for piece in EventReader(io.BytesIO(text)).pieces() for event in piece]
    for size in (300, 1_000, 7_919):
        monkeypatch.setattr("perfaudit.trace.json_events.PIECE", size)
        assert [event for piece in EventReader(io.BytesIO(text)).pieces() for event in piece] == whole


def test_braces_and_commas_in_names_are_no_ends_of_events(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("perfaudit.trace.json_events.PIECE", 64)
    names = ["a}, {b", '"}', "]}", "\\", "},{"] * 20
    events = [
        {"ph": "X", "name": name, "ts": 1, "dur": 1, "args": {"stack": [{"f": name}, {"f": 2}]}} for name in names
    ]
    text = json.dumps({"traceEvents": events, "tail": [{"a": 1}, {"b": 2}]}).encode()
    reader = EventReader(io.BytesIO(text))
    assert [event.name for piece in reader.pieces() for event in piece] == names
    assert reader.head["tail"] == [{"a": 1}, {"b": 2}]


def test_of_a_file_that_is_too_large_some_steps_are_kept(tmp_path: Path) -> None:
    path = written(tmp_path, made(steps=40))
    whole = read_trace(TraceFile(str(path)))
    part = read_trace(TraceFile(str(path)), max_rows=len(whole.work) // 2)
    assert "part" in part.notes
    assert 0 < len(part.work) + len(part.calls) + len(part.operators) <= len(whole.work)
    result = analyse(TraceFile(str(path)))
    assert result.devices[0].steps == 40


def test_of_a_large_file_the_steps_that_are_asked_for_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = TraceFile(str(written(tmp_path, made(steps=40))))
    monkeypatch.setattr("perfaudit.trace.read.read_trace.__defaults__", (None, 800))
    result = analyse(path, (3, 6))
    assert result.devices[0].steps == 4
    assert "part" in result.devices[0].notes
    assert result.steps == (3, 6)


def test_of_a_step_that_is_too_large_no_step_is_told(tmp_path: Path) -> None:
    path = TraceFile(str(written(tmp_path, made(steps=3))))
    part = read_trace(path, max_rows=60)
    assert "part" in part.notes and len(part.work) > 0
    assert steps_of(part) == []


def test_steps_with_one_number_each_count(tmp_path: Path) -> None:
    trace = made(steps=6)
    for event in trace["traceEvents"]:
        event["name"] = {"ProfilerStep#5": "ProfilerStep#1", "ProfilerStep#6": "ProfilerStep#2"}.get(
            event["name"], event["name"]
        )
    (device,) = analyse(TraceFile(str(written(tmp_path, trace)))).devices
    assert device.steps == 6
    assert "repeated-steps" in device.notes


def test_half_a_character_in_a_name(tmp_path: Path) -> None:
    host = Host()
    for _ in range(3):
        with host.step(), host.annotation("cut \ud83d here"):
            host.next_batch(5_000)
            host.kernel(GEMM, 5_000)
    path = host.write(tmp_path / "trace.json")
    (device,) = analyse(TraceFile(str(path))).devices
    assert "damaged-text" in device.notes and "odd-events" not in device.notes
    assert "cut \ufffd here" in read_trace(TraceFile(str(path))).names


def test_launches_that_take_long_are_no_nanoseconds(tmp_path: Path) -> None:
    """A queue that is full makes launches wait as long as kernels take."""
    host = Host()
    with host.step():
        for number in range(50):
            host.kernel(GEMM, 700.5, host=5 if number < 10 else 1401)
    result = analyse(TraceFile(str(host.write(tmp_path / "trace.json"))))
    assert "nanoseconds" not in result.devices[0].notes
    assert result.devices[0].window_seconds > 0.03


@pytest.mark.parametrize("category", ["mtia_ccp_events", "enqueue"])
def test_other_devices_are_not_read(category: str, tmp_path: Path) -> None:
    trace = made()
    for event in trace["traceEvents"]:
        if event["cat"] == "kernel":
            event["cat"] = category
    problem = analyse(TraceFile(str(written(tmp_path, trace)))).problem
    assert "devices: only work of CUDA, ROCm and XPU devices is read" in problem


def test_a_trace_without_a_device_tells_where_the_host_waits(tmp_path: Path) -> None:
    trace = made()
    trace["traceEvents"] = [event for event in trace["traceEvents"] if event["cat"] in ("cpu_op", "user_annotation")]
    (device,) = analyse(TraceFile(str(written(tmp_path, trace)))).devices
    assert (device.device, device.steps) == ("cpu", 4)
    assert "no-device" in device.notes
    assert device.shares["idle_data"] > 0.1
    assert sum(device.shares.values()) == pytest.approx(1)


@pytest.mark.parametrize(
    ("kept", "notes"),
    [
        (("cpu_op", "user_annotation"), {"no-device"}),
        (("cpu_op", "user_annotation", "cuda_runtime"), {"no-device", "device-not-recorded"}),
    ],
)
def test_nothing_is_said_of_a_device_that_is_not_in_the_file(
    kept: tuple[str, ...], notes: set[str], tmp_path: Path
) -> None:
    trace = made()
    trace["traceEvents"] = [event for event in trace["traceEvents"] if event["cat"] in kept]
    report = report_of([analyse(TraceFile(str(written(tmp_path, trace))))], rule_heads())
    assert report.traces is not None
    assert report.traces.verdict.startswith(
        "36.41 ms a step; the trace has no work of a device, so nothing is known about the device"
    )
    assert set(report.traces.ranks[0].notes) == notes
    (finding,) = report.findings
    assert finding.rule == "PA901"
    for text in (
        trace_page(report, paint.plain, 80),
        "".join("".join(part) for part in parts(report, str, str)),
        str(bars(report.traces)),
    ):
        assert "nothing is known about the device" in " ".join(text.lower().split())
        assert "computing" not in text


def test_what_the_host_waits_for_once_is_no_time_of_a_step(tmp_path: Path) -> None:
    host = Host()
    for number in range(8):
        with host.step():
            host.next_batch(200_000 if number == 4 else 10)
            step_of_training(host)
    trace = host.trace()
    trace["traceEvents"] = [event for event in trace["traceEvents"] if event["cat"] in ("cpu_op", "user_annotation")]
    (finding,) = analyse(TraceFile(str(written(tmp_path, trace)))).findings
    assert "(200 ms on 1 of 8 steps)" in finding.message
    assert finding.seconds_per_step is None


def test_a_trace_of_the_device_alone(tmp_path: Path) -> None:
    trace = made()
    trace["traceEvents"] = [event for event in trace["traceEvents"] if event["cat"] == "kernel"]
    result = analyse(TraceFile(str(written(tmp_path, trace))))
    assert {"no-host", "no-steps"} <= set(result.devices[0].notes)
    assert not result.findings


def test_a_trace_without_launches_does_not_say_that_launches_are_slow(tmp_path: Path) -> None:
    host = Host()
    for _ in range(4):
        with host.step():
            for _ in range(100):
                host.kernel("k", 2.0)
    trace = host.trace()
    trace["traceEvents"] = [event for event in trace["traceEvents"] if event["cat"] != "cuda_runtime"]
    result = analyse(TraceFile(str(written(tmp_path, trace))))
    assert "filtered" in result.devices[0].notes
    assert result.findings == ()


def without_some(tmp_path: Path, category: str, share: float, host: Host | None = None) -> RankTrace:
    """A trace of short kernels of which such a share of the events of a category is missing, here and there."""
    host = host or Host()
    for _ in range(4):
        with host.step():
            for _ in range(100):
                host.kernel("k", 2.0)
    trace = host.trace()
    events = trace["traceEvents"]
    dropped = [event for event in events if event["cat"] == category]
    dropped = [event for number, event in enumerate(dropped) if number % 20 < 20 * share]
    trace["traceEvents"] = [event for event in events if not any(event is one for one in dropped)]
    (device,) = analyse(TraceFile(str(written(tmp_path, trace)))).devices
    return device


@pytest.mark.parametrize(
    ("category", "share", "is_filtered"),
    [
        ("cuda_runtime", 0.1, False),
        ("cuda_runtime", 0.4, True),
        ("kernel", 0.1, True),
        ("kernel", 0.4, True),
        ("kernel", 0.0, False),
    ],
)
def test_events_that_are_filtered_out(category: str, share: float, is_filtered: bool, tmp_path: Path) -> None:
    assert ("filtered" in without_some(tmp_path, category, share).notes) == is_filtered


def test_of_kernels_that_are_missing_no_idle_time_is_explained(tmp_path: Path) -> None:
    whole, part = (without_some(tmp_path, "kernel", share).shares for share in (0.0, 0.4))
    assert whole["idle_launch"] > 0.5 > 0.01 > whole["idle_other"]
    assert part["idle_other"] > 0.5 > 0.01 > part["idle_launch"]


def test_work_whose_call_is_missing_is_work_though_the_host_has_run_ahead(tmp_path: Path) -> None:
    """The device works for a second behind the last step, and every third call is missing: it is not idle meanwhile."""
    host = Host()
    for _ in range(4):
        with host.step():
            step_of_training(host, microseconds=5_000)
    calls = [event for event in host.events if event["cat"] == "cuda_runtime"]
    dropped = calls[1::3]
    trace = host.trace()
    trace["traceEvents"] = [event for event in trace["traceEvents"] if not any(event is one for one in dropped)]
    (device,) = analyse(TraceFile(str(written(tmp_path, trace)))).devices
    assert device.shares["compute"] > 0.99
    assert "filtered" in device.notes


def test_the_steps_of_several_processes_in_one_file_are_those_of_one(tmp_path: Path) -> None:
    events = []
    for rank in range(2):
        host = Host(rank=rank, world_size=2, pid=100 + rank)
        for _ in range(4):
            with host.step():
                step_of_training(host)
        for event in host.events:
            event["args"].update({"device": rank} if event["cat"] == "kernel" else {})
        events += host.events
    several = analyse(TraceFile(str(written(tmp_path, {"traceEvents": events})))).devices
    assert [device.device for device in several] == ["cuda:0", "cuda:1"]
    for device in several:
        assert "several-processes" in device.notes
        assert device.steps == 4
        assert device.seconds_per_step == pytest.approx(24.4e-3, rel=0.01)


@pytest.mark.parametrize("pid", [[1], {"a": 2}, None])
def test_processes_of_no_world(pid: Any, plain: Path, tmp_path: Path) -> None:
    trace = made()
    for event in trace["traceEvents"]:
        if event["cat"] != "kernel":
            event["pid"] = pid
    assert shares_of(written(tmp_path, trace)) == shares_of(plain)


def test_what_was_queued_before_the_recording_is_not_filtered(tmp_path: Path) -> None:
    """The host was ahead: the calls that launched a third of the work were made before."""
    host = Host()
    for _ in range(6):
        host.kernel(GEMM, 5_000)
    earlier = {event["args"]["correlation"] for event in host.events if event["cat"] == "cuda_runtime"}
    for _ in range(3):
        with host.step():
            for _ in range(4):
                host.kernel(GEMM, 5_000)
    trace = host.trace()
    trace["traceEvents"] = [
        event
        for event in trace["traceEvents"]
        if event["cat"] != "cuda_runtime" or event["args"]["correlation"] not in earlier
    ]
    (device,) = analyse(TraceFile(str(written(tmp_path, trace)))).devices
    assert "filtered" not in device.notes


def test_steps_that_are_missing(tmp_path: Path) -> None:
    trace = made(steps=6)
    trace["traceEvents"] = [event for event in trace["traceEvents"] if event["name"] != "ProfilerStep#3"]
    assert "missing-steps" in notes_of(written(tmp_path, trace))


def test_only_some_steps_are_looked_at(plain: Path) -> None:
    assert analyse(TraceFile(str(plain)), (2, 3)).devices[0].steps == 2
    assert analyse(TraceFile(str(plain)), (9, 9)).problem == "no step of 9 to 9: it has 1 to 4"


@pytest.mark.parametrize(
    ("name", "rank"),
    [
        ("rank3.json", 3),
        ("traces/rank-12.json.gz", 12),
        ("trace_rank_7.Apr_03.pt.trace.json.gz", 7),
        ("rank4/trace.json", 4),
        ("worker0.pt.trace.json", 0),
        ("5.json", 5),
        ("a.zip:run/rank_2.json", 2),
        ("host_1234.1679055439000.pt.trace.json", None),
        ("bert__1016001.json.gz", None),
        ("resnet50.json", None),
        ("trace.json", None),
    ],
)
def test_ranks_in_names(name: str, rank: int | None) -> None:
    assert rank_in_name(name) == rank


def test_a_special_file_is_not_opened(tmp_path: Path) -> None:
    import os

    os.mkfifo(tmp_path / "pipe.json")
    with pytest.raises(NotReadable, match="not a regular file"):
        read_trace(TraceFile(str(tmp_path / "pipe.json")))


def test_members_of_a_tar_are_read_in_one_pass(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "ranks.tar.gz"
    with tarfile.open(path, "w:gz") as tar:
        for name in ("c.json", "a.json", "b.json"):
            packed = json.dumps(made()).encode()
            info = tarfile.TarInfo(name)
            info.size = len(packed)
            tar.addfile(info, io.BytesIO(packed))
    files = find_traces([path])
    assert [file.member for file in files] == ["c.json", "a.json", "b.json"]
    passes = []
    really = tarfile.open

    def count(*args: Any, **kwargs: Any) -> tarfile.TarFile:
        passes.append(args)
        return really(*args, **kwargs)

    monkeypatch.setattr(tarfile, "open", count)
    assert [analyse(file).problem for file in files] == ["", "", ""]
    assert len(passes) == 1
    assert analyse(files[0]).devices  # from the start again
    assert len(passes) == 2


def with_events(tmp_path: Path, *more: dict[str, Any], front: bool = False) -> Path:
    trace = made()
    trace["traceEvents"] = [*more, *trace["traceEvents"]] if front else [*trace["traceEvents"], *more]
    return written(tmp_path, trace)


HUGE = int("9" * 400)


@pytest.mark.parametrize(
    "event",
    [
        {"ts": HUGE, "dur": 1}, {"ts": 1, "dur": HUGE}, {"ts": str(HUGE), "dur": 1}, {"ts": "1e999", "dur": 1},
        {"ts": -1e300, "dur": 1}, {"ts": float("nan"), "dur": 1}, {"ts": None, "dur": 1},
    ],
)  # fmt: skip
@pytest.mark.parametrize("front", [True, False])
def test_times_of_no_world_cost_their_event_alone(event: dict[str, Any], front: bool, tmp_path: Path) -> None:
    path = with_events(
        tmp_path, {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1, **event}, front=front
    )
    (device,) = analyse(TraceFile(str(path))).devices
    assert device.steps == 4
    assert "odd-events" in device.notes


def test_a_step_number_of_no_world(tmp_path: Path) -> None:
    mark = {
        "ph": "X",
        "cat": "user_annotation",
        "name": f"ProfilerStep#{HUGE}",
        "pid": 1,
        "tid": 1,
        "ts": 1e6,
        "dur": 5,
    }
    (device,) = analyse(TraceFile(str(with_events(tmp_path, mark)))).devices
    assert device.steps == 4


def test_a_base_of_no_world(tmp_path: Path) -> None:
    assert analyse(TraceFile(str(written(tmp_path, {"baseTimeNanoseconds": HUGE, **made()})))).began is None


def test_damage_of_two_kinds_costs_the_damaged_event_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An event that is cut, and elsewhere a byte that is no UTF-8, NaN, and a control character, in pieces of a large file."""
    monkeypatch.setattr("perfaudit.trace.json_events.PIECE", 20_000)
    text = written(tmp_path, made(steps=30)).read_bytes()
    whole = text.count(b'"ph": "X"')
    cut = text.index(b'{"ph": "X"', 60_000)
    text = text[:cut] + b'{"ph": "X", "name": "cut, ' + text[cut:]
    text = text.replace(b"aten::_fused_adamw_", b"aten::_fused\xff\x01adamw_", 3)
    reader = EventReader(io.BytesIO(text))
    events = [event for piece in reader.pieces() for event in piece]
    assert whole - 2 <= len(events) <= whole
    assert reader.notes == {"odd-events", "damaged-text"}


def test_several_properties_behind_the_events(tmp_path: Path) -> None:
    trace = made()
    events = trace.pop("traceEvents")
    trace.pop("deviceProperties", None)
    path = written(
        tmp_path, {**trace, "traceEvents": events, "deviceProperties": [{"id": n, "name": "A"} for n in range(8)]}
    )
    reader = EventReader(io.BytesIO(path.read_bytes()))
    assert sum(len(piece) for piece in reader.pieces()) == len(events)
    assert len(reader.head["deviceProperties"]) == 8
    assert reader.notes == set()


def test_more_events_at_one_time_than_are_kept(tmp_path: Path) -> None:
    event = {"ph": "X", "cat": "cpu_op", "name": "a", "pid": 1, "tid": 1, "ts": 5.0, "dur": 1.0}
    path = written(tmp_path, {"traceEvents": [event] * 1_500})
    with pytest.raises(NotReadable, match="more than 1,000 events at one time"):
        read_trace(TraceFile(str(path)), max_rows=1_000)


def with_a_hole() -> Host:
    """Steps 1 and 2, two seconds without a mark, and steps 23 to 26."""
    host = Host()
    for number in range(6):
        if number == 2:
            host.python(2_000_000)
            host.steps += 20
        with host.step():
            step_of_training(host)
            host.catch_up()
    return host


def test_a_hole_between_steps_is_not_idle(tmp_path: Path) -> None:
    result = analyse(TraceFile(str(with_a_hole().write(tmp_path / "trace.json"))))
    (device,) = result.devices
    assert "missing-steps" in device.notes
    assert (device.steps, device.shares["compute"] > 0.99) == (4, True)


def test_names_in_capital_letters_are_found(tmp_path: Path) -> None:
    for name in ("A.JSON", "b.Json", "c.txt"):
        written(tmp_path, made()).rename(tmp_path / name)
    with zipfile.ZipFile(tmp_path / "D.ZIP", "w") as archive:
        archive.writestr("R.JSON", json.dumps(made()))
    files = find_traces([tmp_path])
    assert [(Path(file.path).name, file.member) for file in files] == [
        ("A.JSON", ""),
        ("D.ZIP", "R.JSON"),
        ("b.Json", ""),
    ]
    assert [analyse(file).problem for file in files] == ["", "", ""]


def test_what_we_export_is_no_trace_of_the_job(tmp_path: Path) -> None:
    written(tmp_path, made()).rename(tmp_path / "rank0.json")
    written(tmp_path, made()).rename(tmp_path / "perfaudit.step.json")
    assert [Path(file.path).name for file in find_traces([tmp_path])] == ["rank0.json"]
    assert len(find_traces([tmp_path / "perfaudit.step.json"])) == 1


def test_a_window_beside_a_hole(tmp_path: Path) -> None:
    path = TraceFile(str(with_a_hole().write(tmp_path / "trace.json")))
    assert analyse(path, (1, 2)).devices[0].steps == 2
    assert analyse(path).devices[0].steps == 4


def test_a_category_with_these_letters_is_no_npu(tmp_path: Path) -> None:
    trace = made()
    trace["traceEvents"].append(
        {"ph": "X", "cat": "input_pipeline", "name": "a", "pid": 1, "tid": 1, "ts": 1, "dur": 1}
    )
    trace["traceEvents"].append({"ph": "X", "cat": "enqueue", "name": "a", "pid": 1, "tid": 1, "ts": 1, "dur": 1})
    assert analyse(TraceFile(str(written(tmp_path, trace)))).problem == ""


def test_a_tar_that_ends_in_the_middle_gives_its_first_members(tmp_path: Path) -> None:
    whole = tmp_path / "whole.tar.gz"
    with tarfile.open(whole, "w:gz") as tar:
        for number in range(6):
            packed = json.dumps(made(steps=2 + number)).encode()
            info = tarfile.TarInfo(f"rank{number}.json")
            info.size = len(packed)
            tar.addfile(info, io.BytesIO(packed))
    cut = tmp_path / "cut.tar.gz"
    cut.write_bytes(whole.read_bytes()[: whole.stat().st_size // 2])
    files = find_traces([cut])
    assert 1 <= len(files) < 6
    assert analyse(files[0]).devices[0].steps == 2


def test_zeros_behind_a_compressed_file(tmp_path: Path) -> None:
    packed = gzip.compress(json.dumps(made()).encode()) + bytes(200_000)
    (tmp_path / "a.json.gz").write_bytes(packed)
    assert "truncated" not in notes_of(tmp_path / "a.json.gz")


def test_many_damaged_events_cost_themselves_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("perfaudit.trace.json_events.PIECE", 50_000)
    text = written(tmp_path, made(steps=20)).read_bytes()
    whole = text.count(b'"ph": "X"')
    parts = text.split(b'"name": "aten::mm"')
    text = b"".join(
        part + (b'"name": "aten"mm"' if number % 7 == 3 else b'"name": "aten::mm"')
        for number, part in enumerate(parts[:-1])
    )
    damaged = text.count(b'aten"mm')
    reader = EventReader(io.BytesIO(text + parts[-1]))
    events = sum(len(piece) for piece in reader.pieces())
    assert damaged > 60
    assert whole - 2 * damaged <= events <= whole - damaged
    assert reader.notes == {"odd-events"}


def test_damage_does_not_cost_the_head_behind_the_events(tmp_path: Path) -> None:
    trace = made()
    events = trace.pop("traceEvents")
    head = {"distributedInfo": {"rank": 3}, "deviceProperties": [{"id": n, "name": "A"} for n in range(8)]}
    text = (
        written(tmp_path, {"traceEvents": events, **head})
        .read_bytes()
        .replace(b'"name": "aten::mm"', b'"name": "aten"mm"', 1)
    )
    reader = EventReader(io.BytesIO(text))
    assert sum(len(piece) for piece in reader.pieces()) == len(events) - 1
    assert len(reader.head["deviceProperties"]) == 8
    assert reader.head["distributedInfo"] == {"rank": 3}


def test_a_last_event_of_many_objects_that_is_cut_off(tmp_path: Path) -> None:
    events = [{"ph": "X", "name": "a", "ts": 1, "dur": 1}] * 3
    big = {"ph": "X", "name": "b", "ts": 1, "dur": 1, "args": {"stack": [{"f": n} for n in range(60)]}}
    text = json.dumps({"traceEvents": [*events, big]}).encode()
    reader = EventReader(io.BytesIO(text[:-12]))
    assert sum(len(piece) for piece in reader.pieces()) == 3
    assert "truncated" in reader.notes


def test_a_backslash_before_a_u_is_no_half_character(tmp_path: Path) -> None:
    event = {"ph": "X", "name": "C:\\udabc, x: NaN, y", "ts": 1, "dur": 1}
    other = {"ph": "X", "name": "c", "ts": float("nan"), "dur": 1}
    reader = EventReader(io.BytesIO(json.dumps({"traceEvents": [event, other]}).encode()))
    assert [one.name for piece in reader.pieces() for one in piece] == ["C:\\udabc, x: NaN, y", "c"]


@pytest.mark.parametrize("levels", [100, 5_000])
@pytest.mark.parametrize("deep", ["[", '{"a": ', '[{"a": '])
def test_values_that_are_nested_deep_cost_themselves_alone(levels: int, deep: str, plain: Path, tmp_path: Path) -> None:
    """In the head, in an event, among the events and behind them; decoders give up at about a thousand levels."""
    closing = {"[": "]", '{"a": ': "}", '[{"a": ': "}]"}[deep]
    nested = f"{deep * levels}1{closing * levels}"
    before, events = json.dumps(made(rank=1)).split('"traceEvents": [')
    odd = f'{{"ph": "i", "name": "a", "args": {{"x": {nested}}}}}, {nested}, '
    path = written(tmp_path, f'{before}"x": {nested}, "traceEvents": [{odd}{events[:-1]}, "y": {nested}}}')
    (device,) = analyse(TraceFile(str(path))).devices
    assert (device.rank, device.steps) == (1, 4)
    assert device.shares == pytest.approx(analyse(TraceFile(str(plain))).devices[0].shares)
    assert ("deep-nesting" in device.notes) == (levels > 1_000)
    assert "truncated" not in device.notes


@pytest.mark.parametrize("size", [300, 7_919])
def test_a_deep_value_that_spans_pieces(size: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("perfaudit.trace.json_events.PIECE", size)
    plain = {"ph": "X", "name": 'a ]}, {" \\', "ts": 1, "dur": 1}
    deep = '{"ph": "X", "name": "b", "args": {"x": ' + '[{"a": [], "b": ' * 2_000 + "1" + "}, {}]" * 2_000 + "}}"
    text = '{"traceEvents": [' + ", ".join([json.dumps(plain)] * 9 + [deep] + [json.dumps(plain)] * 9) + '], "rank": 2}'
    reader = EventReader(io.BytesIO(text.encode()))
    assert [event.name for piece in reader.pieces() for event in piece] == [plain["name"]] * 9 + ["b"] + [
        plain["name"]
    ] * 9
    assert reader.notes == {"deep-nesting"}
    assert reader.head["rank"] == 2
    cut = EventReader(io.BytesIO(text[: text.index("1}, {}]")].encode()))
    assert sum(len(piece) for piece in cut.pieces()) == 9
    assert cut.notes == {"deep-nesting", "truncated"}


def test_what_a_file_says_of_its_job_is_short(tmp_path: Path) -> None:
    trace = {**made(rank=0), "distributedInfo": {"rank": 0, "world_size": [[1]], "backend": "n" * 999}}
    assert analyse(TraceFile(str(written(tmp_path, trace)))).job == f"backend={'n' * 40}"


def in_halves(trace: Json, named: bool) -> list[Json]:
    """The events of a trace as their beginnings and ends, in the order of time. named: ends have names, as they may."""
    halves = []
    for event in trace["traceEvents"]:
        end = {"ph": "E", "pid": event["pid"], "tid": event["tid"], "ts": event["ts"] + event["dur"]}
        begin = {key: value for key, value in event.items() if key != "dur"} | {"ph": "B"}
        halves += [(event["ts"], 1, -event["dur"], begin), (end["ts"], 0, event["dur"], end)]
        if named:
            end["name"] = event["name"]
    return [half for *_, half in sorted(halves, key=lambda half: half[:3])]


@pytest.mark.parametrize("named", [False, True])
def test_beginnings_and_ends_are_whole_events(named: bool, plain: Path, tmp_path: Path) -> None:
    trace = made(rank=1)
    path = written(tmp_path, {**trace, "traceEvents": in_halves(trace, named)})
    assert shares_of(path) == shares_of(plain)
    assert "unpaired" not in notes_of(path)
    (device,) = analyse(TraceFile(str(path))).devices
    assert (device.rank, device.steps) == (1, 4)


def test_beginnings_without_ends_and_ends_without_beginnings_are_left_out(plain: Path, tmp_path: Path) -> None:
    halves = in_halves(made(), named=True)
    lost = {**halves[0], "name": "lost"}
    path = written(tmp_path, {"traceEvents": [{**lost, "ph": "E"}, *halves[:5], lost, *halves[5:]]})
    assert shares_of(path) == pytest.approx(shares_of(plain), abs=1e-3)
    assert "unpaired" in notes_of(path)
    assert "lost" not in read_trace(TraceFile(str(path))).names
