"""With `--cases-together`, the cases of a test are one test that lists all that fail, where no fixture is made anew for each.

Around each test, pytest and its workers take longer than most cases do. Without the option each case is a test, as pytest has it.
"""

from __future__ import annotations

import functools
import inspect
import itertools
import reprlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest

Case = dict[str, Any]  # values by the names of arguments
ON_THEIR_OWN = {"skip", "skipif", "xfail", "gpu", "slow"}  # marks of tests whose cases stay apart


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--cases-together", action="store_true", help="the cases of a test are one test, which lists all that fail"
    )


@pytest.hookimpl(tryfirst=True)
def pytest_pycollect_makeitem(collector: pytest.Collector, name: str, obj: object) -> list[pytest.Item] | None:
    """One test in the place of all cases of a function; None leaves it to pytest."""
    marks = getattr(obj, "pytestmark", [])
    if not collector.config.getoption("cases_together") or not any(mark.name == "parametrize" for mark in marks):
        return None
    if (
        not isinstance(collector, pytest.Module)
        or not inspect.isfunction(obj)
        or not collector.istestfunction(obj, name)
    ):
        return None
    if hasattr(obj, "hypothesis"):  # whose plugin looks at the test itself
        return None
    cases = cases_of(marks)
    if len(cases) < 2 or ON_THEIR_OWN & {mark.name for mark in collector.iter_markers()}:
        return None
    test: pytest.Function = pytest.Function.from_parent(collector, name=name, callobj=with_each(obj, cases))
    return [test] if is_shared(test) else None


def cases_of(marks: list[pytest.Mark]) -> list[Case]:
    """What pytest calls a test with, in its order; none where cases differ in more than their values."""
    lists = []
    for mark in marks:
        if mark.name in ON_THEIR_OWN:
            return []
        if mark.name == "parametrize":
            names, values = mark.args if len(mark.args) == 2 else ((), ())
            if set(mark.kwargs) - {"ids"} or not isinstance(values, (list, tuple, dict, range)):
                return []
            lists.append(list(_one_list(names, values)))
    if not all(each is not None for cases in lists for each in cases):
        return []
    return [{name: value for each in chosen for name, value in each.items()} for chosen in itertools.product(*lists)]


def _one_list(names: str | list[str] | tuple[str, ...], values: Any) -> Iterator[Case | None]:
    """The cases of one `parametrize`; None for one that has marks of its own."""
    listed = [name.strip() for name in names.split(",") if name.strip()] if isinstance(names, str) else list(names)
    is_single = isinstance(names, str) and len(listed) == 1
    for value in values:
        if isinstance(value, type(pytest.param())):
            yield None if value.marks else dict(zip(listed, value.values, strict=True))
        else:
            yield dict(zip(listed, [value] if is_single else value, strict=True))


def is_shared(test: pytest.Function) -> bool:
    """Whether all fixtures of a test are made once for its whole file at least."""
    definitions = test._fixtureinfo.name2fixturedefs
    made = [each for several in definitions.values() for each in several]
    is_known = set(test.fixturenames) - set(definitions) <= {"request"} - set(inspect.signature(test.obj).parameters)
    return is_known and not any(each.scope == "function" or each.params for each in made)


def with_each(function: Callable[..., None], cases: list[Case]) -> Callable[..., None]:
    """A test that calls another one with each case; only what that has besides is a fixture."""

    @functools.wraps(function)
    def test(**fixtures: Any) -> None:
        failed, skipped = [], []
        for case in cases:
            try:
                function(**fixtures, **case)
            except pytest.skip.Exception as skipping:
                skipped.append(str(skipping))
            except (Exception, pytest.fail.Exception) as error:
                error.add_note(f"with {_words.repr(case)}")
                failed.append(error)
        if failed:
            notes = "".join(
                f"\n{note}" for error in failed for note in error.__notes__[-1:]
            )  # a traceback shows fifteen
            raise BaseExceptionGroup(f"{len(failed)} of {len(cases)} cases of {function.__name__}{notes}", failed)
        if skipped:
            pytest.skip(f"{len(skipped)} of {len(cases)} cases: {'; '.join(sorted(set(skipped)))}")

    asked = inspect.signature(function)
    fixtures = [each for name, each in asked.parameters.items() if name not in cases[0]]
    vars(test)["__signature__"] = asked.replace(parameters=fixtures)
    return test


_words = reprlib.Repr()
_words.maxdict = _words.maxother = _words.maxstring = 200
