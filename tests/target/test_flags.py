"""Switches that have two halves: what a knob sets leaves the other half, and all of it is put back."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

torch = pytest.importorskip("torch")

from perfaudit.target import mkl  # noqa: E402
from perfaudit.target.flags import flags, flags_set, put_back, set_flags, threads_set  # noqa: E402  # torch is there
from perfaudit.target.mkl import mkl_switches  # noqa: E402


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


@pytest.mark.skipif(not mkl_switches(), reason="torch has no MKL that can be asked")
def test_what_setting_the_number_of_threads_changes_of_mkl_is_put_back() -> None:
    """As in a program that has not set it: MKL may take fewer threads, and was told no number."""
    mine = flags()
    untouched = {"mkl.dynamic": True, "mkl.threads": 0}
    set_flags(untouched)
    try:
        before = flags()
        assert before.items() >= untouched.items()
        torch.set_num_threads(before["threads"])  # type: ignore[arg-type]  # a number
        assert mkl_switches() == {"mkl.dynamic": False, "mkl.threads": before["threads"]}
        set_flags(untouched)
        with threads_set(3):
            assert flags()["threads"] == mkl_switches()["mkl.threads"] == 3
        assert flags() == before
    finally:
        set_flags({name: value for name, value in mine.items() if name in ("threads", *untouched)})


def test_a_torch_without_mkl_has_no_switches_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    mkl._library.cache_clear()
    monkeypatch.setattr(torch.backends.mkl, "is_available", lambda: False)
    try:
        assert (mkl.mkl_switches(), mkl.mkl_setters()) == ({}, {})
        with flags_set({"threads": 2}):
            assert torch.get_num_threads() == 2
    finally:
        mkl._library.cache_clear()
