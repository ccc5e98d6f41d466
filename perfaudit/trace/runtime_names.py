"""What calls of the CUDA and HIP runtimes do, by their names."""

from __future__ import annotations

import re
from functools import cache
from typing import Literal

Call = Literal["launch", "copy", "sync", "allocation", "other"]

# They return when the device has done what was asked of it; `cudaMemcpyAsync` of pageable memory often does too, which its
# duration shows (`waits`). cudaStreamWaitEvent and cudaEventQuery do not wait.
_SYNC = re.compile(
    r"^(cuda|hip|cu|mu|acl|ze)\w*Synchronize|^(cuda|hip)Memcpy(2D|3D|ToSymbol|FromSymbol|WithStream|DtoH|HtoD)?(_ptds)?$|"
    r"^cuMemcpy(HtoD|DtoH|DtoD)?(_v2)?$|^(cuda|hip)EventSynchronize|^cuCtxSynchronize"
)
_ALLOCATION = re.compile(
    r"^(cuda|hip)(Ext)?(Malloc|Free|HostAlloc|HostFree|HostMalloc|MallocHost|FreeHost|HostRegister|HostUnregister)|"
    r"^cuMem(Alloc|Free|Create|Release|Map|Unmap|AddressReserve|AddressFree|SetAccess|HostAlloc|FreeHost)|"
    r"^hipMem(Create|Release|Map|Unmap|AddressReserve|AddressFree|SetAccess)"
)
_LAUNCH = re.compile(r"Launch|^zeCommandListAppend|^urEnqueueKernel")
_COPY = re.compile(r"Memcpy|Memset", re.IGNORECASE)
_DEVICE_MEMORY = re.compile(
    r"^(cuda|hip)(Ext)?(Malloc|Free)(Async|Pitch|Managed|Array)?(_v\d+)?$|^cuMem(Alloc|Free|Create|Release|Map|Unmap)(_v2|Async)?$|"
    r"^hipMem(Create|Release|Map|Unmap)$"
)


@cache
def call_of(name: str) -> Call:
    """What kind of call it is."""
    if _SYNC.match(name):
        return "sync"
    if _ALLOCATION.match(name):
        return "allocation"
    if _LAUNCH.search(name):
        return "launch"
    return "copy" if _COPY.search(name) else "other"


@cache
def is_device_memory(name: str) -> bool:
    """Whether it takes or gives back memory of the device."""
    return bool(_DEVICE_MEMORY.match(name))
