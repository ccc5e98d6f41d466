"""Why a device is idle: traces in which one cause is known, and the shares, findings and places that come out of them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from made_traces import GEMM, RELU, SGEMM, Host, step_of_training

from perfaudit.rules import rule_heads
from perfaudit.trace.analyse import analyse
from perfaudit.trace.file_result import FileResult
from perfaudit.trace.report import report_of
from perfaudit.trace.trace_files import TraceFile
from perfaudit.traces import RankTrace

Story = Callable[[Host], None]


def busy(host: Host) -> None:
    step_of_training(host)


def waits_for_workers(host: Host) -> None:
    host.next_batch(12_000)
    host.catch_up()
    step_of_training(host)
    host.catch_up()


def loads_itself(host: Host) -> None:
    host.next_batch(12_000, workers=False)
    step_of_training(host)
    host.catch_up()


def reads_the_loss(host: Host) -> None:
    step_of_training(host)
    host.item()
    host.python(3_000)


def synchronizes(host: Host) -> None:
    step_of_training(host)
    host.synchronize()
    host.python(3_000)


def waits_by_itself(host: Host) -> None:
    """The host does something unknown for a long time, while nothing is queued; no call waits for the device."""
    step_of_training(host)
    host.catch_up()
    host.python(5_000)


def allocates(host: Host) -> None:
    step_of_training(host)
    host.catch_up()
    host.allocate(3_000)


def launches_slowly(host: Host) -> None:
    for _ in range(200):
        host.kernel(RELU, 2.0, "aten::relu", host=12.0)


def copies_pageable(host: Host) -> None:
    host.copy(3_000, blocking=True)
    step_of_training(host)


def in_float32(host: Host) -> None:
    step_of_training(host, name=SGEMM)


def communicates(host: Host) -> None:
    step_of_training(host)
    host.kernel("ncclDevKernel_AllReduce_Sum_f32_RING_LL", 9_000, "nccl:all_reduce")


CASES = [
    (busy, "compute", ()),
    (waits_for_workers, "idle_data", ("PA901",)),
    (loads_itself, "idle_data", ("PA101",)),
    (reads_the_loss, "idle_sync", ("PA601",)),
    (synchronizes, "idle_sync", ("PA602",)),
    (waits_by_itself, "idle_other", ()),
    (allocates, "idle_allocation", ("PA906",)),
    (launches_slowly, "idle_launch", ("PA902",)),
    (copies_pageable, "memory_exposed", ("PA102",)),
    (in_float32, "compute", ("PA303",)),
    (communicates, "communication_exposed", ("PA903",)),
]


def result_of(story: Story, tmp_path: Path, steps: int = 4, host: Host | None = None) -> FileResult:
    host = host or Host()
    for _ in range(steps):
        with host.step():
            story(host)
    return analyse(TraceFile(str(host.write(tmp_path / "trace.json"))))


def device_of(result: FileResult) -> RankTrace:
    (device,) = result.devices
    return device


@pytest.mark.parametrize(("story", "largest", "rules"), CASES, ids=lambda value: getattr(value, "__name__", None))
def test_a_cause_that_is_known(story: Story, largest: str, rules: tuple[str, ...], tmp_path: Path) -> None:
    result = result_of(story, tmp_path)
    shares = device_of(result).shares
    assert sum(shares.values()) == pytest.approx(1, abs=1e-9)
    lost = {name: share for name, share in shares.items() if name != "compute"}
    assert max(lost, key=lambda name: lost[name]) == largest or (largest == "compute" and max(lost.values()) < 0.01)
    assert tuple(finding.rule for finding in result.findings) == rules


def test_the_window_goes_from_the_first_step_to_the_end_of_the_last_steps_work(tmp_path: Path) -> None:
    host = Host()
    host.kernel(GEMM, 50_000)  # before the first step
    host.catch_up()
    start = host.now
    with host.step():
        host.kernel(GEMM, 1_000, host=10)
    end = max(host.free.values())
    host.python(20_000)
    host.kernel(GEMM, 5_000)  # behind the last one
    device = device_of(analyse(TraceFile(str(host.write(tmp_path / "trace.json")))))
    assert device.window_seconds == pytest.approx((end - start) * 1e-6)
    assert device.shares["compute"] == pytest.approx(1_000 / (end - start))


def test_a_wait_for_a_device_that_has_nothing_to_do_is_not_why_it_is_idle(tmp_path: Path) -> None:
    def story(host: Host) -> None:
        step_of_training(host)
        host.catch_up()
        host.python(4_000)
        host.synchronize()

    shares = device_of(result_of(story, tmp_path)).shares
    assert shares["idle_other"] > 10 * shares["idle_sync"]


@pytest.mark.parametrize("has_steps", [True, False])
def test_the_wait_with_which_a_profiler_ends_is_nobodys(has_steps: bool, tmp_path: Path) -> None:
    host = Host()
    for number in range(6):
        with host.step() if has_steps else host.annotation("a step"):
            if number:
                host.python(3_000)
            step_of_training(host)
            if number in (1, 3):
                host.synchronize()
    host.synchronize()
    (finding,) = analyse(TraceFile(str(host.write(tmp_path / "trace.json")))).findings
    assert finding.rule == "PA602"
    assert "(`cudaDeviceSynchronize`, 2 times" in finding.message


def test_a_wait_at_the_end_of_the_last_step_is_the_trainings(tmp_path: Path) -> None:
    (finding,) = result_of(synchronizes, tmp_path).findings
    assert "(`cudaDeviceSynchronize`, once a step)" in finding.message


def test_where_the_host_was(tmp_path: Path) -> None:
    def story(host: Host) -> None:
        with host.frame("/home/me/train.py(41): train_one_epoch"), host.frame("torch/_tensor.py(10): item"):
            step_of_training(host)
            with host.annotation("## metrics ##"):
                host.item()
                host.python(3_000)

    result = result_of(story, tmp_path)
    (finding,) = result.findings
    assert (finding.where.annotation, finding.where.source_line) == ("## metrics ##", "/home/me/train.py:41")
    assert "stacks" in device_of(result).notes
    assert [(one.cause, one.annotation) for one in device_of(result).where] == [("sync", "## metrics ##")]


def test_each_stretch_has_the_first_cause_that_holds(tmp_path: Path) -> None:
    """A batch that is waited for after a read of the loss is data, not a wait for the device."""

    def story(host: Host) -> None:
        step_of_training(host)
        host.item()
        host.next_batch(8_000)

    shares = device_of(result_of(story, tmp_path)).shares
    assert shares["idle_data"] > 20 * shares["idle_sync"] > 0


def test_work_that_was_queued_in_time_is_not_launched_late(tmp_path: Path) -> None:
    host = Host()
    with host.step():
        for _ in range(10):
            host.kernel(GEMM, 1_000)
            for stream in host.free:
                host.free[stream] += 300  # the device is late by itself
    device = device_of(analyse(TraceFile(str(host.write(tmp_path / "trace.json")))))
    assert device.shares["idle_other"] > 0.2
    assert device.shares["idle_launch"] < 0.01


def draws_on_the_cpu(host: Host) -> None:
    with host.operator("aten::randn"):
        host.python(6_000)


def prepares_on_the_cpu(host: Host) -> None:
    for _ in range(300):
        with host.operator("aten::select"):
            host.python(20)


def is_in_python(host: Host) -> None:
    host.python(6_000)


def chooses_before_it_launches(host: Host) -> None:
    with host.operator("aten::cudnn_convolution"):
        host.python(6_000)
        host._launch("cudaLaunchKernel", "kernel", GEMM, 5, 7, 5, {})


def is_in_short_pauses(host: Host) -> None:
    for _ in range(12):
        host.python(490)
        host.kernel(RELU, 2, "aten::relu")


@pytest.mark.parametrize(
    ("story", "cause"),
    [
        (draws_on_the_cpu, "idle_other"),
        (prepares_on_the_cpu, "idle_other"),
        (is_in_python, "idle_other"),
        (chooses_before_it_launches, "idle_launch"),
        (is_in_short_pauses, "idle_launch"),
    ],
)
def test_what_the_host_did_in_a_gap_is_its_cause(story: Story, cause: str, tmp_path: Path) -> None:
    """6 ms, at the end of which something is launched on an idle device."""

    def step(host: Host) -> None:
        step_of_training(host, layers=5)
        host.catch_up()
        story(host)

    shares = device_of(result_of(step, tmp_path)).shares
    assert shares[cause] == pytest.approx(6 / 12.4, abs=0.05)


def test_overlap_of_communication(tmp_path: Path) -> None:
    def story(host: Host) -> None:
        host.kernel("ncclDevKernel_AllReduce_Sum_f32_RING_LL", 10_000, "nccl:all_reduce", stream=13)
        host.kernel(GEMM, 5_000)

    device = device_of(result_of(story, tmp_path, steps=1))
    assert device.communication_overlap == pytest.approx(0.5, abs=0.01)
    assert device.shares["communication_exposed"] == pytest.approx(0.5, abs=0.01)


@pytest.mark.parametrize(
    ("names", "share"),
    [
        ([GEMM], 1.0),
        ([SGEMM], 0.0),
        ([GEMM, SGEMM], 0.5),
        (["a_kernel_of_my_own_gemm"], None),
        (["void implicit_convolve_sgemm<__half, __half, 128, 6, 7, 3, 3, 5, 1, false, false, true>(int, int)"], 0.0),
        (["void implicit_convolve_sgemm<c10::BFloat16, float, 128, 6, 7, 3>(int, int)", GEMM], 0.5),
        ([GEMM, "my_gemm", "my_other_gemm"], None),
        (["Cijk_Ailk_Bljk_SB_MT64x64x16_MI32x32x2x1_SN_1LDSB0_ISA942"], 0.0),
        (["Cijk_Ailk_Bljk_S_B_Bias_HA_S_SAV_UserArgs_MT16x16x128_MI16x16x1_SN"], 0.0),
        (["Cijk_Ailk_Bljk_S_MX_B_Bias_HA_S_SAV_UserArgs_MT128x128x32_MI32x32x1_SN"], 1.0),
        (["Cijk_Ailk_Bljk_HHS_BH_MT64x64x64_MI16x16x16x1_SN_1LDSB0_ISA942"], 1.0),
        ([RELU], None),
    ],
)
def test_the_share_on_tensor_cores(names: list[str], share: float | None, tmp_path: Path) -> None:
    def story(host: Host) -> None:
        for name in names:
            host.kernel(name, 500)

    assert device_of(result_of(story, tmp_path)).tensor_core_share == share


@pytest.mark.parametrize(
    ("name", "rules"),
    [
        ("void implicit_convolve_sgemm<float, float, 128, 6, 7, 3, 3, 5, 1, false, true, true>(int, int)", ["PA303"]),
        ("void implicit_convolve_sgemm<__half, __half, 128, 6, 7, 3, 3, 5, 1, false, true, true>(int, float)", []),
        ("void cudnn::cnn::wgrad_alg0_engine<float, 128, 6, 7, 3, 3, 5, false, 512>(int, float*)", ["PA303"]),
        ("void cudnn::cnn::wgrad_alg0_engine<__half, 128, 6, 7, 3, 3, 5, false, 512>(int, float*)", []),
        ("void gemmSN_TN_kernel<float, 128, 16, 2, 4, 4, 4, true>(Params<float>)", ["PA303"]),
        ("void gemmSN_TN_kernel<__nv_bfloat16, 128, 16, 2, 4, 4, 4, true>(Params<float>)", []),
        ("volta_fp16_sgemm_fp16_128x64_nn", []),
    ],
)
def test_the_types_of_a_template_are_those_of_its_product(name: str, rules: list[str], tmp_path: Path) -> None:
    found = result_of(lambda host: step_of_training(host, name=name), tmp_path).findings
    assert [one.rule for one in found] == rules


def test_a_device_without_tensor_cores_is_asked_for_nothing(tmp_path: Path) -> None:
    old = {"id": 0, "name": "Tesla P100-PCIE-16GB", "computeMajor": 6, "computeMinor": 0}
    assert result_of(in_float32, tmp_path, host=Host(properties=[old])).findings == ()


def test_what_could_be_held_by_a_cuda_graph(tmp_path: Path) -> None:
    (finding, *_) = result_of(launches_slowly, tmp_path).findings
    assert "a row of 200 kernels and copies that is the same in every step" in finding.message


def test_the_window_holds_the_end_of_the_last_step(tmp_path: Path) -> None:
    """What the host does after its last launch belongs to the step, and the device is idle meanwhile."""
    host = Host()
    with host.step():
        host.kernel(GEMM, 1_000)
        host.catch_up()
        with host.operator("aten::randn"):
            host.python(9_000)
    result = analyse(TraceFile(str(host.write(tmp_path / "trace.json"))))
    device = device_of(result)
    assert device.window_seconds == pytest.approx(10e-3, rel=0.01)
    assert device.shares["compute"] == pytest.approx(0.1, abs=0.01)
    assert [one.rule for one in result.findings] == ["PA910"]


def test_a_step_takes_as_long_as_the_device_needs(tmp_path: Path) -> None:
    """The host runs ahead: its steps take a moment, those of the device 50 ms."""

    def story(host: Host) -> None:
        for _ in range(10):
            host.kernel(GEMM, 5_000)

    device = device_of(result_of(story, tmp_path, steps=6))
    assert max(device.step_seconds) < 1e-3
    assert device.seconds_per_step == pytest.approx(50e-3, rel=0.01)


def test_work_that_is_late_although_it_was_queued_is_said(tmp_path: Path) -> None:
    def story(host: Host) -> None:
        for _ in range(10):
            host.kernel(GEMM, 2_000)
        for stream in host.free:
            host.free[stream] += 20_000  # the device does something that is not recorded
        host.kernel(GEMM, 2_000)
        host.synchronize()

    assert "unseen-work" in device_of(result_of(story, tmp_path)).notes


def test_of_a_sample_no_cause_is_told(tmp_path: Path) -> None:
    host = Host()
    for _ in range(4):
        with host.step():
            waits_for_workers(host)
    trace = host.trace()
    for number, event in enumerate(event for event in trace["traceEvents"] if event["cat"] == "cpu_op"):
        event["args"]["External id"] = 1 + 10 * number
    extra = [
        {
            "ph": "X",
            "cat": "cpu_op",
            "name": "a",
            "pid": 1,
            "tid": 9,
            "ts": 5e5,
            "dur": 0,
            "args": {"External id": 9000 + 40 * n},
        }
        for n in range(300)
    ]
    trace["traceEvents"] += extra
    path = tmp_path / "trace.json"
    path.write_text(json.dumps(trace))
    result = analyse(TraceFile(str(path)))
    shares = device_of(result).shares
    assert "sampled" in device_of(result).notes
    assert {name for name, share in shares.items() if name.startswith("idle") and share} == {"idle_other"}
    assert (device_of(result).where, result.findings) == ((), ())


@pytest.mark.parametrize("share", [0.2, 0.5, 0.8, 0.97])
def test_nothing_is_concluded_from_a_file_that_ends_inside_its_work(tmp_path: Path, share: float) -> None:
    """Kineto writes operators first, and calls and their work behind them: both are missing of the same steps, or of all."""
    host = Host()
    for _ in range(10):
        with host.step():
            host.next_batch(12_000)
            step_of_training(host)
            host.catch_up()
    order = {"cpu_op": 0, "user_annotation": 0}
    events = sorted(host.events, key=lambda event: (order.get(event["cat"], 1), event["ts"]))
    text = json.dumps({"traceEvents": events})
    whole = device_of(analyse(TraceFile(str(written(tmp_path / "whole.json", text)))))
    assert not {"truncated", "cut-work"} & {*whole.notes}
    behind = text.index('"cat": "kernel"')
    result = analyse(TraceFile(str(written(tmp_path / "cut.json", text[: behind + int(share * (len(text) - behind))]))))
    assert {"truncated", "cut-work"} <= {*device_of(result).notes}
    assert result.findings == ()
    report = report_of([result], rule_heads())
    assert report.traces is not None
    assert "what could be saved is not known" in report.traces.verdict


def test_nothing_is_concluded_from_a_file_that_ends_before_its_work(tmp_path: Path) -> None:
    host = Host()
    for _ in range(10):
        with host.step():
            step_of_training(host)
    events = sorted(host.events, key=lambda event: (event["cat"] == "kernel", event["ts"]))
    text = json.dumps({"traceEvents": events})
    result = analyse(TraceFile(str(written(tmp_path / "cut.json", text[: text.index('"cat": "kernel"') - 20]))))
    assert "cut-work" in device_of(result).notes
    report = report_of([result], rule_heads())
    assert report.traces is not None
    assert report.traces.verdict == (
        "the trace has no work of a device, so nothing is known about the device; it ends in the middle"
    )


def test_of_a_file_in_the_order_of_time_the_steps_before_its_end_count(tmp_path: Path) -> None:
    host = Host()
    for _ in range(10):
        with host.step():
            step_of_training(host)
            host.catch_up()
    text = json.dumps({"traceEvents": sorted(host.events, key=lambda event: event["ts"])})
    device = device_of(analyse(TraceFile(str(written(tmp_path / "trace.json", text[: len(text) // 2])))))
    assert "truncated" in device.notes
    assert "cut-work" not in device.notes
    assert 3 <= device.steps <= 5
    assert device.seconds_per_step == pytest.approx(24.4e-3, rel=0.05)


def written(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def test_a_mark_without_work_is_no_step_of_the_device(tmp_path: Path) -> None:
    """A last `profiler.step()` leaves a mark that holds nothing."""
    host = Host()
    for _ in range(5):
        with host.step():
            step_of_training(host)
            host.catch_up()
    usual = device_of(analyse(TraceFile(str(host.write(tmp_path / "a.json"))))).seconds_per_step
    with host.step():
        host.python(50)
    closed = device_of(analyse(TraceFile(str(host.write(tmp_path / "b.json")))))
    assert closed.seconds_per_step == pytest.approx(usual)
    assert "uneven-steps" not in closed.notes
