"""Operations that torch's registry leaves out, beside the same arithmetic spelled out in operators that it knows."""

from __future__ import annotations

import itertools
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


Wanted = tuple[bool, ...]


@pytest.mark.parametrize("wanted", [w for w in itertools.product((True, False), repeat=3) if any(w)])
def test_fused_attention_does_the_products_of_the_one_in_parts(wanted: Wanted) -> None:
    def attention() -> None:
        shapes = ((2, 3, 7, 8), (2, 3, 5, 8), (2, 3, 5, 8))
        inputs = [torch.randn(shape, requires_grad=want) for shape, want in zip(shapes, wanted, strict=True)]
        scaled_dot_product_attention(*inputs).sum().backward()

    fused = flops(attention, f"{FUSED}_backward")
    with sdpa_kernel(SDPBackend.MATH):
        assert flops(attention, "aten.bmm") == fused
    backward = sum(wanted) + (wanted[0] or wanted[1])
    assert fused == (2 + backward) * 2 * (2 * 3 * 7 * 5 * 8)


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


def recurrent(net: Any, tokens: bool, state: bool) -> None:
    """Forward and backward; whether the gradients of the tokens and of the first state are wanted."""
    count = net.num_layers * (2 if net.bidirectional else 1)
    states = [torch.zeros(count, 4 if net.batch_first else 5, 10, requires_grad=state) for _ in range(2)]
    first = tuple(states) if isinstance(net, nn.LSTM) else states[0]
    net(torch.randn(4, 5, 6, requires_grad=tokens), first)[0].sum().backward()


@pytest.mark.parametrize(
    "settings",
    [{}, {"num_layers": 2, "bidirectional": True}, {"bias": False, "batch_first": True}],
    ids=["one layer", "both directions", "no bias"],
)
@pytest.mark.parametrize(("tokens", "state"), [(True, True), (True, False), (False, False)])
@pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="this torch has no oneDNN")
def test_an_lstm_of_onednn_does_the_products_of_its_cells(settings: dict[str, Any], tokens: bool, state: bool) -> None:
    net = nn.LSTM(6, 10, **settings)
    fused = flops(lambda: recurrent(net, tokens, state), "aten.mkldnn_rnn_layer_backward")
    with torch.backends.mkldnn.flags(enabled=False):
        assert flops(lambda: recurrent(net, tokens, state)) == fused


@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
def test_cudnn_s_layers_do_the_products_of_their_cells(kind: Any, bidirectional: bool) -> None:
    """By shapes: there is no such kernel here. Outside of a backward pass all gradients are taken to be wanted."""
    net = kind(6, 10, num_layers=2, bidirectional=bidirectional)
    with torch.backends.mkldnn.flags(enabled=False):
        cells = flops(lambda: recurrent(net, tokens=True, state=True))
    found, weights = formulas(), [weight.detach() for weight in net.parameters()]
    state, rest = torch.zeros(len(weights) // 4, 5, 10), (None,) * 12
    for tokens in (torch.zeros(4, 5, 6), torch.zeros(20, 6)):  # packed
        forward = found[torch.ops.aten._cudnn_rnn](tokens, weights, 4, None, state, None)
        backward = found[torch.ops.aten._cudnn_rnn_backward](tokens, weights, 4, None, state, *rest, bidirectional)
        assert forward + backward == cells


@pytest.mark.parametrize("directions", [1, 2])
@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU])
@pytest.mark.parametrize(("tokens", "state"), [(True, False), (False, True), (False, False)])
def test_cudnn_s_layers_do_the_products_whose_gradients_are_wanted(
    monkeypatch: pytest.MonkeyPatch, kind: Any, directions: int, tokens: bool, state: bool
) -> None:
    """The node of the backward pass says which: it goes on behind tokens, weights and the states, of which an LSTM has two."""
    net = kind(6, 10, num_layers=2, bidirectional=directions == 2)
    with torch.backends.mkldnn.flags(enabled=False):
        cells = flops(lambda: recurrent(net, tokens, state))
    weights = [weight.detach() for weight in net.parameters()]
    forward = formulas()[torch.ops.aten._cudnn_rnn](
        torch.zeros(4, 5, 6), weights, 4, None, torch.zeros(2 * directions, 5, 10)
    )
    wanted = [tokens, *[True] * len(weights), state, state and kind is nn.LSTM]
    node = type("Node", (), {"next_functions": [("next" if want else None, 0) for want in wanted]})()
    monkeypatch.setattr(torch._C, "_current_autograd_node", lambda: node)
    given = (torch.zeros(4, 5, 6), weights, 4, None, torch.zeros(2 * directions, 5, 10), *(None,) * 12, directions == 2)
    assert forward + formulas()[torch.ops.aten._cudnn_rnn_backward](*given) == cells


def test_cudnn_s_projections_are_a_third_matrix() -> None:
    """Each token once more times it, and twice in the backward pass, which takes twice what the forward pass does."""
    net = nn.LSTM(6, 10, proj_size=4)
    weights, state, tokens = [w.detach() for w in net.parameters()], torch.zeros(1, 5, 4), torch.zeros(4, 5, 6)
    forward = formulas()[torch.ops.aten._cudnn_rnn](tokens, weights, 5, None, state, None)
    assert forward == 2 * 20 * (40 * 6 + 40 * 4 + 4 * 10)
    backward = formulas()[torch.ops.aten._cudnn_rnn_backward]
    assert backward(tokens, weights, 5, None, state, *(None,) * 12, False) == 2 * forward


def test_a_node_of_fewer_inputs_is_another_operator_s(monkeypatch: pytest.MonkeyPatch) -> None:
    """All gradients are taken to be wanted, as where no backward pass is known."""
    query, backward = (
        torch.zeros(3, 7, 8),
        formulas()[torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward],
    )
    for edges, products in (([(None, 0), (None, 0)], 4), ([("next", 0), (None, 0), (None, 0)], 2)):
        node = type("Node", (), {"next_functions": edges})()
        monkeypatch.setattr(torch._C, "_current_autograd_node", lambda node=node: node)
        assert backward(query, query, query, query) == 2 * 3 * 7 * 7 * 8 * products


@pytest.mark.parametrize("axes", [(), (3,), (2, 3), (4, 2, 3)])
def test_attention_with_any_axes_before_its_positions(axes: tuple[int, ...]) -> None:
    query, key, value = torch.zeros(*axes, 7, 8), torch.zeros(*axes, 5, 8), torch.zeros(*axes, 5, 16)
    scores, found = 2 * 7 * 5 * torch.Size(axes).numel(), formulas()
    assert found[torch.ops.aten._scaled_dot_product_flash_attention_for_cpu](query, key, value) == scores * (8 + 16)
    backward = found[torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward]
    assert backward(value, query, key, value) == scores * (2 * 8 + 2 * 16)


def test_torch_s_other_formulas_stay() -> None:
    found = formulas()
    changed = {str(operator) for operator, formula in flop_registry.items() if found[operator] is not formula}
    assert len(changed) == 6 and all("attention" in name and name.endswith("_backward") for name in changed)
