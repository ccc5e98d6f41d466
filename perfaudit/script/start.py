"""The process in which a script runs: its files are kept away, its steps watched, and what is seen told over a pipe. Child only.

Two processes: one holds the mounts, if there are any, and says afterwards which files were kept away; the other is the script's.
Nothing heavy is imported before the script runs.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import json
import os
import re
import signal
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from perfaudit.errors import is_at_breakpoint, words_of
from perfaudit.processes import descendants
from perfaudit.script import as_main
from perfaudit.script.after_import import after_import
from perfaudit.script.in_started import refuse_call, watch_in_started
from perfaudit.script.kept_away import cover_files, redirect
from perfaudit.script.missing_module import where_to_find
from perfaudit.script.overlay_mounts import Cover, NotKeptAway
from perfaudit.script.own_files import OURS, is_own
from perfaudit.script.pipe import Pipe
from perfaudit.script.redirected_writes import RedirectedWrites
from perfaudit.script.stands import begin_telling
from perfaudit.script.started_processes import watch_replaced, watch_started
from perfaudit.script.teller import Teller
from perfaudit.script.trackers import overrule_arguments
from perfaudit.script.watched_process import WatchedProcess
from perfaudit.target.overlay import install
from perfaudit.target.random_streams import seed_all

Json = dict[str, Any]  # Any: nested JSON
_SET_DEATH_SIGNAL, _SET_CHILD_SUBREAPER = 1, 36  # of <sys/prctl.h>
_COLOUR = re.compile("\x1b\\[[0-9;]*m")  # that an error's text is written in, as some of torch's are
_IN_WORKER, _FRAME = "Original Traceback", re.compile(r'File "([^"\n]+)", line (\d+), in (\S+)')
MOST_FILES = 1000  # that are named; a script may write one a sample


def begin(request: str) -> None:
    """Do what a request says: see `request.Request.to_json`. Does not return."""
    order: Json = json.loads(request)
    pipe = Pipe(order["pipe"])
    _adopt_orphans()
    kept: Cover | RedirectedWrites | None = None
    if order["scratch"]:
        kept = _keep_away(order, pipe)
    pid = os.fork()
    if pid:
        _wait(pid, pipe, kept)
    if isinstance(kept, RedirectedWrites):
        with _refused_by(pipe):
            redirect(kept, Path(order["scratch"]))
    _run(order, pipe)


def _keep_away(order: Json, pipe: Pipe) -> Cover | RedirectedWrites:
    """What takes the files that the script writes: overlays for this process and all it starts, or Python's own functions."""
    scratch = Path(order["scratch"])
    with _refused_by(pipe):
        cover = cover_files(scratch, order["name"]) if order["mounts"] else None
    return cover or RedirectedWrites(scratch)


@contextlib.contextmanager
def _refused_by(pipe: Pipe) -> Iterator[None]:
    """Inside, what says that files cannot be kept away is told, and ends this process: nothing runs."""
    try:
        yield
    except NotKeptAway as why:
        pipe.tell({"refused": str(why)})
        os._exit(0)


def _wait(pid: int, pipe: Pipe, kept: Cover | RedirectedWrites | None) -> None:
    """Wait for the script, tell what was kept away, and leave as it left."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda number, _: _end_orphans())
    status = 0
    while True:
        try:
            _, status = os.waitpid(pid, 0)
            break
        except InterruptedError:
            continue
    code = os.waitstatus_to_exitcode(status)
    _end_orphans()
    with contextlib.suppress(ChildProcessError):
        while True:
            os.waitpid(-1, 0)
    if kept is not None:
        here = str(Path.cwd())  # the project's own files first, then caches and the like
        files = sorted(kept.written_files(), key=lambda file: (not file.startswith(here), file))
        pipe.tell({"redirected": files[:MOST_FILES], "redirected_more": max(0, len(files) - MOST_FILES)})
    pipe.tell({"left": code})
    os._exit(0)


def _adopt_orphans() -> None:
    """Become the parent of what the script's processes leave behind, and be told when the command ends. Linux."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        ctypes.CDLL(None).prctl(_SET_DEATH_SIGNAL, signal.SIGTERM, 0, 0, 0)


def _end_orphans() -> None:
    """Kill the script if it runs, and whatever it has left running."""
    for pid in descendants(os.getpid()):
        with contextlib.suppress(OSError):
            os.kill(pid, signal.SIGKILL)


def _run(order: Json, pipe: Pipe) -> None:
    """Run the script to its end, or to that of what is wanted of it."""
    turn, folder = WatchedProcess(), Path.cwd()
    begin_telling(order["stands"])
    pipe.tell({"pid": os.getpid()})
    teller = Teller(order, pipe, turn)
    if order["texts"]:
        install(order["texts"])
    code, message, how = 0, "", "finished"
    try:
        watch_started(teller.note_started)
        watch_replaced(lambda program: pipe.tell({"replaced": program}))
        watch_in_started(order, pipe, turn)
        teller.watch.wait_for_torch()
        if order["scratch"]:
            overrule_arguments(Path(order["scratch"]), functools.partial(refuse_call, teller, pipe))
        if order["seed"] is not None:
            after_import("torch", functools.partial(seed_all, order["seed"]))
        as_main.before_leaving_at_once(lambda code: _tell_left_at_once(teller, code))
        _run_as_main(order)
    except SystemExit as leaving:
        code, said = as_main.exit_code(leaving)
        if said:
            print(said, file=sys.stderr)
        if code:
            how, message = "failed", said or f"it left with code {code}"
    except BaseException as error:
        code, how = 130 if isinstance(error, KeyboardInterrupt) else 1, "failed"
        message = _describe(error, folder) + _hint(error, order)
        if order["is_module"] and as_main.is_missing_module(error):
            how = "missing"
        elif not is_at_breakpoint(error):
            _print_traceback(error)
    with contextlib.suppress(Exception):
        sys.stdout.flush()  # first: who is told of the end reads no longer
    teller.end(how, message, code)
    sys.exit(code)


def _run_as_main(order: Json) -> None:
    """Run the script, or the module, with the texts that are asked for."""
    if order["is_module"]:
        as_main.run_module(order["name"], order["arguments"])
        return
    path = os.path.realpath(order["name"])
    text = next((text for file, text in order["texts"].items() if os.path.realpath(file) == path), None)
    absolute = str(Path(order["name"]).absolute())
    code = compile(text, absolute, "exec", dont_inherit=True) if text is not None else None
    as_main.run_file(order["name"], order["arguments"], code=code)


def _tell_left_at_once(teller: Teller, code: int) -> None:
    """Tell what is left to tell of a script that calls `os._exit`, unless it was we who ended it."""
    if not teller.has_ended:
        how, message = (
            ("failed", f"its process ended at once with code {code}, by os._exit") if code else ("finished", "")
        )
        teller.end(how, message, code)


def _relative_name(file: str, folder: Path) -> str:
    """A file as seen from the folder of the command, as it is where it lies outside."""
    return str(Path(file).relative_to(folder)) if Path(file).is_relative_to(folder) else file


def _describe(error: BaseException, folder: Path) -> str:
    """An error in one line, with the innermost line of the script's own code. folder: of the command."""
    words, place = words_of(error), ""
    frames = [(each.filename, each.lineno, each.name) for each in traceback.extract_tb(error.__traceback__)]
    if _IN_WORKER in words:  # the error of a loader's worker, with its traceback as a text
        frames += [(file, int(line), name) for file, line, name in _FRAME.findall(words)]
        words = f"in a loader worker: {words.strip().splitlines()[-1].removeprefix(f'{type(error).__name__}: ')}"
    if is_at_breakpoint(error):
        return words
    text = " ".join(_COLOUR.sub("", words).split())[:300]
    for file, line, name in frames:
        is_file = not file.startswith("<")  # as "<string>" of what was compiled from a text
        if is_file and is_own(os.path.abspath(file)):  # noqa: PTH100
            place = f" ({_relative_name(file, folder)}:{line} in {name})"
    if isinstance(error, SyntaxError) and error.filename:
        text, place = error.msg or text, f" ({_relative_name(error.filename, folder)}:{error.lineno})"
    return f"{type(error).__name__}: {text}{place}" if text else f"{type(error).__name__}{place}"


def _hint(error: BaseException, order: Json) -> str:
    """What to do about an error that comes of how, or where, the script is run; "" of all others."""
    from perfaudit.target.load import as_module, missing_for

    if missing := missing_for(error):
        return f": {missing}"
    if not order["is_module"] and (name := as_module(error, order["name"])):
        return f". It imports from its package: try `perfaudit run -m {name}`"
    return "" if order["is_module"] and as_main.is_missing_module(error) else where_to_find(error)


def _print_traceback(error: BaseException) -> None:
    """The traceback as Python prints it for the script alone, without the frames of ours around it."""
    shown = error.__traceback__
    while shown is not None and shown.tb_frame.f_code.co_filename.startswith((OURS, "<frozen runpy>", "<string>")):
        shown = shown.tb_next
    traceback.print_exception(type(error), error, shown)
