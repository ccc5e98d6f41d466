"""Precisions: which a device has, where the patch goes, what is said of checkpoints, and autocast that is there already."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import pytest
from surveys import survey_of

from perfaudit.knobs import Bench, Probe, Reply, Survey, Told, Unanswered, precision
from perfaudit.knobs._code import Code
from perfaudit.measurements import Settings
from perfaudit.target.flags import flags

KNOB = precision.KNOB


def survey(
    device: str = "cpu",
    capability: tuple[int, int] | None = None,
    precision: str = "highest",
    dtypes: tuple[str, ...] = ("float32",),
    **other: Any,
) -> Survey:
    on, flags = {"type": device, "capability": capability}, {"matmul_precision": precision}
    return survey_of(device=on, flags=flags, model={"dtypes": dtypes}, **other)


def tried(given: Survey, inside: str | None = "") -> tuple[list[object], dict[str, Any]]:
    """Precisions that are tried, and what is kept; inside: what the user's step computes in, None for no answer."""

    def ask(settings: Settings, question: str) -> Reply:
        assert question == "autocast"
        if inside is None:
            raise Unanswered("it died")
        return {"dtype": inside}

    bench = Bench(given, 2, 1 << 30, lambda settings: Probe(settings), ask)
    return [settings["precision"] for settings in KNOB.candidates(bench)], bench.kept


@pytest.mark.parametrize(
    ("given", "names"),
    [
        (survey(), ["bf16"]),
        (survey("cuda", (9, 0)), ["tf32", "bf16", "fp16"]),
        (survey("cuda", (8, 0)), ["tf32", "bf16", "fp16"]),
        (survey("cuda", (7, 5)), ["fp16"]),  # Turing: tensor cores for float16 only
        (survey("cuda", (9, 0), precision="high"), ["bf16", "fp16"]),
        (survey("cuda", (9, 0), precision=""), ["bf16", "fp16"]),  # set by `fp32_precision`
    ],
)
def test_what_a_device_computes_in(given: Survey, names: list[str]) -> None:
    assert tried(given) == (names, {})
    assert tried(given, None)[0] == names  # a question without an answer keeps nothing back


def test_a_step_under_autocast_is_left_alone() -> None:
    names, kept = tried(survey("cuda", (9, 0)), "float16")
    assert names == []
    said = KNOB.kept_words(Told(survey(), (), (), kept, None))
    assert said == "keep what you have: your step computes in float16 under autocast already"
    assert KNOB.kept_words(Told(survey(), (), (), {}, None)) == ""


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        (survey(), ""),
        (survey("cuda", (7, 0)), ""),
        (survey("mps"), "it is searched on CPUs and CUDA devices, and this training runs on mps"),
        (survey(dtypes=("bfloat16",)), "the model's parameters are bfloat16 already"),
        (
            survey(dtypes=("float64",)),
            "the model's parameters are float64, which autocast leaves alone",
        ),
    ],
)
def test_where_it_cannot_matter(given: Survey, reason: str) -> None:
    assert KNOB.not_applicable(given) == reason


@pytest.mark.parametrize(
    ("given", "now"),
    [
        (survey(), "float32"),
        (survey(precision="high"), "float32"),  # about CUDA
        (survey("cuda", (8, 0), precision="medium"), "tf32"),
        (survey(step_autocast="bfloat16"), "bf16"),
    ],
)
def test_the_current_precision(given: Survey, now: str) -> None:
    assert KNOB.current(given) == {"precision": now}


STEP = """\
import torch
import torch.nn.functional as F


def training_step(model, batch):
    return F.mse_loss(model(batch), batch)
"""
DECORATED = STEP.replace("def training", '@torch.autocast("cpu", dtype=torch.bfloat16)\ndef training')
FROM_TORCH = "from torch import nn\n\n\ndef training_step(model, batch):\n    return model(batch).sum()\n"
TF32 = STEP.replace("as F\n", 'as F\ntorch.set_float32_matmul_precision("high")\n')


@pytest.mark.parametrize(
    ("name", "before", "after"),
    [
        ("bf16", STEP, DECORATED),
        (
            "bf16",
            FROM_TORCH,
            "import torch\n" + FROM_TORCH.replace("def ", '@torch.autocast("cpu", dtype=torch.bfloat16)\ndef '),
        ),
        ("bf16", DECORATED, None),
        ("bf16", "import torch\n", None),  # the step stands somewhere else
        ("fp16", STEP, None),  # a loss scale belongs into the user's loop
        ("tf32", STEP, TF32),
        ("tf32", TF32.replace("high", "highest"), TF32),
    ],
)
def test_the_patch(name: str, before: str, after: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text(before)
    patch = KNOB.patch(Code("train.py", survey()), {"precision": name})
    assert (patch and patch.after) == after


def test_without_a_step_of_their_own_bfloat16_is_words() -> None:
    given = survey(factories={}, factory_files={})
    assert KNOB.patch(Code("train.py", given), {"precision": "bf16"}) is None
    assert KNOB.words({"precision": "bf16"}, given) == (
        'compute the loss in bfloat16: with torch.autocast("cpu", dtype=torch.bfloat16): around the forward pass and the loss'
    )


def test_the_lines_of_a_loss_scale_are_python() -> None:
    lines = KNOB.words({"precision": "fp16"}, survey("cuda", (8, 0))).partition("loss scale: ")[2]
    made, _, step = lines.removeprefix("make ").partition(" once, then in each step: ")
    assert made == 'scaler = torch.amp.GradScaler("cuda")'
    context, _, loop = step.partition("; ")
    ast.parse(f"{context}\n{loop}")
    assert loop == "scaler.scale(loss).backward(); scaler.step(optimizer); scaler.update()"


def test_what_else_changes_is_said() -> None:
    def said(winner: str | None, **other: Any) -> str:
        settings: Settings | None = {"precision": winner} if winner else None
        return " ".join(KNOB.remarks(Told(survey(**other), (), (), {}, settings)))

    assert "checkpoints stay float32" in said("bf16") and "calls training_step" in said("bf16")
    assert "calls" not in said("bf16", factories={})
    assert "scaler.state_dict()" in said("fp16")
    assert said("tf32") == said(None) == ""


@pytest.mark.parametrize(
    ("name", "changes"),
    [("tf32", ("precision",)), ("bf16", ("precision",)), ("fp16", ("precision", "algorithm"))],
)
def test_what_is_promised(name: str, changes: tuple[str, ...]) -> None:
    assert KNOB.changes({"precision": name}) == changes


class Training:
    is_script = False

    """One linear layer on the CPU; `autocast` is what the user's own step does."""

    trainer = None

    def __init__(self, autocast: bool = False) -> None:
        import contextlib

        import torch

        self.device = torch.device("cpu")
        self.model = torch.nn.Sequential(torch.nn.Linear(2, 2))
        self.around_loss: Any = contextlib.nullcontext
        self.scaler: Any = None
        self.autocast = autocast

    def fixed_batch(self) -> Any:
        import torch

        return torch.ones(1, 2)

    def loss(self, batch: Any) -> Any:
        import torch

        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=self.autocast):
            return self.model(batch).sum()


def test_autocast_is_seen_inside_the_step() -> None:
    assert KNOB.answer_autocast(Training()) == {"dtype": ""}
    assert KNOB.answer_autocast(Training(autocast=True)) == {"dtype": "bfloat16"}


def test_bfloat16_surrounds_the_loss_and_nothing_else() -> None:
    import torch

    before, training = flags(), Training()
    with KNOB.setup({"precision": "bf16"}).applied(training):
        with training.around_loss():
            inside = training.model(training.fixed_batch())
        outside = training.model(training.fixed_batch())
    assert (inside.dtype, outside.dtype, training.scaler) == (torch.bfloat16, torch.float32, None)
    assert flags() == before


def test_float16_comes_with_a_scaler_and_tf32_with_a_switch() -> None:
    training = Training()
    with KNOB.setup({"precision": "fp16"}).applied(training):
        assert type(training.scaler).__name__ == "GradScaler"
    before = flags()
    with KNOB.setup({"precision": "tf32"}).applied(training):
        assert flags()["matmul_precision"] == "high"
    assert flags() == before


def test_a_decorated_step_holds_and_another_does_not() -> None:
    import torch

    from perfaudit.measure.gather_facts import _autocast_around

    def step(model: Any, batch: Any) -> Any:
        return model(batch)

    decorated = torch.autocast("cpu", dtype=torch.bfloat16)(step)
    assert (_autocast_around(decorated), _autocast_around(step), _autocast_around(None)) == ("bfloat16", "", "")
    assert KNOB.holds(survey(step_autocast=_autocast_around(decorated)), {"precision": "bf16"})
    assert not KNOB.holds(survey(), {"precision": "bf16"})


@pytest.mark.gpu
def test_every_precision_trains_on_a_cuda_device() -> None:
    import torch

    for name in ("tf32", "bf16", "fp16"):
        training = Training()
        training.device = torch.device("cuda")
        model = training.model.cuda()
        with KNOB.setup({"precision": name}).applied(training):
            with training.around_loss():
                loss = model(training.fixed_batch().cuda()).sum()
            (loss if training.scaler is None else training.scaler.scale(loss)).backward()
        assert loss.isfinite() and model[0].weight.grad.dtype == torch.float32


def test_a_switch_that_torch_refuses_to_tell_is_unknown() -> None:
    """As `get_float32_matmul_precision` does in a program that set `torch.backends.cuda.matmul.fp32_precision`."""
    from perfaudit.target.flags import _if_told

    def refuses() -> str:
        raise RuntimeError("mix of the legacy and new APIs")

    assert (_if_told(refuses), _if_told(lambda: "high")) == ("", "high")
