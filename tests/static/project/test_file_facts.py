"""Of which files of a scan something is true, and which of them are parsed for that."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from perfaudit.static.project.file_facts import FileFacts
from perfaudit.static.source import Source


@pytest.fixture
def asked() -> list[str]:
    return []


@pytest.fixture
def facts(tmp_path: Path) -> FileFacts:
    texts = {"a.py": "x = 1\n", "b.py": "import jax\n", "c.py": "# jax\n", "d.py": "import jax(\n"}
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    return FileFacts([str(tmp_path / name) for name in texts])


def names_jax(text: str) -> bool:
    return "jax" in text


def test_the_first_in_the_order_given_is_found(facts: FileFacts, asked: list[str]) -> None:
    def imports(source: Source) -> bool:
        asked.append(Path(source.path).name)
        return bool(source.nodes(ast.Import))

    assert Path(facts.first_in_order(imports, [2, 1, 0])).name == "b.py"
    assert asked == ["c.py", "b.py"]
    assert facts.first_in_order(imports, [3, 2]) == ""  # the one does not parse, the other is known
    assert asked == ["c.py", "b.py"]


def test_a_text_that_cannot_hold_a_fact_is_not_parsed(facts: FileFacts, asked: list[str]) -> None:
    def imports(source: Source) -> bool:
        asked.append(Path(source.path).name)
        return bool(source.nodes(ast.Import))

    assert Path(facts.first_in_order(imports, [0, 2, 1], names_jax)).name == "b.py"
    assert asked == ["c.py", "b.py"]
