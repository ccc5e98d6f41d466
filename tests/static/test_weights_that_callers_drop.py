"""PA203 and an attention that returns its weights: whether the files that call it read them."""

from __future__ import annotations

from pathlib import Path

import pytest

from perfaudit.rules import all_rules
from perfaudit.static.project import Project
from perfaudit.static.registry import run_checks
from perfaudit.static.source import Source
from tests.static.test_programs_of_several_files import write

SCORES = """
import math
import torch
from torch import nn

class Scores(nn.Module):
    def forward(self, q, k, v):
        weights = torch.softmax(q @ k.transpose(2, 3) / math.sqrt(q.size(-1)), dim=-1)
        return weights @ v, weights

def attend(q, k, v):
    weights = torch.softmax(q @ k.transpose(2, 3) / math.sqrt(q.size(-1)), dim=-1)
    return weights @ v, weights
"""
HEADS = """
from torch import nn
from scores import Scores

class Heads(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention = Scores()

    def forward(self, q, k, v):
        out, weights = self.attention(q, k, v)
        return {returned}

if __name__ == "__main__":
    print(Heads())
"""
CALL = """
from scores import attend

def forward(q, k, v):
    {call}
    return out

if __name__ == "__main__":
    main()
"""


def lines_in(folder: Path, name: str) -> list[int]:
    """The lines of one file of which PA203 says something in a scan of the whole folder."""
    neighbours = Project(sorted(folder.rglob("*.py")), [], [folder]).seen_from(folder / name)
    source = Source(name, (folder / name).read_text(encoding="utf-8"), neighbours)
    found = run_checks(source, all_rules(), frozenset(["PA203"]))
    return [finding.location.line for finding in found if finding.location]


@pytest.mark.parametrize(("returned", "lines"), [("out", [8]), ("out, weights", []), ("out + weights.mean()", [])])
def test_a_layer_that_another_file_calls(tmp_path: Path, returned: str, lines: list[int]) -> None:
    files = {"README.md": "", "scores.py": SCORES, "heads.py": HEADS.replace("{returned}", returned)}
    folder = write(tmp_path, files)
    assert lines_in(folder, "scores.py") == lines


@pytest.mark.parametrize(
    ("call", "lines"),
    [
        ("out, _ = attend(q, k, v)", [12]),
        ("out = attend(q, k, v)[0]", [12]),
        ("out, seen = attend(q, k, v)\n    show(seen)", []),
        ("out = attend(q, k, v)[1]", []),
        ("out = attend(q, k, v)", []),
        ("out = run(attend, q, k, v)", []),
        ("out, _ = attend(q, k, v)\n    KEPT = attend", []),
    ],
)
def test_a_function_that_another_file_calls(tmp_path: Path, call: str, lines: list[int]) -> None:
    folder = write(tmp_path, {"README.md": "", "scores.py": SCORES, "heads.py": CALL.replace("{call}", call)})
    assert lines_in(folder, "scores.py") == lines


def test_a_package_of_which_the_scan_shows_all_or_a_part(tmp_path: Path) -> None:
    files = {
        "setup.py": "",
        "net/__init__.py": "",
        "net/scores.py": SCORES,
        "net/heads.py": HEADS.replace("{returned}", "out").replace("from scores", "from .scores"),
    }
    folder = write(tmp_path, files)
    assert lines_in(folder, "net/scores.py") == [8]
    assert lines_in(folder / "net", "scores.py") == []


def test_a_hook_on_some_layer(tmp_path: Path) -> None:
    heads = HEADS.replace("{returned}", "out")
    files = {"README.md": "", "scores.py": SCORES, "heads.py": heads, "shown.py": "net.a.register_forward_hook(keep)\n"}
    assert lines_in(write(tmp_path, files), "scores.py") == []


@pytest.mark.parametrize(
    ("call", "lines"),
    [
        ("out, weights = net.attention(q, k, v)\n    print(weights)", []),
        ("out, _ = net.attention(q, k, v)", [8]),
        ("print(net(q, k, v))", [8]),
    ],
)
def test_a_layer_of_an_object_that_a_third_file_calls(tmp_path: Path, call: str, lines: list[int]) -> None:
    shown = f"from heads import Heads\n\ndef show(q, k, v):\n    net = Heads()\n    {call}\n"
    files = {"README.md": "", "scores.py": SCORES, "heads.py": HEADS.replace("{returned}", "out"), "shown.py": shown}
    assert lines_in(write(tmp_path, files), "scores.py") == lines
