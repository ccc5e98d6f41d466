"""A script's files kept away in this process: overlay mounts, or redirected writes that the kernel holds it to. Child only."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from perfaudit.script.after_import import after_import
from perfaudit.script.landlock import write_only_below
from perfaudit.script.overlay_mounts import Cover, NotKeptAway, keep_away
from perfaudit.script.redirected_writes import RedirectedWrites


def keep_files_away(
    scratch: Path, script: str, mounts: bool = True, shared: Sequence[Path] = ()
) -> Cover | RedirectedWrites:
    """From now on this process writes into `scratch`. What it gives knows the files that were written.

    script: its path or name; the folder it lies in is likely to be written to. mounts: by overlays where that can be. shared:
    folders that stay as they are. Raises NotKeptAway where neither way can be gone; this process is to end then.
    """
    found = cover_files(scratch, script, shared) if mounts else None
    if found is not None:
        return found
    view = RedirectedWrites(scratch, shared)
    redirect(view, scratch, shared)
    return view


def cover_files(scratch: Path, script: str, shared: Sequence[Path] = ()) -> Cover | None:
    """Overlays on all folders in which files may be written, None where none can be mounted.

    Raises NotKeptAway where one of them stays bare: the script would write the user's own files there.
    """
    folders = [Path.cwd(), Path.home(), Path(script).parent]
    try:
        cover = keep_away(scratch, [each for each in folders if each.is_dir()], shared)
    except OSError:  # of which NotKeptAway is one
        return None
    if cover.bare:
        raise NotKeptAway(f"no overlay can be mounted on {', '.join(cover.bare)}")
    return cover


def redirect(view: RedirectedWrites, scratch: Path, shared: Sequence[Path] = ()) -> None:
    """Redirect this process's writes, and have the kernel refuse what is not redirected. Raises NotKeptAway where it cannot."""
    temporary = scratch / "tmp"
    temporary.mkdir()
    os.environ["TMPDIR"] = str(temporary)
    if not write_only_below([str(scratch), *map(str, shared), "/dev", "/proc"]):
        raise NotKeptAway("no overlay can be mounted, and the kernel has no Landlock")
    view.install()
    after_import("torch", view.install_for_torch)
    after_import("safetensors.torch", view.install_for_safetensors)
