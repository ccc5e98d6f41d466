"""Files of a project as a patch names them: found, known by a digest, replaced all or none."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Sequence
from pathlib import Path, PurePosixPath, PureWindowsPath

from perfaudit.errors import UserError, refusal
from perfaudit.expressions import regex
from perfaudit.files import Kept, Refused, forget, keep, put_back, reason, replace_source, source_place, sweep
from perfaudit.reading import MAX_FILE_BYTES, TooLarge, digest, read_bytes
from perfaudit.records import record
from perfaudit.static.discover import SUFFIXES
from perfaudit.static.document import is_notebook
from perfaudit.static.source import Unreadable, decode_source
from perfaudit.static.source.reading import MAX_BYTES

_UNUSUAL = regex("[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")  # in a path: nothing that a terminal obeys


@record(frozen=True, slots=True)
class Opened:
    """A file of the project as it was found. path: as the patch has it; real: where it is, links followed."""

    path: str
    real: Path
    data: bytes
    text: str
    encoding: str

    @property
    def digest(self) -> str:
        return digest(self.data)


@record(frozen=True, slots=True)
class Planned:
    """A file that was checked and can be replaced: what it holds, what it will hold, the difference in its encoding."""

    path: str
    real: Path
    before: bytes
    after: bytes
    diff: bytes


def inside(path: str, root: Path) -> Path:
    """Where a path of a patch leads, links followed. Raises UserError unless that is a file of the project."""
    parts, windows = PurePosixPath(path).parts, PureWindowsPath(path)
    if not parts or _UNUSUAL.search(path) or parts[0] == "/" or ".." in (*parts, *windows.parts) or windows.anchor:
        raise UserError(f"{path!r}: not a path inside the project")
    if not path.endswith(SUFFIXES):
        raise UserError(f"{path}: neither a Python file nor a notebook")
    try:
        real = (root / path).resolve(strict=True)
        if not real.is_relative_to(root.resolve()):
            raise UserError(f"{path}: leads out of the project, to {real}")
        source_place(root / path)
        if not real.is_file():
            raise UserError(f"{path}: no regular file")
    except Refused as error:
        raise UserError(reason(error)) from error
    except FileNotFoundError as error:
        raise UserError(f"{path}: no such file here; paths are those of the folder in which it was measured") from error
    except (OSError, RuntimeError, ValueError) as error:  # RuntimeError: links in a circle
        raise UserError(f"{path}: {(getattr(error, 'strerror', None) or str(error)).lower()}") from error
    return real


def open_file(path: str, root: Path) -> Opened:
    """The file that a path of a patch names. Raises UserError unless it is a text inside the project, of usual size."""
    real = inside(path, root)
    limit = MAX_FILE_BYTES if is_notebook(real) else MAX_BYTES
    try:
        data = read_bytes(real, limit)
        return Opened(path, real, data, *decode_source(data))
    except TooLarge as error:
        raise UserError(f"{path}: larger than {limit >> 20} MiB") from error
    except OSError as error:
        raise UserError(f"{path}: {refusal(error)}") from error
    except Unreadable as error:
        raise UserError(f"{path}: {error}") from error


def require_unchanged(file: Opened, before: str, command: str) -> None:
    """Raises UserError unless the file is the one that the command read."""
    if file.digest != before:
        raise UserError(
            f"{file.path}: changed since it was read (SHA-256 {before[:12]} then, {file.digest[:12]} now): "
            f"run `perfaudit {command}` again"
        )


def refuse(reasons: list[str]) -> None:
    """Raises UserError with all the reasons, if there are any."""
    if reasons:
        raise UserError("; ".join([*reasons, "nothing was written"]))


def named_twice(paths: Iterable[str], root: Path) -> list[str]:
    """Why a patch cannot be taken that names one file in two ways, such as through a link; empty where none does."""
    seen: dict[tuple[int, int], str] = {}
    reasons = []
    for path in paths:
        with contextlib.suppress(UserError, OSError):  # what is wrong with a path is said where it is opened
            status = inside(path, root).stat()
            file = (status.st_dev, status.st_ino)
            if file in seen:
                reasons.append(f"{path}: has two patches, the other as {seen[file]}")
            seen[file] = path
    return reasons


def sweep_beside(paths: Iterable[str], root: Path) -> list[str]:
    """Delete what killed processes left beside files of a project; sentences on what was kept of it."""
    folders: dict[Path, None] = {}
    for path in paths:
        with contextlib.suppress(UserError):  # what is wrong with a path is said where it is opened
            folders[inside(path, root).parent] = None
    return [line for folder in folders for line in sweep(folder)]


def write_all(files: Sequence[Planned]) -> None:
    """Replace all the files, or none: where one cannot be, those before it are put back.

    Raises UserError when a file is no longer what was planned for or cannot be written.
    """
    kept: list[Kept] = []
    try:
        for item in files:
            if item.real.read_bytes() != item.before:
                raise UserError(f"{item.path}: changed while its patch was written; nothing was written")
            kept.append(keep(item.real))
            replace_source(item.real, item.after)
    except BaseException as error:
        lost = _put_back(kept)
        if not lost and not isinstance(error, OSError):
            raise
        why = reason(error) if isinstance(error, OSError) else str(error).lower()
        raise UserError("; ".join([f"{item.path}: not written: {why}", *(lost or ["nothing was written"])])) from error
    finally:
        for second in kept:
            forget(second)


def _put_back(kept: list[Kept]) -> list[str]:
    """Give the files what they held, and say of those for which that fails where it is; those are not kept any more."""
    lost = []
    for second in reversed(kept):
        try:
            put_back(second)
        except OSError:
            lost.append(f"{second.real} could not be put back: what it held is {second.path}")
            kept.remove(second)  # it holds what cannot be put back
    return lost
