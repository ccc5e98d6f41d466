"""Biases before a norm: the patch, what it changes, and what becomes of old checkpoints."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from surveys import found, survey_of

from perfaudit.errors import TargetError
from perfaudit.knobs import Told
from perfaudit.knobs._code import Code
from perfaudit.knobs.conv_bias import KNOB, RUNNING_MEAN
from perfaudit.measure.facts import Script
from perfaudit.static.scan import scan
from perfaudit.target.construction import modules_built

LEFT_OUT = {"bias": "left out"}


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8)", "nn.Conv2d(3, 8, 3, bias=False), nn.BatchNorm2d(8)"),
        ("nn.Linear(3, 8), nn.BatchNorm1d(8)", "nn.Linear(3, 8, bias=False), nn.BatchNorm1d(8)"),
        ("nn.Conv2d(3, 8, 3, bias=False), nn.BatchNorm2d(8)", None),
        ("nn.Conv2d(3, 8, 3), nn.ReLU(), nn.BatchNorm2d(8)", None),
    ],
)
def test_the_patch_leaves_biases_out(project: Callable[..., Path], before: str, after: str | None) -> None:
    text = "from torch import nn\n\n\ndef build_model():\n    return nn.Sequential({})\n"
    project(**{"model.py": text.format(before)})
    patch = KNOB.patch(Code("model.py", survey_of(scan(["model.py"]).findings)), LEFT_OUT)
    if after is None:
        assert patch is None
    else:
        assert patch is not None
        assert patch.after == text.format(after)
        assert patch.changes is not None and set(patch.changes) == {"rounding", "rng", "checkpoint"} == set(
            KNOB.changes(LEFT_OUT)
        )


def test_a_script_that_runs_gets_layers_without_biases_where_the_patch_edits(project: Callable[..., Path]) -> None:
    text = "from torch import nn\n\nnet = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.Conv2d(8, 2, 1))\n"
    project(**{"train.py": text})
    patch = KNOB.patch(Code("train.py", survey_of(scan(["train.py"]).findings)), LEFT_OUT)
    assert patch is not None
    told = KNOB.told_in_place(patch, LEFT_OUT)
    with modules_built() as origins:
        names: dict[str, Any] = {}
        exec(compile(text, "train.py", "exec"), names)
    first, _, last = net = names["net"]
    biases, script = (first.bias, last.bias), Namespace(models=[net], module_site=origins.of_module, target="train.py")
    first.bias.grad = torch.ones(8)
    with KNOB.in_place(script, told):
        assert first.bias is None and biases[0].grad is None
        assert last.bias is biases[1]  # no norm behind it
    assert (first.bias, last.bias) == biases and biases[0].grad is not None
    with pytest.raises(TargetError, match="none of the layers in its model was built"):
        KNOB.in_place(script, {**told, "places": "1:1"}).__enter__()


def test_it_is_put_in_place_of_a_script_and_built_anew_of_factories() -> None:
    assert KNOB.way_on(survey_of(script=Script()), LEFT_OUT) == "setting"
    assert KNOB.way_on(survey_of(), LEFT_OUT) == "fresh"


def test_without_findings_it_cannot_matter() -> None:
    reason = KNOB.not_applicable(survey_of([found("PA203")], project_files=("m.py",)))
    assert reason == "no bias of a convolution or linear layer directly before a norm was found in m.py"
    assert KNOB.not_applicable(survey_of([found("PA202")])) == ""


def test_old_checkpoints_are_spoken_of_when_biases_go() -> None:
    survey = survey_of([found("PA201")])
    assert KNOB.remarks(Told(survey, (), (), {}, LEFT_OUT)) == [RUNNING_MEAN]
    assert KNOB.remarks(Told(survey, (), (), {}, None)) == []


def test_the_folding_that_the_remark_gives_keeps_the_evaluation() -> None:
    """What migrating a checkpoint rests on: running_mean -= bias, and the bias is gone."""

    torch.manual_seed(0)
    with_bias = torch.nn.Sequential(torch.nn.Conv2d(2, 3, 3), torch.nn.BatchNorm2d(3))
    torch.nn.init.constant_(with_bias[0].bias, 0.5)
    batch = torch.randn(4, 2, 8, 8)
    for _ in range(3):
        with_bias(batch)
    without = torch.nn.Sequential(torch.nn.Conv2d(2, 3, 3, bias=False), torch.nn.BatchNorm2d(3))
    state = {name: value.clone() for name, value in with_bias.state_dict().items()}
    state["1.running_mean"] -= state.pop("0.bias")
    without.load_state_dict(state)
    torch.testing.assert_close(without.eval()(batch), with_bias.eval()(batch))
