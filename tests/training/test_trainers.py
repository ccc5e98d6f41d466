"""Sample programs that train with Hugging Face, Lightning and Accelerate: their steps, where their knobs live, bfloat16 in place.

Each needs its package, and is skipped without it: `make trainers` makes an environment that has them all.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from perfaudit.training.trainers import Trainer, Trainers

pytest.importorskip("greenlet")
ROOT = Path(__file__).parents[2]
PROGRAMS = Path(__file__).parent / "trainer_programs"

# Runs in a process of its own: a script changes what belongs to the whole process.
DRIVER = """
import json, os, sys, types
from perfaudit.target.names import Target
from perfaudit.target.working_folder import begin
begin()
from perfaudit.training.script_training import ScriptTraining
training = ScriptTraining(Target("train.py", {}, ()))
import torch
from perfaudit.knobs import Survey, knob
from perfaudit.knobs._code import Code
from perfaudit.measure.facts import to_json
from perfaudit.measure.gather_facts import facts_of
from perfaudit.training.loader_variant import LoaderVariant

facts = facts_of(training)
survey = Survey(facts)
found = {"trainer": [facts.trainer.library, facts.trainer.precision] if facts.trainer else None}
found["other size"] = knob("batch_size").not_applicable(survey)
found["gradients"] = sorted(name.rpartition("layers.")[2] for name in training.first_gradients)
settings = {
    "optimizer": {"update": "fused"},
    "precision": {"precision": "bf16"},
    "dataloader": {"num_workers": 2, "pin_memory": facts.loader.pin_memory, "prefetch_factor": 2, "persistent_workers": False},
}
found["patches"] = {}
for name, setting in settings.items():
    patch = knob(name).patch(Code("train.py", survey), setting)
    lines = patch.diff.splitlines() if patch else []
    found["patches"][name] = [line[1:].strip() for line in lines if line[0] == "+" and line[:3] != "+++"]

found["samples"], found["records"] = [], []
for _ in range(2):
    found["samples"].append(training.whole_step())
    for record in training._records:
        found["records"].append({name: record[name] for name in ("batches", "samples", "backwards", "optimizer")})

seen, linear = [], torch.nn.functional.linear
def look(*arguments):
    result = linear(*arguments)
    seen.append(str(result.dtype).removeprefix("torch."))
    return result
torch.nn.functional.linear = look
precision = knob("precision")
with precision.in_place(training, {"precision": "bf16"}):
    training.whole_step()
    found["inside"] = sorted(set(seen))
    found["says"] = precision.current(Survey(facts_of(training)))["precision"]
    seen.clear()
training.whole_step()
found["outside"] = sorted(set(seen))
found["said afterwards"] = precision.current(Survey(facts_of(training)))["precision"]

from perfaudit.knobs._samples_alike import are_alike
found["alike with workers"] = are_alike(knob("dataloader").answer_samples(training, [2], 8))

rows = {"batch_sampler": [[1], [2], [3]] * 40} if training.loader.batch_size is None else {"batch_size": 1}
other = LoaderVariant(training, rows)
other.enter()
training.whole_step()
found["of another loader"] = training.whole_step()
other.leave()
training.whole_step()
found["of its own again"] = training.whole_step()
print("\\n" + json.dumps(found), flush=True)
os._exit(0)
"""
STEP = {"batches": 2, "samples": 16, "backwards": 2, "optimizer": 0}
SAMPLES = {
    "hugging_face": {
        "package": "transformers",
        "trainer": ["transformers", "float32"],
        "patches": {
            "optimizer": ['optim="adamw_torch_fused",  # torch\'s own loop over parameters'],
            "precision": ["bf16=True,"],
            "dataloader": ["dataloader_num_workers=2,"],
        },
    },
    "lightning_fit": {
        "package": "lightning",
        "trainer": ["lightning", "float32"],
        "patches": {
            "optimizer": ["return torch.optim.AdamW(self.parameters(), lr=1e-3, fused=True)"],
            "precision": ['precision="bf16-mixed",'],
            "dataloader": [
                "return DataLoader(TensorDataset(inputs, torch.arange(1024) % 4), batch_size=8, shuffle=True, num_workers=2)"
            ],
        },
    },
    "accelerate_loop": {
        "package": "accelerate",
        "trainer": ["accelerate", "float32"],
        "patches": {
            "optimizer": ["optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)"],
            "precision": ['accelerator = Accelerator(gradient_accumulation_steps=2, mixed_precision="bf16")'],
            "dataloader": [
                "loader = DataLoader(TensorDataset(inputs, torch.arange(1024) % 4), batch_size=8, shuffle=True, num_workers=2)"
            ],
        },
    },
}


def run_in_child(driver: str, folder: Path) -> dict[str, Any]:
    own = {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "", "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(
        [sys.executable, "-c", driver],
        cwd=folder, capture_output=True, text=True, timeout=600, check=False, env={**os.environ, **own},
    )  # fmt: skip
    assert done.returncode == 0 and done.stdout.strip(), done.stderr[-3000:]
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.mark.slow
@pytest.mark.parametrize("program", SAMPLES)
def test_a_trainers_program_is_tuned_through_its_own_arguments(program: str, tmp_path: Path) -> None:
    sample = SAMPLES[program]
    if importlib.util.find_spec(str(sample["package"])) is None:
        pytest.skip(f"{sample['package']} is not installed; `make trainers` has it")
    (tmp_path / "train.py").write_text((PROGRAMS / f"{program}.py").read_text())
    found = run_in_child(DRIVER, tmp_path)
    assert found["trainer"] == sample["trainer"]
    assert found["patches"] == sample["patches"]
    assert found["gradients"] == ["0.bias", "0.weight", "2.bias", "2.weight"]
    assert found["records"] == [STEP, STEP] and found["samples"] == [16, 16]
    assert (found["inside"], found["says"]) == (["bfloat16"], "bf16")
    assert (found["outside"], found["said afterwards"]) == (["float32"], "float32")
    assert found["alike with workers"]
    is_prepared = found["other size"].startswith("Accelerate has prepared the loader, and loads one batch ahead")
    assert is_prepared if program != "lightning_fit" else found["other size"] == ""
    assert (found["of another loader"], found["of its own again"]) == (2, 16)


OF_PARSER = """
import json, os
from perfaudit.target.names import Target
from perfaudit.target.working_folder import begin
begin()
from perfaudit.training.script_training import ScriptTraining
arguments = "--output_dir out --max_steps 2000 --optim adamw_torch --use_cpu --report_to none --save_strategy no"
training = ScriptTraining(Target("train.py", {}, tuple(arguments.split())))
from perfaudit.knobs import Survey, knob
from perfaudit.measure.gather_facts import facts_of
survey = Survey(facts_of(training))
found = {"site": survey.facts.trainer.site is not None}
found |= {name: knob(name).by_hand(survey) for name in ("optimizer", "precision", "dataloader")}
print("\\n" + json.dumps(found), flush=True)
os._exit(0)
"""


@pytest.mark.slow
def test_arguments_of_a_command_line_are_named_as_options(tmp_path: Path) -> None:
    if importlib.util.find_spec("transformers") is None:
        pytest.skip("transformers is not installed; `make trainers` has it")
    (tmp_path / "train.py").write_text((PROGRAMS / "hugging_face_parser.py").read_text())
    found = run_in_child(OF_PARSER, tmp_path)
    give = "the command line sets it, which is no line to patch: give the script"
    assert found == {
        "site": False,
        "optimizer": f"{give} --optim adamw_torch_fused",
        "precision": f"{give} --bf16 True, which changes precision",
        "dataloader": f"{give} --dataloader_num_workers N",
    }


# What of the libraries is looked at, under their names.
LIBRARIES = {
    "transformers.training_args": """
import dataclasses
@dataclasses.dataclass
class TrainingArguments:
    output_dir: str = ""
    bf16: bool = False
    fp16: bool = False
    tf32: bool | None = None
    optim: str = "adamw_torch"
    def __post_init__(self): pass
""",
    "transformers.hf_argparser": """
import argparse, dataclasses, sys
class HfArgumentParser(argparse.ArgumentParser):
    def __init__(self, *kinds):
        super().__init__()
        self.kinds = kinds
        for kind in kinds:
            for field in dataclasses.fields(kind):
                self.add_argument(f"--{field.name}", default=field.default)
    def parse_args_into_dataclasses(self, args=None):
        given = vars(self.parse_args(args))
        return tuple(kind(**{field.name: given[field.name] for field in dataclasses.fields(kind)}) for kind in self.kinds)
    def parse_dict(self, given):
        return tuple(kind(**given) for kind in self.kinds)
""",
    "transformers.trainer": """
import types
class Trainer:
    def __init__(self, args):
        self.args, self.accelerator = args, types.SimpleNamespace(mixed_precision="bf16" if args.bf16 else "no")
    def train(self): return self._loop()
    def _loop(self): return self.step()
""",
    "lightning.pytorch.trainer.trainer": """
class Trainer:
    def __init__(self, precision="32-true", benchmark=None):
        self.precision = precision
    def fit(self): return self.step()
""",
    "lightning.pytorch.cli": """
import sys
class LightningCLI:
    def __init__(self, trainer_class, args=None, **given):
        self.trainer_class, self.subcommand = trainer_class, None
        self.parse_arguments(None, args)
        self.trainer = self.instantiate_trainer(**given)
    def parse_arguments(self, parser, args):
        given = dict(each.removeprefix("--trainer.").split("=") for each in (sys.argv[1:] if args is None else args))
        self.config_init = {"trainer": {"precision": "32-true", "benchmark": None} | given}
        if given.get("fit"):  # a subcommand
            self.subcommand, self.config_init = "fit", {"fit": self.config_init}
    def instantiate_trainer(self, **given):
        inside = self.config_init.get(str(self.subcommand), self.config_init)["trainer"]
        return self.trainer_class(**{name: inside[name] for name in ("precision", "benchmark")} | given)
""",
    "accelerate.accelerator": """
class Accelerator:
    def __init__(self, mixed_precision="no"): self.mixed_precision = mixed_precision
""",
}
IMPORTS = """
import dataclasses
from transformers.training_args import TrainingArguments
from transformers.trainer import Trainer
from transformers.hf_argparser import HfArgumentParser
from accelerate.accelerator import Accelerator
class Mine(Trainer):
    def step(self): return running()
"""


@pytest.mark.parametrize(
    ("script", "found"),
    [
        ("Mine(TrainingArguments('out')).train()", ("transformers", "float32", "TrainingArguments('out')")),
        ("Mine(TrainingArguments(tf32=True)).train()", ("transformers", "tf32", "TrainingArguments(tf32=True)")),
        # Of several, those of the one that trains; its Accelerator is no trainer of its own.
        (
            "TrainingArguments('other')\nAccelerator()\nMine(TrainingArguments(bf16=True)).train()",
            ("transformers", "bf16", "TrainingArguments(bf16=True)"),
        ),
        (
            "@dataclasses.dataclass\nclass Own(TrainingArguments):\n    more: int = 0\nMine(Own(more=1)).train()",
            ("transformers", "float32", "Own(more=1)"),
        ),
        # What its constructor is given, it may hand on or not.
        (
            "class Own(TrainingArguments):\n    def __init__(self):\n        super().__init__()\nMine(Own()).train()",
            ("transformers", "float32", None),
        ),
        ("accelerator = Accelerator('fp16')\nresult = running()", ("accelerate", "fp16", "Accelerator('fp16')")),
        ("Accelerator()\nAccelerator()\nresult = running()", None),
        ("TrainingArguments()\nresult = running()", None),
    ],
)  # fmt: skip
def test_the_trainer_that_runs_is_found_with_its_call(
    script: str, found: tuple[str, str, str | None] | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = IMPORTS + script
    trainer = trainer_of(text, tmp_path, monkeypatch)
    if found is None:
        assert trainer is None
        return
    assert trainer is not None
    site, lines = trainer.site, text.splitlines()
    call = lines[site.line - 1][site.column : site.end_column] if site is not None else None
    assert (trainer.library, trainer.precision, call) == found


def trainer_of(text: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Trainer | None:
    """The trainer that a script with these libraries runs."""
    for name, code in LIBRARIES.items():
        module = types.ModuleType(name)
        for each in (name, name.partition(".")[0]):
            monkeypatch.setitem(sys.modules, each, module)
        exec(compile(code, f"<{name}>", "exec"), vars(module))
    trainers, results = Trainers(), list[Trainer | None]()

    def after_import(name: str, then: Callable[[], None]) -> None:
        if name in LIBRARIES:
            then()

    def running() -> None:
        results.append(trainers.running(sys._getframe(1)))

    trainers.watch(after_import)
    (folder / "train.py").write_text(text)
    exec(compile(text, str(folder / "train.py"), "exec"), {"__name__": "__main__", "running": running})
    (trainer,) = results
    return trainer


ALL = ("output_dir", "bf16", "fp16", "tf32", "optim")
PARSED = "(arguments,) = HfArgumentParser(TrainingArguments).parse_args_into_dataclasses({})\n{}Mine(arguments).train()"


@pytest.mark.parametrize(
    ("script", "options"),
    [
        (PARSED.format("", ""), ALL),
        (PARSED.format("sys.argv[1:]", ""), ALL),
        # What the program sets behind it, no option sets.
        (PARSED.format("", "arguments.bf16 = True\n"), ("output_dir", "fp16", "tf32", "optim")),
        (PARSED.format("", "arguments = dataclasses.replace(arguments, bf16=True)\n"), ()),
        # From somewhere else than the command line.
        (PARSED.format('["--optim", "sgd"]', ""), ()),
        ("Mine(*HfArgumentParser(TrainingArguments).parse_dict({'optim': 'sgd'})).train()", ()),
        ("HfArgumentParser(TrainingArguments).parse_args_into_dataclasses()\nMine(TrainingArguments()).train()", ()),
    ],
)
def test_arguments_that_the_command_line_sets_are_known_as_options(
    script: str, options: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["train.py", "--optim", "adamw_torch"])
    trainer = trainer_of(f"import sys\n{IMPORTS}{script}", tmp_path, monkeypatch)
    assert trainer is not None and trainer.library == "transformers"
    assert trainer.options == options
    assert trainer.site is None or not options


OF_LIGHTNING = """
import sys
from lightning.pytorch.trainer.trainer import Trainer
from lightning.pytorch.cli import LightningCLI
class Mine(Trainer):
    def step(self): return running()
"""


@pytest.mark.parametrize(
    ("script", "argument", "options"),
    [
        ("LightningCLI(Mine).trainer.fit()", "--trainer.precision=32-true", ("benchmark", "precision")),
        ("LightningCLI(Mine).trainer.fit()", "fit=fit", ("benchmark", "fit", "precision")),
        # What the program sets, no option sets.
        ("LightningCLI(Mine, precision='64-true').trainer.fit()", "--trainer.benchmark=1", ("benchmark",)),
        # From somewhere else than the command line.
        ("LightningCLI(Mine, args=['--trainer.benchmark=1']).trainer.fit()", "--trainer.precision=64-true", ()),
        ("LightningCLI(Mine)\nMine().fit()", "--trainer.benchmark=1", ()),
    ],
)
def test_arguments_of_lightnings_command_line_are_known_as_options(
    script: str, argument: str, options: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["train.py", argument])
    trainer = trainer_of(f"{OF_LIGHTNING}{script}", tmp_path, monkeypatch)
    assert trainer is not None and trainer.library == "lightning"
    assert (trainer.options, trainer.option_prefix) == (options, "trainer." if options else "")
    assert trainer.site is None or not options
