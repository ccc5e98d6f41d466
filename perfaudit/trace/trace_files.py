"""Trace files below what a user names: plain, compressed, or members of an archive. Nothing is unpacked to disk."""

from __future__ import annotations

import io
import os
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import IO, cast

from perfaudit.errors import UserError, refusal

SUFFIXES = (".json", ".json.gz", ".gz", ".zip", ".tar.gz", ".tgz", ".tar")
OURS = "perfaudit."  # what `--export` writes, and saved reports, are no traces of the job in whose folder they lie
MAX_FILES = 8192  # of one command; a job of so many ranks is analysed by part
_GZIP = b"\x1f\x8b"
_NOT_READ = {b"PK\x03\x04": "zip", b"\x28\xb5\x2f\xfd": "zstd", b"\xfd7zXZ": "xz", b"BZh": "bzip2", b"7z\xbc\xaf": "7z"}


@dataclass(frozen=True, slots=True)
class TraceFile:
    """One trace: the file it is in, and its name in that where the file is an archive ("" where it is not).

    descriptor: of a file that is open already, whose name is `path` in reports; -1 for none.
    """

    path: str
    member: str = ""
    descriptor: int = -1

    @property
    def name(self) -> str:
        """How reports call it; a member of an archive as `archive.zip:rank0.json`."""
        return f"{self.path}:{self.member}" if self.member else self.path


def find_traces(paths: list[Path]) -> list[TraceFile]:
    """All traces in these files and folders, in the order of their names, those of a tar as they lie in it. Links to folders are
    not followed.

    Raises UserError for a path that does not exist, and for more than MAX_FILES files.
    """
    found: list[TraceFile] = []
    for path in paths:
        if why := why_missing(path):
            raise UserError(f"{path}: {why}")
        files = sorted(_below(path)) if path.is_dir() else [path]
        for file in files:
            found += [TraceFile(_display_path(file), member) for member in _members(file)]
        if len(found) > MAX_FILES:
            raise UserError(f"{path}: more than {MAX_FILES} files; name some of them")
    return found


def why_missing(path: Path) -> str:
    """Why there is nothing at a path, "" where there is."""
    try:
        if path.exists():
            return ""
    except OSError as error:  # a folder on the way may not be entered
        return refusal(error)
    return "a link that leads nowhere" if path.is_symlink() else "no such file or folder"


def _below(folder: Path) -> Iterator[Path]:
    """Files that are named like traces, and folders that may not be looked into: reading these says so."""
    closed: list[Path] = []
    for here, _, names in os.walk(folder, onerror=lambda error: closed.append(Path(error.filename))):
        yield from (
            Path(here) / name for name in names if name.lower().endswith(SUFFIXES) and not name.startswith((".", OURS))
        )
    yield from closed


def _display_path(path: Path) -> str:
    """Relative to the working directory where it lies below, with `/`."""
    try:
        return path.absolute().relative_to(Path.cwd()).as_posix()
    except ValueError:
        return path.as_posix()


def _members(path: Path) -> list[str]:
    """Names of the traces in an archive; [""] for a file that is none, or that cannot be read as what it is named."""
    names: list[str] = []
    try:
        if path.name.lower().endswith(".zip"):
            with zipfile.ZipFile(path) as archive:
                names = [item.filename for item in archive.infolist() if not item.is_dir()]
        elif path.name.lower().endswith((".tar.gz", ".tgz", ".tar")):
            with tarfile.open(path, "r|*") as tar:
                for item in tar:
                    names += [item.name] if item.isfile() else []
        else:
            return [""]
    except (OSError, EOFError, zipfile.BadZipFile, tarfile.TarError, zlib.error):
        pass  # members before the damage can be read; reading the others says what is wrong
    in_order = (
        sorted(names) if path.name.lower().endswith(".zip") else names
    )  # of a tar as they lie in it: see _TarInOrder
    traces = [
        name for name in in_order if name.lower().endswith((".json", ".json.gz", ".gz")) and "__MACOSX/" not in name
    ]
    return traces or [""]


class NotReadable(Exception):
    """A file that is no trace, or of which nothing can be read; the message is for a report."""


@contextmanager
def open_trace(file: TraceFile) -> Iterator[IO[bytes]]:
    """The bytes of the trace, decompressed as they are read. Raises NotReadable."""
    try:
        if file.descriptor >= 0:
            with os.fdopen(os.dup(file.descriptor), "rb") as raw:
                raw.seek(0)
                yield _plain(raw)
        elif file.member:
            with _open_member(file) as stream:
                yield _plain(stream)
        else:
            path = Path(file.path)
            if path.is_dir():
                os.scandir(path).close()  # `_below` names only those that may not be read
            if not path.is_file():
                raise NotReadable("not a regular file")
            if path.name.lower().endswith((".zip", ".tar", ".tar.gz", ".tgz")):
                raise NotReadable("an archive without traces in it, or damaged")
            with path.open("rb") as raw:
                yield _plain(raw)
    except OSError as error:
        raise NotReadable(refusal(error)) from error
    except (zipfile.BadZipFile, tarfile.TarError, NotImplementedError, RuntimeError) as error:
        raise NotReadable(f"damaged archive: {error}") from error  # RuntimeError: of an encrypted zip


@contextmanager
def _open_member(file: TraceFile) -> Iterator[IO[bytes]]:
    if file.path.lower().endswith(".zip"):
        with zipfile.ZipFile(file.path) as archive, archive.open(file.member) as stream:
            yield stream
        return
    yield _tar_in_order(file.path).member(file.member)


class _TarInOrder:
    """Members of an archive that can only be decompressed from its start: those that are asked for in the order in which they lie
    there are read in one pass.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._tar: tarfile.TarFile | None = None
        self._passed: set[str] = set()

    def member(self, name: str) -> IO[bytes]:
        """The bytes of a member, until the next one is asked for. Raises NotReadable."""
        for is_new in (self._tar is None or name in self._passed, True):
            if is_new:
                self._begin()
            assert self._tar is not None
            while (item := self._tar.next()) is not None:
                self._passed.add(item.name)
                if item.name == name:
                    stream = self._tar.extractfile(item)
                    if stream is None:
                        raise NotReadable("not a regular file")
                    return stream
            if is_new:
                break
        raise NotReadable("no longer in its archive")

    def _begin(self) -> None:
        if self._tar is not None:
            self._tar.close()
        self._passed.clear()
        self._tar = tarfile.open(self._path, "r|*")  # noqa: SIM115  # stays open for the members that follow


@lru_cache(maxsize=1)
def _tar_in_order(path: str) -> _TarInOrder:
    return _TarInOrder(path)


def _plain(stream: IO[bytes]) -> IO[bytes]:
    """The stream, decompressed where its first bytes say that it is a gzip file, whatever its name. Raises NotReadable."""
    buffered = stream if isinstance(stream, io.BufferedReader) else io.BufferedReader(stream)  # type: ignore[type-var]  # readable
    if buffered.peek(2)[:2] == _GZIP:
        return cast(IO[bytes], _Gunzip(buffered))
    for magic, kind in _NOT_READ.items():
        if buffered.peek(len(magic)).startswith(magic):
            raise NotReadable(
                "a zip archive whose name does not end in .zip" if kind == "zip" else f"compressed as {kind}"
            )
    return buffered


class _Gunzip:
    """A gzip file as it is read. One that ends in the middle gives all that can be decompressed, and then raises EOFError;
    `gzip.GzipFile` keeps what it has of the last part for itself.
    """

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self._unzip = zlib.decompressobj(_GZIP_WINDOW)
        self._packed = b""
        self._has_begun = False

    def read(self, size: int) -> bytes:
        """At most so many bytes, b"" at the end. Raises EOFError and zlib.error."""
        while True:
            if self._unzip.eof:  # one file may consist of several
                self._packed = (self._unzip.unused_data + self._packed).lstrip(b"\0")
                while not self._packed:  # zeros may follow, of whatever length
                    more = self._stream.read(_PACKED)
                    if not more:
                        return b""
                    self._packed = more.lstrip(b"\0")
                self._unzip = zlib.decompressobj(_GZIP_WINDOW)
            packed = self._unzip.unconsumed_tail or self._packed or self._stream.read(_PACKED)
            self._packed = b""
            if not packed and self._has_begun:
                raise EOFError("it ends in the middle")
            self._has_begun = True
            if data := self._unzip.decompress(packed, size):
                return data


_GZIP_WINDOW = 31  # as zlib calls the format of gzip with its largest window
_PACKED = 1 << 16  # bytes of the file that are read at once; of damaged ones so many are lost
