"""Traces made of what a host and a device do: each operation takes as long as told, and times follow as on a real device."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

LATENCY = 4.0  # microseconds from the return of a launch to the start of the kernel on an idle device
GEMM = "ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_32x5_nn"
SGEMM = "ampere_sgemm_128x64_nn"
RELU = "void at::native::vectorized_elementwise_kernel<4, at::native::relu_kernel>"
ALL_REDUCE = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevComm*, unsigned long, ncclWork*)"
A100 = {"id": 0, "name": "NVIDIA A100-SXM4-40GB", "computeMajor": 8, "computeMinor": 0}


@dataclass
class Host:
    """One process: a clock in microseconds, the events so far, and when each stream of its device is free."""

    rank: int | None = None
    world_size: int = 1
    now: float = 1_000_000.0
    pid: int = 100
    main: int = 100
    events: list[dict[str, Any]] = field(default_factory=list)
    free: dict[int, float] = field(default_factory=dict)
    properties: list[dict[str, Any]] = field(default_factory=lambda: [A100])
    correlation: int = 0
    steps: int = 0

    def event(self, cat: str, name: str, start: float, end: float, thread: int | None = None, **args: Any) -> None:
        tid = self.main if thread is None else thread
        self.events.append(
            {
                "ph": "X",
                "cat": cat,
                "name": name,
                "pid": self.pid,
                "tid": tid,
                "ts": start,
                "dur": end - start,
                "args": args,
            }
        )

    @contextmanager
    def step(self) -> Iterator[None]:
        self.steps += 1
        with self.annotation(f"ProfilerStep#{self.steps}"):
            yield

    @contextmanager
    def annotation(self, name: str) -> Iterator[None]:
        start = self.now
        yield
        self.event("user_annotation", name, start, self.now)

    @contextmanager
    def operator(self, name: str) -> Iterator[None]:
        start = self.now
        yield
        self.event("cpu_op", name, start, self.now)

    @contextmanager
    def frame(self, name: str) -> Iterator[None]:
        start = self.now
        yield
        self.event("python_function", name, start, self.now)

    def python(self, microseconds: float) -> None:
        """The host does something that is not recorded."""
        self.now += microseconds

    def next_batch(self, microseconds: float, workers: bool = True) -> None:
        kind = "MultiProcessing" if workers else "SingleProcess"
        with self.annotation(f"enumerate(DataLoader)#_{kind}DataLoaderIter.__next__"):
            self.now += microseconds

    def kernel(
        self,
        name: str,
        microseconds: float,
        operator: str = "aten::mm",
        host: float = 10.0,
        stream: int = 7,
        **args: Any,
    ) -> None:
        """One operator that launches one kernel; it keeps the host busy for `host` microseconds."""
        with self.operator(operator):
            self.now += host / 2
            self._launch("cudaLaunchKernel", "kernel", name, microseconds, stream, host / 2, args)

    def copy(
        self, microseconds: float, what: str = "HtoD (Pageable -> Device)", blocking: bool = False, moved: int = 1 << 20
    ) -> None:
        with self.operator("aten::copy_"):
            self.now += 2
            done = self._launch(
                "cudaMemcpyAsync", "gpu_memcpy", f"Memcpy {what}", microseconds, 7, 3, {"bytes": moved}, blocking
            )
            if blocking and "DtoH" not in what:
                self.now = max(self.now, done)

    def item(self) -> None:
        """`loss.item()`: a copy to the host, and a wait for it."""
        with self.operator("aten::item"), self.operator("aten::_local_scalar_dense"):
            done = self._launch(
                "cudaMemcpyAsync", "gpu_memcpy", "Memcpy DtoH (Device -> Pageable)", 2, 7, 4, {"bytes": 4}
            )
            self._wait("cudaStreamSynchronize", done)

    def synchronize(self) -> None:
        self._wait("cudaDeviceSynchronize", max(self.free.values(), default=0.0))

    def allocate(self, microseconds: float, name: str = "cudaMalloc") -> None:
        with self.operator("aten::empty"):
            self._call(name, microseconds)

    def catch_up(self) -> None:
        """The host waits as long as the device works, without a call that says so."""
        self.now = max([self.now, *self.free.values()])

    def _call(self, name: str, microseconds: float) -> int:
        self.correlation += 1
        start = self.now
        self.now += microseconds
        self.event("cuda_runtime", name, start, self.now, correlation=self.correlation)
        return self.correlation

    def _wait(self, name: str, until: float) -> None:
        self._call(name, max(2.0, until + 1 - self.now))

    def _launch(
        self,
        call: str,
        cat: str,
        name: str,
        microseconds: float,
        stream: int,
        host: float,
        args: dict[str, Any],
        blocking: bool = False,
    ) -> float:
        begin = max(self.free.get(stream, 0.0), self.now + host + LATENCY)
        end = begin + microseconds
        self.free[stream] = end
        correlation = self._call(call, max(host, end - self.now) if blocking else host)
        at = {"device": 0, "stream": stream, "correlation": correlation, **args}
        self.events.append(
            {"ph": "X", "cat": cat, "name": name, "pid": 0, "tid": stream, "ts": begin, "dur": microseconds, "args": at}
        )
        return end

    def trace(self) -> dict[str, Any]:
        head: dict[str, Any] = {"schemaVersion": 1, "deviceProperties": self.properties}
        if self.rank is not None:
            head["distributedInfo"] = {"backend": "nccl", "rank": self.rank, "world_size": self.world_size}
        return {**head, "traceEvents": self.events, "displayTimeUnit": "ms"}

    def write(self, path: Path) -> Path:
        path.write_text(json.dumps(self.trace()))
        return path


@dataclass
class Job:
    """Several ranks whose collectives end together."""

    ranks: list[Host]

    @classmethod
    def of(cls, number: int) -> Job:
        # Clocks of machines differ: by seconds here.
        return cls([Host(rank=rank, world_size=number, now=1e6 * (1 + rank)) for rank in range(number)])

    def all_reduce(self, microseconds: float = 500.0, name: str = ALL_REDUCE, group: str = "", ranks: str = "") -> None:
        """A collective on the stream of the model: each rank's kernel runs from its coming to the common end."""
        for host in self.ranks:
            host.now += 5
        ready = [
            max(host.free.get(7, 0.0), host.now + 5 + LATENCY) - 1e6 * (1 + (host.rank or 0)) for host in self.ranks
        ]
        end = max(ready) + microseconds
        for begin, host in zip(ready, self.ranks, strict=True):
            with host.operator("nccl:all_reduce"):
                host._launch(
                    "cudaLaunchKernel",
                    "kernel",
                    name,
                    end - begin,
                    7,
                    5,
                    {"Process Group Name": group, "Process Group Ranks": ranks} if group else {},
                )

    def write(self, folder: Path) -> Path:
        for host in self.ranks:
            host.write(folder / f"rank{host.rank}.json")
        return folder


def step_of_training(host: Host, layers: int = 20, microseconds: float = 400.0, name: str = GEMM) -> None:
    """Forward, backward and update, in which the device has always enough to do."""
    for _ in range(layers):
        host.kernel(name, microseconds)
    for _ in range(layers):
        host.kernel(name, 2 * microseconds, "aten::mm")
    host.kernel("void at::native::multi_tensor_apply_kernel<FusedAdamMathFunctor>", microseconds, "aten::_fused_adamw_")
