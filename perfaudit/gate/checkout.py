"""The reference's files beside the user's own: where a path of the one lies in the other."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path, PurePath


@dataclass(frozen=True, slots=True)
class Checkout:
    """Another checkout of the user's repository. All three are absolute, with their links resolved.

    root: its top folder. head_root: the top of the user's own checkout. working: the folder in `head_root` that the gate
    runs in, which relative paths are relative to.
    """

    root: Path
    head_root: Path
    working: Path

    @property
    def folder(self) -> Path:
        """The counterpart of the working directory, which does not exist where the commit is older than it."""
        return self.root / self.working.relative_to(self.head_root)

    @property
    def roots(self) -> tuple[str, str]:
        """The top of the user's own checkout and of this one, as a child is told them: see `target.relocate`."""
        return str(self.head_root), str(self.root)

    def to_there(self, path: str | Path) -> Path | None:
        """The same file or folder below `root`, whether or not it exists; None for one outside `head_root`.

        Links on the way to it are followed as they are here. A link as the last part is itself, not what it leads to.
        """
        plain = Path(os.path.normpath(self.working / path))
        place = Path(os.path.realpath(plain.parent), plain.name)
        return self.root / place.relative_to(self.head_root) if place.is_relative_to(self.head_root) else None

    def from_working(self, path: Path) -> str:
        """How a path is written from the working directory: "train.py", "../lib/model.py"."""
        return PurePath(os.path.relpath(path, self.working)).as_posix()

    def to_here(self, path: Path) -> Path:
        """The same file or folder in the user's own checkout, whether or not it exists. No link is followed, because one
        there may lead out of `root`.

        path: absolute, below `root`. Raises ValueError for one outside.
        """
        return self.head_root / path.relative_to(self.root)
