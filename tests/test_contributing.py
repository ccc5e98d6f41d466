"""CONTRIBUTING.md names files that are there, and `--update` writes expected output."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
TEXT = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")


def test_what_it_names_is_there() -> None:
    written = {name for name in re.findall(r"`([\w./-]+)`", TEXT) if "/" in name}
    written |= set(re.findall(r"\]\(([\w./-]+)\)", TEXT))
    assert len(written) > 10
    for name in written:
        folder = name if "its_name" not in name and "PA999" not in name else str(Path(name).parent)
        assert (ROOT / folder).exists(), name


def test_expected_output_is_compared_or_written(
    expect: Callable[[Path, str], None], pytestconfig: pytest.Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = tmp_path / "whole.txt"
    whole.write_text("before\n")
    monkeypatch.setattr(pytestconfig.option, "update", False)
    with pytest.raises(AssertionError):
        expect(whole, "now\n")
    assert whole.read_text() == "before\n"
    monkeypatch.setattr(pytestconfig.option, "update", True)
    expect(whole, "now\n")
    assert whole.read_text() == "now\n"
