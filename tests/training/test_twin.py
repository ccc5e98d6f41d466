"""A second training beside the first, from patched text: each runs its own, and the first goes on as if it were alone."""

from __future__ import annotations

import linecache
import multiprocessing.spawn
import random
import sys
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch

from perfaudit.target import overlay
from perfaudit.target.flags import Flags, flags
from perfaudit.target.mkl import mkl_switches
from perfaudit.target.names import Target
from perfaudit.training.code_change import NotSwappable, code_change
from perfaudit.training.code_variant import prepare
from perfaudit.training.factory_training import FactoryTraining
from perfaudit.training.twin import TwinVariant, build_twin

pytestmark = pytest.mark.usefixtures("nothing_compiled")

TRAIN = """
import torch
from torch import nn
from settings import WIDTH
from parts.layers import Block
SCALE = 1.0
RAN = []

def build_model():
    return nn.Sequential(nn.Linear(6, WIDTH), Block(WIDTH), nn.Dropout(0.2), nn.Linear(WIDTH, 3))

def build_dataloader():
    data = torch.utils.data.TensorDataset(torch.randn(40, 6), torch.randint(0, 3, (40,)))
    return torch.utils.data.DataLoader(data, 4, shuffle=True)

def training_step(model, batch):
    import late
    RAN.append((SCALE, late.FACTOR))
    return SCALE * late.FACTOR * nn.functional.cross_entropy(model(batch[0]), batch[1])
"""
# `parts` has no __init__.py: a namespace package.
FILES = {
    "train.py": TRAIN,
    "settings.py": "WIDTH = 8\n",
    "parts/layers.py": "from torch import nn\n\nclass Block(nn.Module):\n    def __init__(self, width):\n"
    "        super().__init__()\n        self.inner = nn.Linear(width, width)\n\n    def forward(self, x):\n"
    "        return self.inner(x).relu()\n",
    "late.py": "FACTOR = 1.0\n",
    "unused.py": "VALUE = 1\n",
}

Build = Callable[..., FactoryTraining]
Write = Callable[..., Path]


@pytest.fixture
def build(project: Write, monkeypatch: pytest.MonkeyPatch) -> Iterator[Build]:
    """Write the project and build its training as a child does: `build(**{"train.py": "..."})`."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(overlay._LOADER, "get_code", overlay._LOADER.get_code)
    monkeypatch.setattr(overlay._LOADER, "get_data", overlay._LOADER.get_data)
    monkeypatch.setattr(multiprocessing.spawn, "get_preparation_data", multiprocessing.spawn.get_preparation_data)
    monkeypatch.setattr(overlay, "_files", {})
    for name in ("_texts", "_bytes", "_ran"):
        monkeypatch.setattr(overlay, name, {})
    for name in ("train", "settings", "parts", "parts.layers", "late", "unused"):  # of other tests of this process
        monkeypatch.delitem(sys.modules, name, raising=False)
    before, switches, shown = dict(sys.modules), flags(), dict(linecache.cache)
    built: list[FactoryTraining] = []

    def start(**changed: str) -> FactoryTraining:
        project(**{**FILES, **changed})
        overlay.install({})
        built.append(FactoryTraining(Target("train.py", {}), "cpu", seed=3))
        return built[-1]

    yield start
    for training in built:
        training.close()
    for name in overlay.project_modules().keys() - set(before):
        del sys.modules[name]
    linecache.cache.clear()
    linecache.cache.update(shown)
    assert flags() == switches


def patched(file: str, *replaced: tuple[str, str]) -> dict[str, str]:
    """A file's text with these replaced, by its full path."""
    text = Path(file).read_text()
    for old, new in replaced:
        assert old in text
        text = text.replace(old, new)
    return {str(Path(file).resolve()): text}


def losses(training: FactoryTraining, steps: int) -> list[str]:
    return [float(training.step(training.batch()).detach()).hex() for _ in range(steps)]


def surroundings() -> dict[str, Any]:
    """All that a twin displaces or could change, in a form that can be compared."""
    return {
        "modules": {name: id(module) for name, module in overlay.project_modules().items()},
        "flags": flags(),
        "python": random.getstate(),
        "torch": torch.get_rng_state().tolist(),
        "numpy": str(numpy.random.get_state()),
        "folder": Path.cwd(),
        "lines": dict(linecache.cache),
        "digests": overlay.digests(),
        "texts": dict(overlay._texts),
    }


def step(twin: TwinVariant, count: int = 1) -> None:
    """Make steps of the twin, and leave it."""
    twin.enter()
    try:
        for _ in range(count):
            twin.training.whole_step()
    finally:
        twin.leave()


def test_each_training_runs_its_own_text(build: Build) -> None:
    first = build()
    mine = sys.modules["train"]
    twin = build_twin(first, patched("train.py", ("SCALE = 1.0", "SCALE = 2.0")))
    first.whole_step()
    step(twin)
    first.whole_step()
    assert mine.RAN == [(1.0, 1.0)] * 2
    assert twin.modules["train"].RAN == [(2.0, 1.0)]
    assert sys.modules["train"] is mine


def test_the_same_text_makes_the_same_training(build: Build) -> None:
    """A control: built from no patch, from the same seed, its losses are those of the first."""
    first = build()
    twin = build_twin(first, {})
    twin.enter()
    torch.manual_seed(5)
    own = losses(twin.training, 3)
    twin.leave()
    torch.manual_seed(5)
    assert losses(first, 3) == own
    assert {p.data_ptr() for p in first.model.parameters()}.isdisjoint(
        p.data_ptr() for p in twin.training.model.parameters()
    )


@pytest.mark.parametrize(
    ("file", "old", "new", "width"),
    [("settings.py", "WIDTH = 8", "WIDTH = 16", 16), ("parts/layers.py", ".relu()", ".tanh()", 8)],
)
def test_a_patch_of_a_module_that_the_target_imports(build: Build, file: str, old: str, new: str, width: int) -> None:
    first = build()
    before = first.model[1].forward.__func__
    twin = build_twin(first, patched(file, (old, new)))
    step(twin)
    assert (first.model[0].out_features, twin.training.model[0].out_features) == (8, width)
    own = twin.training.model[1].forward.__func__
    assert first.model[1].forward.__func__ is before
    assert ("tanh" in own.__code__.co_names, "tanh" in before.__code__.co_names) == (file == "parts/layers.py", False)
    assert own.__globals__ is vars(twin.modules["parts.layers"])
    assert {"train", "settings", "parts", "parts.layers"} <= twin.modules.keys()


def test_what_a_step_imports_later_is_each_ones_own(build: Build) -> None:
    first = build()
    twin = build_twin(first, patched("train.py", ("SCALE = 1.0", "SCALE = 2.0")))
    assert "late" not in sys.modules
    known = overlay.digests()
    step(twin)
    assert "late" not in sys.modules  # the twin's, which only the twin has imported
    assert overlay.digests() == known
    first.whole_step()
    assert sys.modules["late"] is not twin.modules["late"]
    sys.modules["late"].FACTOR = 3.0
    step(twin)
    first.whole_step()
    assert [factor for _, factor in sys.modules["train"].RAN] == [1.0, 3.0]
    assert [factor for _, factor in twin.modules["train"].RAN] == [1.0, 1.0]


def test_a_file_that_only_a_step_imports_is_refused(build: Build) -> None:
    first = build()
    with pytest.raises(NotSwappable, match=r"late\.py is not imported as a module"):
        build_twin(first, patched("late.py", ("1.0", "2.0")))


def test_the_first_training_goes_on_to_the_bit(build: Build) -> None:
    alone = losses(build(), 6)
    for name in overlay.project_modules():
        del sys.modules[name]
    first = build()
    begun = losses(first, 3)
    before = surroundings()
    twin = build_twin(first, patched("settings.py", ("8", "16")))
    assert surroundings() == before
    twin.enter()
    assert sys.modules["train"] is twin.modules["train"]
    twin.leave()
    twin.leave()  # one that is not in place is left without a word
    assert surroundings() == before
    assert [*begun, *losses(first, 3)] == alone


def test_steps_of_a_twin_leave_the_first_training_alone(build: Build) -> None:
    """All but the random streams, which whoever steps draws from."""
    first = build()
    first.whole_step()
    weights = [p.detach().clone() for p in first.model.parameters()]
    before = surroundings()
    twin = build_twin(first, patched("settings.py", ("8", "16")))
    step(twin, 12)  # into a second epoch
    after = surroundings()
    del before["torch"], after["torch"]
    assert after == before
    assert all(torch.equal(p, q) for p, q in zip(first.model.parameters(), weights, strict=True))
    assert len(first.restart_seconds) == 1


@pytest.mark.parametrize(
    ("line", "there"),
    [
        ("torch.backends.cudnn.benchmark = True", {"cudnn.benchmark": True}),
        # One, as tests are run; torch tells MKL the number, where it has that.
        ("torch.set_num_threads(2)", {"threads": 2, **({"mkl.threads": 2} if mkl_switches() else {})}),
        ("torch.autograd.set_detect_anomaly(True)", {"anomaly": True}),
    ],
)
def test_switches_that_a_patch_sets_hold_while_it_is_entered(build: Build, line: str, there: Flags) -> None:
    first = build()
    before = flags()
    twin = build_twin(first, patched("train.py", ("SCALE = 1.0", f"SCALE = 1.0\n{line}")))
    assert flags() == before
    for _ in range(2):
        twin.enter()
        assert flags() == {**before, **there}
        twin.leave()
        assert flags() == before


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("torch.set_default_dtype(torch.float64)", "default_dtype"),
        ("torch.use_deterministic_algorithms(True)", "deterministic_algorithms"),
        ("torch.set_grad_enabled(False)", "grad"),
    ],
)
def test_a_switch_that_is_not_switched_back_and_forth_is_refused_and_put_back(
    build: Build, line: str, name: str
) -> None:
    first = build()
    before = surroundings()
    with pytest.raises(NotSwappable, match=f"^building it changes {name} for the whole process$"):
        build_twin(first, patched("train.py", ("SCALE = 1.0", f"SCALE = 1.0\n{line}")))
    assert surroundings() == before


@pytest.mark.parametrize(
    ("file", "old", "new", "why"),
    [
        ("unused.py", "1", "2", r"^\S*unused\.py is not imported as a module, so the patch is not what runs$"),
        ("settings.py", "WIDTH = 8", "WIDTH = 1 / 0", r"^a second training could not be built .*ZeroDivisionError"),
        ("settings.py", "WIDTH = 8", "raise SystemExit(3)", r"^a second training could not be built beside the first: "),
        ("settings.py", "WIDTH = 8", "import torch\ntorch.set_default_dtype(torch.float64)", "cannot import name 'WIDTH'"),
        ("train.py", "WIDTH, WIDTH", "WIDTH", r"^a second training could not be built beside the first: "),
    ],
)  # fmt: skip
def test_what_cannot_be_built_is_refused_and_leaves_nothing(
    build: Build, file: str, old: str, new: str, why: str
) -> None:
    first = build(**{"train.py": TRAIN.replace("Block(WIDTH)", "nn.Linear(WIDTH, WIDTH)")})
    before = surroundings()
    with pytest.raises(NotSwappable, match=why):
        build_twin(first, patched(file, (old, new)))
    assert surroundings() == before
    first.whole_step()


def test_a_twin_is_built_where_the_first_was_and_leaves_the_folder_alone(
    build: Build, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = "import os\nSCALE = 1.0\n\ndef seen():\n    return os.getcwd()\n\nBUILT_IN = seen()"
    first = build(**{"train.py": TRAIN.replace("SCALE = 1.0", seen)})
    texts = patched("settings.py", ("8", "16"))
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.setattr("perfaudit.target.working_folder._began_in", str(tmp_path))
    monkeypatch.chdir(tmp_path / "elsewhere")  # where the user's code has gone since
    twin = build_twin(first, texts)
    built_in = twin.modules["train"].BUILT_IN
    assert built_in == str(tmp_path)
    assert Path.cwd() == tmp_path / "elsewhere"


def test_workers_that_a_twin_starts_are_told_its_text(build: Build) -> None:
    """A process that is spawned imports the files anew: with the patch for the twin, without it for the first."""
    first = build()
    (path,) = texts = patched("train.py", ("SCALE = 1.0", "SCALE = 2.0"))
    twin = build_twin(first, texts)

    def told() -> bool:
        return (
            "SCALE = 2.0" in vars(multiprocessing.spawn.get_preparation_data("worker")["patched by perfaudit"])["text"]
        )

    assert not told()
    twin.enter()
    assert told()
    twin.leave()
    assert not told()
    assert path not in overlay.digests() or twin.installed.ran[path] != overlay.digests()[path]


def test_code_is_swapped_in_the_first_training_alone(build: Build) -> None:
    """The twin has functions of the same names in the same files, with other code."""
    first = build()
    body = "return self.inner(x).relu()"
    layers = Path("parts/layers.py")
    twin = build_twin(first, patched(str(layers), (body, "return self.inner(x).tanh()")))
    change = code_change(str(layers.resolve()), layers.read_text(), layers.read_text().replace(body, "return x"))
    with pytest.raises(NotSwappable, match="does not run the code"):
        prepare([change])
    variant = prepare([change], list(twin.modules.values()))
    own = twin.modules["parts.layers"].Block.forward
    variant.enter()
    assert "tanh" in own.__code__.co_names
    assert "relu" not in first.model[1].forward.__code__.co_names
    variant.leave()
    assert [swap.function for swap in variant.swaps] == [first.model[1].forward.__func__]


def test_modules_of_others_stay(build: Build) -> None:
    first = build()
    stranger = sys.modules["stranger"] = types.ModuleType("stranger")
    try:
        twin = build_twin(first, patched("settings.py", ("8", "16")))
        twin.enter()
        assert sys.modules["stranger"] is stranger
        assert sys.modules["torch"] is torch
        assert sys.modules["perfaudit.target.overlay"] is overlay
        twin.leave()
    finally:
        del sys.modules["stranger"]
