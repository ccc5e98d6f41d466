"""The user's own folders of perfaudit, outside of every project: settings with the secret, and what scans may look up.

`$XDG_CONFIG_HOME/perfaudit` (default `~/.config/perfaudit`) and `$XDG_CACHE_HOME/perfaudit` (default `~/.cache/perfaudit`), as
https://specifications.freedesktop.org/basedir-spec has them. Nobody but the user may look into them.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from perfaudit.files import Folder, make_folders, reason

NAME = "perfaudit"
SECRET = "secret"
SECRET_BYTES = 32
_PRIVATE = 0o700


class NoUserFolder(Exception):
    """The user has no such folder and none can be made; the message says why."""


def config_folder() -> Folder:
    """Where the user's own settings lie, made if need be; close it. Raises NoUserFolder."""
    return _folder("XDG_CONFIG_HOME", ".config")


def cache_folder() -> Folder:
    """Where what can be made again lies, made if need be; close it. Raises NoUserFolder."""
    return _folder("XDG_CACHE_HOME", ".cache")


def secret() -> bytes:
    """SECRET_BYTES random bytes that only this user has, made on the first call. Raises NoUserFolder."""
    with config_folder() as folder:
        try:
            if (known := _secret_in(folder)) is None:
                import secrets  # once in the life of an account

                made = secrets.token_bytes(SECRET_BYTES)
                with contextlib.suppress(FileExistsError):  # another first run was faster: its secret is the one
                    folder.create(SECRET, made, 0o600)
                known = _secret_in(folder)
            if known is None:  # damaged, or open to others: what was made with it is worth nothing
                folder.write(SECRET, made, 0o600)
                known = _secret_in(folder)
        except OSError as error:
            raise NoUserFolder(f"{folder.path / SECRET}: {reason(error)}") from error
    if known is None:
        raise NoUserFolder(f"{folder.path / SECRET}: cannot be kept")
    return known


def _secret_in(folder: Folder) -> bytes | None:
    try:
        found = folder.read(SECRET, private=True)
    except OSError:
        return None
    return found if len(found) == SECRET_BYTES else None


def _folder(variable: str, usual: str) -> Folder:
    base = _base(variable, usual)
    try:
        folder = Folder.open_at(base, NAME, make=True, mode=_PRIVATE)
        folder.close_to_others()
    except OSError as error:
        raise NoUserFolder(f"{base / NAME}: {reason(error)}") from error
    return folder


def _base(variable: str, usual: str) -> Path:
    """The folder that an environment variable names, else the usual one in the user's home."""
    named = os.environ.get(variable, "")
    if not os.path.isabs(named):  # noqa: PTH117  # the specification: a relative path is to be ignored
        home = Path(os.path.expanduser("~"))  # noqa: PTH111  # without a home: as it is
        if not home.is_absolute() or not home.is_dir():
            raise NoUserFolder("there is no home directory")
        named = str(home / usual)
    try:
        make_folders(Path(named))
    except OSError as error:
        raise NoUserFolder(f"{named}: {reason(error)}") from error
    return Path(named)
