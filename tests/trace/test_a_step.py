"""Figures "a step": all of them are of usual steps, and all are divided by the same."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from made_traces import GEMM, SGEMM, Host, step_of_training

from perfaudit.trace.analyse import analyse
from perfaudit.trace.file_result import FileResult
from perfaudit.trace.trace_files import TraceFile


def result_of(host: Host, tmp_path: Path) -> FileResult:
    return analyse(TraceFile(str(host.write(tmp_path / "trace.json"))))


def waits_and_multiplies(host: Host) -> None:
    """12 ms without a batch, 24.4 ms of products in float32, 1 ms of pageable copies that are waited for, 2 ms of Python."""
    host.next_batch(12_000)
    host.copy(1_000, blocking=True)
    step_of_training(host, name=SGEMM)
    host.item()
    host.python(2_000)


@pytest.mark.parametrize("warm_up", [0, 1, 3])
def test_findings_are_of_usual_steps_whatever_the_warm_up_takes(warm_up: int, tmp_path: Path) -> None:
    host = Host()
    for number in range(warm_up + 6):
        with host.step():
            if number < warm_up:
                host.next_batch(700_000)
                for _ in range(10):
                    host.allocate(30_000)
            waits_and_multiplies(host)
    result = result_of(host, tmp_path)
    (device,) = result.devices
    assert device.steps == warm_up + 6
    assert device.seconds_per_step == pytest.approx(39.4e-3, rel=0.02)
    found = {one.rule: one for one in result.findings}
    assert (found["PA901"].seconds_per_step or 0) == pytest.approx(12e-3, rel=0.02)
    assert (found["PA303"].seconds_per_step or 0) == pytest.approx(24e-3 * 7 / 8, rel=0.02)
    assert (found["PA601"].seconds_per_step or 0) == pytest.approx(2e-3, rel=0.1)
    assert f"({1000 * (found['PA901'].seconds_per_step or 0):.3g} ms a step)" in found["PA901"].message
    assert "once a step" in found["PA601"].message
    assert ("PA908" in found) == bool(warm_up)
    for one in found.values():  # of a usual step too
        if one.rule != "PA908":
            assert one.share == pytest.approx((one.seconds_per_step or 0) / device.seconds_per_step)
    assert device.usual_shares["idle_data"] == pytest.approx(12 / 39.4, rel=0.02)


def test_a_warm_up_is_no_time_of_a_step(tmp_path: Path) -> None:
    host = Host()
    for number in range(6):
        with host.step():
            for _ in range(10 if number == 0 else 0):
                host.allocate(4_000)
            step_of_training(host, layers=5)
            host.catch_up()
    (finding,) = result_of(host, tmp_path).findings
    assert (finding.rule, finding.seconds_per_step) == ("PA908", None)


def test_a_usual_step_beside_a_warm_up_is_one_of_the_device(tmp_path: Path) -> None:
    """The host hands a step of 24 ms over in half a millisecond."""
    host = Host()
    for number in range(6):
        with host.step():
            for _ in range(10 if number == 0 else 0):
                host.allocate(4_000)
            step_of_training(host)
    (device,) = (result := result_of(host, tmp_path)).devices
    assert device.seconds_per_step == pytest.approx(24.4e-3, rel=0.01)
    assert min(device.step_seconds) < 1e-3
    assert "40 ms longer than a usual step (24.4 ms)" in result.findings[0].message


def test_a_part_of_a_step_is_the_same_part_of_its_time(tmp_path: Path) -> None:
    """Work of before the first mark runs inside the window, which holds more than the marked steps."""
    host = Host()
    for number in range(6):
        if number == 2:
            host.steps = 0
        with host.step() if number >= 2 else host.annotation("not profiled"):
            for _ in range(10):
                host.kernel(SGEMM, 3_000)
    (device,) = (result := result_of(host, tmp_path)).devices
    assert device.seconds_per_step == pytest.approx(30e-3, rel=0.01)
    assert device.window_seconds > 0.17  # of 4 steps of 30 ms
    (finding,) = result.findings
    assert finding.seconds_per_step == pytest.approx(30e-3 * 7 / 8, rel=0.01)
    assert "(30 ms a step)" in finding.message


def test_a_last_mark_without_work_is_no_step_of_any_figure(tmp_path: Path) -> None:
    host = Host()
    for _ in range(4):
        with host.step():
            for _ in range(2):
                host.kernel(GEMM, 5_000)
                host.item()
                host.python(3_000)
    with host.step():
        host.python(50)
    (finding,) = (one for one in result_of(host, tmp_path).findings if one.rule == "PA601")
    assert "2 times a step" in finding.message


def steps_that_wait(waits: list[float]) -> Host:
    """Steps of 24 ms, before each of which the training waits so many microseconds for its batch."""
    host = Host()
    for wait in waits:
        with host.step():
            host.next_batch(wait)
            host.catch_up()
            step_of_training(host)
            host.catch_up()
    return host


def test_a_loader_that_starts_in_the_first_step_is_warm_up(tmp_path: Path) -> None:
    result = result_of(steps_that_wait([400_000, *[50.0] * 7]), tmp_path)
    (device,) = result.devices
    assert "warm-up" in device.notes
    assert device.shares["idle_data"] > 0.6
    (finding,) = result.findings
    assert finding.rule == "PA908"
    assert finding.message.startswith("the first of 8 steps is warm-up: the loader starts. It takes 400 ms longer")


def test_a_loader_that_is_late_in_each_step_is_no_warm_up(tmp_path: Path) -> None:
    result = result_of(steps_that_wait([400_000, *[60_000.0] * 7]), tmp_path)
    (finding,) = result.findings
    assert finding.rule == "PA901"
    assert "a step)" in finding.message


@pytest.mark.parametrize(
    ("waits", "milliseconds", "often"),
    [
        ([50, 50, 50, 50, 40_000, 50, 50, 50], 40, "on 1 of 8 steps"),
        ([50, 50, 40_000, 50, 50, 50, 40_000, 50], 80, "on 2 of 8 steps"),
        ([50, 40_000, 50, 40_000, 50, 40_000, 50, 40_000], 20, "a step"),
        ([40_000] * 8, 40, "a step"),
    ],
)
def test_a_wait_on_few_steps_is_no_time_of_a_step(
    waits: list[float], milliseconds: float, often: str, tmp_path: Path
) -> None:
    (finding,) = (one for one in result_of(steps_that_wait(waits), tmp_path).findings if one.rule == "PA901")
    said = re.search(r"\(([\d.]+) ms ([^)]*)\), because", finding.message)
    assert said is not None
    assert (float(said[1]), said[2]) == (pytest.approx(milliseconds, rel=0.1), often)
    assert (finding.seconds_per_step is None) == (often != "a step")


def test_a_read_on_one_step_is_no_time_of_a_step(tmp_path: Path) -> None:
    host = Host()
    for number in range(10):
        with host.step():
            step_of_training(host)
            if number == 6:
                host.item()
                host.python(40_000)
                host.item()
    (finding,) = (one for one in result_of(host, tmp_path).findings if one.rule == "PA601")
    assert "2 times in 10 steps" in finding.message
    assert "ms on 1 of 10 steps" in finding.message
    assert finding.seconds_per_step is None


def loads_code(host: Host, microseconds: float, number: int = 1) -> None:
    """Launches that load the code of their kernels, on a device that has nothing to do."""
    for _ in range(number):
        host.catch_up()
        with host.operator("aten::add_"):
            host._launch("hipLaunchKernel", "kernel", GEMM, 20, 7, microseconds, {})


def steps_that_load(microseconds: float, number: int = 1, at: int = 0, steps: int = 6) -> Host:
    host = Host()
    for step in range(steps):
        with host.step():
            step_of_training(host, layers=5)
            if step == at:
                loads_code(host, microseconds, number)
            host.catch_up()
    return host


@pytest.mark.parametrize(("microseconds", "number"), [(9_000, 1), (1_200, 8)])
def test_code_that_is_loaded_in_the_first_step_is_warm_up(microseconds: float, number: int, tmp_path: Path) -> None:
    """Also where it is not the first launch of the step, and where many kernels are loaded one by one."""
    result = result_of(steps_that_load(microseconds, number), tmp_path)
    (device,) = result.devices
    assert "warm-up" in device.notes
    assert device.seconds_per_step == pytest.approx(6.4e-3, rel=0.01)
    assert device.usual_shares["compute"] > 0.98
    (finding,) = result.findings
    assert (finding.rule, finding.seconds_per_step) == ("PA908", None)


def test_code_that_is_loaded_in_the_only_step(tmp_path: Path) -> None:
    """A mark behind it, in which the profile ends, is no step."""
    host = steps_that_load(9_000, steps=1)
    with host.step():
        host.python(50)
    result = result_of(host, tmp_path)
    assert "warm-up" in result.devices[0].notes
    (finding,) = result.findings
    assert finding.rule == "PA908"
    assert "on first use (`hipLaunchKernel` takes 9 ms)" in finding.message
    assert finding.share == pytest.approx(9 / 15.4, rel=0.02)


def test_launches_that_wait_for_room_in_the_queue_load_nothing(tmp_path: Path) -> None:
    host = Host()
    for step in range(6):
        with host.step():
            for _ in range(4 if step else 8):
                host.kernel(GEMM, 9_000)
                with host.operator("aten::add_"):
                    host._launch("hipLaunchKernel", "kernel", GEMM, 9_000, 7, 9_000, {})
    assert "warm-up" not in result_of(host, tmp_path).devices[0].notes
