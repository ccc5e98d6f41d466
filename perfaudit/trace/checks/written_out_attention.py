"""Attention as two products with a softmax between them, where one kernel could do all of it."""

from __future__ import annotations

import re
from collections.abc import Iterator

from perfaudit.trace import kernel_names
from perfaudit.trace.checks import Seen
from perfaudit.trace.device_view import DeviceView
from perfaudit.trace.host_threads import Instant, around
from perfaudit.trace.recording import COMPUTE
from perfaudit.trace.words import a_step, launched_a_step, percent

RULES = ("PA203",)
_SOFTMAX = re.compile(r"soft_?max", re.IGNORECASE)
_LOSS = re.compile(r"log_?soft_?max|nll|cross_?entropy", re.IGNORECASE)
_BACKWARD = re.compile(r"backward", re.IGNORECASE)
_HARMLESS = re.compile(r"dropout|masked|where|fill|copy|cast|bernoulli|tril|triu", re.IGNORECASE)  # parts of attention
_BATCHED = ("aten::bmm", "aten::baddbmm", "aten::einsum")  # what attention multiplies with; a router or a head does not
_PLAIN = ("aten::addmm", "aten::mm", "aten::linear", "aten::convolution")
BETWEEN = 8  # kernels at most between the softmax and each product: scale, mask, cast, dropout


def look(view: DeviceView) -> Iterator[Seen]:
    rows = [row for row in view.rows if view.recording.work.kind[row] == COMPUTE]
    kinds = [_kind(view.name_of(row)) for row in rows]
    places = [
        (index, *between)
        for index, kind in enumerate(kinds)
        if kind == "softmax" and (between := _between_products(kinds, index)) is not None
    ]
    of_products = _operators_of(view, [rows[at] for _, first, last in places for at in (first - 1, last)])
    places = [
        (index, first, last)
        for index, first, last in places
        if not any(_is_plain(of_products.get(rows[at], [])) for at in (first - 1, last))
    ]
    spent = [row for _, first, last in places for row in rows[first:last]]
    forward = [rows[index] for index, _, _ in places if not _BACKWARD.search(view.name_of(rows[index]))]
    if not forward:
        return
    lost = view.busy_with(spent)
    calls, of = view.recording.calls, view.launches.of
    yield Seen(
        "PA203",
        f"attention is written out ({launched_a_step(view, forward)}): softmax, masks and scaling between its two "
        f"products take {percent(view, lost)} of the time ({a_step(view, lost)}); scaled_dot_product_attention does all of "
        "it in one kernel",
        lost,
        tuple(Instant(calls.start[of[row]], calls.thread[of[row]]) for row in forward[:200] if row in of),
    )


def _operators_of(view: DeviceView, rows: list[int]) -> dict[int, list[str]]:
    """Names of the operators that launched these kernels, the outermost first."""
    calls, of, operators = view.recording.calls, view.launches.of, view.recording.operators
    at = {row: Instant(calls.start[of[row]], calls.thread[of[row]]) for row in rows if row in of}
    stacks = around(operators, at.values())
    return {row: [view.recording.names[operators.name[one]] for one in stacks[instant]] for row, instant in at.items()}


def _is_plain(names: list[str]) -> bool:
    """Whether a product is one of a layer, and not of a batch of matrices."""
    return any(name in _PLAIN for name in names) and not any(name in _BATCHED for name in names)


def _kind(name: str) -> str:
    if kernel_names.is_product(name):
        return "product"
    if _SOFTMAX.search(name) and not _LOSS.search(name) and "LogSoftMax" not in name:
        return "softmax"
    return "between" if kernel_names.is_pointwise(name) or _HARMLESS.search(name) else "other"


def _between_products(kinds: list[str], index: int) -> tuple[int, int] | None:
    """The stretch between the products on both sides of a softmax; None where one of them is not near."""
    first = index - 1
    while first >= 0 and kinds[first] == "between" and index - first <= BETWEEN:
        first -= 1
    last = index + 1
    while last < len(kinds) and kinds[last] == "between" and last - index <= BETWEEN:
        last += 1
    if first < 0 or last >= len(kinds) or kinds[first] != "product" or kinds[last] != "product":
        return None
    return first + 1, last
