"""Floating-point operations of operators by their shapes: torch's own registry, what it leaves out, and attention as we count it.
Child only.

A multiplication and an addition count as two, as in `torch.utils.flop_counter`; what is done element by element counts 0 there
and here. What a kernel computes a second time to save memory is no work of the algorithm and is not counted: attention that is
written out and attention in one operator come to the same number, so that a change from the one to the other is none.
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
    """The gradients of scores, values, queries and keys; torch's formula has the scores, computed again, as a fifth product."""
    return 2 * _attention(query, key, value)


def _without_the_scores(formula: Formula, query: int) -> Formula:
    """torch's formula of a backward pass over packed sequences, whose lengths it knows, without the scores computed again.

    query: where it stands among the arguments; key and value follow. Of products of the widths q and v it has 3 q + 2 v.
    """

    def backward(*arguments: Any, **named: Any) -> int:
        q, v = (int(arguments[place].shape[-1]) for place in (query, query + 2))
        return formula(*arguments, **named) * (2 * q + 2 * v) // (3 * q + 2 * v)

    return backward


def _matrix_vector(matrix: Any, *_: Any, **__: Any) -> int:
    return 2 * int(matrix.numel())


def _added_matrix_vector(_added: Any, matrix: Any, *_: Any, **__: Any) -> int:
    return 2 * int(matrix.numel())


def _recurrent(tokens: Any, weights: list[Any]) -> int:
    """Each token times each matrix. tokens: (…, width), packed or not; weights: of all gates, and biases, which count 0."""
    count = int(tokens.shape[:-1].numel())
    return 2 * count * sum(int(weight.numel()) for weight in weights if weight.dim() > 1)


def _onednn_layer(tokens: Any, inwards: Any, recurrent: Any, *_: Any, **__: Any) -> int:
    """One layer in one direction: `nn.LSTM` on a CPU."""
    return _recurrent(tokens, [inwards, recurrent])


def _onednn_layer_backward(*arguments: Any, **_: Any) -> int:
    """The gradients of tokens and of weights are a product each, of the same size as the forward one."""
    return 2 * _onednn_layer(*arguments)


def _cudnn_layers(tokens: Any, weights: list[Any], *_: Any, **__: Any) -> int:
    """All layers and directions: `nn.LSTM`, `nn.GRU` and `nn.RNN` on CUDA."""
    return _recurrent(tokens, weights)


def _cudnn_layers_backward(*arguments: Any, **_: Any) -> int:
    return 2 * _cudnn_layers(*arguments)


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
    "mv": _matrix_vector,
    "addmv": _added_matrix_vector,
}

_PACKED_BACKWARD = {
    "aten._flash_attention_backward": 1,
    "aten._efficient_attention_backward": 1,
    "flex_attention_backward": 0,
}
