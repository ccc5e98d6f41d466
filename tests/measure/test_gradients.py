"""Gaps between the gradients of two models, parameter by parameter, whatever tensors they are."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from perfaudit.measure import gradients

Gradient = torch.Tensor | None


class Two(nn.Module):
    """Parameters a and b of four elements, with these gradients."""

    def __init__(self, a: Gradient, b: Gradient) -> None:
        super().__init__()
        for name, gradient in (("a", a), ("b", b)):
            like = torch.zeros(4) if gradient is None else torch.zeros(gradient.shape, dtype=gradient.dtype)
            parameter = nn.Parameter(like)
            parameter.grad = gradient
            self.register_parameter(name, parameter)


def gap(after: tuple[Gradient, Gradient], before: tuple[Gradient, Gradient]) -> tuple[float, str]:
    found = gradients.gap_to(Two(*after), dict(zip("ab", before, strict=True)))
    return float.fromhex(found["gap"]), found["name"]


ONES = torch.ones(4)
TINY = 1e-9 * torch.tensor([1.0, -1.0, 1.0, 0.0])
SPARSE = torch.tensor([1.0, 0.0, 1.0, 0.0]).to_sparse()
SQUARE = torch.arange(16.0).reshape(1, 4, 2, 2)


@pytest.mark.parametrize(
    ("after", "before", "found", "name"),
    [
        ((ONES, ONES), (ONES, ONES), 0.0, "a"),
        ((ONES, 1.5 * ONES), (ONES, ONES), 0.5, "b"),
        ((ONES, TINY), (ONES, -TINY), 2 * 3**0.5 * 1e-9 / (0.1 * 2**-0.5 * 2), "b"),  # noise of what cancels
        ((ONES, None), (ONES, None), 0.0, "a"),
        ((ONES, None), (ONES, torch.zeros(4)), 0.0, "a"),  # set to none, or to zero
        ((ONES, None), (ONES, ONES), 1.0, "b"),  # detached
        ((ONES, ONES), (ONES, None), 10 * 2**0.5, "b"),  # not used before: against the usual gradient
        ((None, None), (None, None), 0.0, "a"),
        ((ONES, None), (None, None), math.inf, "a"),
        ((ONES, torch.tensor([math.nan, 1, 1, 1])), (ONES, ONES), math.inf, "b"),
        ((ONES, SPARSE), (ONES, SPARSE), 0.0, "a"),
        ((ONES, SPARSE.to_dense()), (ONES, SPARSE), 0.0, "a"),
        ((ONES, SPARSE), (ONES, SPARSE.to_dense()), 0.0, "a"),
        ((ONES, 2 * SPARSE), (ONES, SPARSE), 1.0, "b"),
        ((ONES, 2j * ONES), (ONES, 1j * ONES), 1.0, "b"),
        ((ONES, (2 * ONES).half()), (ONES, ONES), 1.0, "b"),
        ((ONES, SQUARE.contiguous(memory_format=torch.channels_last)), (ONES, SQUARE), 0.0, "a"),
    ],
)
def test_gaps(after: Any, before: Any, found: float, name: str) -> None:
    assert gap(after, before) == (pytest.approx(found, rel=1e-6), name)


def layer(inputs: int, weight: float, bias: float) -> nn.Linear:
    """One output, all gradients alike."""
    found = nn.Linear(inputs, 1)
    found.weight.grad, found.bias.grad = torch.full((1, inputs), weight), torch.full((1,), bias)
    return found


@pytest.mark.parametrize("inputs", [1, 16])
@pytest.mark.parametrize(
    ("after", "found", "name"),
    [
        ((1.0, 1.0), 1 / 8, "bias"),  # against what its weight feels per element, eight times
        ((1.5, 1.0), 1 / 2, "weight"),  # which is not allowed as much itself
        ((2.0, 24.0), 3.0, "bias"),
    ],
)
def test_a_bias_is_measured_beside_its_weight(inputs: int, after: tuple[float, float], found: float, name: str) -> None:
    before = {"weight": torch.ones(1, inputs), "bias": torch.zeros(1)}
    assert gradients.gap_to(layer(inputs, *after), before) == {
        "gap": found.hex(), "name": name, "compared": 2
    }  # fmt: skip


def test_a_bias_is_measured_beside_the_weight_of_its_own_layer() -> None:
    model = nn.Sequential(layer(16, 1.0, 1.0), layer(16, 100.0, 0.0))
    before = {name: torch.zeros(1) if p.ndim == 1 else p.grad for name, p in model.named_parameters()}
    assert gradients.gap_to(model, before) == {"gap": (1 / 8).hex(), "name": "0.bias", "compared": 4}


@pytest.mark.parametrize("frozen", [False, True])
def test_a_bias_that_is_left_out_had_no_gradient(frozen: bool) -> None:
    """A norm in training mode subtracts it again; one in eval mode does not, and the bias would have been trained."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(64, 2))
    model[1].train(not frozen)
    nn.functional.cross_entropy(model(torch.randn(8, 3, 6, 6)), torch.tensor([0, 1] * 4)).backward()
    before = {name: parameter.grad for name, parameter in model.named_parameters()}
    model[0].register_parameter("bias", None)
    found = gradients.gap_to(model, before, may_lack=True)
    assert (found["compared"], found["name"], found["lost"]) == (6, "0.bias", [found["gap"], "0.bias"])
    assert (float.fromhex(found["gap"]) > 1e-2) if frozen else (float.fromhex(found["gap"]) < 1e-6)
    assert gradients.gap_to(model, before) == {"gap": (0.0).hex(), "name": "0.weight", "compared": 5}


@pytest.mark.parametrize(
    ("model", "before", "why"),
    [
        (Two(ONES, ONES), {"a": torch.tensor([math.inf] * 4)}, "those of the unpatched code are not finite"),
        (Two(ONES, ONES), {"c": ONES}, "no parameter has its name in both"),
        (Two(ONES, ONES), {"a": torch.ones(5)}, "no parameter has its name in both"),
    ],
)
def test_what_cannot_be_compared(model: nn.Module, before: dict[str, Any], why: str) -> None:
    assert gradients.gap_to(model, before) == {"why": why}


def test_parameters_are_matched_by_name_under_wrappers_and_ties() -> None:
    tied = Two(2 * ONES, None)
    tied.b = tied.a
    assert gradients.gap_to(nn.ModuleDict({"_orig_mod": tied}), {"b": ONES})["name"] == "b"
    assert gradients.gap_to(nn.DataParallel(tied), {"b": ONES, "gone": ONES})["compared"] == 1


def training(scale: float | None = None) -> Any:
    """A training with one step's gradients, times a loss scale."""
    scaler = None if scale is None else SimpleNamespace(get_scale=lambda: scale)
    one = SimpleNamespace(model=Two((scale or 1.0) * ONES, 2 * (scale or 1.0) * ONES), scaler=scaler)
    one._backward = lambda loss: None
    return one


@pytest.mark.parametrize(("before", "after"), [(None, None), (None, 1024.0), (3.0, None)])
def test_a_loss_scale_is_taken_out(tmp_path: Path, before: float | None, after: float | None) -> None:
    file, batch = str(tmp_path / "g.pt"), {"x": [ONES]}
    gradients.save(training(before), batch, file)
    found = gradients.compare_with_file(training(after), batch, file)
    assert (float.fromhex(found["gap"]), found["compared"], found["same_batch"]) == (0.0, 2, True)
    assert not gradients.compare_with_file(training(after), {"x": [2 * ONES]}, file)["same_batch"]


@pytest.mark.parametrize("kind", [lambda g: g.to_sparse(), lambda g: g.half(), lambda g: g * 1j, lambda g: g])
def test_every_kind_of_gradient_comes_back_from_the_file(tmp_path: Path, kind: Callable[[Any], Any]) -> None:
    file, one = str(tmp_path / "g.pt"), training()
    one.model = Two(kind(ONES), None)
    gradients.save(one, None, file)
    assert gradients.compare_with_file(one, None, file) == {
        "gap": (0.0).hex(), "name": "a", "compared": 2, "same_batch": True,
    }  # fmt: skip


def test_gradients_that_cannot_be_kept_are_no_fault(tmp_path: Path) -> None:
    file = str(tmp_path / "no such folder" / "g.pt")
    gradients.save(training(), ONES, file)
    assert gradients.compare_with_file(training(), ONES, file) == {
        "why": "those of the unpatched code could not be kept"
    }


def test_half_a_file_is_taken_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(what: Any, file: str) -> None:
        Path(file).write_text("half")
        raise OSError("no space left on device")

    monkeypatch.setattr(torch, "save", full)
    gradients.save(training(), ONES, str(tmp_path / "g.pt"))
    assert list(tmp_path.iterdir()) == []


def test_a_file_of_another_kind_is_no_fault(tmp_path: Path) -> None:
    file = tmp_path / "g.pt"
    file.write_text("no gradients")
    (what,) = gradients.compare_with_file(training(), ONES, str(file)).items()
    assert what[0] == "why" and what[1].startswith("they cannot be compared: ") and "\n" not in what[1]


def test_the_file_stays_on_the_disk_and_its_tensors_on_the_host(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, load, asked = str(tmp_path / "g.pt"), torch.load, []

    def watched(name: str, **how: Any) -> Any:
        asked.append((name, how))
        return load(name, **how)

    monkeypatch.setattr(torch, "load", watched)
    gradients.save(training(), ONES, file)
    assert gradients.compare_with_file(training(), ONES, file)["compared"] == 2
    assert asked == [(file, {"weights_only": True, "map_location": "cpu", "mmap": True})]


def test_looks_once_behind_the_first_backward_and_leaves_the_training_as_it_was() -> None:
    seen: list[str] = []

    class Kind:
        def _backward(self, loss: str) -> None:
            seen.append(loss)

    one = Kind()
    with gradients.after_first_backward(one, lambda: seen.append("look")):
        one._backward("first")
        one._backward("second")
    assert (seen, vars(one)) == (["first", "look", "second"], {})
    with gradients.after_first_backward(one, lambda: None):
        pass
    assert vars(one) == {}


def test_what_the_gradients_of_a_training_do_by_themselves() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Dropout(0.5), nn.Linear(8, 1))
    batch = torch.randn(16, 4)

    def backward(loss: Any) -> None:
        loss.backward()

    one = SimpleNamespace(
        model=model, next_batch=lambda: batch, to_device=lambda b: b, around_loss=contextlib.nullcontext,
        loss=lambda b: model(b).square().mean(), _backward=backward, scaler=None,
    )  # fmt: skip

    def nudge(draw: int) -> contextlib.AbstractContextManager[None]:
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.mul_(1 + 1e-4)
        return contextlib.nullcontext()

    found = gradients.sensitivity(one, 1, 2, nudge, torch.manual_seed)
    again, stream, nudged = (float.fromhex(found[name]) for name in ("again", "stream", "nudged"))
    assert again == 0.0
    assert 0 < nudged < 1e-2 < stream


def test_buffers_are_put_back_and_gradients_that_live_in_buckets_are_copied() -> None:
    """A forward pass that counts itself, and gradients that are views of storage which is used again, as DDP's may be."""

    class Counting(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.ones(3))
            self.register_buffer("passes", torch.zeros(()))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.passes += 1
            return (self.weight * x).square() * self.passes

    model, bucket, seeds = Counting(), torch.zeros(3), list[int]()

    def backward(loss: Any) -> None:
        loss.backward()
        bucket.copy_(model.weight.grad)
        model.weight.grad = bucket

    one = SimpleNamespace(
        model=model, next_batch=lambda: torch.ones(3), to_device=lambda b: b, around_loss=contextlib.nullcontext,
        loss=lambda b: model(b).sum() * (2 if seeds[-1] == 2 else 1), _backward=backward, scaler=None,
    )  # fmt: skip

    @contextlib.contextmanager
    def nudge(draw: int) -> Any:
        model.weight.data *= 1.25 if draw == 2 else 1.0
        yield
        model.weight.data /= 1.25 if draw == 2 else 1.0

    found = gradients.sensitivity(one, 1, 2, nudge, seeds.append)
    assert {name: float.fromhex(value) for name, value in found.items()} == {
        "again": 0.0,
        "stream": 1.0,
        "nudged": 0.25,
    }
    assert seeds == [1, 1, 1, 2, 1, 1, 1, 1]
