"""An expression with words is not asked about a text that has none of them: so each match must hold one."""

from __future__ import annotations

import importlib
import itertools
import pkgutil
import re
from collections.abc import Iterator
from re import _parser  # type: ignore[attr-defined]  # how the standard library takes an expression apart
from typing import Any

import pytest

import perfaudit.static
from perfaudit import expressions
from perfaudit.expressions import _WithWords, names_found, regex

OPEN = "\0"  # stands for characters that an expression leaves open
FEW = 4  # characters of a class that are told apart


def with_words(value: object, depth: int = 3) -> Iterator[_WithWords]:
    if isinstance(value, _WithWords):
        yield value
    elif isinstance(value, (tuple, list)) and depth:
        for part in value:
            yield from with_words(part, depth - 1)


def all_with_words() -> dict[str, _WithWords]:
    """Those of all modules of the scanner, by where they stand."""
    found: dict[int, tuple[str, _WithWords]] = {}
    for module in pkgutil.walk_packages(perfaudit.static.__path__, "perfaudit.static."):
        for name, value in vars(importlib.import_module(module.name)).items():
            for expression in with_words(value):
                found.setdefault(id(expression), (f"{module.name}.{name} {expression.words[0]}", expression))
    return dict(found.values())


def texts(tree: Any) -> set[str]:  # Any: what the standard library makes of an expression
    """What matches look like: every way through the alternatives, with OPEN where the expression leaves it open."""
    return {"".join(parts) for parts in itertools.product(*(texts_of_part(str(kind), said) for kind, said in tree))}


def texts_of_part(kind: str, said: Any) -> set[str]:
    if kind == "LITERAL":
        return {chr(said)}
    if kind == "IN" and len(said) <= FEW and all(str(each) == "LITERAL" for each, _ in said):
        return {chr(character) for _, character in said}
    if kind == "SUBPATTERN":
        return texts(said[-1])
    if kind == "BRANCH":
        return {text for way in said[1] for text in texts(way)}
    if kind in ("MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT"):
        least, most, repeated = said
        several = {text + OPEN * (int(most) > 1) for text in texts(repeated)}
        return several if least else {"", *several}
    return {""} if kind in ("AT", "ASSERT", "ASSERT_NOT") else {OPEN}


def without_a_word(expression: _WithWords) -> list[str]:
    pattern = expression.pattern
    tree = _parser.parse(pattern.decode() if isinstance(pattern, bytes) else pattern)
    as_asked = str.lower if expression.flags & re.IGNORECASE else str
    return [text for text in texts(tree) if not any(word in as_asked(text) for word in expression.words)]


@pytest.mark.parametrize(
    ("name", "expression"), all_with_words().items(), ids=lambda value: value if isinstance(value, str) else ""
)
def test_each_match_has_one_of_the_words(name: str, expression: _WithWords) -> None:
    assert without_a_word(expression) == []


@pytest.mark.parametrize(
    ("pattern", "words", "flags", "lacking"),
    [
        (r"use_amp|fp16", "amp|fp16", 0, []),
        (r"use_amp|fp16", "amp", 0, ["fp16"]),
        (r"entry_?point", "entrypoint", 0, ["entry_point"]),
        (r"[Bb]it", "bit", 0, ["Bit"]),
        (r"[Bb]it", "bit", re.IGNORECASE, []),
        (r"(?<!x)env\w*\.step", "env.step", 0, [f"env{OPEN}{OPEN}.step"]),
        (rb"batch(es)*", "batch", 0, []),
    ],
)
def test_what_lacks_them_is_told(pattern: str, words: str, flags: int, lacking: list[str]) -> None:
    expression = regex(pattern, flags, words)
    assert isinstance(expression, _WithWords)
    assert without_a_word(expression) == lacking


@pytest.mark.parametrize("text", ["the env is here", "no such thing", "ENV.STEP(x)", "env.step(1)", ""])
@pytest.mark.parametrize("flags", [0, re.IGNORECASE])
def test_it_says_what_the_expression_says(text: str, flags: int) -> None:
    here, plain = regex(r"env\.step\((\w)\)", flags, "env.step("), re.compile(r"env\.step\((\w)\)", flags)
    for method in ("search", "match", "fullmatch"):
        one, other = getattr(here, method)(text), getattr(plain, method)(text)
        assert (one and one.span()) == (other and other.span())
    assert here.findall(text) == plain.findall(text)
    assert [m.span() for m in here.finditer(text)] == [m.span() for m in plain.finditer(text)]
    assert here.sub("-", text) == plain.sub("-", text)
    assert here.pattern == plain.pattern
    assert here.search(text, 1) == plain.search(text, 1)


def test_names_found_are_those_that_a_search_of_each_finds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(expressions, "_MAX_SEARCHED", 3)  # what is known is forgotten then, and found again
    pattern = regex(r"^lo", words="lo")
    for names in ({"loss", "log"}, {"loss", "x"}, set(), {"a", "b", "lo"}, {"loss", "c"}, {"blow"}):
        assert names_found(pattern, names) == {name for name in names if name.startswith("lo")}
        assert names_found(regex("o"), names) == {name for name in names if "o" in name}
