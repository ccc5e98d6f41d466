"""Rounding the operands of matmuls and convolutions to a coarser type, by chance, and nothing else."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import _get_current_dispatch_mode

from perfaudit.measure.rounding import rounded_to


@pytest.mark.parametrize(("kind", "unit"), [("tf32", 2**-10), ("float16", 2**-10), ("bfloat16", 2**-7)])
def test_each_operand_moves_by_less_than_a_unit_up_or_down(kind: str, unit: float) -> None:
    torch.manual_seed(0)
    value, one = torch.rand(50, 50) + 1.0, torch.eye(50)
    with rounded_to(kind):
        moved = (value @ one - value) / value
    assert unit / 4 < float(moved.abs().max()) <= unit * 2  # in and, for types of 16 bits, out once more
    assert abs(float(moved.mean())) < unit / 20
    assert {True, False} == set((moved > 0).flatten().tolist())


def test_another_draw_rounds_otherwise_and_one_draw_always_alike() -> None:
    torch.manual_seed(0)
    a, b = torch.randn(30, 30), torch.randn(30, 30)

    def product(draw: int) -> torch.Tensor:
        with rounded_to("tf32", draw):
            return a @ b

    assert torch.equal(product(0), product(0))
    assert not torch.equal(product(0), product(1))


def test_what_has_the_type_already_stays_and_so_do_sums_and_random_streams() -> None:
    with rounded_to("tf32"):
        assert (torch.full((2, 2), 1.5) @ torch.eye(2)).tolist() == [[1.5, 1.5], [1.5, 1.5]]
        assert float(torch.tensor(0.1) + torch.tensor(0.2)) == float(torch.tensor(0.1).add(0.2))
        torch.manual_seed(0)
        drawn = torch.rand(3) * (torch.rand(2, 2) @ torch.rand(2, 2)).numel()
    torch.manual_seed(0)
    assert torch.equal(drawn, torch.rand(3) * 4)
    assert (torch.tensor([[float("inf"), 0.0]]) @ torch.ones(2, 1)).isinf().all()


def test_convolutions_and_what_has_16_bits_already() -> None:
    torch.manual_seed(0)
    image, weight = (
        torch.randn(2, 3, 8, 8).to(memory_format=torch.channels_last),
        torch.randn(4, 3, 3, 3, requires_grad=True),
    )
    with rounded_to("tf32"):
        moved = torch.nn.functional.conv2d(image, weight)
        moved.sum().backward()
    exact = torch.nn.functional.conv2d(image, weight)
    assert 1e-6 < float(((moved - exact).norm() / exact.norm()).detach()) < 2**-10
    assert weight.grad is not None
    half = torch.randn(20, 20).bfloat16()
    with rounded_to("bfloat16"):
        apart = (half @ torch.eye(20).bfloat16() - half).float().abs() / half.float().abs()
    assert 0 < float(apart.max()) <= 4 * 2**-7


class Named:
    """An operator of this name that returns what it is given."""

    def __init__(self, name: str) -> None:
        self._schema = SimpleNamespace(name=name)

    def __call__(self, value: torch.Tensor, *, more: object = None) -> tuple[torch.Tensor, object]:
        return value, more


def put_through(name: str, value: torch.Tensor, kind: str, draw: int = 0) -> torch.Tensor:
    with rounded_to(kind, draw):
        mode: Any = _get_current_dispatch_mode()
    found, more = mode.__torch_dispatch__(Named(name), (), (value,), {"more": 3})
    assert more == 3
    return found


@pytest.mark.parametrize(
    "name",
    [
        *("mm", "addmm", "bmm", "baddbmm", "addbmm", "mv", "addmv", "dot", "_convolution", "mkldnn_rnn_layer"),
        *("convolution", "convolution_overrideable", "cudnn_convolution"),
        *("convolution_backward", "convolution_backward_overrideable"),
        *("_scaled_dot_product_flash_attention", "_scaled_dot_product_flash_attention_backward"),
        *("_scaled_dot_product_flash_attention_for_cpu", "_scaled_dot_product_flash_attention_for_cpu_backward"),
        *("_scaled_dot_product_efficient_attention", "_scaled_dot_product_efficient_attention_backward"),
    ],
)
def test_operands_of_matmuls_convolutions_and_attention_are_rounded(name: str) -> None:
    value = torch.full((2,), 1 / 3)
    assert not torch.equal(put_through(f"aten::{name}", value, "tf32"), value)
    assert torch.equal(put_through(f"aten::{name}_", value, "tf32"), value)


def test_the_roundings_of_a_draw_are_the_same_everywhere() -> None:
    """They follow from the bits and the draw, so that a run on another machine, or another day, sees the same ones."""
    bits = torch.tensor([1 / 3, -1 / 3, 0.1, 1000.1, 1e-6, 0.0])
    units = [put_through("aten::mm", bits, "tf32", draw).view(torch.int32) - bits.view(torch.int32) for draw in (0, 1)]
    assert [unit.tolist() for unit in units] == [
        [-2731, 5461, -3277, -1638, -6077, 0],
        [-2731, -2731, -3277, -1638, 2115, 0],
    ]
    halves = torch.tensor([1 / 3, -1 / 3, 0.1, 0.3, 7, 1000.1, 1e-6, 0.0]).bfloat16()
    moved = [
        put_through("aten::dot", halves, "tf32", draw).view(torch.int16) - halves.view(torch.int16) for draw in (0, 1)
    ]
    assert [unit.tolist() for unit in moved] == [[1, 1, -1, -1, -1, 0, -1, 0], [0, -1, -1, 0, 0, -1, 0, 0]]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_the_largest_number_infinity_and_zero_stay(dtype: torch.dtype) -> None:
    value = torch.tensor(
        [torch.finfo(dtype).max, -torch.finfo(dtype).max, float("inf"), -float("inf"), 0.0], dtype=dtype
    )
    found = [put_through("aten::mm", value, "tf32", draw) for draw in range(30)]
    assert all(one.isfinite().tolist() == [True, True, False, False, True] for one in found)
    assert all(torch.equal(one[2:], value[2:]) for one in found)


@pytest.mark.parametrize(("kind", "lost"), [("tf32", 0), ("float16", 13), ("bfloat16", 16)])
def test_types_of_16_bits_put_out_what_they_can_hold(kind: str, lost: int) -> None:
    torch.manual_seed(0)
    with rounded_to(kind):
        found = torch.rand(20, 20) @ torch.rand(20, 20)
    rest = found.view(torch.int32) & (2**13 - 1)
    assert bool((rest == 0).all()) is (lost > 0)
    assert bool((found.view(torch.int32) & (2**16 - 1) == 0).all()) is (lost == 16)
