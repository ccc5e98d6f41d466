"""Run as a script: prints what torch says of itself as JSON, {} where torch is not installed."""

from __future__ import annotations

import json
import re
import sys
import time
from pathlib import Path
from typing import Any

COPIED = 64 << 20  # bytes of the copy that is timed
TIMES = 10
VERSIONS = {
    "mkl": r"Math Kernel Library Version (\d[\w.]*)",
    "onednn": r"(?:MKL-DNN|oneDNN) v(\d[\w.]*)",
    "openmp": r"OpenMP (\d[\w.]*\b)\)",
}


def main() -> None:
    here = Path(__file__).resolve().parent
    sys.path[:] = [path for path in sys.path if Path(path).resolve() != here]
    try:
        import torch
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        print("{}")
        return
    print(json.dumps(facts_of(torch, "--copy" in sys.argv)))


def facts_of(torch: Any, with_copy: bool) -> dict[str, Any]:  # Any: a module, JSON
    """Versions, what it was built with, and what it chose here. with_copy: also how fast memory is copied to the first GPU."""
    backends, has_gpu = torch.backends, torch.cuda.is_available()
    has_nccl = has_gpu and torch.distributed.is_available() and torch.distributed.is_nccl_available()
    return {
        "version": torch.__version__,
        "cuda": torch.version.cuda,
        "hip": torch.version.hip,
        "threads": torch.get_num_threads(),
        "mkl": backends.mkl.is_available(),
        "onednn": backends.mkldnn.is_available(),
        "openmp": backends.openmp.is_available(),
        "versions": versions_in(torch.__config__.show()),
        "cpu_capability": backends.cpu.get_cpu_capability() if hasattr(backends, "cpu") else "",
        "cudnn": backends.cudnn.version() if has_gpu else None,
        "nccl": ".".join(map(str, torch.cuda.nccl.version())) if has_nccl else None,
        "gpus": torch.cuda.device_count() if has_gpu else 0,
        "copies": copy_speeds(torch) if has_gpu and with_copy else {},
    }


def versions_in(built: str) -> dict[str, str]:
    """Versions of libraries that `torch.__config__.show()` names."""
    found = {name: re.search(pattern, built) for name, pattern in VERSIONS.items()}
    return {name: match[1] for name, match in found.items() if match}


def copy_speeds(torch: Any) -> dict[str, float]:  # Any: a module
    """Bytes a second from pinned and from pageable memory to the first GPU."""
    on_device = torch.empty(COPIED, dtype=torch.uint8, device="cuda")
    found = {}
    for name, pinned in (("pinned", True), ("pageable", False)):
        on_host = torch.ones(COPIED, dtype=torch.uint8, pin_memory=pinned)
        on_device.copy_(on_host)
        torch.cuda.synchronize()
        begin = time.perf_counter()
        for _ in range(TIMES):
            on_device.copy_(on_host)
        torch.cuda.synchronize()
        found[name] = TIMES * COPIED / (time.perf_counter() - begin)
    return found


if __name__ == "__main__":
    main()
