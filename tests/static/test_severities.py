"""How severe one finding is: that of its rule, less as a hint, more where this place costs more than most."""

from __future__ import annotations

from pathlib import Path

import pytest

from perfaudit.rules import all_rules
from perfaudit.static.project import Project
from perfaudit.static.registry import run_checks
from perfaudit.static.source import Source

LOADER = """\
import torch
from torch.utils.data import DataLoader

def dataset():
    return Photos("train")

if __name__ == "__main__":
    for images, labels in DataLoader(dataset(), batch_size=4):
        show(images)
"""
FLAGS = """\
from torch.backends import cudnn
cudnn.deterministic = True
cudnn.enabled = False
"""


@pytest.mark.parametrize(("script", "severity"), [("import torch\n", "warning"), ("import photos\n", "hint")])
def test_a_loader_shown_by_a_module_that_others_import_is_a_hint(script: str, severity: str, tmp_path: Path) -> None:
    photos = tmp_path / "photos.py"
    photos.write_text(LOADER)
    (tmp_path / "train.py").write_text(script)
    source = Source("photos.py", LOADER, neighbours=Project(sorted(tmp_path.glob("*.py"))).seen_from(photos))
    (found,) = run_checks(source, all_rules(), frozenset(["PA101"]))
    assert found.severity == severity


def test_a_training_without_cudnn_is_warned_of() -> None:
    found = run_checks(Source("a.py", FLAGS), all_rules(), frozenset(["PA302"]))
    assert {finding.location.line: finding.severity for finding in found if finding.location} == {
        2: "info",
        3: "warning",
    }
