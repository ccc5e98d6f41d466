"""Entries of a dict that a call is given by name: `PPO("MlpPolicy", env, policy_kwargs={"optimizer_kwargs": {"fused": True}})`.

As in `static.edit`, the verb returns the edits, or None where it cannot be done without a doubt.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence

from perfaudit.expressions import regex
from perfaudit.findings import Edit, Span
from perfaudit.static import edit
from perfaudit.static.edit import Edits
from perfaudit.static.given_arguments import hands_on_options
from perfaudit.static.source import Source

_BETWEEN = regex(r"#[^\r\n]*|[,)]")  # what counts between the last entry of a dict and its closing brace


def give_inside(
    source: Source,
    call: ast.Call,
    path: Sequence[str],
    entries: Mapping[str, str],
    kept: Mapping[str, str],
    is_given: bool,
) -> Edits | None:
    """Put entries into the dict at this path: the argument's name, and keys of dicts in it.

    kept: entries that hold there without the dict, and are written beside the new ones where it is made. is_given: what the call
    is given has such a dict already, so that none may be put in its place.
    """
    standing = edit.keyword(call, path[0])
    if standing is None:
        if hands_on_options(call):
            return None
        return edit.add_keyword(source, call, path[0], as_dict(path[1:], {**kept, **entries}))
    return _put_into(source, standing.value, path[1:], entries, kept, is_given)


def as_dict(path: Sequence[str], entries: Mapping[str, str]) -> str:
    """The text of a dict with these entries, in a dict for each key of the path."""
    text = "{" + ", ".join(f'"{name}": {value}' for name, value in entries.items()) + "}"
    return f'{{"{path[0]}": {as_dict(path[1:], entries)}}}' if path else text


def _put_into(
    source: Source,
    value: ast.expr,
    path: Sequence[str],
    entries: Mapping[str, str],
    kept: Mapping[str, str],
    is_given: bool,
) -> Edits | None:
    if isinstance(value, ast.Constant) and value.value is None:
        return edit.replace(source, value, as_dict(path, {**kept, **entries}))
    if path and (written := _entries(source, value)) is not None and path[0] in written:
        if _may_be_replaced(value, written[path[0]]):
            return None
        return _put_into(source, written[path[0]], path[1:], entries, kept, is_given)
    if path and is_given:
        return None
    more = {path[0]: as_dict(path[1:], {**kept, **entries})} if path else dict(entries)
    return _add_entries(source, value, more)


def _entries(source: Source, value: ast.expr) -> dict[str, ast.expr] | None:
    """What a dict that is written out holds by name, as far as it says; None for another expression."""
    if isinstance(value, ast.Dict):
        pairs = zip(value.keys, value.values, strict=True)
        return {key.value: each for key, each in pairs if isinstance(key, ast.Constant) and isinstance(key.value, str)}
    if _is_dict_call(source, value):
        assert isinstance(value, ast.Call)
        return {each.arg: each.value for each in value.keywords if each.arg is not None}
    return None


def _is_dict_call(source: Source, value: ast.expr) -> bool:
    return isinstance(value, ast.Call) and isinstance(value.func, ast.Name) and value.func.id == "dict"


def _add_entries(source: Source, value: ast.expr, entries: Mapping[str, str]) -> Edits | None:
    """The dict with these entries, in the place of those of the same names."""
    written = _entries(source, value)
    if written is None:
        if not isinstance(value, (ast.Name, ast.Attribute, ast.Subscript)):
            return None
        named = ", ".join(f'"{name}": {text}' for name, text in entries.items())
        return edit.replace(source, value, f"{{**{source.text_of(value)}, {named}}}")
    if any(_may_be_replaced(value, written[name]) for name in entries if name in written):
        return None
    own = [edit.replace(source, written[name], text) for name, text in entries.items() if name in written]
    others = {name: text for name, text in entries.items() if name not in written}
    if isinstance(value, ast.Call):
        return edit.together(*own, *(edit.add_keyword(source, value, *each) for each in others.items()))
    assert isinstance(value, ast.Dict)
    named = ", ".join(f'"{name}": {text}' for name, text in others.items())
    if not named:
        return edit.together(*own)
    if not value.values:
        return edit.replace(source, value, f"{{{named}}}")
    return edit.together(*own, _behind_last(source, value, named))


def _behind_last(source: Source, value: ast.Dict, text: str) -> Edits:
    """The text as entries behind the last one of a dict that has some: behind its brackets, and its comma if it has one."""
    span = source.span(value)
    end = source.span(value.values[-1]).end
    for match in _BETWEEN.finditer(source.text, end, span.end - 1):
        if match.group() == ",":
            return (Edit(Span(match.end(), match.end()), f" {text},"),)
        if match.group() == ")":
            end = match.end()
    return (Edit(Span(end, end), f", {text}"),)


def _may_be_replaced(value: ast.expr, entry: ast.expr) -> bool:
    """Whether entries of another dict, as in `{"lr": 1, **own}`, come behind this one, and take its place."""
    if not isinstance(value, ast.Dict):
        return False
    return None in value.keys[value.values.index(entry) :]
