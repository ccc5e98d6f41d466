"""Findings that are known and accepted, in a file that is committed: a scan against it reports only what is new."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from perfaudit.decoding import Damaged, Value
from perfaudit.errors import ConfigError, UserError, refusal
from perfaudit.files import reason, replace_file
from perfaudit.findings import Finding, only, parts_of
from perfaudit.reading import MAX_RECORD_BYTES, read_bytes
from perfaudit.records import record, replace
from perfaudit.static.discover import shown_path

SCHEMA = "perfaudit.baseline/1"


@record(frozen=True, slots=True, order=True)
class Known:
    """One accepted finding. Path, rule and digest decide; the message is there to be read in a review.

    path: as reports show it, relative to the working directory; in the file it is relative to the file's folder.
    """

    path: str
    rule: str
    digest: str
    message: str


def read_baseline(path: Path) -> tuple[Known, ...]:
    """The findings of a baseline file. Raises ConfigError for one that is missing, damaged, or of a newer version."""
    try:
        data = Value.of_json(read_bytes(path, MAX_RECORD_BYTES))
    except FileNotFoundError as error:
        raise ConfigError(f"{path}: no such baseline; write it with --update-baseline") from error
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {refusal(error)}") from error
    except ValueError as error:
        raise ConfigError(f"{path}: a damaged baseline: {error}; write it again with --update-baseline") from error
    schema = data.raw.get("schema") if isinstance(data.raw, dict) else None
    if schema != SCHEMA:
        newer = isinstance(schema, str) and schema.startswith("perfaudit.baseline/")
        if newer:
            raise ConfigError(f"{path}: made by another version of perfaudit ({schema}); this one reads {SCHEMA}")
        raise ConfigError(
            f"{path}: not a baseline of perfaudit, whose schema is {SCHEMA}; write one with --update-baseline"
        )
    try:
        known = [known_finding(entry) for entry in data.at("findings").items()]
    except Damaged as error:
        raise ConfigError(f"{path}: a damaged baseline: {error}") from error
    return tuple(replace(k, path=shown_path(path.parent / k.path)) for k in known)


def known_finding(entry: Value) -> Known:
    """A finding as a baseline has it. Raises Damaged."""
    path, rule, digest, message = (entry.at(key).text() for key in ("path", "rule", "digest", "message"))
    return Known(path, rule, digest, message)


def write_baseline(path: Path, known: Iterable[Known]) -> None:
    """Write the file: sorted, one finding after the other, so that a review shows what came and went."""
    folder = path.absolute().parent
    placed = (replace(k, path=Path(os.path.relpath(k.path, folder)).as_posix()) for k in known)
    entries = [{"path": k.path, "rule": k.rule, "digest": k.digest, "message": k.message} for k in sorted(placed)]
    text = json.dumps({"schema": SCHEMA, "findings": entries}, indent=1, ensure_ascii=False) + "\n"
    try:
        replace_file(path, text.encode("utf-8", "backslashreplace"))
    except OSError as error:
        raise UserError(f"{path}: not written: {reason(error)}") from error


def as_known(findings: Iterable[Finding]) -> list[Known]:
    found = parts_of(findings)
    return [Known(f.location.path if f.location else "", f.rule, f.text_digest, f.message) for f in found]


def of_unread(before: Iterable[Known], now: Iterable[Known], unread: Iterable[str]) -> list[Known]:
    """What a baseline has of files that were not read, or not all of them, beyond what is found there now.

    Nobody knows whether it is gone.
    """
    paths = frozenset(unread)
    found = Counter((k.path, k.rule, k.digest) for k in now if k.path in paths)
    left = []
    for known in before:
        key = (known.path, known.rule, known.digest)
        if known.path not in paths:
            continue
        if found[key] > 0:
            found[key] -= 1
        else:
            left.append(known)
    return left


def compare_with_known(
    findings: tuple[Finding, ...],
    known: tuple[Known, ...],
    was_looked_at: Iterable[str],
    rules: frozenset[str],
    unread: Iterable[str] = (),
) -> tuple[tuple[Finding, ...], int, int]:
    """Findings that are new, how many are known, and how many of the baseline are gone.

    was_looked_at: the files and folders of this scan, as shown in reports; rules: those that ran; unread: the files that could
    not be read. What another scan would look at is not gone, and of what could not be read nobody knows.
    """
    left = Counter((k.path, k.rule, k.digest) for k in known)
    unmatched = []
    for finding in (parts := parts_of(findings)):
        key = (finding.location.path if finding.location else "", finding.rule, finding.text_digest)
        if left[key] > 0:
            left[key] -= 1
        else:
            unmatched.append(finding)
    moved = Counter({key[1:]: n for key, n in left.items() if n > 0 and not Path(key[0]).exists()})
    new: set[int] = set()
    for finding in unmatched:  # of files that are no longer there, what stands in another file now is known as well
        if moved[finding.rule, finding.text_digest] > 0:
            moved[finding.rule, finding.text_digest] -= 1
        else:
            new.add(id(finding))
    places = tuple(was_looked_at)
    unsure = frozenset(unread)
    gone = sum(
        n
        for (path, rule, _), n in left.items()
        if n > 0 and rule in rules and path not in unsure and is_below(path, places)
    )
    shown_as_new = tuple(only(findings, lambda part: id(part) in new))
    return shown_as_new, len(parts) - len(new), max(0, gone - (len(unmatched) - len(new)))


def is_below(path: str, places: tuple[str, ...]) -> bool:
    """Whether a path is one of these files, or lies below one of these folders."""
    return any(place == "." or path == place or path.startswith(place.rstrip("/") + "/") for place in places)
