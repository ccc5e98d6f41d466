"""A host that is busy elsewhere, the set-up of a program, and work that is not in the file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from made_traces import GEMM, RELU, Host, step_of_training

from perfaudit.trace.analyse import analyse
from perfaudit.trace.file_result import FileResult
from perfaudit.trace.trace_files import TraceFile


def result_of(host: Host, tmp_path: Path) -> FileResult:
    return analyse(TraceFile(str(host.write(tmp_path / "trace.json"))))


def steps_of(story: Callable[[Host], None], number: int = 4) -> Host:
    host = Host()
    for _ in range(number):
        with host.step():
            step_of_training(host, layers=5)
            story(host)
    return host


def draws_on_the_cpu(host: Host) -> None:
    host.catch_up()
    with host.operator("aten::randn"):
        host.python(2)
        with host.operator("aten::normal_"):
            host.python(10_000)


def writes_a_picture(host: Host) -> None:
    host.catch_up()
    with host.frame("/home/me/train.py(77): save_samples"), host.frame("PIL/Image.py(5): save"):
        host.python(10_000)


def is_in_a_mark(host: Host) -> None:
    host.catch_up()
    with host.annotation("## log ##"):
        host.python(10_000)


def launches_in_a_long_operator(host: Host) -> None:
    host.catch_up()
    with host.operator("my::forward"):
        host.python(10_000)
        host.kernel(RELU, 5)


def does_something_unknown(host: Host) -> None:
    host.catch_up()
    host.python(10_000)


@pytest.mark.parametrize(
    ("story", "said"),
    [
        (draws_on_the_cpu, "because the host is in `aten::randn` and launches nothing"),
        (writes_a_picture, "because the host runs /home/me/train.py:77 and launches nothing"),
        (is_in_a_mark, "because the host is in `## log ##` and launches nothing"),
        (launches_in_a_long_operator, ""),
        (does_something_unknown, ""),
    ],
)
def test_a_host_that_is_busy_elsewhere(story: Callable[[Host], None], said: str, tmp_path: Path) -> None:
    found = [one for one in result_of(steps_of(story), tmp_path).findings if one.rule == "PA910"]
    assert [one.message for one in found if said in one.message] == [one.message for one in found]
    assert bool(found) == bool(said)
    if found:
        assert found[0].share == pytest.approx(10 / 16.4, rel=0.02)


def program(churn: int = 0) -> Host:
    """A whole program without marked steps: it sets up, and then trains."""
    host = Host()
    for _ in range(20):
        host.allocate(20_000)
        host.kernel(GEMM, 100)
    host._launch("cudaLaunchKernel", "kernel", RELU, 5, 7, 300_000, {})  # loads the code of the kernel
    for number in range(60):
        step_of_training(host, layers=5, microseconds=200)
        if number < churn:
            host.allocate(2_000)
        host.copy(300)
        host.item()
        host.python(500)
    return host


def test_set_up_is_no_finding_about_the_training(tmp_path: Path) -> None:
    found = {one.rule: one for one in result_of(program(), tmp_path).findings}
    assert "PA906" not in found and "PA902" not in found
    assert (
        "the driver is asked for memory 19 times, and a call loads code or creates something" in found["PA908"].message
    )
    assert found["PA908"].share == pytest.approx(0.69 / (0.69 + 60 * 0.0037), rel=0.15)


def test_calls_that_go_on_are_no_set_up(tmp_path: Path) -> None:
    rules = [one.rule for one in result_of(program(churn=60), tmp_path).findings]
    assert "PA906" in rules and "PA908" not in rules


def test_two_calls_in_one_step_are_no_churn(tmp_path: Path) -> None:
    def frees_twice(host: Host) -> None:
        for _ in range(2):
            host.catch_up()
            host.allocate(3_000, "cudaFree")

    assert "PA906" not in [one.rule for one in result_of(steps_of(frees_twice, 1), tmp_path).findings]
    assert "PA906" in [one.rule for one in result_of(steps_of(frees_twice, 4), tmp_path).findings]
    host = steps_of(lambda _: None, 3)
    with host.step():
        step_of_training(host, layers=5)
        frees_twice(host)
    assert "PA906" not in [one.rule for one in result_of(host, tmp_path).findings]


def test_an_excerpt_begins_with_its_own_work(tmp_path: Path) -> None:
    """The first wait is for work of before, which is not in the file: it tells nothing about this program."""
    host = Host()
    host.kernel(RELU, 2)
    with host.operator("aten::item"):
        host._call("cudaStreamSynchronize", 400_000)
    for _ in range(3):
        step_of_training(host, layers=10)
    host.catch_up()
    result = result_of(host, tmp_path)
    (device,) = result.devices
    assert "unseen-work" in device.notes
    assert device.window_seconds < 0.1
    assert device.shares["compute"] > 0.99
    assert result.findings == ()


def test_a_wait_for_work_that_is_not_in_the_file_is_no_cause(tmp_path: Path) -> None:
    def waits_for_others(host: Host) -> None:
        host.catch_up()
        host.python(100)
        with host.operator("aten::item"):
            host._call("cudaStreamSynchronize", 20_000)

    (device,) = (result := result_of(steps_of(waits_for_others, 4), tmp_path)).devices
    assert "unseen-work" in device.notes
    assert device.shares["idle_other"] > 0.6 > 0.01 > device.shares["idle_sync"]
    assert not {"PA601", "PA602"} & {one.rule for one in result.findings}


def test_a_slow_copy_from_pageable_memory_is_seen(tmp_path: Path) -> None:
    """The host copies such memory into its own buffer first, in which the device has nothing to do."""

    def copies(host: Host) -> None:
        with host.operator("aten::to"):
            host.catch_up()
            host._launch(
                "cudaMemcpyAsync", "gpu_memcpy", "Memcpy HtoD (Pageable -> Device)", 500, 7, 8_000, {"bytes": 9 << 20}
            )

    result = result_of(steps_of(copies, 4), tmp_path)
    assert "unseen-work" not in result.devices[0].notes
    assert "PA102" in {one.rule for one in result.findings}


@pytest.mark.parametrize(("slow", "is_uneven"), [(0, False), (4_000, True)])
def test_uneven_steps_are_said(slow: float, is_uneven: bool, tmp_path: Path) -> None:
    host = Host()
    for number in range(8):
        with host.step():
            step_of_training(host, layers=5)
            if number == 4:
                host.kernel(GEMM, slow)
        host.catch_up()
    assert ("uneven-steps" in result_of(host, tmp_path).devices[0].notes) == is_uneven


def test_a_host_that_runs_ahead_is_not_uneven(tmp_path: Path) -> None:
    """Its first steps are short until the queue is full; the device takes as long for each."""
    host = Host()
    for number in range(8):
        with host.step():
            step_of_training(host, layers=5)
            if number > 3:
                host.catch_up()
    assert "uneven-steps" not in result_of(host, tmp_path).devices[0].notes
