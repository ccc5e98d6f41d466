"""What all tests of variants share."""

from __future__ import annotations

import sys
from collections import Counter

import pytest


@pytest.fixture(autouse=True)
def _nothing_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forget what another test of this process has compiled."""
    if dynamo := sys.modules.get("torch._dynamo.utils"):
        monkeypatch.setitem(dynamo.counters, "stats", Counter())
