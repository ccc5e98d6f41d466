"""Arguments that a call is given by name, also where it hands on `**options` that may hold them.

As in `static.edit`, the verb returns the edits, or None where it cannot be done without a doubt.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence

from perfaudit.findings import Edit, Span
from perfaudit.static import edit
from perfaudit.static.edit import Edits
from perfaudit.static.source import Source

_BINDS_TIGHTLY = (ast.Name, ast.Attribute, ast.Call, ast.Subscript, ast.Dict)  # what needs no brackets behind `{**`


def hands_on_options(call: ast.Call) -> bool:
    """Whether the call is given `**options`, which may hold any argument."""
    return any(keyword.arg is None for keyword in call.keywords)


def give(source: Source, call: ast.Call, arguments: Mapping[str, str]) -> Edits | None:
    """Give the call these arguments, whatever its `**options` hold: `Adam(p, **{**options, "fused": True})`.

    None as for `edit.set_keyword`, and where several options do not stand side by side.
    """
    if not hands_on_options(call):
        return edit.together(*(edit.set_keyword(source, call, *argument) for argument in arguments.items()))
    own = {name: standing for name in arguments if (standing := edit.keyword(call, name)) is not None}
    written = [edit.replace(source, standing.value, arguments[name]) for name, standing in own.items()]
    others = {name: value for name, value in arguments.items() if name not in own}
    return edit.together(*written, _put_over_options(source, call, others) if others else ())


def give_if(source: Source, call: ast.Call, arguments: Mapping[str, str], test: str) -> Edits | None:
    """Give the call these arguments where a test is true as it runs: `kind(p, **({"fused": True} if kind is Adam else {}))`.

    None where one of them stands there already, and as for `give`.
    """
    if any(edit.keyword(call, name) is not None for name in arguments):
        return None
    named = ", ".join(f'"{name}": {value}' for name, value in arguments.items())
    chosen = f"**({{{named}}} if {test} else {{}})"
    if not hands_on_options(call):
        return edit.add_argument(source, call, chosen)
    options = [keyword.value for keyword in call.keywords if keyword.arg is None]
    if len(options) > 1 or not isinstance(options[0], _BINDS_TIGHTLY):
        return None
    return edit.replace(source, options[0], f"{{**{source.text_of(options[0])}, {chosen}}}")


def _put_over_options(source: Source, call: ast.Call, arguments: Mapping[str, str]) -> Edits | None:
    """The options and these arguments behind them in one dict: `**{**options, "fused": True}`.

    Of several, no two have a name in common, or the call would have failed. None where they do not stand side by side.
    """
    first = next(at for at, keyword in enumerate(call.keywords) if keyword.arg is None)
    options = [keyword.value for keyword in call.keywords[first:] if keyword.arg is None]
    if any(isinstance(around, ast.JoinedStr) for around in source.ancestors(call)):
        return None
    if len(options) > 1 and not _stand_bare_and_together(source, call.keywords[first : first + len(options)]):
        return None
    begin, end = source.span(options[0]).start, source.span(options[-1]).end
    is_bare = len(options) > 1 or isinstance(options[0], _BINDS_TIGHTLY)
    opening, closing = ("{**", "") if is_bare else ("{**(", ")")
    named = "".join(f', "{name}": {value}' for name, value in arguments.items())
    return Edit(Span(begin, begin), opening), Edit(Span(end, end), f"{closing}{named}}}")


def _stand_bare_and_together(source: Source, options: Sequence[ast.keyword]) -> bool:
    """Whether arguments are all `**options`, each without brackets around it and none that an operator would tear apart."""

    def is_bare(option: ast.keyword) -> bool:
        between = source.text[source.span(option).start : source.span(option.value).start]
        return option.arg is None and isinstance(option.value, _BINDS_TIGHTLY) and between.strip() == "**"

    return all(map(is_bare, options))
