"""Files that are tests by their names."""

from __future__ import annotations

import pytest

from perfaudit.static.source import Source
from perfaudit.static.understanding.demonstrations import is_test


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("test_engine.py", True),
        ("smoke_test.py", True),
        ("smoketest_ddp.py", True),
        ("smoke_fire_train.py", False),
        ("smoke.py", False),
        ("train.py", False),
    ],
)
def test_a_test_by_the_name_of_its_file(name: str, expected: bool) -> None:
    source = Source(f"project/{name}", "x = 1\n")
    assert is_test(source, source.tree.body[0]) is expected
