"""The gates of a folder, kept in `.perfaudit/gate.sqlite`: one row a gate, one for each value it came to.

Writing never fails a gate: why it was not possible is a sentence. Nothing is ever deleted: a damaged file is moved aside.
SQLite only ever opens a private copy, which then replaces the file as a whole, one gate at a time. Beside a database it would
believe a journal, whoever put it there, and delete the file that the journal names; and it would follow links.
"""

from __future__ import annotations

import contextlib
import json
import math
import sqlite3
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from perfaudit.errors import UserError
from perfaudit.files import Folder, private_copy, reason
from perfaudit.gate.committed_json import LARGEST
from perfaudit.gate.comparable import cpu_model
from perfaudit.measure.folder import FOLDER, own_folder
from perfaudit.measurements import Environment
from perfaudit.verdicts import Gate, TimeVerdict

NAME = "gate.sqlite"
COMMIT = 12  # characters of a hash, as `Environment.commit` has it
FINGERPRINT = ("device", "driver", "torch", "python", "platform", "cores", "threads")

_APPLICATION = int.from_bytes(b"PAgt")  # says that a file is ours, where `user_version` alone could be anybody's
_LOCK = "gate.lock"
_MOST_BYTES = 256 << 20  # of a history; a gate adds some thousands
_DAMAGED = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)

# Each step leads from the version before to the next; `PRAGMA user_version` counts those taken. Steps are only ever added.
_STEPS = (
    """
    CREATE TABLE runs (
        id INTEGER PRIMARY KEY, at TEXT NOT NULL, head TEXT NOT NULL, against TEXT NOT NULL, reference TEXT NOT NULL,
        kind TEXT NOT NULL, verdict TEXT NOT NULL, seconds REAL NOT NULL, environment TEXT NOT NULL
    );
    CREATE TABLE measured (
        run INTEGER NOT NULL REFERENCES runs (id), layer TEXT NOT NULL, target TEXT NOT NULL, metric TEXT NOT NULL,
        value NOT NULL, low REAL, high REAL, n INTEGER, verdict TEXT NOT NULL, PRIMARY KEY (run, metric, target)
    ) WITHOUT ROWID;
    CREATE INDEX measured_metric ON measured (metric, target);
    """,
)

_Row = tuple[str, str, str, int | float, float | None, float | None, int | None, str]


class _Refused(Exception):
    """A file that must stay as it is, with the reason."""


def append(
    folder: Path, gate: Gate, head_commit: str, environment: Environment, now: Callable[[], float] = time.time
) -> str:
    """Add a gate to the history of a folder; "" or, where that was not possible, a sentence with the reason.

    head_commit: of the code as it is, with "+" where files are changed. now: seconds since 1970. A damaged history is moved
    aside, which is said too; the gate then begins a new one.
    """
    path = folder.absolute() / FOLDER / NAME
    try:
        with own_folder(folder.absolute(), make=True) as own, own.lock(_LOCK):
            try:
                _write(own, gate, head_commit, environment, now())
            except sqlite3.DatabaseError as error:
                if not _is_damage(error):
                    raise
                aside = _move_aside(own, now())
                _write(own, gate, head_commit, environment, now())
                return f"{path} was damaged: moved to {aside}, and a new history begun"
    except (OSError, sqlite3.Error, _Refused) as error:
        return f"the history was not written: {path}: {_words(error)}"
    return ""


@contextlib.contextmanager
def reading(folder: Path) -> Iterator[sqlite3.Connection | None]:
    """The history of a folder to read from, None where there is none. Raises UserError for one that cannot be read."""
    path = folder.absolute() / FOLDER / NAME
    try:
        with own_folder(folder.absolute()) as own:
            data = _content(own)
    except FileNotFoundError:
        data = b""
    except (OSError, _Refused) as error:
        raise UserError(f"{path}: cannot be read: {_words(error)}") from error
    try:
        with _open_copy(data) as (connection, _):
            if _version(connection):
                _migrate(connection)  # the copy: reading changes nothing
                yield connection
            else:
                yield None
    except (sqlite3.Error, _Refused) as error:
        damaged = isinstance(error, sqlite3.DatabaseError) and _is_damage(error)
        advice = "; the next gate moves it aside and begins a new one" if damaged else ""
        raise UserError(f"{path}: cannot be read: {_words(error)}{advice}") from error


def fingerprint(environment: Environment) -> dict[str, str]:
    """What times depend on besides the code. Load and commit are not of the machine, memory differs between like machines.

    Of Python's version the third number is left out, as in a baseline.
    """
    parts = {name: str(getattr(environment, name)) for name in FINGERPRINT}
    python = ".".join(environment.python.split(".")[:2])
    return {**parts, "python": python, "cpu": cpu_model()}


def _content(own: Folder) -> bytes:
    """What the file holds, nothing where there is none. Raises OSError and _Refused."""
    status = own.status(NAME)
    if status is not None and status.st_size > _MOST_BYTES:
        raise _Refused(f"larger than {_MOST_BYTES >> 20} MiB")
    return own.read(NAME) if status is not None else b""


@contextlib.contextmanager
def _open_copy(data: bytes) -> Iterator[tuple[sqlite3.Connection, Path]]:
    """A copy of a history, open, and where it is. Raises sqlite3.Error."""
    with private_copy(data) as path, contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA trusted_schema = OFF")  # the file may be anybody's
        yield connection, path


def _write(own: Folder, gate: Gate, head: str, environment: Environment, at: float) -> None:
    with _open_copy(_content(own)) as (connection, path):
        connection.execute("BEGIN IMMEDIATE")
        _migrate(connection)
        stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(at))
        machine = json.dumps(fingerprint(environment), sort_keys=True)
        run = (stamp, head, gate.against, gate.commit, gate.kind, gate.verdict, gate.seconds, machine)
        columns = "at, head, against, reference, kind, verdict, seconds, environment"
        added = connection.execute(f"INSERT INTO runs ({columns}) VALUES (?,?,?,?,?,?,?,?)", tuple(map(_text, run)))
        rows = [(added.lastrowid, *map(_text, row)) for row in _rows(gate)]
        connection.executemany("INSERT OR REPLACE INTO measured VALUES (?,?,?,?,?,?,?,?,?)", rows)
        connection.execute("COMMIT")
        connection.close()
        own.write(NAME, path.read_bytes())


def _version(connection: sqlite3.Connection) -> int:
    """The version of a history of ours, 0 for an empty file. Raises _Refused for what is newer or not ours."""
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    foreign = "SELECT count(*) FROM sqlite_master WHERE type NOT IN ('table', 'index')"
    if connection.execute(foreign).fetchone() != (0,):
        raise _Refused("it holds views or triggers, which no history of perfaudit does")
    if application != _APPLICATION and (tables or version):
        raise _Refused("it is a database, and not one of perfaudit")
    if version > len(_STEPS):
        versions = f"version {version} of its tables, this one knows {len(_STEPS)}"
        raise _Refused(f"it was written by a newer perfaudit ({versions}); update this one")
    return int(version)


def _migrate(connection: sqlite3.Connection) -> None:
    """Take the steps that are missing, inside the transaction that the caller began."""
    for number, step in enumerate(_STEPS[_version(connection) :], start=_version(connection) + 1):
        for statement in filter(str.strip, step.split(";")):
            connection.execute(statement)
        connection.execute(f"PRAGMA user_version = {number}")
        connection.execute(f"PRAGMA application_id = {_APPLICATION}")


def _rows(gate: Gate) -> list[_Row]:
    """What a gate came to: layer, target, metric, value, low, high, n and the verdict of that layer for that target."""
    rows: list[_Row] = []
    if (found := gate.findings) is not None and found.verdict not in ("failed", "not_judged"):
        counts = {"findings": found.new + found.accepted + found.known, "new_findings": found.new}
        rows += [("findings", "", name, count, None, None, None, found.verdict) for name, count in counts.items()]
    for counted in gate.counters:
        rows += [
            ("counters", counted.target, name, count if abs(count) <= LARGEST else float(count), None, None, None, v)
            for name, count in counted.counters.items()
            for v in (counted.verdict,)
        ]
    for timed in gate.times:
        rows += _time_rows(timed)
    return [row for row in rows if math.isfinite(row[3])]


def _time_rows(timed: TimeVerdict) -> list[_Row]:
    """Times of one target. Of an advice only its own step is kept: the reference was not measured in this run."""
    known: dict[str, float | None] = {"step_time": timed.seconds_after}
    if not timed.advice:
        known |= {
            "reference_step_time": timed.seconds_before,
            "ratio": timed.ratio,
            "smallest_slowdown": timed.smallest,
        }
    rows: list[_Row] = []
    for metric, value in known.items():
        if value is None:
            continue
        has_interval = metric == "ratio" and 0 < timed.low <= timed.high < math.inf
        low, high = (timed.low, timed.high) if has_interval else (None, None)
        rows.append(("time", timed.target, metric, value, low, high, timed.quads or None, timed.verdict))
    return rows


def _move_aside(own: Folder, at: float) -> str:
    """The name that a damaged history has got."""
    stamp = time.strftime("%Y%m%d-%H%M%S", time.gmtime(at))
    for number in range(10_000):
        with contextlib.suppress(FileExistsError):
            own.move(NAME, aside := f"{NAME}.damaged-{stamp}-{number}")
            return aside
    raise _Refused("it is damaged, and every name for it is taken")


def _is_damage(error: sqlite3.DatabaseError) -> bool:
    """Whether the file itself is at fault; the low byte of SQLite's code names the kind of error."""
    return (getattr(error, "sqlite_errorcode", 0) & 0xFF) in _DAMAGED


def _words(error: Exception) -> str:
    if isinstance(error, OSError):
        return reason(error)
    return str(error).lower() if isinstance(error, sqlite3.Error) else str(error)


def _text(value: Any) -> Any:  # Any: what SQLite takes
    """The value, a text without the halves of surrogate pairs that names of files may hold and UTF-8 cannot."""
    return value.encode("utf-8", "backslashreplace").decode() if isinstance(value, str) else value
