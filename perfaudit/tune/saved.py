"""A report that was saved as JSON, read for its patches. It comes from outside: nothing in it is believed."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import TypeVar

from perfaudit.errors import UserError, refusal
from perfaudit.findings import CHANGES, SEVERITIES, FilePatch, Finding, Fix, Location, Saving
from perfaudit.measurements import Ladder, Winner
from perfaudit.reading import TooLarge, json_of, read_bytes
from perfaudit.report import SCHEMA, Json, Report

T = TypeVar("T")

MAX_REPORT_BYTES = 64 << 20  # 5,000 findings, each with the longest diff that a scan writes for one, are 100 MB
MAX_ENTRIES = 100_000  # of one list

_FEWER_BITS = {"PA303", "PA304", "precision"}  # rules and the knob whose fixes compute in fewer bits

_DIGEST = re.compile(r"[0-9a-f]{64}")
_SCHEMA = re.compile(r"perfaudit\.report/(\d{1,9})")


class _Damaged(ValueError):
    """What is wrong with which key."""


def read_report(path: Path) -> Report:
    """What a saved report hands over: findings, winners and the ladder, each with path and patch and little else.

    Raises UserError for what is no report, is damaged, or was made by a newer version.
    """
    data = _json(path)
    schema = data.get("schema")
    version = _SCHEMA.fullmatch(schema) if isinstance(schema, str) else None
    if version is None:
        raise UserError(f"{path}: no report of perfaudit (those of `--format json` begin with a schema)")
    if schema != SCHEMA:
        raise UserError(f"{path}: its schema is {schema}, and this version reads {SCHEMA}: update perfaudit")
    try:
        ladder = _get(data, "ladder", dict, "", optional=True)
        return Report(
            _get(data, "command", str, ""),
            findings=tuple(_finding(item, where) for item, where in _entries(data, "findings", "")),
            winners=tuple(_winner(item, where) for item, where in _entries(data, "winners", "")),
            ladder=_ladder(ladder) if ladder is not None else None,
        )
    except _Damaged as error:
        raise UserError(f"{path}: damaged report: {error}") from error


def _json(path: Path) -> Json:
    try:
        if not path.is_file():
            raise UserError(f"{path}: {'no file' if path.exists() else 'no such file'}")
        data = json_of(read_bytes(path, MAX_REPORT_BYTES))
    except TooLarge as error:
        raise UserError(f"{path}: larger than {MAX_REPORT_BYTES >> 20} MiB, which no report is") from error
    except OSError as error:
        raise UserError(f"{path}: {refusal(error)}") from error
    except ValueError as error:
        raise UserError(f"{path}: no JSON, so no report of perfaudit") from error
    if not isinstance(data, dict):
        raise UserError(f"{path}: no report of perfaudit: JSON of something else")
    return data


def _get(item: Json, key: str, kind: type[T], where: str, optional: bool = False) -> T:
    """The value of a key. Raises _Damaged for another type; None is one where the value is optional."""
    value = item.get(key)
    if value is None and optional:
        return value  # type: ignore[return-value]  # the caller asked for it
    if not isinstance(value, kind) or (kind is not bool and isinstance(value, bool)):
        names = {str: "no text", dict: "no object", list: "no list", bool: "neither true nor false"}
        raise _Damaged(f"{where}{key} is {names.get(kind, 'no number')}" if key in item else f"{where}{key} is missing")
    return value


def _entries(item: Json, key: str, where: str) -> list[tuple[Json, str]]:
    """The objects of a list, each with how to name its keys; none where the list is missing."""
    values = _get(item, key, list, where, optional=True) or []
    if len(values) > MAX_ENTRIES:
        raise _Damaged(f"{where}{key} has {len(values)} entries")
    for number, value in enumerate(values):
        if not isinstance(value, dict):
            raise _Damaged(f"{where}{key}[{number}] is no object")
    return [(value, f"{where}{key}[{number}].") for number, value in enumerate(values)]


def _finding(item: Json, where: str) -> Finding:
    severity = _get(item, "severity", str, where)
    known = next((name for name in SEVERITIES if name == severity), None)
    if known is None:
        raise _Damaged(f"{where}severity is none of {', '.join(SEVERITIES)}")
    return Finding(
        _get(item, "rule", str, where),
        _get(item, "name", str, where),
        known,
        _get(item, "message", str, where),
        _location(item, where),
        fix=_fix(item, where),
    )


def _location(item: Json, where: str) -> Location | None:
    path = _get(item, "path", str, where, optional=True)
    if path is None:
        return None
    line, cell = _get(item, "line", int, where), _get(item, "cell", int, where, optional=True)
    return Location(path, line, 1, line, 1, cell)


def _fix(item: Json, where: str) -> Fix | None:
    data = _get(item, "fix", dict, where, optional=True)
    if data is None:
        return None
    where += "fix."
    safety, changes = _get(data, "safety", str, where), _get(data, "changes", list, where)
    if not all(isinstance(change, str) and change in CHANGES for change in changes):
        raise _Damaged(f"{where}changes holds something else than {', '.join(CHANGES)}")
    if _FEWER_BITS & {str(item.get("rule")), str(item.get("knob"))}:  # before `precision` had a name, it was `rounding`
        changes = ["precision" if change == "rounding" else change for change in changes]
    title, diff = _get(data, "title", str, where), _get(data, "diff", str, where)
    before = _digest(data, "before", where, optional=True)
    if safety == "safe" and not changes:
        return Fix(title, "safe", (), (), diff, before)
    if safety in ("unsafe", "manual"):
        return Fix(title, "unsafe" if safety == "unsafe" else "manual", tuple(changes), (), diff, before)
    raise _Damaged(f"{where}safety is {safety!r}" + (" and something changes" if safety == "safe" else ""))


def _digest(item: Json, key: str, where: str, optional: bool = False) -> str:
    text = _get(item, key, str, where, optional)
    if text and not _DIGEST.fullmatch(text):
        raise _Damaged(f"{where}{key} is no SHA-256")
    return text or ""


def _winner(item: Json, where: str) -> Winner:
    saving = _get(item, "saving", dict, where, optional=True)
    return Winner(
        _get(item, "knob", str, where),
        {},
        _get(item, "keeps_current", bool, where),
        _get(item, "words", str, where),
        _saving(saving, f"{where}saving.") if saving is not None else None,
        _fix(item, where),
        _location(item, where),
    )


def _saving(item: Json, where: str) -> Saving:
    return Saving("measured", _share(item, "low", where), _share(item, "high", where))


def _share(item: Json, key: str, where: str) -> float:
    """A share of a step, at most all of it; below 0 where it gets slower."""
    value = item.get(key)
    if not isinstance(value, (int, float)) or isinstance(value, bool) or not -math.inf < value <= 1:
        raise _Damaged(f"{where}{key} is no share of a step")
    return float(max(value, -1e9))


def _ladder(item: Json) -> Ladder:
    files = []
    for entry, where in _entries(item, "files", "ladder."):
        path, diff = _get(entry, "path", str, where), _get(entry, "diff", str, where)
        before, after = _digest(entry, "before", where), _digest(entry, "after", where)
        encoding = _get(entry, "encoding", str, where, optional=True) or "utf-8"
        files.append(FilePatch(path, before, after, diff, encoding))
    trouble = _get(item, "trouble", str, "ladder.", optional=True) or ""
    changes = tuple(str(c) for c in _get(item, "changes", list, "ladder."))
    return Ladder(files=tuple(files), changes=changes, trouble=trouble)
