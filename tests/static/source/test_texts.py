"""What can be read and parsed, and in which words the rest is refused."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path

import pytest

from perfaudit.static.source import Source, Unreadable, decode_source, read_text

PARSER = f" (read as Python {sys.version_info.major}.{sys.version_info.minor}, with which perfaudit runs)"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("x = (", "does not parse at line 1: '(' was never closed" + PARSER),
        ("a\n  b", "does not parse at line 2: unexpected indent" + PARSER),
        ("x = " + "(" * 2000, "does not parse at line 1: too many nested parentheses" + PARSER),
        ("x = " + "-" * 200_000 + "1", "nested too deeply to parse"),
    ],
)
def test_unreadable(text: str, reason: str) -> None:
    with pytest.raises(Unreadable) as caught:
        Source("a.py", text)
    assert str(caught.value) == reason


def test_warnings_about_the_code_are_not_ours() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Source("a.py", "x = '\\d'\ny = 1if x else 2\n")


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", ("", "utf-8")),
        ("é\r\n".encode(), ("é\r\n", "utf-8")),
        (b"\xef\xbb\xbfx", ("x", "utf-8-sig")),
        (b"# coding: latin-1\n\xe9", ("# coding: latin-1\né", "iso-8859-1")),
        (b"\n# vim: set fileencoding=cp1252 :\n\x80", ("\n# vim: set fileencoding=cp1252 :\n€", "cp1252")),
    ],
)
def test_read_text(tmp_path: Path, data: bytes, expected: tuple[str, str]) -> None:
    path = tmp_path / "a.py"
    path.write_bytes(data)
    assert read_text(path) == expected


@pytest.mark.parametrize(
    "data",
    [b"\n\n\xff", b"\xff", b"# coding: rot13\n", b"# coding: undefined\n", b"\xef\xbb\xbf# coding: latin-1\n", b"a\0b"],
)
def test_read_text_that_is_none(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "a.py"
    path.write_bytes(data)
    with pytest.raises(Unreadable):
        read_text(path)
    with pytest.raises(Unreadable, match="no such file"):
        read_text(tmp_path / "b.py")


def test_the_codec_of_newer_syntax_is_utf_8() -> None:
    for declared in (b"# -*- coding: future_fstrings -*-", b"#!/usr/bin/env python\n# coding: future-annotations"):
        assert decode_source(declared + "\nx = f'\u00e9'\n".encode()) == (
            f"{declared.decode()}\nx = f'\u00e9'\n",
            "utf-8",
        )
    with pytest.raises(Unreadable, match="not valid text"):
        decode_source(b"# coding: future_fstrings\nx = '\xff'\n")
