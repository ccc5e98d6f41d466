"""Whether a copy to the GPU casts on the host first, which makes pageable memory of a pinned batch: the flag changes nothing."""

from __future__ import annotations

import ast

from perfaudit.expressions import regex
from perfaudit.static.checks.transfer_blocks_host.batch_parts import Part
from perfaudit.static.source import Source
from perfaudit.static.understanding.values import UNKNOWN, Argument, argument, assigned_value, local_class

FOLLOW = 4  # names and parts of parts of a data set; real code needs two
_PARTS = {f"torch.utils.data.{name}" for name in ("Subset", "random_split")}
_FROM_ARRAYS = regex(
    r"from_numpy\(|as_tensor\("
)  # of the type of the array: a picture has bytes, what is divided doubles
_MAKES = {  # what gives a tensor of that type, or an array
    "float": regex(r"\.float\(|float32|FloatTensor|[Tt]o_?[Tt]ensor|convert_image_dtype|\.type\("),
    "long": regex(r"\.long\(|int64|LongTensor|\.type\("),
}
_NAMES = {"torch.float": "float", "torch.float32": "float", "torch.long": "long", "torch.int64": "long"}


def casts_on_host(source: Source, call: ast.Call, part: Part) -> bool:
    """Whether a copy gives a type that the samples do not have, as far as the classes of all its data sets are in sight."""
    given = [*call.args[1:], *(keyword.value for keyword in call.keywords if keyword.arg == "dtype")]
    kinds = {_NAMES.get(source.qualified_name(dtype) or "", "") for dtype in given}
    if len(kinds) != 1 or not part.loaders or not (kind := kinds.pop()):
        return False
    made = [_class_of(source, argument(source, loader, "dataset", 0), FOLLOW) for loader in part.loaders]
    return all(
        text is not None and _FROM_ARRAYS.search(text) is not None and _MAKES[kind].search(text) is None
        for text in made
    )


def _class_of(source: Source, dataset: Argument, depth: int) -> str | None:
    """The text of the class of a data set, or of what it is a part of; None where it is not in sight."""
    if isinstance(dataset, ast.Name) and depth:
        bindings = source.lookup(dataset)
        return _class_of(source, _value_of(source, bindings[0]), depth - 1) if len(bindings) == 1 else None
    if not isinstance(dataset, ast.Call) or not depth:
        return None
    if (source.qualified_name(dataset.func) or "") in _PARTS:
        return _class_of(source, dataset.args[0], depth - 1) if dataset.args else None
    if (own := local_class(source, dataset)) is not None:
        return source.text_of(own)
    dotted = source.qualified_name(dataset.func)
    found = source.neighbours.definition_of(dotted) if source.neighbours is not None and dotted else None
    return found[0].text_of(found[1]) if found is not None and isinstance(found[1], ast.ClassDef) else None


def _value_of(source: Source, binding: ast.AST) -> Argument:
    """What a name is bound to, also as one of the parts in `train, val = random_split(photos, lengths)`."""
    if (value := assigned_value(source, binding)) is not None:
        return value
    statement = source.statement(binding)
    return statement.value if isinstance(statement, ast.Assign) and isinstance(binding, ast.Name) else UNKNOWN
