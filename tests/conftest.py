"""What tests share: programs in temporary folders, the command line, a clock that takes exactly as long as told."""

from __future__ import annotations

import contextlib
import functools
import gc
import importlib
import os
import sys
import textwrap
from collections import Counter
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import served_nursery
import typer.main
from _pytest.runner import runtestprotocol
from fake_clock import FakeClock

from perfaudit import forked_work

pytest_plugins = ["cases_together"]


# A rule of a project's own, as XY001-no-such-thing.toml has it; its check lies beside it as no_such_thing.py.
OWN_RULE = """id = "XY001"
name = "no-such-thing"
title = "Ours"
area = "input"
severity = "warning"
fix = "none"
why = "Because."
sources = ["https://example.org"]

[[example]]
bad = "import torch"
lines = [1]
[[example]]
good = "import math"
"""


@pytest.fixture(scope="session", autouse=True)
def _user_folders(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """No test reads or writes what the user who runs it has: their secret, what they trust, their cache."""
    with pytest.MonkeyPatch.context() as patch:
        for variable in ("XDG_CONFIG_HOME", "XDG_CACHE_HOME"):
            patch.setenv(variable, str(tmp_path_factory.mktemp(variable.lower())))
        yield


@pytest.fixture(scope="session", autouse=True)
def _threads_sleep() -> Iterator[None]:
    """Threads of a training that wait for each other leave their core to others, as the workers of pytest are there besides.

    They spin for milliseconds else: where two processes kept two cores busy, small steps took ten times as long for it.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OMP_WAIT_POLICY", "PASSIVE")
        yield


@pytest.fixture(scope="session", autouse=True)
def _nurseries() -> None:
    """Children are forked from a process with torch imported that all workers of pytest share."""
    served_nursery.use()


@pytest.fixture(scope="module")
def in_this_process() -> Iterator[None]:
    """No scan forks a child, which takes longer than reading most files; tests/static/test_workers.py is about children."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(forked_work, "can_fork", lambda: False)
        yield


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """Write files into an empty working directory: `project(**{"train.py": "..."})` returns the folder."""
    monkeypatch.chdir(tmp_path)

    def write(**files: str) -> Path:
        for name, text in files.items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(textwrap.dedent(text).lstrip("\n"))
        return tmp_path

    return write


@dataclass(frozen=True)
class Done:
    """What a command left behind."""

    code: int
    out: str
    err: str


_GET_COMMAND = typer.main.get_command  # which the fixture below replaces


@functools.cache
def _command_of(app: typer.Typer) -> Any:  # a command of click, in the typer that is installed
    """What typer makes of all commands and their options: the same each time, and longer than most commands run."""
    return _GET_COMMAND(app)


@pytest.fixture
def perfaudit(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Done]:
    """Run a command in this process, in the working directory: `perfaudit("scan", "train.py").code`."""
    from perfaudit.cli.entry import run

    monkeypatch.setattr("typer.main.get_command", _command_of)

    def call(*arguments: str) -> Done:
        monkeypatch.setattr(sys, "argv", ["perfaudit", *arguments])
        monkeypatch.setenv("COLUMNS", "100")
        capsys.readouterr()
        try:
            code = run()
        except SystemExit as leave:
            assert leave.code is None or isinstance(leave.code, int)
            code = leave.code or 0
        captured = capsys.readouterr()
        return Done(code, captured.out, captured.err)

    return call


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Generator[None, object, object]:
    """No garbage is looked for while thousands of tests are collected: there is little, and it took seconds.

    What pytest makes of test files, to say what the values of an assertion were, is kept as byte code, whatever the environment
    says of byte code: that takes half of the time of collecting, and workers do it for each other.
    """
    gc.disable()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "dont_write_bytecode", False)
        try:
            _import_before_others(session.config)
            return (yield)
        finally:
            gc.enable()


def _import_before_others(config: pytest.Config) -> None:
    """Have each worker of pytest begin with other files, of folders that are collected; it finds the byte code of the rest."""
    worker = getattr(config, "workerinput", None)
    if worker is None:
        return
    files = sorted(file for name in config.args for file in (config.invocation_params.dir / name).rglob("test_*.py"))
    for folder in dict.fromkeys(file.parent for file in files):
        if str(folder) not in sys.path:
            sys.path.insert(0, str(folder))
    first = len(files) * int(worker["workerid"].removeprefix("gw")) // worker["workercount"]
    for file in files[first:] + files[:first]:
        with contextlib.suppress(Exception, pytest.skip.Exception):  # which collecting it raises again
            importlib.import_module(file.stem)


_SOCKETS = pytest.StashKey[str]()


def pytest_configure(config: pytest.Config) -> None:
    """Servers of nurseries belong to the process that has started the workers of pytest, or that has none."""
    if served_nursery.FOLDER not in os.environ:
        config.stash[_SOCKETS] = served_nursery.begin_session()


def pytest_unconfigure(config: pytest.Config) -> None:
    if _SOCKETS in config.stash:
        served_nursery.end_session(config.stash[_SOCKETS])


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update", action="store_true", help="write expected output anew, from what the code prints now")


@pytest.fixture
def expect(request: pytest.FixtureRequest) -> Callable[[Path, str], None]:
    """Compare what was printed with a file that a person has read; with `--update`, write that file."""

    def compare(expected: Path, printed: str) -> None:
        if request.config.getoption("--update"):
            expected.write_text(printed, encoding="utf-8")
        assert printed == expected.read_text(encoding="utf-8")

    return compare


MANY_MODULES = 100  # that were imported: torch, say, or what its first optimizer imports


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Garbage collections, which counting a step makes, look neither at thousands of tests nor at what torch consists of.

    Nor do they look at what the tests of earlier files have left in caches, and who swaps a function looks for it in less.
    Threads of trainings as small as those of this process wait for each other, and for other tests, more than they compute.
    """
    if torch := sys.modules.get("torch"):
        torch.set_num_threads(1)
    path, modules = _frozen[-1]
    if item.path != path or len(sys.modules) > modules + MANY_MODULES:
        gc.collect()
        gc.freeze()
        _frozen.append((item.path, len(sys.modules)))


_frozen = [(Path(), 0)]  # before the first test of which file, and how many modules were there, each time


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
    """A worker of pytest reports the set-up and the end of a test where these say something: each report takes a millisecond."""
    option = item.config.option
    if not hasattr(item.config, "workerinput") or option.durations is not None or option.xmlpath:
        return None
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    for report in runtestprotocol(item, log=False, nextitem=nextitem):
        if report.when == "call" or not report.passed:
            item.ihook.pytest_runtest_logreport(report=report)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return True


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files with slow tests come first. Tests that need a GPU are skipped without one, which is asked only if there are any."""
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: item.path not in slow)
    marked = [item for item in items if item.get_closest_marker("gpu")]
    if not marked:
        return
    import torch

    if not torch.cuda.is_available():
        for item in marked:
            item.add_marker(pytest.mark.skip(reason="needs a CUDA device"))


@pytest.fixture
def nothing_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forget what other tests of this process have compiled: with that, code is not swapped."""
    if dynamo := sys.modules.get("torch._dynamo.utils"):
        monkeypatch.setitem(dynamo.counters, "stats", Counter())
