"""Migrate a checkpoint: OLD and NEW looked at, the work done in a child, the result put in place without overwriting."""

from __future__ import annotations

import os
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from perfaudit.checkpoints import inside
from perfaudit.errors import TargetError, UserError
from perfaudit.files import create_file, destination, reason
from perfaudit.measure.attribute_names import name_of
from perfaudit.measure.child import Child, ChildFailed
from perfaudit.target.fresh_start import must_start_afresh
from perfaudit.target.names import Target

_SAFETENSORS_HEADER = 100 << 20  # bytes; the format allows no longer one


@dataclass(frozen=True, slots=True)
class Folded:
    """One layer whose bias is gone. folded: into the norm's running mean; else the norm keeps none and needs none."""

    layer: str
    norm: str
    norm_kind: str
    width: int
    folded: bool


@dataclass(frozen=True, slots=True)
class Optimizer:
    """One optimizer's state in the file: parameters that are gone, of how many, and who said which they are."""

    place: str
    parameters: int
    of: int
    with_state: int
    source: str


@dataclass(frozen=True, slots=True)
class Migration:
    """What was done. copies: places of the model in the file; gap: see `check.Agreement`; size: bytes written, 0 for none."""

    folds: tuple[Folded, ...]
    copies: tuple[str, ...]
    optimizers: tuple[Optimizer, ...]
    gap: float
    gap_without_folding: float
    mode: str
    size: int = 0


def migrate(
    old: Path, new: Path, target: Target, device: str = "cpu", timeout: float = 600.0, check_only: bool = False
) -> Migration:
    """Fold the checkpoint `old` for the target as its source is now, and write it to `new`, which must not exist.

    timeout: seconds for building the model, loading, folding and writing. check_only: do everything but write.
    Raises UserError for a file that is not understood or cannot be written, TargetError for faults of the user's code.
    """
    refuse_places(old, new)
    refuse_kinds(old)
    if check_only:
        return _migration(_ask_child(old, "", target, device, timeout))
    reply: dict[str, Any] = {}
    try:
        size = create_file(new, lambda name: reply.update(_ask_child(old, name, target, device, timeout)), like=old)
    except FileExistsError:
        raise UserError(f"{new} exists since a moment ago; nothing is overwritten") from None
    except OSError as error:
        raise UserError(f"{new}: not written: {reason(error)}") from error
    return _migration(reply, size)


def refuse_places(old: Path, new: Path) -> None:
    """Raise UserError unless OLD is a file and NEW is free, in a folder that is there."""
    if old.is_dir():
        raise UserError(
            f"{old} is a folder: sharded and distributed checkpoints are not migrated. Save one state dict to one file first "
            "(torch.distributed.checkpoint.format_utils.dcp_to_torch_save)"
        )
    if not old.is_file():
        raise UserError(f"{old}: no such file")
    if os.path.lexists(new):
        same = new.exists() and new.samefile(old)
        what = "is the old checkpoint itself" if same else "exists"
        raise UserError(f"{new} {what}; a migrated checkpoint goes to a new file, nothing is overwritten")
    if not new.absolute().parent.is_dir():
        raise UserError(f"{new}: no such folder: {new.absolute().parent}")
    try:
        destination(new)
    except OSError as error:
        raise UserError(f"{new}: cannot be written: {reason(error)}") from error


def refuse_kinds(old: Path) -> None:
    """Raise UserError for files of other formats, told by their first bytes or, in an archive, by what is in it."""
    try:
        with old.open("rb") as file:
            head = file.read(9)
            entries = zipfile.ZipFile(file).namelist() if head[:4] == b"PK\x03\x04" else []
    except (OSError, zipfile.BadZipFile) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise UserError(f"{old}: not readable: {why.lower()}") from error
    if not head:
        raise UserError(f"{old} is empty")
    length = int.from_bytes(head[:8], "little")
    if old.suffix == ".safetensors" or (head[8:] == b"{" and 2 <= length <= _SAFETENSORS_HEADER):
        raise UserError(f"{old} is a safetensors file; only what torch.save wrote is migrated")
    parts = {part for entry in entries for part in entry.split("/")[1:2]}
    if "constants.pkl" in parts and "code" in parts:
        raise UserError(f"{old} is a TorchScript archive: its code holds the biases; export it again from the model")
    if entries and "data.pkl" not in parts:
        raise UserError(f"{old} is a zip archive that torch.save did not write")


def _ask_child(old: Path, new: str, target: Target, device: str, timeout: float) -> dict[str, Any]:
    """The child's reply. Raises UserError for a refusal, TargetError for what the user's code does wrong."""
    command = {
        "do": "call",
        "function": name_of(inside.migrate),
        "doing": f"migrating {old.absolute()}",
        "arguments": {
            "target": {"file": target.file, "names": target.names},
            "device": device,
            "old": str(old.absolute()),
            "new": new,
        },
    }
    try:
        with Child(fresh=must_start_afresh(target.file)) as child:
            reply = child.ask(command, timeout)
    except ChildFailed as failure:
        advice = f"; give it longer with --timeout (now {timeout:.0f} s)" if failure.kind == "timeout" else ""
        raise TargetError(f"{old}: not migrated: {failure}{advice}") from failure
    if "refused" in reply:
        raise UserError(f"{old}: not migrated: {reply['refused']}")
    return reply


def _migration(reply: dict[str, Any], size: int = 0) -> Migration:
    agreement = reply["agreement"]
    return Migration(
        tuple(Folded(**each) for each in reply["folds"]),
        tuple(reply["copies"]),
        tuple(Optimizer(**each) for each in reply["optimizers"]),
        agreement["gap"],
        agreement["without"],
        agreement["mode"],
        size,
    )
