"""Operations that torch's registry leaves out, beside the same arithmetic spelled out in operators that it knows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

from perfaudit.measure.flop_formulas import formulas


class Counting(TorchDispatchMode):
    """Adds up what the formulas give."""

    def __init__(self) -> None:
        super().__init__()
        self.formulas, self.flops, self.names = formulas(), 0, set[str]()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if formula := self.formulas.get(func._overloadpacket):
            self.flops += formula(*args, **(kwargs or {}), out_val=result)
            self.names.add(str(func._overloadpacket))
        return result


def flops(run: Callable[[], Any], through: str = "") -> int:
    with Counting() as counting:
        run()
    assert not through or through in counting.names, counting.names
    return counting.flops


FUSED = "aten._scaled_dot_product_flash_attention_for_cpu"


def attention() -> None:
    shapes = ((2, 3, 7, 8), (2, 3, 5, 8), (2, 3, 5, 8))
    scaled_dot_product_attention(*(torch.randn(shape, requires_grad=True) for shape in shapes)).sum().backward()


def test_fused_attention_does_the_products_of_the_one_in_parts() -> None:
    fused = flops(attention, f"{FUSED}_backward")
    with sdpa_kernel(SDPBackend.MATH):
        assert flops(attention, "aten.bmm") == fused
    assert fused == 6 * 2 * (2 * 3 * 7 * 5 * 8)


# Of the accelerators' kernels there are only shapes here: of torch's five products of the backward pass four are counted.
@pytest.mark.parametrize("width", [8, 16])
@pytest.mark.parametrize(
    ("name", "gradient_first"),
    [
        ("_scaled_dot_product_flash_attention_backward", True),
        ("_scaled_dot_product_efficient_attention_backward", True),
        ("_scaled_dot_product_cudnn_attention_backward", True),
        ("_flash_attention_backward", True),
        ("_efficient_attention_backward", True),
        ("flex_attention_backward", False),
    ],
)
def test_scores_that_are_computed_again_do_not_count(name: str, gradient_first: bool, width: int) -> None:
    query, key, value = torch.zeros(2, 3, 7, 8), torch.zeros(2, 3, 5, 8), torch.zeros(2, 3, 5, width)
    out, missing = torch.zeros(2, 3, 7, width), (None,) * 6
    arguments = (out, query, key, value, *missing) if gradient_first else (query, key, value, out, None, out)
    (operator,) = (each for each in formulas() if str(each).removeprefix("aten.") == name)
    scores = 2 * (2 * 3 * 7 * 5)
    assert formulas()[operator](*arguments, out_val=None) == scores * (2 * 8 + 2 * width)
    assert flop_registry[operator](*arguments, out_val=None) == scores * (3 * 8 + 2 * width)


@pytest.mark.parametrize(
    "settings",
    [{}, {"num_layers": 2, "bidirectional": True}, {"bias": False, "batch_first": True}],
    ids=["one layer", "both directions", "no bias"],
)
@pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="this torch has no oneDNN")
def test_an_lstm_of_onednn_does_the_products_of_its_cells(settings: dict[str, Any]) -> None:
    net = nn.LSTM(6, 10, **settings)
    layers = net.num_layers * (2 if net.bidirectional else 1)

    def run() -> None:
        tokens = torch.randn(4, 5, 6, requires_grad=True)
        batch = 4 if net.batch_first else 5
        state = [torch.randn(layers, batch, 10, requires_grad=True) for _ in range(2)]
        net(tokens, tuple(state))[0].sum().backward()

    fused = flops(run, "aten.mkldnn_rnn_layer_backward")
    with torch.backends.mkldnn.flags(enabled=False):
        assert flops(run) == fused


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
def test_cudnn_s_layers_do_the_products_of_their_cells(kind: Any) -> None:
    net = kind(6, 10, num_layers=2, bidirectional=True)
    tokens = torch.randn(4, 5, 6)
    with torch.backends.mkldnn.flags(enabled=False):
        cells = flops(lambda: net(tokens))
    found = formulas()
    layers = found[torch.ops.aten._cudnn_rnn]
    weights = [weight.detach() for weight in net.parameters()]
    assert layers(tokens, weights, 4, None, torch.zeros(4, 5, 10), None) == cells
    assert layers(tokens.reshape(20, 6), weights, 4, None, torch.zeros(4, 5, 10), None) == cells  # packed
    assert found[torch.ops.aten._cudnn_rnn_backward](tokens, weights, 4, None) == 2 * cells


def test_a_matrix_times_a_vector() -> None:
    matrix, vector = torch.randn(6, 10), torch.randn(10)
    assert flops(lambda: matrix @ vector, "aten.mv") == 2 * 6 * 10
    assert flops(lambda: torch.addmv(torch.randn(6), matrix, vector), "aten.addmv") == 2 * 6 * 10
    assert flops(lambda: matrix @ vector[:, None], "aten.mm") == 2 * 6 * 10


def test_torch_s_other_formulas_stay() -> None:
    found = formulas()
    changed = {str(operator) for operator, formula in flop_registry.items() if found[operator] is not formula}
    assert len(changed) == 6 and all("attention" in name and name.endswith("_backward") for name in changed)
