"""What pricing says of a finding, without a training."""

from __future__ import annotations

import pytest

from perfaudit.findings import Expected, Finding, Saving
from perfaudit.tune.price import _with_saving

MEASURED = Saving("measured", 0.1, 0.2, 0.004)


@pytest.mark.parametrize(
    ("known", "expected"),
    [
        (None, None),
        (Saving("documented", 0.0, 0.3, source="https://a.org"), Expected("documented", 0.0, 0.3)),
        (Saving("benchmarked", 0.3, 0.4, source="make bench"), Expected("benchmarked", 0.3, 0.4)),
    ],
)
def test_a_measured_saving_remembers_what_was_known(known: Saving | None, expected: Expected | None) -> None:
    priced = _with_saving(Finding("PA000", "slow", "info", "slow", saving=known), MEASURED)
    assert priced.saving is not None
    assert (priced.saving.basis, priced.saving.low, priced.saving.high) == ("measured", 0.1, 0.2)
    assert priced.saving.expected == expected


def test_nothing_measured_takes_the_known_saving_away() -> None:
    known = Saving("documented", 0.0, 0.3)
    assert _with_saving(Finding("PA000", "slow", "info", "slow", saving=known), None).saving is None
