"""Findings on loaders whose settings stand in files of YAML, JSON and TOML, or in the nodes of a configuration."""

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


def findings_in(folder: Path, name: str, rule: str) -> list[Finding]:
    path = folder / name
    neighbours = Project(sorted(folder.rglob("*.py")), folders=[folder]).seen_from(path)
    return list(run_checks(Source(name, path.read_text(), neighbours), all_rules(), frozenset([rule])))


def script(workers: str, pinned: str = "True", before: str = "") -> str:
    return f"""
import json
import yaml
from torch.utils.data import DataLoader
{before}
def main():
    with open("configs/train.yaml") as file:
        config = yaml.safe_load(file)
    loader = DataLoader(Images(config["root"]), batch_size=8, num_workers={workers}, pin_memory={pinned})
    for images, targets in loader:
        loss = criterion(model(images.cuda()), targets.cuda())
        loss.backward()
        optimizer.step()

if __name__ == "__main__":
    main()
"""


SAYS_0 = "root: data\ndata:\n  num_workers: 0\n  pin_memory: false\n"
SAYS_4 = "root: data\ndata:\n  num_workers: 4\n  pin_memory: true\n"


@pytest.mark.parametrize(
    ("workers", "is_told"),
    [
        ('config["data"]["num_workers"]', True),
        ("config.data.num_workers", True),
        ('int(config["data"].get("num_workers"))', True),
        ('config["data"].get("num_workers", 0)', True),
        ('config["data"].get("num_workers", 4)', False),  # of files that do not say it
        ('config["num_workers"]', True),  # one section of the file may be meant
        ('config["valid"]["num_workers"]', False),
        ("images.num_workers", False),
        ('config["workers"]', False),
    ],
)
def test_a_number_of_workers_by_its_keys(project: Folder, workers: str, *, is_told: bool) -> None:
    folder = project(**{"train.py": script(workers), "configs/train.yaml": SAYS_0})
    found = findings_in(folder, "train.py", "PA101")
    assert len(found) == is_told
    for finding in found:
        assert f"`num_workers={workers}`, which is 0 by `configs/train.yaml:3`" in finding.message
        assert finding.fix is not None
        assert finding.fix.safety == "manual"
        assert "set in `configs/train.yaml:3`" in finding.fix.title


@pytest.mark.parametrize(
    ("workers", "files", "is_told"),
    [
        ('config.get("num_workers", 0)', {"a.yaml": "root: x\n"}, True),
        ('int(config.get("num_workers", 0))', {"a.yaml": "root: x\n", "b.yaml": "name: y\n"}, True),
        ('config["data"].get("num_workers", 0)', {"a.yaml": "root: x\n"}, False),  # of that part no file is in sight
        ('config.get("num_workers", 0)', {}, False),
        ('config.get("num_workers", 0)', {"a.yaml": "name: x\n"}, False),
        ('config.get("num_workers", 0)', {"a.yaml": "root: x\nspeed:\n  num_workers: 4\n"}, False),
        ('config.get("num_workers", 0)', {"a.yaml": "root: x\n", "run.sh": "python train.py num_workers=4\n"}, False),
        ('config.get("num_workers", 0)', {"a.yaml": "root: x\n", "b.py": "main({'num_workers': 4})\n"}, False),
        ('config.get("num_workers", 0)', {"a.yaml": "root: x\n", "b.py": "import detectron2\n"}, False),
        ('config.get("num_workers", cores())', {"a.yaml": "root: x\n"}, False),
        ('config.get("num_workers", 4)', {"a.yaml": "root: x\n"}, False),
        ('config.get("num_workers")', {"a.yaml": "root: x\n"}, False),
        ('others.get("num_workers", 0)', {"a.yaml": "root: x\n"}, False),
    ],
)
def test_what_a_call_takes_where_no_configuration_has_it(
    project: Folder, workers: str, files: dict[str, str], *, is_told: bool
) -> None:
    found = findings_in(project(**{"train.py": script(workers), **files}), "train.py", "PA101")
    assert len(found) == is_told
    assert all("which is 0 unless a configuration says otherwise" in each.message for each in found)


def test_a_part_of_the_configuration_under_another_name(project: Folder) -> None:
    text = script('part["num_workers"]').replace("loader =", 'part = config["data"]\n    loader =')
    both = "valid:\n  num_workers: 4\n" + SAYS_0
    folder = project(**{"train.py": text, "configs/train.yaml": both})
    assert len(findings_in(folder, "train.py", "PA101")) == 1


@pytest.mark.parametrize(
    ("files", "is_told"),
    [
        ({"a.yaml": SAYS_0, "b.yaml": SAYS_0}, True),
        ({"a.yaml": SAYS_0, "b.yaml": SAYS_4}, False),
        ({"a.yaml": SAYS_0, "b.yaml": "data:\n  num_workers: ${workers}\n"}, False),
        ({"a.json": '{"data": {"num_workers": 0}}'}, True),
        ({"a.json": '{"data": {"num_workers": 0}} // ours'}, True),
        ({"a.json": '{"data": {"num_workers": 0}} // ours', "b.json": '{"num_workers": 4,}'}, False),
        (
            {"configs/train.yaml": SAYS_0, "b.yaml": SAYS_4},
            False,
        ),  # that the script opens the first one may be one of its ways
        ({"configs/train.yaml": SAYS_0, "configs/b.yaml": "root: data\ndata:\n  batch_size: 8\n"}, False),
        ({"configs/train.yaml": SAYS_0, "configs/b.yaml": "name: environment\n"}, True),
        ({"configs/train.yaml": SAYS_0, "speed.yaml": "# @package data\nnum_workers: 8\n"}, False),
        ({"configs/train.yaml": SAYS_0, "other.py": "import detectron2\n"}, False),
        ({"configs/train.yaml": SAYS_0, "configs/large.jsonnet": "{data: {num_workers: 8}}"}, False),
        ({"configs/train.yaml": SAYS_0, "configs/large.jsonnet": "{data: {size: 8}}"}, True),
        ({"configs/train.yaml": SAYS_0, "run.sh": "python train.py data.num_workers=8\n"}, False),
        ({"configs/train.yaml": SAYS_0, "Makefile": "run:\n\tpython train.py data.num_workers=8\n"}, False),
        ({"configs/train.yaml": SAYS_0, "Justfile": "run:\n  python train.py data.num_workers=8\n"}, False),
        ({"configs/train.yaml": SAYS_0, "Makefile": "run:\n\tpython train.py\n"}, True),
        ({"configs/train.yaml": SAYS_0, "run.sh": "python train.py\n"}, True),
        ({"configs/train.yaml": SAYS_4, "b.yaml": SAYS_0}, False),
        ({"a.toml": "[data]\nnum_workers = 0\n"}, True),
        ({"configs/data/one.yaml": "num_workers: 0\n"}, True),  # a group of hydra's
        ({"configs/other/one.yaml": "num_workers: 0\n"}, False),
        ({}, False),
    ],
)
def test_all_files_must_say_the_same(project: Folder, files: dict[str, str], *, is_told: bool) -> None:
    folder = project(**{"train.py": script('config["data"]["num_workers"]'), **files})
    assert len(findings_in(folder, "train.py", "PA101")) == is_told


@pytest.mark.parametrize(
    ("before", "other"),
    [
        ('parser.add_argument("--num_workers", type=int)', ""),
        ("", 'parser.add_argument("--num_workers", default=cores())'),
        ("", 'parser.add_argument("-j", dest="num_workers")'),
        ("", "@click.option('--num-workers', default=8)\ndef main(num_workers): ..."),
        ("config = {'num_workers': 4}", ""),
        ("", "config.num_workers = min(8, cores())"),
        ("", "config.num_workers, config.seed = 8, 1"),
        ("", "config.num_workers += 8"),
        ("", 'config["num_workers"] += 8'),
        ("", 'config["num_workers"] = 4'),
        ("", 'config["num_workers"] = config["num_workers"] or cores()'),
        ("", 'config["num_workers"] = max(config["num_workers"], 1)'),
        ("", 'config["num_workers"] = arguments.train_num_workers'),
        ("", "build(num_workers=config.num_workers or 4)"),
        ("", "class Config:\n    @property\n    def num_workers(self):\n        return cores()\n"),
        ("", "config.update(num_workers=4)"),
        ("", "config.update({'num_workers': 4})"),
        ("", 'setattr(config, "num_workers", 4)'),
        ("", 'config.merge_from_list(["data.num_workers", 8])'),
        ("", 'compose("config", overrides=["data.num_workers=8"])'),
        ("", "class Config:\n    num_workers: int = 8\n"),
        ("", "class Config:\n    def __init__(self):\n        self.num_workers = 8\n"),
    ],
)
def test_what_else_may_say_it_leaves_it_unknown(project: Folder, before: str, other: str) -> None:
    text = script("config.data.num_workers", before=f"import options\n{before}")
    folder = project(**{"train.py": text, "options.py": f"import argparse\n{other}\n", "configs/train.yaml": SAYS_0})
    assert findings_in(folder, "train.py", "PA101") == []


@pytest.mark.parametrize(
    "other",
    [
        "DataLoader(images, num_workers=4)",
        "build(num_workers=config.data.num_workers)",
        "num_workers = config.data.num_workers\r",
        'build(num_workers=int(config["data"].get("num_workers", 0)))',
        "build(num_workers=config.num_workers if cuda else 0)  # none on the CPU",
        "class Config:\n    num_workers: int = 0\n",
        "assert config.num_workers == 4",
        'print(config["num_workers"], config.get("num_workers", 4))',
        "def build(num_workers: int): ...",
    ],
)
def test_what_says_the_same_or_nothing_changes_nothing(project: Folder, other: str) -> None:
    text = script("config.data.num_workers")
    folder = project(**{"train.py": text, "options.py": f"{other}\n", "configs/train.yaml": SAYS_0})
    assert len(findings_in(folder, "train.py", "PA101")) == 1


@pytest.mark.parametrize(
    ("option", "is_told"),
    [
        ('"--config", default="configs/train.yaml"', True),
        ('"--config", default="./configs/train.yaml"', True),
        ('"--test-config", default="configs/train.yaml"', False),
        ('"--config", default="configs/other.yaml"', False),
        ('"--config"', False),
    ],
)
def test_the_file_that_an_option_is_by_default(project: Folder, option: str, *, is_told: bool) -> None:
    before = f"import argparse\nparser = argparse.ArgumentParser()\nparser.add_argument({option})\n"
    text = script("config.data.num_workers", before=before).replace(
        'open("configs/train.yaml")', "open(arguments.config)"
    )
    folder = project(**{"train.py": text, "configs/train.yaml": SAYS_0, "configs/other.yaml": SAYS_4})
    assert len(findings_in(folder, "train.py", "PA101")) == is_told


def test_what_a_command_line_gives_is_no_configuration(project: Folder) -> None:
    text = script("args.num_workers").replace("    with open", "    args = parser.parse_args()\n    with open", 1)
    folder = project(**{"train.py": text, "a.yaml": "num_workers: 0\n"})
    assert findings_in(folder, "train.py", "PA101") == []


OPTION = (
    'import argparse\nparser = argparse.ArgumentParser()\nparser.add_argument("--num_workers", type=int, default=0)\n'
)


@pytest.mark.parametrize(
    ("files", "is_told"),
    [
        ({}, True),
        ({"a.yaml": "num_workers: 0\n"}, True),
        ({"a.yaml": "batch_size: 8\n"}, True),
        ({"a.yaml": "num_workers: 4\n"}, False),
        ({"a.yaml": "num_workers: ${workers}\n"}, False),
        ({"sweep.yaml": "parameters:\n  num_workers:\n    values: [2, 4]\n"}, False),
    ],
)
def test_a_default_of_code_that_files_may_replace(project: Folder, files: dict[str, str], *, is_told: bool) -> None:
    text = script("args.num_workers", before=OPTION)
    text = text.replace("    with open", "    args = parser.parse_args()\n    with open")
    text = text.replace("    loader =", "    vars(args).update(config)\n    loader =")
    folder = project(**{"train.py": text, **files})
    assert len(findings_in(folder, "train.py", "PA101")) == is_told


@pytest.mark.parametrize(
    ("files", "is_told"),
    [
        ({}, True),
        ({"configs/train.yaml": SAYS_4}, True),
        ({"configs/train.yaml": SAYS_0}, False),  # what reads it may hand it on to the parser
        ({"configs/train.yaml": "data:\n  workers: 0\n"}, True),
        ({"configs/train.yaml": "data:\n  num_workers: 8\n"}, True),
        ({"configs/train.yaml": "data:\n  num_workers: ${cores}\n"}, False),
    ],
)
@pytest.mark.parametrize("option", ["args.num_workers", "int(args.num_workers)"])
def test_workers_by_an_option_that_files_may_replace(
    project: Folder, option: str, files: dict[str, str], *, is_told: bool
) -> None:
    text = f"""
import argparse
from torch.utils.data import DataLoader

parser = argparse.ArgumentParser()
parser.add_argument("--num_workers", type=int, default=4)
args = parser.parse_args()
loader = DataLoader(images, batch_size=8, num_workers={option}, pin_memory=True)
for epoch in range(90):
    for x, y in loader:
        loss = model(x.cuda(non_blocking=True)) - y.cuda(non_blocking=True)
        loss.backward()
        optimizer.step()
"""
    folder = project(**{"train.py": text, **files})
    assert len(findings_in(folder, "train.py", "PA103")) == is_told


def test_a_module_of_which_the_command_line_of_lightning_makes_one(project: Folder) -> None:
    program = "from lightning.pytorch.cli import LightningCLI\nfrom data import Images\nLightningCLI(Net, Images)\n"
    tried = f"{LIGHTNING}\nif __name__ == '__main__':\n    Images('x')\n"
    for workers, is_told in ((0, True), (8, False)):
        files = {"data.py": tried, "main.py": program, "config.yaml": f"data:\n  root: x\n  num_workers: {workers}\n"}
        assert len(findings_in(project(**files), "data.py", "PA101")) == is_told


NODE = "from yacs.config import CfgNode as CN\n\n_C = CN()\n_C.DATA = CN()\n_C.DATA.WORKERS = 0\ncfg = _C\n"


@pytest.mark.parametrize(
    ("node", "files", "is_told"),
    [
        (NODE, {}, True),
        (NODE, {"a.yaml": "DATA:\n  WORKERS: 0\n"}, True),
        (NODE, {"a.yaml": "DATA:\n  WORKERS: 8\n"}, False),
        (NODE.replace("= 0", "= 8"), {}, False),
        (NODE.replace("= 0", "= cores()"), {}, False),
        (f"{NODE}if debug:\n    _C.DATA.WORKERS = 0\n", {}, False),
        (f"{NODE}_C.TEST = CN()\n_C.TEST.WORKERS = 4\n", {}, False),
        (NODE.replace("_C = CN()", "_C = Settings()"), {}, False),
    ],
)
def test_the_node_of_a_configuration(project: Folder, node: str, files: dict[str, str], *, is_told: bool) -> None:
    text = script("cfg.DATA.WORKERS", before="from config import cfg")
    folder = project(**{"train.py": text, "config.py": node, **files})
    found = findings_in(folder, "train.py", "PA101")
    assert len(found) == is_told
    assert all("which is 0 by `config.py:5`" in f.message or "a.yaml:2" in f.message for f in found)


def test_the_file_of_a_node_is_named_with_its_folder(project: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    text = script("cfg.DATA.WORKERS", before="from config.defaults import cfg")
    folder = project(**{"train.py": text, "config/__init__.py": "", "config/defaults.py": NODE})
    monkeypatch.chdir(folder)
    (found,) = findings_in(folder, "train.py", "PA101")
    assert "which is 0 by `config/defaults.py:5`" in found.message


LIGHTNING = """
from torch.utils.data import DataLoader
from lightning import LightningDataModule

class Images(LightningDataModule):
    def __init__(self, root, batch_size: int = 64, num_workers: int = 0, pin_memory: bool = False):
        super().__init__()
        self.save_hyperparameters(logger=False)

    def train_dataloader(self):
        return DataLoader(
            Pictures(self.hparams.root),
            batch_size=self.hparams.batch_size,
            num_workers=self.hparams.num_workers,
            pin_memory=self.hparams.pin_memory,
        )
"""

IMAGES = "_target_: data.Images\nnum_workers: 0\n"
OTHERS = "_target_: data.Others\nnum_workers: 4\n"
TRIED = {"test_data.py": "from data import Images\nImages('x')\n"}
OWN_FIELD = LIGHTNING.replace("self.save_hyperparameters(logger=False)", "self.num_workers = num_workers").replace(
    "self.hparams.num_workers", "self.num_workers"
)


@pytest.mark.parametrize(
    ("files", "is_told"),
    [
        ({"configs/data/images.yaml": "_target_: data.Images\nnum_workers: 0\n"}, True),
        ({"configs/data/images.yaml": "_target_: data.Images\nroot: x\n"}, True),  # what the class has by default
        ({"configs/data/images.yaml": "_target_: data.Images\nnum_workers: 4\n"}, False),
        ({"configs/data/images.yaml": "_target_: data.Images\n<<: *more\n"}, False),
        (
            {
                "configs/data/images.yaml": "_target_: data.Images\nnum_workers: 0\n",
                "configs/experiment/large.yaml": "data:\n  num_workers: 8\n",
            },
            False,
        ),
        (
            {
                "configs/data/images.yaml": "_target_: data.Images\nnum_workers: 4\n",
                "data.py": f"{LIGHTNING}\nif __name__ == '__main__':\n    Images('x')\n",
            },
            False,
        ),
        (
            {
                "configs/data/images.yaml": "_target_: data.Images\nnum_workers: 4\n",
                "data.py": f"{OWN_FIELD}\nif __name__ == '__main__':\n    Images('x')\n",
            },
            False,
        ),
        (
            {
                "configs/data/images.yaml": "_target_: data.Images\nnum_workers: 0\n",
                "data.py": f"{OWN_FIELD}\nif __name__ == '__main__':\n    Images('x')\n",
            },
            True,
        ),
        ({"configs/data/images.yaml": "_target_: data.Others\nnum_workers: 0\n"}, False),
        ({"configs/data/images.yaml": IMAGES, "configs/data/others.yaml": OTHERS}, True),
        ({"configs/data/images.yaml": IMAGES, "b.py": "from data import Images\nImages('x', num_workers=0)\n"}, True),
        ({"configs/data/images.yaml": IMAGES, "b.py": "from data import Images\nImages('x', num_workers=n)\n"}, False),
        ({"configs/data/images.yaml": "_target_: data.Images\n", "configs/data/others.yaml": OTHERS}, False),
        ({"configs/data/images.yaml": "_target_: ${paths.package}.data.Images\nnum_workers: 0\n"}, True),
        ({"configs/data/images.yaml": "_target_: ${paths.package}.data.Images\nnum_workers: 4\n", **TRIED}, False),
        ({"configs/data/images.yaml": IMAGES, "train.yaml": "defaults:\n  - data: images.yaml\n"}, True),
        ({"configs/data/images.yaml": IMAGES, "train.yaml": "defaults:\n  - data: others\n"}, False),
        ({"configs/data/images.yaml": IMAGES, "train.yaml": "defaults:\n- data: ${which}\n"}, True),
        (
            {
                "configs/data/images.yaml": IMAGES,
                "configs/train.yaml": "defaults:\n  - data: others\n",
                "configs/experiment/images.yaml": "defaults:\n  - override /data: images\n",
            },
            True,
        ),
        (
            {  # an example that a template has left behind
                "configs/data/images.yaml": IMAGES,
                "configs/train.yaml": "defaults:\n  - data: others\n",
                "configs/experiment/example.yaml": "defaults:\n  - override /data: images\n",
            },
            False,
        ),
        (
            {
                "configs/data/images.yaml": IMAGES,
                "configs/experiment/example.yaml": "defaults:\n  - override /data: images\n",
            },
            True,
        ),
        ({"train.py": "from data import Images\nImages('x')\n"}, True),
        ({"train.py": "from data import Images\nImages('x', num_workers=4)\n"}, False),
    ],
)
def test_what_a_configuration_gives_a_module_of_lightning(
    project: Folder, files: dict[str, str], *, is_told: bool
) -> None:
    folder = project(**{"data.py": LIGHTNING, **files})
    assert len(findings_in(folder, "data.py", "PA101")) == is_told


EVALUATES = """
from data import Images

def main():
    loader = loaders[kind](config.root, batch_size=8, num_workers=4)
    model.eval()

if __name__ == "__main__":
    main()
"""
LEFT_TO_4 = LIGHTNING.replace("num_workers: int = 0", "num_workers: int = 4")


@pytest.mark.parametrize(
    ("files", "is_told"),
    [
        ({"configs/data/images.yaml": IMAGES}, True),
        ({"configs/data/images.yaml": IMAGES.replace("num_workers: 0", "root: x")}, False),
        ({"configs/data/images.yaml": IMAGES, "b.yaml": "_target_: data.Images\nroot: x\n"}, False),
        (
            {"configs/data/images.yaml": IMAGES, "b.py": "class Others:\n    def __init__(self, num_workers=8): ...\n"},
            True,
        ),
        ({"configs/data/images.yaml": IMAGES, "b.py": "class Others:\n    num_workers: int = 8\n"}, False),
        ({"configs/data/images.yaml": IMAGES, "b.py": "def build(config, num_workers=8): ...\n"}, False),
        (
            {"configs/data/images.yaml": IMAGES, "b.py": "instantiate(config.data, num_workers=config.num_workers)\n"},
            False,
        ),
        (
            {
                "configs/data/images.yaml": IMAGES,
                "b.py": "class B:\n    def __init__(self):\n        f(num_workers=8)\n",
            },
            False,
        ),
        ({"configs/data/images.yaml": IMAGES, "test.py": EVALUATES}, True),
        ({"configs/data/images.yaml": IMAGES, "test.py": EVALUATES + "optimizer.step()\n"}, False),
        (
            {"configs/data/images.yaml": IMAGES, "test.py": EVALUATES.partition("\nif")[0]},
            False,
        ),  # for whoever imports it
        ({"configs/data/images.yaml": IMAGES, "test.py": EVALUATES.replace("loaders[kind]", "instantiate")}, False),
        ({"configs/data/images.yaml": IMAGES, "test.py": EVALUATES.replace("loaders[kind]", "Images")}, False),
        ({"configs/data/images.yaml": IMAGES, "test.py": EVALUATES + "num_workers = 4\n"}, False),
    ],
)
def test_what_a_constructor_has_by_default_is_not_what_files_give_it(
    project: Folder, files: dict[str, str], *, is_told: bool
) -> None:
    folder = project(**{"data.py": LEFT_TO_4, **files})
    assert len(findings_in(folder, "data.py", "PA101")) == is_told


def test_the_file_that_builds_the_class_is_named(project: Folder) -> None:
    folder = project(**{"data.py": LIGHTNING, "configs/a.yaml": OTHERS.replace("4", "0"), "configs/b.yaml": IMAGES})
    (found,) = findings_in(folder, "data.py", "PA101")
    assert "which is 0 by `configs/b.yaml:2` unless another configuration says otherwise," in found.message


@pytest.mark.parametrize(("says", "is_told"), [(SAYS_0, True), (SAYS_4, False)])
def test_pinning_by_a_configuration(project: Folder, says: str, *, is_told: bool) -> None:
    folder = project(**{"train.py": script("4", 'config["data"]["pin_memory"]'), "configs/train.yaml": says})
    found = findings_in(folder, "train.py", "PA102")
    assert len(found) == is_told
    for finding in found:
        assert "which is False by `configs/train.yaml:4`" in finding.message
        assert finding.fix is not None
        assert finding.fix.safety == "manual"


@pytest.mark.parametrize(("says", "is_told"), [(SAYS_0, False), (SAYS_4, True)])
def test_copies_of_batches_that_a_configuration_pins(project: Folder, says: str, *, is_told: bool) -> None:
    folder = project(**{"train.py": script("4", 'config["data"]["pin_memory"]'), "configs/train.yaml": says})
    assert bool(findings_in(folder, "train.py", "PA104")) == is_told


@pytest.mark.parametrize(
    ("unpacked", "says", "rules"),
    [
        ('**config["data"]', SAYS_0, ["PA101", "PA102"]),
        ("**config.data", SAYS_0, ["PA101", "PA102"]),
        ('**config["data"]', SAYS_4, []),
        ('**config["valid"]', SAYS_0, []),
        ("**options", SAYS_0, []),
        ('**config["data"], **more', SAYS_0, []),
    ],
)
def test_a_part_of_the_configuration_that_a_loader_unpacks(
    project: Folder, unpacked: str, says: str, rules: list[str]
) -> None:
    text = script("0").replace("batch_size=8, num_workers=0, pin_memory=True", unpacked)
    folder = project(**{"train.py": text, "configs/train.yaml": says})
    assert [rule for rule in ("PA101", "PA102") if findings_in(folder, "train.py", rule)] == rules


@pytest.mark.parametrize(
    ("before", "is_told"),
    [
        ('part = config["data"]', True),
        ('part = config["data"]\n    part["num_workers"] = 4', False),
        ('part = config["data"]\n    add(part)', False),
        ('part = config["data"] if large else config["small"]', False),
    ],
)
def test_a_part_that_a_loader_unpacks_by_a_name(project: Folder, before: str, *, is_told: bool) -> None:
    text = script("0").replace("batch_size=8, num_workers=0, pin_memory=True", "**part")
    folder = project(**{"train.py": text.replace("loader =", f"{before}\n    loader ="), "configs/train.yaml": SAYS_0})
    assert [rule for rule in ("PA101", "PA102") if findings_in(folder, "train.py", rule)] == [
        "PA101",
        "PA102",
    ] * is_told


@pytest.mark.parametrize(
    ("files", "rules"),
    [
        ({"a.yaml": "data:\n  batch_size: 8\n"}, ["PA101", "PA102"]),
        ({"a.yaml": "data:\n  batch_size: 8\n  num_workers: 4\n"}, ["PA102"]),
        ({"a.yaml": "data:\n  batch_size: 8\n", "b.yaml": "more:\n  pin_memory: true\n"}, ["PA101"]),
        ({"a.yaml": "images:\n  batch_size: 8\n"}, []),
        ({"a.yaml": "data: images\n"}, []),
        ({"a.yaml": "data:\n  batch_size: 8\n", "b.py": "config['data']['num_workers'] = 4"}, ["PA102"]),
    ],
)
def test_what_no_part_of_the_configuration_sets(project: Folder, files: dict[str, str], rules: list[str]) -> None:
    text = script("0", before="import b").replace("batch_size=8, num_workers=0, pin_memory=True", '**config["data"]')
    text = text.replace("configs/train.yaml", "configs.yaml")
    folder = project(**{"train.py": text, "b.py": "", **files})
    assert [rule for rule in ("PA101", "PA102") if findings_in(folder, "train.py", rule)] == rules


@pytest.mark.parametrize(("says", "is_told"), [(SAYS_0, False), (SAYS_4, True), ("data:\n  num_workers: 4\n", False)])
def test_copies_of_batches_whose_loader_unpacks_a_configuration(project: Folder, says: str, *, is_told: bool) -> None:
    text = script("0").replace("batch_size=8, num_workers=0, pin_memory=True", '**config["data"]')
    folder = project(**{"train.py": text, "configs/train.yaml": says})
    assert bool(findings_in(folder, "train.py", "PA104")) == is_told


@pytest.mark.parametrize(
    ("workers", "files", "is_told"),
    [
        ('data.get("num_workers", 0)', {"a.yaml": "data:\n  height: 8\n"}, True),
        ('int(data.get("num_workers", 0))', {"a.yaml": "data:\n  height: 8\n"}, True),
        ('data.get("num_workers", 4)', {"a.yaml": "data:\n  height: 8\n"}, False),
        ('data.get("num_workers", 0)', {"a.yaml": "data:\n  width: 8\n"}, False),  # not the one that is read
        ('data.get("num_workers", 0)', {}, False),
        ('data.get("num_workers", 0)', {"a.yaml": "data:\n  height: 8\n  num_workers: 4\n"}, False),
        ('data.get("num_workers", 0)', {"a.yaml": "height: 8\n", "b.py": "config['num_workers'] = 4"}, False),
    ],
)
def test_a_key_that_no_settings_file_has(
    project: Folder, workers: str, files: dict[str, str], *, is_told: bool
) -> None:
    text = script(workers, before="import b").replace(
        "loader =", 'data = config["data"]\n    size(data["height"])\n    loader ='
    )
    text = text.replace("configs/train.yaml", "configs.yaml")
    found = findings_in(project(**{"train.py": text, "b.py": "", **files}), "train.py", "PA101")
    assert len(found) == is_told
    assert all("which is 0 unless a configuration says otherwise" in f.message for f in found)


TRAINER = "_target_: lightning.Trainer\n"
IN_HOOK = LIGHTNING.replace("self.hparams.num_workers", "4").replace("pin_memory=self.hparams.pin_memory,", "")
IN_SETUP = IN_HOOK.replace("def train_dataloader", "def setup").replace("return DataLoader", "self.loader = DataLoader")
IN_SETUP += "\n    def train_dataloader(self):\n        return self.loader\n"


@pytest.mark.parametrize(
    ("files", "is_told"),
    [
        ({"configs/train.yaml": f"trainer:\n  {TRAINER}  accelerator: gpu\n"}, True),
        ({"configs/train.yaml": f"trainer:\n  {TRAINER}  gpus: 1\n"}, True),
        ({"configs/train.yaml": f"trainer:\n  {TRAINER}  gpus: 0\n"}, False),
        ({"configs/train.yaml": f"trainer:\n  {TRAINER}  accelerator: cpu\n"}, False),
        ({"configs/train.yaml": "trainer:\n  accelerator: auto\n"}, True),
        ({"a.yaml": "accelerator: gpu\n", "b.yaml": "accelerator: cpu\n"}, False),
        ({"configs/train.yaml": "defaults:\n  - trainer: gpu\n"}, True),
        ({"configs/train.yaml": "defaults:\n  - trainer: default.yaml\n"}, False),
        ({"configs/train.yaml": "defaults:\n  - trainer: gpu\n", "data.py": IN_HOOK.replace("train_d", "my_d")}, False),
        ({"configs/train.yaml": "defaults:\n  - trainer: gpu\n", "data.py": IN_SETUP}, True),
        (
            {"configs/train.yaml": "defaults:\n  - trainer: gpu\n", "data.py": IN_SETUP.replace("train_d", "my_d")},
            False,
        ),
        ({}, False),
    ],
)
def test_a_trainer_that_a_configuration_puts_on_the_gpu(
    project: Folder, files: dict[str, str], *, is_told: bool
) -> None:
    groups = {
        "configs/trainer/default.yaml": f"{TRAINER}accelerator: cpu\n",
        "configs/trainer/gpu.yaml": "defaults:\n  - default\naccelerator: gpu\n",
    }
    with_groups = groups if any("- trainer" in text for text in files.values()) else {}
    folder = project(**{"data.py": IN_HOOK, **with_groups, **files})
    assert len(findings_in(folder, "data.py", "PA102")) == is_told


def test_a_file_by_itself_has_no_configuration(project: Folder) -> None:
    text = script('config["data"]["num_workers"]')
    assert list(run_checks(Source("train.py", text), all_rules(), frozenset(["PA101"]))) == []
