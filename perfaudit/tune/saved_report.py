"""A report that was saved as JSON, read for its patches. It comes from outside: nothing in it is believed."""

from __future__ import annotations

import re
from pathlib import Path

from perfaudit.decoding import Damaged, Value
from perfaudit.errors import UserError, refusal
from perfaudit.findings import CHANGES, SEVERITIES, Edit, FilePatch, Finding, Fix, Location, Safety, Saving, Span
from perfaudit.measurements import Ladder, Winner
from perfaudit.reading import TooLarge, read_bytes
from perfaudit.report import SCHEMA, Report

MAX_ENTRIES = 100_000  # of one list
MAX_REPORT_BYTES = 64 << 20  # 5,000 findings, each with the longest diff that a scan writes for one, are 100 MB

_SAFETIES: tuple[Safety, ...] = ("safe", "unsafe", "manual")
_FEWER_BITS = {"PA303", "PA304", "precision"}  # rules and the knob whose fixes compute in fewer bits
_SCHEMA = re.compile(r"perfaudit\.report/(\d{1,9})")


def read_report(path: Path) -> Report:
    """What a saved report hands over: findings, winners and the ladder, each with path and edits and little else.

    Raises UserError for what is no report, is damaged, or was made by another version.
    """
    report = _json(path)
    schema = report.raw.get("schema")
    version = _SCHEMA.fullmatch(schema) if isinstance(schema, str) else None
    if version is None:
        raise UserError(f"{path}: no report of perfaudit (those of `--format json` begin with a schema)")
    if schema != SCHEMA:
        raise UserError(f"{path}: its schema is {schema}, and this version reads {SCHEMA}: update perfaudit")
    try:
        ladder, command = report.maybe("ladder"), report.at("command").text()
        return Report(
            command,
            findings=tuple(_finding(item, with_parts=True) for item in _entries(report, "findings")),
            winners=tuple(map(_winner, _entries(report, "winners"))),
            ladder=_ladder(ladder) if ladder is not None else None,
        )
    except _WithoutEdits as error:
        again = f"run `perfaudit {command}` again, or apply it with the version that made it"
        raise UserError(f"{path}: made by an older perfaudit: {error}; {again}") from error
    except Damaged as error:
        raise UserError(f"{path}: damaged report: {error}") from error


class _WithoutEdits(Damaged):
    """A patch that is only there as a diff, which is for people."""


def _json(path: Path) -> Value:
    try:
        if not path.is_file():
            raise UserError(f"{path}: {'no file' if path.exists() else 'no such file'}")
        data = Value.of_json(read_bytes(path, MAX_REPORT_BYTES))
    except TooLarge as error:
        raise UserError(f"{path}: larger than {MAX_REPORT_BYTES >> 20} MiB, which no report is") from error
    except OSError as error:
        raise UserError(f"{path}: {refusal(error)}") from error
    except ValueError as error:
        raise UserError(f"{path}: not JSON, so it is no report of perfaudit") from error
    if not isinstance(data.raw, dict):
        raise UserError(f"{path}: no report of perfaudit: JSON of something else")
    return data


def _entries(of: Value, key: str) -> list[Value]:
    """The entries of a list, none where it is missing."""
    values = of.maybe(key)
    return values.items(MAX_ENTRIES) if values is not None else []


def _finding(item: Value, with_parts: bool = False) -> Finding:
    """A finding; one of several rules has parts, which have none of their own."""
    severity = item.at("severity").one_of(SEVERITIES)
    rule, name, message = (item.at(key).text() for key in ("rule", "name", "message"))
    parts = tuple(map(_finding, _entries(item, "parts"))) if with_parts else ()
    return Finding(rule, name, severity, message, _location(item), fix=_fix(item, rule), parts=parts)


def _location(item: Value) -> Location | None:
    path, cell = item.maybe("path"), item.maybe("cell")
    if path is None:
        return None
    line = item.at("line").whole()
    return Location(path.text(), line, 1, line, 1, cell.whole() if cell is not None else None)


def _fix(item: Value, of: str) -> Fix | None:
    """The fix of a finding or a winner; of: its rule or knob."""
    fix = item.maybe("fix")
    if fix is None:
        return None
    safety = fix.at("safety").one_of(_SAFETIES)
    changes = tuple(change.one_of(CHANGES) for change in fix.at("changes").items())
    if of in _FEWER_BITS:  # before `precision` had a name, it was `rounding`
        changes = tuple("precision" if change == "rounding" else change for change in changes)
    if safety == "safe" and changes:
        raise fix.at("changes").damage_error("must be empty, because the fix is safe")
    title, before, after = fix.at("title").text(), fix.maybe("before"), fix.maybe("after")
    return Fix(
        title,
        safety,
        changes,
        _edits(fix) if safety != "manual" else (),
        before=before.digest() if before is not None else "",
        after=after.digest() if after is not None else "",
    )


def _edits(of: Value) -> tuple[Edit, ...]:
    """The edits of a patch. That they lie in the text and do not overlap is for those to check who have the text."""
    if of.maybe("edits") is None and of.maybe("diff") is not None:
        raise _WithoutEdits(f"{of.path} has a diff and no edits")
    edits = []
    for item in of.at("edits").items(MAX_ENTRIES):
        start = item.at("start").whole()
        edits.append(Edit(Span(start, item.at("end").whole(least=start)), item.at("text").text()))
    return tuple(edits)


def _winner(item: Value) -> Winner:
    saving, knob = item.maybe("saving"), item.at("knob").text()
    return Winner(
        knob,
        {},
        item.at("keeps_current").is_true(),
        item.at("words").text(),
        _saving(saving) if saving is not None else None,
        _fix(item, knob),
        _location(item),
    )


def _saving(saving: Value) -> Saving:
    """Shares of a step, at most all of it; below 0 where it gets slower."""
    return Saving("measured", saving.at("low").number(most=1), saving.at("high").number(most=1))


def _ladder(ladder: Value) -> Ladder:
    files = []
    for file in _entries(ladder, "files"):
        path, before, after = file.at("path").text(), file.at("before").digest(), file.at("after").digest()
        files.append(FilePatch(path, before, after, "", edits=_edits(file)))
    trouble = ladder.maybe("trouble")
    changes = ladder.at("changes").texts()
    return Ladder(files=tuple(files), changes=changes, trouble=trouble.text() if trouble is not None else "")
