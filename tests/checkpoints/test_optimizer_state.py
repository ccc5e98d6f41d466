"""Entries of parameters that are gone leave an optimizer's state, the others keep theirs; what is not certain is refused."""

from __future__ import annotations

from typing import Any

import pytest

from perfaudit.checkpoints.fold import Refused
from perfaudit.checkpoints.optimizer_state import Layout, drop, optimizer_states

SHAPES = {"conv.weight": (2, 1), "conv.bias": (2,), "bn.weight": (2,), "head.weight": (1, 2)}
ONE = Layout((("conv.weight", "conv.bias", "bn.weight", "head.weight"),), "build_optimizer()")
TWO = Layout((("conv.bias", "bn.weight"), ("conv.weight", "head.weight")), "build_optimizer()")


def saved(layout: Layout, with_state: tuple[str, ...] = tuple(SHAPES), **more: Any) -> dict[str, Any]:
    """The state of Adam over a layout; the first moment of each parameter is filled with its number."""
    import torch

    order = [name for group in layout.groups for name in group]
    entries = {
        index: {"step": torch.tensor(5.0), "exp_avg": torch.full(SHAPES[name], float(index))}
        for index, name in enumerate(order)
        if name in with_state
    }
    groups = [{"lr": 0.1, "fused": True, "params": [order.index(n) for n in group]} for group in layout.groups]
    return {"state": entries, "param_groups": groups, **more}


def kept(state: dict[str, Any]) -> dict[Any, float]:
    return {index: float(entry["exp_avg"].flatten()[0]) for index, entry in state["state"].items()}


@pytest.mark.parametrize(
    ("layout", "params", "moments"),
    [(ONE, [[0, 1, 2]], {0: 0.0, 1: 2.0, 2: 3.0}), (TWO, [[0], [1, 2]], {0: 1.0, 1: 2.0, 2: 3.0})],
    ids=["one group", "two groups"],
)
def test_entries_go_and_numbers_close_up(layout: Layout, params: Any, moments: Any) -> None:
    state = saved(layout)
    done = drop("opt", state, [layout], SHAPES, {"conv.bias"})
    assert (done.parameters, done.of, done.with_state) == (1, 4, 1)
    assert [group["params"] for group in state["param_groups"]] == params
    assert all((group["lr"], group["fused"]) == (0.1, True) for group in state["param_groups"])
    assert kept(state) == moments
    assert all(float(entry["step"]) == 5.0 for entry in state["state"].values())


def test_entries_that_never_had_state() -> None:
    state = saved(ONE, with_state=("head.weight",))
    assert drop("opt", state, [ONE], SHAPES, {"conv.bias"}).with_state == 0
    assert kept(state) == {2: 3.0}
    empty = saved(ONE, with_state=())
    drop("opt", empty, [ONE], SHAPES, {"conv.bias"})
    assert (empty["state"], empty["param_groups"][0]["params"]) == ({}, [0, 1, 2])


def test_names_in_the_file_say_which_is_which() -> None:
    backwards = Layout((("head.weight", "bn.weight", "conv.bias", "conv.weight"),), "")
    state = saved(backwards)
    state["param_groups"][0]["param_names"] = ["module." + name for name in backwards.groups[0]]
    done = drop("opt", state, [ONE], SHAPES, {"conv.bias"})
    assert done.source == "the names in the file"
    assert state["param_groups"][0]["param_names"] == ["module.head.weight", "module.bn.weight", "module.conv.weight"]
    assert kept(state) == {0: 0.0, 1: 1.0, 2: 3.0}
    by_name = saved(ONE)
    by_name["state"] = {ONE.groups[0][index]: entry for index, entry in by_name["state"].items()}
    by_name["param_groups"][0]["params"] = list(ONE.groups[0])
    drop("opt", by_name, [], SHAPES, {"conv.bias"})
    assert by_name["param_groups"][0]["params"] == ["conv.weight", "bn.weight", "head.weight"]
    assert set(by_name["state"]) == {"conv.weight", "bn.weight", "head.weight"}


@pytest.mark.parametrize(
    ("state", "layouts", "message"),
    [
        (
            lambda: saved(TWO),
            [ONE],
            "opt: it holds 2 groups of 2 and 2 parameters, the old model had 4 parameters by build_",
        ),
        (lambda: saved(Layout((ONE.groups[0][1:],), "")), [ONE], "opt: it holds 3 parameters, the old model had 4"),
        (
            lambda: saved(Layout((ONE.groups[0][::-1],), "")),
            [ONE],
            "opt: by build_optimizer() one entry belongs to conv.weight of shape (2, 1), but it has a tensor of shape (1, 2)",
        ),
        (
            lambda: saved(ONE) | {"param_groups": [{"params": [0, 1, 1, 2]}]},
            [ONE],
            "opt: its groups and its state do not name the same parameters",
        ),
        (
            lambda: saved(ONE) | {"param_groups": [{"params": [0, 1, 2, 7]}]},
            [ONE],
            "opt: its groups and its state do not name the same parameters",
        ),
    ],
)
def test_what_is_not_certain_is_refused(state: Any, layouts: list[Layout], message: str) -> None:
    with pytest.raises(Refused) as refused:
        drop("opt", state(), layouts, SHAPES, {"conv.bias"})
    assert str(refused.value).startswith(message)


def test_optimizers_are_found_wherever_they_are() -> None:
    data = {"optimizer_states": [saved(ONE)], "opts": {"g": saved(TWO)}, "state": {"param_groups": []}, "scaler": {}}
    assert [place for place, _ in optimizer_states(data)] == ["optimizer_states[0]", "opts.g"]
