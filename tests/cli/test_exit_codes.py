"""What a fault of the machine or of the program itself leaves with: never 1, which says that there are findings."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from typing import Any

import pytest

Run = Callable[..., Any]


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (OSError(28, "No space left on device"), 3, "No space left on device"),
        (RuntimeError("a mistake of ours"), 3, "raise error\nRuntimeError: a mistake of ours\n"),
        (BrokenPipeError(32, "Broken pipe"), 3, ""),
        (EOFError(), 3, ""),
        (KeyboardInterrupt(), 130, ""),
    ],
)
def test_faults(
    perfaudit: Run, monkeypatch: pytest.MonkeyPatch, project: Any, error: BaseException, code: int, said: str
) -> None:
    def fails(*_: object, **__: object) -> None:
        raise error

    project(**{"a.py": "import torch\n"})
    monkeypatch.setattr("perfaudit.cli.one_scan.emit", fails)
    done = perfaudit("scan", "a.py")
    assert done.code == code
    assert said in done.err


def test_a_signal_while_a_gate_is_told_waits_for_the_report(
    perfaudit: Run, monkeypatch: pytest.MonkeyPatch, project: Any
) -> None:
    from perfaudit.cli import output

    def interrupted(*told: Any, **named: Any) -> None:
        signal.raise_signal(signal.SIGTERM)
        output.emit(*told, **named)

    project(**{"net.py": "import torch\nx = torch.zeros(3)\n"})
    assert perfaudit("gate", "init").code == 0
    monkeypatch.setattr("perfaudit.cli.gate.emit", interrupted)
    done = perfaudit("gate", "--baseline", "perfaudit-gate.json", "--layers", "findings", "--format", "json")
    report = json.loads(done.out)
    assert (report["interrupted"], report["gate"]["verdict"], done.code) == (False, "pass", 130)
