"""The user's code may change the working directory; its files are found, patched and named from where the command was typed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from perfaudit.errors import TargetError
from perfaudit.measure.child import Child
from perfaudit.target import working_folder
from perfaudit.target.load import load, missing
from perfaudit.target.names import Target, parse
from perfaudit.target.provenance import Site

Project = Callable[..., Path]

GOES = "import os\nos.chdir('data')\n"
MODEL = "def build_model():\n    return 'model'\n\n"


@pytest.fixture
def begun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """As in a child whose command was typed here; nothing of this process changes for longer than the test."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data").mkdir()
    monkeypatch.setattr(working_folder, "_began_in", str(tmp_path))
    monkeypatch.setattr(sys, "path", list(sys.path))
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        del sys.modules[name]


@pytest.mark.parametrize(
    ("file", "files"),
    [
        ("goes_away.py", {"goes_away.py": GOES + MODEL}),
        ("./goes_away.py", {"goes_away.py": GOES + MODEL}),
        ("goes_parts.train", {"goes_parts/__init__.py": "", "goes_parts/train.py": GOES + MODEL}),
        ("goes_loose/train.py", {"goes_loose/train.py": f"from .model import build_model\n{GOES}",
                                 "goes_loose/model.py": MODEL}),
    ],
)  # fmt: skip
def test_factories_of_a_file_that_changes_the_working_directory(
    begun: Path, project: Project, file: str, files: dict[str, str]
) -> None:
    project(**files)
    target = parse(file)
    assert load(target)["model"]() == "model"
    assert Path.cwd() == begun / "data"  # what the user's code opens next is there
    assert load(target)["model"]() == "model"  # built once more, from another seed


def test_a_factory_of_another_file_is_found_after_the_change(begun: Path, project: Project) -> None:
    project(**{"goes_first.py": GOES, "has_model.py": MODEL})
    found = load(Target("goes_first.py", {"model": "has_model.py:build_model"}))
    assert found["model"]() == "model"


def test_what_a_file_has_is_listed_after_the_change(begun: Path, project: Project) -> None:
    project(**{"goes_without.py": f"{GOES}def build_dataloader(): ...\n"})
    target = Target("goes_without.py")
    assert "model" not in load(target)
    assert "goes_without.py defines no model factory (" in str(missing(target, "model"))
    assert "it has: build_dataloader)" in str(missing(target, "model"))


def test_paths_are_shown_as_seen_from_where_the_command_was_typed(begun: Path, project: Project) -> None:
    project(**{"goes_wrong.py": f"{GOES}1 / 0\n"})
    with pytest.raises(TargetError, match=r"\(goes_wrong\.py:3 in <module>\)"):
        load(Target("goes_wrong.py"))
    assert str(Site(str(begun / "goes_wrong.py"), 3, 3, 0, 1)) == "goes_wrong.py:3"
    assert Path.cwd() == begun / "data"
    assert working_folder.shown_path("/elsewhere/model.py") == "/elsewhere/model.py"


def test_where_the_users_code_went_may_be_deleted(begun: Path) -> None:
    os.chdir("data")
    (begun / "data").rmdir()
    assert working_folder.present_folder() == ""
    assert working_folder.shown_path(str(begun / "train.py")) == "train.py"


def test_patched_texts_run_after_the_change(project: Project) -> None:
    folder = project(**{"train.py": f"{GOES}import later\n{MODEL}", "later.py": "kept = 1\n", "data/x": ""})
    program = (
        "import json\nfrom perfaudit.target import overlay, working_folder\nfrom perfaudit.target.load import load\n"
        "from perfaudit.target.names import Target\n"
        "working_folder.begin()\noverlay.install({'later.py': 'kept = 2\\n'})\nload(Target('train.py'))\n"
        "import later\nprint(json.dumps([later.kept, sorted(overlay.digests())]))\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    kept, ran = json.loads(done.stdout)
    assert kept == 2
    # Both are the project's, though not below "data".
    assert ran == [str(folder / "later.py"), str(folder / "train.py")]


TRAINING = """
import os
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

def build_model():
    os.chdir("data")
    return nn.Linear(4, 3)

def build_dataloader():
    return DataLoader(TensorDataset(torch.randn(64, 4), torch.randint(0, 3, (64,))), batch_size=8)
"""


def test_a_training_whose_factory_changes_it_is_built_and_built_again(project: Project) -> None:
    project(**{"train.py": TRAINING, "data/x": ""})
    with Child() as child:
        build = {"do": "build", "target": {"file": "train.py", "names": {}}, "overlay": {}, "knob": ""}
        facts = child.ask({**build, "settings": {}, "device": "cpu"}, timeout=60)
        assert facts["project_files"] == ["train.py"]
        for seed in (1, 2):
            assert child.ask({"do": "losses", "steps": 1, "seed": 0, "build_seed": seed}, timeout=60)["losses"]
