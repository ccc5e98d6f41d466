"""Variables that slow a training down, or that contradict the machine."""

from __future__ import annotations

from collections.abc import Iterator

from perfaudit.machine.place import Place
from perfaudit.machine_facts import MachineFact

AREA = "variables"
# Those that cost time while they are set; what they are for is in the documentation of PyTorch, CUDA and NCCL.
_COSTLY = {
    "CUDA_LAUNCH_BLOCKING": "each launch waits for its kernel: unset it",
    "HIP_LAUNCH_BLOCKING": "each launch waits for its kernel: unset it",
    "AMD_SERIALIZE_KERNEL": "each launch waits for its kernel: unset it",
    "TORCH_USE_CUDA_DSA": "kernels check themselves: unset it",
    "PYTORCH_NO_CUDA_MEMORY_CACHING": "each tensor takes memory from the driver: unset it",
    "CUDA_DEVICE_MAX_CONNECTIONS": "one queue of work orders all streams (Megatron asks for it): unset it elsewhere",
    "NCCL_BLOCKING_WAIT": "the host waits at each collective: unset it",
    "TORCH_NCCL_BLOCKING_WAIT": "the host waits at each collective: unset it",
    "NCCL_P2P_DISABLE": "GPUs talk to each other through memory of the host: unset it where NVLink or PCIe peers work",
    "NCCL_IB_DISABLE": "machines talk over Ethernet where InfiniBand may be there: unset it",
    "NVIDIA_TF32_OVERRIDE": "TF32 is switched off below all settings of PyTorch where it is 0",
    "TORCH_DISTRIBUTED_DEBUG": "DETAIL compares collectives of all ranks before each: set it to OFF",
    "TORCHDYNAMO_DISABLE": "torch.compile does nothing: unset it",
    "TORCH_COMPILE_DISABLE": "torch.compile does nothing: unset it",
    "PYTHONPROFILEIMPORTTIME": "imports are timed and printed: unset it",
}
_ONLY = {
    "CUDA_DEVICE_MAX_CONNECTIONS": {"1"},
    "NVIDIA_TF32_OVERRIDE": {"0"},
    "TORCH_DISTRIBUTED_DEBUG": {"DETAIL", "detail"},
}
_OFF = {"", "0", "false", "False", "off", "OFF"}
_THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS")
_TOLD = (*_THREADS, "KMP_AFFINITY", "GOMP_CPU_AFFINITY", "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF",
         "CUDA_VISIBLE_DEVICES", "LD_PRELOAD", "MALLOC_CONF")  # fmt: skip


def look(place: Place) -> Iterator[MachineFact]:
    for name, advice in _COSTLY.items():
        value = place.environment.get(name, "")
        on = value in _ONLY[name] if name in _ONLY else value not in _OFF
        if on:
            yield MachineFact(AREA, name, value, "", "warning", advice, "environment")
    for name in _TOLD:
        if name in place.environment:
            yield _variable_fact(place, name, place.environment[name])


def _variable_fact(place: Place, name: str, value: str) -> MachineFact:
    first = value.partition(",")[0].strip()
    many = name in _THREADS and first.isdigit() and int(first) > place.cores
    advice = f"more than the {place.cores} usable cores: {name}={place.cores}" if many else ""
    return MachineFact(AREA, name, value[:200], "", "warning" if many else "ok", advice, "environment")
