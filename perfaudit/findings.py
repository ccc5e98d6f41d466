"""What an audit says: places, edits, fixes, savings, findings. Imports the standard library only."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Literal

from perfaudit.records import field, record, replace

Severity = Literal["error", "warning", "info", "hint"]
Safety = Literal["safe", "unsafe", "manual"]
Basis = Literal["measured", "screened", "profiled", "benchmarked", "documented"]

SEVERITIES: tuple[Severity, ...] = ("error", "warning", "info", "hint")  # a hint is reported on request
# What an unsafe fix may alter.
CHANGES = ("rounding", "precision", "rng", "checkpoint", "order", "algorithm", "aliasing")


@record(frozen=True, slots=True, order=True)
class Location:
    """A range of source text; lines and columns are 1-based, columns count characters, the end is exclusive.

    In a notebook `cell` is the number of the cell, from 1 over cells of every kind, and lines count from its first.
    """

    path: str
    line: int
    column: int
    end_line: int
    end_column: int
    cell: int | None = None

    def __str__(self) -> str:
        cell = f":cell {self.cell}" if self.cell is not None else ""
        return f"{self.path}{cell}:{self.line}:{self.column}"


@record(frozen=True, slots=True, order=True)
class Span:
    """Character offsets into one file's text; `end` is exclusive."""

    start: int
    end: int


@record(frozen=True, slots=True, order=True)
class Edit:
    """Replace the text of `span` by `text`; an empty span inserts.

    `place` is where that is as people count, once the file is known; two edits are the same without it.
    """

    span: Span
    text: str
    place: Location | None = field(default=None, compare=False)


@record(frozen=True, slots=True)
class Fix:
    """A set of edits to one file that go together, and what besides speed they change.

    `changes` is empty for a safe fix. `diff` shows this fix alone as a unified diff of the file that was read; it is printed
    and never read. A manual fix has neither edits nor diff: its title is the advice. `before` is what that file is known by:
    SHA-256 of its bytes, in hexadecimal, "" where nobody asked; `after` the same with this fix alone, "" where that takes too
    long for a large file. `encoding` is that of its characters behind a byte-order mark.
    """

    title: str
    safety: Safety
    changes: tuple[str, ...] = ()
    edits: tuple[Edit, ...] = ()
    diff: str = ""
    before: str = ""
    after: str = ""
    encoding: str = "utf-8"


@record(frozen=True, slots=True)
class FilePatch:
    """One file of a patch that was measured: what the file was, what it becomes, and the edits that make it so.

    before, after: SHA-256 of the file's bytes, in hexadecimal. edits: of its text without a byte-order mark. diff: the same to
    be printed, unified, with `path` relative to the working directory; a byte-order mark is a character of it, and it is
    never read. encoding: in which edits and diff have the bytes of the file.
    """

    path: str
    before: str
    after: str
    diff: str
    encoding: str = "utf-8"
    edits: tuple[Edit, ...] = ()


@record(frozen=True, slots=True)
class Expected:
    """The range that was known of a saving before it was measured, as fractions of a step."""

    basis: Basis
    low: float
    high: float


@record(frozen=True, slots=True)
class Saving:
    """Share of a training step that goes away, as an interval of fractions in 0..1 (negative: it gets slower).

    `basis` says how it is known; the five are never mixed: measured (the patched source in fresh processes), screened (put in
    place in a training that runs) or profiled here, on the user's training; benchmarked by this project,
    on another one; documented by somebody else. `seconds_per_step` is the middle of a measured saving; `clock`
    says which time was measured: on the wall, the processor's, or on the wall without waiting for cores that others held ("own").
    `source` is the link of a documented saving and the
    command of a benchmarked one; `conditions` is what the link says, or device and versions of the command. `expected` is
    what was known before a measured one was measured.
    """

    basis: Basis
    low: float
    high: float
    seconds_per_step: float | None = None
    source: str = ""
    clock: Literal["wall", "cpu", "own"] = "wall"
    conditions: str = ""
    expected: Expected | None = None


@record(frozen=True, slots=True)
class Finding:
    """One thing seen in one place, in the user's own names.

    `location` is None for what has no source line. `fingerprint` is of path, scope and statement, `text_digest` of scope and
    statement alone, which a baseline keeps beside the path. `note` carries what measuring added ("measured: does not pay").
    `also` are other rules that this one finding speaks for, at the same place, and `parts` are the findings of each rule
    alone. `instead` is what a file's audit puts in its place where the rules in `instead.also` have found the same place;
    afterwards it is None. `merged` are the fingerprints of the findings that are this one, its own among them.
    """

    rule: str
    name: str
    severity: Severity
    message: str
    location: Location | None = None
    saving: Saving | None = None
    fix: Fix | None = None
    fingerprint: str = ""
    text_digest: str = ""
    snippet: str = ""
    note: str = ""
    hot: bool = False
    places: tuple[Location, ...] = ()
    also: tuple[str, ...] = ()
    instead: Finding | None = None
    merged: tuple[str, ...] = ()
    parts: tuple[Finding, ...] = ()

    def with_(self, **changes: object) -> Finding:
        """A copy with some fields replaced."""
        return replace(self, **changes)  # type: ignore[arg-type]  # field names are checked at run time


def parts_of(findings: Iterable[Finding]) -> list[Finding]:
    """The findings, each of one rule."""
    return [part for finding in findings for part in finding.parts or (finding,)]


def only(findings: Iterable[Finding], is_kept: Callable[[Finding], bool]) -> list[Finding]:
    """The findings that are kept; of one that speaks for several rules, the parts that are, where not all of them are."""
    kept = []
    for finding in findings:
        parts = finding.parts or (finding,)
        left = [part for part in parts if is_kept(part)]
        kept += [finding] if len(left) == len(parts) else left
    return kept
