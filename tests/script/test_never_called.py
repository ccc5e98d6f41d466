"""Findings in functions that no step calls, and at calls that build no loader."""

from __future__ import annotations

import sys
from pathlib import Path
from textwrap import dedent

import pytest
from surveys import found

from perfaudit.findings import Finding, Location
from perfaudit.script.called_functions import CalledFunctions
from perfaudit.script.never_called import lines_called, lines_never_called, loaders_never_built

TEXT = dedent("""\
    import functools

    def used(x):
        def inner(y):
            return y + 1
        return inner(x)

    def unused(x):
        def inner_of_it(y):
            return y
        kept = lambda y: y
        return inner_of_it(x)

    @functools.cache
    def decorated(x):
        return x

    @jit.script
    def compiled(x):
        return x

    loader = DataLoader(data)
    other = data.DataLoader(
        data,
    )
    third = MyDataLoader(data)
""")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    written = tmp_path / "train.py"
    written.write_text(TEXT)
    return written


def at(file: Path, rule: str, *lines: int) -> list[Finding]:
    return [found(rule).with_(location=Location(str(file), line, 1, line, 2)) for line in lines]


def test_the_innermost_function_counts(file: Path) -> None:
    given = at(file, "PA601", 1, 5, 6, 10, 11, 12, 16, 20)
    called = {str(file): [(3, "used"), (4, "inner"), (14, "decorated")]}
    assert [line for _, line, _ in lines_never_called(given, called)] == [10, 12]
    assert [line for _, line, _ in lines_called(given, called)] == [5, 6, 16]
    assert [line for _, line, _ in lines_never_called(given, {str(file): [(8, "unused")]})] == [5, 6, 10, 16]


def test_a_file_that_was_not_looked_at_is_left_out(file: Path) -> None:
    assert lines_never_called(at(file, "PA601", 5), {}) == []


def test_calls_that_built_no_loader(file: Path) -> None:
    given = at(file, "PA101", 22, 23, 26) + at(file, "PA601", 23)
    assert [line for _, line, _ in loaders_never_built(given, [(str(file), 22, 22)])] == [23]
    assert loaders_never_built(given, []) == []


def test_what_is_called_and_what_was_running() -> None:
    def calls() -> None:
        called.begin()
        is_called()
        called.end()
        is_called_later()

    def is_called() -> None: ...

    def is_called_later() -> None: ...

    called, here = CalledFunctions(), sys.getprofile()
    sys.setprofile(None)
    try:
        calls()
    finally:
        sys.setprofile(here)
    names = {name for _, name in called.names([__file__])[__file__]}
    assert {"calls", "is_called", "test_what_is_called_and_what_was_running"} <= names
    assert "is_called_later" not in names
    assert called.is_known


def test_a_script_that_listens_itself_is_left_alone() -> None:
    here = sys.getprofile()
    sys.setprofile(lambda *_: None)
    try:
        assert not CalledFunctions().begin()
    finally:
        sys.setprofile(here)
