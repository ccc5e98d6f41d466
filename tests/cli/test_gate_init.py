"""What `perfaudit gate init` prints for CI: the targets it found and the options that were typed."""

from __future__ import annotations

import inspect
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import Done
from gate_programs import SILENT, TARGET

from perfaudit.cli.gate_baseline import init
from perfaudit.gate.baseline import Baseline
from perfaudit.gate.snippets import Typed

Run = Callable[..., Done]


@pytest.fixture
def uncounted(project: Callable[..., Path], monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project with one target, whose step is not counted: that it is printed does not depend on it."""
    monkeypatch.setattr("perfaudit.gate.stock.stock", lambda request, watch, rules: Baseline())
    return project(**{"train.py": TARGET, "net.py": SILENT})


def commands(text: str) -> list[list[str]]:
    lines = [shlex.split(line, comments=True) for line in text.splitlines()]
    return [words for words in lines if words[:2] == ["perfaudit", "gate"]]


def test_a_target_that_is_found_is_in_the_command(uncounted: Path, perfaudit: Run) -> None:
    done = perfaudit("gate", "init", "--ci", "plain")
    assert (done.code, commands(done.out)) == (
        0,
        [
            ["perfaudit", "gate", "train.py", "--against", "origin/main"],
            ["perfaudit", "gate", "train.py", "--baseline", "perfaudit-gate.json"],
        ],
    )
    assert "pip install torch perfaudit" in perfaudit("gate", "init", "--force").out


def test_what_is_typed_is_in_the_command(uncounted: Path, perfaudit: Run) -> None:
    typed = ["--path", "net.py", "--factory", "model=build_model", "--device", "cpu", "--timeout", "3m"]
    done = perfaudit("gate", "init", "--ci", "plain", "--baseline", "ci.json", *typed)
    assert (done.code, (uncounted / "ci.json").exists()) == (0, True)
    assert '#     baseline = "ci.json"\n' in done.out
    for words in commands(done.out):
        assert words[-len(typed) :] == typed


def test_what_is_not_typed_is_known_as_such() -> None:
    defaults = {name: parameter.default for name, parameter in inspect.signature(init).parameters.items()}
    assert (defaults["device"], defaults["timeout"]) == (Typed().device, Typed().timeout)
