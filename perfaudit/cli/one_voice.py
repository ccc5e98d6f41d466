"""An error that the ranks of a node share is said by the first of them; one that a rank has by itself, by that rank.

A wrong file name is wrong on each rank, and would be printed as often as there are ranks. They tell each other by a file, as in
`distributed.meeting`, in a folder of their own, because such an error may come before they meet.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from perfaudit.distributed.launch import RankPlace, key_on_node
from perfaudit.distributed.meeting import PREFIX
from perfaudit.files import Folder
from perfaudit.script.scratch_folders import remove_scratch

HEAR_SECONDS = (
    5.0  # for the first rank to say it: ranks start together, and importing torch takes a loaded machine seconds
)
LINGER_SECONDS = 2.0  # for the others to hear the first one, which then deletes what it has said
PAUSE = 0.05  # seconds between two looks
_SAID = "said"
_LENGTH = 8  # hexadecimal digits, as in the name of a meeting's folder

Json = dict[str, Any]  # Any: nested JSON


@contextlib.contextmanager
def speaking(
    place: RankPlace,
    words: str,
    base: Path,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> Iterator[bool]:
    """Whether this rank is the one that says these words, inside; True where ranks cannot tell each other.

    base: a folder that the ranks of this node see.
    """
    if place.local_ranks < 2:
        yield True
        return
    try:
        name = hashlib.sha256(f"{_SAID} {key_on_node(place)}".encode()).hexdigest()[:_LENGTH]
        folder = Folder.open_at(base, PREFIX + name, make=True, mode=0o700)
    except OSError:
        yield True
        return
    told = {"words": words}
    with folder:
        if place.local_rank:
            yield not _is_said(folder, told, clock, sleep)
            with contextlib.suppress(OSError):
                folder.write(f"{place.local_rank}.heard", b"", 0o600, sync=False)
            return
        with contextlib.suppress(OSError):
            for each in folder.names():  # of an earlier start
                folder.remove(each)
            folder.write(_SAID, json.dumps(told).encode(), 0o600, sync=False)
        yield True
        _wait_for_others(folder, place, clock, sleep)


def _is_said(folder: Folder, told: Json, clock: Callable[[], float], sleep: Callable[[float], None]) -> bool:
    """Whether the first rank of this start says the same, waited for."""
    until = clock() + HEAR_SECONDS
    while clock() < until:
        with contextlib.suppress(OSError, ValueError):
            return bool(json.loads(folder.read(_SAID)) == told)
        sleep(PAUSE)
    return False


def _wait_for_others(
    folder: Folder, place: RankPlace, clock: Callable[[], float], sleep: Callable[[float], None]
) -> None:
    """Wait until all have heard it, and delete the folder."""
    until = clock() + LINGER_SECONDS
    with contextlib.suppress(OSError):
        while len(folder.names()) < place.local_ranks and clock() < until:
            sleep(PAUSE)
        remove_scratch(folder.path)
