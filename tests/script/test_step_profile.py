"""The profiler's own lines are no part of what a script prints."""

from __future__ import annotations

import os
from typing import Any

import pytest

from perfaudit.script.step_profile import StepProfile


class Chatty:
    """A profiler that writes as torch's does: to the descriptor, from C."""

    def start(self) -> None:
        os.write(2, b"USDT: profiler_start\n")

    stop = start

    def events(self) -> list[Any]:
        return []


def test_lines_of_the_profiler_are_not_shown(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("torch.profiler.profile", Chatty)
    profile = StepProfile()
    profile.begin()
    os.write(2, b"of the script")
    profile.end(1)
    assert capfd.readouterr().err == "of the script"
