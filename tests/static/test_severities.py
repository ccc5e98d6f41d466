"""How severe one finding is: that of its rule, less as a hint, more where this place costs more than most."""

from __future__ import annotations

from dataclasses import replace
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


@pytest.mark.parametrize(("moved", "severity"), [("x.float().to('cuda')", "hint"), ("x.to('cuda')", "warning")])
def test_pinning_batches_that_the_training_converts_is_a_hint(moved: str, severity: str, tmp_path: Path) -> None:
    text = """\
from torch.utils.data import DataLoader
from series import Series

def provider(folder, workers):
    return DataLoader(Series(folder), batch_size=32, shuffle=True, num_workers=workers)
"""
    (tmp_path / "provider.py").write_text(text)
    (tmp_path / "train.py").write_text(f"""\
from provider import provider

for x in provider("data", 4):
    loss = model({moved})
    loss.backward()
    optimizer.step()
""")
    project = Project(sorted(tmp_path.glob("*.py")))
    source = Source("provider.py", text, neighbours=project.seen_from(tmp_path / "provider.py"))
    (found,) = run_checks(source, all_rules(), frozenset(["PA102"]))
    assert found.severity == severity


def test_a_training_without_cudnn_is_warned_of() -> None:
    rules = {"PA302": replace(all_rules()["PA302"], tier="stable")}  # what the check says by itself
    found = run_checks(Source("a.py", FLAGS), rules, frozenset(["PA302"]))
    assert {finding.location.line: finding.severity for finding in found if finding.location} == {
        2: "info",
        3: "warning",
    }
