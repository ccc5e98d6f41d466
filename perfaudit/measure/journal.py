"""The journal of a measurement: every finished piece on disk as soon as it is finished, for `tune`, `scan --measure` and `gate`.

One file a run, `.perfaudit/runs/<id>.jsonl`: a line of JSON each, the first says what was measured with what ("start"), the
last how it ended ("end"). Infinite numbers are written as Python's `json` writes them, so that what is read is what was written.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import secrets
import time
from collections import defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from perfaudit import files
from perfaudit.errors import UserError, refusal
from perfaudit.files import Folder, Refused
from perfaudit.measure.folder import FOLDER, own_folder
from perfaudit.measure.start_lines import difference
from perfaudit.reading import TooLarge, read_bytes

SCHEMA = "perfaudit.run/1"
RESUMABLE = ("unfinished", "interrupted", "out of time", "failed")
SETTINGS = (".toml", ".yaml", ".yml", ".json", ".cfg", ".ini")  # endings of files that say how is trained

MAX_RUN_BYTES = 32 << 20  # of one journal: a million numbers; as JSON of empty lists it takes 0.7 GB of memory
MAX_RUNS_BYTES = 128 << 20  # of those that are read at once, the newest first
_ENDS = ("finished", "interrupted", "out of time", "failed")
_IDS_SHOWN = 10  # of runs, where several are meant
_NAMES_TRIED = 20  # ids hold four random hex digits beside the second

Json = dict[str, Any]  # Any: nested JSON


@dataclass(frozen=True, slots=True)
class Run:
    """A journal as it was read: its start line, and the lines after it. `problem` says why there are none to read."""

    path: Path
    start: Json
    records: tuple[Json, ...] = ()
    problem: str = ""

    @property
    def id(self) -> str:
        return self.path.stem

    @property
    def status(self) -> str:
        """How its last session ended: finished, interrupted, out of time or failed; unfinished if it was cut off; or damaged."""
        if self.problem:
            return "damaged"
        status = self._end().get("status", "unfinished")
        return status if status in _ENDS else "unfinished"

    @property
    def report(self) -> Json | None:
        """The report of its last session, None where that left none."""
        report = self._end().get("report")
        return report if isinstance(report, dict) else None

    def sessions(self) -> list[list[Json]]:
        """Its lines by session: the first begins with the start line, each other with "resumed"."""
        sessions = [[self.start]]
        for record in self.records:
            if record["kind"] == "resumed":
                sessions.append([record])
            else:
                sessions[-1].append(record)
        return sessions

    def _end(self) -> Json:
        ends = [record for record in self.sessions()[-1] if record.get("kind") == "end"]
        return ends[-1] if ends else {}


class Journal:
    """Where one measurement writes what it finished, and takes what an earlier session of it had finished.

    id: of the run, "" for one that keeps nothing. path: its file, None where nothing is kept. start: its start line.
    trouble: one sentence on why no more is written, "" while all goes well. After the first line that could not be written
    none is: what is on disk is then whole up to a point, which is what resuming needs.
    """

    def __init__(
        self, path: Path | None, start: Json, earlier: tuple[Json, ...] = (), now: Callable[[], float] = time.time
    ) -> None:
        self.path = path
        self.start = start
        self.id = path.stem if path else ""
        self.trouble = ""
        self._now = now
        self._earlier: dict[tuple[str, str], deque[Json]] = defaultdict(deque)
        for record in earlier:
            if isinstance(key := record.get("key"), str):
                self._earlier[record["kind"], key].append(record)

    @classmethod
    def none(cls) -> Journal:
        """A journal that keeps nothing and says nothing about it."""
        return cls(None, {})

    @classmethod
    def create(cls, folder: Path, start: Json, now: Callable[[], float] = time.time) -> Journal:
        """A new run below `folder`, its start line on disk; `now` gives seconds since 1970.

        Where nothing can be written the journal keeps nothing and `trouble` says why.
        """
        began = now()
        try:
            with own_folder(folder.absolute(), "runs", make=True) as runs:
                path = runs.path / _new_file(runs, began)
        except OSError as error:
            journal = cls(None, start, (), now)
            journal.trouble = _trouble(folder / FOLDER, error)
            return journal
        journal = cls(path, {**start, "schema": SCHEMA, "run": path.stem}, (), now)
        journal.append("start", **journal.start)
        if journal.trouble:
            with contextlib.suppress(OSError), own_folder(folder.absolute(), "runs") as runs:
                runs.remove(path.name)  # a run without a start line is none
        return journal

    @classmethod
    def resume(cls, path: Path, now: Callable[[], float] = time.time) -> Journal:
        """A run that goes on in the same file. Raises UserError as `read_run` does."""
        run, whole = _read(path)
        journal = cls(path.absolute(), run.start, run.records, now)
        try:
            _mend(path, whole)
        except OSError as error:
            journal.trouble = _trouble(path, error)
        journal.append("resumed")
        return journal

    @property
    def place(self) -> str:
        """The file as it is named from the working directory, "" where nothing is kept or not all of it."""
        if self.path is None or self.trouble:
            return ""
        try:
            return os.path.relpath(self.path)
        except OSError:  # a working directory that is gone
            return str(self.path)

    def append(self, kind: str, **data: Any) -> None:  # Any: what JSON takes
        """One more line, on disk when this returns. What cannot be written is told by `trouble`, never raised."""
        if self.path is None or self.trouble:
            return
        record = {"kind": kind, "at": round(self._now(), 3), **data}
        line = json.dumps(record).encode() + b"\n"
        try:
            files.append(self.path, line)
        except OSError as error:
            self.trouble = _trouble(self.path, error)

    def take_earlier_records(self, kind: str, key: str) -> list[Json]:
        """Records of earlier sessions with this kind and "key", in order; none that was handed out before."""
        found = self._earlier.get((kind, key), deque())
        records = list(found)
        found.clear()
        return records


class Kept:
    """Sets of fresh processes in a journal, from where a run that is resumed takes them. to_json, from_json: of one set."""

    def __init__(self, journal: Journal, to_json: Callable[[Any], Json], from_json: Callable[[Json], Any]) -> None:
        self.journal, self._to_json, self._from_json = journal, to_json, from_json

    def earlier_sets(self, stage: str) -> list[tuple[Any, Json]]:
        """Sets of this stage that need not be run again, in their order, each with the record's state after it."""
        lines = self.journal.take_earlier_records("generation", stage)
        return [(self._from_json(line["generation"]), line["state"]) for line in lines]

    def keep_set(self, stage: str, piece: Any, state: Json) -> None:
        """Keep one more set; state: the record's after it."""
        self.journal.append("generation", key=stage, generation=self._to_json(piece), state=state)


Begin = Callable[[Json], Journal]  # from the start line of a run to its journal


def nothing_kept(start: Json) -> Journal:
    """No journal of this run."""
    return Journal.none()


def begin(folder: Path, resume: bool) -> Begin:
    """A function that opens the journal of a run: a new one, or to `resume` the newest of its command that did not finish.

    Raises UserError, when it is called, where there is none, or where resuming would mix things that differ.
    """

    def open_journal(start: Json) -> Journal:
        if not resume:
            return Journal.create(folder, start)
        command = start["command"]
        path = latest_unfinished(folder, command)
        if path is None:
            raise UserError(
                f"--resume: no run of `perfaudit {command}` in this folder is unfinished; `perfaudit history` lists them"
            )
        if differs := difference(read_run(path).start, start):
            raise UserError(f"--resume: {path.stem} cannot be resumed: {differs}; run it again without --resume")
        return Journal.resume(path)

    return open_journal


def file_digest(path: str | Path) -> str:
    """SHA-256 of a file's bytes in hexadecimal, "" for one that cannot be read."""
    try:
        return hashlib.sha256(Path(path).read_bytes()).hexdigest()
    except OSError:
        return ""


def read_run(path: Path) -> Run:
    """The run in a file. A torn last line is left out: the process died while it wrote.

    Raises UserError, naming file and line, for a file that cannot be read, a line before the last that is damaged, and a
    schema that is not ours.
    """
    return _read(path)[0]


def all_runs(folder: Path) -> list[Run]:
    """The runs below a folder, newest first; one that cannot be read has `problem`, and so have those beyond MAX_RUNS_BYTES."""
    runs, room = [], MAX_RUNS_BYTES
    for path in sorted(_files(folder), key=lambda path: path.stem, reverse=True):
        try:
            if room <= 0:
                raise UserError(
                    f"{path}: not read, the newer runs are large enough; `perfaudit history {path.stem}` reads it"
                )
            runs.append(read_run(path))
        except UserError as error:
            runs.append(Run(path, {}, (), str(error)))
        with contextlib.suppress(OSError):
            room -= min(path.stat().st_size, MAX_RUN_BYTES)
    return runs


def latest_unfinished(folder: Path, command: str = "") -> Path | None:
    """The newest run that was cut off, interrupted or failed, None where there is none. command: of this one only."""
    of_command = (run for run in all_runs(folder) if command in ("", run.start.get("command")))
    return next((run.path for run in of_command if run.status in RESUMABLE), None)


def find_run(folder: Path, name: str) -> Path:
    """The file of a run that is named by its id, the beginning of its id, or its path. Raises UserError."""
    if name.endswith(".jsonl") or os.sep in name:
        if Path(name).is_file():
            return Path(name)
        raise UserError(f"{name}: no such file")
    paths = {path.stem: path for path in reversed(_files(folder))}
    if name in paths:
        return paths[name]
    fitting = [id_ for id_ in paths if name and id_.startswith(name)]
    if len(fitting) == 1:
        return paths[fitting[0]]
    if fitting:
        raise UserError(f"{len(fitting)} runs begin with {name}: {_ids_in_words(fitting)}")
    there = f"it has: {_ids_in_words(list(paths))}" if paths else "it has none"
    raise UserError(f"no run {name!r} below {folder / FOLDER}; {there}")


def _files(folder: Path) -> list[Path]:
    """The files of the runs below a folder, in order. Raises UserError where they would be reached through a link."""
    try:
        with own_folder(folder, "runs") as runs:
            return [folder / FOLDER / "runs" / name for name in runs.names() if name.endswith(".jsonl")]
    except Refused as error:
        raise UserError(f"the runs of this folder are not read: {files.reason(error)}") from error
    except OSError:
        return []


def _new_file(runs: Folder, began: float) -> str:
    """The name of an empty file of our own, which says the local time at which it began."""
    stamp = time.strftime("%Y%m%d-%H%M%S", time.localtime(began))
    for _ in range(_NAMES_TRIED):
        name = f"{stamp}-{secrets.token_hex(2)}.jsonl"
        with contextlib.suppress(FileExistsError):
            runs.create(name)
            return name
    raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))


def _read(path: Path) -> tuple[Run, bytes]:
    """The run in a file, and its whole lines as they stand there, without a torn last one."""
    try:
        data = read_bytes(path, MAX_RUN_BYTES)
    except TooLarge as error:
        raise UserError(f"{path}: larger than {MAX_RUN_BYTES >> 20} MiB, which no run is") from error
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {refusal(error)}") from error
    lines = data.split(b"\n")
    if not lines[-1]:
        lines.pop()
    records: list[Json] = []
    for number, line in enumerate(lines, start=1):
        record = _record(line)
        if record is None and number == len(lines):
            data = b"".join(whole + b"\n" for whole in lines[:-1])
        elif record is None:
            raise UserError(f"{path}:{number}: a damaged line, so what was measured after it cannot be trusted")
        else:
            records.append(record)
    if not records:
        raise UserError(f"{path}:1: holds no run: it was cut off before its first line was written")
    start = records[0]
    schema = start.get("schema")
    if start["kind"] != "start" or schema != SCHEMA:
        other = isinstance(schema, str) and schema.startswith("perfaudit.run/") and schema != SCHEMA
        problem = f"made by another version of perfaudit ({schema})" if other else "not a run of perfaudit"
        raise UserError(f"{path}:1: {problem}; this one reads {SCHEMA}")
    return Run(path, start, tuple(records[1:])), data


def _record(line: bytes) -> Json | None:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return record if isinstance(record, dict) and isinstance(record.get("kind"), str) else None


def _mend(path: Path, whole: bytes) -> None:
    """Cut off a torn last line, or end one that lacks only its end, so that the next line stands alone. Raises OSError."""
    if path.stat().st_size != len(whole):
        files.cut(path, len(whole))
    if not whole.endswith(b"\n"):
        files.append(path, b"\n")


def _trouble(path: Path, error: OSError) -> str:
    return f"{path}: not written: {files.reason(error)}; what is measured from here on cannot be resumed"


def _ids_in_words(ids: list[str]) -> str:
    more = f" and {len(ids) - _IDS_SHOWN} older" if len(ids) > _IDS_SHOWN else ""
    return ", ".join(ids[:_IDS_SHOWN]) + more
