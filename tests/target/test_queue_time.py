"""What threads have waited for a core, read from the system's own files."""

from __future__ import annotations

from pathlib import Path

import pytest

from perfaudit.target import queue_time


def test_one_thread_can_be_left_out_and_one_that_ends_is_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for thread, clocks in {"11": "5 7 1", "12": "5 9000000000 1", "13": ""}.items():
        (tmp_path / thread).mkdir()
        (tmp_path / thread / "schedstat").write_text(clocks)
    (tmp_path / "14").mkdir()
    monkeypatch.setattr(queue_time, "TASKS", str(tmp_path))
    assert queue_time.queued_seconds() == pytest.approx(9.000000007, abs=1e-12)
    assert queue_time.queued_seconds(but=12) == pytest.approx(7e-9, abs=1e-12)
    monkeypatch.setattr(queue_time, "TASKS", str(tmp_path / "none"))
    assert queue_time.queued_seconds() == 0.0
