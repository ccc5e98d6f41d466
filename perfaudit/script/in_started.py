"""The watch goes along into processes that `multiprocessing` starts as new interpreters; forked ones have it. Child only."""

from __future__ import annotations

import contextlib
import functools
import os
import select
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NoReturn

from perfaudit.script.carried import carry
from perfaudit.script.pipe import Pipe
from perfaudit.script.teller import Teller
from perfaudit.script.trackers import overrule_arguments
from perfaudit.script.watch import Watch
from perfaudit.script.watched_process import WatchedProcess
from perfaudit.target.overlay import PACKAGE, Carried

Json = dict[str, Any]  # Any: nested JSON
_IMPORT = f"""
import sys
sys.path.append({PACKAGE!r})
import perfaudit.script.in_started
sys.path.remove({PACKAGE!r})
"""


def watch_in_started(order: Json, pipe: Pipe, turn: WatchedProcess) -> None:
    """From now on watch what this process starts by "spawn" or "forkserver" as it is watched itself."""
    _carry(_Carried(_watch, (order, os.getpid()), (pipe.descriptor, turn.token)))


def tell_first_update_in_started(line: Json, pipe: int, scratch: str = "") -> Callable[[], None]:
    """From now on what this process starts so tells this line when it first updates an optimizer.

    To be called when this process trains by itself: then they tell nothing any more. scratch: the folder that takes what trackers
    record, "" where nothing is kept away.
    """
    watched, ours = os.pipe()  # what lies in it says that this process trains; nobody takes it out
    _carry(_Carried(_tell_first_update, (line, scratch), (pipe, watched)))
    return lambda: _put_into(ours)


def refuse_call(teller: Teller, pipe: Pipe, why: str) -> NoReturn:
    """Tell what is left to tell and why the script cannot go on, and end its process before it does what cannot be kept away."""
    if threading.current_thread() is threading.main_thread():  # in which the script trains
        teller.end("refused", why)
    pipe.tell({"not_kept_away": why})
    os._exit(0)


def _watch(order: Json, pid: int, pipe: int, token: int) -> None:
    teller = Teller(order | {"trace": -1}, Pipe(pipe), WatchedProcess(token), pid)
    if order["scratch"]:
        overrule_arguments(Path(order["scratch"]), functools.partial(refuse_call, teller, Pipe(pipe)))
    teller.watch.wait_for_torch()


def _put_into(pipe: int) -> None:
    with contextlib.suppress(OSError):
        os.write(pipe, b"1")


def _tell_first_update(line: Json, scratch: str, pipe: int, others: int) -> None:
    told = Pipe(pipe)
    if scratch:
        overrule_arguments(Path(scratch), lambda why: _refuse_here(told, line, why))

    def update_ends(_: int) -> None:
        watch.take_records()  # which nobody wants
        if watch.counts.updates == 1 and not select.select([others], [], [], 0)[0]:
            told.tell(line)

    watch = Watch(update_ends)
    watch.wait_for_torch()


def _refuse_here(told: Pipe, line: Json, why: str) -> NoReturn:
    told.tell({**line, "message": why})
    os._exit(0)


def _carry(carried: _Carried) -> None:
    carry("watched by perfaudit", lambda: [Carried(_IMPORT), carried])


class _Carried:
    """A function of this module, called where this is unpickled, with these arguments and descriptors of ours."""

    def __init__(self, begin: Callable[..., None], arguments: tuple[Any, ...], descriptors: Sequence[int]) -> None:
        self._begin, self._arguments, self._descriptors = begin, arguments, descriptors

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        from multiprocessing.reduction import DupFd

        return _call, (self._begin, self._arguments, [DupFd(each) for each in self._descriptors])


def _call(begin: Callable[..., None], arguments: tuple[Any, ...], descriptors: Sequence[Any]) -> None:
    begin(*arguments, *[each.detach() for each in descriptors])
