"""What evaluates and does not train, by its name or by what it does."""

from __future__ import annotations

import ast

from perfaudit.expressions import regex
from perfaudit.static.source import LOOPS, Source
from perfaudit.static.understanding.backward import backward_calls
from perfaudit.static.understanding.no_grad import NO_GRAD

EVALUATION_NAME = regex(
    r"(^|_)(eval|evaluate|evaluation|val|valid|validate|validation|test|sample"
    r"|generate(?!_(?:model|net|network|backbone|classifier)(?:_|$)))(_|$)",  # `generate_model` builds one
    words="val|test|sample|generate",
)


def only_evaluates(source: Source) -> bool:
    """Whether the file puts a model into eval mode, or runs without gradients, and trains nothing: a test, a demonstration.

    One whose loop puts a model into train mode hands it to what trains it in another file.
    """
    if backward_calls(source) or any(_is_in_train_mode_again(source, call) for call in source.calls(".train")):
        return False
    return bool(source.calls(".eval")) or any(source.calls(name) for name in NO_GRAD)


def _is_in_train_mode_again(source: Source, call: ast.Call) -> bool:
    """`gan.train()` in a loop; a function that evaluates may put the model back behind one."""
    return not (call.args or call.keywords) and source.enclosing(call, *LOOPS) is not None
