"""Rounding the operands of matmuls and convolutions to a coarser type, by chance, and nothing else."""

from __future__ import annotations

import pytest
import torch

from perfaudit.measure.rounded import rounded_to


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
