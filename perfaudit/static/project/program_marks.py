"""What a file says that matters to a script which imports it. More words than a first look at every file can afford."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

from perfaudit.expressions import regex
from perfaudit.static.bare_code import without_comments
from perfaudit.static.model_width import LAYERS, NARROW, WIDTH, marks_of_width
from perfaudit.static.project.batch_shapes import COLLATES, PADS, STACKS_ONLY, marks_of_shapes
from perfaudit.static.project.convolution_marks import marks_of_convolutions
from perfaudit.static.project.frameworks import marks_of_frameworks
from perfaudit.static.project.precision_marks import marks_of_precision

_CUDNN = (b"cudnn", b"deterministic_algorithms", b"set_determin", b"reproducib", b"seed_everything")
_NAMED = ("cudnn", "deterministic_algorithms")
# An import decides nothing by itself, nor does a function of a file that only evaluates by its name.
_CUDNN_IMPORTED = regex(
    rb"^[ \t]*(?:import[ \t]+torch\.backends\.cudnn\b[^\n;]*|from[ \t]+torch\.backends[ \t]+import[ \t]+cudnn\b[^\n;]*)$",
    re.MULTILINE,
)
# A flag that somebody has taken out: comments of nothing but such statements, one below the other. `benchmark = True` is none,
# as it was tried, it seems; nor is one with words beside it, which may say why.
_TAKEN_OUT = (
    r"[ \t]*#[# \t]*(?:(?:torch\.)?(?:backends\.)?cudnn\."
    r"(?:benchmark[ \t]*=[ \t]*False|(?:deterministic|enabled)[ \t]*=[ \t]*(?:True|False))"
    r"|torch\.use_deterministic_algorithms\([ \t]*(?:mode=)?(?:True|False)[ \t]*\))[ \t;]*$"
)
_COMMENTS = regex(r"(?:^[ \t]*#[^\n]*(?:\n|\Z))+", re.MULTILINE)
_IS_TAKEN_OUT = regex(rf"(?:{_TAKEN_OUT})(?:\n(?:{_TAKEN_OUT}))*\n?\Z", re.MULTILINE)
_EVALUATES = regex(r"(^|_)(test|eval|evaluate|val|valid|validate|infer|inference|demo|predict)(_|\.py$)")
# Lightning's own function sets seeds alone; one by that name of a project may set flags.
_SEEDS_OF_LIGHTNING = regex(
    rb"^[ \t]*from[ \t]+(?:pytorch_lightning|lightning)[\w.]*[ \t]+import[^\n]*\bseed_everything\b", re.MULTILINE
)
_SEEDS_BY_LIGHTNING = regex(rb"\b(?:pl|L|pytorch_lightning|lightning)\.seed_everything\b")
_IN_FUNCTION = regex(rb"^[ \t][^\n]*$", re.MULTILINE)
_TF32 = (b"tf32", b"TF32", b"matmul_precision", b"fp32_precision")
SEEDED = "an option gives a seed by default"
# Calls that build what a section of settings names, `hydra.utils.instantiate(cfg.model)`, and code of a project's own that does.
BUILDS_BY_SETTINGS = "builds what settings name"
_BUILDS = regex(rb"\binstantiate\w{0,40}\(|[\"']_target_[\"']", words="instantiate|_target_")
# What code may give a trainer of Lightning's that is given a part of a configuration: `cfg.trainer.benchmark = True`,
# `precision: str = "bf16-mixed"` of a dataclass.
GIVES_BENCHMARK, GIVES_PRECISION = "gives a trainer its benchmark", "gives a trainer its precision"
_GIVEN_BENCHMARK = regex(
    rb"\b(?:benchmark|deterministic)[\"']?\]?[ \t]*(?::[ \t]*bool[ \t]*=|[=:])[ \t]*(?:True|False|[\"']warn)",
    words="benchmark|deterministic",
)
_GIVEN_PRECISION = regex(
    rb"\bprecision[\"']?\]?[ \t]*(?::[ \t]*[\w.\[\]| ]{1,40}=|[=:])[ \t]*[\"']?(?:16|bf16|64|transformer)",
    words="precision",
)
_SEED_BY_DEFAULT = regex(rb"--?\w{0,20}seed[\"'][^\n]{0,100}\bdefault\s*=\s*\d")


# Marks of a text, of what it imports, and of the name of its file.
Look = Callable[[bytes, Iterable[str], str], set[str]]


def look_finding(mark: str) -> Look | None:
    """The look at a text that finds this mark; None for a mark that only a first look finds.

    A script asks the files that it imports for one thing after the other, and most ask for the first alone. To look for
    everything in each file of a large library takes longer than to parse the file.
    """
    return _LOOKS.get(mark)


def _find_settings(data: bytes, imported: Iterable[str], name: str) -> set[str]:
    marks = set()
    if any(word in data for word in _CUDNN) and _decides_algorithms(data, name):
        marks.add("cudnn")
    if b"seed" in data and _SEED_BY_DEFAULT.search(data):
        marks.add(SEEDED)
    if any(word in data for word in _TF32):
        marks.add("tf32")
    return marks


def _find_steps(data: bytes, imported: Iterable[str], name: str) -> set[str]:
    if b".backward(" not in data or b".step(" not in data:
        return set()
    return {"steps" if b"__main__" not in data else "steps of a script"}


def _marks_of_trainers(data: bytes) -> set[str]:
    """What the code of a file gives a trainer's configuration."""
    marks = {GIVES_BENCHMARK} if _GIVEN_BENCHMARK.search(data) else set()
    return marks | {GIVES_PRECISION} if _GIVEN_PRECISION.search(data) else marks


def may_build_by_settings(data: bytes) -> bool:
    """Whether the text of a file may build what a section of settings names, by hydra or by code of its own."""
    return _BUILDS.search(data) is not None


_FOUND_BY: tuple[tuple[Look, tuple[str, ...]], ...] = (
    (_find_steps, ("steps", "steps of a script")),
    (_find_settings, ("cudnn", SEEDED, "tf32")),
    (lambda data, _, name: marks_of_precision(data, name), ("precision", "tf32 on")),
    (lambda data, *_: {BUILDS_BY_SETTINGS} if may_build_by_settings(data) else set(), (BUILDS_BY_SETTINGS,)),
    (lambda data, *_: _marks_of_trainers(data), (GIVES_BENCHMARK, GIVES_PRECISION)),
    (lambda data, *_: marks_of_convolutions(data), ("convolutions", "wide convolutions")),
    (lambda data, *_: marks_of_shapes(data), ("audio", "sizes change", PADS, COLLATES, STACKS_ONLY)),
    (lambda data, *_: marks_of_width(data), (LAYERS, WIDTH, NARROW)),
    (lambda data, imported, _: marks_of_frameworks(data, imported), ("framework", "library model")),
)
_LOOKS = {mark: look for look, marks in _FOUND_BY for mark in marks}


def _decides_algorithms(data: bytes, name: str) -> bool:
    """Whether a file says something of cuDNN's algorithms: in a comment only by their name, and not by a flag taken out."""
    code = _CUDNN_IMPORTED.sub(b"", data)
    code = _IN_FUNCTION.sub(b"", code) if _EVALUATES.search(name) else code
    bare = _SEEDS_BY_LIGHTNING.sub(b"", without_comments(code))
    if b"seed_everything" in bare and _SEEDS_OF_LIGHTNING.search(bare):
        bare = bare.replace(b"seed_everything", b"")
    if any(word in bare for word in _CUDNN):
        return True
    said = without_flags_taken_out(code.decode("utf-8", "replace"))
    return any(word in said for word in _NAMED)


def without_flags_taken_out(text: str) -> str:
    """A text with the comments blank in which somebody has taken out flags of cuDNN, and says nothing else."""

    def blank(match: re.Match[str]) -> str:
        return re.sub(r"[^\n]", " ", match[0]) if _IS_TAKEN_OUT.match(match[0]) else match[0]

    return _COMMENTS.sub(blank, text) if "#" in text else text
