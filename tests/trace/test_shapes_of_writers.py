"""One cause, as different versions of the profiler write it: the same findings come out, and no others."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from made_traces import Host
from test_causes import CASES, Story
from test_checks import (
    graph_breaks,
    layout_changes,
    pointwise_rows,
    reduced_one_by_one,
    shape_from_values,
    tiny_copies,
    update_in_a_loop,
    written_out_attention,
)

from perfaudit.trace.analyse import analyse
from perfaudit.trace.trace_files import TraceFile

Json = dict[str, Any]
SHAPE_CASES = [(story, list(rules)) for story, _, rules in CASES] + [
    (pointwise_rows, ["PA306"]),
    (layout_changes, ["PA211"]),
    (written_out_attention, ["PA203"]),
    (update_in_a_loop, ["PA403"]),
    (tiny_copies, ["PA907"]),
    (shape_from_values, ["PA604"]),
    (reduced_one_by_one, ["PA708"]),
    (graph_breaks, ["PA909"]),
]
ON_DEVICE = ("kernel", "gpu_memcpy", "gpu_memset")


def with_marks_on_the_device(trace: Json) -> None:
    """The annotations again, as the device saw them, and the profiler's own span, its overhead and its arrows."""
    events = trace["traceEvents"]
    first, last = events[0]["ts"], max(event["ts"] + event["dur"] for event in events)
    extra: list[Json] = [
        {"ph": "X", "cat": "Trace", "name": "PyTorch Profiler (0)", "pid": "Spans", "tid": "PyTorch Profiler",
         "ts": first - 50, "dur": last - first + 100},
        {"ph": "X", "cat": "overhead", "name": "Buffer Flush", "pid": -1, "tid": 0, "ts": first - 40, "dur": 20},
        {"ph": "i", "s": "g", "name": "Record Window End", "pid": "", "tid": "", "ts": last + 50},
        {"ph": "M", "name": "process_name", "pid": 0, "tid": 0, "ts": first, "args": {"name": "python"}},
    ]  # fmt: skip
    for event in events:
        number = event["args"].get("correlation")
        if event["cat"] == "user_annotation":
            extra.append({**event, "cat": "gpu_user_annotation", "pid": 0, "tid": 7, "ts": event["ts"] + 30})
        elif event["cat"] == "cuda_runtime":
            extra.append({**event, "cat": "ac2g", "name": "ac2g", "ph": "s", "id": number})
            if "Synchronize" in event["name"]:
                extra.append({**event, "cat": "cuda_sync", "name": "Context Sync", "pid": 0, "tid": -1})
        elif event["cat"] in ON_DEVICE:
            extra.append({**event, "cat": "ac2g", "name": "ac2g", "ph": "f", "bp": "e", "id": number})
    events.extend(extra)


def with_stacks(trace: Json) -> None:
    """`with_stack=True`: a function of the training around everything, another around each operator."""
    events = trace["traceEvents"]
    first, last = events[0]["ts"], max(event["ts"] + event["dur"] for event in events)
    frames = [(first - 10, last - first + 20, "train.py(12): main")]
    frames += [
        (event["ts"] - 0.5, event["dur"] + 1, "torch/nn/modules/module.py(1500): _call_impl")
        for event in events
        if event["cat"] == "cpu_op"
    ]
    for number, (start, lasts, name) in enumerate(frames):
        events.append(
            {"ph": "X", "cat": "python_function", "name": name, "pid": 100, "tid": 100, "ts": start, "dur": lasts,
             "args": {"Python id": number, "Python parent id": 0 if number else None}}
        )  # fmt: skip


def through_the_driver(trace: Json) -> None:
    """Triton and newer cuBLAS launch with calls of the driver, inside a call of the runtime or without one."""
    for event in trace["traceEvents"]:
        if event["name"] == "cudaLaunchKernel":
            event.update(cat="cuda_driver", name="cuLaunchKernelEx")


def with_wall_time(trace: Json) -> None:
    """Since 2.3: microseconds with decimals from a base, and events in no order."""
    trace["baseTimeNanoseconds"] = 1_750_000_000_000_000_000
    trace["displayTimeUnit"] = "ms"
    for event in trace["traceEvents"]:
        event["ts"] = round(event["ts"] + 4_699_955_558_088.160, 3)
    trace["traceEvents"].reverse()


def on_rocm(trace: Json) -> None:
    """Calls of HIP, and names of ROCm for what is called otherwise there."""
    trace["deviceProperties"] = [{"id": 2, "name": "AMD Instinct MI300X", "computeMajor": 9, "computeMinor": 4}]
    names = {
        "ampere_bf16": "Cijk_Alik_Bljk_BBS_BH_Bias_HA_S_SAV_UserArgs_MT256x256x64_MI16x16x1_SN_K1",
        "ampere_sgemm": "Cijk_Ailk_Bljk_SB_MT128x128x16_MI32x32x2x1_SN_1LDSB0_APM1_ISA942_IU1_K1",
        "ncclDevKernel": "ncclDevKernel_Generic_4(ncclDevKernelArgsStorage<4096ul>)",
        "Memcpy HtoD (Pageable": "Memcpy HtoD (Host -> Device)",
    }
    for event in trace["traceEvents"]:
        if event["cat"] == "cuda_runtime":
            event["name"] = event["name"].replace("cuda", "hip", 1)
        if event["cat"] in ON_DEVICE:
            event["args"]["device"] = event["pid"] = 2
            event["name"] = next((new for old, new in names.items() if event["name"].startswith(old)), event["name"])


SHAPES: list[Callable[[Json], None]] = [
    with_marks_on_the_device,
    with_stacks,
    through_the_driver,
    with_wall_time,
    on_rocm,
]
OTHERWISE = {
    ("copies_pageable", on_rocm): [],  # names of copies do not tell what memory they come from
    ("in_float32", on_rocm): ["PA304"],  # PyTorch has no switch for TF32 there
    ("waits_by_itself", with_stacks): ["PA910"],  # the function is known that keeps the host busy
}


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.__name__)
@pytest.mark.parametrize(("story", "rules"), SHAPE_CASES, ids=lambda value: getattr(value, "__name__", ""))
def test_the_same_is_found(story: Story, rules: list[str], shape: Callable[[Json], None], tmp_path: Path) -> None:
    rules = OTHERWISE.get((story.__name__, shape), rules)
    host = Host()
    for _ in range(4):
        with host.step():
            story(host)
    trace = host.trace()
    shape(trace)
    path = tmp_path / "trace.json"
    path.write_text(json.dumps(trace))
    result = analyse(TraceFile(str(path)))
    (device,) = result.devices
    assert [finding.rule for finding in result.findings] == rules
    assert sum(device.shares.values()) == pytest.approx(1, abs=1e-9)
    assert len(device.step_seconds) == 4
