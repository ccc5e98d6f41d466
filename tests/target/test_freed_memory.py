"""What the C library does with memory: asked and told in processes of their own, for there is no way back."""

from __future__ import annotations

import sys
from typing import Any

import pytest
from forked_programs import run_code

from perfaudit.target import freed_memory

pytestmark = pytest.mark.skipif(not freed_memory.is_glibc(), reason="memory does not come from glibc here")

TOLD = """
import json
from perfaudit.target import freed_memory

import torch

def faults():
    before = freed_memory.page_faults()
    for _ in range(4):
        torch.ones(10 << 20)  # 40 MiB
    return freed_memory.page_faults() - before

before = freed_memory.keeps_memory(), faults()
freed_memory.keep_memory()
faults()
print(json.dumps([before, [freed_memory.keeps_memory(), faults()]]))
"""


def test_memory_that_is_kept_is_not_asked_for_again(project: Any) -> None:
    import json

    done = run_code(TOLD, "told.py", [], project())
    assert done.code == 0, done.err
    (kept_before, before), (kept_after, after) = json.loads(done.out)
    assert (kept_before, kept_after) == (False, True)
    assert before > 4 * 40 << 20 >> 21  # pages of 2 MiB at most, and half of them
    assert after < before / 10


def test_the_variable_that_says_how_memory_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in freed_memory.VARIABLES:
        monkeypatch.delenv(name, raising=False)
    assert freed_memory.variable_set() == ""
    monkeypatch.setenv("MALLOC_TRIM_THRESHOLD_", "1000000000")
    assert freed_memory.variable_set() == "MALLOC_TRIM_THRESHOLD_"


def test_another_system_has_no_glibc(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    freed_memory._library.cache_clear()
    try:
        assert (freed_memory.is_glibc(), freed_memory.keeps_memory()) == (False, False)
    finally:
        freed_memory._library.cache_clear()
