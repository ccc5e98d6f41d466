"""Programs that train on pictures of digits or clothes alone, 28 by 28: exercises as a rule, whose trainings are short."""

from __future__ import annotations

import ast

from perfaudit.expressions import regex
from perfaudit.static.source import Source
from perfaudit.static.source.syntax import walk
from perfaudit.static.understanding.answers import remember
from perfaudit.static.understanding.defaults import default
from perfaudit.static.understanding.names import last_name
from perfaudit.static.understanding.reached_code import reached_code
from perfaudit.static.understanding.values import ABSENT, UNKNOWN, argument, constant

_SETS = "torchvision.datasets."
_OF_DIGITS = {_SETS + name for name in ("MNIST", "FashionMNIST", "KMNIST", "EMNIST", "QMNIST", "USPS")}
_RESIZES = regex(r"^(Resize|Scale|RandomResizedCrop|Pad|resize|interpolate|Upsample|upsample)$")
_LARGEST = 32  # pixels of a side: to this one they are often brought


@remember  # two rules ask
def trains_on_digits(source: Source) -> bool:
    """Whether all data that a script reaches are such sets of torchvision, and nothing makes larger pictures of them."""
    reached = reached_code(source)
    if reached is None:
        return False
    sets = {name for name in reached.names if name.startswith(_SETS) and name[len(_SETS) :][:1].isupper()}
    if not sets or not sets <= _OF_DIGITS or any(name.endswith("Dataset") for name in reached.names):
        return False
    calls = ((there, node) for there, root in reached.code for node in walk(root) if isinstance(node, ast.Call))
    return all(_stays_small(there, call) for there, call in calls if _RESIZES.search(last_name(call.func)))


def _stays_small(source: Source, call: ast.Call) -> bool:
    """Whether a call makes pictures of a size that is known and small, or none of another size."""
    is_function = last_name(call.func).islower()
    size = argument(source, call, "size", 1 if is_function else 0)
    if size is ABSENT:  # `Upsample(scale_factor=2)`: from noise to pictures
        return "psample" in last_name(call.func) or last_name(call.func) == "interpolate"
    sides = size.elts if isinstance(size, (ast.Tuple, ast.List)) else [size]
    values = [constant(source, side) for side in sides]
    found = [
        option.value if value is UNKNOWN and (option := default(source, side)) is not None else value
        for value, side in zip(values, sides, strict=True)
    ]
    return all(isinstance(value, int) and value <= _LARGEST for value in found)
