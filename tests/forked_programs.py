"""Run many small PyTorch programs, each in a fork of one process: importing torch takes longer than most of them run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

# `torch._dynamo` is what the first optimizer imports, for two seconds. One thread: the parent has none when it forks.
_RUN_ALL = """
import faulthandler, json, os, runpy, signal, sys, traceback
import numpy, PIL.Image, sklearn.datasets
import torch, torch.nn, torch.utils.data, torch.optim.swa_utils, torch._dynamo
torch.set_num_threads(1)

def ended(path, arguments):
    if not (child := os.fork()):
        os.setsid()
        with open(path + ".out", "w") as out, open(path + ".err", "w") as err:
            os.dup2(out.fileno(), 1), os.dup2(err.fileno(), 2)
            faulthandler.dump_traceback_later(seconds_each, exit=True, file=err)
            code = 0
            try:
                os.chdir(os.path.dirname(path))
                sys.path[0] = os.path.dirname(path)
                sys.argv = [path, *arguments]
                runpy.run_path(path, run_name="__main__")
            except BaseException:
                traceback.print_exc()
                code = 1
            sys.stdout.flush(), sys.stderr.flush()
            os._exit(code)
    _, status = os.waitpid(child, 0)
    try:
        os.killpg(child, signal.SIGKILL)  # workers of a program that hung
    except ProcessLookupError:
        pass
    return os.waitstatus_to_exitcode(status)

programs, seconds_each = json.load(sys.stdin)
for path, arguments in programs:
    code = ended(path, arguments)
    if code and "Timeout (" in open(path + ".err").read():
        code = ended(path, arguments)
    print(json.dumps([path, code]), flush=True)
"""


@dataclass(frozen=True)
class Ended:
    """How a program ended and what it printed."""

    code: int
    out: str
    err: str


def run_programs(
    programs: dict[Path, list[str]], seconds: float = 400.0, seconds_each: float = 45.0
) -> dict[Path, Ended]:
    """Each program run as a script with its arguments, in its own folder, with one thread.

    A fork of a process with torch in it may hang: a program that takes longer than `seconds_each` is ended and run once
    more. One that hangs again has the code 1, and where each of its threads was in `err`.
    Raises subprocess.TimeoutExpired when they take longer than `seconds` in all, KeyError for one that did not end.
    """
    request = json.dumps([[[str(path.resolve()), arguments] for path, arguments in programs.items()], seconds_each])
    environment = {**os.environ, "OMP_WAIT_POLICY": "PASSIVE", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", _RUN_ALL],
        input=request, capture_output=True, text=True, env=environment, timeout=seconds,
    )  # fmt: skip
    codes = dict(json.loads(line) for line in done.stdout.splitlines())
    return {
        path: Ended(
            codes[str(path.resolve())],
            Path(f"{path.resolve()}.out").read_text(),
            Path(f"{path.resolve()}.err").read_text() + done.stderr[-500:],
        )
        for path in programs
    }
