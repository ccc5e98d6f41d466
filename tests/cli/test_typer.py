"""What of typer is used, which has to be there in every version that pyproject.toml allows."""

from __future__ import annotations

import ast
from pathlib import Path

PACKAGE = Path(__file__).parent.parent.parent / "perfaudit"
# From 0.20 to 0.29 these mean the same; `benchmarks/typer_versions.py` runs every command with both ends and some between.
# click is none of them: typer 0.24 depends on it, 0.28 brings its own.
USED = {"Typer", "Option", "Argument", "Exit", "BadParameter", "Abort", "core", "core.TyperCommand", "core.TyperGroup"}


def test_only_what_every_typer_has_is_used() -> None:
    texts = {path: path.read_text(encoding="utf-8") for path in sorted(PACKAGE.rglob("*.py"))}
    for path, text in texts.items():
        if "typer" not in text and "click" not in text:
            continue
        for node in ast.walk(ast.parse(text)):
            place = f"{path}:{getattr(node, 'lineno', 0)}"
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
                assert "click" not in names, place
                assert {name for name in names if name.startswith("typer")} <= {"typer", "typer.core"}, place
            elif isinstance(node, ast.ImportFrom):
                assert (node.module or "").partition(".")[0] not in ("typer", "click"), place
            elif isinstance(node, ast.Attribute) and ast.unparse(node).startswith("typer."):
                assert ast.unparse(node).removeprefix("typer.") in USED, place
