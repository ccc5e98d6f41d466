"""Where in the user's program an instant of the host lies: annotation, operator, and with stacks the source line."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from perfaudit.trace.host_threads import Instant, around
from perfaudit.trace.recording import Recording, Spans
from perfaudit.trace.steps import IS_STEP

MOST = 200  # instants that are looked up; the costliest come first
_FRAME = re.compile(r"^(?P<path>[^():]*\.py)\((?P<line>\d+)\): ?(?P<function>.*)$")
# Code that is not the user's: installed packages, the standard library, and frames without a file.
_INSTALLED = re.compile(
    r"(^|/)(site-packages|dist-packages|lib/python3[^/]*)/|^torch/|^(<frozen|<string>|<built-in)|(^|/)torch/(nn|optim|utils|autograd|"
    r"_|profiler|cuda|distributed)|^(contextlib|threading|runpy|functools)\.py"
)


@dataclass(frozen=True, slots=True)
class Whereabouts:
    """Where most of some instants lie; "" and 0 for nowhere that is known. source: the path as the trace has it."""

    annotation: str = ""
    operator: str = ""
    source: str = ""
    line: int = 0

    @property
    def source_line(self) -> str:
        return f"{self.source}:{self.line}" if self.source else ""


def whereabouts(recording: Recording, instants: Sequence[Instant]) -> Whereabouts:
    """What most of their weight lies in: the innermost annotation that is no step, the outermost operator, the innermost line of
    the user's.
    """
    asked = list(instants[:MOST])
    annotations = around(recording.annotations, asked)
    operators = around(recording.operators, asked)
    frames = around(recording.frames, asked) if len(recording.frames) else {}
    source = _heaviest((one, _line(recording, frames.get(one, []))) for one in asked)
    path, _, line = source.rpartition(":")
    return Whereabouts(
        _heaviest((one, _innermost(recording, recording.annotations, annotations.get(one, []))) for one in asked),
        _heaviest((one, _outermost(recording, recording.operators, operators.get(one, []))) for one in asked),
        path,
        int(line) if line else 0,
    )


def _heaviest(words: Iterable[tuple[Instant, str]]) -> str:
    """The word that stands for more than half of what is asked about; "" for none."""
    weights: dict[str, float] = {}
    for instant, word in words:
        weights[word] = weights.get(word, 0.0) + instant.weight
    heaviest = max(weights, key=lambda word: weights[word], default="")
    return heaviest if 2 * weights.get(heaviest, 0.0) > sum(weights.values()) else ""


def _innermost(recording: Recording, spans: Spans, rows: list[int]) -> str:
    names = [recording.names[spans.name[row]] for row in reversed(rows)]
    return next((name for name in names if not IS_STEP(name)), "")


def _outermost(recording: Recording, spans: Spans, rows: list[int]) -> str:
    return recording.names[spans.name[rows[0]]] if rows else ""


def _line(recording: Recording, rows: list[int]) -> str:
    for row in reversed(rows):
        found = _FRAME.match(recording.names[recording.frames.name[row]])
        if found and not _INSTALLED.search(found["path"]):
            return f"{found['path']}:{found['line']}"
    return ""
