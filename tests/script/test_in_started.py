"""What a process that the script starts tells of its first update, and when it is not to."""

from __future__ import annotations

import json
import os
import types
from collections.abc import Callable
from typing import Any

import pytest

from perfaudit.script import in_started


@pytest.mark.parametrize("trains_here", [False, True])
def test_a_started_process_tells_nothing_once_the_script_trains_by_itself(
    trains_here: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    carried: list[Any] = []
    ends: list[Callable[[Any], None]] = []

    class Watch:
        counts = types.SimpleNamespace(updates=1)

        def __init__(self, update_ends: Callable[[Any], None]) -> None:
            ends.append(update_ends)

        def wait_for_torch(self) -> None:
            pass

        def take_records(self) -> list[Any]:
            return []

    monkeypatch.setattr(in_started, "_carry", carried.append)
    monkeypatch.setattr(in_started, "Watch", Watch)
    replies, reply = os.pipe()
    first_update = in_started.tell_first_update_in_started({"fault": "target"}, reply)
    if trains_here:
        first_update()
    (one,) = carried
    one._begin(*one._arguments, *one._descriptors)
    ends[0](0)
    os.set_blocking(replies, False)
    try:
        told = os.read(replies, 1000)
    except BlockingIOError:
        told = b""
    assert (json.loads(told) if told else None) == (None if trains_here else {"fault": "target"})
