"""Patches of the call that wraps a model in DistributedDataParallel."""

from __future__ import annotations

import ast
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from perfaudit.findings import Edit, Fix, Location
from perfaudit.measurements import Settings
from perfaudit.static import edit
from perfaudit.static.discover import shown
from perfaudit.static.document import handed_over
from perfaudit.static.source import Source, Unreadable, read_source
from perfaudit.static.understanding.distributed import DDP
from perfaudit.static.understanding.values import ABSENT, argument

VIEW, STATIC, BUCKET = "gradient_as_bucket_view", "static_graph", "bucket_cap_mb"
# Each with what besides speed it changes. Instead of torch's 25 MiB: buckets that leave sooner, and fewer, larger ones; in these
# a sum over more than two ranks adds up in another order.
DEFAULTS: Settings = {VIEW: False, STATIC: False, BUCKET: 25}  # of torch
SETTINGS: tuple[tuple[Settings, tuple[str, ...]], ...] = (
    ({VIEW: True}, ()),
    ({STATIC: True}, ()),
    ({VIEW: True, STATIC: True}, ()),
    ({BUCKET: 5}, ("rounding",)),
    ({BUCKET: 100}, ("rounding",)),
)
_WORDS = {
    VIEW: "let gradients be views of the buckets they are summed in",
    STATIC: "say that the graph is the same in each step, as it must be then",
    BUCKET: "sum gradients in buckets of {} MiB",
}


@dataclass(frozen=True, slots=True)
class Candidate:
    """A patch of one file. text: of the whole file with it."""

    key: str
    settings: Settings
    words: str
    fix: Fix
    path: str
    text: str
    location: Location


class NoCandidates(Exception):
    """There is nothing to try; the message says why."""


def candidates_of(files: Sequence[str], allow: frozenset[str]) -> tuple[Settings, list[Candidate]]:
    """The settings that the call has now, and what to try on these files of a program, as far as `allow` has what besides speed
    it changes. Raises NoCandidates.

    What the call sets itself is in neither.
    """
    calls = [(source, call) for source in _sources(files) for call in source.calls(DDP)]
    if not calls:
        raise NoCandidates("no file that the script runs calls DistributedDataParallel by its name")
    if len(calls) > 1:
        places = ", ".join(f"{source.path}:{call.lineno}" for source, call in calls[:4])
        raise NoCandidates(f"the files that the script runs call DistributedDataParallel {len(calls)} times: {places}")
    source, call = calls[0]
    now = {name: value for name, value in DEFAULTS.items() if argument(source, call, name) is ABSENT}
    found = [
        candidate
        for settings, changes in SETTINGS
        if set(changes) <= allow and (candidate := _candidate(source, call, now, settings, changes))
    ]
    if not found:
        raise NoCandidates(f"{source.path}:{call.lineno} sets all of it already, or cannot be edited")
    return now, found


def _sources(files: Sequence[str]) -> list[Source]:
    found = []
    for file in files:
        if os.path.relpath(os.path.realpath(file), os.path.realpath(Path.cwd())).startswith(".."):
            continue  # patches stay inside the project
        try:
            found.append(read_source(Path(file), shown(Path(file))))
        except (OSError, Unreadable):
            continue
    return found


def _candidate(
    source: Source, call: ast.Call, now: Settings, settings: Settings, changes: tuple[str, ...]
) -> Candidate | None:
    """The call with these settings; None where it says something of one of them already."""
    if not settings.keys() <= now.keys():
        return None
    if any(keyword.arg is None for keyword in call.keywords):  # **options may have it
        return None
    text = ", ".join(f"{name}={value!r}" for name, value in settings.items())
    edits: tuple[Edit, ...] | None = edit.add_argument(source, call, text)
    if not edits:
        return None
    after = edit.apply(source.text, edits)
    try:
        ast.parse(after)
    except SyntaxError:
        return None
    words = "; ".join(_WORDS[name].format(value) for name, value in settings.items())
    diff = edit.diff(source.path, source.text, after)
    fix = handed_over(source.path, source.text, Fix(words, "unsafe" if changes else "safe", changes, edits, diff))
    return Candidate(text, now | settings, words, fix, source.path, after, source.location(call))


def is_unchanged(candidate: Candidate) -> bool:
    """Whether the file still has the text that the patch was made for."""
    try:
        return edit.apply(read_source(Path(candidate.path), candidate.path).text, candidate.fix.edits) == candidate.text
    except (OSError, Unreadable, ValueError):
        return False
