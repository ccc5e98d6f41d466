"""Functions have names: verbs for work, nouns for what is given. A bare participle says neither."""

from __future__ import annotations

import ast
from pathlib import Path

ROOT = Path(__file__).parent.parent
NO_PARTICIPLES = frozenset({"embed", "exceed", "feed", "heed", "need", "proceed", "seed", "speed"})
IRREGULAR = {
    "begun", "bound", "brought", "built", "caught", "chosen", "done", "drawn", "driven", "felt", "found", "frozen",
    "given", "gone", "grown", "held", "hidden", "kept", "known", "left", "lost", "made", "meant", "met", "paid", "said",
    "seen", "sent", "shown", "sold", "spent", "spoken", "taken", "taught", "thought", "thrown", "told", "worn",
    "written",
}  # fmt: skip


def is_bare_participle(name: str) -> bool:
    word = name.strip("_")
    return word in IRREGULAR or (word.endswith("ed") and "_" not in word and word not in NO_PARTICIPLES)


def test_no_function_is_named_with_a_bare_participle() -> None:
    assert is_bare_participle("_kept") and is_bare_participle("compared")
    assert not any(map(is_bare_participle, ("need", "seconds_left", "kept_files", "compare")))
    found = [
        f"{path.relative_to(ROOT)}:{node.lineno} {node.name}"
        for path in sorted((ROOT / "perfaudit").rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and is_bare_participle(node.name)
    ]
    assert found == []
