"""Findings on a class of loaders that others are derived from, and that hands over what it keeps: `**self.options`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from perfaudit.findings import Finding
from perfaudit.rules import all_rules
from perfaudit.static.project import Project
from perfaudit.static.registry import run_checks
from perfaudit.static.source import Source

Folder = Callable[..., Path]

BASE = """
from torch.utils.data import DataLoader

class BaseLoader(DataLoader):
    def __init__(self, dataset, batch_size, shuffle, num_workers, collate_fn=None):
        self.sampler = self._split(dataset)
        self.options = {
            "dataset": dataset, "batch_size": batch_size, "num_workers": num_workers, "collate_fn": collate_fn{more}
        }
        super().__init__(sampler=self.sampler, **self.options)

    def for_validation(self):
        return DataLoader(sampler=self.others, **self.options)
"""
DERIVED = """
from base import BaseLoader

class PictureLoader(BaseLoader):
    def __init__(self, folder, batch_size, shuffle=True, num_workers=0):
        self.dataset = Pictures(folder)
        super().__init__(self.dataset, batch_size, shuffle, num_workers)

class DigitLoader(BaseLoader):
    def __init__(self, folder, batch_size, num_workers):
        super().__init__(Digits(folder), batch_size, True, num_workers)
"""
TRAIN = """
import json
import torch
import loaders

def main(config):
    loader = getattr(loaders, config["loader"]["type"])(**config["loader"]["args"])
    device = torch.device("cuda")
    for images, labels in loader:
        loss = criterion(model(images.to(device)), labels.to(device))
        loss.backward()
        optimizer.step()

if __name__ == "__main__":
    main(json.load(open("config.json")))
"""
CONFIG = '{"loader": {"type": "PictureLoader", "args": {"folder": "x", "batch_size": 8, "num_workers": 2}}}'


def findings_in(folder: Path, rule: str) -> list[Finding]:
    path = folder / "base.py"
    neighbours = Project(sorted(folder.rglob("*.py")), folders=[folder]).seen_from(path)
    return list(run_checks(Source("base.py", path.read_text(), neighbours), all_rules(), frozenset([rule])))


def files(config: str = CONFIG, base: str = BASE, more: str = "") -> dict[str, str]:
    return {
        "base.py": base.replace("{more}", more),
        "loaders.py": DERIVED,
        "train.py": TRAIN,
        "config.json": config,
    }


@pytest.mark.parametrize(
    ("given", "rules"),
    [
        (files(), ["PA102"]),
        (files(CONFIG.replace("2}", "0}")), ["PA101", "PA102"]),
        (files(CONFIG.replace("2}", "0}"), BASE.replace("super()", "super(BaseLoader, self)")), ["PA101", "PA102"]),
        (files(CONFIG.replace(', "num_workers": 2', "")), ["PA101", "PA102"]),  # by default
        (files(CONFIG.replace("Picture", "Other")), []),  # nobody builds the base
        (files(more=', "pin_memory": True'), []),
        (files(base=BASE.replace("super()", 'self.options["pin_memory"] = pins()\n        super()')), []),
        (files(base=BASE.replace("super()", "fill(self.options)\n        super()")), []),
        (files(base=f"{BASE}\n    def change(self):\n        self.options = more()\n"), []),
    ],
)
def test_what_a_base_class_keeps_of_its_options(project: Folder, given: dict[str, str], rules: list[str]) -> None:
    folder = project(**given)
    found = {rule: findings_in(folder, rule) for rule in ("PA101", "PA102")}
    assert [rule for rule in found if found[rule]] == rules
    assert all(len(each) < 2 for each in found.values())  # once, where it builds itself


def test_what_a_derived_class_hands_over_lies_in_memory(project: Folder) -> None:
    given = files(CONFIG.replace("2}", "0}"), BASE.replace(', "collate_fn": collate_fn', ""))
    assert findings_in(project(**given), "PA101")
    given["loaders.py"] = DERIVED.replace("Pictures(", "TensorDataset(")
    given["loaders.py"] = f"from torch.utils.data import TensorDataset\n{given['loaders.py']}"
    assert findings_in(project(**given), "PA101") == []


SERIES = """
import h5py
import torch
from torch.utils.data import Dataset

class Series(Dataset):
    def __init__(self, path):
        with h5py.File(path, "r") as file:
            self.series = file["series"][()]

    def __getitem__(self, index):
        return torch.FloatTensor(self.series[index])
"""


@pytest.mark.parametrize(
    ("base", "collates", "item", "is_told"),
    [
        ("default_collate", "", "self.series[index]", False),
        ("default_collate", ", collate_fn=pad", "self.series[index]", True),
        ("pad", "", "self.series[index]", True),
        ("default_collate", "", "change(self.series[index])", True),
    ],
)
def test_data_sets_of_a_package_that_a_derived_class_hands_over(
    project: Folder, base: str, collates: str, item: str, *, is_told: bool
) -> None:
    head = "from torch.utils.data.dataloader import default_collate\n"
    given = files(CONFIG.replace("2}", "0}"), head + BASE.replace("collate_fn=None", f"collate_fn={base}"))
    loaders = DERIVED.replace("Pictures(", "Series(").replace(
        "shuffle, num_workers)", f"shuffle, num_workers{collates})"
    )
    given["loaders.py"] = "from sets import Series\n" + loaders[: loaders.index("class DigitLoader")]
    given["sets/__init__.py"] = "from .series import *\n"
    given["sets/series.py"] = SERIES.replace("self.series[index]", item)
    assert bool(findings_in(project(**given), "PA101")) is is_told
