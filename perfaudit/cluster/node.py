"""What runs on a node: enters the user's folder, does work, and answers with what that gave or why it could not."""

from __future__ import annotations

import io
import os
import shutil
import tarfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from perfaudit.errors import NothingMeasured, UserError
from perfaudit.measure.elsewhere import Work


@dataclass(frozen=True, slots=True)
class Place:
    """Where a user stood when they typed the command. environment: variables that decide how torch computes, as they were."""

    folder: str
    environment: tuple[tuple[str, str], ...]

    @classmethod
    def here(cls) -> Place:
        return cls(str(Path.cwd()), tuple((name, value) for name in OWN_VARIABLES if (value := os.environ.get(name))))


# Schedulers set them for their workers; a training computes with what the user has set, as on this machine.
OWN_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS")


@dataclass(frozen=True, slots=True)
class Answer:
    """What work gave, or why it could not: an error of the user's, which crosses machines as its class and words."""

    given: Any = None
    error: UserError | None = None

    def value(self) -> Any:
        """What it gave. Raises its error."""
        if self.error is not None:
            raise self.error
        return self.given


def enter(place: Place) -> str:
    """Go where the user stood, with their variables; why that cannot be, "" where it is done."""
    for name in OWN_VARIABLES:
        os.environ.pop(name, None)
    os.environ.update(place.environment)
    try:
        os.chdir(place.folder)
    except OSError:
        return f"{place.folder} is not there on every node: run the command in a folder that all nodes share"
    return ""


def answer(work: Work, trouble: str = "") -> Answer:
    """What work gives here. trouble: why nothing can be done here."""
    if trouble:
        return Answer(error=NothingMeasured(trouble))
    try:
        return Answer(work())
    except UserError as error:
        return Answer(error=error)


def is_there(folder: str) -> bool:
    return Path(folder).is_dir()


def unpack(folder: str, data: bytes) -> None:
    """Make a folder of what `folder_archive.pack` made of it. Raises NothingMeasured."""
    try:
        Path(folder).mkdir(parents=True, mode=0o700)
        with tarfile.open(fileobj=io.BytesIO(data)) as archive:
            archive.extractall(folder, filter=_as_packed)
    except (OSError, tarfile.TarError) as error:
        raise NothingMeasured(f"the reference cannot be written on a node: {error}") from error


def _as_packed(member: tarfile.TarInfo, folder: str) -> tarfile.TarInfo | None:
    """Links of a checkout lead where they led: into the user's own folder, where `--link` has put them."""
    return member if member.issym() else tarfile.data_filter(member, folder)


def remove(folder: str) -> None:
    """Remove what `unpack` made."""
    shutil.rmtree(folder, ignore_errors=True)
