"""What each check sees, and where it is silent: a story of a step, and the rules that are found in four such steps."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from made_traces import ALL_REDUCE, GEMM, RELU, Host, step_of_training

from perfaudit.rules import all_rules
from perfaudit.trace.analyse import analyse
from perfaudit.trace.checks import all_checks
from perfaudit.trace.file_result import FileResult
from perfaudit.trace.trace_files import TraceFile

Story = Callable[[Host], None]
TANH = "void at::native::vectorized_elementwise_kernel<4, at::native::tanh_kernel>"
MUL = "void at::native::elementwise_kernel<128, 2, at::native::mul_kernel>"
ADAM = "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<TensorListMetadata, {}>"
OF_RANKS = {"PA904", "PA905"}  # looked for over all ranks


def rules_of(story: Story, tmp_path: Path, steps: int = 4) -> list[str]:
    return [finding.rule for finding in result_of(story, tmp_path, steps).findings]


def result_of(story: Story, tmp_path: Path, steps: int = 4) -> FileResult:
    host = Host()
    for _ in range(steps):
        with host.step():
            story(host)
    return analyse(TraceFile(str(host.write(tmp_path / "trace.json"))))


def pointwise_rows(host: Host) -> None:
    for _ in range(20):
        host.kernel(GEMM, 500)
        for name in (MUL, TANH, MUL, RELU):
            host.kernel(name, 100, "aten::mul")


def same_kernel_for_each_tensor(host: Host) -> None:
    for _ in range(20):
        host.kernel(GEMM, 500)
        for _ in range(5):
            host.kernel(MUL, 100, "aten::mul")


def layout_changes(host: Host) -> None:
    for _ in range(10):
        host.kernel("void cudnn::ops::nchwToNhwcKernel<__half, __half, float, false, true>", 100, "aten::conv2d")
        host.kernel(GEMM, 500, "aten::conv2d")


def written_out_attention(host: Host) -> None:
    for _ in range(8):
        host.kernel(GEMM, 400, "aten::bmm")
        host.kernel(MUL, 100, "aten::mul")
        host.kernel(
            "void (anonymous namespace)::softmax_warp_forward<float, float, float, 10, false>", 150, "aten::softmax"
        )
        host.kernel(GEMM, 400, "aten::bmm")


def loss_after_the_head(host: Host) -> None:
    for _ in range(8):
        host.kernel(GEMM, 400)
        host.kernel(
            "void at::native::cunn_SoftMaxForward<4, float, LogSoftMaxForwardEpilogue>", 200, "aten::log_softmax"
        )
        host.kernel("nll_loss_forward_reduce_cuda_kernel_2d", 50, "aten::nll_loss")
        host.kernel(GEMM, 400)


def picks_between_products(host: Host) -> None:
    """A log-softmax between two products of batches is no attention."""
    for _ in range(8):
        host.kernel(GEMM, 400, "aten::bmm")
        host.kernel(
            "void at::native::cunn_SoftMaxForward<4, float, LogSoftMaxForwardEpilogue>", 200, "aten::log_softmax"
        )
        host.kernel(GEMM, 400, "aten::bmm")


def update_in_a_loop(host: Host) -> None:
    step_of_training(host)
    with host.annotation("Optimizer.step#Adam.step"):
        for _ in range(80):
            host.kernel(MUL, 20, "aten::mul_")


def update_in_passes(host: Host) -> None:
    step_of_training(host)
    with host.annotation("Optimizer.step#AdamW.step"):
        for name in ("BinaryOpListAlphaFunctor", "PointwiseOpScalarListFunctor", "UnaryOpFunctor") * 4:
            host.kernel(ADAM.format(name), 300, "aten::_foreach_add_")


def fused_update(host: Host) -> None:
    step_of_training(host)
    with host.annotation("Optimizer.step#AdamW.step"):
        for _ in range(4):
            host.kernel(ADAM.format("FusedAdamMathFunctor"), 900, "aten::_fused_adamw_")


def tiny_copies(host: Host) -> None:
    host.catch_up()
    for _ in range(60):
        host.copy(2, "HtoD (Pinned -> Device)", moved=8)
    step_of_training(host, layers=2)


def one_large_copy(host: Host) -> None:
    host.copy(400, "HtoD (Pinned -> Device)", moved=1 << 24)
    step_of_training(host)


def few_tiny_copies(host: Host) -> None:
    """Fewer than a schedule of an optimizer makes, however long the device waits for them."""
    host.catch_up()
    for _ in range(10):
        host.copy(2, "HtoD (Pinned -> Device)", moved=8)
    host.kernel(GEMM, 500)


def many_large_copies(host: Host) -> None:
    for _ in range(60):
        host.copy(100, "HtoD (Pinned -> Device)", moved=1 << 20)


def layout_changes_without_convolutions(host: Host) -> None:
    for _ in range(10):
        host.kernel("void batched_transpose_32x32_half", 100, "aten::permute")
        host.kernel(GEMM, 500, "aten::mm")


def pairs_of_pointwise(host: Host) -> None:
    for _ in range(20):
        host.kernel(GEMM, 500)
        for name in (MUL, TANH):
            host.kernel(name, 100, "aten::mul")


def shape_from_values(host: Host) -> None:
    step_of_training(host)
    with host.operator("aten::nonzero"):
        host.item()
    host.python(3_000)


def chooses_algorithms(host: Host) -> None:
    step_of_training(host)
    with host.operator("aten::cudnn_convolution"):
        host.synchronize()
    host.python(2_000)


def copy_that_blocks(host: Host) -> None:
    step_of_training(host)
    host.copy(1_000, "HtoD (Pinned -> Device)", blocking=True)
    host.python(4_000)


def reduced_one_by_one(host: Host) -> None:
    step_of_training(host, layers=5)
    for _ in range(40):
        host.kernel(
            ALL_REDUCE,
            100,
            "nccl:all_reduce",
            **{"Collective name": "allreduce", "In msg nelems": 512, "dtype": "Float"},
        )


def in_buckets(host: Host) -> None:
    step_of_training(host, layers=5)
    for _ in range(3):
        host.kernel(
            ALL_REDUCE,
            1500,
            "nccl:all_reduce",
            **{"Collective name": "allreduce", "In msg nelems": 6 << 20, "dtype": "Float"},
        )


def in_tf32(host: Host) -> None:
    step_of_training(host, name="ampere_sgemm_128x64_tf32_s1688gemm")


def graph_breaks(host: Host) -> None:
    for number in range(6):
        with host.operator(f"Torch-Compiled Region: {number}/0"):
            for _ in range(5):
                host.kernel(GEMM, 100, "triton_poi_fused")
        host.catch_up()
        host.python(900)


def compiled_without_breaks(host: Host) -> None:
    """Regions inside each other are one, and the backward pass is none of its own."""
    for name in ("forward", "CompiledFunctionBackward"):
        with host.operator("Torch-Compiled Region: 0/0"), host.operator(f"## Call CompiledFxGraph {name} ##"):
            for _ in range(5):
                host.kernel(GEMM, 100, "triton_poi_fused")
        host.catch_up()
        host.python(900)


def compiled_block_by_block(host: Host) -> None:
    for _ in range(6):
        with host.operator("Torch-Compiled Region: 0/0"):
            for _ in range(5):
                host.kernel(GEMM, 100, "triton_poi_fused")
        host.catch_up()
        host.python(900)


def update_of_many_tensors(host: Host) -> None:
    """One pass, cut into launches of one kernel."""
    step_of_training(host, layers=2)
    with host.annotation("Optimizer.step#SGD.step"):
        for _ in range(12):
            host.kernel("multi_tensor_apply_kernel<BinaryOpListAlphaFunctor>", 400, "aten::_foreach_add_")


def multiplies_by_vectors(host: Host) -> None:
    for _ in range(30):
        host.kernel("void gemv2T_kernel_val<int, int, float, float, float, float, 128, 16, 4>", 500)
        host.kernel("volta_fp16_sgemm_fp16_128x64_nn", 500)


def converts_boxes(host: Host) -> None:
    step_of_training(host, layers=4)
    with host.operator("mylib::convert_boxes"):
        host.synchronize()
    host.python(3_000)


@pytest.mark.parametrize(
    ("story", "rules"),
    [
        (compiled_without_breaks, []),
        (compiled_block_by_block, []),
        (update_of_many_tensors, []),
        (multiplies_by_vectors, []),
        (converts_boxes, ["PA602"]),
        (pointwise_rows, ["PA306"]),
        (same_kernel_for_each_tensor, []),
        (layout_changes, ["PA211"]),
        (written_out_attention, ["PA203"]),
        (loss_after_the_head, []),
        (picks_between_products, []),
        (update_in_a_loop, ["PA403"]),
        (update_in_passes, ["PA402"]),
        (fused_update, []),
        (tiny_copies, ["PA907"]),
        (one_large_copy, []),
        (few_tiny_copies, []),
        (many_large_copies, []),
        (layout_changes_without_convolutions, []),
        (pairs_of_pointwise, []),
        (shape_from_values, ["PA604"]),
        (chooses_algorithms, ["PA908"]),
        (copy_that_blocks, ["PA104"]),
        (reduced_one_by_one, ["PA708"]),
        (in_buckets, ["PA903"]),
        (in_tf32, ["PA304"]),
        (graph_breaks, ["PA909"]),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_what_a_check_sees(story: Story, rules: list[str], tmp_path: Path) -> None:
    assert rules_of(story, tmp_path) == rules


def test_warm_up_is_told_from_usual_steps(tmp_path: Path) -> None:
    host = Host()
    for number in range(6):
        with host.step():
            if number == 0:
                for _ in range(10):
                    host.allocate(4_000)
            step_of_training(host, layers=5)
            host.catch_up()
    result = analyse(TraceFile(str(host.write(tmp_path / "trace.json"))))
    (device,) = result.devices
    assert "warm-up" in device.notes
    (finding,) = result.findings
    assert finding.rule == "PA908"
    assert finding.message.startswith("the first of 6 steps is warm-up")


def test_code_that_is_compiled_again(tmp_path: Path) -> None:
    def story(host: Host) -> None:
        host.catch_up()
        with host.annotation("_compile.compile_inner (dynamo_timed)"):
            host.python(30_000)
        step_of_training(host, layers=5)

    assert rules_of(story, tmp_path) == ["PA909"]
    assert rules_of(story, tmp_path, steps=1) == ["PA908"]


def test_memory_that_is_taken_for_each_tensor(tmp_path: Path) -> None:
    def story(host: Host) -> None:
        for _ in range(15):
            host.allocate(800)
            host.kernel(GEMM, 100)
            host.allocate(300, "cudaFree")

    (finding, *_) = result_of(story, tmp_path).findings
    assert finding.rule == "PA906"
    assert finding.message.startswith("the allocator keeps no memory (`cudaFree`, `cudaMalloc`, 30 times a step)")


def test_every_rule_of_traces_has_a_check_and_the_other_way_round() -> None:
    checked = {rule for rules, _ in all_checks() for rule in rules} | OF_RANKS
    assert {rule.id for rule in all_rules().values() if rule.found_in == "trace"} <= checked <= set(all_rules())


def test_one_finding_a_rule(tmp_path: Path) -> None:
    """Copies that are waited for and copies during which nothing else runs are one finding, with both in its saving."""

    def story(host: Host) -> None:
        step_of_training(host, layers=5)
        host.copy(3_000, blocking=True)
        host.python(3_000)

    result = result_of(story, tmp_path)
    (finding,) = result.findings
    assert finding.rule == "PA102"
    assert ". Copies to the device come from memory that is not pinned" in finding.message
    shares = result.devices[0].shares
    assert finding.share == pytest.approx(shares["memory_exposed"] + shares["idle_sync"], abs=0.01)


def with_buffers(host: Host, number: int, mark: str = "DistributedDataParallel.forward") -> None:
    with host.annotation(mark):
        for _ in range(number):
            with host.annotation("nccl:broadcast"):
                host.kernel("ncclDevKernel_Broadcast_RING_LL(ncclDevComm*)", 300, "c10d::broadcast_")
        host.kernel(GEMM, 5_000)
    host.kernel(ALL_REDUCE, 1_000, "nccl:all_reduce")


def test_buffers_that_every_forward_pass_broadcasts(tmp_path: Path) -> None:
    result = result_of(lambda host: with_buffers(host, 2), tmp_path)
    assert "buffer-broadcasts" in result.devices[0].notes
    (finding,) = (one for one in result.findings if one.rule == "PA903")
    assert "broadcasts the model's buffers before each forward pass (2 times a step, 600 µs a step)" in finding.message


def test_other_broadcasts_are_no_buffers(tmp_path: Path) -> None:
    """Those of a program of its own, and those with which the model is made alike once."""
    other = result_of(lambda host: with_buffers(host, 2, "my::forward"), tmp_path)
    host = Host()
    for number in range(6):
        with host.step():
            with_buffers(host, 0 if number else 3)
    for result in (other, analyse(TraceFile(str(host.write(tmp_path / "once.json"))))):
        assert "buffer-broadcasts" not in result.devices[0].notes
        assert all("buffers" not in one.message for one in result.findings)


def test_a_graph_holds_kernels_of_the_same_shape(tmp_path: Path) -> None:
    def story(host: Host, grids: list[int]) -> None:
        for grid in grids:
            host.kernel(RELU, 2.0, "aten::relu", host=12.0, grid=[grid, 1, 1])

    same, other = Host(), Host()
    for number in range(4):
        with same.step():
            story(same, [8] * 60)
        with other.step():
            story(other, [8 + number] * 60)
    said = [
        next(
            one.message
            for one in analyse(TraceFile(str(host.write(tmp_path / "a.json")))).findings
            if one.rule == "PA902"
        )
        for host in (same, other)
    ]
    assert "a row of 60 kernels and copies that is the same in every step" in said[0]
    assert "a CUDA graph could hold them" not in said[1]


def test_a_graph_is_one_launch(tmp_path: Path) -> None:
    """Its kernels run while the call that launches it is still under way: what the device needs between them is its own."""
    host = Host()
    for _ in range(4):
        with host.step():
            for _ in range(10):
                correlation = host._call("cudaGraphLaunch", 500.5)
                for kernel in range(50):
                    start = host.now - 498 + 10 * kernel
                    at = {"device": 0, "stream": 7, "correlation": correlation}
                    host.event("kernel", RELU, start, start + 6, thread=7, **at)
    result = analyse(TraceFile(str(host.write(tmp_path / "a.json"))))
    assert result.devices[0].shares["idle_other"] > 0.3
    assert "PA902" not in [one.rule for one in result.findings]


def small_kernels(host: Host, number: int) -> None:
    """Each keeps the device busy for 4 us and the host for 14."""
    for _ in range(number):
        host.kernel(RELU, 4, "aten::relu", host=14)


def catches_up(host: Host) -> None:
    """Behind the read of the loss the device runs dry until the host is ahead again: 60 ms of work are launched in 7 ms."""
    small_kernels(host, 400)
    for _ in range(60):
        host.kernel(GEMM, 1_000)
    host.item()


def catches_up_until_the_queue_is_full(host: Host) -> None:
    """A launch then waits for room in the queue, which is no work of the host."""
    small_kernels(host, 400)
    for _ in range(10):
        host.kernel(GEMM, 1_000)
    for _ in range(50):
        with host.operator("aten::mm"):
            host.python(5)
            host._launch("cudaLaunchKernel", "kernel", GEMM, 1_000, 7, 995, {})
    host.item()


def falls_behind_between_two_reads(host: Host) -> None:
    """Between the reads the host takes longer than the device, whatever the rest of the step is like."""
    for _ in range(20):
        host.kernel(GEMM, 1_000)
    host.item()
    small_kernels(host, 400)
    host.item()


@pytest.mark.parametrize(
    ("story", "said"),
    [
        (catches_up, ""),
        (catches_up_until_the_queue_is_full, ""),
        (falls_behind_between_two_reads, "the host takes 5.6 ms a step to launch work of 1.6 ms."),
        (lambda host: small_kernels(host, 400), "the host takes 5.6 ms a step to launch work of 1.6 ms."),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_launching_is_compared_with_the_work(story: Story, said: str, tmp_path: Path) -> None:
    """In all of these most launches come to a device that has nothing to do."""
    result = result_of(story, tmp_path)
    assert result.devices[0].shares["idle_launch"] > 0.05
    found = [one.message for one in result.findings if one.rule == "PA902"]
    assert bool(found) == bool(said)
    assert all(said in message for message in found)


def test_gradients_of_unknown_size_that_are_reduced_one_by_one(tmp_path: Path) -> None:
    def story(host: Host, passes: list[str]) -> None:
        for name in passes:
            for _ in range(60):
                with host.operator(name):
                    host.kernel("ncclKernel_AllReduce_RING_LL_Sum_float", 50, "nccl:all_reduce", stream=13)
        host.catch_up()

    backward = "autograd::engine::evaluate_function: AddmmBackward0"
    assert "PA708" in rules_of(lambda host: story(host, [backward, backward]), tmp_path)
    assert "PA708" not in rules_of(lambda host: story(host, ["MyLayer", backward]), tmp_path)


def test_communication_that_is_hidden_well_is_no_finding(tmp_path: Path) -> None:
    def story(host: Host) -> None:
        host.kernel("ncclDevKernel_AllReduce_Sum_f32_RING_LL", 10_000, "nccl:all_reduce", stream=13)
        host.kernel(GEMM, 9_700)

    assert rules_of(story, tmp_path) == []


def test_a_wait_costs_at_most_as_long_as_the_host_waits(tmp_path: Path) -> None:
    """Without the wait, all that follows would begin earlier by as much as the host has waited, and by no more."""

    def story(host: Host) -> None:
        host.kernel(GEMM, 2_000)
        host.item()
        with host.frame("train.py(50): plot"):
            host.python(50_000)

    found = {one.rule: one for one in result_of(story, tmp_path).findings}
    assert found["PA601"].share == pytest.approx(2 / 52, rel=0.1)
    assert found["PA910"].share == pytest.approx(50 / 52, rel=0.1)
    assert "train.py:50" in found["PA910"].message


def test_capturing_a_graph_is_the_start_of_a_program(tmp_path: Path) -> None:
    host = Host()
    host.kernel(GEMM, 10)
    host._call("cudaStreamBeginCapture", 10)
    host.python(50_000)
    for _ in range(100):
        host.kernel(RELU, 2.0, "aten::relu", host=30.0)
    host._call("cudaStreamEndCapture", 10)
    host.kernel(GEMM, 10)
    result = analyse(TraceFile(str(host.write(tmp_path / "trace.json"))))
    assert [one.rule for one in result.findings] == ["PA908"]
    assert "graph-capture" in result.devices[0].notes


@pytest.mark.parametrize(
    ("story", "takes"),
    [
        (pointwise_rows, ("compute",)),
        (update_in_a_loop, ("compute", "idle_launch")),
        (tiny_copies, ("memory_exposed", "idle_launch")),
        (chooses_algorithms, ("idle_sync",)),
        (graph_breaks, ("idle_launch", "idle_other")),
        (copy_that_blocks, ("idle_sync", "memory_exposed")),
    ],
)
def test_no_finding_could_save_more_than_what_it_is_of(story: Story, takes: tuple[str, ...], tmp_path: Path) -> None:
    result = result_of(story, tmp_path)
    (finding,) = result.findings
    shares = result.devices[0].shares
    assert 0 < finding.share <= sum(shares[name] for name in takes) + 1e-9


def test_a_short_capture_hides_nothing(tmp_path: Path) -> None:
    host = Host()
    host.kernel(GEMM, 10)
    host._call("cudaStreamBeginCapture", 10)
    host.python(1_000)
    host._call("cudaStreamEndCapture", 10)
    for _ in range(200):
        host.kernel(GEMM, 4_000)
        host.item()
        host.python(3_000)
    result = analyse(TraceFile(str(host.write(tmp_path / "trace.json"))))
    assert "PA601" in [one.rule for one in result.findings]


def test_each_wait_has_what_follows_it(tmp_path: Path) -> None:
    """A wait on an idle device is not that of the next one."""

    def story(host: Host) -> None:
        host.kernel(GEMM, 500)
        host.catch_up()
        host.python(500)
        with host.operator("aten::nonzero"):
            host._call("cudaStreamSynchronize", 900)
        host.kernel(GEMM, 500)
        host.item()

    found = {one.rule: one.share for one in result_of(story, tmp_path, steps=6).findings}
    assert found["PA604"] > 0.1


def test_memory_that_is_given_back_behind_a_read_is_the_allocators_too(tmp_path: Path) -> None:
    """`loss.item()` and `torch.cuda.empty_cache()`: without the read the calls of the driver would wait themselves."""

    def story(host: Host) -> None:
        step_of_training(host)
        host.item()
        for name in ("cudaFree", "cudaMalloc"):
            for _ in range(4):
                host.allocate(2_000, name)

    result = result_of(story, tmp_path)
    (churn,) = (one for one in result.findings if one.rule == "PA906")
    assert churn.seconds_per_step == pytest.approx(16e-3, rel=0.01)
    assert "PA601" in [one.rule for one in result.findings]
    shares = result.devices[0].shares
    assert shares["idle_allocation"] == 0 < shares["idle_sync"]  # each instant has one cause
