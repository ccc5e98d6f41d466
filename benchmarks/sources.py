"""What our sources claim, measured again on this machine: `python benchmarks/sources.py [--device cuda] [--only NAME]`.

Each case is one headline: a baseline, candidates, and what the source says of them. Every case runs in fresh processes
(--processes, 5), each process holds all variants of its case, and every round has each of them twice, in random order and
then in the reverse order. The log ratios of the rounds give an interval, as they do in `perfaudit tune`. A block is timed
from an idle device to an idle device: by `perf_counter` on the CPU, by events on an accelerator; the first call after a
change of variant is not timed.

Prints a table and writes it, with every round, to OUTPUT.json and OUTPUT.md (benchmarks/sources_cpu unless --output says
otherwise). --render OUTPUT.json writes the table anew from the rounds that are stored, and measures nothing.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import random
import statistics
import subprocess
import sys
import tempfile
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from perfaudit.machine.limits import load_average, usable_cores
from perfaudit.measure.stats import TooFewRounds, ratio_interval

if TYPE_CHECKING:
    from torch import Tensor, nn
    from torch.utils.data import DataLoader

Call = Callable[[], None]  # one epoch, step, update or evaluation, launched on the device
Variants = dict[str, Call]
Round = dict[str, list[float]]  # seconds per call by variant: in the first half of the round, and in the second

BLOCK_S = 0.05  # shorter blocks measure the clock and the scheduler
LONG_CALL_S = 0.1  # a call this long outweighs what changing the variant costs (0.5 to 5.5 % of a short step)
MOST_ROUNDS = 25  # of a process; an interval over more gains little and its quantile takes long
FEWEST_PER_PROCESS = 1  # of long calls; the interval rests on the processes
DECAY = 0.999  # of every average
AHEAD_CALLS = 10  # in a block; each follows a sleep of the device
AHEAD_CYCLES = 40_000_000  # of the device, some 20 ms: it sleeps while the host launches, so only its own time is seen

GUIDE = "[tuning guide](https://docs.pytorch.org/tutorials/recipes/recipes/tuning_guide.html)"
TALK = f"{GUIDE} and [its talk](https://nvlabs.github.io/eccv2020-mixed-precision-tutorial/), Quadro RTX 8000"
LERP = "[d2go 493](https://github.com/facebookresearch/d2go/pull/493)"
BEFORE = "[d2go 494](https://github.com/facebookresearch/d2go/pull/494)"
WRAPPER = "[PyTorch 94820](https://github.com/pytorch/pytorch/pull/94820)"
MASK_RCNN = (
    "[Mask R-CNN work](https://aws.amazon.com/blogs/machine-learning/"
    "aws-and-nvidia-achieve-the-fastest-training-times-for-mask-r-cnn-and-t5-3b/)"
)
BULKING = "[MXNet 13890](https://github.com/apache/mxnet/pull/13890)"


@dataclass(frozen=True)
class Place:
    """Where a case is built. `tiny` is for tests: smallest sizes, nothing is compiled to machine code."""

    device: str
    tiny: bool = False

    @property
    def cuda(self) -> bool:
        return self.device.startswith("cuda")

    def size(self, cpu: int, cuda: int, tiny: int) -> int:
        return tiny if self.tiny else cuda if self.cuda else cpu


@dataclass(frozen=True)
class Figure:
    """A source's words, and what they mean for the time: candidate / baseline lies between low and high."""

    text: str
    low: float
    high: float


@dataclass(frozen=True)
class Case:
    """One headline. `candidates` has the source's figure, or None for what we put beside it."""

    name: str
    headline: str
    source: str
    unit: str  # of work in one call
    baseline: str
    candidates: dict[str, Figure | None]
    build: Callable[[Place], Variants]
    elsewhere: dict[str, str] = field(default_factory=dict)  # by device: why the case does not apply there
    notes: dict[str, str] = field(default_factory=dict)  # by device: what a reader has to know of this setting
    ahead: bool = False  # on an accelerator the host is let run ahead, so that the device's own time is measured
    apart: bool = False  # each variant has processes of its own, because one process cannot hold several


# --- Loader: a training in the manner of PyTorch's MNIST example


class Digits:
    """Images of 28x28 bytes, compressed as in a file, decoded and normalised one at a time in `__getitem__`."""

    def __init__(self, count: int) -> None:
        drawn = random.Random(0)
        stroke = bytes(drawn.choice((0, 0, 0, 96, 255)) for _ in range(28 * 28))  # as sparse as a digit
        self.stored = [zlib.compress(stroke[shift:] + stroke[:shift]) for shift in range(256)]
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        import torch

        pixels = torch.frombuffer(bytearray(zlib.decompress(self.stored[index % 256])), dtype=torch.uint8)
        return pixels.view(1, 28, 28).float().div_(255).sub_(0.1307).div_(0.3081), index % 10


def mnist_model() -> nn.Module:
    """The network of the example: two 3x3 convolutions of 32 and 64 filters, dropout, two linear layers."""
    from torch import nn

    features = [nn.Conv2d(1, 32, 3), nn.ReLU(), nn.Conv2d(32, 64, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Dropout(0.25)]
    head = [nn.Flatten(), nn.Linear(9216, 128), nn.ReLU(), nn.Dropout(0.5), nn.Linear(128, 10)]
    return nn.Sequential(*features, *head)


def mnist_loader(place: Place) -> Variants:
    import torch
    from torch.nn import functional as F
    from torch.utils.data import DataLoader

    digits = Digits(place.size(cpu=512, cuda=60_000, tiny=16))
    model = mnist_model().to(place.device)
    optimizer = torch.optim.Adadelta(model.parameters(), lr=1.0)

    def epoch(loader: DataLoader[Any]) -> Call:
        def run() -> None:
            for images, targets in loader:
                images = images.to(place.device, non_blocking=True)
                targets = targets.to(place.device, non_blocking=True)
                optimizer.zero_grad()
                F.cross_entropy(model(images), targets).backward()
                optimizer.step()

        return run

    def loader(workers: int, pinned: bool) -> DataLoader[Any]:
        size = place.size(cpu=64, cuda=64, tiny=8)
        return DataLoader(digits, size, shuffle=True, num_workers=workers, pin_memory=pinned)  # type: ignore[arg-type]  # has both methods

    return {
        "0 workers": epoch(loader(0, False)),
        "4 workers, pinned": epoch(loader(1 if place.tiny else 4, True)),
        "as many workers as cores, pinned": epoch(loader(1 if place.tiny else usable_cores(), True)),
    }


# --- cuDNN


def cudnn_convolution(place: Place) -> Variants:
    import torch

    torch.backends.cudnn.allow_tf32 = False  # the source's device has none
    side = place.size(cpu=64, cuda=64, tiny=8)
    convolution = torch.nn.Conv2d(64, 64, 3, padding=1).to(place.device)
    images = torch.randn(place.size(cpu=32, cuda=32, tiny=2), 64, side, side, device=place.device)

    def forward(benchmark: bool) -> Call:
        def run() -> None:
            torch.backends.cudnn.benchmark = benchmark
            with torch.no_grad():
                convolution(images)

        return run

    return {"benchmark off": forward(False), "benchmark on": forward(True)}


# --- Fusion


def compiled(function: Any, place: Place, mode: str | None = None) -> Any:  # a function or a module, as it came
    import torch

    if place.tiny:
        return torch.compile(function, backend="eager", dynamic=False)
    return torch.compile(function, dynamic=False, mode=mode)


def gelu_variants(place: Place, backward: bool) -> Variants:
    import families
    import torch
    from torch.nn import functional as F

    x = torch.randn(place.size(cpu=1_000_000, cuda=1_000_000, tiny=100), device=place.device, requires_grad=backward)
    ones = torch.ones_like(x)

    def evaluation(function: Callable[[Tensor], Tensor]) -> Call:
        def run() -> None:
            y = function(x)
            if backward:
                torch.autograd.grad(y, x, ones)

        return run

    return {
        "written out, eager": evaluation(families.gelu),
        "torch.jit.script": evaluation(torch.jit.script(families.gelu)),
        "torch.compile": evaluation(compiled(families.gelu, place)),
        "F.gelu": evaluation(F.gelu),
    }


# --- Averages


def family(name: str, place: Place) -> tuple[nn.Module, Tensor, Tensor]:
    """A model in training mode with a batch for it."""
    import families
    import torch

    side = place.size(cpu=32, cuda=224, tiny=32)
    batch = place.size(cpu=2, cuda=32, tiny=2)
    torch.manual_seed(0)
    model = families.FAMILIES[name](side).to(place.device)
    images = torch.randn(batch, 3, side, side, device=place.device)
    return model, images, torch.randint(0, 1000, (batch,), device=place.device)


def mul_add(average: list[Tensor], weights: list[Tensor]) -> None:
    for kept, weight in zip(average, weights, strict=True):
        kept.mul_(DECAY).add_(weight, alpha=1 - DECAY)


def lerp(average: list[Tensor], weights: list[Tensor]) -> None:
    for kept, weight in zip(average, weights, strict=True):
        kept.lerp_(weight, 1 - DECAY)


def foreach_lerp(average: list[Tensor], weights: list[Tensor]) -> None:
    import torch

    torch._foreach_lerp_(average, weights, 1 - DECAY)


def average_alone(place: Place, name: str) -> Variants:
    import families
    import torch

    weights = [p.detach().to(place.device) for p in families.FAMILIES[name](32).parameters()]
    average = [torch.randn_like(weight) for weight in weights]

    def update(function: Callable[[list[Tensor], list[Tensor]], None]) -> Call:
        return lambda: function(average, weights)

    return {"mul_, add_": update(mul_add), "lerp_": update(lerp), "_foreach_lerp_": update(foreach_lerp)}


def average_before_step(place: Place) -> Variants:
    """A step whose host waits for the gradients' norm; the average, parameter by parameter, in front of that or last."""
    import torch
    from torch.nn import functional as F

    model, images, targets = family("ResNet-50" if place.cuda else "ResNet-18", place)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4, momentum=0.9)
    weights = [p.detach() for p in model.parameters()]
    average = [weight.clone() for weight in weights]

    def step(when: str) -> Call:
        def run() -> None:
            optimizer.zero_grad()
            F.cross_entropy(model(images), targets).backward()
            if when == "before":
                lerp(average, weights)
            if torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0).isfinite().item():  # the host waits here
                optimizer.step()
            if when == "after":
                lerp(average, weights)
            if place.cuda:
                torch.cuda.synchronize()  # as where each iteration reads its loss: else the host just runs ahead

        return run

    return {"after the step": step("after"), "before the step": step("before"), "no average": step("never")}


class AverageBesideStep:
    """The average that the optimizer wrapper keeps: one foreach update, on a stream of its own where there are streams.

    The wrapper's own code waits on the host when streams are joined; here the next step waits on the device.
    """

    def __init__(self, model: nn.Module, place: Place) -> None:
        import torch

        self.weights = [p.detach() for p in model.parameters()]
        self.average = [weight.clone() for weight in self.weights]
        self.stream = torch.cuda.Stream() if place.cuda else None

    def join(self) -> None:
        """To be called before weights change again."""
        import torch

        if self.stream is not None:
            torch.cuda.current_stream().wait_stream(self.stream)

    def update(self) -> None:
        import torch

        if self.stream is None:
            return foreach_lerp(self.average, self.weights)
        self.stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.stream):
            foreach_lerp(self.average, self.weights)
        return None


def average_wrapper(place: Place, name: str) -> Variants:
    import torch
    from torch.nn import functional as F
    from torch.optim.swa_utils import AveragedModel, get_ema_avg_fn, get_ema_multi_avg_fn

    model, images, targets = family(name, place)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4, momentum=0.9)
    beside = AverageBesideStep(model, place)
    plain = AveragedModel(model, avg_fn=get_ema_avg_fn(DECAY))
    several = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(DECAY))

    def step(update: Call) -> Call:
        def run() -> None:
            optimizer.zero_grad()
            F.cross_entropy(model(images), targets).backward()
            beside.join()
            optimizer.step()
            update()

        return run

    return {
        "AveragedModel(avg_fn)": step(lambda: plain.update_parameters(model)),
        "foreach behind optimizer.step": step(beside.update),
        "AveragedModel(multi_avg_fn)": step(lambda: several.update_parameters(model)),
    }


# --- Small batches


def small_batches(place: Place, batch: int) -> Variants:
    """A whole training step of a small ResNet, or of ResNet-50 on an accelerator, where launching it is most of the time."""
    import families
    import torch
    from torch.nn import functional as F

    torch.manual_seed(0)
    if place.cuda:
        model = families.FAMILIES["ResNet-50"](64)
    else:
        model = families.resnet((1, 1, 1, 1), bottleneck=False, width=16)
    model.to(place.device)
    side = place.size(cpu=32, cuda=64, tiny=32)
    images = torch.randn(batch, 3, side, side, device=place.device)
    targets = torch.randint(0, 1000, (batch,), device=place.device)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4, momentum=0.9)

    def step(forward: Callable[[Tensor], Tensor]) -> Call:
        def run() -> None:
            optimizer.zero_grad()
            F.cross_entropy(forward(images), targets).backward()
            optimizer.step()

        return run

    variants = {"eager": step(model), "torch.compile": step(compiled(model, place))}
    if place.cuda:
        reduced = compiled(model, place, "reduce-overhead")
        variants['torch.compile(mode="reduce-overhead")'] = step(reduced)
        variants["whole step in a CUDA graph"] = graphed(step(model))
    return variants


def graphed(call: Call) -> Call:
    """The same launches, recorded once and replayed as one. Warmed up on a side stream, as recording asks for."""
    import torch

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            call()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call()
    return graph.replay


# --- Mask R-CNN: what its loss asks of the host


def chosen_boxes(place: Place) -> Variants:
    """The box loss of the anchors that hold an object: picked out by a mask, whose number the host must know, or weighted."""
    import torch
    from torch.nn import functional as F

    count = place.size(cpu=20_000, cuda=200_000, tiny=64)
    boxes = torch.randn(count, 4, device=place.device, requires_grad=True)
    targets = torch.randn(count, 4, device=place.device)
    chosen = torch.rand(count, device=place.device) < 0.25

    def picked() -> None:
        F.smooth_l1_loss(boxes[chosen], targets[chosen]).backward()

    def weighted() -> None:
        losses = F.smooth_l1_loss(boxes, targets, reduction="none").mean(1)
        (torch.where(chosen, losses, 0.0).sum() / chosen.sum()).backward()

    return {"boxes picked by a mask": picked, "losses weighted by it": weighted}


def box_head(place: Place) -> Variants:
    """The part of a detector whose shapes stay: a head over a fixed number of boxes, forward and backward."""
    import torch
    from torch import nn

    boxes, width = place.size(cpu=64, cuda=512, tiny=4), place.size(cpu=64, cuda=256, tiny=4)
    head = nn.Sequential(
        nn.Flatten(), nn.Linear(49 * width, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 8)
    ).to(place.device)
    features = torch.randn(boxes, width, 7, 7, device=place.device)

    def step() -> None:
        head(features).square().mean().backward()

    variants: Variants = {"launched one by one": step}
    if place.cuda:
        variants["section in a CUDA graph"] = graphed(step)
    return variants


# --- The headlines

_FUSED = Figure("close to 4×", 0.25, 0.30)
_BULK = Figure("5700 → 5910 and 570 → 620 images/s", 570 / 620, 5700 / 5910)
_WRAPPED = ("ResNet-18", "ResNet-34", "ResNet-50", "ResNet-101", "ViT-Tiny", "ViT-Small", "ViT-Base")


def _gelu_case(name: str, headline: str, backward: bool) -> Case:
    return Case(
        name,
        headline,
        GUIDE,
        "evaluation",
        "written out, eager",
        {"torch.jit.script": None if backward else _FUSED, "torch.compile": _FUSED, "F.gelu": None},
        lambda place: gelu_variants(place, backward),
        notes={"cpu": "memory traffic and allocation are saved here, not launches"},
    )


def _lerp_case(model: str) -> Case:
    return Case(
        f"ema-lerp-{model.lower()}",
        f"EMA update alone, {model}",
        LERP,
        "update",
        "mul_, add_",
        {"lerp_": Figure("−40 % GPU time", 0.6, 0.6), "_foreach_lerp_": None},
        lambda place: average_alone(place, model),
        ahead=True,
        notes={"cpu": "processor time instead of GPU time: one pass over memory instead of two"},
    )


def _wrapper_case(model: str) -> Case:
    return Case(
        f"ema-wrapper-{model.lower()}",
        f"EMA wrapper, whole step, {model}",
        WRAPPER,
        "step",
        "AveragedModel(avg_fn)",
        {
            "foreach behind optimizer.step": Figure("1.00–1.46× over its models", 1 / 1.46, 1.0),
            "AveragedModel(multi_avg_fn)": None,
        },
        lambda place: average_wrapper(place, model),
        notes={
            "cpu": "batch 2 of 32×32, so the average's part of the step is large; nothing runs beside the step",
            "cuda": "batch 32 of 224×224; `multi_avg_fn` came with torch 2.1, after the source",
        },
    )


def _bulk_case(batch: int) -> Case:
    return Case(
        f"small-batch-{batch}",
        f"operator bulking and CUDA graphs, batch {batch}",
        BULKING,
        "step",
        "eager",
        {
            "torch.compile": _BULK,
            'torch.compile(mode="reduce-overhead")': _BULK,
            "whole step in a CUDA graph": _BULK,
        },
        lambda place: small_batches(place, batch),
        notes={
            "cpu": "another mechanism: no launches to bulk; the compiler fuses operators and saves their dispatch. "
            "4-block ResNet, 32×32",
            "cuda": "ResNet-50, 64×64; the source bulked MXNet operators of larger batches",
        },
    )


CASES = (
    Case(
        "mnist-loader",
        "loader settings, MNIST-like training",
        TALK,
        "epoch",
        "0 workers",
        {
            "4 workers, pinned": Figure("6.7 → 4.1 s", 4.1 / 6.7, 4.1 / 6.7),
            "as many workers as cores, pinned": None,
        },
        mnist_loader,
        notes={
            "cpu": "epoch of 512 images; the training itself is on the processor, so workers can hide only the "
            "decoding, and starting them is in the epoch; pinning does nothing here",
            "cuda": "epoch of 60,000 synthetic images",
        },
    ),
    Case(
        "cudnn-benchmark",
        "`cudnn.benchmark`, 64 filters 3×3, batch 32, 64×64, forward",
        TALK,
        "forward",
        "benchmark off",
        {"benchmark on": Figure("1430 → 840 µs", 840 / 1430, 840 / 1430)},
        cudnn_convolution,
        elsewhere={"cpu": "does not apply here: the flag is read by cuDNN only"},
        apart=True,  # a process may keep the plan it chose for a shape, whatever the flag says later
    ),
    _gelu_case("gelu-forward", "GELU written out, fused, 1 M elements, forward", backward=False),
    _gelu_case("gelu-backward", "GELU written out, fused, 1 M elements, forward and backward", backward=True),
    _lerp_case("ResNet-50"),
    _lerp_case("ViT-Small"),
    Case(
        "ema-before-step",
        "EMA before the optimizer's step, whole step",
        BEFORE,
        "step",
        "after the step",
        {"before the step": Figure("20 → 4 ms for the average", 1.0, 1.0), "no average": None},
        average_before_step,
        notes={
            "cpu": "does not apply here: the gain is host time that passes while the host waits for the device, and the CPU "
            "has nothing to wait for; measured only to show that moving it costs nothing either",
            "cuda": "the source counts the average's part of the step; so do the milliseconds in brackets",
        },
    ),
    *(_wrapper_case(model) for model in _WRAPPED),
    *(_bulk_case(batch) for batch in (2, 4)),
    Case(
        "sync-free-loss",
        "box loss of a detector without asking how many boxes there are",
        MASK_RCNN,
        "loss",
        "boxes picked by a mask",
        {"losses weighted by it": None},
        chosen_boxes,
        notes={"cpu": "another mechanism: the host is the device and waits for nothing; picking is work of its own"},
    ),
    Case(
        "graphable-section",
        "graphable section of a detector, forward and backward",
        MASK_RCNN,
        "section",
        "launched one by one",
        {"section in a CUDA graph": None},
        box_head,
        elsewhere={"cpu": "does not apply here: the CPU has no graphs to capture"},
    ),
)


# --- One process


class Clock:
    """Seconds per call of a block, from an idle device to an idle device."""

    def __init__(self, place: Place, ahead: bool) -> None:
        self.place, self.ahead = place, ahead and place.cuda

    def wait(self) -> None:
        import torch

        if self.place.cuda:
            torch.cuda.synchronize()

    def block(self, call: Call, count: int) -> float:
        self.wait()
        if not self.place.cuda:
            start = time.perf_counter()
            for _ in range(count):
                call()
            return (time.perf_counter() - start) / count
        import torch

        spans: list[tuple[torch.cuda.Event, torch.cuda.Event]] = []
        # One span over the block; where the host shall run ahead, one a call, each behind a sleeping device.
        for calls in [1] * count if self.ahead else [count]:
            first, last = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            if self.ahead:
                torch.cuda._sleep(AHEAD_CYCLES)
            first.record()
            for _ in range(calls):
                call()
            last.record()
            spans.append((first, last))
        self.wait()
        return float(sum(first.elapsed_time(last) for first, last in spans)) / 1000 / count


def rounds_of(variants: Variants, clock: Clock, seconds: float, seed: int) -> list[Round]:
    """Rounds of one process: at least FEWEST_PER_PROCESS, then until `seconds` have passed. All variants are warm before."""
    once: dict[str, float] = {}
    for name, call in variants.items():
        call()  # compiles, allocates, fills caches
        once[name] = clock.block(call, 1)
        if once[name] < LONG_CALL_S:
            once[name] = clock.block(call, 3)
    count = {name: max(1, math.ceil(BLOCK_S / max(per_call, 1e-7))) for name, per_call in once.items()}
    if clock.ahead:
        count = {name: min(calls, AHEAD_CALLS) for name, calls in count.items()}
    drawn = random.Random(seed)
    found: list[Round] = []
    end = time.perf_counter() + seconds
    while len(found) < FEWEST_PER_PROCESS or (time.perf_counter() < end and len(found) < MOST_ROUNDS):
        order = drawn.sample(list(variants), len(variants))
        current: Round = {name: [] for name in variants}
        for name in [*order, *reversed(order)]:
            if once[name] < LONG_CALL_S:
                variants[name]()
            current[name].append(clock.block(variants[name], count[name]))
        found.append(current)
    return found


def child(case: Case, options: argparse.Namespace) -> dict[str, Any]:
    """What one process says: its rounds, the device's name, the machine's load."""
    import torch

    place = Place(options.device)
    torch.set_num_threads(options.threads)
    if place.cuda:
        torch.cuda.set_device(torch.device(options.device).index or 0)
    load = load_average()
    variants = case.build(place)
    if options.variant:
        variants = {options.variant: variants[options.variant]}
    rounds = rounds_of(variants, Clock(place, case.ahead), options.seconds, options.seed)
    return {"rounds": rounds, "load": load, "device": device_name(place)}


def device_name(place: Place) -> str:
    import torch

    version = torch.__version__.split("+")[0]
    if place.cuda:
        return f"{torch.cuda.get_device_name()}, torch {version}"
    kind = "x86" if platform.machine() in ("x86_64", "AMD64") else platform.machine()
    return f"{usable_cores()}-core {kind} CPU, torch {version}"


# --- All processes


def measure(options: argparse.Namespace, cases: Sequence[Case]) -> Iterator[dict[str, Any]]:
    """Everything measured so far, as it is stored, after each generation of processes.

    Cases take turns, so that no case has all of a bad time, and whoever stops early has some of each.
    """
    stored: dict[str, Any] = {
        "command": f"python benchmarks/sources.py --device {options.device} --seconds {options.seconds:g} "
        f"--processes {options.processes} --threads {options.threads}",
        "device_kind": "cuda" if options.device.startswith("cuda") else options.device,
        "threads": options.threads,
        "device": "",
        "cases": {case.name: {"processes": [], "loads": [], "error": ""} for case in cases},
    }
    with tempfile.TemporaryDirectory() as cache:  # a case is compiled once, by its first process
        for generation in range(options.processes):
            for case in cases:
                entry = stored["cases"][case.name]
                if stored["device_kind"] in case.elsewhere or entry["error"]:
                    continue
                print(f"{generation + 1}/{options.processes} {case.name}", file=sys.stderr)
                said = run_case(options, case, generation, Path(cache))
                if isinstance(said, str):
                    entry["error"] = said
                    continue
                entry["processes"].append(said["rounds"])
                entry["loads"].append(said["load"])
                stored["device"] = said["device"]
            yield stored


def run_case(options: argparse.Namespace, case: Case, seed: int, cache: Path) -> dict[str, Any] | str:
    """What a fresh process says of a case, or one process a variant together; where there is nothing, why, in one line."""
    if not case.apart:
        return run_child(options, case, seed, cache)
    together: dict[str, Any] = {}
    for variant in (case.baseline, *case.candidates):
        said = run_child(options, case, seed, cache, variant)
        if isinstance(said, str):
            return said
        rounds = together["rounds"] if together else [{}] * len(said["rounds"])
        together = said | {"rounds": [before | now for before, now in zip(rounds, said["rounds"], strict=False)]}
    return together


def run_child(
    options: argparse.Namespace, case: Case, seed: int, cache: Path, variant: str = ""
) -> dict[str, Any] | str:
    """What a fresh process says of a case, or in one line why it says nothing."""
    environment = os.environ | {
        "OMP_WAIT_POLICY": "PASSIVE",
        "OMP_NUM_THREADS": str(options.threads),
        "PYTHONWARNINGS": "ignore",
        "TORCHINDUCTOR_CACHE_DIR": str(cache),
        "TORCHINDUCTOR_COMPILE_THREADS": "1",  # no pool of compilers beside what is measured
    }
    command = [sys.executable, __file__, "--child", case.name, "--device", options.device, "--seed", str(seed)]
    command += ["--threads", str(options.threads), "--seconds", str(options.seconds / options.processes)]
    command += ["--variant", variant] if variant else []
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=options.seconds + 300, env=environment, check=False
        )
    except subprocess.TimeoutExpired as late:
        return f"not finished after {late.timeout:.0f} s"
    if done.returncode:
        return (done.stderr.strip().splitlines() or [f"the process left with {done.returncode}"])[-1]
    said: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return said


# --- The table


@dataclass(frozen=True)
class Result:
    """A candidate against its baseline: ratio of the time with its interval, and medians in seconds per call."""

    ratio: float
    low: float
    high: float
    base_s: float
    candidate_s: float


def log_ratios(processes: Sequence[Sequence[Round]], base: str, candidate: str) -> list[list[float]]:
    """One list a process, one value a round: both halves of the round together, so that drift cancels."""

    def level(current: Round, name: str) -> float:
        return statistics.fmean(math.log(seconds) for seconds in current[name])

    return [[level(current, candidate) - level(current, base) for current in rounds] for rounds in processes]


def median_s(processes: Sequence[Sequence[Round]], name: str) -> float:
    return statistics.median(seconds for rounds in processes for current in rounds for seconds in current[name])


def result(processes: Sequence[Sequence[Round]], base: str, candidate: str) -> Result | None:
    """None where there are too few processes for an interval."""
    try:
        ratio, low, high = ratio_interval(log_ratios(processes, base, candidate))
    except TooFewRounds:
        return None
    return Result(ratio, low, high, median_s(processes, base), median_s(processes, candidate))


def outcome(figure: Figure | None, found: Result) -> str:
    """What our interval says of the source's figure, in words.

    Sources give no interval: their figure is reproduced when our centre comes within a tenth of its ratio, or a fifth of its
    gain if that is less.
    """
    undecided = found.low <= 1 <= found.high
    if figure is None:
        return "no figure; undecided" if undecided else f"no figure; {'faster' if found.high < 1 else 'slower'}"
    if figure.low == figure.high == 1:
        return "no difference to be called" if undecided else "faster" if found.high < 1 else "slower"
    if found.low > 1:
        return "not reproduced: slower here"
    if undecided:
        return "undecided here" + (
            "; the source's range begins at 1.00 too" if figure.high >= 1 else ": not reproduced"
        )
    low = figure.low - min(figure.low / 10, (1 - figure.low) / 5)
    high = figure.high + min(figure.high / 10, (1 - figure.high) / 5)
    if low <= found.ratio <= high:
        return "reproduced"
    held = "; the source's figure is inside our interval" if found.low <= high and found.high >= low else ""
    return f"same direction, {'smaller' if found.ratio > high else 'larger'}{held}"


def milliseconds(seconds: float) -> str:
    return f"{seconds * 1000:.3g}" if seconds < 1 else f"{seconds * 1000:,.0f}"


def rows(stored: dict[str, Any], cases: Sequence[Case] = CASES) -> list[list[str]]:
    """Cells of the table: headline, source, source's figure, ours, device, remark."""
    kind, found = stored["device_kind"], []
    for case in cases:
        entry = stored["cases"].get(case.name)
        if entry is None:
            continue
        device = stored["device"]
        note = case.elsewhere.get(kind, "") or (entry["error"] and f"not measured: {entry['error']}")
        first = next(iter(case.candidates.items()))
        if note:
            text = first[1].text if first[1] else "–"
            found.append([case.headline, case.source, text, "–", device, note])
            continue
        note = case.notes.get(kind, "")
        for candidate, figure in case.candidates.items():
            processes, text = entry["processes"], figure.text if figure else "–"
            if processes and candidate not in processes[0][0]:
                continue  # needs another device
            headline = f"{case.headline}: {candidate} against {case.baseline}"
            said = result(processes, case.baseline, candidate)
            if said is None:
                found.append([headline, case.source, text, "–", device, "not measured: too few processes"])
                continue
            ours = (
                f"{said.ratio:.3f} [{said.low:.3f}, {said.high:.3f}]; "
                f"{milliseconds(said.base_s)} → {milliseconds(said.candidate_s)} ms/{case.unit}"
            )
            if case.name == "ema-before-step" and candidate == "before the step":
                ours += average_share(processes)
            remark = outcome(figure, said) + (f"; {note}" if note else "")
            found.append([headline, case.source, text, ours, device, remark])
            note = ""  # once a case
    return found


def average_share(processes: Sequence[Sequence[Round]]) -> str:
    """What the average itself adds to a step, after the step and before it: medians of differences within a round."""
    names = ("after the step", "before the step")
    added = [
        statistics.median(
            statistics.fmean(current[name]) - statistics.fmean(current["no average"])
            for rounds in processes
            for current in rounds
        )
        for name in names
    ]
    return f" (the average adds {added[0] * 1000:.2f} → {added[1] * 1000:.2f} ms)"


HEADER = ("headline", "source", "source's figure", "ours: time ratio [95 % interval]; medians", "device", "remark")


def page(stored: dict[str, Any]) -> str:
    """The table as Markdown, under what a reader must know to use it."""
    loads = [load for entry in stored["cases"].values() for load in entry["loads"] if load is not None]
    counts = sorted({len(entry["processes"]) for entry in stored["cases"].values() if entry["processes"]}) or [0]
    processes = f"{counts[0]}" if counts[0] == counts[-1] else f"{counts[0]} to {counts[-1]}"
    load = f", load average {min(loads):.1f} to {max(loads):.1f}" if loads else ""
    lines = [
        "# Headlines of our sources, measured here",
        "",
        f"`{stored['command']}` on {stored['device']}, {stored['threads']} thread(s){load}.",
        f"Finished processes per case: {processes}; fewer than asked for means that it was stopped early.",
        "",
        "A ratio below 1 means that the candidate is faster. The machine is shared: ratios come from interleaved pairs and",
        "hold, milliseconds are for orientation. Where the source has no figure, the row is there for comparison.",
        "",
        f"| {' | '.join(HEADER)} |",
        f"|{'---|' * len(HEADER)}",
    ]
    lines += [f"| {' | '.join(cell.replace('|', '/') for cell in row)} |" for row in rows(stored)]
    if stored["device_kind"] == "cpu":
        lines += ["", *rank_lines()]
    return "\n".join(lines) + "\n"


def rank_lines() -> list[str]:
    """What several ranks gain, of the runs that `ranks.py` keeps."""
    import ranks
    from records import read

    return [
        "## On two ranks",
        "",
        "`python benchmarks/ranks.py --write` runs them, with gloo on this machine ([ranks.md](ranks.md)).",
        "Seconds of a step with it over those without, in rounds at a load of at most 3.",
        "",
        *ranks.worth(read(ranks.RECORDS)),
    ]


def dumped(stored: dict[str, Any]) -> str:
    """JSON with one round a line, seconds to five digits."""

    def short(value: Any) -> Any:  # whatever JSON can hold
        if isinstance(value, float):
            return float(f"{value:.5g}")
        if isinstance(value, dict):
            return {key: short(item) for key, item in value.items()}
        return [short(item) for item in value] if isinstance(value, list) else value

    head = {key: value for key, value in stored.items() if key != "cases"}
    parts = []
    for name, entry in stored["cases"].items():
        processes = [",\n   ".join(json.dumps(short(current)) for current in rounds) for rounds in entry["processes"]]
        inner = ",\n  ".join(f"[\n   {rounds}]" for rounds in processes)
        rest = json.dumps({key: value for key, value in entry.items() if key != "processes"})
        parts.append(f' {json.dumps(name)}: {rest[:-1]}, "processes": [{inner}]}}')
    return json.dumps(head, ensure_ascii=False)[:-1] + ',\n"cases": {\n' + ",\n".join(parts) + "\n}}\n"


def main() -> None:
    parser = argparse.ArgumentParser(description="The headlines of our sources, measured on this machine.")
    parser.add_argument(
        "--only",
        choices=[case.name for case in CASES],
        action="append",
        metavar="NAME",
        help="other cases in OUTPUT stay",
    )
    parser.add_argument("--seconds", type=float, default=20.0, help="of measuring per case, over all its processes")
    parser.add_argument("--processes", type=int, default=5, help="fresh processes per case")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--output", type=Path, help="without suffix; .json and .md are written")
    parser.add_argument("--render", type=Path, metavar="FILE.json", help="the table of rounds that are stored")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    parser.add_argument("--variant", help=argparse.SUPPRESS)
    parser.add_argument("--seed", type=int, default=0, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        case = next(case for case in CASES if case.name == options.child)
        print(json.dumps(child(case, options)))
        return
    if options.render:
        output = options.render.with_suffix("")
        write(json.loads(options.render.read_text()), output)
        print(output.with_suffix(".md").read_text())
        return
    kind = "cuda" if options.device.startswith("cuda") else options.device
    output = options.output or Path(__file__).with_name(f"sources_{kind}")
    before = {}
    if options.only and output.with_suffix(".json").exists():
        before = json.loads(output.with_suffix(".json").read_text())["cases"]
    chosen = [case for case in CASES if not options.only or case.name in options.only]
    for stored in measure(options, chosen):
        write(stored | {"cases": before | stored["cases"]}, output)
    print(output.with_suffix(".md").read_text())


def write(stored: dict[str, Any], output: Path) -> None:
    output.with_suffix(".json").write_text(dumped(stored))
    output.with_suffix(".md").write_text(page(stored))


if __name__ == "__main__":
    main()
