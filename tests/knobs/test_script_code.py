"""What knobs write into the text of a script: where its model is built, around its forward pass, where its batch size is set."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from surveys import found, survey_of

from perfaudit.knobs import Bench, Probe, Refused, Reply, Survey, Unanswered, knob
from perfaudit.knobs._code import Code
from perfaudit.measure.facts import Backward, CallSite, Script
from perfaudit.measurements import Settings
from perfaudit.training.held_names import Held

TEXT = """\
import argparse
import torch


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch-size", type=int, default=16)
    args = parser.parse_args()
    model = torch.nn.Conv2d(3, 4, 3)
    loader = torch.utils.data.DataLoader(data(), args.batch_size)
    optimizer = torch.optim.SGD(model.parameters())
    for x, y in loader:
        out = model(x)
        loss = torch.nn.functional.mse_loss(out, y)
        loss.backward()
        optimizer.step()
"""


def script(folder: Path, text: str, *arguments: str) -> Survey:
    """What a child says of this script, which has come to its update."""
    path, lines = str(folder / "train.py"), text.splitlines()

    def site(word: str) -> CallSite:
        number = next(n for n, line in enumerate(lines) if word in line)
        begin = len(lines[number]) - len(lines[number].lstrip())
        begin = lines[number].index("= ") + 2 if "= " in lines[number] else begin
        return CallSite(path, number + 1, number + 1, begin, len(lines[number]))

    update = next(n for n, line in enumerate(lines) if "optimizer.step" in line) + 1
    first = lines.index("def main():") + 1
    models = ((Held(path, "main", first, "model", update),),)
    seen = Script(models=models, backward=(Backward(site=site("backward()")),), arguments=arguments)
    loader = {"site": site("DataLoader("), "batch_size": 16, "dataset_length": 1000}
    return survey_of(script=seen, factories={}, factory_files={}, loader=loader)


def patched(survey: Survey, name: str, settings: Settings) -> list[str]:
    """Lines that are in the patched text only."""
    patch = knob(name).patch(Code("train.py", survey), settings)
    return [line for line in patch.after.splitlines() if line not in patch.before.splitlines()] if patch else []


@pytest.mark.parametrize(
    ("name", "settings", "lines"),
    [
        ("compile", {"compile": "default"}, ["    model.compile()"]),
        ("memory_format", {"memory_format": "channels_last"}, ["    model.to(memory_format=torch.channels_last)"]),
        (
            "precision",
            {"precision": "bf16"},
            [
                '        with torch.autocast("cpu", dtype=torch.bfloat16):',
                "            out = model(x)",
                "            loss = torch.nn.functional.mse_loss(out, y)",
            ],
        ),
        ("precision", {"precision": "tf32"}, ['torch.set_float32_matmul_precision("high")']),
        ("batch_size", {"batch_size": 64}, ['    parser.add_argument("--batch-size", type=int, default=64)']),
    ],
)
def test_the_patch_of_a_script(
    project: Callable[..., Path], name: str, settings: dict[str, Any], lines: list[str]
) -> None:
    folder = project(**{"train.py": TEXT})
    assert patched(script(folder, TEXT), name, settings) == lines


def test_what_the_arguments_set_is_no_patch(project: Callable[..., Path]) -> None:
    survey = script(project(**{"train.py": TEXT}), TEXT, "--batch-size", "16")
    assert patched(survey, "batch_size", {"batch_size": 64}) == []
    assert knob("batch_size").handed_over({"batch_size": 64}, survey) == "give the script --batch-size 64"
    assert knob("batch_size").by_hand(survey) == "the argument --batch-size sets it, which is no line to patch"


CLASS = """\
import torch


class Trainer:
    def fit(self, loader):
        for x, y in loader:
            self.step(x, y)

    def step(self, x, y):
        first = self.critic(x)
        loss = (first - y).square().mean()
        loss.backward()
        self.optimizer.step()
        self.act(x)

    def act(self, x):
        loss = -self.critic(self.actor(x)).mean()
        loss.backward()
        self.other.step()
"""


def test_each_of_several_backward_passes_has_its_autocast_also_in_another_method(project: Callable[..., Path]) -> None:
    path = str(project(**{"train.py": CLASS}) / "train.py")
    held = [Held(path, "Trainer.step", 9, name, 13) for name in ("self.critic", "self.actor")]
    sites = tuple(Backward(site=CallSite(path, line, line, 8, 23)) for line in (12, 18))
    seen = Script(models=tuple((each,) for each in held), backward=sites)
    assert patched(survey_of(script=seen, factories={}, factory_files={}), "precision", {"precision": "bf16"}) == [
        '        with torch.autocast("cpu", dtype=torch.bfloat16):',
        "            first = self.critic(x)",
        "            loss = (first - y).square().mean()",
        '        with torch.autocast("cpu", dtype=torch.bfloat16):',
        "            loss = -self.critic(self.actor(x)).mean()",
    ]
    of_another = CLASS.replace("    def act(self, x):", "\n\nclass Other:\n    def act(self, x):")
    path = str(project(**{"train.py": of_another}) / "train.py")
    moved = replace(seen, backward=(sites[0], Backward(site=CallSite(path, 21, 21, 8, 23))))
    assert patched(survey_of(script=moved, factories={}, factory_files={}), "precision", {"precision": "bf16"}) == []


METHODS = """\
import torch


class Trainer:
    def fit(self, loader, scaler=None):
        for x, y in loader:
            loss = self.compute_loss(x, y)
            self.optimizer.zero_grad()
            if scaler is None:
                loss.backward()
            else:
                scaler.scale(loss).backward()
            self.optimizer.step()

    def compute_loss(self, x, y):
        return (self.model(x) - y).square().mean()
"""


@pytest.mark.parametrize("forwards", [(7,), ()])
def test_a_loss_of_a_method_is_put_under_autocast_where_a_model_was_seen_to_run(
    project: Callable[..., Path], forwards: tuple[int, ...]
) -> None:
    path = str(project(**{"train.py": METHODS}) / "train.py")
    held = Held(path, "Trainer.fit", 5, "self.model", 13)
    seen = Script(models=((held,),), backward=(Backward(site=CallSite(path, 10, 10, 16, 31), forwards=forwards),))
    assert (
        patched(survey_of(script=seen, factories={}, factory_files={}), "precision", {"precision": "bf16"})
        == [
            '            with torch.autocast("cpu", dtype=torch.bfloat16):',
            "                loss = self.compute_loss(x, y)",
        ][: 2 * len(forwards)]
    )


def test_the_lines_of_several_backward_passes_are_told() -> None:
    places = (("train.py", 9), ("train.py", 5), ("field.py", 9))
    sites = tuple(Backward(site=CallSite(path, line, line, 4, 20)) for path, line in places)
    said = knob("precision").no_line(survey_of(script=Script(backward=sites)))
    assert said == (
        "the model's call, the loss and `backward`, at field.py:9, train.py:5 and train.py:9 each, are not lines of one block "
        "of yours that could stand under autocast"
    )
    assert "`backward` are not lines" in knob("precision").no_line(survey_of(script=Script(backward=sites[:1])))


def test_what_is_computed_is_set_by_hand(project: Callable[..., Path]) -> None:
    text = TEXT.replace("data(), args.batch_size)", "data(), args.batch_size // 2)")
    survey = script(project(**{"train.py": text}), text)
    assert patched(survey, "batch_size", {"batch_size": 64}) == []
    said = knob("batch_size").handed_over({"batch_size": 64}, survey)
    assert said == "set it by hand where the loader gets it (train.py:10)"
    assert knob("batch_size").by_hand(survey) == "no single line was found that sets it as a number (train.py:10)"


def test_of_two_numbers_none_is_called_the_batch_size(project: Callable[..., Path]) -> None:
    """Nor is it said that none is there."""
    text = (
        TEXT.replace("data(), args.batch_size)", "data(), SIZE)") + "\nSIZE = 64 if torch.cuda.is_available() else 16\n"
    )
    survey = script(project(**{"train.py": text}), text)
    assert patched(survey, "batch_size", {"batch_size": 64}) == []
    assert knob("batch_size").by_hand(survey).startswith("no single line was found that sets it")


@pytest.mark.parametrize(("size", "line"), [(16, 'CONFIG = {"size": 64}'), (8, "")])
def test_a_config_of_another_file_is_patched_where_it_has_what_the_loader_has(
    project: Callable[..., Path], size: int, line: str
) -> None:
    text = TEXT.replace("data(), args.batch_size)", 'data(), config["size"])')
    folder = project(**{"train.py": text, "config.py": f'CONFIG = {{"size": {size}}}\n'})
    survey = script(folder, text)
    survey = replace(survey, facts=replace(survey.facts, project_files=(str(folder / "config.py"),)))
    assert patched(survey, "batch_size", {"batch_size": 64}) == [line][: len(line)]


def test_larger_batches_are_tried_in_the_scripts_own_steps(project: Callable[..., Path]) -> None:
    asked = []

    def ask(settings: Settings, question: str, **arguments: Any) -> Reply:
        asked.append((question, arguments["sizes"][:3]))
        return {"fit": [(16, 10, 20), (32, 20, 40)]}

    module, survey = knob("batch_size"), script(project(**{"train.py": TEXT}), TEXT)
    found = module.candidates(Bench(survey, 2, 1 << 30, lambda settings: Probe(settings), ask))
    assert asked == [("real_sizes", [16, 32, 64])]
    assert found == [{"batch_size": 32}, {"batch_size": 8}]


def test_a_loader_that_cannot_be_exchanged_is_the_reason(project: Callable[..., Path]) -> None:
    def ask(settings: Settings, question: str, **arguments: Any) -> Reply:
        raise Unanswered("train.py: its batches do not come from a plain DataLoader")

    survey = script(project(**{"train.py": TEXT}), TEXT)
    with pytest.raises(Refused, match="its batches do not come from a plain DataLoader"):
        knob("batch_size").candidates(Bench(survey, 2, 1 << 30, lambda settings: Probe(settings), ask))


def test_the_whole_step_of_a_script_says_what_compiling_gains(project: Callable[..., Path]) -> None:
    module, given = knob("compile"), script(project(**{"train.py": TEXT}), TEXT)
    phases = [module.phases_on(each, {"compile": "default"}) for each in (given, survey_of())]
    assert phases == [(), ("forward", "backward")]


def test_what_runs_under_autocast_already_is_left_alone(project: Callable[..., Path]) -> None:
    folder = project(**{"train.py": TEXT})
    survey = script(folder, TEXT)
    assert survey.facts.script is not None
    own = survey_of(script=Script(autocasts=("bfloat16",)))

    def ask(settings: Settings, question: str, **arguments: Any) -> Reply:
        raise AssertionError("a start of the script is saved")

    tried = [knob("precision").candidates(Bench(each, 2, 1, lambda s: Probe(s), ask)) for each in (survey, own)]
    assert tried == [[{"precision": "bf16"}], []]


def test_what_keeps_a_script_from_being_patched_is_told() -> None:
    site = CallSite("train.py", 9, 9, 4, 20)
    assert "gives each model a name by a plain `name = ...`" in knob("memory_format").no_line(
        survey_of(script=Script())
    )
    by_hand = survey_of([found("PA205", "net.py:7", by_hand=True)], script=Script())
    assert knob("fusion").no_line(by_hand).endswith("must be changed by hand")
    told = knob("precision").no_line
    no_step = survey_of(factories={"model": "build_model"})
    assert told(no_step) == "its patch is a decorator of `training_step`, and your target has none"
    assert told(survey_of()) == ""
    assert "a change by hand" in knob("checkpointing").no_line(survey_of())
    assert told(survey_of(script=Script())).startswith("`backward` is called by a library")
    assert "are not lines of one block" in told(survey_of(script=Script(backward=(Backward(site=site),))))
    assert told(survey_of(script=Script(autocasts=("bfloat16",)))).endswith("in bfloat16 under autocast already")
    off = Script(backward=(Backward(site=site),), autocasts_off=(site,))
    assert told(survey_of(script=off)) == "your step switches autocast off at train.py:9: switch it on there"
    layer = Script(backward=(Backward(site=site),), autocasts_off=(site._replace(path="norm.py"),))
    assert "are not lines of one block" in told(survey_of(script=layer))
