"""What the start line of a run has, by which another one is told to measure the same."""

from __future__ import annotations

from pathlib import Path

import pytest

from perfaudit.target.names import Target
from perfaudit.tune.recording import files_of_settings


@pytest.mark.parametrize(
    ("arguments", "files"),
    [
        (("config.yaml", "--epochs", "1"), ["config.yaml"]),
        (("--config=config.yaml", "--config", "other.yaml"), ["config.yaml"]),  # the other one is not there
        (("train.bin", "--lr=0.1"), []),  # data
        (None, []),
    ],
)
def test_files_of_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...] | None, files: list[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("config.yaml").write_text("batch_size: 8\n")
    Path("train.bin").write_bytes(b"0")
    assert files_of_settings(Target("train.py", arguments=arguments)) == files
