"""The layout of convolutional models: read from their weights, changed in place, written at the model factory's return."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from surveys import USUAL, survey_of

from perfaudit.knobs import Bench, Probe, Survey, memory_format
from perfaudit.knobs._code import Code
from perfaudit.measure.gather_facts import _model

KNOB = memory_format.KNOB


def survey(planes: int = 2, kernels: int = 2, channels_last: bool = False) -> Survey:
    return survey_of(model={"planes": planes, "kernels": kernels, "channels_last": channels_last})


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        (survey(), ""),
        (survey(planes=0, kernels=0), "the model has no 2d convolution"),
        (
            survey(kernels=0),
            "all 2d convolutions have 1 x 1 kernels or one input channel, whose weights are the same in both layouts",
        ),
    ],
)
def test_where_it_cannot_matter(given: Survey, reason: str) -> None:
    assert KNOB.not_applicable(given) == reason


@pytest.mark.parametrize(
    ("channels_last", "now", "other"), [(False, "contiguous", "channels_last"), (True, "channels_last", "contiguous")]
)
def test_the_other_layout_is_tried(channels_last: bool, now: str, other: str) -> None:
    bench = Bench(survey(channels_last=channels_last), 2, 1, lambda s: Probe(s), lambda *a, **k: {})
    assert KNOB.current(bench.survey) == {"memory_format": now}
    assert KNOB.candidates(bench) == [{"memory_format": other}]


def test_a_real_model_is_converted_and_says_so() -> None:
    import torch

    model = torch.nn.Sequential(torch.nn.Conv2d(1, 4, 3), torch.nn.Conv2d(4, 4, 3), torch.nn.Conv2d(4, 4, 1))
    weights = [p.detach().clone() for p in model.parameters()]
    assert (_model(model, {}).kernels, _model(model, {}).channels_last) == (1, False)
    for name, is_last in (("channels_last", True), ("contiguous", False)):
        with KNOB.setup({"memory_format": name}).applied(
            SimpleNamespace(model=model, optimizer=SimpleNamespace(state={}))
        ):
            assert KNOB.holds(Survey(replace(USUAL, model=_model(model, {}))), {"memory_format": name})
            output = model(torch.ones(1, 1, 8, 8))
            assert output.is_contiguous(memory_format=torch.channels_last) is is_last  # the input was not converted
    assert all(torch.equal(a, b) for a, b in zip(weights, model.parameters(), strict=True))


MODEL = "import torch\nfrom torch import nn\n\n\ndef build_model():\n    return nn.Conv2d(3, 8, 3)\n"
LOCAL = "from torch import nn\n\n\ndef build_model():\n    model = nn.Conv2d(3, 8, 3)\n    return model  # done\n"


@pytest.mark.parametrize(
    ("name", "before", "after"),
    [
        ("channels_last", MODEL, MODEL.replace("8, 3)", "8, 3).to(memory_format=torch.channels_last)")),
        (
            "channels_last",
            LOCAL,
            "import torch\n" + LOCAL.replace("return model", "return model.to(memory_format=torch.channels_last)"),
        ),
        ("channels_last", "def build_model():\n    yield 1\n", None),
        ("contiguous", MODEL, None),  # what made it channels_last may stand anywhere
    ],
)
def test_the_patch(name: str, before: str, after: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text(before)
    patch = KNOB.patch(Code("train.py", survey()), {"memory_format": name})
    assert (patch and patch.after) == after


def test_words_and_promises() -> None:
    given = {"memory_format": "channels_last"}
    assert KNOB.changes(given) == ("rounding",)
    assert KNOB.words({"memory_format": "channels_last"}, survey()) == (
        "keep the model in another layout: model.to(memory_format=torch.channels_last); its inputs need no conversion"
    )
