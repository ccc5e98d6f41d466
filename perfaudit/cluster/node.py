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
class UserPlace:
    """Where a user stood when they typed the command. environment: variables that decide how torch computes, as they were."""

    folder: str
    environment: tuple[tuple[str, str], ...]

    @classmethod
    def here(cls) -> UserPlace:
        return cls(str(Path.cwd()), tuple(sorted(_deciding_variables().items())))


# Heads of their names. Schedulers set some for their workers; a training computes with what the user has set, as on this machine.
# Which devices there are is the scheduler's to say, and a path may lead to nothing there.
DECIDING = (
    "OMP_", "GOMP_", "KMP_", "MKL_", "OPENBLAS_", "NUMEXPR_", "DNNL_", "ONEDNN_", "ATEN_", "TORCH_", "PYTORCH_", "CUBLAS_",
    "CUDNN_", "NVIDIA_TF32_", "MALLOC_",
)  # fmt: skip
_PATHS = ("_HOME", "_DIR", "_PATH", "_FILE")  # ends of their names


def _deciding_variables() -> dict[str, str]:
    """The variables of this process that decide how torch computes, by name, without those that are empty."""
    return {
        name: value
        for name, value in os.environ.items()
        if name.startswith(DECIDING) and not name.endswith(_PATHS) and value
    }


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


def enter(place: UserPlace) -> str:
    """Go where the user stood, with their variables; why that cannot be, "" where it is done."""
    for name in _deciding_variables():
        del os.environ[name]
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
