"""What docs/gate.md lists is what there is: counters, settings."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from perfaudit.config import read_config
from perfaudit.gate.settings import _READ, settings_of
from perfaudit.gate.target_counters import COUNTERS
from perfaudit.measure.counted_step import COPIES, OF_A_STEP
from perfaudit.measure.counters_as_run import OF_LAUNCHES

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "gate.md").read_text(encoding="utf-8")


def section(name: str) -> str:
    return PAGE.partition(f"\n## {name}\n")[2].partition("\n## ")[0]


def blocks(text: str) -> list[str]:
    """The blocks of settings of a page."""
    return re.findall(r"^```toml\n(.*?)^```$", text, flags=re.MULTILINE | re.DOTALL)


def counted() -> set[str]:
    """The names under which the two modules that count keep values."""
    names = {*OF_A_STEP, *COPIES, *OF_LAUNCHES}
    for module in ("counters", "counters_as_run"):
        for node in ast.walk(ast.parse((ROOT / "perfaudit" / "measure" / f"{module}.py").read_text())):
            if isinstance(node, ast.Subscript) and _is_values(node.value) and isinstance(node.slice, ast.Constant):
                names.add(node.slice.value)
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and _is_values(node.func.value):
                names |= {keyword.arg for keyword in node.keywords if keyword.arg is not None}
            elif (
                isinstance(node, ast.Call)
                and ast.unparse(node.func) == "_keep"
                and isinstance(node.args[1], ast.Constant)
            ):
                names.add(node.args[1].value)
    return names


def _is_values(node: ast.expr) -> bool:
    return ast.unparse(node) == "found['values']"


def test_every_counter_that_is_counted_is_in_the_table() -> None:
    rows = section("Counters").partition("|---|---|\n")[2].partition("\n\n")[0].splitlines()
    listed = [name for row in rows for name in re.findall(r"`(\w+)`", row.split("|")[1])]
    assert sorted(listed) == sorted(COUNTERS) == sorted(counted())


def test_every_setting_is_listed(tmp_path: Path) -> None:
    (settings,), (counters,) = blocks(section("Settings")), blocks(section("Counters"))
    file = tmp_path / "pyproject.toml"
    file.write_text(settings + counters)
    config = read_config(file)
    assert config.gate.keys() == _READ.keys()
    assert settings_of(config).tolerance == {"operators": 0.01}


def test_pages_that_name_counters_point_to_the_table() -> None:
    for page in ("history.md", "pytest.md"):
        assert "(gate.md#counters)" in (ROOT / "docs" / page).read_text(encoding="utf-8")
