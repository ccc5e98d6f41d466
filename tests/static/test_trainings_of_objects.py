"""PA301 and PA304 in scripts whose loop makes its steps by methods of an object in another file."""

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
