"""The process in which a script runs: its files are kept away, its steps watched, and what is seen told over a pipe. Child only.

Two processes: one holds the mounts, if there are any, and says afterwards which files were kept away; the other is the script's.
Nothing heavy is imported before the script runs.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import resource
import signal
import sys
import time
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from perfaudit.processes import descendants
from perfaudit.script import as_main
from perfaudit.script.kept_away import cover_files, redirect
from perfaudit.script.overlay_mounts import Cover, NotKeptAway
from perfaudit.script.redirected_writes import RedirectedWrites
from perfaudit.script.watch import Watch

Json = dict[str, Any]  # Any: nested JSON
TELL_SECONDS = 0.25  # between two writes to the pipe, so that a fast step pays for few of them
TOLD_AT_ONCE = 20  # of the first updates, each by itself: a script that hangs soon is known to have trained
SIGN_SECONDS = 1.0  # between two signs of a script without an update
FEWEST = 4  # steps, for which a slow script is given more time: the first is not counted
OURS = str(Path(__file__).resolve().parents[1]) + os.sep
_SET_DEATH_SIGNAL, _SET_CHILD_SUBREAPER = 1, 36  # of <sys/prctl.h>
MOST_FILES = 1000  # that are named; a script may write one a sample


def begin(request: str) -> None:
    """Do what a request says: see `request.Request.to_json`. Does not return."""
    order: Json = json.loads(request)
    pipe = _Pipe(order["pipe"])
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


def _keep_away(order: Json, pipe: _Pipe) -> Cover | RedirectedWrites:
    """What takes the files that the script writes: overlays for this process and all it starts, or Python's own functions."""
    scratch = Path(order["scratch"])
    with _refused_by(pipe):
        cover = cover_files(scratch, order["name"]) if order["mounts"] else None
    return cover or RedirectedWrites(scratch)


@contextlib.contextmanager
def _refused_by(pipe: _Pipe) -> Iterator[None]:
    """Inside, what says that files cannot be kept away is told, and ends this process: nothing runs."""
    try:
        yield
    except NotKeptAway as why:
        pipe.tell({"refused": str(why)})
        os._exit(0)


class _Pipe:
    """Lines of JSON to whoever started this process; from the process that owns it alone, not from those that it forks."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        os.set_inheritable(descriptor, False)

    def tell(self, line: Json) -> None:
        data = json.dumps(line).encode() + b"\n"
        with contextlib.suppress(OSError):  # nobody listens any more
            while data:
                data = data[os.write(self._descriptor, data) :]


def _wait(pid: int, pipe: _Pipe, kept: Cover | RedirectedWrites | None) -> None:
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


class _Teller:
    """What is told of a script while it trains, and the end of it when enough was seen."""

    def __init__(self, order: Json, pipe: _Pipe) -> None:
        self._pipe = pipe
        self._pid = os.getpid()
        self._steps, self._seconds = order["steps"], order["seconds"]
        self._records: list[Json] = []
        self._told = time.monotonic()
        self._first: float | None = None
        self._counts: dict[int, int] = {}  # updates by optimizer
        self.watch = Watch(self.keep, on_sign=self.sign)

    def keep(self, record: Json) -> None:
        """Keep the record of an update, and end the script where enough was seen."""
        if os.getpid() != self._pid:  # a process that the script forked
            return
        now = time.monotonic()
        self._first = self._first if self._first is not None else now
        self._counts[record["optimizer"]] = self._counts.get(record["optimizer"], 0) + 1
        self._records.append(record)
        if now - self._told > TELL_SECONDS or self.watch.updates <= TOLD_AT_ONCE:
            self.tell()
        if self._is_enough(now):
            self.end("enough")
            sys.stdout.flush()
            os._exit(0)  # no `finally` of the script's runs, which would save what it has

    def sign(self) -> None:
        """Tell now and then that the script trains, though no update has ended a step."""
        now = time.monotonic()
        if now - self._told > SIGN_SECONDS and os.getpid() == self._pid:
            self._told = now
            self._pipe.tell({"batches": self.watch.batches, "backwards": self.watch.backwards})

    def _is_enough(self, now: float) -> bool:
        """Whether steps or time are up. Of several optimizers, the one that is stepped least often counts the steps."""
        steps = min(self._counts.values())
        if self._steps and steps >= self._steps:
            return True
        began = self._first if self._first is not None else now
        return bool(self._seconds) and now - began >= self._seconds and steps >= FEWEST

    def tell(self) -> None:
        """Tell the records since the last time."""
        if self._records:
            self._pipe.tell({"updates": self._records})
            self._records = []
        self._told = time.monotonic()

    def end(self, how: str, message: str = "", code: int = 0) -> None:
        """Tell what is left, and facts of the whole run."""
        if os.getpid() != self._pid:
            return
        self.tell()
        facts: Json = {}
        with contextlib.suppress(Exception):  # facts of torch's private parts; a run counts without them
            facts = _facts(self.watch)
        self._pipe.tell({"ended": how, "message": message, "code": code, "facts": facts})


def _run(order: Json, pipe: _Pipe) -> None:
    """Run the script to its end, or to that of what is wanted of it."""
    teller, folder = _Teller(order, pipe), Path.cwd()
    run = as_main.run_module if order["is_module"] else as_main.run_file
    code, message, how = 0, "", "finished"
    try:
        teller.watch.wait_for_torch()
        run(order["name"], order["arguments"])
    except SystemExit as leaving:
        code, said = as_main.exit_code(leaving)
        if said:
            print(said, file=sys.stderr)
        if code:
            how, message = "failed", said or f"it left with code {code}"
    except BaseException as error:
        code, how = 130 if isinstance(error, KeyboardInterrupt) else 1, "failed"
        message = _describe(error, folder)
        _print_traceback(error)
    teller.end(how, message, code)
    with contextlib.suppress(Exception):
        sys.stdout.flush()
    sys.exit(code)


def _shown(file: str, folder: Path) -> str:
    """A file as seen from the folder of the command, as it is where it lies outside."""
    return str(Path(file).relative_to(folder)) if Path(file).is_relative_to(folder) else file


def _describe(error: BaseException, folder: Path) -> str:
    """An error in one line, with the innermost line of the script's own code. folder: of the command."""
    text = " ".join(str(error).split())[:300]
    place = ""
    for frame in traceback.extract_tb(error.__traceback__):
        if _is_own(os.path.abspath(frame.filename)):  # noqa: PTH100
            place = f" ({_shown(frame.filename, folder)}:{frame.lineno} in {frame.name})"
    if isinstance(error, SyntaxError) and error.filename:
        text, place = error.msg or text, f" ({_shown(error.filename, folder)}:{error.lineno})"
    return f"{type(error).__name__}: {text}{place}" if text else f"{type(error).__name__}{place}"


def _print_traceback(error: BaseException) -> None:
    """The traceback as Python prints it for the script alone, without the frames of ours around it."""
    shown = error.__traceback__
    while shown is not None and shown.tb_frame.f_code.co_filename.startswith((OURS, "<frozen runpy>", "<string>")):
        shown = shown.tb_next
    traceback.print_exception(type(error), error, shown)


def _facts(watch: Watch) -> Json:
    """What the training consists of, as far as it was seen."""
    from perfaudit.target.accelerator import accelerator_of, device_in_use

    facts: Json = {
        "first_batch_at": watch.first_batch_at,
        "optimizers": [type(each).__name__ for each in watch.optimizers],
        "peak_memory_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        * (1 if sys.platform == "darwin" else 1024),
        "device": "cpu",
        "files": _own_files(),
    }
    if "torch" in sys.modules and (device := device_in_use()):
        peak = accelerator_of(sys.modules["torch"].device(device)).peak_bytes()
        facts |= {"device": device, "peak_memory_bytes": peak}
    return facts


def _own_files() -> list[str]:
    """The files of the script's project that were imported: those that no library is installed in."""
    files = {str(getattr(module, "__file__", None) or "") for module in list(sys.modules.values())}
    found = {os.path.abspath(name) for name in files if name.endswith(".py") and Path(name).is_file()}  # noqa: PTH100  # ".." goes
    return sorted(name for name in found if _is_own(name))


def _is_own(file: str) -> bool:
    """Whether a file is neither Python's, nor an installed library's, nor ours."""
    return not file.startswith((OURS, sys.prefix + os.sep, sys.base_prefix + os.sep, "<")) and not any(
        part in file for part in ("site-packages", "dist-packages")
    )
