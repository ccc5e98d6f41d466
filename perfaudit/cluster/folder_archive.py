"""A folder of this machine as one archive, for nodes that do not see it."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

from perfaudit.errors import NothingMeasured

MOST_BYTES = 512 << 20  # of an archive; it is held in memory here and on each node


def pack(folder: Path) -> bytes:
    """The files of a checkout, without git's own. Raises NothingMeasured where they are too large."""
    held = io.BytesIO()
    with tarfile.open(fileobj=held, mode="w") as archive:
        for path in sorted(folder.iterdir()):
            if path.name != ".git":
                archive.add(path, path.name)
            if held.tell() > MOST_BYTES:
                raise NothingMeasured(
                    f"the reference takes more than {MOST_BYTES >> 20} MiB, and the nodes do not see {folder}: "
                    "set TMPDIR to a folder that all nodes share"
                )
    return held.getvalue()
