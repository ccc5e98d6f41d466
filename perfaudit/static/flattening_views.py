"""Views in a model's code that only work where what they flatten lies in rows: `x.view(x.size(0), -1)` behind convolutions.

Of a batch in channels_last such a view raises. `reshape` gives the same numbers in the same order, and a view where one can be.
"""

from __future__ import annotations

import ast

from perfaudit.findings import Edit, Span
from perfaudit.static.edit import Edits
from perfaudit.static.source import FUNCTIONS, Source

RESHAPE = "reshape"
_VIEW = "view"
_ROWS = 2  # dimensions of what is flattened


def reshape_what_is_flattened(source: Source) -> Edits:
    """Each such view in a method of a class in this file as a `reshape`; () without any."""
    found: list[Edit] = []
    for call in source.calls(f".{_VIEW}"):
        is_in_method = (
            source.enclosing(call, ast.ClassDef) is not None and source.enclosing(call, *FUNCTIONS) is not None
        )
        is_in_text = any(isinstance(around, ast.JoinedStr) for around in source.ancestors(call))
        if is_in_method and not is_in_text and _flattens(call):
            end = source.span(call.func).end
            found.append(Edit(Span(end - len(_VIEW), end), RESHAPE))
    return tuple(found)


def _flattens(call: ast.Call) -> bool:
    """Whether a view is given two sizes, of which one is -1, and not into a column, as of one number a sample."""
    sizes = [ast.unparse(size) for size in call.args]
    return len(sizes) == _ROWS and not call.keywords and "-1" in sizes and "1" not in sizes
