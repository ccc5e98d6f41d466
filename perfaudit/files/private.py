"""Folders outside of every project, into which only this user may look."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path


def make_folders(path: Path) -> None:
    """Make a folder outside of every project, with those above it, for this user alone; one that is there stays as it is."""
    path.mkdir(0o700, parents=True, exist_ok=True)


@contextlib.contextmanager
def private_copy(data: bytes) -> Iterator[Path]:
    """A file with this content in a new folder that only this user may look into; gone in the end, with all beside it."""
    with private_folder() as folder:
        path = folder / "copy"
        path.write_bytes(data)
        yield path


@contextlib.contextmanager
def private_folder() -> Iterator[Path]:
    """A new folder for what is temporary, which only this user may look into; gone in the end."""
    import tempfile  # what keeps a scan's results needs this module, and no such folder

    with tempfile.TemporaryDirectory(prefix="perfaudit-", ignore_cleanup_errors=True) as folder:
        yield Path(folder)
