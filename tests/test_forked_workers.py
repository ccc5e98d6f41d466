"""`--workers N`: what forks report is what a single process would have; one that dies fails its test, and the others are run."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest_plugins = ["pytester"]

FOLDER = Path(__file__).parent
OPTIONS = ("-p", "no:cacheprovider", "-p", "forked_workers", "-q")

CONFTEST = """
import os
from pathlib import Path
import pytest

COLLECTED_BY = os.getpid()

def note(text):
    with open("seen.txt", "a") as file:
        file.write(text + "\\n")

@pytest.fixture(scope="session", autouse=True)
def session():
    assert os.getpid() != COLLECTED_BY
    yield
    note(f"session {os.getpid()}")

@pytest.fixture(scope="module", autouse=True)
def module(request, session):
    yield
    note(f"module {request.module.__name__} {os.getpid()}")
"""
FIRST = """
import sys, warnings
import pytest
from conftest import note

def test_passes(tmp_path):
    print("said by nobody who failed")
    note(str(tmp_path))

def test_fails():
    print("said on the way")
    assert [1, 2] == [1, 3]

def test_skips():
    pytest.skip("not here")

@pytest.mark.xfail
def test_expected():
    assert False

class Own(UserWarning):
    pass

def test_warns():
    warnings.warn("take care", Own)

@pytest.fixture
def broken():
    yield
    raise ValueError("at its end")

def test_whose_fixture_breaks(broken):
    pass
"""
DIES = """
import os, signal, time

def test_before():
    pass

def test_dies():
    if not os.fork():
        time.sleep(10)  # a child holds on to what its parent has opened
        os._exit(0)
    os.kill(os.getpid(), signal.SIGKILL)

def test_leaves():
    os._exit(0)

def test_behind():
    pass
"""


@pytest.fixture(autouse=True)
def plugins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(FOLDER))
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")


def test_what_forks_report(pytester: pytest.Pytester) -> None:
    pytester.makeconftest(CONFTEST)
    pytester.makepyfile(test_first=FIRST, test_other="def test_own(tmp_path): pass", test_third="def test_own(): pass")
    result = pytester.runpytest_subprocess(*OPTIONS, "--workers", "2", "-rs")
    result.assert_outcomes(passed=5, failed=1, skipped=1, xfailed=1, errors=1, warnings=1)
    assert result.ret == 1
    words = result.stdout.str()
    assert words.count("\nsaid on the way\n") == 1 and "said by nobody" not in words
    result.stdout.fnmatch_lines(["*At index 1 diff: 2 != 3*", "*Own: take care*", "*test_first.py:*: not here*"])
    result.stdout.fnmatch_lines(["*ValueError: at its end*"])
    seen = [line.split() for line in Path("seen.txt").read_text().splitlines()]
    modules = {line[1]: line[2] for line in seen if line[0] == "module"}
    sessions = [line[1] for line in seen if line[0] == "session"]
    assert set(modules) == {"test_first", "test_other", "test_third"}
    assert len(set(sessions)) == len(sessions) == 2 and set(modules.values()) <= set(sessions)
    (folder,) = [line[0] for line in seen if len(line) == 1]
    assert Path(folder).parent.name in ("worker0", "worker1")


def test_a_worker_that_dies_fails_its_test_and_another_goes_on(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(test_dies=DIES, test_other="def test_own(): pass")
    result = pytester.runpytest_subprocess(*OPTIONS, "--workers", "2")
    result.assert_outcomes(passed=3, failed=2)
    result.stdout.fnmatch_lines(
        ["*ended with code -9 while it ran this test*", "*ended with code 0 while it ran this test*"]
    )


def test_a_session_that_breaks_at_its_end_is_no_pass(pytester: pytest.Pytester) -> None:
    pytester.makeconftest(CONFTEST.replace('note(f"session', 'raise ValueError(f"session'))
    pytester.makepyfile("def test_own(): pass")
    result = pytester.runpytest_subprocess(*OPTIONS, "--workers", "1")
    assert result.ret == pytest.ExitCode.INTERRUPTED
    result.stdout.fnmatch_lines(["*a worker ended with code 1 when it ran no test*"])


def test_the_first_failure_may_end_all(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(test_a="def test_own(): assert 0", test_b="import time\ndef test_own(): time.sleep(600)")
    result = pytester.runpytest_subprocess(*OPTIONS, "--workers", "2", "-x")
    result.assert_outcomes(failed=1)


@pytest.mark.parametrize("options", [(), ("--durations=0", "--durations-min=0"), ("--junitxml=out.xml",)])
def test_set_up_is_reported_where_it_is_shown(pytester: pytest.Pytester, options: tuple[str, ...]) -> None:
    pytester.makepyfile("def test_own(): pass")
    result = pytester.runpytest_subprocess(*OPTIONS, "--workers", "1", *options)
    result.assert_outcomes(passed=1)
    assert ("setup" in result.stdout.str()) == ("--durations=0" in options)
    if "--junitxml=out.xml" in options:
        assert 'tests="1"' in Path("out.xml").read_text()


def test_without_workers_or_tests_pytest_runs_as_ever(pytester: pytest.Pytester) -> None:
    pytester.makeconftest(CONFTEST.replace("!= COLLECTED_BY", "== COLLECTED_BY"))
    pytester.makepyfile("def test_own(): pass")
    pytester.runpytest_subprocess(*OPTIONS).assert_outcomes(passed=1)
    assert pytester.runpytest_subprocess(*OPTIONS, "--workers", "2", "-k", "nothing").ret == 5
