"""What pre-commit is offered: `.pre-commit-hooks.yaml`."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable
from pathlib import Path

from conftest import Done

ROOT = Path(__file__).parent.parent


def test_the_hook_calls_a_command_that_exists(perfaudit: Callable[..., Done]) -> None:
    text = (ROOT / ".pre-commit-hooks.yaml").read_text().partition("\n- ")[0]  # the first of them
    hook = dict(re.findall(r"^[- ] (\w+): (.+)$", text, flags=re.MULTILINE))  # no YAML parser for seven lines
    assert hook.keys() == {"id", "name", "description", "entry", "language", "types_or", "require_serial"}
    assert (hook["id"], hook["language"], hook["types_or"]) == ("perfaudit-scan", "python", "[python, jupyter]")
    program, command, option = hook["entry"].split()
    assert option in perfaudit(command, "--help").out
    assert program in tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    assert perfaudit(command, "--help").code == 0


def test_the_documented_hook_is_this_one() -> None:
    assert "- id: perfaudit-scan\n" in (ROOT / "docs" / "formats.md").read_text()


def test_every_format_is_documented() -> None:
    from perfaudit.cli.output import ALIASES
    from perfaudit.render import all_formats

    table = (ROOT / "docs" / "formats.md").read_text().partition("| name | for |")[2].partition("\n\n")[0]
    assert {*all_formats(), *ALIASES} == {
        name for row in table.splitlines()[2:] for name in re.findall(r"`(\w+)`", row.split("|")[1])
    }
