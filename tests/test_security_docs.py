"""`docs/security.md` names tests that exist, and the README leads to it."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parent.parent
SECURITY = (ROOT / "docs" / "security.md").read_text()
SECTION = SECURITY.partition("## Which test holds it")[2].partition("\n## ")[0]


def names_in(text: str) -> list[tuple[str, str]]:
    """File and test, each as often as it is named; a test belongs to the file that is named before it."""
    found, file = [], ""
    for name in re.findall(r"`(tests/[\w/]+\.py|test_\w+)`", text):
        file = name if name.startswith("tests/") else file
        found += [] if name == file else [(file, name)]
    return found


def test_every_test_that_is_named_exists() -> None:
    named = names_in(SECTION)
    assert len(named) > 30
    for file, name in named:
        functions = {
            node.name for node in ast.parse((ROOT / file).read_text()).body if isinstance(node, ast.FunctionDef)
        }
        assert name in functions, f"{file} has no {name}"


def test_every_file_is_named_with_a_test() -> None:
    assert set(re.findall(r"`(tests/[\w/]+\.py)`", SECTION)) == {file for file, _ in names_in(SECTION)}


def test_a_test_belongs_to_the_file_before_it() -> None:
    text = "`tests/a.py` (`test_one`, `test_two`) and `tests/b/c.py` (`test_three`)"
    assert names_in(text) == [("tests/a.py", "test_one"), ("tests/a.py", "test_two"), ("tests/b/c.py", "test_three")]


def test_the_readme_leads_to_it() -> None:
    readme = (ROOT / "README.md").read_text()
    for page in ("docs/security.md", "SECURITY.md"):
        assert f"]({page})" in readme
        assert (ROOT / page).is_file()
