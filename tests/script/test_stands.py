"""Where a script stands that makes no step, from what `faulthandler` writes."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from perfaudit.script.own_files import is_own
from perfaudit.script.stands import innermost, where_it_stands

TOLD = """\
Thread 0x00007f01 (most recent call first):
  File "/home/me/loader.py", line 3 in fill
  File "/usr/lib/python3.11/site-packages/torch/utils/data/x.py", line 9 in run

Current thread 0x00007f02 (most recent call first):
  File "/usr/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py", line 2800 in all_reduce
  File "/usr/lib/python3.11/site-packages/torch/distributed/c10d_logger.py", line 83 in wrapper
  File "/home/me/train.py", line 31 in average
  File "/home/me/train.py", line 80 in main
"""


def test_the_innermost_line_of_the_script_in_its_main_thread_and_what_it_waits_in() -> None:
    assert innermost(TOLD, is_own) == "/home/me/train.py:31 in average, in a collective"
    backward = TOLD.replace("distributed/distributed_c10d", "autograd/graph").replace(
        "distributed/c10d_logger", "_tensor"
    )
    assert innermost(backward, is_own) == "/home/me/train.py:31 in average, in a backward pass"


def test_a_process_group_that_is_made_is_where_ranks_meet() -> None:
    told = TOLD.replace("in all_reduce", "in init_process_group")
    assert innermost(told, is_own) == "/home/me/train.py:31 in average, where ranks meet (init_process_group)"


def test_another_thread_where_the_main_one_is_in_no_line_of_the_script() -> None:
    assert innermost(TOLD.replace("/home/me/train.py", "/usr/lib/python3/site-packages/lib.py"), is_own) == (
        "/home/me/loader.py:3 in fill"
    )
    assert innermost("", is_own) == innermost("no such lines", is_own) == ""


WAITING = {
    "asleep": "def wait():\n    print('here', flush=True); time.sleep(60)\n",
    # As deep in a library as imports inside of imports are; what it does there is Python.
    "deep": "def wait():\n    exec(compile(DEEP, '/usr/lib/python3/site-packages/deep.py', 'exec'), {'time': time})\n",
    # In C, a process tells the innermost frames at least.
    "in_c": "def wait():\n    print('here', flush=True); sum(range(10**10))\n",
}
DEEP = """
def deep(n):
    if n:
        return deep(n - 1)
    print('here', flush=True)
    while True:
        time.sleep(0.01)
deep(300)
"""


@pytest.mark.parametrize("name", WAITING)
def test_a_process_tells_it_when_it_is_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    script = tmp_path / "waits.py"
    script.write_text(
        "import sys, time; from perfaudit.script.stands import begin_telling\n"
        f"DEEP = {DEEP!r}\n{WAITING[name]}begin_telling(int(sys.argv[1]))\nwait()\n"
    )
    with tempfile.TemporaryFile() as file:
        process = subprocess.Popen(
            [sys.executable, str(script), str(file.fileno())], stdout=subprocess.PIPE, pass_fds=[file.fileno()]
        )
        try:
            assert process.stdout is not None
            process.stdout.readline()
            assert where_it_stands(process.pid, file.fileno(), is_own) == f"{script}:4 in wait"
            monkeypatch.chdir(tmp_path)
            assert where_it_stands(process.pid, file.fileno(), is_own) == "waits.py:4 in wait"
        finally:
            process.kill()
            process.wait()
            assert process.stdout is not None
            process.stdout.close()
        assert where_it_stands(process.pid, file.fileno(), is_own) == ""  # it is gone
