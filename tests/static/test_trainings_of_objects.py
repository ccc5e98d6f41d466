"""PA301, PA304 and PA701 in scripts that train by objects and functions of other files; what those that seed set."""

from __future__ import annotations

from pathlib import Path

import pytest

from perfaudit.findings import Finding
from perfaudit.rules import all_rules
from perfaudit.static.project import Project
from perfaudit.static.registry import run_checks
from perfaudit.static.source import Source

GAN = """
import torch
from torch import nn

class Gan:
    def __init__(self):
        self.net = nn.Sequential(nn.Conv2d(3, 512, 3), nn.ReLU(), nn.Conv2d(512, 512, 3)).cuda()
        self.optimizer = torch.optim.Adam(self.net.parameters())

    def update_generator(self, x):
        loss = self.net(x).mean()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
"""
SCRIPT = """
from gan import Gan

gan = Gan()
for epoch in range(100):
    for x in loader:
        gan.update_generator(x)
"""
TRIES_OUT = "\nif __name__ == '__main__':\n    print(Gan())\n"
OTHER_NAME = "self.optimizer.step()", "self.optimizer.zero_grad()"


def told(folder: Path, gan: str, script: str, rules: set[str]) -> list[Finding]:
    (folder / "gan.py").write_text(gan)
    (folder / "main.py").write_text(script)
    project = Project(sorted(folder.glob("*.py")))
    source = Source("main.py", script, project.seen_from(folder / "main.py"))
    return run_checks(source, all_rules(), frozenset(rules))


@pytest.mark.parametrize(
    ("gan", "script", "is_told"),
    [
        (GAN, SCRIPT, True),
        (GAN + TRIES_OUT, SCRIPT, True),
        (GAN, SCRIPT.replace("gan = Gan()\n", "gan = Gan()\nif fits:\n    pass\n"), True),
        (GAN.replace(*OTHER_NAME), SCRIPT, False),  # nothing makes a step
        (GAN, SCRIPT.replace("gan.update_generator(x)", "gan.show(x)"), False),
        (
            GAN,
            SCRIPT.replace(
                "    for x in loader:\n        gan.update_generator(x)\n", "    pass\ngan.update_generator(x)\n"
            ),
            False,
        ),
    ],
)
def test_a_loop_that_makes_its_steps_by_a_method(tmp_path: Path, gan: str, script: str, is_told: bool) -> None:
    found = {finding.rule for finding in told(tmp_path, gan, script, {"PA301", "PA304"})}
    assert found == ({"PA301", "PA304"} if is_told else set())


def test_what_puts_a_model_into_train_mode_starts_no_training(tmp_path: Path) -> None:
    guarded = "".join(f"    {line}\n" for line in SCRIPT.partition("\n\n")[2].splitlines())
    loop = guarded.replace("for x in loader:", "gan.net.train()\n        for x in loader:").replace(
        "update_generator", "train_step"
    )
    script = f"from gan import Gan\n\nif __name__ == '__main__':\n{loop}    gan.net.eval()\n"
    (found,) = told(tmp_path, GAN.replace("update_generator", "train_step"), script, {"PA304"})
    assert found.message.startswith("`gan.train_step(x)` starts a training")


START = """
import torch
from torch import nn

def start(options):
    net = nn.Sequential(nn.Conv2d(3, 512, 3), nn.ReLU(), nn.Conv2d(512, 512, 3)).cuda()
    optimizer = torch.optim.Adam(net.parameters())
    for x in loader(options):
        make_step(net, optimizer, x)

def make_step(net, optimizer, x):
    loss = net(x.cuda()).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
STARTS = "import gan\n\nif __name__ == '__main__':\n    gan.start(options)\n"


@pytest.mark.parametrize(
    ("gan", "is_told"), [(START, True), (START.replace("make_step(net, optimizer, x)\n\n", "pass\n\n"), False)]
)
def test_a_function_that_makes_its_steps_in_another_one(tmp_path: Path, gan: str, is_told: bool) -> None:
    assert bool(told(tmp_path, gan, STARTS, {"PA304"})) is is_told


TRAINER = """
import torch

class Trainer:
    def __init__(self, net):
        self.net = net.cuda()
        self.optimizer = torch.optim.Adam(net.parameters())

    def run(self, loader):
        for x in loader:
            loss = self.net(x.cuda()).mean()
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()

    def save(self):
        torch.save(self.net, "net.pt")
"""
EXPERIMENT = """
from torch import nn
from trainer import Trainer

class Experiment:
    def __init__(self, loader):
        self.loader = loader
        self.net = nn.Sequential(nn.Conv2d(3, 512, 3), nn.ReLU(), nn.Conv2d(512, 512, 3))

    def run(self):
        self._fit()

    def _fit(self):
        trainer = Trainer(self.net)
        trainer.run(self.loader)
"""
EXPERIMENTS = (
    "from gan import Experiment\n\nif __name__ == '__main__':\n    experiment = Experiment(x)\n    experiment.run()\n"
)


@pytest.mark.parametrize(
    ("gan", "is_told"),
    [
        (EXPERIMENT, True),
        (EXPERIMENT.replace("trainer.run(self.loader)", "trainer.save()"), False),
        (EXPERIMENT.replace("        self._fit()", "        self._show()"), False),
        (EXPERIMENT.replace("        self._fit()", "        if self.fits:\n            self._fit()"), False),
    ],
)
def test_an_object_that_has_another_one_train(tmp_path: Path, gan: str, is_told: bool) -> None:
    (tmp_path / "trainer.py").write_text(TRAINER)
    found = {finding.rule for finding in told(tmp_path, gan, EXPERIMENTS, {"PA301", "PA304"})}
    assert found == ({"PA301", "PA304"} if is_told else set())


SHOWN = (
    GAN.replace("update_generator", "train_step")
    + """
    def show(self, loader):
        print(self.net(iter(loader).next()))

    def look(self, loader):
        if self.looks:
            self.show(loader)
"""
)


@pytest.mark.parametrize(
    ("before", "behind", "severity"),
    [
        ("gan.show(loader)", "", "hint"),
        ("", "gan.show(loader)", "info"),
        ("gan.look(loader)", "", "info"),
        ("if shows:\n    gan.show(loader)", "", "info"),
        ("try:\n    gan.show(loader)\nexcept AttributeError:\n    pass", "", "info"),
    ],
)
def test_a_training_that_something_raises_before_is_a_hint(
    tmp_path: Path, before: str, behind: str, severity: str
) -> None:
    script = f"from gan import Gan\n\ngan = Gan()\n{before}\nfor x in loader:\n    gan.train_step(x)\n{behind}\n"
    found = told(tmp_path, SHOWN, script, {"PA301", "PA304"})
    assert {(finding.rule, finding.severity) for finding in found} == {("PA301", severity), ("PA304", severity)}


SEEDS = """
import random
import torch

def fix_seed(seed):
    random.seed(seed)
    torch.manual_seed(seed)
"""
SEEDED = """
import torch
from torch import nn
from gan import fix_seed

fix_seed(3)
net = nn.Sequential(nn.Conv2d(3, 512, 3), nn.ReLU(), nn.Conv2d(512, 512, 3)).cuda()
optimizer = torch.optim.Adam(net.parameters())
for x in loader:
    loss = net(x.cuda()).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
IN_A_ROW = SEEDED.replace("fix_seed(3)", "for set_seed in (random.seed, torch.manual_seed):\n    set_seed(3)")


@pytest.mark.parametrize(
    ("gan", "script", "is_told"),
    [
        (SEEDS, SEEDED, True),
        (SEEDS + "    torch.backends.cudnn.deterministic = True\n", SEEDED, False),
        (SEEDS + "    # torch.backends.cudnn.deterministic = True\n", SEEDED, True),
        (SEEDS + "    # with cudnn.benchmark off, or runs differ\n", SEEDED, False),
        (SEEDS + "    pytorch_seed(seed)\n", SEEDED, False),  # which may set it
        (SEEDS, SEEDED.replace("from gan", "from toolbox"), False),
        (SEEDS, IN_A_ROW, True),
        (SEEDS, IN_A_ROW.replace("torch.manual_seed", "toolbox.seed_everything"), False),
    ],
)
def test_a_function_that_only_seeds_sets_nothing_of_cudnn(tmp_path: Path, gan: str, script: str, is_told: bool) -> None:
    assert bool(told(tmp_path, gan, script, {"PA301"})) is is_told


SETTLES = SEEDS + "    settle()\n\ndef settle():\n    torch.backends.cudnn.deterministic = True\n"


@pytest.mark.parametrize(
    ("seeds", "is_told"),
    [
        (SEEDS, True),
        (SETTLES, False),
        (SEEDS + "    make_reproducible()\n", False),
        ("import torch.backends.cudnn as cudnn\n" + SEEDS + "\ndef act(x, deterministic=True):\n    pass\n", True),
    ],
)
def test_a_function_that_seeds_beside_one_that_sets_flags(tmp_path: Path, seeds: str, is_told: bool) -> None:
    (tmp_path / "eval_tools.py").write_text(seeds)  # a name that makes little of what its functions say
    assert bool(told(tmp_path, "", SEEDED.replace("from gan", "from eval_tools"), {"PA301"})) is is_told


RUNNER = """
import torch

class Runner:
    def __init__(self, net):
        self.net = net
        self.optimizer = torch.optim.Adam(net.parameters())

    def train(self):
        for x in loader:
            loss = self.net(x.cuda()).mean()
            loss.backward()
            self.optimizer.step()
"""
RUNS = """
from torch import nn
from gan import Runner

if __name__ == '__main__':
    net = nn.DataParallel(Net()).to("cuda")
    model = Runner(net)
    model.train()
"""


@pytest.mark.parametrize(
    ("script", "is_told"),
    [
        (RUNS, True),
        (RUNS.replace("model.train()", "model.show()"), False),
        (RUNS.replace("Runner(net)", "Runner(other)"), False),
        (RUNS.replace("model.train()", "net.train()"), False),
    ],
)
def test_a_wrapped_model_that_is_handed_to_what_trains(tmp_path: Path, script: str, is_told: bool) -> None:
    assert bool(told(tmp_path, RUNNER, script, {"PA701"})) is is_told
