"""What a file says that matters to a script which imports it. More words than a first look at every file can afford."""

from __future__ import annotations

import re
from collections.abc import Iterable

from perfaudit.expressions import regex
from perfaudit.static.model_width import marks_of_width
from perfaudit.static.project.batch_shapes import marks_of_shapes
from perfaudit.static.project.convolution_marks import marks_of_convolutions
from perfaudit.static.project.frameworks import marks_of_frameworks
from perfaudit.static.project.precision_marks import marks_of_precision

_CUDNN = (b"cudnn", b"deterministic_algorithms", b"set_determin", b"reproducib", b"seed_everything")
# An import decides nothing by itself, nor does a function of a file that only evaluates by its name.
_CUDNN_IMPORTED = regex(
    rb"^[ \t]*(?:import[ \t]+torch\.backends\.cudnn\b[^\n;]*|from[ \t]+torch\.backends[ \t]+import[ \t]+cudnn\b[^\n;]*)$",
    re.MULTILINE,
)
_EVALUATES = regex(r"(^|_)(test|eval|evaluate|val|valid|validate|infer|inference|demo|predict)(_|\.py$)")
_IN_FUNCTION = regex(rb"^[ \t][^\n]*$", re.MULTILINE)
_TF32 = (b"tf32", b"TF32", b"matmul_precision", b"fp32_precision")
SEEDED = "an option gives a seed by default"
_SEED_BY_DEFAULT = regex(rb"--?\w{0,20}seed[\"'][^\n]{0,100}\bdefault\s*=\s*\d")


def marks_for_program(data: bytes, imported: Iterable[str], name: str) -> frozenset[str]:
    """What the text of a file of this name, which imports these names, says of how a program trains, by short marks."""
    marks = marks_of_precision(data, name) | marks_of_convolutions(data) | marks_of_shapes(data) | marks_of_width(data)
    marks |= marks_of_frameworks(data, imported)
    if any(word in data for word in _CUDNN) and _decides_algorithms(data, name):
        marks.add("cudnn")
    if b"seed" in data and _SEED_BY_DEFAULT.search(data):
        marks.add(SEEDED)
    if any(word in data for word in _TF32):
        marks.add("tf32")
    if b".backward(" in data and b".step(" in data:
        marks.add("steps" if b"__main__" not in data else "steps of a script")
    return frozenset(marks)


def _decides_algorithms(data: bytes, name: str) -> bool:
    code = _CUDNN_IMPORTED.sub(b"", data)
    code = _IN_FUNCTION.sub(b"", code) if _EVALUATES.search(name) else code
    return any(word in code for word in _CUDNN)
