"""What holds for every knob: its interface, one line where it cannot matter, and global switches put back."""

from __future__ import annotations

import sys
from typing import Any

import pytest
from forked_programs import run_code

from perfaudit.knobs import Knob, all_knobs, knob, settled_by
from perfaudit.target.phases import PHASES

METHODS = ("current", "candidates", "setup", "words")  # without a default that could do


@pytest.mark.parametrize("name", all_knobs())
def test_every_knob_says_what_it_is(name: str) -> None:
    module = knob(name)
    assert isinstance(module, Knob)
    assert module.name == name
    assert module.title and not module.title.endswith(".")
    assert sys.modules[type(module).__module__].__doc__
    assert [method for method in METHODS if getattr(type(module), method) is getattr(Knob, method)] == []
    assert set(module.phases) <= set(PHASES)


def test_a_rule_that_a_knob_names_is_there_and_has_no_other_knob() -> None:
    from perfaudit.rules import all_rules

    named = [rule for name in all_knobs() for rule in knob(name).rules]
    assert set(named) <= all_rules().keys()
    assert len(set(named)) == len(named)
    assert settled_by() == {rule: name for name in all_knobs() for rule in knob(name).rules}
    assert settled_by()["PA402"] == "optimizer"


FLAGS = """
import contextlib, json, sys
import torch
from perfaudit.errors import TargetError
from perfaudit.findings import Edit, Finding, Fix, Location, Span
from perfaudit.knobs import Bench, Probe, Survey, Unanswered, all_knobs, knob
from perfaudit.measure.gather_facts import facts_of
from perfaudit.target.flags import flags
from perfaudit.target.names import Target
from perfaudit.training.factory_training import FactoryTraining

torch.set_num_threads(1)


def results(module):
    def ask(settings, question, timeout=0.0, **arguments):
        if module.name == "compile":
            raise Unanswered("compiling takes a while, and is tried in its own test")
        training = built(settings)
        with module.setup(settings).applied(training):
            return getattr(module, f"answer_{question}")(training, **arguments)

    def built(settings):
        setup = module.setup(settings)
        return FactoryTraining(Target("train.py", {}), "cpu", setup.loader_overrides, 0, setup.optimizer_overrides)

    fix = Fix("change it", "safe", edits=(Edit(Span(0, 0), ""),))
    findings = tuple(Finding(rule, "", "warning", "", Location("train.py", 1, 1, 1, 2), fix=fix) for rule in module.rules)
    survey = Survey(facts_of(FactoryTraining(Target("train.py", {}), "cpu")), findings=findings)
    tried, changed = [module.current(survey)], []
    if not module.not_applicable(survey):
        bench = Bench(survey, 2, 1 << 26, lambda settings: Probe(settings, 1 << 20, 1 << 20), ask)
        before = flags()
        with contextlib.suppress(Unanswered):
            tried += module.candidates(bench)
        changed += [("asking", name) for name in before if before[name] != flags()[name]]
    for settings in tried:
        before = flags()
        training = built(settings)
        with contextlib.suppress(TargetError), module.setup(settings).applied(training):  # exists as source text only
            if module.name != "compile":
                training.whole_step(module.setup(settings).fixed_batch)
        training.close()
        after = flags()
        changed += [(settings, name) for name in before if before[name] != after[name]]
    return len(tried), changed


for name in all_knobs():
    try:
        found = results(knob(name))
    except Exception as error:
        found = 0, [f"{type(error).__name__}: {error}"]
    print(json.dumps([name, *found]))
"""

TRAIN = """
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

def build_model():
    return nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.Flatten(), *(nn.Linear(288, 288) for _ in range(3)), nn.Linear(288, 3)
    )

def build_dataloader():
    return DataLoader(TensorDataset(torch.randn(64, 3, 8, 8), torch.randint(0, 3, (64,))), batch_size=8)

def build_optimizer(model):
    return torch.optim.AdamW(model.parameters())
"""


@pytest.mark.slow
def test_a_knob_leaves_every_global_switch_as_it_was(project: Any) -> None:
    """Its settings are tried, and what it asks is answered, in one process, in which every switch must stay."""
    import json

    done = run_code(FLAGS, "flags.py", [], project(**{"train.py": TRAIN}), seconds=200.0)
    assert done.code == 0, done.err
    found = [json.loads(line) for line in done.out.splitlines() if line.startswith("[")]
    assert [name for name, _, _ in found] == list(all_knobs())
    assert [(name, changed) for name, _, changed in found if changed] == []
    assert sum(tried for _, tried, _ in found) > 20
