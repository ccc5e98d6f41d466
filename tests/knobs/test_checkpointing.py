"""Checkpointed blocks train to the bit as before, hold less, and the words say what that costs."""

from __future__ import annotations

import math
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from surveys import survey_of

from perfaudit.knobs import Survey, Told
from perfaudit.knobs.checkpointing import KNOB, OFF, ON
from perfaudit.measurements import Comparison, Trial
from perfaudit.target.blocks import Repeated, repeated_blocks

REPEATED = Repeated("blocks", 4, 0)


def survey(repeated: Repeated | None = REPEATED, recomputes: bool = False) -> Survey:
    return survey_of(model={"repeated": repeated, "recomputes": recomputes})


def blocks_of(count: int, width: int = 8) -> Any:
    from torch import nn

    return nn.Sequential(*(nn.Sequential(nn.Linear(width, width), nn.Tanh(), nn.Dropout(0.5)) for _ in range(count)))


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        (survey(), ""),
        (
            survey(None),
            "the model has no Sequential or ModuleList of blocks of one class, of which each could be recomputed",
        ),
        (survey(recomputes=True), "the model checkpoints its activations already (gradient_checkpointing is on)"),
    ],
)
def test_where_it_cannot_matter(given: Survey, reason: str) -> None:
    assert KNOB.not_applicable(given) == reason


def test_the_container_with_most_parameters_is_found() -> None:
    from torch import nn

    model = nn.ModuleDict({"small": blocks_of(3), "large": blocks_of(2, 64), "single": blocks_of(1, 128)})
    assert repeated_blocks(model) == Repeated("large", 2, 0)


@pytest.mark.parametrize("layers", ["linears", "mixed", "one block"])
def test_what_is_not_a_row_of_blocks(layers: str) -> None:
    from torch import nn

    models = {
        "linears": nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2)),  # one layer each: nothing to be saved inside
        "mixed": nn.Sequential(nn.Sequential(nn.Linear(2, 2)), nn.Linear(2, 2)),
        "one block": nn.Sequential(nn.Sequential(nn.Linear(2, 2))),
    }
    assert repeated_blocks(models[layers]) is None


def test_losses_and_gradients_are_the_same_to_the_bit_with_dropout() -> None:
    import torch

    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), blocks_of(3))
    batch = torch.randn(4, 8)

    def gradients() -> list[Any]:
        model.zero_grad()
        torch.manual_seed(1)
        loss = model(batch).square().sum()
        loss.backward()
        return [loss.detach(), *(p.grad.clone() for p in model.parameters() if p.grad is not None)]

    plain = gradients()
    with KNOB.setup(ON).applied(SimpleNamespace(model=model)):
        assert all("forward" in vars(block) for block in model[1])
        recomputed = gradients()
    assert all(torch.equal(a, b) for a, b in zip(plain, recomputed, strict=True))
    assert not any("forward" in vars(block) for block in model[1])


def test_a_checkpointed_step_holds_less() -> None:
    """Bytes that the blocks save for backward: everything inside them, against their inputs only."""
    import torch

    model = torch.nn.Sequential(blocks_of(4))
    batch = torch.randn(64, 8)

    def saved() -> int:
        sizes: list[int] = []

        def pack(tensor: Any) -> Any:
            sizes.append(tensor.numel() * tensor.element_size())
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            model(batch)
        return sum(sizes)

    plain = saved()
    with KNOB.setup(ON).applied(SimpleNamespace(model=model)):
        assert saved() < plain / 2


def test_a_forward_that_was_set_on_the_object_comes_back() -> None:
    model = blocks_of(2)
    mine = model[0].forward
    model[0].forward = mine
    with KNOB.setup(ON).applied(SimpleNamespace(model=model)):
        assert vars(model[0])["forward"] is not mine
    assert vars(model[0])["forward"] is mine and "forward" not in vars(model[1])


def told(after: int, ratio: tuple[float, float, float] | None, repeated: Repeated = REPEATED) -> Told:
    trials = (
        Trial("checkpointing", OFF, "ok", median=0.1, peak_memory_bytes=64 << 20),
        Trial("checkpointing", ON, "ok", median=0.12, peak_memory_bytes=after),
    )
    compared = () if ratio is None else (Comparison("checkpointing", OFF, ON, *ratio, "slower"),)
    return Told(survey(repeated), trials, compared, {}, None)


@pytest.mark.parametrize(
    ("after", "ratio", "words"),
    [
        (
            16 << 20,
            (1.22, 1.18, 1.27),
            "checkpointing the 4 blocks of `model.blocks` takes peak memory from 64.0 MiB to 16.0 MiB and makes the step "
            "1.22 [1.18, 1.27] times as long; worth it where memory limits the batch",
        ),
        (
            16 << 20,
            (1.22, 0.0, math.inf),
            "checkpointing the 4 blocks of `model.blocks` takes peak memory from 64.0 MiB to 16.0 MiB and makes the step "
            "about 1.22 times as long (too few rounds for an interval); worth it where memory limits the batch",
        ),
        (
            16 << 20,
            None,
            "checkpointing the 4 blocks of `model.blocks` takes peak memory from 64.0 MiB to 16.0 MiB (what it costs in "
            "time was not reached, give it longer with --budget); worth it where memory limits the batch",
        ),
        (
            64 << 20,
            (1.22, 1.18, 1.27),
            "keep what you have: checkpointing the 4 blocks of `model.blocks` does not lower the peak of 64.0 MiB (it is "
            "64.0 MiB) and makes the step 1.22 [1.18, 1.27] times as long",
        ),
    ],
)
def test_the_words(after: int, ratio: tuple[float, float, float] | None, words: str) -> None:
    assert KNOB.kept_words(told(after, ratio)) == words


def test_batch_norms_in_the_blocks_are_spoken_of() -> None:
    assert len(KNOB.remarks(told(1, None))) == 1
    assert "12 batch norms" in KNOB.remarks(told(1, None, replace(REPEATED, batch_norms=12)))[1]


def test_it_never_wins_by_speed() -> None:
    """A race that says "5 % faster" is noise: the setting computes strictly more."""
    assert KNOB.min_gain >= 0.3
    assert KNOB.share(survey()) >= KNOB.min_gain  # else it would be left out as pointless
