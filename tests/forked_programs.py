"""Run many small PyTorch programs, each in a fork of one process: importing torch takes longer than most of them run."""

from __future__ import annotations

import functools
import json
import os
import socket
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import served_nursery

from perfaudit.cli.ranks_child import free_port

# `torch._dynamo` is what the first optimizer imports, for two seconds. One thread: the parent has none when it forks.
# What is imported of ours is what `perfaudit run` and its script's process import, and the rules are read: half of such a run.
_FORK_ALL = """
import contextlib, faulthandler, gc, importlib, json, os, pkgutil, signal, sys, traceback, types
from tests.served_nursery import fork_for_each
import numpy, PIL.Image, sklearn.datasets
import torch, torch.nn, torch.utils.data, torch.optim.swa_utils, torch._dynamo
import perfaudit.rules
for name in ("cli", "script", "render", "static", "training", "measure", "target"):
    package = importlib.import_module(f"perfaudit.{name}")
    for module in pkgutil.walk_packages(package.__path__, f"perfaudit.{name}."):
        with contextlib.suppress(ImportError):  # of a library that is not here
            importlib.import_module(module.name)
perfaudit.rules.rule_heads(), perfaudit.rules.all_rules()
perfaudit.target.real_paths.know_modules()
torch.set_num_threads(1)
gc.freeze()  # a fork copies what its collector looks at

def exit_code(leaving):
    if leaving.code is None or isinstance(leaving.code, int):
        return leaving.code or 0
    print(leaving.code, file=sys.stderr)
    return 1

def begun(code, name, arguments, folder, environment, out, err, seconds):
    if not (child := os.fork()):
        os.setsid()
        status = 0
        with open(os.devnull) as none, open(out, "w") as out, open(err, "w") as err:
            os.dup2(none.fileno(), 0), os.dup2(out.fileno(), 1), os.dup2(err.fileno(), 2)
            faulthandler.dump_traceback_later(seconds, exit=True, file=err)
            try:
                os.chdir(folder)
                os.environ.clear()
                os.environ.update(environment)
                sys.path[0], sys.argv = folder, [name, *arguments]
                main = sys.modules["__main__"] = types.ModuleType("__main__")
                main.__file__ = name
                exec(compile(code, name, "exec", dont_inherit=True), vars(main))
            except SystemExit as leaving:
                status = exit_code(leaving)
            except BaseException:
                traceback.print_exc()
                status = 1
            sys.stdout.flush(), sys.stderr.flush()
            os._exit(status)
    return child

def ended(programs):
    codes = []
    for child in [begun(**program) for program in programs]:
        _, status = os.waitpid(child, 0)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child, signal.SIGKILL)  # workers of a program that hung
        codes.append(os.waitstatus_to_exitcode(status))
    said = [open(program["err"]).read() for program in programs]
    return codes, "".join(each for code, each in zip(codes, said) if code and "Timeout (" in each)

def serve_one(connection):
    for stream in (0, 1):  # which programs do not keep
        os.dup2(connection.fileno(), stream)
    connection.close()
    for line in sys.stdin:
        asked = json.loads(line)
        codes, hung = ended(asked)
        if hung:
            codes, _ = ended(asked)
        print(json.dumps([codes, hung]), flush=True)

listener, session = [int(sys.argv.pop(1)) for _ in range(2)]
os.sched_setaffinity(0, os.sched_getaffinity(session))  # whoever started this may have fewer cores
fork_for_each(listener, session, serve_one)
"""


@dataclass(frozen=True)
class Ended:
    """How a program ended and what it printed."""

    code: int
    out: str
    err: str


@functools.cache
def _parent() -> IO[str]:
    """A process that programs are forked from, for this one alone: a fork of the one that all workers of pytest share."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.connect(served_nursery.server("programs", socket.SOCK_STREAM, _start))
    return connection.makefile("rw")


def _start(listener: int) -> None:
    """Start what all workers share, with this repository on its path."""
    root = str(Path(__file__).parents[1])
    subprocess.Popen(
        [sys.executable, "-c", _FORK_ALL, str(listener), os.environ[served_nursery.SESSION]],
        env={**os.environ, "OMP_WAIT_POLICY": "PASSIVE", "OMP_NUM_THREADS": "1", "PYTHONPATH": root},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        pass_fds=(listener,),
        start_new_session=True,
    )


def run_code(
    code: str,
    name: str,
    arguments: list[str],
    folder: Path,
    seconds: float = 45.0,
    variables: Mapping[str, str] | None = None,
) -> Ended:
    """A program run as `python NAME ARGUMENTS` in a folder, with one thread and these variables besides ours.

    A fork of a process with torch in it may hang: a program that takes longer than `seconds` is ended and run once
    more, with a warning that says where its threads were. One that hangs again has the code 1, and says so in `err`.
    """
    (done,) = _run_at_once(code, name, arguments, folder, seconds, [variables or {}])
    return done


def run_on_ranks(code: str, name: str, arguments: list[str], folder: Path, ranks: int = 2) -> list[Ended]:
    """The same program with so many processes at once and the variables that torchrun gives each of them."""
    common = {"WORLD_SIZE": str(ranks), "LOCAL_WORLD_SIZE": str(ranks), "MASTER_ADDR": "127.0.0.1"}
    common["MASTER_PORT"] = str(free_port())
    variables = [{**common, "RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(ranks)]
    return _run_at_once(code, name, arguments, folder, 120.0, variables)


def _run_at_once(
    code: str, name: str, arguments: list[str], folder: Path, seconds: float, variables: list[Mapping[str, str]]
) -> list[Ended]:
    """One program with each of these sets of variables, all at the same time."""
    parent = _parent()
    with tempfile.TemporaryDirectory() as said:
        common: dict[str, Any] = {"code": code, "name": name, "arguments": arguments, "folder": str(folder.resolve())}
        requests = [
            {
                **common,
                "environment": {**os.environ, "OMP_WAIT_POLICY": "PASSIVE", "OMP_NUM_THREADS": "1", **own},
                "out": f"{said}/out{number}",
                "err": f"{said}/err{number}",
                "seconds": seconds,
            }
            for number, own in enumerate(variables)
        ]
        print(json.dumps(requests), file=parent, flush=True)
        ended = parent.readline()
        assert ended, "the process that is forked from has ended"
        exit_codes, hung = json.loads(ended)
        if hung:
            warnings.warn(f"{name} hung for {seconds:.0f} s and was run again:\n{hung[-2000:]}", stacklevel=3)
        return [
            Ended(exit_code, Path(asked["out"]).read_text(), Path(asked["err"]).read_text())
            for exit_code, asked in zip(exit_codes, requests, strict=True)
        ]


def run_perfaudit(
    folder: Path, *arguments: str, seconds: float = 120.0, variables: Mapping[str, str] | None = None
) -> Ended:
    """`perfaudit run ...` as it is typed in a folder; its script runs in a fork, too, with torch imported already."""
    code = "from tests.forked_command import run\nrun()\n"
    return run_code(code, "perfaudit", list(arguments), folder, seconds, variables)


# So much of torchrun as ranks see of it. The script of each rank is a fork of that.
_LAUNCH = """
import os
from tests.forked_command import run
from perfaudit.cli.ranks_child import free_port

ranks, port = int(os.environ["WORLD_SIZE"]), str(free_port())
os.environ.update(LOCAL_WORLD_SIZE=str(ranks), MASTER_ADDR="127.0.0.1", MASTER_PORT=port, TORCHELASTIC_RUN_ID=port)
started = []
for rank in range(ranks):
    started.append(os.fork())
    if not started[-1]:
        os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank))
        started.clear()
        run()
codes = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in started]
raise SystemExit(any(codes))
"""


def run_perfaudit_on_ranks(folder: Path, ranks: int, *arguments: str, seconds: float = 120.0) -> Ended:
    """`torchrun ... -m perfaudit ...` as it is typed in a folder, with so many ranks; launcher and scripts import no torch."""
    return run_code(_LAUNCH, "perfaudit", list(arguments), folder, seconds, {"WORLD_SIZE": str(ranks)})


def run_programs(programs: dict[Path, list[str]], seconds_each: float = 45.0) -> dict[Path, Ended]:
    """Each program run as a script with its arguments, in its own folder: see `run_code`."""
    return {
        path: run_code(path.read_text(), str(path.resolve()), arguments, path.parent, seconds_each)
        for path, arguments in programs.items()
    }
