"""Switches that have two halves: what a knob sets leaves the other half, and all of it is put back."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

torch = pytest.importorskip("torch")

from perfaudit.target.flags import flags, flags_set, put_back  # noqa: E402  # torch is there


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    yield
    torch.set_anomaly_enabled(False, True)
    torch.use_deterministic_algorithms(False)


def test_anomaly_detection_that_lets_nan_pass_lets_it_pass_afterwards() -> None:
    torch.autograd.set_detect_anomaly(True, check_nan=False)
    with flags_set({"anomaly": False}):
        assert not torch.is_anomaly_enabled()
    assert torch.is_anomaly_enabled()
    assert not torch.is_anomaly_check_nan_enabled()


def test_both_halves_of_a_switch_are_put_back() -> None:
    torch.autograd.set_detect_anomaly(True, check_nan=False)
    torch.use_deterministic_algorithms(True, warn_only=True)
    before = flags()
    torch.autograd.set_detect_anomaly(False, check_nan=True)
    torch.use_deterministic_algorithms(False)
    assert flags() != before
    put_back(before)
    assert flags() == before
    assert not torch.is_anomaly_check_nan_enabled()
    assert torch.is_deterministic_algorithms_warn_only_enabled()
