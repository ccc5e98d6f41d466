"""PA801 where a loop calls what a library made: a patch only where nothing of somebody else can be in it."""

from __future__ import annotations

import pytest

from perfaudit.rules import all_rules
from perfaudit.static.registry import run_checks
from perfaudit.static.source import Source

EVALUATION = """
import torch
{imports}

def validate(model, loader, other):
    model.eval()
    right = 0
    for x, y in loader:
        {line}
        right += (model(x).argmax(1) == y).sum().item()
    return right
"""


def patches(imports: str, line: str) -> list[bool]:
    source = Source("test.py", EVALUATION.format(imports=imports, line=line))
    found = run_checks(source, all_rules(), frozenset(["PA801"]))
    return [bool(finding.fix and finding.fix.edits) for finding in found]


@pytest.mark.parametrize(
    ("imports", "line"),
    [
        (
            "import functools\nfrom attacks import examples\ncraft = functools.partial(examples, steps=10)",
            "x = craft(x)",
        ),
        ("import importlib\ntool = importlib.import_module('attacks')", "x = tool.craft(x)"),
        ("import pickle\ntool = pickle.load(open('tool', 'rb'))", "x = tool.craft(x)"),
        ("import copy\ntool = copy.deepcopy(TOOL)", "x = tool.craft(x)"),
        ("import types\ntool = types.SimpleNamespace(**made)", "x = tool.craft(x)"),
        ("tool = torch.load('tool.pt')", "x = tool.craft(x)"),
        ("tool = torch.hub.load('attacks', 'fgsm')", "x = tool.craft(x)"),
        ("import numpy as np\nfrom attacks import craft\ncraft_all = np.vectorize(craft)", "x = craft_all(x)"),
        ("import pandas as pd\nfrom attacks import craft\nrows = pd.read_csv('rows.csv')", "rows.apply(craft)"),
        ("import pandas as pd\nrows = pd.read_csv('rows.csv')", "rows.apply(lambda row: TOOL.craft(row))"),
        ("import pandas as pd\nrows = pd.read_csv('rows.csv')", "rows.sample(3).pipe(other, model)"),
        ("from PIL import Image", "Image.open(x).show(model)"),
        ("from PIL import Image", "Image.open(x).getter()(x)"),
        ("from torch.utils.tensorboard import SummaryWriter\nnotes = SummaryWriter()", "notes.take(model, x)"),
        ("from torch.utils.data import DataLoader\nown = DataLoader(Attacks())", "x = own.dataset.craft(x)"),
        (
            "from attacks import Craft\nfrom torchvision import transforms\nchange = transforms.Compose([Craft()])",
            "x = change(x)",
        ),
        ("from torchvision import transforms\nchange = transforms.Lambda(CRAFT)", "x = change(x)"),
    ],
)
def test_no_patch_where_somebody_elses_code_may_run(imports: str, line: str) -> None:
    assert not any(patches(imports, line))


@pytest.mark.parametrize(
    ("imports", "line"),
    [
        ("from PIL import Image", "image = Image.open(NAMES[x]).convert('RGB').rotate(90)"),
        ("from PIL import Image\nimage = Image.open('a.png')", "image.rotate(90)"),
        ("from pathlib import Path\nfolder = Path('found')", "folder.joinpath('a').touch()"),
        ("start = torch.cuda.Event()", "start.record()"),
        ("seen = torch.zeros(3)", "seen.scatter_add_(0, x, y)"),
        ("draws = torch.Generator()", "draws.manual_seed(3)"),
        ("from torch.utils.tensorboard import SummaryWriter\nnotes = SummaryWriter()", "notes.add_embedding(x, y)"),
        ("from torchvision import transforms", "x = transforms.Resize(3)(x).unfold(0, 1, 1)"),
        (
            "from torchvision import transforms as tv\n"
            "flip = tv.RandomApply([tv.RandomHorizontalFlip()])\nchange = tv.Compose([tv.Resize(3), flip])",
            "x = change(x)",
        ),
    ],
)
def test_a_patch_where_the_library_runs_its_own(imports: str, line: str) -> None:
    assert patches(imports, line) == [True]
