"""PA105 says "on every step" only where nothing on the way holds now and then, and is a hint where nothing calls the code."""

from __future__ import annotations

from pathlib import Path

import pytest

from perfaudit.rules import all_rules
from perfaudit.static.registry import run_checks
from perfaudit.static.source import Source
from tests.static.test_programs_of_several_files import findings_in, write

FORWARD = """
import torch

class Loss(torch.nn.Module):
    def forward(self, x, boxes, step):
        if {test}:
            {body}
        else:
            {other}
"""
BUILT = "return torch.ones(4).cuda() * x"


@pytest.mark.parametrize(
    ("test", "body", "other", "is_each_step"),
    [
        ("boxes.shape[0] == 0", BUILT, "return x", False),
        ("step % 100 == 0", BUILT, "return x", False),
        ("boxes.shape[0] == 0", "return x", BUILT, True),  # as a rule
        ("self.training", BUILT, "return x", True),
    ],
)
def test_on_every_step(test: str, body: str, other: str, is_each_step: bool) -> None:
    source = Source("loss.py", FORWARD.format(test=test, body=body, other=other))
    (finding,) = run_checks(source, all_rules(), frozenset({"PA105"}))
    assert ("on every step" in finding.message) is is_each_step


JITTER = """
import torch

def jitter(x):
    return x + torch.zeros(3).to(x.device)
"""


@pytest.mark.parametrize(
    ("use", "severity"),
    [
        ("", "hint"),
        ("\njitter(torch.rand(3))\n", "hint"),
        ("\ndef nobody_calls(x):\n    return jitter(x)\n", "hint"),
        ("\ndef jitter_again(x):\n    return jitter(x)\n\nfor x in batches:\n    show(jitter_again(x))\n", "warning"),
        ("\nclass Net(torch.nn.Module):\n    def forward(self, x):\n        return jitter(x)\n", "warning"),
    ],
)
def test_a_function_that_nothing_in_sight_calls_is_a_hint(use: str, severity: str) -> None:
    (finding,) = run_checks(Source("noise.py", JITTER + use), all_rules(), frozenset({"PA105"}))
    assert finding.severity == severity


@pytest.mark.parametrize("script", ["print('nothing')", "jitter(x)"])
def test_a_file_that_imports_it_may_call_it(tmp_path: Path, script: str) -> None:
    folder = write(tmp_path, {"noise.py": JITTER, "run.py": f"import torch\nfrom noise import jitter\n\n{script}\n"})
    (finding,) = findings_in(folder, "noise.py", {"PA105"})
    assert finding.severity == ("warning" if "jitter" in script else "hint")
