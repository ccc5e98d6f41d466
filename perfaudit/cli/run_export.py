"""What `perfaudit run --export` writes: the steps as a trace or as scalars, and the trace of the profile."""

from __future__ import annotations

import enum
import importlib.util
import json
from pathlib import Path
from typing import IO, TYPE_CHECKING

from perfaudit.cli.output import say
from perfaudit.errors import UserError
from perfaudit.files.own_outputs import PROFILE, SCALARS, TRACE

if TYPE_CHECKING:
    from perfaudit.script.observe import Seen

MOST_UPDATES = 20_000  # that are written, the first ones: a viewer of traces takes no more of them


class Export(enum.StrEnum):
    """What steps are written as."""

    chrome = "chrome"
    tensorboard = "tensorboard"


def check_export(export: Export | None) -> None:
    """Raise UserError where what would write it is not installed."""
    if export is Export.tensorboard and importlib.util.find_spec("tensorboard") is None:
        raise UserError(
            "--export tensorboard writes with the package tensorboard, which this Python lacks: pip install tensorboard"
        )


def write_steps(export: Export, seen: Seen, script: str, profile: IO[bytes]) -> None:
    """Write the steps that were kept, and the trace of a profile. profile: empty where there is none."""
    if seen.number > len(seen.kept):
        say(f"--export: the first {len(seen.kept)} of {seen.number} updates are written")
    if export is Export.tensorboard:
        _write_scalars(seen)
        return
    from perfaudit.script.export import chrome_trace
    from perfaudit.script.first_update import without_setup
    from perfaudit.script.summary import setup_of

    setup = sum(setup_of(seen).values())
    how = _write(Path(TRACE), json.dumps(chrome_trace(without_setup(seen.kept, seen.facts), script, setup)).encode())
    say(f"{TRACE}: {how}; chrome://tracing and ui.perfetto.dev open it")
    profile.seek(0)
    if data := profile.read():
        how = _write(Path(PROFILE), data)
        say(f"{PROFILE}: {how}, the trace of torch.profiler")


def _write_scalars(seen: Seen) -> None:
    from torch.utils.tensorboard import SummaryWriter

    from perfaudit.files import Folder, reason
    from perfaudit.files.private import private_folder
    from perfaudit.script.first_update import without_setup
    from perfaudit.script.scalars import scalars

    updates = without_setup(seen.kept, seen.facts)
    with private_folder() as made:
        writer = SummaryWriter(str(made))
        for tag, value, step, at in scalars(updates, seen.facts.get("optimizers", [])):
            writer.add_scalar(tag, value, step, walltime=seen.trained_at + at)
        writer.close()
        try:
            with Folder.open_at(Path.cwd(), SCALARS, make=True) as folder:
                for file in made.iterdir():
                    folder.write(file.name, file.read_bytes())
        except OSError as error:
            raise UserError(f"{SCALARS}: not written: {reason(error)}") from error
    say(f"{SCALARS}: written; `tensorboard --logdir {SCALARS}` shows it")


def _write(path: Path, data: bytes) -> str:
    """Write a file, and return in words whether there was one before."""
    from perfaudit.files import reason, replace_file

    how = "written anew, in the place of the file that was there" if path.exists() else "written"
    try:
        replace_file(path, data)
    except OSError as error:
        raise UserError(f"{path}: not written: {reason(error)}") from error
    return how
