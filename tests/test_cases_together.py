"""What `make test` runs as one test: all cases, in their order, each failure with its values; and what stays apart."""

from __future__ import annotations

import pytest

pytest_plugins = ["pytester"]

SUITE = """
import pytest

SEEN = []

@pytest.fixture(scope="module")
def shared():
    return 10

@pytest.fixture
def own():
    return 10

@pytest.mark.parametrize("upper", [1, 2])
@pytest.mark.parametrize(("lower", "more"), [(1, 2), pytest.param(3, 4, id="a name")])
def test_stacked(shared, lower, upper, more):
    SEEN.append((upper, lower, more))
    assert upper < shared

@pytest.mark.parametrize(("number",), [(number,) for number in range(20)])
def test_some_fail(number):
    SEEN.append(number)
    assert number % 10 == 3
    pytest.fail("also")

@pytest.mark.parametrize("number", range(3))
def test_skips(number):
    if number == 1:
        pytest.skip("not here")

@pytest.mark.parametrize("number", range(2))
def test_with_its_own(own, number):
    assert own

@pytest.mark.parametrize("number", range(2))
def test_that_asks(request, number):
    assert request

@pytest.mark.parametrize("number", [1, pytest.param(2, marks=pytest.mark.xfail)])
def test_marked(number):
    assert number == 1

@pytest.mark.xfail
@pytest.mark.parametrize("number", range(2))
def test_expected(number):
    assert number == 1

@pytest.mark.parametrize("own", range(2), indirect=True)
def test_indirect(own):
    assert own

class TestOfAClass:
    @pytest.mark.parametrize("number", range(2))
    def test_it(self, number):
        assert number < 2

def test_order():
    assert SEEN == [(1, 1, 2), (2, 1, 2), (1, 3, 4), (2, 3, 4), *range(20)]
"""
OPTIONS = ("-p", "no:cacheprovider", "-p", "cases_together")
APART = {"test_with_its_own", "test_that_asks", "test_marked", "test_expected", "test_indirect", "test_it"}


def test_cases_are_one_test_and_all_that_fail_are_listed(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(SUITE)
    result = pytester.runpytest_inprocess(*OPTIONS, "--cases-together")
    result.assert_outcomes(passed=11, failed=1, skipped=1, xfailed=2, xpassed=1)
    words = result.stdout.str()
    assert "20 of 20 cases of test_some_fail" in words
    assert all(f"\n  | with {{'number': {number}}}" in words for number in range(20))
    assert (
        "Failed: also" in words
        and "1 of 3 cases: not here"
        in pytester.runpytest_inprocess(*OPTIONS, "--cases-together", "-rs", "-k", "test_skips").stdout.str()
    )


def test_without_the_option_each_case_is_a_test(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(SUITE)
    pytester.runpytest_inprocess(*OPTIONS).assert_outcomes(passed=16, failed=20, skipped=1, xfailed=2, xpassed=1)


def test_what_stays_apart(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(SUITE)
    items, _ = pytester.inline_genitems(*OPTIONS, "--cases-together")
    assert {item.originalname for item in items if item.name != item.originalname} == APART
