"""The gate of a session: run once, in a process of its own, and kept for all tests and workers."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pytest

from perfaudit.errors import FOUND, INTERRUPTED, NOTHING_MEASURED, OK, last_words
from perfaudit.files import Folder
from perfaudit.pytest_plugin.gate_request import Project

_PATIENCE = (2.0, 15.0)  # seconds for the gate to end what it started and remove its worktree: told by others, by us


@dataclass(frozen=True, slots=True)
class Ran:
    """What a gate's process left behind."""

    code: int
    out: str
    err: str


class NotJudged(Exception):
    """The gate gave no report; the message has its own words."""


def gate_command(
    project: Project, layers: Iterable[str], targets: Iterable[str], options: Iterable[str] = ()
) -> list[str]:
    """The command that judges these layers of these targets, with its report as JSON on stdout.

    -P: a module of the project must not stand in for one of the standard library.
    """
    reference = ["--against", project.against] if project.against else []
    if project.baseline:
        reference = ["--baseline", project.baseline]
    said = ["--layers", ",".join(layers), "--format", "json", *reference, *options]
    return [sys.executable, "-P", "-m", "perfaudit", "gate", *said, "--", *targets]


def run_gate(command: list[str], folder: Path) -> Ran:
    """Run it to its end. What ends the test ends the gate, which is given time to tidy up.

    A gate refuses to measure beside another one; those of several workers of pytest-xdist take turns.
    """
    with _alone(folder):
        process = subprocess.Popen(
            command, cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        try:
            out, err = process.communicate()
        except BaseException:  # Ctrl-C, or a plugin that ends tests that take long
            _end(process)
            raise
    return Ran(process.returncode, out, err)


@contextlib.contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Wait until no other process holds this folder. The lock is on the folder itself and leaves no file in it."""
    import fcntl

    handle = os.open(folder, os.O_RDONLY)
    try:
        with contextlib.suppress(OSError):  # a file system without locks
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)  # also when its holder dies


def _end(process: subprocess.Popen[str]) -> None:
    """End the gate, gently first: a terminal's Ctrl-C has reached it too, and a second signal would disturb its tidying."""
    for patience in _PATIENCE:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.communicate(timeout=patience)
            return
        process.terminate()
    process.kill()
    process.communicate()


def report_of(ran: Ran) -> dict[str, Any]:  # Any: nested JSON
    """The gate's report. Raises NotJudged with the gate's own words where it gave none."""
    said = "\n".join(last_words(ran.err).splitlines()[-12:]) or "it said nothing"
    if ran.code not in (OK, FOUND, NOTHING_MEASURED, INTERRUPTED):
        raise NotJudged(f"the gate ended with code {ran.code}: {said}")
    try:
        report = json.loads(ran.out)
    except ValueError:
        raise NotJudged(f"the gate gave no report and ended with code {ran.code}: {said}") from None
    if not isinstance(report, dict) or not isinstance(report.get("gate"), dict):
        raise NotJudged(f"the gate's report has no verdict, and it ended with code {ran.code}: {said}")
    return report


def session_gate(config: pytest.Config, make: Callable[[], Ran]) -> Ran:
    """What the gate of this session left behind; `make` runs it, for the first test that asks in the first worker."""
    if _ran not in config.stash:
        shared = getattr(config, "workerinput", {}).get("perfaudit_folder")
        config.stash[_ran] = once(Path(shared), make) if shared else make()
    return config.stash[_ran]


def once(folder: Path, make: Callable[[], Ran]) -> Ran:
    """What the first of several processes makes; the others wait for it."""
    kept = folder / "gate.json"
    with _alone(folder):
        if not kept.exists():
            data = json.dumps(asdict(make())).encode()
            with Folder.open_at(folder) as own:
                own.write(kept.name, data)
        return Ran(**json.loads(kept.read_text()))


def shared_folder(config: pytest.Config) -> str:
    """A folder that all workers of this session find; gone when the session ends."""
    if _shared not in config.stash:
        folder = tempfile.TemporaryDirectory(prefix="perfaudit-")
        config.add_cleanup(folder.cleanup)
        config.stash[_shared] = folder.name
    return config.stash[_shared]


_ran = pytest.StashKey[Ran]()
_shared = pytest.StashKey[str]()
