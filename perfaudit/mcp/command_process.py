"""A command in a process of its own, and the JSON that it prints. Knows no SDK."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

from perfaudit.errors import UserError, last_words

TELL_SECONDS = 5.0  # between two signs that a command is still at work: clients give up on a silent tool
END_SECONDS = 10.0  # for a command that was interrupted to end what it has started
_START = "import sys; sys.path.append(sys.argv.pop(1)); from perfaudit.cli import main; main()"


async def json_of(command: Sequence[str], root: Path, tell: Callable[[float], Awaitable[None]]) -> Any:  # Any: any JSON
    """What a command prints with `--format json`, run in `root`. tell: awaited now and then with the seconds so far.

    Raises UserError with what it says where it prints none. Cancelled, it ends the command with all that this has started.
    """
    at = list(command).index("--") if "--" in command else len(command)
    typed = [*command[:at], "--format", "json", *command[at:]]
    package = str(Path(__file__).resolve().parents[2])
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-c", _START, package, *typed),  # -P: nothing of the folder stands in for a module
        cwd=root,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        start_new_session=True,
        env={**os.environ, "NO_COLOR": "1"},
    )
    talk = asyncio.ensure_future(process.communicate())
    began = asyncio.get_running_loop().time()
    try:
        while not talk.done():
            await asyncio.wait([talk], timeout=TELL_SECONDS)
            if not talk.done():
                await tell(asyncio.get_running_loop().time() - began)
    finally:
        if process.returncode is None and not talk.done():
            await _end(process, talk)
    printed, said = talk.result()
    try:
        return json.loads(printed)
    except ValueError:
        words = last_words(said.decode(errors="replace"))
        raise UserError(
            words or f"perfaudit {command[0]} ended with code {process.returncode} and said nothing"
        ) from None


async def _end(process: asyncio.subprocess.Process, talk: asyncio.Future[Any]) -> None:
    """As Ctrl-C ends it, so that it ends its own children; by force after a while."""
    with contextlib.suppress(ProcessLookupError):
        process.send_signal(signal.SIGINT)
    done, _ = await asyncio.wait([talk], timeout=END_SECONDS)
    if not done:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        await asyncio.wait([talk])
