"""PA801 where outputs leave the loop with their graph: a script that nobody imports, and evaluations by their name."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.static.test_programs_of_several_files import findings_in, write

SCRIPT = """
import torch
from tools import save

def main():
    model = torch.load("net.pt")
    model.eval()
    features = []
    for x in loader:
        features.append(model(x))
    save(torch.cat(features))

main()
"""
EVALUATION = """
import torch

class Bench:
    def test(self, model, data):
        model.eval()
        found = []
        for x in data:
            found.append(model(x))
        return judge(torch.cat(found))
"""
KEPT = "`model(x)` runs in eval mode, but records a graph, and what is kept of it holds on to it"


def messages(folder: Path, name: str) -> list[str]:
    return [finding.message for finding in findings_in(folder, name, {"PA801"})]


def test_a_script_that_speaks_of_no_training_has_nobody_who_differentiates(tmp_path: Path) -> None:
    folder = write(tmp_path, {"run.py": SCRIPT, "tools.py": "def save(values): print(values.shape)\n"})
    assert messages(folder, "run.py") == [KEPT]


@pytest.mark.parametrize(
    "files",
    [
        {"run.py": SCRIPT, "train.py": "import run\n\nrun.main()\n"},  # what is imported may be used otherwise
        {"run.py": SCRIPT + "optimizer = torch.optim.SGD(weights, 0.1)\n"},
        {"run.py": SCRIPT.replace("save(", "x.requires_grad_()\n    save(")},
        {"run.py": SCRIPT.replace("def main", "def features_of").replace("\nmain()\n", "")},  # nobody here runs it
    ],
)
def test_otherwise_somebody_may(tmp_path: Path, files: dict[str, str]) -> None:
    assert messages(write(tmp_path, files), "run.py") == []


@pytest.mark.parametrize(
    ("caller", "is_told"),
    [
        ("from bench import Bench\n\nprint(Bench().test(model, data))\n", True),
        ("from bench import Bench\n\nscore = Bench().test(model, data)\nloss.backward()\n", False),
        ("from bench import Bench\n\nprint(Bench())\n", False),
    ],
)
def test_an_evaluation_by_its_name_that_another_file_calls(tmp_path: Path, caller: str, is_told: bool) -> None:
    folder = write(tmp_path, {"bench.py": EVALUATION, "main.py": caller})
    assert messages(folder, "bench.py") == [KEPT] * is_told
