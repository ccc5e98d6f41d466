"""Whether another copy of a training fits into memory beside the ones that are there. Standard library only."""

from __future__ import annotations

from typing import Any

# Of what one copy has taken so far: a step of the other may fragment its memory otherwise, or draw a longer batch.
SPARE = 0.1
# What a process takes of an accelerator before it builds anything: a CUDA context with its kernels takes some hundred MiB.
CONTEXT = 512 << 20


def why_not_beside(more: int, room: dict[str, Any], device: str) -> str:
    """Why so many more copies do not fit beside what there is, "" where they do or where nothing is known.

    room: of `memory.room`, asked of a copy that is there. device: its type.
    """
    free, taken = room.get("free"), room.get("taken")
    if not more or free is None or not taken:
        return ""
    needed = more * (int(taken * (1 + SPARE)) + (CONTEXT if device != "cpu" else 0))
    if needed <= free:
        return ""
    what = "memory" if device == "cpu" else "the device"
    return (
        f"measured one after the other, with wider intervals: {more + 1} copies of this training do not fit into {what} side "
        f"by side (one has taken {taken / 2**30:.1f} GiB, {free / 2**30:.1f} GiB are free beside it)"
    )
