"""What the name of a kernel or a copy tells: communication, matrix product, tensor cores. A name that tells nothing is
unknown.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Literal

Class = Literal["compute", "communication", "memory"]
Units = Literal["tensor", "float32", "other", "unknown"]  # of a matrix product

# NCCL, RCCL, oneCCL and HCCL; DeepEP; custom reductions of vLLM, SGLang and FlashInfer; symmetric memory of PyTorch.
_COMMUNICATION = re.compile(
    r"nccl|rccl|oneccl|hccl_|nvshmem|deep_ep::|\bep::(inter|intra)node|cross_device_reduce|(one|two)_shot_all_?reduce|multimem_|mscclpp|"
    r"all_?reduce_kernel|AllReduce|AllGather|ReduceScatter|AllToAll|all_?to_?all",
)
_NOT_COMMUNICATION = re.compile(r"at::native|(?<!all_)reduce_kernel<")
_PRODUCT = re.compile(
    r"gemm|gemv|\bgemvx|cutlass|cublas|xmma|wgrad|dgrad|fprop|conv\d?d|convolve|scudnn|cudnn.*conv|winograd|Cijk_|nvjet|"
    r"fmha|flash_?(fwd|bwd|attn|attention)|flash::|attention_kernel|miopen.*conv|naive_conv|dot_kernel|hgemm|wgmma",
    re.IGNORECASE,
)
_NO_PRODUCT = re.compile(r"nchwToNhwc|nhwcToNchw|splitKreduce|transpose|permute|bias|PostAct|winograd.*[tT]ransform")
# Shapes of tensor-core instructions, the types that only they multiply, and libraries that use nothing else.
_TENSOR = re.compile(
    r"[hsi](884|1688|16816|8816|1684|161616|16832)|tensorop|tensor\d+x\d+x\d+|hmma|imma|wgmma|gmma|nvjet|"
    r"tf32|bf16_s|bf16gemm|e4m3|e5m2|fp8|_MI\d|MFMA|_(f16|bf16)_s|fmha|flash_?(fwd|bwd)|flash::|"
    r"h884|(^|_)hgemm|xmma_.*(f16f16|bf16bf16|tf32f32)",
)
_TF32 = re.compile(r"tf32|s1688gemm_f32|s16816gemm_f32|s1688.*_f32_|f32_s1688|_s1688tf32")
_FLOAT32 = re.compile(r"sgemm|simt|scudnn|gemmSN|f32f32_f32f32|ffma|implicit_convolve_sgemm|[dw]grad\w*_engine<", re.I)
# rocBLAS and hipBLASLt name the types of a product behind its indices: S is float32. MI is AMD's matrix core, which multiplies
# float32 at an eighth of the speed of half precision. `S_MX_B` is TF32.
_FLOAT32_OF_ROCM = re.compile(r"Cijk_A[a-z]+_B[a-z]+_(SB|S_B)_\w*_MI\d")
_OF_HALF = re.compile(r"fp16_sgemm|_hsh_|sgemm_fp16")
# Types of a template's parameters, as in `implicit_convolve_sgemm<__half, __half, 128, 6, 7, 3>`.
_TYPE = re.compile(r"[<,]\s*(?:const )?((?:\w+::)*[a-zA-Z_]\w*)(?: const)?(?=\s*[,>])")
_OF_16_BITS = re.compile(r"half2?$|bfloat16$|bf16$|fp16$", re.IGNORECASE)
_VECTOR = re.compile(r"gemv", re.IGNORECASE)
_SHORT = re.compile(r"half|bfloat16|bf16|fp16|f16", re.IGNORECASE)
_DOUBLE = re.compile(r"dgemm|f64f64|zgemm|cgemm")
_LAYOUT = re.compile(
    r"nchwToNhwc|nhwcToNchw|nchwToFold|convertTensor|SubTensorOpWithScalar.*transpose|batched_transpose"
)
_POINTWISE = re.compile(r"elementwise_kernel|vectorized_elementwise|unrolled_elementwise|CUDAFunctor|pointwise_kernel")
_FOREACH = re.compile(r"multi_tensor_apply")


@cache
def class_of(name: str) -> Class:
    """Whether a kernel computes or communicates; the names of copies never come here."""
    if _COMMUNICATION.search(name) and not _NOT_COMMUNICATION.search(name):
        return "communication"
    return "compute"


@cache
def is_product(name: str) -> bool:
    """Whether it multiplies matrices: a matrix product, a convolution, attention."""
    return bool(_PRODUCT.search(name)) and not _NO_PRODUCT.search(name)


@cache
def units_of(name: str) -> Units:
    """What a matrix product runs on, by its name: tensor cores, or float32 at the speed of float32; other: neither, as for
    double or complex, or for half precision whose shapes do not fit tensor cores.
    """
    if _DOUBLE.search(name):
        return "other"
    if _VECTOR.search(name):
        # A product with a vector is as fast as its matrix is read; of 16 bits it may be on tensor cores all the same.
        return "unknown" if _SHORT.search(name) else "other"
    if _OF_HALF.search(name):
        return "other"
    if _FLOAT32_OF_ROCM.search(name):
        return "float32"
    if _TENSOR.search(name):
        return "tensor"
    if not _FLOAT32.search(name):
        return "unknown"
    # One source may be built for several types: its name says how it adds up, its template what it multiplies.
    return "other" if any(_OF_16_BITS.search(given) for given in _TYPE.findall(name.partition("(")[0])) else "float32"


@cache
def is_tf32(name: str) -> bool:
    """Whether a matrix product reads float32 and multiplies in TF32."""
    return bool(_TF32.search(name))


@cache
def is_layout_change(name: str) -> bool:
    """Whether it only changes the order of a tensor's dimensions for a convolution."""
    return bool(_LAYOUT.search(name))


@cache
def is_pointwise(name: str) -> bool:
    """Whether it is a kernel that applies one function to each element."""
    return bool(_POINTWISE.search(name)) and not _FOREACH.search(name)


@cache
def is_foreach(name: str) -> bool:
    """Whether it works on many tensors at once, as the foreach and fused optimizers do."""
    return bool(_FOREACH.search(name))


_OPERATIONS = (
    ("all_to_all", re.compile(r"all_?to_?all|sendrecv.*alltoall|\bep::.*(dispatch|combine)", re.I)),
    ("reduce_scatter", re.compile(r"reduce_?scatter", re.I)),
    ("all_gather", re.compile(r"all_?gather", re.I)),
    ("all_reduce", re.compile(r"all_?reduce|cross_device_reduce|(one|two)_shot", re.I)),
    ("send_recv", re.compile(r"send|recv", re.I)),
    ("broadcast", re.compile(r"broadcast|bcast", re.I)),
    ("reduce", re.compile(r"reduce", re.I)),
)
WAIT_FOR_ALL = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all")  # no rank leaves before the last has come


@cache
def operation_of(name: str) -> str:
    """Which collective a kernel of communication is, by its name or the collective's own; "" where it does not tell."""
    return next((operation for operation, pattern in _OPERATIONS if pattern.search(name)), "")


@cache
def is_pageable_copy(name: str) -> bool:
    """Whether a copy goes through memory that is not pinned, as `Memcpy HtoD (Pageable -> Device)`."""
    return "Pageable" in name


@cache
def direction_of(name: str) -> str:
    """Of a copy: "HtoD", "DtoH", "DtoD", "PtoP", or "" """
    for direction in ("HtoD", "DtoH", "DtoD", "PtoP"):
        if direction in name or f"{direction[0]}2{direction[-1]}" in name.upper():
            return direction
    lower = name.lower()
    if "hosttodevice" in lower:
        return "HtoD"
    return "DtoH" if "devicetohost" in lower else "DtoD" if "devicetodevice" in lower else ""
