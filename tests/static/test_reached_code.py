"""PA301, PA304 and what a script has a use for: layers that merely stand beside the classes that it names are none of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.static.test_programs_of_several_files import findings_in, write

NETS = """
import torch
from torch import nn

class Linears(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.rows = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 3))

    def forward(self, x):
        return self.rows(x)

class Images(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.conv = nn.Conv2d(3, width, 3)
        self.more = nn.Conv2d(width, 3, 3)

    def forward(self, x):
        return self.more(self.conv(x))

class Derived(Images):
    pass

def build(kind):
    return Images(512) if kind == "images" else Linears(512)

def build_row():
    return Linears(512)

def initialise(module):
    if isinstance(module, (nn.Linear, nn.Conv2d)) or type(module) in (nn.Conv3d, nn.Linear):
        nn.init.xavier_uniform_(module.weight)

KINDS = {"rows": Linears, "images": Images}
ROWS = {"rows": Linears}
FILLED = {}
CALLED = dict()
LISTED = []
GROWS = [Linears]
GROWS.append(Images)
STORED = {"rows": Linears}
STORED["images"] = Images
ADDED = [Linears]
ADDED += [Images]
OPTIONS = nn.ParameterDict()
OPTIONS.update({})
MARKED = {"rows": Linears}

def marked(kind):
    MARKED[kind.__name__] = kind
    return kind

@marked
class Other(Images):
    pass

def pick():
    return [kind for kind in nn.Module.__subclasses__()][0](512)
"""
LAYERS = """
from nets import Images, Linears

class Wrapped(Linears):
    def __init__(self):
        super().__init__(512)

class Holding(Linears):
    def __init__(self):
        super().__init__(512)
        self.images = Images(512)
"""
TRAINS = """
import torch
{imports}

def main(loader):
    model = {model}
    model = model.cuda()
    optimizer = torch.optim.Adam(model.parameters())
    for x, y in loader:
        loss = torch.nn.functional.mse_loss(model(x.cuda()), y.cuda())
        loss.backward()
        optimizer.step()

if __name__ == "__main__":
    main([])
"""
ENGINE = """
import torch

def train(model, loader):
    optimizer = torch.optim.Adam(model.parameters())
    for x, y in loader:
        loss = torch.nn.functional.mse_loss(model(x.cuda()), y.cuda())
        loss.backward()
        optimizer.step()
"""


@pytest.mark.parametrize(
    ("imports", "model", "number"),
    [
        ("from nets import Linears", "Linears(512)", 0),
        ("import nets", "nets.Linears(512)", 0),
        ("from nets import *", "Linears(512)", 0),
        ("from nets import build_row", "build_row()", 0),
        ("from nets import ROWS", "ROWS[name](512)", 0),
        ("from layers import Wrapped", "Wrapped()", 0),
        ("from nets import Linears, initialise", "Linears(512).apply(initialise)", 0),  # which only asks for classes
        ("from nets import Images", "Images(512)", 1),
        ("from nets import *", "Images(512)", 1),
        ("from nets import Derived", "Derived(512)", 1),
        ("from nets import build", "build(kind)", 1),
        ("from nets import KINDS", "KINDS[name](512)", 1),
        ("from layers import Holding", "Holding()", 1),
        # What is picked by a text is not in sight.
        ("import nets", "getattr(nets, name)(512)", 1),
        ("import nets", "nets.__dict__[name](512)", 1),
        ("import nets", "eval('nets.' + name)(512)", 1),
        ("from nets import FILLED", "FILLED[name](512)", 1),
        ("from nets import FILLED", "FILLED.get(name)(512)", 1),
        ("from nets import FILLED", "Linears(FILLED)", 1),
        ("from nets import CALLED", "CALLED[name](512)", 1),
        ("from nets import LISTED", "LISTED[0](512)", 1),
        ("import nets", "nets.LISTED[0](512)", 1),
        ("from nets import GROWS", "GROWS[1](512)", 1),
        ("from nets import STORED", "STORED[name](512)", 1),
        ("from nets import ADDED", "ADDED[1](512)", 1),
        ("from nets import MARKED", "MARKED[name](512)", 1),
        ("from nets import pick", "pick()", 1),
        ("from nets import Images", "Linears.__subclasses__()[0](512)", 1),
        ("from nets import Linears\nfrom torch import nn", "Linears(512, getattr(nn, 'Conv2d')(3, 512, 3))", 1),
        ("from nets import Linears\nfrom torch import nn", "Linears(512, getattr(nn, kind)(3, 512, 3))", 1),
        ("from nets import Linears\nfrom vit_pytorch import ViT", "Linears(ViT(512))", 1),
        ("from nets import Linears\nfrom fancy.models.dense import Dense", "Linears(Dense(512))", 1),
        (
            "if large:\n    import nets as zoo\nelse:\n    import layers as zoo",
            "zoo.Linears(512)",
            1,
        ),  # which of the two
        (
            "try:\n    import cPickle as p\nexcept ImportError:\n    import pickle as p\nfrom nets import Linears",
            "Linears(p.x)",
            0,
        ),
        # ... but these texts pick no layers, and these libraries have none.
        ("from nets import Linears", "Linears(getattr(torch.optim, name))", 0),
        ("import logging\nfrom nets import Linears", "Linears(getattr(logging, level))", 0),
        ("from nets import Linears", "Linears(getattr(torch, 'compile', None))", 0),
        ("from nets import Linears, OPTIONS", "Linears(OPTIONS)", 0),
        ("import wandb\nfrom nets import Linears", "Linears(wandb.init())", 0),
        ("from nets import Linears, Missing", "Missing(Linears(512))", 1),
        ("if name:\n    import nets as parts\nelse:\n    import layers as parts", "parts.Images(512)", 1),
    ],
)
@pytest.mark.parametrize("is_loop_here", [True, False])
def test_only_what_the_script_reaches_convolves(
    tmp_path: Path, imports: str, model: str, number: int, is_loop_here: bool
) -> None:
    script = TRAINS.format(imports=imports, model=model)
    if not is_loop_here:
        loop = script[script.index("    optimizer =") : script.index("if __name__")]
        script = script.replace(loop, "    train(model, loader)\n\n")
        script = script.replace("import torch\n", "import torch\nfrom engine import train\n", 1)
    folder = write(tmp_path, {"nets.py": NETS, "layers.py": LAYERS, "engine.py": ENGINE, "train.py": script})
    assert len(findings_in(folder, "train.py", {"PA301"})) == number


def test_a_class_of_the_script_that_nothing_names_convolves_for_nobody(tmp_path: Path) -> None:
    unused = (
        "\nclass Unused(torch.nn.Module):\n    def __init__(self):\n        self.conv = torch.nn.Conv2d(3, 512, 3)\n"
    )
    script = TRAINS.format(imports="from nets import Linears" + unused, model="Linears(512)")
    assert findings_in(write(tmp_path, {"nets.py": NETS, "train.py": script}), "train.py", {"PA301"}) == []
    used = script.replace("model = Linears(512)", "model = Unused()")
    assert len(findings_in(write(tmp_path, {"train.py": used}), "train.py", {"PA301"})) == 1


def test_a_function_that_a_library_runs_by_its_decorator_is_reached(tmp_path: Path) -> None:
    script = TRAINS.format(imports="import hydra\nfrom nets import Images", model="Images(512)")
    script = script.replace("def main(loader)", "@hydra.main()\ndef train(loader)").replace(
        "    main([])", "    hydra.run()"
    )
    assert len(findings_in(write(tmp_path, {"nets.py": NETS, "train.py": script}), "train.py", {"PA301"})) == 1


NARROW = """
from torch import nn

class Narrow(nn.Module):
    def __init__(self):
        super().__init__()
        # self.conv = nn.Conv2d(512, 512, 3)
        self.rows = nn.Sequential(nn.Conv1d(32, 32, 3), nn.ReLU(), nn.Linear(32, 3))

class Wide(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(256, WIDTH, 3)

class Larger(nn.Module):
    def __init__(self, channels=64, scale=2):
        super().__init__()
        self.conv = nn.Conv2d(channels, channels * (scale ** 2), 3)
        self.shuffle = nn.PixelShuffle(scale)

WIDTH = 512

def build(kind):
    import torchvision
    return torchvision.models.resnet50() if kind else Narrow()
"""


@pytest.mark.parametrize(
    ("model", "number"), [("Narrow()", 0), ("Wide()", 1), ("Larger()", 1), ("build(kind)", 1), ("pick('Narrow')", 1)]
)
def test_only_what_the_script_reaches_is_wide(tmp_path: Path, model: str, number: int) -> None:
    script = TRAINS.format(imports=f"from nets import {model.partition('(')[0]}", model=model)
    folder = write(tmp_path, {"nets.py": NARROW, "train.py": script})
    assert len(findings_in(folder, "train.py", {"PA304"})) == number
