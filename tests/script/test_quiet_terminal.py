"""A script that is started from a terminal finds one of the same size, and nothing to read in it."""

import os
import subprocess
import sys
import termios
from collections.abc import Iterator
from pathlib import Path

import pytest

ASKS = "import os, sys; from perfaudit.script.quiet_terminal import quiet_input; import subprocess\n"
ASKS += "subprocess.run([sys.executable, '-c', sys.argv[1]], stdin=quiet_input(), start_new_session=True)"

SHOWS_SIZE = "import os; print(os.popen('stty size').read())"
ASKS_USER = "print(__import__('sys').stdin.isatty())\ntry: input()\nexcept EOFError: print('nothing to read')\n"


@pytest.fixture
def terminal() -> Iterator[int]:
    other_end, descriptor = os.openpty()
    termios.tcsetwinsize(descriptor, (31, 97))
    yield descriptor
    os.close(descriptor)
    os.close(other_end)


def started(script: str, given: int, folder: Path) -> str:
    return subprocess.run(
        [sys.executable, "-c", ASKS, script],
        cwd=folder,
        stdin=given,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    ).stdout.strip()


@pytest.mark.parametrize(
    ("script", "printed"),
    [(SHOWS_SIZE, "31 97"), (ASKS_USER, "True\nnothing to read"), (ASKS_USER * 2, "True\nnothing to read\n" * 2)],
)
def test_from_a_terminal(script: str, printed: str, terminal: int, tmp_path: Path) -> None:
    assert started(script, terminal, tmp_path) == printed.strip()


def test_elsewhere_it_is_at_its_end(tmp_path: Path) -> None:
    assert started(ASKS_USER, subprocess.DEVNULL, tmp_path) == "False\nnothing to read"
