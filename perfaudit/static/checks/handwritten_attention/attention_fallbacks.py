"""Attention that is written out on purpose: a reference, a formula with its own backward, a fallback."""

from __future__ import annotations

import ast
import re

from perfaudit.expressions import regex
from perfaudit.static.source import FUNCTIONS, Function, Source
from perfaudit.static.understanding.answers import remember
from perfaudit.static.understanding.names import last_name

FUSED = regex(
    r"scaled_dot_product_attention|flash_?attn|flash_?attention|memory_efficient_attention|flex_attention|xformers"
    r"|sage_?attn|sdpa|use_flash|\bself\.flash",
    re.IGNORECASE,
    words="scaled_dot_product|flash|memory_efficient|flex_attention|xformers|sage|sdpa",
)
_OPERATOR = "scaled_dot_product_attention"
_OWN_FUNCTION = regex(rf"\bdef\s+{_OPERATOR}\b|(?:\b(?:self|cls)\.|(?<![\w.])){_OPERATOR}(?=\()")
_REFERENCE = regex(r"(^|_)(ref|reference|naive|expected|test|eager|mock)(_|$)", re.IGNORECASE)

Unit = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
_UNITS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


def is_wanted_so(source: Source, function: Function) -> bool:
    """Whether the formula is a reference, has its own backward, or stands beside the fused form as its fallback."""
    unit: ast.AST = function
    for ancestor in (function, *source.ancestors(function)):
        if isinstance(ancestor, (*FUNCTIONS, ast.ClassDef)):
            if _REFERENCE.search(ancestor.name):
                return True
            if isinstance(ancestor, ast.ClassDef) and any(last_name(b) == "Function" for b in ancestor.bases):
                return True
            unit = ancestor
    return _speaks_of_fused(source) and isinstance(unit, _UNITS) and _is_beside_fused(source, unit)


@remember
def _speaks_of_fused(source: Source) -> bool:
    return (
        _OPERATOR in source.text or FUSED.search(source.text) is not None
    )  # the first is found a hundred times as fast


def _is_beside_fused(source: Source, unit: Unit) -> bool:
    """Whether a top-level function or class uses a fused attention, or something else chooses between it and one."""
    if FUSED.search(_code(source, unit)):
        return True
    name = re.compile(rf"\b{re.escape(unit.name)}\b")
    statements = [s for s in _top_level(source.tree.body) if not isinstance(s, (ast.Import, ast.ImportFrom))]
    codes = {id(s): _code(source, s) for s in statements}
    fused = [s for s in statements if isinstance(s, _UNITS) and FUSED.search(codes[id(s)])]
    either = re.compile("|".join([FUSED.pattern, *(rf"\b{re.escape(s.name)}\b" for s in fused)]), re.IGNORECASE)
    for statement in statements:
        code = codes[id(statement)]
        if statement is unit or not name.search(code) or not either.search(code):
            continue
        if not isinstance(statement, _UNITS) or any(s is statement for s in fused) or re.search(r"\bif\b|\{", code):
            return True
    return False


def _code(source: Source, statement: ast.stmt) -> str:
    """The text of a statement without comments and docstrings, where a fused form may be spoken of."""
    text = source.text_of(statement)
    text = re.sub(r'"""(?:.|\n)*?"""|' + r"'''(?:.|\n)*?'''", "", text)
    text = re.sub(r"#[^\r\n]*", "", text)
    return _OWN_FUNCTION.sub("", text) if _names_its_own(source) else text


@remember
def _names_its_own(source: Source) -> bool:
    """Whether the file defines a function by the name of torch's operator, which it writes out there."""
    return any(isinstance(d, FUNCTIONS) and d.name == _OPERATOR for d in source.definitions)


def _top_level(body: list[ast.stmt]) -> list[ast.stmt]:
    """The statements of a module, those under a top-level `if` or `try` too."""
    found: list[ast.stmt] = []
    for statement in body:
        found.append(statement)
        if isinstance(statement, (ast.If, ast.Try)):
            handlers = [s for h in getattr(statement, "handlers", ()) for s in h.body]
            found += _top_level([*statement.body, *statement.orelse, *handlers])
    return found
