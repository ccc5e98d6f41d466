"""Floating-point operations of operators by their shapes: torch's own registry, what it leaves out, and attention as we count it.
Child only.

A multiplication and an addition count as two, as in `torch.utils.flop_counter`; what is done element by element counts 0 there
and here. What a kernel computes a second time to save memory, or although `backward()` has nobody to pass that gradient on to, is
no work of the algorithm and is not counted: attention and recurrent layers come to the same number written out and in one
operator, so that a change from the one to the other is none. (`torch.autograd.grad` may ask for fewer gradients than that.)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Formula = Callable[..., int]  # of an operator's arguments, and out_val: its result


def formulas() -> dict[Any, Formula]:
    """By operator, those that this torch knows."""
    import torch
    from torch.utils.flop_counter import flop_registry

    found: dict[Any, Formula] = dict(flop_registry)
    for operator, formula in flop_registry.items():
        if (query := _PACKED_BACKWARD.get(str(operator))) is not None:
            found[operator] = _without_the_scores(formula, query)
    for name, formula in _OURS.items():
        if hasattr(torch.ops.aten, name):
            found[getattr(torch.ops.aten, name)] = formula
    return found


def _attention(query: Any, key: Any, value: Any, *_: Any, **__: Any) -> int:
    """Scores, and their product with the values. (…, queries, width), (…, keys, width) and (…, keys, width of values).

    A causal mask saves nothing, as in torch's formula for the other fused attentions: `sdpa_flop_count`.
    """
    return int(2 * query.shape[:-1].numel() * key.shape[-2] * (query.shape[-1] + value.shape[-1]))


def _attention_backward(_gradient: Any, query: Any, key: Any, value: Any, *_: Any, **__: Any) -> int:
    """The products of `_widths` for all queries and keys; torch's formula has the scores, computed again, as one more."""
    return int(2 * query.shape[:-1].numel() * key.shape[-2] * _widths(query, value))


def _widths(query: Any, value: Any) -> int:
    """Of the products that give the gradients of scores, queries, keys and values, as far as any is wanted, added up."""
    of_query, of_key, of_value = _inputs_with_backward(3)
    q, v = int(query.shape[-1]), int(value.shape[-1])
    return q * (of_query + of_key) + v * ((of_query or of_key) + of_value)


def _without_the_scores(formula: Formula, query: int) -> Formula:
    """torch's formula of a backward pass over packed sequences, whose lengths it knows, with the products of `_widths`.

    query: where it stands among the arguments; key and value follow. Of products of the widths q and v it has 3 q + 2 v.
    """

    def backward(*arguments: Any, **named: Any) -> int:
        q, v = (int(arguments[place].shape[-1]) for place in (query, query + 2))
        return formula(*arguments, **named) * _widths(arguments[query], arguments[query + 2]) // (3 * q + 2 * v)

    return backward


def _inputs_with_backward(inputs: int) -> list[bool]:
    """Whether the backward pass that runs goes on behind each of the first inputs of its operator; all where it is not known."""
    import torch

    current = getattr(torch._C, "_current_autograd_node", lambda: None)()
    of_python = torch.autograd.function.BackwardCFunction  # whose inputs may be any
    if current is None or isinstance(current, of_python):
        return [True] * inputs
    edges = current.next_functions
    return [edges[i][0] is not None for i in range(inputs)] if len(edges) >= inputs else [True] * inputs


def _onednn_layer(tokens: Any, inwards: Any, recurrent: Any, *_: Any, **__: Any) -> int:
    """One layer in one direction, each token times both matrices: `nn.LSTM` on a CPU. tokens: (length, batch, width)."""
    return 2 * _count(tokens) * int(inwards.numel() + recurrent.numel())


def _onednn_layer_backward(tokens: Any, inwards: Any, recurrent: Any, *_: Any, **__: Any) -> int:
    wanted = _inputs_with_backward(6)  # tokens, both matrices, both biases, the first state
    return _layer_backward(tokens, inwards, recurrent, (*wanted[:3], wanted[5]), tokens.shape[1])


def _cudnn_layers(tokens: Any, weights: list[Any], *_: Any, **__: Any) -> int:
    """All layers and directions, each token times each matrix: `nn.LSTM`, `nn.GRU` and `nn.RNN` on CUDA.

    tokens: (length, batch, width), (batch, length, width), or packed, (all, width). weights: matrices and biases.
    """
    return 2 * _count(tokens) * sum(int(weight.numel()) for weight in weights if weight.dim() > 1)


def _cudnn_layers_backward(
    tokens: Any, weights: list[Any], stride: int, _: Any, state: Any, *rest: Any, **__: Any
) -> int:
    """stride: weights of one layer in one direction; state: (layers and directions, batch, width)."""
    of_tokens, *of_weights, of_state = _inputs_with_backward(1 + len(weights) + 1)
    directions = 2 if rest[12] else 1
    flops = 0
    for first in range(0, len(weights), stride):
        inwards, recurrent, *others = weights[first : first + stride]
        below = of_tokens if first < stride * directions else any([of_tokens, *of_weights[:first]])
        wanted = (below, *of_weights[first : first + 2], of_state)
        flops += _layer_backward(tokens, inwards, recurrent, wanted, state.shape[1])
        flops += sum(4 * _count(tokens) * int(weight.numel()) for weight in others if weight.dim() > 1)
    return flops


def _layer_backward(tokens: Any, inwards: Any, recurrent: Any, wanted: tuple[bool, ...], batch: int) -> int:
    """The gradients of tokens, of both matrices and of the first state, as far as they are wanted, and of all other states."""
    of_tokens, of_inwards, of_recurrent, of_state = wanted
    count = _count(tokens)
    steps_back = count - (0 if of_state else int(batch))
    products = count * (of_tokens + of_inwards) * int(inwards.numel())
    return 2 * (products + (count * of_recurrent + steps_back) * int(recurrent.numel()))


def _count(tokens: Any) -> int:
    return int(tokens.shape[:-1].numel())


_OURS: dict[str, Formula] = {
    "_scaled_dot_product_flash_attention_for_cpu": _attention,
    "_scaled_dot_product_flash_attention_for_cpu_backward": _attention_backward,
    "_scaled_dot_product_flash_attention_backward": _attention_backward,
    "_scaled_dot_product_efficient_attention_backward": _attention_backward,
    "_scaled_dot_product_cudnn_attention_backward": _attention_backward,
    "mkldnn_rnn_layer": _onednn_layer,
    "mkldnn_rnn_layer_backward": _onednn_layer_backward,
    "_cudnn_rnn": _cudnn_layers,
    "_cudnn_rnn_backward": _cudnn_layers_backward,
}

_PACKED_BACKWARD = {
    "aten._flash_attention_backward": 1,
    "aten._efficient_attention_backward": 1,
    "flex_attention_backward": 0,
}
