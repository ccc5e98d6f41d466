"""Files of others: pipes, devices, files that are too large, TOML and JSON that would take forever."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from perfaudit import reading
from perfaudit.errors import ConfigError, UserError
from perfaudit.gate.committed_json import parse_json
from perfaudit.reading import TooLarge, json_of, read_bytes, toml_of

Run = Callable[..., Any]


def pipe(path: Path) -> None:
    os.mkfifo(path)


def bound(path: Path) -> None:
    here = Path.cwd()
    os.chdir(path.parent)  # a socket's path is short
    with socket.socket(socket.AF_UNIX) as one:
        one.bind(path.name)
    os.chdir(here)


def link_to(target: str) -> Callable[[Path], None]:
    return lambda path: path.symlink_to(target)


SPECIAL = {
    "a pipe": pipe,
    "a socket": bound,
    "a link to a device without an end": link_to("/dev/zero"),
    "a link to random bytes": link_to("/dev/urandom"),
    "a link to a terminal": link_to("/dev/tty"),
    "a link to the standard input": link_to("/dev/stdin"),
}


@pytest.fixture(params=SPECIAL.values(), ids=SPECIAL)
def special(request: pytest.FixtureRequest) -> Any:
    return request.param


def test_only_regular_files_are_read(tmp_path: Path, special: Callable[[Path], None]) -> None:
    special(tmp_path / "x.py")
    with pytest.raises(OSError, match=r"not a regular file|No such device"):
        read_bytes(tmp_path / "x.py", 100)


@pytest.mark.parametrize(("size", "limit", "fits"), [(0, 0, True), (1, 0, False), (5, 5, True), (6, 5, False)])
def test_the_limit_counts_bytes(tmp_path: Path, size: int, limit: int, fits: bool) -> None:
    (tmp_path / "x").write_bytes(b"a" * size)
    if fits:
        assert read_bytes(tmp_path / "x", limit) == b"a" * size
    else:
        with pytest.raises(TooLarge, match=f"larger than {limit} bytes"):
            read_bytes(tmp_path / "x", limit)


def test_a_file_that_grows_while_it_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "x").write_bytes(b"a")
    monkeypatch.setattr(reading.os, "read", lambda handle, most: b"a" * min(most, 7))
    with pytest.raises(TooLarge):
        read_bytes(tmp_path / "x", 1000)


def test_a_file_that_was_exchanged_for_a_pipe_when_it_is_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "x").write_bytes(b"a")
    pipe(tmp_path / "pipe")
    opening = os.open
    monkeypatch.setattr(reading.os, "open", lambda path, flags: opening(tmp_path / "pipe", flags))
    with pytest.raises(OSError, match="not a regular file"):
        read_bytes(tmp_path / "x", 1000)


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs /proc")
def test_a_file_that_says_it_is_empty_and_is_not() -> None:
    assert b"VmPeak" in read_bytes("/proc/self/status", 100_000)
    with pytest.raises(TooLarge):
        read_bytes("/proc/self/status", 10)


@pytest.mark.parametrize("name", ["train.py", "notes.ipynb", ".gitignore", "pyproject.toml", "helper.py"])
def test_a_scan_reads_nothing_special(project: Any, perfaudit: Run, special: Callable[[Path], None], name: str) -> None:
    """Each of these was waited for without an end, or read until memory was full."""
    folder = project(**{"net.py": "import torch\nfrom helper import Loader\nloader = Loader(d)\n"})
    special(folder / name)
    done = perfaudit("scan", ".", "--no-cache")
    assert done.code == 0
    assert "nothing found in 1 file" in done.out
    if name == ".gitignore" or (name != "pyproject.toml" and (folder / name).is_symlink()):  # pipes are no Python files
        assert f"{name}: not audited: " in done.out
        assert "not a regular file" in done.out or "no such device" in done.out


@pytest.mark.parametrize(
    "arguments", [("scan", "--baseline"), ("apply",), ("gate", "--baseline"), ("history", "--run")]
)
def test_files_that_are_named_are_regular_ones(project: Any, perfaudit: Run, arguments: tuple[str, ...]) -> None:
    folder = project(**{"net.py": "import torch\n"})
    pipe(folder / "it.json")
    done = perfaudit(*arguments, "it.json")
    assert done.code == 2


NESTED = {
    "lists": "a = " + "[" * 100_000,
    "inline tables": "a = " + "{a = " * 100_000,
    "a dotted key": ".".join(["a"] * 50_000) + " = 1",
    "a dotted key of quoted parts": ".".join(['"."'] * 50_000) + " = 1",
    "a header": "[" + ".".join(["a"] * 50_000) + "]",
    "a number of 5,000 digits": "a = " + "1" * 5_000,
}


@pytest.mark.parametrize("text", NESTED.values(), ids=NESTED)
def test_toml_that_is_refused(text: str) -> None:
    with pytest.raises(ValueError):  # tomllib's own words for some
        toml_of(text)


@pytest.mark.parametrize("text", [*NESTED.values(), "[tool.perfaudit]\ntests = 0x" + "f" * 50_000])
def test_settings_that_are_refused(project: Any, perfaudit: Run, text: str) -> None:
    folder = project(**{"net.py": "import torch\n"})
    (folder / "pyproject.toml").write_text(text)
    done = perfaudit("scan", ".")
    if "perfaudit" not in text:  # such a file is not parsed
        assert (done.code, done.err) == (0, "")
        (folder / "pyproject.toml").write_text(f"# perfaudit\n{text}")
        done = perfaudit("scan", ".")
    assert done.code == 2
    assert done.err.startswith(f"perfaudit: {folder / 'pyproject.toml'}: ") or "pyproject.toml:2: " in done.err
    assert len(done.err) < 1_000


def test_long_lines_with_dots_that_are_no_key_are_taken() -> None:
    versions = ", ".join(f'"{n}.0.1"' for n in range(1_000))
    assert len(toml_of(f"versions = [{versions}]")["versions"]) == 1_000


@pytest.mark.parametrize("text", ["[" * 100_000, '{"a":' * 100_000, "1" * 5_000])
def test_json_that_is_refused(text: str) -> None:
    with pytest.raises(ValueError):  # json's own words for some
        json_of(text)
    with pytest.raises(ValueError):
        json_of(text.encode())


@pytest.mark.parametrize("read", [lambda data: json_of(data.decode()), json_of, parse_json])
def test_json_of_too_many_parts(read: Callable[[bytes], object], monkeypatch: pytest.MonkeyPatch) -> None:
    """A baseline of 256 MiB, all of it empty lists, took 6 GB of memory."""
    monkeypatch.setattr(reading, "MAX_JSON_PARTS", 3)
    assert read(b"[[], {}]") == [[], {}]
    with pytest.raises(ValueError, match="more than 3 objects and lists"):
        read(b"[[], {}, {}]")


def test_errors_of_settings_say_what_they_are() -> None:
    assert issubclass(ConfigError, UserError)
    assert reading.value_in_words(16**10_000) == "int of too many digits"
    assert len(reading.value_in_words(["a" * 1_000] * 1_000)) < 300
