"""What a shell is told that asks how a command line may go on."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import Done

from perfaudit.cli.app import COMMANDS
from perfaudit.render import all_formats
from perfaudit.rules import all_rules

Run = Callable[..., Done]


@pytest.fixture(autouse=True)
def _started_by_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """As the installed command is, and not by `python -m`, as pytest may be: the name of the variable rests on it."""
    monkeypatch.setattr(sys.modules["__main__"], "__package__", None)


@pytest.fixture
def completions(perfaudit: Run, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], list[str]]:
    """What may stand in place of the last word."""

    def ask(line: str) -> list[str]:
        monkeypatch.setenv("_PERFAUDIT_COMPLETE", "complete_bash")
        monkeypatch.setenv("COMP_WORDS", line)
        monkeypatch.setenv("COMP_CWORD", str(len(line.split(" ")) - 1))
        return perfaudit().out.split()

    return ask


def test_commands_options_and_their_values(completions: Callable[[str], list[str]]) -> None:
    assert set(completions("perfaudit ")) == set(COMMANDS)
    assert completions("perfaudit scan --form") == ["--format"]
    assert set(completions("perfaudit scan --format ")) == set(all_formats())
    assert completions("perfaudit explain PA40") == [id_ for id_ in all_rules() if id_.startswith("PA40")]


def test_commands_below_another_and_the_one_that_is_meant_without(completions: Callable[[str], list[str]]) -> None:
    assert set(completions("perfaudit gate ")) == {"check", "init", "update"}
    assert completions("perfaudit gate train.py --against") == ["--against"]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_of_a_shell(shell: str, perfaudit: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("_PERFAUDIT_COMPLETE", f"source_{shell}")
    done = perfaudit()
    assert done.code == 0
    assert "complete_" in done.out
    if shutil.which(shell):
        script = tmp_path / "script"
        script.write_text(done.out)
        subprocess.run([shell, "-n", str(script)], check=True)


def test_every_command_has_one_whole_line_in_the_list_of_commands() -> None:
    longest = max(map(len, COMMANDS)) + len("  ") + len("  ")
    assert [name for name, what in COMMANDS.items() if longest + len(what) > 78 or not what.endswith(".")] == []
