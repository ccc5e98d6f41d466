"""Switches of MKL that `torch.set_num_threads` sets as well, and that torch has no function for."""

from __future__ import annotations

import contextlib
import ctypes
import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

_GET_DYNAMIC = ("MKL_Get_Dynamic", "mkl_serv_get_dynamic")  # of a library of its own, and as it is part of torch's
_SET_DYNAMIC = "MKL_Set_Dynamic"
_SET_THREADS = "MKL_Set_Num_Threads_Local"  # which returns the number that was set before


def mkl_switches() -> dict[str, object]:
    """Whether MKL may take fewer threads than it has, and how many this thread was told to take, 0 where it was told nothing.

    Until the first call of `torch.set_num_threads`, which says no and the number, it may, and was told nothing. {} where torch
    has no MKL, or one that cannot be asked.
    """
    library = _library()
    if library is None:
        return {}
    threads = library[_SET_THREADS](0)
    library[_SET_THREADS](threads)
    dynamic = next(getattr(library, name) for name in _GET_DYNAMIC if hasattr(library, name))
    return {"mkl.dynamic": bool(dynamic()), "mkl.threads": threads}


def mkl_setters() -> dict[str, Callable[[Any], object]]:
    """What sets each of these switches."""
    library = _library()
    return {} if library is None else {"mkl.dynamic": library[_SET_DYNAMIC], "mkl.threads": library[_SET_THREADS]}


@functools.cache
def _library() -> Any:  # a library of ctypes
    """The library of torch in which MKL is, or that has loaded it; None where there is none that can be asked."""
    import torch

    if not torch.backends.mkl.is_available():
        return None
    for path in (Path(torch.__file__).parent / "lib").glob("libtorch_cpu.*"):
        with contextlib.suppress(OSError):
            library = ctypes.CDLL(str(path))
            can_be_asked = any(hasattr(library, name) for name in _GET_DYNAMIC)
            if can_be_asked and all(hasattr(library, name) for name in (_SET_DYNAMIC, _SET_THREADS)):
                return library
    return None
