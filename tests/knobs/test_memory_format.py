"""The layout of convolutional models: read from their weights, changed in place, written at the model factory's return."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from surveys import USUAL, survey_of

from perfaudit.knobs import Bench, Probe, Survey, memory_format
from perfaudit.knobs._code import Code
from perfaudit.measure.facts import Script
from perfaudit.measure.gather_facts import _model
from perfaudit.training.held_names import Held

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


NET = """\
import torch

class Net(torch.nn.Module):
    def forward(self, x):
        x = self.norm(x.view(x.size(0), -1))  # rows
        return x.view(-1, 1), x.view(2, 3, -1), f"{x.view(2, -1)}"

def flat(x):
    return x.view(2, -1)

net = Net()
net(1)
"""


def test_views_that_flatten_become_reshapes_with_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text(NET)
    held = Held(str(tmp_path / "train.py"), "<module>", 1, "net", 12)
    model = {"planes": 2, "kernels": 2}
    given = survey_of(model=model, factories={}, factory_files={}, script=Script(models=((held,),)))
    settings = {"memory_format": "channels_last"}
    patch = KNOB.patch(Code("train.py", given), settings)
    assert patch is not None and patch.location.line == 11
    new = NET.replace("x.view(x.size(0), -1)", "x.reshape(x.size(0), -1)")
    assert patch.after == new.replace("net = Net()\n", "net = Net()\nnet.to(memory_format=torch.channels_last)\n")
    assert KNOB.told_in_place(patch, settings) == {**settings, "reshapes": True}


def test_a_view_that_flattens_is_a_reshape_while_it_is_put_in_place() -> None:
    import torch

    class Net(torch.nn.Conv2d):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            out = super().forward(x)
            return out.view(out.size(0), -1)

    model, x = Net(3, 4, 3), torch.rand(2, 3, 6, 6)
    training = SimpleNamespace(model=model, optimizer=SimpleNamespace(state={}))
    before, view = model(x), torch.Tensor.view
    with KNOB.in_place(training, {"memory_format": "channels_last", "reshapes": True}):
        assert torch.allclose(model(x), before, atol=1e-6)
    assert torch.Tensor.view is view and "view" not in vars(torch.Tensor)
    with KNOB.in_place(training, {"memory_format": "channels_last"}), pytest.raises(RuntimeError, match="reshape"):
        model(x)


def test_words_and_promises() -> None:
    given = {"memory_format": "channels_last"}
    assert KNOB.changes(given) == ("rounding",)
    assert KNOB.words({"memory_format": "channels_last"}, survey()) == (
        "keep the model in another layout: model.to(memory_format=torch.channels_last); its inputs need no conversion"
    )
