"""What shows that the batches of a training differ in size: collation, padding, rescaling in the loop, audio of any length."""

from __future__ import annotations

import ast
import re

from perfaudit.expressions import regex
from perfaudit.static.project.batch_shapes import (
    COLLATES,
    OF_LABELS,
    PADS,
    PROGRESSIVE,
    SEVERAL_SIZES,
    STACKS_ONLY,
    marks_of_collation,
)
from perfaudit.static.source import Source
from perfaudit.static.understanding.entry import imported_files_say
from perfaudit.static.understanding.how_often import runs_often
from perfaudit.static.understanding.loaders import LOADER
from perfaudit.static.understanding.names import last_name
from perfaudit.static.understanding.step_loops import StepLoop
from perfaudit.static.understanding.values import argument, constant, enclosing_function, resolve

_SIZES_CHANGE = regex(
    SEVERAL_SIZES + r"|scale_jitter|rand(?:om)?_?resiz(?:e|ing)\b|bucket|" + PROGRESSIVE,
    re.IGNORECASE,
    words="multi|scale_jitter|resiz|bucket|progressive",
)
_PADS = regex(r"pad_sequence|pack_padded", words="pad_sequence|pack_padded")
_ONE_IN_A_BATCH = regex(r"batch_size\s*=\s*1\b", re.IGNORECASE, words="batch_size")
# The size of training: what is tested in batches of one is trained in others. It looks back from behind its first letter, as
# most letters of a text are none.
_BATCH_OF_ONE = regex(
    r"b(?<!test[_-]b)(?<!val[_-]b)(?<!valid[_-]b)(?<!eval[_-]b)(?<!validation[_-]b)(?<!inference[_-]b)"
    r"atch_?size\W[^\n]{0,60}\bdefault\s*=\s*1\b",
    re.IGNORECASE,
    words="default",
)
_FIRST_STATE = regex(r"(?i)hidden$|^zero_state$")  # of a recurrent layer: `init_hidden(batch_size=1)`
_EVALUATES = regex(r"(^|_)(infer(ence)?|test|eval(uat(e|ion))?|predict(ion)?s?|demo)(_|$)")
_OF_TESTS = regex(r"(^|_)(test|val|valid|validation|eval|dev|infer(ence)?)")
_SHORTEST_SIDE = 16  # voxels: (3, 224, 224) is an image
_SHAPE = regex(r"shape|size")
_MAKES_BATCHES = regex(r"pad|collate|batch")
_AUDIO = {"torchaudio", "librosa"}  # clips differ in length, as a rule


def sizes_change(source: Source, loops: tuple[StepLoop, ...]) -> bool:
    """Whether something shows that batches differ in size: collation, padding, rescaling inside the loop, audio of any length."""
    if imported_files_say(source, "sizes change") or _BATCH_OF_ONE.search(source.text):
        return True
    if imported_files_say(source, PADS) and not _stacks_what_it_collates(source):
        return True
    if (
        _speaks_of_sizes(source)
        or _collates_to_any_size(source)
        or (_is_of_audio(source) and not _stacks_samples(source))
    ):
        return True
    if any(_pads_to_longest(source, call) for call in source.nodes(ast.Call)):
        return True
    if any("torchvision.models.detection" in name for name in source.aliases.values()):  # images keep their sizes
        return True
    inside = {id(node) for step in loops for node in (step.loop, *step.helpers)}
    resizes = [*source.calls("torch.nn.functional.interpolate"), *source.calls("torch.nn.functional.upsample")]
    return any(id(ancestor) in inside for call in resizes for ancestor in source.ancestors(call))


def _speaks_of_sizes(source: Source) -> bool:
    """Whether the code has a word of batches in several sizes, other than in a function that only evaluates by its name or in
    the text of an option. Batches of one volume are of one size where that is written.
    """
    patterns = [_SIZES_CHANGE, _ONE_IN_A_BATCH, *([] if _stacks_what_it_collates(source) else [_PADS])]
    said = [pattern for pattern in patterns if source.says(pattern)]
    if not said:
        return False
    beside = [source.span(f) for f in source.nodes(ast.FunctionDef) if _EVALUATES.search(f.name.lower())]
    beside += [
        source.span(part)
        for part in (*texts_of_options(source), *_loaders_of_tests(source), *source.calls_named(_FIRST_STATE))
    ]
    words = [
        match[0]
        for pattern in said
        for match in pattern.finditer(source.code)
        if not any(span.start <= match.start() < span.end for span in beside)
    ]
    return any(not word.startswith("batch") for word in words) or (bool(words) and not _states_volume(source))


def texts_of_options(source: Source) -> list[ast.expr]:
    """What options say of themselves: `help="crop as the benchmark does"`."""
    return [keyword.value for keyword in source.nodes(ast.keyword) if keyword.arg in ("help", "description")]


def _loaders_of_tests(source: Source) -> list[ast.Call]:
    """The loaders that are for a test by the name they get: `test_loader = DataLoader(data, batch_size=1)`."""
    return [
        statement.value
        for statement in source.nodes(ast.Assign)
        if isinstance(statement.value, ast.Call)
        and statement.value in source.calls(LOADER)
        and _OF_TESTS.search(last_name(statement.targets[0]).lower())
    ]


def _states_volume(source: Source) -> bool:
    """Whether the data sets of all loaders get a size of volumes that is written as numbers: `imgshape = (160, 192, 144)`.

    Another size of the kind may be that of the windows of an inference.
    """
    written: set[str] = set()
    for statement in source.nodes(ast.Assign):
        sides = statement.value.elts if isinstance(statement.value, ast.Tuple) else []
        numbers = [constant(source, side) for side in sides]
        is_volume = len(numbers) == 3 and all(isinstance(n, int) and n >= _SHORTEST_SIDE for n in numbers)
        if is_volume and isinstance(target := statement.targets[0], ast.Name) and _SHAPE.search(target.id.lower()):
            written.add(target.id)
    given = [argument(source, call, "dataset", 0) for call in source.calls(LOADER)]
    sets = [resolve(source, data) if isinstance(data, ast.expr) else None for data in given]
    return bool(written and sets) and all(data is not None and _names_in(data) & written for data in sets)


def _names_in(node: ast.expr) -> set[str]:
    return {inner.id for inner in ast.walk(node) if isinstance(inner, ast.Name)}


def _collates_to_any_size(source: Source) -> bool:
    """Whether the program collates in a way of its own, and not only by functions that stack tensors and pad none."""
    own = _marks_of_collation(source)
    if "sizes change" in own:
        return True
    return (COLLATES in own or imported_files_say(source, COLLATES)) and not _stacks_what_it_collates(source)


def _stacks_what_it_collates(source: Source) -> bool:
    """Whether the program has collate functions that stack tensors and pad nothing but labels and captions."""
    return STACKS_ONLY in _marks_of_collation(source) or imported_files_say(source, STACKS_ONLY)


def _marks_of_collation(source: Source) -> set[str]:
    return marks_of_collation(source.text.encode("utf-8", "replace")) if "collat" in source.text else set()


def _is_of_audio(source: Source) -> bool:
    return imported_files_say(source, "audio") or any(n.partition(".")[0] in _AUDIO for n in source.aliases.values())


def _stacks_samples(source: Source) -> bool:
    """Whether the program has a loader; with no collate function in it, that puts together samples of one size only."""
    if "batch_sampler" in source.text:  # it may sort them by length
        return False
    return bool(source.calls(LOADER)) or any(
        imported_files_say(source, mark) for mark in ("pinned loaders", "pageable loaders")
    )


def _pads_to_longest(source: Source, call: ast.Call) -> bool:
    """Whether a call is `max(len(s) for s in batch)`, or of sizes, in a function that makes batches; not of boxes or labels."""
    if last_name(call.func) != "max" or len(call.args) != 1 or OF_LABELS.search(source.text_of(call).encode()):
        return False
    lengths = [node for node in ast.walk(call.args[0]) if last_name(node) in ("len", "size", "shape")]
    is_of_each = isinstance(call.args[0], (ast.ListComp, ast.GeneratorExp)) or last_name(
        getattr(call.args[0], "func", call)
    ) in ("map", "list")
    function = enclosing_function(source, call)
    if not lengths or not is_of_each or function is None:
        return False
    return _MAKES_BATCHES.search(function.name.lower()) is not None or runs_often(source, call)
