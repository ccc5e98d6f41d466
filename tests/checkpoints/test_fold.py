"""What is found in a loaded file and folded, and what is refused, on tensors alone."""

from __future__ import annotations

from typing import Any

import pytest

from perfaudit.checkpoints.fold import Expected, Fold, Refused, copies, fold, refuse_lists_of_parameters

# conv -> norm, registered under a second name too, and a linear layer that keeps its bias.
CONV = Fold("conv", "bn", "BatchNorm2d", 2, ("conv.bias", "alias.bias"), ("bn.running_mean",))
FC = Fold("fc", "fc_bn", "BatchNorm1d", 3, ("fc.bias",), ())
SHAPES: dict[str, tuple[int, ...] | None] = {
    "conv.weight": (2, 1, 1, 1),
    "alias.weight": (2, 1, 1, 1),
    "bn.running_mean": (2,),
    "bn.num_batches_tracked": (),
    "fc.weight": (3, 2),
    "head.weight": (1, 3),
    "head.bias": (1,),
}
BUFFERS = frozenset({"bn.running_mean", "bn.num_batches_tracked"})
EXPECTED = Expected(SHAPES, BUFFERS, (CONV, FC), {"fc2.bias": "but no norm was seen"})


def state(prefix: str = "", **more: Any) -> dict[str, Any]:
    """A state dict of the old model; more: other keys, None to leave one out."""
    import torch

    biases = {"conv.bias": (2,), "alias.bias": (2,), "fc.bias": (3,)}
    tensors: dict[str, Any] = {key: torch.ones(shape or ()) for key, shape in {**SHAPES, **biases}.items()}
    tensors.update(more)
    return {prefix + key: value for key, value in tensors.items() if value is not None}


def tensor(*shape: int) -> Any:
    import torch

    return torch.full(shape, 2.0)


def test_a_fold_changes_the_mean_and_takes_the_biases() -> None:
    saved = {"ema": [{"m": state("module.", **{"conv.bias": tensor(2), "alias.bias": tensor(2)})}], "epoch": 3}
    (found,) = copies(saved, EXPECTED)
    assert (found.name, found.folds) == ("ema[0].m.module", (CONV, FC))
    fold(found)
    after = saved["ema"][0]["m"]  # type: ignore[index]  # a list of dicts
    assert set(after) == {"module." + key for key in SHAPES}
    assert after["module.bn.running_mean"].tolist() == [-1.0, -1.0]


def test_the_type_of_the_mean_stays_and_one_dict_at_two_places_is_folded_once() -> None:
    import torch

    mean = torch.tensor([0.1, 3.0], dtype=torch.float64)
    shared = state(**{"bn.running_mean": mean, "conv.bias": tensor(2).bfloat16(), "alias.bias": tensor(2)})
    found = copies({"model": shared, "best": shared}, EXPECTED)
    assert [copy.name for copy in found] == ["model"]
    for copy in found:
        fold(copy)
    assert shared["bn.running_mean"].tolist() == pytest.approx([-1.9, 1.0])
    assert shared["bn.running_mean"].dtype == torch.float64


REFUSED = {
    "no model": ({"epoch": 3, "losses": [1.0]}, "it holds no state dict of this model"),
    "nothing to fold": (
        lambda: state(**{"conv.bias": None, "alias.bias": None, "fc.bias": None}),
        "nothing to fold: it holds no bias that the model lacks",
    ),
    "one copy migrated before": (
        lambda: {"model": state(), "ema": state(**{"conv.bias": None, "alias.bias": None})},
        "ema and model hold biases of different layers, as if only one of them had been migrated (conv)",
    ),
    "no pair was seen": (
        lambda: state("module.", **{"fc2.bias": tensor(3)}),
        "the file has module.fc2.bias, but no norm",
    ),
    "unknown keys": (
        lambda: {"net": state(**{"extra.weight": tensor(3)})},
        "net has keys that the model lacks and that are no bias before a norm: extra.weight",
    ),
    "missing keys": (
        lambda: {"net": state(**{"head.weight": None})},
        "net lacks head.weight of the model as its source",
    ),
    "an average without buffers": (
        lambda: {"net": state(), "shadow": state(**dict.fromkeys(BUFFERS))},
        "shadow has the model's parameters but not its running means and variances (bn.running_mean, bn.num_batches_",
    ),
    "another shape": (
        lambda: {"net": state(**{"head.weight": tensor(1, 4)})},
        "net: head.weight has the shape (1, 4), the model needs (1, 3)",
    ),
    "another width": (lambda: state(**{"fc.bias": tensor(4)}), "fc.bias has the shape (4,), the model needs (3,)"),
    "no tensor": (lambda: state(**{"head.bias": 3}), "head.bias is a int, not a plain tensor (a sharded checkpoint?)"),
    "another model": (
        lambda: {"netG": state(), "netD": {"main.3.weight": tensor(9), "scale": tensor(2)}},
        "netD holds tensors of another model (main.3.weight, scale); only files of one model are migrated",
    ),
}


@pytest.mark.parametrize("row", REFUSED.values(), ids=REFUSED)
def test_what_is_not_understood_is_refused(row: tuple[Any, str]) -> None:
    saved, message = row
    with pytest.raises(Refused) as refused:
        copies(saved() if callable(saved) else saved, EXPECTED)
    assert str(refused.value).startswith(message)


def test_a_quantized_or_sparse_tensor_is_refused() -> None:
    with pytest.raises(Refused, match=r"fc.weight is a Tensor of another layout, not a plain tensor"):
        copies(state(**{"fc.weight": tensor(3, 2).to_sparse()}), EXPECTED)


def test_what_stands_beside_a_model_is_left_alone() -> None:
    """Counts of wrappers, random states, weights of a loss, running losses, a dict that holds itself."""
    saved: dict[str, Any] = {
        "model": {**state("module."), "n_averaged": tensor(1), "initted": tensor()},
        "rng": tensor(816),
        "criterion": {"weight": tensor(5)},
        "measured": {"val.accuracy": tensor()},
        "cuda": [tensor(16), tensor(16)],
    }
    saved["self"] = saved
    assert [copy.name for copy in copies(saved, EXPECTED)] == ["model.module"]


def test_a_list_of_averaged_parameters_is_refused() -> None:
    shapes = [(2, 1, 1, 1), (2,), (3, 2), (3,)]
    with pytest.raises(Refused, match=r"^ema\.shadow_params lists parameters without names and without running means"):
        refuse_lists_of_parameters({"ema": {"shadow_params": [tensor(*shape) for shape in shapes]}}, shapes)
    refuse_lists_of_parameters({"ema": {"other": [tensor(2), 3]}}, shapes)
