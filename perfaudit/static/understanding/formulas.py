"""Formulas that are written out on purpose: for a compiler to fuse, with a backward of their own, or as a reference."""

from __future__ import annotations

import ast
import re

from perfaudit.static.source import FUNCTIONS, Source

COMPILED = re.compile(r"jit|script|compile|fuse|decomposition|impl")  # in a decorator
REFERENCE = re.compile(r"(^|_)(ref|reference|naive|expected|test)", re.IGNORECASE)


def is_wanted_written_out(source: Source, node: ast.AST) -> bool:
    """Whether the formula is wanted: for a compiler to fuse, beside its own backward, as a reference to compare with."""
    for ancestor in source.ancestors(node):
        name = getattr(ancestor, "arg" if isinstance(ancestor, ast.keyword) else "name", None) or ""
        if REFERENCE.search(name):
            return True
        if not isinstance(ancestor, (*FUNCTIONS, ast.ClassDef)):
            continue
        if any(COMPILED.search(source.text_of(decorator)) for decorator in ancestor.decorator_list):
            return True
        if isinstance(ancestor, ast.ClassDef) and any(source.text_of(b).endswith("Function") for b in ancestor.bases):
            return True
        arguments = [a for name in ("torch.jit.script", "torch.compile") for c in source.calls(name) for a in c.args]
        if any(isinstance(n, ast.Name) and n.id == ancestor.name for a in arguments for n in ast.walk(a)):
            return True
    return False
