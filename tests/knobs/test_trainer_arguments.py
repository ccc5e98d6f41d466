"""Settings that a library's trainer takes as arguments: the edit of that call, its words, and where nothing is edited."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import pytest
from surveys import facts, profile_of, survey_of

from perfaudit.findings import Fix, Location
from perfaudit.knobs import Bench, Probe, Refused, knob
from perfaudit.knobs._code import Code
from perfaudit.measure.facts import CallSite, Script, Trainer
from perfaudit.measurements import Settings
from perfaudit.tune.candidates import PATCH, Candidate
from perfaudit.tune.final import why_not_built

BF16, TF32, FUSED = {"precision": "bf16"}, {"precision": "tf32"}, {"update": "fused"}
HF = {"library": "transformers", "optimizer": "adamw_torch"}
ASKED_FUSED = {**HF, "optimizer": "adamw_torch_fused"}


def script_with(trainer: dict[str, Any], site: CallSite | None = None, **given: Any) -> Any:
    usual = {"precision": "float32", "optimizer": "", "site": site}
    return survey_of(script=Script(), trainer=Trainer(**{**usual, **trainer}), factories={}, **given)


@pytest.mark.parametrize(
    ("call", "trainer", "name", "settings", "patched", "words"),
    [
        (
            'TrainingArguments("out", optim="adamw_torch")', HF, "optimizer", FUSED,
            'TrainingArguments("out", optim="adamw_torch_fused")', 'give TrainingArguments optim="adamw_torch_fused"',
        ),
        (
            'TrainingArguments("out")', ASKED_FUSED, "optimizer", {"update": "for-loop"},
            'TrainingArguments("out", optim="adamw_torch")', 'give TrainingArguments optim="adamw_torch"',
        ),
        (
            'TrainingArguments("out", bf16=False)', HF, "precision", BF16,
            'TrainingArguments("out", bf16=True)', "give TrainingArguments bf16=True",
        ),
        (
            'TrainingArguments("out")', HF, "precision", TF32,
            'TrainingArguments("out", tf32=True)', "give TrainingArguments tf32=True",
        ),
        (
            "pl.Trainer(precision=32)", {"library": "lightning"}, "precision", BF16,
            'pl.Trainer(precision="bf16-mixed")', 'give the Trainer precision="bf16-mixed"',
        ),
        (
            "pl.Trainer()", {"library": "lightning"}, "cudnn", {"benchmark": True},
            "pl.Trainer(benchmark=True)", "give the Trainer benchmark=True, as long as inputs keep their shapes",
        ),
        (
            "Accelerator()", {"library": "accelerate"}, "precision", BF16,
            'Accelerator(mixed_precision="bf16")', 'give the Accelerator mixed_precision="bf16"',
        ),
        (
            'TrainingArguments("out")', HF, "compile", {"compile": "default"},
            'TrainingArguments("out", torch_compile=True)', "give TrainingArguments torch_compile=True",
        ),
        # Not without a doubt.
        ("TrainingArguments(**options)", HF, "precision", BF16, None, "give TrainingArguments bf16=True"),
        (
            'Accelerator(True, False, "no")', {"library": "accelerate"}, "precision", BF16,
            None, 'give the Accelerator mixed_precision="bf16"',
        ),
        # torch has no kernel over lists that Hugging Face's arguments ask for on a CPU; an SGD is asked for otherwise.
        ("TrainingArguments()", HF, "optimizer", {"update": "foreach"}, None, "build AdamW with foreach=True"),
        ("TrainingArguments()", {**HF, "optimizer": "sgd"}, "optimizer", FUSED, None, "build AdamW with fused=True"),
        # It says "fused" and its optimizer is not: it was handed one that a library has built.
        ("TrainingArguments()", ASKED_FUSED, "optimizer", FUSED, None, "build AdamW with fused=True"),
    ],
)  # fmt: skip
def test_the_patch_of_a_trainers_arguments(
    call: str, trainer: dict[str, Any], name: str, settings: Settings, patched: str | None, words: str, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    text = f"trainer = {call}\n"
    (tmp_path / "train.py").write_text(text)
    node = ast.parse(text).body[0].value  # type: ignore[attr-defined]
    site = CallSite(str(tmp_path / "train.py"), 1, 1, node.col_offset, node.end_col_offset)
    is_fused = settings.get("update") == "for-loop"
    survey = script_with(trainer, site, optimizer={"fused": True} if is_fused else {})
    patch = knob(name).patch(Code("train.py", survey), settings)
    assert (patch.after if patch is not None else None) == (f"trainer = {patched}\n" if patched else None)
    assert knob(name).words(settings, survey) == words


def test_a_compiler_that_switches_tf32_on_is_told_not_to() -> None:
    site = CallSite("train.py", 1, 1, 0, 1)
    given = script_with(HF, site, device={"type": "cuda"})
    assert (
        knob("compile").words({"compile": "default"}, given) == "give TrainingArguments torch_compile=True, tf32=False"
    )
    rounds = script_with({**HF, "precision": "tf32"}, site, device={"type": "cuda"})
    assert knob("compile").words({"compile": "default"}, rounds) == "give TrainingArguments torch_compile=True"
    assert (
        knob("compile").words({"compile": "default"}, script_with(HF)).startswith("compile the model where it is built")
    )


def test_pinned_memory_is_an_argument_of_the_trainer_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text('TrainingArguments("out")\n')
    site = CallSite(str(tmp_path / "train.py"), 1, 1, 0, 24)
    loader = {"prefix": "dataloader_", "pin_memory": True, "site": site}
    survey, without = script_with(HF, site, loader=loader), {"pin_memory": False, "non_blocking": False}
    patch = knob("transfer").patch(Code("train.py", survey), without)
    assert patch is not None and patch.after == 'TrainingArguments("out", dataloader_pin_memory=False)\n'
    assert knob("transfer").words(without, survey) == "give the trainer's arguments dataloader_pin_memory=False"


def test_a_trainer_that_gets_its_arguments_elsewhere_is_not_patched() -> None:
    """From a command line, as `HfArgumentParser` does it."""
    survey = script_with(HF)
    assert knob("precision").patch(Code("train.py", survey), BF16) is None
    assert knob("optimizer").patch(Code("train.py", survey), FUSED) is None


@pytest.mark.parametrize(
    ("trainer", "name", "said"),
    [
        ({"library": "lightning"}, "precision", 'the Trainer its arguments{}precision="bf16-mixed"'),
        ({"library": "lightning"}, "cudnn", "the Trainer its arguments{}benchmark=True"),
        (HF, "precision", "TrainingArguments its arguments{}bf16=True"),
        (HF, "optimizer", 'TrainingArguments its arguments{}optim="adamw_torch_fused"'),
        ({**HF, "optimizer": "sgd"}, "optimizer", ""),
        ({"library": "accelerate"}, "precision", 'the Accelerator its arguments{}mixed_precision="bf16"'),
    ],
)
def test_what_to_set_is_said_where_no_call_of_a_trainer_is_edited(
    trainer: dict[str, Any], name: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where hydra builds it from a configuration, or where its arguments come by `**`."""
    monkeypatch.chdir(tmp_path)
    elsewhere = said.format(": set ") + " where they come from, as a configuration" if said else ""
    assert knob(name).no_line(script_with(trainer)) == (f"no call of yours gives {elsewhere}" if said else "")
    site = CallSite(str(tmp_path / "train.py"), 3, 3, 0, 9)
    by_hand = said.format(" (train.py:3) does not name them: add ") + " by hand" if said else ""
    assert knob(name).no_line(script_with(trainer, site)) == (f"the call that gives {by_hand}" if said else "")


def test_a_fused_update_is_left_to_where_it_comes_from() -> None:
    survey = script_with(ASKED_FUSED, optimizer={"fused": True})
    assert (
        knob("optimizer").no_line(survey) == "the update is fused already, and no call of yours could ask for another"
    )


OPTIONS = {**HF, "options": ("optim", "bf16", "torch_compile", "dataloader_num_workers", "per_device_train_batch_size")}


@pytest.mark.parametrize(
    ("name", "settings", "given", "why"),
    [
        ("optimizer", FUSED, "--optim adamw_torch_fused", "--optim adamw_torch_fused"),
        ("precision", BF16, "--bf16 True", "--bf16 True, which changes precision"),
        ("dataloader", {"num_workers": 4}, "--dataloader_num_workers 4", "--dataloader_num_workers N"),
        ("compile", {"compile": "default"}, "", "--torch_compile True"),
        ("batch_size", {"batch_size": 64}, "--per_device_train_batch_size 64", ""),
    ],
)
def test_arguments_from_the_command_line_are_named_as_options(
    name: str, settings: Settings, given: str, why: str
) -> None:
    """As `HfArgumentParser` takes them: there is no line to patch, and so something to type."""
    survey, module = script_with(OPTIONS, loader={"prefix": "dataloader_", "site": None}), knob(name)
    full = {**module.current(survey), **settings}
    assert module.patch(Code("train.py", survey), full) is None
    said = f"the command line sets it, which is no line to patch: give the script {why}"
    if name == "batch_size":
        said = "the argument --per_device_train_batch_size sets it, which is no line to patch"
        assert module.handed_over(full, survey) == f"give the script {given}"
    elif name != "compile":  # which is a line behind the model where there is one
        assert module.words(full, survey) == f"give the script {given}"
        assert module.handed_over(full, survey).startswith("add it to the command that starts the training")
    assert (module.no_line(survey) if name == "compile" else module.by_hand(survey)) == said


def test_an_option_that_would_change_nothing_is_not_named() -> None:
    assert knob("optimizer").by_hand(script_with({**OPTIONS, **ASKED_FUSED}, optimizer={"fused": True})) == ""
    refuses = script_with({**OPTIONS, "refuses_bf16": "on a CPU it takes bf16=True only beside use_cpu=True"})
    assert knob("precision").by_hand(refuses) == ""
    assert knob("precision").by_hand(script_with({**OPTIONS, "options": ("optim",)})) == ""


@pytest.mark.parametrize(
    ("name", "settings", "why"),
    [
        ("precision", BF16, "--trainer.precision bf16-mixed, which changes precision"),
        ("cudnn", {"benchmark": True}, "--trainer.benchmark True"),
    ],
)
def test_arguments_of_lightnings_command_line_are_named_as_options(name: str, settings: Settings, why: str) -> None:
    """As `LightningCLI` takes them."""
    options = {"library": "lightning", "options": ("benchmark", "precision"), "option_prefix": "trainer."}
    survey, module = script_with(options), knob(name)
    assert module.by_hand(survey) == f"the command line sets it, which is no line to patch: give the script {why}"
    assert module.patch(Code("train.py", survey), settings) is None
    assert module.words(settings, survey).startswith(f"give the script {why.partition(',')[0]}")
    assert module.handed_over(settings, survey).startswith("add it to the command that starts the training")


@pytest.mark.parametrize(
    ("given", "why", "now", "tried"),
    [
        (script_with(HF), "", "float32", ["bf16"]),
        (script_with({**HF, "precision": "bf16"}), "the trainer computes in bf16 already", "bf16", []),
        (script_with({"library": "lightning", "precision": "64-true"}), "the trainer computes in 64-true already", "64-true", []),
        (script_with(HF, device={"type": "cuda", "capability": (9, 0)}), "", "float32", ["tf32", "bf16"]),
        (script_with({**HF, "precision": "tf32"}, device={"type": "cuda", "capability": (9, 0)}), "", "tf32", ["bf16"]),
    ],
)  # fmt: skip
def test_the_precision_that_a_trainer_computes_in(given: Any, why: str, now: str, tried: list[str]) -> None:
    asked: list[object] = []
    bench = Bench(given, 2, 1, Probe, lambda *a, **k: asked.append(a) or {})
    assert knob("precision").why_not(given) == why
    assert knob("precision").current(given) == {"precision": now}
    if not why:
        assert [item["precision"] for item in knob("precision").candidates(bench)] == tried
    assert asked == []


def test_a_trainer_that_refuses_bfloat16_is_not_given_it() -> None:
    why = "on a CPU TrainingArguments takes bf16=True only beside use_cpu=True"
    with pytest.raises(Refused, match=why):
        knob("precision").candidates(Bench(script_with({**HF, "refuses_bf16": why}), 2, 1, Probe, lambda *a, **k: {}))


def test_a_patch_that_does_not_build_its_setting_is_refused() -> None:
    """As where the program sets `arguments.bf16` again behind the call: what was raced is not what would be handed over."""
    place = Location("train.py", 1, 1, 1, 1)
    rung = Candidate("key", "precision", BF16, Fix("give TrainingArguments bf16=True", "unsafe"), place, "", "setting")
    other = Candidate("other", PATCH, {}, Fix("of a finding", "safe"), place, "", "code")
    profile = profile_of(script_with(HF))
    built = facts(script=Script(), trainer=Trainer(library="transformers", precision="bf16", optimizer="", site=None))
    rungs = {"all": [rung, other]}
    assert why_not_built(profile, rungs, "all", built) == ""
    assert why_not_built(profile, rungs, "all", profile.survey.facts) == (
        "the patched source does not build what was raced: give TrainingArguments bf16=True"
    )
