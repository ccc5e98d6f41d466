"""What of typer is used, which has to be there in every version that pyproject.toml allows."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent.parent / "perfaudit"
# From 0.20 to 0.29 these mean the same; `benchmarks/typer_versions.py` runs every command with both ends and some between.
# click is none of them: typer 0.24 depends on it, 0.28 brings its own.
USED = {"Typer", "Option", "Argument", "Exit", "BadParameter", "Abort", "core", "core.TyperCommand", "core.TyperGroup"}


@pytest.mark.parametrize("path", sorted(PACKAGE.rglob("*.py")), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_only_what_every_typer_has_is_used(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    if "typer" not in text and "click" not in text:
        return
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            assert {alias.name for alias in node.names}.isdisjoint({"click"})
            assert all(alias.name in ("typer", "typer.core") for alias in node.names if alias.name.startswith("typer"))
        elif isinstance(node, ast.ImportFrom):
            assert (node.module or "").partition(".")[0] not in ("typer", "click")
        elif isinstance(node, ast.Attribute) and ast.unparse(node).startswith("typer."):
            assert ast.unparse(node).removeprefix("typer.") in USED
