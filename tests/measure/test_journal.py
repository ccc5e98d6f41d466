"""The journal: what is written stays, what is torn is dropped, what is damaged is said, and one process measures at a time."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, NoReturn

import pytest
from fake_clock import FakeClock

from perfaudit.errors import UserError
from perfaudit.measure import journal as journals
from perfaudit.measure.folder import measuring
from perfaudit.measure.journal import SCHEMA, Journal, all_runs, find_run, latest_unfinished, read_run
from perfaudit.measure.start_lines import difference

START: dict[str, Any] = {  # Any: nested JSON
    "command": "tune",
    "target": "train.py",
    "knobs": ["dataloader", "ema"],
    "options": {"budget": 300.0, "device": "auto", "memory": 0},
    "files": {"train.py": "aa", "net.py": "bb"},
    "environment": {"torch": "2.13.0", "device": "cpu", "cores": 2},
}


def begun(folder: Path, clock: FakeClock | None = None) -> Journal:
    journal = Journal.create(folder, START, (clock or FakeClock()).now)
    assert journal.path is not None
    return journal


def file_of(journal: Journal) -> Path:
    assert journal.path is not None
    return journal.path


def full(*_: object) -> NoReturn:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_lines_of_a_run(tmp_path: Path, clock: FakeClock) -> None:
    clock.seconds = 1_795_292_103.0
    journal = begun(tmp_path, clock)
    clock.sleep(2.5)
    journal.append("answer", key="w*", value=3)
    journal.append("comparison", high=float("inf"))
    journal.append("end", status="finished", report=None)
    lines = [json.loads(line) for line in file_of(journal).read_text().splitlines()]
    assert lines[0] == {"kind": "start", "at": 1_795_292_103.0, **START, "schema": SCHEMA, "run": journal.id}
    assert lines[1:3] == [
        {"kind": "answer", "at": 1_795_292_105.5, "key": "w*", "value": 3},
        {"kind": "comparison", "at": 1_795_292_105.5, "high": float("inf")},
    ]
    assert (tmp_path / ".perfaudit" / ".gitignore").read_text() == "*\n"
    run = read_run(file_of(journal))
    assert (run.id, run.status, run.report, len(run.records)) == (journal.id, "finished", None, 3)


def test_its_place_is_told_from_the_working_directory_as_long_as_all_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    journal = begun(tmp_path)
    assert journal.place == f".perfaudit/runs/{journal.id}.jsonl"
    monkeypatch.setattr(os, "fsync", full)
    journal.append("trial", n=1)
    assert journal.place == ""  # `trouble` says why
    assert Journal.none().place == ""


def test_each_line_is_on_disk_before_the_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    journal = begun(tmp_path)
    synced: list[bytes] = []
    monkeypatch.setattr(os, "fsync", lambda file: synced.append(file_of(journal).read_bytes().splitlines()[-1]))
    journal.append("trial", n=1)
    journal.append("trial", n=2)
    assert [json.loads(line)["n"] for line in synced] == [1, 2]


def test_ids_of_one_second_differ_and_sort_by_time(
    tmp_path: Path, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    digits = iter(["aaaa", "aaaa", "aaaa", "bbbb", "0000"])
    monkeypatch.setattr(journals.secrets, "token_hex", lambda _: next(digits))
    first, second = begun(tmp_path, clock), begun(tmp_path, clock)
    clock.sleep(3600)
    third = begun(tmp_path, clock)
    assert (first.id[-4:], second.id[-4:], third.id[-4:]) == ("aaaa", "bbbb", "0000")
    assert [run.id for run in all_runs(tmp_path)] == [third.id, second.id, first.id]


def test_what_was_measured_is_handed_out_once(tmp_path: Path) -> None:
    journal = begun(tmp_path)
    for number in (1, 2):
        journal.append("generation", key="race", blocks=[number])
    journal.append("generation", key="other", blocks=[3])
    journal.append("answer", key="race", value=4)
    assert journal.take_earlier_records("generation", "race") == []  # its own session is no earlier one
    resumed = Journal.resume(file_of(journal))
    assert resumed.start == journal.start | {"kind": "start", "at": 0.0}
    assert [r["blocks"] for r in resumed.take_earlier_records("generation", "race")] == [[1], [2]]
    assert resumed.take_earlier_records("generation", "race") == []
    assert [r["value"] for r in resumed.take_earlier_records("answer", "race")] == [4]
    resumed.append("generation", key="race", blocks=[5])
    again = Journal.resume(file_of(journal))
    assert [r["blocks"] for r in again.take_earlier_records("generation", "race")] == [[1], [2], [5]]
    assert [len(session) for session in read_run(file_of(journal)).sessions()] == [5, 2, 1]


@pytest.mark.parametrize(
    "tail",
    [
        b'{"kind": "trial", "n"',  # cut in the middle
        b"{",
        b'{"kind": "trial", "reason": "\xc3',  # in the middle of a character
        b"\0" * 40,  # a file system that had room and no data when the power went
        b"\0" * 40 + b"\n",
    ],
)
def test_a_torn_last_line_is_dropped(tmp_path: Path, tail: bytes) -> None:
    journal = begun(tmp_path)
    journal.append("trial", key="a", n=1)
    whole = file_of(journal).read_bytes()
    file_of(journal).write_bytes(whole + tail)
    assert [r["n"] for r in read_run(file_of(journal)).records] == [1]
    assert file_of(journal).read_bytes() == whole + tail  # reading changes nothing
    resumed = Journal.resume(file_of(journal))
    resumed.append("trial", key="a", n=2)
    assert [r["kind"] for r in read_run(file_of(journal)).records] == ["trial", "resumed", "trial"]


def test_a_last_line_that_lacks_only_its_end_is_kept(tmp_path: Path) -> None:
    journal = begun(tmp_path)
    journal.append("trial", key="a", n=1)
    file_of(journal).write_bytes(file_of(journal).read_bytes().rstrip(b"\n"))
    assert [r["n"] for r in Journal.resume(file_of(journal)).take_earlier_records("trial", "a")] == [1]
    assert [r["kind"] for r in read_run(file_of(journal)).records] == ["trial", "resumed"]


START_LINE = json.dumps({"kind": "start", "schema": SCHEMA})


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ([START_LINE, '{"kind": "tri', '{"kind": "end"}'], ":2: a damaged line"),
        ([START_LINE, "[1]", '{"kind": "end"}'], ":2: a damaged line"),
        ([START_LINE, '{"key": "no kind"}', '{"kind": "end"}'], ":2: a damaged line"),
        ([START_LINE, "[" * 100_000, '{"kind": "end"}'], ":2: a damaged line"),
        (
            ['{"kind": "start", "schema": "perfaudit.run/2"}'],
            ":1: made by another version of perfaudit (perfaudit.run/2)",
        ),
        (['{"kind": "start"}'], ":1: not a run of perfaudit"),
        (['{"kind": "end", "schema": "perfaudit.run/1"}'], ":1: not a run of perfaudit"),
        ([], ":1: holds no run"),
        (['{"kind": "sta'], ":1: holds no run"),
    ],
)
def test_damage_names_file_and_line(tmp_path: Path, lines: list[str], said: str) -> None:
    path = tmp_path / ".perfaudit" / "runs" / "20260101-000000-aaaa.jsonl"
    path.parent.mkdir(parents=True)
    path.write_text("\n".join(lines))
    for read in (read_run, Journal.resume):
        with pytest.raises(UserError) as caught:
            read(path)
        assert str(caught.value).startswith(f"{path}{said}")
    assert path.read_text() == "\n".join(lines)
    good = begun(tmp_path)
    assert {run.id: run.status for run in all_runs(tmp_path)} == {path.stem: "damaged", good.id: "unfinished"}


@pytest.mark.parametrize("call", ["write", "fsync"])
def test_a_full_disk_stops_the_journal_not_the_measuring(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    journal = begun(tmp_path)
    journal.append("trial", key="a", n=1)
    whole = file_of(journal).read_bytes()
    with monkeypatch.context() as patch:
        patch.setattr(os, call, full)
        journal.append("trial", key="a", n=2)
    assert "no space left on device" in journal.trouble
    assert "\n" not in journal.trouble
    journal.append("trial", key="a", n=3)  # there is room again, but what comes after a gap would mislead
    assert file_of(journal).read_bytes() == whole


def test_half_a_line_on_a_full_disk_is_taken_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    journal = begun(tmp_path)
    whole = file_of(journal).read_bytes()
    write = os.write
    sizes = iter([5])

    def five_bytes(file: int, data: bytes) -> int:
        return write(file, data[: next(sizes)]) if len(data) > 5 and data.startswith(b'{"kind": "trial') else full()

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", five_bytes)
        journal.append("trial", n=1)
    assert journal.trouble
    assert file_of(journal).read_bytes() == whole


def test_a_file_system_without_fsync_keeps_the_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(_: int) -> NoReturn:
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))

    journal = begun(tmp_path)
    monkeypatch.setattr(os, "fsync", unknown)
    journal.append("trial", n=1)
    assert not journal.trouble
    assert len(read_run(file_of(journal)).records) == 1


def test_a_disk_that_was_full_from_the_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", full)
        journal = Journal.create(tmp_path, START)
    assert "no space left" in journal.trouble
    journal.append("trial", n=1)
    assert all_runs(tmp_path) == []


def test_a_folder_that_takes_nothing(tmp_path: Path) -> None:
    (tmp_path / ".perfaudit").write_text("a file, which no user may write below, root included")
    journal = Journal.create(tmp_path, START)
    assert journal.path is None
    assert journal.trouble.startswith(f"{tmp_path / '.perfaudit'}: not written: ")
    journal.append("trial", n=1)
    with measuring(tmp_path), measuring(tmp_path):
        pass
    with pytest.raises(UserError, match="is something else, not a folder of perfaudit's own"):
        all_runs(tmp_path)


def test_runs_that_are_removed_meanwhile(tmp_path: Path) -> None:
    journal = begun(tmp_path)
    file_of(journal).unlink()
    journal.append("trial", n=1)
    assert "no such file" in journal.trouble
    assert not file_of(journal).exists()


def test_none_keeps_nothing_and_says_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    journal = Journal.none()
    journal.append("trial", n=1)
    assert (journal.id, journal.trouble, journal.take_earlier_records("trial", "a")) == ("", "", [])
    assert list(tmp_path.iterdir()) == []


def changed(**parts: object) -> dict[str, Any]:  # Any: nested JSON
    return {**START, **parts}


@pytest.mark.parametrize(
    ("now", "said"),
    [
        (changed(), ""),
        (changed(options={"budget": 60.0, "device": "auto", "memory": 0}), ""),
        (changed(knobs=("ema", "dataloader")), ""),
        (changed(command="scan"), "the command was tune, now it is scan"),
        (changed(target="other.py"), "the target was train.py, now it is other.py"),
        (changed(knobs=["ema"]), "the knobs were dataloader, ema, now they are ema"),
        (changed(files={"train.py": "cc", "net.py": "bb"}), "train.py has changed"),
        (changed(files={"train.py": "cc", "net.py": "dd"}), "net.py has changed (and 1 more)"),
        (changed(files={"train.py": "aa"}), "net.py was read then and is not now"),
        (changed(files={**START["files"], "z.py": "1"}), "z.py was not read then and is now"),
        (changed(environment={"torch": "2.14.0", "device": "cpu", "cores": 2}), "torch was 2.13.0, now it is 2.14.0"),
        (changed(environment={"torch": "2.13.0", "device": "cuda", "cores": 2}), "device was cpu, now it is cuda"),
        (changed(environment={"torch": "2.13.0", "device": "cpu", "cores": 8}), "cores was 2, now it is 8"),
        (
            changed(options={"budget": 1, "device": "auto", "memory": 9}),
            "it was started without --memory, and now with --memory 9",
        ),
        (changed(options={"budget": 1, "device": "cpu", "memory": 0}), "device was auto, now it is cpu"),
    ],
)
def test_what_differs_between_start_lines(tmp_path: Path, now: dict[str, Any], said: str) -> None:
    then = read_run(file_of(begun(tmp_path))).start
    assert difference(then, now) == said


@pytest.mark.parametrize(
    ("then", "now", "said"),
    [
        ({"memory": 1}, {"memory": 0}, "with --memory 1, and now without it"),
        ({"memory": 8 << 30}, {"memory": 1536 << 20}, "with --memory 8GiB, and now with --memory 1536MiB"),
        ({"allow": None}, {"allow": ["rounding", "rng"]}, "without --allow, and now with --allow rounding,rng"),
        ({"allow": []}, {"allow": ["rounding"]}, "with --allow safe, and now with --allow rounding"),
        ({"names": {"model": "net"}}, {"names": {}}, "with --factory model=net, and now without it"),
        ({}, {"on": "ray"}, "without --on, and now with --on ray"),
    ],
)
def test_another_option_is_told_as_it_is_typed(then: dict[str, Any], now: dict[str, Any], said: str) -> None:
    assert difference(changed(options=then), changed(options=now)) == f"it was started {said}"


def test_the_latest_unfinished(tmp_path: Path, clock: FakeClock) -> None:
    assert latest_unfinished(tmp_path) is None
    made = []
    for status in ("interrupted", "", "finished"):
        made.append(begun(tmp_path, clock))
        if status:
            made[-1].append("end", status=status, report=None)
        clock.sleep(60)
    assert [run.status for run in all_runs(tmp_path)] == ["finished", "unfinished", "interrupted"]
    assert latest_unfinished(tmp_path) == made[1].path
    resumed = Journal.resume(file_of(made[1]))
    resumed.append("end", status="finished", report={"trials": []})
    assert read_run(file_of(resumed)).report == {"trials": []}
    assert latest_unfinished(tmp_path) == made[0].path
    Journal.resume(file_of(made[1]))  # cut off: the report of the session before is no longer the last word
    assert (read_run(file_of(resumed)).status, read_run(file_of(resumed)).report) == ("unfinished", None)


def test_runs_are_found_by_id_beginning_and_path(
    tmp_path: Path, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(UserError, match=r"no run '2026' below .*\.perfaudit; it has none"):
        find_run(tmp_path, "2026")
    digits = iter(["aaaa", "aabb"])
    monkeypatch.setattr(journals.secrets, "token_hex", lambda _: next(digits))
    first, second = begun(tmp_path, clock), begun(tmp_path, clock)
    assert find_run(tmp_path, first.id) == first.path
    assert find_run(tmp_path, first.id[:-1]) == first.path
    assert find_run(tmp_path, str(first.path)) == first.path
    with pytest.raises(UserError, match=f"2 runs begin with {first.id[:8]}: {second.id}, {first.id}"):
        find_run(tmp_path, first.id[:8])
    with pytest.raises(UserError, match=f"no run '' below .*it has: {second.id}, {first.id}"):
        find_run(tmp_path, "")
    with pytest.raises(UserError, match=r"x\.jsonl: no such file"):
        find_run(tmp_path, "x.jsonl")


HOLD = """
import sys
from pathlib import Path
from perfaudit.errors import UserError
from perfaudit.measure.folder import measuring
try:
    with measuring(Path(sys.argv[1])):
        print("held", flush=True)
        sys.stdin.read()
except UserError as error:
    print(error, flush=True)
    sys.stdin.read()
"""


APPEND = """
import itertools, sys
from pathlib import Path
from perfaudit.measure.journal import Journal
journal = Journal.create(Path(sys.argv[1]), {"command": "tune"})
for number in itertools.count():
    journal.append("trial", key="a", n=number, padding="x" * 5000)
    print(number, flush=True)
"""


def test_nothing_finished_is_lost_when_the_process_is_killed(tmp_path: Path) -> None:
    process = subprocess.Popen([sys.executable, "-c", APPEND, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    try:
        said = [int(first_line(process)) for _ in range(20)]
    finally:
        process.send_signal(signal.SIGKILL)
        process.communicate()
    path = latest_unfinished(tmp_path)
    assert path is not None
    kept = [record["n"] for record in Journal.resume(path).take_earlier_records("trial", "a")]
    assert kept[: len(said)] == said
    assert kept == list(range(len(kept)))


def holder(folder: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", HOLD, str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )


def first_line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def test_of_processes_that_race_one_measures(tmp_path: Path) -> None:
    racers = [holder(tmp_path) for _ in range(4)]
    try:
        said = [first_line(process) for process in racers]
        assert said.count("held") == 1
        assert all("two at once would measure each other" in line for line in said if line != "held")
    finally:
        for process in racers:
            process.communicate()
    with measuring(tmp_path):
        pass


def test_the_lock_names_who_holds_it_and_goes_with_its_death(tmp_path: Path) -> None:
    process = holder(tmp_path)
    try:
        assert first_line(process) == "held"
        named = rf"^another perfaudit \(pid {process.pid}, since [-0-9 ]*\d\d:\d\d\) measures"
        with pytest.raises(UserError, match=named), measuring(tmp_path):
            pytest.fail("two measure at once")
    finally:
        process.send_signal(signal.SIGKILL)
        process.communicate()
    with measuring(tmp_path), pytest.raises(UserError, match=f"pid {os.getpid()}"), measuring(tmp_path):
        pytest.fail("two measure at once")


def test_the_lock_is_given_back_after_an_error_and_holds_on_a_full_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(KeyboardInterrupt), measuring(tmp_path):
        raise KeyboardInterrupt
    monkeypatch.setattr(os, "pwrite", full)
    unsigned = pytest.raises(UserError, match=r"^another perfaudit measures in this folder")
    with measuring(tmp_path), unsigned, measuring(tmp_path):
        pytest.fail("two measure at once")


def test_a_journal_that_is_too_large_is_no_run(tmp_path: Path) -> None:
    path = file_of(begun(tmp_path))
    os.truncate(path, journals.MAX_RUN_BYTES + 1)
    with pytest.raises(UserError, match=r"larger than 32 MiB, which no run is$"):
        read_run(path)
    assert [run.status for run in all_runs(tmp_path)] == ["damaged"]
    assert latest_unfinished(tmp_path) is None


def test_of_many_runs_the_newest_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of a clone may be links to one file, a thousand times 32 MiB; what cannot be read counts too."""
    first = file_of(begun(tmp_path))
    size = first.stat().st_size
    for number in range(4):
        (first.parent / f"9-{number}.jsonl").hardlink_to(first)
    (first.parent / "9-4.jsonl").write_bytes(b"0" * size + b"\n\n")
    monkeypatch.setattr(journals, "MAX_RUNS_BYTES", 3 * size)
    found = all_runs(tmp_path)
    assert [run.id for run in found] == ["9-4", "9-3", "9-2", "9-1", "9-0", first.stem]
    assert [bool(run.problem) for run in found] == [True, False, False, True, True, True]
    assert found[3].problem.endswith("not read, the newer runs are large enough; `perfaudit history 9-1` reads it")
