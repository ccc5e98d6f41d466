"""A plain scan is read without typer: what it asks for is the same, and everything else is left to typer."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from perfaudit.cli import scan
from perfaudit.cli.app import application
from perfaudit.cli.one_scan import ScanOptions
from perfaudit.cli.plain_scan import read_plain

PLAIN = [
    "",
    ".",
    "train.py",
    "a.py b.py --no-cache",
    "--exit-zero train.py --isolated",
    "--tests --force-exclude a.py",
    "--format json src",
    "--format full a.py",
    "--format json --format text a.py",
    "- --stdin-filename train.py --format concise",
]
NOT_PLAIN = [
    "--help",
    "-o report.txt a.py",
    "--format yaml a.py",
    "--format",
    "--format=json a.py",
    "--format --tests a.py",
    "--select PA1 a.py",
    "--measure train.py -- --epochs 1",
    "a.py -- b.py",
    "--fix",
    "--no-such-option",
    "--no-cach a.py",
]


@pytest.mark.parametrize("line", PLAIN)
def test_both_read_the_same(line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[ScanOptions] = []

    def take(asked: ScanOptions) -> int:
        taken.append(asked)
        return 0

    monkeypatch.setattr(scan, "scan_as_asked", take)
    monkeypatch.setattr(sys, "argv", ["perfaudit", "scan", *line.split()])
    with pytest.raises(SystemExit):
        application("scan")()
    (by_typer,) = taken
    assert read_plain(line.split()) == by_typer


@pytest.mark.parametrize("line", NOT_PLAIN)
def test_what_is_not_plain_is_left_to_typer(line: str) -> None:
    assert read_plain(line.split()) is None


def test_errors_are_those_of_typer(perfaudit: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    plain, by_typer = perfaudit("scan", "gone.py"), perfaudit("scan", "gone.py", "-j", "1")
    assert (plain.code, plain.err) == (by_typer.code, by_typer.err) == (2, plain.err)
    assert "gone.py" in plain.err
