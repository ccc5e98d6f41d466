"""Runs a script in a process of its own, and collects what that tells until it ends or is ended."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import selectors
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from perfaudit.processes import descendants, started_at
from perfaudit.runs import RankUpdate
from perfaudit.script.own_files import is_own
from perfaudit.script.quiet_terminal import quiet_input
from perfaudit.script.request import Request
from perfaudit.script.scratch_folders import own_scratch
from perfaudit.script.spans import PHASES
from perfaudit.script.stands import where_it_stands
from perfaudit.script.tally import MOST_UPDATES, Tally
from perfaudit.script.trackers import quiet_environment

Json = dict[str, Any]  # Any: nested JSON
REPLACED_SECONDS = 2.0  # for a program to take the place of the script, or to be found not to be there
# Of a record, where the script is one of several ranks.
OF_RANK = tuple(name for name in RankUpdate._fields if name != "loading")
_DATA_WAIT = PHASES.index("data_wait")
MOST_OF_RANK = 4096  # updates that are compared with those of other ranks
LEAVE_SECONDS = 10.0  # after the last word, to end by itself: threads and workers of the script are joined
_START = """
import sys
package, request = sys.argv[1:]
sys.path.append(package)
from perfaudit.script.start import begin
sys.path.remove(package)
if sys.path and sys.path[0] == "":
    del sys.path[0]
begin(request)
"""


class Stopped(Exception):
    """Whoever is told of a script wants it ended; the message says why."""


@dataclass(slots=True)
class Seen:
    """What a script told.

    updates: a record of each, see `watch.Watch`; of many the last ones, the others are in `tally`. number: of all of them.
    kept: the first ones, as many as `keep`. profile: what `step_profile.StepProfile.end` gives. code: with which it left, None
    where it was ended. ended: "enough", "finished", "failed", "late" (no step in time), "stopped" (see `Stopped`),
    "interrupted", or "missing": there is no such module. message: of what failed, or why it was stopped.
    redirected: files that were kept away. refused: why nothing could be kept away, and nothing ran. not_kept_away: a sentence on
    what the script was about to do, and was ended before; behind a step that is a failure, with this as its message.
    began: on the clock of `time.monotonic`. trained_since: when the first update was told, on that clock; trained_at: the same in
    seconds since 1970. memory: bytes in use. fractions: when it was told first and last which share of all steps is made, and
    that share. batches, backwards: how many there were before the first update. evaluated: batches
    and calls of models without gradients since the last update, where that is long ago. is_in_evaluation: it was ended there,
    as the time was up. started: what the processes are for that the script started, a loader's workers left out. is_silent: it
    ended with code 0 and no last word of it came. replaced: the program that took the place of the script (os.execv), "" for
    none; replaced_at: when. pid: of the script's process, 0 before it was told. stands: where it stood when it was late, as
    `file:line in function`. started_are_gone: none of the processes that it started was left then. enough_by: when the script is
    ended at the latest, as enough was seen; 0 before that. of_rank: the last updates, where the script is a rank.
    """

    began: float
    updates: list[Json] = field(default_factory=list)
    facts: Json = field(default_factory=dict)
    ended: str = ""
    message: str = ""
    code: int | None = None
    enough_by: float = 0.0
    redirected: tuple[str, ...] = ()
    redirected_more: int = 0
    refused: str = ""
    not_kept_away: str = ""
    batches: int = 0
    backwards: int = 0
    evaluated: int = 0
    is_in_evaluation: bool = False
    is_silent: bool = False
    started: list[str] = field(default_factory=list)
    started_are_gone: bool = False
    replaced: str = ""
    replaced_at: float = 0.0
    tally: Tally = field(default_factory=Tally)
    number: int = 0
    trained_at: float = 0.0
    trained_since: float = 0.0
    memory: int = 0
    fractions: tuple[tuple[float, float | None], tuple[float, float | None]] = ((0.0, None), (0.0, None))
    keep: int = 0
    profile: Json = field(default_factory=dict)
    kept: list[Json] = field(default_factory=list)
    pid: int = 0
    stands: str = ""
    of_rank: list[RankUpdate] = field(default_factory=list)

    def add(self, updates: list[Json]) -> None:
        """Take the records of updates that were told."""
        if not self.number:
            self.trained_at, self.trained_since = time.time(), time.monotonic()
        self.number += len(updates)
        self.evaluated = 0
        self.kept += updates[: max(0, self.keep - len(self.kept))]
        self.updates += updates
        self.of_rank += [
            RankUpdate(
                **{name: update[name] for name in OF_RANK},
                loading=update["phases"][_DATA_WAIT] if update["phases"] else 0.0,
            )
            for update in updates
            if OF_RANK[-1] in update
        ]
        del self.of_rank[:-MOST_OF_RANK]
        if len(self.updates) > MOST_UPDATES:
            self.updates = self.tally.fold(self.updates)


def observe(
    request: Request,
    longest: float,
    tell: Callable[[Seen], None] = lambda seen: None,
    output: IO[str] | None = None,
    keep: int = 0,
    trace: int = -1,
    variables: Mapping[str, str] | None = None,
) -> Seen:
    """Run a script until it ends, enough was seen, or `longest` seconds have gone without a step.

    A script that is to end by itself may take any time between two steps, for an evaluation, but not before the first one.

    tell: called about four times a second with what is known; it may raise `Stopped`.
    output: where the script's own lines go; nowhere for None.
    keep: of how many updates the records are kept one by one. trace: a descriptor that the trace of a profile is written to.
    variables: of the script's environment, besides those of this process.
    Ctrl-C ends the script and keeps what is known. No process of the script's is left.
    """
    with _ended_like_ctrl_c(), _scratch_folder(request) as (request, environment), tempfile.TemporaryFile() as stands:
        read, write = os.pipe()
        package = str(Path(__file__).resolve().parents[2])
        process = subprocess.Popen(
            [sys.executable, "-c", _START, package, request.to_json(write, trace, stands.fileno())],
            stdin=None if _has_input() else quiet_input(),
            stdout=output if output is not None else subprocess.DEVNULL,
            stderr=output if output is not None else subprocess.DEVNULL,
            pass_fds=(write, stands.fileno(), *([trace] if trace >= 0 else [])),
            start_new_session=True,
            env={**os.environ, **environment, **(variables or {})},
        )
        os.close(write)
        seen = Seen(time.monotonic(), keep=keep)
        try:
            _listen(seen, read, process, request, longest, tell)
        except KeyboardInterrupt:
            seen.ended = "interrupted"
        except Stopped as why:
            seen.ended, seen.message = "stopped", str(why)
        finally:
            if seen.ended in ("late", "stopped") and seen.pid:
                seen.stands = where_it_stands(seen.pid, stands.fileno(), is_own)
                seen.started_are_gone = _is_alone(seen.pid)
            family = [process.pid, *descendants(process.pid)]
            _end(process, seen)
            _kill(family)
            with contextlib.suppress(KeyboardInterrupt):
                _take_rest(seen, read)
            os.close(read)
    if not seen.ended:
        seen.ended, seen.code, seen.message = (
            "failed",
            None,
            f"its process {_ending(process.poll())} and told nothing",
        )
    if seen.not_kept_away and seen.number:
        seen.ended, seen.code, seen.message = "failed", None, seen.not_kept_away
        _forget_end_after_enough(seen)
    return seen


def _ending(code: int | None) -> str:
    """How a process has ended, in words behind its name. code: as `subprocess` counts it, minus the number of a signal."""
    with contextlib.suppress(ValueError):
        if code is not None and code < 0:
            return f"was ended by {signal.Signals(-code).name}"
    return f"ended with code {code}"


@contextlib.contextmanager
def _ended_like_ctrl_c() -> Iterator[None]:
    """Inside, SIGTERM and SIGHUP end this process as Ctrl-C does: the script is ended, and its scratch folder deleted."""

    def interrupt(number: int, _: object) -> None:
        raise KeyboardInterrupt

    try:
        before = {number: signal.signal(number, interrupt) for number in (signal.SIGTERM, signal.SIGHUP)}
    except ValueError:  # not in the main thread, which alone gets signals
        before = {}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _has_input() -> bool:
    """Whether there is something to read that is no terminal: a file or a pipe that was meant for the script."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        return not sys.stdin.isatty() and os.fstat(sys.stdin.fileno()).st_rdev != Path(os.devnull).stat().st_rdev
    return False


@contextlib.contextmanager
def _scratch_folder(request: Request) -> Iterator[tuple[Request, dict[str, str]]]:
    """The request with a scratch folder of its own where it wants one, and variables for the script's environment."""
    if request.scratch is None:
        yield request, {}
        return
    with own_scratch(request.scratch) as folder:
        yield dataclasses.replace(request, scratch=folder), quiet_environment(folder)


def _is_alone(pid: int) -> bool:
    """Whether a process is there and no process that it started is; no where that is not told."""
    return started_at(pid) is not None and all(started_at(each) is None for each in descendants(pid))


def _listen(
    seen: Seen,
    read: int,
    process: subprocess.Popen[bytes],
    request: Request,
    longest: float,
    tell: Callable[[Seen], None],
) -> None:
    buffer, last, count = b"", seen.began, 0
    with selectors.DefaultSelector() as selector:
        selector.register(read, selectors.EVENT_READ)
        while True:
            if selector.select(0.25):
                chunk = os.read(read, 1 << 16)
                if not chunk:
                    return
                buffer += chunk
                *lines, buffer = buffer.split(b"\n")
                for line in lines:
                    _take(seen, json.loads(line))
                if seen.ended:
                    return
            elif process.poll() is not None:
                return
            if seen.replaced and time.monotonic() - seen.replaced_at > REPLACED_SECONDS:
                seen.ended, seen.message = "failed", f"{_replacement_words(seen)}it was ended"
                return
            if seen.number > count:
                last, count = time.monotonic(), seen.number
            if seen.enough_by and time.monotonic() > seen.enough_by:
                seen.ended = "enough"
                _kill_script(process.pid)
                return
            is_bounded = not count or request.steps or request.seconds
            if is_bounded and time.monotonic() - last > longest:
                seen.ended = "late"
                return
            tell(seen)


def _take(seen: Seen, line: Json) -> None:
    if "updates" in line:
        seen.add(line["updates"])
    elif "ended" in line:
        seen.ended, seen.message = line["ended"], line["message"]
        is_of_other = seen.facts.get("is_started") and not line["facts"].get("is_started")
        seen.facts = {**line["facts"], **seen.facts} if is_of_other else {**seen.facts, **line["facts"]}
        seen.code = line["code"] if seen.ended != "enough" else None
        seen.not_kept_away = seen.message if seen.ended == "refused" else seen.not_kept_away
        _forget_end_after_enough(seen)
    elif "facts" in line:  # of the process that trains: so far, or at its end, where the script's own ends behind it
        seen.facts = line["facts"]
    elif "memory" in line:
        seen.memory, told = line["memory"], (time.monotonic(), line["fraction"])
        seen.fractions = (seen.fractions[0] if seen.fractions[0][1] is not None else told), told
    elif "enough_within" in line:
        seen.enough_by = time.monotonic() + line["enough_within"]
    elif "profile" in line:
        seen.profile = line["profile"]
    elif "pid" in line:
        seen.pid = line["pid"]
    elif "started" in line:
        seen.started.append(line["started"])
    elif "redirected" in line:
        seen.redirected, seen.redirected_more = tuple(line["redirected"]), line["redirected_more"]
    elif "evaluated" in line:
        seen.evaluated = line["evaluated"]
    elif "waited_for" in line:
        seen.is_in_evaluation = True
    elif "batches" in line:
        seen.batches, seen.backwards = line["batches"], line["backwards"]
    elif "refused" in line:
        seen.refused, seen.ended = line["refused"], "refused"
    elif "not_kept_away" in line:
        seen.not_kept_away, seen.ended = line["not_kept_away"], "refused"
    elif "replaced" in line:
        seen.replaced, seen.replaced_at = line["replaced"], time.monotonic()
    elif "left" in line and not seen.ended:  # it told nothing at its end
        left = line["left"]
        how = f"by signal {signal.Signals(-left).name}" if left < 0 else f"at once with code {left}, by os._exit"
        if seen.replaced and left >= 0:
            how = f"with code {left}"
        how = f"{_replacement_words(seen)}its process ended {how}"
        if not left and not seen.replaced:
            # By `os._exit(0)` of another thread, or by a library; or it has closed the pipe.
            seen.is_silent = True
            seen.ended, seen.code = ("enough", None) if seen.enough_by else ("finished", 0)
            return
        seen.ended, seen.code, seen.message = "failed", left if left >= 0 else 128 - left, how
        _forget_end_after_enough(seen)


def _forget_end_after_enough(seen: Seen) -> None:
    """How the script ended does not matter where it was to be ended before: it made steps more that are not timed."""
    if seen.enough_by:
        seen.ended, seen.code, seen.message = "enough", None, ""


def _replacement_words(seen: Seen) -> str:
    return f"another program took its place ({seen.replaced}), in which nothing was seen; " if seen.replaced else ""


def _take_rest(seen: Seen, read: int) -> None:
    """What lies in the pipe: the files that were kept away are told last."""
    os.set_blocking(read, False)
    data = b""
    with contextlib.suppress(BlockingIOError):
        while chunk := os.read(read, 1 << 16):
            data += chunk
    for line in data.split(b"\n"):
        with contextlib.suppress(ValueError):
            _take(seen, json.loads(line))


def _end(process: subprocess.Popen[bytes], seen: Seen) -> None:
    """Let the script end where it is about to; end it where it is not."""
    if not seen.replaced and seen.ended in ("enough", "finished", "failed", "missing", "refused", ""):
        with contextlib.suppress(subprocess.TimeoutExpired, KeyboardInterrupt):
            process.wait(LEAVE_SECONDS)
            return
    _kill_script(process.pid)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(LEAVE_SECONDS)


def _kill_script(holder: int) -> None:
    """Kill the script, not the process that holds its mounts, which tells what was kept away and then ends."""
    for pid in descendants(holder):
        with contextlib.suppress(OSError):
            os.kill(pid, signal.SIGKILL)


def _kill(family: list[int]) -> None:
    with contextlib.suppress(OSError):
        os.killpg(family[0], signal.SIGKILL)
    for pid in family:
        with contextlib.suppress(OSError):
            os.kill(pid, signal.SIGKILL)
