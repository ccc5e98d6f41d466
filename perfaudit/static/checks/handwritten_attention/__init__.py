"""PA203: attention written out, so that the scores of all pairs of positions are stored."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING

from perfaudit.static import edit
from perfaudit.static.old_torch import needs_old_torch
from perfaudit.static.registry import Proposal, Seen, check, hint_if
from perfaudit.static.source import Source
from perfaudit.static.understanding.how_often import runs_every_step

if TYPE_CHECKING:
    from perfaudit.static.checks.handwritten_attention.attention_values import Chain

FUSED = "torch.nn.functional.scaled_dot_product_attention"
AXES = 4  # of what the fused kernels take: batch, heads, positions, width
TURNED = {"type_as", "transpose", "permute", "swapaxes", "t", "T", "mT", "contiguous"}


@check("PA203", ast.Module)
def handwritten_attention(source: Source, module: ast.Module) -> Iterator[Seen]:
    if not source.mentions("oftmax") or not source.imports_torch:
        return
    from perfaudit.static.checks.handwritten_attention.asked_weights import are_asked_for_elsewhere
    from perfaudit.static.checks.handwritten_attention.attention import written_out  # most files have no softmax
    from perfaudit.static.checks.handwritten_attention.dropped_weights import are_dropped
    from perfaudit.static.checks.handwritten_attention.few_positions import has_few_positions
    from perfaudit.static.checks.handwritten_attention.one_query import is_one_query

    for chain in written_out(source):
        if is_one_query(source, chain.query) or (
            chain.is_asked_for and are_asked_for_elsewhere(source, chain.function)
        ):
            continue
        if needs_old_torch(source):  # asked last, since it asks other files: before 2.0 there is no such operator
            return
        if chain.returned_at and not are_dropped(source, chain):
            continue
        output, _ = chain.outputs[0]
        places = tuple(node for node in (chain.softmax, output) if node is not None)
        yield Seen(
            chain.product,
            f"attention is written out: `{source.brief(chain.product)}`, a softmax and `{source.brief(output)}` store "
            "the score of every pair of positions, and keep it for backward",
            _proposal(source, chain),
            places,
            hot=runs_every_step(source, chain.product),
            severity=hint_if(has_few_positions(source, chain.function)),
        )


def _proposal(source: Source, chain: Chain) -> Proposal:
    """The call of the library; with edits where every statement of the chain can be replaced without a doubt."""
    from perfaudit.static.checks.handwritten_attention.attention_call import plain_call
    from perfaudit.static.checks.handwritten_attention.attention_hooks import place_of_hooks
    from perfaudit.static.checks.handwritten_attention.second_derivatives import place_of_second_derivatives

    function, imported = edit.name_for(source, FUSED)
    call = plain_call(source, chain) if not chain.is_asked_for and not chain.returned_at else None
    hooked = place_of_hooks(source, call.layers) if call is not None else ""
    twice = place_of_second_derivatives(source) if call is not None else ""
    if call is not None and not hooked and not twice and chain.rank in (None, AXES):
        edits = edit.together(
            edit.replace(source, call.output, f"{function}({', '.join(call.arguments)})"),
            imported,
            *(edit.delete_statement(source, statement) for statement in call.replaced),
        )
        if edits is not None:
            changes = ("rounding", "rng") if call.has_dropout else ("rounding",)
            return Proposal(f"compute it in one operator, `{function}`", edits, changes=changes)
    values = chain.outputs[0][1]
    parts = [source.brief(_without_transpose(node), 24) for node in (chain.query, chain.key, values)]
    parts += ["attn_mask=..."] * chain.is_masked + ["dropout_p=..."] * chain.has_dropout + ["scale=..."]
    mask = "; a boolean attn_mask is True where a position is seen" if chain.is_masked else ""
    advice = f"`{function}({', '.join(parts)})`"
    hooks = f", unless a hook in `{hooked}` is to see the weights" if hooked else ""
    second = f", unless `{twice}` differentiates it twice, which the fused kernels cannot" if twice else ""
    unless = " where nobody asks for the weights" if chain.is_asked_for else ""
    dropped = ", and return no weights, which every call in sight drops" if chain.returned_at else ""
    fits = f"with axes {_axes(chain)}{mask}{hooks}{second}"
    return Proposal(f"compute it in one operator{unless}, {advice}, {fits}{dropped}")


def _axes(chain: Chain) -> str:
    if chain.rank in (None, AXES):
        return "(..., positions, width)"
    how = "give the heads an axis of their own" if chain.rank < AXES else "join the axes before the heads"
    return f"(batch, heads, positions, width): {how}, the fused kernels take four axes only"


def _without_transpose(node: ast.expr) -> ast.expr:
    """The keys themselves of `k.transpose(-2, -1)`, and of that with a scale: `k.transpose(-2, -1) / math.sqrt(d)`."""
    while True:
        if isinstance(node, ast.BinOp):
            sides = [side for side in (node.left, node.right) if _without_transpose(side) is not side]
            if len(sides) != 1:
                return node
            node = sides[0]
        inner = node.func if isinstance(node, ast.Call) else node
        if not isinstance(inner, ast.Attribute) or inner.attr not in TURNED:
            return node
        node = inner.value
