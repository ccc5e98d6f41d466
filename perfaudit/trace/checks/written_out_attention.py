"""Attention as two products with a softmax between them, where one kernel could do all of it."""

from __future__ import annotations

import re
from collections.abc import Iterator

from perfaudit.trace import kernel_names
from perfaudit.trace.checks import Seen
from perfaudit.trace.device_view import DeviceView
from perfaudit.trace.host_threads import Instant
from perfaudit.trace.words import a_step, percent, times_a_step

RULES = ("PA203",)
_SOFTMAX = re.compile(r"soft_?max", re.IGNORECASE)
_LOSS = re.compile(r"log_?soft_?max|nll|cross_?entropy", re.IGNORECASE)
_BACKWARD = re.compile(r"backward", re.IGNORECASE)
BETWEEN = 8  # pointwise kernels at most between the softmax and each product: scale, mask, cast, dropout


def look(view: DeviceView) -> Iterator[Seen]:
    rows = [row for row in view.rows if view.recording.work.kind[row] == 0]
    kinds = [_kind(view.name_of(row)) for row in rows]
    spent: list[int] = []
    forward = []
    for index, kind in enumerate(kinds):
        if kind != "softmax":
            continue
        around = _between_products(kinds, index)
        if around is None:
            continue
        spent += rows[around[0] : around[1]]
        if not _BACKWARD.search(view.name_of(rows[index])):
            forward.append(rows[index])
    if not forward:
        return
    lost = view.sum_of(spent)
    calls, of = view.recording.calls, view.launches.of
    yield Seen(
        "PA203",
        f"attention is written out ({times_a_step(view, len(forward))}): softmax, masks and scaling between its two "
        "products take "
        f"{percent(view, lost)} of the time ({a_step(view, lost)}); scaled_dot_product_attention does all of it in one kernel",
        lost,
        tuple(Instant(calls.start[of[row]], calls.thread[of[row]]) for row in forward[:200] if row in of),
    )


def _kind(name: str) -> str:
    if kernel_names.is_product(name):
        return "product"
    if _SOFTMAX.search(name) and not _LOSS.search(name) and "LogSoftMax" not in name:
        return "softmax"
    return "pointwise" if kernel_names.is_pointwise(name) else "other"


def _between_products(kinds: list[str], index: int) -> tuple[int, int] | None:
    """The stretch between the products on both sides of a softmax; None where one of them is not near."""
    first = index - 1
    while first >= 0 and kinds[first] in ("pointwise", "other") and index - first <= BETWEEN:
        first -= 1
    last = index + 1
    while last < len(kinds) and kinds[last] in ("pointwise", "other") and last - index <= BETWEEN:
        last += 1
    if first < 0 or last >= len(kinds) or kinds[first] != "product" or kinds[last] != "product":
        return None
    return first + 1, last
