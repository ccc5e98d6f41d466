"""What evaluates and does not train, by its name or by what it does."""

from __future__ import annotations

from perfaudit.expressions import regex
from perfaudit.static.source import Source
from perfaudit.static.understanding.backward import backward_calls
from perfaudit.static.understanding.no_grad import NO_GRAD

EVALUATION_NAME = regex(
    r"(^|_)(eval|evaluate|evaluation|val|valid|validate|validation|test|sample"
    r"|generate(?!_(?:model|net|network|backbone|classifier)(?:_|$)))(_|$)"  # `generate_model` builds one
)


def only_evaluates(source: Source) -> bool:
    """Whether the file puts a model into eval mode, or runs without gradients, and trains nothing: a test, a demonstration.

    One that puts a model back into train mode hands it to what trains it in another file.
    """
    if backward_calls(source) or any(not (call.args or call.keywords) for call in source.calls(".train")):
        return False
    return bool(source.calls(".eval")) or any(source.calls(name) for name in NO_GRAD)
